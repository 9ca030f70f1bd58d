"""Retry matrix: the retry policy of each effect class.

One line per class. This module computes delays only: the dispatcher stores the due time in the ledger row instead of sleeping.
Tenacity's stop and wait strategies do the arithmetic; nothing here reads a clock, draws a random number by itself or sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_chain, wait_exponential, wait_fixed

from adapters.failures import INVALID_VALUE, AdapterError, Failure

Semantics = Literal[
    "convergent",  # idempotent: writing twice has the same result as writing once
    "append",  # each repetition adds something: check before repeating
    "keyed",  # the service refuses our key the second time
    "pure",  # it changes nothing in external services
    "repeat_once",  # an append that cannot be read back and may safely be repeated once
]
Jitter = Literal["full", "none", "bounded"]
Draw = Callable[[float, float], float]

DOUBLE = 2.0  # the factor of every built-in backoff without fixed steps
STEPS_MAX = 20
BOUNDED_JITTER = 0.25  # fraction of the backoff, in both directions
MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
TIMEOUT_SECONDS_MAX = 80.0  # so that a call, with the dispatcher's grace time, ends before the shortest lease


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait after the n-th failure, before jitter: from `base_seconds` up to `cap_seconds`, `factor` times the one before.

    With `steps_seconds` the waits are exactly those, and the last one repeats.
    """

    base_seconds: float
    cap_seconds: float
    steps_seconds: tuple[float, ...] = ()
    factor: float = DOUBLE

    @property
    def words(self) -> str:
        """Display text of the backoff for tables."""
        if self.steps_seconds:
            return ", ".join(map(duration, self.steps_seconds))
        times = "" if self.factor == DOUBLE else f" x{self.factor:g}"
        return f"exp {duration(self.base_seconds)}..{duration(self.cap_seconds)}{times}"

    def seconds(self, failed_attempts: int) -> float:
        """Return the seconds to wait after that many failures (counted from 1)."""
        steps = wait_chain(*map(wait_fixed, self.steps_seconds)) if self.steps_seconds else None
        strategy = steps or wait_exponential(multiplier=self.base_seconds, max=self.cap_seconds, exp_base=self.factor)
        return float(strategy(_at(max(failed_attempts, 1))))


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of the matrix. `retries` excludes the first attempt; the age does not grow while the class is held (paused).

    `concurrency` is the maximum number of concurrent calls of the class, see also SHARED; `lane` names the scope in which effects
    run in order, one at a time; `dead_letter_when` is documentation only: `verdict` and the budget decide.
    """

    effect_class: str
    semantics: Semantics
    retries: int
    backoff: Backoff
    jitter: Jitter
    timeout_seconds: float
    max_age_seconds: float
    concurrency: int
    lane: str
    dead_letter_when: str

    def next_delay(self, failed_attempts: int, draw: Draw, retry_after_seconds: float | None) -> float | None:
        """Return the seconds until the next attempt, or None when the budget is exhausted.

        `failed_attempts` counts the attempts that consumed budget in this cycle (0 after throttling only). `draw(low, high)`
        returns a number in that range. The wait the vendor asked for is a lower bound: our cap does not shorten it.
        """
        if stop_after_attempt(self.retries + 1)(_at(failed_attempts)):
            return None
        base = self.backoff.seconds(failed_attempts)
        return max(self._jittered(base, draw), retry_after_seconds or 0.0)

    def waits(self) -> tuple[tuple[float, float], ...]:
        """Return the shortest and the longest wait (seconds) before each retry; the vendor's Retry-After may extend any of them."""
        bases = [self.backoff.seconds(failed) for failed in range(1, self.retries + 1)]
        return tuple((self._jittered(base, lambda low, _: low), self._jittered(base, lambda _, high: high)) for base in bases)

    def _jittered(self, base: float, draw: Draw) -> float:
        match self.jitter:
            case "none":
                return base
            case "full":
                return draw(0.0, base)
            case "bounded":
                return draw(base * (1 - BOUNDED_JITTER), min(base * (1 + BOUNDED_JITTER), self.backoff.cap_seconds))


