"""Bugs in how the disk is trusted."""

from __future__ import annotations

import hashlib
from typing import Any

from adapters.artefacts import Artefacts
from faults.mutants.patching import of, put
from ledger.database import NotRecorded
from ledger.sqlite import file
from ledger.sqlite.batch import BatchRunner
from ledger.sqlite.flushing import Flushing
from ledger.sqlite.members import Ran, tell


def synchronous_normal() -> None:
    """A COMMIT returns before its bytes are on the disk."""
    honest = of(file, "_prepare")

    def prepare(connection: Any, opening: Any) -> None:
        honest(connection, opening)
        connection.execute("PRAGMA synchronous = 1")

    put(file, "_prepare", prepare)


def answered_before_the_flush() -> None:
    """Where COMMIT does not flush, its callers are told all the same; the flush comes right after."""

    def tell_at_once(self: Any, members: Any) -> None:
        for member in members:
            of(self, "_deliver")(member)
        of(self, "_loop").call_soon(of(self, "_runner").flush)

    put(Flushing, "tell", tell_at_once)


def failed_flush_taken_for_a_good_one() -> None:
    """A flush that failed is told as one that did not."""
    honest = of(BatchRunner, "flush")

    def flush(self: Any) -> None:
        honest(self)
        self.broken = None

    put(BatchRunner, "flush", flush)


def builds_upon_what_is_in_memory_alone() -> None:
    """A start takes the WAL as it is read, though a flush may have failed to write it."""
    put(file, "_settle_wal", lambda _opening: None)


def commit_error_taken_for_success() -> None:
    """A COMMIT that failed is told as one that did not."""

    def failed(self: Any, _error: Any, _version: int, ran: Any, rest: Any) -> Ran:
        of(self, "_roll_back")()
        return Ran(ran, list(rest))

    put(BatchRunner, "_commit_failed", failed)


def commit_error_taken_for_nothing_recorded() -> None:
    """A COMMIT whose sync failed is told as one that recorded nothing, though it may have."""

    def failed(self: Any, error: Any, version: int, ran: Any, rest: Any) -> Ran:
        del version
        of(self, "_roll_back")()
        return Ran(tell(ran, NotRecorded, f"COMMIT failed ({error})."), list(rest))

    put(BatchRunner, "_commit_failed", failed)


def rolled_back_answered_success() -> None:
    """Who was rolled back with a batch is told that it stands."""

    def fatal(self: Any, ran: Any, rest: Any, _whose: str, trouble: Any) -> Ran:
        of(self, "_roll_back")()
        self.broken = f"the disk failed ({trouble})."
        for member in ran:
            member.error = None
        return Ran(list(ran), list(rest))

    put(BatchRunner, "_fatal", fatal)


def artefact_not_synced() -> None:
    """A rendered file gets its name before its content is on the disk."""

    def write(self: Any, path: Any, content: bytes) -> None:
        files = of(self, "_files")
        descriptor, partial = files.create(of(self, "_folder"), ".tmp")
        files.write(descriptor, content)
        files.close(descriptor)
        files.rename(partial, path)

    put(Artefacts, "_write", write)


def artefact_folder_not_synced() -> None:
    """A rendered file's name is not on the disk when it is answered."""

    def stored(self: Any, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        of(self, "_make_folder")()
        if not of(self, "_holds")(sha256):
            of(self, "_write")(of(self, "_path")(sha256), content)
        return sha256

    put(Artefacts, "put", stored)


def artefact_left_half_written() -> None:
    """What a crash left half written is never swept away."""
    put(Artefacts, "sweep", lambda _self: 0)
