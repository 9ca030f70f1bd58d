"""Scheduler of time-driven commands, and the table of its jobs.

Each due slot becomes a command of its own, reserved like any other. Each step derives the due slots from rows, never from memory.
A slot is fired under the request id `job:name:slot`, so the ledger ensures that it is fired once, across restarts, other bots and
clock changes in either direction. The mark that is written after the reservation only saves work: without it, the next step finds
that the slot is known already.
A mark with a time in the future is ignored: the clock was wrong then, or is now. The slots due by the present clock are found
again, and the ledger recognizes those that were fired.
Sealing the audit, purging, checking and copying the file are not commands: docs/decisions/0015-maintenance-is-no-operation.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import structlog

from ledger import keys
from ledger.database import DatabaseError, Tx
from ledger.records import QUOTEBOT, DedupeResult, Request, Reservation
from quotebot import effects
from quotebot.commands.payloads import (
    ANSWER_MS,
    CRM_AGGREGATE,
    AnswerMessage,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    NoteStaleDraft,
    ReassignApproval,
    RemindApprover,
    SendDigest,
    SyncCrm,
)
from quotebot.domain.schedule.schedules import (
    DAY_MS,
    MINUTE_MS,
    Candidate,
    Every,
    Fate,
    Misfire,
    Once,
    Schedule,
    fate_of,
    parse_cron,
    slots_due,
)
from quotebot.effects import EXTRACT
from quotebot.store import approvals, extractions
from quotebot.store import schedule as store
from quotebot.store.schedule import Mark
from quotebot.worker_loop import POLL_SECONDS, one_round

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ledger.ledger import Ledger
    from quotebot.commands.registry import Payload
    from quotebot.domain.rules import Rules
    from quotebot.settings import Settings


AT_ONCE: Final = 64  # candidates per read; reservations that share a commit
REST_SECONDS: Final = 60.0  # pause of a job after a failure
log = structlog.get_logger(__name__)
# A command that arrived before the end is in the ledger by then: the ack budget is 2.5 s at most.
GRACE_MS: Final = MINUTE_MS
REMINDER_LATENESS_MS: Final = effects.REMINDER_MS  # a reminder later than this is dropped
NOTICES_AT: Final = "0 9 * * mon-fri"  # notices come on working mornings


class FiringOrder(IntEnum):
    """Order of jobs after a downtime: expiry precedes reminders, so no one is reminded of something that has expired."""

    EXPIRY = 1
    ESCALATION = 2
    REMINDER = 3
    ANSWER = 4
    NOTICE = 5


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One line of the table of jobs. `payload` builds the command of a candidate's slot, the same for every slot.

    `find(tx, job, now, limit)` reads the candidates: at most `limit`, in a fixed order, those with the oldest anchors first, and
    without those that its own rows show as over. If its rows do not show that for many candidates, it also leaves out those that
    the job has a mark for (statement quotes_to_expire is an example): the scheduler skips them, but reads them every time.
    """

    name: str
    order: FiringOrder
    schedule: Schedule
    find: Callable[[Tx, str, int, int], Sequence[Candidate]]
    payload: Callable[[Candidate], Payload]
    misfire: Misfire
    max_lateness_ms: int | None = None  # a slot found later than this is dropped
    needs_clock: bool = True  # the job waits while the clock is not trusted


