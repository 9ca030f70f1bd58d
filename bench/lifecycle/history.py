"""Builder of a long history: finished commands in exactly the rows that the product leaves, for a file of any size."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.footprint import NOW_MS
from bench.lifecycle.raw import flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.lifecycle.footprint import Footprint, Placed, Statement

CHUNK: Final = 2_000
_QUICK: Final = (
    *("synchronous = OFF", "cache_size = -800000", "wal_autocheckpoint = 20000"),
    *("foreign_keys = OFF", "ignore_check_constraints = ON"),
)
_IN_THE_WAY: Final = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND type IN ('index', 'trigger')"
# The effects of finished commands were delivered long ago: nothing of the history is due.
_DELIVERED: Final = {"state": "delivered", "next_attempt_at": None, "finished_at": NOW_MS, "attempts": 1, "fence": 1}


def build(path: Path, footprint: Footprint, finished: int, reserved: int = 0) -> None:
    """Add `finished` completed commands with delivered effects, then `reserved` pending ones, to a closed ledger.

    Guards and indexes are dropped meanwhile and recreated. The audit's signatures are random bytes.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in _QUICK:
            connection.execute(f"PRAGMA {pragma}")
        guards = connection.execute(_IN_THE_WAY).fetchall()
        for kind, name, _ in guards:
            connection.execute(f"DROP {kind} {name}")
        placed = footprint.placed(connection)
        _insert(connection, (_finished_rows(placed, turn) for turn in range(finished)))
        waiting = footprint.placed(connection)
        _insert(connection, (flat(waiting.commits[0], turn) for turn in range(reserved)))
        for _, _, sql in guards:
            connection.execute(sql)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _finished_rows(placed: Placed, turn: int) -> list[tuple[str, list[Any]]]:
    return [(step.sql, _delivered(step, turn) if step.table == "effects" else step.values(turn)) for step in placed.final]


def _delivered(step: Statement, turn: int) -> list[Any]:
    return [_DELIVERED.get(column, value) for column, value in zip(step.columns, step.values(turn), strict=True)]


def _insert(connection: sqlite3.Connection, commands: Iterator[Sequence[tuple[str, list[Any]]]]) -> None:
    while chunk := list(itertools.islice(commands, CHUNK)):
        connection.execute("BEGIN")
        for statements in zip(*chunk, strict=True):  # the same statement of every command: one executemany keeps it prepared
            connection.executemany(statements[0][0], [values for _, values in statements])
        connection.execute("COMMIT")
