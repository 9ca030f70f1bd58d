"""Backups: a copy of the ledger taken while the bot works, proven whole before it gets its name, with a manifest beside it.

SQLite's own backup copies the pages in small steps, all inside one read transaction: every page is of the same moment, whatever is
committed meanwhile, and no writer waits. (Without that transaction each commit of the bot would make it begin again; VACUUM INTO
would also read one moment, but it can neither pause nor say how far it is.) The WAL grows by what is written meanwhile.

    ledger-20261121T215000Z.db      the copy: one file, no WAL
    ledger-20261121T215000Z.json    the manifest (manifests.py), written last: what has none is no backup

The audit's keys are not in it: who holds both can write a ledger anew. Nor are the PDFs: a lost one is rendered again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ledger.audit.verification import AUDIT_TABLES, verify_within
from ledger.operator.manifests import SCHEMA, UNAUTHENTICATED, BackupError, Manifest, read_manifest, require_authentic, text_of
from ledger.sqlite.connections import harden, open_read_only
from ledger.sqlite.disk import Disk
from ledger.sqlite.file import APPLICATION_ID
from ledger.sqlite.schema_comparison import SchemaChangedError, require_schema
from ledger.sqlite.transaction import SqliteTx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.audit.chain import Keyring
    from ledger.audit.history import Replay
    from ledger.database import Row
    from ledger.sqlite.migrations import Migration

FOLDER: Final = "backups"  # beside the ledger, where no other is named
PAGES_PER_STEP: Final = 256  # 1 MiB
PAUSE_SECONDS: Final = 0.002  # between two steps, and between two pages of the audit: the bot's commits go first
ROOM_BYTES: Final = 64 << 20  # left over for the bot, which may share the disk
PARTIAL: Final = ".partial"
_LOCK: Final = ".backup.lock"
_READ_BYTES: Final = 1 << 20
_EVENTS_MAX: Final = 1 << 62
_PROBLEMS: Final = 3  # that are told

Progress = Callable[[str, int, int], None]  # what is done, how much of it is done, of how much


class NotWholeError(BackupError):
    """A copy of a ledger, or a ledger, is not whole: `why` says what was found."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a whole backup: {why}. The ledger is as it was. Use another backup, and check the disk.")
        self.why = why


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup on the disk."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything a ledger is proven by."""

    keyring: Keyring | None  # None: its audit is not verified
    statements: Mapping[str, str]
    migrations: Sequence[Migration]
    replay: Callable[[], Replay] | None = None  # compares the tables with the audit


@dataclass(frozen=True, slots=True)
class Source:
    """The ledger to copy, what it is proven by, and the keys that sign its manifest."""

    path: Path
    proof: Proof
    keyring: Keyring
    build: str
    pages_per_step: int = PAGES_PER_STEP


def back_up(source: Source, folder: Path, now_ms: int, *, disk: Disk | None = None, progress: Progress | None = None) -> Backup:
    """Copy the ledger into `folder`, prove the copy, name it; blocks for as long as that takes.

    Raises BackupError when it cannot be made or is not whole: then no file is left under a backup's name.
    """
    disk, tell = disk or Disk(), progress or _tell_nobody
    try:
        disk.make_folder(folder)
        with _alone_in(folder):
            _sweep(folder, disk)
            _has_room(source.path, folder)
            name = _free_name(folder, now_ms)
            partial = folder / f"{name}.db{PARTIAL}"
            try:
                backup = _made(source, partial, folder / f"{name}.db", now_ms, disk, tell)
            except BaseException:
                disk.remove(partial)
                raise
            _name(backup, partial, disk)
            return backup
    except (OSError, sqlite3.Error) as error:
        raise BackupError(
            f"The backup into {folder} could not be made ({error}). The ledger is as it was, and earlier backups are untouched. "
            "Look at that disk: is it full, read-only or failing?"
        ) from error


def verify(
    backup: Backup, proof: Proof, keyring: Keyring, *, unauthenticated: bool = False, progress: Progress | None = None
) -> None:
    """Prove that a backup is what its manifest says, that the manifest is ours, and that the copy is whole. Raises BackupError.

    `unauthenticated` takes a manifest of 0.1.0, which nobody could sign; one that is signed wrongly is refused all the same.
    """
    tell = progress or _tell_nobody
    if not (unauthenticated and backup.manifest.schema == UNAUTHENTICATED):
        require_authentic(backup.path, backup.manifest, keyring)
    try:
        if backup.path.stat().st_size != backup.manifest.bytes or _sha256(backup.path, tell) != backup.manifest.sha256:
            raise NotWholeError(backup.path, "its content is not the one that was written: the checksum differs")
        tables = prove(backup.path, proof, tell)
    except (OSError, sqlite3.Error) as error:
        raise NotWholeError(backup.path, str(error)) from error
    if tables != backup.manifest.tables:
        raise NotWholeError(backup.path, "its tables have other numbers of rows than its manifest says")


