"""Writes that wait for a batch: their results, errors and deadlines. Shared by the engines."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.database import NotRecorded, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from ledger.database import DatabaseError

MAX_WAITING: Final = 4096  # queued writes; a further one is refused at once
BATCH_SECONDS: Final = 0.020  # then the batch commits: its members do not wait longer for later ones
SHARED_SECONDS: Final = 0.002  # the same if an urgent write is in the batch or waits for its end
MAX_BATCH: Final = 256  # members per commit, and members that wait for a flush before commits stop


class Member:
    """One waiting write. Its start and its abandonment exclude each other, so "not recorded" is never a guess."""

    __slots__ = ("_taken", "brief", "deadline", "error", "future", "name", "result", "urgent", "work")

    def __init__(
        self,
        name: str,
        work: Callable[[Any], Any],
        future: asyncio.Future[Any],
        *,
        urgent: bool,
        brief: bool,
        deadline: float | None,
    ) -> None:
        self.name = name
        self.work = work
        self.future = future
        self.urgent = urgent
        self.brief = brief
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


def tell(members: Sequence[Member], kind: type[DatabaseError], words: str) -> list[Member]:
    """Set a separate error on each member that has none (a shared one would collect every caller's traceback)."""
    for member in members:
        if member.error is None:
            member.error = kind(words)
    return list(members)


def deliver(member: Member) -> None:
    """Give a member's result to its caller, unless the caller was cancelled: the write is committed regardless."""
    if member.future.done():
        return
    if member.error is not None:
        member.future.set_exception(member.error)
    else:
        member.future.set_result(member.result)


LONG_AFTER_SECONDS: Final = 0.5  # minimum further wait for a write that had begun at its deadline


class Deadlines:
    """Deadlines of the waiting writes. Belongs to the loop, as the database does.

    A caller learns at once of a deadline that passed before its write began, and after a delay once it had. One timer serves all
    waiting writes: a timer for each would cost as much as a statement for every command.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[Member, _Due] = {}  # until `forget`
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, member: Member, remaining: float) -> None:
        """Check the member after `remaining` seconds, unless it was forgotten."""
        self._due[member] = due = _Due(self._loop.time() + remaining, max(LONG_AFTER_SECONDS, remaining))
        self._look_at(due.at)

    def forget(self, member: Member) -> None:
        """Stop watching the member: its caller already has its result or was cancelled. The timer stays for the others."""
        del self._due[member]

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for member, due in self._due.items():
            if due.at <= now:
                if due.begun:
                    self._give_up(member)
                else:
                    self._expire(member, due, now)
        if left := [due.at for due in self._due.values() if due.at > now]:
            self._look_at(min(left))

    def _expire(self, member: Member, due: _Due, now: float) -> None:
        if member.abandon():
            member.error = NotRecorded(f"{member.name} did not start before its deadline; nothing was recorded.")
            deliver(member)
        else:  # it has begun, so its outcome is one commit away: wait for the fact
            due.begun, due.at = True, now + due.patience

    def _give_up(self, member: Member) -> None:
        if member.future.done():
            return
        if member.abandon():  # its batch was rolled back, and it waits to run again
            words = f"{member.name} was rolled back and did not start again before its deadline; nothing was recorded."
            member.future.set_exception(NotRecorded(words))
        else:
            words = f"{member.name} had begun at its deadline; whether it was recorded is not known yet."
            member.future.set_exception(OutcomeUnknown(words))


@dataclass(slots=True)
class _Due:
    """Next check of a member (seconds of the loop's clock) and the further wait once it has begun."""

    at: float
    patience: float
    begun: bool = False
