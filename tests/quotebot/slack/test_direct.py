"""Tests of direct messages to the bot: read like a mention, confirmed in a form with the channel, never a change by themselves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import CreateQuote
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.pricing.price_requests import Changes, PriceRequest
from quotebot.execution.membership import is_direct
from quotebot.slack.drafts import draft_of_creation
from quotebot.views import help_messages
from quotebot.views import messages as words
from quotebot.views.builder import Draft, create_form
from quotebot.views.confirmations import CREATE_ANOTHER, REPAIR
from tests.quotebot.parts import create_command
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import RULESET
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.sandbox.world import World

DIRECT = "D0REP"
OPERATIONS = "SELECT action_kind, outcome FROM operations ORDER BY id"


async def write(deal: Deal, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = await deal.post("message", user="U0REP", channel=DIRECT, text=text)
    return answer


async def said(deal: Deal) -> list[dict[str, Any]]:
    """Return the bot's messages in the direct conversation."""
    messages = (await deal.get("state"))["messages"]
    return [each for each in messages if each["channel"] == DIRECT and each["bot_id"] and each["ephemeral_for"] == "U0REP"]


async def kinds(deal: Deal) -> list[str]:
    return [f"{row['action_kind']} {row['outcome']}" for row in await deal.rows(OPERATIONS)]


async def test_direct_message_is_proposed_once_and_its_form_asks_for_the_channel(deal: Deal) -> None:
    written = await write(deal, "Globex needs 150 profesional seats for two years, 10% off")
    await deal.redeliver(written["request_id"], "retry", 2)
    await deal.settled()
    assert await kinds(deal) == ["quote.propose applied"]
    (proposal,) = await said(deal)
    assert proposal["text"].startswith("*New quote for Globex?* 24 months · 10% off\n• 150 \u00d7 Pro ")
    assert await deal.cards() == []

    await deal.post("action", user="U0REP", channel=DIRECT, message_ts=proposal["ts"], action_id=CREATE_ANOTHER)
    await deal.settled()
    assert await kinds(deal) == ["quote.propose applied"]  # the click opened a form
    (view,) = (await deal.get("state"))["views"]
    shown = {block["block_id"]: block["element"] for block in view["view"]["blocks"] if block["type"] == "input"}
    filled = [shown[name]["initial_value"] for name in ("account", "row.0.quantity", "row.1.quantity", "discount") if name in shown]
    assert filled == ["Globex", "150", "10"]
    assert shown["term"]["initial_option"]["value"] == "24m"
    values = {"channel": {"channel": "C0DEALS"}}
    await deal.post("submit", user="U0REP", view_id=view["view"]["id"], values=values)
    await deal.settled()
    assert await kinds(deal) == ["quote.propose applied", "quote.create_by_form applied"]
    assert f"Quote {FIRST_QUOTE} for Globex: " in (await deal.card())["text"]


