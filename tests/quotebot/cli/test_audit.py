# ruff: noqa: S608 -- every name and number in the SQL here is this file's own
"""Tests of `quotebot audit`, on the data folder of a bot that ran two deals."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from cyclopts import App, CycloptsError

from ledger.audit.anchors import LOG_NAME, write_anchor
from ledger.audit.events import key_id
from ledger.audit.keyring import KeyMissing, add_key, load_keyring, require_keys, rotate
from ledger.database import DatabaseError
from quotebot.app.installation import open_ledger
from quotebot.cli import audit, exits, root
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.ledger import Ledger
    from tests.quotebot.cli.conftest import Run

QUOTE = "Q-2026-0001"


@pytest.fixture
def run_audit(command: Run, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command of the group as `quotebot audit ...` does; `command` prepares the folder and the environment."""
    group = App(name="quotebot", result_action="return_value", help_format="plaintext")
    group.command(audit.app)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        try:
            status = group(["audit", *arguments], exit_on_error=False, print_error=True)
        except CycloptsError:
            status = exits.USAGE
        except Exception as error:  # noqa: BLE001 -- as root.run does
            status = root._status_of(error)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, printed.out, printed.err)

    return run


def tampered(ledger: Path, *statements: str) -> None:
    """Change the file with plain SQL, without the triggers."""
    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as shell:
        guards = shell.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            shell.execute(f"DROP TRIGGER {name}")
        for sql in statements:
            assert shell.execute(sql).rowcount > 0
        for _, guard in guards:  # without them the ledger would not be opened
            shell.execute(guard)


def rows(ledger: Path, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(ledger)) as shell:
        return shell.execute(sql).fetchall()


async def anchored(folder: Path) -> None:
    """Write one anchor, as the bot's housekeeping does."""
    async with open_ledger(load_settings()) as ledger:
        await write_anchor(ledger, folder, ledger.clock.now_ms())


# ----------------------------------------------------------------------------------------------------------- verify


def test_the_audit_of_a_real_bot_is_whole(run_audit: Run, dead: Path) -> None:
    done = run_audit("verify")
    events = rows(dead, "SELECT count(*) FROM audit_events")[0][0]
    assert done.returncode == 0
    assert done.stdout.startswith(f"The audit is whole. Events: {events:,}, chains: ")
    assert "Give --anchors" in done.stderr


def test_verify_tells_programs_what_it_looked_at(run_audit: Run, dead: Path) -> None:
    asyncio.run(anchored(dead.parent))
    done = run_audit("verify", "--json", "--every-anchor")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["schema_version"], report["sound"], report["finding"]) == (1, True, None)
    sealed = rows(dead, "SELECT count(*) FROM audit_anchors")[0][0]  # at the bot's start, and now
    assert (report["anchors"], report["anchors_recomputed"], report["anchors_kept_elsewhere"]) == (sealed, sealed, sealed)
    assert sealed >= 1
    assert report["events"] == report["keys"][0]["events"] == rows(dead, "SELECT max(id) FROM audit_events")[0][0]


def test_an_edited_event_is_named_with_what_it_means(run_audit: Run, dead: Path) -> None:
    tampered(dead, "UPDATE audit_events SET actor = 'somebody else' WHERE id = 5")
    done = run_audit("verify")
    assert done.returncode == exits.REFUSED
    assert done.stdout.startswith("TAMPERED: audit_events 5: changed: event ")
    assert "4 events before it are whole" in done.stderr
    finding = json.loads(run_audit("verify", "--json").stdout)["finding"]
    assert (finding["table"], finding["row"], finding["fault"]) == ("audit_events", "5", "changed")


def test_a_file_put_back_to_an_earlier_day_is_found_by_anchors_kept_elsewhere(run_audit: Run, dead: Path, tmp_path: Path) -> None:
    shutil.copyfile(dead, tmp_path / "earlier.db")
    assert run_audit("rotate-key").returncode == 0  # one event more
    asyncio.run(anchored(dead.parent))
    shutil.move(dead.parent / LOG_NAME, tmp_path / "elsewhere.log")
    shutil.copyfile(tmp_path / "earlier.db", dead)
    assert run_audit("verify").returncode == 0  # the file alone cannot show it
    done = run_audit("verify", "--anchors", str(tmp_path / "elsewhere.log"))
    first_lost = rows(dead, "SELECT max(id) + 1 FROM audit_events")[0][0]
    assert done.returncode == exits.REFUSED
    assert re.match(rf"TAMPERED: audit_events {first_lost}: rolled back: anchor \d kept elsewhere", done.stdout)


