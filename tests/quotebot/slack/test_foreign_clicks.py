"""Tests that a click acts only where its button was made: in the recorded card, reply, form or Home tab, for its person."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger.audit.keyring import load_keyring
from ledger.clock import SystemClock
from quotebot.app.installation import open_ledger
from quotebot.commands.payloads import RemindApprover
from quotebot.domain.approvals.policy import HOUR_MS
from quotebot.sandbox.slack.directory import TEAM_ID
from quotebot.sandbox.slack.elements import Found
from quotebot.sandbox.slack.payloads import Payloads
from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, read_any, value_text
from quotebot.views.card import APPROVE, REJECT, REMIND, REVISE, SUBMIT
from quotebot.views.confirmations import CLONE, COVER, CREATE_ANOTHER, SHOW
from quotebot.views.dead_letter_card import RETRY
from quotebot.views.forms import CONTACT, REASON, REJECT_CALLBACK
from quotebot.views.seals import MARK, Seals
from tests.quotebot.parts import request_for
from tests.rig import FIRST_QUOTE, bot_in, eventually, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.sandbox.world import World
    from tests.rig import Deal

SECOND_QUOTE = FIRST_QUOTE[:-1] + "2"
REFUSAL = messages.turned_away("foreign_click")


async def two_quotes(deal: Deal) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make two quotes; return their cards."""
    await deal.complete(deal.slash())
    await deal.complete(deal.slash())
    first, second = await deal.cards()
    return first, second


def value_of(card: dict[str, Any], action_id: str) -> str:
    """Return the value of a button of a card."""
    elements = [element for block in card["blocks"] for element in block.get("elements", ())]
    return next(str(element["value"]) for element in elements if element.get("action_id") == action_id)


async def press(world: World, user: str, place: dict[str, Any], action_id: str, value: str, *, to: str | None = None) -> None:
    """Send the click of a button with any value on a message; `to` makes the message an ephemeral one to that person."""
    message = world.slack.messages.get(place["channel"], place["ts"])
    assert message is not None
    stamp = world.slack.clock.stamp()
    action = {"action_id": action_id, "block_id": "b", "type": "button", "action_ts": stamp, "value": value}
    payload = Payloads(world.slack).message_action(user, replace(message, ephemeral_for=to), action, {})
    _, ack = await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
    assert ack is not None, "not acknowledged"


async def refused(deal: Deal) -> list[dict[str, Any]]:
    """Return what the audit tells about refused clicks."""
    rows = await deal.rows("SELECT actor, after FROM audit_events WHERE event_type = 'access.refused'")
    return [{"by": row["actor"], **json.loads(row["after"])} for row in rows]


async def states(deal: Deal) -> dict[str, str]:
    return {row["quote_id"]: row["state"] for row in await deal.rows("SELECT quote_id, state FROM quotes")}


async def test_button_of_another_quote_on_a_card_is_refused_and_audited(world: World, deal: Deal) -> None:
    first, second = await two_quotes(deal)
    await press(world, "U0REP", second, SUBMIT, value_of(first, SUBMIT))
    await deal.settled()
    assert await states(deal) == {FIRST_QUOTE: "priced", SECOND_QUOTE: "priced"}
    (found,) = await refused(deal)
    assert (found["by"], found["code"], found["entry"]) == ("U0REP", "foreign_click", "button")
    assert (await deal.whispers("U0REP"))[-1] == REFUSAL
    await press(world, "U0REP", first, SUBMIT, value_of(first, SUBMIT))
    await deal.settled()
    assert (await states(deal))[FIRST_QUOTE] == "pending_approval"


async def test_approval_of_another_quote_on_a_card_is_refused(world: World, deal: Deal) -> None:
    first, second = await two_quotes(deal)
    for card in (first, second):
        await press(world, "U0REP", card, SUBMIT, value_of(card, SUBMIT))
    await deal.settled()
    first, second = await deal.cards()
    await press(world, "U0MANAGER", second, APPROVE, value_of(first, APPROVE))
    await deal.settled()
    assert set((await states(deal)).values()) == {"pending_approval"}
    assert [found["code"] for found in await refused(deal)] == ["foreign_click"]


