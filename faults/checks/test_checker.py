"""Tests of the checker: a real deal is clean, and each damage done to it is reported by the invariant it breaks."""

from __future__ import annotations

import asyncio
import copy
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.policies import POLICIES
from faults.checks import checker, claims, effects, identity
from faults.checks.checker import ClientRecord, House, Outside
from faults.harness.rig import GOLDEN, bot_in
from quotebot.commands.registry import REGISTRY
from quotebot.domain.quotes.quote import QuoteState, state_words
from quotebot.sandbox.world import World
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faults.harness.rig import Deal

APPROVERS = {"sales_manager": ("U0MANAGER",), "vp_sales": ("U0VP",), "cfo": ("U0CFO",)}
SLOW_MS = 25.0  # on a busy machine; an idle one needs a tenth

# The clean deal, by the ids of its rows. Operations: 1 creates, 2 submits, 3 approves, 4 is answered that the quote is already
# decided, 5 is asked back, 6 creates another quote, whose post loses its answer, 7 submits it: approved at once, with a 429 and a
# lost CRM answer. Effects: 1 root, 2 card, 3 notice, 4 direct message, 5 card, 6 PDF, 7 record, 12 its document, 15 answer,
# 16 card, 18 root, 19 card, 21 record.


@dataclass(frozen=True, slots=True)
class DoneDeal:
    """A completed deal: its ledger's file and the other evidence of a verdict."""

    folder: Path
    outside: Outside
    history: tuple[ClientRecord, ...]

    @property
    def house(self) -> House:
        return checker.house_of(self.folder, approvers=APPROVERS)

    def verdict(self, **more: Any) -> list[str]:
        """Return the violations in its present state."""
        with closing(sqlite3.connect(self.folder / "ledger.db")) as ledger:
            return checker.violations(ledger, self.outside, self.history, **{"house": self.house, **more})

    def damage(self, *statements: str) -> None:
        """Change rows past all protection: without triggers, checks and foreign keys."""
        with closing(sqlite3.connect(self.folder / "ledger.db", isolation_level=None)) as ledger:
            ledger.execute("PRAGMA synchronous = OFF")
            ledger.execute("PRAGMA ignore_check_constraints = ON")
            for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                ledger.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                assert ledger.execute(statement).rowcount != 0, statement


async def do_the_deal(folder: Path) -> DoneDeal:
    """Run the deal that the comment above describes with the real bot in the local world."""
    async with World(folder / "world").serve() as world, bot_in(world, folder / "bot") as deal:
        first = await deal.complete(deal.slash(GOLDEN))
        await deal.redeliver(first["request_id"], "retry", 1)
        for action, user in (("quote.submit", "U0REP"), ("approval.approve", "U0MANAGER"), ("approval.approve", "U0VP")):
            await deal.complete(deal.click(action, user=user, stale=True))
        await deal.complete(deal.slash(GOLDEN))
        await deal.arm("slack", "reset_after", method="chat.postMessage", times=1)
        await deal.complete(deal.slash("new for Birch: 10 pro"))
        await deal.arm("slack", "429", method="chat.update", times=1, retry_after=1)
        await deal.arm("salesforce", "reset_after", method="composite/graph", times=1)
        await deal.complete(deal.click("quote.submit", user="U0REP"))
        assert await deal.hits() == 3
        outside, told = await checker.outside_of(deal), await client_records_of(deal)
    return DoneDeal(folder / "bot", outside, told)


async def client_records_of(deal: Deal) -> tuple[ClientRecord, ...]:
    return tuple(
        ClientRecord(row["source_request_id"], row["action_kind"], row["actor"], acked=True, at_ms=row["received_at"])
        for row in await deal.rows("SELECT source_request_id, action_kind, actor, received_at FROM operations ORDER BY id")
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoneDeal]:
    folder = tmp_path_factory.mktemp("deal_copy")
    deal_copy = asyncio.run(do_the_deal(folder))
    with closing(sqlite3.connect(deal_copy.folder / "ledger.db")) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield deal_copy
    shutil.rmtree(folder)


@pytest.fixture
def deal_copy(done: DoneDeal, tmp_path: Path) -> DoneDeal:
    """Return a copy of the clean deal that a test may damage."""
    shutil.copytree(done.folder, tmp_path / "bot", ignore=shutil.ignore_patterns("*.ballast"))
    return replace(done, folder=tmp_path / "bot", outside=copy.deepcopy(done.outside))


