"""File operations that copy and replace the ledger's files: one small method each, so that tests can interrupt after each."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """File operations on the local file system. All of them block and raise OSError."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents for the owner alone; an existing folder is kept."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, path: Path) -> None:
        """Create an empty file for the owner alone; an existing file is truncated."""
        os.close(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file's content into `to`; a new `to` is readable and writable by its owner only."""
        self.create(to)
        shutil.copyfile(path, to)

    def write(self, path: Path, content: bytes) -> None:
        """Write a whole file, for the owner alone."""
        self.create(path)
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Flush a file, so that its content survives a power cut."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Flush a folder, so that its names survive a power cut."""
        self.sync(folder)

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file atomically, replacing an existing `to`."""
        path.replace(to)

    def link(self, path: Path, to: Path) -> None:
        """Give a file a second name; an existing `to` is kept."""
        if not to.exists():
            os.link(path, to)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)
