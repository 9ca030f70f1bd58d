"""Tests of the buttons for a quote's effects: their places, their permissions, and double or late presses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.policies import RetryOverride
from ledger.gates import Gate
from ledger.machine import EffectState
from ledger.records import Delivered, Effect, Fail, Retry, Trouble, Uncertain
from quotebot import effects
from quotebot.app.workers import Ports
from quotebot.commands.payloads import ActOnEffect, Deed
from quotebot.dispatch.slack_card import effect_lines
from quotebot.domain.quotes.quote import QuoteState
from quotebot.execution.executor import Executor
from quotebot.execution.operator_actions import CANCEL_REASON, effect_status
from quotebot.views.card import APPROVE, MORE, SUBMIT, status_card
from quotebot.views.pending_buttons import (
    CANCEL,
    CHECK,
    CHECK_COMMAND,
    RETRY,
    RETRY_COMMAND,
    PendingEffect,
    PendingEffectValue,
    parse_pending_effect_value,
    pending_effect_value,
)
from tests.quotebot.access_parts import viewer
from tests.quotebot.dispatch.test_follow_ups import approved, performer_of, settle
from tests.quotebot.parts import MATRIX, RULES, Bench, request_for
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import MORNING, quote_in
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from ledger.records import Settlement
    from quotebot.sandbox.world import World

__all__ = ["approved"]  # a fixture

NO_ANSWER = Trouble("transient", "Salesforce <did> not answer.", maybe_sent=True)
PRICED_OUT = Trouble("throttled", "Too many requests.")
PAUSED = Gate("crm", "held", "operator", "maintenance", "U0OPERATOR", MORNING)
RESTING = Gate("crm.create", "held", "breaker", "Salesforce did not answer.", "quotebot", MORNING, MORNING + 30_000)
BUSY = replace(RESTING, cause="throttled")
TRIED = Gate("crm.create", "half_open")


def an_effect(state: str, attempts: int, category: str | None, effect_class: str = effects.CRM) -> Effect:
    values: dict[str, Any] = dict.fromkeys(Effect.__slots__)
    values |= {
        "id": 118,
        "cycle": 1,
        "payload": {},
        "correlation_id": "c-7f91ab12",
        "effect_class": effect_class,
        "state": EffectState(state),
    }
    return Effect(**{**values, "attempts": attempts, "category": category, "last_error": category, "reconciling": False})


@pytest.mark.parametrize(
    ("effect", "gate", "state", "offers"),
    [
        (an_effect("pending", 0, None), None, "pending", ()),
        (an_effect("in_flight", 0, None), None, "pending", ()),
        (an_effect("pending", 0, "throttled"), None, "pending", ()),
        (an_effect("pending", 1, "transient"), None, "retrying", (RETRY, CHECK, CANCEL)),
        (an_effect("in_flight", 1, "transient"), None, "retrying", (RETRY, CHECK, CANCEL)),
        (an_effect("pending", 1, "transient"), TRIED, "retrying", (RETRY, CHECK, CANCEL)),
        (an_effect("pending", 0, None), RESTING, "retrying", (CHECK, CANCEL)),
        (an_effect("pending", 0, "throttled"), BUSY, "retrying", (CHECK, CANCEL)),
        (an_effect("pending", 1, "transient"), RESTING, "retrying", (RETRY, CHECK, CANCEL)),
        (an_effect("uncertain", 1, "transient"), RESTING, "in doubt", (RETRY, CHECK)),
        (an_effect("pending", 1, "auth"), PAUSED, "paused", (CHECK, CANCEL)),
        (an_effect("uncertain", 1, "transient"), PAUSED, "paused", (CHECK,)),
        (an_effect("uncertain", 1, "transient"), None, "in doubt", (RETRY, CHECK)),
        (an_effect("delivered", 2, "transient"), None, "delivered", ()),
        (an_effect("delivered", 2, "transient", effects.RENDER), None, "pending", ()),
        (an_effect("failed", 7, "transient"), PAUSED, "failed", ()),
        (an_effect("discarded", 1, "transient"), None, "cancelled", ()),
    ],
)
def test_the_card_offers_what_may_help_and_nothing_else(
    effect: Effect, gate: Gate | None, state: str, offers: tuple[str, ...]
) -> None:
    (line,) = effect_lines([effect], [] if gate is None else [gate])
    assert (line.state, line.offers) == (state, offers)


def test_the_card_says_why_a_discarded_effect_failed_without_the_text_of_the_service() -> None:
    (line,) = effect_lines([replace(an_effect("discarded", 7, "transient"), last_error="Salesforce: 503 <html>")], [])
    assert line.detail == "The service was unavailable"


async def test_the_card_has_the_reason_of_a_person_who_cancelled_after_a_failed_try(bench: Bench, approved: str) -> None:
    await failed_once(bench)
    assert (await press(bench, approved, "cancel"))[0] == "cancelled"
    effect_id = bench.row("SELECT id FROM effects WHERE class = 'crm.create'")["id"]
    row = await bench.ledger.database.read(lambda tx: tx.required("effect_by_id", id=effect_id))
    (line,) = effect_lines([Effect.of(row)], [])
    assert (line.state, line.detail) == ("cancelled", CANCEL_REASON)


def an_update(what: str, state: str, attempts: int = 0, category: str | None = None) -> Effect:
    return replace(an_effect(state, attempts, category, effects.UPDATE), payload={"what": what})


@pytest.mark.parametrize(
    ("what", "label"), [("status", "CRM status"), ("amount", "CRM amount"), ("stage", "CRM stage"), ("document", "CRM PDF")]
)
def test_update_of_the_record_is_on_the_card_until_it_is_delivered(what: str, label: str) -> None:
    (line,) = effect_lines([an_update(what, "pending")], [])
    assert (line.label, line.state, line.ref) == (label, "pending", "c-7f91ab12")
    (line,) = effect_lines([an_update(what, "pending", 1, "transient")], [])
    assert (line.state, line.offers) == ("retrying", (RETRY, CHECK, CANCEL))
    (line,) = effect_lines([an_update(what, "failed", 7, "transient")], [])
    assert (line.state, line.detail) == ("failed", "transient")
    assert effect_lines([an_update(what, "failed", 7, "transient"), an_update(what, "delivered", 1)], []) == ()


WAITS = {
    "between two tries": PendingEffect("CRM", "retrying", "c-7f91", "No <answer>", effect_id=118, offers=(RETRY, CHECK, CANCEL)),
    "in doubt": PendingEffect("PDF", "in doubt", "c-7f91", "No answer", effect_id=118, cycle=2, offers=(RETRY, CHECK)),
    "held": PendingEffect("CRM", "paused", "c-7f91", "maintenance", since=MORNING, effect_id=118, offers=(CHECK, CANCEL)),
    "update": PendingEffect("CRM status", "retrying", "c-7f91", "No answer", effect_id=118, offers=(RETRY, CHECK, CANCEL)),
    "cancelled": PendingEffect("CRM", "cancelled", "c-7f91", CANCEL_REASON),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_card_reads_like_this_while_something_is(name: str, snapshot: SnapshotAssertion) -> None:
    card = status_card(quote_in(QuoteState.APPROVED), (WAITS[name],))
    assert message_problems(card.text, card.blocks) == []
    assert card.blocks[-2:] == snapshot


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"v":2,"q":"Q-2026-0042","n":1,"e":118,"c":1}',
        '{"v":1,"q":"nothing","n":1,"e":118,"c":1}',
        '{"v":1,"q":"Q-2026-0042","n":1,"e":"118","c":1}',
        '{"v":1,"q":"Q-2026-0042","n":1,"e":118,"c":true}',
        '{"v":1,"q":"Q-2026-0042","n":1,"e":9223372036854775808,"c":1}',
    ],
)
def test_a_value_of_another_build_is_none(text: str) -> None:
    assert parse_pending_effect_value(text) is None
    value = PendingEffectValue("Q-2026-0042", 3, 118, 2)
    assert parse_pending_effect_value(pending_effect_value(value)) == value


# ---------------------------------------------------------------------------------------------- what a press comes to


async def press(
    bench: Bench, quote_id: str, deed: Deed, *, actor: str = "U0REP", request: str = "p", **more: Any
) -> tuple[str, str]:
    """Press a button for the write to Salesforce; return the code and the text of the answer."""
    effect_id = more.pop("effect_id", None) or bench.row("SELECT id FROM effects WHERE class = 'crm.create'")["id"]
    payload = ActOnEffect(deed, effect_id, more.pop("cycle", 1))
    follow = performer_of(bench).follow_ups
    executor = Executor(bench.ledger, replace(RULES, operators=("U0OPERATOR",)), lambda low, _: low, MATRIX, follow=follow)
    reserved = await bench.ledger.reserve(request_for(payload, request, quote_id=quote_id, version=1, actor=actor, **more))
    await executor.step()
    response = json.loads(bench.row("SELECT response FROM operations WHERE id = ?", reserved.operation.id)["response"])
    return response["code"], response["text"]


async def failed_once(bench: Bench, settlement: Settlement | None = None) -> None:
    """Fail the first attempt of the write to Salesforce; the next one is due in an hour."""
    await settle(bench, effects.CRM, settlement or Retry(NO_ANSWER, 3_600_000))


def due(bench: Bench) -> int | None:
    found: int | None = bench.row("SELECT next_attempt_at FROM effects WHERE class = 'crm.create'")["next_attempt_at"]
    return found


async def test_retry_makes_it_due_at_once_and_a_second_press_is_told_so(bench: Bench, approved: str) -> None:
    await failed_once(bench)
    code, text = await press(bench, approved, "retry", actor="U0MANAGER", request="1")
    assert (code, due(bench)) == ("retried", bench.clock.now_ms())
    assert "It is tried again now, under the same key" in text
    code, text = await press(bench, approved, "retry", request="2")
    assert (code, "Your click changed nothing" in text) == ("too_late", True)
    hastened = bench.rows("SELECT actor, actor_type FROM audit_events WHERE event_type = 'effect.hastened'")
    assert hastened == [{"actor": "U0MANAGER", "actor_type": "user"}]
    await settle(bench, effects.CRM, Delivered("0Q0", {}))
    code, text = await press(bench, approved, "retry", request="3")
    assert (code, "Delivered " in text) == ("too_late", True)


async def test_retry_of_an_uncertain_effect_checks_at_once_and_cancel_does_nothing(bench: Bench, approved: str) -> None:
    await failed_once(bench, Uncertain(NO_ANSWER, 3_600_000))
    code, text = await press(bench, approved, "cancel", request="1")
    assert (code, "Whether it was done is not known" in text) == ("too_late", True)
    code, text = await press(bench, approved, "retry", request="2")
    assert (code, due(bench)) == ("retried", bench.clock.now_ms())
    assert "It is looked for now" in text


async def test_no_press_shortens_a_wait_that_somebody_else_set(bench: Bench, approved: str) -> None:
    await failed_once(bench, Retry(PRICED_OUT, 3_600_000, spent=False))
    before = due(bench)
    code, text = await press(bench, approved, "retry", request="1")
    assert (code, "The service asked to wait for too long" in text) == ("too_late", True)
    await bench.ledger.pause("crm", "U0OPERATOR", "maintenance")
    code, text = await press(bench, approved, "retry", request="2")
    assert (code, "is paused by U0OPERATOR" in text) == ("too_late", True)
    assert due(bench) == before


async def test_while_the_breaker_is_open_retry_makes_it_the_first_that_is_tried(bench: Bench, approved: str) -> None:
    await failed_once(bench)
    now = bench.clock.now_ms()
    ledger, why = bench.ledger, "Salesforce did not answer."
    await ledger.database.write(
        "hold", lambda tx: ledger.gates.hold(tx, now, "crm.create", "breaker", why, "quotebot", now + 30_000)
    )
    code, text = await press(bench, approved, "retry", request="1")
    assert (code, due(bench)) == ("retried", now)
    assert "It is tried as soon as that is over" in text
    assert (await press(bench, approved, "retry", request="2"))[0] == "too_late"


@pytest.mark.parametrize(("actor", "code"), [("U0REP", "cancelled"), ("U0OPERATOR", "cancelled"), ("U0MANAGER", "not_yours")])
async def test_who_made_the_quote_and_operators_may_cancel_what_waits(bench: Bench, approved: str, actor: str, code: str) -> None:
    await failed_once(bench)
    notices = "SELECT 1 FROM effects WHERE class = 'slack.post' AND json_extract(payload, '$.what') = 'notice'"
    before = len(bench.rows(notices))
    assert (await press(bench, approved, "cancel", actor=actor))[0] == code
    state = bench.row("SELECT state FROM effects WHERE class = 'crm.create'")["state"]
    assert (state, len(bench.rows(notices)) - before) == (("discarded", 1) if code == "cancelled" else ("pending", 0))
    quote = bench.row("SELECT state FROM quotes")["state"]
    assert quote == "approved"
    if code == "cancelled":  # the second press, and a Retry from a card that is still open
        assert (await press(bench, approved, "cancel", request="2"))[0] == "too_late"
        assert "Canceled or discarded" in (await press(bench, approved, "retry", request="3"))[1]


async def test_a_press_about_another_cycle_quote_or_workspace_changes_nothing(bench: Bench, approved: str) -> None:
    await failed_once(bench)
    before = due(bench)
    for deed in ("retry", "cancel"):
        assert (await press(bench, approved, deed, request=f"{deed}1", cycle=2))[0] == "too_late"
        assert (await press(bench, approved, deed, request=f"{deed}2", effect_id=99))[0] == "unknown_effect"
        assert (await press(bench, approved, deed, request=f"{deed}3", effect_id=1))[0] == "unknown_effect"  # the card itself
        assert (await press(bench, approved, deed, request=f"{deed}4", team_id="T0OTHER"))[0] == "unknown_quote"
    assert due(bench) == before


async def test_status_says_what_it_waits_for_and_tells_operators_what_to_do(bench: Bench, approved: str) -> None:
    await failed_once(bench)
    effect_id = bench.row("SELECT id FROM effects WHERE class = 'crm.create'")["id"]

    async def said(team: str = "T0HOME", *, operator: bool = False) -> str:
        now = bench.clock.now_ms()
        return await bench.ledger.database.read(
            lambda tx: effect_status(tx, approved, effect_id, viewer(team=team), now, operator=operator)
        )

    assert "It is due at 2026-11-21 11:31:00 UTC (in 60 min), attempt 2" in await said()
    assert 'after "The service was unavailable".' in await said()
    assert "Salesforce &lt;did&gt; not answer" in await said(operator=True)
    assert "owes nothing like that" in await said("T0OTHER")
    await bench.ledger.pause("crm", "U0OPERATOR", "maintenance")
    assert "quotebot resume" not in await said()
    assert "`quotebot resume crm`" in await said(operator=True)
    bench.clock.advance(3_600_000)
    await bench.ledger.resume("crm", "U0OPERATOR")
    await settle(bench, effects.CRM, Fail(NO_ANSWER))
    assert "It is a dead letter" in await said()


# ------------------------------------------------------------------------------------------------------- in the running bot


async def test_two_presses_of_retry_on_a_card_make_one_record_and_a_late_one_is_answered(world: World, tmp_path: Path) -> None:
    an_hour = RetryOverride(base_seconds=60, cap_seconds=3600)
    async with bot_in(world, tmp_path / "bot", retry={"crm.create": an_hour}) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", times=1)
        await deal.click(APPROVE, user="U0MANAGER")

        async def offered() -> bool:
            return "Salesforce isn't responding" in await deal.card_text()

        await eventually(offered, "the card to say pending retry")
        await deal.click(CHECK, user="U0VP")
        assert "It is due at" in (await deal.whispers("U0VP"))[-1]
        await asyncio.gather(*(deal.click(RETRY, user=user, stale=True) for user in ("U0REP", "U0MANAGER")))
        await deal.settled()
        assert len(await deal.crm()) == 1
        assert "isn't responding" not in await deal.card_text()
        assert RETRY not in await deal.card_text()
        presses = await deal.rows("SELECT outcome FROM operations WHERE action_kind = 'effect.steer' ORDER BY id")
        assert [row["outcome"] for row in presses] == ["applied", "refused"]
        trail = (await deal.slash(f"audit {FIRST_QUOTE}"))["ack"]["text"]
        assert ["Retried a job early" in trail, "Wrote to Salesforce" in trail, "slack.card" in trail] == [True, True, False]
        assert any(FIRST_QUOTE in text and "changed nothing" in text for text in await told(deal))


async def test_sent_shows_its_write_to_salesforce_until_it_is_there(world: World, tmp_path: Path) -> None:
    an_hour = RetryOverride(base_seconds=60, cap_seconds=3600)
    async with bot_in(world, tmp_path / "bot", retry={"crm.update": an_hour}) as deal:
        await deal.approved_deal()
        await deal.complete(deal.slash(f"finalize {FIRST_QUOTE}"))
        assert "Salesforce isn't" not in await deal.card_text()
        await deal.arm("salesforce", "5xx", times=1)
        await deal.slash(f"sent {FIRST_QUOTE} to buyer@acme.example")

        async def offered() -> bool:
            return "Salesforce isn't responding" in await deal.card_text()

        await eventually(offered, "the card to say pending retry")
        await deal.click(CHECK, user="U0VP")
        assert "The status in Salesforce of" in (await deal.whispers("U0VP"))[-1]
        await deal.click(RETRY, user="U0REP")
        await deal.settled()
        assert "Salesforce isn't" not in await deal.card_text()
        assert [record["Status"] for record in await deal.crm()] == ["Presented"]


async def test_failed_write_of_the_status_is_on_the_card_and_in_the_thread(world: World, tmp_path: Path) -> None:
    at_once = RetryOverride(retries=1, base_seconds=0.05, cap_seconds=0.05)
    async with bot_in(world, tmp_path / "bot", retry={"crm.update": at_once}) as deal:
        await deal.approved_deal()
        await deal.complete(deal.slash(f"finalize {FIRST_QUOTE}"))
        await deal.arm("salesforce", "5xx", times=2)
        await deal.complete(deal.slash(f"sent {FIRST_QUOTE} to buyer@acme.example"))
        assert "The status isn't in Salesforce yet" in await deal.card_text()
        assert any("The status in Salesforce" in reply["text"] for reply in await deal.replies())


A_MINUTE = RetryOverride(base_seconds=60, cap_seconds=60)
LONGEST = Ports(draw=lambda _, high: high)


async def test_waiting_command_and_those_behind_it_are_on_the_card_and_retried(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", LONGEST, retry={"default": A_MINUTE}) as deal:
        await deal.submitted_deal()
        await deal.arm("slack", "5xx", method="users.info", times=100)
        await deal.click(APPROVE, user="U0VP")
        await deal.slash(f"cancel {FIRST_QUOTE}: not wanted")

        async def offered() -> bool:
            text = await deal.card_text()
            return "decide: Saved. Retrying" in text and "cancel: Still working" in text

        await eventually(offered, "the card to show both commands")
        await deal.click(CHECK_COMMAND, user="U0REP")
        assert "It is due at" in (await deal.whispers("U0REP"))[-1]
        await deal.clear_faults()
        await deal.click(RETRY_COMMAND, user="U0REP")
        await deal.settled()
        text = await deal.card_text()
        assert ("Saved. Retrying" in text, RETRY_COMMAND in text, "Canceled" in text) == (False, False, True)
        assert "Retried a command early" in (await deal.slash(f"audit {FIRST_QUOTE}"))["ack"]["text"]


async def test_unchanged_card_is_not_sent_again_unless_a_person_refreshes_it(deal: Deal) -> None:
    await deal.submitted_deal()
    before = len(await deal.witness("chat.update"))
    await deal.complete(deal.click(SUBMIT, user="U0REP", stale=True))
    assert len(await deal.witness("chat.update")) == before
    card = (await deal.rows("SELECT state, result FROM effects WHERE class = 'slack.card' ORDER BY id DESC LIMIT 1"))[0]
    assert (card["state"], json.loads(card["result"])["already_there"]) == ("delivered", True)
    menu = {"value": "Refresh"}
    await deal.complete(deal.click(MORE, user="U0REP", **menu))
    assert len(await deal.witness("chat.update")) == before + 2  # the card, and the approver's direct message


async def test_card_after_a_lost_update_is_sent_once_more_though_unchanged(deal: Deal) -> None:
    await deal.complete(deal.slash())
    await deal.arm("slack", "reset_after", method="chat.update", times=1)
    await deal.complete(deal.click(SUBMIT, user="U0REP"))
    sent = [seen["request_hash"] for seen in await deal.witness("chat.update")]
    assert (len(sent), len(set(sent))) == (3, 1)  # the lost one, its repetition, and one after the settle delay


async def told(deal: Deal) -> list[str]:
    return [text for user in ("U0REP", "U0MANAGER") for text in await deal.whispers(user)]
