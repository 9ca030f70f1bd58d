"""Tests of App Home: its content per person, within Slack's limits, and published by its own operation."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ledger.records import Delivered, Retry, Trouble
from quotebot import effects
from quotebot.commands.payloads import ShowHome, SubmitQuote
from quotebot.domain.quotes.quote import Listed, QuoteState
from quotebot.execution.executor import Executor
from quotebot.views.card import APPROVE
from quotebot.views.confirmations import SHOW
from quotebot.views.home import ENDED_MAX, NEW_QUOTE, OPEN_MAX, WAITING_MAX, Home, home_view, load_home
from tests.quotebot.access_parts import viewer
from tests.quotebot.dispatch.test_follow_ups import SETTLE_MS, performer_of
from tests.quotebot.parts import MATRIX, RULES, Bench, create_command, request_for
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import MORNING, example_approval, example_quote
from tests.rig import FIRST_QUOTE, Deal

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

PENDING = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())


def listed(number: int, state: QuoteState, account: str = "Acme") -> Listed:
    quote_id = f"Q-2026-{number:04}"
    return Listed(quote_id, 2, state, account, "U0REP", "rep", MORNING, MORNING + 1, Decimal("17340.00"), "USD")


FULL = Home(
    (PENDING,),
    more_waiting=False,
    open=(listed(41, QuoteState.PRICED), listed(40, QuoteState.SENT)),
    more_open=True,
    ended=(listed(12, QuoteState.ACCEPTED),),
)


def test_a_home_with_everything_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert view_problems(home_view(FULL)) == []
    assert home_view(FULL) == snapshot


def test_the_home_of_somebody_new_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert view_problems(home_view(Home())) == []
    assert home_view(Home()) == snapshot


def test_the_fullest_home_keeps_to_the_limits_whatever_its_quotes_are_called() -> None:
    hostile = "<!channel> & <@U0CFO> \u202e" + "<" * 500
    waiting = tuple(
        replace(PENDING, quote_id=f"Q-2026-{number:04}", account=hostile, approval=example_approval(reasons=(hostile,) * 9))
        for number in range(WAITING_MAX)
    )
    rows = tuple(listed(number, QuoteState.SENT, hostile) for number in range(OPEN_MAX))
    view = home_view(Home(waiting, more_waiting=True, open=rows, more_open=True, ended=rows[:ENDED_MAX]))
    assert view_problems(view) == []
    assert len(view["blocks"]) <= 100
    assert "<!channel>" not in str(view)
    assert "<@U0CFO>" not in str(view)


async def test_only_who_may_decide_is_asked_and_only_the_requester_sees_their_quotes(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    await executor.step()

    async def home(user: str, team: str = "T0HOME") -> tuple[list[str], list[str]]:
        found = await bench.ledger.database.read(lambda tx: load_home(tx, viewer(user, team), RULES, bench.clock.now_ms()))
        return [quote.quote_id for quote in found.waiting], [row.quote_id for row in found.open]

    assert await home("U0MANAGER") == (["Q-2026-0001"], [])
    assert await home("U0REP") == ([], ["Q-2026-0001"])
    assert await home("U0LEGAL") == ([], [])
    assert await home("U0MANAGER", "T0OTHER") == ([], [])


async def published(deal: Deal, user: str) -> dict[str, Any]:
    found: dict[str, Any] = (await deal.get("state"))["homes"][user]
    return found


async def on_home(deal: Deal, user: str, action_id: str) -> dict[str, Any]:
    """Click on the person's Home tab."""
    home = await published(deal, user)
    answer: dict[str, Any] = await deal.post("action", user=user, channel="C0DEALS", view_id=home["id"], action_id=action_id)
    return answer


async def test_an_approver_decides_on_the_home_tab_which_is_then_drawn_anew(deal: Deal) -> None:
    await deal.submitted_deal()
    opened = await deal.post("home", user="U0MANAGER")
    await deal.redeliver(opened["request_id"], "retry", 2)
    await deal.settled()
    assert FIRST_QUOTE in str(await published(deal, "U0MANAGER"))
    await on_home(deal, "U0MANAGER", SHOW)
    (shown,) = [view["view"] for view in (await deal.get("state"))["views"] if view["user"] == "U0MANAGER"]
    assert f"Quote {FIRST_QUOTE}" in str(shown["blocks"][0])

    await on_home(deal, "U0MANAGER", APPROVE)
    await deal.settled()
    assert "Nothing waits for you" in str(await published(deal, "U0MANAGER"))
    kinds = [row["action_kind"] for row in await deal.rows("SELECT action_kind FROM operations ORDER BY id")]
    assert sorted(kinds[2:]) == ["approval.decide", "home.show", "home.show"]


async def test_new_quote_on_the_home_tab_asks_for_the_channel_too(deal: Deal) -> None:
    await deal.post("home", user="U0REP")
    await deal.settled()
    await on_home(deal, "U0REP", NEW_QUOTE)
    (view,) = (await deal.get("state"))["views"]
    values = {"account": "Acme", "lines": "5 pro", "channel": "C0DEALS"}
    await deal.post("submit", user="U0REP", view_id=view["view"]["id"], values={key: {key: value} for key, value in values.items()})
    await deal.settled()
    assert f"Quote {FIRST_QUOTE} for Acme" in (await deal.card())["text"]


async def test_home_tab_is_drawn_again_after_the_settle_delay_when_an_update_was_lost(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(ShowHome("U0REP"), "1", quote_id="home:U0REP"))
    await executor.step()
    lost = Retry(Trouble("transient", "No answer.", maybe_sent=True), 0)
    for settlement in (lost, Delivered(None, {})):
        (effect,) = await bench.ledger.claim_effects({effects.CARD: 1})
        await bench.ledger.settle(effect, settlement, performer_of(bench).follow_ups)
    again = bench.row("SELECT state, not_before, supersede_key FROM effects WHERE id > ?", effect.id)
    assert again == {"state": "pending", "not_before": bench.clock.now_ms() + SETTLE_MS, "supersede_key": None}
