"""Reservation of commands: reserve, then answer. Nothing is confirmed before it is durable, and failures are reported as such."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown
from ledger.keys import dumps
from ledger.machine import OperationState
from ledger.records import DedupeResult, Operation, Request, Reservation
from ledger.settlement import QUOTEBOT
from quotebot.commands.registry import PAYLOAD_BYTES_MAX
from quotebot.views import messages
from quotebot.views.confirmations import offer_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.commands.registry import Command

log = structlog.get_logger(__name__)
PEOPLE_MAX: Final = 10_000  # budgets in memory; the least recently used is dropped first
ROUNDING_SECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """Content of an acknowledgement. `recorded` is None if the outcome is unknown."""

    recorded: bool | None
    text: str
    blocks: tuple[dict[str, Any], ...] = ()
    over_budget: bool = False  # refused by the person's budget: a redelivery would not help


class Reserver:
    """Recorder of commands within the time budget of an acknowledgement."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        team_id: str,
        ack_budget_seconds: float,
        observe: Callable[[float], object] = lambda _: None,
        arrivals: Mapping[str, float] = MappingProxyType({}),
        commands_per_minute: int | None = None,
        reserving: Callable[[], object] = lambda: None,
    ) -> None:
        """`team_id` is the bot's own workspace.

        `observe` is called with the seconds that each reservation took; `arrivals` maps envelope ids to arrival times (monotonic
        seconds). `commands_per_minute` is the budget of each person; None: there is no limit. `reserving` is called before each
        reservation, but not for a refused command.
        """
        self._ledger = ledger
        self._team_id = team_id
        self._budget = ack_budget_seconds
        self._observe = observe
        self._arrivals = arrivals
        self._reserving = reserving
        self._budgets = None if commands_per_minute is None else Budgets(ledger.clock, commands_per_minute)

    async def receive(self, command: Command, *, envelope_id: str | None) -> Answer:
        """Record the command and return its answer (SPEC 3.3), for a first delivery or a duplicate."""
        payload = command.payload.canonical()
        # The canonical form has the same length as the ledger's JSON, which is faster to make.
        if len(dumps(payload).encode()) > PAYLOAD_BYTES_MAX:
            log.warning("command.too_large", action_kind=command.payload.kind)
            return Answer(recorded=False, text=messages.command_too_large(PAYLOAD_BYTES_MAX))
        request = Request(
            source=command.source,
            source_request_id=command.source_request_id,
            action_kind=command.payload.kind,
            aggregate_id=command.aggregate_id,
            aggregate_version=command.aggregate_version,
            payload=payload,
            fingerprint=command.fingerprint,
            actor=command.actor,
            actor_type=command.actor_type,
            team_id=self._team_id,
            received_at=command.received_at,
            transport={"envelope_id": envelope_id, "response_url": command.response_url, "actor_name": command.actor_name},
        )
        began = self._ledger.clock.monotonic()
        refused = await self._over_budget(request)
        if refused is not None:
            return refused
        deadline = self._arrivals.get(envelope_id or "", began) + self._budget
        self._reserving()
        try:
            reservation = await self._ledger.reserve(request, deadline=deadline)
        except NotRecorded:
            log.warning("command.not_recorded", action_kind=request.action_kind)
            return Answer(recorded=False, text=messages.NOTHING_RECORDED)
        except OutcomeUnknown:
            log.exception("command.maybe_recorded", action_kind=request.action_kind)
            return Answer(recorded=None, text=messages.MAYBE_RECORDED)
        self._observe(self._ledger.clock.monotonic() - began)
        if reservation.sighting is not DedupeResult.NEW:  # the worker logs the result of a new one
            repeated = partial(
                log.info,
                "command.repeated",
                action_kind=request.action_kind,
                correlation_id=reservation.operation.correlation_id,
                sighting=reservation.sighting.value,
            )
            asyncio.get_running_loop().call_soon(repeated)  # runs when the acknowledgement is on its way
        return answer_for(reservation)

    async def _over_budget(self, request: Request) -> Answer | None:
        """Return the refusal of a person's command over their budget; None for others, and for one that is recorded already."""
        if self._budgets is None or request.actor_type != "user":
            return None
        wait_seconds = self._budgets.spend(request.actor)
        if not wait_seconds:
            return None
        try:
            recorded = await self._ledger.database.read(
                lambda tx: tx.one(
                    "find_delivery",
                    source=request.source,
                    source_request_id=request.source_request_id,
                    action_kind=request.action_kind,
                )
            )
        except DatabaseError:
            return None  # the reservation reports the actual state
        if recorded is not None:
            return None
        log.warning("command.over_budget", action_kind=request.action_kind, wait_seconds=wait_seconds)
        text = messages.over_budget(self._budgets.per_minute, wait_seconds)
        return Answer(recorded=False, text=text, over_budget=True)

    async def drop(self, envelope_id: str | None, size: int) -> None:
        """Audit an envelope of `size` bytes that is too large to be read. It is dropped even if the audit fails."""
        now = self._ledger.clock.now_ms()
        after = {"envelope_id": envelope_id, "bytes": size}

        def work(tx: Tx) -> None:
            self._ledger.audit.append(tx, now, "delivery.dropped", actor=QUOTEBOT, actor_type="system", after=after)

        log.warning("envelope.dropped", envelope_id=envelope_id, bytes=size)
        try:
            await self._ledger.database.write("drop", work, deadline=self._ledger.clock.monotonic() + self._budget)
        except DatabaseError:
            log.exception("envelope.drop_not_audited", envelope_id=envelope_id)


