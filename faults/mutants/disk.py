"""Seeded bugs in durability: the disk is trusted too early."""

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
    """If COMMIT does not flush, its callers get their results before the flush, which comes right after."""

    def tell_at_once(self: Any, members: Any) -> None:
        for member in members:
            of(self, "_deliver")(member)
        of(self, "_loop").call_soon(of(self, "_runner").flush)

    put(Flushing, "tell", tell_at_once)


def failed_flush_taken_for_a_good_one() -> None:
    """A failed flush is reported as a success."""
    honest = of(BatchRunner, "flush")

    def flush(self: Any) -> None:
        honest(self)
        self.broken = None

    put(BatchRunner, "flush", flush)


def builds_upon_what_is_in_memory_alone() -> None:
    """A start uses the WAL as it reads it, though a flush may have failed to write it."""
    put(file, "_settle_wal", lambda _opening: None)


def commit_error_taken_for_success() -> None:
    """A failed COMMIT is reported as a success."""

    def failed(self: Any, _error: Any, _version: int, ran: Any, rest: Any) -> Ran:
        of(self, "_roll_back")()
        return Ran(ran, list(rest))

    put(BatchRunner, "_commit_failed", failed)


def commit_error_taken_for_nothing_recorded() -> None:
    """A COMMIT whose sync failed is reported as not recorded, though it may have been."""

    def failed(self: Any, error: Any, version: int, ran: Any, rest: Any) -> Ran:
        del version
        of(self, "_roll_back")()
        return Ran(tell(ran, NotRecorded, f"COMMIT failed ({error})."), list(rest))

    put(BatchRunner, "_commit_failed", failed)


def rolled_back_answered_success() -> None:
    """A write that was rolled back with its batch is reported as recorded."""

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
    """A rendered file is confirmed before its name is on the disk."""

    def stored(self: Any, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        of(self, "_make_folder")()
        if not of(self, "_holds")(sha256):
            of(self, "_write")(of(self, "_path")(sha256), content)
        return sha256

    put(Artefacts, "put", stored)


def artefact_left_half_written() -> None:
    """A file that a crash left half written is never removed."""
    put(Artefacts, "sweep", lambda _self: 0)
