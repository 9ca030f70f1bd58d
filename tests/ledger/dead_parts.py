"""Shared parts of the tests of dead letters, replay and resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.ledger import no_follow_ups
from ledger.records import Effect, Fail, Trouble
from tests.ledger.parts import intent, sure

if TYPE_CHECKING:
    from ledger.operator.dead_letters import DeadLetters, ReplayResult
    from ledger.records import EffectIntent
    from tests.ledger.parts import Desk

SENT = Trouble("transient", "time-out after the request left", maybe_sent=True)
UNKNOWN = Trouble("uncertain", "it may have arrived", maybe_sent=True)
MAPPING = Trouble("mapping", 'refused field Term__c = "13 months"')
INTERNAL = Trouble("internal", "a bug")
CRM = intent("crm.create", "keyed")


async def bury(desk: Desk, owed: EffectIntent = CRM, trouble: Trouble = MAPPING, request_id: str = "r1") -> Effect:
    """Enqueue one effect and fail it for good at its first attempt."""
    await desk.owe(owed, request_id=request_id)
    return sure(await desk.ledger.settle(await desk.claim(), Fail(trouble)))


async def bury_command(desk: Desk, request_id: str = "r1") -> None:
    """Fail a command for good at its first execution."""
    await desk.ledger.fail_operation(await desk.claim_operation(request_id), INTERNAL, {"code": "failed"}, ())


async def replay(letters: DeadLetters, reference: str, actor: str = "ops", **how: Any) -> ReplayResult:
    """Replay as an operator after a repair."""
    return await letters.replay(reference, actor=actor, reason="fixed the mapping", follow=no_follow_ups, **how)
