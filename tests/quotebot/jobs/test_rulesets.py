"""Tests of ruleset versions in the ledger: one is active, a change is atomic and made once, and the next command uses it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.ledger import Ledger
from quotebot.app.installation import open_ledger, schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.commands.payloads import EscalateApproval, SubmitQuote
from quotebot.domain.approvals.policy import HOUR_MS, Threshold, Timing
from quotebot.domain.catalogue.rulesets import canonical_ruleset, parse_ruleset, renamed, with_policy
from quotebot.domain.quotes.quote import PolicyStamp
from quotebot.execution.executor import Executor
from quotebot.handlers.approvals import follow_up
from quotebot.handlers.decision import Asked
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.jobs.repricing import Repricing
from quotebot.jobs.rulesets import Import, RulesetAnswer, RulesetChanges, Who
from quotebot.sandbox.world import World
from quotebot.slack.queries import Reads
from quotebot.slack.surface import RULESET_TTL_SECONDS
from quotebot.slack.verbs import ChangeRequest, CompareRequest, parse
from quotebot.store import quotes
from quotebot.store import rulesets as store
from quotebot.views.card import MORE
from tests.quotebot.access_parts import viewer
from tests.quotebot.parts import MATRIX, POLICY, RULES, Bench, create_command, request_for
from tests.quotebot.views.quote_examples import RULESET
from tests.rig import bot_in, eventually, read_ledger, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.domain.catalogue.rulesets import Ruleset

QUOTE = "Q-2026-0001"


def dearer(version: str = "2", price: str = "7") -> Ruleset:
    """Return the sample with another price of Pro from 100 seats on."""
    document: Any = json.loads(json.dumps(canonical_ruleset(RULESET)))
    for entry in document["price_books"][0]["prices"]:
        if entry["sku"] == "pro":
            entry["tiers"][2]["price"] = price
    return parse_ruleset({**document, "version": version})


def who(request_id: str, actor: str = "ann") -> Who:
    return Who(actor, request_id)


@pytest.fixture
async def changes(bench: Bench) -> RulesetChanges:
    """Return the ruleset changes of a ledger whose bot has started once."""
    found = RulesetChanges(bench.ledger)
    await found.begin(RULESET)
    return found


async def drafted(changes: RulesetChanges, ruleset: Ruleset, request_id: str = "i", seen: int = 1, **asked: Any) -> RulesetAnswer:
    return await changes.import_draft(Import(ruleset, "prices.csv", **asked), who(request_id), seen=seen)


def states(bench: Bench) -> dict[int, str]:
    return {row["version"]: row["state"] for row in bench.rows("SELECT version, state FROM rulesets ORDER BY version")}


def audited(bench: Bench) -> list[tuple[str, str]]:
    rows = bench.rows("SELECT event_type, actor FROM audit_events WHERE event_type LIKE 'ruleset.%' ORDER BY id")
    return [(row["event_type"].removeprefix("ruleset."), row["actor"]) for row in rows]


def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)


async def net(bench: Bench, quote_id: str = QUOTE, version: int = 1) -> tuple[str, str]:
    """Return a stored version's net total, and its ruleset."""
    row = bench.row("SELECT pricing FROM quote_versions WHERE quote_id = ? AND version = ?", quote_id, version)
    pricing = json.loads(row["pricing"])
    return pricing["net_total"], pricing["ruleset"]


async def test_first_start_imports_the_built_in_ruleset_and_a_second_changes_nothing(bench: Bench, changes: RulesetChanges) -> None:
    await changes.begin(dearer())
    row = bench.row("SELECT * FROM rulesets")
    assert (row["version"], row["state"], row["hash"], row["label"]) == (1, "active", RULESET.hash, RULESET.label)
    assert audited(bench) == [("imported", "quotebot"), ("activated", "quotebot")]


async def test_a_draft_prices_nothing_until_it_is_activated(bench: Bench, changes: RulesetChanges) -> None:
    answer = await drafted(changes, dearer())
    assert (answer.outcome, answer.version, states(bench)) == ("applied", 2, {1: "active", 2: "draft"})
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor(bench).step()
    assert await net(bench) == ("17340.00", "sample 1")


