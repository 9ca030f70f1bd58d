"""Trust in the machine's clock: while it is suspended nothing expires and nothing is purged.

A clock that is wrong for seconds must not end a quote for good. Two sources show that it is wrong: the process's monotonic clock,
and the Date of Slack's answers, which is right after any downtime. While the clock is suspended, jobs that end things wait, and
commands are judged by an estimated time, counted from when the clock was last right.
The audit holds the state, in the chain "clock": so a suspension outlives the process, and `quotebot clock confirm` ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.failures import AdapterError
from ledger.database import NotRecorded, Tx
from ledger.records import QUOTEBOT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.audit.events import Audit
    from ledger.ledger import Ledger

CHAIN: Final = "clock"  # name of the audit chain
GAP_MS: Final = 3_660_000  # an hour plus clock drift: between both clocks, or since the last event of the audit
TOLERANCE_MS: Final = 300_000  # between this clock and Slack's
CLOCK_CHECK_SECONDS: Final = 2.0
ASK_SECONDS: Final = 60.0  # between two questions to Slack
ANSWER_SECONDS: Final = 5.0
JUMP: Final = "jump"  # wall clock and monotonic clock diverged
SLACK: Final = "slack"  # Slack's clock shows another time
UNKNOWN: Final = "unknown"  # nothing was recorded for long, and Slack did not answer
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Suspension:
    """Suspension of the clock. `ahead_ms` is how far it seems to be ahead, `right_ms` the estimated right time; Unix ms."""

    cause: str
    ahead_ms: int
    right_ms: int


def read_suspension(tx: Tx) -> Suspension | None:
    """Return the suspension that the audit holds; None while the clock is trusted."""
    newest = next(iter(tx.all("audit_chain", aggregate_id=CHAIN, limit=1)), None)
    if newest is None or newest["event_type"] != "clock.suspended":
        return None
    after: dict[str, Any] = json.loads(newest["after"])
    return Suspension(after["cause"], after["ahead_ms"], after["right_ms"])


def confirm(tx: Tx, audit: Audit, now: int, actor: str) -> Suspension | None:
    """Record that a person confirms the clock, unless Slack contradicts it; return the suspension before."""
    found = read_suspension(tx)
    if found is not None and found.cause != SLACK:
        after = {"cause": found.cause, "ahead_ms": found.ahead_ms}
        audit.append(tx, now, "clock.confirmed", actor=actor, actor_type="operator", aggregate_id=CHAIN, after=after)
    return found


class ClockGuard:
    """Guard that decides whether the wall clock is trusted. `ask` returns Slack's time (Unix ms), or None if there is none.

    Only the process that expires and purges has an instance.
    """

    def __init__(self, ledger: Ledger, ask: Callable[[], Awaitable[int | None]]) -> None:
        self._ledger = ledger
        self._clock = ledger.clock
        self._ask = ask
        self._right = (self._clock.now_ms(), self._clock.monotonic())  # a time that was right, and its monotonic time
        self._suspension: Suspension | None = None
        self._recorded = False  # the audit and the log have the suspension
        self._agreed = False  # Slack's time agrees with the clock again
        self._asked_at = float("-inf")

    @property
    def suspension(self) -> Suspension | None:
        """The recorded suspension; None while the clock is trusted."""
        return self._suspension if self._recorded else None

    def trusted(self) -> bool:
        """Return true if the wall clock is right as far as is known. This call detects a jump before it can do harm."""
        if self._suspension is None and abs(self._ahead_ms()) > GAP_MS:
            self._suspect(JUMP)
        return self._suspension is None

    def judged_at(self, at: int) -> int:
        """Return the time by which a command received at `at` (Unix ms) is judged: never later than the estimated right time."""
        return at if self.trusted() else min(at, self._right_ms())

    def compare(self, slack_ms: int | None) -> None:
        """Compare the clock with Slack's time (Unix ms); None if there is none. `look` records the result."""
        if slack_ms is None:
            return
        self._agreed = abs(self._clock.now_ms() - slack_ms) <= TOLERANCE_MS
        if not self._agreed:
            self._right = (slack_ms, self._clock.monotonic())
            if self._suspension is None or self._suspension.cause != SLACK:
                self._suspect(SLACK)
        elif self._suspension is None:
            self._believe()

    async def begin(self) -> None:
        """Compare the clock with the recorded events; if it is suspect, ask Slack. Call it at the start, before any work."""
        now = self._clock.now_ms()
        found, last = await self._ledger.database.read(lambda tx: (read_suspension(tx), _last_event_at(tx)))
        if found is not None:
            self._right = (found.right_ms, self._clock.monotonic())
            self._suspension, self._recorded = found, True
        elif last is not None and now - last > GAP_MS:
            self._right = (last, self._clock.monotonic())
            self._suspect(UNKNOWN)
        with contextlib.suppress(NotRecorded):  # the next `look` records it
            await self.look()
        if found is not None and self._suspension is not None:
            log.error("clock.still_suspended", cause=self._suspension.cause, do=_WHAT_TO_DO[self._suspension.cause])

    async def look(self) -> None:
        """Ask Slack about a suspect clock; record the suspension and its end. A maintenance job.

        Raises NotRecorded as Database.write does; the next call continues from there.
        """
        if self.trusted():
            return
        if self._recorded and await self._ledger.database.read(read_suspension) is None:
            self._resume("confirmed")
            return
        if self._clock.monotonic() - self._asked_at >= ASK_SECONDS:
            self._asked_at = self._clock.monotonic()
            self.compare(await self._slack_ms())
        found = self._suspension
        assert found is not None  # noqa: S101 -- only this job resumes
        if self._agreed or (found.cause != UNKNOWN and abs(self._ahead_ms()) <= TOLERANCE_MS):
            if self._recorded:
                await self._append("clock.resumed", {"cause": found.cause})
            self._resume("the clock is right")
        elif not self._recorded:
            await self._append("clock.suspended", {"cause": found.cause, "ahead_ms": found.ahead_ms, "right_ms": found.right_ms})
            self._recorded = True
            log.error("clock.suspended", cause=found.cause, ahead_seconds=found.ahead_ms // 1000, do=_WHAT_TO_DO[found.cause])

    async def _slack_ms(self) -> int | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._ask()
        except (AdapterError, TimeoutError) as error:
            log.warning("clock.unanswered", code=getattr(error, "code", "timeout"))
            return None

    def _right_ms(self) -> int:
        wall, monotonic = self._right
        return wall + round((self._clock.monotonic() - monotonic) * 1000)

    def _ahead_ms(self) -> int:
        return self._clock.now_ms() - self._right_ms()

    def _believe(self) -> None:
        self._right = (self._clock.now_ms(), self._clock.monotonic())

    def _suspect(self, cause: str) -> None:
        """Suspend, or stay suspended for another cause, which is recorded anew."""
        self._suspension, self._recorded, self._agreed = Suspension(cause, self._ahead_ms(), self._right_ms()), False, False

    def _resume(self, why: str) -> None:
        if self._recorded:
            log.info("clock.resumed", why=why)
        self._believe()
        self._suspension, self._recorded, self._asked_at = None, False, float("-inf")

    async def _append(self, event_type: str, after: dict[str, Any]) -> None:
        now, audit = self._clock.now_ms(), self._ledger.audit

        await self._ledger.database.write(
            event_type,
            lambda tx: audit.append(tx, now, event_type, actor=QUOTEBOT, actor_type="system", aggregate_id=CHAIN, after=after),
        )


def _last_event_at(tx: Tx) -> int | None:
    """Return the time of the newest audit event (Unix ms)."""
    row = tx.one("last_audit_time")
    return None if row is None else int(row["at"])


_CONFIRM: Final = "look at this machine's clock; if it is right, give: quotebot clock confirm"
_WHAT_TO_DO: Final = {
    JUMP: _CONFIRM,
    UNKNOWN: _CONFIRM,
    SLACK: "set this machine's clock: Slack's shows another time. The bot resumes by itself",
}
