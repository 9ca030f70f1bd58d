"""Paces that every process on one database shares: one row per channel or method, by the database's time.

A row holds when the next call would be due if all were evenly spaced. A call that goes moves it by one interval, in a transaction
of its own that waits for no other but those of the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "purge_paces": "DELETE FROM paces WHERE full_at < :before",
}


class DatabasePaces:
    """The shared paces of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._purged = False

    async def take(self, name: str, at_once: int, seconds: float) -> float:
        """Count a call that goes now and return 0, or count nothing and return the seconds until one may go.

        Raises DatabaseError as Database.write does.
        """
        now, step = self._clock.now_ms(), round(seconds * 1000)
        free_from = now + (at_once - 1) * step + EARLY_MS

        def work(tx: Tx) -> float:
            if not self._purged:
                tx.one("purge_paces", before=now - KEEP_MS)
            wrong_from = free_from + step + AHEAD_MS
            row = tx.one("take_pace", name=name, full_at=now + step, now=now, step=step, free_from=free_from, wrong_from=wrong_from)
            if row is not None:
                return 0.0
            full_at: int = tx.required("pace", name=name)["full_at"]
            return max(1, full_at - free_from + EARLY_MS) / 1000

        wait = await self._database.write("take_pace", work, brief=True)
        self._purged = True
        return wait
