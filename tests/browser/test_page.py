"""Tests of the page in a real browser, on the real world, with a small bot that knows nothing of the page."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.sandbox.world import World
from tests.browser.conftest import PATIENCE_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PDF = b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
HOSTILE = (
    "<img src=x onerror=document.title='owned'> &amp; *bold* <https://shop.example/?a=1&amp;b=2|a shop> <@U0MANAGER> :warning:"
)


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


CONFIRM = {
    "title": plain("Approve Q-7?"),
    "text": {"type": "mrkdwn", "text": "For *$20,400.00*."},
    "confirm": plain("Approve it"),
    "deny": plain("Not yet"),
}
CARD: list[dict[str, Any]] = [
    {"type": "header", "text": plain("Quote Q-7")},
    {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "action_id": "approve",
                "style": "primary",
                "text": plain("Approve"),
                "value": "Q-7|3",
                "confirm": CONFIRM,
            },
            {"type": "button", "action_id": "ignore", "text": plain("Ignore")},
            {"type": "button", "action_id": "reject", "style": "danger", "text": plain("Reject")},
        ],
    },
]
FORM = {
    "type": "modal",
    "callback_id": "reason",
    "title": plain("Reject Q-7"),
    "submit": plain("Reject quote"),
    "blocks": [
        {
            "type": "input",
            "block_id": "why",
            "label": plain("Why?"),
            "element": {"type": "plain_text_input", "action_id": "text", "multiline": True},
        },
        {
            "type": "input",
            "block_id": "kind",
            "label": plain("Kind"),
            "element": {
                "type": "static_select",
                "action_id": "choice",
                "options": [{"text": plain("Price"), "value": "price"}, {"text": plain("Terms"), "value": "terms"}],
            },
        },
    ],
}


@dataclass(slots=True)
class SmallBot:
    """A small bot on the unmodified Bolt that records the payloads it receives."""

    client: AsyncWebClient
    clicks: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    clicked: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self, app: Any) -> None:
        app.command("/quote")(self.quote)
        app.action("approve")(self.approve)
        app.action("ignore")(self.ignore)
        app.action("reject")(self.reject)
        app.view("reason")(self.reason)
        app.event("message")(self.overhear)
        app.event("app_home_opened")(self.home)

    async def quote(self, ack: Any, command: dict[str, Any]) -> None:
        verb, channel = command["text"], command["channel_id"]
        if verb == "secret":
            await ack(text="A word for you alone")
            return
        await ack()
        if verb == "card":
            await self.client.chat_postMessage(channel=channel, text="Quote Q-7", blocks=CARD)
        elif verb == "hostile":
            await self.client.chat_postMessage(
                channel=channel, text=HOSTILE.replace("<img", "&lt;img").replace("owned'>", "owned'&gt;")
            )
        elif verb == "file":
            root = await self.client.chat_postMessage(channel=channel, text="Here it comes")
            await self.client.files_upload_v2(
                channel=channel, thread_ts=root["ts"], content=PDF, filename="Q-7.pdf", title="Quote Q-7", initial_comment="The PDF"
            )
        elif verb == "dm":
            await self.client.chat_postMessage(channel="U0MANAGER", text="Something waits for you")

    async def approve(self, ack: Any, body: dict[str, Any]) -> None:
        self.clicks.append(body["actions"][0]["value"])
        self.clicked.set()
        await self.go_on.wait()
        await ack()
        where = {"channel": body["channel"]["id"], "ts": body["message"]["ts"]}
        done = [{"type": "context", "elements": [{"type": "mrkdwn", "text": f"Approved by <@{body['user']['id']}>"}]}]
        await self.client.chat_update(**where, text="Approved", blocks=done)

    async def ignore(self) -> None:
        """Never answer."""

    async def reject(self, ack: Any, body: dict[str, Any]) -> None:
        await ack()
        await self.client.views_open(trigger_id=body["trigger_id"], view=FORM)

    async def reason(self, ack: Any, view: dict[str, Any]) -> None:
        values = view["state"]["values"]
        why = values["why"]["text"]["value"]
        if len(why) < 10:
            await ack(response_action="errors", errors={"why": "Say it in a sentence."})
            return
        self.reasons.append((why, values["kind"]["choice"]["selected_option"]["value"]))
        await ack()

    async def home(self, event: dict[str, Any]) -> None:
        blocks = [{"type": "section", "text": plain("Nothing waits for you")}]
        await self.client.views_publish(user_id=event["user"], view={"type": "home", "blocks": blocks})

    async def overhear(self) -> None:
        """Receive messages; they need no answer."""


@pytest.fixture
def ack_seconds() -> float:
    """Return how long Slack waits for the bot, whose answers take long on a busy machine."""
    return PATIENCE_MS / 1000


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path, ack_seconds: float) -> AsyncIterator[World]:
    async with World(tmp_path / "world", ack_seconds=ack_seconds).serve(port=0) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def bot(world: World) -> AsyncIterator[SmallBot]:
    environment = world.environment()
    client = AsyncWebClient(token=environment["SLACK_BOT_TOKEN"], base_url=environment["SLACK_API_URL"])
    small = SmallBot(client)
    small.go_on.set()
    app = AsyncApp(client=client)
    small.listen(app)
    handler = AsyncSocketModeHandler(app, environment["SLACK_APP_TOKEN"])
    await handler.connect_async()  # type: ignore[no-untyped-call] # Bolt leaves it untyped
    yield small
    await handler.close_async()  # type: ignore[no-untyped-call] # Bolt leaves it untyped


# Every test requests the page last, so that the page is closed before the world ends.


async def enter(page: Page, world: World) -> None:
    await page.goto(world.url)
    await expect(page.get_by_test_id("bot-status")).to_have_attribute("data-connected", "true")


async def say(page: Page, text: str) -> None:
    await page.get_by_test_id("composer").fill(text)
    await page.keyboard.press("Enter")


async def become(page: Page, person: str) -> None:
    await page.get_by_test_id("person-select").click()
    await page.locator(f"[role=option][data-person={person}]").click()


def message(page: Page, text: str) -> Locator:
    return page.get_by_test_id("messages").get_by_test_id("message").filter(has_text=text)


async def test_the_answer_to_a_command_is_seen_by_nobody_else(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)

    await say(page, "/quote secret")
    answer = message(page, "A word for you alone")
    await expect(answer).to_be_visible()
    await expect(answer.get_by_test_id("only-you")).to_have_text("Only visible to you")

    await become(page, "U0MANAGER")
    await expect(page.get_by_test_id("person-select")).to_contain_text("Sales Manager")
    await expect(answer).to_have_count(0)
    await become(page, "U0REP")
    await expect(answer).to_be_visible()


async def test_a_confirmed_click_reaches_the_bot_once_and_the_new_card_is_drawn(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote card")
    button = page.locator("[data-action-id=approve]")

    await button.click()
    confirm = page.get_by_test_id("confirm-dialog")
    await expect(confirm).to_contain_text("Approve Q-7?")
    await expect(confirm.locator("b")).to_have_text("$20,400.00")
    await confirm.get_by_role("button", name="Not yet").click()
    await expect(confirm).to_have_count(0)
    assert bot.clicks == []

    bot.go_on.clear()
    await button.click()
    await confirm.get_by_role("button", name="Approve it").click()
    await asyncio.wait_for(bot.clicked.wait(), PATIENCE_MS / 1000)
    await expect(button).to_be_disabled()
    await button.dispatch_event("click")
    bot.go_on.set()

    await expect(message(page, "Approved by @rep")).to_be_visible()
    await expect(button).to_have_count(0)
    assert bot.clicks == ["Q-7|3"]


@pytest.mark.parametrize("ack_seconds", [1.0])
async def test_a_click_nobody_answers_is_marked_and_can_be_tried_again(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote card")
    button = page.locator("[data-action-id=ignore]")

    await button.click()

    await expect(page.get_by_test_id("unanswered")).to_contain_text("did not answer in time")
    await expect(button).to_be_enabled()


async def test_a_form_shows_what_was_refused_and_closes_on_success(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote card")
    await page.locator("[data-action-id=reject]").click()
    form = page.get_by_role("dialog", name="Reject Q-7")
    why, submit = form.get_by_label("Why?"), form.get_by_test_id("view-submit")

    await why.fill("no")
    await submit.click()
    await expect(form.get_by_role("alert")).to_have_text("Please complete this required field.")

    await form.get_by_label("Kind").select_option("terms")
    await submit.click()
    await expect(form.get_by_role("alert")).to_have_text("Say it in a sentence.")
    await expect(why).to_have_value("no")

    await why.fill("The term is too long.")
    await submit.click()
    await expect(form).to_have_count(0)
    assert bot.reasons == [("The term is too long.", "terms")]


async def test_escape_closes_a_form_for_good(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote card")
    await page.locator("[data-action-id=reject]").click()
    form = page.get_by_test_id("view-modal")
    await form.get_by_label("Why?").fill("never mind")

    await page.keyboard.press("Escape")
    await expect(form).to_have_count(0)
    await page.reload()
    await expect(page.get_by_test_id("composer")).to_be_visible()
    await expect(form).to_have_count(0)
    assert bot.reasons == []


async def test_a_thread_holds_replies_and_its_file_opens_with_the_very_bytes(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote file")
    await message(page, "Here it comes").get_by_test_id("replies").click()
    thread = page.get_by_test_id("thread")

    await thread.get_by_test_id("thread-composer").fill("Thank you")
    await page.keyboard.press("Enter")
    await expect(thread.get_by_test_id("message").filter(has_text="Thank you")).to_be_visible()
    await expect(page.get_by_test_id("messages").get_by_test_id("replies")).to_contain_text("2 replies")
    await expect(message(page, "Thank you")).to_have_count(0)

    link = thread.get_by_test_id("file-link")
    await expect(link).to_contain_text("Quote Q-7")
    await expect(link).to_have_attribute("target", "_blank")
    async with page.context.expect_page() as opened:
        await link.click()
    tab = await opened.value
    answer = await page.request.get(str(await link.evaluate("link => link.href")))
    assert answer.headers["content-type"] == "application/pdf"
    assert await answer.body() == PDF
    await tab.close()

    await page.keyboard.press("Escape")
    await expect(thread).to_have_count(0)


async def test_a_command_without_a_bot_is_answered_by_slackbot(world: World, page: Page) -> None:
    await page.goto(world.url)
    await expect(page.get_by_test_id("bot-status")).to_have_text("Bot not connected")

    await say(page, "/quote help")

    notice = message(page, "failed with the error")
    await expect(notice).to_contain_text("Slackbot")
    await expect(notice.get_by_test_id("only-you")).to_be_visible()


async def test_commands_this_workspace_does_not_know_are_not_sent_as_messages(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/qoute new for Acme")

    await expect(message(page, "/qoute is not a valid command")).to_be_visible()
    await become(page, "U0MANAGER")
    await expect(page.get_by_test_id("messages").get_by_test_id("message")).to_have_count(0)


async def test_text_is_drawn_as_text(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote hostile")
    drawn = message(page, "<img src=x onerror=document.title='owned'> & bold")

    await expect(drawn.locator("b", has_text=re.compile("^bold$"))).to_be_visible()
    await expect(drawn.get_by_role("link", name="a shop")).to_have_attribute("href", "https://shop.example/?a=1&b=2")
    await expect(drawn.locator("[data-user=U0MANAGER]")).to_have_text("@manager")
    await expect(drawn.get_by_role("img", name="warning")).to_be_visible()
    await expect(drawn.locator("img")).to_have_count(0)
    await expect(page).to_have_title("Quotebot sandbox")


async def test_what_a_person_types_arrives_as_typed(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "AT&T < 5 & @manager: see &amp; and *this*")

    drawn = message(page, "AT&T < 5 & @manager: see &amp; and this")
    await expect(drawn).to_be_visible()
    await expect(drawn.locator("[data-user=U0MANAGER]")).to_be_visible()


async def test_news_for_another_person_is_counted_until_that_person_looks(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await say(page, "/quote dm")
    badge = page.get_by_test_id("person-select").locator(".badge")
    await expect(badge).to_have_text("1")

    await become(page, "U0MANAGER")
    row = page.locator("[data-channel^=D]")
    await expect(row).to_contain_text("1")
    await row.click()
    await expect(message(page, "Something waits for you")).to_be_visible()
    await expect(page.get_by_test_id("news")).to_have_text("New")
    await expect(row.locator(".badge")).to_have_count(0)
    await page.locator("[data-channel=C0DEALS]").click()
    await row.click()
    await expect(page.get_by_test_id("news")).to_have_count(0)
    await become(page, "U0REP")
    await expect(badge).to_have_count(0)


async def test_opening_the_home_tab_shows_what_the_bot_publishes(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await page.locator("[data-channel^=D]").click()
    await expect(page.get_by_test_id("tab-messages")).to_have_attribute("aria-selected", "true")
    await page.get_by_test_id("tab-home").click()
    await expect(page.get_by_test_id("tab-home")).to_have_attribute("aria-selected", "true")
    await expect(page.get_by_test_id("app-home")).to_contain_text("Nothing waits for you")

    await bot.client.chat_postMessage(channel="U0REP", text="Something waits for you")
    await expect(page.get_by_test_id("tab-messages")).to_have_text(re.compile(r"Messages\s*1"))
    await page.get_by_test_id("tab-messages").click()
    await expect(page.get_by_test_id("tab-messages")).to_have_text(re.compile(r"Messages\s*$"))


async def test_in_an_archived_channel_there_is_nothing_to_write_with(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    await page.locator("[data-channel=C0GENERAL]").click()
    await expect(page.get_by_test_id("composer")).to_be_visible()
    world.gestures.change_channel("C0GENERAL", archived=True, restricted=None, with_bot=None)
    await expect(page.get_by_test_id("archived")).to_contain_text("#general is archived")
    await expect(page.get_by_test_id("composer")).to_have_count(0)


async def test_the_composer_completes_verbs_and_offers_an_example(world: World, bot: SmallBot, page: Page) -> None:
    await enter(page, world)
    composer = page.get_by_test_id("composer")
    await expect(page.get_by_test_id("promise")).to_have_text("A Slack, a Salesforce and an AI on your machine. Nothing leaves it.")
    await page.get_by_test_id("guide-close").click()
    await page.get_by_test_id("example-chip").click()
    await expect(composer).to_have_value("/quote new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%")

    await composer.fill("/q")
    await expect(page.get_by_role("option")).to_contain_text(["/quote new", "/quote list", "/quote status", "/quote submit"])
    await composer.press_sequentially("uote si")
    await expect(page.get_by_role("option")).to_contain_text(["/quote simulate"])
    await composer.fill("/q")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Tab")
    await expect(composer).to_have_value("/quote list ")
    await expect(page.get_by_test_id("suggestions")).to_have_count(0)


async def test_on_a_phone_the_rail_is_a_drawer_and_nothing_scrolls_sideways(world: World, bot: SmallBot, page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await enter(page, world)
    await say(page, "/quote card")
    await expect(page.locator("[data-action-id=approve]")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    rail = page.get_by_role("navigation")
    await expect(rail).to_be_hidden()
    await page.get_by_test_id("menu").click()
    await page.get_by_test_id("channel").filter(has_text="general").click()
    await expect(rail).to_be_hidden()
    await expect(page.get_by_test_id("channel-name")).to_have_text("general")


async def test_the_page_finds_the_world_again_after_a_restart(page: Page, tmp_path: Path, console_errors: list[str]) -> None:
    async with World(tmp_path / "before").serve(port=0) as first:
        address = first.url
        await page.goto(address)
        await expect(page.get_by_test_id("bot-status")).to_have_text("Bot not connected")
    await expect(page.get_by_test_id("bot-status")).to_have_text("Sandbox unreachable")

    async with World(tmp_path / "after").serve(port=int(address.rpartition(":")[2])):
        await expect(page.get_by_test_id("bot-status")).to_have_text("Bot not connected")
        await page.goto("about:blank")  # before the second world ends: no refused connection may follow the check

    # The browser itself logs every refused connection; no other line may be there.
    assert all("net::ERR_" in error for error in console_errors)
    console_errors.clear()
