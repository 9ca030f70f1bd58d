"""Tests that SQLite's own ways to replace a row pass no guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.audit.anchors import write_anchor
from tests.ledger.parts import START_MS
from tests.ledger.places import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.parts import Desk


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        (
            "INSERT OR REPLACE INTO audit_events (id, at, event_type, actor, actor_type) VALUES (1, 1, 'forged', 'a', 'user')",
            "append only",
        ),
        ("UPDATE OR REPLACE audit_events SET id = 2 WHERE id = 1", "append only"),
        ("INSERT OR REPLACE INTO audit_anchors SELECT * FROM audit_anchors", "anchors are append only"),
        ("INSERT OR REPLACE INTO audit_heads SELECT * FROM audit_heads", "a chain only grows"),
        (
            "INSERT OR REPLACE INTO audit_heads SELECT aggregate_id, event_id + 1, seq, mac, key_id, seal FROM audit_heads",
            "a chain only grows",
        ),
    ],
)
async def test_row_of_the_audit_cannot_be_replaced(statement: str, rule: str, desk: Desk, tmp_path: Path) -> None:
    await desk.reserve("r1")
    await desk.reserve("r2")
    await write_anchor(desk.ledger, tmp_path, START_MS)
    tables = ("audit_events", "audit_anchors", "audit_heads")
    before = [tuple(row) for table in tables for row in desk.rows(f"SELECT * FROM {table}")]  # noqa: S608 -- own names
    with pytest.raises(Refused, match=rule):
        desk.shell.execute(statement)
    assert [tuple(row) for table in tables for row in desk.rows(f"SELECT * FROM {table}")] == before  # noqa: S608 -- own names
