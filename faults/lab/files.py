"""The production's file steps with a trap before each one that changes the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.files import Files
from ledger.sqlite.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

    from faults.lab.traps import Trap


class TrappedFiles(Files):
    """File steps that pass `trap` before every change of the disk."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def make_folder(self, path: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("file:make_folder")
        super().make_folder(path)

    def sync_folder(self, folder: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("file:sync_folder")
        super().sync_folder(folder)

    def create(self, folder: Path, suffix: str) -> tuple[int, Path]:
        """Pass the trap, then do the step."""
        self._trap.passes("file:create")
        return super().create(folder, suffix)

    def write(self, descriptor: int, content: bytes) -> None:
        """Pass the trap, write the first half, pass the trap, write the rest: a process may crash between two writes."""
        self._trap.passes("file:write")
        super().write(descriptor, content[: len(content) // 2])
        self._trap.passes("file:write_rest")
        super().write(descriptor, content[len(content) // 2 :])

    def sync(self, descriptor: int) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("file:sync")
        super().sync(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("file:rename")
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("file:remove")
        super().remove(path)


class TrappedDisk(Disk):
    """Disk steps that pass `trap` before every step in which the ledger's own files are copied, put aside or put in place."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def make_folder(self, folder: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("disk:make_folder")
        super().make_folder(folder)

    def create(self, path: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("disk:create")
        super().create(path)

    def sync(self, path: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("disk:sync")
        super().sync(path)

    def rename(self, path: Path, to: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes(f"disk:rename{to.suffix}")
        super().rename(path, to)

    def link(self, path: Path, to: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("disk:link")
        super().link(path, to)

    def remove(self, path: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes("disk:remove")
        super().remove(path)
