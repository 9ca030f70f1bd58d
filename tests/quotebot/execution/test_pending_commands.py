"""Tests that a command that waits for a retry is on its quote's card, with its reference, until it has ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ledger.records import Delivered
from quotebot import effects
from quotebot.commands.payloads import DecideApproval, FinalizeQuote, MarkSent
from quotebot.dispatch.slack_card import QuoteCards
from quotebot.execution.executor import Decider, Executor
from tests.quotebot.access_parts import viewer
from tests.quotebot.dispatch.test_follow_ups import approved, drawn, performer_of
from tests.quotebot.parts import MATRIX, RULES, Bench, request_for
from tests.quotebot.views.block_kit import message_problems

if TYPE_CHECKING:
    import pytest

    from ledger.records import Operation

__all__ = ["approved"]  # a fixture


class Slack:
    """A Slack that can identify people, or not."""

    def __init__(self) -> None:
        self.answers = False

    async def know(self, operation: Operation) -> bool:
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
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX, know=slack.know)
    await drawn(bench, Delivered(None, {}))
    reserved = await bench.ledger.reserve(request_for(FinalizeQuote(), "9", quote_id=approved, version=1))
    assert "pending retry" not in await shown(bench, approved)
    for _ in range(2):
        bench.clock.advance(60_000)
        await executor.step()
        assert f"⏳ finalize: Operation pending retry, ref {reserved.operation.correlation_id}, next try" in await shown(
            bench, approved
        )
        assert cards_due(bench) == 1
        await drawn(bench, Delivered(None, {}))
    slack.answers = True
    bench.clock.advance(600_000)
    await executor.step()
    assert "pending retry" not in await shown(bench, approved)
    assert cards_due(bench) == 1
    owed = "SELECT 1 FROM audit_events WHERE event_type = 'effect.owed' AND operation_key = ?"
    audited = bench.rows(owed, reserved.operation.operation_key)
    assert len(audited) == 2


async def test_refused_or_failed_click_is_removed_from_the_card_too(
    bench: Bench, approved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = Slack()
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX, know=slack.know)
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
    assert "⏳ mark sent: Operation pending retry" in await shown(bench, approved)
    await drawn(bench, Delivered(None, {}))
    bench.clock.advance(600_000)
    await executor.step()
    assert bench.row("SELECT state FROM operations WHERE source_request_id = 'T0HOME:10'")["state"] == "failed_terminal"
    assert "pending retry" not in await shown(bench, approved)
    assert cards_due(bench) == 1
