"""Tests that PostgreSQL takes every named statement, and that a text of its own says the same as the one it replaces."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from ledger.database import replace_statements
from ledger.sqlite.migrations import migrate
from tests.ledger.postgres.parts import BASE, MIGRATIONS, OF_SQLITE, REPLACEMENTS, STATEMENTS, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NUMBERS = {"bigint", "integer"}  # the driver sends every integer as a bigint
TYPES = NUMBERS | {"text", "bytea", "jsonb", "json"}


def numbered(text: str) -> tuple[str, list[str]]:
    """Return a statement with `$1` in place of its first `:name`, and the names in order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    without_comments = "\n".join(line.partition("--")[0] for line in text.split("\n"))
    return re.sub(r"'[^']*'|::|:([a-z_0-9]+)", number, without_comments), names


@pytest.fixture
def connection(create_database: Callable[[Sequence[str]], str]) -> Iterator[psycopg.Connection]:
    with psycopg.connect(create_database(schema_of(MIGRATIONS)), autocommit=True) as made:
        yield made


def test_postgres_takes_every_statement_and_infers_the_types_of_its_parameters(connection: psycopg.Connection) -> None:
    wrong = {}
    for name, text in STATEMENTS.items():
        sql, names = numbered(text)
        try:
            connection.execute(f"PREPARE {name} AS {sql}")
            inferred = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = %s"
            ((types,),) = connection.execute(inferred, (name,)).fetchall()
            given = ", ".join("bigint" if each in NUMBERS else "unknown" for each in types)
            connection.execute(f"PREPARE {name}_ {f'({given})' if given else ''} AS {sql}")
        except psycopg.Error as error:
            wrong[name] = str(error)
        else:
            wrong |= {f"{name} {parameter}": kind for parameter, kind in zip(names, types, strict=True) if kind not in TYPES}
    assert wrong == {}


def test_replacements_have_the_parameters_and_columns_of_what_they_replace(connection: psycopg.Connection) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as other:
        migrate(other, OF_SQLITE, 0)
        for name, text in REPLACEMENTS.items():
            sql, names = numbered(text)
            assert set(names) == set(numbered(BASE[name])[1]), name
            connection.execute(f"PREPARE {name} AS {sql}")
            described = connection.pgconn.describe_prepared(name.encode())
            given = {**dict.fromkeys(names, "[]"), "limit": 1}
            columns = [column.encode() for column, *_ in other.execute(BASE[name], given).description or ()]
            assert [described.fname(place) for place in range(described.nfields)] == columns, name


def test_a_replacement_of_nothing_is_an_error() -> None:
    assert replace_statements({"a": "1", "b": "2"}, {"b": "3"}) == {"a": "1", "b": "3"}
    with pytest.raises(ValueError, match="no statement is named c"):
        replace_statements({"a": "1"}, {"c": "3"})


DOCUMENTS = (
    '{"text": "x", "number": 5, "yes": true, "no": false, "none": null, "deep": {"text": "y"}, "zero": "a\\\\u0000b"}',
    '[{"text": "first"}, {"text": "last", "number": 7}]',
    "[]",
    "{}",
)
PATHS = ("$.text", "$.number", "$.yes", "$.no", "$.none", "$.absent", "$[#-1].text", "$[#-1].number")


def test_functions_of_sqlite_have_the_same_results(connection: psycopg.Connection) -> None:
    """A number is compared as a text: json_extract has one type of result on PostgreSQL."""
    with closing(sqlite3.connect(":memory:")) as other:
        for document in DOCUMENTS:
            for path in PATHS:
                expected = other.execute("SELECT CAST(json_extract(?, ?) AS TEXT)", (document, path)).fetchone()
                assert connection.execute("SELECT json_extract(%s, %s)", (document, path)).fetchone() == expected, (document, path)
        for whole, part in ((" C1 C2 ", " C2 "), ("Müller", "ü"), ("abc", "x"), ("abc", ""), (None, "a")):
            found = other.execute("SELECT instr(?, ?)", (whole, part)).fetchone()
            assert connection.execute("SELECT instr(%s::text, %s)", (whole, part)).fetchone() == found, (whole, part)
        assert connection.execute("SELECT lower('ÄB')").fetchone() == other.execute("SELECT lower('ÄB')").fetchone()
