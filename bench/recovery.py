"""Time from the restart of a killed bot to its first effect, on a file with a long history and pending work.

    ./run bench recovery [--finished 1M] [--waiting 10k] [--quick] [--json]

Builds the file first (minutes and gigabytes for a million). Status 1: a check failed or a goal was missed; 64: not started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.lifecycle.deed import open_ledger  # noqa: E402 -- after the path
from bench.lifecycle.footprint import Footprint, record  # noqa: E402 -- after the path
from bench.lifecycle.history import build  # noqa: E402 -- after the path
from bench.lifecycle.machine import count, describe, disk_folder, in_memory  # noqa: E402 -- after the path
from bench.lifecycle.report import machine  # noqa: E402 -- after the path
from bench.lifecycle.restart import CLASSES, FIRST_BATCH, REPEATS  # noqa: E402 -- after the path
from ledger.clock import SystemClock  # noqa: E402 -- after the path

ROOT: Final = Path(__file__).resolve().parent.parent
HELD: Final = 16  # commands that the dead bot was executing
FIRST_EFFECT_SECONDS: Final = 2.0
DUPLICATE_MS: Final = 1.0
QUICK: Final = (2_000, 500)
USAGE: Final = 64


def main() -> int:
    """Build the file, restart a bot on it and print the measured times."""
    asked = _parser().parse_args()
    if in_memory(asked.dir) and not asked.force:
        print(
            f"{asked.dir} is kept in memory, where flushing is free. Nothing was run. Choose another: --dir, or --force.",
            file=sys.stderr,
        )
        return USAGE
    finished, waiting = QUICK if asked.quick else (asked.finished, asked.waiting)
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as folder:
        path = Path(folder, "ledger.db")
        footprint = asyncio.run(record())
        asyncio.run(_die(path, footprint, finished, waiting))
        header = describe(path.parent, footprint.pragmas)
        report = {
            "header": header,
            "finished": finished,
            "waiting": waiting,
            "file_bytes": path.stat().st_size,
            **_restart(path, finished, busy=os.getloadavg()[0] > (os.cpu_count() or 1)),
        }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_lines(report)))
    return int(bool(report["problems"]) or any(goal["verdict"] == "missed" for goal in report["goals"]))


async def _die(path: Path, footprint: Footprint, finished: int, waiting: int) -> None:
    """Leave the file as a killed bot does: some commands claimed, many pending, no claim released."""
    for chapter in ("history", "last day"):
        ledger, database = await open_ledger(path, SystemClock())
        if chapter == "last day":
            await ledger.claim_operations(HELD)
        await database.close()
        if chapter == "history":
            build(path, footprint, finished, waiting)


def _restart(path: Path, finished: int, *, busy: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.lifecycle.restart", str(path), str(finished)]
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None  # noqa: S101 -- asked for above
        first_line = child.stdout.readline()
        seconds = time.perf_counter() - started
        rest = child.stdout.read()
    try:
        first, probe = json.loads(first_line), json.loads(rest)
    except ValueError:
        return {"problems": [f"the restarted process failed with status {child.returncode}"], "goals": []}
    wanted = {"taken_back": HELD, "executed": FIRST_BATCH, "effects": len(CLASSES), "claimed": REPEATS, "duplicates": REPEATS}
    found = {**first, **probe}
    problems = [f"{name}: {found[name]} instead of {count}" for name, count in wanted.items() if found[name] != count]
    if problems:  # a figure whose check failed is not reported
        return {"problems": problems, "goals": []}
    goals = _goals(seconds, probe["duplicate_p99_ms"], busy=busy)
    return {"problems": [], "first_effect_s": seconds, "phases_s": first["phases_s"], **probe, "goals": goals}


def _goals(first_effect_s: float, duplicate_ms: float, *, busy: bool) -> list[dict[str, Any]]:
    """Judge the times; unlike ratios, they are meaningless while other programs use the processors."""
    bounds = (
        (f"the first effect is attempted within {FIRST_EFFECT_SECONDS:g} s of the start", first_effect_s, FIRST_EFFECT_SECONDS),
        (f"a repeated delivery is recognised, p99, within {DUPLICATE_MS:g} ms", duplicate_ms, DUPLICATE_MS),
    )
    unjudged = "too noisy, no verdict" if busy else ""
    return [
        {"goal": goal, "found": value, "verdict": unjudged or ("ok" if value <= most else "missed")} for goal, value, most in bounds
    ]


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from machine(report["header"])
    counts = f"{report['finished']:,} commands finished, {report['waiting']:,} waiting, {HELD} of them held by a dead process"
    yield f"{counts}; {report['file_bytes'] / 1e6:,.0f} MB"
    yield from report["problems"]
    if report["problems"]:
        return
    flushes = report["claim_p99_ms"] / report["header"]["fdatasync_p99_ms"]
    yield f"process start to first effect  {report['first_effect_s']:.2f} s"
    yield "  of this: " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in report["phases_s"].items())
    claim = f"p50 {report['claim_p50_ms']:.2f} p99 {report['claim_p99_ms']:.2f} ms"
    yield f"claim of one command           {claim}, its p99 {flushes:.1f}x that of one flush"
    yield f"repeated delivery recognised   p50 {report['duplicate_p50_ms']:.2f} p99 {report['duplicate_p99_ms']:.2f} ms"
    for goal in report["goals"]:
        yield f"[{goal['verdict']}] {goal['goal']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench recovery", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--finished", type=count, default=1_000_000)
    parser.add_argument("--waiting", type=count, default=10_000)
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--force", action="store_true", help="run even in memory")
    parser.add_argument("--quick", action="store_true", help="a look: a short history")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
