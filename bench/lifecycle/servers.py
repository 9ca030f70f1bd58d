"""One variant of bench/postgres.py in its own process: `python -m bench.lifecycle.servers VARIANT PLACE SERVER SECONDS`.

PLACE is the address of an empty database, or the path of a file for SQLite; SERVER is the folder of the server's own files: the
processor time of its processes is read. Prints JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from bench.lifecycle.deed import EFFECTS, QUOTES, SAVE_QUOTE, open_ledger
from bench.lifecycle.measure import Run, loop_lag
from bench.lifecycle.product import Workshop
from bench.lifecycle.verdicts import ACKS, PRODUCT, SQLITE
from ledger.audit.events import Audit, Keyring
from ledger.clock import SystemClock
from ledger.database import load_statements, replace_statements
from ledger.ledger import Ledger
from ledger.migrations import Migration
from ledger.postgres.connections import prepare
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import WRITER, Address
from ledger.postgres.transactions import CONFLICTS, Record
from ledger.recovery import begin_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.database import Row, Tx
    from ledger.postgres.sessions import Session

T = TypeVar("T")
CONNECTIONS: Final = 8  # of the variant that commits each write by itself; more were not faster
WARM_UP_SECONDS: Final = 0.5
CHECKS: Final = {
    "bench_operations": "SELECT state, count(*) AS found FROM operations GROUP BY state",
    "bench_effects": "SELECT state, count(*) AS found FROM effects GROUP BY state",
    "bench_events": "SELECT count(*) AS found FROM audit_events",
    "bench_quotes": "SELECT count(*) AS found FROM bench_quotes",
}


class PlainTx:
    """A transaction of a program that knows its driver's tutorial: each statement is sent and awaited by itself."""

    def __init__(self, session: Session, statements: Mapping[str, NamedStatement]) -> None:
        self._cursor = psycopg.RawCursor(session.connection)
        self._statements = statements
        self.events: list[Any] = []

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run a statement and return its rows."""
        return self._run(name, parameters)

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        return next(iter(self._run(name, parameters)), None)

    def required(self, name: str, /, **parameters: object) -> Row:
        """Run a statement and return its first row."""
        return self._run(name, parameters)[0]

    def each(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> list[Row | None]:
        """Run a statement once for each row of parameters and return the first row of each."""
        return [next(iter(self._run(name, row)), None) for row in rows]

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run a statement once for each row of parameters."""
        for row in rows:
            self._run(name, row)

    def emit(self, event: object, /) -> None:
        """Keep an item for the end of the transaction."""
        self.events.append(event)

    def _run(self, name: str, parameters: Mapping[str, object] | tuple[object, ...]) -> list[Row]:
        statement = self._statements[name]
        cursor = self._cursor.execute(statement.sql, statement.ordered(parameters), binary=True)
        if cursor.description is None:
            return []
        columns = {column.name: place for place, column in enumerate(cursor.description)}
        return [Record(columns, values) for values in cursor]


class SingleCommits:
    """Each write is a transaction of its own, on one of several connections: the same statements without group commit."""

    def __init__(self, url: str, statements: Mapping[str, str], finish: Callable[[Any, Sequence[Any]], None], size: int) -> None:
        self._statements = {name: NamedStatement(text) for name, text in statements.items()}
        self._finish = finish
        self._threads = ThreadPoolExecutor(size)
        self._free: queue.SimpleQueue[Session] = queue.SimpleQueue()
        address = Address(url)
        for number in range(size):
            self._free.put(address.connect(name=f"bench {number}", limits=WRITER, writes=True))
        self.commits = 0

    async def write(self, name: str, work: Callable[[Tx], T], **_: object) -> T:
        """Run `work` in a transaction of its own."""
        del name
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._write, work)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """As `write`."""
        return await self.write("read", work)

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        while not self._free.empty():
            self._free.get().close()

    def _write(self, work: Callable[[Tx], T]) -> T:
        session = self._free.get()
        try:
            while True:
                try:
                    return self._tried(session, work)
                except psycopg.Error as error:
                    if error.sqlstate not in CONFLICTS:
                        raise
        finally:
            self._free.put(session)

    def _tried(self, session: Session, work: Callable[[Tx], T]) -> T:
        session.run("BEGIN")
        try:
            tx = PlainTx(session, self._statements)
            result = work(tx)
            self._finish(tx, tx.events)
            session.commit()
        except BaseException:
            session.run("ROLLBACK")
            raise
        self.commits += 1
        return result


def main() -> None:
    """Run the variant that the command line names and print its summary."""
    variant, place, server, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(run_variant(variant, place, Path(server), float(seconds)))))


