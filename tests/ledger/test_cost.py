"""Tests of the number of commits per command, counted exactly, without a clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledger.records import AuditEvent, Outcome
from tests.ledger.parts import intent, sure

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Database, Tx
    from ledger.records import Operation
    from tests.ledger.parts import Desk

CLIENTS = 64


def submit(operation: Operation) -> Callable[[Tx], Outcome]:
    quote = operation.aggregate_id
    effects = [intent(name, target=quote, aggregate_id=quote) for name in ("slack.post", "slack.reply", "crm.upsert")]
    return lambda _: Outcome("applied", {"code": "ok"}, tuple(effects), (AuditEvent("quote.submitted", quote),))


async def test_a_lone_command_costs_three_commits(desk: Desk, database: Database) -> None:
    before = database.health.commits
    await desk.reserve()
    operation = sure(await desk.ledger.claim_operation())
    await desk.ledger.execute(operation, submit(operation))
    assert database.health.commits - before == 3


async def test_sixty_four_commands_at_once_share_their_commits(desk: Desk, database: Database) -> None:
    before = database.health.commits
    await asyncio.gather(*(desk.reserve(f"r{number}", aggregate_id=f"Q-2026-{number:04d}") for number in range(CLIENTS)))
    claimed = await desk.ledger.claim_operations(CLIENTS)
    await asyncio.gather(*(desk.ledger.execute(operation, submit(operation)) for operation in claimed))
    assert len(claimed) == CLIENTS
    assert database.health.commits - before <= 4.5  # per command: 4.5 / CLIENTS instead of 3
    assert desk.value("SELECT count(*) FROM operations WHERE state = 'completed'") == CLIENTS
    assert desk.value("SELECT count(*) FROM effects") == 3 * CLIENTS


async def test_a_repeated_delivery_costs_one_commit(desk: Desk, database: Database) -> None:
    await desk.reserve()
    before = database.health.commits
    await desk.reserve()
    assert database.health.commits - before == 1
