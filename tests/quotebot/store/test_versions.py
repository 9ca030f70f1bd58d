"""Tests of quote versions in a real file: saved atomically, and guarded by the file itself."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from quotebot.domain.approvals.requests import invalidated
from quotebot.domain.quotes.lifecycle import IllegalTransitionError, allowed, is_final
from quotebot.domain.quotes.quote import Closing, Freezing, QuoteState, Sending
from quotebot.store import quotes as store
from quotebot.store import versions
from quotebot.store.versions import Filter, Page
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_pricing, example_quote, quote_in

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0042"
LATER = MORNING + 86_400_000


async def inserted(bench: Bench, quote: Quote, number: int = 1) -> None:
    def work(tx: Tx) -> None:
        key = f"{number}" * 64
        store.insert(tx, quote, operation_key=key, root_effect_key="2" * 64, asked_hash="3" * 64, recorded_at=MORNING)

    await bench.ledger.database.write("test", work)


async def saved(bench: Bench, before: Quote, after: Quote) -> None:
    await bench.ledger.database.write("test", lambda tx: versions.save(tx, before, after, LATER))


async def loaded(bench: Bench, version: int | None = None) -> Quote | None:
    if version is None:
        return await bench.ledger.database.read(lambda tx: store.load(tx, QUOTE))
    return await bench.ledger.database.read(lambda tx: store.load_version(tx, QUOTE, version))


def next_version(before: Quote, discount: str = "8") -> Quote:
    return replace(
        before,
        version=before.version + 1,
        state=QuoteState.PRICED,
        pricing=example_pricing(discount),
        approval=None,
        sent=None,
        valid_until=before.valid_until + 86_400_000,
        revised_by="U0REP",
        revised_at=LATER,
    )


# ------------------------------------------------------------------------------------------------------------ the arrows


@pytest.mark.parametrize(("origin", "target"), list(product(QuoteState, QuoteState)))
async def test_the_file_itself_knows_every_arrow(bench: Bench, origin: QuoteState, target: QuoteState) -> None:
    """All 144 pairs, tried with plain SQL."""
    await inserted(bench, example_quote(origin))
    if target in allowed(origin) or target is origin:
        bench.rows("UPDATE quotes SET state = ?", target.value)
        assert bench.row("SELECT state FROM quotes")["state"] == target.value
        return
    with pytest.raises(sqlite3.IntegrityError, match="a quote has no such arrow"):
        bench.rows("UPDATE quotes SET state = ?", target.value)
    assert bench.row("SELECT state FROM quotes")["state"] == origin.value


@pytest.mark.parametrize("origin", list(QuoteState))
async def test_a_new_version_follows_what_is_not_final_and_nothing_else(bench: Bench, origin: QuoteState) -> None:
    before = quote_in(origin)
    await inserted(bench, before)
    found = await loaded(bench)
    assert found is not None
    if is_final(origin):
        with pytest.raises(IllegalTransitionError):
            await saved(bench, found, next_version(found))
        assert await loaded(bench) == found
        return
    await saved(bench, found, next_version(found))
    assert await loaded(bench) == next_version(found)
    closed = None if found.approval is None else invalidated(found.approval, LATER)
    assert await loaded(bench, 1) == replace(found, approval=closed, superseded=True)
    assert await loaded(bench, 3) is None


SUPERSEDED = "INSERT INTO superseded_versions VALUES ('Q-2026-0042', 1, 'priced', 1, 'U0REP', 1)"
PRICED_AGAIN = "INSERT INTO quote_versions SELECT quote_id, 2, ruleset, pricing, pricing_hash, created_at FROM quote_versions"


@pytest.mark.parametrize(
    ("prepared", "sql"),
    [
        ((), "UPDATE quotes SET version = 2"),
        ((PRICED_AGAIN,), "UPDATE quotes SET version = 2"),
        ((SUPERSEDED,), "UPDATE quotes SET version = 2"),
        ((PRICED_AGAIN, SUPERSEDED), "UPDATE quotes SET version = 3"),
        ((PRICED_AGAIN, SUPERSEDED), "UPDATE quotes SET version = 0"),
        ((PRICED_AGAIN, SUPERSEDED), "UPDATE quotes SET version = 2, state = 'approved'"),
    ],
)
async def test_the_file_itself_refuses_a_version_out_of_turn(bench: Bench, prepared: tuple[str, ...], sql: str) -> None:
    await inserted(bench, example_quote())
    for statement in prepared:
        bench.rows(statement)
    with pytest.raises(sqlite3.IntegrityError, match="a quote goes from version to version"):
        bench.rows(sql)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE superseded_versions SET state = 'sent'", "a superseded version stays as it was"),
        ("DELETE FROM superseded_versions", "a superseded version is kept"),
        ("UPDATE quote_freezings SET frozen_by = 'another'", "a version is finalized once"),
        ("DELETE FROM quote_freezings", "who finalized a version is kept"),
        ("UPDATE quote_sendings SET recipient = 'another'", "what was sent was sent"),
        ("DELETE FROM quote_sendings", "what was sent is kept"),
        ("UPDATE quote_closings SET reason = 'another'", "a quote ends once"),
        ("DELETE FROM quote_closings", "how a quote ended is kept"),
    ],
)
async def test_the_file_itself_keeps_what_became_of_a_version(bench: Bench, sql: str, why: str) -> None:
    final = await _sent_and_lost(bench)
    with pytest.raises(sqlite3.IntegrityError, match=why):
        bench.rows(sql)
    assert await loaded(bench) == final


async def _sent_and_lost(bench: Bench) -> Quote:
    """Return a quote that was revised once, then sent and lost."""
    first = example_quote()
    await inserted(bench, first)
    quote = next_version(first)
    await saved(bench, first, quote)
    approval = decided(quote_in(QuoteState.APPROVED).approval.state, approval_id="A-2026-0042-v2-1", quote_version=2)  # type: ignore[union-attr] # it has one
    for after in (
        replace(quote, state=QuoteState.APPROVED, approval=approval),
        replace(quote, state=QuoteState.FINALIZED, approval=approval, frozen=(frozen := Freezing("U0REP", LATER))),
        replace(quote, state=QuoteState.SENT, approval=approval, frozen=frozen, sent=Sending("buyer", "U0REP", LATER)),
    ):
        await saved(bench, quote, after)
        quote = after
    lost = replace(quote, state=QuoteState.LOST, closing=Closing("too expensive", "U0REP", LATER + 1))
    await saved(bench, quote, lost)
    return lost


async def test_what_became_of_a_quote_comes_back_with_it(bench: Bench) -> None:
    lost = await _sent_and_lost(bench)
    assert await loaded(bench) == lost
    first = await loaded(bench, 1)
    assert first == replace(example_quote(), superseded=True)


async def test_a_lost_quote_without_a_reason_is_refused_by_the_file(bench: Bench) -> None:
    sent = quote_in(QuoteState.SENT)
    await inserted(bench, sent)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        await saved(bench, sent, replace(sent, state=QuoteState.LOST, closing=Closing(None, "U0REP", LATER)))
    assert await loaded(bench) == sent


async def test_a_version_that_was_superseded_meanwhile_is_not_superseded_again(bench: Bench) -> None:
    first = example_quote()
    await inserted(bench, first)
    await saved(bench, first, next_version(first, "8"))
    with pytest.raises(sqlite3.IntegrityError):
        await saved(bench, first, next_version(first, "9"))
    found = await loaded(bench)
    assert found is not None
    assert found.pricing.discount_percent == 8


async def test_what_moved_meanwhile_is_not_superseded_from_its_old_state(bench: Bench) -> None:
    first = example_quote()
    await inserted(bench, first)
    bench.rows("UPDATE quotes SET state = 'pending_approval'")
    with pytest.raises(store.ConcurrentChangeError):
        await saved(bench, first, next_version(first))
    assert bench.rows("SELECT 1 FROM superseded_versions") == []


async def test_the_request_about_an_older_version_stays_with_it_and_is_closed(bench: Bench) -> None:
    waiting = replace(example_quote(QuoteState.PENDING_APPROVAL), approval=example_approval())
    await inserted(bench, waiting)
    await saved(bench, waiting, next_version(waiting))
    head, old = await loaded(bench), await loaded(bench, 1)
    assert head is not None
    assert old is not None
    assert (head.approval, old.approval) == (None, invalidated(example_approval(), LATER))


# --------------------------------------------------------------------------------------------------------------- the list


async def _several(bench: Bench) -> None:
    owners = ("U0REP", "U0REP", "U0OTHER", "U0REP")
    accounts = ("Acme", "ACME Ltd", "Beta 100%", "Gamma")
    states = (QuoteState.PRICED, QuoteState.SENT, QuoteState.PRICED, QuoteState.LOST)
    for number, (owner, account, state) in enumerate(zip(owners, accounts, states, strict=True), start=1):
        quote = example_quote(state, quote_id=f"Q-2026-{number:04d}", requester=owner, account=account, created_at=MORNING + number)
        await inserted(bench, quote, number)
    await inserted(bench, example_quote(quote_id="Q-2026-0009", team_id="T0OTHER"), 9)


LISTS: dict[str, tuple[Filter, str]] = {
    "all of a workspace, the newest first": (Filter("T0HOME"), "4 3 2 1"),
    "another workspace": (Filter("T0OTHER"), "9"),
    "an unknown workspace": (Filter("T0NONE"), ""),
    "of one person": (Filter("T0HOME", owner="U0REP"), "4 2 1"),
    "in one state": (Filter("T0HOME", states=frozenset({QuoteState.PRICED})), "3 1"),
    "in one of several states": (Filter("T0HOME", states=frozenset({QuoteState.SENT, QuoteState.LOST})), "4 2"),
    "by a piece of the name, in either case": (Filter("T0HOME", account="acme"), "2 1"),
    "a percent sign is itself": (Filter("T0HOME", account="%"), "3"),
    "all together": (Filter("T0HOME", "U0REP", frozenset({QuoteState.SENT}), "LTD"), "2"),
}


@pytest.mark.parametrize("case", LISTS)
async def test_a_list_holds_what_fits_and_nothing_else(bench: Bench, case: str) -> None:
    await _several(bench)
    chosen, expected = LISTS[case]
    page = await bench.ledger.database.read(lambda tx: versions.list_quotes(tx, chosen))
    assert [quote.quote_id for quote in page.quotes] == [f"Q-2026-{int(number):04d}" for number in expected.split()]
    assert not page.more


async def test_a_list_comes_in_pages_without_a_gap(bench: Bench) -> None:
    await _several(bench)

    def work(tx: Tx) -> list[Page]:
        return [versions.list_quotes(tx, Filter("T0HOME"), page=page, rows=3) for page in (1, 2, 3)]

    pages = await bench.ledger.database.read(work)
    assert [[quote.quote_id[-1] for quote in page.quotes] for page in pages] == [["4", "3", "2"], ["1"], []]
    assert [page.more for page in pages] == [True, False, False]


async def test_a_list_shows_the_head(bench: Bench) -> None:
    first = example_quote()
    await inserted(bench, first)
    await saved(bench, first, next_version(first))
    (listed,) = (await bench.ledger.database.read(lambda tx: versions.list_quotes(tx, Filter("T0HOME")))).quotes
    assert (listed.version, listed.net_total, listed.currency) == (2, example_pricing("8").net_total, "USD")


async def test_the_only_workspace_is_known_while_there_is_one(bench: Bench) -> None:
    assert await bench.ledger.database.read(versions.only_team) is None
    await inserted(bench, example_quote(), 1)
    assert await bench.ledger.database.read(versions.only_team) == "T0HOME"
    await inserted(bench, example_quote(quote_id="Q-2026-0009", team_id="T0OTHER"), 9)
    assert await bench.ledger.database.read(versions.only_team) is None
