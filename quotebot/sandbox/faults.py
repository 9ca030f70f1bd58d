"""Programmable faults of the local world: armed over the control API, applied by the services one request at a time.

The catalogue puts every pair of target and effect into words.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.wire import Answer, Cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.request_log import Witness

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
HTTP_EFFECTS = frozenset(get_args(Effect)) - SOCKET_EFFECTS


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
    hits: int = 0

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
        return self._hit(self._next(target, method, only))

    def delay(self, target: str, method: str, *, only: frozenset[str]) -> float:
        """Return a request's delay in seconds: 0 unless its oldest matching fault is `slow`, which then counts a hit."""
        fault = self._next(target, method, only)
        slow = self._hit(fault) if fault is not None and fault.effect == "slow" else None
        return 0.0 if slow is None else slow.delay

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

    def _hit(self, fault: Fault | None) -> Fault | None:
        """Count a hit if the fault applies this time, by its probability."""
        if fault is None or (fault.probability < 1 and self._tokens.below(_CHANCES) >= fault.probability * _CHANCES):
            return None
        fault.hits += 1
        return fault

    def _next(self, target: str, method: str, only: frozenset[str] | None) -> Fault | None:
        if not self._faults:
            return None
        now = self._monotonic()
        return next(
            (fault for fault in self._faults if fault.matches(target, method, now) and (only is None or fault.effect in only)), None
        )


@dataclass(frozen=True, slots=True)
class Served:
    """Result of serving a request. `status` is the HTTP status or an error code, as in the request log."""

    answer: Answer
    applied: bool
    status: int | str
    key: str | None


class Outages:
    """Serves the requests to one system under the armed faults and records them in the request log."""

    def __init__(self, system: Target, weather: ArmedFaults, witness: Witness) -> None:
        self._system = system
        self._weather = weather
        self._witness = witness

    def delay(self, method: str, effects: frozenset[str] = HTTP_EFFECTS) -> float:
        """Return for how many seconds a request is delayed; this counts a hit of the fault."""
        return self._weather.delay(self._system, method, only=effects)

    def serve(
        self,
        method: str,
        raw: bytes,
        key: str | None,
        apply: Callable[[Fault | None], Served],
        *,
        waited: bool,
        effects: frozenset[str] = HTTP_EFFECTS,
    ) -> Answer:
        """Answer a request. Raises Cut.

        `apply` serves it, or refuses or breaks the answer as the fault requires; connections are cut and answers drip here. `key`
        names the request in the log if the connection is cut before.
        """
        fault = None if waited else self._weather.take(self._system, method, only=effects - {"slow"})
        effect = "" if fault is None else fault.effect
        if effect == "reset_before":
            self._witness.record(self._system, method, key=key, applied=False, status=None, request=raw)
            raise Cut
        served = apply(fault)
        seen = None if effect == "reset_after" else served.status
        self._witness.record(self._system, method, key=served.key, applied=served.applied, status=seen, request=raw)
        if effect == "reset_after":
            raise Cut
        return replace(served.answer, drip_seconds=fault.delay) if fault is not None and effect == "drip" else served.answer


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault that can be armed. It applies to `requests` one by one, once and `now`, or for a time (`lasting`)."""

    target: Target
    effect: Effect
    name: str
    about: str
    strikes: Literal["requests", "now", "lasting"] = "requests"


_HTTP: tuple[tuple[Effect, str, str], ...] = (
    ("5xx", "Down", "{0} answers 503 and does nothing."),
    ("429", "Too many requests", "{0} answers 429 and says how long to wait; nothing is done."),
    ("slow", "Slow", "{0} holds each request for five seconds, then serves it."),
    ("reset_before", "Cut before", "The connection is cut before {0} has done anything."),
    ("reset_after", "Cut after", "{0} does what was asked, then the connection is cut: nobody hears that it worked."),
    ("malformed", "Unreadable answer", "{0} does what was asked and answers something that cannot be read."),
    ("drip", "Very slow", "{0} does what was asked and answers one byte every five seconds."),
    ("refused", "Refused by an error code", "{0} refuses with an error code of its own, as for a trouble that passes."),
    ("refused_after", "Broken after", "{0} does what was asked and answers that something broke."),
    ("auth_expired", "Login expired", "{0} refuses the credentials. The bot holds this class of work until somebody resumes it."),
)
_SYSTEMS: tuple[tuple[Target, str], ...] = (("salesforce", "Salesforce"), ("slack", "Slack"), ("llm", "The language model"))

KINDS: tuple[Kind, ...] = (
    *(Kind(target, effect, name, about.format(system)) for target, system in _SYSTEMS for effect, name, about in _HTTP),
    Kind("socket", "drop_ack", "Lost acknowledgement", "The bot's acknowledgement never arrives: the person sees a failure."),
    Kind(
        "socket",
        "delay_ack",
        "Late acknowledgement",
        "The acknowledgement arrives five seconds late: the person sees a failure.",
    ),
    Kind("socket", "out_of_order", "Out of order", "An envelope is overtaken by the next one, or comes five seconds late."),
    Kind("socket", "refuse_ticket", "Refused ticket", "The next connection is refused at the door, as with a ticket used twice."),
    Kind("socket", "too_many_websockets", "No place left", "The next connection is sent away: ten are open already."),
    Kind("socket", "no_hello", "No greeting", "The next connection is accepted and then nothing comes over it."),
    Kind("socket", "disconnect", "Disconnect", "Every live connection is closed, as when Slack moves its servers.", "now"),
    Kind("socket", "reset", "Reset", "Every live connection is reset, as when a router forgets it.", "now"),
    Kind(
        "socket",
        "half_open",
        "Half open",
        "The connections of this moment stay up and go mute: nothing comes through, and no error says so.",
        "lasting",
    ),
)


# Methods that a fault may be narrowed to: the bot's most frequent calls. Any other method can be typed.
METHODS: dict[Target, tuple[str, ...]] = {
    "slack": (
        *("chat.postMessage", "chat.update", "chat.postEphemeral", "response_url", "files.getUploadURLExternal", "upload"),
        *(
            "files.completeUploadExternal",
            "files.info",
            "conversations.replies",
            "conversations.history",
            "views.open",
            "views.publish",
        ),
    ),
    "salesforce": ("oauth2/token", "composite/graph", "query"),
    "llm": ("chat.completions",),
    "socket": ("slash_commands", "interactive", "events_api", "link"),
}


def known() -> dict[str, object]:
    """Return the catalogue, JSON-ready: `kinds` and, for each target, `methods`."""
    return {"kinds": [asdict(kind) for kind in KINDS], "methods": {target: list(names) for target, names in METHODS.items()}}
