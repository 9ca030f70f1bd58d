"""Tests of menus with options from the app, through Bolt and through a bare socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.sandbox.conftest import Hand, bolt_app, client_of, running, wired

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.sandbox.world import World

ACCOUNTS = ("Acme Corp", "Acme Labs", "Globex")
MENU = {"type": "external_select", "action_id": "account", "min_query_length": 2}
CARD = [{"type": "section", "block_id": "b", "text": {"type": "mrkdwn", "text": "Which?"}, "accessory": MENU}]


def option(name: str) -> dict[str, Any]:
    return {"text": {"type": "plain_text", "text": name}, "value": name.lower()}


def app_with_accounts(world: World) -> AsyncApp:
    app = bolt_app(world)

    @app.options("account")
    async def look_up(ack: Any, payload: dict[str, Any]) -> None:
        await ack(options=[option(name) for name in ACCOUNTS if payload["value"].lower() in name.lower()])

    @app.action("account")
    async def chosen(ack: Any, action: dict[str, Any], say: Any) -> None:
        await ack()
        await say(f"Chosen: {action['selected_option']['value']}")

    return app


async def test_a_menu_shows_what_the_app_found_and_one_of_it_can_be_chosen(world: World, hand: Hand) -> None:
    posted = await client_of(world).chat_postMessage(channel="C0DEALS", text="Which?", blocks=CARD)
    place = {"user": "U0REP", "channel": "C0DEALS", "message_ts": posted["ts"], "action_id": "account"}
    async with running(app_with_accounts(world), world):
        found = await hand.post("suggest", **place, value="acme")
        assert [each["value"] for each in found["options"]] == ["acme corp", "acme labs"]
        assert (await hand.post("suggest", **place, value="nobody"))["options"] == []
        await hand.post("action", **place, value={"selected_option": found["options"][0]})
        async with asyncio.timeout(60):
            while "Chosen: acme corp" not in await hand.texts():
                await world.slack.changes.after(world.slack.changes.version, 0.5)


async def test_too_few_characters_are_not_sent(world: World, hand: Hand) -> None:
    posted = await client_of(world).chat_postMessage(channel="C0DEALS", text="Which?", blocks=CARD)
    place = {"user": "U0REP", "channel": "C0DEALS", "message_ts": posted["ts"], "action_id": "account"}
    assert (await hand.post("suggest", **place, value="a"))["request_id"] is None
    assert (await hand.post("suggest", **place, value="ac"))["error"] == "dispatch_failed"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "neither options nor option_groups"),
        ({"options": [option("x")] * 101}, "more than 100 options"),
        ({"options": [option("x" * 76)]}, "1 to 75 characters"),
        ({"options": [{**option("x"), "value": "x" * 151}]}, "more than 150 characters"),
        ({"option_groups": [{"label": {}, "options": ["x"]}]}, "a text object and a value"),
        ({"option_groups": [{"label": {}, "options": [option("x")]}]}, ""),
    ],
)
async def test_an_answer_slack_cannot_show_is_no_answer(world: World, hand: Hand, answer: dict[str, Any], words: str) -> None:
    view = {"type": "modal", "title": {"type": "plain_text", "text": "New"}, "submit": {"type": "plain_text", "text": "Make"}}
    field = {"type": "input", "block_id": "b", "label": {"type": "plain_text", "text": "Account"}, "element": MENU}
    trigger = world.slack.passes.trigger("U0REP")
    opened = await client_of(world).views_open(trigger_id=trigger, view={**view, "blocks": [field]})
    async with wired(world, hand) as wire:
        place = {"user": "U0REP", "view_id": opened["view"]["id"], "action_id": "account"}
        asked = asyncio.ensure_future(hand.post("suggest", **place, value="acme"))
        envelope = await wire.envelope()
        payload = envelope["payload"]
        assert (payload["type"], payload["value"], payload["block_id"]) == ("block_suggestion", "acme", "b")
        assert "trigger_id" not in payload
        assert envelope["accepts_response_payload"]
        await wire.ack(envelope, answer)
        found = await asked
    assert words in found.get("error", "")
    assert len(found["options"]) == (0 if words else 1)


async def test_a_menu_with_options_of_its_own_is_not_looked_up(world: World, hand: Hand) -> None:
    own = {"type": "static_select", "action_id": "account", "options": [option("x")]}
    posted = await client_of(world).chat_postMessage(channel="C0DEALS", text="?", blocks=[{**CARD[0], "accessory": own}])
    place = {"user": "U0REP", "channel": "C0DEALS", "message_ts": posted["ts"], "action_id": "account"}
    assert "its options are its own" in (await hand.post("suggest", **place, value="acme", expect=400))["error"]
