"""One variant under callgrind, in its own process: `python -m bench.lifecycle.counted VARIANT FILE WARM_UP COMMANDS WINDOWS`.

A window is a fixed number of commands between `begin` and `end`. callgrind is told (callgrind.py) to count from nought at the C
function that `begin` calls and to write its counts at the one that `end` calls, so neither the start nor the warm-up is counted.

Under valgrind everything takes fifty times as long, so every rule of the product that looks at a clock is fixed to its normal case:

- The ledger's clock stands still. No batch reaches its time limit (BATCH_SECONDS, SHARED_SECONDS), and every flush was a quick one.
- The writer's thread never takes a pause between two commands for idleness (IDLE_SECONDS).
- The interpreter's threads give way when they wait, not after a time (the switch interval is long).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.lifecycle.deed import open_ledger
from bench.lifecycle.footprint import StillClock, record
from bench.lifecycle.product import Workshop
from bench.lifecycle.raw import connect, work_of, write
from ledger.sqlite import engine

if TYPE_CHECKING:
    from bench.lifecycle.footprint import Footprint

# Nothing else calls these two functions of the C library.
BEGIN: Final = "sched_get_priority_max"
END: Final = "sched_get_priority_min"
NEVER_SECONDS: Final = 600.0
REAL_TIMES: Final = ("IDLE_SECONDS",)  # of the engine: waits for the real clock
BATCHES: Final = {"limit": 1, "batch 64": 64}


def main() -> None:
    """Run as the command line specifies."""
    variant, file, *numbers = sys.argv[1:]
    run_windows(variant, Path(file), *(int(number) for number in numbers))


def run_windows(variant: str, path: Path, warm_up: int, commands: int, windows: int) -> None:
    """Run the warm-up and then the windows on an existing file."""
    sizes = [warm_up, *[commands] * windows]
    if variant in BATCHES:
        _write_rows(path, asyncio.run(record()), BATCHES[variant], sizes)
    else:
        lift_time_limits()
        asyncio.run(_run_product(path, int(variant.rpartition("=")[2]), sizes))


def lift_time_limits() -> None:
    """Fix the rules that look at the real clock. Raises LookupError if one of them is gone: this file has to follow."""
    for name in REAL_TIMES:
        if not hasattr(engine, name):
            raise LookupError(f"{engine.__name__} has no {name} any more")
        setattr(engine, name, NEVER_SECONDS)
    sys.setswitchinterval(NEVER_SECONDS)


async def _run_product(path: Path, clients: int, sizes: list[int]) -> None:
    ledger, database = await open_ledger(path, StillClock())
    workshop = Workshop(ledger, 1)
    executor = asyncio.create_task(workshop.execute())

    async def client(commands: int) -> None:
        for _ in range(commands):
            await workshop.command()

    try:
        for number, size in enumerate(sizes):
            _begin(number)
            await asyncio.gather(*(client(size // clients) for _ in range(clients)))
            _end(number)
    finally:
        executor.cancel()
        await asyncio.gather(executor, return_exceptions=True)
        await database.close()


def _write_rows(path: Path, footprint: Footprint, batch: int, sizes: list[int]) -> None:
    with contextlib.closing(connect(path, footprint.pragmas)) as connection:
        placed = footprint.placed(connection)
        done = 0
        for number, size in enumerate(sizes):
            works = [work_of(placed, range(first, first + batch)) for first in range(done, done + size, batch)]
            _begin(number)
            for work in works:
                write(connection, work)
            _end(number)
            done += size


def _begin(number: int) -> None:
    if number:  # 0 is the warm-up
        os.sched_get_priority_max(os.SCHED_OTHER)


def _end(number: int) -> None:
    if number:
        os.sched_get_priority_min(os.SCHED_OTHER)


if __name__ == "__main__":
    main()
