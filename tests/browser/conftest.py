"""Fixtures: a headless Chromium for the whole session, a fresh page per test, and a check of all console errors."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 60_000  # enough on a busy machine
expect.set_options(timeout=PATIENCE_MS)


def _chromium() -> str | None:
    """Return the browser's path: $QUOTEBOT_CHROMIUM if set, else the first of the usual names that is installed."""
    chosen = os.environ.get("QUOTEBOT_CHROMIUM")
    if chosen:
        return shutil.which(chosen)
    return next((path for path in map(shutil.which, _NAMES) if path), None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Yield one browser process for all tests."""
    executable = _chromium()
    if executable is None:
        pytest.skip("no Chromium found: install chromium, or name its executable in QUOTEBOT_CHROMIUM")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=list(_ARGUMENTS))
        yield browser
        await browser.close()


@pytest.fixture
def console_errors() -> list[str]:
    """Return the list of the page's console errors. It must end empty; a test that causes an error on purpose clears it."""
    return []


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, console_errors: list[str]) -> AsyncIterator[Page]:
    """Yield a page in its own context: tests share no cookie, cache or storage."""

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            console_errors.append(message.text)

    context = await browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    page.on("console", heard)
    page.on("pageerror", lambda error: console_errors.append(str(error)))
    yield page
    await context.close()
    assert console_errors == []
