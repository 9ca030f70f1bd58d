"""Answers to one person: over the address of their gesture, and in the channel when that address is used up or too old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError, Failure
from quotebot import effects
from quotebot.dispatch import Dispatcher
from quotebot.documents import Seller
from quotebot.execution import Executor
from quotebot.performer import Adapters, QuotePerformer
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

REPLY = "SELECT state, category FROM effects WHERE class = 'slack.reply'"


class Gone:
    """Slack, whose response_url answers `code`, and which takes what is said in a channel to one person."""

    def __init__(self, failure: Failure, code: str) -> None:
        self._error = AdapterError(failure, code, f"Slack refused response_url ({code}).")
        self.said: list[dict[str, Any]] = []

    async def respond(self, response_url: str, **message: Any) -> None:
        assert response_url.startswith("https://hooks.slack.com/")
        assert message["text"]
        raise self._error

    async def ephemeral(self, **message: Any) -> None:
        self.said.append(message)


async def answered(bench: Bench, slack: Any) -> dict[str, Any]:
    """Type the same creation twice: the second is asked back in private. Return what became of that answer."""
    unused: Any = None
    adapters = Adapters(slack=slack, pdf=unused, artefacts=unused, salesforce=None)
    performer = QuotePerformer(bench.ledger, adapters, RULES, Seller("Seller", ()), settle_delay_seconds=1)
    dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, MATRIX, settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in "12":
        await bench.ledger.reserve(request_for(create_command(), number))
        await executor.step()
    bench.rows(f"UPDATE effects SET next_attempt_at = next_attempt_at + 1000000 WHERE class = '{effects.POST}'")  # noqa: S608 -- own
    await dispatcher.step()
    await dispatcher.drain(5.0)
    return bench.row(REPLY)


@pytest.mark.parametrize("code", ["used_url", "expired_url", "no_hook"])
async def test_an_answer_whose_address_is_used_up_or_too_old_is_said_in_the_channel_to_the_same_person_alone(
    bench: Bench, code: str
) -> None:
    slack = Gone(Failure.NOT_FOUND, code)
    assert (await answered(bench, slack))["state"] == "delivered"
    (said,) = slack.said
    assert (said["channel"], said["user"]) == ("C0SALES", "U0REP")
    assert "You created Q-2026-0001" in said["text"]
    assert said["blocks"]


async def test_an_answer_that_failed_otherwise_is_not_said_twice(bench: Bench) -> None:
    slack = Gone(Failure.TRANSIENT, "http_503")
    assert await answered(bench, slack) == {"state": "pending", "category": "transient"}
    assert slack.said == []
