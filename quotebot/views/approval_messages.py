"""Messages about an open approval: progress, reminders, escalations, delegations. Text is Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.approvals.decisions import decided_words, slot_words
from quotebot.domain.approvals.requests import REMIND_AGAIN_MS
from quotebot.domain.approvals.roles import PACKAGED
from quotebot.domain.language import N_, _, grouped, ngettext
from quotebot.domain.quotes.quote import Approval, Quote, Slot, SlotState, local_day, local_time, title
from quotebot.views import messages
from quotebot.views.confirmations import show_blocks

if TYPE_CHECKING:
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.approvals.roles import Roles
    from quotebot.views.blocks import Json

INCIDENT_EXAMPLE = "INC-4711"


def progress(quote: Quote, approval: Approval, approvers: tuple[str, ...]) -> str:
    """Notice in the thread: list the approvals given so far, and ask for the missing ones."""
    given = "; ".join(slot_words(slot, approval.roles) for slot in approval.slots if slot.state is SlotState.APPROVED)
    missing = messages.approver_words(tuple(slot.role for slot in approval.slots if slot.is_open), approval.roles)
    facts = {"quote": title(quote), "given": given, "roles": missing}
    if not approvers:
        return _("✅ {quote}: {given}. It still needs {roles}, and no one holds that role now.", **facts)
    people = messages.mentions(approvers)
    return _("✅ {quote}: {given}. {people}, you're next: it still needs {roles}.", people=people, **facts)


def changes_requested(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, of the changes requested and of the approver who requests them."""
    requester = messages.mention(approval.requested_by)
    if approval.decided_by is None:
        head = _("{requester} ✏️ an approver requested changes to {quote}", requester=requester, quote=title(quote))
    else:
        by = messages.mention(approval.decided_by)
        head = _("{requester} ✏️ {person} requested changes to {quote}", requester=requester, person=by, quote=title(quote))
    return head if approval.decision_reason is None else f"{head}:\n{messages.quoted(approval.decision_reason)}"


def not_reached(quote_id: str, user: str) -> str:
    """Ask an approver in the thread whom no direct message reached."""
    who = messages.mention(user)
    return _(
        "{person}, a direct message about {quote} did not reach you. Please decide on your Home tab.", person=who, quote=quote_id
    )


def acted_for_others(quote_id: str) -> str:
    """Refuse the decision of a person who acted on the quote in another person's name."""
    return _(
        "You acted on {quote} in another person's name, so somebody else has to decide about it. Nothing was changed.",
        quote=quote_id,
    )


def misnamed(terminal_user: str | None, person: str) -> str:
    """Refuse a decision from a terminal whose user is not `person` in Slack by the executing process's settings."""
    return _(
        "By the bot's own settings {user} is not {person} in Slack: nothing was decided or changed. QUOTEBOT_CLI_USERS of the bot "
        "says who is who; it reads it when it starts.",
        user=messages.escape(terminal_user) if terminal_user else _("this user"),
        person=messages.mention(person),
    )


