"""Tests of the layer between SQLite and the file system: it misses nothing, adds nothing, and reports syncs as the kernel does."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.lab.sqlite_vfs import (
    BUSY,
    FULL,
    IOERR_FSYNC,
    IOERR_READ,
    IOERR_WRITE,
    OK,
    Call,
    Event,
    Opened,
    Unobservable,
    WatchedFolder,
    library,
)
from faults.suites.power_images import Disk

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    library()
except Unobservable as reason:
    pytestmark = pytest.mark.skip(reason=str(reason))

CHECKOUT = Path(__file__).parents[2]


def in_wal_mode(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def failing(call: Call, code: int) -> Callable[[Call, str], int]:
    return lambda asked, _: code if asked is call else OK


def test_what_was_recorded_is_byte_for_byte_what_is_on_the_disk(tmp_path: Path) -> None:
    disk = Disk()
    with WatchedFolder(tmp_path, observer=disk.take), closing(in_wal_mode(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(str(number) * 500,) for number in range(40)])
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute("DELETE FROM t WHERE a > '2'")

        recorded = disk.now()
        found = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}

    assert recorded == found
    assert set(found) == {"a.db", "a.db-wal"}


def test_a_file_of_another_folder_is_neither_seen_nor_failed(tmp_path: Path) -> None:
    events: list[Event] = []
    (tmp_path / "watched").mkdir()
    with (
        WatchedFolder(tmp_path / "watched", observer=events.append, fault=failing(Call.WRITE, FULL)),
        closing(in_wal_mode(tmp_path / "other.db")) as connection,
    ):
        connection.execute("CREATE TABLE t (a TEXT)")

    assert events == []


@pytest.mark.parametrize(
    ("call", "code", "name"),
    [
        (Call.WRITE, FULL, "SQLITE_FULL"),
        (Call.WRITE, IOERR_WRITE, "SQLITE_IOERR_WRITE"),
        (Call.SYNC, IOERR_FSYNC, "SQLITE_IOERR_FSYNC"),
        (Call.READ, IOERR_READ, "SQLITE_IOERR_READ"),
        (Call.LOCK, BUSY, "SQLITE_BUSY"),
    ],
)
def test_sqlite_answers_with_the_error_that_the_disk_gave(tmp_path: Path, call: Call, code: int, name: str) -> None:
    with closing(in_wal_mode(tmp_path / "a.db")) as before:
        before.execute("CREATE TABLE t (a TEXT)")

    with (
        WatchedFolder(tmp_path, fault=failing(call, code), hurry=True),
        pytest.raises(sqlite3.OperationalError) as caught,
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection,
    ):
        connection.execute("INSERT INTO t VALUES ('x')")

    assert caught.value.sqlite_errorname == name


def test_an_exception_of_the_observer_is_raised_at_the_end(tmp_path: Path) -> None:
    def broken(event: Event) -> None:
        if event == Opened("a.db"):
            raise LookupError(event.name)

    def use() -> None:
        with WatchedFolder(tmp_path, observer=broken), contextlib.suppress(sqlite3.Error):
            sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (a TEXT)")

    with pytest.raises(LookupError, match=r"a\.db"):
        use()


def test_an_open_connection_is_reported(tmp_path: Path) -> None:
    left = []
    with pytest.raises(RuntimeError, match=r"still open in SQLite: \['a.db'\]"), WatchedFolder(tmp_path):
        left.append(sqlite3.connect(tmp_path / "a.db"))
    left[0].close()


def syncs_in(trace: str, folder: Path) -> list[str]:
    """Return the names of the files that the kernel synced, in order; "" for the folder itself."""
    synced = []
    for line in trace.splitlines():
        if "sync(" not in line:  # the end of a call that began on another line
            continue
        path = Path(line.partition("<")[2].partition(">")[0])
        if folder in (path, path.parent):
            synced.append("" if path == folder else path.name)
    return synced


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (.ci/run installs it)")
def test_what_is_called_synced_is_what_the_kernel_was_asked_to_sync(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    trace = tmp_path / "trace"
    program = (sys.executable, "-m", "faults.suites.power_traced", "syncs", str(folder))
    strace = ("strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace))

    done = subprocess.run((*strace, *program), cwd=CHECKOUT, capture_output=True, text=True, timeout=50, check=True)

    said = json.loads(done.stdout)
    asked = syncs_in(trace.read_text(), folder)
    assert said == asked[asked.index("ledger.db-journal") :]  # the audit's key was synced before it
    assert said.count("") >= 2  # the first sync of a journal and of the WAL also syncs the folder
