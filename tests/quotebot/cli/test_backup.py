"""Tests of backups from the terminal, and of the bot's own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.audit.keyring import load_keyring
from ledger.operator.backup import text_of
from quotebot.app.backups import folder_of, keep_backups
from quotebot.cli.doctor import records
from quotebot.cli.doctor.checks import Site
from quotebot.settings import Settings
from tests.quotebot.parts import ManualClock, tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

HOUR = 3_600_000


def test_a_backup_says_where_it_is_and_what_it_holds(command: Run, dead: Path) -> None:
    done = command("backup")
    folder = dead.parent / "backups"
    (path,) = folder.glob("*.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path} (")
    (row,) = read_ledger(dead, "SELECT count(*) AS n FROM operations")
    assert f"{row['n']} commands, " in done.stdout


def test_a_backup_elsewhere_is_told_as_json_and_nothing_there_is_removed(command: Run, dead: Path, tmp_path: Path) -> None:
    told = [json.loads(command("backup", "--to", str(tmp_path / "usb"), "--json").stdout) for _ in range(9)]
    assert len(list((tmp_path / "usb").glob("*.db"))) == len(told)
    assert {each["schema_version"] for each in told} == {1}
    assert told[0]["tables"] == told[8]["tables"]
    assert told[0]["path"].startswith(str(tmp_path / "usb"))
    assert not (dead.parent / "backups").exists()


def test_without_a_ledger_or_its_keys_nothing_is_written(command: Run, tmp_path: Path) -> None:
    done = command("backup")
    assert (done.returncode, done.stdout) == (78, "")
    assert "There is no ledger" in done.stderr
    assert not (tmp_path / "bot").exists()


def test_a_lost_key_is_told_before_anything_is_copied(command: Run, dead: Path) -> None:
    (dead.parent / "audit-0001.key").unlink()
    done = command("backup")
    assert (done.returncode, "audit-0001.key is missing" in done.stderr) == (69, True)
    assert not (dead.parent / "backups").exists()


def test_the_bot_makes_one_when_it_is_due_and_keeps_so_many(dead: Path, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=dead.parent, backup_folder=tmp_path / "kept", backup_hours=6, backup_keep=2)
    clock = ManualClock()
    made = []
    for hours in (0, 1, 4, 1, 6, 6, 5):
        clock.advance(hours * HOUR)
        made.append(asyncio.run(keep_backups(settings, clock)) is not None)
    assert made == [True, False, False, True, True, True, False]
    assert folder_of(settings) == tmp_path / "kept"
    assert len(list((tmp_path / "kept").glob("*.json"))) == 2


def test_backup_interval_of_zero_makes_no_backups(dead: Path) -> None:
    settings = Settings(_env_file=None, data_dir=dead.parent, backup_hours=0)
    assert asyncio.run(keep_backups(settings, ManualClock())) is None
    assert not folder_of(settings).exists()


def planted(folder: Path, real: Path, **values: object) -> Path:
    """Put a foreign backup, newer than any other, into the folder."""
    path = folder / "ledger-20990101T000000Z.db"
    path.write_bytes(b"")
    manifest = json.loads(real.with_suffix(".json").read_text("utf-8"))
    path.with_suffix(".json").write_text(json.dumps(manifest | values), "utf-8")
    return path


@pytest.mark.parametrize("resigned", [True, False], ids=["of another ledger", "unsigned"])
def test_a_backup_that_is_not_ours_neither_counts_nor_is_removed(dead: Path, tmp_path: Path, *, resigned: bool) -> None:
    folder = tmp_path / "kept"
    settings = Settings(_env_file=None, data_dir=dead.parent, backup_folder=folder, backup_hours=6, backup_keep=2)
    clock = ManualClock()
    first = asyncio.run(keep_backups(settings, clock))
    assert first is not None
    clock.advance(6 * HOUR)
    strange = planted(folder, first.path, made_at=clock.now_ms())
    if resigned:
        foreign = replace(first.manifest, ledger_id="0" * 32, made_at=clock.now_ms())
        strange.with_suffix(".json").write_text(text_of(foreign.signed(load_keyring(dead.parent))), "utf-8")
    for _ in range(4):
        assert asyncio.run(keep_backups(settings, clock)) is not None
        clock.advance(6 * HOUR)
    assert strange.exists()
    assert len(list(folder.glob("*.json"))) == 3
    site = Site(settings, now_seconds=lambda: clock.now_ms() / 1000 + 24 * 3600)
    assert asyncio.run(records.backups(site)).bad


def only_backup(folder: Path) -> str:
    (path,) = folder.glob("*.db")
    return str(path)


def test_a_restore_says_what_it_put_back_and_where_the_old_ledger_is(command: Run, dead: Path) -> None:
    command("backup")
    done = command("restore", only_backup(dead.parent / "backups"), "--yes")
    assert done.returncode == 0, done.stderr
    assert "generation 2" in done.stdout
    assert "effects are in doubt: the bot looks for each before it does it again" in done.stdout
    assert str(next(dead.parent.glob("replaced-*"))) in done.stdout
    assert f"The ledger at {dead} has " in done.stderr
    assert command("audit", "verify").returncode == 0
    assert command("doctor", "--offline", "--only", "ledger.schema", "--only", "audit").returncode == 0


def test_a_restore_as_json_has_the_numbers_it_skipped(command: Run, dead: Path) -> None:
    command("backup")
    done = command("restore", only_backup(dead.parent / "backups"), "--yes", "--json")
    told = json.loads(done.stdout)
    assert (told["schema_version"], told["generation"]) == (1, 2)
    (row,) = read_ledger(dead, "SELECT max(last) AS last FROM quote_numbers")
    assert row["last"] in told["numbers_after"].values()


def test_restore_without_a_terminal_needs_the_yes_option(command: Run, dead: Path) -> None:
    command("backup")
    before = dead.read_bytes()
    done = command("restore", only_backup(dead.parent / "backups"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("Give --yes to go on without being asked.\nNothing was changed.\n")
    assert dead.read_bytes() == before


def test_a_file_that_is_no_backup_is_refused_with_words(command: Run, dead: Path) -> None:
    done = command("restore", str(dead), "--yes")
    assert (done.returncode, "There is no manifest" in done.stderr) == (69, True)


def test_a_ledger_that_is_whole_is_said_to_be_and_one_that_is_not_is_named(command: Run, dead: Path) -> None:
    done = command("ledger", "verify")
    assert (done.returncode, done.stdout.startswith("The ledger is whole: ")) == (0, True)
    assert json.loads(command("ledger", "verify", "--json").stdout)["whole"] is True
    tampered(dead, "UPDATE audit_events SET actor = 'U0MALLORY' WHERE id = 3")
    done = command("ledger", "verify")
    assert (done.returncode, done.stdout) == (3, "")
    assert "is not whole: its audit is not whole: audit_events 3" in done.stderr
    assert json.loads(command("ledger", "verify", "--json").stdout)["whole"] is False
    done = command("backup")
    assert (done.returncode, done.stdout, list((dead.parent / "backups").glob("ledger*"))) == (69, "", [])
    assert "No backup was made, because the copy is not whole: its audit is not whole: audit_events 3" in done.stderr
    assert "Use another backup" not in done.stderr


def test_a_ledger_of_this_build_has_nothing_to_bring_up_to_date(command: Run, dead: Path) -> None:
    done = command("ledger", "migrate")
    assert (done.returncode, done.stdout) == (0, "The ledger is of this build.\n")
    assert not (dead.parent / "backups").exists()