@dataclass(frozen=True, slots=True)
class Matrix:
    """Effective policies by effect class. `Matrix(policies(overrides))` builds one."""

    lines: Mapping[str, Policy]

    def of(self, effect_class: str) -> Policy:
        """Return the policy of this class, or the `default` policy for a class without its own."""
        return self.lines.get(effect_class, self.lines["default"])

    def call_seconds_of(self, family: str) -> float:
        """Return the longest time-out (seconds) of the classes of a family, such as "crm"."""
        return max(line.timeout_seconds for name, line in self.lines.items() if name.partition(".")[0] == family)

    def concurrency_of(self, family: str) -> int:
        """Return the highest concurrency of the classes of a family; a family of SHARED has no more calls at once in all."""
        return max((line.concurrency for name, line in self.lines.items() if name.partition(".")[0] == family), default=0)


class RetryDecision(StrEnum):
    """Consequence of a failed attempt for its effect."""

    RETRY = "retry"  # due again after next_delay; consumes an attempt
    WAIT = "wait"  # due again after next_delay; consumes no attempt
    PAUSE = "pause"  # the class waits for an operator; consumes no attempt
    UNCERTAIN = "uncertain"  # check whether it took effect before repeating it
    DEAD = "dead"  # another attempt cannot succeed


JUDGED_ALONE: Mapping[Failure, RetryDecision] = MappingProxyType(
    {
        Failure.AUTH: RetryDecision.PAUSE,
        Failure.THROTTLED: RetryDecision.WAIT,
        Failure.UNCERTAIN: RetryDecision.UNCERTAIN,
        Failure.MAPPING: RetryDecision.DEAD,
        Failure.VALIDATION: RetryDecision.DEAD,
        Failure.NOT_FOUND: RetryDecision.DEAD,
        Failure.CONFLICT: RetryDecision.DEAD,
        Failure.LLM_SCHEMA: RetryDecision.DEAD,
        Failure.POISON: RetryDecision.DEAD,
        Failure.EXPIRED: RetryDecision.DEAD,
    }
)
CURVE = frozenset({"base_seconds", "cap_seconds", "factor"})  # the items of an exponential backoff
TWICE_AT_MOST = frozenset({Failure.RENDER, Failure.INTERNAL})  # same input, same error: the second failure is proof
TEMPLATE_ERROR = "template_error"
ONCE_AT_MOST = frozenset({TEMPLATE_ERROR, INVALID_VALUE})  # codes of those whose first failure is proof
UNREADABLE = "unreadable"  # an answer arrived, and most likely it reported success


def verdict(policy: Policy, error: AdapterError, *, alike_before: int) -> RetryDecision:
    """Classify one failed attempt. `next_delay` decides whether a RETRY still fits the budget.

    `alike_before` counts the earlier attempts of this cycle that failed with the same `failure` and the same `possibly_applied`.
    """
    if error.failure in JUDGED_ALONE:
        return JUDGED_ALONE[error.failure]
    if error.failure in TWICE_AT_MOST and (alike_before or error.code in ONCE_AT_MOST):
        return RetryDecision.DEAD
    if error.possibly_applied and policy.semantics == "append":
        return RetryDecision.UNCERTAIN
    # A 5xx is an answer: most likely nothing took effect.
    lost = error.possibly_applied and (error.http_status is None or error.code == UNREADABLE)
    if lost and policy.semantics == "repeat_once" and alike_before:
        return RetryDecision.DEAD
    return RetryDecision.RETRY


def policy_for(effect_class: str) -> Policy:
    """Return the built-in policy of this class, or the `default` policy for a class without its own."""
    return Matrix(POLICIES).of(effect_class)


Step = Annotated[float, Field(ge=0.05, le=3600)]


