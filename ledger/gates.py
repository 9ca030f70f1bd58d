"""Gates of effect classes: operator pauses, Retry-After waits and the circuit breaker, in one state machine.

A gate belongs to a class ("crm.create") or to a family of classes that share a login ("crm"). `Gate` is pure: it maps a gate and an
event to a new gate. `GateRules` reads and writes the rows inside the ledger's transactions.

    flowing ──refused login, pause, 429, consecutive failures──► held
    held ──resumed or expired──► half_open (breaker, login: one effect at a time) | flowing (429)
    half_open ──an effect got an answer──► flowing
    half_open ──it failed the same way──► held
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ledger.keys import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.audit.events import Audit
    from ledger.database import Row, Tx

Cause = Literal["auth", "operator", "breaker", "throttled"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """Circuit breaker thresholds: consecutive transient failures over distinct effects that open it, and the rest that follows."""

    failures: int = 5
    distinct_effects: int = 3
    rest_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. Times are Unix milliseconds; an `until_at` of None means until an operator resumes it."""

    name: str
    state: Literal["flowing", "held", "half_open"] = "flowing"
    cause: Cause | None = None
    reason: str | None = None
    held_by: str | None = None
    held_at: int | None = None
    until_at: int | None = None
    resumed_at: int | None = None
    failures: int = 0
    failing: tuple[int, ...] = ()

    @classmethod
    def of(cls, row: Row) -> Gate:
        """Read one row of `gates`."""
        values = dict(zip(row.keys(), row, strict=True))
        return cls(**{**values, "failing": tuple(loads(values["failing"]))})

    def expired(self, now: int) -> bool:
        """Tell whether its hold is over and only has to be lifted."""
        return self.state == "held" and self.until_at is not None and self.until_at <= now

    def hold(self, cause: Cause, reason: str, by: str, now: int, until: int | None) -> Gate:
        """Hold the gate until `until`. A longer hold, or one that only a person may end, is not shortened."""
        if self.state == "held":
            # An operator pause replaces a login hold, because a restart ends a login hold.
            if self.until_at is None and (cause, self.cause) != ("operator", "auth"):
                return self
            lasts = None if until is None or self.until_at is None else max(until, self.until_at)
            # A Retry-After during an outage keeps the breaker: the hold ends half open.
            if self.cause == "breaker" and until is not None:
                return replace(self, until_at=lasts)
            return replace(self, cause=cause, reason=reason, held_by=by, until_at=lasts)
        if self.state == "half_open" and until is not None:  # the trial has not happened yet
            cause = "breaker"
        return replace(self, state="held", cause=cause, reason=reason, held_by=by, held_at=now, until_at=until)

    def lift(self, now: int, *, by_person: bool = False) -> Gate:
        """End a hold: a class that failed before first gets one trial effect."""
        half = by_person or self.cause in ("breaker", "auth")
        resumed_at = now if by_person or self.cause == "auth" else self.resumed_at
        # Waits requested by the external service do not reset the count of consecutive failures.
        if not half:
            return replace(self, state="flowing", held_at=None, until_at=None)
        return replace(self, state="half_open", held_at=None, until_at=None, resumed_at=resumed_at, failures=0, failing=())

    def after_answer(self) -> Gate:
        """Return the gate after an effect got an answer: the external service works."""
        if self.state == "held":  # the attempt began before the hold
            return replace(self, failures=0, failing=()) if self.cause == "throttled" else self
        if self.state == "flowing" and not self.failures:
            return self
        return Gate(self.name, resumed_at=self.resumed_at)

    def after_failure(self, effect_id: int, reason: str, by: str, now: int, breaker: Breaker) -> Gate:
        """Return the gate after an effect got no answer. Only consecutive failures over several effects count as an outage."""
        if self.state == "held" and self.cause != "throttled":  # a service that asks to wait may also be down
            return self
        failing = (*[known for known in self.failing if known != effect_id], effect_id)[-breaker.distinct_effects :]
        counted = replace(self, failures=self.failures + 1, failing=failing)
        until = now + round(breaker.rest_seconds * 1000)
        if self.state == "half_open":
            return counted.hold("breaker", reason, by, now, until)
        if counted.failures >= breaker.failures and len(failing) >= breaker.distinct_effects:
            return counted.hold("breaker", reason, by, now, until)
        return counted


