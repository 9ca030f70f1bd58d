"""Tells callers that the deadline of their write has passed: while it had not begun, or some time after, when it had.

One timer serves all who wait. One for each would cost every command as much as a statement does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.database import NotRecorded, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ledger.sqlite.members import Member

LONG_AFTER_SECONDS: Final = 0.5  # a write that had begun at its deadline is waited for at least this much longer


class Deadlines:
    """Belongs to the loop, as the database does. `deliver` gives one caller its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Member], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._due: dict[Member, _Due] = {}  # until they are forgotten
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, member: Member, remaining: float) -> None:
        """Look at it in so many seconds, until it is forgotten."""
        self._due[member] = due = _Due(self._loop.time() + remaining, max(LONG_AFTER_SECONDS, remaining))
        self._look_at(due.at)

    def forget(self, member: Member) -> None:
        """Let it be: its caller has been told, or is gone. The timer stays, for the next ones."""
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
            self._deliver(member)
        else:  # it has begun: its outcome is a matter of one commit. Waiting it out beats guessing
            due.begun, due.at = True, now + due.patience

    def _give_up(self, member: Member) -> None:
        if member.future.done():
            return
        if member.abandon():  # its batch was rolled back, and it is waiting to run again
            words = f"{member.name} was rolled back and did not start again before its deadline; nothing was recorded."
            member.future.set_exception(NotRecorded(words))
        else:
            words = f"{member.name} had begun at its deadline; whether it was recorded is not known yet."
            member.future.set_exception(OutcomeUnknown(words))


class _Due:
    """When one is looked at next, seconds of the loop's clock, and how long it is waited for once it has begun."""

    __slots__ = ("at", "begun", "patience")

    def __init__(self, at: float, patience: float) -> None:
        self.at = at
        self.patience = patience
        self.begun = False
