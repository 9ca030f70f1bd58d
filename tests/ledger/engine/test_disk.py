"""Tests of a full or failing disk: the results of the callers, the surviving rows, and the use of the ballast."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import NotRecorded
from ledger.sqlite.ballast import Ballast
from ledger.sqlite.wal import Wal
from tests.ledger.engine.parts import SqliteEngine, emitting, ended, open_book, start
from tests.ledger.parts import START_MS, note, notes, open_shell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.database import Tx
    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import ManualClock

SMALL = 64 * 1024
OWN_TMPFS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4m none "$0" && exec "$@"')


def over_full(ran: list[str], *, swallow: bool = False) -> Callable[[Tx], str]:
    """Return work that writes more than the file may hold, at every run."""

    def work(tx: Tx) -> str:
        ran.append("big")
        tx.one("stop_growing")
        try:
            tx.one("big_note", text="big")
        except sqlite3.OperationalError:
            if not swallow:
                raise
        return "big"

    return work


def counted(ran: list[str], text: str) -> Callable[[Tx], str]:
    def work(tx: Tx) -> str:
        ran.append(text)
        return note(text)(tx)

    return work


async def test_first_full_disk_frees_the_ballast_and_runs_the_batch_again(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock, ballast_bytes=SMALL)
    ran: list[str] = []
    works = [counted(ran, "a"), over_full(ran), counted(ran, "b")]
    told = await asyncio.gather(*(book.write("note", work) for work in works), return_exceptions=True)
    assert ran == ["a", "big", "a", "big", "a", "b"], (
        "with the ballast gone all ran again; then the one that still did not fit fell out"
    )
    assert told[0::2] == ["a", "b"]
    assert isinstance(told[1], NotRecorded)
    assert (book.health.ballast, book.health.full_since, book.health.broken) == (False, START_MS, None)
    shell = open_shell(path)
    assert notes(shell) == ["a", "b"]
    shell.close()
    await book.close()


async def test_a_full_disk_while_finishing_fails_the_batch_and_the_file_stays_usable(path: Path, clock: ManualClock) -> None:
    def finish(tx: Tx, events: Sequence[Any]) -> None:
        tx.one("stop_growing" if "b" in events else "grow_again")
        tx.many("blob", [{"text": "chain", "size": 50_000}])

    book = await open_book(path, clock, finish=finish)
    told = await asyncio.gather(*(book.write("note", emitting(text)) for text in "ab"), return_exceptions=True)
    assert [type(end) for end in told] == [NotRecorded, NotRecorded]
    assert "database or disk is full" in str(told[0])
    assert await book.write("note", emitting("c")) == "c"
    assert book.health.broken is None
    shell = open_shell(path)
    assert notes(shell) == ["c", "chain" + "0" * 15]
    shell.close()
    await book.close()


async def test_a_member_alone_that_meets_a_full_disk_leaves_nothing(book: SqliteDatabase, path: Path) -> None:
    ran: list[str] = []
    for swallow in (False, True):
        with pytest.raises(NotRecorded, match=r"note was not recorded \(database or disk is full\)"):
            await book.write("note", over_full(ran, swallow=swallow))
    await book.write("grow", lambda tx: tx.one("grow_again"))
    assert await book.write("note", note("fits")) == "fits"
    shell = open_shell(path)
    assert notes(shell) == ["fits"]
    shell.close()


async def own_disk(checkout: Path, folder: Path, ballast: int, wal: str = "in use") -> dict[str, Any]:
    """Fill a disk of 4 MiB that exists only for one process; skip if such a disk cannot be made."""
    folder.mkdir()  # noqa: ASYNC240 -- a test may wait for its own folder
    probe = await asyncio.create_subprocess_exec(*OWN_TMPFS, str(folder), "true", stderr=asyncio.subprocess.PIPE)
    _, refusal = await probe.communicate()
    if probe.returncode:
        pytest.skip(f"this machine does not let a process mount a disk of its own: {refusal.decode().strip()}")
    inside = (*OWN_TMPFS, str(folder))
    (out,) = await ended(await start(checkout, "fill_the_disk", str(folder / "ledger.db"), str(ballast), wal, inside=inside))
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("wal", ["in use", "checkpointed"])
async def test_full_disk_reports_what_was_not_recorded_and_the_file_stays_sound(wal: str, checkout: Path, tmp_path: Path) -> None:
    steps = await own_disk(checkout, tmp_path / "disk", 0, wal)
    assert "the disk is full (database or disk is full); nothing was recorded" in steps["error"]
    assert (steps["broken"], steps["ballast"], steps["remade"]) == (None, False, False)
    assert steps["after"] == "after"
    assert steps["read"] == steps["recorded"] + 1, "all three of a batch or none; and nothing twice"
    assert "The ledger cannot be opened" in steps["restart"]
    assert steps["check"] == "ok"


async def test_ballast_lets_a_full_disk_record_more_and_is_rebuilt_when_there_is_room(checkout: Path, tmp_path: Path) -> None:
    steps = await own_disk(checkout, tmp_path / "disk", 1024 * 1024)
    assert steps["ballast"] is True
    assert steps["recorded when the ballast went"] < steps["recorded"], "the batch that met the full disk was recorded, and more"
    assert (steps["full"], steps["ballast left"], steps["broken"]) == (START_MS, False, None)
    assert steps["restart"] == "restarted", "a start on a full disk takes the ballast's room"
    assert (steps["remade too early"], steps["remade"], steps["full at last"]) == (False, True, None)
    assert steps["read"] == steps["recorded"] + 1
    assert steps["check"] == "ok"


async def test_an_input_output_error_inside_a_batch_records_nobody_and_ends_all_writing(sqlite_engine: SqliteEngine) -> None:
    (out,) = await ended(await sqlite_engine.start("fail_a_statement"))
    told = json.loads(out)
    assert {name: kind for name, (kind, _) in told.items()} == {
        "a": "NotRecorded",
        "huge": "NotRecorded",
        "b": "WritesRefused",
        "later": "WritesRefused",
    }
    assert "huge met an error of the disk (disk I/O error): the file may be damaged." in told["a"][1]
    assert sqlite_engine.seen() == []


def test_the_ballast_is_made_of_real_blocks_for_its_owner_alone(path: Path) -> None:
    ballast = Ballast(path, SMALL)
    assert not ballast.is_there()
    assert ballast.make(0.0)
    file = path.with_name("ledger.db.ballast").stat()
    assert (file.st_size, file.st_blocks * 512 >= SMALL, file.st_mode & 0o777) == (SMALL, True, 0o600)
    assert ballast.free(0.0)
    assert not ballast.free(0.0), "it is given up once"


@pytest.mark.parametrize(("passed", "there"), [(59.9, False), (60.0, True)])
def test_the_ballast_comes_back_no_sooner_than_a_minute_after(path: Path, passed: float, *, there: bool) -> None:
    ballast = Ballast(path, SMALL)
    ballast.make(0.0)
    ballast.free(1000.0)
    assert ballast.make(1000.0 + passed) is there
    assert ballast.is_there() is there


def test_a_ballast_the_disk_has_no_room_for_is_not_made(path: Path) -> None:
    ballast = Ballast(path, 1 << 60)
    assert not ballast.make(0.0)
    assert not ballast.is_there()


def test_no_ballast_is_kept_unless_asked_for(path: Path) -> None:
    ballast = Ballast(path, 0)
    assert (ballast.wanted, ballast.make(0.0), ballast.free(0.0)) == (False, False, False)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, True), ({"checkpoints": False}, True), ({"checkpoints": False, "may_migrate": False}, False)],
    ids=["a bot", "a cli without a bot", "a cli beside a bot"],
)
async def test_opening_a_crashed_bots_ledger_rewrites_its_wal_unless_a_bot_is_running(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], *, expected: bool
) -> None:
    book = await open_book(path, clock)
    await book.write("note", note("kept"))
    left = path.parent / "left" / path.name
    left.parent.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{left}{ending}")
    await book.close()
    log = left.with_name(f"{left.name}-wal")
    written: list[bytes] = []
    again = Wal.write_again

    def noting(wal: Wal) -> None:
        written.append(log.read_bytes())
        again(wal)
        assert log.read_bytes() == written[-1]

    monkeypatch.setattr(Wal, "write_again", noting)
    book = await open_book(left, clock, **options)
    assert [bool(content) for content in written] == [True] * expected
    assert await book.read(lambda tx: [row["text"] for row in tx.all("notes")]) == ["kept"]
    await book.close()


async def test_a_failed_commit_is_unknown_to_all_in_it_and_the_last_of_its_process(sqlite_engine: SqliteEngine) -> None:
    (out,) = await ended(await sqlite_engine.start("fail_a_commit"))
    assert json.loads(out) == {"a": "OutcomeUnknown", "b": "OutcomeUnknown", "later": "WritesRefused"}
    book = await sqlite_engine.open()
    assert await book.write("note", note("restarted")) == "restarted"
    assert sqlite_engine.seen()[-1] == "restarted"
    await book.close()
