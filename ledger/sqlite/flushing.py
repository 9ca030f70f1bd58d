"""Flushes shared by the commits of the acknowledging process.

A flush inside COMMIT makes every writer wait for the file, including the next batch of the same process. In the acknowledging
process COMMIT only writes to the WAL and releases the gate; while the disk flushes, later writes commit too, and all of them share
the next flush: callers get their results after a flush that began later. See docs/decisions/0012-acknowledgements-share-a-flush.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ledger.database import OutcomeUnknown
from ledger.writes import MAX_BATCH, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.sqlite.batch import BatchRunner
    from ledger.writes import Member

QUICK_SECONDS: Final = 0.002  # after a slower flush or commit the next one runs on the thread


class Flushing:
    """Queue of members that wait for a flush. `deliver` returns a result to one caller; `room` is called when it is no longer full.

    Belongs to the loop, as the database does. Quick flushes block the loop. Slow flushes run back to back on a thread without
    asking the loop in between: a disk that waits for Python completes fewer.
    """

    def __init__(self, runner: BatchRunner, deliver: Callable[[Member], None], room: Callable[[], None]) -> None:
        self._runner = runner
        self._deliver = deliver
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._beside = ThreadPoolExecutor(1, "ledger-flush")
        self._waiting = 0  # members that get their result after a flush
        self._told_all: asyncio.Future[None] | None = None  # awaited by close()
        # Shared by the thread and the loop, under the lock:
        self._lock = threading.Lock()
        self._next: list[Member] = []  # committed after the running flush began
        self._serving = False

    @property
    def full(self) -> bool:
        """True if too many members wait to commit more: writes that have not begun can still be refused in time."""
        return self._waiting >= MAX_BATCH

    def tell(self, members: Sequence[Member]) -> None:
        """Deliver each result once every commit so far is flushed: the members may have read those commits."""
        if not members:
            return
        self._waiting += len(members)
        if self._waiting == len(members) and all(member.error is not None for member in members):
            self._flushed(members, None)  # nothing was committed since the last flush
            return
        with self._lock:
            serving = self._serving
            beside = serving or self._runner.last_flush_seconds >= QUICK_SECONDS
            if beside:
                self._next += members
                self._serving = True
        if not beside:
            self._flushed(members, self._runner.flush())
        elif not serving:
            self._beside.submit(self._serve)

    async def close(self) -> None:
        """Wait until every member has its result, and end the thread."""
        if self._waiting:
            self._told_all = self._loop.create_future()
            await self._told_all
        self._beside.shutdown()

    def _serve(self) -> None:
        """Flush on the thread until no member waits."""
        while True:
            with self._lock:
                members, self._next = self._next, []
                if not members:
                    self._serving = False
                    return
            trouble = self._runner.flush()
            with contextlib.suppress(RuntimeError):  # the loop was closed: no caller is left
                self._loop.call_soon_threadsafe(self._flushed, members, trouble)

    def _flushed(self, members: Sequence[Member], trouble: str | None) -> None:
        for member in members if trouble is None else tell(members, OutcomeUnknown, trouble):
            self._deliver(member)
        full = self.full
        self._waiting -= len(members)
        if full and not self.full:
            self._room()
        if self._told_all is not None and not self._waiting:
            self._told_all.set_result(None)
