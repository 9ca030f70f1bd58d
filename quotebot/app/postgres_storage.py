"""The PostgreSQL database that holds the ledger and the documents of an installation: how it is opened, locked, read and checked.

Keys and the log of anchors stay in the data folder. Backups are the business of the database's own tools.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from adapters.artefacts import require_name, verified
from adapters.failures import AdapterError, Failure
from ledger.audit.columns import statements as bound_statements
from ledger.audit.events import SYSTEM_CHAIN, finish_with
from ledger.audit.keyring import begin_with_keys, where_keys_are
from ledger.audit.verification import AUDIT_TABLES, verify_within
from ledger.database import DatabaseError, load_statements, replace_statements
from ledger.migrations import Migration, OlderBuildError
from ledger.operator.backup import NotWholeError, Progress, quiet
from ledger.ownership import MAIN, LockHolder
from ledger.postgres import connections, inspection, paces, replicas
from ledger.postgres.clock import SKEW_MS_MAX, DatabaseClock
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.marks import NOTES, MarkNote, note_name
from ledger.postgres.migrations import build_number
from ledger.postgres.moving import MovableDatabase
from ledger.postgres.sessions import FRONT, WRITER
from quotebot.settings import ConfigurationError
from quotebot.store import history
from quotebot.store.columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.audit.events import Audit, Keyring
    from ledger.clock import Clock
    from ledger.database import Database, Holder, ReadAccess, Row, Tx
    from ledger.ledger import Ledger
    from ledger.postgres.replicas import ReplicaLock

T = TypeVar("T")
PACKAGES: Final = ("ledger", "quotebot.store")
# A replica keeps five connections (a writer and a reader of each of its two processes, and its lock), and opens others for moments.
SESSIONS_OF_REPLICA: Final = 8
OTHER_SESSIONS: Final = 6  # two commands of a terminal, and a migration
EVENTS_MAX: Final = 1 << 62
TIMELINES: Final = "postgres-timelines.log"
DOCUMENT_BYTES_MAX: Final = 16 << 20
GRACE_MS: Final = 3_600_000  # age at which a document without a row of the ledger may be removed
VERIFIED_AT_ONCE: Final = 100  # documents


class DocumentRows:
    """Rendered documents in the database at `url` (ArtefactStore). Each call opens a session of its own and blocks.

    Raises NotRecorded without a server. Every process of the ledger has the same documents.
    """

    def __init__(self, url: str, timelines: Path | None = None) -> None:
        self._url = url
        self._timelines = timelines

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256 (hex). Raises RENDER for a document that is too large."""
        if len(content) > DOCUMENT_BYTES_MAX:
            message = f"The document has {len(content) >> 20} MiB; the database takes {DOCUMENT_BYTES_MAX >> 20}. Shorten it."
            raise AdapterError(Failure.RENDER, "document_too_large", message)
        sha256 = hashlib.sha256(content).hexdigest()
        self._run("put_document", writes=True, sha256=sha256, bytes=content)
        return sha256

    def get(self, sha256: str) -> bytes:
        """Return the content stored under this SHA-256. Raises NOT_FOUND: artefact_missing or artefact_damaged."""
        require_name(sha256)
        row = next(iter(self._run("document", sha256=sha256)), None)
        return verified(sha256, None if row is None else row["bytes"])

    def names(self) -> frozenset[str]:
        """Return the SHA-256 of every document that is stored."""
        return frozenset(row["sha256"] for row in self._run("documents_there"))

    def remove(self, sha256: str) -> None:
        """Remove the document stored under this SHA-256, unless it was stored within `GRACE_MS`, by whichever process."""
        require_name(sha256)
        self._run("remove_document", writes=True, sha256=sha256, grace=GRACE_MS)

    def sweep(self) -> int:
        """Do nothing: a transaction leaves no partial document behind."""
        return 0

    def damaged(self) -> str | None:
        """Return the SHA-256 of the first document whose content no longer has that checksum, or None."""
        after = ""
        while (row := self._run("documents_verified", after=after, limit=VERIFIED_AT_ONCE)[0])["last"] is not None:
            if row["damaged"] is not None:
                return str(row["damaged"])
            after = row["last"]
        return None

    def _run(self, name: str, *, writes: bool = False, **parameters: object) -> list[Row]:
        with connections.brief_transaction(self._url, document_statements(), writes=writes, timelines=self._timelines) as tx:
            return tx.all(name, **parameters)


