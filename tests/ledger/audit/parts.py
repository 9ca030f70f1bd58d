# ruff: noqa: S608 -- the attacker writes SQL; every name in it is one of the lists below
"""Shared parts of the audit's tests: a ledger with anchors, and an attacker with the file but without the key."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any

from ledger.audit.anchors import Anchor, write_anchor
from ledger.audit.events import EVENT_COLUMNS, Audit, Keyring
from ledger.audit.verification import verify
from ledger.ledger import Ledger
from ledger.sqlite.connections import ReadOnlyFile
from tests.ledger.parts import START_MS, STATEMENTS, ManualClock, open_database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.audit.history import Finding
    from ledger.audit.verification import VerificationReport
    from ledger.database import Tx
    from ledger.sqlite.engine import SqliteDatabase

OLD, NEW, STRANGE = b"o" * 32, b"n" * 32, b"s" * 32
OLD_RING = Keyring.of(OLD)
RING = Keyring.of(NEW, OLD)
CHAINS = ("system", "Q-1", "Q-2", "Q-1", "Q-1", "system", "Q-2", "Q-1")  # the chain of each event, by its id
ANCHORED = (4, 6)  # an anchor after each of these events
EVENT_IDS = range(1, len(CHAINS) + 1)
COLUMNS = (*EVENT_COLUMNS, "mac")
HEAD_COLUMNS = ("aggregate_id", "event_id", "seq", "mac", "key_id", "seal")
ANCHOR_COLUMNS = ("id", "at", "last_event_id", "chains", "heads_sha256", "key_id", "seal")
INTEGERS = {"id", "at", "seq", "previous_id", "effect_id", "retry_count", "schema_version", "event_id", "last_event_id", "chains"}
BLOBS = {"mac", "seal"}

Shell = sqlite3.Connection


# Ids as an engine with several writers gives them: with gaps, and committed out of their order. The event of each number.
IDS = (3, 12, 5, 14, 17, 15, 21, 40)
_NEXT_ID = "next_audit_id"  # key in `meta`
GIVEN_IDS = {
    "next_audit_ids": f"SELECT CAST(value AS INTEGER) AS id, 2 AS schema_version FROM meta WHERE name = '{_NEXT_ID}' AND :count > 0"
}


def said(aggregate_id: str, number: int, event_id: int | None = None) -> Callable[[Audit, Tx], None]:
    def work(audit: Audit, tx: Tx) -> None:
        if event_id is not None:
            tx.one("put_meta", name=_NEXT_ID, value=str(event_id))
        more: dict[str, Any] = {"before": {"n": number}, "after": {"n": number + 1}} if number % 2 else {"operation_key": "0" * 64}
        audit.append(tx, START_MS + number, "quote.moved", actor="U0REP", actor_type="user", aggregate_id=aggregate_id, **more)

    return work


async def say(database: SqliteDatabase, audit: Audit, aggregate_id: str, number: int, event_id: int | None = None) -> None:
    work = said(aggregate_id, number, event_id)
    await database.write("say", lambda tx: work(audit, tx))


async def written(folder: Path, chains: Sequence[str] = CHAINS, start: int = 0, ids: Sequence[int] | None = None) -> None:
    """Write events with anchors in between; the first half is signed with the old key. `ids`: as with several writers."""
    clock = ManualClock()
    clock.advance(start)
    for ring, half in ((OLD_RING, EVENT_IDS[: len(CHAINS) // 2]), (RING, EVENT_IDS[len(CHAINS) // 2 :])):
        audit = Audit(frozenset({"quote.moved"}), ring)
        database = await open_database(folder / "ledger.db", clock, audit=audit, statements=None if ids is None else GIVEN_IDS)
        try:
            for number in half:
                await say(database, audit, chains[number - 1], number + start, None if ids is None else ids[number - 1])
                clock.advance(1)
                if number in ANCHORED:
                    await write_anchor(Ledger(database, clock, audit), folder, clock.now_ms())
        finally:
            await database.close()


async def verified(
    path: Path, *, ring: Keyring = RING, kept: Sequence[Anchor] = (), every_anchor: bool = False
) -> VerificationReport:
    return await verify(ReadOnlyFile(path, STATEMENTS), ring, anchors_kept_elsewhere=kept, every_anchor=every_anchor)


class Attacker:
    """An attacker with the file and all its history, but no key."""

    def __init__(self, original: Path, folder: Path) -> None:
        self._original = original / "ledger.db"
        self.path = folder / "ledger.db"

    def tamper(self, *statements: tuple[str, tuple[Any, ...]]) -> Path:
        """Take a fresh copy, drop its triggers, run the statements, and put the triggers back, so that it can be opened."""
        shutil.copyfile(self._original, self.path)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as shell:
            guards = shell.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in guards:
                shell.execute(f"DROP TRIGGER {name}")
            for sql, parameters in statements:
                assert shell.execute(sql, parameters).rowcount > 0, sql
            for _, guard in guards:
                shell.execute(guard)
        return self.path

    def value(self, sql: str, *parameters: object) -> Any:
        with contextlib.closing(sqlite3.connect(self._original)) as shell:
            return shell.execute(sql, parameters).fetchone()[0]

    async def finding(self, *statements: tuple[str, tuple[Any, ...]], **how: Any) -> Finding:
        """Tamper with a copy; return the finding of the verification."""
        report = await verified(self.tamper(*statements), **how)
        assert report.finding is not None, statements
        return report.finding


def another(column: str, value: Any) -> Any:
    """Return another value of the column's type."""
    if column in BLOBS:
        return bytes([value[0] ^ 1]) + value[1:]
    if column in INTEGERS:
        return 1 if value is None else value + 1_000
    if column == "key_id":
        return OLD_RING.current_id if value == RING.current_id else RING.current_id
    return "x" if value is None else value + "x"
