"""Tests that an unfinished command is on its quote's card, with its reference and its buttons, until it has ended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Delivered
from quotebot import effects
from quotebot.commands.payloads import ActOnCommand, DecideApproval, Deed, FinalizeQuote, MarkSent, NoteStaleDraft
from quotebot.dispatch.slack_card import QuoteCards
from quotebot.execution.executor import PENDING_MS, Decider, Executor
from quotebot.execution.operator_actions import command_status
from quotebot.jobs.maintenance import show_pending_commands
from quotebot.views import messages
from quotebot.views.pending_buttons import CANCEL_COMMAND, CHECK_COMMAND, RETRY_COMMAND
from tests.quotebot.access_parts import viewer
from tests.quotebot.dispatch.test_follow_ups import approved, drawn, performer_of
from tests.quotebot.parts import MATRIX, RULES, Bench, create_command, request_for
from tests.quotebot.views.block_kit import message_problems

if TYPE_CHECKING:
    from ledger.records import Operation

__all__ = ["approved"]  # a fixture


class Slack:
    """A Slack that can identify people, or not."""

    def __init__(self) -> None:
        self.answers = False

    async def refresh_actor(self, operation: Operation) -> bool:
        del operation
        return self.answers


async def shown(bench: Bench, quote_id: str) -> str:
    card = await QuoteCards(performer_of(bench).services).show(quote_id, viewer())
    assert card is not None
    assert message_problems(card.text, card.blocks) == []
    return json.dumps(card.blocks, ensure_ascii=False)


def cards_due(bench: Bench) -> int:
    return len(bench.rows("SELECT 1 FROM effects WHERE class = ? AND state = 'pending'", effects.CARD))


async def test_a_click_that_waits_for_slack_is_on_the_card_until_it_is_decided(bench: Bench, approved: str) -> None:
    slack = Slack()
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX, refresh_actor=slack.refresh_actor)
    await drawn(bench, Delivered(None, {}))
    reserved = await bench.ledger.reserve(request_for(FinalizeQuote(), "9", quote_id=approved, version=1))
    assert "Retrying" not in await shown(bench, approved)
    for _ in range(2):
        bench.clock.advance(60_000)
        await executor.step()
        assert "⏳ finalize: Saved. Retrying " in await shown(bench, approved)
        assert cards_due(bench) == 1
        await drawn(bench, Delivered(None, {}))
    slack.answers = True
    bench.clock.advance(600_000)
    await executor.step()
    assert "Retrying" not in await shown(bench, approved)
    assert cards_due(bench) == 1
    owed = "SELECT 1 FROM audit_events WHERE event_type = 'effect.owed' AND operation_key = ?"
    audited = bench.rows(owed, reserved.operation.operation_key)
    assert len(audited) == 2


async def test_refused_or_failed_click_is_removed_from_the_card_too(
    bench: Bench, approved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = Slack()
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX, refresh_actor=slack.refresh_actor)
    await drawn(bench, Delivered(None, {}))
    late = DecideApproval("A-nothing", "approve")
    await bench.ledger.reserve(request_for(late, "9", quote_id=approved, version=1, actor="U0VP"))
    await executor.step()
    await drawn(bench, Delivered(None, {}))
    slack.answers = True
    bench.clock.advance(600_000)
    await executor.step()
    assert bench.row("SELECT outcome FROM operations WHERE source_request_id = 'T0HOME:9'")["outcome"] == "refused"
    assert cards_due(bench) == 1
    await drawn(bench, Delivered(None, {}))

    def decide(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Decider, "decide", decide)
    await bench.ledger.reserve(request_for(MarkSent("x"), "10", quote_id=approved, version=1))
    await executor.step()
    assert "⏳ mark sent: Saved. Retrying" in await shown(bench, approved)
    await drawn(bench, Delivered(None, {}))
    bench.clock.advance(600_000)
    await executor.step()
    assert bench.row("SELECT state FROM operations WHERE source_request_id = 'T0HOME:10'")["state"] == "failed_terminal"
    assert "Retrying" not in await shown(bench, approved)
    assert cards_due(bench) == 1


async def test_command_unfinished_for_two_seconds_is_put_on_the_card_once(bench: Bench, approved: str) -> None:
    await drawn(bench, Delivered(None, {}))
    await bench.ledger.reserve(request_for(FinalizeQuote(), "9", quote_id=approved, version=1))
    bench.clock.advance(PENDING_MS - 1)
    assert (await show_pending_commands(bench.ledger), cards_due(bench)) == (0, 0)
    bench.clock.advance(1)
    assert (await show_pending_commands(bench.ledger), cards_due(bench)) == (1, 1)
    text = await shown(bench, approved)
    assert f"⏳ finalize: {messages.OPERATION_PENDING}" in text
    assert (RETRY_COMMAND in text, CHECK_COMMAND in text, CANCEL_COMMAND in text) == (False, True, True)
    bench.clock.advance(60_000)
    assert (await show_pending_commands(bench.ledger), cards_due(bench)) == (0, 1)
    await drawn(bench, Delivered(None, {}))
    await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    assert messages.OPERATION_PENDING not in await shown(bench, approved)
    assert cards_due(bench) == 1


@pytest.mark.parametrize("source", ["slack_slash", "slack_interactive", "cli"])
async def test_slow_creation_in_slack_is_answered_once(bench: Bench, source: str) -> None:
    await bench.ledger.reserve(request_for(create_command(), "9", source=source))
    bench.clock.advance(PENDING_MS)
    told = source != "cli"
    assert [await show_pending_commands(bench.ledger) for _ in range(2)] == [told, 0]
    replies = bench.rows("SELECT target, payload FROM effects WHERE class = ?", effects.REPLY)
    assert [(each["target"], json.loads(each["payload"])["text"]) for each in replies] == [("U0REP", messages.CREATING)] * told


async def test_command_that_a_killed_process_began_is_put_on_the_card(bench: Bench, approved: str) -> None:
    await drawn(bench, Delivered(None, {}))
    await bench.ledger.reserve(request_for(FinalizeQuote(), "9", quote_id=approved, version=1))
    await bench.ledger.claim_operation()
    bench.clock.advance(PENDING_MS)
    assert (await show_pending_commands(await bench.another_bot()), cards_due(bench)) == (1, 1)
    text = await shown(bench, approved)
    assert (CHECK_COMMAND in text, CANCEL_COMMAND in text) == (True, False)


async def test_unfinished_command_of_the_scheduler_is_on_no_card(bench: Bench, approved: str) -> None:
    await drawn(bench, Delivered(None, {}))
    note = request_for(NoteStaleDraft(1), "9", quote_id=approved, version=None, source="scheduler", actor_type="system")
    await bench.ledger.reserve(replace(note, actor="quotebot"))
    bench.clock.advance(60_000)
    assert (await show_pending_commands(bench.ledger), cards_due(bench)) == (0, 0)
    assert messages.OPERATION_PENDING not in await shown(bench, approved)


async def test_refusal_of_a_slow_command_takes_it_off_the_card(bench: Bench, approved: str) -> None:
    await drawn(bench, Delivered(None, {}))
    late = DecideApproval("A-nothing", "approve")
    await bench.ledger.reserve(request_for(late, "9", quote_id=approved, version=1, actor="U0VP"))
    bench.clock.advance(PENDING_MS)
    assert await show_pending_commands(bench.ledger) == 1
    await drawn(bench, Delivered(None, {}))
    await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    assert bench.row("SELECT outcome FROM operations WHERE source_request_id = 'T0HOME:9'")["outcome"] == "refused"
    assert cards_due(bench) == 1


# ------------------------------------------------------------------------------------------ Retry, Check and Cancel of it


async def waiting_command(bench: Bench, quote_id: str) -> int:
    """Make a command of U0REP that waits a long time for its next attempt; return its operation's id."""
    reserved = await bench.ledger.reserve(request_for(FinalizeQuote(), "9", quote_id=quote_id, version=1))
    unanswered = Executor(bench.ledger, RULES, lambda _, high: high, MATRIX, refresh_actor=Slack().refresh_actor)
    await unanswered.step()
    return reserved.operation.id