class Scheduler:
    """Executor of due slots. `jobs` run in their order, jobs of equal order as given; a job that fails is tried again later."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: Iterable[ScheduledJob],
        *,
        poll_seconds: float = POLL_SECONDS,
        trusted: Callable[[], bool] = lambda: True,
        leads: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`trusted` returns whether the wall clock is right; while it is not, a job that needs the clock fires no slots.

        `leads` returns whether this replica fires slots; without it, there is no other. Two that do fire each slot once.
        """
        self._ledger = ledger
        self._leads = leads
        self._trusted = trusted
        self._jobs = sorted(jobs, key=lambda job: job.order)
        self._poll_seconds = poll_seconds
        self._rests_until: dict[str, float] = {}  # monotonic seconds
        self._changed = asyncio.Event()  # never set: no slot is short enough to need more than the poll

    async def run(self) -> None:
        """Work until cancelled. Raises WritesRefused when the ledger takes no writes until a restart."""
        while True:
            await one_round(self._changed, self.step, _nothing_sleeps, self._ledger.clock, self._poll_seconds)

    async def step(self) -> int:
        """Process each job's due slots, one job after the other. Returns how many slots were fired or dropped.

        Raises NotRecorded and OutcomeUnknown as Ledger.reserve does; slots fired before the error stay fired.
        """
        done = 0
        if self._leads is not None and not await self._leads():
            return done
        for job in self._jobs:
            if self._ledger.clock.monotonic() >= self._rests_until.get(job.name, 0.0):
                done += await self._fire_all(job)
        return done

    async def _fire_all(self, job: ScheduledJob) -> int:
        done = 0
        try:
            while ended := await self._fire(job):
                done += ended
        except DatabaseError:
            raise
        except Exception:  # a broken job must not stop the bot or the other jobs; its remaining slots stay due
            log.exception("schedule.failed", job=job.name)
            self._rests_until[job.name] = self._ledger.clock.monotonic() + REST_SECONDS
        return done

    async def _fire(self, job: ScheduledJob) -> int:
        now = self._ledger.clock.now_ms()
        if job.needs_clock and not self._trusted():
            return 0
        due = await self._ledger.database.read(lambda tx: _due(tx, job, now))
        if not due:
            return 0
        fired = [(candidate, slot) for candidate, fate in due for slot in fate.fire]
        for first in range(0, len(fired), AT_ONCE):
            await self._reserve(job, fired[first : first + AT_ONCE], now)
        for candidate, fate in due:
            if fate.dropped:
                log.warning("schedule.dropped", job=job.name, aggregate_id=candidate.aggregate_id, slots=len(fate.dropped))
        marks = [_mark(job, candidate, fate) for candidate, fate in due]
        await self._ledger.database.write("schedule", lambda tx: store.mark(tx, marks, now))
        return sum(len(fate.fire) + len(fate.dropped) for _, fate in due)

    async def _reserve(self, job: ScheduledJob, fired: Sequence[tuple[Candidate, int]], now: int) -> None:
        reserving = (self._ledger.reserve(_request(job, candidate, slot, now)) for candidate, slot in fired)
        ends = await asyncio.gather(*reserving, return_exceptions=True)  # wait for all before reporting one
        for (candidate, slot), end in zip(fired, ends, strict=True):
            if isinstance(end, BaseException):
                raise end
            _tell(job, candidate, now - slot, end)


async def _nothing_sleeps() -> int | None:
    return None


def _due(tx: Tx, job: ScheduledJob, now: int) -> list[tuple[Candidate, Fate]]:
    """Return the due slots of the oldest candidates; if all of them are over and there may be more, read further."""
    limit = AT_ONCE
    while True:
        candidates = job.find(tx, job.name, now, limit)
        fates = [(candidate, _fate(tx, job, candidate, now)) for candidate in candidates]
        found = [(candidate, fate) for candidate, fate in fates if fate.fire or fate.dropped]
        if found or len(candidates) < limit:
            return found[:AT_ONCE]
        limit *= 2


def _fate(tx: Tx, job: ScheduledJob, candidate: Candidate, now: int) -> Fate:
    over = store.marked_slot(tx, job.name, candidate, now)
    return fate_of(slots_due(job.schedule, candidate.anchor, over, now), now, job.misfire, job.max_lateness_ms)


