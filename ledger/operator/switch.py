"""Replacement of the ledger by a prepared one; a crash at any step leaves one of the two, complete.

    ledger.db.restoring     the next ledger while it is prepared: ignored, the present one is in force
    ledger.db.restored      the same, complete and durable: the ledger from this rename on; the next open finishes the switch

Finishing saves the present file, its WAL and its log of anchors in a separate folder, then renames. After an interruption it starts
again: the old file keeps its name until the new one replaces it, so there is always a ledger, and its WAL is moved first, so that
its frames are never applied to the new file. All of it happens inside the write gate.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ledger.audit.anchors import LOG_NAME
from ledger.sqlite.connections import open_read_only
from ledger.sqlite.locks import WriteGate

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.sqlite.disk import Disk

# A move's id begins with its time.
_BEGUN: Final = """
SELECT max(at) FROM (SELECT max(started_at) AS at FROM generations
  UNION ALL SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'arrived')
"""
_BESIDE: Final = ("-wal", "-shm", ".gate", ".ballast")  # suffixes of the files beside an open database


def staged(path: Path) -> Path:
    """Return the path where the next ledger is prepared."""
    return path.with_name(path.name + ".restoring")


def ready(path: Path) -> Path:
    """Return the path of the next ledger once it is in force."""
    return path.with_name(path.name + ".restored")


def clear(path: Path, disk: Disk) -> None:
    """Remove the remains of an interrupted preparation."""
    disk.remove(staged(path))
    _clear_beside(staged(path), disk)


def decide(path: Path, disk: Disk) -> None:
    """Put the prepared ledger in force by one rename. It must be closed and self-contained (no WAL)."""
    _clear_beside(staged(path), disk)
    disk.sync(staged(path))
    disk.rename(staged(path), ready(path))
    disk.sync_folder(path.parent)


def finish(path: Path, disk: Disk) -> Path | None:
    """Finish a decided switch; return the folder of the replaced files, None when there was nothing to finish."""
    if not ready(path).exists():
        return None
    gate = WriteGate(path, "restore")
    try:
        with gate:
            return _finish(path, disk)
    finally:
        gate.close()


def _finish(path: Path, disk: Disk) -> Path | None:
    next_one = ready(path)
    if not next_one.exists():  # another process was faster
        return None
    with contextlib.closing(open_read_only(next_one, immutable=True)) as connection:
        (started_at,) = connection.execute(_BEGUN).fetchone()
    # The same folder at every try: its name is the time of the restore or the move.
    aside = path.with_name(f"replaced-{datetime.fromtimestamp(started_at / 1000, tz=UTC):%Y%m%dT%H%M%S.%fZ}")
    disk.make_folder(aside)
    if path.exists():
        disk.link(path, aside / path.name)
    for name in (f"{path.name}-wal", LOG_NAME):
        if path.with_name(name).exists():
            disk.rename(path.with_name(name), aside / name)
    disk.sync_folder(aside)
    disk.remove(path.with_name(f"{path.name}-shm"))
    disk.sync_folder(path.parent)
    disk.rename(next_one, path)
    disk.sync_folder(path.parent)
    return aside


def _clear_beside(path: Path, disk: Disk) -> None:
    for ending in _BESIDE:
        disk.remove(path.with_name(path.name + ending))
