"""Tests of wake-ups: workers wake if a write may have made a row due, and do not wake otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger import keys
from ledger.records import Delivered, Drop, Fail, FollowUps, Hold, Outcome, Retry, Uncertain
from tests.ledger.parts import TROUBLE, intent, request, sure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Tx
    from ledger.records import Effect, Settlement
    from tests.ledger.parts import Desk

DELIVERED = Delivered("17.5", {})


async def settled(desk: Desk, settlement: Settlement = DELIVERED, *, follow_ups: FollowUps | None = None) -> tuple[bool, bool]:
    """Claim and settle the first due effect; tell whether that woke who delivers, and who executes."""
    effect = (await desk.claim_each())[0]
    return await settled_as(desk, effect, settlement, follow_ups=follow_ups)


async def settled_as(
    desk: Desk, effect: Effect, settlement: Settlement, *, follow_ups: FollowUps | None = None
) -> tuple[bool, bool]:
    desk.ledger.effects_changed.clear()
    desk.ledger.operations_changed.clear()
    await desk.ledger.settle(effect, settlement, lambda _tx, _effect: follow_ups or FollowUps())
    return desk.ledger.effects_changed.is_set(), desk.ledger.operations_changed.is_set()


async def lone(desk: Desk) -> None:
    await desk.owe(intent(), intent("crm.create", "keyed"), intent(target="another"))


async def next_in_lane(desk: Desk) -> None:
    await desk.owe(intent(), intent())


async def child(desk: Desk) -> None:
    root = keys.effect_key(keys_of(desk), "slack.post", 0)
    await desk.owe(intent(), intent("slack.card", "convergent", after=root))


def keys_of(desk: Desk) -> str:
    """Return the key of the command that `Desk.owe` will execute."""
    del desk
    asked = request()
    return keys.operation_key(
        source=asked.source,
        source_request_id=asked.source_request_id,
        action_kind=asked.action_kind,
        aggregate_id=asked.aggregate_id,
        aggregate_version=asked.aggregate_version,
        payload_hash=keys.sha256(keys.canonical_json(asked.payload)),
    )


async def half_open(desk: Desk) -> None:
    await lone(desk)
    await desk.ledger.pause("slack", "ops", "maintenance")
    await desk.ledger.resume("slack", "ops")


@pytest.mark.parametrize(
    ("owed", "woken"),
    [(lone, False), (next_in_lane, True), (child, True), (half_open, True)],
    ids=["lone", "next in lane", "child", "half open"],
)
async def test_delivery_wakes_the_dispatcher_only_when_it_may_make_another_effect_due(
    owed: Callable[[Desk], Awaitable[None]], woken: object, desk: Desk
) -> None:
    await owed(desk)
    assert await settled(desk) == (woken, False)


@pytest.mark.parametrize(
    "settlement",
    [Retry(TROUBLE, 1000, spent=True), Uncertain(TROUBLE, 1000, spent=True), Fail(TROUBLE), Drop(TROUBLE), Hold(TROUBLE)],
    ids=lambda settlement: type(settlement).__name__,
)
async def test_every_other_settlement_wakes_the_dispatcher(settlement: Settlement, desk: Desk) -> None:
    await lone(desk)
    assert await settled(desk, settlement) == (True, False)


async def test_follow_ups_of_a_delivery_wake_the_dispatcher_or_the_executor(desk: Desk) -> None:
    await desk.owe(intent(), request_id="r1")
    await desk.owe(intent(target="other"), request_id="r2")
    assert await settled(desk, follow_ups=FollowUps((intent("slack.card", "convergent", target="card"),))) == (True, False)
    assert await settled(desk, follow_ups=FollowUps(commands=(request("r3", source="effect"),))) == (False, True)


async def test_late_result_wakes_the_dispatcher(desk: Desk) -> None:
    await lone(desk)
    effect = (await desk.claim_each())[0]
    await desk.ledger.settle(effect, DELIVERED)
    assert await settled_as(desk, effect, DELIVERED) == (True, False)


async def test_every_settlement_wakes_the_dispatcher_while_a_suspect_waits(desk: Desk) -> None:
    await lone(desk)
    effect = (await desk.claim_each())[0]
    desk.ledger.suspects.effects.add(99)
    assert await settled_as(desk, effect, DELIVERED) == (True, False)


async def test_finished_command_wakes_the_executor_only_when_another_is_due(desk: Desk) -> None:
    operation = await desk.claim_operation()
    desk.ledger.operations_changed.clear()
    await desk.ledger.execute(operation, lambda _: Outcome("applied", {}))
    assert not desk.ledger.operations_changed.is_set()

    operation = await desk.claim_operation("r2")
    await desk.reserve("r3")  # of the same lane
    desk.ledger.operations_changed.clear()
    await desk.ledger.execute(operation, lambda _: Outcome("applied", {}))
    assert desk.ledger.operations_changed.is_set()


async def test_command_that_replays_another_wakes_the_executor(desk: Desk) -> None:
    dead = await desk.claim_operation()
    await desk.ledger.fail_operation(dead, TROUBLE, {}, ())
    operation = await desk.claim_operation("r2", aggregate_id="Q-2026-0002")
    desk.ledger.operations_changed.clear()

    def put_back(tx: Tx) -> Outcome:
        row = tx.one(
            "replay_operation",
            id=dead.id,
            cycle=1,
            failure_history="[]",
            handler_version="1",
            replayed_by="ops",
            next_attempt_at=desk.clock.now_ms(),
            now=desk.clock.now_ms(),
        )
        assert row is not None
        return Outcome("applied", {})

    await desk.ledger.execute(operation, put_back)
    assert desk.ledger.operations_changed.is_set()
    assert sure(await desk.ledger.claim_operation()).id == dead.id


async def test_what_became_due_since_the_last_look_is_an_alarm_and_not_missed(desk: Desk) -> None:
    """A worker checks, works, then computes its next wake-up: a row that became due meanwhile is already late."""
    before = desk.clock.now_ms()
    await desk.owe(intent(not_before=before + 500))
    await desk.ledger.retry_operation(await desk.claim_operation("r2"), TROUBLE, 400)
    desk.clock.advance(1_000)
    assert await desk.ledger.next_effect_due_at(("slack.post",), before) == before + 500
    assert await desk.ledger.next_operation_due_at(before) == before + 400
    assert await desk.ledger.next_effect_due_at(("slack.post",)) is None
