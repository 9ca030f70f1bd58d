"""Tests of the migration to approval slots: old requests get slots, and no decision is lost."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from ledger.migrations import Migration
from ledger.sqlite.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

QUOTE = """
INSERT INTO quotes (quote_id, version, state, account, requester, requester_name, team_id, channel, created_at, valid_until,
  created_by_operation, asked_hash, recorded_at, root_effect_key, updated_at)
VALUES ('Q-2026-0001', 1, 'pending_approval', 'Acme', 'U0REP', 'rep', 'T0HOME', 'C0', 1, 2, 'o', :hash, 1, 'r', 1)"""
APPROVAL = """
INSERT INTO approvals VALUES (:id, 'Q-2026-0001', :version, :roles, '[]', :state, 'U0REP', 10, :by, :role, :at, :reason)"""


def migrations(package: str = "quotebot.store") -> list[Migration]:
    folder = files(package).joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(package, name, folder.joinpath(name).read_text("utf-8")) for name in names]


@pytest.fixture
def ledger() -> Iterator[sqlite3.Connection]:
    """Yield a ledger as the previous build wrote it: four requests, one of each kind."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, [*migrations("ledger"), *(each for each in migrations() if each.name < "0070")], 1)
    connection.execute(QUOTE, {"hash": "a" * 64})
    for identity, version, roles, state, by, role, at, reason in (
        ("open", 4, '["vp_sales", "legal"]', "pending", None, None, None, None),
        ("yes", 3, '["deal_desk"]', "approved", "U0CFO", "cfo", 20, None),
        ("no", 2, '["deal_desk"]', "rejected", "U0CFO", "cfo", 20, "No."),
        ("nobody", 1, "[]", "approved", None, None, 20, None),
    ):
        values = {"id": identity, "version": version, "roles": roles, "state": state, "by": by, "role": role, "at": at}
        connection.execute(APPROVAL, {**values, "reason": reason})
    yield connection
    connection.close()


def test_old_requests_keep_what_they_say_and_get_one_slot_per_role(ledger: sqlite3.Connection) -> None:
    before = [dict(row) for row in ledger.execute("SELECT * FROM approvals ORDER BY approval_id")]
    migrate(ledger, [*migrations("ledger"), *migrations()], 2)
    after = [dict(row) for row in ledger.execute("SELECT * FROM approvals ORDER BY approval_id")]
    assert after == [{**row, "earlier": None} for row in before]
    columns = "approval_id, slot, roles, state, decided_by, decided_role, decided_at"
    slots = ledger.execute(f"SELECT {columns} FROM approval_slots ORDER BY approval_id, slot").fetchall()  # noqa: S608 -- own names
    assert [tuple(row) for row in slots] == [
        ("no", 1, '["deal_desk"]', "rejected", "U0CFO", "cfo", 20),
        ("open", 1, '["vp_sales"]', "pending", None, None, None),
        ("open", 2, '["legal"]', "pending", None, None, None),
        ("yes", 1, '["deal_desk"]', "approved", "U0CFO", "cfo", 20),
    ]


def test_the_guards_of_before_still_hold_after_the_table_was_made_anew(ledger: sqlite3.Connection) -> None:
    migrate(ledger, [*migrations("ledger"), *migrations()], 2)
    for sql in ("UPDATE approvals SET decided_by = 'U0VP' WHERE approval_id = 'yes'", "DELETE FROM approvals"):
        with pytest.raises(sqlite3.IntegrityError, match="an approval is"):
            ledger.execute(sql)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        ledger.execute(
            "INSERT INTO approvals SELECT 'second', quote_id, 4, '[]', '[]', 'pending', '', 1, NULL, NULL, NULL, NULL, NULL "
            "FROM approvals WHERE approval_id = 'open'"
        )
    with pytest.raises(sqlite3.IntegrityError, match="an approval needs every slot"):
        ledger.execute("UPDATE approvals SET state = 'approved', decided_at = 30 WHERE approval_id = 'open'")
