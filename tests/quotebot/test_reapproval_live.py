"""Tests of the reuse of an approval after a revision, through the bot's socket: fewer units at the same discount need a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from tests.rig import Deal

STATE = "SELECT state, version FROM quotes"


async def approved_by_cfo(deal: Deal, text: str) -> None:
    await deal.slash(text)
    await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    await deal.click("approval.approve", user="U0CFO")
    await deal.settled()
    assert await deal.rows(STATE) == [{"state": "approved", "version": 1}]


async def revised_and_submitted(deal: Deal, changes: str) -> str:
    await deal.slash(f"revise {FIRST_QUOTE}: {changes}")
    await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    (row,) = await deal.rows(STATE)
    state: str = row["state"]
    return state


@pytest.mark.parametrize("changes", ["10 pro; term 1m", "term 35m", "10 pro", "99 pro; term 60m"])
async def test_less_for_the_approved_discount_is_asked_for_again(deal: Deal, changes: str) -> None:
    await approved_by_cfo(deal, "new for Acme: 1000 pro; term 36m; discount 39%")
    assert await revised_and_submitted(deal, changes) == "pending_approval"
    assert [file["name"] for file in await deal.files()] == [f"Quote {FIRST_QUOTE} v1 - Acme.pdf"]


async def test_a_revision_by_another_person_does_not_let_a_maker_approve(deal: Deal) -> None:
    await deal.slash("new for Acme: 150 pro; term 36m; discount 5%")
    await deal.settled()
    await deal.slash(f"revise {FIRST_QUOTE}: discount 35%", user="U0CFO")
    await deal.settled()
    await deal.slash(f"revise {FIRST_QUOTE}: 149 pro", user="U0MANAGER")
    await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    await deal.click("approval.approve", user="U0CFO")
    await deal.settled()
    assert await deal.rows(STATE) == [{"state": "pending_approval", "version": 3}]
    assert "You worked on " in " ".join(await deal.whispers("U0CFO"))


async def test_150_to_149_seats_asks_nobody_anew(deal: Deal) -> None:
    await approved_by_cfo(deal, "new for Acme: 150 pro; term 36m; discount 25%")
    assert await revised_and_submitted(deal, "149 pro") == "approved"
    assert "still covers this version" in " ".join(message["text"] for message in await deal.replies())
