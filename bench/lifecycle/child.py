"""One run of one variant in its own process: `python -m bench.lifecycle.child VARIANT FILE SECONDS`. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.lifecycle.deed import open_ledger
from bench.lifecycle.footprint import record
from bench.lifecycle.measure import check, mark
from bench.lifecycle.naive import run_naive
from bench.lifecycle.product import run_product
from bench.lifecycle.raw import run_bare, run_same_rows
from bench.lifecycle.verdicts import LIMIT_AGAIN
from ledger.clock import SystemClock

if TYPE_CHECKING:
    from bench.lifecycle.measure import Run


def main() -> None:
    """Run the variant that the command line names and print its summary."""
    variant, file, seconds = sys.argv[1:]
    print(json.dumps(run_variant(variant, Path(file), float(seconds)).summary()))


def run_variant(variant: str, path: Path, seconds: float) -> Run:
    """Run one variant on the file (created if missing) and check the rows that it left."""
    footprint = asyncio.run(record())
    kind, _, clients = variant.partition(" c=")
    if kind == "bare":
        return run_bare(path, footprint, seconds)
    asyncio.run(make(path))
    before = mark(path)
    if kind in ("limit", LIMIT_AGAIN):
        run = run_same_rows(path, footprint, seconds, 1)
    elif kind == "batch 64":
        run = run_same_rows(path, footprint, seconds, 64)
    elif kind == "naive":
        run = asyncio.run(run_naive(path, footprint, seconds, int(clients)))
    else:
        run = asyncio.run(run_product(path, seconds, int(clients.split()[0]), before.operation_id + 1))
    check(path, before, run, footprint)
    return run


async def make(path: Path) -> None:
    """Create the file."""
    _, database = await open_ledger(path, SystemClock())
    await database.close()


if __name__ == "__main__":
    main()
