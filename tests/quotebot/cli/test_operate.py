from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from adapters.policies import POLICIES
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run


def test_policy_prints_the_matrix_for_people(command: Run) -> None:
    done = command("policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert "crm.create" in done.stdout
    assert "500 ms..60" in done.stdout


def test_policy_prints_the_matrix_for_programs(command: Run) -> None:
    done = command("policy", "--json")
    printed = json.loads(done.stdout)
    assert (done.returncode, done.stderr, printed["schema_version"]) == (0, "", 1)
    rows = {row["class"]: row for row in printed["policies"]}
    assert set(rows) == set(POLICIES)
    assert rows["crm.create"] == {
        "class": "crm.create",
        "semantics": "keyed",
        "retries": 6,
        "backoff": "exp 500 ms..60 s",
        "jitter": "full",
        "timeout_seconds": 20,
        "max_age_seconds": 604_800,
    }


def test_resume_lets_a_paused_class_work_again_and_is_audited(command: Run, dead: Path) -> None:
    with closing(sqlite3.connect(dead)) as connection, connection:
        connection.execute("INSERT INTO pauses VALUES ('crm.create', 'login expired', 1, 'quotebot', NULL)")
    done = command("resume", "crm.create")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("crm.create resumed")
    assert read_ledger(dead, "SELECT 1 FROM pauses") == []
    (event,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'class.resumed'")
    assert (event["actor_type"], json.loads(event["after"])) == ("operator", {"class": "crm.create"})


def test_resume_of_what_is_not_paused_changes_nothing(command: Run, dead: Path) -> None:
    done = command("resume", "crm.create")
    assert (done.returncode, done.stdout) == (4, "")
    assert "is not paused; nothing was changed" in done.stderr
    assert read_ledger(dead, "SELECT 1 FROM audit_events WHERE event_type = 'class.resumed'") == []


def test_an_operators_command_never_makes_a_ledger(command: Run, tmp_path: Path) -> None:
    for arguments in (("resume", "crm.create"), ("dead", "list"), ("dead", "show", "1"), ("replay", "1")):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (78, "")
        assert f"There is no ledger at {tmp_path / 'bot' / 'ledger.db'}" in done.stderr
    assert not (tmp_path / "bot").exists()
