"""Tests that the four definitions of the two state machines agree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ledger import machine
from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS, EffectState, OperationState
from tests.ledger.parts import HOME, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

    from tests.ledger.places import Shell

Arrows = set[tuple[str, str]]

QUERIES = (HOME / "queries.sql").read_text("utf-8")
ARROWS: dict[str, Arrows] = {
    "operations": {(source.value, target.value) for source, targets in OPERATION_ARROWS.items() for target in targets},
    "effects": {(source.value, target.value) for source, targets in EFFECT_ARROWS.items() for target in targets},
}


def drawn(title: str) -> Arrows:
    """Return the arrows of one drawing in the module's docstring."""
    assert machine.__doc__ is not None
    drawing = machine.__doc__.partition(f"{title}::\n\n")[2].partition("\n\n")[0]
    found: Arrows = set()
    for line in drawing.splitlines():
        source, _, targets = line.partition("►")
        found |= {(source.split()[0], re.sub(r"\(.*\)", "", target).strip()) for target in targets.split("|")}
    return found


def drawn_above_statements() -> Iterator[tuple[str, Arrows]]:
    """Yield each named statement whose comment contains arrows."""
    for block in QUERIES.split("-- name: ")[1:]:
        name, *lines = block.splitlines()
        comments = [line for line in lines if re.fullmatch(r"-- \w+ -> \w+", line)]
        if comments:
            yield name, {tuple(comment.removeprefix("-- ").split(" -> ")) for comment in comments}  # type: ignore[misc] # two parts


DRAWN = dict(drawn_above_statements())


def read_from_sql(sql: str) -> tuple[str, Arrows]:
    """Return the table and the arrows of an UPDATE."""
    table = sql.split()[1]
    change, _, condition = sql.partition("WHERE")
    (target,) = re.findall(r"SET state = '(\w+)'", change)
    sources = re.search(r"state (?:= ('\w+')|IN \(([^)]*)\))", condition)
    assert sources is not None, sql
    return table, {(source, target) for source in re.findall(r"\w+", sources[1] or sources[2])}


@pytest.mark.parametrize(("title", "table"), [("Operation", "operations"), ("Effect", "effects")])
def test_the_drawing_shows_exactly_the_arrows_of_the_table(title: str, table: str) -> None:
    assert drawn(title) == ARROWS[table]


@pytest.mark.parametrize("table", ["operations", "effects"])
def test_the_database_allows_exactly_the_arrows_of_the_table(table: str, shell: Shell) -> None:
    stored = shell.execute(f"SELECT source, target FROM {table.removesuffix('s')}_arrows")  # noqa: S608 -- two known names
    assert {(row["source"], row["target"]) for row in stored} == ARROWS[table]


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_statement_moves_rows_as_its_comment_says_and_as_the_table_allows(name: str) -> None:
    table, real = read_from_sql(STATEMENTS[name])
    assert DRAWN[name] == real
    assert real <= ARROWS[table]


def test_every_statement_that_sets_a_state_draws_its_arrow() -> None:
    assert {name for name, sql in STATEMENTS.items() if "SET state = '" in sql} == set(DRAWN)


@pytest.mark.parametrize("name", sorted(name for name, arrows in DRAWN.items() if any("in_" in source for source, _ in arrows)))
def test_what_ends_a_claim_holds_its_fence(name: str) -> None:
    assert "fence = :fence" in STATEMENTS[name].partition("WHERE")[2]


@pytest.mark.parametrize(
    ("table", "states", "start", "ends"),
    [
        ("operations", OperationState, "reserved", {"completed", "discarded"}),
        ("effects", EffectState, "pending", {"delivered", "superseded", "discarded"}),
    ],
)
def test_every_state_is_reached_and_only_the_ends_have_no_arrow(
    table: str, states: type[StrEnum], start: str, ends: set[str]
) -> None:
    every = {state.value for state in states}
    assert {target for _, target in ARROWS[table]} | {start} == every
    assert every - {source for source, _ in ARROWS[table]} == ends
