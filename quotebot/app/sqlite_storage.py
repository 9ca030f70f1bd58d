"""The SQLite file that holds the ledger of an installation: how it is opened, locked, read and checked.

With the backups (backups.py) this is all that the bot and the command line know of the engine; `storage_of` in installation.py
chooses it, or the same methods of postgres_storage.py. Everything else works on an open `Database`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from adapters.artefacts import Artefacts
from ledger.audit.events import finish_with
from ledger.clock import SystemClock
from ledger.database import DatabaseError, Holder
from ledger.migrations import OlderBuildError, SchemaChangedError
from ledger.operator import switch
from ledger.operator.backup import FOLDER, BackupError, Progress, Proof, Source, back_up, ledger_id_of, prove, quiet
from ledger.ownership import MAIN, LockHolder
from ledger.sqlite.ballast import BALLAST_BYTES
from ledger.sqlite.batch import COPY_AFTER, SqliteTx
from ledger.sqlite.connections import ReadOnlyFile, check_integrity, damage, open_read_only
from ledger.sqlite.disk import Disk
from ledger.sqlite.engine import SqliteDatabase
from ledger.sqlite.file import APPLICATION_ID, PRAGMAS, cannot_be_opened
from ledger.sqlite.locks import InstanceLock, has_instance_lock_open, hold_instance_lock, instance_holder
from ledger.sqlite.migrations import pending, require_schema, schema_differences
from ledger.sqlite.moving import MovableFile
from quotebot import __version__
from quotebot.store import history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ledger.audit.events import Audit, Keyring
    from ledger.clock import Clock
    from ledger.database import Database, ReadAccess, Tx
    from ledger.ledger import Ledger
    from ledger.migrations import Migration

T = TypeVar("T")
DOCUMENTS: Final = "artefacts"  # folder beside the ledger
MARKER: Final = "ledger.beginning"  # beside the ledger, from the first start until the ledger exists
SQLITE_MIN: Final = (3, 37, 0)  # STRICT tables
SQLITE_SOUND: Final = (3, 51, 3)  # in older versions, two connections can corrupt the write-ahead log if they reset it at once
log = structlog.get_logger(__name__)


class SqliteStorage:
    """The ledger of an installation in the file at `path`, with the schema and the statements of this build."""

    room_bytes: Final = 4 * BALLAST_BYTES  # free disk space that a bot needs
    is_uncertain: Final = False  # the kernel releases the lock of an ended bot, and no other

    def __init__(self, path: Path, migrations: Sequence[Migration], statements: Mapping[str, str]) -> None:
        self.path = path
        self._migrations = migrations
        self._statements = statements

    @property
    def place(self) -> str:
        """The place of the ledger, for people."""
        return str(self.path.absolute())

    def exists(self) -> bool:
        """Return true if there is a file, even an empty one."""
        return self.path.exists()

    def is_missing(self) -> bool:
        """Return true if the file is missing or empty: opening it would begin a ledger."""
        if switch.ready(self.path).exists():  # an interrupted restore: the next open finishes it
            return False
        wal = self.path.with_name(f"{self.path.name}-wal")
        return not any(each.exists() and each.stat().st_size for each in (self.path, wal))

    def hold(self, *, bot: bool = False) -> InstanceLock | None:
        """Take the lock of the one active bot, or return None. Raises DatabaseError if the folder cannot be written."""
        del bot  # the lock excludes every other process that executes
        try:
            return hold_instance_lock(self.path)
        except OSError as error:
            raise cannot_be_opened(error) from error

    def holder(self) -> Holder | None:
        """Return the process that last took the bot's lock. It never tries the lock: that could stop a starting bot."""
        pid = instance_holder(self.path)
        if pid is None:
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return Holder(pid, alive=False)
        except PermissionError:  # it is alive and belongs to another user
            return Holder(pid, alive=True)
        return Holder(pid, alive=has_instance_lock_open(self.path, pid))

    def lock_holders(self) -> dict[str, LockHolder]:
        """Return the process that holds the bot's lock, by the name of the only replica."""
        holder = self.holder()
        return {MAIN: LockHolder(holder.pid, leads=True)} if holder is not None and holder.alive else {}

    def connection_shortage(self, replica_count: int) -> str | None:
        """Return None: a file has no connections."""
        del replica_count
        return None

    async def open(
        self,
        audit: Audit,
        clock: Clock,
        *,
        bot: bool,
        may_migrate: bool = True,
        keeps_room: bool | None = None,
        at_once: bool = False,
        copy_after: int = COPY_AFTER,
        on_migrating: Callable[[], object] = lambda: None,
        engine: type[SqliteDatabase] = SqliteDatabase,
    ) -> Database:
        """Open the file with the ledger's and the domain's schema and statements; only the bot checkpoints the WAL.

        `keeps_room`: this process frees the disk space reserved for a full disk when it needs it; None: only a bot does.
        `at_once`: the loop's own thread writes whatever need not wait. `copy_after`: number of changed rows after which a
        checkpoint pays. `on_migrating` is called before the schema of a used ledger is changed. `engine` is that of fault tests.
        """

        def before_migrating() -> None:
            """Back up the ledger of the older build, because its migration cannot be undone. Its audit may be in any state."""
            try:
                source = Source(self.path, self.proof(None), audit.keyring, __version__)
                made = back_up(source, self.path.parent / FOLDER, clock.now_ms())
            except BackupError as error:
                raise BackupError(
                    "The ledger is of an older build. It was not brought up to date, because the backup that comes first failed: "
                    f"{error}"
                ) from error
            log.info("ledger.backed_up_before_migrating", file=made.path.name)
            on_migrating()

        bound = history.binding()
        database = await engine.open(
            self.path,
            statements=self._statements,
            migrations=self._migrations,
            clock=clock,
            checkpoints=bot,
            may_migrate=may_migrate,
            ballast_bytes=BALLAST_BYTES if (bot if keeps_room is None else keeps_room) else 0,
            finish=finish_with(audit, bound, clock),
            binding=bound,
            before_migrating=before_migrating,
            at_once=at_once,
            copy_after=copy_after,
        )
        marker = self.path.with_name(MARKER)
        if marker.exists():  # of a first start, which is complete now
            with contextlib.suppress(OSError):  # the folder may have become read-only
                marker.unlink()
        if may_migrate:
            try:
                await history.bind_as_found(database, audit, bound, clock)
            except (Exception, asyncio.CancelledError) as error:
                await database.close()
                if isinstance(error, sqlite3.Error):
                    raise cannot_be_opened(error) from error
                raise
        return database

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one snapshot, beside a running bot; blocks. Raises OlderBuildError."""
        with contextlib.closing(open_read_only(self.path)) as connection:
            if pending(connection, self._migrations):
                raise OlderBuildError("the ledger is of an older build")
            connection.execute("BEGIN")
            return work(SqliteTx(connection, self._statements, None))

    @staticmethod
    def paces(_ledger: Ledger) -> None:
        """Return None: the one bot counts its calls in memory."""

    def where_keys_are(self) -> str:
        """Return an empty sentence: the keys of a file's ledger are beside it alone."""
        return ""

    def read_only(self) -> ReadAccess | None:
        """Return read-only access if the folder cannot be written, which even a reader needs in WAL mode; None if it can.

        Raises DatabaseError for another schema.
        """
        if os.access(self.path.parent, os.W_OK):
            return None
        with contextlib.closing(open_read_only(self.path)) as connection:
            require_schema(connection, self._migrations)
            if pending(connection, self._migrations):
                raise OlderBuildError(
                    f"The ledger is of an older build, and {self.path.parent} cannot be written. Nothing was verified. Copy the "
                    "folder to where it can be written, then verify the copy."
                )
        return ReadOnlyFile(self.path, self._statements)

    def check_schema(self) -> str:
        """Return a description of the schema. Raises DatabaseError with the defect unless it is that of this build."""
        try:
            with contextlib.closing(open_read_only(self.path)) as connection:
                (application_id,) = connection.execute("PRAGMA application_id").fetchone()
                (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
                if application_id != APPLICATION_ID:
                    raise DatabaseError("the file is not a Quotebot ledger")
                missing = pending(connection, self._migrations)
                changed = schema_differences(connection, self._migrations)
        except sqlite3.DatabaseError as error:
            raise DatabaseError(str(error)) from error
        writable = os.access(self.path.parent, os.W_OK)  # elsewhere SQLite does not report the file's mode
        if writable and mode != PRAGMAS["journal_mode"]:
            raise DatabaseError(f"its journal mode is {mode} instead of {PRAGMAS['journal_mode']}: commits would not be safe")
        if changed:
            raise DatabaseError(SchemaChangedError(changed).named)
        if missing:
            raise OlderBuildError(f"{len(missing)} changes of this build are not in it yet; the next start of the bot makes them")
        how = f"in journal mode {mode}" if writable else "in a folder that this user cannot write"
        return f"it is of this build, its schema is unchanged, {how}"

    def clock(self, *, bot: bool = False) -> Clock:
        """Return a clock for a process that opens the ledger."""
        del bot
        return SystemClock()

    def clock_skew_ms(self, now_ms: Callable[[], int]) -> None:
        """Return None: there is one clock."""
        del now_ms

    def check_version(self, version: tuple[int, ...] | None = None) -> str:
        """Return a description of the SQLite library, or of that version of it. Raises DatabaseError if it is too old."""
        version = version or sqlite3.sqlite_version_info
        name = f"SQLite {'.'.join(map(str, version))}"
        if version < SQLITE_MIN:
            raise DatabaseError(f"{name} is older than {'.'.join(map(str, SQLITE_MIN))}")
        if version < SQLITE_SOUND:
            return f"{name} (known WAL bug, guarded by a lock). Let no other program write to the ledger"
        return name

    def require_durability(self) -> None:
        """Do nothing: opening the file requires it."""

    def check_durability(self) -> str:
        """Return how durable an acknowledged command is."""
        return "a commit returns once the disk of this machine has it"

    def needless_rights(self) -> None:
        """Return None: a file has an owner, and no roles."""

    def documents(self) -> Artefacts:
        """Return the store of the rendered documents."""
        return Artefacts(self.path.with_name(DOCUMENTS))

    def damaged_document(self) -> None:
        """Return None: a document is a file, and is verified when it is read."""

    def damage(self) -> list[str] | None:
        """Return the problems that SQLite finds in the file, at most ten; takes seconds for a million rows."""
        return damage(self.path)

    async def check_integrity(self) -> None:
        """Check the file in a thread. Raises DamagedError."""
        await check_integrity(self.path)

    def wal_bytes(self) -> int | None:
        """Return the size of the write-ahead log."""
        wal = self.path.with_name(f"{self.path.name}-wal")
        return wal.stat().st_size if wal.exists() else 0

    def begun_at_ms(self) -> int:
        """Return the time of the ledger's first migration."""
        with contextlib.closing(open_read_only(self.path)) as connection:
            (first,) = connection.execute("SELECT min(applied_at) FROM schema_migrations").fetchone()
        return int(first or 0)

    def ledger_id(self) -> str:
        """Return the id of the ledger. Raises BackupError when it cannot be read."""
        return ledger_id_of(self.path)

    def proof(self, keyring: Keyring | None) -> Proof:
        """Return the inputs of this build's proof of a ledger: these audit keys, its statements, its schema and its replay."""
        return Proof(keyring, self._statements, self._migrations, history.replay)

    def prove(self, keyring: Keyring, progress: Progress = quiet) -> dict[str, int]:
        """Verify pages, schema, audit and references; return the row counts by table. Raises NotWholeError."""
        return prove(self.path, self.proof(keyring), progress)

    def known_generation(self) -> int:
        """Return 1: of generations that the ledger has lost nothing is kept."""
        return 1

    def movable(self) -> MovableFile:
        """Return the file as an end of a move."""
        return MovableFile(self.path, self._migrations, self._statements, Disk())

    @property
    def setting(self) -> str:
        """The change of the settings for a ledger here, as an imperative."""
        return "remove QUOTEBOT_LEDGER_URL (ledger_url) from the settings"
