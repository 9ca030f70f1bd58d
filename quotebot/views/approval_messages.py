"""Messages about an open approval: progress, reminders, escalations, delegations. Text is Slack mrkdwn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from quotebot.domain.approvals.decisions import decided_words, slot_words
from quotebot.domain.approvals.policy import role_words
from quotebot.domain.quotes.quote import Approval, Quote, Slot, SlotState, local_time, title
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.domain.approvals.people import Delegation

SUBJECT_CHARACTERS_MAX = 100
INCIDENT_EXAMPLE = "INC-4711"


def progress(quote: Quote, approval: Approval, approvers: tuple[str, ...]) -> str:
    """Notice in the thread: list the approvals given so far, and ask for the missing ones."""
    given = "; ".join(slot_words(slot) for slot in approval.slots if slot.state is SlotState.APPROVED)
    missing = messages.approver_words(tuple(slot.role for slot in approval.slots if slot.is_open))
    if not approvers:
        return f"✅ {title(quote)}: {given}. It still needs {missing}, and no one holds that role now."
    return f"✅ {title(quote)}: {given}. {messages.mentions(approvers)}, you're next: it still needs {missing}."


def changes_requested(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, of the changes requested and of the approver who requests them."""
    by = "an approver" if approval.decided_by is None else messages.mention(approval.decided_by)
    head = f"{messages.mention(approval.requested_by)} ✏️ {by} requested changes to {title(quote)}"
    return head if approval.decision_reason is None else f"{head}:\n{messages.quoted(approval.decision_reason)}"


def not_reached(quote_id: str, user: str) -> str:
    """Ask an approver in the thread whom no direct message reached."""
    who = messages.mention(user)
    return f"{who}, a direct message about {quote_id} did not reach you. Please decide on your Home tab."


def acted_for_others(quote_id: str) -> str:
    """Refuse the decision of a person who acted on the quote in another person's name."""
    return f"You acted on {quote_id} in another person's name, so somebody else has to decide about it. Nothing was changed."


def misnamed(terminal_user: str | None, person: str) -> str:
    """Refuse a decision from a terminal whose user is not `person` in Slack by the executing process's settings."""
    return (
        f"By the bot's own settings {messages.escape(terminal_user or 'this user')} is not {messages.mention(person)} in Slack: "
        "nothing was decided or changed. QUOTEBOT_CLI_USERS of the bot says who is who; it reads it when it starts."
    )


