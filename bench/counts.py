"""Instructions per command: the yardstick that does not depend on how busy the machine is.

    ./run bench counts [--json] [--quick]

callgrind counts the user instructions of a fixed number of commands (reserve, claim, execute), one at a time (c=1) and 64 at a
time, and beside them the same rows written as plain SQL by a bare loop: one command per three commits (limit) and 64 (batch 64).
Files are in memory, statements are warm, and rules that look at a clock are fixed to their normal case
(bench/lifecycle/counted.py says how). Each variant is counted in several windows of one run; the spread is theirs.

An instruction is not a time: waiting for the disk, for a cache and for another thread is not counted. Status 1: a goal was missed;
69: valgrind is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sqlite3
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.lifecycle import callgrind  # noqa: E402 -- after the path
from bench.lifecycle.child import make  # noqa: E402 -- after the path
from bench.lifecycle.footprint import record  # noqa: E402 -- after the path
from bench.lifecycle.machine import in_memory  # noqa: E402 -- after the path
from bench.lifecycle.measure import Run, check, mark  # noqa: E402 -- after the path

MILLION: Final = 1_000_000
UNAVAILABLE: Final = 69
MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- files made there get names of their own
WINDOWS, QUICK_WINDOWS = 3, 1
PARTS: Final = ("python", "sqlite", "libc", "crypto", "other")


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant: the commands of its warm-up and of a window, and the most instructions per command, if that is a goal."""

    name: str
    warm_up: int
    commands: int
    most: float | None = None


VARIANTS: Final = (
    Variant("quotebot c=1", 64, 256, 2.6 * MILLION),
    Variant("quotebot c=64", 128, 512, 2.1 * MILLION),
    Variant("limit", 64, 256),
    Variant("batch 64", 128, 512),
)


def main() -> int:
    """Count, and print the report."""
    asked = _parser().parse_args()
    if not callgrind.is_installed():
        print(callgrind.MISSING, file=sys.stderr)
        return UNAVAILABLE
    windows = QUICK_WINDOWS if asked.quick else WINDOWS
    rows = [row(variant, *_counted(variant, windows)) for variant in VARIANTS]
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "windows": windows,
        "rows": rows,
        "goals": [goal for variant, found in zip(VARIANTS, rows, strict=True) for goal in judge(variant, found)],
    }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_lines(report)))
    return int(any(found["problems"] for found in rows) or any(goal["verdict"] == "missed" for goal in report["goals"]))


def _counted(variant: Variant, windows: int) -> tuple[list[Counter[str]], list[str]]:
    """Count one variant on a new file; return the windows, and what the check of the rows found."""
    with tempfile.TemporaryDirectory(prefix="quotebot-counts-", dir=MEMORY if in_memory(MEMORY) else None) as folder:
        path = Path(folder, "ledger.db")
        asyncio.run(make(path))
        before = mark(path)
        try:
            found = callgrind.count((variant.name, str(path), str(variant.warm_up), str(variant.commands)), Path(folder), windows)
        except callgrind.CallgrindError as error:
            return [], [str(error)]
        run = Run(variant.warm_up + windows * variant.commands, 0.0, [], 0)
        check(path, before, run, asyncio.run(record()))
    return found, run.problems


def row(variant: Variant, windows: Sequence[Counter[str]], problems: list[str]) -> dict[str, Any]:
    """Return one JSON-ready row: instructions per command with the spread of the windows, and the share of each library."""
    found: dict[str, Any] = {"variant": variant.name, "commands": variant.commands, "problems": problems}
    if problems or not windows:
        return found
    totals = [window.total() / variant.commands for window in windows]
    parts = {part: statistics.median(window[part] for window in windows) / variant.commands for part in PARTS}
    return {**found, "instructions": {"median": statistics.median(totals), "min": min(totals), "max": max(totals)}, "parts": parts}


def judge(variant: Variant, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the goal of a variant that has one."""
    if variant.most is None:
        return
    goal = {"goal": f"{variant.name}: instructions per command <= {variant.most / MILLION:g} M", "unit": " M"}
    if "instructions" not in found:
        yield {**goal, "found": None, "verdict": f"no verdict: {'; '.join(found['problems']) or 'not counted'}"}
        return
    spread = {name: value / MILLION for name, value in found["instructions"].items()}
    yield {**goal, "found": spread, "verdict": "ok" if found["instructions"]["median"] <= variant.most else "missed"}


def _lines(report: dict[str, Any]) -> Iterator[str]:
    versions = f"Python {report['python']}, SQLite {report['sqlite']}"
    yield f"Millions of user instructions per command; {versions}; {report['windows']} windows"
    yield f"{'variant':14} {'median':>8} {'[min - max]':>17} " + " ".join(f"{part:>7}" for part in PARTS)
    for found in report["rows"]:
        if "instructions" not in found:
            yield f"{found['variant']:14} {'; '.join(found['problems'])}"
            continue
        middle, least, most = (found["instructions"][name] / MILLION for name in ("median", "min", "max"))
        spread = f"[{least:.3f} - {most:.3f}]"
        parts = " ".join(f"{found['parts'][part] / MILLION:7.3f}" for part in PARTS)
        yield f"{found['variant']:14} {middle:8.3f} {spread:>17} {parts}"
    yield ""
    for goal in report["goals"]:
        yield f"[{goal['verdict']}] {goal['goal']}" + (f"  found {goal['found']['median']:.3f} M" if goal["found"] else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench counts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_WINDOWS} window instead of {WINDOWS}")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
