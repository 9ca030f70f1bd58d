"""Start of a bot after a crash, in its own process: `python -m bench.lifecycle.restart FILE`. Prints two JSON lines.

It prints the first line when the first effect is about to be attempted; the caller measures the time. The second line contains the
cost of claims and of repeated deliveries on that file.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.deed import decide, open_ledger, request
from bench.lifecycle.measure import percentile
from ledger.clock import SystemClock
from ledger.records import DedupeResult
from ledger.recovery import take_back

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ledger.ledger import Ledger

FIRST_BATCH: Final = 64
CLASSES: Final = ("slack.post", "slack.reply", "crm.upsert")
REPEATS: Final = 300


class Stopwatch:
    """Seconds by phase, in order."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.perf_counter()
        self.laps[phase], self._last = round(now - self._last, 3), now


async def restart(path: Path, finished: int) -> None:
    """Recover, execute due commands, attempt the first effect; then measure single claims and repeated deliveries."""
    watch = Stopwatch()
    importlib.import_module("quotebot.app.bot")  # the real bot's start includes its imports
    watch.lap("imports")
    ledger, database = await open_ledger(path, SystemClock())
    try:
        watch.lap("open")
        recovered = await take_back(ledger)
        watch.lap("take back")
        operations = await ledger.claim_operations(FIRST_BATCH)
        await asyncio.gather(*(ledger.execute(operation, decide(operation, ledger.clock.now_ms())) for operation in operations))
        watch.lap("execute")
        effects = await ledger.claim_effects(dict.fromkeys(CLASSES, 1))
        watch.lap("claim effects")
        found = {"taken_back": recovered.operations, "executed": len(operations), "effects": len(effects)}
        print(json.dumps({**found, "phases_s": watch.laps}), flush=True)
        print(json.dumps(await _probe(ledger, finished)))
    finally:
        await database.close()


async def _probe(ledger: Ledger, finished: int) -> dict[str, Any]:
    claims, repeats = [], []
    claimed = duplicates = 0
    for _ in range(REPEATS):
        seconds, operations = await _timed(ledger.claim_operations(1))
        claims.append(seconds)
        claimed += len(operations)
    chance = random.Random(1)  # noqa: S311 -- choice of the repeated deliveries
    for _ in range(REPEATS):
        again = request(chance.randint(1, finished), ledger.clock.now_ms())
        seconds, reservation = await _timed(ledger.reserve(again))
        repeats.append(seconds)
        duplicates += reservation.sighting is DedupeResult.DUPLICATE
        await ledger.noted()  # so that the next one does not wait for the counting, which follows the answer
    return {
        "claimed": claimed,
        "claim_p50_ms": percentile(claims, 50) * 1000,
        "claim_p99_ms": percentile(claims, 99) * 1000,
        "duplicates": duplicates,
        "duplicate_p50_ms": percentile(repeats, 50) * 1000,
        "duplicate_p99_ms": percentile(repeats, 99) * 1000,
    }


async def _timed(verb: Awaitable[Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = await verb
    return time.perf_counter() - started, result


if __name__ == "__main__":
    asyncio.run(restart(Path(sys.argv[1]), int(sys.argv[2])))
