"""Seeded days of a deal desk on a virtual clock, each ending at rest with every invariant checked.

    python -m faults.suites.simulate --days 300             three days per seed, from --seed on
    python -m faults.suites.simulate --seed 4711 --days 3 --story      one seed, with its log of events

The same seed gives the same trace, byte for byte (its hash is printed).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.checks.checker import house_of, violations
from faults.checks.reachability import reached
from faults.harness.progress import bar
from faults.lab.bot import remember_tasks
from faults.lab.days import Office
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.outcome import outside_of
from faults.lab.processes import beside, no_traceback_of_ctrl_c
from faults.lab.reader import read_only
from faults.lab.setting import lab_settings, ram, silence
from faults.report.reports import Report, keep, keep_as, kept_as
from quotebot.sandbox.slack.directory import APPROVERS

if TYPE_CHECKING:
    from collections.abc import Sequence

DAYS_PER_SEED: Final = 3
COMMANDS: Final = (4, 6, 8, 10, 12, 15, 40)  # per day; one of these is drawn
DAYS: Final = {"change": 300, "nightly": 10_000}
BUSY: Final = (60, 120, 200, 300)  # per day of the long form


@dataclass(slots=True)
class Lived:
    """Results of one seed."""

    seed: int
    days: int = 0
    trace: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)


def live(seed: int, days: int, folder: Path, commands: Sequence[int] = COMMANDS) -> Lived:
    """Simulate the days of one seed, in this process."""
    clock = LabClock()
    loop = VirtualLoop(clock)
    remember_tasks(loop)
    asyncio.set_event_loop(loop)
    lived = Lived(seed)
    office = Office(lab_settings(folder / "bot"), clock, seed)
    try:
        loop.run_until_complete(_days(office, days, lived, commands))
    except Exception:  # noqa: BLE001 -- a violation like any other
        lived.violations.append(f"day {lived.days + 1}: {traceback.format_exc()}")
    lived.trace, lived.story = office.trace_hash(), office.story
    lived.counts.update(office.counts)
    with contextlib.suppress(RuntimeError):
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return lived


async def _days(office: Office, days: int, lived: Lived, commands: Sequence[int]) -> None:
    await office.start()
    for _ in range(days):
        await office.day(office.chance.choice(commands))
        await office.stop()
        check(office, lived)
        lived.days += 1
        if lived.violations:
            return
        await office.start()
    await office.stop()


def check(office: Office, lived: Lived) -> None:
    """Check an office at rest, and note violations and reached states in `lived`."""
    outside = outside_of(office.world)
    house = house_of(office.settings.data_dir, approvers=APPROVERS, clock_back_ms=office.clock_back_ms)
    with contextlib.closing(read_only(office.settings.ledger_path)) as ledger:
        found = violations(ledger, outside, office.history, at_rest=True, house=house)
        lived.violations += [f"day {lived.days + 1}: {sentence}" for sentence in found]
        lived.reached |= reached(ledger, outside, office.history)


def _live_timed(asked: tuple[int, int, Sequence[int]]) -> tuple[Lived, float]:
    began = time.monotonic()
    gc.disable()  # looking for cycles every few milliseconds takes a seventh of the time; a seed leaves little
    with tempfile.TemporaryDirectory(prefix="quotebot-days-", dir=ram()) as folder:
        lived = live(asked[0], asked[1], Path(folder), asked[2])
    gc.collect()
    gc.freeze()  # the present objects stay
    return lived, time.monotonic() - began


def reported(lived: Lived, seconds: float, *, story: bool, busy: bool = False) -> Report:
    """Print the results of a seed, and return its report. `busy` states that its days were busy."""
    seed = lived.seed
    again = f"python -m faults.suites.simulate --seed {seed} --days {DAYS_PER_SEED}{' --busy' if busy else ''} --story"
    if story:
        print("\n".join(lived.story))
    violations = tuple(f"seed {seed}, {sentence} -- {again}" for sentence in lived.violations)
    for line in violations:
        print(line)
    print(f"seed {seed}: {lived.days} days, {dict(lived.counts)}, trace {lived.trace[:16]} ({seconds:.1f} s)")
    return Report("simulate", {"days": lived.days, **lived.counts}, violations, tuple(sorted(lived.reached)), (seed,), seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate days from the command line."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--story", action="store_true", help="print what happened")
    parser.add_argument("--log", action="store_true", help="let the bot's own log be seen")
    parser.add_argument("--busy", action="store_true", help="hundreds of commands a day, as in the nightly run")
    parser.add_argument("--budget", choices=DAYS, help="instead of --days; nightly days are --busy")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each seed's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    if not options.log:
        silence()
    busy = options.busy or options.budget == "nightly"
    commands = BUSY if busy else COMMANDS
    days = options.days if options.budget is None else DAYS[options.budget]
    begins = enumerate(range(0, days, DAYS_PER_SEED))
    asked = [(options.seed + nth, min(DAYS_PER_SEED, days - begun), commands) for nth, begun in begins]
    before = {each[0]: report for each in asked if (report := kept_as(options.resume, str(each[0]))) is not None}
    for report in before.values():  # findings of an interrupted run count
        keep(report)
    todo = [each for each in asked if each[0] not in before]
    at_once = (os.cpu_count() or 1) if options.budget == "nightly" else 1
    wrong = sum(len(report.violations) for report in before.values())
    with bar(hidden=options.budget is None) as progress:
        task = progress.add_task("simulated days", total=days, completed=days - sum(each[1] for each in todo))
        for lived, seconds in beside(_live_timed, todo, at_once):
            progress.update(task, advance=lived.days)
            report = reported(lived, seconds, story=options.story, busy=busy)
            keep(report)
            if options.resume is not None:
                keep_as(options.resume, str(lived.seed), report)
            wrong += len(lived.violations)
    return 1 if wrong else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of texts is part of the trace
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "faults.suites.simulate", *sys.argv[1:]])  # noqa: S606 -- this very program
    with no_traceback_of_ctrl_c():
        sys.exit(main())
