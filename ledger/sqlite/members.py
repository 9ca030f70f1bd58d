"""Members of a batch of writes: their state, their results, and who may abandon them."""

from __future__ import annotations

import threading
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from ledger.database import DatabaseError
    from ledger.sqlite.transaction import SqliteTx


MAX_BATCH: Final = 256  # members per commit, and members that wait for a flush before commits stop


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
        # The first to acquire it, the writer (to start) or the loop (to abandon), owns the member; the other fails to acquire it.
        # Without a deadline the loop never abandons, so there is no lock.
        self._taken = None if deadline is None else threading.Lock()

    def start(self) -> bool:
        """Take the member for running; false when it was abandoned."""
        return self._taken is None or self._taken.acquire(blocking=False)

    def abandon(self) -> bool:
        """Abandon the member; true means it will never run."""
        return self._taken is not None and self._taken.acquire(blocking=False)

    def reset(self) -> None:
        """Reset a member whose run was rolled back: it waits again and may be abandoned again."""
        self.result = self.error = None
        if self._taken is not None:
            self._taken.release()


class Ran(NamedTuple):
    """Result of a batch. A member in neither list was abandoned before it began."""

    done: list[Member]  # have a result to deliver
    again: list[Member]  # not recorded, no result: return to the head of the queue, in this order


class Prepared(NamedTuple):
    """A batch that ran and is to be committed."""

    ran: list[Member]
    rest: Sequence[Member]  # not begun: return to the head of the queue
    version: int  # the file's data_version before the batch


class QueuedCall(Enum):
    """Requests to the writer's thread other than batches."""

    BEGIN = auto()  # wait until a batch can begin, which the loop then runs
    LEAVE = auto()


def tell(members: Sequence[Member], kind: type[DatabaseError], words: str) -> list[Member]:
    """Set a separate error on each member that has none (a shared one would collect every caller's traceback)."""
    for member in members:
        if member.error is None:
            member.error = kind(words)
    return list(members)
