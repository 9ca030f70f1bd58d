"""Seeded bugs in the claim, the attempt and the settlement of effects, and in the recovery at a start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from adapters import policies
from adapters.policies import Policy, RetryDecision
from faults.mutants.patching import both, of, patch, put, sql
from ledger import claims, recovery
from ledger.intake import Cause, enqueue
from ledger.ledger import Ledger
from ledger.records import Delivered, Effect, Fail, Retry, Trouble, Uncertain
from quotebot import effects
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.services import EffectHandlers

if TYPE_CHECKING:
    from adapters.failures import AdapterError, Failure

_DOUBT: Final = Trouble("uncertain", "Whether it was done is not known yet.", maybe_sent=True)


@patch(Ledger, "execute")
async def effects_enqueued_apart(honest: Any, self: Ledger, operation: Any, decide: Any) -> Any:
    """A command is completed in one transaction, its effects are enqueued in a later one."""
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


@patch(Ledger, "execute")
async def completed_apart(honest: Any, self: Ledger, operation: Any, decide: Any) -> Any:
    """The change of the domain is written in one transaction, the command is completed in a later one."""
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


@patch(Ledger, "settle")
async def follow_ups_apart(honest: Any, self: Ledger, effect: Any, settlement: Any, decide: Any = None) -> Any:
    """An effect is settled in one transaction, its follow-up effects are written in a later one."""
    settled = await honest(self, effect, settlement)
    if settled is not None and decide is not None:
        now = self.clock.now_ms()
        await self.database.write("follow", lambda tx: self.settle_follow_ups(tx, now, settled, decide))
        self.effects_changed.set()
    return settled


# An ephemeral reply expires with its response_url.
late_answers_let_go = partial(put, effects, "ANSWER_MS", effects.RESPONSE_URL_MS)


@patch(Dispatcher, "_attempt")
async def settled_before_performed(honest: Any, self: Any, effect: Any, claimed: float) -> None:
    """A reply is recorded as delivered, then sent."""
    if effect.effect_class != effects.REPLY:
        await honest(self, effect, claimed)
        return
    await of(self, "_settle")(effect, Delivered(None, {}))
    await of(self, "_performer").perform(effect)


def performed_before_claimed() -> None:
    """A message is posted, then its effect is claimed."""
    claim, perform = of(Dispatcher, "_claim"), of(EffectHandlers, "perform")
    done: dict[int, Any] = {}

    async def claim_late(self: Any, slots: Any) -> Any:
        ledger = of(self, "_ledger")
        due = {"class": effects.POST, "now": ledger.clock.now_ms(), "limit": 1, "suspect_claims": 2}
        for row in await ledger.database.read(lambda tx: tx.all("due_effects", **due)):
            done[row["id"]] = await perform(of(self, "_performer"), Effect.of(row))
        return await claim(self, slots)

    async def performed(self: Any, effect: Any) -> Any:
        return done[effect.id] if effect.id in done else await perform(self, effect)

    put(Dispatcher, "_claim", claim_late)
    put(EffectHandlers, "perform", performed)


@patch(Dispatcher, "_reconcile")
async def no_look_before_a_repetition(*_: Any) -> Any:
    """An uncertain effect is sent again at once."""
    return Retry(_DOUBT, delay_ms=0, spent=False)


@patch(Dispatcher, "_reconcile")
async def absence_counts_at_once(honest: Any, self: Any, effect: Any, policy: Any, now: int) -> Any:
    """A message that is not there yet counts as never sent: the settle delay is skipped."""
    found = await honest(self, effect, policy, now)
    if not isinstance(found, Uncertain):
        return found
    await of(self, "_performer").start_over(effect)
    return Retry(found.trouble, delay_ms=0, spent=False)


@patch(Dispatcher, "_judge")
def lost_answer_taken_for_not_sent(honest: Any, self: Any, effect: Any, policy: Any, error: AdapterError) -> Any:
    """A request without an answer counts as never sent."""
    error.possibly_applied = False
    return honest(self, effect, policy, error)


@patch(Dispatcher, "_judge")
def lost_answer_taken_for_success(honest: Any, self: Any, effect: Any, policy: Any, error: AdapterError) -> Any:
    """A missing answer counts as a success."""
    return Delivered("1800000000.000001", {}) if error.code == "network" else honest(self, effect, policy, error)


order_ignored = sql("due_effects", ("older.id < e.id", "older.id < -e.id"))


@patch(Ledger, "execute")
async def nobody_is_woken(honest: Any, self: Ledger, operation: Any, decide: Any) -> Any:
    """A command's effects wait until the hourly poll."""
    awaited, self.effects_changed = self.effects_changed, asyncio.Event()
    try:
        return await honest(self, operation, decide)
    finally:
        self.effects_changed = awaited


