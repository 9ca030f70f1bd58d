"""Tests of the guards that PostgreSQL has in a form of its own: those that read other rows, and those against TRUNCATE.

The others have the same condition as on SQLite (test_schema.py), and tests/ledger/test_guards.py tries them on both engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.ledger.postgres.parts import MIGRATIONS, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLANTED = """
INSERT INTO quotes (quote_id, version, state, account, requester, requester_name, team_id, channel, created_at, valid_until,
  created_by_operation, asked_hash, recorded_at, root_effect_key, updated_at)
VALUES ('Q', 1, 'priced', 'Acme', 'U', 'n', 'T', 'C', 1, 9, 'o', repeat('a', 64), 1, 'e', 1);
INSERT INTO quote_versions (quote_id, version, ruleset, pricing, pricing_hash, created_at)
VALUES ('Q', 1, 'r', '{}', repeat('a', 64), 1), ('Q', 2, 'r', '{}', repeat('a', 64), 1), ('Q', 3, 'r', '{}', repeat('a', 64), 1);
INSERT INTO approvals (approval_id, quote_id, quote_version, required_roles, reasons, state, requested_by, requested_at)
VALUES ('A', 'Q', 1, '[]', '[]', 'pending', 'U', 1);
INSERT INTO approval_slots (approval_id, slot, stage, roles, asked, dual_control, state, opened_at)
VALUES ('A', 1, 1, '[]', '[]', 0, 'pending', 1);
INSERT INTO audit_anchors (id, at, last_event_id, chains, heads_sha256, key_id, seal)
VALUES (1, 1, 5, 1, 'h', 'k', decode(repeat('00', 32), 'hex'));
"""
APPROVE = "UPDATE approvals SET state = 'approved', decided_at = 2"
NEXT = "UPDATE quotes SET version = 2, state = 'priced'"
SUPERSEDE = (
    "INSERT INTO superseded_versions (quote_id, version, state, valid_until, superseded_by, superseded_at)"
    " VALUES ('Q', 1, 'priced', 9, 'U', 2)"
)
ANCHOR = (
    "INSERT INTO public.audit_anchors (id, at, last_event_id, chains, heads_sha256, key_id, seal)"
    " SELECT {}, 1, {}, 1, 'h', 'k', seal FROM public.audit_anchors"
)
VERSIONS = "a quote goes from version to version, priced, and never once it is final"
STEPS = (
    (APPROVE, "an approval needs every slot"),
    ("UPDATE public.approval_slots SET state = 'approved', decided_by = 'U', decided_at = 2", None),
    (APPROVE, None),
    (APPROVE, "an approval is decided once"),
    (NEXT, VERSIONS),
    (SUPERSEDE, None),
    ("UPDATE quotes SET version = 3, state = 'priced'", VERSIONS),
    ("UPDATE quotes SET version = 2, state = 'approved'", VERSIONS),
    (NEXT, None),
    (ANCHOR.format(1, 6), "anchors are append only"),
    (ANCHOR.format(2, 5), "anchors are append only"),
    (ANCHOR.format(2, 6), None),
    ("TRUNCATE audit_events", "audit is append only"),
    ("TRUNCATE quotes CASCADE", "is kept"),
    ("UPDATE meta SET value = 'ffffffff'", "a ledger keeps its id"),
)


def test_guards_that_read_other_rows_and_those_against_truncate(create_database: Callable[[Sequence[str]], str]) -> None:
    connection: Any
    with psycopg.connect(create_database(schema_of(MIGRATIONS)), autocommit=True) as connection:
        connection.execute(PLANTED)
        # Tables of the same names in the session's temporary schema are not asked.
        connection.execute("CREATE TEMPORARY TABLE approval_slots (approval_id TEXT, state TEXT)")
        connection.execute("CREATE TEMPORARY TABLE audit_anchors AS SELECT * FROM public.audit_anchors WHERE false")
        for statement, refusal in STEPS:
            if refusal is None:
                connection.execute(statement)
                continue
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match=refusal):
                connection.execute(statement)
