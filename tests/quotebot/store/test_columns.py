"""Tests that the classification of columns is complete: it names each table and column of the migrations once."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from ledger.audit.columns import statements
from ledger.sqlite.migrations import migrate
from quotebot.app.installation import schema_and_statements
from quotebot.store.columns import TABLES


def made() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, schema_and_statements()[0], 0)
    return connection


def test_every_column_of_every_table_is_classified_once() -> None:
    with closing(made()) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        real = {name: sorted(row[1] for row in connection.execute(f"PRAGMA table_info({name})")) for (name,) in names.fetchall()}
    assert {name: sorted(table.columns) for name, table in TABLES.items()} == real


def test_the_key_of_a_table_is_its_primary_key_and_chained_where_anything_is() -> None:
    with closing(made()) as connection:
        for name, table in TABLES.items():
            key = sorted((row[5], row[1]) for row in connection.execute(f"PRAGMA table_info({name})") if row[5])
            assert table.keys == tuple(column for _, column in key), name
            assert not table.chained or set(table.keys) <= set(table.bound), name
            assert bool(table.chained) == bool(table.chain), name


def test_every_statement_of_the_bound_tables_finds_its_rows_by_the_key() -> None:
    with closing(made()) as connection:
        for name, sql in statements(TABLES).items():
            values = dict.fromkeys(("limit", "chain", *(key for table in TABLES.values() for key in table.keys)), 1)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
            assert name.startswith("bound_of_chain_") or not any("TEMP B-TREE" in step for step in plan), (name, plan)