def names(verdict: list[str]) -> set[str]:
    return {sentence.partition(":")[0] for sentence in verdict}


def test_a_real_deal_with_lost_answers_a_429_and_duplicates_is_clean(done: DoneDeal) -> None:
    assert done.verdict() == []
    assert done.verdict(at_rest=False) == []
    assert done.verdict(house=None) == []


def test_the_verdict_is_quick(done: DoneDeal) -> None:
    with closing(sqlite3.connect(done.folder / "ledger.db")) as ledger:
        house, took = done.house, []
        for _ in range(20):
            began = time.process_time()
            assert checker.violations(ledger, done.outside, done.history, house=house) == []
            took.append((time.process_time() - began) * 1000)
    assert min(took) < SLOW_MS


# Damage to the ledger, and exactly the invariants that report it.
DAMAGED_ROWS: dict[str, tuple[tuple[str, ...], str]] = {
    "a command's payload is rewritten": (("UPDATE operations SET payload = '{\"v\":2}' WHERE id = 1",), "I1"),
    "a command's key is another": (("UPDATE effects SET effect_key = substr(effect_key, 2) || 'x' WHERE id = 2",), "I1 I2"),
    "a command is carried out twice": (
        (
            "CREATE TEMP TABLE again AS SELECT * FROM audit_events WHERE event_type = 'operation.applied' LIMIT 1",
            "UPDATE again SET id = 1 + (SELECT max(id) FROM audit_events), aggregate_id = 'again', seq = 1, previous_id = NULL",
            "INSERT INTO audit_events SELECT * FROM again",
        ),
        "I1 I2 I7 I14",
    ),
    "an owed effect is missing": (
        ("DELETE FROM attempts WHERE effect_id = 15", "DELETE FROM effects WHERE id = 15"),
        "I1 I2 I4 I5 L6",
    ),
    "a quote's state is not what was decided": (("UPDATE quotes SET state = 'priced' WHERE quote_id LIKE '%0001'",), "I2 L6"),
    "a change of a command that was not applied": (
        ("UPDATE operations SET state = 'failed_retryable', outcome = NULL, finished_at = NULL, next_attempt_at = 1 WHERE id = 6",),
        "I2 I7 L1",
    ),
    "an attempt with a fence of its own": (("UPDATE attempts SET fence = 9 WHERE effect_id = 2",), "I6"),
    "tried again after it was delivered": (
        ("UPDATE attempts SET outcome = 'delivered' WHERE effect_id = 18 AND fence = 1",),
        "I6",
    ),
    "an attempt of an epoch that never was": (("UPDATE attempts SET epoch = 77 WHERE effect_id = 2",), "I6"),
    "a terminal row that moved": (
        ("UPDATE effects SET state = 'discarded' WHERE id = 2",),
        "I6 I7",
    ),
    "a claim without its attempt": (("DELETE FROM attempts WHERE effect_id = 6",), "I8"),
    "a 429 that spent an attempt": (("UPDATE effects SET attempts = attempts + 1 WHERE id = 19",), "I8"),
    "a budget overdrawn": (("UPDATE effects SET attempts = 7 WHERE id = 2",), "I8"),
    "a cycle that is not in the history": (("UPDATE effects SET cycle = 2 WHERE id = 2",), "I8"),
    "a claim of a command that nobody audited": (("UPDATE operations SET fence = 2 WHERE id = 2",), "I8"),
    "a failure of our own that was tried again too often": (
        (
            "CREATE TEMP TABLE again AS SELECT * FROM audit_events WHERE event_type = 'operation.applied' LIMIT 1 OFFSET 1",
            "UPDATE again SET id = 1 + (SELECT max(id) FROM audit_events), aggregate_id = 'again', seq = 1, previous_id = NULL",
            "UPDATE again SET event_type = 'operation.retry_scheduled', failure_category = 'internal', retry_count = 2",
            "INSERT INTO audit_events SELECT * FROM again",
        ),
        "I7 I8 I14",
    ),
    "out of order in its lane": (("UPDATE attempts SET id = 1000 WHERE effect_id = 2",), "I9"),
    "two of one lane in flight": (
        (
            "DROP INDEX effects_in_flight",
            "UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 1, finished_at = NULL WHERE id IN (2, 5)",
            "UPDATE effects SET fence = fence + 1, claimed_at = 1 WHERE id IN (2, 5)",
        ),
        "I6 I7 I9 L1",
    ),
    "tried before its drawn delay": (
        ("UPDATE attempts SET delay_ms = 30000 WHERE outcome = 'retry' AND http_status IS NULL",),
        "I10",
    ),
    "a Retry-After that was not kept": (
        ("UPDATE attempts SET retry_after_ms = 9000, delay_ms = 9000 WHERE http_status = 429",),
        "I10",
    ),
    "a delay beyond its cap": (("UPDATE attempts SET delay_ms = 60001 WHERE effect_id = 21 AND outcome = 'delivered'",), "I10"),
    "a delay shorter than was asked for": (("UPDATE attempts SET delay_ms = 10 WHERE http_status = 429",), "I10"),
    "a delivery answered by another command": (("UPDATE deliveries SET operation_id = 3 WHERE operation_id = 1",), "I11"),
    "one request, two commands": (
        (
            (
                "UPDATE operations SET source_request_id = (SELECT source_request_id FROM operations WHERE id = 3), "
                "aggregate_version = aggregate_version WHERE id = 4"
            ),
        ),
        "I1 I11",
    ),
    "a slot fired twice": (("UPDATE operations SET source = 'scheduler', source_request_id = 'tick' WHERE id < 3",), "I1 I11 I12"),
    "a decision by the requester": (("UPDATE approvals SET decided_by = requested_by WHERE decided_by IS NOT NULL",), "I13"),
    "a decision by a guest": (("UPDATE people SET kind = 'guest' WHERE user_id = 'U0MANAGER'",), "I13"),
    "a decision under a role that does not suffice": (
        ("UPDATE approvals SET required_roles = '[\"vp_sales\"]' WHERE decided_by IS NOT NULL",),
        "I13",
    ),
    "a decision under a role the person does not hold": (
        ("UPDATE approvals SET decided_role = 'cfo' WHERE decided_by IS NOT NULL",),
        "I13",
    ),
    "a decision on another version than was shown": (
        ("UPDATE operations SET aggregate_version = 2 WHERE id = 3",),
        "I1 I13",
    ),
    "a decision that nobody took": (("UPDATE approvals SET required_roles = '[\"cfo\"]' WHERE decided_by IS NULL",), "I13"),
    "a yes of the one who asked": (("UPDATE approval_slots SET decided_by = 'U0REP' WHERE decided_by IS NOT NULL",), "I13"),
    "a yes in the place of the one who asked": (
        ("UPDATE approval_slots SET on_behalf_of = 'U0REP' WHERE decided_by IS NOT NULL",),
        "I13",
    ),
    "a yes that was never given": (
        ("UPDATE approval_slots SET state = 'pending', decided_by = NULL, decided_role = NULL, decided_at = NULL",),
        "I13",
    ),
    "a request about a quote that has ended": (
        (
            (
                "UPDATE approvals SET state = 'pending', decided_by = NULL, decided_role = NULL, decided_at = NULL "
                "WHERE required_roles <> '[]'"
            ),
            "UPDATE approval_slots SET state = 'pending', decided_by = NULL, decided_role = NULL, decided_at = NULL",
        ),
        "I2 I13",
    ),
    "a yes after the request had expired": (("UPDATE approval_slots SET expires_at = 1",), "I13"),
    "a decision after the quote expired": (("UPDATE quotes SET valid_until = 1",), "I13"),
    "an audit event is edited": (("UPDATE audit_events SET actor_type = 'nobody' WHERE id = 20",), "I7 I14"),
    "an effect's event names no command": (
        ("UPDATE audit_events SET operation_key = NULL WHERE event_type = 'effect.delivered' AND effect_id = 1",),
        "I7 I14",
    ),
    "an event counts no attempts": (("UPDATE audit_events SET retry_count = NULL WHERE event_type = 'effect.claimed'",), "I7 I14"),
    "a retry without its failure": (
        ("UPDATE audit_events SET failure_category = NULL WHERE event_type = 'effect.retry_scheduled'",),
        "I7 I14",
    ),
    "a person's event as an operator's": (
        ("UPDATE audit_events SET actor_type = 'operator' WHERE event_type = 'operation.reserved' AND actor = 'U0REP'",),
        "I7 I14",
    ),
    "an audit event is taken out": (("DELETE FROM audit_events WHERE event_type = 'delivery.duplicate'",), "I14"),
    "the end of the audit is cut off": (
        ("DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events)",),
        "I7 I14",
    ),
    "a head is moved": (("UPDATE audit_heads SET seal = zeroblob(32) WHERE aggregate_id = 'system'",), "I14"),
    "a table that is not strict": (("CREATE TABLE loose (anything)",), "I16"),
    "a row that refers to nothing": (
        ("UPDATE quote_versions SET quote_id = 'Q-2026-0009' WHERE quote_id LIKE '%0002'",),
        "I16 I17",
    ),
    "a row that breaks a check": (("UPDATE deliveries SET transport = 'no JSON' WHERE id = 1",), "I4 I5 I16"),
    "a price that does not add up": (
        ("UPDATE quote_versions SET pricing = json_set(pricing, '$.net_total', '1.00') WHERE quote_id LIKE '%0001'",),
        "I17",
    ),
    "a ruleset that says something else": (("UPDATE rulesets SET document = json_set(document, '$.name', 'x')",), "I17"),
    "a price of a ruleset that is gone": (("UPDATE rulesets SET hash = replace(hash, substr(hash, 1, 8), '00000000')",), "I17"),
    "a ruleset that nobody activated": (("UPDATE rulesets SET state = 'draft'",), "I2 I16"),
    "a ruleset that nobody imported": (
        ("INSERT INTO rulesets SELECT 2, 'x', 'x', 1, 1, document, 'draft', '', NULL, '', 1, NULL, NULL, NULL FROM rulesets",),
        "I2 I16 I17",
    ),
    "a version that is missing": (("UPDATE quotes SET version = 2 WHERE quote_id LIKE '%0002'",), "I17 I19"),
    "a quote that nobody ended": (("UPDATE quotes SET state = 'lost' WHERE quote_id LIKE '%0001'",), "I2 I19 L6"),
    "a quote that was ended after its last day": (
        (
            (
                "INSERT INTO quote_closings SELECT quote_id, version, 'accepted', NULL, 'U0REP', valid_until FROM quotes "
                "WHERE quote_id LIKE '%0001'"
            ),
            "UPDATE quotes SET state = 'accepted' WHERE quote_id LIKE '%0001'",
        ),
        "I2 I19 L6",
    ),
    "a quote that was ended otherwise": (
        (
            (
                "INSERT INTO quote_closings SELECT quote_id, version, 'lost', 'too expensive', 'U0REP', 1 FROM quotes "
                "WHERE quote_id LIKE '%0001'"
            ),
        ),
        "I19",
    ),
    "a superseded version that is the newest": (
        (
            (
                "INSERT INTO superseded_versions SELECT quote_id, version, 'sent', 1, 'U0REP', 1 FROM quotes "
                "WHERE quote_id LIKE '%0001'"
            ),
        ),
        "I19",
    ),
    "a command that vanished": (
        (
            "DELETE FROM attempts WHERE effect_id IN (SELECT id FROM effects WHERE operation_id = 5)",
            "DELETE FROM effects WHERE operation_id = 5",
            "DELETE FROM deliveries WHERE operation_id = 5",
            "DELETE FROM operations WHERE id = 5",
        ),
        "I3 I18",
    ),
    "something left undone": (
        ("UPDATE effects SET state = 'pending', finished_at = NULL, next_attempt_at = 1 WHERE id = 16",),
        "I6 I7 L1",
    ),
    "something that nothing wakes": (
        ("UPDATE effects SET state = 'pending', finished_at = NULL, next_attempt_at = NULL, after_id = 1 WHERE id = 16",),
        "I6 I7 L1 L2",
    ),
    "something given up that nobody was told of": (
        ("UPDATE effects SET state = 'failed', category = 'transient' WHERE id = 16",),
        "I6 I7 L3",
    ),
    "a hold that nothing ends": (
        ("INSERT INTO gates (name, state, cause, held_at) VALUES ('pdf.render', 'held', 'breaker', 1)",),
        "L4",
    ),
    "a refusal that nobody was told of": (("UPDATE effects SET class = 'slack.note' WHERE id = 15",), "I1 I4 I5 L6"),
    "an answer that was let go the same hour": (
        ("UPDATE effects SET state = 'superseded', category = 'expired' WHERE id = 15",),
        "I6 I7 L6",
    ),
    "an answer that was said directly and is not there": (("UPDATE effects SET external_ref = '1.000001' WHERE id = 15",), "I5"),
    "a command without an answer": (("UPDATE operations SET response = '{}' WHERE id = 2",), "L6"),
}


