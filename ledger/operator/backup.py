"""Backups: a copy of the ledger made while the bot works, verified before it gets its final name, with a manifest beside it.

SQLite's backup copies the pages in small steps inside one read transaction: every page belongs to the same snapshot regardless of
later commits, and no writer waits. (Without that transaction each commit of the bot would restart it; VACUUM INTO would also read
one snapshot, but it can neither pause nor report its progress.) The WAL grows by the writes in the meantime.
    ledger-20261121T215000Z.db      the copy: one file, no WAL
    ledger-20261121T215000Z.json    the manifest, written last: a copy without one is not a backup

A backup does not contain the audit's keys: with both, a ledger could be forged. Nor does it contain the PDFs: a lost one is
rendered again.

A manifest is authenticated: a checksum alone reveals accidental changes, because an attacker who changes a backup also rewrites the
checksum. The manifest therefore carries an HMAC over all its fields, including the checksum, under a key derived from the audit key
that was current. Without the keys no change to a backup or its manifest passes a restore unnoticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ledger.audit.verification import AUDIT_TABLES, verify_within
from ledger.database import DatabaseError
from ledger.keys import dumps, loads
from ledger.migrations import SchemaChangedError
from ledger.sqlite.batch import SqliteTx
from ledger.sqlite.connections import harden, open_read_only
from ledger.sqlite.disk import Disk
from ledger.sqlite.file import APPLICATION_ID
from ledger.sqlite.migrations import require_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.audit.events import Keyring
    from ledger.audit.history import TableReplay
    from ledger.database import Row
    from ledger.migrations import Migration


SCHEMA: Final = 2
UNAUTHENTICATED: Final = 1  # the schema of Quotebot 0.1.0, which has no HMAC
BYTES_MAX: Final = 1 << 18
_LAST_MS: Final = 253_402_300_799_000  # of the year 9999
_DERIVATION: Final = b"quotebot/backup-manifest-key/1"  # never a message that the audit signs: those are JSON arrays
_TEXTS: Final = ("file", "sha256", "build", "ledger_id", "key_id", "mac")
_NUMBERS: Final = ("schema", "bytes", "made_at", "generation", "last_event_id", "migrations")
FOLDER: Final = "backups"  # beside the ledger, unless another folder is named
PAGES_PER_STEP: Final = 256  # 1 MiB
PAUSE_SECONDS: Final = 0.002  # between two steps, and between two pages of the audit: the bot's commits go first
ROOM_BYTES: Final = 64 << 20  # reserve for the bot, which may share the disk
PARTIAL: Final = ".partial"
_LOCK: Final = ".backup.lock"
_READ_BYTES: Final = 1 << 20
_EVENTS_MAX: Final = 1 << 62
_PROBLEMS: Final = 3  # reported per file
Progress = Callable[[str, int, int], None]  # the activity, the amount done, the total


class BackupError(DatabaseError):
    """A backup could not be made, or is not valid. The ledger is unchanged."""


class NotAuthenticError(BackupError):
    """A manifest is not signed by this installation's audit keys."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The facts of a backup. `made_at` is the time of its snapshot, in Unix milliseconds; `tables` counts rows."""

    schema: int
    file: str
    bytes: int
    sha256: str  # of the copy, which names every document by its own SHA-256
    made_at: int
    build: str
    ledger_id: str
    generation: int
    last_event_id: int  # of the audit
    migrations: int
    tables: dict[str, int]
    key_id: str = ""
    mac: str = ""

    @property
    def made(self) -> str:
        """The time of the snapshot, for people."""
        return f"{datetime.fromtimestamp(self.made_at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

    def signed(self, keyring: Keyring) -> Manifest:
        """Return the manifest with the HMAC of the current key."""
        key_id, key = keyring.current
        named = replace(self, key_id=key_id, mac="")
        return replace(named, mac=_mac(key, named))

    def is_authentic(self, keyring: Keyring) -> bool:
        """Tell whether one of the keys signed the manifest as it is."""
        key = keyring.keys.get(self.key_id)
        return self.schema == SCHEMA and key is not None and hmac.compare_digest(_mac(key, self), self.mac)


def require_authentic(path: Path, manifest: Manifest, keyring: Keyring) -> None:
    """Raise NotAuthenticError unless one of the keys signed the manifest of the backup at `path`."""
    if manifest.schema == UNAUTHENTICATED:
        raise NotAuthenticError(
            f"{path.name} was made by Quotebot 0.1.0, whose manifests are not authenticated: nobody can tell from it whether "
            "the backup was changed since. Nothing was done. Use a newer backup. If there is none and you know where this one was "
            "kept: --unauthenticated takes it all the same, once its schema, its audit and its history are found whole."
        )
    if manifest.key_id not in keyring.keys:
        raise NotAuthenticError(
            f"The manifest of {path.name} is signed with the audit key {manifest.key_id!r}, which is not in the data "
            "folder. Nothing was done. Put all audit keys (audit-*.key) of that installation into the data folder, then try again."
        )
    if not manifest.is_authentic(keyring):
        raise NotAuthenticError(
            f"The manifest of {path.name} was changed by somebody without the audit key. Nothing was done. Use another backup, and "
            "find out who could write to this one."
        )
    if manifest.file != path.name:
        raise NotAuthenticError(
            f"{path.name} was made as {manifest.file} and shows the ledger of {manifest.made}: somebody gave it another name, and "
            "a restore would go back to another moment than the name says. Nothing was done. If that is the one you want, give it "
            "its own name again, and its .json too."
        )


