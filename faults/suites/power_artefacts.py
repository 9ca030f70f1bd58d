"""Power cuts for rendered files: a file that `put` has confirmed is there, complete, whatever happens afterwards.

One process stores files and is killed before its n-th step, for every n; another one starts, sweeps and stores them again. After
every step of both, production code checks every state that a power cut may leave on the disk.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Final

from adapters.artefacts import Artefacts, Files
from adapters.failures import AdapterError
from faults.lab.sqlite_vfs import Deleted, MadeFolder, Opened, Renamed, Synced, SyncedFolder, Wrote
from faults.suites.power_images import Disk, write_image

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from faults.lab.sqlite_vfs import Event
    from faults.suites.power_images import Image

FOLDER: Final = "artefacts"
WRONG_ENOUGH: Final = 50  # enough violations to end a run
CONTENTS: Final = (b"%PDF a short one", b"%PDF a long one " + bytes(range(256)) * 9)


class Killed(BaseException):
    """The process is dead: no clean-up code runs after this."""


class RecordedFiles(Files):
    """File steps that are recorded, under `root`. The process crashes before step `last_step`, and does nothing from then on."""

    def __init__(self, root: Path, last_step: int | None = None) -> None:
        self.events: list[Event] = []
        self.steps = 0
        self._root = root
        self._last_step = last_step
        self._open: dict[int, tuple[str, int]] = {}  # name and size by descriptor

    def _step(self) -> None:
        if self.steps == self._last_step:
            raise Killed
        self.steps += 1

    def _name(self, path: Path) -> str:
        return "" if path == self._root else path.relative_to(self._root).as_posix()

    def make_folder(self, path: Path) -> None:
        """Make the folder and record it."""
        self._step()
        super().make_folder(path)
        self.events.append(MadeFolder(self._name(path)))

    def sync_folder(self, folder: Path) -> None:
        """Sync the folder and record it."""
        self._step()
        super().sync_folder(folder)
        self.events.append(SyncedFolder(self._name(folder)))

    def create(self, folder: Path, suffix: str) -> tuple[int, Path]:
        """Create the file and record it."""
        self._step()
        descriptor, path = super().create(folder, suffix)
        self._open[descriptor] = (self._name(path), 0)
        self.events.append(Opened(self._name(path)))
        return descriptor, path

    def write(self, descriptor: int, content: bytes) -> None:
        """Write the content and record it."""
        self._step()
        super().write(descriptor, content)
        name, size = self._open[descriptor]
        self._open[descriptor] = (name, size + len(content))
        self.events.append(Wrote(name, size, content))

    def sync(self, descriptor: int) -> None:
        """Sync the file and record it."""
        self._step()
        super().sync(descriptor)
        self.events.append(Synced(self._open[descriptor][0]))

    def close(self, descriptor: int) -> None:
        """Close the file, which a crash of the process does too; so this is not recorded as a step."""
        self._open.pop(descriptor)
        super().close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Rename the file and record it."""
        self._step()
        super().rename(path, to)
        self.events.append(Renamed(self._name(path), self._name(to)))

    def remove(self, path: Path) -> None:
        """Remove the file and record it."""
        self._step()
        there = path.exists()
        super().remove(path)
        if there:
            self.events.append(Deleted(self._name(path)))


def cut_artefacts(folder: Path, counts: Counter[str], kind: type[RecordedFiles] = RecordedFiles) -> list[str]:
    """Kill before every step, and cut the power after every later step; return the violations, each with its position."""
    found: list[str] = []
    kill_before = 0
    while True:
        root = folder / "live"
        root.mkdir()
        first = kind(root, kill_before)
        told: list[tuple[int, bytes]] = []
        events = first.events
        killed = _live(first, root, told, 0)
        second = kind(root)
        _live(second, root, told, len(events))
        events = [*events, *second.events]
        shutil.rmtree(root)
        disk = Disk()
        for number in range(len(events) + 1):
            if number:
                disk.take(events[number - 1])
            for label, image in disk.after_a_cut(f"{kill_before}/{number}", 5):
                counts["artefact states"] += 1
                answered = [content for seen, content in told if seen <= number]
                found += [
                    f"python -m faults.suites.power --only artefacts:{kill_before}:{number}:{label}  # {wrong}"
                    for wrong in _wrongs(image, folder / "found", answered)
                ]
        counts["artefact kills"] += killed
        if not killed or len(found) >= WRONG_ENOUGH:
            return found
        kill_before += 1


def _live(files: RecordedFiles, root: Path, told: list[tuple[int, bytes]], before: int) -> bool:
    """Store the contents, one of them twice. Records each confirmed one; true if the process was killed."""
    store = Artefacts(root / FOLDER, files)
    try:
        store.sweep()
        for content in (*CONTENTS, CONTENTS[0]):
            store.put(content)
            told.append((before + len(files.events), content))
    except Killed:
        return True
    return False


def _wrongs(image: Image, root: Path, answered: list[bytes]) -> Iterator[str]:
    shutil.rmtree(root, ignore_errors=True)
    write_image(image, root)
    store = Artefacts(root / FOLDER)
    for content in CONTENTS:
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            if store.get(sha256) != content:
                yield f"DAMAGED: {sha256[:12]} was returned, and is not what was stored"
        except AdapterError as error:
            if content in answered:
                yield f"LOST: {sha256[:12]} was stored and {error.code} now"
    store.sweep()
    for content in CONTENTS:
        if store.get(store.put(content)) != content:
            yield "what is stored after the cut cannot be read"
    left = sorted(path.name for path in (root / FOLDER).iterdir())
    if left != sorted(f"{hashlib.sha256(content).hexdigest()}.pdf" for content in CONTENTS):
        yield f"left behind: {left}"
