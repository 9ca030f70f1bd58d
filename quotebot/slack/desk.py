"""The front desk: reserve, then answer. Nothing is acknowledged before it is durable, and nothing untrue is said when it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from ledger.database import NotRecorded, OutcomeUnknown
from ledger.machine import OperationState
from ledger.records import Operation, Request, Reservation, Sighting
from quotebot import words

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from quotebot.commands import Command

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the acknowledgement says. `recorded` is None when it cannot be known."""

    recorded: bool | None
    text: str


class FrontDesk:
    """Reserves commands within the budget of an acknowledgement."""

    def __init__(self, ledger: Ledger, *, ack_budget_seconds: float) -> None:
        self._ledger = ledger
        self._budget = ack_budget_seconds

    async def receive(self, command: Command, *, envelope_id: str | None) -> Answer:
        """Record the command and return the answer of SPEC 3.3 for it, first sight or duplicate."""
        request = Request(
            source=command.source,
            source_request_id=command.source_request_id,
            action_kind=command.payload.kind,
            aggregate_id=command.aggregate_id,
            aggregate_version=command.aggregate_version,
            payload=command.payload.canonical(),
            fingerprint=command.fingerprint,
            actor=command.actor,
            actor_type=command.actor_type,
            team_id=command.team_id,
            received_at=command.received_at,
            transport={"envelope_id": envelope_id, "response_url": command.response_url, "actor_name": command.actor_name},
        )
        deadline = self._ledger.clock.monotonic() + self._budget
        try:
            reservation = await self._ledger.reserve(request, deadline=deadline)
        except NotRecorded:
            log.warning("command.not_recorded", action_kind=request.action_kind)
            return Answer(recorded=False, text=words.nothing_recorded())
        except OutcomeUnknown:
            log.exception("command.maybe_recorded", action_kind=request.action_kind)
            return Answer(recorded=None, text=words.maybe_recorded())
        log.info(
            "command.received",
            action_kind=request.action_kind,
            correlation_id=reservation.operation.correlation_id,
            sighting=reservation.sighting.value,
        )
        return Answer(recorded=True, text=answer_for(reservation))


def answer_for(reservation: Reservation) -> str:
    """Return the words for a delivery, by the state of its operation."""
    operation = reservation.operation
    if reservation.sighting is Sighting.CONFLICT:
        return words.conflict(operation.correlation_id)
    if reservation.sighting is Sighting.NEW:
        return words.working(operation.correlation_id)
    return _duplicate(operation)


def _duplicate(operation: Operation) -> str:
    ref = operation.correlation_id
    match operation.state:
        case OperationState.COMPLETED | OperationState.FAILED_TERMINAL:
            response: dict[str, Any] = operation.response or {}
            return str(response.get("text") or words.terminal(operation.last_error or "it failed", ref, None))
        case OperationState.FAILED_RETRYABLE:
            return words.retry_pending(ref, operation.next_attempt_at)
        case OperationState.DISCARDED:
            return words.discarded(ref)
        case _:
            return words.operation_pending(ref)
