"""Tests of the whole ledger on PostgreSQL: one command from its reservation to its settled effect, also across a lost session."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from faults.cluster.proxy import CommitFault, Proxy
from ledger.audit.events import finish_with
from ledger.ledger import Ledger
from ledger.postgres.engine import PostgresDatabase
from ledger.records import Delivered
from ledger.recovery import begin_epoch
from quotebot.store import history
from tests.ledger.parts import AUDIT, QUOTE, applied, intent, request, sure
from tests.ledger.postgres.parts import MIGRATIONS, STATEMENTS, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.database import Tx
    from tests.ledger.parts import ManualClock

EVENTS = ["operation.reserved", "operation.claimed", "operation.applied", "effect.claimed", "effect.delivered"]


@pytest.mark.parametrize("fault", [None, CommitFault.LOST, CommitFault.UNANSWERED])
async def test_a_command_is_recorded_executed_and_settled_once(
    create_database: Callable[[Sequence[str]], str], clock: ManualClock, fault: CommitFault | None
) -> None:
    url = create_database(schema_of(MIGRATIONS))
    binding = history.binding()
    with Proxy(url) as proxy:
        database = await PostgresDatabase.open(
            proxy.url,
            statements=STATEMENTS,
            clock=clock,
            writer="bot",
            finish=finish_with(AUDIT, binding, clock),
            binding=binding,
        )
        epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
        ledger = Ledger(database, clock, AUDIT, epoch=epoch)

        def strike() -> None:
            if fault is not None:
                proxy.at_next_commit(fault)

        strike()
        reserved = await ledger.reserve(request())
        assert reserved.sighting == "new"
        strike()
        operation = sure(await ledger.claim_operation())
        strike()
        await ledger.execute(operation, applied(intent()))
        strike()
        (effect,) = await ledger.claim_effects({"slack.post": 10})
        strike()
        await ledger.settle(effect, Delivered("C01:1.2", {}))
        assert database.unknown == (0 if fault is None else 5)
        await database.close()
    with psycopg.connect(url) as shell:
        assert shell.execute("SELECT state FROM operations").fetchall() == [("completed",)]
        assert shell.execute("SELECT state, external_ref FROM effects").fetchall() == [("delivered", "C01:1.2")]
        events = shell.execute("SELECT event_type FROM audit_events WHERE aggregate_id = %s ORDER BY seq", (QUOTE,)).fetchall()
    assert [kind for (kind,) in events] == EVENTS


async def test_a_changed_row_is_bound_to_its_commit_and_a_rolled_back_one_is_not(
    create_database: Callable[[Sequence[str]], str], clock: ManualClock
) -> None:
    url = create_database(schema_of(MIGRATIONS))
    binding = history.binding()
    finish = finish_with(AUDIT, binding, clock)
    database = await PostgresDatabase.open(url, statements=STATEMENTS, clock=clock, writer="bot", finish=finish, binding=binding)

    def begin(tx: Tx, generation: int) -> None:
        tx.one(
            "insert_generation", generation=generation, now=2, backup_made_at=1, backup_sha256="", doubt_until=3, started_by="U0OPS"
        )

    def fails(tx: Tx) -> None:
        begin(tx, 3)
        raise LookupError

    await asyncio.gather(database.write("begin", lambda tx: begin(tx, 2)), database.write("fails", fails), return_exceptions=True)
    await database.close()
    with psycopg.connect(url) as shell:
        events = shell.execute("SELECT event_type, after FROM audit_events").fetchall()
    assert [(kind, list(json.loads(after)["bound"]["generations"])) for kind, after in events] == [("history.bound", ["2"])]
