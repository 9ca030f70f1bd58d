"""DBOS Transact on SQLite: `python -m bench.peers.with_dbos FOLDER SECONDS CLIENTS` prints JSON.

Its fastest set-up: the synchronous API in the client's own thread, its system database set to WAL beforehand (by default it uses
SQLite's rollback journal, which is 1.4 times slower), and the step's data written with plain sqlite3.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import sqlite3
import sys
from pathlib import Path
from typing import Any

from bench.peers.promise import Application, drive, not_durable


def main() -> None:
    """Run as the command line specifies."""
    folder, seconds, clients = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    dbos: Any = importlib.import_module("dbos")
    application = Application(folder / "application.db")
    system = folder / "dbos.db"
    with contextlib.closing(sqlite3.connect(system)) as shell:
        shell.execute("PRAGMA journal_mode = WAL")
    dbos.DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{system}", "log_level": "CRITICAL", "enable_otlp": False})

    def apply(key: str) -> dict[str, str]:
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
    with contextlib.closing(sqlite3.connect(system)) as shell:
        (stored,) = shell.execute("SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'").fetchone()
        summary["problems"] += not_durable(shell) + application.problems(summary["ops"] + 1)
    if stored != summary["ops"] + 1:
        summary["problems"].append(f"{stored} results stored for {summary['ops'] + 1} workflows")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
