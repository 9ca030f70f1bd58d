"""Tests with forged ledgers at the terminal: a rejected quote turned into an approved one for another customer and price."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from tests.quotebot.history_parts import QUOTE, rejected_quote
from tests.quotebot.parts import copy_data, tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

FORGERIES: Final = {
    "a rejected quote becomes approved": ("quotes Q-2026-0001", "UPDATE quotes SET state = 'approved'"),
    "its request becomes approved": (
        "approvals A-2026-0001-v1-1",
        "UPDATE approvals SET state = 'approved', decided_by = 'U0CFO', decided_role = 'cfo'",
    ),
    "its slot becomes approved": ("approval_slots A-2026-0001-v1-1", "UPDATE approval_slots SET state = 'approved'"),
    "another customer": ("quotes Q-2026-0001", "UPDATE quotes SET account = 'Beta Holdings'"),
    "another price, with its hash": ("quote_versions Q-2026-0001 v1", ""),
    "another owner": ("quotes Q-2026-0001", "UPDATE quotes SET requester = 'U0THIEF'"),
}
VERIFICATIONS: Final = {
    "ledger verify": ("ledger", "verify"),
    "audit verify": ("audit", "verify"),
    "doctor": ("doctor", "--offline", "--only", "audit.whole"),
    "backup": ("backup",),
    "audit export": ("audit", "export", QUOTE),
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a stopped bot whose only quote was rejected."""
    folder = tmp_path_factory.mktemp("rejected") / "bot"
    asyncio.run(rejected_quote(folder / "ledger.db"))
    return folder


@pytest.fixture
def ledger(origin: Path, tmp_path: Path) -> Path:
    copy_data(origin, tmp_path / "bot")
    return tmp_path / "bot" / "ledger.db"


def forge(path: Path, sql: str) -> None:
    """Edit a ledger with plain SQL; without `sql`, change a price and its hash."""
    if sql:
        tampered(path, sql)
        return
    import sqlite3  # noqa: PLC0415 -- the only use

    connection = sqlite3.connect(path)
    (stored,) = connection.execute("SELECT pricing FROM quote_versions").fetchone()
    connection.close()
    cheap = json.dumps({**json.loads(stored), "net_total": "1.00"}, sort_keys=True, separators=(",", ":"))
    forged = hashlib.sha256(cheap.encode()).hexdigest()
    tampered(path, "UPDATE quote_versions SET pricing = ?, pricing_hash = ?", cheap, forged)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_ledger_is_refused_by_every_verification_naming_the_row(forgery: str, command: Run, ledger: Path) -> None:
    named, sql = FORGERIES[forgery]
    for words in VERIFICATIONS.values():
        assert command(*words).returncode == 0, words
    shutil.rmtree(ledger.parent / "backups")
    for proof in ledger.parent.parent.glob("*.zip"):
        proof.unlink()
    forge(ledger, sql)
    for name, words in VERIFICATIONS.items():
        done = command(*words)
        assert done.returncode != 0, (name, done.stdout)
        assert named.split()[0] in done.stdout + done.stderr, (name, done.stdout, done.stderr)
        assert named.split()[1] in done.stdout + done.stderr, (name, done.stdout, done.stderr)
    assert not list(ledger.parent.glob("backups/*.json"))
    assert not list(ledger.parent.parent.glob("*.zip"))


TAILS: Final = {
    "its last event": (
        "UPDATE audit_events SET actor = 'U0NOBODY' WHERE id = (SELECT max(id) FROM audit_events)",
        "was changed, moved or written by somebody without the key",
    ),
    "a head": (
        f"UPDATE audit_heads SET seal = zeroblob(32) WHERE aggregate_id = '{QUOTE}'",  # noqa: S608 -- our own id
        f"audit_heads {QUOTE}",
    ),
    "an event deleted": (
        "DELETE FROM audit_events WHERE id = (SELECT max(id) - 1 FROM audit_events)",
        "was deleted",
    ),
}


@pytest.mark.parametrize("forgery", TAILS)
def test_a_bot_does_not_start_on_an_audit_whose_end_was_changed(forgery: str, quotebot: Run, ledger: Path) -> None:
    sql, named = TAILS[forgery]
    tampered(ledger, sql)
    epochs = read_ledger(ledger, "SELECT count(*) AS n FROM epochs")[0]["n"]
    done = quotebot("run", environment={"SLACK_BOT_TOKEN": "xoxb-planted", "SLACK_APP_TOKEN": "xapp-planted"})
    assert done.returncode == 69, done.stderr
    assert "The end of the audit is not sound" in done.stderr
    assert named in done.stderr
    assert "quotebot audit verify" in done.stderr
    assert read_ledger(ledger, "SELECT count(*) AS n FROM epochs")[0]["n"] == epochs


def forged_backup(command: Run, ledger: Path, forgery: str, **claimed: object) -> Path:
    """Make a backup, edit it, and rewrite its manifest as far as possible without a key."""
    assert command("backup").returncode == 0
    (copy,) = (ledger.parent / "backups").glob("*.db")
    forge(copy, FORGERIES[forgery][1])
    beside = copy.with_suffix(".json")
    manifest = json.loads(beside.read_text("utf-8"))
    manifest |= {"bytes": copy.stat().st_size, "sha256": hashlib.sha256(copy.read_bytes()).hexdigest(), **claimed}
    beside.write_text(json.dumps(manifest), "utf-8")
    return copy


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_backup_is_not_restored(forgery: str, command: Run, ledger: Path) -> None:
    copy, before = forged_backup(command, ledger, forgery), ledger.read_bytes()
    done = command("restore", str(copy), "--yes")
    assert done.returncode != 0
    assert "was changed" in done.stderr
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_backup_that_claims_to_be_of_0_1_0_is_refused_by_its_history(forgery: str, command: Run, ledger: Path) -> None:
    copy, before = forged_backup(command, ledger, forgery, schema=1), ledger.read_bytes()
    done = command("restore", str(copy), "--yes", "--unauthenticated")
    assert done.returncode != 0
    assert f"its history is not whole: {FORGERIES[forgery][0]}" in done.stderr
    assert ledger.read_bytes() == before