def answer_for(reservation: Reservation) -> Answer:
    """Return the answer to a delivery, by the state of its operation; an earlier question is repeated with its buttons."""
    operation = reservation.operation
    if reservation.sighting is DedupeResult.CONFLICT:
        return Answer(recorded=True, text=messages.conflict(operation.correlation_id))
    if reservation.sighting is DedupeResult.NEW:
        return Answer(recorded=True, text=_working(operation))
    if reservation.sighting is DedupeResult.TOMBSTONE:
        finished_at = operation.received_at if reservation.finished_at is None else reservation.finished_at
        return Answer(recorded=True, text=messages.finished_long_ago(operation.outcome, finished_at))
    text, offer = present_answer(operation), (operation.response or {}).get("offer")
    return Answer(recorded=True, text=text, blocks=() if offer is None else tuple(offer_blocks(text, offer)))


def _working(operation: Operation) -> str:
    if operation.aggregate_id == "new":
        return messages.working(operation.correlation_id)
    if operation.aggregate_id.startswith("delegation:"):
        return messages.noted(operation.correlation_id)
    return messages.changing(operation.aggregate_id, operation.correlation_id)


def present_answer(operation: Operation) -> str:
    """Return the answer to a recorded command by its present state."""
    ref = operation.correlation_id
    match operation.state:
        case OperationState.COMPLETED | OperationState.FAILED_TERMINAL:
            response: dict[str, Any] = operation.response or {}
            return str(response.get("text") or messages.terminal(operation.last_error or "it failed", ref, None))
        case OperationState.FAILED_RETRYABLE:
            return messages.retry_pending(ref, operation.next_attempt_at)
        case OperationState.DISCARDED:
            return messages.discarded(ref)
        case _:
            return messages.operation_pending(ref)


class Budgets:
    """Token buckets, one per person."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._seconds = 60.0 / per_minute  # time to refill one command
        self._full_at: dict[str, float] = {}  # person -> time when their budget is full again (monotonic seconds)

    def spend(self, person: str) -> int:
        """Spend one command of a person and return 0; if none is left, spend nothing and return the seconds until the next."""
        now = self._clock.monotonic()
        full_at = max(self._full_at.pop(person, now), now)
        wait_seconds = full_at + self._seconds - now - 60.0
        within = wait_seconds <= ROUNDING_SECONDS
        self._full_at[person] = full_at + self._seconds if within else full_at
        while len(self._full_at) > PEOPLE_MAX:
            del self._full_at[next(iter(self._full_at))]
        return 0 if within else math.ceil(wait_seconds)