async def test_activated_ruleset_prices_the_next_command_and_existing_prices_stay(bench: Bench, changes: RulesetChanges) -> None:
    bot = executor(bench)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await bot.step()
    answer = await drafted(changes, dearer(), activate=True)
    assert "Version 2 (sample 2) prices from now on. Version 1 is retired" in answer.text
    bench.clock.advance(200_000)
    await bench.ledger.reserve(request_for(create_command("14"), "2", received_at=bench.clock.ms))
    await bot.step()
    assert await net(bench) == ("17340.00", "sample 1")
    assert await net(bench, "Q-2026-0002") == ("19092.00", "sample 2")

    for text, request_id, version in ((f"submit {QUOTE}", "3", 1), (f"revise {QUOTE}: discount 10%", "4", 2)):
        asked = parse(text, "C0SALES", RULES.catalogue)
        assert isinstance(asked, ChangeRequest)
        typed = request_for(asked.payload, request_id, quote_id=QUOTE, version=None, source="slack_slash")
        await bench.ledger.reserve(replace(typed, received_at=bench.clock.ms))
        await bot.step()
        assert bench.row("SELECT version FROM quotes WHERE quote_id = ?", QUOTE) == {"version": version}
    assert await net(bench) == ("17340.00", "sample 1")
    assert await net(bench, version=2) == ("19980.00", "sample 2")
    words = await bench.ledger.database.read(lambda tx: store.pricing_words(tx, RULESET.hash, RULESET.label))
    assert words.endswith("A new version would use price list 2 (sample 2).")
    question = parse(f"compare {QUOTE}", "C0SALES", RULES.catalogue)
    assert isinstance(question, CompareRequest)
    assert "• Catalog sample 1 \u2192 sample 2\n" in await Reads(bench.ledger, RULES).answer(question, viewer())


async def test_the_same_request_twice_is_one_change_and_gets_the_first_answer(bench: Bench, changes: RulesetChanges) -> None:
    first = await drafted(changes, dearer())
    assert await drafted(changes, dearer()) == replace(first, repeated=True)
    done = await changes.activate(2, who("a"), seen=1)
    assert await changes.activate(2, who("a"), seen=1) == replace(done, repeated=True)
    assert (await changes.activate(1, who("a"), seen=2)).outcome == "conflict"
    assert (await drafted(changes, dearer("3"), "a", seen=2)).outcome == "conflict"
    assert states(bench) == {1: "retired", 2: "active"}
    assert audited(bench)[2:] == [("imported", "ann"), ("activated", "ann")]


async def test_content_that_is_there_makes_no_other_version(bench: Bench, changes: RulesetChanges) -> None:
    assert (await drafted(changes, RULESET, "1")).outcome == "unchanged"
    await drafted(changes, dearer(), "2")
    again = await drafted(changes, dearer(), "3")
    assert (again.outcome, again.version) == ("unchanged", 2)
    activated = await drafted(changes, dearer(), "4", activate=True)
    assert (activated.outcome, activated.version, states(bench)) == ("applied", 2, {1: "retired", 2: "active"})


async def test_a_name_means_one_content(bench: Bench, changes: RulesetChanges) -> None:
    refused = await drafted(changes, dearer("1"))
    assert refused.outcome == "refused"
    assert "Version 1 is called sample 1 too" in refused.text
    assert states(bench) == {1: "active"}
    assert bench.rows("SELECT * FROM ruleset_requests") == []  # a refused request may be repeated


async def test_a_draft_is_replaced_or_discarded_and_its_number_is_not_used_again(bench: Bench, changes: RulesetChanges) -> None:
    await drafted(changes, dearer(), "1")
    assert "add --replaces 2" in (await drafted(changes, dearer("2", "6.5"), "2")).text
    replaced = await drafted(changes, dearer("2", "6.5"), "3", replaces=2)
    assert (replaced.version, states(bench)) == (3, {1: "active", 2: "discarded", 3: "draft"})
    assert (await changes.discard(3, who("4"))).outcome == "applied"
    assert (await changes.discard(3, who("5"))).outcome == "unchanged"
    again = await drafted(changes, dearer(), "6")
    assert (again.version, states(bench)[4]) == (4, "draft")
    assert audited(bench)[2:] == [
        ("imported", "ann"),
        ("discarded", "ann"),
        ("imported", "ann"),
        ("discarded", "ann"),
        ("imported", "ann"),
    ]


async def test_a_retired_version_may_price_again(bench: Bench, changes: RulesetChanges) -> None:
    await drafted(changes, dearer(), activate=True)
    assert (await changes.activate(1, who("back"), seen=2)).outcome == "applied"
    assert states(bench) == {1: "active", 2: "retired"}