def test_file_without_anchors_is_a_usage_error_but_a_finding_in_the_data_folder(run_audit: Run, dead: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    done = run_audit("verify", "--anchors", str(tmp_path / "notes.txt"))
    assert (done.returncode, done.stdout) == (exits.USAGE, "")
    assert "line 1 is no anchor. Nothing was verified." in done.stderr
    assert run_audit("verify", "--anchors", str(tmp_path / "none.log")).returncode == exits.USAGE
    (dead.parent / LOG_NAME).write_text("hello\n")
    assert run_audit("verify").returncode == exits.REFUSED


def test_without_its_key_nothing_is_verified_and_no_new_key_is_made(run_audit: Run, dead: Path) -> None:
    for key in dead.parent.glob("audit-*.key"):
        key.unlink()
    for command in ("verify", "rotate-key"):
        done = run_audit(command)
        assert (done.returncode, done.stdout) == (exits.CONFIG, "")
        assert "audit-0001.key is missing" in done.stderr
    assert list(dead.parent.glob("audit-*.key")) == []


def test_without_a_ledger_nothing_is_made(run_audit: Run, tmp_path: Path) -> None:
    for arguments in (("verify",), ("public-key",), ("rotate-key",), ("show", QUOTE), ("export", QUOTE)):
        done = run_audit(*arguments)
        assert (done.returncode, done.stdout) == (exits.CONFIG, "")
        assert "There is no ledger at" in done.stderr
    assert list(tmp_path.glob("bot/*.key")) == []


# ------------------------------------------------------------------------------------------------------------- show


def test_show_lists_a_quotes_events_in_order(run_audit: Run, dead: Path) -> None:
    done = run_audit("show", QUOTE.lower(), "--json")
    events = json.loads(done.stdout)["events"]
    assert done.returncode == 0
    assert [(event["id"], event["mac"]) for event in events] == rows(
        dead, f"SELECT id, lower(hex(mac)) FROM audit_events WHERE aggregate_id = '{QUOTE}' ORDER BY seq"
    )
    people = run_audit("show", QUOTE)
    assert people.returncode == 0
    assert len(people.stdout.splitlines()) == len(events) + 1
    assert "approval.requested" in people.stdout


def test_show_ends_with_the_newest_when_it_is_limited(run_audit: Run, dead: Path) -> None:
    whole = json.loads(run_audit("show", QUOTE, "--json").stdout)["events"]
    assert json.loads(run_audit("show", QUOTE, "--limit", "3", "--json").stdout)["events"] == whole[-3:]
    assert run_audit("show", QUOTE, "--limit", "0").returncode == exits.USAGE
    assert dead.exists()


def test_show_of_what_is_not_there_prints_no_data(run_audit: Run, dead: Path) -> None:
    done = run_audit("show", "Q-2026-0099")
    assert (done.returncode, done.stdout, done.stderr) == (
        exits.NOTHING_MATCHED,
        "",
        "The audit knows no Q-2026-0099: give a quote, e.g. Q-2026-0042, or system.\n",
    )
    assert dead.exists()


# ----------------------------------------------------------------------------------------------------------- export


def test_an_exported_bundle_is_genuine_by_its_script_and_the_printed_key(run_audit: Run, dead: Path, tmp_path: Path) -> None:
    done = run_audit("export", QUOTE)
    bundle = tmp_path / f"{QUOTE}-proof.zip"
    assert (done.returncode, done.stdout) == (0, f"{QUOTE}-proof.zip\n")
    assert bundle.stat().st_mode & 0o777 == 0o600
    (tmp_path / "key.pem").write_text(run_audit("public-key").stdout)
    with zipfile.ZipFile(bundle) as archive:
        assert "quote.pdf" in archive.namelist()
        script = archive.extract("verify_quotebot_proof.py", tmp_path)
    said = subprocess.run(
        [sys.executable, "-I", "-S", script, bundle, tmp_path / "key.pem"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"GENUINE: {QUOTE} v1, ")
    assert run_audit("verify").returncode == 0
    (newest,) = rows(dead, "SELECT event_type FROM audit_events ORDER BY id DESC LIMIT 1")
    assert newest == ("audit.exported",)


def test_export_goes_where_it_is_told_and_overwrites_nothing(run_audit: Run, dead: Path, tmp_path: Path) -> None:
    out = tmp_path / "proof.zip"
    done = run_audit("export", QUOTE, "--out", str(out), "--json")
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["file"], printed["sha256"]) == (0, str(out), hashlib.sha256(out.read_bytes()).hexdigest())
    content = out.read_bytes()
    done = run_audit("export", QUOTE, "--out", str(out))
    assert (done.returncode, done.stdout, out.read_bytes()) == (exits.CONFLICT, "", content)
    assert run_audit("export", QUOTE, "--out", str(tmp_path / "no" / "folder.zip")).returncode == exits.UNAVAILABLE
    assert dead.exists()


def test_export_of_no_quote_writes_nothing(run_audit: Run, dead: Path, tmp_path: Path) -> None:
    assert run_audit("export", "Q-2026-0099").returncode == exits.NOTHING_MATCHED
    assert run_audit("export", "hello").returncode == exits.USAGE
    tampered(dead, f"UPDATE audit_events SET actor = 'x' WHERE aggregate_id = '{QUOTE}' AND seq = 1")
    done = run_audit("export", QUOTE)
    assert (done.returncode, done.stdout) == (exits.REFUSED, "")
    assert "Nothing was exported. Run: quotebot audit verify" in done.stderr
    assert list(tmp_path.glob("*.zip")) == []


def test_the_public_key_stays_the_same(run_audit: Run, dead: Path) -> None:
    first = run_audit("public-key")
    assert first.returncode == 0
    assert first.stdout.startswith("-----BEGIN PUBLIC KEY-----\n")
    assert run_audit("public-key").stdout == first.stdout
    assert dead.exists()


# -------------------------------------------------------------------------------------------------------- rotate-key


def signers(ledger: Path, count: int) -> list[tuple[str, str]]:
    """Return the type and the key of the newest events, oldest first."""
    return rows(ledger, f"SELECT event_type, key_id FROM audit_events ORDER BY id DESC LIMIT {count}")[::-1]


def key_on_disk(folder: Path, number: int) -> str:
    return key_id(bytes.fromhex((folder / f"audit-{number:04d}.key").read_text().strip()))


def test_the_rotation_is_the_first_event_of_the_new_key(run_audit: Run, dead: Path) -> None:
    done = run_audit("rotate-key", "--json")
    old, new = key_on_disk(dead.parent, 1), key_on_disk(dead.parent, 2)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"schema_version": 1, "file": "audit-0002.key", "key_id": new, "previous_key_id": old}
    assert (dead.parent / "audit-0002.key").stat().st_mode & 0o777 == 0o600
    assert rows(dead, f"SELECT event_type FROM audit_events WHERE key_id = '{new}'") == [("audit.key_rotated",)]
    assert signers(dead, 1) == [("audit.key_rotated", new)]
    assert run_audit("verify").returncode == 0
    assert run_audit("rotate-key").stdout == f"audit-0003.key ({key_on_disk(dead.parent, 3)}) signs from now on.\n"
    assert run_audit("verify").returncode == 0


