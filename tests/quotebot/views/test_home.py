"""Tests of App Home: its content per person, within Slack's limits, and published by its own operation."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Delivered, Retry, Trouble
from quotebot import effects
from quotebot.app.installation import speak
from quotebot.commands.payloads import ShowHome, SubmitQuote
from quotebot.commands.queries import Section
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.approvals.policy import HOUR_MS
from quotebot.domain.quotes.quote import Listed, QuoteState
from quotebot.domain.schedule.schedules import local_hour
from quotebot.execution.executor import Executor
from quotebot.views.blocks import SEAL_CHARACTERS
from quotebot.views.card import APPROVE
from quotebot.views.confirmations import SHOW
from quotebot.views.digest_card import digest_card
from quotebot.views.forms import quote_options
from quotebot.views.home import EXAMPLE, FILTER, NEW_QUOTE, home_view
from quotebot.views.work_queue import FIRST_ROWS, PAGE_ROWS, Home, Needed, Part, Reader, WaitingQuote, load_home
from tests.quotebot.access_parts import viewer
from tests.quotebot.dispatch.test_follow_ups import SETTLE_MS, performer_of
from tests.quotebot.parts import MATRIX, RULES, Bench, create_command, request_for
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import MORNING, example_approval, example_quote
from tests.rig import FIRST_QUOTE, Deal

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from quotebot.domain.quotes.quote import Quote

PENDING = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())


def listed(number: int, state: QuoteState, account: str = "Acme") -> Listed:
    quote_id = f"Q-2026-{number:04}"
    return Listed(quote_id, 2, state, account, "U0REP", "rep", MORNING, MORNING + 1, Decimal("17340.00"), "USD")


def needed(quote: Quote) -> Needed:
    assert quote.approval is not None
    return Needed(quote, quote.approval, MORNING + 72 * HOUR_MS, MORNING + 4 * HOUR_MS)


def filled(rows: int, account: str = "Acme") -> dict[Section, Part]:
    """Return every section with `rows` rows of more."""
    waiting = [WaitingQuote(listed(number, QuoteState.PENDING_APPROVAL, account), ("U0VP",), MORNING) for number in range(rows)]
    others = {Section.READY: QuoteState.FINALIZED, Section.EXPIRING: QuoteState.SENT, Section.OPEN: QuoteState.PRICED}
    reasons = (account,) * 9
    asked = [replace(PENDING, quote_id=f"Q-2026-{number:04}", account=account) for number in range(rows)]
    asked = [replace(quote, approval=example_approval(reasons=reasons)) if account != "Acme" else quote for quote in asked]
    return {
        Section.NEEDS_YOU: Part(tuple(needed(quote) for quote in asked), 99),
        Section.WAITING: Part(tuple(waiting), 99),
        **{name: Part(tuple(listed(n, state, account) for n in range(rows)), 99) for name, state in others.items()},
        Section.CLOSED: Part(tuple(listed(n, QuoteState.ACCEPTED, account) for n in range(rows)), 99),
    }


def test_a_home_with_everything_reads_like_this(snapshot: SnapshotAssertion) -> None:
    view = home_view(Home(filled(1), name="Rep Resentative", approves=True))
    assert view_problems(view) == []
    assert view == snapshot


def test_the_home_of_somebody_new_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert view_problems(home_view(Home())) == []
    assert home_view(Home()) == snapshot


@pytest.mark.usefixtures("german")
def test_a_german_home_and_digest_say_what_to_decide_and_what_waits() -> None:
    home = Home(filled(1), name="Anna Beispiel", approves=True)
    texts = texts_of(home_view(home))
    assert texts[:2] == ["Guten Morgen, Anna", "*99 zu entscheiden* · 396 offen"]
    assert {"Zu entscheiden (99)", "Wartet auf andere (99)", "Läuft diese Woche ab (99)", "Alle 99 ansehen"} <= set(texts)
    (asked,) = (text for text in texts if " Rabatt (" in text)
    assert asked.splitlines()[2].startswith("15\N{NO-BREAK SPACE}% Rabatt (3.060,00\N{NO-BREAK SPACE}$)")
    page = texts_of(home_view(Home(filled(1), Section.READY, page=2, pages=9)))
    assert {"Versandbereit (99), Seite 2 von 9", "◀ Zurück", "Weiter ▶", "Anzeigen"} <= set(page)
    assert digest_card(home).text == (
        "Guten Morgen, Anna: 99 zu entscheiden, 99 warten auf andere, 99 versandbereit, 99 laufen diese Woche ab"
    )
    assert view_problems(home_view(home)) == []


def texts_of(found: Any) -> list[str]:
    """Return every text of Block Kit, in order."""
    if isinstance(found, list):
        return [text for each in found for text in texts_of(each)]
    if not isinstance(found, dict):
        return []
    return [found["text"]] if isinstance(found.get("text"), str) else [text for each in found.values() for text in texts_of(each)]


@pytest.mark.parametrize("section", Section)
def test_the_fullest_home_keeps_to_the_limits_whatever_its_quotes_are_called(section: Section) -> None:
    hostile = "<!channel> & <@U0CFO> \u202e" + "<" * 500
    parts = filled(PAGE_ROWS, hostile)
    if section is Section.ALL:
        parts = {name: replace(part, rows=part.rows[: FIRST_ROWS[name]]) for name, part in parts.items()}
    view = home_view(Home(parts, section, page=2, pages=9, name=hostile, approves=True))
    assert view_problems(view) == []
    assert len(view["blocks"]) <= 100
    assert "<!channel>" not in str(view)
    assert "<@U0CFO>" not in str(view)


@pytest.mark.parametrize("language", ["en", "de"])
def test_option_of_a_found_quote_fits_and_keeps_its_number_state_and_total(language: str) -> None:
    speak(language)
    found = [
        replace(listed(1, state, "<Acme>\n" * 40), net_total=Decimal("-123456789012.00"), currency="CAD") for state in QuoteState
    ]
    texts = [each["text"]["text"] for each in quote_options([*found, PENDING])]
    speak("en")
    assert all(len(text) <= 75 and "\n" not in text and "… · Q-2026-0001 v2 · " in text and "123" in text for text in texts[:-1])
    assert texts[-1].startswith(f"Acme · {PENDING.quote_id} · ")
    assert all(len(each["value"]) + SEAL_CHARACTERS <= 150 for each in quote_options(found))


def test_greeting_follows_the_hour_where_the_person_is() -> None:
    read = [home_view(Home(name="Rep", hour=hour))["blocks"][0]["text"]["text"] for hour in (0, 11, 12, 18)]
    assert read == ["Good morning, Rep", "Good morning, Rep", "Good afternoon, Rep", "Good evening, Rep"]
    assert local_hour(MORNING, "America/New_York") == 5
    assert local_hour(MORNING, "Nowhere/At_All") == 10


def test_button_that_ends_several_covers_says_so() -> None:
    covers = (Delegation("U0VP", "U0CFO", 0, MORNING), Delegation("U0VP", "U0MANAGER", MORNING, MORNING + 1))
    labels = []
    for language in ("en", "de"):
        speak(language)
        drawn = [home_view(Home(holds_role=True, covers=covers[:count], drawn_at=1)) for count in (1, 2)]
        labels += [block["accessory"]["text"]["text"] for view in drawn for block in view["blocks"] if "accessory" in block]
    speak("en")
    assert labels == ["End now", "End all", "Jetzt beenden", "Alle beenden"]


async def test_only_who_may_decide_is_asked_and_only_the_requester_sees_their_quotes(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    await executor.step()

    async def home(user: str, team: str = "T0HOME") -> tuple[list[str], list[str]]:
        reader = Reader(viewer(user, team))
        found = await bench.ledger.database.read(lambda tx: load_home(tx, reader, RULES, bench.clock.now_ms()))
        asked = [row.quote.quote_id for row in found.parts[Section.NEEDS_YOU].rows if isinstance(row, Needed)]
        return asked, [row.listed.quote_id for row in found.parts[Section.WAITING].rows if isinstance(row, WaitingQuote)]

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
    assert f"Acme · {FIRST_QUOTE}" in str(shown["blocks"][0])

    await on_home(deal, "U0MANAGER", APPROVE)
    await deal.settled()
    assert "You're all caught up" in str(await published(deal, "U0MANAGER"))
    kinds = [row["action_kind"] for row in await deal.rows("SELECT action_kind FROM operations ORDER BY id")]
    assert sorted(kinds[2:]) == ["approval.decide", "home.show", "home.show"]


async def test_new_quote_on_the_home_tab_asks_for_the_channel_too(deal: Deal) -> None:
    await deal.post("home", user="U0REP")
    await deal.settled()
    await on_home(deal, "U0REP", NEW_QUOTE)
    (view,) = (await deal.get("state"))["views"]
    values = {"account": "Acme", "terms": "5 pro", "channel": "C0DEALS"}
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


async def test_home_is_republished_when_a_request_opens_or_closes_and_only_if_it_changed(deal: Deal) -> None:
    for user in ("U0MANAGER", "U0REP"):
        await deal.post("home", user=user)
    await deal.settled()
    await deal.submitted_deal()
    assert FIRST_QUOTE in str(await published(deal, "U0MANAGER"))
    assert "Waiting for <@U0MANAGER>" in str(await published(deal, "U0REP"))
    before = await published(deal, "U0MANAGER")
    await deal.post("home", user="U0MANAGER")
    await deal.settled()
    assert (await published(deal, "U0MANAGER"))["hash"] == before["hash"]
    await on_home(deal, "U0MANAGER", APPROVE)
    await deal.settled()
    assert "You're all caught up" in str(await published(deal, "U0MANAGER"))
    assert "Ready to send (1)" in str(await published(deal, "U0REP"))


async def test_filter_of_the_home_tab_stays_until_another_is_chosen(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.post("home", user="U0MANAGER")
    await deal.settled()
    home = await published(deal, "U0MANAGER")
    await deal.post("action", user="U0MANAGER", channel="C0DEALS", view_id=home["id"], action_id=FILTER, value="Recently closed")
    await deal.settled()
    assert "Nothing here now." in str(await published(deal, "U0MANAGER"))
    await deal.post("home", user="U0MANAGER")
    await deal.settled()
    assert FIRST_QUOTE not in str(await published(deal, "U0MANAGER"))


async def test_example_on_the_first_home_tab_prices_a_product_and_records_nothing(deal: Deal) -> None:
    await deal.post("home", user="U0REP")
    await deal.settled()
    before = await deal.rows("SELECT id FROM operations")
    await on_home(deal, "U0REP", EXAMPLE)
    (view,) = (await deal.get("state"))["views"]
    assert "What if" in str(view)
    assert await deal.rows("SELECT id FROM operations") == before
