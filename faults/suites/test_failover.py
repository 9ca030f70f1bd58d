"""Tests of failovers under load; `python -m faults.suites.failover --budget nightly` runs two hundred."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from faults.cluster.servers import KINDS
from faults.report.reports import Report, keep_as
from faults.suites import failover
from faults.suites.failover import kinds_of, main, run_chunk
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.takes(30)
@pytest.mark.timeout(600)
async def test_failovers_lose_and_repeat_nothing_and_need_no_restart() -> None:
    if find_programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no PostgreSQL server is installed")
    report = await run_chunk(1, ("cut after COMMIT", "swallowed", "killed"))
    assert report.violations == ()
    assert report.counts["failovers"] == 3
    assert report.counts["commits without an answer"] >= 1


def test_a_chunk_has_each_kind_before_any_a_second_time() -> None:
    assert sorted(kinds_of(1, 5)) == sorted(kinds_of(2, 10)[:5]) == sorted(KINDS)
    assert kinds_of(3, 20) == kinds_of(3, 20)


def test_a_resumed_run_leaves_out_what_is_there_and_reports_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def chunk(seed: int, _kinds: object, _enough: int) -> Report:
        ran.append(seed)
        return Report("failover", {"failovers": 2}, ("failover 2: lost",), (), (seed,), 1.0, {"gap_ms": (5.0,)})

    ran: list[int] = []
    monkeypatch.setattr(failover, "run_chunk", chunk)
    monkeypatch.setattr(failover, "CHUNK", 2)
    keep_as(tmp_path, "failover-1-2", Report("failover", {"failovers": 2}))
    assert main(["--failovers", "4", "--resume", str(tmp_path)]) == 1
    assert ran == [2]
    assert "4 failovers in 1 s" in capsys.readouterr().out
    assert main(["--failovers", "4", "--resume", str(tmp_path)]) == 1
    assert ran == [2]
