"""Tests of stored quotes and their versions in a real file: saved atomically, and guarded by the file itself."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import load_statements
from quotebot.domain.approvals.requests import invalidated
from quotebot.domain.quotes.lifecycle import IllegalTransitionError, allowed, is_final
from quotebot.domain.quotes.quote import ApprovalState, Closing, Freezing, QuoteState, Sending
from quotebot.store import quotes as store
from quotebot.store.quotes import Filter, Page
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_pricing, example_quote, quote_in

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote
    from tests.quotebot.parts import Bench

PRICED = example_quote(requester_name="rep")
PENDING = replace(PRICED, state=QuoteState.PENDING_APPROVAL, approval=example_approval())
REJECTED = replace(PENDING, state=QuoteState.REJECTED, approval=decided(ApprovalState.REJECTED, decision_reason="Too deep.\nNo."))
OPERATION, ROOT, ASKED = "1" * 64, "2" * 64, "3" * 64

QUOTE = "Q-2026-0042"
LATER = MORNING + 86_400_000


async def inserted(bench: Bench, quote: Quote, operation_key: str = OPERATION, *, recorded_at: int = MORNING) -> None:
    def work(tx: Tx) -> None:
        store.insert(tx, quote, operation_key=operation_key, root_effect_key=ROOT, asked_hash=ASKED, recorded_at=recorded_at)

    await bench.ledger.database.write("test", work)


async def test_a_quote_comes_back_as_it_was_stored(bench: Bench) -> None:
    await inserted(bench, PRICED)
    assert await loaded(bench) == PRICED


@pytest.mark.parametrize("discount", ["0", "12.34", "100"])
async def test_prices_come_back_to_the_last_digit(bench: Bench, discount: str) -> None:
    quote = replace(PRICED, pricing=example_pricing(discount))
    await inserted(bench, quote)
    found = await loaded(bench)
    assert found is not None
    assert found.pricing == quote.pricing
    assert str(found.pricing) == str(quote.pricing)  # equal decimals may be written differently


async def test_a_request_and_its_decision_come_back_with_the_quote(bench: Bench) -> None:
    await inserted(bench, PRICED)
    await saved(bench, PRICED, PENDING)
    assert await loaded(bench) == PENDING
    await saved(bench, PENDING, REJECTED)
    assert await loaded(bench) == REJECTED


async def test_an_unknown_quote_is_none(bench: Bench) -> None:
    assert await loaded(bench) is None
    with pytest.raises(LookupError, match="Q-2026-0042"):
        await bench.ledger.database.read(lambda tx: store.root_effect_key(tx, "Q-2026-0042"))


async def test_the_thread_is_remembered(bench: Bench) -> None:
    await inserted(bench, PRICED)
    await bench.ledger.database.write("test", lambda tx: store.set_thread(tx, "Q-2026-0042", "17.5", MORNING))
    assert await loaded(bench) == replace(PRICED, thread_ts="17.5")


async def test_a_row_that_moved_meanwhile_is_never_overwritten(bench: Bench) -> None:
    await inserted(bench, PRICED)
    await saved(bench, PRICED, PENDING)
    await saved(bench, PENDING, REJECTED)
    approved = replace(PENDING, state=QuoteState.APPROVED, approval=decided(ApprovalState.APPROVED))
    with pytest.raises(store.ConcurrentChangeError, match="Q-2026-0042"):
        await saved(bench, PENDING, approved)
    assert await loaded(bench) == REJECTED


async def test_an_approval_decided_meanwhile_is_never_overwritten(bench: Bench) -> None:
    await inserted(bench, PENDING)
    await saved(bench, PENDING, replace(PENDING, approval=REJECTED.approval))
    with pytest.raises(store.ConcurrentChangeError, match="A-2026-0042-v1-1"):
        await saved(bench, PENDING, replace(PENDING, approval=decided(ApprovalState.APPROVED)))


async def test_a_lost_race_rolls_the_whole_change_back(bench: Bench) -> None:
    await inserted(bench, PENDING)
    await saved(bench, PENDING, replace(PENDING, approval=REJECTED.approval))
    with pytest.raises(store.ConcurrentChangeError):
        await saved(bench, PENDING, replace(PENDING, state=QuoteState.APPROVED, approval=decided(ApprovalState.APPROVED)))
    found = await loaded(bench)
    assert found is not None
    assert found.state is QuoteState.PENDING_APPROVAL


async def test_an_arrow_that_is_not_drawn_is_not_stored(bench: Bench) -> None:
    await inserted(bench, PRICED)
    with pytest.raises(IllegalTransitionError):
        await saved(bench, PRICED, replace(PRICED, state=QuoteState.SENT))


async def test_one_operation_creates_one_quote(bench: Bench) -> None:
    await inserted(bench, PRICED)
    with pytest.raises(sqlite3.IntegrityError, match="created_by_operation"):
        await inserted(bench, replace(PRICED, quote_id="Q-2026-0043"))
    assert len(bench.rows("SELECT 1 FROM quotes")) == 1


async def test_a_version_has_one_open_request_at_most(bench: Bench) -> None:
    await inserted(bench, PENDING)
    second = replace(PENDING, approval=example_approval(approval_id="A-2026-0042-v1-2"))
    with pytest.raises(sqlite3.IntegrityError):
        await saved(bench, PENDING, second)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE quote_versions SET pricing = '{}'", "a priced version is immutable"),
        ("UPDATE quote_versions SET version = 2", "a priced version is immutable"),
        ("DELETE FROM quote_versions", "a priced version is kept"),
        ("UPDATE approvals SET state = 'approved'", "an approval is decided once"),
        ("UPDATE approvals SET decided_by = 'U0REP'", "an approval is decided once"),
        ("UPDATE quotes SET account = 'Other'", "a quote keeps its identity"),
        ("UPDATE quotes SET requester = 'U0MANAGER'", "a quote keeps its identity"),
        ("UPDATE quotes SET team_id = 'T0OTHER'", "a quote keeps its identity"),
        ("UPDATE quotes SET asked_hash = created_by_operation", "a quote keeps its identity"),
        ("DELETE FROM quotes", "a quote is kept"),
        ("UPDATE quotes SET state = 'mine'", "a quote has no such arrow"),
        ("UPDATE quotes SET state = 'sent'", "a quote has no such arrow"),
        ("UPDATE quotes SET version = 2", "a quote goes from version to version"),
    ],
)
async def test_the_file_itself_refuses_to_rewrite_history(bench: Bench, sql: str, why: str) -> None:
    await inserted(bench, REJECTED)
    with pytest.raises(sqlite3.IntegrityError, match=why):
        bench.rows(sql)
    assert await loaded(bench) == REJECTED


async def test_a_decision_cannot_be_deleted(bench: Bench) -> None:
    await inserted(bench, REJECTED)
    with pytest.raises(sqlite3.IntegrityError):
        bench.rows("DELETE FROM approvals")


async def test_numbers_count_per_year_and_a_rolled_back_one_is_given_again(bench: Bench) -> None:
    database = bench.ledger.database

    def fails(tx: Tx) -> None:
        store.next_quote_id(tx, 2026)
        raise KeyError("after the number")

    assert await database.write("test", lambda tx: store.next_quote_id(tx, 2026)) == "Q-2026-0001"
    with pytest.raises(KeyError):
        await database.write("test", fails)
    assert await database.write("test", lambda tx: store.next_quote_id(tx, 2026)) == "Q-2026-0002"
    assert await database.write("test", lambda tx: store.next_quote_id(tx, 2027)) == "Q-2027-0001"


async def test_requests_are_counted_per_version(bench: Bench) -> None:
    await inserted(bench, REJECTED)
    counted = await bench.ledger.database.read(lambda tx: [store.approval_count(tx, "Q-2026-0042", v) for v in (1, 2)])
    assert counted == [1, 0]


async def twin(bench: Bench, **changes: Any) -> tuple[str, int, int] | None:
    asked = {"requester": "U0REP", "team_id": "T0HOME", "asked_hash": ASKED, "since": MORNING, **changes}
    return await bench.ledger.database.read(lambda tx: store.find_twin(tx, **asked))


async def test_a_twin_is_the_newest_quote_of_the_same_person_and_content_since_then(bench: Bench) -> None:
    await inserted(bench, PRICED)
    await inserted(bench, replace(PRICED, quote_id="Q-2026-0043"), "4" * 64, recorded_at=MORNING + 5)
    assert await twin(bench) == ("Q-2026-0043", 1, MORNING + 5)
    assert await twin(bench, since=MORNING + 5) == ("Q-2026-0043", 1, MORNING + 5)


@pytest.mark.parametrize(
    "changes", [{"since": MORNING + 1}, {"requester": "U0VP"}, {"team_id": "T0OTHER"}, {"asked_hash": "4" * 64}]
)
async def test_an_older_quote_or_one_of_another_person_team_or_content_is_no_twin(bench: Bench, changes: dict[str, Any]) -> None:
    await inserted(bench, PRICED)
    assert await twin(bench, **changes) is None


async def test_a_twin_is_found_by_its_index(bench: Bench) -> None:
    text = files("quotebot.store").joinpath("queries.sql").read_text("utf-8")
    sql = "EXPLAIN QUERY PLAN " + re.sub(r":\w+", "'x'", load_statements([text])["find_twin"])
    assert [row["detail"] for row in bench.rows(sql)] == [
        "SEARCH quotes USING INDEX quotes_requester (requester=? AND asked_hash=? AND recorded_at>?)"
    ]


async def test_the_last_quotes_of_a_customer_are_found_by_their_index(bench: Bench) -> None:
    sql = "EXPLAIN QUERY PLAN " + re.sub(r":\w+", "'x'", STORE["last_quotes_of_account"])
    assert [row["detail"] for row in bench.rows(sql)] == [
        "SEARCH q USING INDEX quotes_of_account (team_id=? AND <expr>=?)",
        "SEARCH v USING PRIMARY KEY (quote_id=? AND version=?)",
    ]


STORE = load_statements([files("quotebot.store").joinpath("queries.sql").read_text("utf-8")])


WALKS = {  # these go through a whole table because all of it is asked for
    "mirror_cursors": "one row for each kind of record that is mirrored: four",
    "mirrored_kinds": "the same four",
    "approvals_waiting": "the undecided requests, from an index that holds no others",
    "open_requests": "the same, every ten minutes",
    "homes_to_redraw": "the people of one request",
    "gone_holders": "the holders of roles who are no full members, from an index that holds no others",
    "open_slots": "the slots of undecided requests, from an index that holds no others; only while a holder is gone",
    "zones_of_people": "the holders of roles",
    "quote_numbers": "one row a year",
    "quote_numbers_given": "a verification of all: the last number of every year",
    "cards_of_open_quotes": "at a restore: every card is drawn again",
    "count_orphaned_letter_cards": "before `ledger prune`, when asked: as the next",
    "acts_for_others": "the events of one quote, from the end of its chain: the scan is of the walk's own rows",
    "open_ops_cards": "one row for each cause of dead letters that ever had a card",
    "waiting_of_causes": "while a cause has a card: the dead letters, from their index",
    "waiting_of_cause": "when a card is drawn: likewise",
    "newest_of_cause": "likewise",
    "forget_letter_cards": "once an hour: the cards whose letter is gone; there is one row for each letter that is kept",
}


@pytest.mark.parametrize("name", sorted(STORE.keys() - WALKS.keys()))
async def test_no_statement_of_the_store_scans_a_table(bench: Bench, name: str) -> None:
    plan = [row["detail"] for row in bench.rows("EXPLAIN QUERY PLAN " + re.sub(r":\w+", "'x'", STORE[name]))]
    assert not [step for step in plan if step.startswith("SCAN") and "CONSTANT ROW" not in step]


async def test_a_token_is_used_once_and_stays_used(bench: Bench) -> None:
    await inserted(bench, PRICED)
    database = bench.ledger.database
    assert await database.read(lambda tx: store.find_token_use(tx, OPERATION)) is None
    await database.write("test", lambda tx: store.use_token(tx, OPERATION, "Q-2026-0042", MORNING))
    assert await database.read(lambda tx: store.find_token_use(tx, OPERATION)) == "Q-2026-0042"
    with pytest.raises(sqlite3.IntegrityError, match=r"one_time_tokens\.token"):
        await database.write("test", lambda tx: store.use_token(tx, OPERATION, "Q-2026-0042", MORNING))
    for sql in ("DELETE FROM one_time_tokens", "UPDATE one_time_tokens SET used_at = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="a used token"):
            bench.rows(sql)


async def test_the_head_version_is_that_of_the_quote_as_it_is_now(bench: Bench) -> None:
    await inserted(bench, PRICED)
    assert await bench.ledger.database.read(lambda tx: store.head_version(tx, "Q-2026-0042")) == 1
    assert await bench.ledger.database.read(lambda tx: store.head_version(tx, "Q-2026-0099")) is None


async def test_an_operation_without_a_delivery_has_no_transport(bench: Bench) -> None:
    assert await bench.ledger.database.read(lambda tx: store.transport(tx, 99)) == {}


async def inserted_as(bench: Bench, quote: Quote, number: int = 1) -> None:
    def work(tx: Tx) -> None:
        key = f"{number}" * 64
        store.insert(tx, quote, operation_key=key, root_effect_key="2" * 64, asked_hash="3" * 64, recorded_at=MORNING)

    await bench.ledger.database.write("test", work)


async def saved(bench: Bench, before: Quote, after: Quote) -> None:
    await bench.ledger.database.write("test", lambda tx: store.save(tx, before, after, LATER))


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
    await inserted_as(bench, example_quote(origin))
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
    await inserted_as(bench, before)
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
    await inserted_as(bench, example_quote())
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
    await inserted_as(bench, first)
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
    await inserted_as(bench, sent)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        await saved(bench, sent, replace(sent, state=QuoteState.LOST, closing=Closing(None, "U0REP", LATER)))
    assert await loaded(bench) == sent


async def test_a_version_that_was_superseded_meanwhile_is_not_superseded_again(bench: Bench) -> None:
    first = example_quote()
    await inserted_as(bench, first)
    await saved(bench, first, next_version(first, "8"))
    with pytest.raises(sqlite3.IntegrityError):
        await saved(bench, first, next_version(first, "9"))
    found = await loaded(bench)
    assert found is not None
    assert found.pricing.discount_percent == 8


async def test_what_moved_meanwhile_is_not_superseded_from_its_old_state(bench: Bench) -> None:
    first = example_quote()
    await inserted_as(bench, first)
    bench.rows("UPDATE quotes SET state = 'pending_approval'")
    with pytest.raises(store.ConcurrentChangeError):
        await saved(bench, first, next_version(first))
    assert bench.rows("SELECT 1 FROM superseded_versions") == []


async def test_the_request_about_an_older_version_stays_with_it_and_is_closed(bench: Bench) -> None:
    waiting = replace(example_quote(QuoteState.PENDING_APPROVAL), approval=example_approval())
    await inserted_as(bench, waiting)
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
        await inserted_as(bench, quote, number)
    await inserted_as(bench, example_quote(quote_id="Q-2026-0009", team_id="T0OTHER"), 9)


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
    page = await bench.ledger.database.read(lambda tx: store.list_quotes(tx, chosen))
    assert [quote.quote_id for quote in page.quotes] == [f"Q-2026-{int(number):04d}" for number in expected.split()]
    assert not page.more


async def test_a_list_comes_in_pages_without_a_gap(bench: Bench) -> None:
    await _several(bench)

    def work(tx: Tx) -> list[Page]:
        return [store.list_quotes(tx, Filter("T0HOME"), page=page, rows=3) for page in (1, 2, 3)]

    pages = await bench.ledger.database.read(work)
    assert [[quote.quote_id[-1] for quote in page.quotes] for page in pages] == [["4", "3", "2"], ["1"], []]
    assert [page.more for page in pages] == [True, False, False]


async def test_a_list_shows_the_head(bench: Bench) -> None:
    first = example_quote()
    await inserted_as(bench, first)
    await saved(bench, first, next_version(first))
    (listed,) = (await bench.ledger.database.read(lambda tx: store.list_quotes(tx, Filter("T0HOME")))).quotes
    assert (listed.version, listed.net_total, listed.currency) == (2, example_pricing("8").net_total, "USD")


async def test_the_only_workspace_is_known_while_there_is_one(bench: Bench) -> None:
    assert await bench.ledger.database.read(store.only_team) is None
    await inserted_as(bench, example_quote(), 1)
    assert await bench.ledger.database.read(store.only_team) == "T0HOME"
    await inserted_as(bench, example_quote(quote_id="Q-2026-0009", team_id="T0OTHER"), 9)
    assert await bench.ledger.database.read(store.only_team) is None
