"""Tests of old exchange rates in Slack: refused in the command, the form and a simulation; other quotes go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest_asyncio

from tests.rig import FIRST_QUOTE, Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.sandbox.world import World

REFUSAL = "The exchange rate from USD to EUR is of 2026-01-02, older than the 30 days that this installation allows"


@pytest_asyncio.fixture
async def strict(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """A bot that takes no rate older than 30 days; the sample's are from January."""
    async with bot_in(world, tmp_path / "strict", rate_days_max=30) as deal:
        yield deal


async def test_stale_rate_is_refused_in_command_form_and_simulation(strict: Deal) -> None:
    await strict.slash("new for Acme: 5 pro; currency EUR")
    await strict.settled()
    assert REFUSAL in (await strict.whispers("U0REP"))[-1]
    simulated = await strict.slash("simulate: 5 pro; currency EUR")
    assert REFUSAL in simulated["ack"]["text"]
    await strict.slash("new")
    (view,) = (await strict.get("state"))["views"]
    values: dict[str, Any] = {"account": {"account": "Acme"}, "terms": {"terms": "5 pro"}, "currency": {"currency": "EUR"}}
    sent = await strict.post("submit", user="U0REP", view_id=view["view"]["id"], values=values)
    assert REFUSAL in sent["ack"]["errors"]["currency"]
    assert await strict.cards() == []
    await strict.slash("new for Acme: 5 pro")
    await strict.settled()
    assert f"Quote {FIRST_QUOTE} for Acme: " in (await strict.card())["text"]


async def test_without_the_setting_the_samples_rates_still_work(deal: Deal) -> None:
    await deal.slash("new for Acme: 5 pro; currency EUR")
    await deal.settled()
    assert "€552.00" in await deal.card_text()
