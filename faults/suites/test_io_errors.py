"""Tests of a disk that fails at any call, once or from then on: every answer is true, and the next start finishes everything."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from faults.lab.sqlite_vfs import Unobservable, WatchedFolder, Wrote, library
from faults.report.reports import keep
from faults.suites.io_errors import KINDS, MODES, TASKS, Bench, KthCall, Trial, cut_offs, main, trials
from faults.suites.power import BALLAST
from faults.suites.power_workload import FILE_NAME, TickingClock, audit_of, run_to_end
from ledger.database import DatabaseError
from ledger.sqlite.ballast import BALLAST_BYTES
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from faults.lab.sqlite_vfs import Event

try:
    library()
except Unobservable as reason:
    pytestmark = pytest.mark.skip(reason=str(reason))


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(trial, id=trial.name, marks=pytest.mark.takes(4 if TASKS[trial.task][1] else 11))  # migrations take long
        for trial in trials("change")
    ],
)
def test_io_error_in_any_call_leaves_every_answer_true(trial: Trial) -> None:
    report = trial.run()

    keep(report)
    assert report.violations == ()
    assert report.counts["I/O errors"] >= 5
    assert report.counts["production starts"] >= 1


def test_every_kind_of_error_is_tried_once_and_for_good() -> None:
    assert {(trial.kind, trial.mode) for trial in trials("change")} == {(kind, mode) for kind in KINDS for mode in MODES}
    assert len(KINDS) == 5


def writes_of(events: Sequence[Event]) -> list[tuple[str, int, int]]:
    return [(event.name, event.offset, len(event.content)) for event in events if isinstance(event, Wrote) and not event.again]


def test_resumed_first_start_makes_the_same_writes_as_an_uninterrupted_one(tmp_path: Path) -> None:
    bench = Bench(Trial("first start", "FULL", "once"), tmp_path)
    whole = bench.record({})

    begun = cut_offs(whole, tmp_path / "cut off")

    assert len(begun) == 1 + len(schema_and_statements()[0])
    for cut_off in begun:
        assert writes_of(bench.record(cut_off.left)) == writes_of(whole)[cut_off.writes :]


def test_one_error_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--task", "errand", "--kind", "FULL", "--mode", "sticky", "--only", "30"])

    assert status == 0
    assert "1 I/O errors" in capsys.readouterr().out


async def start(folder: Path) -> None:
    database = await SqliteStorage(folder / FILE_NAME, *schema_and_statements()).open(audit_of(folder), TickingClock(), bot=True)
    await database.close()


def test_a_start_that_cannot_read_the_file_says_so_in_words(tmp_path: Path) -> None:
    run_to_end(start(tmp_path))

    with WatchedFolder(tmp_path, fault=KthCall(*KINDS["IOERR_READ"], 1, sticky=True)), pytest.raises(DatabaseError):
        run_to_end(start(tmp_path))


def test_a_ledger_that_opened_is_in_wal_mode_even_if_the_disk_failed_amid_the_change(tmp_path: Path) -> None:
    with (tmp_path / BALLAST).open("wb") as ballast:  # as after a restore: the file is not in WAL mode yet, the ballast is there
        ballast.truncate(BALLAST_BYTES)

    with WatchedFolder(tmp_path, fault=KthCall(*KINDS["IOERR_FSYNC"], 1, sticky=False)), contextlib.suppress(DatabaseError):
        run_to_end(start(tmp_path))
        assert (tmp_path / FILE_NAME).read_bytes()[18:20] == b"\2\2"  # the file's own version bytes (sqlite.org/fileformat.html)
