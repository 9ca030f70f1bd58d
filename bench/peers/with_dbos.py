"""DBOS Transact: `python -m bench.peers.with_dbos FOLDER SECONDS CLIENTS [SERVER]` prints JSON.

Its fastest set-up: the synchronous API in the client's own thread. On SQLite, its system database is set to WAL beforehand (by
default it uses SQLite's rollback journal, which is 1.4 times slower), and the step's data is written with plain sqlite3. With the
address of an empty PostgreSQL database, both are in it, and the step's data is written with plain psycopg.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any, Final

from bench.peers.postgres import DURABLE
from bench.peers.promise import EFFECTS, PAYLOAD, Application, drive, not_durable

SCHEMA: Final = """
CREATE TABLE quotes (key TEXT PRIMARY KEY, quote_id TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
  total TEXT NOT NULL);
CREATE TABLE audit (id BIGSERIAL PRIMARY KEY, key TEXT NOT NULL UNIQUE, event TEXT NOT NULL, before TEXT, after TEXT);
CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, class TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL, UNIQUE (key, seq));
"""


class ServerApplication:
    """The application's data in PostgreSQL, one connection per thread; the work's statements are sent in one pipeline."""

    def __init__(self, address: str) -> None:
        self._psycopg: Any = importlib.import_module("psycopg")
        self._address = address
        self._local = threading.local()
        self._connection().execute(SCHEMA)

    def apply(self, key: str) -> dict[str, str]:
        """Change the quote, write the audit and enqueue the effects in one durable transaction; return the result."""
        connection, quote, payload = self._connection(), f"Q-{key[-8:]}", json.dumps(PAYLOAD)
        with connection.pipeline(), connection.transaction():
            connection.execute("INSERT INTO quotes VALUES (%s, %s, 1, 'submitted', '1875.00')", (key, quote))
            connection.execute(
                "INSERT INTO audit (key, event, before, after) VALUES (%s, 'quote.submitted', %s, %s)",
                (key, '{"state": "draft"}', '{"state": "submitted"}'),
            )
            for seq in range(EFFECTS):
                connection.execute(
                    "INSERT INTO outbox (key, seq, class, payload, state) VALUES (%s, %s, %s, %s, 'pending')",
                    (key, seq, "slack.post", payload),
                )
        return {"code": "ok", "quote_id": quote}

    def problems(self, submitted: int) -> list[str]:
        """Return what is wrong after `submitted` commands."""
        counts = [self.one(f"SELECT count(*) FROM {table}")[0] for table in ("quotes", "audit", "outbox")]  # noqa: S608 -- own names
        wanted = [submitted, submitted, EFFECTS * submitted]
        return [] if counts == wanted else [f"quotes, audit, outbox: {counts} instead of {wanted}"]

    def not_durable(self) -> list[str]:
        """Return a problem if the server does not flush every commit."""
        found = {name: self.one(f"SHOW {name}")[0] for name in DURABLE}
        return [] if found == DURABLE else [f"{found}: not the same promise"]

    def one(self, sql: str) -> Any:
        """Return the one row of a query."""
        return self._connection().execute(sql).fetchone()

    def _connection(self) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._psycopg.connect(self._address, autocommit=True)
        return self._local.connection


def main() -> None:
    """Run as the command line specifies."""
    folder, seconds, clients = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    dbos: Any = importlib.import_module("dbos")
    server, system = next(iter(sys.argv[4:]), None), folder / "dbos.db"
    application: Any
    if server is None:
        application = Application(folder / "application.db")
        with contextlib.closing(sqlite3.connect(system)) as shell:
            shell.execute("PRAGMA journal_mode = WAL")
    else:
        application = ServerApplication(server)
    kept = f"sqlite:///{system}" if server is None else server
    dbos.DBOS(config={"name": "bench", "system_database_url": kept, "log_level": "CRITICAL", "enable_otlp": False})

    def apply(key: str) -> Any:
        return application.apply(key)

    step = dbos.DBOS.step()(apply)

    def execute(key: str) -> Any:
        return step(key)

    workflow = dbos.DBOS.workflow()(execute)
    dbos.DBOS.launch()

    def command(key: str) -> None:
        with dbos.SetWorkflowID(key):
            workflow(key)

    try:
        command("T0BENCH:warm-up0")
        summary = drive(command, clients, seconds)
    finally:
        dbos.DBOS.destroy()
    counted = "SELECT count(*) FROM {}workflow_status WHERE status = 'SUCCESS'"
    if server is None:
        with contextlib.closing(sqlite3.connect(system)) as shell:
            (stored,) = shell.execute(counted.format("")).fetchone()
            summary["problems"] += not_durable(shell)
    else:
        (stored,) = application.one(counted.format("dbos."))
        summary["problems"] += application.not_durable()
    summary["problems"] += application.problems(summary["ops"] + 1)
    if stored != summary["ops"] + 1:
        summary["problems"].append(f"{stored} results stored for {summary['ops'] + 1} workflows")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
