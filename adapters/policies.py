"""The retry matrix: how each class of effect is repeated, and when it is given up.

One line per class. The ledger row is the sleep: this module only says how long it should be. Tenacity's stop and wait strategies
hold the arithmetic; nothing here reads a clock, draws a number by itself or sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
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
HOUR_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
TIMEOUT_SECONDS_MAX = 80.0  # no configuration may let a call, with what the dispatcher grants on top, outlive the shortest lease


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure, before jitter: doubling from `base_seconds` up to `cap_seconds`.

    With `steps_seconds` exactly those waits instead, the last one repeated.
    """

    base_seconds: float
    cap_seconds: float
    steps_seconds: tuple[float, ...] = ()

    @property
    def words(self) -> str:
        """Its name in tables."""
        if self.steps_seconds:
            return ", ".join(map(duration, self.steps_seconds))
        return f"exp {duration(self.base_seconds)}..{duration(self.cap_seconds)}"

    def seconds(self, failed_attempts: int) -> float:
        """Seconds to wait after that many failures (counted from 1)."""
        return float(self._strategy()(_at(max(failed_attempts, 1))))

    def _strategy(self) -> wait_base:
        if self.steps_seconds:
            return wait_chain(*map(wait_fixed, self.steps_seconds))
        return wait_exponential(multiplier=self.base_seconds, max=self.cap_seconds)


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of the matrix. N `retries` means N after the first try; an age is counted only while nothing holds the class.

    `concurrency` is how many calls of the class run at once; `lane` names what is done in order, one effect at a time;
    `dead_letter_when` is for people: what decides is `verdict` and the budget.
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
        """Return the seconds until the next try, or None when the budget is spent.

        `failed_attempts` counts the tries that burnt budget in this cycle (0 after nothing but throttling). `draw(low, high)`
        returns a number in that range. The vendor's own wait is a floor: our cap does not cut it short.
        """
        if stop_after_attempt(self.retries + 1)(_at(failed_attempts)):
            return None
        base = self.backoff.seconds(failed_attempts)
        return max(self._jittered(base, draw), retry_after_seconds or 0.0)

    def waits(self) -> tuple[tuple[float, float], ...]:
        """The shortest and the longest wait (seconds) before each retry, as drawn; a vendor's own wait may lengthen any of them."""
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
    """The lines in force, by class. Hand it to whoever needs one; `Matrix(policies(overrides))` makes it."""

    lines: Mapping[str, Policy]

    def of(self, effect_class: str) -> Policy:
        """The line of this class; the `default` line for a class without one."""
        return self.lines.get(effect_class, self.lines["default"])

    @property
    def call_seconds_max(self) -> float:
        """The longest time-out of any class."""
        return max(line.timeout_seconds for line in self.lines.values())


class RetryDecision(StrEnum):
    """What a failed attempt means for its effect."""

    RETRY = "retry"  # due again after next_delay; an attempt is burnt
    WAIT = "wait"  # due again after next_delay; no attempt is burnt
    PAUSE = "pause"  # the class waits for an operator; no attempt is burnt
    UNCERTAIN = "uncertain"  # look whether it was done before doing it again
    DEAD = "dead"  # another try cannot help


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
TWICE_AT_MOST = frozenset({Failure.RENDER, Failure.INTERNAL})  # same input, same error: seen twice is proof
TEMPLATE_ERROR = "template_error"  # proof at first sight
UNREADABLE = "unreadable"  # there was an answer, and most likely not of a failure


def verdict(policy: Policy, error: AdapterError, *, alike_before: int) -> RetryDecision:
    """Judge one failed attempt; whether a RETRY still fits the budget is `next_delay`'s to say.

    `alike_before` counts the earlier attempts of this cycle that failed with the same `failure` and the same `possibly_applied`.
    """
    if error.failure in JUDGED_ALONE:
        return JUDGED_ALONE[error.failure]
    if error.failure in TWICE_AT_MOST and (alike_before or error.code == TEMPLATE_ERROR):
        return RetryDecision.DEAD
    if error.possibly_applied and policy.semantics == "append":
        return RetryDecision.UNCERTAIN
    # A 5xx is an answer: most likely nothing was done.
    lost = error.possibly_applied and (error.http_status is None or error.code == UNREADABLE)
    if lost and policy.semantics == "repeat_once" and alike_before:
        return RetryDecision.DEAD
    return RetryDecision.RETRY


def policy_for(effect_class: str) -> Policy:
    """The built-in line of this class; the `default` line for a class without one."""
    return Matrix(POLICIES).of(effect_class)


class RetryOverride(BaseModel):
    """What an installation may set for one class; None leaves the built-in value. What repeating means is not among it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    base_seconds: Annotated[float, Field(ge=0.05, le=60)] | None = None
    cap_seconds: Annotated[float, Field(ge=0.05, le=3600)] | None = None  # and not below the base
    jitter: Jitter | None = None
    timeout_seconds: Annotated[float, Field(ge=1, le=TIMEOUT_SECONDS_MAX)] | None = None
    max_age_seconds: Annotated[float, Field(ge=MINUTE_SECONDS, le=90 * DAY_SECONDS)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=16)] | None = None

    def given(self) -> dict[str, Any]:
        """Return what is set."""
        return self.model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing wrong with the overrides: where (class, then item) and why, as a sentence without its full stop."""

    place: tuple[str, ...]
    reason: str


class OverridesError(ValueError):
    """Overrides that cannot be used; `misfits` names every bad item."""

    def __init__(self, misfits: list[Misfit]) -> None:
        super().__init__("\n".join(f"{'.'.join(misfit.place)}: {misfit.reason}" for misfit in misfits))
        self.misfits = tuple(misfits)


