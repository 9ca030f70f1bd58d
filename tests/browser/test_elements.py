"""Tests of every element of cards and forms, by mouse and by keyboard: the payloads that the bot receives, and refusals."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.sandbox.world import World
from tests.browser.conftest import PATIENCE_MS
from tests.browser.test_page import enter, message, plain, say
from tests.browser.test_stories import NAMELESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SECONDS = PATIENCE_MS / 1000


def options(*values: str) -> list[dict[str, Any]]:
    return [{"text": plain(value.capitalize()), "value": value} for value in values]


def labelled(label: str, element: dict[str, Any], **more: Any) -> dict[str, Any]:
    name = label.lower()
    return {"type": "input", "block_id": name, "label": plain(label), "element": {"action_id": name, **element}, **more}


SURE = {"title": plain("Sure?"), "text": plain("Really?"), "confirm": plain("Yes"), "deny": plain("No")}
CARD: list[dict[str, Any]] = [
    {
        "type": "section",
        "text": plain("A card"),
        "accessory": {"type": "users_select", "action_id": "who", "placeholder": plain("Who")},
    },
    {
        "type": "actions",
        "elements": [
            {"type": "button", "action_id": "form", "text": plain("Open the form")},
            {"type": "overflow", "action_id": "more", "options": options("copy", "cancel")},
            {
                "type": "static_select",
                "action_id": "pick",
                "placeholder": plain("Pick"),
                "options": options("one", "two"),
                "confirm": SURE,
            },
            {"type": "datepicker", "action_id": "day", "initial_date": "2026-01-31"},
            {"type": "checkboxes", "action_id": "boxes", "options": options("sso", "support"), "initial_options": options("sso")},
            {"type": "external_select", "action_id": "find", "min_query_length": 2, "placeholder": plain("Find")},
        ],
    },
]
FORM: dict[str, Any] = {
    "type": "modal",
    "callback_id": "all",
    "title": plain("Everything"),
    "submit": plain("Send"),
    "blocks": [
        labelled("Name", {"type": "plain_text_input", "min_length": 3}),
        labelled("Seats", {"type": "number_input", "is_decimal_allowed": False, "min_value": "1"}),
        labelled("Mail", {"type": "email_text_input"}, optional=True),
        labelled("Until", {"type": "datepicker"}),
        labelled("Owner", {"type": "users_select"}),
        labelled("Plan", {"type": "radio_buttons", "options": options("monthly", "yearly")}),
        labelled("Extras", {"type": "checkboxes", "options": options("sso", "support")}, optional=True),
        labelled("Team", {"type": "multi_users_select", "max_selected_items": 2}),
        labelled("Where", {"type": "channels_select"}),
        labelled("Live", {"type": "static_select", "options": options("on", "off")}, dispatch_action=True, optional=True),
    ],
}


class Heard:
    """A bot that shows the card and the form, and records the payloads that it receives."""

    def __init__(self, client: AsyncWebClient) -> None:
        self.client = client
        self.actions: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.forms: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def listen(self, app: Any) -> None:
        app.command("/quote")(self.card)
        app.action(re.compile(".+"))(self.act)
        app.options("find")(self.find)
        app.view("all")(self.submit)

    async def card(self, ack: Any, command: dict[str, Any]) -> None:
        await ack()
        await self.client.chat_postMessage(channel=command["channel_id"], text="A card", blocks=CARD)

    async def act(self, ack: Any, body: dict[str, Any]) -> None:
        await ack()
        action = body["actions"][0]
        if action["action_id"] == "form":
            await self.client.views_open(trigger_id=body["trigger_id"], view=FORM)
        else:
            self.actions.put_nowait(action)

    async def find(self, ack: Any, body: dict[str, Any]) -> None:
        await ack(options=options(*(each for each in ("acme", "globex") if body["value"] in each)))

    async def submit(self, ack: Any, view: dict[str, Any]) -> None:
        await ack()
        self.forms.put_nowait({block: next(iter(held.values())) for block, held in view["state"]["values"].items()})

    async def told(self) -> dict[str, Any]:
        """Return the next click, without the values that differ between runs."""
        action = await asyncio.wait_for(self.actions.get(), SECONDS)
        return {name: value for name, value in action.items() if name not in ("action_ts", "block_id")}


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world", ack_seconds=SECONDS).serve(port=0) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def bot(world: World) -> AsyncIterator[Heard]:
    environment = world.environment()
    client = AsyncWebClient(token=environment["SLACK_BOT_TOKEN"], base_url=environment["SLACK_API_URL"])
    heard = Heard(client)
    app = AsyncApp(client=client)
    heard.listen(app)
    handler = AsyncSocketModeHandler(app, environment["SLACK_APP_TOKEN"])
    await handler.connect_async()  # type: ignore[no-untyped-call] # Bolt leaves it untyped
    yield heard
    await handler.close_async()  # type: ignore[no-untyped-call] # as above


async def test_a_card_sends_each_choice_in_the_shape_of_its_element(world: World, bot: Heard, page: Page) -> None:
    await enter(page, world)
    await page.get_by_test_id("guide-close").click()
    await say(page, "/quote card")
    shown = message(page, "A card")

    await shown.locator("[data-action-id=who]").select_option("U0CFO")
    assert await bot.told() == {"type": "users_select", "action_id": "who", "selected_user": "U0CFO"}

    pick = shown.locator("select[data-action-id=pick]")
    await pick.select_option("two")
    await page.get_by_test_id("confirm-no").click()
    await expect(pick).to_have_value("")
    await pick.select_option("one")
    await page.get_by_test_id("confirm-yes").click()
    assert (await bot.told())["selected_option"]["value"] == "one"

    await shown.locator("[data-action-id=day]").fill("2026-02-28")
    assert await bot.told() == {"type": "datepicker", "action_id": "day", "selected_date": "2026-02-28"}
    await shown.get_by_label("Support").check()
    assert [each["value"] for each in (await bot.told())["selected_options"]] == ["sso", "support"]

    find = shown.get_by_role("combobox", name="Find")
    await find.fill("ac")
    await shown.get_by_role("option", name="Acme").click()
    assert (await bot.told())["selected_option"]["value"] == "acme"

    more = shown.get_by_role("button", name="More actions")
    await more.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    assert (await bot.told())["selected_option"]["value"] == "cancel"
    assert await page.evaluate(NAMELESS) == []


async def test_a_form_is_filled_in_by_keyboard_and_each_refusal_stands_at_its_field(world: World, bot: Heard, page: Page) -> None:
    await enter(page, world)
    await page.get_by_test_id("guide-close").click()
    await say(page, "/quote card")
    opener = message(page, "A card").get_by_role("button", name="Open the form")
    await opener.focus()
    await page.keyboard.press("Enter")
    form = page.get_by_role("dialog", name="Everything")
    await expect(form.get_by_label("Name")).to_be_focused()
    assert await page.evaluate(NAMELESS) == []

    await page.keyboard.type("ab")
    await page.keyboard.press("Tab")
    await page.keyboard.type("1.5")
    await page.keyboard.press("Tab")
    await page.keyboard.type("nobody")
    await form.get_by_test_id("view-submit").click()
    wrong = form.locator(".invalid")
    await expect(wrong).to_have_count(8)
    await expect(form.locator("[data-block-id=name]")).to_contain_text("Please use at least 3 characters.")
    await expect(form.locator("[data-block-id=seats]")).to_contain_text("Please enter a whole number.")
    await expect(form.locator("[data-block-id=mail]")).to_contain_text("Please enter a valid email address.")
    await expect(form.locator("[data-block-id=plan]")).to_contain_text("Please complete this required field.")
    await expect(form.get_by_label("Name")).to_be_focused()

    await form.get_by_label("Live").select_option("on")
    assert (await bot.told())["selected_option"]["value"] == "on"
    await form.get_by_label("Name").fill("Acme")
    await form.get_by_label("Seats").fill("150")
    await form.get_by_label("Mail").fill("buyer@example.com")
    await form.get_by_label("Until").fill("2026-12-31")
    await form.get_by_label("Owner").select_option("U0REP")
    await form.get_by_label("Yearly").check()
    team = form.get_by_role("group", name="Team")
    await team.get_by_label("CFO").check()
    await team.get_by_label("Legal").check()
    await expect(team.get_by_label("Manager")).to_be_disabled()
    await form.get_by_label("Where").select_option("C0DEALS")
    await form.get_by_label("Name").press("Enter")

    held = await asyncio.wait_for(bot.forms.get(), SECONDS)
    await expect(form).to_have_count(0)
    await expect(opener).to_be_focused()
    assert (held["name"]["value"], held["seats"]["value"], held["until"]["selected_date"]) == ("Acme", "150", "2026-12-31")
    assert (held["owner"]["selected_user"], held["where"]["selected_channel"]) == ("U0REP", "C0DEALS")
    assert held["plan"]["selected_option"]["value"] == "yearly"
    assert (held["team"]["selected_users"], held["extras"]["selected_options"]) == (["U0CFO", "U0LEGAL"], [])


async def test_the_panel_is_reached_and_left_by_keyboard(world: World, bot: Heard, page: Page) -> None:
    await enter(page, world)
    await expect(page.get_by_test_id("backstage-open")).to_have_text("What's happening inside")
    await page.get_by_test_id("backstage-open").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_test_id("backstage-tab-ledger")).to_be_focused()
    await expect(page.get_by_test_id("bot-control")).to_contain_text("runs somewhere else")
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_test_id("backstage-tab-faults")).to_be_focused()
    await expect(page.get_by_test_id("armed")).to_contain_text("Nothing is broken right now")

    await page.get_by_test_id("span").select_option("thrice")
    await page.get_by_role("group", name="Where").get_by_role("button", name="Slack").focus()
    await page.keyboard.press("Enter")
    await page.get_by_test_id("method").fill("chat.update")
    await page.get_by_role("button", name="Turn on: Slack, Slow").press("Enter")
    await expect(page.get_by_test_id("armed-fault")).to_contain_text("Slack Slow (chat.update)")
    await expect(page.get_by_test_id("armed-fault")).to_contain_text("struck 0 times, 3 left")
    assert await page.evaluate(NAMELESS) == []
    await page.get_by_role("button", name="Clear Slack Slow").press("Enter")
    await expect(page.get_by_test_id("armed")).to_contain_text("Nothing is broken right now")

    await page.get_by_test_id("span").press("Escape")
    await expect(page.get_by_test_id("backstage")).to_have_count(0)
    await expect(page.get_by_test_id("backstage-open")).to_be_focused()