async def test_two_forms_of_one_correction_create_one_quote(deal: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotebot.handlers.quotes.RESUBMISSION_MS", 0)
    await write(deal, "new for Acme: 150 prro")
    (refused,) = await said(deal)
    for _ in range(2):
        await deal.post("action", user="U0REP", channel=DIRECT, message_ts=refused["ts"], action_id=REPAIR)
        (view,) = (await deal.get("state"))["views"]
        await deal.post("submit", user="U0REP", view_id=view["view"]["id"], values={"channel": {"channel": "C0DEALS"}})
        await deal.settled()
    assert await kinds(deal) == ["quote.create_by_form applied", "quote.create_by_form refused"]


async def test_number_and_reason_of_slacks_retry_are_kept_with_the_delivery(deal: Deal) -> None:
    written = await write(deal, "Globex needs 150 professional seats")
    await deal.settled()
    first = json.loads((await deal.rows("SELECT transport FROM deliveries"))[0]["transport"])
    assert "retry_attempt" not in first
    await deal.redeliver(written["request_id"], "retry", 1)
    duplicates = "SELECT after FROM audit_events WHERE event_type = 'delivery.duplicate'"
    await eventually(lambda: deal.rows(duplicates), "the duplicate in the audit")
    (event,) = await deal.rows(duplicates)
    retry = {"retry_attempt": 1, "retry_reason": "timeout"}
    assert json.loads(event["after"]) == retry
    (delivery,) = await deal.rows("SELECT seen, transport FROM deliveries")
    assert (delivery["seen"], json.loads(delivery["transport"])) == (2, {**first, **retry})


async def test_confirmed_proposal_in_a_form_is_exactly_the_quote(deal: Deal) -> None:
    await write(deal, "new for Globex: 60 pro, 5 sso; term 24m; discount 5%; currency EUR; tax DE; terms liability_cap, net_60")
    await deal.settled()
    (proposal,) = await said(deal)
    assert "• Tax of DE (estimated): " in proposal["text"]
    assert "• Special terms: liability cap, net 60" in proposal["text"]
    (total,) = re.findall(r"\*Total (€[\d,.]+)\* before tax", proposal["text"])
    await deal.post("action", user="U0REP", channel=DIRECT, message_ts=proposal["ts"], action_id=CREATE_ANOTHER)
    (view,) = (await deal.get("state"))["views"]
    await deal.post("submit", user="U0REP", view_id=view["view"]["id"], values={"channel": {"channel": "C0DEALS"}})
    await deal.settled()
    (pricing,) = [json.loads(row["pricing"]) for row in await deal.rows("SELECT pricing FROM quote_versions")]
    asked = {name: value for name, value in pricing["request"].items() if name not in ("priced_on", "lines")}
    assert asked == {
        "term_months": 24,
        "requested_discount_percent": "5",
        "currency": "EUR",
        "region": "DE",
        "with_tax": True,
        "terms": ["liability_cap", "net_60"],
    }
    card = await deal.card_text()
    assert total in card
    assert "Legal" in card


async def test_proposal_too_long_for_a_form_opens_none(deal: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotebot.views.builder.TEXT_CHARACTERS_MAX", 4)
    monkeypatch.setattr("quotebot.views.builder_fields.ROWS_MAX", 1)
    await write(deal, "new for Globex: 60 pro, 5 sso")
    await deal.settled()
    (proposal,) = await said(deal)
    await deal.post("action", user="U0REP", channel=DIRECT, message_ts=proposal["ts"], action_id=CREATE_ANOTHER)
    assert (await deal.get("state"))["views"] == []
    assert (await said(deal))[-1]["text"] == words.TOO_LONG_FOR_FORM


async def test_what_the_model_read_is_confirmed_in_the_same_form(world: World, tmp_path: Path) -> None:
    model: dict[str, Any] = {name.removeprefix("QUOTEBOT_").lower(): value for name, value in world.model_environment().items()}
    async with bot_in(world, tmp_path / "bot", **model) as deal:
        await write(deal, "150 pro for Globex, 2 years, they sign soon")
        await deal.settled()
        assert await kinds(deal) == ["message.read applied", "message.answer applied"]
        (proposal,) = await said(deal)
        assert "AI-read." in proposal["text"]
        for lines in ("", "5 sso"):  # a form can be opened again, and makes no second quote
            await deal.post("action", user="U0REP", channel=DIRECT, message_ts=proposal["ts"], action_id=CREATE_ANOTHER)
            (view,) = (await deal.get("state"))["views"]
            assert "*Pro* \u00d7 150" in str(view["view"]["blocks"])
            values = {"channel": {"channel": "C0DEALS"}, "terms": {"terms": lines}}
            await deal.post("submit", user="U0REP", view_id=view["view"]["id"], values=values)
            await deal.settled()
        assert (await kinds(deal))[2:] == ["quote.create_by_form applied", "quote.create_by_form refused"]
        assert (await deal.whispers("U0REP"))[-1] == words.already_created(FIRST_QUOTE)
        assert len(await deal.cards()) == 1


async def test_what_is_no_request_is_answered_there_and_changes_nothing(deal: Deal, world: World) -> None:
    await deal.slash()
    await deal.settled()
    answers: dict[str, str] = {
        "hello there": help_messages.HELLO,
        "help": help_messages.help_text(),
        "list": f"• *{FIRST_QUOTE}* v1",
        f"status {FIRST_QUOTE}": f"Quote {FIRST_QUOTE} for Acme: ",
        f"submit {FIRST_QUOTE}": words.BY_COMMAND_ONLY,
        "150 pro for Acme with 10% discount, no, make that 12% off": "Which discount: 10% discount / 12% off?",
    }
    for text, answer in answers.items():
        await write(deal, text)
        assert answer in (await said(deal))[-1]["text"], text
    typed = await deal.slash("new for Acme: 150 pro", channel=DIRECT)
    assert typed["ack"]["text"] == words.CHOOSE_CHANNEL
    before = len(await said(deal))
    for event in (
        {"subtype": "message_changed", "message": {"text": "new for Acme: 5 pro", "user": "U0REP"}},
        {"subtype": "message_deleted"},
        {"text": "new for Acme: 5 pro", "user": "U0REP", "bot_id": "B0OTHER"},
        {"text": "new for Acme: 5 pro"},
        {"text": "new for Acme: 5 pro", "user": "U0REP", "channel": "C0DEALS", "channel_type": "channel"},
    ):
        told = {"type": "message", "channel": DIRECT, "channel_type": "im", "ts": "1.2", "event_ts": "1.2", **event}
        _, ack = await world.courier.raise_event(told)
        assert ack.payload is not None, event
    await deal.settled()
    assert len(await said(deal)) == before
    assert await kinds(deal) == ["quote.create applied"]


@pytest.mark.parametrize(("channel", "direct"), [("D0REP", True), ("C0DEALS", False), ("G0DEALS", False), (None, False)])
def test_a_conversation_of_two_is_told_by_its_id(channel: str | None, direct: bool) -> None:  # noqa: FBT001 -- a case
    assert is_direct(channel) is direct


def test_a_form_takes_over_all_it_has_a_field_for() -> None:
    lines = (LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1))
    assert draft_of_creation(create_command()) == Draft("Acme", lines, "12m", "15")
    euros = CreateQuote(
        "Acme", PriceRequest((LineRequest("pro", 5),), 24, create_command().request.discount_percent, "EUR"), "D0REP"
    )
    form = create_form(None, RULESET, draft_of_creation(euros))
    assert view_problems(form) == []
    taxed = replace(euros.request, region="DE", with_tax=True, terms=("net_60",))
    assert draft_of_creation(replace(euros, request=taxed)).more == Changes(region="DE", with_tax=True, terms=("net_60",))
    (currency,) = [block["element"] for block in form["blocks"] if block["block_id"] == "currency"]
    assert currency["initial_option"]["value"] == "EUR"
