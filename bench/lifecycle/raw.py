"""Plain sqlite3, synchronous, without a loop: the limit with one command per commit and with 64, and a bare minimum."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.measure import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.lifecycle.footprint import Footprint, Placed, Statement

Work = list[list[tuple[str, list[list[Any]]]]]  # one batch of commands: per commit, each statement with the values of every command

BARE_SCHEMA: Final = """
CREATE TABLE operations (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, payload TEXT, state TEXT NOT NULL, response TEXT) STRICT;
CREATE TABLE audit (id INTEGER PRIMARY KEY, operation_id INTEGER NOT NULL, event TEXT NOT NULL,
  UNIQUE (operation_id, event)) STRICT;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, operation_id INTEGER NOT NULL, seq INTEGER NOT NULL, payload TEXT,
  UNIQUE (operation_id, seq)) STRICT;
"""


def connect(path: Path, pragmas: dict[str, object]) -> sqlite3.Connection:
    """Open the file with the pragmas of the product's writer, and without its adapters, which a plain program does not register."""
    for kind in (type(None), bytes):
        sqlite3.adapters.pop((kind, sqlite3.PrepareProtocol), None)
    connection = sqlite3.connect(path, isolation_level=None)
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name} = {value}")
    return connection


def run_same_rows(path: Path, footprint: Footprint, seconds: float, batch: int) -> Run:
    """Write the rows of `batch` commands in three commits, repeatedly. Computing the values is not timed."""
    run, cpu = Run(0, 0.0, [], 0), 0.0
    with contextlib.closing(connect(path, footprint.pragmas)) as connection:
        placed = footprint.placed(connection)
        while run.seconds < seconds:
            work = work_of(placed, range(run.submitted, run.submitted + batch))
            started, computed = time.perf_counter(), time.process_time()
            write(connection, work)
            elapsed = time.perf_counter() - started
            cpu += time.process_time() - computed
            run.seconds += elapsed
            run.latencies += [elapsed] * batch
            run.submitted += batch
            run.commits += len(work)
    run.cpu = cpu
    return run


def run_bare(path: Path, footprint: Footprint, seconds: float) -> Run:
    """Make three commits per command in the smallest schema that can store it."""
    run = Run(0, 0.0, [], 0)
    payload = "x" * (footprint.payload_bytes // 6)
    with contextlib.closing(connect(path, footprint.pragmas)) as connection:
        connection.executescript(BARE_SCHEMA)
        while run.seconds < seconds:
            one = run.submitted + 1
            key = hashlib.sha256(str(one).encode()).hexdigest()
            started = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO operations VALUES (?, ?, ?, 'reserved', NULL)", (one, key, payload))
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE operations SET state = 'in_progress' WHERE id = ?", (one,))
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO audit (operation_id, event) VALUES (?, 'applied')", (one,))
            connection.executemany(
                "INSERT INTO outbox (operation_id, seq, payload) VALUES (?, ?, ?)", [(one, seq, payload) for seq in range(3)]
            )
            connection.execute("UPDATE operations SET state = 'completed', response = ? WHERE id = ?", ("{}", one))
            connection.execute("COMMIT")
            elapsed = time.perf_counter() - started
            run.seconds += elapsed
            run.latencies.append(elapsed)
            run.submitted, run.commits = one, run.commits + 3
        (completed,) = connection.execute("SELECT count(*) FROM operations WHERE state = 'completed'").fetchone()
        (owed,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    if (completed, owed) != (run.submitted, 3 * run.submitted):
        run.problems.append(f"{completed} completed and {owed} owed for {run.submitted} submitted")
    return run


def work_of(placed: Placed, turns: Sequence[int]) -> Work:
    """Return the statements of a batch of commands with their values, commit by commit."""
    return [[(step.sql, [step.values(turn) for turn in turns]) for step in commit] for commit in placed.commits]


def write(connection: sqlite3.Connection, work: Work) -> None:
    """Write a batch of commands, one transaction per commit."""
    for commit in work:
        connection.execute("BEGIN IMMEDIATE")
        for sql, rows in commit:
            if len(rows) == 1:
                connection.execute(sql, rows[0])
            else:
                connection.executemany(sql, rows)
        connection.execute("COMMIT")


def flat(commit: Sequence[Statement], turn: int) -> list[tuple[str, list[Any]]]:
    """Return one command's statements of one commit with their values."""
    return [(step.sql, step.values(turn)) for step in commit]
