from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ledger.records import DedupeResult, Operation
from quotebot.commands.payloads import CreateQuote, DecideApproval, ShowHome, SubmitQuote
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.rules import KEEP_REFUSED_MS
from quotebot.execution.executor import SHELF_SECONDS, Decider, Executor
from quotebot.store.history import NEWEST_EVENTS, BrokenChainError, require_as_audited
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Request
    from tests.quotebot.parts import Bench


def high(low: float, high: float) -> float:
    del low
    return high


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, high, MATRIX)


async def done(bench: Bench, executor: Executor, request: Request) -> dict[str, Any]:
    """Reserve and execute one command; return its operation's row."""
    operation = (await bench.ledger.reserve(request)).operation
    assert await executor.step()
    return bench.row("SELECT * FROM operations WHERE id = ?", operation.id)


def owed(bench: Bench, operation_id: int) -> list[tuple[str, str]]:
    found = bench.rows("SELECT class, state FROM effects WHERE operation_id = ? ORDER BY id", operation_id)
    return [(row["class"], row["state"]) for row in found]


async def created(bench: Bench, executor: Executor, request_id: str = "1", **changes: Any) -> str:
    row = await done(bench, executor, request_for(create_command(**changes), request_id))
    quote_id: str = json.loads(row["response"])["quote_id"]
    return quote_id


def unwritable(request_id: str) -> Request:
    """Return a creation whose execution fails: the quote's row refuses a requester without a name."""
    return request_for(create_command(), request_id, transport={"actor_name": None})


