"""Seeded bugs in scheduled work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.mutants.patching import of, patch, put
from quotebot.handlers import lifecycle
from quotebot.jobs import scheduler
from quotebot.store import schedule as store


@patch(scheduler, "_request")
def slot_of_the_moment(honest: Any, job: Any, candidate: Any, slot: int, now: int) -> Any:
    """A slot is identified by the time at which it is checked."""
    made = honest(job, candidate, slot, now)
    return replace(made, source_request_id=f"{made.source_request_id}:{now}")


def marked_before_it_is_reserved() -> None:
    """A slot is marked first, and its command reserved after that."""
    honest, find_due = of(scheduler.Scheduler, "_fire"), of(scheduler, "_due")

    async def fire(self: Any, job: Any) -> int:
        now = self._ledger.clock.now_ms()
        due = await self._ledger.database.read(lambda tx: of(scheduler, "_due")(tx, job, now))
        if not due:
            return 0
        marks = [of(scheduler, "_mark")(job, *each) for each in due]
        await self._ledger.database.write("schedule", lambda tx: of(store, "mark")(tx, marks, now))
        put(scheduler, "_due", lambda _tx, asked, _now: [each for each in due if asked is job])
        try:
            return int(await honest(self, job))
        finally:
            put(scheduler, "_due", find_due)

    put(scheduler.Scheduler, "_fire", fire)


def closed_a_week_early() -> None:
    """A quote is closed while it is valid."""
    honest = of(lifecycle, "expire")

    def expire(asked: Any, command: Any, quote: Any, root: str) -> Any:
        return honest(replace(asked, received_at=quote.valid_until), command, quote, root)

    put(lifecycle, "expire", expire)
    put(scheduler, "GRACE_MS", -7 * 86_400_000)
