"""Tests of the audit's statements on PostgreSQL: ids from a sequence, and one transaction at a time at the end of a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.ledger.postgres.parts import LEDGER, LEDGER_STATEMENTS, schema_of
from tests.ledger.postgres.test_statements import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Rows = list[tuple[object, ...]]

HEAD = "INSERT INTO audit_heads VALUES (%s, %s, %s, sha256(''), 'k', sha256(''))"


@pytest.fixture
def sessions(create_database: Callable[[Sequence[str]], str]) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    url = create_database(schema_of(LEDGER))
    with psycopg.connect(url) as one, psycopg.connect(url, options="-c lock_timeout=20") as other:
        yield one, other


def run(session: psycopg.Connection, name: str, value: object) -> Rows:
    """Run a statement of one parameter."""
    sql, _ = numbered(LEDGER_STATEMENTS[name])
    rows: Rows = session.execute(sql.replace("$1", "%s"), (value,)).fetchall()
    return rows


def test_ids_are_never_given_twice_and_a_rollback_leaves_a_gap(sessions: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    one, other = sessions
    assert run(one, "next_audit_ids", 2) == [(1, 2), (2, 2)]
    assert run(other, "next_audit_ids", 1) == [(3, 2)]
    one.rollback()
    assert run(one, "next_audit_ids", 1) == [(4, 2)]


@pytest.mark.parametrize("is_new", [True, False])
def test_the_end_of_a_chain_is_locked_also_before_there_is_one(
    sessions: tuple[psycopg.Connection, psycopg.Connection], *, is_new: bool
) -> None:
    one, other = sessions
    if not is_new:
        one.execute(HEAD, ("Q-1", 1, 1))
        one.commit()
    assert len(run(one, "audit_head", "Q-1")) == (not is_new)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        run(other, "audit_head", "Q-1")
    other.rollback()
    assert run(other, "audit_head", "Q-2") == []  # another chain
    one.execute(f"{HEAD} ON CONFLICT (aggregate_id) DO UPDATE SET seq = excluded.seq, event_id = excluded.event_id", ("Q-1", 7, 2))
    one.commit()
    ((event_id, seq, _),) = run(other, "audit_head", "Q-1")
    assert (event_id, seq) == (7, 2)