async def test_message_that_is_no_card_holds_no_button_of_a_quote(world: World, deal: Deal) -> None:
    await deal.submitted_deal()
    (notice, *_) = await deal.replies()
    await press(world, "U0MANAGER", notice, APPROVE, value_of(await deal.card(), APPROVE))
    await deal.settled()
    assert (await states(deal))[FIRST_QUOTE] == "pending_approval"
    assert [found["code"] for found in await refused(deal)] == ["foreign_click"]


async def test_card_moved_to_a_direct_message_takes_its_clicks_there_alone(world: World, deal: Deal) -> None:
    first, _ = await two_quotes(deal)
    partner = "C0PARTNER"
    await deal.complete(deal.slash("new for Birch: 5 pro", channel=partner))
    state = await deal.get("state")
    (direct,) = [m for m in state["messages"] if m["channel"].startswith("D") and m["blocks"]]
    third = (read_any(value_of(direct, SUBMIT)) or {})["q"]
    await press(world, "U0REP", first, SUBMIT, value_of(direct, SUBMIT))
    await press(world, "U0REP", direct, SUBMIT, value_of(first, SUBMIT))
    await deal.settled()
    assert set((await states(deal)).values()) == {"priced"}
    await press(world, "U0REP", direct, SUBMIT, value_of(direct, SUBMIT))
    await deal.settled()
    assert (await states(deal))[third] != "priced"


async def test_button_of_a_private_reply_acts_for_its_person_alone(world: World, deal: Deal) -> None:
    first, _ = await two_quotes(deal)
    answer = (await deal.slash(f"status {FIRST_QUOTE}"))["ack"]
    value = value_of(answer, SUBMIT)
    assert value.startswith(value_text(ButtonValue(FIRST_QUOTE, 1, None)) + MARK)
    await press(world, "U0VP", first, SUBMIT, value, to="U0VP")
    await press(world, "U0REP", first, SUBMIT, value.partition(MARK)[0], to="U0REP")
    await press(world, "U0REP", first, SUBMIT, value.replace(FIRST_QUOTE, SECOND_QUOTE), to="U0REP")
    await press(world, "U0REP", first, SHOW, value, to="U0REP")  # another purpose
    await deal.settled()
    assert set((await states(deal)).values()) == {"priced"}
    assert {found["by"] for found in await refused(deal)} == {"U0REP", "U0VP"}
    await press(world, "U0REP", first, SUBMIT, value, to="U0REP")
    await deal.settled()
    assert (await states(deal))[FIRST_QUOTE] == "pending_approval"


async def test_offer_of_another_quote_creates_it_for_its_person_alone(world: World, deal: Deal) -> None:
    await deal.complete(deal.slash("new for Acme: 5 pro"))
    await deal.complete(deal.slash("new for Acme: 5 pro"))
    (card,) = await deal.cards()
    offers = [m for m in await deal.messages() if m["ephemeral_for"] == "U0REP" and CREATE_ANOTHER in str(m["blocks"])]
    value = value_of(offers[-1], CREATE_ANOTHER)
    await press(world, "U0VP", card, CREATE_ANOTHER, value, to="U0VP")
    await press(world, "U0REP", card, CREATE_ANOTHER, value)
    await deal.settled()
    assert len(await states(deal)) == 1
    await deal.complete(deal.click_ephemeral(CREATE_ANOTHER))
    assert len(await states(deal)) == 2