def reused(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, that an earlier approval still holds and no one was asked again."""
    return _(
        "{person} ✅ {quote} was {decided}. The PDF follows in this thread.",
        person=messages.mention(approval.requested_by),
        quote=title(quote),
        decided=decided_words(approval),
    )


def reminder(quote: Quote, slot: Slot, approvers: tuple[str, ...], now: int) -> str:
    """Remind, in the thread, the approvers that a slot asks. `now` is Unix ms."""
    facts = {**_deal(quote), "span": _span(slot, now)}
    if approvers:
        people = messages.mentions(approvers)
        text = _("⏰ {people}, {customer} ({total}) has been waiting for you for {span}.", people=people, **facts)
    else:
        nobody = N_("⏰ {customer} ({total}) has been waiting for {span}, and no one holds the {role} role yet.")
        text = _(nobody, role=_roles(quote, slot), **facts)
    return text if slot.expires_at is None else text + " " + _("Expires {time}.", time=local_time(slot.expires_at))


def reminder_of_one(quote: Quote, slot: Slot, now: int) -> str:
    """Remind one approver, below the message that asks them. `now` is Unix ms."""
    text = _(
        "⏰ {customer} · {quote}, {total}, has waited for {span}. Decide in the message above.",
        **_deal(quote),
        span=_span(slot, now),
    )
    return text if slot.expires_at is None else text + " " + _("Expires {time}.", time=local_time(slot.expires_at))


def to_decide(text: str, quote: Quote) -> list[Json]:
    """Return a reminder in the thread with a button that shows the quote to one person, with the buttons of their decision."""
    return show_blocks(text, quote.quote_id, quote.version, _("Decide"))


def escalation(quote: Quote, slot: Slot, approvers: tuple[str, ...], now: int) -> str:
    """Ask more approvers, in the thread, or state that there is no one else to ask. `now` is Unix ms."""
    facts = {"quote": title(quote), "role": _roles(quote, slot), "span": _span(slot, now)}
    if not approvers:
        nobody = N_(
            "⏫ {quote}: no answer from {role} after {span}, and no one else can decide. "
            "It stays unapproved until someone holds this role."
        )
        return _(nobody, **facts)
    people = messages.mentions(approvers)
    return _("⏫ {quote}: no answer from {role} after {span}. {people} can decide now.", people=people, **facts)


def reassignment(quote: Quote, slot: Slot, approvers: tuple[str, ...], gone: tuple[str, ...]) -> str:
    """Ask others, in the thread, because the people asked before may not approve any more; `gone` were asked personally."""
    if gone:
        left = _(
            "{quote}: {people} is no longer a full member of this workspace.", quote=title(quote), people=messages.mentions(gone)
        )
    else:
        role = _roles(quote, slot)
        left = _("{quote}: Every {role} is no longer a full member of this workspace.", quote=title(quote), role=role)
    if approvers:
        return left + " " + _("Asked now: {people}.", people=messages.mentions(approvers))
    return left + " " + _("No one else holds a sufficient role now.")


def request_expired(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, that no one decided in time, and explain how to ask again."""
    open_roles = messages.approver_words(
        tuple(slot.role for slot in approval.slots if slot.state is SlotState.EXPIRED), approval.roles
    )
    return _(
        "⌛ {person}, {roles} didn't decide about {quote} in time. It isn't approved. Submit it to ask again.",
        person=messages.mention(approval.requested_by),
        roles=open_roles,
        quote=title(quote),
    )


def _roles(quote: Quote, slot: Slot) -> str:
    return (PACKAGED if quote.approval is None else quote.approval.roles).words(slot.role)


def _deal(quote: Quote) -> dict[str, str]:
    account = messages.short(quote.account, messages.ACCOUNT_CHARACTERS_MAX)
    return {"customer": account, "total": messages.net(quote), "quote": title(quote)}


def not_due(quote: Quote) -> str:
    """Result of a scheduled step whose slot is decided, escalated or not yet due. It is stored with the command, never posted."""
    return _("{quote}: the slot is decided, or this is not due. Nothing was changed.", quote=title(quote))


def nobody_to_remind(quote: Quote) -> str:
    """Refuse to remind about a request that is decided or over."""
    ended = N_(
        "That approval request for {quote} isn't open anymore, so there's no one to remind. Its card shows what's possible now."
    )
    return _(ended, quote=title(quote))


def reminded_already(slots: tuple[Slot, ...], roles: Roles) -> str:
    """Refuse to remind again so soon after the last reminder about these slots."""
    last = max(slot.reminded_at or 0 for slot in slots)
    return _(
        "The last reminder to {roles} was sent {time}. You can remind again from {again}.",
        roles=messages.approver_words(tuple(dict.fromkeys(slot.role for slot in slots)), roles),
        time=local_time(last),
        again=local_time(last + REMIND_AGAIN_MS),
    )


# Refuse a person who sends a command that only the scheduler may send.
SCHEDULED_ONLY = N_("Reminders are automatic. Nothing was changed.")


# Refuse an approval under dual control that lacks a reason with an incident number.
INCIDENT_NEEDED = N_("This approval needs a reason and an incident number, like INC-4711.")


def delegated(delegate: str, until: int, zone: str, *, since: int | None = None) -> str:
    """Reply to a delegation that is in force until `until`, from now or from `since` (both Unix ms).

    `zone`, here and below, is the reader's IANA time zone.
    """
    person, last = messages.mention(delegate), local_day(until - 1, zone)
    if since is None:
        return _("{person} approves for you through {last}. `/quote delegate off` ends it.", person=person, last=last)
    first = local_day(since, zone)
    return _(
        "{person} approves for you from {first} through {last}. `/quote delegate off` ends it.",
        person=person,
        first=first,
        last=last,
    )


def standing(delegations: tuple[Delegation, ...], user: str, zone: str) -> str:
    """Reply with the delegations from and to a person, or state that there are none."""
    lines = [f"• {_absence(each, user, zone)}" for each in delegations]
    if not lines:
        lines = [_("No one is covering for you, and you aren't covering for anyone.")]
    hint = _("`/quote delegate @colleague until 2026-12-24` sets your cover. `/quote delegate off` ends it.")
    return "\n".join((*lines, hint))


def waiting_for(approvers: tuple[str, ...], delegations: tuple[Delegation, ...]) -> str:
    """Return the mentions of an open request's approvers; a delegate's names the absent person: "<@U2> (covering for <@U3>)"."""
    absent = {each.delegate: each.absent for each in delegations}
    named = [_standing_in(user, absent[user]) if user in absent else messages.mention(user) for user in approvers]
    more = len(named) - messages.NAMED_MAX
    if more <= 0:
        return ", ".join(named)
    return _("{people} and {n} more", people=", ".join(named[: messages.NAMED_MAX]), n=grouped(more))


def _standing_in(delegate: str, absent: str) -> str:
    return _("{person} (covering for {absent})", person=messages.mention(delegate), absent=messages.mention(absent))


def covered_by(delegation: Delegation, now: int, zone: str) -> str:
    """Tell the absent person who covers for them, and until which day. `now` is Unix ms."""
    who, last = messages.mention(delegation.delegate), local_day(delegation.until - 1, zone)
    if delegation.since <= now:
        return _("{person} covers for you through {last}", person=who, last=last)
    first = local_day(delegation.since, zone)
    return _("{person} covers for you from {first} through {last}", person=who, first=first, last=last)


def covering(delegation: Delegation, now: int, zone: str) -> str:
    """Tell the delegate, in a direct message, for whom they cover. `now` is Unix ms."""
    who, last = messages.mention(delegation.absent), local_day(delegation.until - 1, zone)
    if delegation.since <= now:
        text = _("You cover for {person} through {last}. Approval requests for them come to you.", person=who, last=last)
    else:
        text = _(
            "You cover for {person} from {first} through {last}. Approval requests for them come to you.",
            person=who,
            first=local_day(delegation.since, zone),
            last=last,
        )
    return text if delegation.reason is None else f"{text}\n> {messages.short(delegation.reason, 200)}"


def covering_ended(absent: str) -> str:
    """Tell a delegate, in a direct message, that the absent person ended it."""
    return _("You no longer cover for {person}. Approval requests for them go to them again.", person=messages.mention(absent))


def covering_replaced(absent: str, instead: str) -> str:
    """Tell a delegate, in a direct message, that the absent person named another one for an overlapping time."""
    return _(
        "You no longer cover for {person}: {instead} does.", person=messages.mention(absent), instead=messages.mention(instead)
    )


def _absence(delegation: Delegation, user: str, zone: str) -> str:
    first, last = local_day(delegation.since, zone), local_day(delegation.until - 1, zone)
    why = "" if delegation.reason is None else f" ({messages.short(delegation.reason, 200)})"
    if delegation.absent == user:
        delegate = messages.mention(delegation.delegate)
        return _("{person} is covering for you, {first} to {last}", person=delegate, first=first, last=last) + why
    absent = messages.mention(delegation.absent)
    return _("You're covering for {person}, {first} to {last}", person=absent, first=first, last=last) + why


# Reply to the end of a delegation.
BACK_IN_OFFICE = N_("Welcome back. Approval requests come to you again.")


def delegation_refused(code: str, delegate: str | None) -> str:
    """Refuse a delegation, with the reason for this `code`."""
    return _(_REFUSED[code], person=_("that person") if delegate is None else messages.mention(delegate))


_REFUSED: Final = {
    "not_yours": N_("Only you can set your own cover."),
    "no_authority": N_("You aren't an approver, so you don't need cover."),
    "to_oneself": N_("Pick someone other than yourself."),
    "until_past": N_("Choose an end date within the next year."),
    "ends_first": N_("The end date is before the start date."),
    "delegate_away": N_("{person} is away then too. Pick someone else."),
    "lower_scope": N_("{person} can't approve at your level. Pick someone who can."),
}


def _span(slot: Slot, now: int) -> str:
    """Return how long a slot has been open: "2 hours"."""
    hours = max(now - (slot.opened_at or now), 0) // 3_600_000
    if hours == 0:
        return _("less than an hour")
    return _("an hour") if hours == 1 else ngettext("{n} hour", "{n} hours", hours)
