"""Pairs of transactions at SERIALIZABLE in each change: what the server refuses is explained, and a missing lock is found."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from faults.lab.postgres import Place
from faults.suites.isolation import run_pairs
from tests.ledger.postgres.parts import BASE, MIGRATIONS, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

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
