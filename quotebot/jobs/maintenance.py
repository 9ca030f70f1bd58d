"""Maintenance jobs of a running bot: heartbeat, disk reserve, sealing of the audit, purge.

Every job may fail or be late without harm: each is repeated, and each starts by reading what there is to do.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from ledger import keys
from ledger.database import DamagedError, NotRecorded, WritesRefused
from ledger.records import QUOTEBOT, Request
from quotebot import effects
from quotebot.commands.payloads import AnnounceDeadLetter
from quotebot.store import dead_letters
from quotebot.worker_loop import POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.clock import Clock
    from ledger.ledger import Ledger

LEASES_PER_LIFE: Final = 3  # a claim is renewed this often before it would lapse
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Repeated maintenance job with its interval; `first_seconds` delays the first run."""

    name: str
    every_seconds: float
    do: Callable[[], Awaitable[object]]
    first_seconds: float = 0.0


class Housekeeper:
    """Runner of the maintenance jobs: one after the other, each when it is due."""

    def __init__(self, jobs: Sequence[Job], clock: Clock, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._jobs = jobs
        self._poll_seconds = poll_seconds
        self._clock = clock
        now = clock.monotonic()
        self._due = {job.name: now + job.first_seconds for job in jobs}

    async def run(self) -> None:
        """Work until cancelled. Raises WritesRefused when no writes are taken until a restart, DamagedError for a damaged file."""
        while True:
            await self.step()
            await asyncio.sleep(self._poll_seconds)

    async def step(self) -> list[str]:
        """Run the due jobs; returns the names of the jobs that succeeded."""
        done = []
        for job in self._jobs:
            if self._clock.monotonic() < self._due[job.name]:
                continue
            self._due[job.name] = self._clock.monotonic() + job.every_seconds
            try:
                await job.do()
            except (WritesRefused, DamagedError):
                raise
            except NotRecorded as error:
                log.warning("housekeeping.put_off", job=job.name, error=str(error))
            except Exception:  # one broken job must not stop the bot or the other jobs
                log.exception("housekeeping.failed", job=job.name)
            else:
                done.append(job.name)
        return done


UNDECIDED_MAX: Final = 20  # limit of undecided cards: an outage must not flood the channel


async def announce_dead_letters(ledger: Ledger, channel: str) -> int:
    """Reserve the announcement of each dead letter that has no card yet; returns the number of these dead letters."""
    found = await ledger.database.read(lambda tx: dead_letters.unannounced(tx, UNDECIDED_MAX))
    for reference, team_id in found:
        payload = AnnounceDeadLetter(reference, channel)
        request_id = f"letter:{reference}"
        await ledger.reserve(
            Request(
                source="scheduler",
                source_request_id=request_id,
                action_kind=payload.kind,
                aggregate_id=effects.dead_letter_target(reference),
                aggregate_version=None,
                payload=payload.canonical(),
                fingerprint=keys.digest(["quotebot/letter/1", request_id]),
                actor=QUOTEBOT,
                actor_type="system",
                team_id=team_id,
                received_at=ledger.clock.now_ms(),
            )
        )
    return len(found)
