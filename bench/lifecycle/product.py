"""The product itself: clients that reserve and wait, and one executor loop that claims due commands and executes them at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Final

from bench.lifecycle.deed import decide, open_ledger, request
from bench.lifecycle.measure import Run, loop_lag
from ledger.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.ledger import Ledger
    from ledger.records import Operation

CLAIM_LIMIT: Final = 256


class Workshop:
    """Clients and an executor around one ledger, in one event loop."""

    def __init__(self, ledger: Ledger, first_ordinal: int) -> None:
        self._ledger = ledger
        self._ordinals = itertools.count(first_ordinal)
        self._completions: dict[int, asyncio.Future[None]] = {}
        self.latencies: list[float] = []

    async def client(self, stop: float) -> None:
        """Request one command after another until `stop` (perf_counter), each after the last one is completed."""
        while time.perf_counter() < stop:
            started = time.perf_counter()
            await self.command()
            self.latencies.append(time.perf_counter() - started)

    async def acknowledged(self, stop: float) -> None:
        """Request as `client` does, each command after the last one is recorded."""
        while time.perf_counter() < stop:
            started = time.perf_counter()
            await self._ledger.reserve(request(next(self._ordinals), self._ledger.clock.now_ms()))
            self.latencies.append(time.perf_counter() - started)

    async def command(self) -> None:
        """Request one command and wait until it is completed."""
        reservation = await self._ledger.reserve(request(next(self._ordinals), self._ledger.clock.now_ms()))
        await self._completion(reservation.operation.id)
        del self._completions[reservation.operation.id]

    async def execute(self) -> None:
        """Work as the product's executor does until cancelled.

        A claim below its limit took everything that was due, so the next claim waits for a change; one command needs no task.
        """
        ledger = self._ledger
        while True:
            ledger.operations_changed.clear()
            claimed = await ledger.claim_operations(CLAIM_LIMIT)
            if len(claimed) == 1:
                await self._execute_one(claimed[0])
            else:
                await asyncio.gather(*(self._execute_one(operation) for operation in claimed))
            if len(claimed) < CLAIM_LIMIT:
                await ledger.operations_changed.wait()

    async def _execute_one(self, operation: Operation) -> None:
        await self._ledger.execute(operation, decide(operation, self._ledger.clock.now_ms()))
        self._completion(operation.id).set_result(None)

    def _completion(self, operation_id: int) -> asyncio.Future[None]:
        return self._completions.setdefault(operation_id, asyncio.get_running_loop().create_future())


async def run_product(path: Path, seconds: float, clients: int, first_ordinal: int) -> Run:
    """Run `clients` for `seconds` through the ledger's own methods."""
    ledger, database = await open_ledger(path, SystemClock())
    workshop = Workshop(ledger, first_ordinal)
    run = Run(0, 0.0, workshop.latencies, 0)
    executor = asyncio.create_task(workshop.execute())
    commits = database.commits
    try:
        async with loop_lag() as run.lags:
            started, computed = time.perf_counter(), time.process_time()
            await asyncio.gather(*(workshop.client(started + seconds) for _ in range(clients)))
            run.seconds, run.cpu = time.perf_counter() - started, time.process_time() - computed
    finally:
        executor.cancel()
        await asyncio.gather(executor, return_exceptions=True)
        run.commits = database.commits - commits
        await database.close()
    run.submitted = len(run.latencies)
    return run