@pytest.mark.parametrize(
    ("deed", "outcome", "said"),
    [
        ("activate 9", "not_found", "There is no version 9"),
        ("activate 1", "unchanged", "is active already"),
        ("activate 2", "refused", "was discarded"),
        ("discard 9", "not_found", "There is no version 9"),
        ("discard 1", "refused", "is active: quotes may name it"),
        ("replace 1", "refused", "only a draft can be replaced"),
        ("replace 9", "not_found", "There is no version 9"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_reason_and_changes_nothing(
    bench: Bench, changes: RulesetChanges, deed: str, outcome: str, said: str
) -> None:
    await drafted(changes, dearer(), "1")
    await changes.discard(2, who("2"))
    before = bench.rows("SELECT * FROM rulesets"), audited(bench)
    verb, number = deed.split()
    match verb:
        case "activate":
            answer = await changes.activate(int(number), who("3"), seen=1)
        case "discard":
            answer = await changes.discard(int(number), who("3"))
        case _:
            answer = await drafted(changes, dearer("3"), "3", replaces=int(number))
    assert (answer.outcome, said in answer.text) == (outcome, True)
    assert (bench.rows("SELECT * FROM rulesets"), audited(bench)) == before


@asynccontextmanager
async def another_process(bench: Bench) -> AsyncIterator[RulesetChanges]:
    """Open the same file a second time, with its own connection and write gate, as another process does."""
    audit = Audit(DOMAIN_EVENTS, load_keyring(bench.path.parent))
    database = await SqliteStorage(bench.path, *schema_and_statements()).open(audit, bench.clock, bot=False)
    try:
        yield RulesetChanges(Ledger(database, bench.clock, audit))
    finally:
        await database.close()


async def test_of_two_who_activate_at_once_one_is_first_and_the_other_is_told_who_and_when(
    bench: Bench, changes: RulesetChanges
) -> None:
    await drafted(changes, dearer("2"), "1")
    await drafted(changes, dearer("3", "6.5"), "2")
    async with another_process(bench) as others:
        ends = await asyncio.gather(changes.activate(2, who("a", "ann"), seen=1), others.activate(3, who("b", "ben"), seen=1))
    (first,) = [end for end in ends if end.outcome == "applied"]
    (second,) = [end for end in ends if end.outcome == "refused"]
    winner = {2: "ann", 3: "ben"}[first.version or 0]
    assert second.text.startswith(f"{winner} activated version {first.version} (sample {first.version}) on 2026-11-21 10:31:00 UTC")
    assert list(states(bench).values()).count("active") == 1
    assert [event for event in audited(bench) if event[0] == "activated"] == [("activated", "quotebot"), ("activated", winner)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE rulesets SET document = '{}' WHERE version = 2", "keeps its content"),
        ("UPDATE rulesets SET hash = 'x'", "keeps its content"),
        ("DELETE FROM rulesets WHERE version = 3", "is kept"),
        ("UPDATE rulesets SET state = 'draft' WHERE version = 1", "no such arrow"),
        ("UPDATE rulesets SET state = 'active' WHERE version = 4", "no such arrow"),
        ("UPDATE rulesets SET state = 'discarded' WHERE version = 1", "no such arrow"),
        ("UPDATE rulesets SET state = 'active', activated_at = 1 WHERE version = 3", "UNIQUE constraint"),
        (
            "INSERT INTO rulesets SELECT 9, hash, label, 1, 1, document, 'active', '', '', '', 1, '', 1, NULL FROM rulesets",
            "as a draft",
        ),
        ("UPDATE ruleset_requests SET answer = '{}'", "as it was answered"),
        ("DELETE FROM ruleset_requests", "is kept"),
    ],
)
async def test_the_file_itself_refuses_what_no_code_may_do(bench: Bench, changes: RulesetChanges, sql: str, said: str) -> None:
    await drafted(changes, dearer("2"), "1", activate=True)
    await drafted(changes, dearer("3", "6.5"), "2", seen=2)
    await drafted(changes, dearer("4", "6.6"), "3", seen=2)
    await changes.discard(4, who("4"))
    with pytest.raises(sqlite3.IntegrityError, match=said):
        bench.rows(sql)


async def test_a_version_this_build_cannot_read_is_never_activated(bench: Bench, changes: RulesetChanges) -> None:
    document = {**canonical_ruleset(dearer()), "schema": 99}
    bench.rows(
        "INSERT INTO rulesets (version, hash, label, products, books, document, state, origin, imported_by, imported_at) "
        "VALUES (2, ?, 'sample 2', 5, 1, ?, 'draft', 'x', 'ann', 1)",
        "0" * 64,
        json.dumps(document),
    )
    answer = await changes.activate(2, who("1"), seen=1)
    assert (answer.outcome, "cannot be used by this build: schema" in answer.text) == ("refused", True)
    assert states(bench) == {1: "active", 2: "draft"}


# ----------------------------------------------------------------------------------------------------- pricing again


async def quotes_of_two_rulesets(bench: Bench, changes: RulesetChanges) -> None:
    bot = executor(bench)
    await bench.ledger.reserve(request_for(create_command("15"), "1"))
    await bot.step()
    await drafted(changes, dearer(), activate=True)
    await bench.ledger.reserve(request_for(create_command("14"), "2"))
    await bot.step()


async def differing(bench: Bench) -> dict[str, tuple[int | None, tuple[str, ...]]]:
    return {each.quote_id: (each.ruleset_version, each.differences) async for each in Repricing(bench.ledger, RULESET).all()}


async def test_every_snapshot_is_priced_again_by_its_own_ruleset(bench: Bench, changes: RulesetChanges) -> None:
    await quotes_of_two_rulesets(bench, changes)
    assert await Repricing(bench.ledger, RULESET).count() == 2
    assert await differing(bench) == {QUOTE: (1, ()), "Q-2026-0002": (2, ())}


async def test_snapshots_of_a_ledger_that_kept_no_ruleset_are_priced_by_the_built_in_one(bench: Bench) -> None:
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor(bench).step()
    assert await differing(bench) == {QUOTE: (None, ())}
    other = Repricing(bench.ledger, renamed(RULESET, "9"))
    assert [each.differences async for each in other.all()] == [("its ruleset sample 1 is not stored, or cannot be read any more",)]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("json_set(pricing, '$.net_total', '17340.01')", "net_total: 17340.01 is now 17340.00"),
        ("json_set(pricing, '$.lines[0].unit_price', '6.5')", "lines[1].unit_price: 6.5 is now 6"),
        ("replace(pricing, ',\"currency\"', ', \"currency\"')", "the snapshot is not in its canonical form"),
        ("json_set(pricing, '$.v', 9)", "the snapshot cannot be read: pricing snapshot schema 9 is unknown"),
        (f"json_set(pricing, '$.ruleset_hash', '{'0' * 64}')", "its ruleset sample 1 is not stored"),
    ],
)
async def test_a_snapshot_that_was_changed_is_found_with_where_and_what(
    bench: Bench, changes: RulesetChanges, edit: str, said: str
) -> None:
    await quotes_of_two_rulesets(bench, changes)
    bench.rows("DROP TRIGGER quote_versions_fixed")
    bench.rows(f"UPDATE quote_versions SET pricing = {edit} WHERE quote_id = ?", QUOTE)  # noqa: S608 -- own words
    found = await differing(bench)
    assert found["Q-2026-0002"] == (2, ())
    assert any(difference.startswith(said) for difference in found[QUOTE][1]), found[QUOTE]


