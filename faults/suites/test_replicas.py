"""Tests of faults of replicas under load; `python -m faults.suites.replicas --budget nightly` runs a hundred of each kind."""

from __future__ import annotations

import os
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from faults.cluster import load
from faults.cluster.journal import Journal, Line
from faults.cluster.load import ONCE
from faults.cluster.replicas import StandstillError
from faults.report.reports import Report, keep_as
from faults.suites import replicas
from faults.suites.replicas import ALONE, FAILOVER, GONE, KILLED, LEASE_SECONDS, STOPPED, Chunk, Stage, chunks_of, main, run_chunk
from ledger.audit.events import Keyring
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.takes(40)
@pytest.mark.timeout(400)
def test_work_of_a_disturbed_replica_runs_elsewhere_and_nothing_twice() -> None:
    if find_programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no PostgreSQL server is installed")
    report = run_chunk(Chunk(1, ALONE, timed=False))
    assert report.violations == ()
    assert report.counts["rows taken over"] >= len(ALONE)


def test_the_long_run_has_a_hundred_faults_of_each_kind() -> None:
    chunks = chunks_of("nightly", 1)
    kinds = Counter((kind, chunk.lease_seconds == LEASE_SECONDS) for chunk in chunks for kind in chunk.kinds)
    assert kinds == {(KILLED, True): 100, (GONE, True): 100, (STOPPED, False): 95, (STOPPED, True): 5, (FAILOVER, False): 13}
    assert all(chunk.timed for chunk in chunks)
    assert len({chunk.name for chunk in chunks}) == len(chunks)


def test_a_resumed_run_of_replicas_leaves_out_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chunk(asked: Chunk) -> Report:
        ran.append(asked.name)
        return Report("replicas", {"replicas killed": 1}, ("lost",), (), (asked.seed,), 1.0, {"pause_of_another_ms": (5.0,)})

    ran: list[str] = []
    monkeypatch.setattr(replicas, "run_chunk", chunk)
    asked = ["--seed", "7", "--faults", "killed", "--resume", str(tmp_path)]
    assert main(asked) == main(asked) == 1
    assert ran == ["replicas-7-4-1"]
    assert "pause of another: 5 ms\n1 replicas killed, 1 s: 1 violations" in capsys.readouterr().out
    keep_as(tmp_path, "replicas-8-4-1", Report("replicas", {"replicas killed": 1}))
    assert main(["--seed", "8", *asked[2:]]) == 0


@pytest.mark.parametrize("kinds", ["lost", "failover,killed"])
def test_faults_that_cannot_be_run_together_are_refused(kinds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--faults", kinds])
    assert "--faults takes some of killed, stopped, gone, or failover alone" in capsys.readouterr().err


def test_a_journal_is_read_as_far_as_its_lines_are_whole(tmp_path: Path) -> None:
    ours, theirs = Journal(tmp_path / "journal", "a"), Journal(tmp_path / "journal")
    ours.write("up", 3)
    with (tmp_path / "journal").open("ab") as file:
        file.write(b"1.5 b 7 call 12")
    assert [(line.name, line.event, line.what) for line in theirs.follow()] == [("a", "up", "3")]
    with (tmp_path / "journal").open("ab") as file:
        file.write(b" Q-1\n")
    theirs.follow()
    assert [(line.at, line.pid, line.key) for line in theirs.of("call")] == [(1.5, 7, "Q-1")]
    assert list(theirs.of("call", since=2.0)) == []
    ours.close()
    theirs.close()


def test_what_the_ledger_lost_or_did_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        """A ledger with one command that is whole, one that was executed twice, and one whose message was not sent."""

        def one(self, _name: str, operation_key: str) -> object:
            return None if operation_key == "lost" else {}

        def all(self, _name: str, aggregate_id: str, limit: int) -> list[dict[str, str]]:
            assert limit > len(ONCE) + 1
            return [{"event_type": each} for each in (*ONCE, *(["operation.applied"] if aggregate_id == "twice" else []))]

    monkeypatch.setattr(load, "verify_within", lambda *_, **__: SimpleNamespace(finding=None))
    acknowledged = {name: name for name in ("whole", "lost", "twice", "unsent")}
    assert load.wrong(cast("Any", Found()), acknowledged, Counter(whole=1, twice=2), Keyring.of(b"k" * 32)) == [
        "the acknowledged command of lost is lost",
        "twice has 2 events operation.applied",
        "the message of unsent was not sent",
        "the message of twice was sent 2 times",
    ]
    monkeypatch.setattr(load, "verify_within", lambda *_, **__: SimpleNamespace(finding="changed"))
    assert load.wrong(cast("Any", Found()), {}, Counter(), Keyring.of(b"k" * 32)) == ["the audit does not verify: changed"]


@pytest.mark.parametrize(("timed", "violations"), [(True, 5), (False, 0)])
def test_only_the_long_run_judges_how_long_it_took(*, timed: bool, violations: int) -> None:
    stage = Stage(Chunk(1, ALONE, lease_seconds=4, timed=timed))
    for kind, seconds in ((KILLED, 5.0), (KILLED, 5.1), (GONE, 15.1), (STOPPED, 14.0), (STOPPED, 14.1)):
        stage._note_takeover(kind, seconds)
    stage._replicas = cast("Any", SimpleNamespace(by=lambda *_, **__: [Line(time.monotonic(), "b", 1, "acknowledged", "Q-1", "k")]))
    stage._note_pause("b", time.monotonic() - 60)
    for seconds in (2.0, 2.1):
        stage._note_gap(seconds)
    assert len(stage.violations) == violations
    assert stage.samples["work_of_a_replica_killed_taken_over_ms"] == [5000, 5100]


def test_a_run_that_stands_still_is_a_violation_with_the_command_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def disturb(*_: object) -> None:
        raise StandstillError("nobody took over")

    monkeypatch.setattr(replicas, "_disturb", disturb)
    assert run_chunk(Chunk(5, (KILLED, GONE))).violations == (
        "nobody took over (repeat: python -m faults.suites.replicas --seed 5 --lease 4 --faults killed,gone)",
    )
