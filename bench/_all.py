"""All benchmarks in one run, and one table with each goal, its result and its verdict.

    ./run bench [--quick] [--peers] [--only start,ledger] [--times 3] [--json FILE]
    ./run bench --write FILE    the page docs/performance.md and its pictures, from the output of --json, which is stored beside it

A benchmark is a script of this folder that accepts `--json` and prints an object with `goals`: each has a `goal` in words, the
result `found` (a number, or median, min and max), and a `verdict`. They run one after another, so that none disturbs another; a
tool without goals is not run. One that gives single numbers is run several times, for their spread. --peers installs the
frameworks that the ledger is compared with. Status 1: a goal was missed, or a benchmark failed; 69: the frameworks could not be
installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

if __name__ == "__main__":  # beside this script a file named ledger.py stands in for the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.lifecycle import environment
from bench.lifecycle.pictures import PICTURES, draw, lines_of
from bench.lifecycle.report import machine
from bench.lifecycle.verdicts import NOISE_MAX

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "performance.md"
KEPT: Final = PAGE.with_suffix(".json")
FOLDER: Final = PAGE.parent / "pictures"
PICTURED: Final = "ledger"
SECONDS_MAX: Final = 3 * 3600
TIMES: Final = 3
UNAVAILABLE: Final = 69
PUBLISHED: Final = ("ok", "missed")
PARTS: Final = ("header", "goals", "rows", "noise", "rounds")  # of a report: what is kept; the last three of the pictured one only
COLUMNS: Final = ("benchmark", "wanted", "found", "verdict")
HEAD: Final = """\
# How fast it is

Written by `./run bench --json FILE`, then `./run bench --write FILE`. Ratios are taken side by side in one run, because times alone
say more about a machine than about a program; the first lines of each benchmark say what is compared with what. A result is the
median of its runs with the smallest and the largest; a goal without a verdict is not in the table.
"""
COMPARED: Final = """\
A command is reserved, claimed and executed: one quote, one audit event, three effects that stay pending. Every commit is flushed.
The limit is a bare loop that writes the same rows, one command at a time. procrastinate runs on PostgreSQL, the rest on SQLite."""


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
        if done.returncode == UNAVAILABLE:
            return {"goals": [{"goal": "it runs", "found": None, "verdict": f"no verdict: {words[-1]}"}]}
        return _failed(f"status {done.returncode}: {words[-1]}")
    return report if isinstance(report, dict) and isinstance(report.get("goals"), list) else _failed("it judged nothing")


def _failed(words: str) -> dict[str, Any]:
    return {"goals": [{"goal": "it runs", "found": None, "verdict": f"failed: {words}"}]}


def run_times(script: Path, options: Sequence[str], times: int) -> dict[str, Any]:
    """Run a benchmark; if it gives single numbers, `times` times, and return its report with their spread."""
    reports = [run(script, options)]
    if any(_single(goal) for goal in reports[0]["goals"]):
        reports += [run(script, options) for _ in range(times - 1)]
    return {**reports[0], "goals": merged([report["goals"] for report in reports])}


def merged(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the goals of several runs of one benchmark as one: the median is judged, of counts (whole numbers) the worst."""
    first, *others = runs
    return [_merged([goal, *(each for run in others for each in run if each["goal"] == goal["goal"])], len(runs)) for goal in first]


def _merged(same: Sequence[Mapping[str, Any]], times: int) -> dict[str, Any]:
    unjudged = [goal["verdict"] for goal in same if goal["verdict"] not in PUBLISHED]
    if unjudged:
        return {**same[0], "verdict": unjudged[0]}
    if len(same) < times:
        return {**same[0], "verdict": "no verdict: not in every run"}
    if times == 1 or not all(_single(goal) for goal in same):
        return dict(same[0])
    values = [goal["found"] for goal in same]
    middle = statistics.median_low(values)
    judged = [goal["verdict"] for goal in same if goal["found"] == middle or all(isinstance(value, int) for value in values)]
    spread = {"median": middle, "min": min(values), "max": max(values)}
    return {**same[0], "found": spread, "verdict": "missed" if "missed" in judged else "ok"}