def _request(job: ScheduledJob, candidate: Candidate, slot: int, now: int) -> Request:
    """Return the command of one slot. Its identity does not depend on when, or how often, the slot is evaluated."""
    request_id = f"{job.name}:{candidate.name}:{slot}"
    return system_request("quotebot/slot/1", request_id, candidate.quote_id, candidate.team_id, job.payload(candidate), now)


def system_request(family: str, request_id: str, aggregate_id: str, team_id: str, payload: Payload, now: int) -> Request:
    """Return a command of the bot itself. `family` and `request_id` identify it; `now` is Unix milliseconds."""
    return Request(
        source="scheduler",
        source_request_id=request_id,
        action_kind=payload.kind,
        aggregate_id=aggregate_id,
        aggregate_version=None,
        payload=payload.canonical(),
        fingerprint=keys.digest([family, request_id]),
        actor=QUOTEBOT,
        actor_type="system",
        team_id=team_id,
        received_at=now,
    )


def _mark(job: ScheduledJob, candidate: Candidate, fate: Fate) -> Mark:
    newest = max(fate.fire + fate.dropped)
    return Mark(job.name, candidate, newest, "fired" if newest in fate.fire else "dropped")


def _tell(job: ScheduledJob, candidate: Candidate, late_ms: int, reservation: Reservation) -> None:
    known = reservation.sighting is not DedupeResult.NEW
    log.info(
        "schedule.known" if known else "schedule.fired",
        job=job.name,
        aggregate_id=candidate.aggregate_id,
        correlation_id=reservation.operation.correlation_id,
        late_ms=late_ms,
    )


def jobs(settings: Settings, rules: Rules | None = None) -> tuple[ScheduledJob, ...]:
    """Return all jobs of this installation; without `rules` none that concerns the holders of roles."""
    return (
        *(() if rules is None else (approval_reassignment(rules),)),
        quote_expiry(),
        approval_expiry(),
        approval_escalation(),
        approval_reminder(),
        reading_answer(),
        daily_digest(),
        stale_draft(settings.stale_draft_days, zone_named(settings.time_zone)),
        *(() if settings.crm_sync_minutes is None else (crm_inbound_sync(settings.crm_sync_minutes, settings.crm_mirror),)),
    )


def zone_named(name: str) -> tzinfo:
    """Return an IANA time zone. Raises ZoneInfoNotFoundError for one that is not installed; UTC always is."""
    return UTC if name == "UTC" else ZoneInfo(name)


def quote_expiry() -> ScheduledJob:
    """Close a quote that was not accepted while it was valid. No lateness limit."""
    return ScheduledJob(
        name="quote_expiry",
        order=FiringOrder.EXPIRY,
        schedule=Once(GRACE_MS),
        find=lambda tx, job, now, limit: store.quotes_to_expire(tx, job, now, now - GRACE_MS, limit),
        payload=lambda candidate: ExpireQuote(valid_until=candidate.anchor),
        misfire=Misfire.COALESCE,
    )


def approval_expiry() -> ScheduledJob:
    """End an approval request that was not decided in time. No lateness limit."""
    return ScheduledJob(
        name="approval_expiry",
        order=FiringOrder.EXPIRY,
        schedule=Once(GRACE_MS),
        find=lambda tx, job, now, limit: store.slots_due(tx, "expire", job, now, now - GRACE_MS, limit),
        payload=lambda candidate: ExpireApproval(candidate.aggregate_id, int(candidate.part)),
        misfire=Misfire.COALESCE,
    )


def approval_escalation() -> ScheduledJob:
    """Ask a higher authority too, repeatedly while there is one. No lateness limit: the request still waits."""
    return ScheduledJob(
        name="approval_escalation",
        order=FiringOrder.ESCALATION,
        schedule=Once(),
        find=lambda tx, job, now, limit: store.slots_due(tx, "escalate", job, now, now, limit),
        payload=lambda candidate: EscalateApproval(candidate.aggregate_id, int(candidate.part)),
        misfire=Misfire.COALESCE,
    )


