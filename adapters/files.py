"""File system calls of the store of rendered files: one small method per step, so that tests can observe, fail or crash each."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Files:
    """File system calls on the local machine. All of them block and raise OSError."""

    def is_folder(self, path: Path) -> bool:
        """Return whether `path` is a folder."""
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        """Create the folder `path` (0700) in an existing parent. A folder that another process has just created is accepted."""
        path.mkdir(mode=0o700, exist_ok=True)

    def close_to_others(self, folder: Path) -> None:
        """Restrict the folder to its owner (0700)."""
        if folder.stat().st_mode & 0o777 != 0o700:  # noqa: PLR2004 -- as in the docstring
            folder.chmod(0o700)

    def sync_folder(self, folder: Path) -> None:
        """Sync the folder, so that the names in it survive a power cut."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def create(self, folder: Path, suffix: str) -> tuple[int, Path]:
        """Create an empty file (0600 from the start) under a unique hidden name; return its descriptor and path."""
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=suffix, dir=folder)
        return descriptor, Path(name)

    def write(self, descriptor: int, content: bytes) -> None:
        """Append all of `content`."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Sync the file, so that its content survives a power cut."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close the file."""
        os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Rename the file atomically, replacing any file that has the new name."""
        path.replace(to)

    def read(self, path: Path) -> bytes:
        """Return the whole content of the file."""
        return path.read_bytes()

    def remove(self, path: Path) -> None:
        """Remove the file, if it exists."""
        path.unlink(missing_ok=True)

    def find(self, folder: Path, pattern: str) -> Iterator[Path]:
        """Yield the files in the folder whose names match the pattern; none if the folder does not exist."""
        yield from sorted(folder.glob(pattern))
