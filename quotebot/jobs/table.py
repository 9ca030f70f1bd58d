"""The table of scheduled jobs, one line each."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from quotebot.commands.approvals import EscalateApproval, ExpireApproval, RemindApprover
from quotebot.commands.crm import CRM_AGGREGATE, SyncCrm
from quotebot.commands.extraction import ANSWER_MS, AnswerMessage
from quotebot.commands.lifecycle import ExpireQuote, NoteStaleDraft
from quotebot.domain.schedule.cron import parse_cron
from quotebot.domain.schedule.schedules import DAY_MS, HOUR_MS, MINUTE_MS, Candidate, Every, Misfire, Once
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

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return store.quotes_to_expire(tx, job, now, now - GRACE_MS, limit)

    def payload(candidate: Candidate, slot: int) -> ExpireQuote:
        del slot
        return ExpireQuote(valid_until=candidate.anchor)

    return ScheduledJob("quote_expiry", FiringOrder.EXPIRY, Once(GRACE_MS), find, payload, Misfire.COALESCE)


def approval_expiry() -> ScheduledJob:
    """End an approval request that was not decided in time. No lateness limit."""

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return store.slots_due(tx, "expire", job, now, now - GRACE_MS, limit)

    def payload(candidate: Candidate, slot: int) -> ExpireApproval:
        del slot
        return ExpireApproval(candidate.aggregate_id, int(candidate.part))

    return ScheduledJob("approval_expiry", FiringOrder.EXPIRY, Once(GRACE_MS), find, payload, Misfire.COALESCE)


def approval_escalation() -> ScheduledJob:
    """Ask a higher authority too, repeatedly while there is one. No lateness limit: the request still waits."""

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return store.slots_due(tx, "escalate", job, now, now, limit)

    def payload(candidate: Candidate, slot: int) -> EscalateApproval:
        del slot
        return EscalateApproval(candidate.aggregate_id, int(candidate.part))

    return ScheduledJob("approval_escalation", FiringOrder.ESCALATION, Once(), find, payload, Misfire.COALESCE)


def approval_reminder() -> ScheduledJob:
    """Remind the approvers of a slot, once."""

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return store.slots_due(tx, "remind", job, now, now, limit)

    def payload(candidate: Candidate, slot: int) -> RemindApprover:
        del slot
        return RemindApprover(candidate.aggregate_id, int(candidate.part))

    return ScheduledJob("approval_reminder", FiringOrder.REMINDER, Once(), find, payload, Misfire.COALESCE, REMINDER_LATENESS_MS)


def reading_answer() -> ScheduledJob:
    """Answer a message with fixed rules if the model is late or its class is held. No lateness limit."""

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return extractions.unanswered(tx, job, now, 0 if extractions.is_held(tx, EXTRACT, now) else ANSWER_MS, limit)

    def payload(candidate: Candidate, slot: int) -> AnswerMessage:
        del slot
        return AnswerMessage(candidate.aggregate_id)

    return ScheduledJob("reading_answer", FiringOrder.ANSWER, Once(), find, payload, Misfire.COALESCE, needs_clock=False)


def crm_inbound_sync(minutes: int, mirrors: tuple[str, ...] = ()) -> ScheduledJob:
    """Sync changes from Salesforce. One sync replaces all missed ones: it starts where the last one ended."""
    org = Candidate(CRM_AGGREGATE, 0, CRM_AGGREGATE, "")

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        del tx, job, now, limit
        return (org,)

    def payload(candidate: Candidate, slot: int) -> SyncCrm:
        del candidate, slot
        return SyncCrm(mirrors)

    every = Every(minutes * MINUTE_MS)
    return ScheduledJob("crm_inbound_sync", FiringOrder.NOTICE, every, find, payload, Misfire.COALESCE, needs_clock=False)


def stale_draft(days: int, zone: tzinfo) -> ScheduledJob:
    """Remind the requester, once, of a quote neither submitted nor changed for `days`, on a working morning."""
    delay_ms = days * DAY_MS

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        return store.stale_drafts(tx, job, now, now - delay_ms, limit)

    def payload(candidate: Candidate, slot: int) -> NoteStaleDraft:
        del slot
        return NoteStaleDraft(untouched_since=candidate.anchor)

    schedule = Once(delay_ms, parse_cron(NOTICES_AT, zone))
    return ScheduledJob("stale_draft", FiringOrder.NOTICE, schedule, find, payload, Misfire.COALESCE)
