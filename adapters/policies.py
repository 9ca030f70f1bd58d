"""The retry matrix: how each class of effect is repeated, and when it is given up.

One line per class. The ledger row is the sleep: this module only says how long it should be. Tenacity's stop and wait strategies
hold the arithmetic; nothing here reads a clock, draws a number by itself or sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_chain, wait_exponential, wait_fixed

from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from tenacity.wait import wait_base

Semantics = Literal[
    "convergent",  # writing it twice leaves what writing it once leaves
    "append",  # each repetition adds something: look before repeating
    "keyed",  # the other side refuses our key the second time
    "pure",  # it changes nothing outside
    "repeat_once",  # an append that cannot be read back, harmless enough to be repeated once
]
Jitter = Literal["full", "none", "bounded"]
Draw = Callable[[float, float], float]

BOUNDED_JITTER = 0.25  # of the backoff, either way
MINUTE_SECONDS = 60.0
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure, before jitter. `cap_seconds` is its largest value, `words` its name in tables."""

    strategy: wait_base
    cap_seconds: float
    words: str

    def seconds(self, failed_attempts: int) -> float:
        """Seconds to wait after that many failures (counted from 1)."""
        return float(self.strategy(_at(max(failed_attempts, 1))))


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of the matrix. N `retries` means N after the first try; an age is counted only while nothing holds the class."""

    effect_class: str
    semantics: Semantics
    retries: int
    backoff: Backoff
    jitter: Jitter
    timeout_seconds: float
    max_age_seconds: float

    def next_delay(self, failed_attempts: int, draw: Draw, retry_after_seconds: float | None) -> float | None:
        """Return the seconds until the next try, or None when the budget is spent.

        `failed_attempts` counts the tries that burnt budget in this cycle (0 after nothing but throttling). `draw(low, high)`
        returns a number in that range. The vendor's own wait is a floor: our cap does not cut it short.
        """
        if stop_after_attempt(self.retries + 1)(_at(failed_attempts)):
            return None
        base = self.backoff.seconds(failed_attempts)
        return max(self._jittered(base, draw), retry_after_seconds or 0.0)

    def _jittered(self, base: float, draw: Draw) -> float:
        match self.jitter:
            case "none":
                return base
            case "full":
                return draw(0.0, base)
            case "bounded":
                return draw(base * (1 - BOUNDED_JITTER), min(base * (1 + BOUNDED_JITTER), self.backoff.cap_seconds))


class Verdict(StrEnum):
    """What a failed attempt means for its effect."""

    RETRY = "retry"  # due again after next_delay; an attempt is burnt
    WAIT = "wait"  # due again after next_delay; no attempt is burnt
    PAUSE = "pause"  # the class waits for an operator; no attempt is burnt
    UNCERTAIN = "uncertain"  # look whether it was done before doing it again
    DEAD = "dead"  # another try cannot help


JUDGED_ALONE: Mapping[Failure, Verdict] = MappingProxyType(
    {
        Failure.AUTH: Verdict.PAUSE,
        Failure.THROTTLED: Verdict.WAIT,
        Failure.UNCERTAIN: Verdict.UNCERTAIN,
        Failure.MAPPING: Verdict.DEAD,
        Failure.VALIDATION: Verdict.DEAD,
        Failure.NOT_FOUND: Verdict.DEAD,
        Failure.CONFLICT: Verdict.DEAD,
        Failure.LLM_SCHEMA: Verdict.DEAD,
        Failure.POISON: Verdict.DEAD,
        Failure.EXPIRED: Verdict.DEAD,
    }
)
TWICE_AT_MOST = frozenset({Failure.RENDER, Failure.INTERNAL})  # same input, same error: seen twice is proof
TEMPLATE_ERROR = "template_error"  # proof at first sight


def verdict(policy: Policy, error: AdapterError, *, alike_before: int) -> Verdict:
    """Judge one failed attempt; whether a RETRY still fits the budget is `next_delay`'s to say.

    `alike_before` counts the earlier attempts of this cycle that failed with the same `failure` and the same `possibly_applied`.
    """
    if error.failure in JUDGED_ALONE:
        return JUDGED_ALONE[error.failure]
    if error.failure in TWICE_AT_MOST and (alike_before or error.code == TEMPLATE_ERROR):
        return Verdict.DEAD
    if error.possibly_applied and policy.semantics == "append":
        return Verdict.UNCERTAIN
    lost = error.possibly_applied and error.http_status is None  # a 5xx is an answer: most likely nothing was done
    if lost and policy.semantics == "repeat_once" and alike_before:
        return Verdict.DEAD
    return Verdict.RETRY


def policy_for(effect_class: str) -> Policy:
    """The line of this class; the `default` line for a class without one."""
    return POLICIES.get(effect_class, POLICIES["default"])


def _exponential(base_seconds: float, cap_seconds: float) -> Backoff:
    """Double from `base_seconds` at the first failure up to `cap_seconds`."""
    words = f"exp {_words(base_seconds)}..{_words(cap_seconds)}"
    return Backoff(wait_exponential(multiplier=base_seconds, max=cap_seconds), cap_seconds, words)


def _steps(*seconds: float) -> Backoff:
    """Exactly these waits, the last one repeated."""
    return Backoff(wait_chain(*map(wait_fixed, seconds)), max(seconds), ", ".join(map(_words, seconds)))


def _words(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE_SECONDS else f"{seconds / MINUTE_SECONDS:.0f} min"


def _at(attempt: int) -> RetryCallState:
    """Tenacity's view of a try that just failed."""
    state = RetryCallState(Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return state


def _table(*lines: Policy) -> Mapping[str, Policy]:
    return MappingProxyType({line.effect_class: line for line in lines})


_SLACK = _exponential(0.25, 30)
_CRM = _exponential(0.5, 60)
_LLM = _exponential(0.3, 10)
_WEEK = 7 * DAY_SECONDS
_URL = 30 * MINUTE_SECONDS  # a response_url lives this long

# fmt: off
POLICIES: Mapping[str, Policy] = _table(
    #      class            semantics      retries  backoff                jitter     timeout  max age
    Policy("slack.card",    "convergent",  5,       _SLACK,                "full",    10,      _WEEK),
    Policy("slack.post",    "append",      5,       _SLACK,                "full",    10,      _WEEK),
    Policy("slack.reply",   "repeat_once", 5,       _SLACK,                "full",    10,      _URL),
    Policy("slack.file",    "append",      5,       _SLACK,                "full",    60,      _WEEK),
    Policy("crm.create",    "keyed",       6,       _CRM,                  "full",    20,      _WEEK),
    Policy("crm.update",    "convergent",  6,       _CRM,                  "full",    20,      _WEEK),
    Policy("pdf.render",    "pure",        2,       _steps(1, 3),          "none",    60,      _WEEK),
    Policy("llm.extract",   "pure",        3,       _LLM,                  "bounded", 30,      _WEEK),
    Policy("llm.summarize", "pure",        3,       _LLM,                  "bounded", 30,      _WEEK),
    # Of a class without a line nothing is known, so it is never repeated blindly.
    Policy("default",       "append",      5,       _exponential(1, 300),  "full",    10,      _WEEK),
)
# fmt: on

CALL_SECONDS_MAX = max(policy.timeout_seconds for policy in POLICIES.values())
