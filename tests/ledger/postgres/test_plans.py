"""Tests of PostgreSQL's plans: frequent statements find their rows by an index, whatever the server knows about the tables.

Statistics are part of the test: a table may have been empty when it was analyzed last, or never have been analyzed.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ledger.postgres.pipeline import NamedStatement
from tests.ledger.parts import HISTORY, START_MS
from tests.ledger.postgres.parts import LEDGER, LEDGER_STATEMENTS, schema_of
from tests.ledger.postgres.places import PostgresShell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DUE = 3_000
MOST = 400  # rows that a claim of ten may read
# Due commands with a due effect each, every fourth of them in one lane.
BACKLOG = f"""
INSERT INTO operations (operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash, payload,
  correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)
SELECT
  lpad('' || n, 64, '0'), 'cli', '' || n, 'quote.submit', lane, lane, lpad('' || n, 64, '0'),
  '{{}}', 'c-' || n, 'a', 'user', 'T', 1, 1, 1, 1
FROM (
  SELECT n, CASE WHEN n % 4 = 0 THEN 'Q-busy' ELSE 'Q-' || n END AS lane
  FROM generate_series(10001, {10000 + DUE}) AS n) AS numbers;
INSERT INTO effects (effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload, next_attempt_at,
  aged_from, created_at, updated_at)
SELECT operation_key, id, 'slack.post', 'append', aggregate_id, aggregate_id, correlation_id, '{{}}', 1, 1, 1, 1
FROM operations WHERE state = 'reserved';
"""  # noqa: S608 -- numbers of our own
INDEXES = {
    "find_delivery": {"deliveries_source_source_request_id_action_kind_key"},
    "operation_by_key": {"operations_operation_key_key"},
    "due_operations": {"operations_due", "operations_lane", "operations_in_progress"},
    "suspect_operations": {"operations_suspect"},
    "operations_in_progress": {"operations_in_progress"},
    "lapsed_operations": {"operations_in_progress"},
    "renew_operation_leases": {"operations_in_progress"},
    "next_operation_due_at": {"operations_due"},
    "effect_by_key": {"effects_effect_key_key"},
    "due_classes": {"effects_due"},
    "due_effects": {"effects_due", "effects_lane", "effects_in_flight", "operations_pkey"},
    "suspect_effects": {"effects_suspect"},
    "effects_in_flight": {"effects_in_flight"},
    "lapsed_effects": {"effects_in_flight"},
    "renew_effect_leases": {"effects_in_flight"},
    "supersede_pending": {"effects_supersede"},
    "wake_children": {"effects_waiting"},
    "supersede_children": {"effects_waiting"},
    "next_effect_due_at": {"effects_due"},
    "count_children": {"effects_operation"},
    "effects_of_aggregate": {"effects_aggregate"},
    "holds_since": {"holds_name"},
}
VALUES = {"class": "slack.post", "classes": '["slack.post"]', "limit": "10", "suspect_claims": "2"}


class Planner:
    """A session with the settings of the ledger's own."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, options="-c enable_seqscan=off -c jit=off")

    def prepare(self, name: str, kind: str) -> str:
        """Prepare a named statement and return the command that executes it. `kind`: of the plan, custom or generic."""
        statement = NamedStatement(LEDGER_STATEMENTS[name])
        given = {parameter: f"'{VALUES.get(parameter, START_MS)}'" for parameter in statement.names}
        if name == "due_operations":
            given["only"] = "NULL"
        self.connection.execute(f"SET plan_cache_mode = force_{kind}_plan")
        self.connection.execute(f"PREPARE {name}_{kind} AS {statement.sql}")
        return f"EXECUTE {name}_{kind}" + (f" ({', '.join(given.values())})" if given else "")

    def explain(self, execute: str, *, run: bool = False) -> list[dict[str, Any]]:
        """Return the steps of a plan; with `run` what each found."""
        ((plans,),) = self.connection.execute(
            f"EXPLAIN (FORMAT JSON{', ANALYZE, BUFFERS, TIMING OFF' if run else ''}) {execute}"
        ).fetchall()
        return list(steps(plans[0]["Plan"]))


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from steps(inner)


def rows_read(found: list[dict[str, Any]]) -> int:
    """Count the rows that all steps found or threw away."""
    thrown = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
    return sum(step["Actual Loops"] * (step["Actual Rows"] + sum(step.get(name, 0) for name in thrown)) for step in found)


@pytest.fixture
def shell(create_database: Callable[[Sequence[str]], str]) -> Iterator[PostgresShell]:
    """Yield a shell on an empty ledger."""
    with closing(PostgresShell(create_database(schema_of(LEDGER)))) as shell:
        yield shell


@pytest.fixture
def planner(shell: PostgresShell) -> Iterator[Planner]:
    planner = Planner(shell.url)
    with closing(planner.connection):
        yield planner


def fill(shell: PostgresShell) -> None:
    for statement in ("BEGIN", *(HISTORY + BACKLOG).split(";\n")[:-1], "COMMIT"):
        shell.execute(statement)


@pytest.mark.parametrize("state", ["empty", "analyzed when empty", "never analyzed", "analyzed"])
def test_hot_statements_use_their_indexes(state: str, shell: PostgresShell, planner: Planner) -> None:
    if state == "analyzed when empty":
        shell.execute("ANALYZE")
    if state != "empty":
        fill(shell)
    if state == "analyzed":
        shell.execute("ANALYZE")
    for kind in ("custom", "generic"):
        for name, indexes in INDEXES.items():
            found = planner.explain(planner.prepare(name, kind))
            assert {step["Index Name"] for step in found if "Index Name" in step} == indexes, (name, kind)
            assert [step["Relation Name"] for step in found if step["Node Type"] == "Seq Scan"] == [], (name, kind)


@pytest.mark.parametrize("state", ["planned when empty", "analyzed when empty", "never analyzed", "analyzed"])
@pytest.mark.parametrize("name", ["due_operations", "due_effects"])
def test_claim_reads_few_rows_of_a_long_backlog(name: str, state: str, shell: PostgresShell, planner: Planner) -> None:
    if state == "analyzed when empty":
        shell.execute("ANALYZE")
    execute = planner.prepare(name, "generic")
    if state == "planned when empty":
        planner.connection.execute(execute)
    fill(shell)
    if state == "analyzed":
        shell.execute("ANALYZE")
    found = planner.explain(execute, run=True)
    assert found[0]["Actual Rows"] == int(VALUES["limit"])
    assert rows_read(found) <= MOST
    assert found[0]["Shared Hit Blocks"] + found[0]["Shared Read Blocks"] <= MOST
