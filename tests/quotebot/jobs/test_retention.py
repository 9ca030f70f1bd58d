"""Tests of retention by age: ended rows are purged after their time, with an audit event; open ones never."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from quotebot import effects
from quotebot.commands.payloads import SubmitQuote
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.jobs.maintenance import RetentionPeriods, let_go, too_old
from tests.quotebot.dispatch.test_summaries import submitted
from tests.quotebot.parts import create_command, request_for
from tests.quotebot.reading_parts import desk_at

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

KEEPING = RetentionPeriods(model_days=90, reconcile_days=400)
NOTHING = {"readings": 0, "model_calls": 0, "quote_summaries": 0, "crm_conflicts": 0}
HASH = "0" * 64


async def no_rest() -> None:
    """Do not pause between two batches."""


def written(bench: Bench, at: int) -> None:
    """Store a row of each kind that ended at a moment, and one of each that has not ended."""
    bench.rows(
        "INSERT INTO readings VALUES (?, 'T0', 'U0REP', ?, ?, ?, 'rules', NULL), (?, 'T0', 'U0REP', ?, NULL, NULL, NULL, NULL)",
        *(f"done-{at}", at, f"by-{at}", at, f"open-{at}", at),
    )
    bench.rows(
        "INSERT INTO model_calls (effect_key, correlation_id, model, outcome, request_sha256, called_at) "
        "VALUES ('e', 'c', 'm', 'ok', ?, ?)",
        *(HASH, at),
    )
    bench.rows("INSERT INTO quote_summaries VALUES (?, 1, 'fine', ?)", f"Q-{at}", at)
    bench.rows(
        "INSERT INTO crm_conflicts (quote_id, version, record_id, field, ours, theirs, found_at, state, decided_at) "
        "VALUES (?, 1, '0Q0', 'Quote.Status', 'a', 'b', ?, 'over', ?), (?, 2, '0Q0', 'Quote.Status', 'a', 'b', ?, 'open', NULL)",
        *(f"Q-{at}", at, at, f"Q-{at}", at),
    )


def kept(bench: Bench) -> dict[str, int]:
    tables = ("readings", "model_calls", "quote_summaries", "crm_conflicts")
    return {table: bench.row(f"SELECT count(*) AS n FROM {table}")["n"] for table in tables}  # noqa: S608 -- own table names


async def test_retention_purges_expired_rows_in_audited_batches_and_keeps_open_ones(bench: Bench) -> None:
    begun = bench.clock.now_ms()
    for number in range(3):
        written(bench, begun + number)
    bench.clock.ms = begun + 2 + 90 * DAY_MS  # the newest row ended exactly 90 days ago
    expected = {"readings": 2, "model_calls": 2, "quote_summaries": 2, "crm_conflicts": 0}
    assert await too_old(bench.ledger, KEEPING) == expected
    assert await let_go(bench.ledger, KEEPING, batch=1, between=no_rest) == expected
    assert kept(bench) == {"readings": 4, "model_calls": 1, "quote_summaries": 1, "crm_conflicts": 6}
    bench.clock.ms = begun + 3 + 400 * DAY_MS
    expected = {"readings": 1, "model_calls": 1, "quote_summaries": 1, "crm_conflicts": 3}
    assert await too_old(bench.ledger, KEEPING) == expected
    assert await let_go(bench.ledger, KEEPING, between=no_rest) == expected
    assert kept(bench) == {"readings": 3, "model_calls": 0, "quote_summaries": 0, "crm_conflicts": 3}
    assert await too_old(bench.ledger, KEEPING) == await let_go(bench.ledger, KEEPING, between=no_rest) == NOTHING
    told = bench.rows("SELECT actor, after FROM audit_events WHERE event_type = 'retention.purged' ORDER BY id")
    assert [json.loads(row["after"]) for row in told] == [
        {"model_calls": 1, "quote_summaries": 1, "readings": 1},
        {"model_calls": 1, "quote_summaries": 1, "readings": 1},
        {"crm_conflicts": 3, "model_calls": 1, "quote_summaries": 1, "readings": 1},
    ]
    assert {row["actor"] for row in told} == {"quotebot"}


async def test_a_summary_stays_while_approvers_may_look_at_it(bench: Bench) -> None:
    async with desk_at(bench, None, per_day=0) as desk:
        quote_id = await submitted(desk)
    bench.rows("INSERT INTO quote_summaries VALUES (?, 1, 'fine', 1)", quote_id)
    assert await too_old(bench.ledger, KEEPING) == await let_go(bench.ledger, KEEPING, between=no_rest) == NOTHING
    bench.rows("UPDATE approval_slots SET state = 'expired', decided_at = 1")
    bench.rows("UPDATE approvals SET state = 'expired', decided_at = 1")
    assert await let_go(bench.ledger, KEEPING, between=no_rest) == {**NOTHING, "quote_summaries": 1}


def test_an_open_difference_cannot_be_deleted_by_anybody(bench: Bench) -> None:
    written(bench, bench.clock.now_ms())
    with pytest.raises(sqlite3.IntegrityError, match="an open difference is kept"):
        bench.rows("DELETE FROM crm_conflicts WHERE state = 'open'")


async def test_a_model_sums_up_so_many_requests_of_one_person_in_a_day_and_no_more(bench: Bench) -> None:
    async with desk_at(bench, None, per_day=1) as desk:

        async def asked(discount: str) -> int:
            """Make a quote, ask for its approval, and count the questions to the model so far."""
            now = bench.clock.now_ms()
            await bench.ledger.reserve(request_for(create_command(discount), f"c{discount}", received_at=now))
            await desk.executor.step()
            quote_id = bench.row("SELECT quote_id FROM quotes ORDER BY quote_id DESC LIMIT 1")["quote_id"]
            submission = request_for(SubmitQuote(), f"s{discount}", quote_id=quote_id, version=1, received_at=now)
            await bench.ledger.reserve(submission)
            await desk.executor.step()
            return len(bench.rows("SELECT 1 FROM effects WHERE class = ?", effects.SUMMARIZE))

        assert [await asked("15"), await asked("16")] == [1, 1]
        bench.clock.advance(DAY_MS)
        assert await asked("17") == 2
    assert bench.row("SELECT count(*) AS n FROM approvals")["n"] == 3
