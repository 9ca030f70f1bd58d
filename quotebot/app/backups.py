"""Backups of an installation, and the restore of its ledger from one. ledger/operator/backup.py makes and verifies backups.

A restore makes a new generation of the ledger. Everything is prepared on a copy beside the ledger; one rename puts the copy in
force (ledger/operator/switch.py). A restore that is interrupted at any point therefore leaves the old ledger or the new one,
complete. The rest of the folder is unchanged: keys and documents stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from ledger import recovery
from ledger.audit.anchors import follow_ledger
from ledger.audit.events import Audit, finish_with
from ledger.audit.keyring import load_keyring, require_keys
from ledger.database import MovedError
from ledger.ledger import Ledger
from ledger.operator import switch
from ledger.operator.backup import (
    FOLDER,
    UNAUTHENTICATED,
    Backup,
    BackupError,
    Progress,
    Source,
    back_up,
    backup_at,
    generation_of,
    keep_newest,
    own_backups,
    prove,
    quiet,
    require_authentic,
    verify,
)
from ledger.sqlite.connections import open_read_only
from ledger.sqlite.disk import Disk
from ledger.sqlite.engine import SqliteDatabase
from quotebot import __version__
from quotebot.app.installation import claim_settings, instance_lock, open_ledger, schema_and_statements, storage_of
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.settings import ConfigurationError
from quotebot.store import generations as store
from quotebot.store import history

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ledger.audit.events import Keyring
    from ledger.clock import Clock
    from ledger.database import Tx
    from quotebot.settings import Settings

HOUR_MS: Final = 3_600_000
log = structlog.get_logger(__name__)


def folder_of(settings: Settings) -> Path:
    """Return the folder of the backups."""
    return settings.backup_folder or settings.data_dir / FOLDER


def _file_of(settings: Settings) -> SqliteStorage:
    """Return the storage of a ledger in a file. Raises ConfigurationError for one in a database."""
    storage = storage_of(settings)
    if not isinstance(storage, SqliteStorage):
        raise ConfigurationError(
            f"The ledger is in the database {storage.place}. Nothing was done. Back it up, verify its backups and put them back "
            "with the database's own tools: docs/postgresql.md."
        )
    return storage


def make_backup(
    settings: Settings, now_ms: int, *, folder: Path | None = None, disk: Disk | None = None, progress: Progress = quiet
) -> Backup:
    """Make a verified backup and return it; blocks. Old backups are deleted in the configured folder, but not in a given `folder`.

    Raises DatabaseError; then there is no new backup, and the earlier ones are unchanged.
    """
    keyring, storage = keyring_of(settings), _file_of(settings)
    source = Source(storage.path, storage.proof(keyring), keyring, __version__)
    backup = back_up(source, folder or folder_of(settings), now_ms, disk=disk, progress=progress)
    if folder is None:
        keep_newest(own_backups(folder_of(settings), backup.manifest.ledger_id, keyring), settings.backup_keep, disk=disk)
    return backup


def keyring_of(settings: Settings) -> Keyring:
    """Return all audit keys. Raises DatabaseError if one is missing: a verification must never create one."""
    require_keys(settings.data_dir)
    return load_keyring(settings.data_dir, may_create=False)


def authentic_backup(settings: Settings, path: Path, *, unauthenticated: bool = False) -> Backup:
    """Return the backup at `path` after its manifest is authenticated. Raises DatabaseError.

    `unauthenticated` accepts a backup of 0.1.0, which did not sign manifests.
    """
    _file_of(settings)  # a database has backups of its own
    backup = backup_at(path)
    if not (unauthenticated and backup.manifest.schema == UNAUTHENTICATED):
        require_authentic(path, backup.manifest, keyring_of(settings))
    return backup


def prove_backup(
    settings: Settings, backup: Backup, *, unauthenticated: bool = False, progress: Progress = quiet
) -> dict[str, int]:
    """Verify that a backup is ours and complete; return its row counts by table. Raises DatabaseError with the defect."""
    keyring = keyring_of(settings)
    verify(backup, _file_of(settings).proof(keyring), keyring, unauthenticated=unauthenticated, progress=progress)
    return backup.manifest.tables


def backups_of(settings: Settings) -> list[Backup]:
    """Return this ledger's backups, the newest first. Raises DatabaseError if the ledger or an audit key cannot be read."""
    return own_backups(folder_of(settings), _file_of(settings).ledger_id(), keyring_of(settings))


