"""Programmable faults of the local world: armed over the control API, applied by the services one request at a time."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from quotebot.sandbox.chance import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

STATUSES = ("500", "502", "503", "504")  # for 5xx
_CHANCES = 1_000_000
Target = Literal["slack", "salesforce", "llm", "socket"]
Effect = Literal[
    "429",  # refuse before applying, with Retry-After
    "5xx",  # refuse before applying, with 503
    "slow",  # hold the request `delay` seconds, then serve it normally
    "reset_before",  # cut the connection before applying
    "reset_after",  # apply, then cut the connection without an answer
    "malformed",  # apply, then answer unreadable content
    "drip",  # apply, then answer one byte every `delay` seconds
    "refused",  # refuse with one of the service's own error codes
    "refused_after",  # apply, then answer with an error
    "auth_expired",  # refuse as an expired or revoked credential
    "delay_ack",  # socket: take the ack `delay` seconds late
    "out_of_order",  # socket: send an envelope after the next one, or `delay` seconds late if there is none
    "reset",  # socket: cut the live connections now, by a TCP reset
    "drop_ack",  # socket: behave as if the ack never arrived
    "refuse_ticket",  # socket: refuse the WebSocket ticket
    "too_many_websockets",  # socket: refuse a new connection, as if all ten places were taken
    "no_hello",  # socket: accept a new connection and never send hello
    "disconnect",  # socket: close the live connections now (a disconnect frame, then the cut); `method` names another reason
    "half_open",  # socket: stay connected and mute
]

SOCKET_EFFECTS = frozenset(
    {
        *("drop_ack", "delay_ack", "out_of_order", "refuse_ticket", "too_many_websockets", "no_hello"),
        *("disconnect", "half_open", "reset"),
    }
)


@dataclass(slots=True)
class Fault:
    """One armed fault.

    It ends after `times` hits or at `until` (monotonic seconds), whichever is set; `hits` counts applications.
    """

    id: int
    target: Target
    effect: Effect
    method: str | None = None  # None: any method of the target
    times: int | None = None
    until: float | None = None
    retry_after: int | None = None  # seconds, for 429
    delay: float = 5.0  # seconds, for slow, drip, delay_ack and out_of_order
    code: str | None = None  # for refused and refused_after; None is the service's most common one. For 5xx: 500, 502, 503, 504
    probability: float = 1.0  # that it applies to a matching request
    hits: int = field(default=0)

    def matches(self, target: str, method: str, now: float) -> bool:
        """Tell whether this fault is still armed for such a request. `method` may be exact or a prefix ending in `*`."""
        if self.target != target or (self.times is not None and self.hits >= self.times):
            return False
        if self.until is not None and now >= self.until:
            return False
        if self.method is None:
            return True
        return method.startswith(self.method[:-1]) if self.method.endswith("*") else method == self.method


class ArmedFaults:
    """The armed faults, oldest first."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, tokens: Tokens | None = None) -> None:
        self._monotonic = monotonic
        self._tokens = Tokens() if tokens is None else tokens
        self._faults: list[Fault] = []
        self._ids = itertools.count(1)
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every arming and clearing: some faults apply at once, without a request to take them."""
        self._listeners.append(listener)

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()

    def arm(
        self,
        target: str,
        effect: str,
        *,
        method: str | None = None,
        times: int | None = None,
        seconds: float | None = None,
        retry_after: int | None = None,
        delay: float = 5.0,
        code: str | None = None,
        probability: float = 1.0,
    ) -> Fault:
        """Arm one fault; without `times` and `seconds` it applies once. Raises ValueError for unknown or out-of-range values."""
        if target not in get_args(Target):
            raise ValueError(f"unknown target {target!r}: one of {', '.join(get_args(Target))}")
        if effect not in get_args(Effect):
            raise ValueError(f"unknown effect {effect!r}: one of {', '.join(get_args(Effect))}")
        if effect == "5xx" and code not in (None, *STATUSES):
            raise ValueError(f"unknown status {code!r}: one of {', '.join(STATUSES)}")
        if not 0 < probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, not {probability}")
        fault = Fault(
            id=next(self._ids),
            target=target,  # type: ignore[arg-type] # checked above
            effect=effect,  # type: ignore[arg-type] # checked above
            method=method,
            times=1 if times is None and seconds is None else times,
            until=None if seconds is None else self._monotonic() + seconds,
            retry_after=retry_after,
            delay=delay,
            code=code,
            probability=probability,
        )
        self._faults.append(fault)
        self._announce()
        return fault

    def take(self, target: str, method: str, *, only: frozenset[str] | None = None) -> Fault | None:
        """Count one hit on the oldest matching fault and return it; `only` restricts the effects asked for."""
        fault = self._next(target, method, only)
        if fault is None or not self._strikes(fault):
            return None
        fault.hits += 1
        return fault

    def delay(self, target: str, method: str, *, only: frozenset[str]) -> float:
        """Return a request's delay in seconds: 0 unless its oldest matching fault is `slow`, which then counts a hit."""
        fault = self._next(target, method, only)
        if fault is None or fault.effect != "slow" or not self._strikes(fault):
            return 0.0
        fault.hits += 1
        return fault.delay

    def clear(self) -> None:
        """Disarm every fault."""
        self._faults.clear()
        self._announce()

    def disarm(self, fault_id: int) -> bool:
        """Disarm one fault; False if there is none with this id."""
        kept = [fault for fault in self._faults if fault.id != fault_id]
        found = len(kept) < len(self._faults)
        self._faults[:] = kept
        self._announce()
        return found

    def armed(self, target: str) -> list[Fault]:
        """Return the faults of one target armed since the last clear, spent ones included."""
        return [fault for fault in self._faults if fault.target == target]

    def holds(self, fault: Fault) -> bool:
        """Tell whether a lasting fault is still on: neither cleared nor past its end."""
        return fault in self._faults and (fault.until is None or self._monotonic() < fault.until)

    def describe(self) -> list[dict[str, object]]:
        """Return every fault ever armed since the last clear, with its hits."""
        return [asdict(fault) for fault in self._faults]

    def standing(self) -> list[dict[str, object]]:
        """Return every fault since the last clear with its hits, whether it may still apply, and for how many seconds."""
        now = self._monotonic()
        return [
            {
                **asdict(fault),
                "active": (fault.times is None or fault.hits < fault.times) and (fault.until is None or now < fault.until),
                "seconds_left": None if fault.until is None else max(0, round(fault.until - now)),
            }
            for fault in self._faults
        ]

    def _strikes(self, fault: Fault) -> bool:
        return fault.probability >= 1 or self._tokens.below(_CHANCES) < fault.probability * _CHANCES

    def _next(self, target: str, method: str, only: frozenset[str] | None) -> Fault | None:
        if not self._faults:
            return None
        now = self._monotonic()
        return next(
            (fault for fault in self._faults if fault.matches(target, method, now) and (only is None or fault.effect in only)), None
        )
