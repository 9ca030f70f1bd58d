"""The write-ahead log of a ledger as a file, for who flushes it beside SQLite."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Wal:
    """An open ledger's WAL. It has to be there: SQLite makes it with the first connection and keeps it until the last is gone."""

    def __init__(self, path: Path) -> None:
        """Open it, and make its name durable: SQLite does that only with a flush of its own. Raises OSError."""
        self._file = os.open(path, os.O_RDWR)
        try:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException:
            os.close(self._file)
            raise

    def flush(self) -> None:
        """Return when every byte that was written to it before would survive a power cut. Blocks; raises OSError.

        The descriptor stays open, for the kernel tells each of them once of pages it could not write, whoever asked for that.
        """
        os.fdatasync(self._file)

    def write_again(self) -> None:
        """Write what is in it over itself, and flush. Call it inside the gate; blocks, raises OSError.

        What a failed flush could not write the kernel takes for written from then on: who reads it finds it, later flushes leave it
        out, and a power cut takes it back with all that was built upon it.
        """
        content = self.content()
        if os.pwrite(self._file, content, 0) != len(content):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.flush()

    def content(self) -> bytes:
        """Return what is in it."""
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