children_not_woken = sql("wake_children", ("after_id = :id", "after_id = -:id"))


@patch(Policy, "next_delay")
def retry_after_ignored(honest: Any, self: Policy, failed: int, draw: Any, _asked: Any) -> Any:
    """The service's Retry-After is recorded and ignored."""
    return honest(self, failed, draw, None)


@patch(Policy, "next_delay")
def retries_without_end(honest: Any, self: Policy, failed: int, draw: Any, asked: Any) -> Any:
    """No retry budget is ever spent."""
    return honest(self, min(failed, self.retries), draw, asked)


def judged(failure: Failure, verdict: RetryDecision) -> Any:
    """Return a bug that judges one kind of failure differently."""
    return partial(put, policies, "JUDGED_ALONE", MappingProxyType({**policies.JUDGED_ALONE, failure: verdict}))


# No effect is retried.
first_failure_buries = partial(put, Policy, "next_delay", lambda _self, _failed, _draw, _asked: None)


@patch(Ledger, "record_step")
async def steps_kept_in_memory(_honest: Any, _self: Any, effect: Any, step: str, value: Any) -> Any:
    """The result of a step is lost in a crash."""
    return replace(effect, steps={**effect.steps, step: value})


@patch(EffectHandlers, "find")
async def upload_not_looked_for(honest: Any, self: Any, effect: Any) -> Any:
    """An uncertain upload is repeated without a check whether it was shared."""
    return None if effect.effect_class == effects.FILE else await honest(self, effect)


def dead_letter_not_announced() -> None:
    """A dead letter leaves no alert in the audit."""
    put(claims, "_AUDITED_AS", {**of(claims, "_AUDITED_AS"), Fail: ("effect.late_result", "replay")})


@patch(EffectHandlers, "follow_ups")
def card_never_redrawn(honest: Any, self: Any, tx: Any, effect: Any) -> Any:
    """A delivered effect does not show on the card."""
    owed = honest(self, tx, effect)
    return replace(owed, effects=tuple(intent for intent in owed.effects if intent.effect_class != effects.CARD))


forgets_operations = both(
    sql("abandoned_operations", ("state = 'in_progress'", "state = 'in_progress' AND 0")),
    sql("lapsed_operations", ("state = 'in_progress'", "state = 'in_progress' AND 0")),
)
forgets_effects = sql("abandoned_effects", ("state = 'in_flight'", "state = 'in_flight' AND 0"))


@patch(recovery, "_release_effect")
def repeats_for_ever(honest: Any, ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
    """An effect that cannot be read back is repeated after every crash, not once."""
    honest(ledger, tx, now, replace(effect, maybe_sent=False), why)


@patch(recovery, "_release_effect")
def takes_it_for_delivered(honest: Any, ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
    """An effect in flight at a crash counts as delivered."""
    if effect.semantics != "append":
        honest(ledger, tx, now, effect, why)
        return
    row = tx.one("deliver_effect", id=effect.id, fence=effect.fence, external_ref="1800000000.000001", result="{}", now=now)
    ledger.audit.of_effect(tx, now, "effect.delivered", Effect.of(row))
    tx.one("wake_children", id=effect.id, now=now)
