"""Tests of the signed manifest of a backup: a changed or foreign one is neither restored nor counted."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.audit.events import Keyring
from ledger.audit.keyring import load_keyring
from ledger.operator.backup import read_manifest, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

FORGED: Final = {
    "its checksum": {},
    "its ledger": {"ledger_id": "0" * 32},
    "its moment": {"made_at": 1},
    "its generation": {"generation": 7},
    "its signature": {"mac": "0" * 64},
    "no signature": {"mac": ""},
}


def backed_up(command: Run, dead: Path) -> Path:
    assert command("backup").returncode == 0
    return max((dead.parent / "backups").glob("*.db"))


def changed(copy: Path, **values: Any) -> None:
    """Rewrite the manifest without a key, with the present checksum of the copy."""
    beside = copy.with_suffix(".json")
    manifest = json.loads(beside.read_text("utf-8"))
    content = copy.read_bytes()
    sums = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    beside.write_text(json.dumps(manifest | sums | values), "utf-8")


def as_of_0_1_0(copy: Path) -> None:
    """Rewrite the manifest as 0.1.0 wrote it: without a key and a signature."""
    beside = copy.with_suffix(".json")
    manifest = {name: value for name, value in json.loads(beside.read_text("utf-8")).items() if name not in ("key_id", "mac")}
    beside.write_text(json.dumps(manifest | {"schema": 1, "build": "0.1.0"}), "utf-8")


def stranger() -> Keyring:
    return Keyring.of(b"s" * 32)


@pytest.mark.parametrize("values", FORGED.values(), ids=FORGED)
def test_a_changed_backup_with_its_checksum_written_anew_is_refused(command: Run, dead: Path, values: dict[str, Any]) -> None:
    copy = backed_up(command, dead)
    with closing(sqlite3.connect(copy)) as ledger, ledger:
        ledger.execute("UPDATE people SET kind = 'guest'")
    changed(copy, **values)
    before = dead.read_bytes()
    for arguments in (("restore", str(copy), "--yes"), ("restore", str(copy), "--yes", "--unauthenticated")):
        done = command(*arguments)
        assert done.returncode == 69
        assert "was changed by somebody without the audit key" in done.stderr
    assert dead.read_bytes() == before
    verified = command("ledger", "verify", str(copy), "--json")
    assert (verified.returncode, json.loads(verified.stdout)["whole"]) == (3, False)
    assert command("doctor", "--offline", "--only", "backup.age").returncode == 3


def test_a_whole_backup_verifies_and_says_what_it_holds(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    done = command("ledger", "verify", str(copy))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{copy} (")
    manifest = read_manifest(copy.with_suffix(".json"))
    assert manifest.key_id == load_keyring(dead.parent).current_id


def test_a_backup_of_another_installations_keys_is_refused(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    beside = copy.with_suffix(".json")
    beside.write_text(text_of(read_manifest(beside).signed(stranger())), "utf-8")
    done = command("restore", str(copy), "--yes")
    assert done.returncode == 69
    assert f"signed with the audit key '{stranger().current_id}', which is not in the data folder" in done.stderr


def test_without_the_keys_nothing_is_restored(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    (dead.parent / "audit-0001.key").unlink()
    for extra in ((), ("--unauthenticated",)):
        done = command("restore", str(copy), "--yes", *extra)
        assert (done.returncode, "audit-0001.key is missing" in done.stderr) == (69, True)


def test_an_older_backup_under_the_name_of_a_newer_one_is_refused(command: Run, dead: Path) -> None:
    """Both are genuine; only the names were swapped, so a restore of the newest would lose the work after the older one."""
    older = backed_up(command, dead)
    newest = older.with_name("ledger-20990101T000000Z.db")
    for suffix in (".db", ".json"):
        shutil.copy(older.with_suffix(suffix), newest.with_suffix(suffix))
    done = command("restore", str(newest), "--yes")
    assert (done.returncode, f"was made as {older.name}" in done.stderr) == (69, True)
    assert command("restore", str(older), "--yes").returncode == 0


def test_backup_of_0_1_0_needs_unauthenticated_and_gets_a_warning(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    as_of_0_1_0(copy)
    refused = command("restore", str(copy), "--yes")
    assert (refused.returncode, "--unauthenticated" in refused.stderr) == (69, True)
    done = command("restore", str(copy), "--yes", "--unauthenticated")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not authenticated: Quotebot 0.1.0 did not sign manifests") == 1
    assert command("audit", "verify").returncode == 0


def test_a_changed_backup_of_0_1_0_is_refused_by_its_audit(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    as_of_0_1_0(copy)
    with closing(sqlite3.connect(copy)) as ledger, ledger:
        guard = ledger.execute("SELECT sql FROM sqlite_schema WHERE name = 'audit_no_update'").fetchone()[0]
        ledger.execute("DROP TRIGGER audit_no_update")
        ledger.execute("UPDATE audit_events SET actor = 'U0MALLORY' WHERE id = 3")
        ledger.execute(guard)
    changed(copy)
    done = command("restore", str(copy), "--yes", "--unauthenticated")
    assert (done.returncode, "its audit is not whole" in done.stderr) == (69, True)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": 2}', '{"schema": "2"}', "[]", "9" * 400_000, '{"schema": 3}'])
def test_broken_manifest_blocks_only_its_own_restore(command: Run, dead: Path, text: str) -> None:
    copy = backed_up(command, dead)
    planted = copy.with_name("ledger-20990101T000000Z.db")
    shutil.copy(copy, planted)
    planted.with_suffix(".json").write_text(text, "utf-8")
    assert command("restore", str(planted), "--yes").returncode == 69
    assert command("doctor", "--offline", "--only", "backup.age").returncode == 0
    assert command("backup").returncode == 0


STRANGE: Final[tuple[dict[str, Any], ...]] = (
    {"made_at": "now"},
    {"made_at": 1 << 62},
    {"tables": []},
    {"mac": None},
    {"bytes": True},
    {"tables": {"a": "b"}},
)


def test_manifest_with_values_of_wrong_types_blocks_only_its_own_restore(command: Run, dead: Path) -> None:
    copy = backed_up(command, dead)
    for values in STRANGE:
        changed(copy, **values)
        done = command("restore", str(copy), "--yes")
        assert (done.returncode, "is no manifest of a backup" in done.stderr) == (69, True), done.stderr
        assert command("doctor", "--offline", "--only", "backup.age").returncode == 0
