"""Tests of guests, bots, deactivated people and people of other workspaces: recognised by Slack's data, refused and audited."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from quotebot.commands.payloads import DecideApproval, ReviseQuote, SubmitQuote
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.execution.executor import Executor
from quotebot.execution.membership import FRESH_FOR_APPROVAL_MS, FRESH_MS, TRUSTED_MS, Directory
from quotebot.sandbox.slack.directory import TEAM_ID, Person
from tests.adapters.slack_parts import api_for, requests
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.slack.api import SlackApi
    from quotebot.commands.registry import Payload
    from quotebot.sandbox.world import World
    from tests.quotebot.parts import Bench
    from tests.rig import Deal

QUOTE, APPROVAL = "Q-2026-0001", "A-2026-0001-v1-1"
REFUSALS = "SELECT event_type, after FROM audit_events WHERE event_type IN ('access.refused', 'approval.refused') ORDER BY id"
OUTSIDERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a guest": ({"is_guest": True}, "not_a_member"),
    "a guest of one channel": ({"is_single_channel_guest": True}, "not_a_member"),
    "a bot": ({"is_bot": True}, "not_a_member"),
    "somebody who left": ({"is_deactivated": True}, "not_a_member"),
    "somebody of another workspace": ({"team_id": "T0OTHER"}, "foreign_team"),
}


@pytest.fixture
async def slack(world: World) -> AsyncIterator[SlackApi]:
    api = api_for(world)
    yield api
    await api.close()


@pytest.fixture
def executor(bench: Bench, slack: SlackApi) -> Executor:
    refresh_actor = Directory(bench.ledger, slack).refresh_actor
    return Executor(bench.ledger, RULES, lambda _, high: high, MATRIX, refresh_actor=refresh_actor)


def becomes(world: World, user: str, **what: Any) -> None:
    people = world.slack.directory.people
    people[user] = replace(people.get(user, Person(user, user, user, user)), **what)


async def done(bench: Bench, executor: Executor, payload: Payload, number: str, actor: str, **changes: Any) -> dict[str, Any]:
    """Execute a person's command to its end, however often it is retried; return its response."""
    about: dict[str, Any] = {} if payload.kind == "quote.create" else {"quote_id": QUOTE, "version": 1}
    values = {**about, "actor": actor, "team_id": TEAM_ID, "received_at": bench.clock.now_ms(), **changes}
    operation = (await bench.ledger.reserve(request_for(payload, number, **values))).operation
    while True:
        while await executor.step():
            pass
        row = bench.row("SELECT state, response, next_attempt_at FROM operations WHERE id = ?", operation.id)
        if row["state"] != "failed_retryable":
            break
        bench.clock.advance(row["next_attempt_at"] - bench.clock.now_ms())
    found: dict[str, Any] = json.loads(row["response"])
    return found


def audited(bench: Bench) -> list[tuple[str, str, str]]:
    rows = bench.rows(REFUSALS)
    kept = [(row["event_type"], json.loads(row["after"])) for row in rows]
    return [(event, after["code"], after["actor"]) for event, after in kept]


@pytest.mark.parametrize("who", OUTSIDERS)
async def test_outsider_cannot_quote_submit_or_approve_even_as_a_configured_approver(
    bench: Bench, executor: Executor, world: World, who: str
) -> None:
    changes, code = OUTSIDERS[who]
    becomes(world, "U0OUTSIDER", **changes)
    becomes(world, "U0MANAGER", **changes)
    assert (await done(bench, executor, create_command(), "0", "U0OUTSIDER"))["code"] == code
    assert bench.counts()["quotes"] == 0
    await done(bench, executor, create_command(), "1", "U0REP")
    assert (await done(bench, executor, SubmitQuote(), "2", "U0OUTSIDER"))["code"] == code
    await done(bench, executor, SubmitQuote(), "3", "U0REP")
    assert (await done(bench, executor, DecideApproval(APPROVAL, "approve"), "4", "U0MANAGER"))["code"] == code
    assert bench.row("SELECT state FROM quotes")["state"] == "pending_approval"
    assert audited(bench) == [
        ("access.refused", code, "U0OUTSIDER"),
        ("access.refused", code, "U0OUTSIDER"),
        ("access.refused", code, "U0MANAGER"),
    ]


async def test_somebody_slack_has_never_heard_of_is_refused(bench: Bench, executor: Executor) -> None:
    assert (await done(bench, executor, create_command(), "1", "U0NOBODY"))["code"] == "foreign_team"


async def test_who_became_a_guest_since_the_last_approval_no_longer_approves(
    bench: Bench, executor: Executor, world: World
) -> None:
    await done(bench, executor, create_command(), "1", "U0MANAGER")
    await done(bench, executor, create_command("14"), "2", "U0REP")
    await done(bench, executor, SubmitQuote(), "3", "U0REP", quote_id="Q-2026-0002")
    becomes(world, "U0MANAGER", is_guest=True)
    bench.clock.advance(FRESH_FOR_APPROVAL_MS)
    decide = DecideApproval("A-2026-0002-v1-1", "approve")
    assert (await done(bench, executor, decide, "4", "U0MANAGER", quote_id="Q-2026-0002"))["code"] == "not_a_member"