def _single(goal: Mapping[str, Any]) -> bool:
    return isinstance(goal.get("found"), int | float)


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
    body = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table if row[-1] in PUBLISHED]
    told = [
        f"Taken {results['taken_at']}{', in the quick form' if results['quick'] else ''}: {facts}.",
        "",
    ]
    drawn = pictures(results)
    shown = [
        f"![{picture.title} by commands at the same time](pictures/{picture.file})" for picture in PICTURES if picture.file in drawn
    ]
    if shown:
        shown = [*shown, "", *_pictured(results), ""]
    left = left_out(results)
    return "\n".join([HEAD, *told, *shown, f"| {' | '.join(COLUMNS)} |", "|---|---|--:|---|", *body, "", *left])


def left_out(results: Mapping[str, Any]) -> list[str]:
    """Return the line that names what is not in the table and why, or nothing."""
    reasons: dict[str, list[str]] = {}
    for name, goal, _, verdict in rows(results["reports"]):
        if verdict not in PUBLISHED:
            reasons.setdefault(verdict.removeprefix("no verdict: "), []).append(f"{name} ({goal})")
    named = "; ".join(f"{_listed(goals)}: {why}" for why, goals in reasons.items())
    return [f"Left out, because there is no verdict: {named}.", ""] if named else []


def pictures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the pictures by file name; none if the run was too noisy to judge or kept no rows."""
    report = results["reports"].get(PICTURED, {})
    if report.get("noise") is None or report["noise"] > NOISE_MAX:
        return {}
    found = ((picture, lines_of(report.get("rows", ()), picture.figure)) for picture in PICTURES)
    return {picture.file: draw(picture, drawn) for picture, drawn in found if drawn}


def _pictured(results: Mapping[str, Any]) -> Iterator[str]:
    report = results["reports"][PICTURED]
    yield f"Medians of {report['rounds']} rounds. {COMPARED}"
    lacking: dict[str, list[str]] = {}
    for row in report["rows"]:
        if row["problems"] and not row["size"]:
            lacking.setdefault("; ".join(row["problems"]), []).append(row["variant"])
    if lacking:
        yield f"Not drawn: {'; '.join(f'{_listed(names)} ({why})' for why, names in lacking.items())}."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def write(results: Mapping[str, Any]) -> None:
    """Write the page, its results and its pictures; delete a picture that these results do not give."""
    KEPT.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(results), "utf-8")
    drawn = pictures(results)
    for picture in PICTURES:
        if picture.file in drawn:
            (FOLDER / picture.file).write_text(drawn[picture.file], "utf-8")
        else:
            (FOLDER / picture.file).unlink(missing_ok=True)


def main() -> int:
    """Run the benchmarks that the command line names."""
    asked = _parser().parse_args()
    if asked.write:
        write(json.loads(asked.write.read_text("utf-8")))
        return 0
    if asked.peers:
        try:
            environment.install()
        except environment.CannotInstallError as error:
            print(error, file=sys.stderr)
            return UNAVAILABLE
    wanted = asked.only.split(",") if asked.only else None
    reports: dict[str, dict[str, Any]] = {}
    for script in benchmarks(Path(__file__).parent):
        if wanted is None or script.stem in wanted:
            print(f"{script.stem} ...", file=sys.stderr, flush=True)
            options = [*(["--quick"] if asked.quick else []), *(["--peers"] if asked.peers and script.stem == PICTURED else [])]
            report = run_times(script, options, 1 if asked.quick else asked.times)
            kept = PARTS if script.stem == PICTURED else PARTS[:2]
            reports[script.stem] = {part: report[part] for part in kept if part in report}
    if asked.json:
        taken_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        asked.json.write_text(json.dumps({"taken_at": taken_at, "quick": asked.quick, "reports": reports}, indent=1), "utf-8")
    table = rows(reports)
    print("\n".join(lines(table)))
    return int(any(verdict.startswith(("missed", "failed")) for *_, verdict in table))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look at each: seconds instead of minutes and gigabytes")
    parser.add_argument(
        "--peers", action="store_true", help="install the frameworks to compare with, and run them even with --quick"
    )
    parser.add_argument("--times", type=int, default=TIMES, help=f"runs of what gives single numbers: {TIMES} unless told")
    parser.add_argument("--only", help="some of them, by name")
    parser.add_argument("--json", type=Path, help="keep what each said in this file")
    parser.add_argument("--write", type=Path, help="write docs/performance.md from such a file; nothing is run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
