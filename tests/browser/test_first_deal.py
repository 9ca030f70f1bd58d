"""Test of the first deal: the real bot, driven only through the page.

With QUOTEBOT_WRITE_PICTURES=1 it also writes screenshots of the finished deal to docs/pictures.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pypdf
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from quotebot.sandbox.world import World
from tests.browser.test_page import become, enter, message, say
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

COMMAND = "/quote new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%"
QUOTE_ID = r"Q-\d{4}-0001"
MOMENT = r"today at \d{1,2}:\d{2}"
PICTURES = "QUOTEBOT_WRITE_PICTURES"


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def deal(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    seller: dict[str, Any] = {name.removeprefix("QUOTEBOT_").lower(): value for name, value in world.seller_environment().items()}
    async with bot_in(world, tmp_path / "bot", **seller) as running:
        yield running


def card(page: Page) -> Locator:
    return page.get_by_test_id("messages").get_by_test_id("message").filter(has=page.get_by_role("heading", name="Acme"))


def button(page: Page, name: str) -> Locator:
    return card(page).get_by_role("button", name=name, exact=True)


async def submit_as_rep(page: Page, world: World) -> None:
    await enter(page, world)
    await say(page, COMMAND)
    await button(page, "Submit for approval").click()
    await expect(card(page)).to_contain_text("Waiting for @manager")


async def approve_as_manager(page: Page) -> None:
    await become(page, "U0MANAGER")
    await button(page, "Approve").click()
    confirm = page.get_by_test_id("confirm-dialog")
    await expect(confirm).to_contain_text("Acme · $17,340.00")
    await confirm.get_by_role("button", name="Approve", exact=True).click()


async def pdf_behind(link: Locator, page: Page) -> bytes:
    """Open the file in a new tab, as a click does, and return its bytes."""
    async with page.context.expect_page() as opened:
        await link.click()
    tab = await opened.value
    answer = await page.request.get(str(await link.evaluate("link => link.href")))
    assert answer.headers["content-type"] == "application/pdf"
    await tab.close()
    return await answer.body()


async def test_what_the_rep_typed_becomes_a_card_with_its_price_and_its_approver(world: World, deal: Deal, page: Page) -> None:
    await enter(page, world)
    await say(page, COMMAND)

    shown = card(page)
    await expect(shown).to_contain_text("15% off $20,400.00")
    await expect(shown).to_contain_text("$17,340.00")
    await expect(shown).to_contain_text("Needs approval: Sales Manager")
    await expect(shown.get_by_role("button", name="Submit")).to_be_enabled()
    await expect(shown.locator("[data-action-id]")).to_have_count(4)  # Submit, Edit, Cancel quote and the menu


async def test_approved_deal_has_one_card_one_pdf_and_one_crm_quote_of_the_same_total(
    world: World, deal: Deal, browser: Browser, checkout: Path, page: Page
) -> None:
    await submit_as_rep(page, world)
    await approve_as_manager(page)

    await expect(card(page)).to_contain_text(re.compile(rf"Approved by @manager \(Sales Manager\), {MOMENT}"))
    await expect(card(page)).to_contain_text("PDF · In Salesforce")
    await expect(card(page).locator("[data-action-id^='approval.']")).to_have_count(0)
    await deal.settled()
    await expect(card(page)).to_have_count(1)

    await card(page).get_by_test_id("replies").click()
    link = page.get_by_test_id("thread-messages").get_by_test_id("file-link")
    await expect(link).to_have_count(1)
    pdf = await pdf_behind(link, page)
    text = "\n".join(sheet.extract_text() for sheet in pypdf.PdfReader(io.BytesIO(pdf)).pages)
    assert "17,340.00" in text
    quote_id = re.search(QUOTE_ID, await card(page).inner_text())
    assert quote_id is not None
    assert quote_id[0] in text

    (quote,) = world.salesforce.records("Quote")
    lines = world.salesforce.records("QuoteLineItem")
    assert str(quote["Quotebot_Key__c"]).endswith(f"_{quote_id[0]}_v1")
    assert len(lines) == 3
    assert {line["QuoteId"] for line in lines} == {quote["Id"]}
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == Decimal("17340.00")

    if os.environ.get(PICTURES) == "1":
        await photograph(world, browser, pdf, checkout / "docs" / "pictures")


async def test_a_rejection_needs_a_reason_and_the_card_repeats_it(world: World, deal: Deal, page: Page) -> None:
    await submit_as_rep(page, world)
    await become(page, "U0MANAGER")
    await button(page, "Reject").click()
    form = page.get_by_role("dialog", name="Reject quote")
    await expect(form).to_contain_text("$17,340.00, submitted by @rep")

    await form.get_by_test_id("view-submit").click()
    await expect(form.get_by_role("alert")).to_have_text("Please complete this required field.")

    await form.get_by_label("Reason").fill("  ")  # the page accepts it, the bot does not
    await form.get_by_test_id("view-submit").click()
    await expect(form.get_by_role("alert")).to_contain_text("Add a reason")
    await expect(button(page, "Reject")).to_have_count(1)

    await form.get_by_label("Reason").fill("The discount is too high for one year.")
    await form.get_by_test_id("view-submit").click()
    await expect(form).to_have_count(0)

    await expect(card(page)).to_contain_text(re.compile(rf"Rejected by @manager \(Sales Manager\), {MOMENT}"))
    await expect(card(page).locator("blockquote")).to_have_text("The discount is too high for one year.")
    await expect(card(page).locator("[data-action-id^='approval.']")).to_have_count(0)
    await deal.settled()
    assert world.salesforce.records("Quote") == []
    assert await deal.files() == []


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("/quote new for Acme: 5 prro", '"prro" isn\'t in the catalog. Did you mean pro?'),
        ("/quote new for Acme: 1.5 pro", '"1.5 pro" needs a whole quantity, like 1500 or 1,500.'),
        ("/quote new for Acme: 5 pro; discount 12,,5%", '"12,,5%" isn\'t a discount'),
        ("/quote new for Acme: 5 pro; discount 250%", "discount"),
        (f"/quote new for {'A' * 3_000}: 5 pro", "That's too long (2,048 characters max)"),
    ],
    ids=["unknown sku", "half a licence", "unreadable discount", "impossible discount", "3,000 characters"],
)
async def test_invalid_command_is_explained_to_its_author_only_and_records_nothing(
    world: World, deal: Deal, page: Page, typed: str, answer: str
) -> None:
    await enter(page, world)
    await say(page, typed)

    told = message(page, answer)
    await expect(told.get_by_test_id("only-you")).to_be_visible()
    await expect(page.get_by_test_id("messages").get_by_test_id("message")).to_have_count(1)
    assert await deal.rows("SELECT 1 FROM operations UNION ALL SELECT 1 FROM effects") == []
    await become(page, "U0MANAGER")
    await expect(page.get_by_test_id("messages").get_by_test_id("message")).to_have_count(0)


async def photograph(world: World, browser: Browser, pdf: bytes, folder: Path) -> None:
    """Write the three pictures of the documentation: the page on a desktop and on a phone, and the PDF's first page."""
    for name, width, height, scale in (("sandbox", 1280, 820, 1.5), ("sandbox-phone", 390, 844, 2)):
        context = await browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale, locale="en-US")
        page = await context.new_page()
        await enter(page, world)
        await page.get_by_test_id("guide-close").click()
        phone = await page.get_by_test_id("menu").is_visible()
        if phone:
            await page.get_by_test_id("menu").click()
        await become(page, "U0MANAGER")
        if phone:
            await expect(page.get_by_role("navigation")).to_be_hidden()
        else:
            await card(page).get_by_test_id("replies").click()
            await expect(page.get_by_test_id("thread-messages").get_by_test_id("file-link")).to_be_visible()
        await page.mouse.move(0, 0)
        await page.screenshot(path=folder / f"{name}.png", animations="disabled")
        await context.close()
    drawing = await asyncio.create_subprocess_exec(
        "pdftoppm",
        "-r",
        "110",
        "-png",
        "-f",
        "1",
        "-l",
        "1",
        "-singlefile",
        "-",
        str(folder / "quote-page-1"),
        stdin=asyncio.subprocess.PIPE,
    )
    await drawing.communicate(pdf)
    assert drawing.returncode == 0
