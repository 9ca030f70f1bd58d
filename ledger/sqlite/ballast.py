"""Ballast file: reserved disk blocks beside the ledger, freed when the disk is full so that the failure can be recorded."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

BALLAST_BYTES: Final = 32 * 1024 * 1024
REMAKE_SECONDS: Final = 60.0


class Ballast:
    """The file `ledger.db.ballast` of `size` bytes; 0 disables it. The writer frees it, housekeeping recreates it."""

    __slots__ = ("_freed_at", "_lock", "_path", "_size", "wanted")

    def __init__(self, path: Path, size: int) -> None:
        self._path = path.with_name(path.name + ".ballast")
        self._size = size
        self.wanted = size > 0
        self._freed_at: float | None = None
        self._lock = threading.Lock()

    def is_there(self) -> bool:
        """Return True if the ballast exists and can be freed."""
        return self.wanted and self._path.exists()

    def make(self, monotonic: float) -> bool:
        """Allocate the ballast; true when it exists. `monotonic` (seconds) is now.

        Does nothing within a minute of freeing it, or when the disk has less than twice its size free: the rest is needed for work.
        """
        with self._lock:
            if not self.wanted:
                return False
            if self.is_there() and self._path.stat().st_size == self._size:
                return True
            if self._freed_at is not None and monotonic - self._freed_at < REMAKE_SECONDS:
                return False
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize < 2 * self._size:
                return False
            return self._take()

    def free(self, monotonic: float) -> bool:
        """Delete the ballast; false when there is none. `monotonic` (seconds) is now."""
        with self._lock:
            if not self.is_there():
                return False
            self._path.unlink()
            self._freed_at = monotonic
            return True

    def _take(self) -> bool:
        try:
            file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                os.posix_fallocate(file, 0, self._size)  # real blocks: a sparse file would reserve nothing
                os.ftruncate(file, self._size)
            finally:
                os.close(file)
        except OSError:  # another program took the space first
            self._path.unlink(missing_ok=True)
            return False
        self._freed_at = None
        return True