async def test_an_old_snapshot_that_names_no_hash_is_priced_by_the_version_of_that_name(
    bench: Bench, changes: RulesetChanges
) -> None:
    row = await bench.ledger.database.read(lambda tx: store.of_snapshot(tx, "", RULESET.label))
    assert row is not None
    assert (row.version, row.hash) == (1, RULESET.hash)


async def test_prices_are_read_with_the_amounts_they_were_imported_with(bench: Bench, changes: RulesetChanges) -> None:
    await drafted(changes, dearer("2", "6.123456"))
    again = await bench.ledger.database.read(lambda tx: store.document(tx, 2))
    assert again == dearer("2", "6.123456")
    assert again.books[0].prices["pro"].kind.tiers[2].price == Decimal("6.123456")  # type: ignore[union-attr] # it has tiers


# ------------------------------------------------------------------------------------------------- beside a running bot


async def test_product_activated_while_the_bot_runs_can_be_sold_by_the_next_command(tmp_path: Path) -> None:
    document: Any = json.loads(json.dumps(canonical_ruleset(RULESET)))
    document["products"].append({**document["products"][0], "sku": "gadget", "name": "Gadget", "aliases": []})
    document["price_books"][0]["prices"].append({"sku": "gadget", "kind": "flat", "price": "21"})
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot") as deal:
        assert "gadget" in (await deal.slash("new for Acme: 2 gadget; term 1m"))["ack"]["text"]
        looked_at = time.monotonic()
        async with open_ledger(settings_for(world, tmp_path / "bot")) as ledger:
            asked = Import(parse_ruleset({**document, "version": "2"}), "rules.json", activate=True)
            answer = await RulesetChanges(ledger).import_draft(asked, who("1"), seen=1)
            assert answer.outcome == "applied"
        await eventually(
            lambda: time.monotonic() - looked_at >= RULESET_TTL_SECONDS, "the moment in which a look is shared to pass"
        )
        await deal.slash("new for Acme: 2 gadget; term 1m")
        await deal.settled()
        assert "$42.00" in await deal.card_text()
        explained = (await deal.slash("explain Q-2026-0001"))["ack"]["text"]
        assert "Price list 2 (sample 2)" in explained
        assert "$42.00" in (await deal.slash("simulate: 2 gadget; term 1m"))["ack"]["text"]