@pytest.mark.parametrize(("changes", "code"), [({}, "approved"), ({"is_deactivated": True}, "submitted")])
async def test_an_approval_is_not_reused_after_its_decider_left(
    bench: Bench,
    executor: Executor,
    world: World,
    changes: dict[str, Any],
    code: str,
) -> None:
    await done(bench, executor, create_command(), "1", "U0REP")
    await done(bench, executor, SubmitQuote(), "2", "U0REP")
    await done(bench, executor, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER")
    bench.clock.advance(2 * TRUSTED_MS)
    await done(bench, executor, ReviseQuote(Changes((LineChange("set", "pro", 149),))), "4", "U0REP")
    becomes(world, "U0MANAGER", **changes)
    assert (await done(bench, executor, SubmitQuote(), "5", "U0REP", version=2))["code"] == code


async def test_slack_is_asked_once_in_a_while_and_never_for_the_scheduler(bench: Bench, executor: Executor, world: World) -> None:
    for number, wait in enumerate((0, 0, FRESH_MS - 1, 1)):
        bench.clock.advance(wait)
        await done(bench, executor, create_command(str(number)), str(number), "U0REP")
    assert requests(world, "users.info") == 2
    await done(bench, executor, create_command("9"), "9", "quotebot", actor_type="system", source="scheduler", transport={})
    assert requests(world, "users.info") == 2


async def test_one_lost_answer_delays_an_approval_and_does_not_lose_it(bench: Bench, executor: Executor, world: World) -> None:
    await done(bench, executor, create_command(), "1", "U0REP")
    await done(bench, executor, SubmitQuote(), "2", "U0REP")
    world.weather.arm("slack", "5xx", method="users.info", times=1)
    assert (await done(bench, executor, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))["code"] == "approved"


async def test_while_slack_is_silent_the_unknown_neither_quote_nor_approve(bench: Bench, executor: Executor, world: World) -> None:
    world.weather.arm("slack", "5xx", method="users.info", times=100)
    assert (await done(bench, executor, create_command(), "0", "U0REP"))["code"] == "not_known"
    assert bench.counts()["quotes"] == 0
    world.weather.clear()
    assert (await done(bench, executor, create_command(), "1", "U0REP"))["code"] == "created"
    assert (await done(bench, executor, SubmitQuote(), "3", "U0REP"))["code"] == "submitted"
    world.weather.arm("slack", "5xx", method="users.info", times=100)
    assert (await done(bench, executor, DecideApproval(APPROVAL, "approve"), "4", "U0MANAGER"))["code"] == "not_known"
    assert audited(bench) == [("access.refused", "not_known", "U0REP"), ("access.refused", "not_known", "U0MANAGER")]


async def test_one_lost_answer_delays_a_creation_and_does_not_lose_it(bench: Bench, executor: Executor, world: World) -> None:
    world.weather.arm("slack", "5xx", method="users.info", times=1)
    assert (await done(bench, executor, create_command(), "1", "U0REP"))["code"] == "created"


@pytest.mark.parametrize(("age", "code"), [(TRUSTED_MS, "submitted"), (TRUSTED_MS + 1, "not_known")])
async def test_what_slack_said_counts_for_a_day_while_it_says_nothing_newer(
    bench: Bench, executor: Executor, world: World, age: int, code: str
) -> None:
    await done(bench, executor, create_command(), "1", "U0REP")
    world.weather.arm("slack", "5xx", method="users.info", times=100)
    bench.clock.advance(age)
    found = await done(bench, executor, SubmitQuote(), "2", "U0REP")
    assert found["code"] == code


async def test_in_slack_everybody_without_the_authority_is_told_and_audited(deal: Deal, world: World) -> None:
    becomes(world, "U0CFO", is_guest=True)
    becomes(world, "U0VP", team_id="T0OTHER")
    await deal.slash(user="U0GUEST")
    await deal.submitted_deal()
    for user in ("U0REP", "U0LEGAL", "U0CFO", "U0VP"):
        await deal.click("approval.approve", user=user)
    await deal.settled()
    refused = await deal.rows(REFUSALS)
    assert {(json.loads(row["after"])["actor"], json.loads(row["after"])["code"]) for row in refused} == {
        ("U0GUEST", "not_a_member"),
        ("U0REP", "own_request"),
        ("U0LEGAL", "missing_role"),
        ("U0CFO", "not_a_member"),
        ("U0VP", "foreign_team"),
    }
    assert [row["state"] for row in await deal.rows("SELECT state FROM quotes")] == ["pending_approval"]
    assert "available to guests" in " ".join(await deal.whispers("U0GUEST"))