def backup_at(path: Path) -> Backup:
    """Return the backup whose copy is at `path`; nobody has proven it yet. Raises BackupError when it has no readable manifest."""
    beside = path.with_name(f"{path.stem}.json") if path.name else path
    try:
        return Backup(path, read_manifest(beside))
    except FileNotFoundError as error:
        raise BackupError(
            f"There is no manifest {beside} beside {path.name}. Nothing was done. Name the .db file of a backup that "
            "`quotebot backup` made, with its .json beside it."
        ) from error


def backups_in(folder: Path) -> list[Backup]:
    """Return the backups in a folder, anybody's, the newest first; what is none is passed over."""
    found = []
    for beside in folder.glob("ledger-*.json"):
        path = beside.with_suffix(".db")
        with contextlib.suppress(BackupError, FileNotFoundError):
            if path.exists():
                found.append(backup_at(path))
    return sorted(found, key=lambda backup: (backup.manifest.made_at, backup.path.name), reverse=True)


def own_backups(folder: Path, ledger_id: str, keyring: Keyring) -> list[Backup]:
    """Return the backups of this ledger that its keys have signed, the newest first. Others are nobody's business here."""
    return [
        backup
        for backup in backups_in(folder)
        if backup.manifest.ledger_id == ledger_id
        and backup.manifest.file == backup.path.name
        and backup.manifest.is_authentic(keyring)
    ]


def ledger_id_of(path: Path) -> str:
    """Return the id of the ledger at `path`. Raises BackupError when it cannot be read."""
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            (ledger_id,) = connection.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise BackupError(f"The ledger {path} cannot be read ({error}). There is no new backup. Run: quotebot doctor") from error
    return str(ledger_id)


def keep_newest(own: Sequence[Backup], keep: int, *, disk: Disk | None = None) -> list[Path]:
    """Remove all but the first `keep` of these backups and return what was removed. The manifest goes first: a half one is none."""
    disk = disk or Disk()
    removed = []
    for backup in own[max(1, keep) :]:
        disk.remove(backup.path.with_suffix(".json"))
        disk.remove(backup.path)
        removed.append(backup.path)
    return removed


def prove(path: Path, proof: Proof, progress: Progress | None) -> dict[str, int]:
    """Prove that the file is a whole ledger: pages, schema, audit, references. Returns its numbers of rows. Raises BackupError."""
    tell = progress or _tell_nobody
    with contextlib.closing(open_read_only(path)) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            raise NotWholeError(path, "it is not a Quotebot ledger")
        tell("Checking every page", 0, 0)
        found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_PROBLEMS})")]
        if found != ["ok"]:
            raise NotWholeError(path, "; ".join(found))
        _prove_schema(path, connection, proof)
        # First the audit: it names the row that was changed, where a reference only names the table.
        if proof.keyring is not None:
            tell("Checking the audit", 0, 0)
            _prove_audit(path, connection, proof.keyring, proof)
        strays = connection.execute("PRAGMA foreign_key_check").fetchmany(_PROBLEMS)
        if strays:
            raise NotWholeError(path, f"{strays[0][0]} has rows that refer to nothing")
        return _tables(connection)


def _prove_schema(path: Path, connection: sqlite3.Connection, proof: Proof) -> None:
    try:
        require_schema(connection, proof.migrations)
    except SchemaChangedError as error:
        raise NotWholeError(path, f"its schema was changed: {error.named}") from error


def _prove_audit(path: Path, connection: sqlite3.Connection, keyring: Keyring, proof: Proof) -> None:
    connection.execute("BEGIN")
    tx = _PacedTx(connection, proof.statements, None)
    report = verify_within(tx, keyring, events_max=_EVENTS_MAX, replay=proof.replay)
    if report is not None and report.finding is not None:
        finding = report.finding
        whose = "audit" if finding.table in AUDIT_TABLES else "history"
        raise NotWholeError(path, f"its {whose} is not whole: {finding.table} {finding.row}: {finding.meaning}")


class _PacedTx(SqliteTx):
    """Lets whoever else works in this process go first, page after page."""

    __slots__ = ()

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        time.sleep(PAUSE_SECONDS)
        return super().all(name, **parameters)


