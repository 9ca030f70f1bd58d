"""Command line of storm.py: runs many kill storms, several at a time, and prints their results.

A long run keeps the report of each finished storm, and a restarted run continues from there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from faults.harness.fork_server import BOTS, leave_fork_servers, was_left
from faults.harness.progress import bar
from faults.lab.setting import ram
from faults.report.reports import FOLDER_VARIABLE, Report, keep, keep_in, merged, read_all
from faults.suites.storm import KILLS, STOPS, run_storm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STORMS: Final = {"change": 4, "nightly": 200}  # 100 and 5,000 kills
TIDYING_SECONDS: Final = 10.0  # of an interrupted storm
AT_ONCE: Final = 3  # they mostly wait


def new_folder() -> Path:
    """Make a folder for one storm, in memory if possible: SIGKILL does not lose what was written."""
    return Path(tempfile.mkdtemp(prefix="quotebot-storm-", dir=ram()))


async def one_storm(seed: int, kills: int = KILLS, stops: int = STOPS) -> Report:
    """Run one storm. After a violation its files stay, and stderr names their folder."""
    folder = new_folder()
    try:
        report = await run_storm(folder, seed=seed, kills=kills, stops=stops)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if report.violations:
        sys.stderr.write(f"storm {seed}: its ledger and logs are kept in {folder}\n")
    else:
        shutil.rmtree(folder)
    return report


async def many_storms(seeds: Sequence[int], finished: Callable[[Report], None]) -> None:
    """Run a storm for each seed, each in a process of its own, AT_ONCE at a time; `finished` gets each report."""
    turns = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="quotebot-storms-") as folder:

        async def one(seed: int) -> None:
            async with turns:
                finished(await _storm_process(seed, Path(folder, f"{seed}.json")))

        async with asyncio.TaskGroup() as all_of_them:
            for seed in seeds:
                all_of_them.create_task(one(seed))


async def _storm_process(seed: int, answer: Path) -> Report:
    environment = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    command = (sys.executable, "-m", "faults.suites.storm", "--seed", str(seed), "--json", str(answer))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, env=environment)
    try:
        status = await process.wait()
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)  # Ctrl-C reached it already; a signal to this process alone did not
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), TIDYING_SECONDS)
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return _report_of(seed, status, answer)


def _report_of(seed: int, status: int, answer: Path) -> Report:
    if answer.exists():
        return Report.from_text(answer.read_text(encoding="utf-8"))
    line = f"storm {seed}: it ended with status {status} and no report (repeat: python -m faults.suites.storm --seed {seed})"
    return Report("storm", {}, (line,), seeds=(seed,))


def run_budget(seeds: Sequence[int], resume: Path | None) -> Report:
    """Run the storms with a progress bar on stderr and return one report; storms with a report in the folder are skipped."""
    reports = [] if resume is None else read_all(resume)
    done = {seed for report in reports for seed in report.seeds}
    with bar() as progress:
        task = progress.add_task("storms", total=len(seeds), completed=len(done))

        def finished(report: Report) -> None:
            reports.append(report)
            if resume is not None:
                keep_in(resume, report)
            for line in report.violations:
                progress.console.print(line, markup=False, soft_wrap=True)
            progress.advance(task)

        asyncio.run(many_storms([seed for seed in seeds if seed not in done], finished))
    return merged(reports)


def said(report: Report) -> str:
    """Return a summary of a report in one line."""
    counts = report.counts
    recovery = sorted(report.samples.get("recovery_ms", ()))
    quick = f"; first delivery {median(recovery):.0f} ms after a start, {recovery[-1]:.0f} ms at most" if recovery else ""
    return (
        f"{counts.get('kills', 0):,} kills and {counts.get('stops', 0):,} stops in {report.seconds:.0f} s, "
        f"{counts.get('gestures', 0):,} gestures, {counts.get('acknowledged', 0):,} acknowledged, "
        f"{counts.get('duplicates', 0):,} duplicates{quick}: {len(report.violations)} violations"
    )


def main(argv: Sequence[str]) -> int:
    """Run one storm, or a budget of them; returns 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.storm", description="Kill and stop the real bot at random.")
    parser.add_argument("--budget", choices=tuple(STORMS))
    parser.add_argument("--seed", type=int, default=1, help="of the storm, or of the first one of a budget")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--stops", type=int, default=STOPS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each storm's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # the world need not log that a killed bot cut its requests
    if options.budget is None:
        report = asyncio.run(one_storm(options.seed, options.kills, options.stops))
    else:
        if not was_left(BOTS):
            leave_fork_servers((BOTS, None))  # for all storms: a fork server per storm takes two seconds each
        report = run_budget(range(options.seed, options.seed + STORMS[options.budget]), options.resume)
    if options.json is not None:
        options.json.write_text(report.to_text(), encoding="utf-8")
    keep(report)
    for line in report.violations:
        print(line)  # noqa: T201 -- its output
    print(said(report))  # noqa: T201 -- its output
    return 1 if report.violations else 0