async def say(bot: Ledger) -> None:
    """Let the running bot write an event into the chain that the rotation is in, too."""
    await bot.database.write(
        "say", lambda tx: bot.audit.append(tx, bot.clock.now_ms(), "class.resumed", actor="quotebot", actor_type="system")
    )


async def test_a_running_bot_goes_on_with_its_key_until_its_next_start(run_audit: Run, dead: Path) -> None:
    async with open_ledger(load_settings()) as bot:
        await say(bot)
        assert (await asyncio.to_thread(run_audit, "rotate-key")).returncode == 0
        await say(bot)
    async with open_ledger(load_settings()) as again:
        await say(again)
    old, new = key_on_disk(dead.parent, 1), key_on_disk(dead.parent, 2)
    assert [key for _, key in signers(dead, 4)] == [old, new, old, new]
    done = await asyncio.to_thread(run_audit, "verify")
    assert done.returncode == 0
    assert f"Key {old} signed 1 events after a newer one had come in" in done.stderr


async def test_the_system_chains_of_several_writers_are_shown_together(run_audit: Run, dead: Path) -> None:
    for writer in ("b", "a", "b"):
        async with open_ledger(load_settings()) as bot:
            bot.audit.system_chain = f"system/{writer}"
            await say(bot)
    assert rows(dead, "SELECT count(*) FROM audit_heads WHERE aggregate_id = 'system'") == [(1,)]
    done = await asyncio.to_thread(run_audit, "show", "system", "--limit", "4", "--json")
    chains = [event["aggregate_id"] for event in json.loads(done.stdout)["events"]]
    assert chains == ["system", "system/b", "system/a", "system/b"]
    done = await asyncio.to_thread(run_audit, "show", "system/b", "--json")
    assert [event["seq"] for event in json.loads(done.stdout)["events"]] == [1, 2]
    assert (await asyncio.to_thread(run_audit, "verify")).returncode == 0


