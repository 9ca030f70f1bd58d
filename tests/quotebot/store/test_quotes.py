from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import load_statements
from quotebot.domain.quotes.lifecycle import IllegalTransitionError
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.store import quotes as store
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_pricing, example_quote

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote
    from tests.quotebot.parts import Bench

PRICED = example_quote(requester_name="rep")
PENDING = replace(PRICED, state=QuoteState.PENDING_APPROVAL, approval=example_approval())
REJECTED = replace(PENDING, state=QuoteState.REJECTED, approval=decided(ApprovalState.REJECTED, decision_reason="Too deep.\nNo."))
OPERATION, ROOT, ASKED = "1" * 64, "2" * 64, "3" * 64


async def inserted(bench: Bench, quote: Quote, operation_key: str = OPERATION, *, recorded_at: int = MORNING) -> None:
    def work(tx: Tx) -> None:
        store.insert(tx, quote, operation_key=operation_key, root_effect_key=ROOT, asked_hash=ASKED, recorded_at=recorded_at)

    await bench.ledger.database.write("test", work)


async def saved(bench: Bench, before: Quote, after: Quote) -> None:
    await bench.ledger.database.write("test", lambda tx: store.save(tx, before, after, MORNING))


async def loaded(bench: Bench) -> Quote | None:
    return await bench.ledger.database.read(lambda tx: store.load(tx, "Q-2026-0042"))


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
    with pytest.raises(LookupError, match="Q-2026-0042"):
        await bench.ledger.database.read(lambda tx: store.pricing_hash(tx, "Q-2026-0042"))


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


async def test_a_snapshot_is_found_by_its_hash(bench: Bench) -> None:
    await inserted(bench, PRICED)
    found = await bench.ledger.database.read(lambda tx: store.pricing_hash(tx, "Q-2026-0042"))
    assert found == bench.row("SELECT pricing_hash FROM quote_versions")["pricing_hash"]
    assert len(found) == 64


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


STORE = load_statements([files("quotebot.store").joinpath("queries.sql").read_text("utf-8")])


WALKS = {  # these go through a whole table because all of it is asked for
    "mirror_cursors": "one row for each kind of record that is mirrored: four",
    "mirrored_kinds": "the same four",
    "quote_numbers": "one row a year",
    "quote_numbers_given": "a verification of all: the last number of every year",
    "cards_of_open_quotes": "at a restore: every card is drawn again",
    "count_orphaned_letter_cards": "before `ledger prune`, when asked: as the next",
    "terminal_acts": "the events of one quote, from the end of its chain: the scan is of the walk's own rows",
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
