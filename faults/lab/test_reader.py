"""Tests that one connection reads many ledgers, and of each its own content."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from faults.lab.reader import looking_at

if TYPE_CHECKING:
    from pathlib import Path

DEALS = "CREATE TABLE deals (name TEXT)"


def ledger(path: Path, name: str, *before: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        for statement in (*before, DEALS):
            connection.execute(statement)
        connection.execute("INSERT INTO deals VALUES (?)", (name,))
    return path


def seen(path: Path) -> tuple[str, str]:
    connection = looking_at(path)
    ((name,),) = connection.execute("SELECT name FROM deals").fetchall()
    ((sound,),) = connection.execute("PRAGMA integrity_check").fetchall()
    return name, sound


def test_each_ledger_is_seen_as_it_is_now(tmp_path: Path) -> None:
    first, second = (ledger(tmp_path / name, name) for name in ("first", "second"))
    # The same number of schema changes, but the table is elsewhere in the file.
    other = ledger(tmp_path / "other", "other", "CREATE TABLE before_it (name TEXT)")
    with closing(sqlite3.connect(second)) as connection:
        connection.execute("CREATE TABLE after_it (name TEXT)")
    looks = [seen(path) for path in (first, second, first, other, second)]
    assert looks == [(name, "ok") for name in ("first", "second", "first", "other", "second")]
    with closing(sqlite3.connect(first, isolation_level=None)) as connection:
        connection.execute("UPDATE deals SET name = 'third'")
    assert seen(first) == ("third", "ok")


def test_what_is_in_a_wal_still_is_seen(tmp_path: Path) -> None:
    path = ledger(tmp_path / "open", "open")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE deals SET name = 'at work'")
        assert seen(path) == ("at work", "ok")


def test_a_damaged_ledger_is_seen_to_be_damaged(tmp_path: Path) -> None:
    sound = ledger(tmp_path / "sound", "sound")
    assert seen(sound) == ("sound", "ok")
    content = bytearray(sound.read_bytes())
    content[4096 + 3 : 4096 + 5] = (9).to_bytes(2, "big")  # its one page of rows claims to have nine
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    assert looking_at(damaged).execute("PRAGMA integrity_check").fetchall() != [("ok",)]