async def test_button_of_a_home_tab_acts_for_its_person_alone(world: World, deal: Deal) -> None:
    await deal.submitted_deal()
    await world.gestures.open_home("U0MANAGER")
    homes = world.slack.views.homes
    await eventually(lambda: "U0MANAGER" in homes and APPROVE in str(homes["U0MANAGER"].content), "the Home tab")
    view = world.slack.views.homes["U0MANAGER"]
    value = value_of(view.content, APPROVE)
    stamp = world.slack.clock.stamp()
    action = {"action_id": APPROVE, "block_id": "b", "type": "button", "action_ts": stamp, "value": value}
    for user, sent in (("U0VP", value), ("U0MANAGER", value.partition(MARK)[0])):
        payload = Payloads(world.slack).view_action(user, view, {**action, "value": sent})
        await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
    await deal.settled()
    assert (await states(deal))[FIRST_QUOTE] == "pending_approval"
    assert {found["by"] for found in await refused(deal)} == {"U0VP", "U0MANAGER"}
    await world.courier.send(
        "interactive",
        Payloads(world.slack).view_action("U0MANAGER", view, action),
        accepts_response=True,
        on_ack=lambda ack: ack.error,
    )
    await deal.settled()
    assert (await states(deal))[FIRST_QUOTE] == "approved"


async def test_menu_of_a_form_is_not_answered_on_a_home_tab(world: World, deal: Deal) -> None:
    await world.gestures.open_home("U0REP")
    homes = world.slack.views.homes
    await eventually(lambda: "U0REP" in homes, "the Home tab")
    menu = Found("b", {"type": "external_select", "action_id": CONTACT}, is_input=True, optional=True)
    payload = Payloads(world.slack).suggestion("U0REP", homes["U0REP"], menu, "kim")
    _, ack = await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
    assert ack.payload == {"options": []}
    assert [(found["code"], found["entry"]) for found in await refused(deal)] == [("foreign_click", "menu")]


