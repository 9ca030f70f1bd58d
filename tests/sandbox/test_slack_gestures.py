"""Tests of clicks, forms and response URLs, from the person's side and the bot's."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.webhook.async_client import AsyncWebhookClient

from tests.sandbox.conftest import Hand, Wire, bolt_app, client_of, eventually, running, sightings, wired
from tests.sandbox.test_slack_web_api import refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientSession
    from slack_sdk.web.async_client import AsyncWebClient

    from quotebot.sandbox.world import World

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def button(action_id: str, value: str) -> Json:
    return {"type": "button", "text": plain(action_id), "action_id": action_id, "value": value, "style": "primary"}


def option(value: str) -> Json:
    return {"text": plain(value.upper()), "value": value}


CARD: list[Json] = [
    {"type": "section", "text": plain("Quote")},
    {"type": "actions", "block_id": "decide", "elements": [button("approve", "Q-1|3"), button("reject", "Q-1|3")]},
]
FORM: Json = {
    "type": "modal",
    "callback_id": "reject",
    "title": plain("Reject"),
    "submit": plain("Send"),
    "private_metadata": "Q-1|3",
    "blocks": [
        {
            "type": "input",
            "block_id": "reason",
            "label": plain("Reason"),
            "element": {"type": "plain_text_input", "action_id": "text"},
        },
        {
            "type": "input",
            "block_id": "kind",
            "optional": True,
            "label": plain("Kind"),
            "element": {
                "type": "static_select",
                "action_id": "pick",
                "options": [option("price"), option("term")],
                "initial_option": option("price"),
            },
        },
    ],
}


@pytest.fixture
async def wire(world: World, hand: Hand) -> AsyncIterator[Wire]:
    """Yield a bare client whose hello has been read."""
    async with wired(world, hand) as opened:
        await opened.next()
        yield opened


async def card(client: AsyncWebClient) -> str:
    return str((await client.chat_postMessage(channel="C0DEALS", text="Quote", blocks=CARD))["ts"])


async def gesture(wire: Wire, doing: Any, answer: Json | None = None) -> tuple[Json, Json]:
    """Make a gesture, ack its envelope, and return (payload, answer to the person's call)."""
    task = asyncio.ensure_future(doing)
    envelope = await wire.envelope()
    await wire.ack(envelope, answer)
    return envelope["payload"], await task


async def open_form(wire: Wire, hand: Hand, client: AsyncWebClient, form: Json = FORM) -> Json:
    """Type a command and open a form with its trigger."""
    payload, _ = await gesture(wire, hand.slash("reject"))
    view: Json = (await client.views_open(trigger_id=payload["trigger_id"], view=form))["view"]
    return view


async def test_a_click_carries_its_button_its_message_and_a_trigger(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    ts = await card(client)
    click = hand.post("action", user="U0VP", channel="C0DEALS", message_ts=ts, action_id="approve")
    payload, answer = await gesture(wire, click)
    assert answer["ack"] == {}
    assert payload["type"] == "block_actions"
    assert payload["user"]["id"] == "U0VP"
    assert payload["container"] == {"type": "message", "message_ts": ts, "channel_id": "C0DEALS", "is_ephemeral": False}
    (action,) = payload["actions"]
    assert (action["type"], action["action_id"], action["block_id"], action["value"]) == ("button", "approve", "decide", "Q-1|3")
    assert payload["message"]["blocks"][1]["block_id"] == "decide"
    assert payload["trigger_id"]
    assert "/hooks/actions/" in payload["response_url"]


async def test_bolt_answers_a_click_by_updating_the_card(world: World, hand: Hand, client: AsyncWebClient) -> None:
    app = bolt_app(world)

    @app.action("approve")
    async def approve(ack: Any, respond: Any) -> None:
        await ack()
        await respond(text="approved", replace_original=True)

    ts = await card(client)
    async with running(app, world):
        await hand.post("action", user="U0VP", channel="C0DEALS", message_ts=ts, action_id="approve")
        await eventually(lambda: world.slack.messages.all()[0].text == "approved", world)
    (message,) = await hand.messages()
    assert (message["ts"], message["blocks"]) == (ts, [])


async def test_a_click_without_an_ack_leaves_a_mark_until_one_succeeds(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    ts = await card(client_of(impatient))
    click = functools.partial(hand.post, "action", user="U0VP", channel="C0DEALS", message_ts=ts, action_id="approve")
    assert (await click())["error"] == "dispatch_failed"
    assert (await hand.messages())[0]["error"] == "dispatch_failed"
    async with wired(impatient, hand) as wire:
        assert (await click())["error"] == "operation_timeout"
        await wire.envelope()
        await gesture(wire, click())
    assert (await hand.messages())[0]["error"] is None


async def test_an_unknown_message_or_button_says_what_there_is(hand: Hand, client: AsyncWebClient) -> None:
    ts = await card(client)
    click = functools.partial(hand.post, "action", user="U0VP", channel="C0DEALS", expect=404)
    answer = await click(message_ts="1.000001", action_id="approve")
    assert ts in answer["error"]
    answer = await click(message_ts=ts, action_id="shred")
    assert "approve (block decide), reject (block decide)" in answer["error"]
    answer = await click(view_id="V0NONE", action_id="approve")
    assert "no view 'V0NONE' open; open are: none" in answer["error"]


async def test_a_late_clicker_reaches_a_button_an_update_took_away(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    ts = await card(client)
    await client.chat_update(channel="C0DEALS", ts=ts, text="decided")
    body: Json = {"user": "U0VP", "channel": "C0DEALS", "message_ts": ts, "action_id": "approve"}
    await hand.post("action", expect=404, **body)
    payload, _ = await gesture(wire, hand.post("action", stale=True, **body))
    assert payload["actions"][0]["value"] == "Q-1|3"
    assert payload["message"]["text"] == "decided"


async def test_an_ephemeral_card_belongs_to_one_person(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    ts = (await client.chat_postEphemeral(channel="C0DEALS", user="U0REP", text="Quote", blocks=CARD))["message_ts"]
    body: Json = {"channel": "C0DEALS", "message_ts": ts, "action_id": "approve"}
    await hand.post("action", user="U0VP", expect=404, **body)
    payload, _ = await gesture(wire, hand.post("action", user="U0REP", **body))
    assert payload["container"]["is_ephemeral"] is True
    assert "message" not in payload


async def test_a_form_is_opened_filled_in_and_submitted_through_bolt(world: World, hand: Hand, client: AsyncWebClient) -> None:
    app = bolt_app(world)
    submitted: list[Json] = []

    @app.command("/quote")
    async def quote(ack: Any, body: Any, client: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=FORM)

    @app.view("reject")
    async def rejected(ack: Any, view: Any) -> None:
        submitted.append(view)
        if view["state"]["values"]["reason"]["text"]["value"] == "no":
            await ack(response_action="errors", errors={"reason": "Say more than no."})
        else:
            await ack()

    async with running(app, world):
        await hand.slash("reject")
        await eventually(lambda: "U0REP" in world.slack.views.stacks, world)
        (opened,) = (await hand.get("state"))["views"]
        view_id = opened["view"]["id"]
        answer = await hand.post("submit", user="U0REP", view_id=view_id, values={"reason": {"text": "no"}})
        assert answer["ack"]["response_action"] == "errors"
        assert (await hand.get("state"))["views"][0]["errors"] == {"reason": "Say more than no."}
        values = {"reason": {"text": "Too cheap"}, "kind": {"pick": "term"}}
        await hand.post("submit", user="U0REP", view_id=view_id, values=values)
    assert (await hand.get("state"))["views"] == []
    assert submitted[1]["state"]["values"] == {
        "reason": {"text": {"type": "plain_text_input", "value": "Too cheap"}},
        "kind": {"pick": {"type": "static_select", "selected_option": option("term")}},
    }
    assert submitted[1]["private_metadata"] == "Q-1|3"
    assert submitted[0]["hash"] == submitted[1]["hash"]


async def test_a_required_field_left_empty_never_reaches_the_bot(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    view = await open_form(wire, hand, client)
    answer = await hand.post("submit", user="U0REP", view_id=view["id"], values={})
    assert answer["error"] == "required_fields_missing"
    assert list((await hand.get("state"))["views"][0]["errors"]) == ["reason"]
    assert len(sightings(hand.world, "ack")) == 1


async def test_a_submission_without_an_ack_keeps_the_form_open_with_a_notice(impatient: World, session: ClientSession) -> None:
    hand, client = Hand(impatient, session), client_of(impatient)
    async with wired(impatient, hand) as wire:
        view = await open_form(wire, hand, client)
        values = {"reason": {"text": "Too cheap"}}
        answer = await hand.post("submit", user="U0REP", view_id=view["id"], values=values)
        assert answer["error"] == "operation_timeout"
        first = await wire.envelope()
        assert (await hand.get("state"))["views"][0]["errors"] == {"": "We had some trouble connecting. Try again?"}
        payload, _ = await gesture(wire, hand.post("submit", user="U0REP", view_id=view["id"], values={}))
    assert payload["view"] == first["payload"]["view"]  # the person pressed again: same form, same hash, same values
    assert payload["trigger_id"] != first["payload"]["trigger_id"]
    assert (await hand.get("state"))["views"] == []


async def test_answers_to_a_form_update_push_and_clear_it(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    view = await open_form(wire, hand, client)
    values = {"reason": {"text": "Too cheap"}}
    second = {**FORM, "title": plain("Second")}

    def submit(view_id: str) -> Any:
        return hand.post("submit", user="U0REP", view_id=view_id, values=values)

    await gesture(wire, submit(view["id"]), {"response_action": "update", "view": second})
    (updated,) = (await hand.get("state"))["views"]
    assert (updated["view"]["id"], updated["view"]["title"]["text"]) == (view["id"], "Second")
    assert updated["view"]["hash"] != view["hash"]
    await gesture(wire, submit(view["id"]), {"response_action": "push", "view": FORM})
    pushed = (await hand.get("state"))["views"][-1]["view"]
    assert (pushed["root_view_id"], pushed["previous_view_id"]) == (view["id"], view["id"])
    await gesture(wire, submit(pushed["id"]), {"response_action": "clear"})
    assert (await hand.get("state"))["views"] == []


@pytest.mark.parametrize(
    "answer",
    [
        {"response_action": "errors", "errors": {"nowhere": "x"}},
        {"response_action": "update", "view": {"type": "modal"}},
        {"response_action": "dance"},
    ],
)
async def test_a_wrong_answer_to_a_form_keeps_it_open(wire: Wire, hand: Hand, client: AsyncWebClient, answer: Json) -> None:
    view = await open_form(wire, hand, client)
    values = {"reason": {"text": "Too cheap"}}
    _, outcome = await gesture(wire, hand.post("submit", user="U0REP", view_id=view["id"], values=values), answer)
    assert outcome["error"].startswith("invalid_")
    assert (await hand.get("state"))["views"][0]["errors"] == {"": "We had some trouble connecting. Try again?"}


async def test_a_trigger_opens_one_form_within_three_seconds(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    payload, _ = await gesture(wire, hand.slash("reject"))
    trigger_id = payload["trigger_id"]
    # A form that Slack cannot show is refused before the trigger is checked, so the trigger stays valid.
    answer = await refused(client.views_open(trigger_id=trigger_id, view={**FORM, "title": plain("x" * 25)}))
    assert answer["error"] == "invalid_arguments"
    await client.views_open(trigger_id=trigger_id, view=FORM)
    assert (await refused(client.views_open(trigger_id=trigger_id, view=FORM)))["error"] == "exchanged_trigger_id"
    payload, _ = await gesture(wire, hand.slash("reject"))
    await hand.post("clock", offset_seconds=3.1)
    assert (await refused(client.views_open(trigger_id=payload["trigger_id"], view=FORM)))["error"] == "expired_trigger_id"
    assert (await refused(client.views_open(trigger_id="1.2.3", view=FORM)))["error"] == "invalid_trigger_id"


async def test_views_stack_three_high(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    await open_form(wire, hand, client)
    for _ in range(2):
        payload, _ = await gesture(wire, hand.slash("more"))
        await client.views_push(trigger_id=payload["trigger_id"], view=FORM)
    payload, _ = await gesture(wire, hand.slash("more"))
    answer = await refused(client.views_push(trigger_id=payload["trigger_id"], view=FORM))
    assert answer["error"] == "push_limit_reached"


async def test_an_update_under_an_old_hash_is_refused(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    view = await open_form(wire, hand, client)
    fresh = (await client.views_update(view_id=view["id"], hash=view["hash"], view=FORM))["view"]
    answer = await refused(client.views_update(view_id=view["id"], hash=view["hash"], view=FORM))
    assert answer["error"] == "hash_conflict"
    assert (await client.views_update(view_id=view["id"], hash=fresh["hash"], view=FORM))["ok"] is True
    assert (await refused(client.views_update(view_id="V0NONE", view=FORM)))["error"] == "not_found"


async def test_an_external_id_is_unique_while_open(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    named = {**FORM, "external_id": "one"}
    await open_form(wire, hand, client, named)
    payload, _ = await gesture(wire, hand.slash("more"))
    answer = await refused(client.views_push(trigger_id=payload["trigger_id"], view=named))
    assert answer["error"] == "duplicate_external_id"
    assert (await client.views_update(external_id="one", view=named))["ok"] is True


async def test_a_choice_inside_a_form_is_a_block_action_with_the_forms_state(
    wire: Wire, hand: Hand, client: AsyncWebClient
) -> None:
    view = await open_form(wire, hand, client)
    body: Json = {"user": "U0REP", "view_id": view["id"], "action_id": "pick"}
    answer = await hand.post("action", expect=404, value="colour", **body)
    assert "'pick' has no option 'colour'; it has: 'price', 'term'" in answer["error"]
    typed = {"reason": {"text": "so far"}}
    payload, _ = await gesture(wire, hand.post("action", value="term", values=typed, **body))
    assert payload["container"] == {"type": "view", "view_id": view["id"]}
    assert payload["actions"][0]["selected_option"] == option("term")
    state = payload["view"]["state"]["values"]
    assert state["kind"]["pick"]["selected_option"] == option("term")
    assert state["reason"]["text"]["value"] == "so far"
    assert "response_url" not in payload


async def test_closing_a_form_is_told_only_when_asked_for(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    view = await open_form(wire, hand, client)
    assert (await hand.post("close", user="U0REP", view_id=view["id"]))["request_id"] is None
    view = await open_form(wire, hand, client, {**FORM, "notify_on_close": True})
    payload, _ = await gesture(wire, hand.post("close", user="U0REP", view_id=view["id"]))
    assert (payload["type"], payload["is_cleared"]) == ("view_closed", False)
    assert (await hand.get("state"))["views"] == []


async def test_a_message_shortcut_carries_the_message(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    ts = await card(client)
    body: Json = {"user": "U0REP", "callback_id": "quote_this"}
    payload, _ = await gesture(wire, hand.post("shortcut", channel="C0DEALS", message_ts=ts, **body))
    assert (payload["type"], payload["callback_id"], payload["message"]["ts"]) == ("message_action", "quote_this", ts)
    payload, _ = await gesture(wire, hand.post("shortcut", **body))
    assert payload["type"] == "shortcut"


async def test_a_response_url_works_five_times_in_half_an_hour(wire: Wire, hand: Hand) -> None:
    payload, _ = await gesture(wire, hand.slash("new"))
    webhook = AsyncWebhookClient(payload["response_url"], retry_handlers=[])
    for number in range(5):
        assert (await webhook.send(text=f"answer {number}")).status_code == 200
    spent = await webhook.send(text="one too many")
    assert (spent.status_code, json.loads(spent.body)["error"]) == (404, "used_url")
    payload, _ = await gesture(wire, hand.slash("new"))
    await hand.post("clock", offset_seconds=1801)
    spent = await AsyncWebhookClient(payload["response_url"], retry_handlers=[]).send(text="late")
    assert (spent.status_code, json.loads(spent.body)["error"]) == (404, "expired_url")
    assert len(await hand.messages()) == 5
    assert all(message["ephemeral_for"] == "U0REP" for message in await hand.messages())
    calls = sightings(hand.world, "response_url")
    assert [call.status for call in calls] == [200] * 5 + ["used_url", "expired_url"]
    assert all(call.key and call.key in payload["response_url"] for call in calls[6:])


async def test_a_response_url_answers_replaces_and_deletes(wire: Wire, hand: Hand, client: AsyncWebClient) -> None:
    ts = await card(client)
    payload, _ = await gesture(wire, hand.post("action", user="U0VP", channel="C0DEALS", message_ts=ts, action_id="approve"))
    webhook = AsyncWebhookClient(payload["response_url"], retry_handlers=[])
    await webhook.send(text="only for you")
    await webhook.send(text="for all", response_type="in_channel")
    await webhook.send(text="new text", replace_original=True)
    assert [(m["text"], m["ephemeral_for"]) for m in await hand.messages()] == [
        ("new text", None),
        ("only for you", "U0VP"),
        ("for all", None),
    ]
    await webhook.send(delete_original=True)
    assert await hand.texts() == ["only for you", "for all"]
    refusal = await webhook.send(text="x", blocks=[{"type": "hologram"}])
    assert (refusal.status_code, json.loads(refusal.body)["error"]) == (400, "invalid_blocks")


async def test_link_to_a_registered_domain_is_told_while_written_and_once_sent(wire: Wire, hand: Hand) -> None:
    hand.world.slack.unfurl_domains = frozenset({"acme.example"})
    heard: list[Json] = []

    async def answer() -> None:
        for _ in range(3):
            envelope = await wire.envelope()
            heard.append(envelope["payload"]["event"])
            await wire.ack(envelope)

    link = "https://crm.acme.example/r/1"
    sent, _ = await asyncio.gather(
        hand.post("message", user="U0REP", channel="C0DEALS", text=f"see {link} and https://else.example/"), answer()
    )
    links = [{"domain": "acme.example", "url": link}]
    drafted, told = (event for event in heard if event["type"] == "link_shared")
    assert (drafted["source"], drafted["channel"], drafted["links"]) == ("composer", "COMPOSER", links)
    assert drafted["message_ts"] == drafted["unfurl_id"]
    assert {name: told[name] for name in ("channel", "message_ts", "source", "links", "user", "is_bot_user_member")} == {
        "channel": "C0DEALS",
        "message_ts": sent["ts"],
        "source": "conversations_history",
        "links": links,
        "user": "U0REP",
        "is_bot_user_member": True,
    }
