"""Tests of the tables bound to the audit: any foreign change of a cell, row or deletion is found, and the row is named."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.audit.keyring import load_keyring
from ledger.audit.verification import verify_within
from ledger.database import DatabaseError
from ledger.keys import loads, operation_key
from ledger.operator.backup import Backup, BackupError
from ledger.sqlite.batch import SqliteTx
from ledger.sqlite.connections import open_read_only
from quotebot.app.backups import make_backup, prove_backup
from quotebot.app.installation import schema_and_statements
from quotebot.cli.doctor import records
from quotebot.cli.doctor.checks import Site
from quotebot.settings import Settings
from quotebot.store import history
from quotebot.store.columns import TABLES
from tests.quotebot.history_parts import QUOTE, Desk, everything
from tests.quotebot.parts import bench_at, create_command, tampered
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.history import Finding
    from ledger.database import Tx

BOUND: Final = sorted(name for name, table in TABLES.items() if table.bound)
CELLS: Final = [
    (name, column)
    for name, table in sorted(TABLES.items())
    for column in [*table.chained.split(), *table.derived.split()]
    if name != "schema_migrations"  # tests/quotebot/cli/test_changed_schema.py
]
UNIQUE: Final = {  # columns that must be unique in a copied row, besides its key
    "quotes": {"created_by_operation": "'x'"},
    "rulesets": {"state": "'discarded'"},
    "crm_conflicts": {"state": "'over'"},
    "approvals": {"state": "'expired'"},
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a ledger with a row in every bound table."""
    path = tmp_path_factory.mktemp("history") / "ledger.db"
    asyncio.run(everything(path))
    return path


@pytest.fixture
def copy(origin: Path, tmp_path: Path) -> Path:
    """Return a copy of it, with its key."""
    for file in (origin, origin.with_name("audit-0001.key")):
        shutil.copyfile(file, tmp_path / file.name)
        (tmp_path / file.name).chmod(0o600)
    return tmp_path / origin.name


@pytest.fixture(scope="module")
def kept(origin: Path) -> Backup:
    """Return a backup of it."""
    return make_backup(Settings(_env_file=None, data_dir=origin.parent), MORNING, folder=origin.parent / "kept")


def found_in(path: Path) -> Finding | None:
    """Verify the audit and the tables; return the finding."""
    with closing(open_read_only(path)) as connection:
        connection.execute("BEGIN")
        tx = SqliteTx(connection, schema_and_statements()[1], None)
        report = verify_within(tx, load_keyring(path.parent, may_create=False), events_max=10**9, replay=history.replay)
    assert report is not None
    return report.finding


