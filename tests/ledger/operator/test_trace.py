"""Tests that one user action is found by any of its names, and that every row's wait is explained."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ledger.keys import effect_key
from ledger.ledger import no_follow_ups
from ledger.operator.actions import Verdict, cancel_effect, cancel_operation
from ledger.operator.explain import Facts, Waiting, effect_facts, operation_facts, waiting, why
from ledger.operator.trace import OperationFilter, Trace, find_operations, list_operations, trace
from ledger.records import DedupeResult, Delivered, Fail, Hold, Outcome, Retry, Trouble, Uncertain
from ledger.recovery import take_back
from tests.ledger.parts import HOME, QUOTE, START_MS, TROUBLE, intent, restart, sure

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.records import EffectIntent, Operation, Settlement
    from tests.ledger.parts import Desk

DONE = Delivered("ref", {})
BUSY = Trouble("throttled", "429 slow down", http_status=429)
DOWN = Trouble("transient", "503 from the other side", unavailable=True)
CLASSES = ("slack.post", "crm.create", "pdf.render")


async def found(desk: Desk, reference: str) -> list[int]:
    rows = await desk.ledger.database.read(lambda tx: find_operations(tx, reference))
    return [row["id"] for row in rows]


def traced_of(tx: Tx, reference: str) -> Trace:
    return trace(tx, find_operations(tx, reference)[0])


def owing(tx: Tx, effects: tuple[EffectIntent, ...]) -> Outcome:
    del tx
    return Outcome("applied", {}, effects)


async def creation(desk: Desk) -> None:
    """Execute a command that creates a quote; its first audit events belong to no quote's chain."""
    operation = await desk.claim_operation("create", aggregate_id="new", action_kind="quote.create", aggregate_version=0)
    await desk.ledger.execute(operation, lambda _: Outcome("applied", {}, (intent(),)))
    await desk.ledger.settle(await desk.claim(), DONE)


# ------------------------------------------------------------------------------------------------------------------ trace


async def test_an_action_is_found_by_each_of_its_names(desk: Desk) -> None:
    await creation(desk)
    desk.clock.advance(60_000)
    await desk.owe(intent("slack.card", "convergent"), request_id="r2")
    first, second = desk.operation(1), desk.operation(2)
    for name in (first.correlation_id, first.operation_key, first.operation_key[:9], "op1", "#1"):
        assert await found(desk, name) == [1], name
    assert await found(desk, second.correlation_id) == [2]
    assert await found(desk, "2") == [2]
    assert await found(desk, QUOTE) == [2, 1]
    for name in ("c-00000000", "op9", "9", "Q-2026-9999", "op9999999999999999999", "9999999999999999999", "zebra"):
        assert await found(desk, name) == [], name


async def test_several_actions_with_one_short_name_are_all_found(desk: Desk) -> None:
    for number in range(300):
        await desk.reserve(f"r{number}", aggregate_id=f"Q-{number}")
    keys = [row["operation_key"] for row in desk.rows("SELECT operation_key FROM operations ORDER BY operation_key")]
    twins = await desk.ledger.database.read(
        lambda tx: [
            row["operation_key"] for row in tx.all("operations_by_key", begin=keys[3][:1], upto=keys[3][:1] + "g", limit=1000)
        ]
    )
    assert twins == [key for key in keys if key[0] == keys[3][0]]
    assert len(twins) > 1


async def test_a_trace_holds_all_there_is_about_one_action_and_nothing_else(desk: Desk) -> None:
    await creation(desk)
    desk.clock.advance(60_000)
    await desk.reserve("create", aggregate_id="new", action_kind="quote.create", aggregate_version=0)
    await desk.owe(intent("crm.create", "keyed"), request_id="r2")
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, delay_ms=5))
    for reference, events in (
        (
            "op1",
            [
                *("operation.reserved", "operation.claimed", "operation.applied", "effect.claimed"),
                *("effect.delivered", "delivery.duplicate"),
            ],
        ),
        (
            "op2",
            ["operation.reserved", "operation.claimed", "operation.applied", "effect.claimed", "effect.retry_scheduled"],
        ),
    ):
        traced = await desk.ledger.database.read(partial(traced_of, reference=reference))
        assert [row["event_type"] for row in traced.events] == events
        (effect,) = traced.effects
        assert f"op{traced.operation['id']}" == reference
        assert sure(traced.delivery)["operation_id"] == traced.operation["id"]
        assert [row["outcome"] for row in effect.attempts] == [{"op1": "delivered", "op2": "retry"}[reference]]


