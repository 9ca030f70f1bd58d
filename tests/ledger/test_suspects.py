"""Tests of poison rows: a row that kills its process three times is found and failed, and its neighbours are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.claims import POISON_CLAIMS
from ledger.records import Delivered, Fail, Hold, Retry, Uncertain
from ledger.recovery import give_back, take_back, take_back_lapsed
from tests.ledger.parts import START_MS, TROUBLE, applied, intent, restart, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, FollowUps
    from tests.ledger.parts import Desk

DONE = Delivered("ref", {})
BYSTANDERS = 6


def crm(number: int) -> EffectIntent:
    return intent("crm.create", "keyed", f"Q-{number}")


async def die(desk: Desk, times: int = 1) -> Desk:
    """Claim everything that is due and crash, `times` times."""
    for _ in range(times):
        await desk.claim_each()
        await desk.ledger.claim_operations(100)
        desk = await restart(desk)
        await take_back(desk.ledger)
    return desk


async def work_on(desk: Desk, poison: str) -> Desk:
    """Run bots that crash whenever they hold the poison row, until nothing is due or the row has failed."""
    for _ in range(10):
        claimed = await desk.claim_each()
        operations = await desk.ledger.claim_operations(100)
        if not claimed and not operations:
            return desk
        if any(effect.target == poison for effect in claimed) or any(one.aggregate_id == poison for one in operations):
            desk = await restart(desk)
            await take_back(desk.ledger)
            continue
        for effect in claimed:
            await desk.ledger.settle(effect, DONE)
        for operation in operations:
            await desk.ledger.execute(operation, applied())
    raise AssertionError("it never comes to rest")


async def test_of_many_effects_in_flight_at_each_crash_only_the_poison_fails(desk: Desk) -> None:
    await desk.owe(*(crm(number) for number in range(BYSTANDERS)))
    desk = await work_on(desk, "Q-3")
    rows = {row["target"]: (row["state"], row["category"]) for row in desk.rows("SELECT * FROM effects")}
    assert rows.pop("Q-3") == ("failed", "poison")
    assert {state for state, _ in rows.values()} == {"delivered"}
    assert desk.value("SELECT count(*) FROM attempts WHERE effect_id = 4 AND outcome = 'died'") == POISON_CLAIMS


@pytest.mark.parametrize("again", [Retry, Uncertain])
async def test_effect_given_back_before_its_call_keeps_the_count_of_its_crashes(again: type[Retry | Uncertain], desk: Desk) -> None:
    await desk.owe(crm(1))
    for deaths in range(POISON_CLAIMS):
        await desk.ledger.settle(await desk.claim(), again(replace(TROUBLE, asked=False), 0, spent=False))
        assert desk.effect(1).claims == deaths
        desk = await die(desk)
    assert (desk.effect(1).state, desk.effect(1).category) == ("failed", "poison")


async def test_of_many_commands_in_progress_at_each_crash_only_the_poison_fails(desk: Desk) -> None:
    for number in range(BYSTANDERS):
        await desk.reserve(f"r{number}", aggregate_id=f"Q-{number}")
    desk = await work_on(desk, "Q-3")
    rows = {row["aggregate_id"]: (row["state"], row["category"]) for row in desk.rows("SELECT * FROM operations")}
    assert rows.pop("Q-3") == ("failed_terminal", "poison")
    assert {state for state, _ in rows.values()} == {"completed"}


async def test_while_a_suspect_is_tried_nothing_else_is_taken_of_either_kind(desk: Desk) -> None:
    await desk.owe(crm(1))
    desk = await die(desk, 2)
    await desk.reserve("r2")
    suspect = await desk.claim()
    assert suspect.claims == POISON_CLAIMS
    assert await desk.ledger.claim_operations(9) == []
    assert await desk.claimed_ids() == []
    await desk.ledger.settle(suspect, DONE)
    assert len(await desk.ledger.claim_operations(9)) == 1


async def test_suspect_waits_for_running_work_and_nothing_new_is_claimed_before_it(desk: Desk) -> None:
    await desk.reserve("r1", aggregate_id="Q-1")
    desk = await die(desk, 2)
    suspects = desk.ledger.suspects.operations
    assert suspects == {1}
    desk.ledger.suspects.operations = set()  # as if the suspects had not been read yet, so that other rows are claimed
    await desk.owe(crm(1), crm(2), request_id="r2")
    (under_way,) = await desk.ledger.claim_effects({"crm.create": 1})
    desk.ledger.suspects.operations = suspects
    assert await desk.ledger.claim_operations(9) == []
    assert await desk.ledger.claim_effects({"crm.create": 9}) == [], (
        "or a stream of effects would keep the suspect waiting for ever"
    )
    await desk.ledger.settle(under_way, DONE)
    (alone,) = await desk.ledger.claim_operations(9)
    assert alone.id == 1
    await desk.ledger.execute(alone, applied())
    assert len(await desk.ledger.claim_effects({"crm.create": 9})) == 1


async def test_suspect_effect_waits_for_running_commands_and_holds_new_ones_back(desk: Desk) -> None:
    await desk.owe(crm(1))
    desk = await die(desk, 2)
    suspects, desk.ledger.suspects.effects = desk.ledger.suspects.effects, set()
    operation = await desk.claim_operation("r2", aggregate_id="Q-2")
    await desk.reserve("r3", aggregate_id="Q-3")
    desk.ledger.suspects.effects = suspects
    assert await desk.claimed_ids() == []
    assert await desk.ledger.claim_operations(9) == []
    await desk.ledger.execute(operation, applied())
    assert (await desk.claim()).claims == POISON_CLAIMS


async def test_a_suspect_that_is_not_due_blocks_nobody(desk: Desk) -> None:
    await desk.owe(crm(1), crm(2))
    desk = await die(desk, 2)
    desk.shell.execute("UPDATE effects SET next_attempt_at = ? WHERE id = 1", (START_MS + 1_000,))
    desk.shell.execute("UPDATE effects SET claims = 0 WHERE id = 2")
    await desk.reserve("r2")
    assert await desk.claimed_ids() == [2]
    assert len(await desk.ledger.claim_operations(9)) == 1


async def test_suspect_of_a_held_or_unserved_class_is_not_claimed_and_blocks_nothing(desk: Desk) -> None:
    await desk.owe(crm(1), intent(target="thread"))
    desk = await die(desk, 2)
    desk.shell.execute("UPDATE effects SET claims = 0 WHERE id = 2")
    await desk.ledger.pause("crm", "ops", "maintenance")
    (post,) = await desk.ledger.claim_effects({"crm.create": 1, "slack.post": 1})
    assert post.id == 2
    await desk.ledger.settle(post, DONE)
    await desk.ledger.resume("crm", "ops")
    await desk.reserve("r2")
    assert await desk.ledger.claim_effects({"slack.post": 1}) == []
    assert len(await desk.ledger.claim_operations(9)) == 1


@pytest.mark.parametrize("end", [DONE, Retry(TROUBLE, 0), Fail(TROUBLE), Hold(TROUBLE)], ids=lambda value: type(value).__name__)
async def test_a_suspect_that_came_to_an_end_is_none_any_more(end: Delivered | Retry | Fail | Hold, desk: Desk) -> None:
    await desk.owe(crm(1))
    desk = await die(desk, 2)
    await desk.ledger.settle(await desk.claim(), end)
    assert desk.ledger.suspects.effects == set()
    assert desk.effect(1).claims == 0


async def test_a_suspect_whose_end_was_rolled_back_is_still_one(desk: Desk) -> None:
    def broken(tx: Tx, effect: Effect) -> FollowUps:
        raise RuntimeError

    await desk.owe(crm(1))
    desk = await die(desk, 2)
    desk.clock.advance(6)
    with pytest.raises(RuntimeError):
        await desk.ledger.claim_effects({"crm.create": 9}, max_age_ms={"crm.create": 5}, follow=broken)
    assert await desk.ledger.claim_effects({"crm.create": 9}, max_age_ms={"crm.create": 5}) == []
    assert desk.effect(1).state == "failed"


async def test_superseded_or_expired_suspect_is_no_longer_one(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed", "Q-1", expires_at=START_MS + 5), crm(2))
    desk = await die(desk, 2)
    assert desk.ledger.suspects.effects == {1, 2}
    desk.clock.advance(6)
    for _ in range(2):
        assert await desk.ledger.claim_effects({"crm.create": 9}, max_age_ms={"crm.create": 5}) == []
    assert desk.ledger.suspects.effects == set()
    assert [desk.effect(number).state for number in (1, 2)] == ["superseded", "failed"]


async def test_a_suspect_put_back_by_a_shutdown_is_tried_alone_by_the_next_bot(desk: Desk) -> None:
    await desk.owe(crm(1), crm(2))
    desk = await die(desk, 2)
    assert len(await desk.claim_each()) == 1
    await give_back(desk.ledger)
    desk = await restart(desk)
    await take_back(desk.ledger)
    assert len(await desk.claim_each()) == 1


async def test_looking_for_lapsed_leases_does_not_forget_that_a_suspect_is_being_tried(desk: Desk) -> None:
    await desk.owe(crm(1))
    desk = await die(desk, 2)
    await desk.claim()
    await take_back_lapsed(desk.ledger)
    await desk.reserve("r2")
    assert await desk.ledger.claim_operations(9) == []


async def test_a_shelved_suspect_is_still_one(desk: Desk) -> None:
    await desk.reserve("r1")
    desk = await die(desk, 2)
    operation = sure(await desk.ledger.claim_operation())
    await desk.ledger.shelve_operation(operation, "schema 9", 60_000)
    await desk.reserve("r2", aggregate_id="Q-2")
    assert sure(await desk.ledger.claim_operation()).id == 2
    desk.clock.advance(60_000)
    assert await desk.ledger.claim_operations(9) == [], "it waits for what is under way"


async def test_effect_that_crashes_every_send_is_poison_despite_successful_checks(desk: Desk) -> None:
    await desk.owe(intent())
    for death in range(1, POISON_CLAIMS + 1):
        sending = await desk.claim()
        assert not sending.reconciling
        desk = await restart(desk)
        await take_back(desk.ledger)
        if death == POISON_CLAIMS:
            break
        looking = await desk.claim()
        assert looking.reconciling
        await desk.ledger.settle(looking, Uncertain(TROUBLE, 0, spent=False))
        await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0, spent=False))
        assert desk.effect(1).claims == death
    assert (desk.effect(1).state, desk.effect(1).category) == ("failed", "poison")


async def test_suspect_is_tried_alone_after_a_check_and_cleared_by_a_finished_send(desk: Desk) -> None:
    await desk.owe(intent(), intent(target="elsewhere"))
    desk.shell.execute("UPDATE effects SET next_attempt_at = ? WHERE id = 2", (START_MS + 1_000,))
    desk = await die(desk, 2)
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0, spent=False))
    desk.clock.advance(1_000)
    alone = await desk.claim()
    assert (alone.id, alone.reconciling, alone.claims) == (1, False, POISON_CLAIMS)
    await desk.ledger.settle(alone, Retry(TROUBLE, 1_000))
    assert desk.effect(1).claims == 0
    assert desk.ledger.suspects.effects == set()
    assert await desk.claimed_ids() == [2]