def edited(path: Path, *statements: str) -> None:
    """Write to a stopped ledger without its guards and constraints."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("BEGIN")
        guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, guard in guards:
            connection.execute(guard)
        connection.execute("COMMIT")


def change_of(path: Path, table: str, column: str) -> str:
    """Return SQL that changes the column of one row to another value of its type."""
    with closing(sqlite3.connect(path)) as connection:
        kinds = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
    others = {"INTEGER": f"coalesce({column}, 0) + 1000", "BLOB": "zeroblob(32)"}
    other = others.get(kinds[column], f"coalesce({column}, '') || 'x'")
    keys = ", ".join(TABLES[table].keys)
    first = f"SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1"  # noqa: S608 -- names of the classification
    return f"UPDATE {table} SET {column} = {other} WHERE ({keys}) = ({first})"  # noqa: S608 -- as above


def test_a_ledger_nobody_edited_is_whole_and_has_a_row_in_every_bound_table(copy: Path) -> None:
    assert found_in(copy) is None
    with closing(sqlite3.connect(copy)) as connection:
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in BOUND}  # noqa: S608 -- as above
    assert all(counts.values()), counts


def spelled(path: Path, change: str) -> set[str]:
    """Return the possible spellings of the table and key of the row that SQL changes."""
    table, where = change.split()[1], change.partition(" WHERE ")[2]
    with closing(sqlite3.connect(path)) as connection:
        (keys,) = connection.execute(f"SELECT {', '.join(TABLES[table].keys)} FROM {table} WHERE {where}")  # noqa: S608 -- as above
    whole = str(keys[0]) if len(keys) == 1 else json.dumps(keys, separators=(",", ":"))
    return {f"{table} {whole}", f"{table} {keys[0]}", f"{table} {' v'.join(map(str, keys))}"}


def refusals(copy: Path, kept: Backup, change: str) -> list[str]:
    """Return the finding of each verification of one change: of the ledger, by doctor, and of a backup to restore."""
    settings = Settings(_env_file=None, data_dir=copy.parent)
    backup = replace(kept, path=copy.with_name(kept.path.name))
    shutil.copyfile(kept.path, backup.path)
    edited(copy, change)
    found = found_in(copy)
    said = ["" if found is None else f"{found.table} {found.row}"]
    seen = asyncio.run(records.audit(Site(settings)))
    said.append(seen.words if seen.bad else "")
    edited(backup.path, change)
    content = backup.path.read_bytes()
    forged = replace(backup.manifest, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    signed = forged.signed(load_keyring(copy.parent))  # by an attacker with the keys
    with pytest.raises(BackupError) as refused:
        prove_backup(settings, Backup(backup.path, signed))
    return [*said, str(refused.value)]


@pytest.mark.parametrize(("table", "column"), CELLS, ids=[f"{table}.{column}" for table, column in CELLS])
def test_an_edited_cell_is_refused_by_verify_doctor_and_restore_naming_the_row(
    copy: Path, kept: Backup, table: str, column: str
) -> None:
    change = change_of(copy, table, column)
    names = spelled(copy, change)
    said = refusals(copy, kept, change)
    if column in TABLES[table].keys:  # the row is missing, and an unknown one exists
        names.add(table)
    assert [each for each in said if not any(name in each for name in names)] == [], names


@pytest.mark.parametrize("table", BOUND)
def test_a_deleted_row_is_found(copy: Path, table: str) -> None:
    keys = ", ".join(TABLES[table].keys)
    edited(copy, f"DELETE FROM {table} WHERE ({keys}) = (SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1)")  # noqa: S608 -- as above
    found = found_in(copy)
    assert found is not None
    assert found.table in {table, "approvals"}, found


@pytest.mark.parametrize("table", BOUND)
def test_a_row_put_in_from_outside_is_found(copy: Path, table: str) -> None:
    with closing(sqlite3.connect(copy)) as connection:
        kinds = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
    own = {TABLES[table].keys[-1]: "new", **UNIQUE.get(table, {})}
    values = []
    for column, kind in kinds.items():
        value = own.get(column, column)
        values.append(value if value != "new" else f"{column} + 1000" if kind == "INTEGER" else f"{column} || 'x'")
    copied = f"INSERT INTO {table} ({', '.join(kinds)}) SELECT {', '.join(values)} FROM {table} LIMIT 1"  # noqa: S608 -- as above
    edited(copy, copied)
    found = found_in(copy)
    assert found is not None
    assert found.table == table, found


def test_a_row_put_back_after_its_deletion_is_found(copy: Path) -> None:
    """Retention deletes settled differences, and audits that."""

    async def forget() -> dict[str, Any]:
        async with bench_at(copy) as bench:
            row = bench.row("SELECT * FROM crm_conflicts")
            await bench.ledger.database.write(
                "settle", lambda tx: tx.one("settle_crm_conflict", id=1, state="over", decided_by=None, reason=None, now=1)
            )
            await bench.ledger.database.write("forget", lambda tx: tx.all("forget_conflicts", before=2, limit=9))
            return row

    row = asyncio.run(forget())
    assert found_in(copy) is None
    tampered(copy, f"INSERT INTO crm_conflicts ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values())  # noqa: S608 -- as above
    found = found_in(copy)
    assert found is not None
    assert (found.table, found.row) == ("crm_conflicts", "1")
    assert "deleted" in found.meaning


def row_for(path: Path, table: str) -> str:
    """Return SQL that puts a row into an empty table."""
    with closing(sqlite3.connect(path)) as connection:
        kinds = [row[2] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = {"INTEGER": "1", "BLOB": "zeroblob(32)"}
    return f"INSERT INTO {table} VALUES ({', '.join(values.get(kind, repr('x')) for kind in kinds)})"  # noqa: S608 -- as above


OPERATIONAL: Final = [(name, column) for name, table in sorted(TABLES.items()) for column in table.operational.split()]


def test_any_edited_cell_of_a_backup_is_refused_by_its_manifest(copy: Path) -> None:
    settings = Settings(_env_file=None, data_dir=copy.parent)
    backup = make_backup(settings, MORNING)
    whole = backup.path.read_bytes()
    for table, column in OPERATIONAL:
        backup.path.write_bytes(whole)
        edited(backup.path, change_of(backup.path, table, column))
        if backup.path.read_bytes() == whole:
            edited(backup.path, row_for(backup.path, table))
        assert backup.path.read_bytes() != whole
        with pytest.raises(BackupError, match="the checksum differs"):
            prove_backup(settings, backup)
        content = backup.path.read_bytes()
        forged = replace(backup.manifest, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        with pytest.raises(BackupError, match="was changed by somebody without the audit key"):
            prove_backup(settings, Backup(backup.path, forged))


PRETENDED = ("DELETE FROM schema_migrations WHERE name = '0230_history.sql'", "INSERT INTO meta VALUES ('history_unbound', '')")


@pytest.mark.parametrize("pretended", PRETENDED, ids=["migration", "mark"])
def test_a_ledger_that_pretends_to_be_of_an_older_build_is_not_bound_anew(copy: Path, pretended: str) -> None:
    with closing(sqlite3.connect(copy)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(rulesets)")]
    own = {"version": "99", "hash": "'f' || substr(hash, 2)", "label": "'cheap'", "state": "'retired'", "retired_at": "1"}
    planted = f"INSERT INTO rulesets ({', '.join(columns)}) SELECT {', '.join(own.get(c, c) for c in columns)} FROM rulesets"  # noqa: S608 -- as above
    tampered(copy, planted)
    tampered(copy, pretended)
    found = found_in(copy)
    assert found is not None
    assert (found.table, found.row) == ("rulesets", "99")

    async def start() -> None:
        async with bench_at(copy):
            pytest.fail("it was opened")

    with pytest.raises(DatabaseError, match="its history is not whole: rulesets 99"):
        asyncio.run(start())


async def test_what_was_rolled_back_is_not_bound(tmp_path: Path) -> None:
    async with bench_at(tmp_path / "ledger.db") as bench:

        def fails(tx: Any) -> None:
            tx.one("insert_ruleset_request", request_id="q", fingerprint="d" * 64, answer="{}", requested_by="o", requested_at=1)
            raise ValueError("on purpose")

        with pytest.raises(ValueError, match="on purpose"):
            await bench.ledger.database.write("fails", fails)
        await Desk(bench).ask(create_command(), "new", 0)
        bound = [loads(row["after"]).get("bound", {}) for row in bench.rows("SELECT after FROM audit_events WHERE after <> ''")]
        assert not any("ruleset_requests" in each for each in bound)
    assert found_in(tmp_path / "ledger.db") is None


async def test_every_decision_is_bound_in_the_event_that_tells_of_it(tmp_path: Path) -> None:
    async with bench_at(tmp_path / "ledger.db") as bench:
        await Desk(bench).ask(create_command(), "new", 0)
        (event,) = bench.rows("SELECT after FROM audit_events WHERE event_type = 'quote.created'")
        after = json.loads(event["after"])
        assert set(after["bound"]) == {"quotes", "quote_versions"}
        assert set(after["bound"]["quotes"]) == {QUOTE}
        assert after["state"] == "priced"


def test_a_command_that_was_put_in_carried_out_and_removed_is_found(copy: Path) -> None:
    """Its own events stay, but none of them is its reservation."""

    async def carry_out() -> str:
        async with bench_at(copy) as bench:
            desk = Desk(bench)
            row = bench.row("SELECT * FROM operations ORDER BY id DESC LIMIT 1")
            identity = {name: row[name] for name in ("source", "action_kind", "aggregate_id", "aggregate_version", "payload_hash")}
            forged = {**identity, "source_request_id": "forged"}
            key = operation_key(**forged)
            now = bench.clock.now_ms()
            times = dict.fromkeys(("received_at", "next_attempt_at", "created_at", "updated_at"), now)
            whose = {name: row[name] for name in ("actor", "actor_type", "team_id", "payload")}
            values = {**forged, **whose, **times, "operation_key": key, "lane": row["aggregate_id"], "correlation_id": "c-1"}
            put = f"INSERT INTO operations ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608 -- of the names above
            bench.rows(put, *values.values())
            assert await desk.step()
            return key

    key = asyncio.run(carry_out())
    edited(copy, f"DELETE FROM effects WHERE operation_id = (SELECT id FROM operations WHERE operation_key = '{key}')")  # noqa: S608 -- hexadecimal
    edited(copy, f"DELETE FROM operations WHERE operation_key = '{key}'")  # noqa: S608 -- hexadecimal
    found = found_in(copy)
    assert found is not None
    assert (found.table, found.row) == ("operations", key)


async def test_skipped_numbers_are_known_from_the_newest_of_several_system_chains(tmp_path: Path) -> None:
    async with bench_at(tmp_path / "ledger.db") as bench:
        for writer, last in (("", 10), ("/b", 20), ("/a", 30)):
            bench.ledger.audit.system_chain = f"system{writer}"

            def work(tx: Tx, last: int = last) -> None:
                tx.one("skip_quote_numbers", year=2026, last=last)
                history.skipped(tx, bench.ledger.audit, {2026: last}, "operator", MORNING)

            await bench.ledger.database.write("skip", work)
        assert await bench.ledger.database.read(history.wrong_numbers) == {}
    assert found_in(tmp_path / "ledger.db") is None
    edited(tmp_path / "ledger.db", "UPDATE quote_numbers SET last = 20")
    found = found_in(tmp_path / "ledger.db")
    assert found is not None
    assert (found.table, found.meaning) == ("quote_numbers", "column last is 20; the audit says 30: it was edited")