@pytest.mark.parametrize("what", DAMAGED_ROWS)
def test_a_damaged_row_is_named(deal_copy: DoneDeal, what: str) -> None:
    statements, expected = DAMAGED_ROWS[what]
    deal_copy.damage(*statements)
    assert names(deal_copy.verdict()) == set(expected.split()), deal_copy.verdict()


def request(outside: Outside, method: str, number: int = 0) -> dict[str, Any]:
    return [seen for seen in outside.sightings if seen["method"] == method][number]


def keyed(outside: Outside) -> dict[str, Any]:
    return next(message for message in outside.messages if message["metadata"])


def card(outside: Outside) -> dict[str, Any]:
    return next(message for message in outside.messages if message["metadata"] and not message["thread_ts"])


def shared(outside: Outside) -> dict[str, Any]:
    return next(file for file in outside.files if file["shares"])


# Damage to the records of the external services, and exactly the invariants that report it.
DAMAGED_OUTSIDE: dict[str, tuple[Callable[[Outside], object], str]] = {
    "a message that nobody owes": (
        lambda outside: outside.sightings.append({**request(outside, "chat.postMessage"), "key": "f" * 64}),
        "I4",
    ),
    "a message without our key": (
        lambda outside: outside.sightings.append({**request(outside, "chat.postMessage"), "key": None}),
        "I4",
    ),
    "two requests under one claim": (
        lambda outside: outside.sightings.append({**request(outside, "chat.postMessage"), "applied": False}),
        "I4",
    ),
    "a request before its claim": (
        lambda outside: request(outside, "chat.postMessage").update(at=request(outside, "chat.postMessage")["at"] - 5),
        "I4",
    ),
    "a record before its claim": (
        lambda outside: request(outside, "composite/graph").update(at=request(outside, "composite/graph")["at"] - 5),
        "I4",
    ),
    "a card drawn more often than claimed": (
        lambda outside: outside.sightings.append(request(outside, "chat.update")),
        "I4",
    ),
    "a file shared again by an unknown upload": (
        lambda outside: outside.sightings.append({**request(outside, "files.completeUploadExternal"), "key": "F0OTHER"}),
        "I4",
    ),
    "an answer that arrives again and again": (
        lambda outside: outside.sightings.extend([request(outside, "response_url")] * 2),
        "I4 I5",
    ),
    "a message posted twice": (lambda outside: outside.messages.append(keyed(outside)), "I5"),
    "a message that is gone": (lambda outside: outside.messages.remove(keyed(outside)), "I5"),
    "a record written twice": (lambda outside: outside.crm["Quote"].append({**outside.crm["Quote"][0], "Id": "0Q1"}), "I5"),
    "a record that is gone": (lambda outside: outside.crm["Quote"].clear(), "I5"),
    "another question under the same key": (
        lambda outside: request(outside, "composite/graph", -1).update(request_hash="another"),
        "I5",
    ),
    "a file shared twice": (
        lambda outside: shared(outside)["shares"]["C0DEALS"].append(shared(outside)["shares"]["C0DEALS"][0]),
        "I5",
    ),
    "a file that is not shared": (lambda outside: shared(outside)["shares"].clear(), "I5"),
    "another file than was rendered": (lambda outside: shared(outside).update(sha256="0" * 64), "I15"),
    "a line that Salesforce does not have": (lambda outside: outside.crm["QuoteLineItem"].pop(0), "I17"),
    "no line at all in Salesforce": (lambda outside: outside.crm["QuoteLineItem"].clear(), "I17"),
    "a card that shows an older state": (lambda outside: card(outside).update(text="Quote Q-2026-0001: Draft"), "L6"),
    "a card that still calls the record pending": (
        lambda outside: card(outside)["blocks"].append({"type": "context", "text": "Writing to Salesforce"}),
        "L6",
    ),
}


