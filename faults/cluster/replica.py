"""One replica of a fault suite, as a process: clients, an executor, the dispatcher, and the jobs that keep its claims.

    python -m faults.cluster.replica '{"folder": ..., "name": ..., "url": ..., "lease_seconds": ..., "call_seconds": ...}'

SIGTERM stops the clients; the work goes on. The process ends with the one that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import signal
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from adapters.policies import Matrix, policy_for
from faults.cluster.journal import Journal
from faults.cluster.load import CLASS, Clients, outcome_of
from faults.lab.processes import end_with_parent
from faults.mutants.patching import put
from ledger import recovery
from ledger.audit.events import Audit, Keyring
from ledger.database import DatabaseError
from ledger.leases import Leases
from ledger.ledger import Ledger, StaleFenceError, no_follow_ups
from ledger.records import Delivered, FollowUps
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.app.workers import claim_jobs
from quotebot.dispatch import dispatcher
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.jobs.maintenance import Housekeeper

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, Operation, Settlement

KEY: Final = b"k" * 32
JOURNAL: Final = "journal"
CLIENTS: Final = 3
REST_SECONDS: Final = 0.25
AT_ONCE: Final = 16
CALLS_PER_TIMEOUT: Final = 3
POLL_SECONDS: Final = 0.2
TAKEN_SECONDS: Final = 0.1
POISON_CLAIMS: Final = 1_000  # these deaths are nobody's fault


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders to one replica. A call takes up to `call_seconds`; its time-out and the margin behind it are multiples of that."""

    folder: str
    name: str
    url: str
    lease_seconds: int
    call_seconds: float

    def to_text(self) -> str:
        """Return the orders as JSON."""
        return json.dumps(asdict(self))


class Messages:
    """Performer of the only class: a message is seen as soon as its call begins, and the answer comes a while later."""

    def __init__(self, journal: Journal, call_seconds: float) -> None:
        self._journal = journal
        self._call_seconds = call_seconds

    async def perform(self, effect: Effect) -> Delivered:
        """Send the message."""
        self._journal.write("call", effect.id, effect.aggregate_id)
        await asyncio.sleep(self._call_seconds * random.uniform(0.2, 1))  # noqa: S311 -- no secret
        return Delivered("C01:1.2", {})

    async def find(self, effect: Effect) -> Delivered | None:
        """Look for the message among all that were sent."""
        self._journal.write("look", effect.id, effect.aggregate_id)
        self._journal.follow()
        return Delivered("C01:1.2", {}) if any(line.key == effect.aggregate_id for line in self._journal.of("call")) else None

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true: a message has no steps."""
        del effect
        return True

    async def start_over(self, effect: Effect) -> None:
        """Do nothing, as above."""

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return none."""
        del tx, effect
        return FollowUps()


class NotedLedger(Ledger):
    """Ledger that notes in the journal what it refused as too late."""

    journal: Journal

    async def settle(self, effect: Effect, settlement: Settlement, *more: object) -> Effect | None:
        """Settle as the ledger does."""
        settled = await super().settle(effect, settlement, *more)  # type: ignore[arg-type] # passed on
        if settled is None:
            self.journal.write("late", effect.id, effect.aggregate_id)
        return settled


class Executor:
    """Executes commands as they become due."""

    def __init__(self, ledger: Ledger, clients: Clients, journal: Journal) -> None:
        self._ledger = ledger
        self._clients = clients
        self._journal = journal

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._ledger.operations_changed.clear()
            due = await self._clients.insist(lambda: self._ledger.claim_operations(AT_ONCE))
            await asyncio.gather(*(self._execute(operation) for operation in due))
            if not due:
                await _wait(self._ledger.operations_changed, POLL_SECONDS)

    async def _execute(self, operation: Operation) -> None:
        self._journal.write("execute", operation.id, operation.aggregate_id)
        try:
            await self._clients.insist(lambda: self._ledger.execute(operation, lambda _: outcome_of(operation)))
        except StaleFenceError:
            return  # audited


async def run(orders: Orders) -> None:
    """Work until this process is killed."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    folder = Path(orders.folder)
    journal = Journal(folder / JOURNAL, orders.name)
    put(dispatcher, "OVERRUN_SECONDS", orders.call_seconds)
    storage = PostgresStorage(
        orders.url, None, folder / orders.name / "begun", lease_seconds=orders.lease_seconds, replica=orders.name
    )
    owner = None
    while owner is None:  # its former process is not proven dead yet, or the server does not answer
        with contextlib.suppress(DatabaseError):
            owner = await asyncio.to_thread(storage.hold, bot=True)
        await asyncio.sleep(TAKEN_SECONDS)
    clock = storage.clock()
    audit = Audit(DOMAIN_EVENTS, Keyring.of(KEY))
    database = await storage.open(audit, clock, bot=True)

    async def begin() -> int:
        epoch = await recovery.begin_epoch(database, clock.now_ms(), role="bot", build="1.0", alone=False, replica=owner.name)
        journal.write("up", epoch)
        return epoch

    ledger = NotedLedger(
        database,
        clock,
        audit,
        epoch=await begin(),
        ownership=owner,
        lease_seconds=orders.lease_seconds,
        poison_claims=POISON_CLAIMS,
    )
    ledger.journal = journal
    await recovery.take_back(ledger)
    leases = Leases(ledger, begin, answer=recovery.no_answer, follow=no_follow_ups)
    timeout = CALLS_PER_TIMEOUT * orders.call_seconds
    policy = replace(policy_for(CLASS), timeout_seconds=timeout, concurrency=AT_ONCE)
    sender = dispatcher.Dispatcher(
        ledger,
        Messages(journal, orders.call_seconds),
        random.uniform,
        Matrix({CLASS: policy, "default": policy_for("default")}),
        settle_delay_seconds=timeout + orders.call_seconds,
        poll_seconds=POLL_SECONDS,
    )
    clients = Clients(
        ledger,
        f"{orders.name}{ledger.epoch}",
        CLIENTS,
        acknowledged=lambda aggregate, key: journal.write("acknowledged", aggregate, key),
        rest=lambda: REST_SECONDS,
    )
    jobs = claim_jobs(leases, orders.lease_seconds, alone=False)
    tasks = [
        asyncio.create_task(sender.run()),
        asyncio.create_task(Executor(ledger, clients, journal).run()),
        asyncio.create_task(Housekeeper(jobs, clock, poll_seconds=POLL_SECONDS).run()),
    ]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *tasks, *clients.tasks], return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await clients.end()
    done, _ = await asyncio.wait([*tasks, *clients.tasks], return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()


def main(argv: list[str]) -> None:
    """Run one replica."""
    end_with_parent()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(run(Orders(**json.loads(argv[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
