"""Tests of named statements: numbered parameters, the types of parameters, and the columns that records read."""

from __future__ import annotations

import re
import sqlite3
from importlib.resources import files

import pytest

from ledger.audit.columns import statements
from ledger.database import load_statements
from ledger.records import EFFECT_COLUMNS, OPERATION_COLUMNS
from ledger.sqlite.batch import SqliteTx, numbered
from ledger.sqlite.connections import harden
from quotebot.store.columns import TABLES
from tests.ledger.parts import STATEMENTS, Desk, applied, intent

ALL = {**STATEMENTS, **load_statements([files("quotebot.store").joinpath("queries.sql").read_text("utf-8")]), **statements(TABLES)}


def test_each_parameter_of_a_statement_gets_one_number_in_the_order_of_first_use() -> None:
    sql, ordered = numbered("UPDATE t SET a = :now, b = :id -- not :this\nWHERE id = :id AND c < :now")
    assert sql == "UPDATE t SET a = ?1, b = ?2 \nWHERE id = ?2 AND c < ?1"
    assert ordered({"id": 7, "now": 9, "more": 0}) == (9, 7)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT :one"])
def test_statements_with_few_parameters_get_a_tuple(text: str) -> None:
    _, ordered = numbered(text)
    assert ordered({"one": 1}) == (1,) * text.count(":")


def test_missing_parameter_is_an_error() -> None:
    _, ordered = numbered("SELECT :one, :two")
    with pytest.raises(KeyError, match="two"):
        ordered({"one": 1})


@pytest.mark.parametrize("name", sorted(ALL))
def test_no_named_parameter_is_left_in_a_statement(name: str) -> None:
    sql, _ = numbered(ALL[name])
    outside = re.sub(r"'[^']*'", "''", sql)
    assert ":" not in outside
    assert "--" not in outside
    assert set(re.findall(r"'[^']*'", ALL[name].split("--")[0])) <= set(re.findall(r"'[^']*'", sql))


def test_null_and_bytes_are_stored_as_given() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    harden(connection)
    connection.execute("BEGIN")
    row = SqliteTx(connection, {"kinds": "SELECT typeof(:a), typeof(:b), :b"}, None).all("kinds", a=None, b=b"\x00mac")[0]
    assert tuple(row) == ("null", "blob", b"\x00mac")
    connection.close()


@pytest.mark.parametrize(
    ("name", "columns"),
    [("claim_operation", OPERATION_COLUMNS), ("claim_effect", EFFECT_COLUMNS), ("deliver_effect", EFFECT_COLUMNS)],
)
def test_frequent_statements_return_the_columns_of_the_record_in_order(name: str, columns: tuple[str, ...]) -> None:
    returned = ALL[name].partition("RETURNING")[2]
    assert tuple(column.strip() for column in returned.split(",")) == columns


async def test_records_are_equal_whichever_statement_returned_their_row(desk: Desk) -> None:
    operation = await desk.claim_operation("r1")
    assert operation == desk.operation(operation.id)
    await desk.ledger.execute(operation, applied(intent("slack.post"), intent("slack.reply", "repeat_once")))
    for effect in await desk.claim_each():
        assert effect == desk.effect(effect.id)
    assert desk.operation(operation.id).response == {"code": "ok"}