@pytest.mark.parametrize("what", DAMAGED_OUTSIDE)
def test_damage_to_the_external_services_is_named(deal_copy: DoneDeal, what: str) -> None:
    edit, expected = DAMAGED_OUTSIDE[what]
    edit(deal_copy.outside)
    assert names(deal_copy.verdict()) == set(expected.split()), deal_copy.verdict()


def test_direct_message_reply_may_exist_twice_but_not_three_times(deal_copy: DoneDeal) -> None:
    deal_copy.damage("UPDATE effects SET external_ref = '1.000001' WHERE id = 15")
    with closing(sqlite3.connect(deal_copy.folder / "ledger.db")) as ledger:
        ((key,),) = ledger.execute("SELECT effect_key FROM effects WHERE id = 15").fetchall()
    metadata = {"event_type": "quotebot", "event_payload": {"key": key}}
    answer = {**keyed(deal_copy.outside), "channel": "D0REP", "ts": "1.000001", "metadata": metadata}

    deal_copy.outside.messages.extend([answer] * 2)
    assert deal_copy.verdict() == []

    deal_copy.outside.messages.append(answer)
    assert names(deal_copy.verdict()) == {"I5"}


def test_every_invariant_has_a_damage_that_it_names() -> None:
    named = {name for _, expected in (*DAMAGED_ROWS.values(), *DAMAGED_OUTSIDE.values()) for name in expected.split()}
    assert set(checker.INVARIANTS) == set(checker.ALWAYS) | set(checker.AT_REST) == named


