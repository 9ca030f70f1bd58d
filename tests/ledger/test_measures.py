"""Tests of the ledger's numbers: each event counts once, counts survive a purge, and they are fast on a long history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.ledger import StaleFenceError
from ledger.measures import OpenDeadLetters, Unfinished, fold, measure
from ledger.records import Delivered, Fail, Retry, Trouble, Uncertain
from tests.ledger.parts import START_MS, TROUBLE, applied, intent, restart, sure

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from tests.ledger.parts import Desk

LOST = Trouble("uncertain", "the answer got lost", maybe_sent=True)


async def scripted_history(desk: Desk) -> None:
    """Make one command with a redelivery and a conflict; its effects: a retried, a found uncertain, a failed and a pending one."""
    await desk.owe(
        intent("crm.create", "keyed"),
        intent("slack.post"),
        intent("pdf.render", "pure"),
        intent("slack.file", not_before=2 * START_MS),
    )
    await desk.reserve()
    await desk.reserve(fingerprint="something else")
    crm, post, pdf = await desk.claim_each()
    await desk.ledger.settle(crm, Retry(TROUBLE, delay_ms=0))
    await desk.ledger.settle(post, Uncertain(LOST, delay_ms=0))
    await desk.ledger.settle(pdf, Fail(Trouble("render", "the template is broken")))
    again, looked = await desk.claim_each()
    await desk.ledger.settle(again, Delivered("ref", {}))
    await desk.ledger.settle(looked, Delivered("ref", {}))


COUNTED = {
    ("idempotency", "new"): 1,
    ("idempotency", "duplicate"): 1,
    ("idempotency", "conflict"): 1,
    ("duplicate_deliveries", "slack_slash"): 1,
    ("attempts", "crm.create", "retry"): 1,
    ("attempts", "crm.create", "delivered"): 1,
    ("attempts", "slack.post", "doubt"): 1,
    ("attempts", "slack.post", "delivered"): 1,
    ("attempts", "pdf.render", "bury"): 1,
    ("retry_attempts", "crm.create"): 1,
    ("retry_attempts", "slack.post"): 1,
    ("uncertain_resolutions", "found"): 1,
    ("dead_letters", "render"): 1,
}


async def test_a_history_is_counted(desk: Desk) -> None:
    await scripted_history(desk)
    found = await measure(desk.ledger)
    assert found.counts == COUNTED
    assert found.dead == (OpenDeadLetters("render", 1, START_MS),)
    assert found.unfinished == (Unfinished("effect", "pending", 1, None),)


async def test_the_totals_are_the_same_folded_or_not(desk: Desk) -> None:
    await scripted_history(desk)
    assert (await measure(desk.ledger)).unfolded == desk.value("SELECT max(id) FROM audit_events")
    assert await fold(desk.ledger) == desk.value("SELECT (SELECT max(id) FROM audit_events) + (SELECT max(id) FROM attempts)")
    folded = await measure(desk.ledger)
    assert (folded.counts, folded.unfolded) == (COUNTED, 0)
    assert await fold(desk.ledger) == 0
    await desk.reserve()
    await desk.ledger.noted()
    assert (await measure(desk.ledger)).counts[("idempotency", "duplicate")] == 2


async def test_a_history_longer_than_one_fold_is_counted_whole(desk: Desk) -> None:
    await scripted_history(desk)
    await fold(desk.ledger, at_once=3)
    assert (await measure(desk.ledger)).counts == COUNTED


async def test_late_results_are_counted(desk: Desk) -> None:
    operation = await desk.claim_operation()
    next_process = await restart(desk)
    desk.shell.execute("UPDATE operations SET fence = fence + 1")
    with pytest.raises(StaleFenceError):
        await desk.ledger.execute(operation, applied())
    assert (await measure(next_process.ledger)).counts[("fence_rejections", "operation")] == 1


async def test_ages_count_from_when_a_row_was_due(desk: Desk) -> None:
    await desk.reserve("r1")
    claimed = sure(await desk.ledger.claim_operation())
    desk.clock.advance(1_000)
    await desk.reserve("r2", aggregate_id="Q-2026-0002")
    await desk.reserve("r3", aggregate_id="Q-2026-0003", source="scheduler")
    desk.clock.advance(5_000)
    found = await measure(desk.ledger)
    assert found.unfinished == (
        Unfinished("operation", "reserved", 2, START_MS + 1_000),
        Unfinished("operation", "in_progress", 1, sure(claimed.claimed_at)),
    )
    assert (found.now, found.schedule_due_at) == (START_MS + 6_000, START_MS)


async def test_held_class_is_measured(ledger: Ledger) -> None:
    await ledger.pause("crm", "ops", "maintenance")
    (gate,) = (await measure(ledger)).gates
    assert (gate.name, gate.state, gate.cause) == ("crm", "held", "operator")
