"""Pairs of transactions at SERIALIZABLE in each change: what the server refuses is explained, and a missing lock is found."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.meeting import Ended, Judge, Meeting, MeetingDatabase
from faults.lab.postgres import Place, is_result_of
from faults.suites import isolation_days
from faults.suites.isolation import judged, run_pairs
from faults.suites.isolation_moves import Process, prepared
from ledger.audit.events import Audit, Keyring
from ledger.ledger import Ledger
from ledger.postgres.connections import prepare
from ledger.recovery import begin_epoch
from tests.ledger.postgres.parts import BASE, MIGRATIONS, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.postgres import Server

MOVES = ("reserve", "claim", "execute", "take", "deliver", "pause", "cancel")


async def test_what_serializable_refuses_two_processes_is_explained(postgres: Server) -> None:
    report, pairs = await run(postgres, {}, *itertools.combinations_with_replacement(MOVES, 2))
    assert report == ()
    assert pairs["pairs waits"] > 0


async def test_a_parent_that_is_not_locked_is_found(postgres: Server) -> None:
    report, _ = await run(postgres, {"effect_by_key": BASE["effect_by_key"]}, ("execute", "deliver"))
    assert [line.partition(":")[0] for line in report] == ["execute and settle"]


async def run(postgres: Server, changed: Mapping[str, str], *pairs: tuple[str, str]) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """Interleave pairs of moves with changed statements; return the violations and the counts."""
    url = postgres.create(())
    place = Place(url, MIGRATIONS, {**STATEMENTS, **changed})
    try:
        report = await run_pairs(place, pairs)
    finally:
        place.close()
        postgres.drop(url)
    return report.violations, report.counts


def test_result_may_differ_from_an_order_only_by_what_the_next_claims_do() -> None:
    def effect(key: str, state: str, due: int | None, target: str | None = None) -> tuple[Any, ...]:
        return ("effects", key, state, due, target)

    taken, left = effect("a", "in_flight", None), effect("a", "pending", 5)
    assert is_result_of({left}, {left})
    assert is_result_of({left}, {taken}), "a claim that took less"
    assert not is_result_of({taken}, {left}), "a claim that took more"
    other, others = effect("b", "pending", 6), (effect("b", "in_flight", None), (*effect("b", "failed", None), "expired"))
    for instead in others:
        assert is_result_of({left, instead}, {taken, other}), "a claim that took another in its place"
    assert not is_result_of({taken, others[0]}, {taken, other}), "it passed over nothing"
    assert not is_result_of({left, effect("b", "failed", None)}, {taken, other}), "no claim does that"
    assert not is_result_of({effect("a", "pending", None)}, {taken}), "it would never be due"
    assert not is_result_of({effect("a", "pending", None)}, {left})
    assert not is_result_of({left}, {taken, effect("b", "pending", 5)}), "a row is missing"
    update, older = effect("b", "pending", 5, "card"), effect("a", "pending", 4, "card")
    replaced = effect("a", "superseded", None, "card")
    assert is_result_of({update, older}, {update, replaced}), "the claim of the older one drops it"
    assert not is_result_of({update, left}, {update, effect("a", "superseded", None)}), "an effect of another target"


def test_a_parent_that_is_not_locked_is_found_where_the_writes_of_two_bots_meet(postgres: Server) -> None:
    assert meet(postgres, STATEMENTS).outcome == "waits"
    found = meet(postgres, {**STATEMENTS, "effect_by_key": BASE["effect_by_key"]})
    assert (found.outcome, found.words) == ("refused", "execute, then settle: the result is that of no order, by effects")


def test_what_serializable_refuses_on_a_day_of_two_bots_is_explained(postgres: Server, tmp_path: Path) -> None:
    url = postgres.create(())
    pairs, broken = isolation_days.live(url, 5, tmp_path, commands=8)
    postgres.drop(url)
    assert broken == []
    report = judged(pairs, "")
    assert (report.violations, report.counts["pairs independent"] > 0) == ((), True)


def meet(postgres: Server, texts: Mapping[str, str]) -> Ended:
    """Execute a command whose effect waits for one that another bot settles meanwhile; return how that pair ended."""
    url, clock = postgres.create(()), LabClock()
    prepare(url, MIGRATIONS, clock.now_ms(), lambda: None)
    with closing(VirtualLoop(clock)) as loop:
        pair = loop.run_until_complete(_meet(url, clock, texts))
    postgres.drop(url)
    return pair


async def _meet(url: str, clock: LabClock, texts: Mapping[str, str]) -> Ended:
    meeting = Meeting(lambda: Judge(url, texts), random.Random(1), lambda: None)  # noqa: S311 -- repeatable
    engine: Any = type("Engine", (MeetingDatabase,), {"meeting": meeting})
    audit, requests = Audit(frozenset(), Keyring.of(b"k" * 32)), Counter[str]()
    processes: list[Any] = []
    for name in ("one", "other"):
        database = await engine.open(url, statements=texts, clock=clock, writer=name)
        epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0", alone=False, replica=name)
        drawn = random.Random(1)  # noqa: S311 -- repeatable
        processes.append(Process(Ledger(database, clock, audit, epoch=epoch), database, drawn, requests))
    first, other = processes
    await prepared(first, other)
    await asyncio.gather(first.execute(), other.deliver())
    meeting.close()
    for process in processes:
        await process.database.close()
    return meeting.pairs[-1]
