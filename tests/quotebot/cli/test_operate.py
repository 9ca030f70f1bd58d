"""Tests of pausing and resuming classes of effects from the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

STATE = "SELECT name, state, cause, reason, held_by FROM gates"


def test_a_class_is_paused_listed_and_resumed(command: Run, dead: Path) -> None:
    done = command("pause", "crm", "--reason", "org migration", "--as", "ops@example.com")
    assert (done.returncode, done.stderr) == (0, "")
    assert "quotebot resume crm" in done.stdout
    (gate,) = [row for row in read_ledger(dead, STATE) if row["name"] == "crm"]
    assert dict(gate) == {
        "name": "crm",
        "state": "held",
        "cause": "operator",
        "reason": "org migration",
        "held_by": "ops@example.com",
    }

    printed = json.loads(command("gates", "--json").stdout)
    assert printed["schema_version"] == 1
    (held,) = [row for row in printed["gates"] if row["name"] == "crm"]
    assert (held["cause"], held["until_at"], held["waiting"]) == ("operator", None, 0)
    assert "org migration" in command("gates").stdout

    done = command("resume", "crm", "--as", "ops@example.com")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("crm resumed")
    types = [row["event_type"] for row in read_ledger(dead, "SELECT event_type FROM audit_events WHERE actor = 'ops@example.com'")]
    assert types[0] == "class.paused"
    assert set(types[1:]) == {"class.half_open"}


def test_gates_counts_what_waits(command: Run, dead: Path) -> None:
    command("pause", "crm", "--reason", "org migration")
    dead_letter = read_ledger(dead, "SELECT id FROM effects WHERE state = 'failed'")[0]["id"]
    command("replay", str(dead_letter), "--yes")
    (held,) = [row for row in json.loads(command("gates", "--json").stdout)["gates"] if row["name"] == "crm"]
    assert held["waiting"] == 1


def test_a_second_pause_changes_nothing(command: Run, dead: Path) -> None:
    command("pause", "slack.post", "--reason", "first")
    done = command("pause", "slack.post", "--reason", "second")
    assert (done.returncode, done.stdout) == (0, "")
    assert "held already" in done.stderr
    assert [row["reason"] for row in read_ledger(dead, STATE) if row["name"] == "slack.post"] == ["first"]


@pytest.mark.parametrize("arguments", [("pause", "crm.creat", "--reason", "x"), ("resume", "crm.creat")])
def test_a_name_that_is_none_is_refused_with_the_nearest_one(command: Run, dead: Path, arguments: tuple[str, ...]) -> None:
    before = [dict(row) for row in read_ledger(dead, STATE)]
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert "Did you mean crm.create?" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert [dict(row) for row in read_ledger(dead, STATE)] == before


def test_a_pause_without_words_is_a_usage_error(command: Run, dead: Path) -> None:
    done = command("pause", "crm", "--reason", " ")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Nothing was paused" in done.stderr
    assert dead.exists()


def test_resume_of_what_is_not_paused_changes_nothing(command: Run, dead: Path) -> None:
    before = read_ledger(dead, "SELECT count(*) AS n FROM audit_events")[0]["n"]
    done = command("resume", "pdf.render")
    assert (done.returncode, done.stdout) == (4, "")
    assert "is not paused; nothing was changed" in done.stderr
    assert read_ledger(dead, "SELECT count(*) AS n FROM audit_events")[0]["n"] == before


def test_an_operators_command_never_makes_a_ledger(command: Run, tmp_path: Path) -> None:
    for arguments in (
        ("resume", "crm.create"),
        ("pause", "crm.create", "--reason", "x"),
        ("gates",),
        ("dead", "list"),
        ("dead", "show", "1"),
        ("replay", "1"),
        ("trace", "op1"),
        ("why", "1"),
        ("ops", "list"),
        ("ops", "show", "op1"),
        ("ops", "cancel", "op1", "--reason", "x"),
        ("metrics",),
        ("slo",),
        ("ledger", "prune"),
    ):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (78, ""), arguments
        assert f"There is no ledger at {tmp_path / 'bot' / 'ledger.db'}" in done.stderr
    assert not (tmp_path / "bot").exists()