def family(effect_class: str) -> str:
    """Return the family of a class: the part before its dot. Its members share one login."""
    return effect_class.partition(".")[0]


def is_stopped(tx: Tx, effect_class: str) -> bool:
    """Tell whether a class may wait long: it is paused, its login is refused, or its outage is not known to be over."""
    gates = map(Gate.of, tx.all("gates_over", **{"class": effect_class}, family=family(effect_class)))
    waits = {"held": ("auth", "operator", "breaker"), "half_open": ("breaker",), "flowing": ()}
    return any(gate.cause in waits[gate.state] for gate in gates)


def began_before(began_at: int | None, resumed_at: int | None, now: int) -> bool:
    """Tell whether an attempt began before the last resume (all in ms).

    A resume in the future was stored before the clock was set back. It proves nothing, so the attempt counts.
    """
    return began_at is not None and resumed_at is not None and began_at < resumed_at <= now


class GateMove(NamedTuple):
    """One move of a gate, for the audit."""

    before: Gate
    after: Gate

    @property
    def event_type(self) -> str | None:
        """Return the type of its audit event; None if the gate is as it was. Only the first hold of an outage is a pause."""
        before, after = self
        if after.state != "held":
            return None if after.state == before.state else _OPENED[after.state]
        if before.state == "held" and before.cause == after.cause:
            return None
        outage_begins = before.state == "flowing" or (before.state == "held" and before.cause == "throttled")
        return "class.paused" if outage_begins and after.cause != "throttled" else "class.held"

    def facts(self, why: str | None) -> dict[str, Any]:
        """Return the facts of its audit event."""
        until = {} if self.after.until_at is None else {"until": self.after.until_at}
        cause = self.after.cause if self.after.state == "held" else self.before.cause
        return {"class": self.after.name, "cause": cause, "why": why, **until}


_OPENED: Final = {"half_open": "class.half_open", "flowing": "class.resumed"}