async def test_the_events_of_a_creation_are_found_among_many_others(desk: Desk) -> None:
    for number in range(40):
        await desk.claim_operation(f"r{number}", aggregate_id="new", action_kind="quote.create", aggregate_version=0)
        desk.clock.advance(3_000)
    traced = await desk.ledger.database.read(lambda tx: trace(tx, sure(tx.one("operation_by_id", id=20))))
    assert [row["event_type"] for row in traced.events] == ["operation.reserved", "operation.claimed"]


# ---------------------------------------------------------------------------------------------------------------- waiting


async def effect_waits(desk: Desk, effect_id: int, *, bot_runs: bool = True) -> Waiting:
    return await reason(desk, str(effect_id), bot_runs=bot_runs)


async def reason(desk: Desk, reference: str, *, bot_runs: bool = True) -> Waiting:
    now = desk.clock.now_ms()
    return sure(await desk.ledger.database.read(lambda tx: why(tx, reference, now, budget=lambda _: 7, bot_runs=bot_runs)))


async def test_due_effect_is_next_if_a_bot_runs_and_otherwise_waits_for_one(desk: Desk) -> None:
    await desk.owe(intent())
    assert (await effect_waits(desk, 1)).cause == "due"
    alone = await effect_waits(desk, 1, bot_runs=False)
    assert alone.cause == "no_bot"


async def test_a_retry_waits_for_its_time(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, delay_ms=11_001))
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until, told.behind) == ("time", START_MS + 11_001, None)
    facts = told.facts
    assert (facts.row["attempts"], facts.budget, facts.row["last_error"]) == (1, 7, "503 from the other side")


async def test_scheduled_effect_names_its_time(desk: Desk) -> None:
    await desk.owe(intent(not_before=START_MS + 60_000))
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("not_before", START_MS + 60_000)


async def test_the_second_of_a_lane_waits_for_the_first(desk: Desk) -> None:
    await desk.owe(intent(), intent())
    told = await effect_waits(desk, 2)
    assert (told.cause, told.behind) == ("lane", "#1")


async def test_a_replayed_one_waits_for_what_is_under_way_in_its_lane(desk: Desk) -> None:
    await desk.reserve("r1")
    await desk.reserve("r2")
    assert (await reason(desk, "op2")).behind == "op1"
    await desk.ledger.claim_operation()
    told = await reason(desk, "op2")
    assert (told.cause, told.behind) == ("lane", "op1")


async def test_a_child_waits_for_its_parent_also_when_that_is_dead(desk: Desk) -> None:
    key = (await desk.reserve()).operation.operation_key
    await desk.owe(intent("pdf.render", "pure"), intent("slack.file", after=effect_key(key, "pdf.render", 0)))
    told = await effect_waits(desk, 2)
    assert (told.cause, told.behind) == ("parent", "#1")
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    told = await effect_waits(desk, 2)
    assert (told.cause, told.behind) == ("parent", "#1")
    assert sure(told.facts.parent)["state"] == "failed"