def reused(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, that an earlier approval still holds and no one was asked again."""
    head = f"{messages.mention(approval.requested_by)} ✅ {title(quote)} was {decided_words(approval)}"
    return f"{head}. The PDF follows in this thread."


def reminder(quote: Quote, slot: Slot, approvers: tuple[str, ...], now: int) -> str:
    """Remind, in the thread, the approvers that a slot asks. `now` is Unix ms."""
    waited = "" if slot.opened_at is None else f" for {_hours(now - slot.opened_at)}"
    until = "" if slot.expires_at is None else f" The request expires {local_time(slot.expires_at)}."
    if not approvers:
        return f"⏰ {_deal(quote)} has been waiting{waited}, and no one holds the {role_words(slot.role)} role yet.{until}"
    return f"⏰ {messages.mentions(approvers)}, {_deal(quote)} has been waiting for you{waited}.{until}"


def reminder_of_one(quote: Quote, slot: Slot, now: int) -> str:
    """Remind one approver, below the message that asks them. `now` is Unix ms."""
    waited = "" if slot.opened_at is None else f" for {_hours(now - slot.opened_at)}"
    until = "" if slot.expires_at is None else f" It expires {local_time(slot.expires_at)}."
    subject = f"{messages.short(quote.account, SUBJECT_CHARACTERS_MAX)} · {title(quote)}, {messages.net(quote)},"
    return f"⏰ {subject} has waited{waited}. Decide in the message above.{until}"


def escalation(quote: Quote, slot: Slot, approvers: tuple[str, ...], now: int) -> str:
    """Ask more approvers, in the thread, or state that there is no one else to ask. `now` is Unix ms."""
    waited = "" if slot.opened_at is None else f" after {_hours(now - slot.opened_at)}"
    head = f"⏫ {title(quote)}: no answer from {role_words(slot.role)}{waited}"
    if not approvers:
        return f"{head}, and no one else can decide. It stays unapproved until someone holds this role."
    return f"{head}. {messages.mentions(approvers)} can decide now."


def reassignment(quote: Quote, slot: Slot, approvers: tuple[str, ...], gone: tuple[str, ...]) -> str:
    """Ask others, in the thread, because the people asked before may not approve any more; `gone` were asked personally."""
    who = f"{messages.mentions(gone)} is" if gone else f"Every {role_words(slot.role)} is"
    asked = f"Asked now: {messages.mentions(approvers)}." if approvers else "No one else holds a sufficient role now."
    return f"{title(quote)}: {who} no longer a full member of this workspace. {asked}"


def request_expired(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, that no one decided in time, and explain how to ask again."""
    open_roles = messages.approver_words(tuple(slot.role for slot in approval.slots if slot.state is SlotState.EXPIRED))
    asked = f"{open_roles} didn't decide about {title(quote)} in time"
    return f"⌛ {messages.mention(approval.requested_by)}, {asked}. It isn't approved. Submit it to ask again."


def _deal(quote: Quote) -> str:
    account = messages.short(quote.account, messages.ACCOUNT_CHARACTERS_MAX)
    return f"{account}, {messages.net(quote)} ({title(quote)}),"


def not_due(quote: Quote) -> str:
    """Result of a scheduled step whose slot is decided, escalated or not yet due. It is stored with the command, never posted."""
    return f"{title(quote)}: the slot is decided, or this is not due. Nothing was changed."


# Refuse a person who sends a command that only the scheduler may send.
SCHEDULED_ONLY = "Reminders are automatic. Nothing was changed."


# Refuse an approval under dual control that lacks a reason with an incident number.
INCIDENT_NEEDED = f"This approval needs a reason and an incident number, like {INCIDENT_EXAMPLE}."


def delegated(delegate: str, until: int, *, since: int | None = None) -> str:
    """Reply to a delegation that is in force until `until`, from now or from `since` (both Unix ms)."""
    begin = "" if since is None else f" from {_day(since)}"
    return f"{messages.mention(delegate)} approves for you{begin} through {_day(until - 1)}. `/quote delegate off` ends it."


def standing(delegations: tuple[Delegation, ...], user: str) -> str:
    """Reply with the delegations from and to a person, or state that there are none."""
    lines = [f"• {_absence(each, user)}" for each in delegations]
    if not lines:
        lines = ["No one is covering for you, and you aren't covering for anyone."]
    return "\n".join((*lines, "`/quote delegate @colleague until 2026-12-24` sets your cover. `/quote delegate off` ends it."))


def waiting_for(approvers: tuple[str, ...], delegations: tuple[Delegation, ...]) -> str:
    """Return the mentions of an open request's approvers; a delegate's names the absent person: "<@U2> (covering for <@U3>)"."""
    absent = {each.delegate: each.absent for each in delegations}
    named = [
        messages.mention(user) + (f" (covering for {messages.mention(absent[user])})" if user in absent else "")
        for user in approvers
    ]
    more = len(named) - messages.NAMED_MAX
    return ", ".join(named) if more <= 0 else f"{', '.join(named[: messages.NAMED_MAX])} and {more} more"


def _day(at: int) -> str:
    """Return the UTC day of a time in Unix ms: "24 Dec 2026"."""
    day = datetime.fromtimestamp(at / 1000, UTC)
    return f"{day.day} {day:%b %Y}"


def _absence(delegation: Delegation, user: str) -> str:
    period = f"{_day(delegation.since)} to {_day(delegation.until - 1)}"
    why = "" if delegation.reason is None else f" ({messages.short(delegation.reason, 200)})"
    if delegation.absent == user:
        return f"{messages.mention(delegation.delegate)} is covering for you, {period}{why}"
    return f"You're covering for {messages.mention(delegation.absent)}, {period}{why}"


# Reply to the end of a delegation.
BACK_IN_OFFICE = "Welcome back. Approval requests come to you again."


def delegation_refused(code: str, delegate: str | None) -> str:
    """Refuse a delegation, with the reason for this `code`."""
    who = "that person" if delegate is None else messages.mention(delegate)
    return {
        "not_yours": "Only you can set your own cover.",
        "no_authority": "You aren't an approver, so you don't need cover.",
        "to_oneself": "Pick someone other than yourself.",
        "until_past": "Choose an end date within the next year.",
        "ends_first": "The end date is before the start date.",
        "delegate_away": f"{who} is away then too. Pick someone else.",
        "lower_scope": f"{who} can't approve at your level. Pick someone who can.",
    }[code]


def _hours(ms: int) -> str:
    hours = max(ms, 0) // 3_600_000
    return "less than an hour" if hours == 0 else "an hour" if hours == 1 else f"{hours} hours"
