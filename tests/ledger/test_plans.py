"""Tests that frequent statements find their rows by an index, so that the ledger stays fast as it grows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.ledger.parts import START_MS, STATEMENTS, Desk, intent, sure

if TYPE_CHECKING:
    import sqlite3

FINISHED = 2_000
HISTORY = f"""
INSERT INTO operations (operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash, payload,
  correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {FINISHED})
SELECT
  printf('%064d', n), 'cli', n, 'quote.submit', 'Q-' || n, 'Q-' || n, printf('%064d', n),
  '{{}}', 'c-' || n, 'a', 'user', 'T', 1, 1, 1, 1
FROM numbers;
INSERT INTO deliveries (source, source_request_id, action_kind, operation_id, fingerprint, transport, received_at, last_seen_at)
SELECT source, source_request_id, action_kind, id, 'f', '{{}}', 1, 1 FROM operations;
INSERT INTO effects (effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload, next_attempt_at,
  aged_from, created_at, updated_at)
SELECT operation_key, id, 'slack.post', 'append', aggregate_id, aggregate_id, correlation_id, '{{}}', 1, 1, 1, 1 FROM operations;
UPDATE operations SET state = 'in_progress', epoch = 1, lease_until = 1, fence = 1, next_attempt_at = NULL;
UPDATE operations SET state = 'completed', epoch = NULL, lease_until = NULL, outcome = 'applied', finished_at = 1;
UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 1, fence = 1, next_attempt_at = NULL;
UPDATE effects SET state = 'delivered', epoch = NULL, lease_until = NULL, finished_at = 1;
"""  # noqa: S608 -- one number of our own
INDEXES = {
    "find_delivery": {"sqlite_autoindex_deliveries_1"},
    "operation_by_key": {"sqlite_autoindex_operations_1"},
    "due_operations": {"operations_due", "operations_lane", "operations_in_progress"},
    "due_suspect_operation": {"operations_lane"},
    "suspect_operations": {"operations_suspect"},
    "operations_in_progress": {"operations_in_progress"},
    "operations_waiting": {"operations_lane"},
    "renew_operation_leases": {"operations_in_progress"},
    "due_operation": {"operations_due"},
    "next_operation_due_at": {"operations_due"},
    "effect_by_key": {"sqlite_autoindex_effects_1"},
    "due_classes": {"effects_due"},
    "due_effects": {"effects_due", "effects_lane", "effects_in_flight"},
    "due_suspect_effect": {"effects_lane"},
    "suspect_effects": {"effects_suspect"},
    "effects_in_flight": {"effects_in_flight"},
    "in_flight_of_class": {"effects_in_flight"},
    "in_flight_of_family": {"effects_in_flight"},
    "renew_effect_leases": {"effects_in_flight"},
    "supersede_pending": {"effects_supersede"},
    "newer_pending": {"effects_supersede"},
    "newer_target": {"effects_aggregate"},
    "wake_children": {"effects_waiting"},
    "supersede_children": {"effects_waiting"},
    "next_effect_due_at": {"effects_due"},
    "unfinished_in_lane": {"effects_lane"},
    "unfinished_effects": {"effects_lane"},
    "count_children": {"effects_operation"},
    "effects_of_aggregate": {"effects_aggregate"},
    "end_hold": {"holds_name"},
    "holds_since": {"holds_name"},
}


def plan(shell: sqlite3.Connection, name: str) -> list[str]:
    sql = STATEMENTS[name]
    values = dict.fromkeys(re.findall(r":(\w+)", sql), START_MS)
    return [row["detail"] for row in shell.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.fixture
def grown(desk: Desk) -> Desk:
    desk.shell.executescript(f"BEGIN; {HISTORY} COMMIT;")
    return desk


@pytest.mark.parametrize("analyzed", [False, True], ids=["as it is", "analyzed"])
async def test_with_thousands_of_finished_rows_nothing_hot_scans_a_table(analyzed: object, grown: Desk) -> None:
    await grown.owe(intent())
    await grown.reserve("r2")
    if analyzed:
        grown.shell.execute("ANALYZE")
    for name, indexes in INDEXES.items():
        steps = plan(grown.shell, name)
        used = {index for step in steps for index in re.findall(r"USING (?:COVERING )?INDEX (\w+)", step)}
        assert used == indexes, (name, steps)
        assert [step for step in steps if re.fullmatch(r"SCAN \w+", step)] == [], name


async def test_finished_rows_do_not_hide_what_is_due(grown: Desk) -> None:
    operation = await grown.claim_operation()
    assert operation.id == FINISHED + 1
    await grown.reserve("r2", aggregate_id=f"Q-{FINISHED}")
    assert sure(await grown.ledger.claim_operation()).id == FINISHED + 2
    assert await grown.claimed_ids() == []
