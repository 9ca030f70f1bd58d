"""Tests of SQLite's plans: frequent statements find their rows by an index, so that the ledger stays fast as it grows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.ledger.parts import START_MS, STATEMENTS, Desk, intent

if TYPE_CHECKING:
    from tests.ledger.places import Shell

INDEXES = {
    "find_delivery": {"sqlite_autoindex_deliveries_1"},
    "operation_by_key": {"sqlite_autoindex_operations_1"},
    "due_operations": {"operations_due", "operations_lane", "operations_in_progress"},
    "due_suspect_operation": {"operations_lane"},
    "suspect_operations": {"operations_suspect"},
    "operations_in_progress": {"operations_in_progress"},
    "lapsed_operations": {"operations_in_progress"},
    "operations_waiting": {"operations_lane"},
    "renew_operation_leases": {"operations_in_progress"},
    "next_operation_due_at": {"operations_due"},
    "effect_by_key": {"sqlite_autoindex_effects_1"},
    "due_classes": {"effects_due"},
    "due_effects": {"effects_due", "effects_lane", "effects_in_flight"},
    "due_suspect_effect": {"effects_lane"},
    "suspect_effects": {"effects_suspect"},
    "effects_in_flight": {"effects_in_flight"},
    "lapsed_effects": {"effects_in_flight"},
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
NUMBERS = (
    "measure_unfinished",
    "measure_dead_letters",
    "measure_schedule",
    "count_audit_events",
    "count_attempts",
    "last_attempt_id",
)
PURGING = (
    *("deliveries_after", "expired_operations", "aggregates_of_operation", "aggregate_is_busy", "retain_aggregate"),
    *("delete_delivery_of_operation", "delete_attempts_of_effects", "delete_attempts_of_operation"),
    *("delete_effects_of_operation", "delete_operation", "delete_tombstones", "count_tombstones_expired"),
)
LOOKING = (
    *("operations_by_key", "operations_of_aggregate", "effects_of_operation", "attempts_of_effect", "attempts_of_operation"),
    *("audit_time", "audit_page", "audit_chain_since", "epoch", "ahead_of_effect", "ahead_of_operation", "trial_of_family"),
    *("unfinished_operations", "dead_operations", "find_delivery", "effect_by_id", "operation_by_id"),
)
TABLES = {
    *("operations", "effects", "attempts", "deliveries", "tombstones", "audit_events", "epochs"),
    *("o", "e", "a", "d", "older"),
}


def plan(shell: Shell, name: str) -> list[str]:
    sql = STATEMENTS[name]
    values = dict.fromkeys(re.findall(r":(\w+)", sql), START_MS)
    steps = [row["detail"] for row in shell.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert steps
    return steps


def whole(steps: list[str]) -> list[str]:
    """Return the steps that read a whole table."""
    scans = [step for step in steps if step.startswith("SCAN") and step.split()[1] in TABLES]
    return [scan for scan in scans if "USING" not in scan]


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


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_reads_a_whole_table(shell: Shell, name: str) -> None:
    """Every scan is bounded: by an index over unfinished or dead rows, or by the rows since the last fold."""
    assert whole(plan(shell, name)) == []


@pytest.mark.parametrize("name", PURGING)
def test_no_batch_of_retention_reads_a_whole_table(shell: Shell, name: str) -> None:
    steps = plan(shell, name)
    assert whole(steps) == []
    assert not any("FOR ORDER BY" in step for step in steps)


@pytest.mark.parametrize("name", LOOKING)
def test_lookup_uses_an_index(shell: Shell, name: str) -> None:
    steps = plan(shell, name)
    assert whole(steps) == []
    assert not any(step.startswith("SCAN") and step.split()[1] in TABLES and "USING INDEX" not in step for step in steps)


@pytest.mark.parametrize("analyzed", [False, True], ids=["as it is", "analyzed"])
@pytest.mark.parametrize("name", ["list_dead_letters", "newest_dead_letters"])
def test_dead_letters_are_read_in_order_by_an_index_and_never_sorted(name: str, analyzed: object, shell: Shell) -> None:
    if analyzed:
        shell.execute("ANALYZE")
    steps = plan(shell, name)
    assert [step for step in steps if "TEMP B-TREE" in step or step.startswith("SCAN")] == []
    used = {index for step in steps for index in re.findall(r"USING INDEX (\w+)", step)}
    assert used == {"effects_dead", "operations_dead"}


def test_uncertain_effects_and_one_dead_letter_are_found_by_an_index(shell: Shell) -> None:
    assert "SCAN e USING INDEX effects_due" in plan(shell, "list_uncertain"), "only what still waits is in that index"
    assert all("PRIMARY KEY" in step for step in plan(shell, "dead_letter") if step.startswith(("SCAN", "SEARCH")))
