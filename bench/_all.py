"""All benchmarks in one run, and one table with each goal, its result and its verdict.

    ./run bench [--quick] [--only start,ledger] [--json FILE]
    ./run bench --write FILE        the page docs/performance.md, from the output of --json, which is stored beside it

A benchmark is a script of this folder that accepts `--json` and prints an object with `goals`: each has a `goal` in words, the
result `found` (a number, or median, min and max), and a `verdict`. They run one after another, so that none disturbs another; a
tool without goals is not run. Status 1: a goal was missed, or a benchmark failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

if __name__ == "__main__":  # beside this script a file named ledger.py stands in for the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.lifecycle.report import machine

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "performance.md"
KEPT: Final = PAGE.with_suffix(".json")
SECONDS_MAX: Final = 3 * 3600
COLUMNS: Final = ("benchmark", "wanted", "found", "verdict")
HEAD: Final = """\
# How fast it is

Written by `./run bench --json FILE`, then `./run bench --write FILE`. Ratios are taken side by side in one run, because times alone
say more about a machine than about a program; the first lines of each benchmark say what is compared with what. "No verdict" means
that the machine was too busy, or that what to compare with was not installed.
"""


def benchmarks(folder: Path) -> list[Path]:
    """Return the scripts that belong in the table."""
    return [script for script in sorted(folder.glob("[!_]*.py")) if '"--json"' in script.read_text("utf-8")]


def run(script: Path, options: Sequence[str], seconds_max: float = SECONDS_MAX) -> dict[str, Any]:
    """Run one benchmark and return its report; the report of a failed one contains the end of its output."""
    try:
        done = subprocess.run(
            [sys.executable, script, "--json", *options], capture_output=True, text=True, timeout=seconds_max, check=False
        )
        report: Any = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return _failed(f"it did not end within {seconds_max:g} s")
    except ValueError:
        words = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        return _failed(f"status {done.returncode}: {words[-1]}")
    return report if isinstance(report, dict) and isinstance(report.get("goals"), list) else _failed("it judged nothing")


def _failed(words: str) -> dict[str, Any]:
    return {"goals": [{"goal": "it runs", "found": None, "verdict": f"failed: {words}"}]}


def rows(reports: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return the table, one row per goal."""
    return [
        (name, str(goal["goal"]), found(goal), str(goal["verdict"])) for name, report in reports.items() for goal in report["goals"]
    ]


def found(goal: Mapping[str, Any]) -> str:
    """Format a result: "5.2x [4.9 - 5.6]"."""
    value, unit = goal.get("found"), goal.get("unit", "")
    if isinstance(value, dict):
        return f"{value['median']:.2f}{unit} [{value['min']:.2f} - {value['max']:.2f}]"
    return f"{value:.2f}{unit}" if isinstance(value, int | float) else "-" if value is None else str(value)


def lines(table: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield the lines of the table for a terminal."""
    widths = [max(len(row[column]) for row in (COLUMNS, *table)) for column in range(len(COLUMNS) - 1)]
    for row in (COLUMNS, *table):
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))


def page(results: Mapping[str, Any]) -> str:
    """Return docs/performance.md."""
    headers = [report["header"] for report in results["reports"].values() if "header" in report]
    facts = next(machine(headers[0])) if headers else "machine unknown"
    table = rows(results["reports"])
    body = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    told = [
        f"Taken {results['taken_at']}{', in the quick form' if results['quick'] else ''}: {facts}.",
        "",
    ]
    return "\n".join([HEAD, *told, f"| {' | '.join(COLUMNS)} |", "|---|---|--:|---|", *body, ""])


def main() -> int:
    """Run the benchmarks that the command line names."""
    asked = _parser().parse_args()
    if asked.write:
        results = json.loads(asked.write.read_text("utf-8"))
        KEPT.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        PAGE.write_text(page(results), "utf-8")
        return 0
    wanted = asked.only.split(",") if asked.only else None
    reports: dict[str, dict[str, Any]] = {}
    for script in benchmarks(Path(__file__).parent):
        if wanted is None or script.stem in wanted:
            print(f"{script.stem} ...", file=sys.stderr, flush=True)
            report = run(script, ("--quick",) if asked.quick else ())
            reports[script.stem] = {part: report[part] for part in ("header", "goals") if part in report}
    if asked.json:
        taken_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        asked.json.write_text(json.dumps({"taken_at": taken_at, "quick": asked.quick, "reports": reports}, indent=1), "utf-8")
    table = rows(reports)
    print("\n".join(lines(table)))
    return int(any(verdict.startswith(("missed", "failed")) for *_, verdict in table))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look at each: seconds instead of minutes and gigabytes")
    parser.add_argument("--only", help="some of them, by name")
    parser.add_argument("--json", type=Path, help="keep what each said in this file")
    parser.add_argument("--write", type=Path, help="write docs/performance.md from such a file; nothing is run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