class PostgresStorage:
    """The ledger of an installation in the database at `address`, which holds no password.

    `needs_standby`: acknowledged commands must survive the loss of the server.
    """

    path: Final = None  # there is no file
    room_bytes: Final = 64 << 20  # free disk space for logs

    def __init__(
        self,
        address: str,
        password: str | None,
        marker: Path,
        *,
        needs_standby: bool = True,
        lease_seconds: float = 120,
        clock: Clock | None = None,
        replica: str = MAIN,
    ) -> None:
        self.place = address
        self._needs_standby = needs_standby
        self._url = connections.with_password(address, password)
        self._marker = marker
        self.is_uncertain = False  # the last `hold` found the lock free, and a bot may be alive that has lost it
        self._timelines = marker.with_name(TIMELINES)
        self._lease_ms = int(lease_seconds * 1000)
        self._clock = clock or DatabaseClock()
        self._replica = replica
        self._searches: dict[bool, replicas.LockSearch] = {}

    def exists(self) -> bool:
        """Return true if the database holds a ledger."""
        return connections.is_there(self._url)

    def is_missing(self) -> bool:
        """Return true if the database holds no ledger: opening it would begin one."""
        return not self.exists()

    def hold(self, *, bot: bool = False) -> ReplicaLock | None:
        """Take the lock of this installation's replica, or without `bot` the one that excludes every bot; or return None.

        Raises DatabaseError without a server.
        """
        search = self._searches.get(bot)
        if search is None:
            name = self._replica if bot else None
            build = build_number(migrations())
            search = replicas.LockSearch(self._url, name, self._lease_ms, self._clock, self._timelines, build=build)
            self._searches[bot] = search
        lock = search.hold()
        self.is_uncertain = search.is_uncertain
        return lock

    def holder(self) -> Holder | None:
        """Return a process that holds the bots' lock, this replica's before others, or else the last that did."""
        return replicas.lock_holder(self._url, self._replica)

    def lock_holders(self) -> dict[str, LockHolder]:
        """Return the processes that hold the locks of replicas, by the names of these."""
        return replicas.lock_holders(self._url)

    def connection_shortage(self, replica_count: int) -> str | None:
        """Return why so many replicas, a restart, the command line and a migration could lack connections, or None."""
        needed, free = (replica_count + 1) * SESSIONS_OF_REPLICA + OTHER_SESSIONS, inspection.connections_left(self._url)
        if needed <= free:
            return None
        return (
            f"{replica_count} replicas need up to {needed} connections, with one more during a restart, the command line and a "
            f"migration ({SESSIONS_OF_REPLICA} each and {OTHER_SESSIONS}); the server leaves {free} beside those of other programs"
        )

    async def open(
        self,
        audit: Audit,
        clock: Clock,
        *,
        bot: bool,
        may_migrate: bool = True,
        at_once: bool = False,
        on_migrating: Callable[[], object] = lambda: None,
        engine: type[PostgresDatabase] = PostgresDatabase,
        **_: Any,
    ) -> Database:
        """Open the database with the ledger's and the domain's schema and statements.

        `at_once` is set by the process that acknowledges, `engine` by fault tests. The other options of a file mean nothing here.
        """
        # A writer's name is its own: a later process of that name ends the writes of an earlier one.
        name = f"{'bot' if bot else 'front'}/{self._replica}"
        if not bot and not at_once:
            name = f"cli/{socket.gethostname()}/{os.getpid()}"
        audit.system_chain = f"{SYSTEM_CHAIN}/{name if bot or at_once else 'cli'}"
        connections.prepare(
            self._url,
            migrations(),
            clock.now_ms(),
            on_migrating,
            lambda connection: may_migrate and (not bot or replicas.is_one_build(connection, build_number(migrations()))),
        )
        bound = history.binding()
        database = await engine.open(
            self._url,
            statements=statements(),
            clock=clock,
            writer=name,
            limits=FRONT if at_once else WRITER,
            finish=finish_with(audit, bound, clock),
            binding=bound,
            timelines=self._timelines,
            mark_file=self._timelines.with_name(note_name(name)) if bot or at_once else None,
        )
        try:
            await begin_with_keys(database, audit.keyring)
        except DatabaseError:
            await database.close()
            raise
        self._marker.unlink(missing_ok=True)  # of a first start, which is complete now
        return database

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one snapshot, beside a running bot; blocks. Raises OlderBuildError."""
        connections.require_current(self._url, migrations())
        return connections.read_snapshot(self._url, statements(), work)

    def where_keys_are(self) -> str:
        """Return a sentence that says where a data folder without the audit's keys gets them."""
        try:
            return self.read(where_keys_are)
        except OlderBuildError:
            return ""

    @staticmethod
    def paces(ledger: Ledger) -> paces.DatabasePaces:
        """Return the paces that every bot on this database shares."""
        return paces.DatabasePaces(ledger.database, ledger.clock)

    def read_only(self) -> ReadAccess | None:
        """Return None: a database is opened as any other."""
        return None

    def check_schema(self) -> str:
        """Return a description of the schema. Raises DatabaseError with the defect unless it is that of this build."""
        added = connections.check_schema(self._url, migrations())
        if added:
            return f"it is of this build, with what a newer one has added: {', '.join(added)}"
        return "it is of this build, its schema is unchanged"

    def clock(self, *, bot: bool = False) -> Clock:
        """Return a clock for a process that opens the ledger: the server's, which every such process shares.

        That of a bot reports a machine whose own clock differs.
        """
        return DatabaseClock(reports=bot)

    def clock_skew_ms(self, now_ms: Callable[[], int]) -> int | None:
        """Return how far at least this machine's clock `now_ms` is ahead of the server's (negative: behind), if that is too far."""
        found = inspection.clock_skew_ms(self._url, now_ms)
        return found if abs(found) > SKEW_MS_MAX else 0

    def check_version(self, version: tuple[int, ...] | None = None) -> str:
        """Return a description of the server. Raises DatabaseError if it cannot be used."""
        del version
        return f"PostgreSQL {connections.server_version(self._url)}"

    def check_durability(self) -> str:
        """Return how durable an acknowledged command is. Raises DatabaseError with what endangers it, and the audit."""
        found = inspection.risks(self._url, needs_standby=self._needs_standby, timelines=self._timelines)
        if found:
            raise DatabaseError("; ".join(found))
        if self._needs_standby:
            return "a commit returns once a synchronous standby has it"
        return "ledger_durability is local: what is acknowledged is lost with the server's disk"

    def needless_rights(self) -> str | None:
        """Return which rights the bot's role has beyond those it needs, or None."""
        return inspection.needless_rights(self._url)

    def require_durability(self) -> None:
        """Raise ConfigurationError if the server could lose what the bot acknowledges, which `local` accepts."""
        found = inspection.losses(self._url) if self._needs_standby else []
        if found:
            raise ConfigurationError(
                f"The database {self.place} could lose what the bot acknowledges: {'; '.join(found)}. Nothing was done. Change the "
                'server\'s settings, or accept it for development with ledger_durability = "local": docs/postgresql.md.'
            )

    def documents(self) -> DocumentRows:
        """Return the store of the rendered documents."""
        return DocumentRows(self._url, self._timelines)

    def damaged_document(self) -> str | None:
        """Return the SHA-256 of the first document whose content no longer has that checksum, or None."""
        return self.documents().damaged()

    def damage(self) -> list[str] | None:
        """Return None: the database's operator checks its pages (pg_amcheck)."""
        return None

    async def check_integrity(self) -> None:
        """Do nothing, as above."""

    def wal_bytes(self) -> int | None:
        """Return None: the server keeps its log."""
        return None

    def begun_at_ms(self) -> int:
        """Return the time of the ledger's first migration."""
        return connections.begun_at_ms(self._url)

    def prove(self, keyring: Keyring, progress: Progress = quiet) -> dict[str, int]:
        """Verify schema and audit; return the row counts by table. Raises NotWholeError."""
        progress("Checking the schema", 0, 0)
        try:
            self.check_schema()
        except DatabaseError as error:
            raise NotWholeError(Path(self.place), str(error)) from error
        progress("Checking the audit", 0, 0)
        report = self.read(lambda tx: verify_within(tx, keyring, events_max=EVENTS_MAX, replay=history.replay))
        if report is not None and report.finding is not None:
            finding = report.finding
            whose = "audit" if finding.table in AUDIT_TABLES else "history"
            raise NotWholeError(Path(self.place), f"its {whose} is not whole: {finding.table} {finding.row}: {finding.meaning}")
        progress("Checking the documents", 0, 0)
        damaged = self.damaged_document()
        if damaged is not None:
            raise NotWholeError(Path(self.place), f"its documents are not whole: artefact_blobs {damaged}: its content was changed")
        return connections.count_rows(self._url)

    def known_generation(self) -> int:
        """Return the highest generation that a bot of this data folder has seen, which the ledger may have lost."""
        notes = map(MarkNote.read, self._timelines.parent.glob(f"{NOTES}*"))
        return max((note.generation for note in notes if note is not None), default=1)

    def movable(self) -> MovableDatabase:
        """Return the database as an end of a move."""
        return MovableDatabase(self._url, self.place, migrations(), statements(), self._timelines)

    @property
    def setting(self) -> str:
        """The change of the settings for a ledger here, as an imperative."""
        return f"set QUOTEBOT_LEDGER_URL (ledger_url) to {self.place}"


@functools.cache
def migrations() -> Sequence[Migration]:
    """Return this build's migrations for PostgreSQL."""
    found = []
    for package in PACKAGES:
        folder = files(package).joinpath("postgres", "schema")
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
        found += [Migration(package, name, folder.joinpath(name).read_text("utf-8")) for name in names]
    return found


@functools.cache
def statements() -> Mapping[str, str]:
    """Return this build's statements, with the texts that PostgreSQL needs in place of others."""
    base, own = (
        load_statements(files(package).joinpath(folder, "queries.sql").read_text("utf-8") for package in PACKAGES)
        for folder in ("", "postgres")
    )
    return {**replace_statements(base, own), **paces.STATEMENTS, **bound_statements(TABLES)}


@functools.cache
def document_statements() -> Mapping[str, str]:
    """Return the statements of the rows that hold documents."""
    return load_statements([files("quotebot.store").joinpath("postgres", "documents.sql").read_text("utf-8")])
