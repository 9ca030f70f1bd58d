"""Several replicas on one ledger, as processes that can be killed, stopped and cut off, and what they did."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from faults.cluster.journal import Journal
from faults.cluster.load import wrong
from faults.cluster.proxy import Proxy
from faults.cluster.replica import JOURNAL, KEY, Orders
from ledger.audit.events import Keyring
from ledger.database import DatabaseError
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.sandbox.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faults.cluster.journal import Line
    from ledger.database import Tx

T = TypeVar("T")
LOOK_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 90.0
KEEPALIVE_SECONDS: Final = 10.0  # the lock's session asks after 4 s, and gives up after three times 2 s
CALL_SECONDS: Final = 0.4
CALLS_PER_LEASE: Final = 12  # a shorter lease lasts for so many of the longest calls


class StandstillError(Exception):
    """Something that must happen did not; the message says what."""


class Database(Protocol):
    """The database of the replicas."""

    @property
    def url(self) -> str:
        """Address that takes no fault of one replica."""
        ...

    def address(self, name: str) -> str:
        """Return the address that the replica of this name uses."""
        ...


class Server:
    """One server, and a proxy before it for each replica, so that one of them can lose its network."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self._cluster = Cluster(folder / "server", quick=True)
        self._names = names
        self._open = contextlib.ExitStack()
        self._proxies: dict[str, Proxy] = {}

    def __enter__(self) -> Self:
        self._open.callback(self._cluster.remove)
        self._cluster.start()
        for name in self._names:
            self._proxies[name] = self._open.enter_context(Proxy(self._cluster.url()))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def url(self) -> str:
        """Address without a proxy."""
        return self._cluster.url()

    def address(self, name: str) -> str:
        """Return the address behind the proxy of a replica."""
        return self._proxies[name].url

    def lose(self, name: str) -> None:
        """Swallow what the replica sends and is sent."""
        self._proxies[name].vanish()

    def give_up(self, name: str) -> None:
        """End the replica's sessions at the server, which got no answer from its machine."""
        self._proxies[name].end_at_server()

    def find(self, name: str) -> None:
        """Give the replica its network back; what it sent meanwhile is lost with its connections."""
        self._proxies[name].come_back()
        self._proxies[name].cut()


@dataclass(frozen=True, slots=True)
class Row:
    """A claimed row of a replica that was disturbed."""

    table: str  # operations or effects
    id: int
    aggregate: str

    @property
    def events(self) -> tuple[str, ...]:
        """Events that a replica notes when it works on such a row."""
        return ("execute",) if self.table == "operations" else ("call", "look")