class RetryOverride(BaseModel):
    """Overridable items of one class; None keeps the built-in value. The semantics of a class cannot be overridden."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    base_seconds: Annotated[float, Field(ge=0.05, le=60)] | None = None
    cap_seconds: Annotated[float, Field(ge=0.05, le=3600)] | None = None  # must not be below the base
    factor: Annotated[float, Field(ge=1, le=10)] | None = None
    # instead of base, cap and factor: the waits one by one, the last of which repeats
    steps_seconds: Annotated[tuple[Step, ...], Field(min_length=1, max_length=STEPS_MAX, strict=False)] | None = None
    jitter: Jitter | None = None
    timeout_seconds: Annotated[float, Field(ge=1, le=TIMEOUT_SECONDS_MAX)] | None = None
    max_age_seconds: Annotated[float, Field(ge=MINUTE_SECONDS, le=90 * DAY_SECONDS)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=16)] | None = None

    def given(self) -> dict[str, Any]:
        """Return the items that are set."""
        return self.model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class Misfit:
    """One error in the overrides: the place (class, then item) and the reason, as a sentence without its full stop."""

    place: tuple[str, ...]
    reason: str


class OverridesError(ValueError):
    """The overrides are invalid; `misfits` names every invalid item."""

    def __init__(self, misfits: list[Misfit]) -> None:
        super().__init__("\n".join(f"{'.'.join(misfit.place)}: {misfit.reason}" for misfit in misfits))
        self.misfits = tuple(misfits)


def read_overrides(given: Mapping[str, object]) -> dict[str, RetryOverride]:
    """Read overrides by class from parsed JSON. Raises OverridesError naming every invalid item."""
    read: dict[str, RetryOverride] = {}
    misfits: list[Misfit] = []
    for name, items in given.items():
        try:
            read[name] = RetryOverride.model_validate(items)
        except ValidationError as error:
            found = [_misfit(name, problem["type"], problem["loc"], problem["msg"]) for problem in error.errors()]
            misfits += found
            read[name] = _sound_part(items, {item for misfit in found for item in misfit.place[1:2]})
    misfits += _relations(read)
    if misfits:
        raise OverridesError(misfits)
    return read


def policies(overrides: Mapping[str, RetryOverride]) -> Mapping[str, Policy]:
    """Return the matrix with these overrides. Raises OverridesError for an unknown class or contradictory items."""
    misfits = _relations(overrides)
    if misfits:
        raise OverridesError(misfits)
    return _table(*(_overridden(line, overrides.get(name)) for name, line in POLICIES.items()))


def unknown_class(name: str) -> str:
    """Return the error text for an unknown class: the closest match, if any, and the known classes."""
    close = get_close_matches(name, POLICIES, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"there is no such class{meant}; the classes are {', '.join(POLICIES)}"


def duration(seconds: float) -> str:
    """Format seconds for people, without rounding: 250 ms, 1.5 s, 30 min, 7 d."""
    for unit_seconds, unit in ((DAY_SECONDS, "d"), (HOUR_SECONDS, "h"), (MINUTE_SECONDS, "min")):
        if seconds > MINUTE_SECONDS and seconds % unit_seconds == 0:
            return f"{seconds / unit_seconds:g} {unit}"
    return f"{seconds * 1000:.10g} ms" if 0 < seconds < 1 else f"{seconds:.10g} s"


def _overridden(line: Policy, override: RetryOverride | None) -> Policy:
    if override is None:
        return line
    items = override.given()
    steps = items.pop("steps_seconds", None)
    curve = {name: items.pop(name) for name in CURVE if name in items}
    backoff = replace(line.backoff, **curve, steps_seconds=()) if curve else line.backoff
    if steps is not None:
        backoff = _steps(*steps)
    return replace(line, backoff=backoff, **items)


def _relations(overrides: Mapping[str, RetryOverride]) -> list[Misfit]:
    """Return the errors that a single item's bounds do not catch: unknown classes and contradictory items."""
    misfits = []
    for name, override in overrides.items():
        if name not in POLICIES:
            misfits.append(Misfit((name,), unknown_class(name)))
            continue
        before, after = POLICIES[name].backoff, _overridden(POLICIES[name], override).backoff
        curve = override.given().keys() & CURVE
        if override.steps_seconds is not None and curve:
            reason = f"fixed steps and {', '.join(sorted(curve))} exclude each other"
            misfits.append(Misfit((name, "steps_seconds"), reason))
        elif before.steps_seconds and curve and not {"base_seconds", "cap_seconds"} <= curve:
            reason = f"it waits fixed steps ({before.words}); give base_seconds and cap_seconds together for an exponential backoff"
            misfits.append(Misfit((name,), reason))
        elif after.cap_seconds < after.base_seconds:
            reason = f"it must not be below the base; they would be {after.cap_seconds:g} and {after.base_seconds:g}"
            misfits.append(Misfit((name, "cap_seconds"), reason))
        if name in ONE_AT_A_TIME and override.concurrency not in {None, 1}:
            misfits.append(Misfit((name, "concurrency"), f"it must be 1: {ONE_AT_A_TIME[name]}"))
    return misfits


