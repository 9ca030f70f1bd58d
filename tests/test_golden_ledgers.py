"""Tests that this build opens, migrates and verifies the ledger of every release, also after a crash during the migration."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from faults.lab.database import InlineDatabase, engine
from faults.lab.traps import Switch
from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.audit.verification import verify
from ledger.clock import SystemClock
from ledger.database import DatabaseError
from ledger.operator.backup import backups_in
from ledger.sqlite.engine import SqliteDatabase
from quotebot import __version__
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.cli import root
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.store import history
from tests.quotebot.parts import tampered

if TYPE_CHECKING:
    from ledger.audit.verification import VerificationReport

LEDGERS: Final = Path(__file__).parent / "data" / "ledgers"
VERSIONS: Final = sorted(path.stem for path in LEDGERS.glob("*.sqlite"))


def installed(version: str, folder: Path) -> Path:
    """Copy a release's ledger and its key to the paths that a bot uses; return the ledger."""
    folder.mkdir(mode=0o700)
    shutil.copyfile(LEDGERS / f"{version}.sqlite", folder / "ledger.db")
    shutil.copyfile(LEDGERS / f"{version}.key", folder / "audit-0001.key")
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder / "ledger.db"


async def opened(path: Path, database: type[SqliteDatabase] = SqliteDatabase) -> VerificationReport:
    """Open the ledger as a starting bot does, and verify its audit."""
    keyring = load_keyring(path.parent, may_create=False)
    found = await SqliteStorage(path, *schema_and_statements()).open(
        Audit(DOMAIN_EVENTS, keyring), SystemClock(), bot=True, engine=database
    )
    try:
        return await verify(found, keyring, replay=history.replay)
    finally:
        await found.close()


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as ledger:
        return ledger.execute("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").fetchall()


def counts(path: Path) -> dict[str, int]:
    tables = ("operations", "deliveries", "effects", "attempts", "quotes", "quote_versions", "approvals")
    with closing(sqlite3.connect(path)) as ledger:
        return {table: ledger.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}  # noqa: S608 -- ours


def is_old(path: Path) -> bool:
    migrations, _ = schema_and_statements()
    with closing(sqlite3.connect(path)) as ledger:
        (applied,) = ledger.execute("SELECT count(*) FROM schema_migrations").fetchone()
    return bool(applied < len(migrations))


def test_there_is_one_for_this_release() -> None:
    assert __version__ in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_s_ledger_is_backed_up_brought_up_to_date_and_whole(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = installed(version, tmp_path / "bot")
    before, old = counts(path), is_old(path)
    report = asyncio.run(opened(path))
    assert report.finding is None
    assert counts(path) == before
    kept = backups_in(tmp_path / "bot" / "backups")
    assert len(kept) == old
    assert [counts(backup.path) for backup in kept] == [before] * old
    asyncio.run(opened(path))
    assert len(backups_in(tmp_path / "bot" / "backups")) == old, "once: there is nothing to bring up to date any more"
    monkeypatch.setenv("QUOTEBOT_DATA_DIR", str(path.parent))
    for check in (("quote", "reprice", "--verify"), ("doctor", "--offline", "--only", "ledger.schema"), ("dead", "list")):
        assert root.run(check) == 0, capsys.readouterr().err
    assert "crm.create" in capsys.readouterr().out, "its dead letter"


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, without the WAL index, which SQLite rebuilds."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_killed_at_any_statement_of_a_migration_it_is_finished_by_the_next_start(version: str, tmp_path: Path) -> None:
    path = installed(version, tmp_path / "bot")
    before = counts(path)
    statements = 0
    left: list[
        dict[str, bytes]
    ] = []  # what a crash leaves, without equal neighbors: most statements of a transaction leave the same

    def look() -> None:
        nonlocal statements
        statements += 1
        files = files_in(path.parent)
        if files not in left[-1:]:
            left.append(files)
            shutil.copytree(path.parent, tmp_path / f"left{len(left)}")

    switch = Switch(look)
    switch.arm(None)
    asyncio.run(opened(path, engine(switch)))
    wanted = schema(path)
    for number in range(1, len(left) + 1):
        killed = tmp_path / f"left{number}" / "ledger.db"
        report = asyncio.run(opened(killed, InlineDatabase))
        assert report.sound
        assert (schema(killed), counts(killed)) == (wanted, before)
    assert statements > 10


EDITS: Final = {
    "quotes": "UPDATE quotes SET state = 'approved' WHERE state <> 'approved'",
    "approvals": "UPDATE approvals SET decided_by = 'U0CFO' WHERE decided_by IS NOT NULL",
    "quote_versions": "UPDATE quote_versions SET pricing = json_set(pricing, '$.net_total', '1.00')",
    "operations": "UPDATE operations SET actor = 'U0CFO' WHERE actor <> 'U0CFO'",
}


@pytest.mark.parametrize("table", EDITS)
def test_an_old_ledger_that_was_edited_is_not_bound_as_it_is(table: str, tmp_path: Path) -> None:
    path = installed("0.1.0", tmp_path / "bot")
    tampered(path, EDITS[table])
    with pytest.raises(DatabaseError, match=f"of an older build and its history is not whole: {table} "):
        asyncio.run(opened(path))


def test_old_ledger_records_once_where_its_binding_starts_and_detects_later_edits(tmp_path: Path) -> None:
    path = installed("0.1.0", tmp_path / "bot")
    asyncio.run(opened(path))
    asyncio.run(opened(path))
    with closing(sqlite3.connect(path)) as ledger:
        said = ledger.execute("SELECT aggregate_id, actor FROM audit_events WHERE event_type = 'history.bound_from'").fetchall()
    assert said == [("system", "quotebot")]
    tampered(path, "UPDATE quotes SET account = 'Beta Holdings'")
    report = asyncio.run(opened(path))
    assert report.finding is not None
    assert report.finding.table == "quotes"


def test_without_room_for_the_backup_nothing_is_changed_and_the_start_says_why(tmp_path: Path) -> None:
    path = installed("0.1.0", tmp_path / "bot")
    assert is_old(path)
    (path.parent / "backups").write_text("in the way", "utf-8")
    before = schema(path), counts(path)
    with pytest.raises(
        DatabaseError, match=r"older build\. It was not brought up to date, because the backup that comes first failed"
    ):
        asyncio.run(opened(path))
    assert (schema(path), counts(path)) == before


def test_a_ledger_of_a_newer_build_is_refused_unchanged(tmp_path: Path) -> None:
    path = installed("0.1.0", tmp_path / "bot")
    tampered(path, "INSERT INTO schema_migrations VALUES ('ledger', '9999_new.sql', 'x', 1)")
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match=r"written by a newer build .*It is unchanged\. Start the newer build"):
        asyncio.run(opened(path, InlineDatabase))
    assert path.read_bytes() == before
