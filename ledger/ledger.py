"""The ledger: one method per state transition. Every method is one durable transaction; every settlement is fenced.

A command is reserved before any work on it, claimed by one process, and completed in the transaction of its domain change, which
also enqueues its effects. An effect is claimed, attempted, and settled under the fence of its claim.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ledger.claims import (
    POISON_CLAIMS,
    Suspects,
    adjust_settlement,
    record_settlement,
    settle_effect,
    take_effects,
    take_operations,
)
from ledger.database import DatabaseError
from ledger.gates import Breaker, GateRules, family
from ledger.intake import Cause, KeyedRequest, enqueue, note_duplicate, reserve
from ledger.keys import dumps
from ledger.machine import EffectState
from ledger.ownership import SoleOwner
from ledger.records import (
    QUOTEBOT,
    DeadNotice,
    DedupeResult,
    Effect,
    EffectIntent,
    FollowUps,
    Hold,
    Operation,
    Outcome,
    PauseNotice,
    Request,
    Reservation,
    Settlement,
    Trouble,
)

if TYPE_CHECKING:
    from ledger.audit.events import Audit
    from ledger.clock import Clock
    from ledger.database import Database, Row, Tx
    from ledger.ownership import Ownership

# Ordinals of each cycle for the effects of an operation that did not complete. They are apart from those of an execution's effects,
# and each cycle has its own: a replay may succeed.
ORDINALS_PER_CYCLE: Final = 1000
PENDING_ORDINAL: Final = 250  # within a cycle, of the card that shows an unfinished operation

FollowUpDecision = Callable[["Tx", Effect], FollowUps]


class StaleFenceError(Exception):
    """This process no longer owns the row: its result came too late and changed nothing."""


def no_follow_ups(tx: Tx, effect: Effect) -> FollowUps:
    """Return no follow-ups."""
    del tx, effect
    return FollowUps()


class Ledger:
    """Operations and effects of one database.

    `epoch` identifies this process in every claim; without one it may reserve and read, but not claim. `ownership` tells which
    claims of others are free; without one this process is the only one that claims.

    A row that was claimed at `poison_claims` crashes is dead-lettered. `pin` returns the head version of an aggregate. It is stored
    with a reservation, as the version that a command without a version refers to. `on_dead` is called after the commit with every
    new dead letter, once per cycle. `on_reserved` is likewise called for every new command, `on_paused` for every refused login
    that pauses a family of classes.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        audit: Audit,
        *,
        epoch: int | None = None,
        ownership: Ownership | None = None,
        lease_seconds: int = 120,
        breaker: Breaker | None = None,
        poison_claims: int = POISON_CLAIMS,
        pin: Callable[[Tx, str], int | None] = lambda _tx, _aggregate_id: None,
        on_dead: Callable[[DeadNotice], object] = lambda _notice: None,
        on_reserved: Callable[[], object] = lambda: None,
        on_paused: Callable[[PauseNotice], object] = lambda _notice: None,
    ) -> None:
        self.database = database
        self.clock = clock
        self.audit = audit
        self.epoch = epoch
        self.ownership: Ownership = ownership or SoleOwner()
        self.term = self.ownership.term  # in which the epoch was begun, or was last seen open
        self.renewed_at = clock.monotonic()  # when the last renewal of the leases was asked for, or this ledger opened
        self.gates = GateRules(breaker or Breaker(), audit)
        self.poison_claims = poison_claims
        self.suspects = Suspects(poison_claims - 1)
        self.lease_ms = lease_seconds * 1000
        self._pin = pin
        self._on_dead = on_dead
        self._on_reserved = on_reserved
        self._on_paused = on_paused
        self._noting: set[asyncio.Task[None]] = set()
        self.operations_changed = asyncio.Event()
        self.effects_changed = asyncio.Event()

    # ------------------------------------------------------------------------------------------------------ operations

    async def reserve(self, request: Request, *, deadline: float | None = None) -> Reservation:
        """Record a command before any work on it. A repeated delivery gets the operation that its first delivery created.

        `deadline` is monotonic seconds. Raises NotRecorded or OutcomeUnknown as Database.write does.
        """
        sighted = KeyedRequest.of(request)
        now = self.clock.now_ms()
        reservation = await self.database.write(
            "reserve", lambda tx: reserve(tx, self.audit, self._pin, now, sighted), urgent=True, brief=True, deadline=deadline
        )
        if reservation.sighting is DedupeResult.NEW:
            self.operations_changed.set()
            self._on_reserved()
        elif reservation.delivery_id is not None:
            noting = asyncio.create_task(self._note_duplicate(reservation, request, now))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)
        return reservation

    async def _note_duplicate(self, reservation: Reservation, request: Request, now: int) -> None:
        with contextlib.suppress(DatabaseError):  # a busy or full ledger misses one count: nothing depends on it
            await self.database.write("note_duplicate", lambda tx: note_duplicate(tx, self.audit, now, reservation, request))

    async def noted(self) -> None:
        """Wait until every duplicate answered so far is counted and audited."""
        await asyncio.gather(*self._noting, return_exceptions=True)

    def own_epoch(self) -> int:
        """Return the epoch that this process claims under. Raises RuntimeError without one."""
        if self.epoch is None:
            raise RuntimeError("only a process with an epoch may claim")
        return self.epoch

    def may_claim(self) -> bool:
        """Tell whether no other process can take this one for dead: it has its lock, and its epoch was open since."""
        return self.ownership.alone or (self.ownership.is_held() and self.ownership.term == self.term)

    def may_call(self, claimed: float, seconds: float) -> bool:
        """Tell whether a call of so many seconds ends while nobody else may take its effect.

        `claimed`: when its claim was asked for, in seconds of `clock.monotonic`.
        """
        lease_ends = max(claimed, self.renewed_at) + self.lease_ms / 1000
        return self.ownership.alone or (self.may_claim() and self.clock.monotonic() + seconds < lease_ends)

    async def claim_operations(self, limit: int, *, only: str | None = None) -> list[Operation]:
        """Claim due operations, at most one per lane (the oldest unfinished one of its quote). Returns [] when nothing is due.

        `only` lists what may be claimed, between spaces: sources (" cli "), or kinds, each with a schema of its payload that this
        build reads (" quote.cancel/1 quote.reopen/1 quote.reopen/2 "). The order within a lane holds regardless.
        """
        now, epoch = self.clock.now_ms(), self.own_epoch()
        if not self.may_claim():
            return []

        def work(tx: Tx) -> list[Operation]:
            claimed = take_operations(tx, now, self.suspects, limit, only=only, epoch=epoch, lease_until=now + self.lease_ms)
            for operation in claimed:
                self.audit.of_operation(tx, now, "operation.claimed", operation, actor=QUOTEBOT)
            return claimed

        return await self.database.write("claim_operations", work, brief=True)

    async def claim_operation(self) -> Operation | None:
        """Claim the next due operation, if there is one."""
        return next(iter(await self.claim_operations(1)), None)

    async def execute(self, operation: Operation, decide: Callable[[Tx], Outcome]) -> Outcome:
        """Run the domain change and complete the operation in one transaction; return the decided outcome.

        Raises StaleFenceError when another process took the operation over: nothing is changed and the late result is audited. Sets
        `operations_changed` only when an operation is due: the next in the lane, or one that the change made due again.
        """
        now = self.clock.now_ms()

        def work(tx: Tx) -> tuple[Outcome, bool]:
            outcome = decide(tx)
            row = tx.one(
                "complete_operation",
                id=operation.id,
                fence=operation.fence,
                outcome=outcome.kind,
                response=dumps(outcome.response),
                retain_until=outcome.retain_until,
                now=now,
            )
            if row is None:
                raise StaleFenceError(operation.correlation_id)
            tries = operation.attempts + 1
            for event in outcome.events:
                self.audit.of_operation(
                    tx,
                    now,
                    event.event_type,
                    operation,
                    retry_count=tries,
                    aggregate_id=event.aggregate_id,
                    before=event.before,
                    after=event.after,
                )
            cause = Cause(operation.id, operation.operation_key, operation.correlation_id)
            answered = {name: value for name, value in outcome.response.items() if name != "text"}  # no free text in the audit
            answered["owes"] = enqueue(tx, self.audit, now, cause, outcome.effects)
            self.audit.of_operation(tx, now, f"operation.{outcome.kind}", operation, retry_count=tries, after=answered)
            return outcome, bool(row["others_due"])

        try:
            done, others_due = await self.database.write("execute", work, brief=True)
        except StaleFenceError:
            late = "operation.late_result"
            await self.database.write("late_result", lambda tx: self.audit.of_operation(tx, now, late, operation, actor=QUOTEBOT))
            raise
        self.suspects.clear(operation)
        self.effects_changed.set()
        if others_due:
            self.operations_changed.set()
        return done

    async def retry_operation(
        self, operation: Operation, trouble: Trouble, delay_ms: int, effects: Sequence[EffectIntent] = ()
    ) -> None:
        """Return a failed operation to the queue for a later attempt; `effects` notify the user, in the same transaction."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> bool:
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
                return False
            self.record_operation_attempt(tx, now, operation, "retry", trouble, delay_ms)
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
            self.enqueue_for(tx, now, operation, effects, first=ORDINALS_PER_CYCLE // 2 + row["attempts"])
            return True

        if await self.database.write("retry_operation", work):  # a stale claim holds outdated values: its result clears nothing
            self.suspects.clear(operation)
        self.effects_changed.set()
        self.operations_changed.set()

    async def shelve_operation(self, operation: Operation, reason: str, retry_ms: int) -> None:
        """Release an operation that this build cannot read. It stays at the head of its lane for a newer build.

        The claim does not count as an attempt.
        """
        now = self.clock.now_ms()

        def work(tx: Tx) -> None:
            row = tx.one(
                "release_operation",
                id=operation.id,
                fence=operation.fence,
                claims=operation.claims - 1,
                next_attempt_at=now + retry_ms,
                category="needs_newer_build",
                now=now,
            )
            if row is None:
                self.audit.of_operation(tx, now, "operation.late_result", operation, actor=QUOTEBOT)
                return
            self.audit.of_operation(
                tx,
                now,
                "operation.shelved",
                operation,
                actor=QUOTEBOT,
                failure_category="needs_newer_build",
                recovery_action="retry",
                after={"why": reason},
            )

        await self.database.write("shelve_operation", work)

    async def name_unread(self, known: str, waited_ms: int, limit: int) -> list[Row]:
        """Mark commands that this build cannot read (see `claim_operations`) and that no process has claimed for `waited_ms`.

        They wait for a newer build, and stay due. Returns those that were not marked before.
        """
        now = self.clock.now_ms()
        return await self.database.write(
            "name_unread", lambda tx: tx.all("name_unread", known=known, before=now - waited_ms, limit=limit, now=now)
        )

    async def fail_operation(
        self, operation: Operation, trouble: Trouble, response: Mapping[str, Any], effects: tuple[EffectIntent, ...]
    ) -> None:
        """Give up on an operation: record a dead letter and enqueue the user's answer in the same transaction."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> list[DeadNotice]:
            if not self.fail_in(tx, now, operation, trouble, response):
                self.audit.of_operation(tx, now, "operation.late_result", operation, actor=QUOTEBOT)
                return []
            self.enqueue_for(tx, now, operation, effects)
            return [DeadNotice.of_operation(operation, trouble)]

        dead = await self.database.write("fail_operation", work)
        self.announce(dead)
        if dead:  # not for a stale claim, as above
            self.suspects.clear(operation)
        self.effects_changed.set()
        self.operations_changed.set()

    def fail_in(self, tx: Tx, now: int, operation: Operation, trouble: Trouble, response: Mapping[str, Any]) -> bool:
        """Fail an operation inside an open transaction; false when the fence is stale."""
        row = tx.one(
            "fail_operation",
            id=operation.id,
            fence=operation.fence,
            category=trouble.category,
            code=trouble.code,
            last_error=trouble.error,
            response=dumps(response),
            now=now,
        )
        if row is None:
            return False
        self.record_operation_attempt(tx, now, operation, "bury", trouble)
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

    def enqueue_for(self, tx: Tx, now: int, operation: Operation, intents: Sequence[EffectIntent], *, first: int = 0) -> None:
        """Enqueue the notifications about an operation that did not complete, inside an open transaction.

        Each cycle has its own range of effect keys; `first` separates the notifications sent before the dead letter.
        """
        cause = Cause(
            operation.id,
            operation.operation_key,
            operation.correlation_id,
            first_ordinal=operation.cycle * ORDINALS_PER_CYCLE + first,
        )
        for owed in enqueue(tx, self.audit, now, cause, intents):
            self.audit.of_operation(tx, now, "effect.owed", operation, actor=QUOTEBOT, after=owed)

    def record_operation_attempt(
        self, tx: Tx, now: int, operation: Operation, outcome: str, trouble: Trouble, delay_ms: int | None = None
    ) -> None:
        """Insert the attempt row of an execution that did not complete; a completed one needs no attempt row."""
        tx.one(
            "insert_attempt",
            operation_id=operation.id,
            effect_id=None,
            cycle=operation.cycle,
            fence=operation.fence,
            epoch=operation.epoch,
            kind="execute",
            started_at=operation.claimed_at,
            outcome=outcome,
            http_status=None,
            category=trouble.category,
            error=trouble.error,
            retry_after_ms=None,
            delay_ms=delay_ms,
            now=now,
        )

    # --------------------------------------------------------------------------------------------------------- effects

    async def claim_effects(
        self,
        slots: Mapping[str, int],
        *,
        max_age_ms: Mapping[str, int] | None = None,
        follow: FollowUpDecision = no_follow_ups,
        expires: bool = True,
        families: Mapping[str, int] | None = None,
    ) -> list[Effect]:
        """Claim due effects, up to `slots` of each named class, at most one per lane, and none of a held class.

        `families` limits the effects in flight over all classes of a family.

        A class that is not named is not claimed: this build may not know how to perform it. Effects older than the `max_age_ms` of
        their class fail as expired instead; `follow` decides their follow-ups. With `expires` false nothing expires.
        """
        now, epoch = self.clock.now_ms(), self.own_epoch()
        if not self.may_claim():
            return []

        def work(tx: Tx) -> tuple[list[Effect], list[Effect], list[DeadNotice]]:
            claimed, expired, dropped = take_effects(
                tx,
                now,
                self.suspects,
                self.gates,
                self.audit,
                slots,
                max_age_ms=max_age_ms or {},
                expires=expires,
                families=families or {},
                epoch=epoch,
                lease_until=now + self.lease_ms,
            )
            for effect in claimed:
                named = {"key": effect.effect_key}
                self.audit.of_effect(tx, now, "effect.claimed", effect, after=named)
            for effect in expired:
                self.settle_follow_ups(tx, now, effect, follow)
            return claimed, expired + dropped, [DeadNotice.of_effect(tx, effect) for effect in expired]

        claimed, ended, dead = await self.database.write("claim_effects", work, brief=True)
        self.announce(dead)
        for effect in ended:
            self.suspects.clear(effect)
        if ended:  # the next in their lanes are due now, and follow-ups may include a command
            self.effects_changed.set()
            self.operations_changed.set()
        return claimed

    async def record_step(self, effect: Effect, step: str, value: Mapping[str, Any]) -> Effect:
        """Make the result of one step of a multi-call effect durable. Raises StaleFenceError when the claim was lost."""
        now, steps = self.clock.now_ms(), dumps({**effect.steps, step: value})

        def work(tx: Tx) -> Effect:
            return _stepped(effect, tx.one("record_step", id=effect.id, fence=effect.fence, steps=steps, now=now))

        return await self.database.write("record_step", work)

    async def forget_steps(self, effect: Effect) -> Effect:
        """Restart a multi-call effect: the objects that its steps created no longer exist in the external service.

        Raises StaleFenceError when the claim was lost.
        """
        now = self.clock.now_ms()

        def work(tx: Tx) -> Effect:
            return _stepped(effect, tx.one("forget_steps", id=effect.id, fence=effect.fence, now=now))

        return await self.database.write("forget_steps", work)

    async def settle(self, effect: Effect, settlement: Settlement, decide: FollowUpDecision = no_follow_ups) -> Effect | None:
        """Record the end of an attempt and its follow-ups in one transaction.

        Returns the effect as it is now, or None when the fence is stale: the result is audited and changes nothing. Sets
        `effects_changed` unless the settlement cannot have made anything due; the caller that counts slots knows that this slot is
        free.
        """
        now = self.clock.now_ms()
        suspected = self.suspects.any()  # suspects wait for the end of every row in flight

        def work(tx: Tx) -> tuple[Effect, list[DeadNotice], bool, bool, bool] | None:
            adjusted = adjust_settlement(tx, now, effect, settlement)
            refused = isinstance(adjusted, Hold) and self.gates.flows(tx, family(effect.effect_class))  # once per outage
            row = settle_effect(tx, now, effect, adjusted)
            if row is None:
                self.audit.of_effect(tx, now, "effect.late_result", effect)
                return None
            settled = Effect.of(row, origin=effect.origin)
            wakes = record_settlement(tx, self.audit, self.gates, now, effect, settled, adjusted)
            follow_ups = self.settle_follow_ups(tx, now, settled, decide)
            lane = {"class": settled.effect_class, "target": settled.target}
            wakes = suspected or wakes or bool(follow_ups.effects) or tx.one("unfinished_in_lane", **lane) is not None
            dead = [DeadNotice.of_effect(tx, settled)] if settled.state is EffectState.FAILED else []
            return settled, dead, bool(follow_ups.commands), wakes, refused

        ended = await self.database.write("settle", work, brief=True)
        # A lookup that ended does not clear a suspect, nor does a late result.
        if ended is not None and ended[0].claims < self.suspects.claims:
            self.suspects.clear(effect)
        if ended is None:
            self.effects_changed.set()
            return None
        settled, dead, commanded, wakes, refused = ended
        if wakes:
            self.effects_changed.set()
        if commanded:
            self.operations_changed.set()
        self.announce(dead)
        if refused:
            self._on_paused(PauseNotice.of(settled))
        return settled

    def announce(self, dead: Iterable[DeadNotice]) -> None:
        """Pass recorded dead letters to `on_dead`. Called after the commit."""
        for notice in dead:
            self._on_dead(notice)

    def settle_follow_ups(self, tx: Tx, now: int, settled: Effect, decide: FollowUpDecision) -> FollowUps:
        """Record the follow-ups of a settled effect inside an open transaction, and return them."""
        follow_ups = decide(tx, settled)
        for event in follow_ups.events:
            self.audit.of_effect(
                tx, now, event.event_type, settled, aggregate_id=event.aggregate_id, before=event.before, after=event.after
            )
        self.enqueue_children(tx, now, settled, follow_ups.effects)
        for request in follow_ups.commands:
            self.reserve_in(tx, now, KeyedRequest.of(request))
        return follow_ups

    def reserve_in(self, tx: Tx, now: int, request: KeyedRequest) -> Reservation:
        """Reserve a command inside an open transaction."""
        return reserve(tx, self.audit, self._pin, now, request)

    def enqueue_children(self, tx: Tx, now: int, parent: Effect, intents: Sequence[EffectIntent]) -> None:
        """Enqueue the follow-up effects of an effect, inside an open transaction."""
        if not intents:
            return
        counted = tx.required("count_children", operation_id=parent.operation_id, parent_id=parent.id)
        cause = Cause(parent.operation_id, parent.effect_key, parent.correlation_id, parent.id, counted["children"])
        for owed in enqueue(tx, self.audit, now, cause, intents):
            self.audit.of_effect(tx, now, "effect.owed", parent, after=owed)

    async def pause(self, name: str, actor: str, reason: str) -> bool:
        """Hold a class of effects, or a family of classes, until an operator resumes it; false when it was already paused."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> bool:
            before = self.gates.hold(tx, now, name, "operator", reason, actor).before
            if before.state == "held" and before.until_at is None and before.cause == "operator":
                return False
            details = {"class": name, "why": reason}
            self.audit.append(tx, now, "class.paused", actor=actor, actor_type="operator", after=details)
            return True

        return await self.database.write("pause", work)

    async def resume(self, name: str, actor: str) -> bool:
        """Resume a held class with its family, or a family with its classes, with one trial effect first. False: none was held."""
        now = self.clock.now_ms()

        def work(tx: Tx) -> bool:
            resumed = self.gates.resume(tx, now, name)
            for each in resumed:
                self.audit.append(tx, now, "class.half_open", actor=actor, actor_type="operator", after={"class": each})
            return bool(resumed)

        resumed = await self.database.write("resume", work)
        self.effects_changed.set()
        return resumed

    async def next_effect_due_at(self, classes: Sequence[str], after: int | None = None) -> int | None:
        """Return when (ms) the first waiting effect is due or a gate opens; None: only a change can make one due.

        An effect that was due at `after` (ms; default: now) and is still not claimed waits for another row, whose change is the
        wake-up.
        """
        now = self.clock.now_ms() if after is None else after
        named = dumps(list(classes))
        return await self.database.read(
            lambda tx: _earliest(tx.one("next_effect_due_at", classes=named, now=now), tx.one("next_gate_change", now=now))
        )

    async def next_operation_due_at(self, after: int | None = None) -> int | None:
        """Return when (ms) the first operation is due that was not due at `after` (ms; default: now)."""
        now = self.clock.now_ms() if after is None else after
        return await self.database.read(lambda tx: _earliest(tx.one("next_operation_due_at", now=now)))


def _earliest(*rows: Row | None) -> int | None:
    return min((row["due"] for row in rows if row is not None and row["due"] is not None), default=None)


def _stepped(effect: Effect, row: Row | None) -> Effect:
    """Return the effect after a change of its steps. Raises StaleFenceError when the claim was lost."""
    if row is None:
        raise StaleFenceError(effect.correlation_id)
    return Effect.of(row, reconciling=effect.reconciling, origin=effect.origin)
