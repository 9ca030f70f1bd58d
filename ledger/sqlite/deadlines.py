"""Deadlines of writes: reports to callers that a deadline passed, at once before the write began, after a delay once it had.

One timer serves all waiting writes. A timer for each would cost as much as a statement for every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.database import NotRecorded, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ledger.sqlite.members import Member

LONG_AFTER_SECONDS: Final = 0.5  # minimum further wait for a write that had begun at its deadline


class Deadlines:
    """Deadlines of the waiting writes. Belongs to the loop, as the database does. `deliver` returns a result to one caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Member], None]) -> None:
        self._loop = loop
        self._deliver = deliver
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
            self._deliver(member)
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


class _Due:
    """Next check of a member (seconds of the loop's clock) and the further wait once it has begun."""

    __slots__ = ("at", "begun", "patience")

    def __init__(self, at: float, patience: float) -> None:
        self.at = at
        self.patience = patience
        self.begun = False
