"""States of a disk after a power cut, derived from the events on its files and from which of them were synced.

The rules (each allows more than most file systems do): content is safe once its file was synced, a name once its folder was. Unsafe
data may be in any state: absent, complete, any subset of its sectors, the new size filled with zeros; a new name or the old one. A
sector is written completely or not at all, and writing it damages no other (SQLite requires that too).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress, product
from typing import TYPE_CHECKING, Final

from faults.lab.sqlite_vfs import (
    SECTOR,
    Deleted,
    Event,
    MadeFolder,
    Opened,
    Renamed,
    Synced,
    SyncedFolder,
    SyncFailed,
    Truncated,
    Wrote,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FEW: Final = 3  # unsynced sectors of which every combination is tried
Image = Mapping[str, bytes | None]  # the folder's content by path; None for a folder


@dataclass(slots=True, eq=False)
class _File:
    """One file: its safe content, the events since then, and the content that a process reads now."""

    safe: bytes = b""
    content: bytearray = field(default_factory=bytearray)
    unsynced: list[Wrote | Truncated] = field(default_factory=list)  # writes, split at sector boundaries
    _now: bytes | None = b""  # the content as it is read, computed once per change
    _forgotten: bool = False  # whether a part of the content will never be written

    @property
    def now(self) -> bytes:
        if self._now is None:
            self._now = bytes(self.content)
        return self._now

    def take(self, event: Wrote | Truncated) -> None:
        _apply(self.content, event)
        self._now = None
        if isinstance(event, Truncated):
            self.unsynced.append(event)
            return
        start, end = event.offset, event.offset + len(event.content)
        while start < end:
            border = min(end, (start // SECTOR + 1) * SECTOR)
            self.unsynced.append(Wrote(event.name, start, event.content[start - event.offset : border - event.offset]))
            start = border

    def sync(self) -> None:
        if self.unsynced:
            self.safe = self.with_some([True] * len(self.unsynced), full_size=False)
            self.unsynced.clear()

    def forget(self) -> None:
        self._forgotten = self._forgotten or bool(self.unsynced)
        self.unsynced.clear()

    def with_some(self, kept: Sequence[bool], *, full_size: bool) -> bytes:
        """Return the content if only some of the unsynced writes arrived."""
        if all(kept) and not self._forgotten:
            return self.now
        if not any(kept):
            return self.safe.ljust(len(self.content), b"\0") if full_size else self.safe
        content = bytearray(self.safe)
        for event in compress(self.unsynced, kept):
            if isinstance(event, Truncated) or len(content) < event.offset:
                _apply(content, event)
            else:  # as _apply does it; for hundreds of thousands of sectors the calls themselves count
                content[event.offset : event.offset + len(event.content)] = event.content
        if full_size and len(content) < len(self.content):
            content.extend(bytes(len(self.content) - len(content)))
        return bytes(content)


class Disk:
    """Files by name, as a process sees them and as a power cut may leave them."""

    def __init__(self, safe: Image | None = None, *, forgets: bool = False) -> None:
        """Set the initial state: `safe` is there, and durable. A disk that `forgets` never writes the data of a failed sync."""
        self._forgets = forgets
        self._now: dict[str, _File | None] = {}  # None: a folder
        for name, content in (safe or {}).items():
            self._now[name] = None if content is None else _File(content, bytearray(content), _now=content)
        self._safe = dict(self._now)

    def take(self, event: Event) -> None:
        """Apply the event."""
        if isinstance(event, Opened):
            self._now.setdefault(event.name, _File())
        elif isinstance(event, Wrote | Truncated):
            self._file(event.name).take(event)
        elif isinstance(event, Synced):
            self._file(event.name).sync()
        elif isinstance(event, SyncFailed):
            if self._forgets:
                self._file(event.name).forget()
        elif isinstance(event, Deleted):
            self._now.pop(event.name)
        elif isinstance(event, Renamed):
            self._now[event.to] = self._now.pop(event.name)
        elif isinstance(event, MadeFolder):
            self._now[event.name] = None
        if isinstance(event, SyncedFolder) or (isinstance(event, Synced | Deleted) and event.folder):
            folder = event.name if isinstance(event, SyncedFolder) else _folder(event.name)
            kept = {name: file for name, file in self._safe.items() if _folder(name) != folder}
            self._safe = kept | {name: file for name, file in self._now.items() if _folder(name) == folder}

    def now(self) -> Image:
        """Return the present state without a power cut: what a process finds after a crash of another."""
        return {name: None if file is None else file.now for name, file in self._now.items()}

    def after_a_cut(self, seed: str, torn: int) -> Iterator[tuple[str, Image]]:
        """Yield the named states that a power cut now may leave: all kept, all lost, and `torn` seeded mixtures.

        If few sectors are unsynced, every combination of them replaces the mixtures. Equal states are yielded once.
        """
        names = [name for name in {**self._safe, **self._now} if self._safe.get(name, ...) is not self._now.get(name, ...)]
        known = {id(file): file for file in (*self._safe.values(), *self._now.values()) if file is not None}
        files = [file for file in known.values() if file.unsynced]
        sectors = sum(len(file.unsynced) for file in files)
        both = (True, False)
        for kept, new in product(both if sectors else both[:1], both if names else both[:1]):
            some = {id(file): file.with_some([kept] * len(file.unsynced), full_size=False) for file in files}
            label = f"{'kept' if kept else 'lost'}{'' if not names else ',new names' if new else ',old names'}"
            yield label, self._image(some, dict.fromkeys(names, new))
        if 1 < sectors <= FEW:
            yield from self._every_mixture(files, names, seed)
        elif sectors:
            for number in range(torn):
                yield f"torn{number}", self._mixture(files, names, random.Random(f"{seed}/{number}"))  # noqa: S311 -- replayable

    def _every_mixture(self, files: Sequence[_File], names: Sequence[str], seed: str) -> Iterator[tuple[str, Image]]:
        chance = random.Random(seed)  # noqa: S311 -- replayable
        for choice in product((True, False), repeat=sum(len(file.unsynced) for file in files)):
            if all(choice) or not any(choice):
                continue
            left = list(choice)
            some = {}
            for file in files:
                kept, left = left[: len(file.unsynced)], left[len(file.unsynced) :]
                some[id(file)] = file.with_some(kept, full_size=False)
            label = "sectors" + "".join("+" if there else "-" for there in choice)
            yield label, self._image(some, {name: chance.random() < 0.5 for name in names})  # noqa: PLR2004 -- a coin

    def _mixture(self, files: Sequence[_File], names: Sequence[str], chance: random.Random) -> Image:
        some = {}
        for file in files:
            share = chance.choice((0.0, 0.1, 0.5, 0.9, 0.99, 1.0) if len(files) > 1 else (0.1, 0.5, 0.9, 0.99))
            kept = [chance.random() < share for _ in file.unsynced]
            some[id(file)] = file.with_some(kept, full_size=chance.random() < 0.3)  # noqa: PLR2004 -- now and then
        return self._image(some, {name: chance.random() < 0.5 for name in names})  # noqa: PLR2004 -- a coin

    def _image(self, some: Mapping[int, bytes], new: Mapping[str, bool]) -> Image:
        found = {name: file for name, file in self._now.items() if new.get(name, True)}
        found |= {name: file for name, file in self._safe.items() if not new.get(name, True)}
        image = {name: None if file is None else some.get(id(file), file.safe) for name, file in found.items()}
        return {name: content for name, content in image.items() if _reachable(name, image)}

    def _file(self, name: str) -> _File:
        file = self._now[name]
        assert file is not None  # noqa: S101 -- it is a file
        return file


def write_image(image: Image, folder: Path) -> None:
    """Write the files of an image to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in image.items():
        if content is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _apply(content: bytearray, event: Wrote | Truncated) -> None:
    start = event.size if isinstance(event, Truncated) else event.offset
    if len(content) < start:
        content.extend(bytes(start - len(content)))
    if isinstance(event, Truncated):
        del content[start:]
    else:
        content[start : start + len(event.content)] = event.content


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _reachable(name: str, image: Image) -> bool:
    """Tell whether the folders above a name exist."""
    folder = _folder(name)
    return not folder or (folder in image and _reachable(folder, image))
