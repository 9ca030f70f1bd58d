"""The writes of a batch: what waits, what became of it, and who may give it up."""

from __future__ import annotations

import threading
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from ledger.database import DatabaseError
    from ledger.sqlite.transaction import SqliteTx


MAX_BATCH: Final = 256  # who share a commit, and who wait for a flush before nothing more is committed


class Member:
    """One waiting write. Its start and its abandonment exclude each other, so "not recorded" is never a guess."""

    __slots__ = ("_taken", "deadline", "error", "future", "name", "result", "urgent", "work")

    def __init__(
        self, name: str, work: Callable[[SqliteTx], Any], future: asyncio.Future[Any], *, urgent: bool, deadline: float | None
    ) -> None:
        self.name = name
        self.work = work
        self.future = future
        self.urgent = urgent
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        # Who acquires it first, the writer (to start) or the loop (to give up), has the member; the other sees that it is taken.
        # Without a deadline nobody gives up, and there is nothing to exclude.
        self._taken = None if deadline is None else threading.Lock()

    def start(self) -> bool:
        """Take the member for running; false when its caller gave it up."""
        return self._taken is None or self._taken.acquire(blocking=False)

    def abandon(self) -> bool:
        """Give the member up; true means it will never run."""
        return self._taken is not None and self._taken.acquire(blocking=False)

    def reset(self) -> None:
        """Forget a run that was rolled back: it waits again, and may be given up again."""
        self.result = self.error = None
        if self._taken is not None:
            self._taken.release()


class Ran(NamedTuple):
    """What became of a batch. Whoever is in neither list was given up by its caller before it began."""

    done: list[Member]  # to be told now
    again: list[Member]  # not recorded and not told: back to the head of the queue, in this order


class Prepared(NamedTuple):
    """A batch that ran and is to be committed."""

    ran: list[Member]
    rest: Sequence[Member]  # not begun: back to the head of the queue
    version: int  # the file's data_version from before


class Errand(Enum):
    """What a writer's thread is asked for beside batches."""

    BEGIN = auto()  # wait until one can begin, which the loop then runs
    LEAVE = auto()


def tell(members: Sequence[Member], kind: type[DatabaseError], words: str) -> list[Member]:
    """Give each member that has none an error of its own (a shared one would collect every caller's traceback)."""
    for member in members:
        if member.error is None:
            member.error = kind(words)
    return list(members)
