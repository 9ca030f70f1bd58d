"""Opening of a SQLite file: checks that it is a ledger, that its schema fits this build, and that commits survive a power cut."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.database import DatabaseError
from ledger.operator import switch
from ledger.sqlite.batch import BUSY_MS, primary_code
from ledger.sqlite.connections import harden
from ledger.sqlite.disk import Disk
from ledger.sqlite.locks import instance_holder
from ledger.sqlite.migrations import migrate, pending, require_schema
from ledger.sqlite.wal import Wal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.clock import Clock
    from ledger.migrations import Migration
    from ledger.sqlite.ballast import Ballast
    from ledger.sqlite.locks import WriteGate

APPLICATION_ID: Final = 0x51424F54  # "QBOT": `file` shows it, and any other database is refused
CACHED_STATEMENTS: Final = 512  # more than there are named statements: none is compiled twice
# WAL size at which a commit also checkpoints, if the writer had no idle pause before: every writer waits for both.
WAL_PAGES: Final = 4000
WAL_PAGES_BESIDE: Final = 4 * WAL_PAGES  # the same in every other process: the bot has changed nothing for long, or is stopped
PRAGMAS: Final = {  # set, then read back
    "journal_mode": "wal",
    "synchronous": 2,  # FULL; NORMAL loses acknowledged commits in a power cut
    "foreign_keys": 1,
    "busy_timeout": BUSY_MS,
    "temp_store": 2,  # MEMORY
    "cache_size": -4000,  # KiB; the working set is small, a larger cache would let memory grow over a day
    "journal_size_limit": 67108864,
}
_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})  # a full disk at open
_NO_DATABASE: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


@dataclass(frozen=True, slots=True)
class Opening:
    """Parameters of opening a ledger (see SqliteDatabase.open)."""

    path: Path
    migrations: Sequence[Migration]
    clock: Clock
    checkpoints: bool
    may_migrate: bool
    before_migrating: Callable[[], None] | None = None

    @property
    def wal(self) -> Path:
        """The path of the write-ahead log beside the file."""
        return self.path.with_name(self.path.name + "-wal")

    def create_file(self) -> None:
        """Create folder and file for the owner alone, before SQLite opens them: the WAL inherits the mode."""
        switch.finish(self.path, Disk())
        if not self.may_migrate and not self.path.exists():
            raise self._too_old()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def check(self, connection: sqlite3.Connection) -> bool:
        """Check the file without changing it; true when it is new. Raises DatabaseError when this build cannot use it."""
        try:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            if primary_code(error) not in _NO_DATABASE:
                raise
            raise DatabaseError(f"This file cannot be read as a ledger ({error}); it is unchanged. Choose another path.") from error
        if application_id != APPLICATION_ID and (application_id or tables):
            raise DatabaseError("This SQLite file is not a Quotebot ledger; it is unchanged. Choose another path.")
        too_old = bool(pending(connection, self.migrations)) and not self.may_migrate
        require_schema(connection, self.migrations)
        if too_old:
            raise self._too_old()
        return bool(application_id != APPLICATION_ID)

    def _too_old(self) -> DatabaseError:
        holder = instance_holder(self.path)
        who = "a bot is running on it" if holder is None else f"a bot (pid {holder}) is running on it"
        return DatabaseError(
            f"The ledger's schema is older than this build, and {who}; it is unchanged. "
            "Restart the bot with this build, then try again."
        )


def cannot_be_opened(error: sqlite3.Error | OSError) -> DatabaseError:
    """Return the error for a disk that prevents opening."""
    return DatabaseError(
        f"The ledger cannot be opened ({error}). No command was touched. Look at the disk: is it full, read-only or failing? "
        "And do its files belong to the bot's user?"
    )


def prepare_writer(connection: sqlite3.Connection, opening: Opening, gate: WriteGate, ballast: Ballast) -> sqlite3.Connection:
    """Prepare the writer's connection and migrate the schema; return the witness, a second connection on the same thread.

    A disk too full to open on gets the space of the ballast, once.
    """
    try:
        with gate:
            if opening.may_migrate:  # no bot runs: the last one may have crashed after a failed flush
                _settle_wal(opening)
            _prepare(connection, opening)
            witness = _open_witness(opening)
    except OSError as error:
        raise cannot_be_opened(error) from error
    except sqlite3.Error as error:
        if primary_code(error) in _NO_ROOM and ballast.free(opening.clock.monotonic()):
            return prepare_writer(connection, opening, gate, ballast)
        raise cannot_be_opened(error) from error
    ballast.make(opening.clock.monotonic())
    return witness


def _settle_wal(opening: Opening) -> None:
    """Rewrite an existing WAL, so that the disk holds what the kernel's cache holds. Raises OSError."""
    if not opening.wal.exists():
        return
    wal = Wal(opening.wal)
    try:
        wal.write_again()
    finally:
        wal.close()


def open_wal(connection: sqlite3.Connection, opening: Opening) -> Wal:
    """Open the WAL for separate flushes, and disable the flush inside COMMIT. Raises DatabaseError."""
    try:
        wal = Wal(opening.wal)
    except OSError as error:
        raise cannot_be_opened(error) from error
    connection.execute("PRAGMA synchronous = NORMAL")
    return wal


def _open_witness(opening: Opening) -> sqlite3.Connection:
    """Open the witness connection.

    It does not read the schema: its queries need none, and reading it would take longer than the rest of the opening.
    """
    witness = sqlite3.connect(opening.path, isolation_level=None, check_same_thread=False)  # as the writer's connection: engine.py
    try:
        harden(witness)
        witness.execute("PRAGMA data_version").fetchall()  # an unreadable disk fails here
    except BaseException:
        witness.close()
        raise
    return witness


def _prepare(connection: sqlite3.Connection, opening: Opening) -> None:
    connection.row_factory = sqlite3.Row
    harden(connection)
    is_new = opening.check(connection)
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES if opening.checkpoints else WAL_PAGES_BESIDE:d}")
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    if found != PRAGMAS:
        wrong = ", ".join(f"{name}={found[name]} instead of {value}" for name, value in PRAGMAS.items() if found[name] != value)
        raise DatabaseError(
            f"The ledger's file system or SQLite build gives {wrong}: commits would not be safe. Put the ledger on a local disk."
        )
    if is_new:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
    if opening.before_migrating is not None and pending(connection, opening.migrations):
        # A ledger whose first start was interrupted holds nothing to back up.
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'epochs'").fetchone()
        if known is not None and connection.execute("SELECT 1 FROM epochs LIMIT 1").fetchone() is not None:
            opening.before_migrating()
    migrate(connection, opening.migrations, opening.clock.now_ms())


def prepare_reader(connection: sqlite3.Connection) -> None:
    """Prepare a connection that cannot write. Raises DatabaseError when the file is not in WAL mode.

    It reads the mode from the file: the writer's connection reports a wrong one after an error during the change.
    """
    connection.row_factory = sqlite3.Row
    harden(connection)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS:d}")
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != PRAGMAS["journal_mode"]:
        raise DatabaseError(
            f"The ledger's file is in journal mode {mode}: the disk failed while that was changed, and commits would not be safe. "
            "No command was touched. Start again."
        )
