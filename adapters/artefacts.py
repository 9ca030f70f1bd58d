"""Store of rendered files, named by the SHA-256 of their content. Writes are atomic and every read verifies the checksum.

`Artefacts` is a folder of the machine. A ledger in a database keeps them as rows, behind the same methods (ArtefactStore).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".tmp"


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


class ArtefactStore(Protocol):
    """Store of rendered files. The calls block and raise AdapterError; one in a database also raises NotRecorded."""

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256 (hex)."""
        ...

    def get(self, sha256: str) -> bytes:
        """Return the content stored under this SHA-256. Raises NOT_FOUND: artefact_missing or artefact_damaged."""
        ...

    def names(self) -> frozenset[str]:
        """Return the SHA-256 of everything that is stored."""
        ...

    def remove(self, sha256: str) -> None:
        """Remove what is stored under this SHA-256, if anything is."""
        ...

    def sweep(self) -> int:
        """Remove what an interrupted `put` left behind; return how many. Call at start, before the first put."""
        ...


class Artefacts:
    """One folder (0700) of PDF files (0600), `<sha256>.pdf`. Plain blocking calls: run them off the event loop.

    Every method raises AdapterError: TRANSIENT with the system's error name (enospc, eio...) when the disk fails. `files` performs
    the file system calls.
    """

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._folder = folder
        self._files = files or Files()
        self._folder_is_safe = False  # its directory entry is synced and survives a power cut

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256 (hex). Content that is already stored and intact is not rewritten."""
        sha256 = hashlib.sha256(content).hexdigest()
        with _disk_errors("store"):
            self._make_folder()
            if not self._holds(sha256):
                self._write(self._path(sha256), content)
            self._files.sync_folder(self._folder)  # always: an earlier writer may have crashed before this
        return sha256

    def get(self, sha256: str) -> bytes:
        """Return the content stored under this SHA-256. Raises NOT_FOUND: artefact_missing or artefact_damaged."""
        path = self._path(sha256)
        content: bytes | None
        with _disk_errors("read"):
            try:
                content = self._files.read(path)
            except FileNotFoundError:
                content = None
        return verified(sha256, content)

    def names(self) -> frozenset[str]:
        """Return the SHA-256 of every file that is stored, by the file names alone; other files in the folder are ignored."""
        with _disk_errors("list"):
            found = [path.stem for path in self._files.find(self._folder, "*.pdf")]
        return frozenset(name for name in found if _SHA256.fullmatch(name))

    def remove(self, sha256: str) -> None:
        """Remove the file stored under this SHA-256, if it exists."""
        with _disk_errors("remove"):
            self._files.remove(self._path(sha256))

    def sweep(self) -> int:
        """Remove the partial files that a crash left behind; return how many. Call at start, before the first put."""
        removed = 0
        with _disk_errors("sweep"):
            for partial in self._files.find(self._folder, f".*{_PARTIAL}"):
                self._files.remove(partial)
                removed += 1
        return removed

    def _path(self, sha256: str) -> Path:
        require_name(sha256)
        return self._folder / f"{sha256}.pdf"

    def _holds(self, sha256: str) -> bool:
        try:
            return hashlib.sha256(self._files.read(self._path(sha256))).hexdigest() == sha256
        except (FileNotFoundError, IsADirectoryError):
            return False

    def _make_folder(self) -> None:
        missing = [folder for folder in (self._folder, *self._folder.parents) if not self._files.is_folder(folder)]
        for folder in reversed(missing):
            self._files.make_folder(folder)
            self._files.sync_folder(folder.parent)
        if not missing and not self._folder_is_safe:  # an earlier process may have crashed before this sync
            self._files.sync_folder(self._folder.parent)
        self._folder_is_safe = True
        self._files.close_to_others(self._folder)

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, partial = self._files.create(self._folder, _PARTIAL)
        try:
            try:
                self._files.write(descriptor, content)
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
            self._files.rename(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(partial)
            raise


def require_name(sha256: str) -> None:
    """Raise VALIDATION (invalid_sha256) for a name that no stored file has."""
    if not _SHA256.fullmatch(sha256):
        raise AdapterError(Failure.VALIDATION, "invalid_sha256", "A stored file is named by 64 lower-case hexadecimal digits.")


def verified(sha256: str, content: bytes | None) -> bytes:
    """Return what was read under this name. Raises NOT_FOUND: artefact_missing for None, artefact_damaged for other bytes."""
    if content is None:
        message = f"The stored file {sha256[:12]} is missing. Render the quote again."
        raise AdapterError(Failure.NOT_FOUND, "artefact_missing", message)
    if hashlib.sha256(content).hexdigest() != sha256:
        message = f"The stored file {sha256[:12]} is damaged: its content no longer has that checksum. Render the quote again."
        raise AdapterError(Failure.NOT_FOUND, "artefact_damaged", message)
    return content


@contextlib.contextmanager
def _disk_errors(verb: str) -> Iterator[None]:
    """Translate the errors of the disk."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        message = f"The disk refused to {verb} a rendered file ({name}). Nothing else changed; another try is safe."
        raise AdapterError(Failure.TRANSIENT, name.lower(), message) from error
