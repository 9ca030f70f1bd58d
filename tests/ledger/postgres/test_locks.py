"""Tests of what two processes do at the same time, each on its own connection: the pairs that one writer alone never meets.

A statement that would wait is refused after a moment instead, so no test needs a thread.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pytest

from tests.ledger.postgres.parts import MIGRATIONS, STATEMENTS, schema_of
from tests.ledger.postgres.test_statements import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Row: TypeAlias = dict[str, Any]
OPERATION = (
    "INSERT INTO operations (operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash, payload,"
    " correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)"
    " VALUES (lpad(%(key)s, 64, '0'), 'cli', %(key)s, 'k', %(lane)s, %(lane)s, repeat('0', 64), '{\"v\":1}',"
    " 'c', 'a', 'user', 'T', 1, 1, 1, 1)"
)
EFFECT = (
    "INSERT INTO effects (effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload,"
    " next_attempt_at, aged_from, created_at, updated_at, after_id)"
    " VALUES (lpad(%(key)s, 64, '0'), 1, 'crm.create', 'append', %(target)s, 'Q', 'c', '{}', %(due)s, 1, 1, 1, %(after)s)"
)
DUE: Row = {"now": 5, "suspect_claims": 2, "only": " k/1 "}


class Process:
    """A connection that runs named statements inside one transaction."""

    def __init__(self, url: str) -> None:
        self._connection: Any = psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row)
        self._connection.execute("SET enable_seqscan = off; SET lock_timeout = '30ms'; BEGIN")

    def run(self, statement: str, **parameters: object) -> list[Row]:
        sql, names = numbered(STATEMENTS.get(statement, statement))
        sql = sql.replace("%", "%%") if statement in STATEMENTS else sql
        for place in range(len(names), 0, -1):
            sql = sql.replace(f"${place}", f"%({names[place - 1]})s")
        cursor = self._connection.execute(sql, parameters)
        return [] if cursor.description is None else list(cursor.fetchall())

    def waits(self, statement: str, **parameters: object) -> bool:
        """Tell whether a statement would wait for another process; without its effect."""
        self._connection.execute("SAVEPOINT before")
        try:
            self.run(statement, **parameters)
        except psycopg.errors.LockNotAvailable:
            return True
        else:
            return False
        finally:
            self._connection.execute("ROLLBACK TO before")

    def commit(self) -> None:
        self._connection.execute("COMMIT; BEGIN")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _processes(url: str) -> Iterator[tuple[Process, Process]]:
    pair = Process(url), Process(url)
    try:
        yield pair
    finally:
        for process in pair:
            process.close()


@pytest.fixture
def pair(create_database: Callable[[Sequence[str]], str]) -> Iterator[tuple[Process, Process]]:
    with _processes(create_database(schema_of(MIGRATIONS))) as made:
        made[0].run(OPERATION, key="1", lane="Q")
        made[0].commit()
        yield made


def test_a_child_and_the_delivery_of_its_parent_wait_for_each_other(pair: tuple[Process, Process]) -> None:
    """Without the lock both would commit, and nothing would ever make the child due."""
    one, two = pair
    parent = "0" * 63 + "1"
    one.run(EFFECT, key="1", target="t", due=1, after=None)
    one.run("UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 9, fence = 1, next_attempt_at = NULL")
    one.commit()
    deliver = {"id": 1, "fence": 1, "now": 5, "external_ref": "ts", "result": "{}"}
    assert [row["state"] for row in two.run("effect_by_key", effect_key=parent)] == ["in_flight"]
    assert one.waits("deliver_effect", **deliver)
    two.commit()
    one.run("deliver_effect", **deliver)
    assert two.waits("effect_by_key", effect_key=parent)
    one.commit()
    assert [row["state"] for row in two.run("effect_by_key", effect_key=parent)] == ["delivered"]


GATE: Row = {
    **dict.fromkeys(("cause", "reason", "held_by", "held_at", "until_at", "resumed_at")),
    "name": "crm",
    "failures": 0,
    "failing": "[]",
    "state_before": "flowing",
    "cause_before": "",
    **dict.fromkeys(("held_before", "until_before", "resumed_before", "failures_before"), 0),
}


@pytest.mark.parametrize("known", [False, True], ids=["a new gate", "a known gate"])
def test_an_operators_pause_is_not_undone_by_a_settlement_beside_it(pair: tuple[Process, Process], *, known: bool) -> None:
    one, two = pair
    if known:
        one.run("put_gate", **{**GATE, "state": "flowing"})
        one.commit()
    pause = {**GATE, "state": "held", "cause": "operator", "reason": "why", "held_by": "ops", "held_at": 5}
    count = {**GATE, "state": "flowing", "failures": 1}
    assert one.run("put_gate", **pause) == [{"name": "crm"}]
    assert two.waits("put_gate", **count)
    one.commit()
    assert two.run("put_gate", **count) == []
    assert two.run("gate", name="crm")[0]["state"] == "held"
    assert one.waits("put_gate", **pause), "it stays as it is until the change of what it is now"


def test_two_processes_count_what_is_in_flight_behind_a_gate_one_after_the_other(pair: tuple[Process, Process]) -> None:
    one, two = pair
    one.run("put_gate", **{**GATE, "state": "half_open"})
    one.commit()
    both = {"class": "crm.create", "family": "crm"}
    assert [row["state"] for row in one.run("lock_gates", **both)] == ["half_open"]
    assert two.waits("lock_gates", **both)


def test_equal_creations_look_for_each_other_one_after_the_other(pair: tuple[Process, Process]) -> None:
    one, two = pair
    asked = {"requester": "U1", "asked_hash": "h"}
    assert one.run("lock_twins", **asked) == [asked]
    assert two.waits("lock_twins", **asked)
    assert not two.waits("lock_twins", requester="U1", asked_hash="other")
    one.commit()
    assert two.run("lock_twins", **asked) == [asked]


def test_purges_delete_and_count_one_after_the_other(pair: tuple[Process, Process]) -> None:
    one, two = pair
    assert one.run("lock_job", name="retention") == [{"name": "retention"}]
    assert two.waits("lock_job", name="retention")
    one.commit()
    assert two.run("lock_job", name="retention") == [{"name": "retention"}]


def test_a_claim_passes_over_rows_that_another_process_is_claiming(pair: tuple[Process, Process]) -> None:
    one, two = pair
    for key, lane in (("2", "Q"), ("3", "R"), ("4", "R")):
        one.run(OPERATION, key=key, lane=lane)
    for key, target in (("1", "t"), ("2", "t"), ("3", "u")):
        one.run(EFFECT, key=key, target=target, due=1, after=None)
    one.commit()

    def due(process: Process, limit: int) -> list[list[int]]:
        effects = process.run("due_effects", **{**DUE, "class": "crm.create", "limit": limit})
        return [[row["id"] for row in found] for found in (process.run("due_operations", **DUE, limit=limit), effects)]

    assert due(one, 1) == [[1], [1]]
    assert due(two, 9) == [[3], [3]], "the second of a lane is not claimed before the first"
    assert two.run("due_suspect_operation", **{**DUE, "id": 1, "suspect_claims": 0}) == []
    assert two.run("due_suspect_effect", **{**DUE, "id": 1, "suspect_claims": 0}) == []
    assert [row["id"] for row in one.run("due_suspect_effect", **{**DUE, "id": 1, "suspect_claims": 0})] == [1]


@pytest.mark.parametrize("kind", ["operation", "effect"])
def test_a_row_that_a_person_changes_is_not_claimed_or_changed_by_another(pair: tuple[Process, Process], kind: str) -> None:
    """Without the lock a command would run after its person was told that it is canceled."""
    one, two = pair
    one.run(EFFECT, key="1", target="t", due=1, after=None)
    one.commit()
    assert [row["id"] for row in one.run(f"{kind}_to_change", id=1)] == [1]
    assert two.run(f"due_{kind}s", **{**DUE, "class": "crm.create", "limit": 9}) == []
    assert two.waits(f"{kind}_to_change", id=1)
    one.commit()
    assert [row["id"] for row in two.run(f"due_{kind}s", **{**DUE, "class": "crm.create", "limit": 9})] == [1]


QUEUE = (
    "INSERT INTO operations (operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash, payload,"
    " correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)"
    " SELECT lpad(n || '.', 64, '0'), 'cli', n, 'k', 'Q-' || n / 3, 'Q-' || n / 3, repeat('0', 64), '{\"v\":1}',"
    " 'c', 'a', 'user', 'T', 1, 1, 1, 1"
    " FROM generate_series(1, 6000) AS n"
)
OWED = (
    "INSERT INTO effects (effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload,"
    " next_attempt_at, aged_from, created_at, updated_at)"
    " SELECT operation_key, id, 'crm.create', 'append', lane, lane, 'c', '{}', 1, 1, 1, 1 FROM operations"
)


def test_a_claim_reads_few_rows_however_many_are_due_with_and_without_statistics(pair: tuple[Process, Process]) -> None:
    """The plans are made while the tables are empty, and again while the server still believes that they are."""
    one, _ = pair
    given = {"now": "5", "suspect_claims": "2", "only": "' k/1 '", "limit": "16", "class": "'crm.create'"}
    one.run("SET plan_cache_mode = force_generic_plan")
    for prepared in ("empty", "unknown", "full"):
        for name in ("due_operations", "due_effects"):
            sql, names = numbered(STATEMENTS[name])
            one.run(f"PREPARE {name}_{prepared} AS {sql}")
            if prepared == "empty":
                one.run(QUEUE if name == "due_operations" else OWED)
            run = f"EXECUTE {name}_{prepared} ({', '.join(given[each] for each in names)})"
            (plan,) = one.run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {run}")[0]["QUERY PLAN"]
            assert plan["Plan"]["Actual Rows"] == 16, (name, prepared)
            assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 1_000, (name, prepared)
        if prepared == "unknown":
            one.run("ANALYZE operations, effects")
