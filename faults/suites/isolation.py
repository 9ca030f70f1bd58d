"""Two processes inside one transaction each, at SERIALIZABLE: whatever the server refuses must be explained.

    python -m faults.suites.isolation                      each pair of moves once, from the same state
    python -m faults.suites.isolation --budget nightly     also random programs of two processes, and simulated days of two bots
    python -m faults.suites.isolation --days 10            only the days, from --seed on (isolation_days.py)

A ledger on PostgreSQL runs at READ COMMITTED with named locks (docs/decisions/0017). SERIALIZABLE is the oracle for what those
locks leave out: one process makes a move of the ledger up to its COMMIT, the other makes one and commits, then the first commits.
Locks that exclude each other show as a wait. What the server then refuses as a serialization failure is a pair of moves of which
each read what the other wrote, or only pages that the other wrote, as tables are small. So the pair is made once more at READ
COMMITTED: if the result is that of one move after the other, nothing depends on it. Otherwise a lock is missing, or `EXPLAINED`
states why the result is right. What differs only until the next claims look again is no difference (`is_result_of`).

The audit is left out: the head of a chain is locked at the end of each transaction, which would hide what was decided before.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faults.lab import ledgers
from faults.lab.meeting import SERIALIZATION_FAILURE, Ended
from faults.lab.postgres import READ_COMMITTED, SERIALIZABLE, HeldDatabase, Place, is_result_of
from faults.lab.setting import ram, silence
from faults.report.reports import Report, finish, keep_as, kept_as, merged
from faults.suites import isolation_days
from faults.suites.isolation_moves import MOVES, Process, prepared, two_processes
from ledger.ledger import StaleFenceError
from quotebot.app.postgres_storage import migrations, statements
from quotebot.sandbox.cluster import Cluster, folder_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence


SUITE: Final = "isolation"
BUDGETS: Final = {"change": 0, "nightly": 1_000}  # random programs
DAYS: Final = {"change": 0, "nightly": 100}
STEPS: Final = 20  # pairs of moves of one program
CHUNK: Final = 50  # programs on one server
CHUNK_OF_DAYS: Final = 5
READ: Final = re.compile(r"\b(?:FROM|JOIN|UPDATE)\s+(?!SET|OF)([a-z_]+)")
WRITTEN: Final = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(?!SET|OF)([a-z_]+)")

# Pairs of transactions whose result at READ COMMITTED is that of neither order, with the reason why it is right.
EXPLAINED: Final[Mapping[frozenset[str], str]] = {
    frozenset(
        {"claim_effects"}
    ): "the limit of a family is a budget: two claims at the same time may exceed it by what one of them takes",
    frozenset(
        {"record_step", "take_back_lapsed"}
    ): "a claim whose owner is just recording a step is passed over, and taken back at the next look",
}


async def interleave(first: Process, other: Process, moves: tuple[str, str]) -> Ended:
    """Make the first move up to its COMMIT, then the other move as a whole, then commit the first."""
    database, beside = first.database, other.database
    database.holds, database.held, database.released = True, asyncio.Event(), asyncio.Event()
    database.label = beside.label = ""
    begun: asyncio.Future[Any] = asyncio.ensure_future(getattr(first, moves[0])())
    held: asyncio.Future[Any] = asyncio.ensure_future(database.held.wait())
    await asyncio.wait([begun, held], return_when=asyncio.FIRST_COMPLETED)
    held.cancel()
    database.holds = False
    found = []
    if database.held.is_set():
        found.append(await _ending(getattr(other, moves[1])()))
    database.released.set()
    found.append(await _ending(begun))
    labels = frozenset({database.label, beside.label})
    refused = [getattr(each, "sqlstate", None) == SERIALIZATION_FAILURE for each in found]
    if any(refused):
        return Ended(labels, "refused", f"{moves[0]}, then {moves[1]}: {_common(database, beside)}")
    if any(each is not None for each in found):
        return Ended(labels, "waits", "; ".join(type(each).__name__ for each in found if each is not None))
    return Ended(labels, "nothing" if "" in labels else "independent", "")


async def _ending(move: Awaitable[None]) -> Exception | None:
    """Return the error of a move; a stale fence is an answer, not an error."""
    try:
        await move
    except StaleFenceError:
        return None
    except Exception as error:
        if getattr(error, "sqlstate", None) is None:
            raise
        return error  # of the server
    return None


def _common(one: HeldDatabase, other: HeldDatabase) -> str:
    """Return which tables each of two transactions read that the other wrote."""
    texts = statements()

    def tables(database: HeldDatabase, pattern: re.Pattern[str]) -> set[str]:
        return {name for each in database.names for name in pattern.findall(texts[each])}

    found = []
    for reader, writer in ((one, other), (other, one)):
        common = ", ".join(sorted(tables(reader, READ) & tables(writer, WRITTEN)))
        found.append(f"{reader.label} reads {common or 'nothing'} that {writer.label} writes")
    return "; ".join(found)


Step = tuple[Process, Process, tuple[str, str]]


async def steps_of(place: Place, seed: int, moves: tuple[str, str] | None = None) -> AsyncIterator[Step]:
    """Begin a program of two processes anew, and yield its pairs of moves: drawn from the seed, or always `moves`."""
    first, other, clock = await two_processes(place, seed)
    drawn = random.Random(-seed)  # noqa: S311 -- repeatable
    await prepared(first, other)
    for number in itertools.count():
        clock.now += drawn.choice((0, 500, 2_000))
        pair = moves or (drawn.choice(MOVES), drawn.choice(MOVES))
        if drawn.random() < 0.5:  # noqa: PLR2004 -- a half
            first, other = other, first
        for process in (first, other):  # draws the same whichever moves first
            process.drawn = random.Random(f"{seed}/{number}/{process.database.name}")  # noqa: S311 -- repeatable
        yield first, other, pair


async def run_program(place: Place, seed: int, moves: tuple[str, str] | None = None, count: int = STEPS) -> list[Ended]:
    """Interleave the pairs of a program up to the first refusal, which is compared with the result of both orders."""
    found: list[Ended] = []
    async for step in steps_of(place, seed, moves):
        found.append(await interleave(*step))
        if len(found) == count or found[-1].outcome == "refused":
            break
    if found[-1].outcome == "refused" and await _is_in_order(place, seed, moves, len(found) - 1):
        found[-1] = found[-1]._replace(outcome="refused for pages", words="")
    return found


async def _is_in_order(place: Place, seed: int, moves: tuple[str, str] | None, number: int) -> bool:
    """Tell whether the result of a step at READ COMMITTED is that of one of its moves after the other.

    No step before it was refused. They run at READ COMMITTED too, because the pages that transactions share differ each time.
    """
    for database in place.databases:
        database.level = READ_COMMITTED
    try:
        together = await interleave(*(await _at(place, seed, moves, number)))
        found = place.state()
        if together.outcome == "waits":
            return True
        for turned in (False, True):
            first, other, pair = await _at(place, seed, moves, number)
            ordered = ((first, pair[0]), (other, pair[1]))
            for process, move in reversed(ordered) if turned else ordered:
                await _ending(getattr(process, move)())
            if is_result_of(found, place.state()):
                return True
        return False
    finally:
        for database in place.databases:
            database.level = SERIALIZABLE


async def _at(place: Place, seed: int, moves: tuple[str, str] | None, number: int) -> Step:
    """Run a program up to a step and return it."""
    earlier = 0
    async for step in steps_of(place, seed, moves):
        if earlier == number:
            return step
        await interleave(*step)
        earlier += 1
    raise AssertionError  # a program has no end


def judged(found: Sequence[Ended], repeat: str) -> Report:
    """Return a report of how pairs ended."""
    counts = Counter(f"pairs {each.outcome}" for each in found if each.outcome != "nothing")
    wrong = sorted({f"{' and '.join(sorted(each.labels))}: {each.words}" for each in found if _is_unexplained(each)})
    met = {" and ".join(sorted(each.labels)) for each in found if each.outcome == "refused"}
    return Report(SUITE, counts, tuple(f"{words} (repeat: {repeat})" for words in wrong), tuple(sorted(met)))


def _is_unexplained(ended: Ended) -> bool:
    return ended.outcome == "refused" and ended.labels not in EXPLAINED


async def run_pairs(place: Place, pairs: Iterable[tuple[str, str]]) -> Report:
    """Interleave pairs of moves, each from the same state."""
    return judged([ended for pair in pairs for ended in await run_program(place, 1, pair, 1)], "python -m faults.suites.isolation")


def run_chunk(seeds: Sequence[int], *, with_pairs: bool) -> list[Report]:
    """Run programs, and before them every pair if wanted, on a server of their own."""
    folder = folder_for(SUITE)
    cluster = Cluster(folder, quick=True)
    try:
        cluster.start()
        place = Place(cluster.url(), migrations(), statements())
        parts = [asyncio.run(run_pairs(place, itertools.product(MOVES, MOVES)))] if with_pairs else []
        for seed in seeds:
            repeat = f"python -m faults.suites.isolation --seed {seed} --programs 1"
            parts.append(judged(asyncio.run(run_program(place, seed)), repeat))
        place.close()
    finally:
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)
    return parts


def run_budget(seed: int, programs: int, resume: Path | None) -> Report:
    """Run every pair, and chunks of random programs; those whose report is in `resume` are left out."""
    reports = []
    for number, first in enumerate(range(0, programs + 1, CHUNK)):
        name = f"{SUITE}-{seed + first}-{programs}"
        report = kept_as(resume, name)
        if report is None:
            began = time.monotonic()
            parts = run_chunk(range(seed + first, seed + min(first + CHUNK, programs)), with_pairs=number == 0)
            report = merged([*parts, Report(SUITE, {}, (), (), (seed + first,), time.monotonic() - began)])
            if resume is not None:
                keep_as(resume, name, report)
        reports.append(report)
    return merged(reports)


def run_day(server: ledgers.LedgerServer, seed: int) -> Report:
    """Simulate a day of two bots, whose transactions meet."""
    began, url = time.monotonic(), server.create_empty()
    with tempfile.TemporaryDirectory(prefix="quotebot-days-", dir=ram()) as folder:
        pairs, broken = isolation_days.live(url, seed, Path(folder))
    ledgers.drop(url)
    repeat = f"python -m faults.suites.isolation --seed {seed} --days 1"
    wrong = tuple(f"{sentence} (repeat: {repeat})" for sentence in broken)
    return merged([judged(pairs, repeat), Report(SUITE, {"days": 1}, wrong, (), (seed,), time.monotonic() - began)])


def run_days(seed: int, days: int, resume: Path | None) -> list[Report]:
    """Simulate days in chunks, each on a server of its own; those whose report is in `resume` are left out."""
    reports = []
    for first in range(seed, seed + days, CHUNK_OF_DAYS):
        name = f"{SUITE}-days-{first}"
        report = kept_as(resume, name)
        if report is None:
            with ledgers.ledger_server() as server:
                report = merged(run_day(server, each) for each in range(first, min(first + CHUNK_OF_DAYS, seed + days)))
            if resume is not None:
                keep_as(resume, name, report)
        reports.append(report)
    return reports


def main(argv: Sequence[str] | None = None) -> int:
    """Run pairs, programs and days; returns 1 if a refusal is not explained or an invariant is violated."""
    parser = argparse.ArgumentParser(
        prog="python -m faults.suites.isolation", description="Interleave transactions at SERIALIZABLE."
    )
    parser.add_argument("--budget", choices=tuple(BUDGETS), default="change")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--programs", type=int, help="how many, in place of a budget")
    parser.add_argument("--days", type=int, help="how many simulated days, in place of a budget")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each chunk's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    silence()
    reports = [] if options.days is None else run_days(options.seed, options.days, options.resume)
    if options.programs is not None:
        reports.append(run_budget(options.seed, options.programs, options.resume))
    if not reports:
        reports = [run_budget(options.seed, BUDGETS[options.budget], options.resume)]
        reports += run_days(options.seed, DAYS[options.budget], options.resume)
    report = merged(reports)
    told = ", ".join(f"{number:,} {name}" for name, number in sorted(report.counts.items()))
    return finish(
        report, options.json, [*report.violations, f"{told} in {report.seconds:.0f} s: {len(report.violations)} violations"]
    )


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # a seed gives the same day
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "faults.suites.isolation", *sys.argv[1:]])  # noqa: S606 -- this very program
    sys.exit(main())
