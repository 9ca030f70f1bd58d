"""Tests of the migrations of a PostgreSQL database and of the comparison of its schema."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pytest

from ledger.database import DatabaseError
from ledger.migrations import EXPAND, Migration, OlderBuildError, SchemaChangedError
from ledger.postgres import migrations
from ledger.postgres.migrations import LOCK, migrate, newer, pending, require_schema, schema_differences, wait_for_migrations
from tests.ledger.postgres.parts import LEDGER, MIGRATIONS, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.postgres import Server

Create: TypeAlias = "Callable[[Sequence[str]], str]"
Connection: TypeAlias = Any  # psycopg.Connection; its package is not read by the type checker
NAMES = [f"{each.component}/{each.name}" for each in MIGRATIONS]


@pytest.fixture
def connection(create_database: Create) -> Iterator[Connection]:
    """Yield a connection to a migrated database."""
    with psycopg.connect(create_database(schema_of(MIGRATIONS)), autocommit=True) as made:
        yield made


def test_processes_that_start_together_apply_each_file_once(create_database: Create) -> None:
    url = create_database(())
    applied: list[str] = []

    def start() -> None:
        with psycopg.connect(url, autocommit=True) as own:
            applied.extend(migrate(own, MIGRATIONS, 5))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == sorted(NAMES)
    with psycopg.connect(url, autocommit=True) as own:
        assert migrate(own, MIGRATIONS, 6) == []
        assert pending(own, MIGRATIONS) == []
        require_schema(own, MIGRATIONS)
        assert own.execute("SELECT min(applied_at), max(applied_at) FROM schema_migrations").fetchall() == [(5, 5)]
        assert own.execute("SELECT reltuples FROM pg_class WHERE relname = 'operations'").fetchall() == [(-1,)], "never analyzed"
        assert own.execute("SELECT length(value) FROM meta WHERE name = 'ledger_id'").fetchall() == [(8,)]


def test_a_process_that_waited_long_for_the_first_migration_sees_it(
    create_database: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.01)
    url = create_database(())
    first_one = (
        Migration("ledger", "0001_one.sql", "CREATE TABLE one (id BIGINT);"),
    )  # too little for the server to tell others of
    late: list[str] = []

    def start() -> None:
        with psycopg.connect(url, autocommit=True) as own:
            late.extend(migrate(own, first_one, 6))

    thread = threading.Thread(target=start)
    with psycopg.connect(url, autocommit=True) as first, psycopg.connect(url, autocommit=True) as watcher:
        with first.transaction():
            first.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            thread.start()
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database() "
                "AND clock_timestamp() - query_start > '0.1 s'"
            )
            while watcher.execute(waiting).fetchall() == [(0,)] and thread.is_alive():
                pass
            assert migrate(first, first_one, 5) == ["ledger/0001_one.sql"]
        thread.join()
        assert late == []
        assert first.execute("SELECT applied_at FROM schema_migrations").fetchall() == [(5,)]


def test_a_file_applied_during_a_comparison_is_not_foreign(create_database: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    url = create_database(())
    honest = migrations.recorded

    def recorded(*asked: Any) -> Any:
        found = honest(*asked)
        monkeypatch.undo()
        with psycopg.connect(url, autocommit=True) as other:
            assert migrate(other, MIGRATIONS, 5) == NAMES[1:]
        return found

    with psycopg.connect(url, autocommit=True) as own:
        migrate(own, MIGRATIONS[:1], 5)
        monkeypatch.setattr(migrations, "recorded", recorded)
        assert schema_differences(own, MIGRATIONS) == []
        assert pending(own, MIGRATIONS) == []


def of_newer_build(name: str, sql: str, header: str = EXPAND) -> Migration:
    return Migration("quotebot.store", name, f"{header} for a test\n{sql}")


NOTES = of_newer_build(
    "0910_notes.sql",
    """
