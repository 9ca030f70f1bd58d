from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import DedupeResult, Outcome, Reservation, Trouble
from quotebot.commands.registry import Command
from quotebot.slack.surface import Answer, Reserver, answer_for
from quotebot.views import messages
from quotebot.views.confirmations import offer_blocks
from tests.quotebot.parts import create_command, gate_held
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from ledger.database import Tx
    from tests.quotebot.parts import Bench

COMMAND = Command(
    source="slack_slash",
    source_request_id="T0HOME:trigger",
    aggregate_id="new",
    aggregate_version=0,
    payload=create_command(),
    actor="U0REP",
    actor_type="user",
    actor_name="rep",
    fingerprint="f" * 64,
    received_at=MORNING,
    response_url="https://hooks.slack.com/commands/T0HOME/1/secret",
)
SECONDS = 60.0
TROUBLE = Trouble("internal", "The command could not be executed: a value is invalid (invalid_value).")


@pytest.fixture
def desk(bench: Bench) -> Reserver:
    return Reserver(bench.ledger, team_id="T0HOME", ack_budget_seconds=2.0)


async def received(desk: Reserver, **changes: Any) -> Answer:
    return await desk.receive(replace(COMMAND, **changes), envelope_id="E1")


def ref(bench: Bench) -> str:
    found: str = bench.row("SELECT correlation_id FROM operations")["correlation_id"]
    return found


async def test_a_new_command_is_recorded_before_it_is_answered(bench: Bench, desk: Reserver) -> None:
    answer = await received(desk)
    assert answer == Answer(recorded=True, text="")
    delivery = bench.row("SELECT * FROM deliveries")
    assert (delivery["source_request_id"], delivery["seen"]) == ("T0HOME:trigger", 1)
    assert json.loads(delivery["transport"]) == {
        "actor_name": "rep",
        "envelope_id": "E1",
        "response_url": "https://hooks.slack.com/commands/T0HOME/1/secret",
    }


async def test_transport_is_no_part_of_the_identity(bench: Bench, desk: Reserver) -> None:
    await received(desk)
    again = await desk.receive(replace(COMMAND, response_url="https://hooks.slack.com/other", actor_name="x"), envelope_id="E2")
    assert again.text == messages.OPERATION_PENDING
    await bench.ledger.noted()
    assert bench.row("SELECT seen FROM deliveries")["seen"] == 2


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_duplicate_of_an_unfinished_command_is_pending(bench: Bench, desk: Reserver, claimed: bool) -> None:  # noqa: FBT001 -- the case
    await received(desk)
    if claimed:
        await bench.ledger.claim_operation()
    assert await received(desk) == Answer(recorded=True, text=messages.OPERATION_PENDING)


@pytest.mark.parametrize("kind", ["applied", "refused"])
async def test_a_duplicate_of_a_finished_command_gets_the_stored_answer(bench: Bench, desk: Reserver, kind: str) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    outcome = Outcome("applied" if kind == "applied" else "refused", {"code": "x", "text": "Created Q-2026-0001."})
    await bench.ledger.execute(operation, lambda _: outcome)
    assert await received(desk) == Answer(recorded=True, text="Created Q-2026-0001.")


@pytest.mark.parametrize("kind", ["applied", "refused"])
async def test_a_duplicate_of_a_completed_command_without_a_text_is_no_failure(bench: Bench, desk: Reserver, kind: str) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    await bench.ledger.execute(operation, lambda _: Outcome("applied" if kind == "applied" else "refused", {"code": "x"}))
    assert await received(desk) == Answer(recorded=True, text=messages.finished(kind))


async def test_a_duplicate_of_a_command_that_waits_for_its_next_try_learns_when(bench: Bench, desk: Reserver) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    await bench.ledger.retry_operation(operation, TROUBLE, 60_000)
    answer = await received(desk)
    assert answer.text == messages.retry_pending(MORNING + 60_000)


@pytest.mark.parametrize(("response", "text"), [({"text": "That failed for good."}, "That failed for good."), ({}, None)])
async def test_a_duplicate_of_a_command_that_failed_for_good_learns_why(
    bench: Bench, desk: Reserver, response: dict[str, str], text: str | None
) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    await bench.ledger.fail_operation(operation, TROUBLE, response, ())
    assert (await received(desk)).text == (text or messages.terminal(TROUBLE.error, ref(bench), None))


async def test_a_duplicate_of_a_discarded_command_learns_that_nothing_will_happen(bench: Bench, desk: Reserver) -> None:
    await received(desk)
    bench.rows("UPDATE operations SET state = 'discarded', next_attempt_at = NULL, finished_at = updated_at")
    assert (await received(desk)).text == messages.DISCARDED


async def test_a_duplicate_of_what_was_asked_back_gets_the_question_with_its_buttons(bench: Bench, desk: Reserver) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    offer = {"token": operation.operation_key, "quote_id": "Q-2026-0001", "version": 1}
    outcome = Outcome("refused", {"code": "resubmission", "text": "Create another?", "offer": offer})
    await bench.ledger.execute(operation, lambda _: outcome)
    answer = await received(desk)
    assert (answer.text, list(answer.blocks)) == ("Create another?", offer_blocks("Create another?", offer))


