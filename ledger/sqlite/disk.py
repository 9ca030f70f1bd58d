"""The steps in which the ledger's files are copied and put in place: one small method each, so that each can be the last."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """The steps, on the machine's own file system. All of them block, and raise OSError."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder for its owner alone, and those above it; one that is there will do."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, path: Path) -> None:
        """Make an empty file for its owner alone, in place of one that is there."""
        os.close(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file's content into `to`, for its owner alone."""
        self.create(to)
        shutil.copyfile(path, to)

    def write(self, path: Path, content: bytes) -> None:
        """Write a whole file, for its owner alone."""
        self.create(path)
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Return when the file's content would survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in the folder would survive a power cut."""
        self.sync(folder)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name, in place of what had that one, all at once."""
        path.replace(to)

    def link(self, path: Path, to: Path) -> None:
        """Give a file a second name; one that has it already keeps it."""
        if not to.exists():
            os.link(path, to)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)
