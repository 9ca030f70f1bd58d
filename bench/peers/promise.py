"""Requirements for a peer, and their check. Standard library only: this runs in the peer's own environment.

One command is identified by its key and executed once. One transaction contains its quote, its audit event and its three pending
effects; the framework stores its result. The effects are enqueued and not performed, as in the product's own run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FULL: Final = 2
EFFECTS: Final = 3
SCHEMA: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE quotes (key TEXT PRIMARY KEY, quote_id TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
  total TEXT NOT NULL);
CREATE TABLE audit (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, event TEXT NOT NULL, before TEXT, after TEXT);
CREATE TABLE outbox (id INTEGER PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, class TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL, UNIQUE (key, seq));
"""
PAYLOAD: Final = {"customer": "Northwind Traders", "lines": [["SEAT-PRO", 25, "39.00"], ["ONBOARDING", 1, "900.00"]]}


class Application:
    """The peer's application data: a SQLite file of its own, WAL and FULL, one connection per thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._shells: list[sqlite3.Connection] = []
        with contextlib.closing(sqlite3.connect(path)) as shell:
            shell.executescript(SCHEMA)

    def apply(self, key: str) -> dict[str, str]:
        """Change the quote, write the audit and enqueue the effects in one durable transaction; return the result."""
        connection = self._connection()
        quote = f"Q-{key[-8:]}"
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO quotes VALUES (?, ?, 1, 'submitted', '1875.00')", (key, quote))
        connection.execute(
            "INSERT INTO audit (key, event, before, after) VALUES (?, 'quote.submitted', ?, ?)",
            (key, '{"state": "draft"}', '{"state": "submitted"}'),
        )
        connection.executemany(
            "INSERT INTO outbox (key, seq, class, payload, state) VALUES (?, ?, ?, ?, 'pending')",
            [(key, seq, "slack.post", json.dumps(PAYLOAD)) for seq in range(EFFECTS)],
        )
        connection.execute("COMMIT")
        return {"code": "ok", "quote_id": quote}

    def problems(self, submitted: int) -> list[str]:
        """Return what is wrong after `submitted` commands."""
        with contextlib.closing(sqlite3.connect(self._path)) as shell:
            counts = [shell.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("quotes", "audit", "outbox")]  # noqa: S608 -- own names
        wanted = [submitted, submitted, EFFECTS * submitted]
        return [] if counts == wanted else [f"quotes, audit, outbox: {counts} instead of {wanted}"]

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection = connection
        return connection


def drive(command: Callable[[str], Any], clients: int, seconds: float) -> dict[str, Any]:
    """Run `clients` threads that call `command(key)` for `seconds`; return the counts in the benchmark's form, without problems."""
    ordinals = itertools.count(1)
    latencies: list[float] = []
    errors: list[str] = []
    stop = time.perf_counter() + seconds

    def client() -> None:
        while time.perf_counter() < stop and not errors:
            key = f"T0BENCH:{next(ordinals):08d}"
            started = time.perf_counter()
            try:
                command(key)
            except Exception as error:  # noqa: BLE001 -- any error of a peer ends its run and is reported
                errors.append(f"{type(error).__name__}: {error}")
                return
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _summary(latencies, errors, time.perf_counter() - started)


async def drive_tasks(command: Callable[[str], Awaitable[Any]], clients: int, seconds: float) -> dict[str, Any]:
    """Do as `drive` does, with tasks of one event loop instead of threads."""
    ordinals = itertools.count(1)
    latencies: list[float] = []
    errors: list[str] = []
    stop = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < stop and not errors:
            started = time.perf_counter()
            try:
                await command(f"T0BENCH:{next(ordinals):08d}")
            except Exception as error:  # noqa: BLE001 -- any error of a peer ends its run and is reported
                errors.append(f"{type(error).__name__}: {error}")
                return
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return _summary(latencies, errors, time.perf_counter() - started)


def _summary(latencies: list[float], errors: list[str], elapsed: float) -> dict[str, Any]:
    ordered = sorted(latencies) or [0.0]
    return {
        "ops": len(latencies),
        "seconds": elapsed,
        "ops_per_s": len(latencies) / elapsed,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1000,
        "lag_p99_ms": None,
        "cpu_us_per_op": None,
        "commits_per_op": None,
        "written_per_op": None,
        "file_per_op": None,
        "problems": errors or ([] if latencies else ["nothing was submitted"]),
    }


def not_durable(connection: sqlite3.Connection) -> list[str]:
    """Return a problem if a connection of the peer does not flush every commit into a WAL."""
    journal, synchronous = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
    return (
        []
        if (journal, synchronous) == ("wal", FULL)
        else [f"journal_mode={journal}, synchronous={synchronous}: not the same promise"]
    )