def read_manifest(beside: Path) -> Manifest:
    """Read a manifest without authenticating it. Raises FileNotFoundError, or BackupError for an invalid file."""
    try:
        with beside.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        values = loads(text if len(text) <= BYTES_MAX else b"")  # too large to be a manifest
        manifest = _manifest_of(values) if values["schema"] in (UNAUTHENTICATED, SCHEMA) else None
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{beside} is no manifest of a backup ({error!r}). Nothing was done. Use another backup.") from error
    if manifest is None:
        raise BackupError(f"{beside} was written by a newer build. Nothing was done. Use that build.")
    return manifest


def text_of(manifest: Manifest) -> str:
    """Return the text of the manifest's file."""
    return json.dumps(asdict(manifest), indent=2) + "\n"


def _manifest_of(values: dict[str, Any]) -> Manifest:
    old = values["schema"] == UNAUTHENTICATED
    found = {each.name: values[each.name] for each in fields(Manifest) if not (old and each.name in ("key_id", "mac"))}
    tables = found["tables"]
    if (
        not all(type(found[name]) is int and found[name] >= 0 for name in _NUMBERS)
        or not all(type(found[name]) is str for name in _TEXTS if name in found)
        or not all(type(name) is str and type(count) is int for name, count in tables.items())
        or found["made_at"] > _LAST_MS
    ):
        raise ValueError("a field has a value that no manifest has")
    return Manifest(**found)


def _mac(key: bytes, manifest: Manifest) -> str:
    content = dumps({name: value for name, value in asdict(manifest).items() if name != "mac"})
    return hmac.digest(hmac.digest(key, _DERIVATION, "sha256"), content.encode(), "sha256").hex()


def quiet(what: str, done: int, total: int) -> None:
    """Report no progress."""
    del what, done, total


class NotWholeError(BackupError):
    """A ledger or a copy of one is damaged: `why` is the finding."""

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
    """Everything needed to verify a ledger."""

    keyring: Keyring | None  # None: the audit is not verified
    statements: Mapping[str, str]
    migrations: Sequence[Migration]
    replay: Callable[[], TableReplay] | None = None  # compares the tables with the audit


@dataclass(frozen=True, slots=True)
class Source:
    """The ledger to copy, the means to verify it, and the keys that sign its manifest."""

    path: Path
    proof: Proof
    keyring: Keyring
    build: str
    pages_per_step: int = PAGES_PER_STEP


def back_up(source: Source, folder: Path, now_ms: int, *, disk: Disk | None = None, progress: Progress = quiet) -> Backup:
    """Copy the ledger into `folder`, verify the copy and name it. Blocks until done.

    Raises BackupError when the backup cannot be made or is damaged: then no file with a backup's name is left.
    """
    disk = disk or Disk()
    try:
        disk.make_folder(folder)
        with _alone_in(folder):
            _sweep(folder, disk)
            _has_room(source.path, folder)
            name = _free_name(folder, now_ms)
            partial = folder / f"{name}.db{PARTIAL}"
            try:
                backup = _made(source, partial, folder / f"{name}.db", now_ms, disk, progress)
            except NotWholeError as error:
                disk.remove(partial)
                raise BackupError(
                    f"No backup was made, because the copy is not whole: {error.why}. The ledger is as it was, and earlier backups "
                    "are untouched. Keep a copy of the whole data folder, and see whether the ledger itself is whole: "
                    "quotebot ledger verify."
                ) from error
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


def verify(backup: Backup, proof: Proof, keyring: Keyring, *, unauthenticated: bool = False, progress: Progress = quiet) -> None:
    """Verify a backup: its content matches its manifest, this installation signed the manifest, and the copy is undamaged.

    Raises BackupError. `unauthenticated` accepts a manifest of 0.1.0, which has no signature; a wrongly signed one is still
    refused.
    """
    if not (unauthenticated and backup.manifest.schema == UNAUTHENTICATED):
        require_authentic(backup.path, backup.manifest, keyring)
    try:
        if backup.path.stat().st_size != backup.manifest.bytes or _sha256(backup.path, progress) != backup.manifest.sha256:
            raise NotWholeError(backup.path, "its content is not the one that was written: the checksum differs")
        tables = prove(backup.path, proof, progress)
    except (OSError, sqlite3.Error) as error:
        raise NotWholeError(backup.path, str(error)) from error
    if tables != backup.manifest.tables:
        raise NotWholeError(backup.path, "its tables have other numbers of rows than its manifest says")