def _misfit(name: str, kind: str, place: tuple[int | str, ...], message: str) -> Misfit:
    item = tuple(map(str, place))
    if kind == "model_type":
        message = "it must be a table of items"
    if kind == "extra_forbidden":
        known = f"it cannot be set; what can is {', '.join(RetryOverride.model_fields)}"
        message = "it cannot be set: it is what repeating a call does, not a choice" if item == ("semantics",) else known
    return Misfit((name, *item), message)


def _sound_part(items: object, bad: set[str]) -> RetryOverride:
    """Return the override without its invalid items, so that its other relations are checked in the same pass."""
    if not isinstance(items, Mapping):
        return RetryOverride()
    bad = bad if bad.isdisjoint(CURVE) else bad | CURVE  # one bound without the other would be misleading
    return RetryOverride.model_validate({item: value for item, value in items.items() if str(item) not in bad})


def _steps(*seconds: float) -> Backoff:
    return Backoff(min(seconds), max(seconds), seconds)


def _at(attempt: int) -> RetryCallState:
    """Return Tenacity's state for an attempt that just failed."""
    state = RetryCallState(Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return state


def _table(*lines: Policy) -> Mapping[str, Policy]:
    return MappingProxyType({line.effect_class: line for line in lines})


_SLACK = Backoff(0.25, 30)
_CRM = Backoff(0.5, 60)
_LLM = Backoff(0.3, 10)
_DAY = DAY_SECONDS
_WEEK = 7 * DAY_SECONDS
_4XX = "exhausted or terminal 4xx"
_GONE = "exhausted; a dead response_url is superseded by a DM"
_MAPS = "exhausted; mapping/validation terminal; auth pauses instead"
_SEEN = "exhausted; a template error at first sight; any other deterministic failure at the second"
_HARD = "repeated time-out or provider hard fail"

SHARED = ("crm",)  # families whose classes share their concurrency: they call one Salesforce org
ONE_AT_A_TIME: Mapping[str, str] = MappingProxyType(
    {"pdf.render": "there is one renderer, and a claim that only waits for it would count as a death in a crash"}
)

# fmt: off
POLICIES: Mapping[str, Policy] = _table(
    #      class            semantics      retries backoff          jitter     timeout max age at once lane         dead letter when
    Policy("slack.card",    "convergent",  5,      _SLACK,          "full",    10,     _WEEK,  4,      "message",   _4XX),
    Policy("slack.post",    "append",      5,      _SLACK,          "full",    10,     _WEEK,  4,      "thread",    _4XX),
    Policy("slack.direct",  "append",      5,      _SLACK,          "full",    10,     _WEEK,  4,      "person",    _4XX),
    Policy("slack.direct_card", "convergent", 5,   _SLACK,          "full",    10,     _WEEK,  4,      "message",   _4XX),
    Policy("slack.reply",   "repeat_once", 5,      _SLACK,          "full",    10,     _WEEK,  4,      "user",      _GONE),
    Policy("slack.unfurl",  "convergent",  5,      _SLACK,          "full",    10,     _DAY,   4,      "message",   _4XX),
    Policy("slack.file",    "append",      5,      _SLACK,          "full",    60,     _WEEK,  4,      "thread",    _4XX),
    Policy("crm.create",    "keyed",       6,      _CRM,            "full",    20,     _WEEK,  2,      "quote",     _MAPS),
    Policy("crm.update",    "convergent",  6,      _CRM,            "full",    20,     _WEEK,  2,      "quote",     _MAPS),
    Policy("crm.read",      "pure",        6,      _CRM,            "full",    20,     _DAY,   2,      "org",       _MAPS),
    Policy("pdf.render",    "pure",        2,      _steps(1, 3),    "none",    60,     _WEEK,  1,      "quote",     _SEEN),
    Policy("llm.extract",   "pure",        3,      _LLM,            "bounded", 30,     _WEEK,  4,      "operation", _HARD),
    Policy("llm.summarize", "pure",        3,      _LLM,            "bounded", 30,     _WEEK,  4,      "operation", _HARD),
    # Nothing is known about a class without a line, so its effects are never repeated without a check.
    Policy("default",       "append",      5,      Backoff(1, 300), "full",    10,     _WEEK,  4,      "-",         "exhausted"),
)
# fmt: on
