"""Backups of an installation: folder, schedule and number kept. ledger/operator/backup.py makes and verifies them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from ledger.audit.keyring import load_keyring, require_keys
from ledger.operator.backup import (
    FOLDER,
    Backup,
    Progress,
    Source,
    back_up,
    backup_at,
    keep_newest,
    ledger_id_of,
    own_backups,
    quiet,
    verify,
)
from ledger.operator.manifests import UNAUTHENTICATED, require_authentic
from quotebot import __version__
from quotebot.app.installation import proof_by

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.chain import Keyring
    from ledger.clock import Clock
    from ledger.sqlite.disk import Disk
    from quotebot.settings import Settings

HOUR_MS: Final = 3_600_000
log = structlog.get_logger(__name__)


def folder_of(settings: Settings) -> Path:
    """Return the folder of the backups."""
    return settings.backup_folder or settings.data_dir / FOLDER


def make_backup(
    settings: Settings, now_ms: int, *, folder: Path | None = None, disk: Disk | None = None, progress: Progress = quiet
) -> Backup:
    """Make a verified backup and return it; blocks. Old backups are deleted in the configured folder, but not in a given `folder`.

    Raises DatabaseError; then there is no new backup, and the earlier ones are unchanged.
    """
    keyring = keyring_of(settings)
    source = Source(settings.ledger_path, proof_by(keyring), keyring, __version__)
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
    backup = backup_at(path)
    if not (unauthenticated and backup.manifest.schema == UNAUTHENTICATED):
        require_authentic(path, backup.manifest, keyring_of(settings))
    return backup


def prove_backup(
    settings: Settings, backup: Backup, *, unauthenticated: bool = False, progress: Progress = quiet
) -> dict[str, int]:
    """Verify that a backup is ours and complete; return its row counts by table. Raises DatabaseError with the defect."""
    keyring = keyring_of(settings)
    verify(backup, proof_by(keyring), keyring, unauthenticated=unauthenticated, progress=progress)
    return backup.manifest.tables


def is_due(settings: Settings, now_ms: int) -> bool:
    """Return true if the next backup is due, by the age of this ledger's newest one: a restart makes no extra backup."""
    if not settings.backup_hours:
        return False
    own = own_backups(folder_of(settings), ledger_id_of(settings.ledger_path), keyring_of(settings))
    newest = next(iter(own), None)
    return newest is None or not newest.manifest.made_at <= now_ms < newest.manifest.made_at + settings.backup_hours * HOUR_MS


async def keep_backups(settings: Settings, clock: Clock) -> Backup | None:
    """Make a backup if one is due, on a separate thread; a housekeeping job of the bot. Raises as make_backup does."""
    now = clock.now_ms()
    if not await asyncio.to_thread(is_due, settings, now):
        return None
    backup = await asyncio.to_thread(make_backup, settings, now)
    log.info("backup.made", file=backup.path.name, bytes=backup.manifest.bytes, rows=sum(backup.manifest.tables.values()))
    return backup
