"""Rendered files, stored under the SHA-256 of their content: written whole or not at all, verified whenever they are read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path

from adapters.failures import AdapterError, Failure

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".tmp"


class Artefacts:
    """One folder (0700) of PDF files (0600), `<sha256>.pdf`. Plain blocking calls: run them off the event loop.

    Every method raises AdapterError: TRANSIENT with the system's error name (enospc, eio...) when the disk refuses.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256 (hex). Content already stored and intact is left alone."""
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            self._make_folder()
            if not self._holds(sha256):
                self._write(self._path(sha256), content)
        except OSError as error:
            raise _refused("store", error) from error
        return sha256

    def get(self, sha256: str) -> bytes:
        """Return the content stored under this SHA-256. Raises NOT_FOUND: artefact_missing or artefact_damaged."""
        path = self._path(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            message = f"The stored file {sha256[:12]} is missing. Render the quote again."
            raise AdapterError(Failure.NOT_FOUND, "artefact_missing", message) from error
        except OSError as error:
            raise _refused("read", error) from error
        if hashlib.sha256(content).hexdigest() != sha256:
            message = f"The stored file {sha256[:12]} is damaged: its content no longer has that checksum. Render the quote again."
            raise AdapterError(Failure.NOT_FOUND, "artefact_damaged", message)
        return content

    def sweep(self) -> int:
        """Remove what a crash left half written; return how many. Call at start, before the first put."""
        removed = 0
        try:
            for partial in self._folder.glob(f".*{_PARTIAL}"):
                partial.unlink(missing_ok=True)
                removed += 1
        except OSError as error:
            raise _refused("sweep", error) from error
        return removed

    def _path(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise AdapterError(Failure.VALIDATION, "invalid_sha256", "A stored file is named by 64 lower-case hexadecimal digits.")
        return self._folder / f"{sha256}.pdf"

    def _holds(self, sha256: str) -> bool:
        path = self._path(sha256)
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256

    def _make_folder(self) -> None:
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _fsync_folder(self._folder.parent)
        if self._folder.stat().st_mode & 0o777 != 0o700:  # noqa: PLR2004 -- as in the class's first line
            self._folder.chmod(0o700)

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=_PARTIAL, dir=self._folder)  # 0600 from the first byte
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink(missing_ok=True)
            raise
        _fsync_folder(self._folder)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(verb: str, error: OSError) -> AdapterError:
    name = errno.errorcode.get(error.errno or 0, "EIO")
    message = f"The disk refused to {verb} a rendered file ({name}). Nothing else changed; another try is safe."
    return AdapterError(Failure.TRANSIENT, name.lower(), message)
