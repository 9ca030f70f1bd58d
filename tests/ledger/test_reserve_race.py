"""Tests of the same commands at many processes at once: each is reserved once, and no caller gets a lock error."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from ledger.audit.verification import verify
from ledger.ledger import Ledger
from ledger.records import DedupeResult
from tests.ledger.engine.parts import all_ready, ended
from tests.ledger.parts import AUDIT, KEYRING, ManualClock, request
from tests.ledger.places import place_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.places import Place

RACES = {"sqlite": (5, 1000), "postgres": (3, 300)}  # processes and keys
WRITERS = 20
SECONDS = 60


async def reserve_all(address: str, first: int, count: int) -> None:
    """Reserve `count` keys once, from 20 coroutines, beginning with the key `first`; print the sightings by key."""
    clock = ManualClock()
    database = await place_at(address).open(clock)
    ledger = Ledger(database, clock, AUDIT)
    keys = [(number + first) % count for number in range(count)]
    sightings: dict[int, str] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)

    async def writer(first: int) -> None:
        for key in keys[first::WRITERS]:
            sightings[key] = (await ledger.reserve(request(f"r{key}"))).sighting.name

    await asyncio.gather(*(writer(first) for first in range(WRITERS)))
    await database.close()
    sys.stdout.write(json.dumps([sightings[key] for key in range(count)]))


async def test_each_key_is_new_to_one_of_many_processes_and_the_ledger_is_never_locked(
    checkout: Path, place: Place, engine_name: str
) -> None:
    processes, keys = RACES[engine_name]
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.ledger.test_reserve_race", place.address, str(turn * keys // processes), str(keys)),
            cwd=checkout,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for turn in range(processes)
    ]
    await all_ready(*racers)
    told = [json.loads(out) for out in await ended(*racers, said=b"go\n", seconds=SECONDS)]
    by_key = [Counter(sightings) for sightings in zip(*told, strict=True)]
    assert by_key == [Counter({DedupeResult.NEW.name: 1, DedupeResult.DUPLICATE.name: processes - 1})] * keys
    assert sum(DedupeResult.NEW.name in sightings for sightings in told) > 1, "they did race"
    shell = place.shell()
    rows = [shell.execute(f"SELECT count(*), count(DISTINCT {column}) FROM {table}")[0] for table, column in UNIQUE]  # noqa: S608 -- own names
    assert list(chain.from_iterable(rows)) == [keys] * 2 * len(UNIQUE)
    database = await place.open(ManualClock())
    report = await verify(database, KEYRING)
    await database.close()
    assert (report.sound, report.chains) == (True, 1)


UNIQUE = (("operations", "operation_key"), ("deliveries", "source_request_id"))


if __name__ == "__main__":
    asyncio.run(reserve_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
