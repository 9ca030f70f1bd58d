"""Seeded bugs in the claim, the attempt and the settlement of effects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from adapters import policies
from adapters.policies import Policy, RetryDecision
from faults.mutants.patching import of, put, sql
from ledger import settlement
from ledger.ledger import Ledger
from ledger.outbox import Cause, enqueue
from ledger.records import Delivered, Effect, Fail, Retry, Trouble, Uncertain
from quotebot import effects
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import EffectHandlers

if TYPE_CHECKING:
    from adapters.failures import AdapterError, Failure

_DOUBT: Final = Trouble("uncertain", "Whether it was done is not known yet.", maybe_sent=True)


def effects_enqueued_apart() -> None:
    """A command is completed in one transaction, its effects are enqueued in a later one."""
    honest = of(Ledger, "execute")

    async def execute(self: Ledger, operation: Any, decide: Any) -> Any:
        decided = []

        def alone(tx: Any) -> Any:
            decided.append(decide(tx))
            return replace(decided[-1], effects=())

        done = await honest(self, operation, alone)
        now = self.clock.now_ms()
        cause = Cause(operation.id, operation.operation_key, operation.correlation_id)

        def enqueuing(tx: Any) -> None:
            for owed in enqueue(tx, self.audit, now, cause, decided[-1].effects):
                self.audit.of_operation(tx, now, "effect.owed", operation, after=owed)

        await self.database.write("owe", enqueuing)
        self.effects_changed.set()
        return done

    put(Ledger, "execute", execute)


def completed_apart() -> None:
    """The change of the domain is written in one transaction, the command is completed in a later one."""
    honest = of(Ledger, "execute")

    async def execute(self: Ledger, operation: Any, decide: Any) -> Any:
        now = self.clock.now_ms()

        def changing(tx: Any) -> Any:
            outcome = decide(tx)
            for event in outcome.events:
                self.audit.of_operation(
                    tx, now, event.event_type, operation, aggregate_id=event.aggregate_id, before=event.before, after=event.after
                )
            return outcome

        outcome = await self.database.write("change", changing)
        return await honest(self, operation, lambda tx: (tx, replace(outcome, events=()))[1])

    put(Ledger, "execute", execute)


def follow_ups_apart() -> None:
    """An effect is settled in one transaction, its follow-up effects are written in a later one."""
    honest = of(Ledger, "settle")

    async def settle(self: Ledger, effect: Any, settlement: Any, decide: Any = None) -> Any:
        settled = await honest(self, effect, settlement)
        if settled is not None and decide is not None:
            now = self.clock.now_ms()
            await self.database.write("follow", lambda tx: self.settle_follow_ups(tx, now, settled, decide))
            self.effects_changed.set()
        return settled

    put(Ledger, "settle", settle)


def late_answers_let_go() -> None:
    """An ephemeral reply expires with its response_url."""
    effects.ANSWER_MS = effects.RESPONSE_URL_MS  # type: ignore[misc] # that is the bug


def settled_before_performed() -> None:
    """A reply is recorded as delivered, then sent."""
    honest = of(Dispatcher, "_attempt")

    async def attempt(self: Any, effect: Any) -> None:
        if effect.effect_class != effects.REPLY:
            await honest(self, effect)
            return
        await of(self, "_settle")(effect, Delivered(None, {}))
        await of(self, "_performer").perform(effect)

    put(Dispatcher, "_attempt", attempt)


def performed_before_claimed() -> None:
    """A message is posted, then its effect is claimed."""
    claim, perform = of(Dispatcher, "_claim"), of(EffectHandlers, "perform")
    done: dict[int, Any] = {}

    async def claim_late(self: Any, slots: Any) -> Any:
        ledger = of(self, "_ledger")
        now = ledger.clock.now_ms()
        due = {"class": effects.POST, "now": now, "limit": 1, "suspect_claims": 2}
        for row in await ledger.database.read(lambda tx: tx.all("due_effects", **due)):
            done[row["id"]] = await perform(of(self, "_performer"), Effect.of(row))
        return await claim(self, slots)

    async def performed(self: Any, effect: Any) -> Any:
        return done[effect.id] if effect.id in done else await perform(self, effect)

    put(Dispatcher, "_claim", claim_late)
    put(EffectHandlers, "perform", performed)


def no_look_before_a_repetition() -> None:
    """An uncertain effect is sent again at once."""

    async def reconcile(_self: Any, _effect: Any, _now: int) -> Any:
        return Retry(_DOUBT, delay_ms=0, spent=False)

    put(Dispatcher, "_reconcile", reconcile)


def absence_counts_at_once() -> None:
    """A message that is not there yet counts as never sent: the settle delay is skipped."""
    honest = of(Dispatcher, "_reconcile")

    async def reconcile(self: Any, effect: Any, now: int) -> Any:
        found = await honest(self, effect, now)
        if not isinstance(found, Uncertain):
            return found
        await of(self, "_performer").start_over(effect)
        return Retry(found.trouble, delay_ms=0, spent=False)

    put(Dispatcher, "_reconcile", reconcile)


def lost_answer_taken_for_not_sent() -> None:
    """A request without an answer counts as never sent."""
    honest = of(Dispatcher, "_judge")

    def judge(self: Any, effect: Any, policy: Any, error: AdapterError) -> Any:
        error.possibly_applied = False
        return honest(self, effect, policy, error)

    put(Dispatcher, "_judge", judge)


def lost_answer_taken_for_success() -> None:
    """A missing answer counts as a success."""
    honest = of(Dispatcher, "_judge")

    def judge(self: Any, effect: Any, policy: Any, error: AdapterError) -> Any:
        return Delivered("1800000000.000001", {}) if error.code == "network" else honest(self, effect, policy, error)

    put(Dispatcher, "_judge", judge)


order_ignored = sql("due_effects", ("older.id < e.id", "older.id < -e.id"))


def nobody_is_woken() -> None:
    """A command's effects wait until the hourly poll."""
    honest = of(Ledger, "execute")

    async def execute(self: Ledger, operation: Any, decide: Any) -> Any:
        awaited, self.effects_changed = self.effects_changed, asyncio.Event()
        try:
            return await honest(self, operation, decide)
        finally:
            self.effects_changed = awaited

    put(Ledger, "execute", execute)


