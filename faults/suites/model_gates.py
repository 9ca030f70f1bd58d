"""The gates of the model: they decide whether effects of a class, or of a family that shares a login, may be claimed. Pure code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILURES: Final = 5  # in a row,
DISTINCT: Final = 3  # over this many effects, are an outage,
REST: Final = 30_000  # after which the class is left alone for this time (ms)


def family(cls: str) -> str:
    """Return the part of a class name before the dot."""
    return cls.partition(".")[0]


@dataclass(slots=True)
class Gate:
    """State of one class or family: flowing, held (until a time, or until a person resumes it) or half_open (one at a time)."""

    state: str = "flowing"
    cause: str | None = None
    since: int | None = None
    until: int | None = None
    resumed: int | None = None
    failures: int = 0
    failing: tuple[int, ...] = ()

    def flow(self) -> None:
        """Reset everything except the last resume."""
        self.state, self.since, self.until, self.failures, self.failing = "flowing", None, None, 0, ()


@dataclass(slots=True)
class Hold:
    """A period in which ages do not grow."""

    name: str
    began: int
    ended: int | None = None


@dataclass(slots=True)
class Gates:
    """All gates by name, and every period in which one was held."""

    by_name: dict[str, Gate] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)

    def of(self, name: str) -> Gate:
        """Return the gate of a class or family."""
        return self.by_name.setdefault(name, Gate())

    def hold(self, name: str, cause: str, now: int, until: int | None = None) -> None:
        """Hold the gate. A hold that waits for a person is not shortened, nor is a longer hold by a shorter one."""
        gate = self.of(name)
        if gate.state == "held":
            if gate.until is None and (cause, gate.cause) != ("operator", "auth"):
                return
            if gate.cause != "breaker" or until is None:  # an outage stays one, whatever Retry-After is requested
                gate.cause = cause
            gate.until = None if until is None or gate.until is None else max(until, gate.until)
            return
        trial_to_come = gate.state == "half_open" and until is not None
        gate.state, gate.cause, gate.since, gate.until = "held", "breaker" if trial_to_come else cause, now, until
        self.holds.append(Hold(name, now))

    def lift_ended(self, now: int) -> list[str]:
        """End the holds whose time is over: an outage becomes half open, a mere wait lets everything through."""
        news = []
        for name, gate in self.by_name.items():
            if gate.state == "held" and gate.until is not None and gate.until <= now:
                self._end(name, gate.until)
                if gate.cause == "breaker":
                    gate.flow()
                    gate.state = "half_open"
                    news.append("class.half_open")
                else:
                    gate.state, gate.since, gate.until = "flowing", None, None
                    news.append("class.resumed")
        return news

    def _end(self, name: str, at: int) -> None:
        for hold in self.holds:
            if hold.name == name and hold.ended is None:
                hold.ended = at

    def pause(self, name: str, now: int) -> bool:
        """Hold for a person; false if a person already had."""
        gate = self.of(name)
        if gate.state == "held" and gate.cause == "operator":
            return False
        self.hold(name, "operator", now)
        return True

    def resume(self, name: str, now: int, cause: str | None = None) -> int:
        """Set every hold on this class or family to half open; return their number."""
        related = [each for each in self.by_name if name in (each, family(each)) or each == family(name)]
        held = [each for each in related if self.of(each).state == "held" and cause in (None, self.of(each).cause)]
        for each in held:
            self._end(each, now)
            gate = self.of(each)
            gate.flow()
            gate.state, gate.resumed = "half_open", now
        return len(held)

    def try_logins_again(self, now: int) -> list[str]:
        """Set the holds that wait for a login to half open, because the secret may have been changed."""
        held = [name for name, gate in self.by_name.items() if gate.state == "held" and gate.cause == "auth"]
        return [name for name in held if self.resume(name, now, "auth")]

    def shorten(self, now: int) -> None:
        """Restart from now a wait that was recorded by a clock that was ahead."""
        for gate in self.by_name.values():
            if gate.until is not None and gate.since is not None and gate.until > now and gate.since > now:
                gate.until, gate.since = now + max(0, gate.until - gate.since), now

    def refused_login(self, cls: str, now: int) -> list[str]:
        """Pause the family; one alert per outage."""
        return self._held(family(cls), "auth", now)

    def throttled(self, cls: str, now: int, until: int) -> list[str]:
        """Hold the class until the time that its service named."""
        return self._held(cls, "throttled", now, until)

    def _held(self, name: str, cause: str, now: int, until: int | None = None) -> list[str]:
        """Hold a gate and return its event: a pause is the first hold of an outage, every other hold is none."""
        gate = self.of(name)
        state, was = gate.state, gate.cause
        self.hold(name, cause, now, until)
        if state == "held" and was == gate.cause:
            return []
        first = state == "flowing" or (state == "held" and was == "throttled")
        return ["class.paused" if first and gate.cause != "throttled" else "class.held"]

    def unanswered(self, cls: str, fx_id: int, now: int) -> list[str]:
        """Count a failure of the service: several in a row over several effects are an outage; a failed trial is one at once."""
        gate, login = self.of(cls), self.of(family(cls))
        news = []
        if gate.state != "held" or gate.cause == "throttled":
            gate.failures += 1
            gate.failing = (*[known for known in gate.failing if known != fx_id], fx_id)[-DISTINCT:]
            outage = gate.failures >= FAILURES and len(gate.failing) >= DISTINCT
            if outage or gate.state == "half_open":
                news += self._held(cls, "breaker", now, now + REST)
        if login.state == "half_open":
            news += self._held(family(cls), "breaker", now, now + REST)
        return news

    def answered(self, cls: str, began: int, now: int) -> list[str]:
        """Record that the service works, as far as this attempt shows: one that began before the resume is not the trial."""
        news = []
        for name in (cls, family(cls)):
            gate = self.of(name)
            if gate.state == "held":
                if gate.cause == "throttled":
                    gate.failures, gate.failing = 0, ()
            elif gate.state == "flowing":
                gate.flow()
            elif not self.began_before_resume(name, began, now):
                gate.flow()
                news.append("class.resumed")
        return news

    def began_before_resume(self, name: str, began: int, now: int) -> bool:
        """Tell whether an attempt began before the last resume.

        A resume in the future was recorded before the clock was set back.
        """
        resumed = self.of(name).resumed
        return resumed is not None and began < resumed <= now

    def free(self, cls: str, slots: int, flying: Sequence[str]) -> int:
        """Return how many effects of a class may be claimed: none while it is held, one at a time over a half-open family."""
        free = slots
        for name, busy in ((cls, flying.count(cls)), (family(cls), sum(family(each) == family(cls) for each in flying))):
            state = self.of(name).state
            free = free if state == "flowing" else 0 if state == "held" else min(free, 1 - busy)
        return max(0, free)

    def held_since(self, cls: str, since: int, now: int) -> int:
        """Return for how long after `since` the class or its family was held (ms)."""
        names = (cls, family(cls))
        spans = sorted(
            (max(hold.began, since), now if hold.ended is None else hold.ended) for hold in self.holds if hold.name in names
        )
        total, end = 0, since
        for start, stop in spans:
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        return total
