"""Puts a prepared ledger in the place of the present one, so that a death at any step leaves one of the two, whole.

    ledger.db.restoring     the next ledger while it is prepared: nothing to anybody, the present one is in force
    ledger.db.restored      the same, whole and durable: from this rename on it is the ledger, and who opens finishes the switch

Finishing puts the present file, its WAL and its log of anchors aside, then renames. It begins anew wherever it was cut off: the old
file keeps its name until the new one takes it, so there is always a ledger, and its WAL goes first, so that no frame of it is ever
taken for the new one's. All of it happens inside the write gate.
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

_BESIDE: Final = ("-wal", "-shm", ".gate", ".ballast")  # what an open database has beside its file


def staged(path: Path) -> Path:
    """Where the next ledger is prepared."""
    return path.with_name(path.name + ".restoring")


def ready(path: Path) -> Path:
    """Where the next ledger is once it is in force."""
    return path.with_name(path.name + ".restored")


def clear(path: Path, disk: Disk) -> None:
    """Remove what a preparation that was cut off has left."""
    disk.remove(staged(path))
    _clear_beside(staged(path), disk)


def decide(path: Path, disk: Disk) -> None:
    """Put the prepared ledger in force: one rename. It must be closed and whole by itself (no WAL)."""
    _clear_beside(staged(path), disk)
    disk.sync(staged(path))
    disk.rename(staged(path), ready(path))
    disk.sync_folder(path.parent)


def finish(path: Path, disk: Disk) -> Path | None:
    """Finish a switch that was decided; return the folder of what was replaced, None when there was nothing to finish."""
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
    if not next_one.exists():  # somebody else was faster
        return None
    aside = _aside(path, next_one)
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


def _aside(path: Path, next_one: Path) -> Path:
    """Return the folder for what is replaced, the same at every try: it is named after the moment its successor began."""
    with contextlib.closing(open_read_only(next_one, immutable=True)) as connection:
        (started_at,) = connection.execute("SELECT max(started_at) FROM generations").fetchone()
    return path.with_name(f"replaced-{datetime.fromtimestamp(started_at / 1000, tz=UTC):%Y%m%dT%H%M%S.%fZ}")