async def run_variant(variant: str, place: str, server: Path, seconds: float) -> dict[str, Any]:
    """Run one variant on an empty ledger, check the rows that it left, and return its summary."""
    kind, _, rest = variant.partition(" c=")
    clients, only_acks = int(rest.split()[0]), kind.endswith(f" {ACKS}")
    kind = kind.removesuffix(f" {ACKS}")
    ledger, database = await (
        open_ledger(Path(place), SystemClock(), CHECKS) if kind == SQLITE else open_on_server(place, kind, clients)
    )
    workshop = Workshop(ledger, 1)
    client = workshop.acknowledged if only_acks else workshop.client
    executor = None if only_acks else asyncio.create_task(workshop.execute())
    run = Run(0, 0.0, workshop.latencies, 0)
    try:
        await _drive(client, clients, WARM_UP_SECONDS, executor)
        warm = len(workshop.latencies)
        workshop.latencies.clear()
        commits, trips, used = database.commits, getattr(database, "round_trips", 0), used_seconds(server)
        async with loop_lag() as run.lags:
            started, computed = time.perf_counter(), time.process_time()
            await _drive(client, clients, seconds, executor)
            run.seconds, run.cpu = time.perf_counter() - started, time.process_time() - computed
        run.commits, run.submitted = database.commits - commits, len(run.latencies)
        used, trips = used_seconds(server) - used, getattr(database, "round_trips", 0) - trips
        if executor is not None:
            executor.cancel()
            await asyncio.gather(executor, return_exceptions=True)
        run.problems += await database.read(lambda tx: _problems(tx, warm + run.submitted, only_acks=only_acks))
    finally:
        await database.close()
    done = max(1, run.submitted)
    on_server = kind != SQLITE
    return {
        **run.summary(),
        "server_us_per_op": used / done * 1e6 if on_server else None,
        "trips_per_commit": trips / run.commits if kind == PRODUCT and run.commits else None,
    }


async def open_on_server(url: str, kind: str, clients: int) -> tuple[Ledger, Any]:
    """Create a ledger in an empty database and open it: with the product's engine, or with single commits."""
    clock, audit = SystemClock(), Audit(frozenset({"quote.submitted"}), Keyring.of(os.urandom(32)))
    prepare(url, list(_migrations()), clock.now_ms(), lambda: None)
    texts = [
        load_statements([files("ledger").joinpath(*path).read_text("utf-8")])
        for path in (("queries.sql",), ("postgres", "queries.sql"))
    ]
    statements = {**replace_statements(*texts), "bench_save_quote": SAVE_QUOTE, **CHECKS}
    database: Any
    if kind == PRODUCT:
        database = await PostgresDatabase.open(url, statements=statements, clock=clock, writer="bench", finish=audit.chain)
    else:
        database = SingleCommits(url, statements, audit.chain, min(CONNECTIONS, clients))
    return Ledger(database, clock, audit, epoch=await begin_epoch(database, clock.now_ms(), role="bot", build="bench")), database


def used_seconds(server: Path) -> float:
    """Return the processor time that all processes of a server have used so far, those that have ended included."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if (folder / "cwd").readlink() == server:
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own, and those of children that it has waited for
    return ticks / os.sysconf("SC_CLK_TCK")


async def _drive(client: Callable[[float], Any], clients: int, seconds: float, executor: asyncio.Task[None] | None) -> None:
    """Run the clients; an executor that fails ends the run."""
    stop = time.perf_counter() + seconds
    driven: asyncio.Future[Any] = asyncio.gather(*(client(stop) for _ in range(clients)))
    waited: list[asyncio.Future[Any]] = [driven] if executor is None else [driven, executor]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if executor is not None and executor.done():
        driven.cancel()
        await executor
    await driven


def _problems(tx: Tx, done: int, *, only_acks: bool) -> list[str]:
    """Return every difference between the rows and the submitted work."""
    states, effects = ({row["state"]: row["found"] for row in tx.all(f"bench_{name}")} for name in ("operations", "effects"))
    events, quotes = (tx.required(f"bench_{name}")["found"] for name in ("events", "quotes"))
    wanted = ({"reserved": done}, {}, done, 0) if only_acks else ({"completed": done}, {"pending": EFFECTS * done}, 4 * done, done)
    return [
        f"{what}: {found} instead of {right}"
        for what, found, right in zip(
            ("operations", "effects", "audit events", "quotes"), (states, effects, events, quotes), wanted, strict=True
        )
        if found != right
    ]


def _migrations() -> Iterator[Migration]:
    folder = files("ledger").joinpath("postgres", "schema")
    for name in sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql")):
        yield Migration("ledger", name, folder.joinpath(name).read_text("utf-8"))
    yield Migration(QUOTES.component, QUOTES.name, QUOTES.sql.replace(" STRICT, WITHOUT ROWID", "").replace("INTEGER", "BIGINT"))


if __name__ == "__main__":
    main()