async def test_a_paused_class_is_held_by_its_operator(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.ledger.pause("crm", "ops", "org migration")
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("held", None)
    gate = sure(told.facts.gate)
    assert (gate.name, gate.cause, gate.held_by, gate.reason) == ("crm", "operator", "ops", "org migration")


async def test_a_refused_login_holds_the_family(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.ledger.settle(await desk.claim(), Hold(Trouble("auth", "401 session expired")))
    told = await effect_waits(desk, 1)
    assert told.cause == "held"
    gate = sure(told.facts.gate)
    assert (gate.name, gate.cause, gate.reason) == ("crm", "auth", "401 session expired")


async def test_an_open_breaker_says_until_when_and_then_one_is_tried_at_a_time(desk: Desk) -> None:
    await desk.owe(*(intent("crm.create", "keyed", target=f"t{number}") for number in range(6)))
    for effect in (await desk.claim_each())[:5]:
        await desk.ledger.settle(effect, Retry(DOWN, delay_ms=0))
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("breaker", START_MS + 30_000)
    await desk.ledger.settle(desk.effect(6), Retry(DOWN, delay_ms=0))
    desk.clock.advance(30_000)
    (trial,) = await desk.claim_each()
    other = 1 if trial.id != 1 else 2
    told = await effect_waits(desk, other)
    assert (told.cause, told.behind) == ("half_open", f"#{trial.id}")


async def test_a_throttled_class_says_until_when(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Retry(BUSY, 5_000, spent=False, hold_until=START_MS + 5_000))
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("throttled", START_MS + 5_000)


async def test_what_is_under_way_names_its_process(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.claim()
    desk.clock.advance(4_000)
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("claimed", told.facts.row["lease_until"])
    assert (told.facts.row["epoch"], sure(told.facts.owner)["role"]) == (1, "bot")
    assert (told.facts.now - told.facts.row["claimed_at"], told.facts.row["attempts"], told.facts.budget) == (4_000, 0, 7)
    assert (await effect_waits(desk, 1, bot_runs=False)).cause == "no_bot"
    await restart(desk)
    assert (await effect_waits(desk, 1)).cause == "owner_gone"


async def test_suspect_is_reported_as_the_cause_and_others_wait_behind_it(desk: Desk) -> None:
    await desk.reserve("r1")
    for _ in range(2):
        await desk.ledger.claim_operation()
        desk = await restart(desk)
        await take_back(desk.ledger)
    await desk.reserve("r2", aggregate_id="Q-2")
    assert (await reason(desk, "op1")).cause == "suspect"
    told = await reason(desk, "op2")
    assert (told.cause, told.behind) == ("suspect", "op1")


async def test_a_command_of_a_newer_build_says_so(desk: Desk) -> None:
    await desk.ledger.shelve_operation(await desk.claim_operation(), "schema 9", 60_000)
    told = await reason(desk, "op1")
    assert (told.cause, told.until) == ("needs_newer_build", START_MS + 60_000)


async def test_uncertain_effect_names_the_time_of_its_check(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(Trouble("uncertain", "time-out", maybe_sent=True), delay_ms=30_000))
    told = await effect_waits(desk, 1)
    assert (told.cause, told.until) == ("uncertain", START_MS + 30_000)


async def test_dead_letters_wait_for_an_operator(desk: Desk) -> None:
    await desk.owe(intent(), intent(target="other"))
    one, two = await desk.claim_each()
    await desk.ledger.settle(one, Fail(TROUBLE))
    await desk.ledger.settle(two, Fail(Trouble("uncertain", "cannot know", maybe_sent=True)))
    for number, category in ((1, "transient"), (2, "uncertain")):
        told = await effect_waits(desk, number)
        assert (told.cause, told.facts.row["category"]) == ("dead", category)


async def test_what_is_done_waits_for_nothing(desk: Desk) -> None:
    await creation(desk)
    for reference, state in (("op1", "completed"), ("1", "delivered")):
        told = await reason(desk, reference)
        assert (told.cause, told.facts.row["state"], told.facts.reference) == ("finished", state, reference)


async def test_a_row_that_is_not_there_and_a_name_that_is_none(desk: Desk) -> None:
    async def ask(reference: str) -> Waiting | None:
        return await desk.ledger.database.read(lambda tx: why(tx, reference, 0, budget=lambda _: 1, bot_runs=True))

    assert await ask("op5") is None
    assert await ask("5") is None
    for name in ("Q-2026-0001", "c-0123abcd", "0123abcd", ""):
        with pytest.raises(ValueError, match="is not an id"):
            await ask(name)


async def test_no_unfinished_row_of_a_crowded_ledger_waits_for_something_unknown(desk: Desk) -> None:
    known = {
        *("due", "no_bot", "time", "not_before", "lane", "parent", "held", "breaker", "throttled", "claimed", "owner_gone"),
        *("half_open", "suspect", "needs_newer_build", "uncertain", "dead"),
    }
    seen: set[str] = set()
    for number in range(12):
        name = f"r{number}"
        effects = [intent(each, "keyed", target=f"Q-{number % 3}", aggregate_id=f"Q-{number}") for each in CLASSES]
        operation = await desk.claim_operation(name, aggregate_id=f"Q-{number}")
        if number % 4 == 0:
            await desk.ledger.retry_operation(operation, TROUBLE, 5_000)
        elif number % 4 == 1:
            await desk.ledger.fail_operation(operation, TROUBLE, {}, (effects[0],))
        else:
            await desk.ledger.execute(operation, partial(owing, effects=tuple(effects)))
    ends: tuple[Settlement, ...] = (
        Retry(TROUBLE, 9_000),
        Fail(TROUBLE),
        Retry(BUSY, 0, hold_until=START_MS + 9_000),
        Hold(Trouble("auth", "401")),
    )
    for effect, end in zip(await desk.claim_each(), ends, strict=False):
        await desk.ledger.settle(effect, end)
    for moment in (0, 4_000, 60_000):
        desk.clock.advance(moment)
        for told in await everything(desk):
            assert told.cause in known, told
            seen.add(told.cause)
    assert len(seen) > 5


async def everything(desk: Desk) -> list[Waiting]:
    """Return the reason why each unfinished or dead row of the ledger waits."""
    now = desk.clock.now_ms()
    unfinished = [
        row["id"] for row in desk.rows("SELECT id FROM operations WHERE finished_at IS NULL OR state = 'failed_terminal'")
    ]
    owed = [row["id"] for row in desk.rows("SELECT id FROM effects WHERE finished_at IS NULL OR state = 'failed'")]

    def look(tx: Tx) -> list[Waiting]:
        operations = [tx.one("operation_by_id", id=number) for number in unfinished]
        effects = [tx.one("effect_by_id", id=number) for number in owed]
        found = [waiting(operation_facts(tx, sure(row), now)) for row in operations]
        return found + [waiting(effect_facts(tx, sure(row), now)) for row in effects]

    return await desk.ledger.database.read(look)


def row_of(**values: object) -> Row:
    return values  # type: ignore[return-value] # a mapping reads like a row


def test_effect_whose_parent_is_missing_is_behind_no_row() -> None:
    row = row_of(id=5, state="pending", next_attempt_at=None, after_id=4)
    told = waiting(Facts(row, "effect", START_MS))
    assert (told.cause, told.behind) == ("parent", None)


# ---------------------------------------------------------------------------------------------------------------- listing


async def test_the_unfinished_come_first_then_the_dead_then_the_done(desk: Desk) -> None:
    await creation(desk)
    await desk.ledger.fail_operation(await desk.claim_operation("r2", aggregate_id="Q-2"), TROUBLE, {}, ())
    await desk.reserve("r3", aggregate_id="Q-3", actor="U0OTHER")
    await desk.claim_operation("r4", aggregate_id="Q-3")

    async def listed(limit: int = 10, **choice: Any) -> list[int]:
        rows = await desk.ledger.database.read(lambda tx: list_operations(tx, OperationFilter(**choice), limit))
        return [row["id"] for row in rows]

    assert await listed() == [4, 3, 2, 1]
    assert await listed(2) == [4, 3]
    assert await listed(state="completed") == [1]
    assert await listed(state="failed_terminal") == [2]
    assert await listed(state="in_progress") == [3]
    assert await listed(actor="U0OTHER") == [3]
    assert await listed(action_kind="quote.create") == [1]
    assert await listed(aggregate_id=QUOTE) == [1]
    assert await listed(aggregate_id="Q-3", actor="U0REP") == [4]
    assert await listed(since=START_MS + 1) == []


# ----------------------------------------------------------------------------------------------------------------- cancel


def told(tx: Tx, operation: Operation, why_not: str) -> tuple[dict[str, Any], tuple[EffectIntent, ...]]:
    del tx
    return {"code": "cancelled"}, (intent("slack.reply", "repeat_once", operation.actor, payload={"text": why_not}),)


async def cancel(desk: Desk, operation_id: int = 1) -> Verdict:
    now = desk.clock.now_ms()
    ruling = await desk.ledger.database.write(
        "cancel",
        lambda tx: cancel_operation(desk.ledger, tx, operation_id, actor="ops", reason="typo", now=now, answer=told),
    )
    return ruling.verdict


async def test_cancelled_command_is_never_executed_and_its_author_is_notified(desk: Desk) -> None:
    await desk.reserve()
    assert await cancel(desk) is Verdict.DONE
    operation = desk.operation()
    assert (operation.state, operation.response) == ("discarded", {"code": "cancelled"})
    assert await desk.ledger.claim_operation() is None
    assert desk.last_event("operation.cancelled")["actor"] == "ops"
    assert desk.last_event("operation.cancelled")["after"] == {"reason": "typo", "state": "reserved"}
    assert (await desk.claim()).effect_class == "slack.reply"
    assert (await desk.reserve()).sighting is DedupeResult.DUPLICATE


@pytest.mark.parametrize("state", ["in_progress", "completed", "failed_terminal", "discarded"])
async def test_what_has_begun_or_ended_is_not_cancelled(desk: Desk, state: str) -> None:
    operation = await desk.claim_operation()
    if state == "completed":
        await desk.ledger.execute(operation, lambda _: Outcome("applied", {}))
    elif state == "failed_terminal":
        await desk.ledger.fail_operation(operation, TROUBLE, {}, ())
    elif state == "discarded":
        await desk.ledger.retry_operation(operation, TROUBLE, 1)
        assert await cancel(desk) is Verdict.DONE
    before = desk.snapshot()
    assert desk.operation().state == state
    assert await cancel(desk) is Verdict.REFUSED
    assert await cancel(desk, 9) is Verdict.NOT_FOUND
    assert desk.snapshot() == before


async def cancel_owed(desk: Desk, effect_id: int = 1) -> tuple[Verdict, str]:
    now = desk.clock.now_ms()
    ruling = await desk.ledger.database.write(
        "cancel",
        lambda tx: cancel_effect(desk.ledger, tx, effect_id, actor="ops", reason="not wanted", now=now, follow=no_follow_ups),
    )
    return ruling.verdict, ruling.code


async def test_a_cancelled_effect_is_never_sent_and_what_waits_for_it_is_needless(desk: Desk) -> None:
    key = (await desk.reserve()).operation.operation_key
    await desk.owe(intent("pdf.render", "pure"), intent("slack.file", after=effect_key(key, "pdf.render", 0)))
    assert (await cancel_owed(desk)) == (Verdict.DONE, "cancelled")
    assert [row["state"] for row in desk.rows("SELECT state FROM effects")] == ["discarded", "superseded"]
    assert desk.last_event("effect.cancelled")["after"] == {"reason": "not wanted"}
    assert await desk.claim_each() == []


async def test_a_cancelled_effect_that_was_tried_may_have_arrived(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.ledger.settle(await desk.claim(), Retry(Trouble("transient", "time-out", maybe_sent=True), delay_ms=0))
    assert (await cancel_owed(desk)) == (Verdict.DONE, "cancelled_after_attempt")


async def test_what_is_under_way_in_doubt_or_over_is_not_cancelled(desk: Desk) -> None:
    await desk.owe(intent())
    effect = await desk.claim()
    assert (await cancel_owed(desk)) == (Verdict.REFUSED, "too_late")
    await desk.ledger.settle(effect, Uncertain(TROUBLE, delay_ms=0))
    assert (await cancel_owed(desk)) == (Verdict.REFUSED, "too_late")
    await desk.ledger.settle(await desk.claim(), DONE)
    assert (await cancel_owed(desk)) == (Verdict.REFUSED, "too_late")
    assert (await cancel_owed(desk, 9)) == (Verdict.NOT_FOUND, "no_effect")


@pytest.mark.parametrize("module", ["trace", "explain", "actions"])
def test_operator_modules_contain_no_update_statement(module: str) -> None:
    assert "UPDATE " not in (HOME / "operator" / f"{module}.py").read_text("utf-8")