async def test_an_activated_policy_decides_about_the_next_submission_in_slack(tmp_path: Path) -> None:
    strict = replace(POLICY, version="2", discount_over=(Threshold(Decimal(5), "vp_sales"),))
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.slash("new for Acme: 10 pro; term 12m; discount 6%")
        await deal.settled()
        assert "VP Sales" not in await deal.card_text()
        async with open_ledger(settings_for(world, tmp_path / "bot")) as ledger:
            asked = Import(with_policy(RULESET, strict, "2"), "policy.toml", activate=True)
            assert (await RulesetChanges(ledger).import_draft(asked, who("1"), seen=1)).outcome == "applied"
        looked_at = time.monotonic()
        await deal.slash(f"submit {QUOTE}")
        await deal.settled()
        assert "VP Sales" in await deal.card_text()
        (approval,) = read_ledger(tmp_path / "bot" / "ledger.db", "SELECT state, required_roles FROM approvals")
        assert (approval["state"], approval["required_roles"]) == ("pending", '["vp_sales"]')
        await eventually(
            lambda: time.monotonic() - looked_at >= RULESET_TTL_SECONDS, "the moment in which a look is shared to pass"
        )
        await deal.click(MORE, user="U0REP", value="How pricing works")
        assert "discount 6% (limit 5%)" in (await deal.whispers("U0REP"))[-1]


async def test_an_open_request_keeps_the_policy_and_the_deadlines_it_was_made_under(bench: Bench, changes: RulesetChanges) -> None:
    hurried = replace(POLICY, version="2", order="sequential", timing=Timing(HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS))
    bot = executor(bench)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await bot.step()
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=QUOTE, version=1, received_at=bench.clock.ms))
    await bot.step()
    assert (await drafted(changes, with_policy(RULESET, hurried, "2"), activate=True)).outcome == "applied"

    stored = bench.row("SELECT policy, ruleset_hash, expire_ms FROM approval_policies")
    assert dict(stored) == {"policy": "sample 1", "ruleset_hash": RULESET.hash, "expire_ms": POLICY.timing.expire_ms}
    quote = await bench.ledger.database.read(lambda tx: quotes.load(tx, QUOTE))
    assert quote is not None
    assert quote.approval is not None
    assert quote.approval.policy == PolicyStamp("sample 1", RULESET.hash, POLICY.timing)
    (slot,) = quote.approval.slots
    asked = Asked("key", "c-1", "quotebot", "T0HOME", slot.escalate_at or 0, None, actor_type="system")
    escalation = EscalateApproval(quote.approval.approval_id, slot.number)
    wider = follow_up(asked, escalation, quote, "root", replace(RULES, builtin_policy=hurried))
    assert wider.quote is not None
    assert wider.quote.approval is not None
    assert wider.quote.approval.slots[0].escalate_at == asked.received_at + POLICY.timing.escalate_ms


async def test_under_review_another_person_activates_a_draft(bench: Bench, changes: RulesetChanges) -> None:
    reviewed = RulesetChanges(bench.ledger, review=True)
    at_once = await reviewed.import_draft(Import(dearer(), "prices.csv", activate=True), who("1"), seen=1)
    assert (at_once.outcome, states(bench)) == ("refused", {1: "active"})
    await drafted(reviewed, dearer())
    own = await reviewed.activate(2, who("2"), seen=1)
    assert (own.outcome, states(bench)) == ("refused", {1: "active", 2: "draft"})
    assert "ann imported version 2 (sample 2), so another person activates it" in own.text
    assert (await reviewed.activate(2, who("3", "ben"), seen=1)).outcome == "applied"
    assert (await reviewed.activate(1, who("4", "ann"), seen=2)).outcome == "applied"  # back to what was active before
    assert states(bench) == {1: "active", 2: "retired"}