CREATE TABLE notes (id BIGINT PRIMARY KEY, quote_id TEXT NOT NULL UNIQUE REFERENCES quotes (quote_id));
CREATE FUNCTION no_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER notes_last BEFORE DELETE ON notes FOR EACH ROW EXECUTE FUNCTION no_note();
CREATE INDEX operations_notes ON operations (team_id);
ALTER TABLE operations ADD COLUMN note TEXT, ADD COLUMN weight NUMERIC(10, 2) NOT NULL DEFAULT 0;
""",
)
REMOVAL = of_newer_build("0911_removal.sql", "ALTER TABLE notes DROP COLUMN quote_id;", "-- contract:")


def test_a_database_that_a_newer_build_has_changed_is_refused_and_unchanged(connection: Connection) -> None:
    migrate(connection, (*MIGRATIONS, NOTES, REMOVAL), 6)
    with pytest.raises(DatabaseError, match=r"newer build \(it has quotebot.store/0911_removal.sql\)"):
        migrate(connection, (*MIGRATIONS, NOTES), 7)
    with pytest.raises(DatabaseError, match=r"newer build \(it has quotebot.store/0911_removal.sql\)"):
        require_schema(connection, MIGRATIONS)
    changed = (Migration("ledger", LEDGER[0].name, "SELECT 1;"), *MIGRATIONS[1:])
    with pytest.raises(DatabaseError, match=r"0001_ledger\.sql was changed after it was applied"):
        pending(connection, changed)


def test_older_build_works_with_what_a_newer_one_has_added(connection: Connection) -> None:
    migrate(connection, (*MIGRATIONS, NOTES), 6)
    assert pending(connection, MIGRATIONS) == []
    assert newer(connection, MIGRATIONS) == ["quotebot.store/0910_notes.sql"]
    assert newer(connection, (*MIGRATIONS, NOTES)) == []
    require_schema(connection, MIGRATIONS)
    require_schema(connection, (*MIGRATIONS, NOTES))


FOREIGN = {
    "ALTER TABLE quotes ADD COLUMN needed TEXT NOT NULL": "table quotes was changed",
    "ALTER TABLE attempts ADD COLUMN kept TEXT DEFAULT 'x', DROP COLUMN kind": "table attempts was changed",
    "ALTER TABLE gates ADD CONSTRAINT short CHECK (length(name) < 9)": "constraint short is not one of Quotebot's",
    "CREATE UNIQUE INDEX one_team ON deliveries (source)": "index one_team is not one of Quotebot's",
    "CREATE TRIGGER refused BEFORE INSERT ON epochs FOR EACH ROW EXECUTE FUNCTION refuse('no')": (
        "trigger refused is not one of Quotebot's"
    ),
    "DROP INDEX operations_in_progress": "index operations_in_progress is missing",
    "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'": "function refuse was changed",
}


def test_beside_additions_what_could_refuse_the_older_build_is_still_named(connection: Connection) -> None:
    migrate(connection, (*MIGRATIONS, NOTES), 6)
    with connection.transaction(force_rollback=True):
        for change in FOREIGN:
            connection.execute(change)
        found = schema_differences(connection, MIGRATIONS)
    assert {each for each in found if not each.startswith("constraint attempts_")} == set(FOREIGN.values())


def test_only_a_file_that_adds_is_applied_while_bots_run(connection: Connection) -> None:
    newest = (*MIGRATIONS, NOTES, REMOVAL)
    with pytest.raises(OlderBuildError, match=r"bots run on it.*0911_removal.sql changes what they use"):
        migrate(connection, newest, 6, alone=lambda: False)
    assert pending(connection, newest) == [REMOVAL]
    assert migrate(connection, newest, 7) == ["quotebot.store/0911_removal.sql"]


def test_start_waits_for_a_migration_that_is_under_way(connection: Connection) -> None:
    with psycopg.connect(connection.info.dsn) as migrating:
        migrating.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
        waiting = threading.Thread(target=wait_for_migrations, args=(connection,))
        waiting.start()
        while not migrating.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchall():
            pass
        migrating.commit()
        waiting.join(30)
        assert not waiting.is_alive()


def test_every_file_says_whether_older_builds_go_on(connection: Connection) -> None:
    """And those that say it are accepted by the builds before them."""
    assert {each.sql.partition(":")[0] for each in MIGRATIONS} <= {"-- expand", "-- contract"}
    for count in range(1, len(MIGRATIONS)):
        if all(each.expands for each in MIGRATIONS[count:]):
            require_schema(connection, MIGRATIONS[:count])


def test_a_file_that_fails_leaves_nothing_of_itself(connection: Connection) -> None:
    broken = Migration("quotebot.store", "9000_broken.sql", "CREATE TABLE half (id BIGINT); SELECT 1 / 0;")
    with pytest.raises(DatabaseError, match=r"9000_broken.sql could not be applied \(division by zero\)"):
        migrate(connection, (*MIGRATIONS, broken), 6)
    assert connection.execute("SELECT to_regclass('half')").fetchall() == [(None,)]
    require_schema(connection, (*MIGRATIONS, broken))


CHANGES = {
    "DROP TRIGGER audit_no_update ON audit_events": "trigger audit_no_update is missing",
    "ALTER TABLE audit_events DISABLE TRIGGER audit_no_delete": "trigger audit_no_delete was changed",
    "CREATE TABLE notes (id BIGINT)": "table notes is not one of Quotebot's",
    "ALTER TABLE quotes ADD COLUMN note TEXT": "table quotes was changed",
    "ALTER TABLE quotes DROP CONSTRAINT quotes_state_check": "constraint quotes_state_check is missing",
    "DROP INDEX operations_in_progress": "index operations_in_progress is missing",
    "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'": "function refuse was changed",
    "ALTER FUNCTION quote_goes_on() RESET ALL": "function quote_goes_on was changed",
    "CREATE RULE nothing AS ON DELETE TO attempts DO INSTEAD NOTHING": "rule nothing is not one of Quotebot's",
}


def test_objects_that_another_program_changed_are_named(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        for change in CHANGES:
            connection.execute(change)
        assert sorted(schema_differences(connection, MIGRATIONS)) == sorted(CHANGES.values())
        with pytest.raises(SchemaChangedError, match="somebody wrote to the database with another program"):
            require_schema(connection, MIGRATIONS)
    with connection.transaction(force_rollback=True):
        connection.execute("DROP FUNCTION refuse CASCADE")
        assert schema_differences(connection, MIGRATIONS) == ["function refuse() does not exist"]
    require_schema(connection, MIGRATIONS)


def test_a_role_without_the_right_to_create_can_compare_the_schema(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE ROLE reader")
        connection.execute("GRANT USAGE ON SCHEMA public TO reader")
        connection.execute("GRANT SELECT ON schema_migrations TO reader")
        connection.execute("SET LOCAL ROLE reader")
        require_schema(connection, MIGRATIONS)


def test_a_database_that_sorts_by_language_is_refused(postgres: Server) -> None:
    url = postgres.create(())
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE sorted TEMPLATE template0 LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8'")
        with (
            psycopg.connect(url, dbname="sorted", autocommit=True) as own,
            pytest.raises(DatabaseError, match=r"UTF8, C\.UTF-8, C\.UTF-8"),
        ):
            migrate(own, MIGRATIONS, 5)
        admin.execute("DROP DATABASE sorted")
    postgres.drop(url)


def test_a_session_that_asks_for_it_hears_of_each_bound_row(connection: Connection) -> None:
    quote = "INSERT INTO document_sets (sha256, content, stored_at) VALUES (repeat('a', 64), 'c', 1)"
    connection.execute(quote)
    connection.execute(
        "CREATE TEMPORARY TABLE bound_rows (name TEXT NOT NULL, aggregate_id TEXT, deleted BIGINT NOT NULL, key TEXT NOT NULL)"
        " ON COMMIT DELETE ROWS"
    )
    with connection.transaction():
        connection.execute(
            "INSERT INTO crm_conflicts (quote_id, version, record_id, field, ours, theirs, found_at, state, decided_at)"
            " VALUES ('Q', 2, 'r', 'f', 'o', 't', 1, 'over', 2)"
        )
        connection.execute("DELETE FROM crm_conflicts")
        connection.execute("INSERT INTO quote_freezings SELECT 'Q', 1, 'u', 1 WHERE false")
        connection.execute("INSERT INTO document_pins (quote_id, version, sha256, pinned_at) VALUES ('Q', 7, repeat('a', 64), 1)")
        reported = connection.execute("SELECT name, aggregate_id, deleted, key FROM bound_rows").fetchall()
    assert reported == [
        ("crm_conflicts", "Q", 0, "[1]"),
        ("crm_conflicts", "Q", 1, "[1]"),
        ("document_pins", "Q", 0, '["Q", 7]'),
    ]
    assert connection.execute("SELECT count(*) FROM bound_rows").fetchall() == [(0,)]
