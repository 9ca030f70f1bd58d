"""The only way rendered files reach the disk: one small method per step, so that each can be watched, refused or be the last."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Files:
    """The steps, on the machine's own file system. All of them block, and raise OSError."""

    def is_folder(self, path: Path) -> bool:
        """Tell whether there is a folder at `path`."""
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        """Make the folder `path` (0700) in one that is there. One that somebody else made meanwhile will do."""
        path.mkdir(mode=0o700, exist_ok=True)

    def close_to_others(self, folder: Path) -> None:
        """Let nobody but its owner into the folder (0700)."""
        if folder.stat().st_mode & 0o777 != 0o700:  # noqa: PLR2004 -- as in the docstring
            folder.chmod(0o700)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in the folder would survive a power cut."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def create(self, folder: Path, suffix: str) -> tuple[int, Path]:
        """Create an empty file (0600 from the start) under a hidden name that nobody has; return its descriptor and path."""
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=suffix, dir=folder)
        return descriptor, Path(name)

    def write(self, descriptor: int, content: bytes) -> None:
        """Append all of `content`."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Return when the file's content would survive a power cut."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close the file."""
        os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Give the file another name, in place of what had that one, all at once."""
        path.replace(to)

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        return path.read_bytes()

    def remove(self, path: Path) -> None:
        """Remove the file, if it is there."""
        path.unlink(missing_ok=True)

    def find(self, folder: Path, pattern: str) -> Iterator[Path]:
        """Yield the files in the folder whose names match; none when there is no such folder."""
        yield from sorted(folder.glob(pattern))
