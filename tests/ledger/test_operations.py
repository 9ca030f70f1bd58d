"""Tests of commands: reserved once, executed in order, all or nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from ledger import keys
from ledger.ledger import Ledger, StaleFenceError
from ledger.records import AuditEvent, DedupeResult, Outcome, Trouble
from tests.ledger.parts import AUDIT, FINISHED, QUOTE, START_MS, applied, intent, request, sure

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Database, Tx
    from tests.ledger.parts import Desk, ManualClock

INTERNAL = Trouble("internal", "The command could not be executed: an error in our own code (bug).")
OTHER = "Q-2026-0002"


async def test_a_command_seen_for_the_first_time_is_remembered_with_its_delivery(desk: Desk) -> None:
    reservation = await desk.reserve(transport={"envelope_id": "e-1", "response_url": "https://hooks.example/1"})
    assert reservation.sighting is DedupeResult.NEW
    operation = reservation.operation
    assert (operation.state, operation.fence, operation.claims, operation.cycle) == ("reserved", 0, 0, 1)
    assert operation == desk.operation()
    asked = request()
    assert operation.operation_key == keys.operation_key(
        source=asked.source,
        source_request_id=asked.source_request_id,
        action_kind=asked.action_kind,
        aggregate_id=asked.aggregate_id,
        aggregate_version=asked.aggregate_version,
        payload_hash=keys.digest(asked.payload),
    )
    (delivery,) = desk.rows("SELECT * FROM deliveries")
    assert (delivery["seen"], json.loads(delivery["transport"])["envelope_id"]) == (1, "e-1")
    assert desk.events() == ["operation.reserved"]
    assert desk.last_event("operation.reserved")["operation_key"] == operation.operation_key


async def test_transport_metadata_is_no_part_of_the_identity(desk: Desk) -> None:
    first = await desk.reserve(transport={"retry_attempt": 0}, received_at=START_MS)
    again = await desk.reserve(transport={"retry_attempt": 1}, received_at=START_MS + 9_000)
    assert (again.sighting, again.operation) == (DedupeResult.DUPLICATE, first.operation)


async def test_a_duplicate_changes_nothing_but_the_count_of_its_sightings(desk: Desk) -> None:
    first = await desk.reserve()
    before = desk.snapshot()
    desk.clock.advance(700)
    again = await desk.reserve()
    assert (again.sighting, again.operation) == (DedupeResult.DUPLICATE, first.operation)
    await desk.ledger.noted()  # the reply comes before the count
    (delivery,) = desk.rows("SELECT * FROM deliveries")
    assert (delivery["seen"], delivery["last_seen_at"] - delivery["received_at"]) == (2, 700)
    after = desk.snapshot()
    assert {table for table in before if before[table] != after[table]} == {"deliveries"}
    assert desk.events() == ["operation.reserved", "delivery.duplicate"]


async def test_a_duplicate_is_answered_although_it_cannot_be_counted(desk: Desk) -> None:
    first = await desk.reserve()
    await desk.reserve("other")
    desk.shell.execute("UPDATE deliveries SET seen = 2 WHERE source_request_id = 'T01:other'")
    desk.shell.execute("CREATE UNIQUE INDEX no_second_two ON deliveries (seen)")
    again = await desk.reserve()
    assert (again.sighting, again.operation) == (DedupeResult.DUPLICATE, first.operation)


async def test_a_duplicate_of_a_finished_command_gets_its_stored_response(desk: Desk) -> None:
    operation = await desk.claim_operation()
    await desk.ledger.execute(operation, applied())
    again = await desk.reserve()
    assert (again.sighting, again.operation.state, again.operation.response) == (
        DedupeResult.DUPLICATE,
        "completed",
        {"code": "ok"},
    )
    assert await desk.ledger.claim_operation() is None


async def test_the_same_request_id_with_another_meaning_is_a_conflict_and_changes_nothing(desk: Desk) -> None:
    first = await desk.reserve()
    conflict = await desk.reserve(fingerprint="submit something else", payload={"schema": 1, "note": "other"})
    assert (conflict.sighting, conflict.operation) == (DedupeResult.CONFLICT, first.operation)
    assert desk.value("SELECT count(*) FROM operations") == 1
    assert desk.events() == ["operation.reserved", "delivery.conflict"]


async def test_redelivery_after_a_payload_schema_change_maps_to_the_first_operation(desk: Desk) -> None:
    first = await desk.reserve(payload={"schema": 1, "note": "as discussed"})
    redelivered = await desk.reserve(payload={"schema": 2, "note": {"text": "as discussed"}}, aggregate_version=2)
    assert (redelivered.sighting, redelivered.operation) == (DedupeResult.DUPLICATE, first.operation)
    assert desk.value("SELECT count(*) FROM operations") == 1


async def test_one_request_may_ask_for_two_kinds_of_action(desk: Desk) -> None:
    await desk.reserve()
    other = await desk.reserve(action_kind="quote.create", fingerprint="another")
    assert other.sighting is DedupeResult.NEW


async def test_an_operation_outlives_its_deliveries_as_the_guard_against_repetition(desk: Desk) -> None:
    first = await desk.reserve()
    desk.shell.execute("DELETE FROM deliveries")  # retention: deliveries go long before operations
    again = await desk.reserve()
    assert (again.sighting, again.operation) == (DedupeResult.DUPLICATE, first.operation)


async def test_of_fifty_concurrent_reserves_of_one_command_exactly_one_is_new(desk: Desk) -> None:
    reservations = await asyncio.gather(*(desk.reserve() for _ in range(50)))
    assert sorted(reservation.sighting for reservation in reservations) == ["duplicate"] * 49 + ["new"]
    assert {reservation.operation.id for reservation in reservations} == {1}
    await desk.ledger.noted()
    assert desk.value("SELECT seen FROM deliveries") == 50
    assert sorted(desk.events()) == ["delivery.duplicate"] * 49 + ["operation.reserved"]


async def test_a_float_in_a_payload_is_refused_before_anything_is_written(desk: Desk) -> None:
    with pytest.raises(TypeError, match="use a decimal string"):
        await desk.reserve(payload={"discount": 0.15})
    assert desk.value("SELECT count(*) FROM deliveries") == 0


async def test_only_a_process_with_an_epoch_may_claim(database: Database, clock: ManualClock) -> None:
    outsider = Ledger(database, clock, AUDIT)
    await outsider.reserve(request())
    for claim in (outsider.claim_operation(), outsider.claim_effects({"slack.post": 1})):
        with pytest.raises(RuntimeError, match="may claim"):
            await claim


async def test_commands_on_one_quote_run_one_at_a_time_in_the_order_they_came(desk: Desk) -> None:
    for request_id in ("r1", "r2", "r3"):
        await desk.reserve(request_id)
    other = (await desk.reserve("r4", aggregate_id=OTHER)).operation
    first = sure(await desk.ledger.claim_operation())
    assert (first.id, first.state, first.fence, first.claims) == (1, "in_progress", 1, 1)
    assert sure(await desk.ledger.claim_operation()).id == other.id
    assert await desk.ledger.claim_operation() is None
    await desk.ledger.execute(first, applied())
    assert sure(await desk.ledger.claim_operation()).id == 2


async def test_finished_rows_do_not_hide_what_is_due(grown: Desk) -> None:
    operation = await grown.claim_operation()
    assert operation.id == FINISHED + 1
    await grown.reserve("r2", aggregate_id=f"Q-{FINISHED}")
    assert sure(await grown.ledger.claim_operation()).id == FINISHED + 2
    assert await grown.claimed_ids() == []


async def test_creations_do_not_wait_for_each_other(desk: Desk) -> None:
    for request_id in ("r1", "r2"):
        await desk.reserve(request_id, aggregate_id="new", aggregate_version=0)
    assert [sure(await desk.ledger.claim_operation()).id for _ in range(2)] == [1, 2]


async def test_a_command_waiting_for_its_retry_holds_its_quote_and_nothing_else(desk: Desk) -> None:
    first = await desk.claim_operation("r1")
    await desk.reserve("r2")
    await desk.reserve("r3", aggregate_id=OTHER)
    await desk.ledger.retry_operation(first, INTERNAL, 1_000)
    assert sure(await desk.ledger.claim_operation()).aggregate_id == OTHER
    desk.clock.advance(999)
    assert await desk.ledger.claim_operation() is None
    desk.clock.advance(1)
    again = sure(await desk.ledger.claim_operation())
    assert (again.id, again.fence, again.attempts, again.claims) == (first.id, 2, 1, 1)


async def test_a_retried_command_keeps_why_and_when(desk: Desk) -> None:
    operation = await desk.claim_operation()
    desk.clock.advance(50)
    await desk.ledger.retry_operation(operation, INTERNAL, 1_000)
    stored = desk.operation()
    assert (stored.state, stored.category, stored.last_error) == ("failed_retryable", "internal", INTERNAL.error)
    assert stored.next_attempt_at == START_MS + 1_050
    event = desk.last_event("operation.retry_scheduled")
    assert (event["retry_count"], event["failure_category"], event["recovery_action"]) == (1, "internal", "retry")
    (attempt,) = desk.rows("SELECT * FROM attempts")
    assert (attempt["outcome"], attempt["delay_ms"], attempt["ended_at"] - attempt["started_at"]) == ("retry", 1_000, 50)


async def test_failed_command_enqueues_its_reply_in_the_same_transaction(desk: Desk, database: Database) -> None:
    operation = await desk.claim_operation()
    before = database.health.commits
    await desk.ledger.fail_operation(operation, INTERNAL, {"code": "failed"}, (intent("slack.reply", "repeat_once"),))
    assert database.health.commits == before + 1
    stored = desk.operation()
    assert (stored.state, stored.response, stored.category) == ("failed_terminal", {"code": "failed"}, "internal")
    assert [(row["class"], row["state"]) for row in desk.rows("SELECT * FROM effects")] == [("slack.reply", "pending")]
    assert desk.events()[-2:] == ["system.error", "effect.owed"]
    assert [tuple(row) for row in desk.rows("SELECT kind, outcome, category FROM attempts")] == [("execute", "bury", "internal")]


async def test_failed_command_frees_its_quote(desk: Desk) -> None:
    operation = await desk.claim_operation("r1")
    await desk.reserve("r2")
    await desk.ledger.fail_operation(operation, INTERNAL, {"code": "failed"}, ())
    assert sure(await desk.ledger.claim_operation()).id == 2


async def test_execution_writes_change_answer_events_and_effects_in_one_commit(desk: Desk, database: Database) -> None:
    operation = await desk.claim_operation()
    submitted = AuditEvent("quote.submitted", OTHER, before={"state": "draft"}, after={"state": "submitted"})
    before = database.health.commits
    outcome = Outcome("refused", {"code": "stale"}, (intent(), intent("slack.card", "convergent")), (submitted,))
    done = await desk.ledger.execute(operation, lambda _: outcome)
    assert database.health.commits == before + 1
    stored = desk.operation()
    assert done == outcome
    assert (stored.state, stored.outcome, stored.response) == ("completed", "refused", {"code": "stale"})
    assert (stored.claims, stored.attempts, stored.epoch, stored.next_attempt_at) == (0, 1, None, None)
    assert desk.events()[2:] == ["quote.submitted", "operation.refused"]
    assert desk.last_event("quote.submitted")["aggregate_id"] == OTHER
    owed_keys = [keys.effect_key(operation.operation_key, name, at) for at, name in enumerate(("slack.post", "slack.card"))]
    assert [row["effect_key"] for row in desk.rows("SELECT effect_key FROM effects ORDER BY id")] == owed_keys
    hashes = [keys.sha256(row["payload"].encode()) for row in desk.rows("SELECT payload FROM effects ORDER BY id")]
    assert desk.last_event("operation.refused")["after"] == {
        "code": "stale",
        "owes": [
            {"class": "slack.post", "target": QUOTE, "key": owed_keys[0], "payload_sha256": hashes[0]},
            {"class": "slack.card", "target": QUOTE, "key": owed_keys[1], "payload_sha256": hashes[1]},
        ],
    }
    assert desk.value("SELECT count(*) FROM attempts") == 0, "what completed says so itself"


async def test_reply_text_is_stored_but_not_audited(desk: Desk) -> None:
    said = Outcome("applied", {"code": "ok", "text": "Sent to the manager."})
    done = await desk.ledger.execute(await desk.claim_operation(), lambda _: said)
    assert done == said
    assert (desk.operation().response, desk.last_event("operation.applied")["after"]) == (said.response, {"code": "ok", "owes": []})


def write_and_fail(tx: Tx) -> Outcome:
    tx.one("begin_hold", name="half.done", cause="operator", now=1)
    raise ZeroDivisionError("a bug in a price rule")


def owe_after_nothing(tx: Tx) -> Outcome:
    tx.one("begin_hold", name="half.done", cause="operator", now=1)
    return Outcome("applied", {}, (intent(), intent(after="0" * 64)))


def say_the_unknown(_: Tx) -> Outcome:
    return Outcome("applied", {}, (intent(),), (AuditEvent("quote.teleported", QUOTE),))


@pytest.mark.parametrize(
    ("decide", "error"),
    [(write_and_fail, ZeroDivisionError), (owe_after_nothing, LookupError), (say_the_unknown, ValueError)],
)
async def test_an_execution_that_fails_anywhere_changes_nothing_at_all(
    decide: Callable[[Tx], Outcome], error: type[Exception], desk: Desk
) -> None:
    operation = await desk.claim_operation()
    before, events = desk.snapshot(), desk.events()
    with pytest.raises(error):
        await desk.ledger.execute(operation, decide)
    assert (desk.snapshot(), desk.events()) == (before, events)
    await desk.ledger.execute(operation, applied())
    assert desk.operation().state == "completed"


async def test_a_result_that_comes_too_late_changes_nothing_and_is_audited(desk: Desk) -> None:
    late = await desk.claim_operation()
    await desk.ledger.retry_operation(late, INTERNAL, 0)
    again = sure(await desk.ledger.claim_operation())
    before = desk.snapshot()
    with pytest.raises(StaleFenceError):
        await desk.ledger.execute(late, applied(intent()))
    await desk.ledger.retry_operation(late, INTERNAL, 0)
    await desk.ledger.fail_operation(late, INTERNAL, {"code": "failed"}, (intent(),))
    assert desk.snapshot() == before
    assert desk.events()[-3:] == ["operation.late_result"] * 3
    await desk.ledger.execute(again, applied(intent()))
    assert (desk.operation().state, desk.operation().fence) == ("completed", 2)
    with pytest.raises(StaleFenceError):
        await desk.ledger.execute(again, applied(intent()))
    assert desk.value("SELECT count(*) FROM effects") == 1
