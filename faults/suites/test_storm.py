"""Tests of a hundred kills and a dozen stops in every run; `python -m faults.suites.storm --budget nightly` runs thousands."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import sqlite3
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import aiohttp
import pytest

from faults.harness.fork_server import Order, fork_server, living
from faults.harness.rig import Deal, eventually
from faults.report.reports import FOLDER_VARIABLE, Report, keep, keep_in
from faults.suites import storm_facts
from faults.suites.storm import KILLS, STOPS, STORMS, ended_with_their_bots, main, one_storm
from faults.suites.storm_traffic import History

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.takes(30)
@pytest.mark.waits
@pytest.mark.parametrize("seed", range(1, 1 + STORMS["change"]))
async def test_a_bot_killed_and_stopped_at_random_loses_nothing_and_doubles_nothing(seed: int) -> None:
    report = await one_storm(seed)
    keep(report)
    assert report.violations == ()
    assert (report.counts["kills"], report.counts["stops"]) == (KILLS, STOPS)
    assert report.counts["takeovers"] + report.counts["continued"] == STOPS
    assert report.counts["acknowledged"] > 0
    assert report.counts["duplicates"] > 0


def test_change_budget_makes_100_kills_and_the_nightly_budget_5000() -> None:
    assert STORMS["change"] * KILLS >= 100
    assert STORMS["nightly"] * KILLS >= 5_000
    assert STORMS["nightly"] * STOPS >= 500


async def test_fork_server_child_has_its_own_session_and_only_the_given_environment(tmp_path: Path) -> None:
    async with fork_server(tmp_path / "zygote.txt") as mother:
        version = await mother.spawn(Order(("--version",), {}, str(tmp_path / "version.log")))
        unset = await mother.spawn(Order(("run",), {"QUOTEBOT_DATA_DIR": str(tmp_path)}, str(tmp_path / "run.log")))
        assert [await version.wait(), await unset.wait()] == [0, 78]
        paused = await mother.spawn(Order((), {}, str(tmp_path / "paused.log"), "signal:pause"))
        await eventually(lambda: os.getsid(paused.pid) == paused.pid, "it to have a session of its own")
        paused.signal(signal.SIGKILL)
        assert await paused.wait() == -signal.SIGKILL
    assert (tmp_path / "version.log").read_text().strip()
    assert "SLACK_BOT_TOKEN is missing" in (tmp_path / "run.log").read_text()


async def test_all_children_end_with_the_fork_server_even_stopped_ones(tmp_path: Path) -> None:
    async with fork_server(tmp_path / "zygote.txt") as mother:
        pids = [(await mother.spawn(Order((), {}, str(tmp_path / "log"), "signal:pause"))).pid for _ in range(2)]
        os.kill(pids[0], signal.SIGSTOP)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="the zygote has ended"):
        await mother.spawn(Order((), {}, str(tmp_path / "log")))


async def test_fork_server_survives_a_client_killed_before_reading_its_answer(tmp_path: Path) -> None:
    async with fork_server(tmp_path / "zygote.txt") as mother:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(mother.place)
            caller.sendall(json.dumps(asdict(Order((), {}, str(tmp_path / "log"), "signal:pause"))).encode() + b"\n")
            await asyncio.to_thread(select.select, [caller], [], [])  # the answer is there, and is not read
        again = await mother.spawn(Order(("--version",), {}, str(tmp_path / "version.log")))
        assert await again.wait() == 0
    assert (tmp_path / "zygote.txt").read_text() == ""


def leave_a_child_behind() -> None:
    """Run as a bot whose child does not notice its end."""
    if os.fork() == 0:
        signal.pause()


async def test_process_that_outlives_its_bot_is_reported_and_ended(tmp_path: Path) -> None:
    async with fork_server(tmp_path / "zygote.txt") as mother:
        alone = await mother.spawn(Order(("--version",), {}, str(tmp_path / "alone.log")))
        survived = await mother.spawn(Order((), {}, str(tmp_path / "bot.log"), f"{__name__}:leave_a_child_behind"))
        assert [await alone.wait(), await survived.wait()] == [0, 0]
        bots = {alone.pid: "bot-0001", survived.pid: "bot-0002"}
        assert {process.session for process in living(bots)} == {survived.pid}
        (told,) = await ended_with_their_bots(bots, seconds=0.0)
        assert told.startswith("a process of bot-0002 outlived it")
        await eventually(lambda: not living(bots), "it to be gone")


async def test_lost_duplicated_and_unrequested_quotes_are_reported(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.executescript(
            "CREATE TABLE quotes (quote_id, account); CREATE TABLE one_time_tokens (token, quote_id); "
            "CREATE TABLE operations (action_kind, aggregate_id, state); "
            "INSERT INTO quotes VALUES ('Q-1', 'twice'), ('Q-2', 'twice'), ('Q-3', 'again'), ('Q-4', 'again'), ('Q-5', 'once'); "
            "INSERT INTO one_time_tokens VALUES ('unclicked', 'Q-4'); "
            "INSERT INTO operations VALUES ('quote.submit', 'Q-5', 'completed')"
        )
    history = History(
        customers={"once", "lost"},
        changes={("quote.submit", "Q-5"), ("quote.submit", "Q-3")},
        tokens={"kept"},
        kept_tokens={"kept"},
    )
    async with aiohttp.ClientSession() as session:
        found = await storm_facts.promises_broken(Deal("", tmp_path, session), history)
    assert found == [
        "the acknowledged quote for lost is lost",
        "twice has 2 quotes and asked for 1",
        "an acknowledged Create another (kept) is lost",
        "nobody clicked the Create another (unclicke) that was used",
        "the acknowledged quote.submit of Q-3 is lost",
    ]


def test_giving_up_for_anything_but_three_crashes_is_reported() -> None:
    row = {"what": "effect slack.post", "id": 7, "category": "poison", "last_error": "died", "deaths": 3}
    assert storm_facts.given_up_against_the_rules([row]) == []
    early, other = {**row, "deaths": 2}, {**row, "category": "transient"}
    assert len(storm_facts.given_up_against_the_rules([early, other])) == 2


def test_locked_database_and_a_traceback_are_found_in_the_logs(tmp_path: Path) -> None:
    (tmp_path / "bot-0001.log").write_text('{"event": "effect.delivered"}\n{"event": "x", "error": "database is locked"}\n')
    (tmp_path / "bot-0002.log").write_text("Traceback (most recent call last):\n  somewhere\n")
    assert [line.partition(" says")[0] for line in storm_facts.in_logs(tmp_path)] == ["bot-0001.log", "bot-0002.log"]


def test_finished_storm_seeds_are_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)  # no storm of these tests
    for seed in range(7, 7 + STORMS["change"]):
        keep_in(tmp_path, Report("storm", {"kills": KILLS, "stops": STOPS}, seeds=(seed,)))
    assert main(["--budget", "change", "--seed", "7", "--resume", str(tmp_path)]) == 0
    assert "100 kills and 12 stops" in capsys.readouterr().out