class Replicas:
    """The processes by name, and the journal that they share."""

    def __init__(self, folder: Path, names: tuple[str, ...], database: Database, lease_seconds: int) -> None:
        self.names = names
        self.lease_seconds = lease_seconds
        self.call_seconds = min(CALL_SECONDS, lease_seconds / CALLS_PER_LEASE)
        self._folder = folder / "replicas"
        self._folder.mkdir()
        self.journal = Journal(self._folder / JOURNAL)
        self._database = database
        self._storage = PostgresStorage(database.url, None, self._folder / "begun")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            (self._folder / name).mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.journal.close()

    def start(self, name: str) -> None:
        """Start a replica."""
        orders = Orders(str(self._folder), name, self._database.address(name), self.lease_seconds, self.call_seconds)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 -- our own module
                [sys.executable, "-m", "faults.cluster.replica", orders.to_text()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def pid(self, name: str) -> int:
        """Return the process id of a replica."""
        return self._processes[name].pid

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a replica."""
        self._processes[name].send_signal(number)
        if number is signal.SIGKILL:
            self._processes[name].wait()

    def revive(self, name: str) -> bool:
        """Start a replica again if its process has ended; returns whether it had."""
        if self._processes[name].poll() is None:
            return False
        self.start(name)
        return True

    def wait_until(self, happened: Callable[[], Any], words: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something is true. Raises StandstillError with the words, and with the replicas that ended by themselves."""
        deadline = time.monotonic() + seconds
        while True:
            self.journal.follow()
            if happened():
                return
            if time.monotonic() > deadline:
                raise StandstillError("; ".join([f"{words}, within {seconds:g} s", *self.ended()]))
            time.sleep(LOOK_SECONDS)

    def ended(self) -> Iterator[str]:
        """Yield a line for each replica whose process has ended by itself."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                last = (self._folder / f"{name}.log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
                yield f"replica {name} ended with status {process.returncode}: {last}"

    # ------------------------------------------------------------------------------------------------------ what they did

    def by(self, name: str, *events: str, since: float = 0.0) -> Iterator[Line]:
        """Yield what the present process of a replica did."""
        return (line for line in self.journal.of(*events, since=since) if line.pid == self.pid(name))

    def acknowledge(self, name: str, count: int) -> None:
        """Wait until a replica has acknowledged so many further commands."""
        begun = time.monotonic()
        self.wait_until(
            lambda: sum(1 for _ in self.by(name, "acknowledged", since=begun)) >= count, f"replica {name} acknowledged too little"
        )

    def epoch(self, name: str) -> int:
        """Return the epoch of a replica's present process, as soon as it has one."""
        self.wait_until(lambda: any(self.by(name, "up")), f"replica {name} did not begin")
        return int(list(self.by(name, "up"))[-1].what)

    def _look(self, work: Callable[[Tx], T]) -> T:
        """Read the ledger, as soon as it can be read. Raises DatabaseError if that takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._storage.read(work)
            except DatabaseError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)

    def held_by(self, epoch: int) -> set[Row]:
        """Return the rows that are claimed under an epoch."""

        def work(tx: Tx) -> set[Row]:
            return {
                Row(table, row["id"], row["aggregate_id"])
                for table, name in (("operations", "operations_in_progress"), ("effects", "effects_in_flight"))
                for row in tx.all(name)
                if row["epoch"] == epoch
            }

        return self._look(work)

    def elsewhere(self, row: Row, pid: int, since: float) -> Line | None:
        """Return the first sign that another process works on a row."""
        lines = self.journal.of(*row.events, since=since)
        return next((line for line in lines if line.what == str(row.id) and line.pid != pid), None)

    def is_finished(self, row: Row) -> bool:
        """Return true if the row has its final state."""
        name = "operation_by_id" if row.table == "operations" else "effect_by_id"
        return self._look(lambda tx: tx.required(name, id=row.id)["finished_at"] is not None)

    def refused(self, row: Row) -> bool:
        """Return true if the audit has a result of this row's effect that came too late."""
        events = self._look(lambda tx: tx.all("audit_chain", aggregate_id=row.aggregate, limit=100))
        return any(event["event_type"] == "effect.late_result" for event in events)

    def unfinished(self) -> int:
        """Return the number of commands and effects without their final state."""
        every = dict.fromkeys(("state", "actor", "action_kind", "class", "aggregate_id")) | {"since": 0, "limit": 1000}

        def work(tx: Tx) -> int:
            operations = tx.all("unfinished_operations", **{name: every[name] for name in _FOR_OPERATIONS})
            return len(operations) + len(tx.all("unfinished_effects", **every))

        return self._look(work)

    def end(self) -> list[str]:
        """Stop the clients, wait until all is done, and return what was lost, done twice, or cannot be proved."""
        for name in self.names:
            self.send(name, signal.SIGTERM)
        self.wait_until(lambda: not self.unfinished(), "the replicas did not finish what was asked for")
        self.journal.follow()
        acknowledged = {line.what: line.key for line in self.journal.of("acknowledged")}
        sent = Counter(line.key for line in self.journal.of("call"))
        return [*self.ended(), *self._look(lambda tx: wrong(tx, acknowledged, sent, Keyring.of(KEY)))]


_FOR_OPERATIONS: Final = ("state", "actor", "action_kind", "since", "limit")
