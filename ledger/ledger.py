"""The ledger: one verb per arrow. Every verb is one durable transaction; every settle is fenced.

A command is reserved before anything happens, claimed by one process, and completed in the transaction of its domain change
together with the effects it owes. An effect is claimed, tried, and settled under the fence of its claim.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger import settlement as settlements
from ledger.outbox import Cause, owe
from ledger.records import (
    Effect,
    EffectIntent,
    FollowUps,
    Operation,
    Outcome,
    Request,
    Reservation,
    Settlement,
    Sighting,
    Trouble,
)
from ledger.settlement import QUOTEBOT

if TYPE_CHECKING:
    from ledger.audit import Audit
    from ledger.clock import Clock
    from ledger.database import Database, Tx

ANSWERS_PER_BURIAL: Final = 1000  # they are numbered apart from what an execution owes, and apart by cycle: a replay may succeed

FollowUpDecision = Callable[["Tx", Effect], FollowUps]


class StaleFenceError(Exception):
    """This process no longer owns the row: its result came too late and changed nothing."""


def no_follow_ups(tx: Tx, effect: Effect) -> FollowUps:
    """Decide that nothing follows."""
    del tx, effect
    return FollowUps()


class Ledger:
    """Operations and effects of one database. `epoch` names this process in every claim; None may reserve and read, not claim."""

    def __init__(
        self, database: Database, clock: Clock, audit: Audit, *, epoch: int | None = None, lease_seconds: int = 120
    ) -> None:
        self.database = database
        self.clock = clock
        self.audit = audit
        self.epoch = epoch
        self._lease_ms = lease_seconds * 1000
        self.operations_changed = asyncio.Event()
        self.effects_changed = asyncio.Event()

    # ------------------------------------------------------------------------------------------------------ operations

    async def reserve(self, request: Request, *, deadline: float | None = None) -> Reservation:
        """Record a command before anything happens. A repeated delivery gets the operation decided at first sight.

        `deadline` is monotonic seconds. Raises NotRecorded or OutcomeUnknown as Database.write does.
        """
        payload_hash = keys.digest(request.payload)
        key = keys.operation_key(
            source=request.source,
            source_request_id=request.source_request_id,
            action_kind=request.action_kind,
            aggregate_id=request.aggregate_id,
            aggregate_version=request.aggregate_version,
            payload_hash=payload_hash,
        )
        now = self.clock.now_ms()

        def work(tx: Tx) -> Reservation:
            known = tx.one(
                "find_delivery",
                source=request.source,
                source_request_id=request.source_request_id,
                action_kind=request.action_kind,
            )
            if known is None:
                return self._reserve_first_sight(tx, now, request, key, payload_hash)
            row = tx.one("operation_by_id", id=known["operation_id"])
            assert row is not None  # noqa: S101 -- foreign key
            operation = Operation.of(row)
            tx.one("see_delivery_again", id=known["id"], now=now)
            if known["fingerprint"] != request.fingerprint:
                self.audit.of_operation(tx, now, "delivery.conflict", operation)
                return Reservation(Sighting.CONFLICT, operation)
            self.audit.of_operation(tx, now, "delivery.duplicate", operation)
            return Reservation(Sighting.DUPLICATE, operation)

        reservation = await self.database.write("reserve", work, urgent=True, deadline=deadline)
        if reservation.sighting is Sighting.NEW:
            self.operations_changed.set()
        return reservation

    async def claim_operation(self) -> Operation | None:
        """Take the next due operation whose quote has no older unfinished one; None when nothing is due."""
        now, epoch = self.clock.now_ms(), self._claiming_epoch()

        def work(tx: Tx) -> Operation | None:
            due = tx.one("next_due_operation", now=now)
            if due is None:
                return None
            row = tx.one(
                "claim_operation", id=due["id"], fence=due["fence"], epoch=epoch, lease_until=now + self._lease_ms, now=now
            )
            assert row is not None  # noqa: S101 -- read in this very transaction
            operation = Operation.of(row)
            self._start_attempt(tx, now, "execute", operation=operation)
            self.audit.of_operation(tx, now, "operation.claimed", operation, actor=QUOTEBOT, retry_count=operation.attempts)
            return operation

        return await self.database.write("claim_operation", work)

    async def execute(self, operation: Operation, decide: Callable[[Tx], Outcome]) -> Operation:
        """Run the domain change and complete the operation, all or nothing, in one transaction.

        Raises StaleFenceError when another process took the operation over: nothing is changed, the late result is audited.
        """
        now = self.clock.now_ms()

        def work(tx: Tx) -> Operation:
            outcome = decide(tx)
            row = tx.one(
                "complete_operation",
                id=operation.id,
                fence=operation.fence,
                outcome=outcome.kind,
                response=json.dumps(outcome.response, sort_keys=True),
                now=now,
            )
            if row is None:
                raise StaleFenceError(operation.correlation_id)
            done = Operation.of(row)
            self._end_operation_attempt(tx, now, operation, "completed")
            for event in outcome.events:
                self.audit.of_operation(
                    tx, now, event.event_type, operation, aggregate_id=event.aggregate_id, before=event.before, after=event.after
                )
            answered = {name: value for name, value in outcome.response.items() if name != "text"}  # no free text in the audit
            self.audit.of_operation(tx, now, f"operation.{outcome.kind}", operation, after=answered)
            owe(tx, self.audit, now, Cause(operation.id, operation.operation_key, operation.correlation_id), outcome.effects)
            return done

        try:
            done = await self.database.write("execute", work)
        except StaleFenceError:
            await self._audit_late_operation(operation)
            raise
        self.effects_changed.set()
        self.operations_changed.set()
        return done

    async def retry_operation(self, operation: Operation, trouble: Trouble, delay_ms: int) -> None:
        """Put a failed operation back for a later attempt."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> None:
            row = tx.one(
                "retry_operation",
                id=operation.id,
                fence=operation.fence,
                next_attempt_at=now + delay_ms,
                category=trouble.category,
                last_error=trouble.error,
                now=now,
            )
            if row is None:
                self.audit.of_operation(tx, now, "operation.late_result", operation, actor=QUOTEBOT)
                return
            self._end_operation_attempt(tx, now, operation, "retry", trouble, delay_ms)
            self.audit.of_operation(
                tx,
                now,
                "operation.retry_scheduled",
                operation,
                actor=QUOTEBOT,
                retry_count=row["attempts"],
                failure_category=trouble.category,
                recovery_action="retry",
                after={"next_attempt_at": row["next_attempt_at"], "error": trouble.error},
            )

        await self.database.write("retry_operation", work)
        self.operations_changed.set()

    async def bury_operation(
        self, operation: Operation, trouble: Trouble, response: Mapping[str, Any], effects: tuple[EffectIntent, ...]
    ) -> None:
        """Give up on an operation: a dead letter, and the person's answer owed in the same transaction."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> None:
            if not self.bury_in(tx, now, operation, trouble, response):
                self.audit.of_operation(tx, now, "operation.late_result", operation, actor=QUOTEBOT)
                return
            self._end_operation_attempt(tx, now, operation, "failed", trouble)
            self.owe_for(tx, now, operation, effects)

        await self.database.write("bury_operation", work)
        self.effects_changed.set()
        self.operations_changed.set()

    def bury_in(self, tx: Tx, now: int, operation: Operation, trouble: Trouble, response: Mapping[str, Any]) -> bool:
        """Bury inside an open transaction; false when the fence is stale."""
        row = tx.one(
            "bury_operation",
            id=operation.id,
            fence=operation.fence,
            category=trouble.category,
            last_error=trouble.error,
            response=json.dumps(response, sort_keys=True),
            now=now,
        )
        if row is None:
            return False
        self.audit.of_operation(
            tx,
            now,
            "system.error",
            operation,
            actor=QUOTEBOT,
            retry_count=row["attempts"],
            failure_category=trouble.category,
            recovery_action="replay",
            after={"error": trouble.error},
        )
        return True

    def owe_for(self, tx: Tx, now: int, operation: Operation, intents: Iterable[EffectIntent]) -> None:
        """Owe what a buried operation's person is told, inside an open transaction; each burial has keys of its own."""
        cause = Cause(
            operation.id,
            operation.operation_key,
            operation.correlation_id,
            first_ordinal=operation.cycle * ANSWERS_PER_BURIAL,
        )
        owe(tx, self.audit, now, cause, intents)

    # --------------------------------------------------------------------------------------------------------- effects

    async def claim_effects(self, slots: Mapping[str, int]) -> list[Effect]:
        """Take due effects, up to `slots` of each class named, at most one per lane, none of a paused class.

        A class that is not named is not claimed: this build may not know how to perform it.
        """
        now, epoch = self.clock.now_ms(), self._claiming_epoch()

        def work(tx: Tx) -> list[Effect]:
            tx.one("forget_past_pauses", now=now)
            claimed = []
            due_rows = (
                row for name, free in slots.items() for row in tx.all("due_effects", **{"class": name}, now=now, limit=free)
            )
            for due in due_rows:
                reconciling = due["state"] == "uncertain"
                row = tx.one(
                    "claim_effect", id=due["id"], fence=due["fence"], epoch=epoch, lease_until=now + self._lease_ms, now=now
                )
                assert row is not None  # noqa: S101 -- read in this very transaction
                effect = Effect.of(row, reconciling=reconciling)
                self._start_attempt(tx, now, "reconcile" if reconciling else "send", effect=effect)
                self.audit.of_effect(tx, now, "effect.claimed", effect, retry_count=effect.attempts)
                claimed.append(effect)
            return claimed

        return await self.database.write("claim_effects", work)

    async def record_step(self, effect: Effect, step: str, value: Mapping[str, Any]) -> Effect:
        """Make the result of one step of a multi-call effect durable. Raises StaleFenceError when the claim was lost."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> Effect:
            steps = {**effect.steps, step: value}
            row = tx.one("record_step", id=effect.id, fence=effect.fence, steps=json.dumps(steps, sort_keys=True), now=now)
            if row is None:
                raise StaleFenceError(effect.correlation_id)
            return Effect.of(row, reconciling=effect.reconciling)

        return await self.database.write("record_step", work)

    async def forget_steps(self, effect: Effect) -> Effect:
        """Start a multi-call effect over: what its steps had made is gone on the other side."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> Effect:
            row = tx.one("forget_steps", id=effect.id, fence=effect.fence, now=now)
            if row is None:
                raise StaleFenceError(effect.correlation_id)
            return Effect.of(row, reconciling=effect.reconciling)

        return await self.database.write("forget_steps", work)

    async def settle(self, effect: Effect, settlement: Settlement, decide: FollowUpDecision = no_follow_ups) -> Effect | None:
        """Record how an attempt ended, with what follows from it, in one transaction.

        Returns the effect as it is now, or None when the fence is stale: the result is audited and changes nothing.
        """
        now = self.clock.now_ms()

        def work(tx: Tx) -> Effect | None:
            row = settlements.move(tx, now, effect, settlement)
            if row is None:
                self.audit.of_effect(tx, now, "effect.late_result", effect)
                return None
            settled = Effect.of(row)
            settlements.record(tx, self.audit, now, settled, settlement)
            follow_ups = decide(tx, settled)
            for event in follow_ups.events:
                self.audit.of_effect(
                    tx, now, event.event_type, settled, aggregate_id=event.aggregate_id, before=event.before, after=event.after
                )
            self.owe_children(tx, now, settled, follow_ups.effects)
            return settled

        settled = await self.database.write("settle", work)
        self.effects_changed.set()
        return settled

    def owe_children(self, tx: Tx, now: int, parent: Effect, intents: Iterable[EffectIntent]) -> None:
        """Owe what follows from an effect, inside an open transaction."""
        counted = tx.one("count_children", operation_id=parent.operation_id, parent_id=parent.id)
        assert counted is not None  # noqa: S101 -- an aggregate always answers
        cause = Cause(parent.operation_id, parent.effect_key, parent.correlation_id, parent.id, counted["children"])
        owe(tx, self.audit, now, cause, intents)

    async def resume(self, effect_class: str, actor: str) -> bool:
        """Let a paused class work again; false when it was not paused."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> bool:
            row = tx.one("resume_class", **{"class": effect_class})
            if row is None:
                return False
            self.audit.append(tx, now, "class.resumed", actor=actor, actor_type="operator", after={"class": effect_class})
            return True

        resumed = await self.database.write("resume_class", work)
        self.effects_changed.set()
        return resumed

    async def next_effect_due_at(self) -> int | None:
        """Return when (ms, in the future) the next sleeping effect is due or a pause ends; None: only a change can wake us.

        What is due already and still not claimed waits for another row, so a change of that row is its wake-up.
        """
        now = self.clock.now_ms()
        return await self.database.read(lambda tx: _earliest(tx, now, "next_effect_due_at", "next_pause_end"))

    async def next_operation_due_at(self) -> int | None:
        """Return when (ms, in the future) the next sleeping operation is due."""
        now = self.clock.now_ms()
        return await self.database.read(lambda tx: _earliest(tx, now, "next_operation_due_at"))

    # --------------------------------------------------------------------------------------------------------- private

    def _claiming_epoch(self) -> int:
        if self.epoch is None:
            raise RuntimeError("only the process that holds the instance lock and an epoch may claim")
        return self.epoch

    def _reserve_first_sight(self, tx: Tx, now: int, request: Request, key: str, payload_hash: str) -> Reservation:
        row = tx.one(
            "insert_operation",
            operation_key=key,
            source=request.source,
            source_request_id=request.source_request_id,
            action_kind=request.action_kind,
            aggregate_id=request.aggregate_id,
            aggregate_version=request.aggregate_version,
            payload_hash=payload_hash,
            payload=keys.canonical_json(request.payload).decode(),
            correlation_id=keys.correlation_id(key),
            actor=request.actor,
            actor_type=request.actor_type,
            team_id=request.team_id,
            received_at=request.received_at,
            now=now,
        )
        sighting = Sighting.NEW if row is not None else Sighting.DUPLICATE
        row = row or tx.one("operation_by_key", operation_key=key)
        assert row is not None  # noqa: S101 -- inserted now or before
        operation = Operation.of(row)
        tx.one(
            "insert_delivery",
            source=request.source,
            source_request_id=request.source_request_id,
            action_kind=request.action_kind,
            operation_id=operation.id,
            fingerprint=request.fingerprint,
            transport=json.dumps(request.transport, sort_keys=True),
            now=now,
        )
        event = "operation.reserved" if sighting is Sighting.NEW else "delivery.duplicate"
        self.audit.of_operation(tx, now, event, operation)
        return Reservation(sighting, operation)

    def _start_attempt(
        self, tx: Tx, now: int, kind: str, *, operation: Operation | None = None, effect: Effect | None = None
    ) -> None:
        owner = operation or effect
        assert owner is not None  # noqa: S101 -- every caller names one
        tx.one(
            "start_attempt",
            operation_id=None if operation is None else operation.id,
            effect_id=None if effect is None else effect.id,
            cycle=owner.cycle,
            fence=owner.fence,
            epoch=self.epoch,
            kind=kind,
            now=now,
        )

    def _end_operation_attempt(
        self, tx: Tx, now: int, operation: Operation, outcome: str, trouble: Trouble | None = None, delay_ms: int | None = None
    ) -> None:
        tx.one(
            "end_operation_attempt",
            id=operation.id,
            fence=operation.fence,
            outcome=outcome,
            category=None if trouble is None else trouble.category,
            error=None if trouble is None else trouble.error,
            delay_ms=delay_ms,
            now=now,
        )

    async def _audit_late_operation(self, operation: Operation) -> None:
        now = self.clock.now_ms()
        await self.database.write(
            "late_result", lambda tx: self.audit.of_operation(tx, now, "operation.late_result", operation, actor=QUOTEBOT)
        )


def _earliest(tx: Tx, now: int, *statements: str) -> int | None:
    rows = [tx.one(statement, now=now) for statement in statements]
    return min((row["due"] for row in rows if row is not None and row["due"] is not None), default=None)
