"""Tests of the end of an attempt: the columns, the attempt and the audit row of every settlement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Delivered, Drop, Fail, FollowUps, Hold, Retry, Trouble, Uncertain
from tests.ledger.parts import START_MS, TROUBLE, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, Semantics, Settlement
    from tests.ledger.parts import Desk

SENT = Trouble("transient", "time-out after the request left", maybe_sent=True)
THROTTLED = Trouble("throttled", "429", http_status=429, retry_after_ms=2_000)
LASTED_MS = 40
AT = START_MS + LASTED_MS
FAILED = {"category": "transient", "last_error": TROUBLE.error}

CASES: list[tuple[Settlement, dict[str, Any], tuple[str, str | None]]] = [
    (
        Delivered("1700.1", {"ts": "1700.1"}),
        {
            "state": "delivered",
            "attempts": 1,
            "external_ref": "1700.1",
            "finished_at": AT,
            "category": None,
            "first_failed_at": None,
        },
        ("effect.delivered", None),
    ),
    (
        Retry(TROUBLE, 1_500),
        {"state": "pending", "attempts": 1, "next_attempt_at": AT + 1_500, "first_failed_at": AT, "maybe_sent": 0, **FAILED},
        ("effect.retry_scheduled", "retry"),
    ),
    (
        Retry(SENT, 1_500, spent=False),
        {"state": "pending", "attempts": 0, "next_attempt_at": AT + 1_500, "maybe_sent": 1, "finished_at": None},
        ("effect.retry_scheduled", "retry"),
    ),
    (
        Uncertain(SENT, 30_000),
        {"state": "uncertain", "attempts": 1, "next_attempt_at": AT + 30_000, "uncertain_since": AT, "maybe_sent": 1},
        ("effect.uncertain", "reconcile"),
    ),
    (
        Uncertain(TROUBLE, 30_000, spent=False),
        {"state": "uncertain", "attempts": 0, "uncertain_since": AT, "maybe_sent": 1, "first_failed_at": AT, **FAILED},
        ("effect.uncertain", "reconcile"),
    ),
    (
        Fail(SENT),
        {"state": "failed", "attempts": 1, "finished_at": AT, "first_failed_at": AT, "maybe_sent": 1, "next_attempt_at": None},
        ("system.error", "replay"),
    ),
    (
        Drop(TROUBLE),
        {"state": "superseded", "attempts": 0, "finished_at": AT, "next_attempt_at": None, **FAILED},
        ("effect.superseded", None),
    ),
    (
        Hold(TROUBLE),
        {"state": "pending", "attempts": 0, "next_attempt_at": AT, "finished_at": None, **FAILED},
        ("effect.released", "resume"),
    ),
]


# The values that every release writes into attempts.
OUTCOMES = {Delivered: "delivered", Retry: "retry", Uncertain: "doubt", Fail: "bury", Drop: "drop", Hold: "hold"}


@pytest.mark.parametrize(("settlement", "columns", "event"), CASES, ids=lambda value: type(value).__name__)
async def test_a_settlement_writes_its_columns_its_attempt_and_one_audit_row(
    settlement: Settlement, columns: dict[str, Any], event: tuple[str, str | None], desk: Desk
) -> None:
    await desk.owe(intent())
    effect = await desk.claim()
    desk.clock.advance(LASTED_MS)
    count = len(desk.events())
    settled = sure(await desk.ledger.settle(effect, settlement))
    assert settled == desk.effect(effect.id)
    row = dict(desk.rows("SELECT * FROM effects")[0])
    always = {"claims": 0, "fence": 1, "epoch": None, "lease_until": None, "updated_at": AT, "cycle": 1}
    assert {**row, **columns, **always} == row
    attempt = desk.rows("SELECT * FROM attempts WHERE effect_id = ?", effect.id)[0]
    trouble = None if isinstance(settlement, Delivered) else settlement.trouble
    assert (attempt["outcome"], attempt["ended_at"]) == (OUTCOMES[type(settlement)], AT)
    assert attempt["category"] == (None if trouble is None else trouble.category)
    assert attempt["http_status"] == (None if trouble is None else trouble.http_status)
    assert attempt["delay_ms"] == getattr(settlement, "delay_ms", None)
    written = desk.rows("SELECT * FROM audit_events ORDER BY id")[count:]
    assert (written[0]["event_type"], written[0]["recovery_action"]) == event
    assert (written[0]["effect_id"], written[0]["retry_count"]) == (effect.id, row["attempts"])
    assert [extra["event_type"] for extra in written[1:]] == (["class.paused"] if isinstance(settlement, Hold) else [])


async def test_a_delivery_keeps_the_other_side_s_answer_and_whether_it_was_there_before(desk: Desk) -> None:
    await desk.owe(intent())
    settled = sure(await desk.ledger.settle(await desk.claim(), Delivered("ts", {"ts": "ts"}, already_there=True)))
    assert (settled.external_ref, settled.result) == ("ts", {"ts": "ts", "already_there": True})


async def test_the_wait_the_other_side_asked_for_is_kept_with_the_attempt(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Retry(THROTTLED, 2_000, spent=False))
    attempt = desk.rows("SELECT * FROM attempts WHERE effect_id IS NOT NULL")[0]
    assert (attempt["http_status"], attempt["retry_after_ms"], attempt["delay_ms"]) == (429, 2_000, 2_000)


async def test_the_first_failure_of_a_cycle_is_remembered_through_its_retries(desk: Desk) -> None:
    await desk.owe(intent())
    for _ in range(3):
        await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 1_000))
        desk.clock.advance(1_000)
    buried = sure(await desk.ledger.settle(await desk.claim(), Fail(TROUBLE)))
    assert (buried.first_failed_at, buried.last_attempt_at, buried.attempts, buried.fence) == (START_MS, START_MS + 3_000, 4, 4)


async def test_effect_that_may_have_been_sent_once_stays_maybe_sent(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Retry(SENT, 0))
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0))
    assert sure(await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))).maybe_sent


async def test_uncertain_effect_is_claimed_for_a_check_and_keeps_uncertain_since(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 10))
    desk.clock.advance(10)
    looking = await desk.claim()
    assert (looking.reconciling, looking.uncertain_since) == (True, START_MS)
    again = sure(await desk.ledger.settle(looking, Uncertain(TROUBLE, 10)))
    assert [row["kind"] for row in desk.rows("SELECT kind FROM attempts ORDER BY id")] == ["send", "reconcile"]
    assert again.uncertain_since == START_MS
    desk.clock.advance(10)
    absent = sure(await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0, spent=False)))
    assert (absent.state, absent.uncertain_since, absent.attempts) == ("pending", None, 2)
    assert not (await desk.claim()).reconciling


async def test_hold_during_a_check_keeps_the_effect_uncertain(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 0))
    held = sure(await desk.ledger.settle(await desk.claim(), Hold(Trouble("auth", "invalid_auth"))))
    assert (held.state, held.uncertain_since, held.attempts) == ("uncertain", START_MS, 1)
    assert await desk.claimed_ids() == []
    await desk.ledger.resume("slack", "ops")
    assert (await desk.claim()).reconciling, "it must still look before it sends"


async def test_a_pause_says_why_who_and_when(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Hold(Trouble("auth", "invalid_auth")))
    (gate,) = desk.rows("SELECT name, state, cause, reason, held_at, held_by, until_at FROM gates")
    assert tuple(gate) == ("slack", "held", "auth", "invalid_auth", START_MS, "quotebot", None)
    assert [tuple(row) for row in desk.rows("SELECT name, held_at, ended_at FROM holds")] == [("slack", START_MS, None)]
    assert desk.last_event("class.paused")["after"] == {"class": "slack", "cause": "auth", "why": "invalid_auth"}


@pytest.mark.parametrize(
    "late_settlement",
    [Delivered("late", {}), Retry(TROUBLE, 0), Uncertain(TROUBLE, 0), Fail(TROUBLE), Drop(TROUBLE), Hold(TROUBLE)],
)
@pytest.mark.parametrize("semantics", ["append", "convergent"])
async def test_a_settlement_under_an_old_fence_is_audited_and_harmless(
    late_settlement: Settlement, semantics: Semantics, desk: Desk
) -> None:
    def follow(_: Tx, __: Effect) -> FollowUps:
        return FollowUps((intent("slack.card", "convergent"),))

    await desk.owe(intent(semantics=semantics))
    late = await desk.claim()
    await desk.ledger.settle(late, Retry(TROUBLE, 0))
    current = await desk.claim()
    before, count = desk.snapshot(), len(desk.events())
    assert await desk.ledger.settle(late, late_settlement, follow) is None
    assert desk.snapshot() == before
    assert desk.events()[count:] == ["effect.late_result"]
    assert sure(await desk.ledger.settle(current, Delivered("ts", {}))).external_ref == "ts"
    assert await desk.ledger.settle(current, Fail(TROUBLE)) is None
    assert desk.effect(late.id).state == "delivered"


async def test_what_the_audit_says_of_a_settlement_can_be_read_without_the_row(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 700))
    event = desk.last_event("effect.retry_scheduled")
    assert event["after"] == {
        "class": "slack.post",
        "error": TROUBLE.error,
        "external_ref": None,
        "next_attempt_at": START_MS + 700,
    }
    assert (event["actor"], event["actor_type"], event["failure_category"]) == ("quotebot", "system", "transient")
    assert json.loads(desk.rows("SELECT payload FROM effects")[0]["payload"]) == {"text": "hello"}
