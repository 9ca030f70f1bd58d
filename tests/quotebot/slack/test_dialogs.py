"""Tests of buttons and forms in the running bot: a whole lifecycle by clicks, a form sent twice, a late click."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, value_text
from quotebot.views.card import ACCEPT, CANCEL_QUOTE, FINALIZE, LOSE, MORE, REVISE, SEND, SUBMIT
from quotebot.views.confirmations import FILL_IN, SHOW
from tests.quotebot.views.block_kit import message_problems
from tests.rig import FIRST_QUOTE, Deal

if TYPE_CHECKING:
    from quotebot.sandbox.world import World

OPERATIONS = "SELECT action_kind, outcome FROM operations ORDER BY id"


async def form(deal: Deal, user: str = "U0REP") -> dict[str, Any]:
    """Return the form that the person has open."""
    (view,) = [view for view in (await deal.get("state"))["views"] if view["user"] == user]
    found: dict[str, Any] = view
    return found


async def send(deal: Deal, user: str = "U0REP", **values: str) -> dict[str, Any]:
    """Fill in and send the form that the person has open."""
    view = await form(deal, user)
    answer: dict[str, Any] = await deal.post(
        "submit", user=user, view_id=view["view"]["id"], values={name: {name: value} for name, value in values.items()}
    )
    return answer


async def kinds(deal: Deal) -> list[str]:
    return [f"{row['action_kind']} {row['outcome']}" for row in await deal.rows(OPERATIONS)]


async def test_a_bare_new_opens_a_form_that_makes_one_quote_however_often_it_is_sent(deal: Deal) -> None:
    typed = await deal.slash("new")
    assert typed["ack"] == {}
    wrong = await send(deal, account="Acme", terms="150 prro", discount="much")
    assert set(wrong["ack"]["errors"]) == {"terms", "discount"}
    assert await kinds(deal) == []

    sent = await send(deal, account="Acme", terms="150 pro\n150 sso\n1 support", term="12m", discount="15")
    again = await deal.redeliver(sent["request_id"], "resend", 3)
    await deal.settled()
    assert [sent["ack"], *(ack["ack"] for ack in again)] == [{}, {}, {}, {}]
    assert (await deal.get("state"))["views"] == []
    assert await kinds(deal) == ["quote.create_by_form applied"]
    assert f"Quote {FIRST_QUOTE} for Acme" in (await deal.card())["text"]


async def test_a_form_sent_again_with_other_values_is_told_what_it_made(world: World, deal: Deal) -> None:
    await deal.slash("new")
    view = world.slack.views.stacks["U0REP"][-1]
    await send(deal, account="Acme", terms="5 pro")
    await deal.settled()
    world.slack.views.stacks["U0REP"] = [view]  # the answer was lost, so the person still sees it
    await send(deal, account="Acme", terms="6 pro")
    await deal.settled()
    assert await kinds(deal) == ["quote.create_by_form applied", "quote.create_by_form refused"]
    assert (await deal.whispers("U0REP"))[-1] == messages.already_created(FIRST_QUOTE)
    assert len(await deal.cards()) == 1


async def test_what_could_not_be_read_is_completed_in_a_form(deal: Deal) -> None:
    await deal.slash("new for Acme: 150 prro; term 24m")
    await deal.click_ephemeral(FILL_IN)
    blocks = (await form(deal))["view"]["blocks"]
    initial = {block["block_id"]: block["element"].get("initial_value") for block in blocks if block["type"] == "input"}
    typed = {name: value for name, value in initial.items() if value is not None}
    assert typed == {"account": "Acme", "discount": "0", "terms": "150 prro"}
    assert await kinds(deal) == []


async def test_a_shortcut_on_a_message_opens_the_form_with_what_the_message_says(deal: Deal) -> None:
    message = await deal.post("message", user="U0CFO", channel="C0DEALS", text="for Acme: 150 pro; discount 15%")
    await deal.post("shortcut", user="U0REP", callback_id="quote.from_message", channel="C0DEALS", message_ts=message["ts"])
    await send(deal)
    await deal.settled()
    assert await kinds(deal) == ["quote.create_by_form applied"]
    assert f"Quote {FIRST_QUOTE} for Acme: " in (await deal.card())["text"]


async def test_a_quote_lives_its_whole_life_by_clicks_alone(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    await deal.click(MORE, user="U0REP", value="Change discount")
    await send(deal, discount="8")
    await deal.settled()
    await deal.click(REVISE, user="U0REP")
    await send(deal, **{"row.2.quantity": ""}, term="24m")
    await deal.settled()
    for click in (SUBMIT, FINALIZE):
        await deal.click(click, user="U0REP")
        await deal.settled()
    await deal.click(SEND, user="U0REP")
    await send(deal, recipient="buyer@acme.example")
    await deal.settled()
    await deal.click(ACCEPT, user="U0MANAGER")
    await deal.settled()
    assert await kinds(deal) == [
        *("quote.create applied", "quote.revise applied", "quote.revise applied", "quote.submit applied"),
        *("quote.finalize applied", "quote.mark_sent applied", "quote.accept applied"),
    ]
    card = await deal.card()
    assert f"Quote {FIRST_QUOTE} v3 for Acme: 🏆 Won" in card["text"]
    assert message_problems(card["text"], card["blocks"]) == []
    assert "*Pro*" not in str(card["blocks"])
    await deal.click(SHOW, user="U0CFO")
    shown = [message for message in await deal.messages() if message["ephemeral_for"] == "U0CFO"][-1]
    assert "*Pro*" in str(shown["blocks"])
    assert (await deal.card())["blocks"] == card["blocks"]

    await deal.click(LOSE, user="U0REP", stale=True)  # a late clicker
    await deal.click(ACCEPT, user="U0REP", stale=True)
    await deal.settled()
    late = (await deal.whispers("U0REP"))[-2:]
    assert all(f"{FIRST_QUOTE} v3 was " in text and "marked as won by <@U0MANAGER>, " in text for text in late)


async def test_the_menu_cancels_a_quote_that_waits_and_a_form_asks_first(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(MORE, user="U0REP", value="Cancel quote")
    assert (await kinds(deal))[-1] == "quote.submit applied"
    await send(deal, reason="a double")
    await deal.settled()
    assert (await kinds(deal))[-1] == "quote.cancel applied"
    assert "🚫 Canceled" in await deal.card_text()
    assert "a double" in await deal.card_text()


async def test_a_click_on_an_older_version_is_told_the_newer_one_and_refreshes_the_card(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    await deal.slash(f"revise {FIRST_QUOTE}: discount 8%")
    await deal.settled()
    before = len(await deal.witness("chat.update"))
    first = value_text(ButtonValue(FIRST_QUOTE, 1, None))
    await deal.click(CANCEL_QUOTE, user="U0REP", value=first)
    await deal.click(REVISE, user="U0REP", value=first)
    await deal.settled()
    said = await deal.whispers("U0REP")
    assert any(f"v1 of {FIRST_QUOTE} was replaced by v2" in text for text in said)
    assert any(f"{FIRST_QUOTE} changed since you opened v1: it's now v2" in text for text in said)
    assert len(await deal.witness("chat.update")) > before
    assert (await deal.get("state"))["views"] == []


async def test_the_menu_explains_in_private_and_refreshes_by_an_operation(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    before = len(await deal.witness("chat.update"))
    await deal.click(MORE, user="U0CFO", value="How pricing works")
    assert (await deal.whispers("U0CFO"))[-1].startswith(f"*{FIRST_QUOTE} v1*\n")
    clicked = await deal.click(MORE, user="U0CFO", value="Refresh")
    await deal.redeliver(clicked["request_id"], "retry", 2)
    await deal.settled()
    assert await kinds(deal) == ["quote.create applied", "quote.refresh applied"]
    assert len(await deal.witness("chat.update")) == before + 1


async def test_a_form_that_slack_does_not_open_is_said_and_nothing_is_recorded(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    await deal.arm("slack", "5xx", method="views.open", times=2)
    assert (await deal.slash("new"))["ack"]["text"] == messages.FORM_NOT_OPENED
    await deal.click(REVISE, user="U0REP")
    assert (await deal.whispers("U0REP"))[-1] == messages.FORM_NOT_OPENED
    assert await kinds(deal) == ["quote.create applied"]
