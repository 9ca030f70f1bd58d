"""Tests of the migrations of a PostgreSQL database and of the comparison of its schema."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pytest

from ledger.database import DatabaseError
from ledger.migrations import Migration, SchemaChangedError
from ledger.postgres.migrations import migrate, pending, require_schema, schema_differences
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


def test_a_database_of_another_build_is_refused_and_unchanged(connection: Connection) -> None:
    with pytest.raises(DatabaseError, match=r"newer build \(it has quotebot.store/0001_quotes.sql\)"):
        migrate(connection, LEDGER, 6)
    changed = (Migration("ledger", LEDGER[0].name, "SELECT 1;"), *MIGRATIONS[1:])
    with pytest.raises(DatabaseError, match=r"0001_ledger\.sql was changed after it was applied"):
        migrate(connection, changed, 6)


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
