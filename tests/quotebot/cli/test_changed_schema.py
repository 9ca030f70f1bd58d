"""Tests that every command refuses a ledger or backup with a changed schema, and names the changed object."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from ledger.audit.keyring import load_keyring
from ledger.operator.backup import read_manifest, text_of
from tests.quotebot.parts import reshaped
from tests.test_golden_ledgers import installed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

BACK_DOOR: Final = """CREATE TRIGGER approvals_indexed AFTER INSERT ON approval_slots
BEGIN UPDATE approval_slots SET state = 'approved', decided_by = 'U0CFO' WHERE rowid = NEW.rowid; END"""
EMPTIED: Final = (
    "CREATE TEMP TABLE kept AS SELECT sql FROM sqlite_schema WHERE name = 'audit_no_update'",
    "DROP TRIGGER audit_no_update",
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit_events WHEN 0 BEGIN SELECT RAISE(ABORT, 'no'); END",
)
LOOSENED: Final = (
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET sql = replace(sql, 'json_valid', 'length') WHERE name = 'operations'",
)
CHANGES: Final = {
    "a trigger added": ((BACK_DOOR,), "trigger approvals_indexed is not one of Quotebot's"),
    "a trigger removed": (("DROP TRIGGER audit_no_delete",), "trigger audit_no_delete is missing"),
    "a trigger emptied": (EMPTIED, "trigger audit_no_update was changed"),
    "a table changed": (LOOSENED, "table operations was changed"),
    "a column added": (("ALTER TABLE quotes ADD COLUMN bribe TEXT",), "table quotes was changed"),
    "a table added": (("CREATE TABLE notes (a TEXT)",), "table notes is not one of Quotebot's"),
    "a view added": (("CREATE VIEW quoted AS SELECT * FROM quotes",), "view quoted is not one of Quotebot's"),
    "an index added": (("CREATE INDEX quick ON quotes (account)",), "index quick is not one of Quotebot's"),
    "an index removed": (("DROP INDEX effects_in_flight",), "index effects_in_flight is missing"),
}
REFUSING: Final = {  # commands, with the exit status of each
    ("run", "--set", "health_port=0"): 69,
    ("quote", "list"): 69,
    ("audit", "verify"): 3,
    ("audit", "export", "Q-2026-0001"): 69,
    ("ledger", "verify"): 3,
    ("ledger", "migrate"): 69,
    ("doctor", "--offline", "--only", "ledger.schema"): 69,
    ("backup",): 69,
}


def without_guards(ledger: Path) -> None:
    """Remove every guard and add a back door, as an attacker with a backup would."""
    with closing(sqlite3.connect(ledger, isolation_level=None)) as shell:
        for (name,) in shell.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            shell.execute(f"DROP TRIGGER {name}")
        shell.execute(BACK_DOOR)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1-2-abc")
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1-A-2-abc")


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("arguments", REFUSING, ids=" ".join)
def test_every_command_refuses_a_back_door_and_names_it(quotebot: Run, dead: Path, arguments: tuple[str, ...]) -> None:
    without_guards(dead)
    before = dead.read_bytes()
    done = quotebot(*arguments, environment={"SLACK_BOT_TOKEN": "xoxb-1-2-abc", "SLACK_APP_TOKEN": "xapp-1-A-2-abc"})
    assert done.returncode == REFUSING[arguments], done
    assert "trigger approvals_indexed is not one of Quotebot's" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert dead.read_bytes() == before
    assert not (dead.parent / "backups").exists() or not list((dead.parent / "backups").glob("*.db"))


@pytest.mark.parametrize(("statements", "words"), CHANGES.values(), ids=CHANGES)
def test_every_kind_of_change_is_named(command: Run, dead: Path, statements: tuple[str, ...], words: str) -> None:
    reshaped(dead, *statements)
    listed = command("quote", "list")
    assert (listed.returncode, words in listed.stderr) == (69, True), listed.stderr
    assert "docs/runbook.md" in listed.stderr
    verified = command("ledger", "verify")
    assert (verified.returncode, words in verified.stderr) == (3, True), verified.stderr
    audited = command("audit", "verify", "--json")
    assert audited.returncode == 3
    assert words in json.loads(audited.stdout)["schema"]


def test_a_back_door_in_a_backup_is_not_restored(command: Run, dead: Path) -> None:
    assert command("backup").returncode == 0
    (copy,) = (dead.parent / "backups").glob("*.db")
    without_guards(copy)
    content, beside = copy.read_bytes(), copy.with_suffix(".json")
    forged = replace(read_manifest(beside), bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    beside.write_text(text_of(forged.signed(load_keyring(dead.parent))), "utf-8")  # even if the attacker has the keys
    before = dead.read_bytes()
    done = command("restore", str(copy), "--yes")
    assert done.returncode == 69
    assert "trigger approvals_indexed is not one of Quotebot's" in done.stderr
    assert dead.read_bytes() == before


def test_an_older_ledger_is_compared_with_its_own_schema_before_it_is_migrated(
    command: Run, tmp_path: Path, dead_ledger: Path
) -> None:
    assert dead_ledger.is_dir()
    path = installed("0.1.0", tmp_path / "bot")
    reshaped(path, "CREATE TRIGGER late AFTER INSERT ON quotes BEGIN DELETE FROM gates; END")
    before = path.read_bytes()
    done = command("ledger", "migrate")
    assert done.returncode == 69
    assert "trigger late is not one of Quotebot's" in done.stderr
    assert path.read_bytes() == before
    assert not (path.parent / "backups").exists()


MIGRATIONS: Final = {
    "component": "UPDATE schema_migrations SET component = 'other' WHERE name = '0002_guards_sqlite.sql' AND component = 'ledger'",
    "name": "UPDATE schema_migrations SET name = '0002_none.sql' WHERE name = '0002_guards_sqlite.sql'",
    "sha256": "UPDATE schema_migrations SET sha256 = 'x' WHERE name = '0002_guards_sqlite.sql'",
}


@pytest.mark.parametrize("column", MIGRATIONS)
def test_an_edited_record_of_a_migration_is_refused_by_every_command(command: Run, dead: Path, column: str) -> None:
    reshaped(dead, MIGRATIONS[column])
    for arguments in (
        ("quote", "list"),
        ("ledger", "verify"),
        ("audit", "verify"),
        ("backup",),
        ("doctor", "--offline", "--only", "ledger.schema"),
    ):
        done = command(*arguments)
        assert done.returncode in (3, 69), (arguments, done)
        assert "Traceback" not in done.stderr
        assert "0002_" in done.stdout + done.stderr or "is not one of Quotebot's" in done.stdout + done.stderr, (arguments, done)


def test_a_migration_that_the_file_denies_is_no_way_around(command: Run, dead: Path) -> None:
    reshaped(dead, "DELETE FROM schema_migrations WHERE name = '0002_guards_sqlite.sql' AND component = 'ledger'")
    done = command("quote", "list")
    assert done.returncode == 69
    assert "is not one of Quotebot's" in done.stderr
