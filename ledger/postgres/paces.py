"""Paces that every process on one database shares: one row per channel or method, by the database's time.

A row holds when the next call would be due if all were evenly spaced. A call that goes moves it by one interval, in a transaction
of its own that waits for no other but those of the same row.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.clock import Clock
    from ledger.database import Database, Tx

EARLY_MS: Final = 50  # a call this much before its time counts as in time
AHEAD_MS: Final = 60_000  # a row so far ahead of what calls can make it was written by a clock that was put back since
KEEP_MS: Final = 3_600_000  # a row so old says the same as none

STATEMENTS: Final[Mapping[str, str]] = {
    "take_pace": """
INSERT INTO paces (name, full_at) VALUES (:name, :full_at)
ON CONFLICT (name) DO UPDATE
SET full_at = CASE WHEN paces.full_at BETWEEN :now AND :free_from THEN paces.full_at + :step ELSE excluded.full_at END
WHERE paces.full_at <= :free_from OR paces.full_at > :wrong_from
RETURNING full_at
""",
    "pace": "SELECT full_at FROM paces WHERE name = :name",
    "purge_paces": """
DELETE FROM paces WHERE name IN (SELECT name FROM paces WHERE full_at < :before FOR UPDATE SKIP LOCKED)
""",
}


class Taking(NamedTuple):
    """A call that asks whether it may go."""

    name: str
    at_once: int
    seconds: float
    answer: asyncio.Future[float]


class DatabasePaces:
    """The shared paces of one database. Calls of one moment are counted in one write, in the order of their names.

    Each process locks rows in that order and has one such write under way, so none waits for another that waits for it.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._purged = False
        self._asked: list[Taking] = []
        self._counting: asyncio.Task[None] | None = None

    async def take(self, name: str, at_once: int, seconds: float) -> float:
        """Count a call that goes now and return 0, or count nothing and return the seconds until one may go.

        Raises DatabaseError as Database.write does.
        """
        taking = Taking(name, at_once, seconds, asyncio.get_running_loop().create_future())
        self._asked.append(taking)
        if self._counting is None:
            self._counting = asyncio.create_task(self._count(), name="paces")
        return await taking.answer

    async def _count(self) -> None:
        """Count what is asked until nothing is left."""
        try:
            while self._asked:
                takings, self._asked = sorted(self._asked, key=lambda taking: taking.name), []
                await self._count_together(takings)
        finally:
            self._counting = None

    async def _count_together(self, takings: Sequence[Taking]) -> None:
        try:
            waits = await self._database.write("take_pace", partial(self._work, takings, self._clock.now_ms()), brief=True)
        except Exception as error:  # noqa: BLE001 -- every caller that waits must get it
            for taking in takings:
                if not taking.answer.done():  # its caller was cancelled
                    taking.answer.set_exception(copy(error))
            return
        self._purged = True
        for taking, wait in zip(takings, waits, strict=True):
            if not taking.answer.done():
                taking.answer.set_result(wait)

    def _work(self, takings: Sequence[Taking], now: int, tx: Tx) -> list[float]:
        rows: list[dict[str, int | str]] = []
        free_from = [now + (each.at_once - 1) * round(each.seconds * 1000) + EARLY_MS for each in takings]
        for each, free in zip(takings, free_from, strict=True):
            step = round(each.seconds * 1000)
            times = {"full_at": now + step, "now": now, "step": step, "free_from": free, "wrong_from": free + step + AHEAD_MS}
            rows.append({"name": each.name, **times})
        waits = []
        for each, free, taken in zip(takings, free_from, [*tx.each("take_pace", rows)], strict=True):
            if taken is not None:
                waits.append(0.0)
            else:
                full_at: int = tx.required("pace", name=each.name)["full_at"]
                waits.append(max(1, full_at - free + EARLY_MS) / 1000)
        if not self._purged:
            tx.one("purge_paces", before=now - KEEP_MS)  # last, and without waiting for a row
        return waits