async def test_form_opened_for_another_person_is_refused_with_an_error_in_it(world: World, deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(REJECT, user="U0MANAGER")
    (view,) = world.slack.views.stacks["U0MANAGER"]
    filled = {"values": {REASON: {REASON: {"type": "plain_text_input", "value": "too cheap"}}}}
    seals = Seals(load_keyring(deal.data_dir))
    carried = seals.opened("U0MANAGER", REJECT_CALLBACK, view.content["private_metadata"])
    assert carried is not None
    for user, metadata in (("U0VP", view.content["private_metadata"]), ("U0MANAGER", carried)):
        payload = Payloads(world.slack).view_submission(user, view)
        payload["view"] = {**payload["view"], "private_metadata": metadata, "state": filled}
        _, ack = await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
        assert ack.payload == {"response_action": "errors", "errors": {REASON: REFUSAL}}
    assert (await states(deal))[FIRST_QUOTE] == "pending_approval"


async def test_button_of_a_dead_letter_acts_on_its_own_ops_card_alone(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", ops_channel="C0OPS", operators=("U0OPERATOR",)) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "malformed", method="composite/graph", times=100)
        await deal.click(APPROVE, user="U0MANAGER")

        async def ops_cards() -> list[dict[str, Any]]:
            return [m for m in (await deal.get("state"))["messages"] if m["channel"] == "C0OPS" and m["blocks"]]

        await eventually(ops_cards, "the ops card")
        (ops,) = await ops_cards()
        await press(world, "U0OPERATOR", await deal.card(), RETRY, value_of(ops, RETRY))
        assert [found["code"] for found in await refused(deal)] == ["foreign_click"]
        await deal.clear_faults()
        await press(world, "U0OPERATOR", ops, RETRY, value_of(ops, RETRY))
        await deal.settled()
        assert len(await deal.crm()) == 1


async def test_change_in_a_form_opened_for_another_person_redraws_nothing(world: World, deal: Deal) -> None:
    await deal.complete(deal.slash())
    await deal.click(REVISE, user="U0REP")
    (view,) = world.slack.views.stacks["U0REP"]
    stamp = world.slack.clock.stamp()
    action = {"action_id": "discount", "block_id": "discount", "type": "plain_text_input", "action_ts": stamp, "value": "9"}
    payload = Payloads(world.slack).view_action("U0VP", view, action)
    await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
    assert [found["by"] for found in await refused(deal)] == ["U0VP"]
    assert await deal.witness("views.update") == []


async def test_cover_is_named_by_its_own_person_alone(world: World, deal: Deal) -> None:
    await world.gestures.open_home("U0MANAGER")
    homes = world.slack.views.homes
    await eventually(lambda: "U0MANAGER" in homes and COVER in str(homes["U0MANAGER"].content), "the Home tab")
    view = homes["U0MANAGER"]
    action = {"action_id": COVER, "block_id": "b", "type": "button", "action_ts": "1.1", "value": value_of(view.content, COVER)}
    for user in ("U0VP", "U0MANAGER"):
        payload = Payloads(world.slack).view_action(user, view, action)
        await world.courier.send("interactive", payload, accepts_response=True, on_ack=lambda ack: ack.error)
    (told,), (form,) = (world.slack.views.stacks[user] for user in ("U0VP", "U0MANAGER"))
    assert (REFUSAL in str(told.content), "callback_id" in told.content) == (True, False)
    _, ack = await world.courier.send(
        "interactive", Payloads(world.slack).view_submission("U0VP", form), accepts_response=True, on_ack=lambda ack: ack.error
    )
    assert ack.payload == {"response_action": "errors", "errors": {REASON: REFUSAL}}
    assert [found["by"] for found in await refused(deal)] == ["U0VP", "U0VP"]
    assert await deal.rows("SELECT * FROM delegations") == []


async def test_a_click_under_the_refusal_about_an_expired_quote_clones_it_once(world: World, deal: Deal) -> None:
    await deal.complete(deal.slash())
    card = await deal.card()
    value = Seals(load_keyring(deal.data_dir)).sealed("U0REP", CLONE, value_text(ButtonValue(FIRST_QUOTE, 1, None)))
    for _ in range(2):
        await press(world, "U0REP", card, CLONE, value, to="U0REP")
        await deal.settled()
    (row,) = await deal.rows("SELECT quote_id, state FROM quotes WHERE quote_id <> 'Q-2026-0001'")
    assert (row["quote_id"], row["state"]) == (SECOND_QUOTE, "priced")
    assert (await deal.whispers("U0REP"))[-1].startswith(f"You just created the same quote, {SECOND_QUOTE}.")


async def test_reminder_in_the_thread_shows_its_quote_and_takes_no_other_click(world: World, deal: Deal) -> None:
    await deal.submitted_deal()
    reminded = RemindApprover(f"A-{FIRST_QUOTE[2:]}-v1-1", 1)
    due = SystemClock().now_ms() + 3 * HOUR_MS
    async with open_ledger(settings_for(world, deal.data_dir)) as ledger:
        by = {
            "team_id": TEAM_ID,
            "source": "scheduler",
            "actor": "scheduler",
            "actor_type": "system",
            "received_at": due,
            "transport": {},
        }
        await ledger.reserve(request_for(reminded, "remind", quote_id=FIRST_QUOTE, version=1, **by))

    async def arrived() -> bool:
        return bool((await deal.replies())[-1]["blocks"])

    await eventually(arrived, "the reminder")
    reminder, card = (await deal.replies())[-1], await deal.card()
    shows = value_of(reminder, SHOW)

    async def shown() -> bool:
        await press(world, "U0MANAGER", reminder, SHOW, shows)  # a private answer is sent once, and not late
        return shown_to(world, "U0MANAGER")

    await eventually(shown, "the private card")
    assert await refused(deal) == []
    await press(world, "U0MANAGER", reminder, APPROVE, value_of(card, APPROVE))
    await press(world, "U0MANAGER", reminder, REMIND, value_of(card, REMIND))
    await press(world, "U0MANAGER", reminder, SHOW, shows.replace(FIRST_QUOTE, SECOND_QUOTE))
    await deal.settled()
    assert [found["code"] for found in await refused(deal)] == ["foreign_click"]
    assert await states(deal) == {FIRST_QUOTE: "pending_approval"}


def shown_to(world: World, user: str) -> bool:
    """Return whether a person was sent a private card on which they can approve."""
    return any(APPROVE in str(each.blocks) for each in world.slack.messages.all() if each.ephemeral_for == user)