class GateRules:
    """Access to the gate rows inside open transactions."""

    def __init__(self, breaker: Breaker, audit: Audit) -> None:
        self._breaker = breaker
        self._audit = audit

    def read(self, tx: Tx, now: int) -> Gates:
        """Return all gates as they are now; expired holds are lifted, which is audited."""
        found = {}
        for row in tx.all("all_gates"):
            gate = Gate.of(row)
            if gate.expired(now):
                # Ages count from the end of the hold, not from its detection.
                move = self._change(tx, gate.until_at or now, gate, lambda held: held.lift(now) if held.expired(now) else held)
                self._lifted(tx, now, move)
                gate = move.after
            found[gate.name] = gate
        return Gates(found)

    def _lifted(self, tx: Tx, now: int, move: GateMove) -> None:
        event, facts = move.event_type, move.facts("the wait is over")
        if event is not None:
            self._audit.append(tx, now, event, actor="quotebot", actor_type="system", after=facts)

    def hold(self, tx: Tx, now: int, name: str, cause: Cause, reason: str, by: str, until: int | None = None) -> GateMove:
        """Hold a class or a family."""
        return self._change(tx, now, self._get(tx, name), lambda gate: gate.hold(cause, reason, by, now, until))

    def flows(self, tx: Tx, name: str) -> bool:
        """Tell whether no hold and no trial of this class or family is recorded."""
        return self._get(tx, name).state == "flowing"

    def resume(self, tx: Tx, now: int, name: str, *, cause: Cause | None = None) -> list[str]:
        """Set every hold that stops `name` to half open: a class with its family, or a family with its classes.

        With `cause` only holds of that cause. Returns the names that were held.
        """
        related = [
            gate
            for gate in map(Gate.of, tx.all("all_gates"))
            if name in (gate.name, family(gate.name)) or gate.name == family(name)
        ]
        held = [gate for gate in related if gate.state == "held" and cause in (None, gate.cause)]
        for gate in held:
            self._change(tx, now, gate, lambda each: each.lift(now, by_person=True) if each.state == "held" else each)
        return [gate.name for gate in held]

    def answered(self, tx: Tx, now: int, effect_class: str, began_at: int | None) -> tuple[list[GateMove], bool]:
        """Record that the external service answered an attempt begun at `began_at` (ms).

        Returns the moves of the gates, and whether any gate restrained the class until now.
        """

        def change(gate: Gate) -> Gate:
            if gate.state == "half_open" and began_before(began_at, gate.resumed_at, now):
                return gate  # an attempt from before the resume is not the trial
            return gate.after_answer()

        moves, restrained = [], False
        for row in tx.all("gates_over", **{"class": effect_class}, family=family(effect_class)):
            gate = Gate.of(row)
            restrained = restrained or gate.state != "flowing"
            if change(gate) != gate:
                moves.append(self._change(tx, now, gate, change))
        return moves, restrained

    def failed(self, tx: Tx, now: int, effect_class: str, effect_id: int, reason: str, by: str) -> list[GateMove]:
        """Record that the external service did not answer. Returns the moves of the gates."""
        gate = self._get(tx, effect_class)
        moves = [self._change(tx, now, gate, lambda each: each.after_failure(effect_id, reason, by, now, self._breaker))]
        login = self._get(tx, family(effect_class))
        if login.state == "half_open":  # its one trial got no answer: the next one is due after a rest
            rest = now + round(self._breaker.rest_seconds * 1000)

            def hold(each: Gate) -> Gate:
                return each.hold("breaker", reason, by, now, rest) if each.state == "half_open" else each

            moves.append(self._change(tx, now, login, hold))
        return moves

    def _get(self, tx: Tx, name: str) -> Gate:
        row = tx.one("gate", name=name)
        return Gate(name) if row is None else Gate.of(row)

    def _change(self, tx: Tx, now: int, before: Gate, change: Callable[[Gate], Gate]) -> GateMove:
        """Change a gate that was read as `before`; if another process changed it since, change it as it is now."""
        after = change(before)
        while after != before and not self._put(tx, before, after):
            before = self._get(tx, before.name)
            after = change(before)
        if before.state != "held" and after.state == "held":
            tx.one("begin_hold", name=after.name, cause=after.cause, now=now)
        elif before.state == "held" and after.state != "held":
            tx.one("end_hold", name=after.name, now=now)
        return GateMove(before, after)

    def _put(self, tx: Tx, before: Gate, after: Gate) -> bool:
        """Write a gate unless it is no longer as it was; false: it is not, and nobody else can change it until the commit."""
        written = tx.one(
            "put_gate",
            name=after.name,
            state=after.state,
            cause=after.cause,
            reason=after.reason,
            held_by=after.held_by,
            held_at=after.held_at,
            until_at=after.until_at,
            resumed_at=after.resumed_at,
            failures=after.failures,
            failing=dumps(after.failing),
            state_before=before.state,
            cause_before=before.cause or "",
            held_before=before.held_at or 0,
            until_before=before.until_at or 0,
            resumed_before=before.resumed_at or 0,
            failures_before=before.failures,
        )
        return written is not None


@dataclass(frozen=True, slots=True)
class Gates:
    """Snapshot of all gates."""

    by_name: Mapping[str, Gate]

    def locked(self, tx: Tx, effect_class: str) -> Gates:
        """Return the gates after those of a class were locked, as they are then: no other process counts or changes them."""
        rows = tx.all("lock_gates", **{"class": effect_class}, family=family(effect_class))
        return Gates({**self.by_name, **{gate.name: gate for gate in map(Gate.of, rows)}})

    def limit(self, effect_class: str, free: int, busy: int, busy_in_family: int) -> int:
        """Return how many effects of a class may be claimed now, given the `free` slots and the numbers in flight."""
        allowed = free
        for name, under_way in ((effect_class, busy), (family(effect_class), busy_in_family)):
            gate = self.by_name.get(name)
            if gate is None or gate.state == "flowing":
                continue
            if gate.state == "held":
                return 0
            allowed = min(allowed, 1 - under_way)
        return max(0, allowed)

    def flowing(self, effect_class: str) -> bool:
        """Tell whether no gate restrains this class."""
        return all(
            (gate := self.by_name.get(name)) is None or gate.state == "flowing" for name in (effect_class, family(effect_class))
        )