def _made(source: Source, partial: Path, final: Path, now_ms: int, disk: Disk, tell: Progress) -> Backup:
    disk.create(partial)
    facts, tables = _copied(source, partial, tell)
    disk.sync(partial)
    if prove(partial, source.proof, tell) != tables:
        raise NotWholeError(final, "it has other numbers of rows than the ledger had")
    manifest = Manifest(
        schema=SCHEMA,
        file=final.name,
        bytes=partial.stat().st_size,
        sha256=_sha256(partial, tell),
        made_at=now_ms,
        build=source.build,
        tables=tables,
        **facts,
    )
    return Backup(final, manifest.signed(source.keyring))


def _copied(origin: Source, partial: Path, tell: Progress) -> tuple[dict[str, Any], dict[str, int]]:
    """Copy the pages of one moment; return what is known of that moment, and its numbers of rows."""

    def paced(status: int, remaining: int, total: int) -> None:
        del status
        tell("Copying", total - remaining, total)
        time.sleep(PAUSE_SECONDS)

    with contextlib.closing(open_read_only(origin.path)) as source, contextlib.closing(sqlite3.connect(partial)) as target:
        harden(target)
        source.execute("BEGIN")
        facts = _facts(source)  # the first read: from here on it is this moment
        source.backup(target, pages=origin.pages_per_step, progress=paced)
        tables = _tables(source)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, whole by itself
    return facts, tables


def _facts(connection: sqlite3.Connection) -> dict[str, Any]:
    (ledger_id,) = connection.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
    (last_event_id,) = connection.execute("SELECT coalesce(max(id), 0) FROM audit_events").fetchone()
    (migrations,) = connection.execute("SELECT count(*) FROM schema_migrations").fetchone()
    return {
        "ledger_id": ledger_id,
        "generation": generation_of(connection),
        "last_event_id": last_event_id,
        "migrations": migrations,
    }


def generation_of(connection: sqlite3.Connection) -> int:
    """Return the generation of an open ledger: 1 before it was ever restored; a schema that knows none is of the first, too."""
    knows = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'generations'").fetchone()
    if knows is None:
        return 1
    (generation,) = connection.execute("SELECT coalesce(max(generation), 1) FROM generations").fetchone()
    return int(generation)


def _tables(connection: sqlite3.Connection) -> dict[str, int]:
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    counts = {}
    for (name,) in names.fetchall():
        (counts[name],) = connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()  # noqa: S608 -- a table's own name
    return counts


def _name(backup: Backup, partial: Path, disk: Disk) -> None:
    """Give the copy its name, then write its manifest: only with that it is a backup."""
    folder, beside = backup.path.parent, backup.path.with_suffix(".json")
    disk.rename(partial, backup.path)
    fresh = beside.with_name(beside.name + PARTIAL)
    disk.write(fresh, text_of(backup.manifest).encode())
    disk.sync(fresh)
    disk.rename(fresh, beside)
    disk.sync_folder(folder)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep two backups from sweeping each other's files. The kernel lets go of the lock when the process dies."""
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BackupError(f"Another backup into {folder} is under way. This one did nothing. Wait for it.") from error
    else:
        yield
    finally:
        os.close(lock)


def _sweep(folder: Path, disk: Disk) -> None:
    """Remove what a backup that was cut off has left: unfinished files, and a copy without its manifest."""
    unnamed = [path for path in folder.glob("ledger-*.db") if not path.with_suffix(".json").exists()]
    for path in [*folder.glob(f"ledger-*{PARTIAL}*"), *unnamed]:
        disk.remove(path)


def _has_room(path: Path, folder: Path) -> None:
    needed = path.stat().st_size + ROOM_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupError(
            f"There is no room for a backup in {folder}: {needed >> 20:,} MiB are needed, {free >> 20:,} are free. Nothing was "
            "written. Make room there, or choose another folder (QUOTEBOT_BACKUP_FOLDER)."
        )


def _free_name(folder: Path, now_ms: int) -> str:
    stem = f"ledger-{datetime.fromtimestamp(now_ms / 1000, tz=UTC):%Y%m%dT%H%M%SZ}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    return next(name for name in names if not (folder / f"{name}.json").exists())


def _sha256(path: Path, tell: Progress) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
            done += len(block)
            tell("Checksum", done, total)
    return digest.hexdigest()


def _tell_nobody(what: str, done: int, total: int) -> None:
    del what, done, total
