"""Delivery of pending effects: claim, perform, settle. Retries wait as ledger rows, never in memory.

The adapter classifies failures and the retry matrix holds the numbers. This module decides only what a failure means for an effect
class: retry, reconcile first, pause the class, drop, or give up.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from adapters.failures import BUG, INVALID_VALUE, UNAVAILABLE, AdapterError, Failure, code_of_bug
from adapters.http import CALL_SECONDS
from adapters.policies import SHARED, Matrix, Policy, RetryDecision, verdict
from ledger import keys
from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, WritesRefused
from ledger.gates import family
from ledger.ledger import StaleFenceError, no_follow_ups
from ledger.machine import EffectState
from ledger.records import Delivered, Drop, Effect, Fail, FollowUps, Hold, Retry, Settlement, Trouble, Uncertain
from quotebot.domain.language import N_, _
from quotebot.worker_loop import POLL_SECONDS, AckPriority, one_round

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger

OVERRUN_SECONDS: Final = 5.0  # an adapter keeps its own deadline; this margin guards against one that does not
THROTTLE_SECONDS_MIN: Final = 1.0  # after a 429 without Retry-After
UNTRUSTED_MS: Final = 60_000  # between two lookups of what was not found while the clock is not trusted

Draw = Callable[[float, float], float]
_CALL_FAILED: Final = {
    INVALID_VALUE: N_("The call failed: a value is invalid (invalid_value)."),
    BUG: N_("The call failed: an error in our own code (bug)."),
}
log = structlog.get_logger(__name__)


class Performer(Protocol):
    """Interface to the effect handlers. One implementation knows the adapters; the dispatcher knows only this protocol."""

    async def perform(self, effect: Effect) -> Settlement:
        """Perform the effect, or return how it settles without a call. Raises AdapterError."""
        ...

    async def find(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied before; None if not. Raises AdapterError."""
        ...

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if, by the recorded steps alone, a visible result is possible."""
        ...

    async def start_over(self, effect: Effect) -> None:
        """Discard the recorded steps of an effect whose result no longer exists at the external service."""
        ...

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of a settled effect, inside the settling transaction."""
        ...


