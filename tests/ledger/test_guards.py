"""Tests of the refusals of the database itself, to any program: the shell here knows nothing of the ledger's code."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS
from ledger.records import Delivered, Fail
from tests.ledger.parts import STATEMENTS, TROUBLE, intent
from tests.ledger.places import Refused
from tests.ledger.test_machine import DRAWN, read_from_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ledger.parts import Desk
    from tests.ledger.places import Place, Shell

KEY = "0" * 63
# The values that satisfy the CHECKs in each state, so that a refusal can only come from the arrow.
OPERATION_COLUMNS = {
    "reserved": "next_attempt_at = 1, epoch = NULL, lease_until = NULL, outcome = NULL, finished_at = NULL",
    "in_progress": "next_attempt_at = NULL, epoch = 1, lease_until = 1, outcome = NULL, finished_at = NULL, fence = fence + 1",
    "completed": "next_attempt_at = NULL, epoch = NULL, lease_until = NULL, outcome = 'applied', finished_at = 1",
    "failed_retryable": "next_attempt_at = 1, epoch = NULL, lease_until = NULL, outcome = NULL, finished_at = NULL",
    "failed_terminal": "next_attempt_at = NULL, epoch = NULL, lease_until = NULL, outcome = NULL, finished_at = 1",
    "discarded": "next_attempt_at = NULL, epoch = NULL, lease_until = NULL, outcome = NULL, finished_at = 1",
}
FINISHED = "next_attempt_at = NULL, epoch = NULL, lease_until = NULL, finished_at = 1"
EFFECT_COLUMNS = {
    "pending": "next_attempt_at = 1, epoch = NULL, lease_until = NULL, finished_at = NULL",
    "in_flight": "next_attempt_at = NULL, epoch = 1, lease_until = 1, finished_at = NULL, fence = fence + 1",
    "uncertain": "next_attempt_at = 1, epoch = NULL, lease_until = NULL, finished_at = NULL, uncertain_since = 1",
    **dict.fromkeys(("delivered", "failed", "superseded", "discarded"), FINISHED),
}
COLUMNS = {"operations": OPERATION_COLUMNS, "effects": EFFECT_COLUMNS}
OPERATION_PATHS: dict[str, tuple[str, ...]] = {
    "reserved": (),
    "in_progress": ("in_progress",),
    "completed": ("in_progress", "completed"),
    "failed_retryable": ("in_progress", "failed_retryable"),
    "failed_terminal": ("in_progress", "failed_terminal"),
    "discarded": ("discarded",),
}
EFFECT_PATHS: dict[str, tuple[str, ...]] = {
    "pending": (),
    "in_flight": ("in_flight",),
    "uncertain": ("in_flight", "uncertain"),
    "delivered": ("in_flight", "delivered"),
    "failed": ("in_flight", "failed"),
    "superseded": ("superseded",),
    "discarded": ("discarded",),
}
PATHS: dict[str, dict[str, tuple[str, ...]]] = {"operations": OPERATION_PATHS, "effects": EFFECT_PATHS}

IDENTITY = {
    "operations": (
        *("id", "operation_key", "source", "source_request_id", "action_kind", "aggregate_id", "lane", "aggregate_version"),
        *("payload_hash", "payload"),
    ),
    "effects": ("id", "effect_key", "operation_id", "parent_id", "class", "semantics", "target", "aggregate_id", "payload"),
}


def move(shell: Shell, table: str, target: str) -> None:
    shell.execute(f"UPDATE {table} SET state = '{target}', {COLUMNS[table][target]} WHERE id = 1")  # noqa: S608 -- literals above


def plant(shell: Shell) -> None:
    """Write one new operation and one new effect."""
    shell.execute(
        "INSERT INTO operations (id, operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash,"
        " payload, correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)"
        " VALUES (1, ?, 'cli', 'r', 'k', 'Q', 'Q', ?, '{}', 'c', 'a', 'user', 'T', 1, 1, 1, 1)",
        (KEY + "1", KEY + "2"),
    )
    shell.execute(
        "INSERT INTO effects (id, effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload,"
        " next_attempt_at, aged_from, created_at, updated_at)"
        " VALUES (1, ?, 1, 'slack.post', 'append', 't', 'Q', 'c', '{}', 1, 1, 1, 1)",
        (KEY + "3",),
    )


@pytest.fixture
def planted(kept_place: Place) -> Iterator[Shell]:
    """Yield a shell inside a transaction that is rolled back at the end."""
    shell = kept_place.shell()
    shell.execute("BEGIN")
    plant(shell)
    yield shell
    shell.execute("ROLLBACK")


ALLOWED = {
    *(("operations", source.value, target.value) for source, targets in OPERATION_ARROWS.items() for target in targets),
    *(("effects", source.value, target.value) for source, targets in EFFECT_ARROWS.items() for target in targets),
}
EVERY_PAIR = [(table, *pair) for table, paths in PATHS.items() for pair in permutations(paths, 2)]
EVERY_STATE = [(table, state) for table, paths in PATHS.items() for state in paths]
DELETABLE = {"completed", "delivered", "superseded", "discarded"}  # retention purges these


@pytest.mark.parametrize(("table", "source", "target"), EVERY_PAIR)
def test_a_shell_can_move_a_row_along_the_arrows_and_nowhere_else(table: str, source: str, target: str, planted: Shell) -> None:
    for step in PATHS[table][source]:
        move(planted, table, step)
    allowed = (table, source, target) in ALLOWED
    if allowed:
        move(planted, table, target)
    else:
        with pytest.raises(Refused, match=f"illegal {table.removesuffix('s')} transition"):
            move(planted, table, target)
    (row,) = planted.execute(f"SELECT state FROM {table} WHERE id = 1")  # noqa: S608 -- two known names
    assert row["state"] == (target if allowed else source)


@pytest.mark.parametrize(("table", "state"), EVERY_STATE)
def test_only_completed_delivered_superseded_or_discarded_rows_can_be_deleted(table: str, state: str, planted: Shell) -> None:
    if table == "operations":  # no effect refers to it
        move(planted, "effects", "discarded")
        planted.execute("DELETE FROM effects")
    for step in PATHS[table][state]:
        move(planted, table, step)
    delete = f"DELETE FROM {table} WHERE id = 1"  # noqa: S608 -- two known names
    if state in DELETABLE:
        planted.execute(delete)
        return
    with pytest.raises(Refused, match="never deleted"):
        planted.execute(delete)


@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in IDENTITY.items() for column in columns])
def test_what_identifies_a_row_cannot_even_be_written_again(table: str, column: str, planted: Shell) -> None:
    with pytest.raises(Refused, match="identity is immutable"):
        planted.execute(f"UPDATE {table} SET {column} = {column}")  # noqa: S608 -- names from the list above


@pytest.mark.parametrize(("table", "claimed"), [("operations", "in_progress"), ("effects", "in_flight")])
def test_a_fence_never_goes_back_and_a_claim_always_raises_it(table: str, claimed: str, planted: Shell) -> None:
    same_fence = COLUMNS[table][claimed].replace("fence = fence + 1", "fence = fence")
    with pytest.raises(Refused, match="claim without a new fence"):
        planted.execute(f"UPDATE {table} SET state = '{claimed}', {same_fence}")  # noqa: S608 -- literals above
    move(planted, table, claimed)
    with pytest.raises(Refused, match="claim without a new fence"):
        planted.execute(f"UPDATE {table} SET fence = fence - 1")  # noqa: S608 -- two known names


@pytest.mark.parametrize("table", ["operations", "effects"])
def test_a_row_is_born_in_the_first_state_only(table: str, planted: Shell) -> None:
    columns = "state, next_attempt_at, finished_at"
    (row,) = planted.execute(f"SELECT * FROM {table}")  # noqa: S608 -- two known names
    copied = ", ".join(name for name in row.keys() if name not in ("id", *columns.split(", ")))  # noqa: SIM118 -- iteration gives values
    with pytest.raises(Refused, match=r"starts (reserved|pending)"):
        planted.execute(f"INSERT INTO {table} ({columns}, {copied}) SELECT 'discarded', NULL, 1, {copied} FROM {table}")  # noqa: S608 -- own names


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET actor = 'nobody'",
        "DELETE FROM audit_events",
        "DELETE FROM audit_events WHERE id = 1",
        "INSERT INTO audit_events SELECT * FROM audit_events WHERE id = 1 ON CONFLICT (id) DO UPDATE SET actor = 'nobody'",
    ],
)
async def test_an_audit_row_cannot_be_changed_replaced_or_deleted(statement: str, desk: Desk) -> None:
    await desk.reserve("r1")
    await desk.reserve("r2")
    before = [tuple(row) for row in desk.rows("SELECT * FROM audit_events")]
    with pytest.raises(Refused, match="append only"):
        desk.shell.execute(statement)
    assert [tuple(row) for row in desk.rows("SELECT * FROM audit_events")] == before


async def test_two_rows_of_one_lane_can_never_be_held_at_once(desk: Desk) -> None:
    await desk.owe(intent(), intent(), request_id="r1")
    await desk.claim_operation("r2")
    await desk.reserve("r3")
    await desk.claim()
    for table in ("effects", "operations"):
        (last,) = desk.rows(f"SELECT max(id) AS id FROM {table}")  # noqa: S608 -- two known names
        claimed = {"effects": "in_flight", "operations": "in_progress"}[table]
        with pytest.raises(Refused, match=r"(?i)unique constraint"):
            desk.shell.execute(f"UPDATE {table} SET state = '{claimed}', {COLUMNS[table][claimed]} WHERE id = ?", (last["id"],))  # noqa: S608 -- literals above


async def test_a_ledger_keeps_its_id(desk: Desk) -> None:
    with pytest.raises(Refused, match="keeps its id"):
        desk.shell.execute("UPDATE meta SET value = 'ffffffff'")


async def test_a_refused_statement_leaves_no_trace_in_a_finished_deal(desk: Desk) -> None:
    posted, failed = await desk.owe(intent(), intent("crm.create", "keyed"))
    for effect in await desk.claim_each():
        await desk.ledger.settle(effect, Delivered("ts", {}) if effect.id == posted.id else Fail(TROUBLE))
    before = desk.snapshot()
    for effect_id in (posted.id, failed.id):
        with pytest.raises(Refused):
            desk.shell.execute("UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 1 WHERE id = ?", (effect_id,))
    with pytest.raises(Refused):
        desk.shell.execute("UPDATE operations SET state = 'reserved', outcome = NULL, finished_at = NULL, next_attempt_at = 1")
    assert desk.snapshot() == before


# ------------------------------------------------------------------------------- every statement that moves, in every state

VALUES: dict[str, object] = {
    "outcome": "applied",
    "response": "{}",
    "failure_history": "[]",
    "result": "{}",
    "supersede_key": "k",
    "maybe_sent": 0,
    "spent": 1,
    "claims": 0,
    "epoch": 1,
}
MOVES = [
    (name, table, arrows) for name, sql in sorted(STATEMENTS.items()) if name in DRAWN for table, arrows in [read_from_sql(sql)]
]
EVERY_MOVE = [(name, table, state, arrows) for name, table, arrows in MOVES for state in PATHS[table]]


@pytest.mark.parametrize(
    ("name", "table", "state", "arrows"), EVERY_MOVE, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("guard", ["right", "stale"])
def test_each_statement_moves_a_row_only_from_its_own_states(
    name: str, table: str, state: str, arrows: set[tuple[str, str]], guard: str, planted: Shell, kept_place: Place
) -> None:
    if table == "effects":
        planted.execute("UPDATE effects SET supersede_key = 'k', after_id = 1")
    for step in PATHS[table][state]:
        move(planted, table, step)
    if name == "supersede_children" and state == "pending":
        planted.execute("UPDATE effects SET next_attempt_at = NULL")
    before = planted.execute(f"SELECT * FROM {table}")  # noqa: S608 -- two known names
    sql = kept_place.statements[name]
    given = {key: VALUES.get(key, 1) for key in re.findall(r":(\w+)", sql)}
    guards = {"fence", "cycle"} & set(given)
    given |= {key: before[0][key] + (guard == "stale") for key in guards}
    moved = planted.execute(sql, given)
    targets = {target for source, target in arrows if source == state}
    after = planted.execute(f"SELECT * FROM {table}")  # noqa: S608 -- two known names
    if targets and (guard == "right" or not guards):
        assert {after[0]["state"]} == targets
        assert len(moved) == 1
        return
    assert [tuple(row) for row in after] == [tuple(row) for row in before]
    assert moved == []


def test_every_arrow_of_both_machines_has_a_statement_or_is_known_to_have_none() -> None:
    made = {(table, *arrow) for _, table, arrows in MOVES for arrow in arrows}
    assert ALLOWED - made == {("operations", "failed_retryable", "failed_terminal")}, "SPEC names it; no verb needs it"


def test_every_statement_that_moves_is_guarded_by_more_than_an_id() -> None:
    for name, _, _ in MOVES:
        assert re.search(r"fence = :fence|cycle = :cycle|supersede_key = :supersede_key|after_id = :id", STATEMENTS[name]), name