async def act(bench: Bench, quote_id: str, deed: Deed, operation_id: int, request: str, **more: Any) -> tuple[str, str]:
    """Press a button under a command; return the code and the text of the answer."""
    payload = ActOnCommand(deed, quote_id, operation_id, more.pop("cycle", 1))
    executor = Executor(bench.ledger, replace(RULES, operators=("U0OPERATOR",)), lambda low, _: low, MATRIX)
    asked = request_for(payload, request, quote_id=payload.aggregate_id, version=1, **more)
    reserved = await bench.ledger.reserve(asked)
    await executor.step()
    response = json.loads(bench.row("SELECT response FROM operations WHERE id = ?", reserved.operation.id)["response"])
    return response["code"], response["text"]


async def test_retry_makes_a_waiting_command_due_and_a_second_press_changes_nothing(bench: Bench, approved: str) -> None:
    operation_id = await waiting_command(bench, approved)
    text = await shown(bench, approved)
    assert all(action in text for action in (RETRY_COMMAND, CHECK_COMMAND, CANCEL_COMMAND))
    code, said = await act(bench, approved, "retry", operation_id, "10", actor="U0MANAGER")
    assert (code, "It is tried again now" in said) == ("retried", True)
    due = bench.row("SELECT next_attempt_at AS at FROM operations WHERE id = ?", operation_id)["at"]
    assert due == bench.clock.now_ms()
    (event,) = bench.rows("SELECT * FROM audit_events WHERE event_type = 'operation.hastened'")
    key = bench.row("SELECT operation_key AS key FROM operations WHERE id = ?", operation_id)["key"]
    assert (event["actor"], event["aggregate_id"], event["operation_key"]) == ("U0MANAGER", approved, key)
    assert (event["retry_count"], event["recovery_action"]) == (1, "retry")
    code, said = await act(bench, approved, "retry", operation_id, "11")  # the executor has tried it by then
    assert (code, "Your click changed nothing" in said) == ("too_late", True)