class Dispatcher:
    """Executor of due effects under the policies of `matrix`, several lanes at once.

    `draw(low, high)` is the injected source of jitter.
    """

    def __init__(
        self,
        ledger: Ledger,
        performer: Performer,
        draw: Draw,
        matrix: Matrix,
        *,
        settle_delay_seconds: float,
        poll_seconds: float = POLL_SECONDS,
        ack_priority: AckPriority | None = None,
        trusted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`trusted` returns whether the wall clock is right; while it is not, no effect expires, and none is found absent."""
        self._ledger = ledger
        self._trusted = trusted
        self._matrix = matrix
        self._max_age_ms = {name: round(line.max_age_seconds * 1000) for name, line in matrix.lines.items()}
        self._families = {name: most for name in SHARED if (most := matrix.concurrency_of(name))}
        self._performer = performer
        self._draw = draw
        self._poll_seconds = poll_seconds
        self._ack_priority = ack_priority or AckPriority(ledger.clock)
        self._settle_delay_ms = round(settle_delay_seconds * 1000)
        self._running: dict[asyncio.Task[None], str] = {}  # the running attempts, each with its effect class
        self._claimed_at = 0  # time of the last claim; the next wake-up is the first row due after it
        self._full: frozenset[str] = frozenset()  # classes that may have more due effects than they had slots
        self._took_all = False  # at the last claim every class had slots for all due effects, or has no free slot
        self.replicas = 1  # that share the limits of the classes
        self._limits = {name: line.concurrency for name, line in matrix.lines.items()}
        self._unwritten = 0  # results that could not be recorded yet; while there are any, nothing new is claimed
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Work until cancelled; running attempts are left to `drain`. Raises the error that makes it unsafe to continue."""
        ledger = self._ledger
        await self.share_limits()
        while self._failure is None:
            await one_round(ledger.effects_changed, self._round, self._next_due_at, ledger.clock, self._poll_seconds)
        raise self._failure

    async def share_limits(self) -> None:
        """Share the limit of each class with the replicas that are alive now. The limits of families count in the ledger."""
        self.replicas = await self._ledger.ownership.count()
        self._limits = {name: math.ceil(line.concurrency / self.replicas) for name, line in self._matrix.lines.items()}

    async def _next_due_at(self) -> int | None:
        return await self._ledger.next_effect_due_at(tuple(self._matrix.lines), self._claimed_at)

    async def _round(self) -> int:
        if self._unwritten:
            return 0
        done = await self.step()
        return 0 if self._took_all else done

    async def step(self) -> int:
        """Claim due effects and start them; returns how many were started."""
        most, busy = await self._ack_priority.turn(), Counter(self._running.values())
        free = {name: limit - busy[name] for name, limit in self._limits.items()}
        slots = {name: min(most, number) for name, number in free.items() if number > 0}
        self._claimed_at = self._ledger.clock.now_ms()
        asked = self._ledger.clock.monotonic()
        self._full = frozenset(free)  # a slot freed during the claim is not in `free`
        effects = await self._claim(slots)
        taken = Counter(effect.effect_class for effect in effects)
        under_way = Counter(family(name) for name in (busy + taken).elements())
        full = frozenset(name for name, most in self._families.items() if under_way[name] >= most)
        self._full = frozenset(name for name, number in free.items() if taken[name] >= number or family(name) in full)
        self._took_all = all(number < slots[name] or name in self._full for name, number in taken.items())
        for effect in effects:
            task = asyncio.create_task(self._attempt(effect, asked))
            self._running[task] = effect.effect_class
            task.add_done_callback(self._finished)
        return len(effects)

    async def _claim(self, slots: dict[str, int]) -> list[Effect]:
        """Claim effects; if the follow-ups of an expired effect cannot be decided, it expires without them."""
        ages, trusted = self._max_age_ms, self._trusted()
        try:
            return await self._ledger.claim_effects(
                slots, max_age_ms=ages, follow=self._performer.follow_ups, expires=trusted, families=self._families
            )
        except DatabaseError:
            raise
        except Exception:
            log.exception("effect.follow_ups_failed")
            return await self._ledger.claim_effects(slots, max_age_ms=ages, expires=trusted, families=self._families)

    async def drain(self, seconds: float) -> None:
        """Wait for running attempts; those still running after `seconds` are cancelled and left to the next start."""
        running = list(self._running)
        if not running:
            return
        _done, late = await asyncio.wait(running, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        effect_class = self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("effect.unsettled", error=repr(error))
            self._failure = self._failure or error  # a stop is safer than a partial failure: `run` raises it
        if self._failure is not None or effect_class in self._full:  # a slot is free again
            self._ledger.effects_changed.set()

    async def _attempt(self, effect: Effect, claimed: float) -> None:
        """Perform a claimed effect and settle it. `claimed` is when its claim was asked for (seconds of the monotonic clock)."""
        policy = self._matrix.of(effect.effect_class)
        with structlog.contextvars.bound_contextvars(
            correlation_id=effect.correlation_id,
            effect_id=effect.id,
            effect_class=effect.effect_class,
            aggregate_id=effect.aggregate_id,
            quote_id=effect.aggregate_id,
            attempt=effect.attempts + 1,
            max_attempts=policy.retries + 1,
            **_named(effect),
        ):
            CALL_SECONDS.set(policy.timeout_seconds)  # each attempt is a task with a context of its own
            began = self._ledger.clock.now_ms()
            try:
                if self._ledger.may_call(claimed, policy.timeout_seconds + OVERRUN_SECONDS):
                    settlement = await self._try(effect, policy)
                else:
                    settlement = _not_begun(effect)
            except StaleFenceError:
                log.warning("effect.late_step")
                return
            settled = await self._settle(effect, settlement)
            _log_settled(settled, settlement, final=policy.retries + 1, latency_ms=self._ledger.clock.now_ms() - began)

    async def _settle(self, effect: Effect, settlement: Settlement) -> Effect | None:
        """Record the result. While the ledger cannot be written, the result is kept and tried again: it must not be lost."""
        decide = self._performer.follow_ups
        waiting = False
        try:
            while True:
                try:
                    return await self._ledger.settle(effect, settlement, decide)
                except (WritesRefused, OutcomeUnknown):
                    raise
                except NotRecorded as error:
                    log.warning("effect.result_unwritten", error=str(error))
                    self._unwritten += not waiting
                    waiting = True
                    await asyncio.sleep(POLL_SECONDS)
                except Exception:
                    if decide is no_follow_ups:
                        raise
                    log.exception("effect.follow_ups_failed")
                    decide = no_follow_ups
                    settlement = Fail(Trouble(Failure.INTERNAL.value, _("What follows could not be decided."), maybe_sent=True))
        finally:
            self._unwritten -= waiting
            if waiting:  # nothing was claimed during the wait
                self._ledger.effects_changed.set()

    async def _try(self, effect: Effect, policy: Policy) -> Settlement:
        now = self._ledger.clock.now_ms()
        try:
            async with asyncio.timeout(policy.timeout_seconds + OVERRUN_SECONDS):
                if effect.reconciling:
                    return await self._reconcile(effect, policy, now)
                return await self._performer.perform(effect)
        except AdapterError as error:
            return self._judge(effect, policy, error)
        except TimeoutError:
            late = AdapterError(Failure.TIMEOUT, "timeout", _("The call did not end in time."), possibly_applied=True)
            return self._judge(effect, policy, late)
        except (StaleFenceError, WritesRefused, OutcomeUnknown):
            raise
        except NotRecorded as error:
            return _step_unwritten(effect, error)
        except Exception as error:
            log.exception("effect.internal_error")
            code = code_of_bug(error)
            message = _(_CALL_FAILED[code])
            return self._judge(effect, policy, AdapterError(Failure.INTERNAL, code, message, possibly_applied=True))

    async def _reconcile(self, effect: Effect, policy: Policy, now: int) -> Settlement:
        """Look up the effect before sending again.

        Absence counts only after the settle delay: the first send may still be in flight. Of several replicas, one that was taken
        for dead may be in the middle of its call. While the clock is not trusted it does not count at all: the message may be older
        than the time from which it is looked for.
        """
        doubt = Trouble(Failure.UNCERTAIN.value, _("Whether it was done is not known yet."), maybe_sent=True)
        if not self._performer.may_have_happened(effect):
            return Retry(doubt, delay_ms=0, spent=False)
        if effect.semantics != "append":  # an append is looked up; others may be repeated (repeat_once: once)
            return Retry(doubt, delay_ms=0, spent=False)
        found = await self._performer.find(effect)
        if found is not None:
            return found
        delay_ms = self._settle_delay_ms
        if not self._ledger.ownership.alone:
            delay_ms = max(delay_ms, round((policy.timeout_seconds + OVERRUN_SECONDS) * 1000))
        settled_at = _uncertain_since(effect, now) + delay_ms
        if now < settled_at:
            return Uncertain(doubt, delay_ms=settled_at - now, spent=False)
        if not self._trusted():
            return Uncertain(doubt, delay_ms=UNTRUSTED_MS, spent=False)
        await self._performer.start_over(effect)
        return Retry(doubt, delay_ms=0, spent=False)

    def _judge(self, effect: Effect, policy: Policy, error: AdapterError) -> Settlement:
        """Return the settlement that a failed attempt leads to."""
        trouble = Trouble(
            category=error.failure.value,
            error=str(error) if error.code in str(error) else f"{str(error).removesuffix('.')} ({error.code}).",
            http_status=error.http_status,
            retry_after_ms=None if error.retry_after_seconds is None else round(error.retry_after_seconds * 1000),
            maybe_sent=error.possibly_applied,
            unavailable=error.failure in UNAVAILABLE,
            code=error.code,
        )
        judged = verdict(policy, error, alike_before=_alike_before(effect, error))
        if judged is RetryDecision.PAUSE:
            return Hold(trouble)
        if judged is RetryDecision.DEAD:
            # An ephemeral reply that can no longer be delivered is dropped: the quote's card shows the outcome. An error of ours,
            # such as a reply that Slack rejects as invalid, becomes a dead letter that people see.
            ours = error.failure in (Failure.VALIDATION, Failure.INTERNAL)
            needless = effect.semantics == "repeat_once" and not ours
            return Drop(trouble) if needless else Fail(trouble)
        spent = judged is not RetryDecision.WAIT
        delay = policy.next_delay(effect.attempts + spent, self._draw, error.retry_after_seconds)
        if delay is None:
            return Fail(trouble)
        if not spent and error.retry_after_seconds is None:
            delay = max(delay, THROTTLE_SECONDS_MIN)
        delay_ms = round(delay * 1000)
        hold_until = None
        if error.retry_after_seconds is not None:
            hold_until = self._ledger.clock.now_ms() + round(error.retry_after_seconds * 1000)
        if effect.reconciling or judged is RetryDecision.UNCERTAIN:
            return Uncertain(trouble, delay_ms, spent=spent, hold_until=hold_until)
        return Retry(trouble, delay_ms, spent=spent, hold_until=hold_until)


def _uncertain_since(effect: Effect, now: int) -> int:
    """Return since when an effect is uncertain: if the clock was ahead then, since the last lookup, or from now on."""
    times = (effect.uncertain_since, effect.last_attempt_at)
    return next((at for at in times if at is not None and at <= now), now)


def _not_begun(effect: Effect) -> Settlement:
    """Return the settlement for an effect that another replica may soon take: its call could end after that."""
    trouble = Trouble(Failure.TRANSIENT.value, _("Too little time was left for the call, so it was not made."), asked=False)
    again = Uncertain if effect.reconciling else Retry
    return again(trouble, delay_ms=round(POLL_SECONDS * 1000), spent=False)


def _step_unwritten(effect: Effect, error: NotRecorded) -> Settlement:
    """Return the settlement for a step whose result was not recorded: our disk failed, not the call. No attempt is consumed."""
    log.warning("effect.step_unwritten", error=str(error))
    trouble = Trouble(Failure.TRANSIENT.value, _("The ledger could not be written in the middle of it."), maybe_sent=True)
    again = Uncertain if effect.reconciling or effect.semantics == "append" else Retry
    return again(trouble, delay_ms=round(POLL_SECONDS * 1000), spent=False)


def _alike_before(effect: Effect, error: AdapterError) -> int:
    """Count earlier failures of this cycle of the same kind.

    Only the last failure is stored; the number of attempts counts the rest.
    """
    if error.possibly_applied and effect.maybe_sent:
        return effect.attempts or 1
    return effect.attempts if effect.category == error.failure.value else 0


_EVENTS: Final = {
    EffectState.PENDING: "effect.retry",
    EffectState.UNCERTAIN: "effect.doubt",
    EffectState.FAILED: "effect.failed",
    EffectState.SUPERSEDED: "effect.superseded",
}


def _named(effect: Effect) -> dict[str, Any]:
    """Return the command that enqueued an effect, as its log lines name it."""
    named = {"trace_id": keys.trace_id(effect.correlation_id)}
    origin = effect.origin
    if origin is None:
        return named
    return named | {
        "operation_key": origin.operation_key,
        "operation_label": origin.label,
        "source": origin.source,
        "source_request_id": keys.sha256(origin.source_request_id.encode())[:12],  # the raw id could open a user's dialog
        "action_kind": origin.action_kind,
        "slack_user": origin.actor,
        "actor_type": origin.actor_type,
        "team_id": origin.team_id,
        "quote_version": effect.payload.get("version") or origin.version or 1,
    }


def _log_settled(settled: Effect | None, settlement: Settlement, *, final: int, latency_ms: int) -> None:
    """Log how an attempt ended, from the recorded state. An effect that is given up has its own log line (alerts.py)."""
    if settled is None:
        log.warning("effect.late_result")
        return
    outcome = {
        "latency_ms": latency_ms,
        "attempts": settled.attempts,
        "final_attempt": settled.attempts >= final,
        "retryable": settled.state in (EffectState.PENDING, EffectState.UNCERTAIN),
        "dead": settled.state is EffectState.FAILED,
    }
    if settled.state is EffectState.DELIVERED:
        already_there = (settled.result or {}).get("already_there", False)
        log.info("effect.delivered", external_ref=settled.external_ref, already_there=already_there, **outcome)
        return
    log.warning(
        _EVENTS[settled.state],
        category=settled.category,
        error=settled.last_error,
        http_status=None if isinstance(settlement, Delivered) else settlement.trouble.http_status,
        target=settled.target,
        **outcome,
    )
