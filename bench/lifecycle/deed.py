"""Unit of work of every variant: one command that changes one quote, writes its audit event and enqueues three effects."""

from __future__ import annotations

from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.database import load_statements
from ledger.ledger import Ledger
from ledger.migrations import Migration
from ledger.records import AuditEvent, EffectIntent, Outcome, Request
from ledger.recovery import begin_epoch
from ledger.sqlite.engine import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.records import Operation

EFFECTS: Final = 3
QUOTES: Final = Migration(
    "bench",
    "0001_quotes.sql",
    """
CREATE TABLE bench_quotes (
  quote_id TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  state TEXT NOT NULL,
  customer TEXT NOT NULL,
  total TEXT NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
""",
)
SAVE_QUOTE: Final = """
INSERT INTO bench_quotes (quote_id, version, state, customer, total, updated_at)
VALUES (:quote_id, 1, 'submitted', :customer, :total, :now)
ON CONFLICT (quote_id) DO UPDATE SET version = bench_quotes.version + 1, state = excluded.state, updated_at = excluded.updated_at
"""
PRAGMAS: Final = (
    "journal_mode",
    "synchronous",
    "foreign_keys",
    "wal_autocheckpoint",
    "journal_size_limit",
    "cache_size",
    "temp_store",
)


async def open_ledger(path: Path, clock: Clock, more: Mapping[str, str] = MappingProxyType({})) -> tuple[Ledger, SqliteDatabase]:
    """Open the ledger at `path` as the bot does, under a new epoch, with the benchmark's own table, and `more` statements."""
    audit = Audit(frozenset({"quote.submitted"}), load_keyring(path.parent))
    schema = sorted(files("ledger").joinpath("schema").iterdir(), key=lambda file: file.name)
    database = await SqliteDatabase.open(
        path,
        statements={
            **load_statements([files("ledger").joinpath("queries.sql").read_text("utf-8")]),
            "bench_save_quote": SAVE_QUOTE,
            **more,
            **{f"bench_{name}": f"PRAGMA {name}" for name in PRAGMAS},
        },
        migrations=[*(Migration("ledger", file.name, file.read_text("utf-8")) for file in schema), QUOTES],
        clock=clock,
        finish=audit.chain,
    )
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="bench")
    return Ledger(database, clock, audit, epoch=epoch), database


async def read_pragmas(database: SqliteDatabase) -> dict[str, object]:
    """Return the pragmas of the writer's connection, by name."""

    def work(tx: Tx) -> dict[str, object]:
        rows = {name: tx.one(f"bench_{name}") for name in PRAGMAS}
        return {name: row[row.keys()[0]] for name, row in rows.items() if row is not None}

    return await database.write("pragmas", work)


def quote_id(ordinal: int) -> str:
    """Return the id of the quote that belongs to this ordinal."""
    return f"Q-{ordinal:08d}"


def request(ordinal: int, now_ms: int) -> Request:
    """Return a new request, for a quote of its own."""
    return Request(
        source="slack_slash",
        source_request_id=f"T0BENCH:{ordinal:08d}",
        action_kind="quote.submit",
        aggregate_id=quote_id(ordinal),
        aggregate_version=1,
        payload={"schema": 1, "customer": "Northwind Traders", "lines": [["SEAT-PRO", 25, "39.00"], ["ONBOARDING", 1, "900.00"]]},
        fingerprint="submit Northwind Traders",
        actor="U0REP",
        actor_type="user",
        team_id="T0BENCH",
        received_at=now_ms,
        transport={"envelope_id": f"e-{ordinal:08d}"},
    )


def decide(operation: Operation, now_ms: int) -> Callable[[Tx], Outcome]:
    """Return the work that changes the quote and enqueues a card, a reply and a Salesforce record."""
    quote = operation.aggregate_id

    def work(tx: Tx) -> Outcome:
        tx.one("bench_save_quote", quote_id=quote, customer="Northwind Traders", total="1875.00", now=now_ms)
        effects = (
            EffectIntent("slack.post", "append", quote, quote, {"text": "Submitted: 1,875.00 for Northwind Traders"}),
            EffectIntent("slack.reply", "repeat_once", f"U0REP:{quote}", quote, {"text": "Sent for approval."}),
            EffectIntent("crm.upsert", "convergent", quote, quote, {"Name": "Northwind Traders", "Amount": "1875.00"}),
        )
        event = AuditEvent("quote.submitted", quote, {"state": "draft"}, {"state": "submitted", "total": "1875.00"})
        return Outcome("applied", {"code": "ok", "quote_id": quote}, effects, (event,))

    return work