def test_an_acknowledgement_without_a_command_is_named(deal_copy: DoneDeal) -> None:
    lost = ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=True, at_ms=1)
    promises = (None, "", messages.OPERATION_PENDING, messages.retry_pending(1), messages.finished("applied"), "Any other answer")
    for text in promises:
        assert names(replace(deal_copy, history=(*deal_copy.history, replace(lost, text=text))).verdict()) == {"I3"}, text


@pytest.mark.parametrize(
    "told",
    [
        ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=False, at_ms=1),
        ClientRecord("T0QUOTE:lost", "", "U0REP", acked=True, at_ms=1, text="Here is what you can type"),
        ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=True, at_ms=1, text=messages.NOTHING_RECORDED),
        ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=True, at_ms=1, text=messages.MAYBE_RECORDED),
        ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=True, at_ms=1, text=messages.command_too_large(65_536)),
    ],
    ids=["unanswered", "nothing-asked", "refused", "unknown", "too-large"],
)
def test_unacknowledged_refused_or_unrecorded_request_needs_no_ledger_row(deal_copy: DoneDeal, told: ClientRecord) -> None:
    assert replace(deal_copy, history=(told,)).verdict() == []


def test_acknowledgement_that_promises_nothing_needs_no_ledger_row(deal_copy: DoneDeal) -> None:
    told = ClientRecord("T0QUOTE:lost", "quote.create", "U0REP", acked=True, at_ms=1)
    refusals = (messages.too_long(4_000), messages.over_budget(30, 2), messages.CHOOSE_CHANNEL)
    turned_away = map(messages.turned_away, ("not_known", "foreign_team", "guest"))
    assert replace(deal_copy, history=tuple(replace(told, text=text) for text in (*refusals, *turned_away))).verdict() == []


