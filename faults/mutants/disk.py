"""Seeded bugs in durability: the disk is trusted too early."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from adapters.artefacts import Artefacts
from faults.mutants.patching import of, patch, put
from ledger.database import NotRecorded
from ledger.sqlite import file
from ledger.sqlite.batch import BatchRunner
from ledger.sqlite.flushing import Flushing
from ledger.writes import Ran, tell


@patch(file, "_prepare")
def synchronous_normal(honest: Any, connection: Any, opening: Any) -> None:
    """A COMMIT returns before its bytes are on the disk."""
    honest(connection, opening)
    connection.execute("PRAGMA synchronous = 1")


@patch(Flushing, "tell")
def answered_before_the_flush(_honest: Any, self: Any, members: Any) -> None:
    """If COMMIT does not flush, its callers get their results before the flush, which comes right after."""
    for member in members:
        of(self, "_deliver")(member)
    of(self, "_loop").call_soon(of(self, "_runner").flush)


@patch(BatchRunner, "flush")
def failed_flush_taken_for_a_good_one(honest: Any, self: Any) -> None:
    """A failed flush is reported as a success."""
    honest(self)
    self.broken = None


# A start uses the WAL as it reads it, though a flush may have failed to write it.
builds_upon_what_is_in_memory_alone = partial(put, file, "_settle_wal", lambda _opening: None)


@patch(BatchRunner, "_commit_failed")
def commit_error_taken_for_success(_honest: Any, self: Any, _error: Any, _version: int, ran: Any, rest: Any) -> Ran:
    """A failed COMMIT is reported as a success."""
    of(self, "_roll_back")()
    return Ran(ran, list(rest))


@patch(BatchRunner, "_commit_failed")
def commit_error_taken_for_nothing_recorded(_honest: Any, self: Any, error: Any, _version: int, ran: Any, rest: Any) -> Ran:
    """A COMMIT whose sync failed is reported as not recorded, though it may have been."""
    of(self, "_roll_back")()
    return Ran(tell(ran, NotRecorded, f"COMMIT failed ({error})."), list(rest))


@patch(BatchRunner, "_fatal")
def rolled_back_answered_success(_honest: Any, self: Any, ran: Any, rest: Any, _whose: str, trouble: Any) -> Ran:
    """A write that was rolled back with its batch is reported as recorded."""
    of(self, "_roll_back")()
    self.broken = f"the disk failed ({trouble})."
    for member in ran:
        member.error = None
    return Ran(list(ran), list(rest))


@patch(Artefacts, "_write")
def artefact_not_synced(_honest: Any, self: Any, path: Any, content: bytes) -> None:
    """A rendered file gets its name before its content is on the disk."""
    files = of(self, "_files")
    descriptor, partial = files.create(of(self, "_folder"), ".tmp")
    files.write(descriptor, content)
    files.close(descriptor)
    files.rename(partial, path)


@patch(Artefacts, "put")
def artefact_folder_not_synced(_honest: Any, self: Any, content: bytes) -> str:
    """A rendered file is confirmed before its name is on the disk."""
    sha256 = hashlib.sha256(content).hexdigest()
    of(self, "_make_folder")()
    if not of(self, "_holds")(sha256):
        of(self, "_write")(of(self, "_path")(sha256), content)
    return sha256


# A file that a crash left half written is never removed.
artefact_left_half_written = partial(put, Artefacts, "sweep", lambda _self: 0)