def buggy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every decision fail with an error that another attempt may not meet."""

    def decide(*_: Any) -> Any:
        raise RuntimeError("customer text")

    monkeypatch.setattr(Decider, "decide", decide)


def decision(request_id: str, decision_: str, actor: str, reason: str | None = None) -> Request:
    payload = DecideApproval("A-2026-0001-v1-1", "approve" if decision_ == "approve" else "reject", reason)
    return request_for(payload, request_id, quote_id="Q-2026-0001", version=1, actor=actor)


async def test_nothing_due_is_nothing_done(executor: Executor) -> None:
    assert not await executor.step()


async def test_creation_completes_with_its_response_quote_and_card_in_one_transaction(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, request_for(create_command(), "1"))
    assert (row["state"], row["outcome"], row["attempts"]) == ("completed", "applied", 1)
    assert json.loads(row["response"])["quote_id"] == "Q-2026-0001"
    assert owed(bench, row["id"]) == [("slack.post", "pending")]
    quote = bench.row("SELECT * FROM quotes")
    assert quote["created_by_operation"] == row["operation_key"]
    assert quote["root_effect_key"] == bench.row("SELECT effect_key FROM effects")["effect_key"]
    assert quote["requester_name"] == "rep"


async def test_refused_command_completes_as_refused_and_enqueues_a_reply(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, request_for(create_command(lines=(LineRequest("prro", 1),)), "1"))
    assert (row["state"], row["outcome"], row["last_error"]) == ("completed", "refused", None)
    assert owed(bench, row["id"]) == [("slack.reply", "pending")]
    assert bench.rows("SELECT 1 FROM quotes") == []


async def test_a_refusal_leaves_no_gap_in_the_numbers(bench: Bench, executor: Executor) -> None:
    assert await created(bench, executor, "1") == "Q-2026-0001"
    await done(bench, executor, request_for(create_command(lines=(LineRequest("prro", 1),)), "2"))
    assert await created(bench, executor, "3", discount="20") == "Q-2026-0002"


async def test_a_creation_that_fails_after_taking_its_number_leaves_no_gap(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, unwritable("1"))
    assert (row["state"], row["category"]) == ("failed_terminal", "internal")
    assert await created(bench, executor, "2") == "Q-2026-0001"


async def test_what_no_quote_came_of_is_kept_for_thirty_days(bench: Bench, executor: Executor) -> None:
    await bench.ledger.reserve(request_for(create_command(discount="100"), "kept"))
    await bench.ledger.reserve(request_for(create_command(lines=(LineRequest("nonsense", 1),)), "refused"))
    while await executor.step():
        pass
    kept, refused = bench.rows("SELECT outcome, retain_until FROM operations ORDER BY id")
    assert (kept["outcome"], kept["retain_until"]) == ("applied", None)
    assert (refused["outcome"], refused["retain_until"]) == ("refused", bench.clock.now_ms() + 30 * 86_400_000)


async def test_an_unknown_quote_is_refused_and_answered(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, request_for(SubmitQuote(), "1", quote_id="Q-2026-0099", version=1))
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "unknown_quote")
    assert owed(bench, row["id"]) == [("slack.reply", "pending")]


async def test_a_command_on_a_quote_that_does_not_exist_is_kept_for_thirty_days(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, request_for(SubmitQuote(), "1", quote_id="Q-2026-0099"))
    assert row["retain_until"] == bench.clock.now_ms() + KEEP_REFUSED_MS


async def test_submit_and_approve_enqueue_their_effects_and_store_the_decision(bench: Bench, executor: Executor) -> None:
    await created(bench, executor)
    submitted = await done(bench, executor, request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    assert owed(bench, submitted["id"]) == [("slack.card", "pending"), ("slack.post", "pending"), ("slack.direct", "pending")]
    approved = await done(bench, executor, decision("3", "approve", "U0MANAGER"))
    assert owed(bench, approved["id"]) == [
        ("slack.card", "pending"),
        ("pdf.render", "pending"),
        ("crm.create", "pending"),
        ("slack.direct_card", "pending"),
    ]
    assert owed(bench, submitted["id"])[0] == ("slack.card", "superseded")
    approval = bench.row("SELECT * FROM approvals")
    assert (approval["state"], approval["decided_by"], approval["decided_role"]) == ("approved", "U0MANAGER", "sales_manager")


async def test_the_first_decision_wins_and_the_second_refreshes_the_card(bench: Bench, executor: Executor) -> None:
    await created(bench, executor)
    await done(bench, executor, request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    await done(bench, executor, decision("3", "reject", "U0MANAGER", "no"))
    late = await done(bench, executor, decision("4", "approve", "U0CFO"))
    assert (late["outcome"], json.loads(late["response"])["code"]) == ("refused", "already_decided")
    assert owed(bench, late["id"]) == [("slack.reply", "pending"), ("slack.card", "pending")]
    assert bench.row("SELECT state FROM quotes")["state"] == "rejected"


async def test_commands_of_one_quote_run_in_the_order_they_came(bench: Bench, executor: Executor) -> None:
    await created(bench, executor)
    reservations = [
        await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1)),
        await bench.ledger.reserve(decision("3", "reject", "U0MANAGER", "no")),
    ]
    assert await executor.step()
    assert await executor.step()
    states = bench.rows("SELECT outcome, state FROM operations WHERE id >= ? ORDER BY id", reservations[0].operation.id)
    assert [row["outcome"] for row in states] == ["applied", "applied"]


async def test_an_internal_error_is_tried_once_more_after_the_drawn_delay(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    buggy(monkeypatch)
    row = await done(bench, executor, request_for(create_command(), "1"))
    assert (row["state"], row["attempts"]) == ("failed_retryable", 1)
    assert row["next_attempt_at"] == bench.clock.now_ms() + 1_000  # the highest draw of the default line
    bench.clock.advance(999)
    assert not await executor.step()
    bench.clock.advance(1)
    assert await executor.step()


async def test_internal_error_seen_twice_fails_the_command_and_enqueues_a_reply(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    buggy(monkeypatch)
    row = await done(bench, executor, request_for(create_command(), "1"))
    bench.clock.advance(1_000)
    assert await executor.step()
    row = bench.row("SELECT * FROM operations")
    assert (row["state"], row["category"], row["attempts"]) == ("failed_terminal", "internal", 2)
    reply = bench.row("SELECT * FROM effects")
    assert (reply["class"], reply["target"], reply["state"]) == ("slack.reply", "U0REP", "pending")
    text = json.loads(reply["payload"])["text"]
    assert text == json.loads(row["response"])["text"]
    assert row["correlation_id"] in text
    trail = bench.rows("SELECT event_type FROM audit_events WHERE event_type NOT LIKE 'effect.%' ORDER BY id")
    assert [event["event_type"] for event in trail] == [
        "operation.reserved",
        "operation.claimed",
        "operation.retry_scheduled",
        "operation.claimed",
        "system.error",
    ]
    bench.clock.advance(86_400_000)
    assert not await executor.step()


async def test_a_command_of_a_newer_build_waits_for_that_build_and_burns_nothing(bench: Bench, executor: Executor) -> None:
    newer = create_command().canonical() | {"v": CreateQuote.schema + 1}
    reserved = await bench.ledger.reserve(replace(request_for(create_command(), "1"), payload=newer))
    for _ in range(5):  # more rounds than a poison or failing command would get
        assert await executor.step()
        row = bench.row("SELECT * FROM operations WHERE id = ?", reserved.operation.id)
        assert (row["state"], row["attempts"], row["claims"], row["category"]) == ("reserved", 0, 0, "needs_newer_build")
        assert not await executor.step()
        bench.clock.advance(SHELF_SECONDS * 1000)
    assert json.loads(row["payload"]) == newer
    assert bench.rows("SELECT 1 FROM effects") == bench.rows("SELECT 1 FROM quotes") == []
    assert await created(bench, executor, "2") == "Q-2026-0001"


async def test_the_stored_error_names_the_kind_and_no_content(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, unwritable("1"))
    assert row["last_error"] == "The command could not be executed: a value is invalid (invalid_value)."
    stored = [bench.rows("SELECT payload FROM effects"), bench.rows("SELECT before, after FROM audit_events")]
    assert "IntegrityError" not in json.dumps(stored)


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError, AssertionError, sqlite3.IntegrityError])
async def test_an_invalid_value_fails_the_command_at_first_sight_and_answers(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def decide(*_: Any) -> Any:
        raise kind("customer text")

    monkeypatch.setattr(Decider, "decide", decide)
    row = await done(bench, executor, request_for(create_command(), "1"))
    assert (row["state"], row["category"], row["attempts"]) == ("failed_terminal", "internal", 1)
    assert row["last_error"] == "The command could not be executed: a value is invalid (invalid_value)."
    text = json.loads(row["response"])["text"]
    assert "a value is invalid" in text
    assert kind.__name__ not in text
    assert "customer text" not in text
    assert owed(bench, row["id"]) == [("slack.reply", "pending")]


async def test_a_broken_command_does_not_hold_up_the_others(bench: Bench, executor: Executor) -> None:
    await done(bench, executor, unwritable("1"))
    assert await created(bench, executor, "2") == "Q-2026-0001"


async def test_a_command_taken_over_by_another_process_changes_nothing(bench: Bench, executor: Executor) -> None:
    """The other process finishes while this one still holds its claim."""
    await bench.ledger.reserve(request_for(create_command(), "1"))
    claimed = await bench.ledger.claim_operation()
    assert claimed is not None
    bench.rows("UPDATE operations SET fence = fence + 1 WHERE id = ?", claimed.id)
    await _execute(executor, claimed)
    assert bench.rows("SELECT 1 FROM quotes") == bench.rows("SELECT 1 FROM effects") == []
    assert bench.rows("SELECT 1 FROM quote_numbers") == []
    assert bench.row("SELECT count(*) AS n FROM audit_events WHERE event_type = 'operation.late_result'")["n"] == 1


async def test_the_same_request_again_executes_nothing(bench: Bench, executor: Executor) -> None:
    await created(bench, executor)
    before = bench.counts()
    again = await bench.ledger.reserve(request_for(create_command(), "1"))
    assert again.sighting is DedupeResult.DUPLICATE
    assert not await executor.step()
    await bench.ledger.noted()
    after = bench.counts()
    assert {**after, "audit_events": before["audit_events"]} == before
    assert after["audit_events"] == before["audit_events"] + 1  # the duplicate itself


async def test_no_audit_event_names_the_customer_or_quotes_a_reason(bench: Bench, executor: Executor) -> None:
    await created(bench, executor)
    await done(bench, executor, request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    await done(bench, executor, decision("3", "reject", "U0MANAGER", "because of Borealis"))
    trail = json.dumps(bench.rows("SELECT * FROM audit_events"), default=repr)
    assert "Acme" not in trail
    assert "Borealis" not in trail


async def _execute(executor: Executor, operation: Operation) -> None:
    await executor._execute(operation)


async def test_a_command_on_a_quote_whose_row_cannot_be_read_is_given_up_and_stops_nobody(bench: Bench, executor: Executor) -> None:
    quote_id = await created(bench, executor)
    guard = bench.row("SELECT sql FROM sqlite_schema WHERE name = 'quote_versions_fixed'")["sql"]
    bench.rows("DROP TRIGGER quote_versions_fixed")

    def damage(tx: Any) -> None:  # as a faulty build does: the commit binds the row
        tx._connection.execute("UPDATE quote_versions SET pricing = json_remove(pricing, '$.lines')")

    await bench.ledger.database.write("damage", damage)
    bench.rows(guard)
    row = await done(bench, executor, request_for(SubmitQuote(), "2", quote_id=quote_id, version=1))
    row = bench.row("SELECT * FROM operations WHERE id = ?", row["id"])
    assert (row["state"], row["category"]) == ("failed_terminal", "internal")
    assert owed(bench, row["id"]) == [("slack.reply", "pending")]
    assert await created(bench, executor, "3", discount="20") == "Q-2026-0002"


async def test_the_proof_of_a_reservation_reads_few_events_of_a_long_chain(bench: Bench, executor: Executor) -> None:
    home = ShowHome("U0REP")
    for number in range(NEWEST_EVENTS):  # several events each
        await done(bench, executor, request_for(home, str(number), quote_id=home.aggregate_id))
    operation = (await bench.ledger.reserve(request_for(home, "last", quote_id=home.aggregate_id))).operation
    read: list[int] = []

    class Counting:
        """A transaction that counts the rows it returns."""

        def __init__(self, tx: Tx) -> None:
            self.tx = tx

        def all(self, name: str, **values: Any) -> Any:
            rows = self.tx.all(name, **values)
            read.append(len(rows))
            return rows

    keyring = bench.ledger.audit.keyring
    await bench.ledger.database.read(lambda tx: require_as_audited(cast("Tx", Counting(tx)), operation, keyring))
    assert read == [NEWEST_EVENTS]
    forged = replace(operation, operation_key="0" * 64)
    with pytest.raises(BrokenChainError, match="it was put in from outside"):
        await bench.ledger.database.read(lambda tx: require_as_audited(tx, forged, keyring))
    first = await bench.ledger.database.read(lambda tx: Operation.of(cast("Any", tx.one("operation_by_id", id=1))))
    await bench.ledger.database.read(lambda tx: require_as_audited(tx, first, keyring))