def test_a_stored_file_that_is_gone_or_damaged_is_named(deal_copy: DoneDeal) -> None:
    first, second = sorted((deal_copy.folder / "artefacts").glob("*.pdf"))
    first.unlink()
    second.write_bytes(b"%PDF-")
    verdict = deal_copy.verdict()
    assert names(verdict) == {"I15"}
    assert sorted(sentence.rpartition(" ")[2] for sentence in verdict) == ["damaged", "file"]


def test_a_file_that_is_no_ledger_any_more_is_named(deal_copy: DoneDeal) -> None:
    path = deal_copy.folder / "ledger.db"
    path.write_bytes(path.read_bytes()[:4096] + bytes(4096 * 8))
    assert names(deal_copy.verdict()) == {"I16"}


def test_a_command_purged_with_its_tombstone_is_not_missed(deal_copy: DoneDeal) -> None:
    deal_copy.damage(
        "INSERT INTO tombstones SELECT operation_key, payload_hash, state, outcome, finished_at, 9 FROM operations WHERE id = 5",
        "DELETE FROM attempts WHERE effect_id IN (SELECT id FROM effects WHERE operation_id = 5)",
        "DELETE FROM effects WHERE operation_id = 5",
        "DELETE FROM deliveries WHERE operation_id = 5",
        "DELETE FROM operations WHERE id = 5",
    )
    assert replace(deal_copy, history=()).verdict() == []