async def test_a_bot_that_starts_after_the_rotation_signs_with_the_new_key(run_audit: Run, dead: Path) -> None:
    assert (await asyncio.to_thread(run_audit, "rotate-key")).returncode == 0
    async with open_ledger(load_settings()) as bot:
        await say(bot)
    assert {key for _, key in signers(dead, 2)} == {key_on_disk(dead.parent, 2)}
    done = await asyncio.to_thread(run_audit, "verify")
    assert done.returncode == 0
    assert "after a newer one" not in done.stderr


def test_a_key_file_that_is_gone_between_two_others_is_missed(run_audit: Run, dead: Path) -> None:
    assert run_audit("rotate-key").returncode == 0
    (dead.parent / "audit-0001.key").unlink()
    done = run_audit("verify")
    assert done.returncode == exits.CONFIG
    assert "audit-0001.key is missing" in done.stderr


def test_a_newest_key_file_that_is_gone_leaves_events_of_an_unknown_key(run_audit: Run, dead: Path) -> None:
    assert run_audit("rotate-key").returncode == 0
    (dead.parent / "audit-0002.key").unlink()
    done = run_audit("verify")
    assert done.returncode == exits.REFUSED
    assert "unknown key" in done.stdout
    assert "one is missing, or the row is forged" in done.stdout


# ------------------------------------------------------------------------------------------------------ keys on disk


def test_the_first_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "bot"
    first = load_keyring(folder)
    assert load_keyring(folder, may_create=False) == first
    assert (folder / "audit-0001.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["audit-0001.key"]


def test_where_no_key_may_be_made_its_absence_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing, match=r"audit-0001\.key is missing"):
        load_keyring(tmp_path, may_create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_there_stands(tmp_path: Path) -> None:
    first = add_key(tmp_path, 1).read_bytes()
    assert add_key(tmp_path, 1).read_bytes() == first


def test_a_file_that_a_crash_left_half_written_is_no_key(tmp_path: Path) -> None:
    before = load_keyring(tmp_path)
    (tmp_path / "audit-0002.key.4711.new").write_bytes(b"ab")
    assert load_keyring(tmp_path) == before
    assert rotate(tmp_path).current_id != before.current_id
    require_keys(tmp_path)


@pytest.mark.parametrize(("content", "why"), [(b"xyz", "cannot be read"), (b"abcd", "too short"), (b"\xff", "cannot be read")])
def test_a_damaged_key_is_an_error_and_stays_as_it_is(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "audit-0001.key").write_bytes(content)
    with pytest.raises(DatabaseError, match=why):
        load_keyring(tmp_path)
    assert (tmp_path / "audit-0001.key").read_bytes() == content