def is_due(settings: Settings, now_ms: int) -> bool:
    """Return true if the next backup is due, by the age of this ledger's newest one: a restart makes no extra backup."""
    if not settings.backup_hours or storage_of(settings).path is None:
        return False
    newest = next(iter(backups_of(settings)), None)
    return newest is None or not newest.manifest.made_at <= now_ms < newest.manifest.made_at + settings.backup_hours * HOUR_MS


async def keep_backups(settings: Settings, clock: Clock) -> Backup | None:
    """Make a backup if one is due, on a separate thread; a housekeeping job of the bot. Raises as make_backup does."""
    now = clock.now_ms()
    if not await asyncio.to_thread(is_due, settings, now):
        return None
    backup = await asyncio.to_thread(make_backup, settings, now)
    log.info("backup.made", file=backup.path.name, bytes=backup.manifest.bytes, rows=sum(backup.manifest.tables.values()))
    return backup


@dataclass(frozen=True, slots=True)
class Present:
    """Readable facts of the ledger that is to be replaced. `operations` is None if it is missing or cannot be read."""

    operations: int | None = None
    generation: int = 1
    last_numbers: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore. `replaced` is the folder with the old file; `numbers` are the last skipped quote numbers by year."""

    generation: int
    is_uncertain: int
    numbers: Mapping[int, int]
    replaced: Path | None


def present(settings: Settings) -> Present:
    """Return the facts of the present ledger, which may be in any state."""
    path = _file_of(settings).path
    if not path.exists():
        return Present()
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            (operations,) = connection.execute("SELECT count(*) FROM operations").fetchone()
            numbers = dict(connection.execute("SELECT year, last FROM quote_numbers").fetchall())
            return Present(operations, generation_of(connection), numbers)
    except sqlite3.Error:
        return Present()


async def restore(
    settings: Settings,
    path: Path,
    clock: Clock,
    *,
    actor: str,
    terminal_user: str | None = None,
    disk: Disk | None = None,
    engine: type[SqliteDatabase] = SqliteDatabase,
    progress: Progress = quiet,
    unauthenticated: bool = False,
) -> Restored:
    """Restore the ledger from the backup at `path`. `actor` and `terminal_user` are recorded in the audit.

    `unauthenticated` accepts a backup of 0.1.0, which has an unsigned manifest. Raises LedgerInUseError while a bot runs, and
    DatabaseError for a backup that is incomplete, of a newer build, or without its audit keys here; then nothing was changed.
    """
    disk, path_of_ledger = disk or Disk(), _file_of(settings).path
    with contextlib.suppress(sqlite3.Error):  # a damaged ledger is one to replace
        if (seal := _file_of(settings).movable().find_seal()) is not None:
            raise MovedError(seal.place, seal.at)
    backup = await asyncio.to_thread(authentic_backup, settings, path, unauthenticated=unauthenticated)
    await asyncio.to_thread(prove_backup, settings, backup, unauthenticated=unauthenticated, progress=progress)
    async with instance_lock(settings):
        switch.finish(path_of_ledger, disk)
        restored = await _prepare(settings, backup, clock, actor, terminal_user, disk, engine)
        await asyncio.to_thread(_prove_staged, settings, progress)
        switch.decide(path_of_ledger, disk)
        replaced = switch.finish(path_of_ledger, disk)
    return Restored(restored.generation, restored.is_uncertain, restored.numbers, replaced)


async def _prepare(
    settings: Settings,
    backup: Backup,
    clock: Clock,
    actor: str,
    terminal_user: str | None,
    disk: Disk,
    engine: type[SqliteDatabase],
) -> Restored:
    """Prepare the next ledger beside the present one: a copy of the backup in this build's schema, pending effects uncertain."""
    now, before = clock.now_ms(), present(settings)
    number = max(before.generation, backup.manifest.generation) + 1
    switch.clear(settings.ledger_path, disk)
    staged = switch.staged(settings.ledger_path)
    await asyncio.to_thread(_copy, backup.path, staged, disk)
    migrations, statements = schema_and_statements()
    audit = Audit(DOMAIN_EVENTS, load_keyring(settings.data_dir, may_create=False), terminal_user=terminal_user)
    bound = history.binding()
    finish = finish_with(audit, bound, clock)
    database = await engine.open(staged, statements=statements, migrations=migrations, clock=clock, finish=finish, binding=bound)
    try:
        await history.bind_as_found(database, audit, bound, clock)
        epoch = await recovery.begin_epoch(database, now, role="cli", build=__version__)
        ledger = Ledger(database, clock, audit, epoch=epoch, **claim_settings(settings))
        await recovery.take_back(ledger)

        begin = partial(
            _begin_generation,
            ledger,
            now=now,
            number=number,
            made_at=backup.manifest.made_at,
            sha256=backup.manifest.sha256,
            last_numbers=before.last_numbers or {},
            actor=actor,
        )
        restored = await database.write("restore", begin, alone=True)
        await recovery.give_back(ledger)
    finally:
        await database.close()
    return restored


