"""procrastinate on PostgreSQL: `python -m bench.peers.with_procrastinate FOLDER SECONDS CLIENTS [SERVER]` prints JSON.

Its fastest set-up: clients and worker in one event loop, a job and its key deferred in one transaction, the worker woken by
NOTIFY, the work's statements sent in one pipeline, clients woken once their job is stored as succeeded. It has no idempotency keys
and stores no results; a table of each replaces them. Unless the address of an empty database is given, the server is one of its own
(postgres.py): its processes use the second core.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any, Final

from bench.peers.postgres import DURABLE, cluster
from bench.peers.promise import EFFECTS, PAYLOAD, drive_tasks

WORKERS: Final = 16
CONNECTIONS: Final = 16
POLL_SECONDS: Final = 0.02
SCHEMA: Final = """
CREATE TABLE keys (key TEXT PRIMARY KEY);
CREATE TABLE quotes (key TEXT PRIMARY KEY, quote_id TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
  total TEXT NOT NULL);
CREATE TABLE audit (id BIGSERIAL PRIMARY KEY, key TEXT NOT NULL UNIQUE, event TEXT NOT NULL, before TEXT, after TEXT);
CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, class TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL, UNIQUE (key, seq));
CREATE TABLE results (key TEXT PRIMARY KEY, result TEXT NOT NULL);
"""


class Application:
    """The application's data, in the same PostgreSQL."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def apply(self, key: str) -> None:
        """Change the quote, write the audit, enqueue the effects and store the result in one durable transaction."""
        quote, payload = f"Q-{key[-8:]}", json.dumps(PAYLOAD)
        async with self._pool.connection() as connection, connection.pipeline(), connection.transaction():
            await connection.execute("INSERT INTO quotes VALUES (%s, %s, 1, 'submitted', '1875.00')", (key, quote))
            await connection.execute(
                "INSERT INTO audit (key, event, before, after) VALUES (%s, 'quote.submitted', %s, %s)",
                (key, '{"state": "draft"}', '{"state": "submitted"}'),
            )
            for seq in range(EFFECTS):
                await connection.execute(
                    "INSERT INTO outbox (key, seq, class, payload, state) VALUES (%s, %s, %s, %s, 'pending')",
                    (key, seq, "slack.post", payload),
                )
            await connection.execute("INSERT INTO results VALUES (%s, %s)", (key, json.dumps({"code": "ok", "quote_id": quote})))

    async def problems(self, submitted: int) -> list[str]:
        """Return what is wrong after `submitted` commands."""
        wanted = {"keys": 1, "quotes": 1, "audit": 1, "outbox": EFFECTS, "results": 1}
        counts = {table: await self.one(f"SELECT count(*) FROM {table}") for table in wanted}  # noqa: S608 -- own names
        stored = await self.one("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        settings = {name: await self.one(f"SHOW {name}") for name in DURABLE}
        return [
            f"{what}: {found} instead of {right}"
            for what, found, right in (
                ("rows", counts, {table: each * submitted for table, each in wanted.items()}),
                ("jobs that succeeded", stored, submitted),
                ("settings", settings, DURABLE),
            )
            if found != right
        ]

    async def one(self, sql: str) -> Any:
        """Return one value."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(sql)
            (value,) = await cursor.fetchone()
            return value


async def run(conninfo: str, seconds: float, clients: int) -> dict[str, Any]:
    """Run `clients` that defer a job and wait until it is done."""
    procrastinate: Any = importlib.import_module("procrastinate")
    pools: Any = importlib.import_module("psycopg_pool")
    pool = pools.AsyncConnectionPool(conninfo, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo, min_size=CONNECTIONS, max_size=CONNECTIONS))
    application = Application(pool)
    completions: dict[str, asyncio.Future[None]] = {}
    finish = app.job_manager.finish_job

    async def execute(key: str) -> None:
        await application.apply(key)

    async def finish_and_tell(job: Any, status: Any, *, delete_job: bool) -> None:
        await finish(job=job, status=status, delete_job=delete_job)
        completions.pop(job.task_kwargs["key"]).set_result(None)

    task = app.task(name="execute")(execute)
    app.job_manager.finish_job = finish_and_tell

    async def command(key: str) -> None:
        completion = completions[key] = asyncio.get_running_loop().create_future()
        async with pool.connection() as connection:
            cursor = await connection.execute("INSERT INTO keys VALUES (%s) ON CONFLICT DO NOTHING", (key,))
            if not cursor.rowcount:
                return
            await task.configure(connection=connection).defer_async(key=key)
        await completion

    async with app.open_async(), pool:
        await app.schema_manager.apply_schema_async()
        async with pool.connection() as connection:
            await connection.execute(SCHEMA)
        working = app.run_worker_async(
            concurrency=min(WORKERS, clients), fetch_job_polling_interval=POLL_SECONDS, install_signal_handlers=False
        )
        worker = asyncio.create_task(working)
        await command("T0BENCH:warm-up0")
        summary = await drive_tasks(command, clients, seconds)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        summary["problems"] += await application.problems(summary["ops"] + 1)
    return summary


def main() -> None:
    """Run as the command line specifies."""
    folder, seconds, clients = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that the server is stopped
    with contextlib.nullcontext(sys.argv[4]) if sys.argv[4:] else cluster(folder / "postgres") as conninfo:
        summary = asyncio.run(run(conninfo, seconds, clients))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