async def test_cancel_ends_a_waiting_command_and_is_left_to_its_people(bench: Bench, approved: str) -> None:
    operation_id = await waiting_command(bench, approved)
    assert (await act(bench, approved, "cancel", operation_id, "10", actor="U0MANAGER"))[0] == "not_yours"
    assert (await act(bench, approved, "cancel", operation_id, "11", cycle=2))[0] == "too_late"
    assert (await act(bench, approved, "cancel", operation_id, "12", actor="U0OPERATOR"))[0] == "cancelled"
    row = bench.row("SELECT state, last_error FROM operations WHERE id = ?", operation_id)
    assert (row["state"], "<@U0OPERATOR> canceled it" in row["last_error"]) == ("discarded", True)
    answers = bench.rows("SELECT payload FROM effects WHERE class = 'slack.reply' AND target = 'U0REP'")
    assert "canceled it on the quote's card" in answers[-1]["payload"]
    assert bench.row("SELECT state FROM quotes")["state"] == "approved"
    assert "Retrying" not in await shown(bench, approved)
    assert (await act(bench, approved, "retry", operation_id, "13"))[0] == "too_late"


async def test_press_about_a_command_of_another_quote_or_workspace_is_refused(bench: Bench, approved: str) -> None:
    operation_id = await waiting_command(bench, approved)
    assert (await act(bench, "Q-2026-0099", "retry", operation_id, "10"))[0] == "unknown_command"
    assert (await act(bench, approved, "retry", 99, "11"))[0] == "unknown_command"
    assert (await act(bench, approved, "cancel", operation_id, "12", team_id="T0OTHER"))[0] == "unknown_command"


async def test_status_of_a_command_says_what_it_waits_for(bench: Bench, approved: str) -> None:
    operation_id = await waiting_command(bench, approved)
    now = bench.clock.now_ms()

    async def said(quote_id: str, team: str = "T0HOME") -> str:
        return await bench.ledger.database.read(
            lambda tx: command_status(tx, quote_id, operation_id, viewer(team=team), now, operator=False)
        )

    assert "The command finalize" in await said(approved)
    assert "It is due at" in await said(approved)
    assert "waits like that" in await said(approved, "T0OTHER")
    assert "waits like that" in await said("Q-2026-0099")
