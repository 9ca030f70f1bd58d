"""Tells what became of writes whose COMMIT did not flush: after a flush, which serves all that was committed before it began.

Inside COMMIT a flush keeps everybody waiting for the file, the next batch of the same process as well. Here COMMIT only writes to
the WAL and lets the next one in; while the disk works, what arrives is committed, too, and all of it shares the next flush.
See docs/decisions/0012-acknowledgements-share-a-flush.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ledger.database import OutcomeUnknown
from ledger.sqlite.members import MAX_BATCH, Member, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.sqlite.batch import BatchRunner

QUICK_SECONDS: Final = 0.002  # after a flush that took longer the next is not waited for on the loop's thread


class Flushing:
    """Belongs to the loop, as the database does. `deliver` gives one caller its result; `room` is called when it is full no more.

    Flushes that are quick are waited for on the loop. Those that are not follow each other on a thread, which does not ask the loop
    in between: a disk that waits for Python serves fewer.
    """

    def __init__(self, runner: BatchRunner, deliver: Callable[[Member], None], room: Callable[[], None]) -> None:
        self._runner = runner
        self._deliver = deliver
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._beside = ThreadPoolExecutor(1, "ledger-flush")
        self._waiting = 0  # how many are to be told after a flush
        self._told_all: asyncio.Future[None] | None = None  # awaited by close()
        # What the thread shares with the loop, under the lock:
        self._lock = threading.Lock()
        self._next: list[Member] = []  # committed after the flush that is under way began
        self._serving = False

    @property
    def full(self) -> bool:
        """Whether so many wait that nothing more is to be committed: who has not begun can still be refused in time."""
        return self._waiting >= MAX_BATCH

    def tell(self, members: Sequence[Member]) -> None:
        """Give each its result once all that was committed by now is flushed: that is also what it may have read of others."""
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
        """Return when everybody was told, and end the thread."""
        if self._waiting:
            self._told_all = self._loop.create_future()
            await self._told_all
        self._beside.shutdown()

    def _serve(self) -> None:
        """Flush, on the thread, until nobody waits for it."""
        while True:
            with self._lock:
                members, self._next = self._next, []
                if not members:
                    self._serving = False
                    return
            trouble = self._runner.flush()
            with contextlib.suppress(RuntimeError):  # the loop was closed under us: nobody is left to be told
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
