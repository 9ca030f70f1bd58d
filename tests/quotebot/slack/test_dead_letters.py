"""Tests of dead letters in the operators' channel: the card, its buttons, and two operators at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError, Failure
from adapters.policies import RetryOverride
from ledger.ledger import no_follow_ups
from ledger.operator.dead_letters import DeadLetter
from quotebot.app.installation import dead_letters
from quotebot.app.workers import Ports, _jobs
from quotebot.execution.executor import Executor
from quotebot.jobs.maintenance import announce_dead_letters, forget
from quotebot.observability.metrics import Metrics
from quotebot.settings import Settings
from quotebot.store.dead_letters import DeadLetterCard
from quotebot.views import operator_messages
from quotebot.views.card import APPROVE
from quotebot.views.dead_letter_card import (
    DETAILS,
    DISCARD,
    RETRY,
    dead_letter_card,
    dead_letter_value,
    details_view,
    discard_form,
    parse_dead_letter_value,
)
from tests.quotebot.deeds import Round
from tests.quotebot.parts import MATRIX, RULES, Bench
from tests.quotebot.views.block_kit import message_problems, view_problems
from tests.quotebot.views.quote_examples import MORNING
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from quotebot.sandbox.world import World

LETTER = DeadLetter(
    kind="effect",
    id=118,
    operation_key="ab" * 32,
    source="slack_interactive",
    source_request_id="T0HOME:1",
    effect_class="crm.create",
    target="Q-2026-0042",
    semantics="keyed",
    maybe_sent=False,
    aggregate_id="Q-2026-0042",
    correlation_id="c-7f91ab12",
    payload={},
    category="transient",
    code="SERVER_UNAVAILABLE",
    last_error="Salesforce did not answer <in time>.",
    attempts=7,
    first_failed_at=MORNING - 60_000,
    last_attempt_at=MORNING,
    created_at=MORNING - 120_000,
    updated_at=MORNING,
    cycle=2,
    prior_replay_count=1,
    handler_version="0.1.0",
    replayed_by="operator",
    state="failed",
    status="pending",
    external_ref=None,
    failure_history=[{"cycle": 1, "attempts": 7, "last_error": "503", "replayed_at": MORNING - 30_000}],
    label="approval:U0MANAGER:Q-2026-0042:decide:v1",
)
DECIDED = DeadLetterCard("118", "C0OPS", "k" * 64, "1.2", "discarded", "U0OPERATOR", MORNING, "not wanted")
STATUSES = ("pending", "replaying", "replayed", "discarded", "uncertain")


@pytest.mark.parametrize("status", STATUSES)
def test_dead_letter_card_matches_its_snapshot(status: str, snapshot: SnapshotAssertion) -> None:
    card = dead_letter_card(replace(LETTER, status=status), DECIDED if status == "discarded" else None)
    assert message_problems(card.text, card.blocks) == []
    assert card == snapshot


def test_details_and_the_discard_form_read_like_this(snapshot: SnapshotAssertion) -> None:
    assert view_problems(details_view(LETTER)) == []
    assert view_problems(discard_form(LETTER)) == []
    assert [details_view(LETTER), discard_form(LETTER)] == snapshot


def test_hostile_text_keeps_a_dead_letter_within_limits_and_mentions_no_one() -> None:
    hostile = "<!channel> <@U0CFO> `x` \u202e" * 200
    cycles = [{"cycle": n, "attempts": 7, "last_error": hostile, "replayed_at": MORNING} for n in range(20)]
    letter = replace(LETTER, last_error=hostile, target=hostile, aggregate_id=hostile, failure_history=cycles)
    card = dead_letter_card(letter, replace(DECIDED, reason=hostile))
    assert message_problems(card.text, card.blocks) == []
    assert view_problems(details_view(letter)) == []
    assert view_problems(discard_form(letter)) == []
    assert "<!channel>" not in str((card, details_view(letter), discard_form(letter)))


@pytest.mark.parametrize(
    "text", ["", "{}", '{"v":2,"l":"118","c":1}', '{"v":1,"l":"x","c":1}', '{"v":1,"l":"118","c":0}', '{"v":1,"l":118,"c":1}']
)
def test_a_value_of_another_build_is_none(text: str) -> None:
    assert parse_dead_letter_value(text) is None
    assert parse_dead_letter_value(dead_letter_value(LETTER)) == ("118", 2)


# ------------------------------------------------------------------------------------------------------- in the running bot


@pytest.fixture
async def outage(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a deal whose write to Salesforce failed for good, with its card in the operators' channel."""
    settings: dict[str, Any] = {
        "ops_channel": "C0OPS",
        "operators": ("U0OPERATOR", "U0DEALDESK"),
        "retry": {"crm.create": RetryOverride(retries=0)},
    }
    async with bot_in(world, tmp_path / "bot", **settings) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", times=50)
        await deal.click(APPROVE, user="U0MANAGER")
        await posted(deal)
        await deal.clear_faults()
        yield deal


async def posted(deal: Deal) -> dict[str, Any]:
    """Wait until the dead letter has its card, and return the card."""

    async def cards() -> list[dict[str, Any]]:
        return [m for m in (await deal.get("state"))["messages"] if m["channel"] == "C0OPS" and m["blocks"]]

    async def there() -> bool:
        return bool(await cards())

    await eventually(there, "the letter's card")
    await deal.settled()
    return (await cards())[0]


async def press(deal: Deal, user: str, action_id: str, *, stale: bool = False) -> None:
    card = await posted(deal)
    await deal.post("action", user=user, channel="C0OPS", message_ts=card["ts"], action_id=action_id, stale=stale)


