"""Tests of ephemeral replies: over the gesture's response_url, or in the channel; otherwise as a direct message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError, Failure
from adapters.slack.api import PostedMessage
from ledger.records import Effect
from quotebot import effects
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.execution.executor import Executor
from tests.quotebot.parts import MATRIX, RULES, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

REPLY = "SELECT state, category FROM effects WHERE class = 'slack.reply'"


class Slack:
    """A Slack that records messages to one person. `dead` answers a response_url, `absent` a channel, `gone` the person."""

    def __init__(
        self, dead: AdapterError | None = None, absent: AdapterError | None = None, gone: AdapterError | None = None
    ) -> None:
        self._dead, self._absent, self._gone = dead, absent, gone
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.tried: list[str] = []

    async def respond(self, response_url: str, **message: Any) -> None:
        assert response_url.startswith("https://hooks.slack.com/")
        self._say("response_url", message, self._dead)

    async def ephemeral(self, **message: Any) -> None:
        self._say("channel", message, self._absent)

    async def post(self, **message: Any) -> PostedMessage:
        self._say("direct", message, self._gone)
        return PostedMessage("D0REP", "1.000001")

    def _say(self, where: str, message: dict[str, Any], error: AdapterError | None) -> None:
        self.tried.append(where)
        if error is not None:
            raise error
        self.said.append((where, message))


def refused(code: str, failure: Failure = Failure.NOT_FOUND) -> AdapterError:
    return AdapterError(failure, code, f"Slack refused it ({code}).")


async def answered(bench: Bench, slack: Any, *, later_ms: int = 0, transport: dict[str, str] | None = None) -> dict[str, Any]:
    """Type the same creation twice, so that the second is asked back in private. Return the final row of that reply."""
    dispatcher = Dispatcher(bench.ledger, handlers_of(bench, slack=slack), lambda low, _: low, MATRIX, settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    arrived: dict[str, Any] = {} if transport is None else {"transport": transport}
    for number in "12":
        await bench.ledger.reserve(request_for(create_command(), number, **arrived))
        await executor.step()
    bench.rows(f"UPDATE effects SET next_attempt_at = next_attempt_at + 999999999999 WHERE class = '{effects.POST}'")  # noqa: S608 -- own
    bench.clock.advance(later_ms)
    await dispatcher.step()
    await dispatcher.drain(5.0)
    return bench.row(REPLY)


def said_directly(slack: Slack) -> dict[str, Any]:
    """Return the only message that was sent directly to the requester."""
    ((where, said),) = slack.said
    assert (where, said["channel"], said["thread_ts"]) == ("direct", "U0REP", None)
    assert said["text"].startswith("In <#C0SALES>: You just created the same quote, Q-2026-0001")
    assert said["text"] == said["blocks"][0]["text"]["text"]
    return said


async def test_an_answer_goes_over_the_address_of_the_request(bench: Bench) -> None:
    slack = Slack()
    assert (await answered(bench, slack))["state"] == "delivered"
    ((where, said),) = slack.said
    assert where == "response_url"
    assert said["text"].startswith("You just created the same quote, Q-2026-0001")


@pytest.mark.parametrize("code", ["used_url", "expired_url", "no_hook"])
async def test_reply_with_a_used_or_expired_response_url_is_sent_as_a_direct_message(bench: Bench, code: str) -> None:
    slack = Slack(dead=refused(code))
    assert (await answered(bench, slack))["state"] == "delivered"
    assert said_directly(slack)["blocks"][1]["type"] == "actions"


async def test_reply_without_a_response_url_is_shown_in_the_channel_of_the_request(bench: Bench) -> None:
    slack = Slack()
    assert (await answered(bench, slack, transport={}))["state"] == "delivered"
    ((where, said),) = slack.said
    assert (where, said["channel"], said["user"]) == ("channel", "C0SALES", "U0REP")


@pytest.mark.parametrize("code", ["user_not_in_channel", "not_in_channel", "is_archived"])
async def test_reply_that_cannot_be_shown_in_the_channel_is_sent_directly(bench: Bench, code: str) -> None:
    slack = Slack(absent=refused(code))
    assert (await answered(bench, slack, transport={}))["state"] == "delivered"
    said_directly(slack)


@pytest.mark.parametrize("transport", [None, {}], ids=["with an address", "without"])
async def test_reply_after_the_response_url_expired_is_sent_directly_at_once(
    bench: Bench, transport: dict[str, str] | None
) -> None:
    slack = Slack()
    assert (await answered(bench, slack, later_ms=effects.RESPONSE_URL_MS, transport=transport))["state"] == "delivered"
    said_directly(slack)


@pytest.mark.parametrize(("later_ms", "state"), [(effects.ANSWER_MS - 1, "delivered"), (effects.ANSWER_MS, "superseded")])
async def test_an_answer_is_given_for_a_week(bench: Bench, later_ms: int, state: str) -> None:
    slack = Slack()
    assert (await answered(bench, slack, later_ms=later_ms))["state"] == state
    assert len(slack.said) == (state == "delivered")


async def test_reply_without_a_channel_to_a_missing_person_is_tried_once(bench: Bench) -> None:
    await answered(bench, Slack(), transport={})
    answer_id = bench.row(f"SELECT id FROM effects WHERE class = '{effects.REPLY}'")["id"]  # noqa: S608 -- own
    row = await bench.ledger.database.read(lambda tx: tx.one("effect_by_id", id=answer_id))
    assert row is not None
    answer = Effect.of(row)
    slack: Any = Slack(gone=refused("user_not_found"))

    with pytest.raises(AdapterError, match="user_not_found"):
        await handlers_of(bench, slack=slack).perform(replace(answer, payload={**answer.payload, "channel": None}))

    assert slack.tried == ["direct"]


async def test_an_answer_that_failed_otherwise_is_not_said_twice(bench: Bench) -> None:
    slack = Slack(dead=refused("http_503", Failure.TRANSIENT))
    assert await answered(bench, slack) == {"state": "pending", "category": "transient"}
    assert slack.said == []
