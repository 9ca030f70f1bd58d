"""Effects of an armed fault on an HTTP request: one place for the Web API, uploads and response URLs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quotebot.sandbox.wire import Answer, Cut, json_answer, text_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.faults import ArmedFaults, Fault
    from quotebot.sandbox.request_log import Witness

HTTP_EFFECTS = frozenset(
    {"429", "5xx", "slow", "reset_before", "reset_after", "malformed", "drip", "refused", "refused_after", "auth_expired"}
)
_MALFORMED = Answer(200, {"Content-Type": "application/json; charset=utf-8"}, b'{"ok": tr')


@dataclass(frozen=True, slots=True)
class Served:
    """Result of serving a request. `status` is 200 or an error code, as in the request log."""

    answer: Answer
    applied: bool
    status: int | str
    key: str | None


class Outages:
    """Serves a request under the armed faults and records it in the request log."""

    def __init__(self, weather: ArmedFaults, witness: Witness) -> None:
        self._weather = weather
        self._witness = witness

    def delay(self, method: str) -> float:
        """Return for how many seconds a request is delayed; this counts a hit of the fault."""
        return self._weather.delay("slack", method, only=HTTP_EFFECTS)

    def serve(self, method: str, raw: bytes, key: Callable[[], str | None], apply: Callable[[], Served], *, waited: bool) -> Answer:
        """Apply the request unless a fault prevents it; `key` identifies it in the log if it is refused before. Raises Cut."""
        fault = None if waited else self._weather.take("slack", method, only=HTTP_EFFECTS - {"slow"})
        effect = fault.effect if fault is not None else ""
        refusal = _refusal(fault, method) if fault is not None else None
        if refusal is not None:
            answer, status = refusal
            self._witness.record("slack", method, key=key(), applied=False, status=status, request=raw)
            return answer
        if effect == "reset_before":
            self._witness.record("slack", method, key=key(), applied=False, status=None, request=raw)
            raise Cut
        served = apply()
        if fault is not None and effect == "refused_after":
            broken = _refused(fault.code or "fatal_error", method)
            self._witness.record("slack", method, key=served.key, applied=served.applied, status=broken[1], request=raw)
            return broken[0]
        seen = None if effect == "reset_after" else served.status
        self._witness.record("slack", method, key=served.key, applied=served.applied, status=seen, request=raw)
        if effect == "reset_after":
            raise Cut
        if fault is not None and effect == "drip":
            return replace(served.answer, drip_seconds=fault.delay)
        return _MALFORMED if effect == "malformed" else served.answer


def ratelimited(retry_after_seconds: int) -> Answer:
    """Return Slack's answer to a call above the rate limit."""
    return json_answer({"ok": False, "error": "ratelimited"}, 429, {"Retry-After": str(retry_after_seconds)})


def _refusal(fault: Fault, method: str) -> tuple[Answer, int | str] | None:
    if fault.effect == "429":
        return ratelimited(1 if fault.retry_after is None else fault.retry_after), 429
    if fault.effect == "5xx":
        status = int(fault.code or 503)
        return text_answer("upstream connect error", status), status
    if fault.effect == "refused":
        return _refused(fault.code or "internal_error", method)
    if fault.effect == "auth_expired":
        return json_answer({"ok": False, "error": "invalid_auth"}), "invalid_auth"
    return None


def _refused(code: str, method: str) -> tuple[Answer, int | str]:
    """Refuse with a code: a method does so with HTTP 200, an address it handed out with 404 or 500."""
    if method == "upload":
        return text_answer(code, 500), 500
    if method == "response_url":
        return json_answer({"ok": False, "error": code}, 404), code
    return json_answer({"ok": False, "error": code}), code