async def told(deal: Deal, user: str) -> str:
    """Return the last ephemeral message to this operator."""
    messages = (await deal.get("state"))["messages"]
    text: str = [m["text"] for m in messages if m["channel"] == "C0OPS" and m["ephemeral_for"] == user][-1]
    return text


async def test_two_operators_at_once_have_one_effect_and_the_second_is_told_who_was_first(outage: Deal) -> None:
    card = await posted(outage)
    assert message_problems(card["text"], card["blocks"]) == []
    assert f"crm.create of {FIRST_QUOTE}" in card["text"]
    both = ("U0OPERATOR", "U0DEALDESK")  # both still see the button
    await asyncio.gather(*(press(outage, user, RETRY, stale=True) for user in both))
    await outage.settled()
    assert len(await outage.crm()) == 1
    retries = await outage.rows("SELECT actor, outcome FROM operations WHERE action_kind = 'letter.retry' ORDER BY id")
    assert [row["outcome"] for row in retries] == ["applied", "refused"]
    first, second = (row["actor"] for row in retries)
    assert f"it was retried by <@{first}> on " in await told(outage, second)
    assert len(await outage.rows("SELECT 1 FROM audit_events WHERE event_type = 'effect.replayed'")) == 1

    done = await posted(outage)
    assert "Done after all" in done["text"]
    assert f"Retried by <@{first}>" in str(done["blocks"])
    assert "came true after all" in (await outage.replies())[-1]["text"]  # the thread's last message is no longer "failed for good"
    assert "failed" not in await outage.card_text()


async def test_dead_letter_is_discarded_with_a_reason_by_operators_only(outage: Deal) -> None:
    await press(outage, "U0MANAGER", RETRY)
    await press(outage, "U0MANAGER", DISCARD)
    await outage.settled()
    assert await told(outage, "U0MANAGER") == operator_messages.NOT_OPERATOR
    await press(outage, "U0OPERATOR", DETAILS)
    await press(outage, "U0OPERATOR", DISCARD)
    view = (await outage.get("state"))["views"][-1]["view"]
    empty = await outage.post("submit", user="U0OPERATOR", view_id=view["id"], values={"reason": {"reason": "\u200f"}})
    assert empty["ack"]["errors"] == {"reason": operator_messages.REASON_NEEDED}
    await outage.post("submit", user="U0OPERATOR", view_id=view["id"], values={"reason": {"reason": "entered by hand"}})
    await outage.settled()
    card = await posted(outage)
    assert "Discarded by <@U0OPERATOR>" in str(card["blocks"])
    assert "> entered by hand" in str(card["blocks"])
    assert RETRY not in str(card["blocks"])
    await press(outage, "U0DEALDESK", RETRY, stale=True)
    await outage.settled()
    assert "it was discarded by <@U0OPERATOR> on " in await told(outage, "U0DEALDESK")
    assert await outage.crm() == []


@pytest.mark.parametrize(("channel", "runs"), [(None, False), ("C0OPS", True)])
def test_dead_letters_are_announced_only_if_a_channel_is_configured(bench: Bench, channel: str | None, runs: bool) -> None:  # noqa: FBT001 -- a case
    jobs = _jobs(bench.ledger, Settings(_env_file=None, ops_channel=channel), Ports(clock=bench.clock), Metrics())
    assert ("letters" in {job.name for job in jobs}) == runs


async def test_at_most_twenty_cards_wait_for_a_decision_and_none_is_about_a_card(bench: Bench) -> None:
    round_ = Round(bench)
    for number in range(25):
        await round_.owe("crm.create", f"{number:02}")
        round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "No."))
    while await round_.step():
        pass
    assert await announce_dead_letters(bench.ledger, "C0OPS") == 20
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    while await executor.step():
        pass
    assert await announce_dead_letters(bench.ledger, "C0OPS") == 0
    assert len(bench.rows("SELECT 1 FROM letter_cards")) == 20
    for _ in range(20):
        round_.performer.sends.append(AdapterError(Failure.NOT_FOUND, "gone", "The channel is gone."))
    while await round_.step():
        pass
    for reference in ("1", "3"):  # at a terminal: its cards no longer count
        await dead_letters(bench.ledger).discard(reference, actor="operator", reason="not wanted", follow=no_follow_ups)
    assert await announce_dead_letters(bench.ledger, "C0OPS") == 2
    for row in bench.rows("SELECT id FROM effects WHERE state = 'failed' AND class = 'crm.create'"):
        await dead_letters(bench.ledger).discard(str(row["id"]), actor="operator", reason="not wanted", follow=no_follow_ups)
    assert await announce_dead_letters(bench.ledger, "C0OPS") == 0


async def test_card_of_a_dead_letter_is_purged_with_its_row(bench: Bench) -> None:
    round_ = Round(bench)
    await round_.owe("crm.create")
    round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "No."))
    await round_.step()
    for reference in ("1", "op1", "99", "op99"):
        insert = "INSERT INTO letter_cards (reference, channel, post_key, announced_at) VALUES (?, 'C0OPS', 'k', 1)"
        bench.rows(insert, reference)
    now = bench.clock.now_ms()
    counted = [(await forget(bench.ledger, now, dry_run=dry_run)).letter_cards for dry_run in (True, False, False, True)]
    assert counted == [2, 2, 0, 0]
    assert [row["reference"] for row in bench.rows("SELECT reference FROM letter_cards ORDER BY 1")] == ["1", "op1"]
    events = bench.rows("SELECT after FROM audit_events WHERE event_type = 'retention.purged'")
    assert [row["after"] for row in events] == ['{"letter_cards":2}']