children_not_woken = sql("wake_children", ("after_id = :id", "after_id = -:id"))


def retry_after_ignored() -> None:
    """The service's Retry-After is recorded and ignored."""
    honest = of(Policy, "next_delay")
    put(Policy, "next_delay", lambda self, failed, draw, _asked: honest(self, failed, draw, None))


def retries_without_end() -> None:
    """No retry budget is ever spent."""
    honest = of(Policy, "next_delay")
    put(Policy, "next_delay", lambda self, failed, draw, asked: honest(self, min(failed, self.retries), draw, asked))


def judged(failure: Failure, verdict: RetryDecision) -> Any:
    """Return a bug that judges one kind of failure differently."""

    def plant() -> None:
        put(policies, "JUDGED_ALONE", MappingProxyType({**policies.JUDGED_ALONE, failure: verdict}))

    return plant


def first_failure_buries() -> None:
    """No effect is retried."""
    put(Policy, "next_delay", lambda _self, _failed, _draw, _asked: None)


def steps_kept_in_memory() -> None:
    """The result of a step is lost in a crash."""

    async def record_step(_self: Any, effect: Any, step: str, value: Any) -> Any:
        return replace(effect, steps={**effect.steps, step: value})

    put(Ledger, "record_step", record_step)


def upload_not_looked_for() -> None:
    """An uncertain upload is repeated without a check whether it was shared."""
    honest = of(EffectHandlers, "find")

    async def find(self: Any, effect: Any) -> Any:
        return None if effect.effect_class == effects.FILE else await honest(self, effect)

    put(EffectHandlers, "find", find)


def dead_letter_not_announced() -> None:
    """A dead letter leaves no alert in the audit."""
    known = of(settlement, "_AUDITED_AS")
    put(settlement, "_AUDITED_AS", {**known, Fail: ("effect.late_result", "replay")})


def card_never_redrawn() -> None:
    """A delivered effect does not show on the card."""
    honest = of(EffectHandlers, "follow_ups")

    def follow_ups(self: Any, tx: Any, effect: Any) -> Any:
        owed = honest(self, tx, effect)
        return replace(owed, effects=tuple(intent for intent in owed.effects if intent.effect_class != effects.CARD))

    put(EffectHandlers, "follow_ups", follow_ups)