@pytest.mark.parametrize(
    ("outcome", "finished_at", "text"),
    [
        ("applied", MORNING, "You already did this on 21 Nov 2026, so we didn't do it again."),
        ("refused", MORNING, "You already asked for this on 21 Nov 2026, and it was declined."),
        (None, MORNING, "You already asked for this on 21 Nov 2026, and it did not go through."),
        ("applied", 1_772_496_000_000, "You already did this on 3 Mar 2026, so we didn't do it again."),
    ],
)
async def test_a_delivery_of_a_command_purged_long_ago_learns_when_and_how_it_ended(
    bench: Bench, desk: Reserver, outcome: str | None, finished_at: int, text: str
) -> None:
    await received(desk)
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    purged = replace(operation, outcome=outcome)
    assert answer_for(Reservation(DedupeResult.TOMBSTONE, purged, finished_at)) == Answer(recorded=True, text=text)


@pytest.mark.parametrize(("characters", "recorded"), [(65_000, True), (65_600, False), (33_000, False)])
async def test_a_command_over_64_kib_is_refused_with_the_limit_and_recorded_nowhere(
    bench: Bench,
    desk: Reserver,
    characters: int,
    recorded: bool,  # noqa: FBT001 -- the case
) -> None:
    letter = "é" if characters == 33_000 else "A"  # two bytes each
    answer = await received(desk, payload=replace(create_command(), account=letter * characters))
    assert answer.recorded is recorded
    assert len(bench.rows("SELECT 1 FROM operations")) == int(recorded)
    if not recorded:
        assert answer.text == "That's too large (64 KiB max). Split it into two quotes."


async def test_a_dropped_envelope_is_audited_with_its_id_and_size(bench: Bench, desk: Reserver) -> None:
    await desk.drop("E1", 1_048_577)
    event = bench.row("SELECT * FROM audit_events")
    assert (event["event_type"], event["actor"], event["actor_type"]) == ("delivery.dropped", "quotebot", "system")
    assert json.loads(event["after"]) == {"envelope_id": "E1", "bytes": 1_048_577}


async def test_a_dropped_envelope_that_cannot_be_audited_in_time_is_dropped_all_the_same(bench: Bench) -> None:
    with gate_held(bench.path):
        await Reserver(bench.ledger, team_id="T0HOME", ack_budget_seconds=0.1).drop(None, 2_000_000)
    await bench.ledger.database.write("next", lambda _: None)  # everything that was queued has run
    assert bench.counts() == dict.fromkeys(bench.counts(), 0)


async def test_the_same_request_with_other_content_is_refused_and_audited(bench: Bench, desk: Reserver) -> None:
    await received(desk)
    answer = await received(desk, payload=create_command("20"), fingerprint="e" * 64)
    assert answer == Answer(recorded=True, text=messages.CONFLICT)
    assert len(bench.rows("SELECT 1 FROM operations")) == 1
    assert len(bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'delivery.conflict'")) == 1


async def test_equal_requests_at_the_same_moment_are_one_operation(bench: Bench, desk: Reserver) -> None:
    answers = await asyncio.gather(*(received(desk) for _ in range(20)))
    assert sum(answer.text == "" for answer in answers) == 1
    assert len(bench.rows("SELECT 1 FROM operations")) == 1
    await bench.ledger.noted()
    assert bench.row("SELECT seen FROM deliveries")["seen"] == 20


async def test_what_could_not_be_recorded_in_time_is_said_so_and_truly_is_not(bench: Bench) -> None:
    impatient = Reserver(bench.ledger, team_id="T0HOME", ack_budget_seconds=0.1)
    with gate_held(bench.path):
        answer = await received(impatient)
    assert answer == Answer(recorded=False, text=messages.NOTHING_RECORDED)
    await bench.ledger.database.write("next", lambda _: None)  # everything that was queued has run
    assert bench.counts() == dict.fromkeys(bench.counts(), 0)
    assert (await received(impatient)).text == ""


async def test_what_had_begun_at_the_deadline_is_not_called_unrecorded(bench: Bench) -> None:
    """A slow write in the same commit leaves the outcome open."""
    finish = threading.Event()

    def slow(_: Tx) -> None:
        assert finish.wait(SECONDS)

    impatient = Reserver(bench.ledger, team_id="T0HOME", ack_budget_seconds=0.1)
    asked = asyncio.create_task(received(impatient))
    neighbour = asyncio.create_task(bench.ledger.database.write("slow", slow))
    try:
        answer = await asyncio.wait_for(asked, SECONDS)
    finally:
        finish.set()
        await neighbour
    assert answer == Answer(recorded=None, text=messages.MAYBE_RECORDED)
    assert (await received(impatient)).text == messages.OPERATION_PENDING
