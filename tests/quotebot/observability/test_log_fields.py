"""Tests that every log line about a command or an effect has the fields to find it, and no customer data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from adapters.failures import AdapterError, Failure
from ledger.keys import trace_id
from ledger.records import DeadNotice, Effect
from quotebot.commands.payloads import DecideApproval
from quotebot.execution.executor import Executor
from quotebot.observability.alerts import log_dead_letter
from tests.quotebot.deeds import DONE, Round, transient
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Delivered
    from tests.quotebot.parts import Bench

Line = dict[str, Any]

REQUEST_ID = hashlib.sha256(b"T0HOME:r1").hexdigest()[:12]
OF_A_COMMAND = {
    "source": "slack_slash",
    "source_request_id": REQUEST_ID,  # hashed: the raw one opens a person's dialog
    "operation_label": "quote:U0REP:new:create:v0",
    "action_kind": "quote.create",
    "slack_user": "U0REP",
    "team_id": "T0HOME",
    "actor_type": "user",
    "aggregate_id": "Q-2026-0001",
    "quote_id": "Q-2026-0001",
    "quote_version": 1,
    "attempt": 1,
    "max_attempts": 2,
    "latency_ms": 0,
}
OF_EVERY_COMMAND = ("correlation_id", "operation_key")
OF_ITS_COMMAND: dict[str, Any] = {  # on every line about one of its effects
    "source": "slack_interactive",
    "operation_label": "quote:U0REP:Q-t:submit:v0",
    "action_kind": "quote.submit",
    "slack_user": "U0REP",
    "team_id": "T0HOME",
    "actor_type": "user",
    "quote_version": 1,
}
OF_AN_EFFECT: dict[str, Any] = {
    "effect_id": 1,
    "effect_class": "crm.create",
    "aggregate_id": "Q-t",
    "quote_id": "Q-t",
    "latency_ms": 0,
    "max_attempts": 7,
    **OF_ITS_COMMAND,
}
OF_A_RETRY = {**OF_AN_EFFECT, "attempt": 1, "final_attempt": False, "retryable": True, "dead": False}
OF_A_DELIVERY = {**OF_AN_EFFECT, "attempt": 3, "attempts": 3, "final_attempt": False, "retryable": False, "dead": False}
OF_A_DEATH = {**OF_AN_EFFECT, "attempt": 2, "http_status": 400, "retryable": False, "dead": True}


async def lines_of_a_command(bench: Bench) -> list[Line]:
    with capture_logs(processors=[merge_contextvars]) as lines:
        await bench.ledger.reserve(request_for(create_command(), "r1"))
        await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    return [dict(line) for line in lines]


async def lines_of_an_effect(bench: Bench, *ends: Delivered | AdapterError) -> list[Line]:
    deeds = Round(bench, highest=False)
    deeds.performer.sends.extend([transient(), *ends])
    with capture_logs(processors=[merge_contextvars]) as lines:
        await deeds.owe("crm.create")
        for _ in range(1 + len(ends)):
            await deeds.step()
    return [dict(line) for line in lines if line["event"].startswith("effect.")]


def missing(line: Line, wanted: dict[str, Any]) -> set[str]:
    return {name for name, value in wanted.items() if name not in line or line[name] != value}


async def test_a_command_is_found_by_its_reference_and_key(bench: Bench) -> None:
    (line,) = await lines_of_a_command(bench)
    operation = bench.row("SELECT * FROM operations")
    assert {name: line[name] for name in OF_EVERY_COMMAND} == {name: operation[name] for name in OF_EVERY_COMMAND}
    assert line["event"] == "operation.completed"


async def test_a_line_about_a_command_has_every_field(bench: Bench) -> None:
    (line,) = await lines_of_a_command(bench)
    assert missing(line, OF_A_COMMAND) == set()


async def test_a_line_about_an_effect_has_every_field(bench: Bench) -> None:
    retry, death = await lines_of_an_effect(bench, AdapterError(Failure.VALIDATION, "INVALID", "No.", http_status=400))
    assert missing(retry, OF_A_RETRY) == set()
    assert missing(death, OF_A_DEATH) == set()
    assert {line["correlation_id"] for line in (retry, death)} == {bench.row("SELECT * FROM effects")["correlation_id"]}


async def test_line_about_a_delivery_counts_its_attempts(bench: Bench) -> None:
    *_, delivered = await lines_of_an_effect(bench, transient(), DONE)
    assert delivered["event"] == "effect.delivered"
    assert missing(delivered, OF_A_DELIVERY) == set()


async def test_lines_of_a_command_and_its_effects_share_key_and_trace(bench: Bench) -> None:
    lines = await lines_of_an_effect(bench, DONE)
    operation = bench.row("SELECT operation_key, correlation_id FROM operations")
    shared = {(line["operation_key"], line["correlation_id"], line["trace_id"]) for line in lines}
    assert shared == {(operation["operation_key"], operation["correlation_id"], trace_id(operation["correlation_id"]))}


async def test_line_of_a_dead_letter_has_the_key_and_the_trace(bench: Bench) -> None:
    await lines_of_an_effect(bench, AdapterError(Failure.VALIDATION, "INVALID", "No."))

    def notice(tx: Tx) -> DeadNotice:
        return DeadNotice.of_effect(tx, Effect.of(tx.required("effect_by_id", id=1)))

    with capture_logs() as lines:
        log_dead_letter(await bench.ledger.database.read(notice))
    operation = bench.row("SELECT operation_key, correlation_id FROM operations")
    wanted = {**operation, "trace_id": trace_id(operation["correlation_id"]), "dead": True}
    assert missing(dict(lines[0]), wanted) == set()


async def test_line_about_a_decision_names_the_approval(bench: Bench) -> None:
    decision = DecideApproval("A-2026-0001-v1-1", "approve")
    with capture_logs(processors=[merge_contextvars]) as lines:
        await bench.ledger.reserve(request_for(decision, "r2", quote_id="Q-2026-0001", version=1))
        await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    assert [line["approval_id"] for line in lines if line["event"] == "operation.completed"] == ["A-2026-0001-v1-1"]


async def test_no_line_holds_a_customer_or_a_text(bench: Bench) -> None:
    lines = [*await lines_of_a_command(bench)]
    assert lines
    assert not any("Acme" in str(line) for line in lines)