def backup_at(path: Path) -> Backup:
    """Return the unverified backup whose copy is at `path`. Raises BackupError when it has no readable manifest."""
    beside = path.with_name(f"{path.stem}.json") if path.name else path
    try:
        return Backup(path, read_manifest(beside))
    except FileNotFoundError as error:
        raise BackupError(
            f"There is no manifest {beside} beside {path.name}. Nothing was done. Name the .db file of a backup that "
            "`quotebot backup` made, with its .json beside it."
        ) from error


def backups_in(folder: Path) -> list[Backup]:
    """Return the backups of any ledger in a folder, newest first; other files are skipped."""
    found = []
    for beside in folder.glob("ledger-*.json"):
        path = beside.with_suffix(".db")
        with contextlib.suppress(BackupError, FileNotFoundError):
            if path.exists():
                found.append(backup_at(path))
    return sorted(found, key=lambda backup: (backup.manifest.made_at, backup.path.name), reverse=True)


def own_backups(folder: Path, ledger_id: str, keyring: Keyring) -> list[Backup]:
    """Return the backups of this ledger that its keys have signed, newest first. Other backups are ignored."""
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
    """Remove all but the first `keep` of these backups and return the removed paths.

    The manifest is removed first: a copy without a manifest is not a backup.
    """
    disk = disk or Disk()
    removed = []
    for backup in own[max(1, keep) :]:
        disk.remove(backup.path.with_suffix(".json"))
        disk.remove(backup.path)
        removed.append(backup.path)
    return removed


def prove(path: Path, proof: Proof, progress: Progress = quiet) -> dict[str, int]:
    """Verify that the file is an undamaged ledger: pages, schema, audit, references. Returns its row counts. Raises BackupError."""
    with contextlib.closing(open_read_only(path)) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            raise NotWholeError(path, "it is not a Quotebot ledger")
        progress("Checking every page", 0, 0)
        found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_PROBLEMS})")]
        if found != ["ok"]:
            raise NotWholeError(path, "; ".join(found))
        try:
            require_schema(connection, proof.migrations)
        except SchemaChangedError as error:
            raise NotWholeError(path, f"its schema was changed: {error.named}") from error
        # The audit comes first: it names the changed row, while a broken reference names only the table.
        if proof.keyring is not None:
            progress("Checking the audit", 0, 0)
            _prove_audit(path, connection, proof.keyring, proof)
        strays = connection.execute("PRAGMA foreign_key_check").fetchmany(_PROBLEMS)
        if strays:
            raise NotWholeError(path, f"{strays[0][0]} has rows that refer to nothing")
        return _tables(connection)


def _prove_audit(path: Path, connection: sqlite3.Connection, keyring: Keyring, proof: Proof) -> None:
    connection.execute("BEGIN")
    tx = _PacedTx(connection, proof.statements, None)
    report = verify_within(tx, keyring, events_max=_EVENTS_MAX, replay=proof.replay)
    if report is not None and report.finding is not None:
        finding = report.finding
        whose = "audit" if finding.table in AUDIT_TABLES else "history"
        raise NotWholeError(path, f"its {whose} is not whole: {finding.table} {finding.row}: {finding.meaning}")


class _PacedTx(SqliteTx):
    """Transaction that pauses before each page, so that other work in this process goes first."""

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
    """Copy the pages of one snapshot; return the facts about that snapshot, and its row counts."""

    def paced(status: int, remaining: int, total: int) -> None:
        del status
        tell("Copying", total - remaining, total)
        time.sleep(PAUSE_SECONDS)

    with contextlib.closing(open_read_only(origin.path)) as source, contextlib.closing(sqlite3.connect(partial)) as target:
        harden(target)
        source.execute("BEGIN")
        facts = _facts(source)  # the first read: it fixes the snapshot
        source.backup(target, pages=origin.pages_per_step, progress=paced)
        tables = _tables(source)
        target.execute("PRAGMA journal_mode = DELETE")  # one self-contained file
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
    """Return the generation of an open ledger: 1 before its first restore, and for a schema without generations."""
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
    """Give the copy its name, then write its manifest: only the manifest makes it a backup."""
    folder, beside = backup.path.parent, backup.path.with_suffix(".json")
    disk.rename(partial, backup.path)
    fresh = beside.with_name(beside.name + PARTIAL)
    disk.write(fresh, text_of(backup.manifest).encode())
    disk.sync(fresh)
    disk.rename(fresh, beside)
    disk.sync_folder(folder)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Prevent two backups from removing each other's files. The kernel releases the lock when the process ends."""
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
    """Remove the remains of an interrupted backup: unfinished files, and a copy without its manifest."""
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
