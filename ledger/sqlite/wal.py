"""Write-ahead log of a ledger as a file, for flushes outside SQLite."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Wal:
    """The WAL file of an open ledger. It must exist: SQLite keeps it from the first connection until the last one closes."""

    def __init__(self, path: Path) -> None:
        """Open the WAL and make its name durable: SQLite does that only with its own flush. Raises OSError."""
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
        """Flush: every byte written before survives a power cut. Blocks; raises OSError.

        The descriptor stays open, because the kernel reports a failed page write once to each descriptor, whichever process
        requested the flush.
        """
        os.fdatasync(self._file)

    def write_again(self) -> None:
        """Rewrite the content in place and flush. Call it inside the gate; blocks, raises OSError.

        After a failed flush the kernel marks the unwritten pages as clean: readers see them, later flushes skip them, and a power
        cut loses them together with every later commit built on them.
        """
        content = self.content()
        if os.pwrite(self._file, content, 0) != len(content):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.flush()

    def content(self) -> bytes:
        """Return the content of the file."""
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
