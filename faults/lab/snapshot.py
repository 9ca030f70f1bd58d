"""The state that a crash leaves, as one hash: computed at every passage of every scenario."""

from __future__ import annotations

import hashlib
import os
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class FolderHash:
    """Hash of a folder, computed repeatedly.

    Most files are unchanged since the last passage: comparing is faster than hashing.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, bytes]] = {}  # by path: each file's last content and its hash

    def sum_of(self, folder: Path, besides: bytes) -> bytes:
        """Hash the names and contents of all files under a folder, together with `besides`, the rest of the state."""
        left = hashlib.sha256(besides)  # processors have an instruction for this one
        for name, path in _files(str(folder)):
            if not name.endswith("-shm"):  # SQLite rebuilds the WAL index
                left.update(hashlib.sha256(name.encode()).digest() + self._sum_of_file(path))
        return left.digest()

    def _sum_of_file(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- tens of thousands of times
            content = file.read()
        known = self._known.get(path)
        if known is None or known[0] != content:
            known = self._known[path] = (content, hashlib.sha256(content).digest())
        return known[1]


def _files(folder: str) -> list[tuple[str, str]]:
    """Return the names and paths of all files under a folder, in order."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found += _files(entry.path) if entry.is_dir() else [(entry.name, entry.path)]
    return sorted(found, key=itemgetter(1))
