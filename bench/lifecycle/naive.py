"""Naive implementation: one aiosqlite connection, a lock, and every statement awaited."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import time
from typing import TYPE_CHECKING

import aiosqlite

from bench.lifecycle.measure import Run, loop_lag
from bench.lifecycle.raw import flat

if TYPE_CHECKING:
    from pathlib import Path

    from bench.lifecycle.footprint import Footprint


async def run_naive(path: Path, footprint: Footprint, seconds: float, clients: int) -> Run:
    """Run `clients` that write the same rows as the product, each step in its own transaction."""
    with contextlib.closing(sqlite3.connect(path)) as shell:
        placed = footprint.placed(shell)
    run = Run(0, 0.0, [], 0)
    turns, lock = itertools.count(), asyncio.Lock()
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        for name, value in footprint.pragmas.items():
            await connection.execute(f"PRAGMA {name} = {value}")

        async def client(stop: float) -> None:
            while time.perf_counter() < stop:
                turn = next(turns)
                work = [flat(commit, turn) for commit in placed.commits]
                started = time.perf_counter()
                for commit in work:
                    async with lock:
                        await connection.execute("BEGIN IMMEDIATE")
                        for sql, values in commit:
                            await connection.execute(sql, values)
                        await connection.execute("COMMIT")
                        run.commits += 1
                run.latencies.append(time.perf_counter() - started)
                run.submitted += 1

        async with loop_lag() as run.lags:
            started, computed = time.perf_counter(), time.process_time()
            await asyncio.gather(*(client(started + seconds) for _ in range(clients)))
            run.seconds, run.cpu = time.perf_counter() - started, time.process_time() - computed
    return run