def test_purged_command_may_be_redelivered_and_a_new_one_may_not_be_missing(deal_copy: DoneDeal) -> None:
    old = ClientRecord("T0QUOTE:old", "quote.create", "U0REP", acked=True, at_ms=1)
    again, new = replace(old, at_ms=9_000_000_000), replace(old, request_id="T0QUOTE:new", at_ms=9_000_000_000)
    deal_copy.damage(
        "INSERT INTO meta VALUES ('retention', '{\"deliveries\":1}')",
        "UPDATE audit_events SET at = 8999999999",
    )
    house = replace(deal_copy.house, keys={})
    assert [line for line in replace(deal_copy, history=(old, again)).verdict(house=house) if line.startswith("I3")] == []
    (missing,) = [line for line in replace(deal_copy, history=(old, again, new)).verdict(house=house) if line.startswith("I3")]
    assert "T0QUOTE:new" in missing


def test_a_tombstone_beside_its_command_is_named(deal_copy: DoneDeal) -> None:
    deal_copy.damage(
        "INSERT INTO tombstones SELECT operation_key, payload_hash, state, outcome, finished_at, 9 FROM operations WHERE id = 5"
    )
    assert names(deal_copy.verdict()) == {"I18"}


def test_only_effects_of_a_paused_class_and_their_dependents_may_stay_pending(deal_copy: DoneDeal) -> None:
    deal_copy.damage(
        "INSERT INTO gates (name, state, cause, held_at) VALUES ('pdf', 'held', 'operator', 1)",
        "UPDATE effects SET state = 'pending', finished_at = NULL, next_attempt_at = 1 WHERE id IN (2, 3, 5)",
        "UPDATE effects SET class = 'pdf.again' WHERE id = 2",
        "UPDATE effects SET class = 'pdfs.next', after_id = 2, next_attempt_at = NULL WHERE id = 3",
        "UPDATE effects SET class = 'crm.again' WHERE id = 5",
    )
    assert [sentence for sentence in deal_copy.verdict() if sentence.startswith("L1")] == [
        "L1: effect 5 (crm.again) is still pending"
    ]


def test_pending_effects_are_no_violation_before_everything_is_drained(deal_copy: DoneDeal) -> None:
    deal_copy.damage("UPDATE effects SET state = 'pending', finished_at = NULL, next_attempt_at = 1 WHERE id = 16")
    assert "L1" in names(deal_copy.verdict())
    assert "L1" not in names(deal_copy.verdict(at_rest=False))


def test_a_clock_that_was_put_back_explains_a_wait_that_looks_short(deal_copy: DoneDeal) -> None:
    deal_copy.damage("UPDATE attempts SET delay_ms = 30000 WHERE outcome = 'retry' AND http_status IS NULL")
    assert names(deal_copy.verdict()) == {"I10"}
    assert deal_copy.verdict(house=replace(deal_copy.house, clock_back_ms=3_600_000)) == []


def test_every_kind_of_command_has_its_change_written_down() -> None:
    assert set(identity.CHANGES) == set(REGISTRY)


def test_every_state_of_a_quote_has_its_words() -> None:
    assert {state.value: state_words(state).capitalize() for state in QuoteState} == effects.STATE_WORDS


def test_the_budgets_are_those_of_the_matrix() -> None:
    assert {name: line.retries for name, line in POLICIES.items() if name != "default"} == dict(claims.RETRIES)
    for name, cap in claims.CAP_MS.items():
        backoff = POLICIES[name].backoff
        assert max(backoff.cap_seconds, *backoff.steps_seconds, 0) * 1000 == cap
