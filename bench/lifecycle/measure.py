"""Counts of one variant's run, and the check that the work was really done."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.deed import EFFECTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from bench.lifecycle.footprint import Footprint

TICK_SECONDS: Final = 0.005
_PROCESS_IO: Final = Path("/proc/self/io")


@dataclass(slots=True)
class Run:
    """Result of one run of one variant. Times are seconds; if `problems` is empty, every check held."""

    submitted: int
    seconds: float
    latencies: list[float]
    commits: int
    cpu: float | None = None  # processor seconds of this process during the run
    lags: list[float] = field(default_factory=list)
    written: int | None = None  # bytes this process wrote: WAL, checkpoints, file
    grown: int | None = None  # bytes the file grew by, WAL folded in
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return the run as JSON-ready numbers; times in milliseconds."""
        ops = max(1, self.submitted)
        return {
            "ops": self.submitted,
            "seconds": self.seconds,
            "ops_per_s": self.submitted / self.seconds,
            "p50_ms": percentile(self.latencies, 50) * 1000,
            "p99_ms": percentile(self.latencies, 99) * 1000,
            "lag_p99_ms": percentile(self.lags, 99) * 1000 if self.lags else None,
            "cpu_us_per_op": None if self.cpu is None else self.cpu / ops * 1e6,
            "commits_per_op": self.commits / ops,
            "written_per_op": None if self.written is None else self.written / ops,
            "file_per_op": None if self.grown is None else self.grown / ops,
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class Marks:
    """Largest ids, counts and sizes of a file before a run."""

    operation_id: int
    effect_id: int
    event_id: int
    due: int
    quotes: int
    bytes: int
    written: int | None


def percentile(values: Iterable[float], percent: int) -> float:
    """Return the smallest value that `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def bytes_written() -> int | None:
    """Return how many bytes this process has given to the kernel for writing; None if the kernel does not count them."""
    with contextlib.suppress(OSError):
        return int(next(line for line in _PROCESS_IO.read_text().splitlines() if line.startswith("wchar")).split()[1])
    return None


def mark(path: Path) -> Marks:
    """Checkpoint the WAL and return the measures of the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        values = {
            "operation_id": _one(shell, "SELECT ifnull(max(id), 0) FROM operations"),
            "effect_id": _one(shell, "SELECT ifnull(max(id), 0) FROM effects"),
            "event_id": _one(shell, "SELECT ifnull(max(id), 0) FROM audit_events"),
            "due": _one(shell, "SELECT count(*) FROM operations WHERE next_attempt_at IS NOT NULL"),
            "quotes": _one(shell, "SELECT count(*) FROM bench_quotes"),
        }
    return Marks(**values, bytes=path.stat().st_size, written=bytes_written())


def check(path: Path, before: Marks, run: Run, footprint: Footprint) -> None:
    """Compare the file with the submitted work and add every difference to `run.problems`; fill in the run's bytes."""
    after = mark(path)
    run.grown = after.bytes - before.bytes
    if before.written is not None and after.written is not None:
        run.written = after.written - before.written
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as shell:
        states = Counter(
            dict(shell.execute("SELECT state, count(*) FROM operations WHERE id > ? GROUP BY state", (before.operation_id,)))
        )
        events = Counter(
            dict(shell.execute("SELECT event_type, count(*) FROM audit_events WHERE id > ? GROUP BY 1", (before.event_id,)))
        )
        effects = _one(shell, "SELECT count(*) FROM effects WHERE state = 'pending' AND id > ?", before.effect_id)
        broken = shell.execute("PRAGMA foreign_key_check").fetchall() if before.operation_id == 0 else []
    wanted_events = Counter({name: count * run.submitted for name, count in footprint.events.items()})
    run.problems += [
        f"{what}: {found} instead of {wanted}"
        for what, found, wanted in (
            ("operations by state", dict(states), {"completed": run.submitted}),
            ("operations due", after.due, before.due),
            ("effects owed", effects, EFFECTS * run.submitted),
            ("quotes", after.quotes - before.quotes, run.submitted),
            ("audit events", dict(events), dict(wanted_events)),
            ("rows that point nowhere", len(broken), 0),
        )
        if found != wanted
    ]
    if not run.submitted:
        run.problems.append("nothing was submitted")


@contextlib.asynccontextmanager
async def loop_lag() -> AsyncIterator[list[float]]:
    """Collect the lag (seconds) of a ticker in this event loop."""
    lags: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            lags.append(time.perf_counter() - due)

    ticker = asyncio.create_task(tick())
    try:
        yield lags
    finally:
        ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticker


def _one(shell: sqlite3.Connection, sql: str, *parameters: object) -> int:
    value: int = shell.execute(sql, parameters).fetchone()[0]
    return value
