"""Cost of a purge for other writers: how long each batch holds the write lock on a file with a long history.

    ./run bench retention [--finished 1M] [--expired 20k] [--batch 100] [--quick] [--json]

Builds the file first (minutes and gigabytes for a million), ages `--expired` of the commands and their deliveries, and purges them
while another task reserves new commands. Status 1: a check failed or a goal was missed; 64: not started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.database import Health, Tx
    from ledger.ledger import Ledger
    from ledger.sqlite.engine import SqliteDatabase

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.lifecycle.deed import open_ledger, request  # noqa: E402 -- after the path
from bench.lifecycle.footprint import NOW_MS, Footprint, record  # noqa: E402 -- after the path
from bench.lifecycle.history import build  # noqa: E402 -- after the path
from bench.lifecycle.machine import count, describe, disk_folder, in_memory  # noqa: E402 -- after the path
from bench.lifecycle.measure import percentile  # noqa: E402 -- after the path
from bench.lifecycle.report import machine  # noqa: E402 -- after the path
from ledger import measures  # noqa: E402 -- after the path
from ledger.clock import SystemClock  # noqa: E402 -- after the path
from ledger.ledger import Ledger as RealLedger  # noqa: E402 -- after the path
from ledger.operator.trace import OperationFilter, find_operations, list_operations, trace  # noqa: E402 -- after the path
from ledger.retention import DAY_MS, Purged, purge  # noqa: E402 -- after the path

T = TypeVar("T")

LOCK_MS: Final = 50.0
DUE_MS: Final = NOW_MS + 30 * DAY_MS
RESERVE_EVERY_SECONDS: Final = 0.05
QUICK: Final = (5_000, 1_000)
USAGE: Final = 64
_AGED: Final = (
    "UPDATE operations SET retain_until = :due WHERE id <= :expired",
    "UPDATE deliveries SET received_at = :due, last_seen_at = :due WHERE operation_id > :expired",
)


class Stopwatch:
    """The ledger's database with every write timed: its work, which holds the lock, and the commit after it."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self.held_ms: dict[str, list[float]] = {}
        self.worked_ms: dict[str, list[float]] = {}  # without the commit, in which the WAL may be copied into the file
        self.waited_ms: dict[str, list[float]] = {}  # from the call to the return

    async def write(
        self,
        name: str,
        work: Callable[[Tx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        """Write, and record the duration."""
        worked = 0.0

        def timed(tx: Tx) -> T:
            nonlocal worked
            began = time.perf_counter()
            try:
                return work(tx)
            finally:
                worked = time.perf_counter() - began

        asked = time.perf_counter()
        result = await self._database.write(name, timed, urgent=urgent, brief=brief, deadline=deadline, alone=alone)
        self.waited_ms.setdefault(name, []).append((time.perf_counter() - asked) * 1000)
        commit = self._database.health.last_commit_seconds
        self.held_ms.setdefault(name, []).append((worked + commit) * 1000)
        self.worked_ms.setdefault(name, []).append(worked * 1000)
        return result

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Read, untimed."""
        return await self._database.read(work)

    @property
    def health(self) -> Health:
        """Health of the real database."""
        return self._database.health

    async def tend(self) -> None:
        """Run the maintenance of the real database."""
        await self._database.tend()

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()


def main() -> int:
    """Build the file, purge it and print the measured times."""
    asked = _parser().parse_args()
    if in_memory(asked.dir) and not asked.force:
        print(f"{asked.dir} is kept in memory, where flushing is free. Nothing was run. Choose another: --dir.", file=sys.stderr)
        return USAGE
    finished, expired = QUICK if asked.quick else (asked.finished, asked.expired)
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as folder:
        path = Path(folder, "ledger.db")
        footprint = asyncio.run(record())
        asyncio.run(_grow(path, footprint, finished))
        _age(path, expired)
        size = path.stat().st_size
        report = {
            "header": describe(path.parent, footprint.pragmas),
            "finished": finished,
            "expired": expired,
            "batch": asked.batch,
            "file_bytes": size,
            **asyncio.run(_purge(path, expired, asked.batch)),
        }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_lines(report)))
    return int(bool(report["problems"]) or any(goal["verdict"] == "missed" for goal in report["goals"]))


async def _grow(path: Path, footprint: Footprint, finished: int) -> None:
    _, database = await open_ledger(path, SystemClock())
    await database.close()
    build(path, footprint, finished)


def _age(path: Path, expired: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in _AGED:
            connection.execute(statement, {"due": DUE_MS, "expired": expired})


async def _purge(path: Path, expired: int, batch: int) -> dict[str, Any]:
    opened, database = await open_ledger(path, SystemClock())
    timed = Stopwatch(database)
    ledger = RealLedger(timed, opened.clock, opened.audit, epoch=opened.epoch)
    try:
        started = time.perf_counter()
        await measures.fold(ledger)
        fold_seconds = time.perf_counter() - started
        reserving = asyncio.create_task(_reserve(ledger))
        started = time.perf_counter()
        purged = await purge(ledger, DUE_MS, dry_run=False, batch=batch)
        seconds = time.perf_counter() - started
        reserving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reserving
        started = time.perf_counter()
        await measures.measure(ledger)
        measure_ms = (time.perf_counter() - started) * 1000
        looks = await _look(ledger)
    finally:
        await timed.close()
    found = (purged.operations, purged.deliveries, purged.effects)
    wanted = (expired, expired, 3 * expired)
    held = {name: timed.held_ms.get(name, [0.0]) for name in ("retention.deliveries", "retention.operations", "measures.fold")}
    return {
        "problems": [] if found == wanted else [f"{found} instead of {wanted} operations, deliveries and effects were purged"],
        "purged": _told(purged),
        "seconds": seconds,
        "fold_seconds": fold_seconds,
        "measure_ms": measure_ms,
        "looks_ms": looks,
        "reserve_p99_ms": percentile(timed.waited_ms.get("reserve", [0.0]), 99),
        "held_ms": {name: [percentile(times, 50), percentile(times, 99), max(times)] for name, times in held.items()},
        "worked_p99_ms": percentile(timed.worked_ms.get("retention.operations", [0.0]), 99),
        "goals": _goals(held),
    }


async def _look(ledger: Ledger) -> dict[str, float]:
    """Return the milliseconds of each kind of operator query."""

    def some_reference(tx: Tx) -> str:
        rows = tx.all("operations_by_key", begin="8", upto="9", limit=1)
        return str(rows[0]["correlation_id"])

    reference = await ledger.database.read(some_reference)
    looks: dict[str, Callable[[Tx], object]] = {
        "trace": lambda tx: [trace(tx, row) for row in find_operations(tx, reference)],
        "ops list": lambda tx: list_operations(tx, OperationFilter(), 50),
        "ops list of one quote": lambda tx: list_operations(
            tx, OperationFilter(aggregate_id=find_operations(tx, reference)[0]["lane"]), 50
        ),
        "ops list of nobody": lambda tx: list_operations(tx, OperationFilter(actor="U0NOBODY"), 50),
    }
    took = {}
    for name, look in looks.items():
        started = time.perf_counter()
        await ledger.database.read(look)
        took[name] = (time.perf_counter() - started) * 1000
    return took


async def _reserve(ledger: Ledger) -> None:
    for ordinal in range(90_000_000, 99_000_000):
        await ledger.reserve(request(ordinal, NOW_MS))
        await asyncio.sleep(RESERVE_EVERY_SECONDS)


def _told(purged: Purged) -> dict[str, int]:
    return {"operations": purged.operations, "deliveries": purged.deliveries, "effects": purged.effects}


def _goals(held: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Judge the times; they are meaningless while other programs use the processors."""
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    worst = percentile([each for name in ("retention.deliveries", "retention.operations") for each in held[name]], 99)
    verdict = "ok" if worst < LOCK_MS else "too noisy, no verdict" if busy else "missed"
    return [{"goal": f"a batch holds the write lock less than {LOCK_MS:g} ms, p99", "found": worst, "verdict": verdict}]


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from machine(report["header"])
    yield f"{report['finished']:,} commands, {report['expired']:,} of them expired; {report['file_bytes'] / 1e6:,.0f} MB"
    yield from report["problems"]
    yield f"purged {report['purged']} in {report['seconds']:.1f} s, {report['batch']} rows a batch"
    for name, (half, most, worst) in report["held_ms"].items():
        yield f"{name:22} holds the lock p50 {half:.1f} p99 {most:.1f} max {worst:.1f} ms"
    yield f"of this, without the commit    p99 {report['worked_p99_ms']:.1f} ms (operations)"
    yield f"a reservation meanwhile        p99 {report['reserve_p99_ms']:.1f} ms"
    yield f"first fold of all counts {report['fold_seconds']:.1f} s; a reading of all numbers {report['measure_ms']:.1f} ms"
    yield "looks: " + ", ".join(f"{name} {took:.1f} ms" for name, took in report["looks_ms"].items())
    for goal in report["goals"]:
        yield f"[{goal['verdict']}] {goal['goal']}: {goal['found']:.1f} ms"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench retention", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--finished", type=count, default=1_000_000)
    parser.add_argument("--expired", type=count, default=20_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--force", action="store_true", help="run even in memory")
    parser.add_argument("--quick", action="store_true", help="a look: a short history")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
