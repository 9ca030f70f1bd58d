"""Tests of what approvers alone see: margin effects and changes that avoid an approval, on Home and in private cards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quotebot.commands.payloads import SubmitQuote
from quotebot.commands.queries import Section
from quotebot.execution import membership
from quotebot.execution.executor import Executor
from quotebot.store import homes
from quotebot.views import messages, work_queue
from quotebot.views.work_queue import PAGE_ROWS, Needed, Reader, load_home
from tests.quotebot.access_parts import viewer
from tests.quotebot.parts import MATRIX, RULES, Bench, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING
from tests.rig import FIRST_QUOTE, Deal, eventually

if TYPE_CHECKING:
    import pytest

    from quotebot.sandbox.world import World


async def home_of(deal: Deal, user: str) -> str:
    await deal.post("home", user=user)

    async def published() -> Any:
        return user in (await deal.get("state"))["homes"]

    await eventually(published, "the Home tab")
    return json.dumps((await deal.get("state"))["homes"][user], ensure_ascii=False)


async def test_home_shows_an_approver_the_margin_effect_and_what_avoids_the_approval(deal: Deal) -> None:
    await deal.submitted_deal()
    text = await home_of(deal, "U0MANAGER")
    assert "15% discount ($3,060.00), margin 64.7% (70% without discount)" in text
    assert "💡 No approval needed with: 10% discount (now 15%)" in text
    assert "margin" not in await home_of(deal, "U0REP")


async def test_private_card_of_who_may_decide_alone_shows_the_margin_effect(deal: Deal) -> None:
    await deal.submitted_deal()
    asked = {user: json.dumps((await deal.slash(f"status {FIRST_QUOTE}", user=user))["ack"]) for user in ("U0MANAGER", "U0REP")}
    assert "For approvers only: *margin 64.7% (70% without discount)*" in asked["U0MANAGER"]
    assert "margin" not in asked["U0REP"]
    assert "margin" not in await deal.card_text()


async def test_home_of_a_person_who_became_a_guest_shows_no_quote(
    deal: Deal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deal.submitted_deal()
    assert "Acme" in await home_of(deal, "U0REP")
    monkeypatch.setattr(membership, "FRESH_MS", 0)  # as after an hour
    people = world.slack.directory.people
    people["U0REP"] = replace(people["U0REP"], is_guest=True)
    await deal.complete(deal.slash(f"cancel {FIRST_QUOTE}", user="U0OPERATOR"))

    async def refused() -> bool:
        home = json.dumps((await deal.get("state"))["homes"]["U0REP"], ensure_ascii=False)
        return "Acme" not in home and messages.turned_away("not_a_member") in home

    await eventually(refused, "the Home tab without quotes")


async def asked_for(bench: Bench, quotes: int) -> None:
    """Make quotes and request their approval, each a minute after the one before. Every third needs U0VP, the others U0MANAGER."""
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in range(1, quotes + 1):
        at, discount = MORNING + number * 60_000, f"{11 if number % 3 else 21}.{number:02}"
        await bench.ledger.reserve(request_for(create_command(discount), f"c{number}", received_at=at))
        await executor.step()
        asked = request_for(SubmitQuote(), f"s{number}", quote_id=f"Q-2026-{number:04}", version=1, received_at=at)
        await bench.ledger.reserve(asked)
        await executor.step()


async def waiting(bench: Bench, user: str, section: Section = Section.ALL, page: int = 1) -> tuple[list[int], int, int]:
    """Return the quotes that a person's Home lists for decision, by their numbers; how many there are; the pages.

    A negative number says that there may be more.
    """
    await bench.ledger.database.write("test", lambda tx: homes.keep(tx, "T0HOME", user, homes.HomeChoice(section, page), 1))
    reader = Reader(viewer(user))
    found = await bench.ledger.database.read(lambda tx: load_home(tx, reader, RULES, bench.clock.now_ms()))
    part = found.parts[Section.NEEDS_YOU]
    total = -part.total if part.more else part.total
    return [int(row.quote.quote_id[-4:]) for row in part.rows if isinstance(row, Needed)], total, found.pages


async def test_approvals_due_next_come_first_and_every_one_is_on_a_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await asked_for(bench, 24)
    assert await waiting(bench, "U0VP") == ([3, 6, 9, 12, 15, 18, 21, 24], 8, 1)
    mine = [number for number in range(1, 25) if number % 3]
    assert await waiting(bench, "U0MANAGER") == (mine[:10], 16, 1)
    assert await waiting(bench, "U0MANAGER", Section.NEEDS_YOU) == (mine[:PAGE_ROWS], 16, 2)
    assert await waiting(bench, "U0MANAGER", Section.NEEDS_YOU, 2) == (mine[PAGE_ROWS:], 16, 2)
    assert await waiting(bench, "U0MANAGER", Section.NEEDS_YOU, 9) == (mine[PAGE_ROWS:], 16, 2)
    assert await waiting(bench, "U0REP", Section.WAITING, 2) == ([], 0, 2)
    bench.rows("UPDATE approval_slots SET expires_at = expires_at - 3600000 WHERE approval_id LIKE 'A-2026-0021%'")
    assert await waiting(bench, "U0VP") == ([21, 3, 6, 9, 12, 15, 18, 24], 8, 1)
    monkeypatch.setattr(work_queue, "NEEDED_MAX", 8)
    assert (await waiting(bench, "U0VP"))[1] == 8
    assert (await waiting(bench, "U0MANAGER"))[1] == -8
    monkeypatch.setattr(work_queue, "ASKED_MAX", 23)
    assert (await waiting(bench, "U0VP"))[1] == -7
