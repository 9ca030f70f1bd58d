"""Tests that a backup is a complete snapshot of one moment, and that an incomplete one is never accepted."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import stat
from collections.abc import Callable  # noqa: TC003 -- used in a table of tests
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.operator.backup import (
    Backup,
    BackupError,
    Proof,
    Source,
    back_up,
    backup_at,
    backups_in,
    keep_newest,
    own_backups,
    text_of,
    verify,
)
from ledger.sqlite.disk import Disk
from tests.ledger.parts import KEYRING, MIGRATIONS, START_MS, STATEMENTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.parts import Desk

HOUR = 3_600_000
PROOF = Proof(KEYRING, STATEMENTS, MIGRATIONS)
STRAY = """
INSERT INTO effects (
  effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload, next_attempt_at, aged_from, created_at,
  updated_at)
VALUES (hex(randomblob(32)), 99, 'x', 'append', 'x', 'x', 'x', '{}', 1, 1, 1, 1)
"""


def made(path: Path, folder: Path, now_ms: int = START_MS, disk: Disk | None = None, pages: int = 256) -> Backup:
    return back_up(Source(path, PROOF, KEYRING, "test", pages), folder, now_ms, disk=disk)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def engine_name() -> str:
    """Return the engine whose ledger is a file."""
    return "sqlite"


@pytest.fixture
async def backup(desk: Desk, path: Path, tmp_path: Path) -> Backup:
    for number in range(3):
        await desk.reserve(f"r{number}")
    return await asyncio.to_thread(made, path, tmp_path / "backups")


async def test_a_backup_is_one_private_file_with_a_manifest_that_says_what_it_holds(backup: Backup, path: Path) -> None:
    assert files(backup.path.parent) == ["ledger-20270115T080000Z.db", "ledger-20270115T080000Z.json"]
    assert {stat.S_IMODE(found.stat().st_mode) for found in backup.path.parent.iterdir()} == {0o600}
    manifest = backup.manifest
    assert (manifest.tables["operations"], manifest.last_event_id, manifest.generation, manifest.build) == (3, 3, 1, "test")
    assert backup_at(backup.path) == backup == backups_in(backup.path.parent)[0]
    with closing(sqlite3.connect(path)) as ledger:
        assert ledger.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone() == (manifest.ledger_id,)
    verify(backup, PROOF, KEYRING)


async def test_what_is_committed_while_it_is_copied_neither_waits_nor_tears_it(desk: Desk, path: Path, tmp_path: Path) -> None:
    for number in range(20):
        await desk.reserve(f"before{number}")
    copying = asyncio.create_task(asyncio.to_thread(made, path, tmp_path / "backups", pages=1))  # a large file in small
    written = 0
    while not copying.done():
        await desk.reserve(f"meanwhile{written}")
        written += 1
    backup = await copying
    assert written > 5
    assert 20 <= backup.manifest.tables["operations"] < 20 + written
    assert backup.manifest.tables["deliveries"] == backup.manifest.tables["operations"] == backup.manifest.last_event_id


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-4096]), "the checksum differs"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"as discussed", b"as discusseD")), "the checksum differs"),
    ],
    ids=["cut short", "changed"],
)
async def test_a_backup_that_changed_is_refused_with_what_is_wrong(backup: Backup, harm: Callable[[Path], Any], words: str) -> None:
    harm(backup.path)
    with pytest.raises(BackupError, match=words):
        verify(backup, PROOF, KEYRING)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE audit_heads SET seq = seq + 1, event_id = event_id + 1", "its audit is not whole"),
        ("DELETE FROM deliveries", "other numbers of rows"),
        (STRAY, "effects has rows that refer to nothing"),
        ("PRAGMA application_id = 1", "it is not a Quotebot ledger"),
    ],
)
async def test_a_copy_whose_rows_are_wrong_is_refused_even_with_the_right_checksum(
    backup: Backup, statement: str, words: str
) -> None:
    with closing(sqlite3.connect(backup.path, isolation_level=None)) as copy:
        copy.execute(statement)
    beside = backup.path.with_suffix(".json")
    content = backup.path.read_bytes()
    manifest = replace(backup.manifest, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    beside.write_text(text_of(manifest.signed(KEYRING)), "utf-8")
    with pytest.raises(BackupError, match=words):
        verify(backup_at(backup.path), PROOF, KEYRING)


class DeadDisk(Disk):
    """Disk steps of a process that dies before the `step`-th one."""

    def __init__(self, step: int) -> None:
        self.left = step

    def passes(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1

    def create(self, path: Path) -> None:
        self.passes()
        super().create(path)

    def sync(self, path: Path) -> None:
        self.passes()
        super().sync(path)

    def rename(self, path: Path, to: Path) -> None:
        self.passes()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        if self.left:  # a dead process cleans nothing up
            super().remove(path)


async def test_crash_at_any_step_leaves_no_partial_backup_and_the_next_backup_cleans_up(
    desk: Desk, path: Path, tmp_path: Path
) -> None:
    await desk.reserve("r1")
    step, deaths = 0, 0
    while True:
        folder = tmp_path / str(step)
        try:
            await asyncio.to_thread(made, path, folder, disk=DeadDisk(step))
        except KeyboardInterrupt:
            deaths += 1
        else:
            break
        for found in backups_in(folder):
            verify(found, PROOF, KEYRING)
        await asyncio.to_thread(made, path, folder, START_MS + HOUR)
        assert "ledger-20270115T090000Z.json" in files(folder)
        assert [name for name in files(folder) if name.endswith(".partial")] == []
        assert len(files(folder)) == 2 * len(backups_in(folder))
        step += 1
    assert deaths >= 6


async def test_old_backups_go_and_the_newest_stay(backup: Backup, path: Path) -> None:
    folder = backup.path.parent
    for hour in range(1, 4):
        await asyncio.to_thread(made, path, folder, START_MS + hour * HOUR)
    removed = keep_newest(own_backups(folder, backup.manifest.ledger_id, KEYRING), 2)
    assert [found.path.name for found in backups_in(folder)] == ["ledger-20270115T110000Z.db", "ledger-20270115T100000Z.db"]
    assert sorted(found.name for found in removed) == ["ledger-20270115T080000Z.db", "ledger-20270115T090000Z.db"]
    assert len(files(folder)) == 4


async def test_two_backups_of_one_second_have_names_of_their_own(backup: Backup, path: Path) -> None:
    again = await asyncio.to_thread(made, path, backup.path.parent)
    assert again.path.name == "ledger-20270115T080000Z-2.db"
    assert len(backups_in(backup.path.parent)) == 2


async def test_a_disk_that_refuses_leaves_the_earlier_backups_and_says_so(backup: Backup, path: Path) -> None:
    class Full(Disk):
        def sync(self, path: Path) -> None:
            raise OSError(28, "No space left on device", str(path))

    with pytest.raises(BackupError, match=r"No space left on device.*The ledger is as it was, and earlier backups are untouched"):
        await asyncio.to_thread(made, path, backup.path.parent, START_MS + HOUR, Full())
    assert backups_in(backup.path.parent) == [backup]
    assert len(files(backup.path.parent)) == 2
