"""The table of scheduled jobs, one line each."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from quotebot.commands.payloads import (
    ANSWER_MS,
    CRM_AGGREGATE,
    AnswerMessage,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    NoteStaleDraft,
    RemindApprover,
    SyncCrm,
)
from quotebot.domain.schedule.schedules import DAY_MS, HOUR_MS, MINUTE_MS, Candidate, Every, Misfire, Once, parse_cron
from quotebot.effects import EXTRACT
from quotebot.jobs.scheduler import FiringOrder, ScheduledJob
from quotebot.store import extractions
from quotebot.store import schedule as store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx
    from quotebot.settings import Settings

# A command that arrived before the end is in the ledger by then: the ack budget is 2.5 s at most.
GRACE_MS: Final = MINUTE_MS
REMINDER_LATENESS_MS: Final = 6 * HOUR_MS  # a reminder later than this is dropped
NOTICES_AT: Final = "0 9 * * mon-fri"  # notices come on working mornings


def jobs(settings: Settings) -> tuple[ScheduledJob, ...]:
    """Return all jobs of this installation."""
    return (
        quote_expiry(),
        approval_expiry(),
        approval_escalation(),
        approval_reminder(),
        reading_answer(),
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