def approval_reminder() -> ScheduledJob:
    """Remind the approvers of a slot, once."""
    return ScheduledJob(
        name="approval_reminder",
        order=FiringOrder.REMINDER,
        schedule=Once(),
        find=lambda tx, job, now, limit: store.slots_due(tx, "remind", job, now, now, limit),
        payload=lambda candidate: RemindApprover(candidate.aggregate_id, int(candidate.part)),
        misfire=Misfire.COALESCE,
        max_lateness_ms=REMINDER_LATENESS_MS,
    )


def approval_reassignment(rules: Rules) -> ScheduledJob:
    """Ask others where nobody is left whom a slot asks: once per slot and set of people who are gone. No lateness limit."""

    def find(tx: Tx, _job: str, _now: int, limit: int) -> Sequence[Candidate]:
        return tuple(
            Candidate(
                slot.approval_id,
                slot.opened_at,
                slot.quote_id,
                slot.team_id,
                f"{slot.number}/{keys.digest(sorted(slot.gone))[:16]}",
            )
            for slot in islice(approvals.slots_of_gone(tx, rules), limit)
        )

    return ScheduledJob(
        name="approval_reassignment",
        order=FiringOrder.ESCALATION,
        schedule=Once(),
        find=find,
        payload=lambda candidate: ReassignApproval(candidate.aggregate_id, int(candidate.part.partition("/")[0])),
        misfire=Misfire.COALESCE,
        needs_clock=False,
    )


def reading_answer() -> ScheduledJob:
    """Answer a message with fixed rules if the model is late or its class is held. No lateness limit."""

    def find(tx: Tx, job: str, now: int, limit: int) -> Sequence[Candidate]:
        return extractions.unanswered(tx, job, now, 0 if extractions.is_held(tx, EXTRACT, now) else ANSWER_MS, limit)

    return ScheduledJob(
        name="reading_answer",
        order=FiringOrder.ANSWER,
        schedule=Once(),
        find=find,
        payload=lambda candidate: AnswerMessage(candidate.aggregate_id),
        misfire=Misfire.COALESCE,
        needs_clock=False,
    )


def crm_inbound_sync(minutes: int, mirrors: tuple[str, ...] = ()) -> ScheduledJob:
    """Sync changes from Salesforce. One sync replaces all missed ones: it starts where the last one ended."""
    org = Candidate(CRM_AGGREGATE, 0, CRM_AGGREGATE, "")
    return ScheduledJob(
        name="crm_inbound_sync",
        order=FiringOrder.NOTICE,
        schedule=Every(minutes * MINUTE_MS),
        find=lambda *_: (org,),
        payload=lambda _: SyncCrm(mirrors),
        misfire=Misfire.COALESCE,
        needs_clock=False,
    )


def daily_digest() -> ScheduledJob:
    """Send a person the digest of their work queue, once per working morning. The command itself drops one that is too late."""
    return ScheduledJob(
        name="daily_digest",
        order=FiringOrder.NOTICE,
        schedule=Once(),
        find=lambda tx, _, now, limit: store.digests_due(tx, now, limit),
        payload=lambda candidate: SendDigest(candidate.aggregate_id.removeprefix("digest:"), candidate.anchor),
        misfire=Misfire.COALESCE,
    )


def stale_draft(days: int, zone: tzinfo) -> ScheduledJob:
    """Remind the requester, once, of a quote neither submitted nor changed for `days`, on a working morning."""
    delay_ms = days * DAY_MS
    return ScheduledJob(
        name="stale_draft",
        order=FiringOrder.NOTICE,
        schedule=Once(delay_ms, parse_cron(NOTICES_AT, zone)),
        find=lambda tx, job, now, limit: store.stale_drafts(tx, job, now, now - delay_ms, limit),
        payload=lambda candidate: NoteStaleDraft(untouched_since=candidate.anchor),
        misfire=Misfire.COALESCE,
    )
