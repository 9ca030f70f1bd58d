"""Tests of gates: the transitions of a class as a table; then families, trials, late results and ages on a real ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.gates import Breaker, Gate, family, is_stopped
from ledger.records import Delivered, Drop, Fail, Hold, Retry, Trouble, Uncertain
from ledger.recovery import take_back
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, intent, restart, sure

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.gates import Cause
    from ledger.records import Effect, EffectIntent, Settlement
    from tests.ledger.parts import Desk

AT = START_MS
REST = 30_000
DAY = 86_400_000
DONE = Delivered("ref", {})
DOWN = Trouble("transient", "503", http_status=503, unavailable=True)
REFUSED = Trouble("auth", "INVALID_SESSION_ID")
BREAKER = Breaker()

FLOWING = Gate("crm")
FAILING = replace(FLOWING, failures=4, failing=(1, 2))
LOGIN = FLOWING.hold("auth", "401", "quotebot", AT, None)
PAUSED = FLOWING.hold("operator", "maintenance", "ops", AT, None)
DOWNED = FLOWING.hold("breaker", "503", "quotebot", AT, AT + REST)
TOLD = FLOWING.hold("throttled", "429", "quotebot", AT, AT + 2_000)
HALF = LOGIN.lift(AT + 5, by_person=True)


def shape(gate: Gate) -> tuple[str, str | None, int | None]:
    return gate.state, gate.cause if gate.state == "held" else None, gate.until_at


MOVES: list[tuple[str, Gate, Callable[[Gate], Gate], tuple[str, str | None, int | None]]] = [
    ("a refused login holds without end", FLOWING, lambda g: g.hold("auth", "401", "q", AT, None), ("held", "auth", None)),
    ("a person holds without end", FLOWING, lambda g: g.hold("operator", "x", "ops", AT, None), ("held", "operator", None)),
    ("a 429 holds to the ms", FLOWING, lambda g: g.hold("throttled", "429", "q", AT, AT + 7), ("held", "throttled", AT + 7)),
    ("a longer 429 lengthens", TOLD, lambda g: g.hold("throttled", "429", "q", AT, AT + 9_000), ("held", "throttled", AT + 9_000)),
    (
        "a shorter 429 does not shorten",
        TOLD,
        lambda g: g.hold("throttled", "429", "q", AT, AT + 7),
        ("held", "throttled", AT + 2_000),
    ),
    ("a 429 does not end a pause", PAUSED, lambda g: g.hold("throttled", "429", "q", AT, AT + 7), ("held", "operator", None)),
    ("a 429 does not end a refused login", LOGIN, lambda g: g.hold("throttled", "429", "q", AT, AT + 7), ("held", "auth", None)),
    ("a person outlasts a refused login", LOGIN, lambda g: g.hold("operator", "x", "ops", AT, None), ("held", "operator", None)),
    (
        "a refused login does not outlast a person",
        PAUSED,
        lambda g: g.hold("auth", "401", "q", AT, None),
        ("held", "operator", None),
    ),
    ("a refused login outlasts a 429", TOLD, lambda g: g.hold("auth", "401", "q", AT, None), ("held", "auth", None)),
    ("a person outlasts an open breaker", DOWNED, lambda g: g.hold("operator", "x", "ops", AT, None), ("held", "operator", None)),
    (
        "a 429 lengthens an outage, which stays one",
        DOWNED,
        lambda g: g.hold("throttled", "429", "q", AT, AT + 99_000),
        ("held", "breaker", AT + 99_000),
    ),
    (
        "a 429 before the trial leaves the trial",
        HALF,
        lambda g: g.hold("throttled", "x", "q", AT, AT + 7),
        ("held", "breaker", AT + 7),
    ),
    ("a trial refused again is held", HALF, lambda g: g.hold("auth", "401", "q", AT + 9, None), ("held", "auth", None)),
    ("a 429 that is over flows", TOLD, lambda g: g.lift(AT + 2_000), ("flowing", None, None)),
    ("an outage that rested is tried", DOWNED, lambda g: g.lift(AT + REST), ("half_open", None, None)),
    ("a resumed login is tried", LOGIN, lambda g: g.lift(AT, by_person=True), ("half_open", None, None)),
    ("a resumed pause is tried", PAUSED, lambda g: g.lift(AT, by_person=True), ("half_open", None, None)),
    ("a resumed 429 is tried", TOLD, lambda g: g.lift(AT, by_person=True), ("half_open", None, None)),
    (
        "the fifth failure in a row opens the breaker though the others asked for waits",
        replace(TOLD, failures=4, failing=(1, 2)),
        lambda g: g.after_failure(3, "503", "q", AT, BREAKER),
        ("held", "breaker", AT + REST),
    ),
    ("an answer while held says nothing", LOGIN, lambda g: g.after_answer(), ("held", "auth", None)),
    ("an answer to the trial opens", HALF, lambda g: g.after_answer(), ("flowing", None, None)),
    ("an answer while flowing flows", FAILING, lambda g: g.after_answer(), ("flowing", None, None)),
    ("one failure is an accident", FLOWING, lambda g: g.after_failure(1, "503", "q", AT, BREAKER), ("flowing", None, None)),
    ("a failure while held says nothing", LOGIN, lambda g: g.after_failure(1, "503", "q", AT, BREAKER), ("held", "auth", None)),
    (
        "the fifth in a row over three effects opens the breaker",
        FAILING,
        lambda g: g.after_failure(3, "503", "q", AT, BREAKER),
        ("held", "breaker", AT + REST),
    ),
    (
        "the fifth in a row over two does not",
        FAILING,
        lambda g: g.after_failure(2, "503", "q", AT, BREAKER),
        ("flowing", None, None),
    ),
    ("a trial that fails rests", HALF, lambda g: g.after_failure(3, "503", "q", AT, BREAKER), ("held", "breaker", AT + REST)),
]


@pytest.mark.parametrize(("before", "happens", "after"), [move[1:] for move in MOVES], ids=[move[0] for move in MOVES])
def test_each_event_moves_a_gate_as_the_table_says(
    before: Gate, happens: Callable[[Gate], Gate], after: tuple[str, str | None, int | None]
) -> None:
    assert shape(happens(before)) == after


def test_a_breaker_counts_failures_in_a_row_and_an_answer_forgets_them() -> None:
    gate = FLOWING
    for effect_id in (1, 2, 3, 1):
        gate = gate.after_failure(effect_id, "503", "q", AT, BREAKER)
    assert (gate.state, gate.failures, gate.failing) == ("flowing", 4, (2, 3, 1))
    assert gate.after_answer() == FLOWING
    assert gate.after_failure(2, "503", "q", AT, BREAKER).state == "held"


@pytest.mark.parametrize(("effects", "state"), [((1, 1, 1, 1, 1, 1, 1, 2), "flowing"), ((1, 1, 1, 1, 2, 2, 3), "held")])
def test_a_breaker_never_opens_over_fewer_than_three_effects(effects: tuple[int, ...], state: str) -> None:
    gate = FLOWING
    for effect_id in effects:
        gate = gate.after_failure(effect_id, "503", "q", AT, BREAKER)
    assert gate.state == state


def test_throttling_keeps_the_failure_count_and_an_answer_resets_it() -> None:
    told = replace(TOLD, failures=4, failing=(1, 2))
    assert told.lift(AT + 2_000).failures == 4
    assert (told.after_answer().failures, told.after_answer().state) == (0, "held")


def test_the_end_of_a_hold_keeps_when_the_login_was_last_resumed() -> None:
    assert HALF.resumed_at == AT + 5
    held_again = HALF.after_failure(3, "503", "q", AT + 6, BREAKER)
    assert held_again.lift(AT + 99_000).resumed_at == AT + 5
    assert HALF.after_answer().resumed_at == AT + 5


def test_a_family_is_what_stands_before_the_dot() -> None:
    assert [family(name) for name in ("crm.create", "crm.update", "crm", "default")] == ["crm", "crm", "crm", "default"]


# ------------------------------------------------------------------------------------------------------- on a real ledger


def crm(number: int, effect_class: str = "crm.create") -> EffectIntent:
    return intent(effect_class, "keyed", f"Q-{number}")


async def owe_crm(desk: Desk, count: int, effect_class: str = "crm.create") -> list[Effect]:
    return await desk.owe(*(crm(number, effect_class) for number in range(count)))


def gate_of(desk: Desk, name: str) -> str:
    rows = desk.rows("SELECT state FROM gates WHERE name = ?", name)
    return rows[0]["state"] if rows else "flowing"


async def resumed_after_refusal(desk: Desk, *, owed: int = 4) -> None:
    """Enqueue effects, record a refused login, and resume the class a second later."""
    await owe_crm(desk, owed)
    (first,) = await desk.ledger.claim_effects({"crm.create": 1})
    await desk.ledger.settle(first, Hold(REFUSED))
    desk.clock.advance(1_000)
    await desk.ledger.resume("crm", "ops")


async def test_a_refused_login_holds_every_class_of_its_family_and_no_other(desk: Desk) -> None:
    await desk.owe(crm(1), crm(2, "crm.update"), intent(target="thread"))
    (created,) = await desk.ledger.claim_effects({"crm.create": 1})
    await desk.ledger.settle(created, Hold(REFUSED))
    claimed = await desk.ledger.claim_effects({"crm.create": 9, "crm.update": 9, "slack.post": 9})
    assert [effect.effect_class for effect in claimed] == ["slack.post"]


async def test_an_outage_of_one_class_leaves_its_relatives_alone(desk: Desk) -> None:
    await desk.owe(*(crm(number) for number in range(6)), crm(7, "crm.update"))
    for effect in await desk.ledger.claim_effects({"crm.create": 5}):
        await desk.ledger.settle(effect, Retry(DOWN, 60_000))
    claimed = await desk.ledger.claim_effects({"crm.create": 9, "crm.update": 9})
    assert [effect.effect_class for effect in claimed] == ["crm.update"]


async def test_a_half_open_family_lets_one_effect_through_over_all_its_classes(desk: Desk) -> None:
    await desk.owe(*(crm(number) for number in range(3)), *(crm(number, "crm.update") for number in range(3)))
    assert await desk.ledger.pause("crm", "ops", "maintenance")
    assert await desk.ledger.resume("crm", "ops")
    (trial,) = await desk.ledger.claim_effects({"crm.create": 9, "crm.update": 9})
    for slots in ({"crm.create": 9}, {"crm.update": 9}, {"crm.create": 9, "crm.update": 9}):
        assert await desk.ledger.claim_effects(slots) == [], "also when the class of the trial has no slot left to ask for"
    await desk.ledger.settle(trial, DONE)
    assert len(await desk.ledger.claim_effects({"crm.create": 9, "crm.update": 9})) == 5


async def test_trial_lost_in_a_crash_is_followed_by_one_other(desk: Desk) -> None:
    await resumed_after_refusal(desk)
    trial = await desk.claim()
    desk = await restart(desk)
    await take_back(desk.ledger)
    assert gate_of(desk, "crm") == "half_open"
    again = await desk.claim()
    assert (again.fence, again.epoch) != (trial.fence, trial.epoch)
    await desk.ledger.settle(again, DONE)
    assert len(await desk.claim_each()) == 3


@pytest.mark.parametrize("answer", [DONE, Retry(TROUBLE, 60_000), Uncertain(TROUBLE, 60_000), Fail(TROUBLE), Drop(TROUBLE)])
async def test_any_answer_to_the_trial_lets_the_rest_through(answer: Settlement, desk: Desk) -> None:
    await resumed_after_refusal(desk)
    await desk.ledger.settle(await desk.claim(), answer)
    assert gate_of(desk, "crm") == "flowing"
    assert len(await desk.claim_each()) == 3


async def test_a_trial_without_any_answer_rests_and_is_followed_by_another_effect(desk: Desk) -> None:
    await resumed_after_refusal(desk)
    trial = await desk.claim()
    await desk.ledger.settle(trial, Retry(DOWN, 0))
    assert await desk.claimed_ids() == []
    desk.clock.advance(REST - 1)
    assert await desk.claimed_ids() == []
    desk.clock.advance(1)
    assert (await desk.claim()).id != trial.id


async def test_a_trial_refused_again_holds_again_without_a_second_alert(desk: Desk) -> None:
    await resumed_after_refusal(desk)
    for _ in range(3):
        await desk.ledger.settle(await desk.claim(), Hold(REFUSED))
        assert gate_of(desk, "crm") == "held"
        desk.clock.advance(1_000)
        await desk.ledger.resume("crm", "ops")
    assert desk.events().count("class.paused") == 1
    assert desk.value("SELECT max(attempts) FROM effects") == 0


async def test_of_many_refusals_at_once_one_is_an_alert(desk: Desk) -> None:
    await owe_crm(desk, 5)
    for effect in await desk.claim_each():
        await desk.ledger.settle(effect, Hold(REFUSED))
    assert desk.events().count("class.paused") == 1
    assert desk.value("SELECT count(*) FROM holds") == 1


@pytest.mark.parametrize("reconciling", [False, True])
async def test_refusal_from_before_the_resume_neither_holds_again_nor_ends_the_trial(reconciling: object, desk: Desk) -> None:
    await owe_crm(desk, 4)
    if reconciling:
        for effect in await desk.claim_each():
            await desk.ledger.settle(effect, Uncertain(TROUBLE, 0))
    first, late = await desk.ledger.claim_effects({"crm.create": 2})
    await desk.ledger.settle(first, Hold(REFUSED))
    desk.clock.advance(1_000)
    await desk.ledger.resume("crm", "ops")
    settled = sure(await desk.ledger.settle(late, Hold(REFUSED)))
    assert (settled.state, settled.attempts) == ("uncertain" if reconciling else "pending", int(bool(reconciling)))
    assert gate_of(desk, "crm") == "half_open"
    assert len(await desk.claim_each()) == 1, "the trial is still to come, alone"


async def test_an_answer_from_before_the_resume_does_not_stand_for_the_trial(desk: Desk) -> None:
    await owe_crm(desk, 4)
    first, late = await desk.ledger.claim_effects({"crm.create": 2})
    await desk.ledger.settle(first, Hold(REFUSED))
    desk.clock.advance(1_000)
    await desk.ledger.resume("crm", "ops")
    await desk.ledger.settle(late, DONE)
    assert gate_of(desk, "crm") == "half_open"
    assert len(await desk.claim_each()) == 1


async def test_refused_login_holds_even_when_the_clock_was_set_back_past_the_resume(desk: Desk) -> None:
    """Otherwise every attempt would seem older than that resume and would be repeated at once, without end."""
    await owe_crm(desk, 2)
    await desk.ledger.settle((await desk.claim_each())[0], Hold(REFUSED))
    await desk.ledger.resume("crm", "ops")
    desk.clock.wall_ms -= 3_600_000
    desk.shell.execute("UPDATE effects SET next_attempt_at = ? WHERE state = 'pending'", (desk.clock.wall_ms,))
    desk = await restart(desk)
    await take_back(desk.ledger)
    await desk.ledger.settle(await desk.claim(), Hold(REFUSED))
    assert gate_of(desk, "crm") == "held"


async def test_answer_opens_the_class_even_when_the_clock_was_set_back_past_the_resume(desk: Desk) -> None:
    await owe_crm(desk, 1)
    await desk.ledger.settle(await desk.claim(), Hold(REFUSED))
    await desk.ledger.resume("crm", "ops")
    desk.clock.wall_ms -= 3_600_000
    desk.shell.execute("UPDATE effects SET next_attempt_at = ?", (desk.clock.wall_ms,))
    await desk.ledger.settle(await desk.claim(), DONE)
    assert gate_of(desk, "crm") == "flowing"


@pytest.mark.parametrize(("cause", "after"), [("operator", False), ("auth", False), ("breaker", True)])
async def test_class_is_stopped_until_its_hold_ends_and_its_outage_is_over(desk: Desk, cause: Cause, *, after: bool) -> None:
    gates = desk.ledger.gates
    for step, expected in (
        (lambda tx: gates.hold(tx, AT, "crm", cause, "why", "ops"), True),
        (lambda tx: gates.resume(tx, AT, "crm"), after),
    ):
        await desk.ledger.database.write("step", step)
        assert await desk.ledger.database.read(lambda tx: is_stopped(tx, "crm.create")) is expected
    assert not await desk.ledger.database.read(lambda tx: is_stopped(tx, "slack.file"))


async def test_a_429_does_not_stop_a_class(desk: Desk) -> None:
    gates = desk.ledger.gates
    await desk.ledger.database.write(
        "hold", lambda tx: gates.hold(tx, AT, "slack.file", "throttled", "429", "quotebot", AT + 2_000)
    )
    assert not await desk.ledger.database.read(lambda tx: is_stopped(tx, "slack.file"))


async def test_an_open_breaker_is_one_alert_until_it_closes_however_many_trials_fail(desk: Desk) -> None:
    await owe_crm(desk, 5)
    for effect in await desk.claim_each():
        await desk.ledger.settle(effect, Retry(DOWN, 0))
    for _ in range(4):
        desk.clock.advance(REST)
        for effect in await desk.claim_each():
            await desk.ledger.settle(effect, Retry(DOWN, 0))
    moves = [event for event in desk.events() if event.startswith("class.")]
    assert moves == ["class.paused", *["class.half_open", "class.held"] * 4]


async def test_the_trials_of_an_open_breaker_go_round_the_effects_and_burn_their_attempts(desk: Desk) -> None:
    await owe_crm(desk, 5)
    for effect in await desk.claim_each():
        await desk.ledger.settle(effect, Retry(DOWN, 0))
    tried = []
    for _ in range(5):
        desk.clock.advance(REST)
        trial = await desk.claim()
        tried.append(trial.id)
        await desk.ledger.settle(trial, Retry(DOWN, 0))
    assert sorted(tried) == [1, 2, 3, 4, 5]
    assert {row["attempts"] for row in desk.rows("SELECT attempts FROM effects")} == {2}


async def test_an_outage_that_names_its_end_is_still_tried_with_one_effect_first(desk: Desk) -> None:
    await owe_crm(desk, 6)
    for effect in (await desk.claim_each())[:5]:
        await desk.ledger.settle(effect, Retry(DOWN, 0, hold_until=START_MS + 60_000))
    desk.clock.advance(59_999)
    assert await desk.claimed_ids() == []
    desk.clock.advance(1)
    assert gate_of(desk, "crm.create") == "held"
    assert len(await desk.claimed_ids()) == 0, "one is in flight since before the outage: it is the trial"


async def test_throttling_of_a_superseded_update_also_delays_the_newer_one(desk: Desk) -> None:
    update = intent("slack.card", "convergent", supersede_key=f"card:{QUOTE}")
    await desk.owe(update, request_id="r1")
    older = await desk.claim()
    (newer,) = await desk.owe(update, request_id="r2")
    dropped = sure(await desk.ledger.settle(older, Retry(TROUBLE, 0, spent=False, hold_until=START_MS + 5_000)))
    assert dropped.state == "superseded"
    desk.clock.advance(4_999)
    assert await desk.claimed_ids() == []
    desk.clock.advance(1)
    assert await desk.claimed_ids() == [newer.id]


async def test_a_gate_that_opens_by_time_is_a_wake_up(desk: Desk) -> None:
    await owe_crm(desk, 2)
    (claimed,) = await desk.ledger.claim_effects({"crm.create": 1})
    await desk.ledger.settle(claimed, Retry(TROUBLE, 0, hold_until=START_MS + 5_000))
    assert await desk.ledger.next_effect_due_at(("crm.create",)) == START_MS + 5_000


# ------------------------------------------------------------------------------------------------------------------- ages


async def test_age_stops_while_its_class_or_family_is_held_and_overlaps_count_once(desk: Desk) -> None:
    age = {"crm.create": 10_000}
    await owe_crm(desk, 1)
    slots = {"crm.create": 1}
    desk.clock.advance(4_000)  # aged 4 s
    await desk.ledger.pause("crm.create", "ops", "x")
    desk.clock.advance(5_000)
    await desk.ledger.pause("crm", "ops", "y")
    desk.clock.advance(10_000)
    await desk.ledger.resume("crm", "ops")
    desk.clock.advance(6_000)  # aged 10 s, though 25 s old
    (effect,) = await desk.ledger.claim_effects(slots, max_age_ms=age)
    await desk.ledger.settle(effect, Retry(TROUBLE, 0))
    desk.clock.advance(1)
    assert await desk.ledger.claim_effects(slots, max_age_ms=age) == []
    assert (desk.effect(1).state, desk.effect(1).category) == ("failed", "expired")


async def test_hold_from_before_an_effect_was_enqueued_does_not_reduce_its_age(desk: Desk) -> None:
    await desk.ledger.pause("crm", "ops", "x")
    desk.clock.advance(50_000)
    await owe_crm(desk, 1)
    desk.clock.advance(1_000)
    await desk.ledger.resume("crm", "ops")
    desk.clock.advance(10_001)
    assert await desk.ledger.claim_effects({"crm.create": 1}, max_age_ms={"crm.create": 10_000}) == []
    assert desk.effect(1).state == "failed"


async def test_hold_ends_at_its_stated_time_even_if_nothing_checked_it_then(desk: Desk) -> None:
    await owe_crm(desk, 2)
    (told, _) = await desk.claim_each()
    await desk.ledger.settle(told, Retry(TROUBLE, 0, hold_until=START_MS + 2_000))
    desk.clock.advance(2_000 + 10_001)  # the bot was not running
    assert await desk.ledger.claim_effects({"crm.create": 1}, max_age_ms={"crm.create": 10_000}) == []
    assert [tuple(row) for row in desk.rows("SELECT held_at, ended_at FROM holds")] == [(START_MS, START_MS + 2_000)]
    assert desk.effect(told.id).category == "expired"


async def test_operator_pause_during_a_refused_login_outlasts_a_restart(desk: Desk) -> None:
    await owe_crm(desk, 2)
    (refused, _) = await desk.claim_each()
    await desk.ledger.settle(refused, Hold(REFUSED))
    assert await desk.ledger.pause("crm", "ops", "maintenance")
    assert not await desk.ledger.pause("crm", "ops", "maintenance"), "somebody had paused it already"
    desk = await restart(desk)
    await take_back(desk.ledger)
    assert gate_of(desk, "crm") == "held"
    assert desk.value("SELECT held_by FROM gates") == "ops"


async def test_a_login_refused_for_a_month_with_200_waiting_costs_no_attempt_and_no_effect(desk: Desk) -> None:
    owed = await owe_crm(desk, 200)
    age = {"crm.create": 7 * DAY}
    (first, late) = await desk.ledger.claim_effects({"crm.create": 2}, max_age_ms=age)
    await desk.ledger.settle(first, Hold(REFUSED))
    for _ in range(30):
        desk.clock.advance(DAY)
        assert await desk.ledger.claim_effects({"crm.create": 4}, max_age_ms=age) == []
    await desk.ledger.resume("crm", "ops")
    desk.clock.advance(1_000)
    await desk.ledger.settle(late, Hold(REFUSED))
    drained: list[int] = []
    sizes: list[int] = []
    while claimed := await desk.ledger.claim_effects({"crm.create": 4}, max_age_ms=age):
        sizes.append(len(claimed))
        for effect in claimed:
            drained.append(effect.id)
            await desk.ledger.settle(effect, DONE)
    assert sizes[:2] == [1, 4], "one first, then the rest"
    in_order = [effect.id for effect in owed if effect.id not in (first.id, late.id)]
    assert [effect_id for effect_id in drained if effect_id in set(in_order)] == in_order
    assert {tuple(row) for row in desk.rows("SELECT state, attempts FROM effects")} == {("delivered", 1)}
    assert desk.events().count("class.paused") == 1
    assert desk.events().count("system.error") == 0


def gate_moves(desk: Desk) -> list[tuple[object, ...]]:
    """Return every audited move of a gate: event, class, cause, end, effect, failure category and recovery."""
    found = desk.rows("SELECT * FROM audit_events WHERE event_type LIKE 'class.%' ORDER BY id")
    afters = [json.loads(row["after"]) for row in found]
    return [
        (row["event_type"], after["class"], after["cause"], after.get("until"), row["effect_id"], row["failure_category"])
        for row, after in zip(found, afters, strict=True)
    ]


async def test_a_429_hold_and_its_end_are_audited(desk: Desk) -> None:
    await owe_crm(desk, 2)
    effect, late = await desk.claim_each()
    told = Retry(Trouble("throttled", "429"), 0, spent=False, hold_until=START_MS + 2_000)
    await desk.ledger.settle(effect, told)
    await desk.ledger.settle(late, told)
    desk.clock.advance(2_000)
    await desk.claim_each()
    assert gate_moves(desk) == [
        ("class.held", "crm.create", "throttled", START_MS + 2_000, effect.id, "throttled"),
        ("class.resumed", "crm.create", "throttled", None, None, None),
    ]


async def test_every_move_of_an_open_breaker_is_audited(desk: Desk) -> None:
    await owe_crm(desk, 5)
    for effect in await desk.claim_each():
        await desk.ledger.settle(effect, Retry(DOWN, 0))
    for settlement in (Retry(DOWN, 0), DONE):
        desk.clock.advance(REST)
        await desk.ledger.settle(await desk.claim(), settlement)
    assert [(event, cause, category) for event, _, cause, _, _, category in gate_moves(desk)] == [
        ("class.paused", "breaker", "transient"),
        ("class.half_open", "breaker", None),
        ("class.held", "breaker", "transient"),
        ("class.half_open", "breaker", None),
        ("class.resumed", "breaker", None),
    ]
