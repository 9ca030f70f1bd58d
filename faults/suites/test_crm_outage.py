"""Tests that with Salesforce down until the budget is spent the deal stands, the card shows it, and a replay delivers once."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from faults.checks import checker
from faults.harness.rig import FIRST_QUOTE, Deal, bot_in, eventually
from faults.suites import test_replay
from quotebot.app.bot import Ports

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.sandbox.world import World


def shortened(low: float, high: float) -> float:
    """Draw near the low end of the matrix's own range: the schedule is real, but short."""
    return min(high, low + 0.2)


async def quotebot(deal: Deal, *arguments: str) -> tuple[int, str]:
    """Run the command line as an operator would; returns exit status and stdout."""
    return (await test_replay.quotebot({**os.environ, "QUOTEBOT_DATA_DIR": str(deal.data_dir)}, *arguments))[:2]


async def test_an_outage_ends_in_one_dead_letter_and_one_replay_delivers_once(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", Ports(draw=shortened)) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", seconds=600)
        await deal.click("approval.approve", user="U0MANAGER")
        await eventually(lambda: _card_says(deal, "Salesforce isn't responding"), "the card to show the pending write")
        await deal.settled()
        assert await deal.hits() == 7  # one attempt and six retries
        assert "Not in Salesforce yet" in await deal.card_text()
        assert "Approved by <@U0MANAGER>" in await deal.card_text()
        assert [row["state"] for row in await deal.rows("SELECT state FROM quotes")] == ["approved"]
        assert len(await deal.files()) == 1

        status, out = await quotebot(deal, "dead", "list", "--json")
        (letter,) = json.loads(out)["dead_letters"]
        assert (status, letter["class"], letter["aggregate_id"], letter["attempts"]) == (0, "crm.create", FIRST_QUOTE, 7)

        await deal.clear_faults()
        status, out = await quotebot(deal, "replay", letter["id"], "--wait")
        assert (status, "delivered" in out) == (0, True)
        await deal.settled()
        await checker.golden_deal(deal)
        assert "Not in Salesforce yet" not in await deal.card_text()
        assert "Salesforce isn't responding" not in await deal.card_text()

        status, out = await quotebot(deal, "replay", letter["id"])
        assert (status, "already delivered" in out) == (0, True)
        assert (await quotebot(deal, "dead", "list", "--json"))[1].count('"id"') == 0
        await checker.golden_deal(deal)


async def test_a_replay_while_the_bot_is_down_is_delivered_once_by_its_next_start(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", Ports(draw=shortened)) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", seconds=600)
        await deal.click("approval.approve", user="U0MANAGER")
        await deal.settled()
        await deal.clear_faults()
    async with bot_in(world, tmp_path / "bot") as deal:
        (letter,) = await deal.rows("SELECT id FROM dead_letters WHERE status = 'pending'")
    status, _ = await quotebot(deal, "replay", str(letter["id"]))
    assert status == 0
    async with bot_in(world, tmp_path / "bot") as deal:
        await deal.settled()
        await checker.golden_deal(deal)


async def _card_says(deal: Deal, words: str) -> bool:
    return words in await deal.card_text()
