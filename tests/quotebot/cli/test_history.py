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


DERIVED: Final = {
    "wrong totals": "UPDATE meta SET value = replace(value, '\"new\",', '\"new\",9') WHERE name = 'measures'",
    "unreadable totals": "UPDATE meta SET value = 'x' WHERE name = 'measures'",
    "a wrong quote number": "UPDATE quote_numbers SET last = last + 5",
    "a lost quote number": "DELETE FROM quote_numbers",
    "a quote number of no quote": "INSERT INTO quote_numbers VALUES (1999, 7)",
}
SELECTED: Final = "SELECT name, value FROM meta WHERE name LIKE 'measures%' UNION ALL SELECT year, last FROM quote_numbers"


@pytest.mark.parametrize("damage", DERIVED)
def test_a_rebuild_computes_everything_derived_again(damage: str, command: Run, ledger: Path) -> None:
    def stored() -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in read_ledger(ledger, SELECTED)]

    assert json.loads(command("ledger", "rebuild", "--json").stdout)["corrected"] == {"totals": False, "numbers": {}}
    right, totals = stored(), command("metrics").stdout
    tampered(ledger, DERIVED[damage])
    assert stored() != right
    done = command("ledger", "rebuild")
    assert (done.returncode, done.stderr, done.stdout.startswith("Corrected: ")) == (0, "", True)
    assert command("ledger", "verify").returncode == 0
    (event,) = read_ledger(ledger, "SELECT actor_type FROM audit_events WHERE event_type = 'ledger.rebuilt'")
    assert event["actor_type"] == "operator"
    once = stored()
    assert [row for row in once if row[0] != "measures"] == [row for row in right if row[0] != "measures"]
    assert [line for line in command("metrics").stdout.splitlines() if "quotebot_idempotency_total" in line] == [
        line for line in totals.splitlines() if "quotebot_idempotency_total" in line
    ]
    file = ledger.read_bytes()
    done = command("ledger", "rebuild")
    assert (done.returncode, done.stdout) == (0, "Everything derived is right; nothing was changed.\n")
    assert stored() == once
    assert ledger.read_bytes() == file


def test_nothing_is_rebuilt_from_an_audit_that_is_not_sound(command: Run, ledger: Path) -> None:
    tampered(ledger, "UPDATE audit_events SET actor = 'U0NOBODY' WHERE id = 1")
    done = command("ledger", "rebuild")
    assert (done.returncode, done.stdout) == (3, "")
    assert "audit_events 1" in done.stderr


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