def _begin_generation(
    ledger: Ledger, tx: Tx, *, now: int, number: int, made_at: int, sha256: str, last_numbers: Mapping[int, int], actor: str
) -> Restored:
    is_uncertain = recovery.begin_generation(
        ledger, tx, now, number=number, backup_made_at=made_at, backup_sha256=sha256, started_by=actor
    )
    numbers = store.skip_numbers(tx, last_numbers, made_at, now)
    history.skipped(tx, ledger.audit, numbers, actor, now)
    store.draw_open_cards(tx, ledger.audit, now, number)
    return Restored(number, is_uncertain, numbers, None)


async def begin_generation(settings: Settings, made_at: int, *, actor: str) -> Restored:
    """Begin a new generation of a ledger that other tools than `restore` have put back to the time `made_at` (Unix milliseconds).

    Raises LedgerInUseError while a bot runs, and DatabaseError.
    """
    async with instance_lock(settings), open_ledger(settings, terminal_user=actor) as ledger:
        newest = await ledger.database.read(lambda tx: tx.one("last_audit_time"))
        lost_from = made_at if newest is None else min(made_at, newest["at"])  # whatever was recorded later is lost
        now = ledger.clock.now_ms()
        ledger.epoch = await recovery.begin_epoch(ledger.database, now, role="cli", build=__version__)
        await recovery.take_back(ledger)

        def work(tx: Tx) -> Restored:
            number = max(store.current(tx), storage_of(settings).known_generation()) + 1
            return _begin_generation(ledger, tx, now=now, number=number, made_at=lost_from, sha256="", last_numbers={}, actor=actor)

        begun = await ledger.database.write("begin_generation", work, alone=True)
        await recovery.give_back(ledger)
        await follow_ledger(ledger.database, settings.data_dir)
    return begun


def _copy(backup: Path, staged: Path, disk: Disk) -> None:
    try:
        disk.copy(backup, staged)
    except OSError as error:
        raise BackupError(
            f"{backup.name} could not be copied beside the ledger ({error}). The ledger is as it was. "
            f"Is there room in {staged.parent}?"
        ) from error


def _prove_staged(settings: Settings, progress: Progress) -> None:
    """Verify the prepared ledger before it is put in force: since its verification it was copied, migrated and changed."""
    staged = switch.staged(settings.ledger_path)
    wal = staged.with_name(f"{staged.name}-wal")
    if wal.exists() and wal.stat().st_size:
        raise BackupError(f"{staged} still has a WAL: another program has it open. The ledger is as it was. Close that, try again.")
    prove(staged, _file_of(settings).proof(load_keyring(settings.data_dir, may_create=False)), progress)