def read_overrides(given: Mapping[str, object]) -> dict[str, RetryOverride]:
    """Read overrides by class, as JSON gives them. Raises OverridesError naming every bad item, of whatever kind."""
    read: dict[str, RetryOverride] = {}
    misfits: list[Misfit] = []
    for name, items in given.items():
        try:
            read[name] = RetryOverride.model_validate(items)
        except ValidationError as error:
            found = [_misfit(name, problem["type"], problem["loc"], problem["msg"]) for problem in error.errors()]
            misfits += found
            read[name] = _sound_part(items, {misfit.place[-1] for misfit in found})
    misfits += _relations(read)
    if misfits:
        raise OverridesError(misfits)
    return read


def policies(overrides: Mapping[str, RetryOverride]) -> Mapping[str, Policy]:
    """The matrix with these overrides. Raises OverridesError for a class or a relation between items that cannot be."""
    misfits = _relations(overrides)
    if misfits:
        raise OverridesError(misfits)
    return _table(*(_overridden(line, overrides.get(name)) for name, line in POLICIES.items()))


def unknown_class(name: str) -> str:
    """Say that there is no such class, which one may have been meant, and which there are."""
    close = get_close_matches(name, POLICIES, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"there is no such class{meant}; the classes are {', '.join(POLICIES)}"


def duration(seconds: float) -> str:
    """Seconds as people write them, exactly: 250 ms, 1.5 s, 30 min, 7 d."""
    for unit_seconds, unit in ((DAY_SECONDS, "d"), (HOUR_SECONDS, "h"), (MINUTE_SECONDS, "min")):
        if seconds > MINUTE_SECONDS and seconds % unit_seconds == 0:
            return f"{seconds / unit_seconds:g} {unit}"
    return f"{seconds * 1000:.10g} ms" if 0 < seconds < 1 else f"{seconds:.10g} s"


def _overridden(line: Policy, override: RetryOverride | None) -> Policy:
    if override is None:
        return line
    items = override.given()
    bounds = {name: items.pop(name) for name in ("base_seconds", "cap_seconds") if name in items}
    backoff = replace(line.backoff, **bounds, steps_seconds=()) if bounds else line.backoff
    return replace(line, backoff=backoff, **items)


def _relations(overrides: Mapping[str, RetryOverride]) -> list[Misfit]:
    """What is wrong beyond a single item's bounds."""
    misfits = []
    for name, override in overrides.items():
        if name not in POLICIES:
            misfits.append(Misfit((name,), unknown_class(name)))
            continue
        before, after = POLICIES[name].backoff, _overridden(POLICIES[name], override).backoff
        if before.steps_seconds and (override.base_seconds is None) != (override.cap_seconds is None):
            reason = f"it waits fixed steps ({before.words}); give base_seconds and cap_seconds together to double instead"
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
    """The override without its bad items, so that its other relations are checked in the same go."""
    if not isinstance(items, Mapping):
        return RetryOverride()
    bounds = {"base_seconds", "cap_seconds"}
    bad = bad if bad.isdisjoint(bounds) else bad | bounds  # one without the other is not what was meant
    return RetryOverride.model_validate({item: value for item, value in items.items() if str(item) not in bad})


def _steps(*seconds: float) -> Backoff:
    return Backoff(min(seconds), max(seconds), seconds)


def _at(attempt: int) -> RetryCallState:
    """Tenacity's view of a try that just failed."""
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

ONE_AT_A_TIME: Mapping[str, str] = MappingProxyType(
    {"pdf.render": "there is one renderer, and a claim that only waits for it would count as a death in a crash"}
)

# fmt: off
POLICIES: Mapping[str, Policy] = _table(
    #      class            semantics      retries backoff          jitter     timeout max age at once lane         dead letter when
    Policy("slack.card",    "convergent",  5,      _SLACK,          "full",    10,     _WEEK,  4,      "message",   _4XX),
    Policy("slack.post",    "append",      5,      _SLACK,          "full",    10,     _WEEK,  4,      "thread",    _4XX),
    Policy("slack.reply",   "repeat_once", 5,      _SLACK,          "full",    10,     _WEEK,  4,      "user",      _GONE),
    Policy("slack.file",    "append",      5,      _SLACK,          "full",    60,     _WEEK,  4,      "thread",    _4XX),
    Policy("crm.create",    "keyed",       6,      _CRM,            "full",    20,     _WEEK,  4,      "quote",     _MAPS),
    Policy("crm.update",    "convergent",  6,      _CRM,            "full",    20,     _WEEK,  4,      "quote",     _MAPS),
    Policy("crm.read",      "pure",        6,      _CRM,            "full",    20,     _DAY,   2,      "org",       _MAPS),
    Policy("pdf.render",    "pure",        2,      _steps(1, 3),    "none",    60,     _WEEK,  1,      "quote",     _SEEN),
    Policy("llm.extract",   "pure",        3,      _LLM,            "bounded", 30,     _WEEK,  4,      "operation", _HARD),
    Policy("llm.summarize", "pure",        3,      _LLM,            "bounded", 30,     _WEEK,  4,      "operation", _HARD),
    # Of a class without a line nothing is known, so it is never repeated blindly.
    Policy("default",       "append",      5,      Backoff(1, 300), "full",    10,     _WEEK,  4,      "-",         "exhausted"),
)
# fmt: on

CALL_SECONDS_MAX = Matrix(POLICIES).call_seconds_max
