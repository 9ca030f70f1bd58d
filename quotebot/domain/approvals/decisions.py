"""Authorization of approval decisions, checked when the decision is made, not when the approval was requested.

Sentences name people as `<@U...>`, the form that every surface supports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.domain.language import N_, _, listed
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, Slot, SlotState, local_time, state_words

if TYPE_CHECKING:
    from quotebot.domain.approvals.people import Person
    from quotebot.domain.approvals.roles import Roles

_DECIDED: Final = {
    ApprovalState.APPROVED: N_("approved by {people}"),
    ApprovalState.REJECTED: N_("rejected by {people}"),
    ApprovalState.CHANGES_REQUESTED: N_("changes requested by {people}"),
}
_SLOTS: Final = {
    SlotState.WAITING: N_("waiting"),
    SlotState.PENDING: N_("pending"),
    SlotState.ESCALATED: N_("escalated"),
    SlotState.APPROVED: N_("approved"),
    SlotState.REJECTED: N_("rejected"),
    SlotState.EXPIRED: N_("expired"),
    SlotState.CLOSED: N_("closed"),
}


@dataclass(frozen=True, slots=True)
class DecisionRefusal:
    """Refusal of a decision. `code` is for programs; `sentence` gives the person the result, the reason and the next step.

    Codes: foreign_team, not_a_member, not_known, stale, already_decided, not_pending, expired, request_expired, own_request,
    missing_role, delegate_scope, second_person, not_asked, not_your_turn.
    """

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Taken:
    """One slot that a person may decide, the role used, and the absent person they substitute for, if any."""

    number: int
    role: str
    on_behalf_of: str | None = None


@dataclass(frozen=True, slots=True)
class Mandate:
    """Slots covered by one decision of one person: at most one commercial slot, and every orthogonal one they may decide."""

    taken: tuple[Taken, ...]

    @property
    def role(self) -> str:
        """Roles under which the person decides: "vp_sales", "deal_desk + legal"."""
        return " + ".join(one.role for one in self.taken)


def may_decide(approval: Approval, quote: Quote, person: Person, *, received_at: int | None = None) -> DecisionRefusal | Mandate:
    """Return which slots of `approval`, a request about `quote` (the head version), the person may decide now, or the refusal.

    `received_at` (Unix ms) is the arrival time of the decision; with it, an expired quote or request is refused.
    """
    refusal = (
        _foreign(quote, person)
        or _not_a_member(person)
        or _stale(approval, quote)
        or _decided(approval, quote)
        or _expired(quote, received_at)
        or _request_expired(approval, quote, received_at)
        or _own_request(approval, quote, person.user)
    )
    if refusal is not None:
        return refusal
    taken = _mandate(approval, quote, person)
    return Mandate(taken) if taken else _nothing_to_decide(approval, quote, person)


def decided_words(approval: Approval) -> str:
    """Return "approved by <@U...> (CFO), 21 Nov 2026, 10:31 UTC" or "approved automatically: within policy"."""
    if approval.state is ApprovalState.EXPIRED:
        if approval.decided_at is None:
            return _("approval request expired, no decision")
        return _("approval request expired, {time}, no decision", time=local_time(approval.decided_at))
    if approval.state is ApprovalState.INVALIDATED:
        return _dated(_("withdrawn from approval"), approval.decided_at)
    people = _deciders(approval)
    if approval.earlier is not None:
        still = N_("approved: the approval of {version} by {people} still covers this version")
        return _(still, version=_version_of(approval.earlier), people=people)
    if approval.decided_by is None:
        return _("approved automatically: within policy")
    people = people or _named(approval.decided_by, approval.decided_role, None, approval.roles)
    return _dated(_(_DECIDED[approval.state], people=people), approval.decided_at)


def slot_words(slot: Slot, roles: Roles) -> str:
    """Return "Legal: approved by <@U...> (Legal), ..." or "Legal: pending" of one slot."""
    said = _(_SLOTS[slot.state])
    if slot.decided_at is not None and slot.decided_by is not None:
        state = ApprovalState.APPROVED if slot.state is SlotState.APPROVED else ApprovalState.REJECTED
        decider = _named(slot.decided_by, slot.decided_role or slot.role, slot.on_behalf_of, roles)
        said = _dated(_(_DECIDED[state], people=decider), slot.decided_at)
    return f"{roles.words(slot.role)}: {said}"


def _dated(event: str, at: int | None) -> str:
    return event if at is None else _("{event}, {time}", event=event, time=local_time(at))


def _already(quote: Quote, approval: Approval) -> str:
    if approval.state is ApprovalState.CHANGES_REQUESTED:
        requested = N_("Changes to {quote} were already requested by {people}")
        return _dated(_(requested, quote=quote.quote_id, people=_deciders(approval)), approval.decided_at)
    return _("{quote} was already {decided}", quote=quote.quote_id, decided=decided_words(approval))


def _version_of(approval_id: str) -> str:
    """Return "v1" from the id of a request, "A-2026-0042-v1-1"."""
    return next((part for part in approval_id.split("-") if part.startswith("v")), approval_id)


def _deciders(approval: Approval) -> str:
    """Name the deciders, each once with all roles used; after a rejection only those who rejected."""
    decided = [slot for slot in approval.slots if slot.decided_by is not None]
    decisive = [slot for slot in decided if slot.state is SlotState.REJECTED] or decided
    roles: dict[tuple[str, str | None], list[str]] = {}
    for slot in decisive:
        roles.setdefault((slot.decided_by or "", slot.on_behalf_of), []).append(slot.decided_role or slot.role)
    return listed([_named(by, " + ".join(held), absent, approval.roles) for (by, absent), held in roles.items()])


def _named(user: str | None, role: str | None, absent: str | None, roles: Roles) -> str:
    if role is None:
        return f"<@{user}>"
    if absent is None:
        return f"<@{user}> ({roles.words(role)})"
    return _("{person} ({role}, for {absent})", person=f"<@{user}>", role=roles.words(role), absent=f"<@{absent}>")


def _foreign(quote: Quote, person: Person) -> DecisionRefusal | None:
    if person.team and person.team == quote.team_id and person.kind != "stranger":
        return None
    sentence = _("{quote} belongs to another workspace, so you can't decide about it.", quote=quote.quote_id)
    return DecisionRefusal("foreign_team", sentence)


def _not_a_member(person: Person) -> DecisionRefusal | None:
    if person.kind == "member":
        return None
    if person.kind == "unknown":
        return DecisionRefusal("not_known", _("We couldn't verify your Slack account. Try again in a minute."))
    return DecisionRefusal("not_a_member", _("Guests and bots can't approve quotes."))


def _stale(approval: Approval, quote: Quote) -> DecisionRefusal | None:
    if approval.quote_id == quote.quote_id and approval.quote_version == quote.version:
        return None
    stale = N_("This request was for {quote} v{version}; the quote is now v{current}. Review v{current} on its card.")
    sentence = _(stale, quote=approval.quote_id, version=approval.quote_version, current=quote.version)
    return DecisionRefusal("stale", sentence)


def _decided(approval: Approval, quote: Quote) -> DecisionRefusal | None:
    if approval.state is ApprovalState.EXPIRED:
        return _lapsed(approval, quote, approval.decided_at)
    if approval.state not in (ApprovalState.PENDING, ApprovalState.INVALIDATED):
        sentence = _("{event}. Your click changed nothing.", event=_already(quote, approval))
        return DecisionRefusal("already_decided", sentence)
    if quote.state is not QuoteState.PENDING_APPROVAL:
        state = state_words(quote.state)
        sentence = _("{quote} isn't waiting for approval any more (now: {state}).", quote=quote.quote_id, state=state)
        return DecisionRefusal("not_pending", sentence)
    return None


def _expired(quote: Quote, received_at: int | None) -> DecisionRefusal | None:
    if received_at is None or received_at < quote.valid_until:
        return None
    return DecisionRefusal("expired", _("{quote} expired {time}.", quote=quote.quote_id, time=local_time(quote.valid_until)))


def _request_expired(approval: Approval, quote: Quote, received_at: int | None) -> DecisionRefusal | None:
    ends = [slot.expires_at for slot in approval.slots if slot.is_open and slot.expires_at is not None]
    if received_at is None or not ends or received_at < min(ends):
        return None
    return _lapsed(approval, quote, min(ends))


def _lapsed(approval: Approval, quote: Quote, at: int | None) -> DecisionRefusal:
    facts = {"quote": quote.quote_id, "person": f"<@{approval.requested_by}>"}
    if at is None:
        return DecisionRefusal(
            "request_expired", _("The request to approve {quote} expired. {person} can submit it again.", **facts)
        )
    sentence = _("The request to approve {quote} expired {time}. {person} can submit it again.", time=local_time(at), **facts)
    return DecisionRefusal("request_expired", sentence)


def _own_request(approval: Approval, quote: Quote, actor: str) -> DecisionRefusal | None:
    if actor not in _askers(approval, quote):
        return None
    roles = listed([_role_or_higher(role, approval.roles) for role in approval.required_roles])
    if actor in (approval.requested_by, quote.requester):
        return DecisionRefusal("own_request", _("You can't approve your own quote. It needs {roles}.", roles=roles))
    worked = N_("You worked on {quote}, so you can't approve it. It needs {roles}.")
    return DecisionRefusal("own_request", _(worked, quote=quote.quote_id, roles=roles))


def _askers(approval: Approval, quote: Quote) -> tuple[str, ...]:
    """Return the people who request the approval: neither they nor their substitutes may give it."""
    return (approval.requested_by, *quote.makers)


def _role_or_higher(required: str, roles: Roles) -> str:
    words = roles.words(required)
    return _("{role} or above", role=words) if required in roles.ladder[:-1] else words


def _mandate(approval: Approval, quote: Quote, person: Person) -> tuple[Taken, ...]:
    """Return one slot per circle of authority (the ladder, and each orthogonal role) in which the person has not decided."""
    taken: dict[str, Taken] = {}
    for slot in sorted(approval.slots, key=lambda one: (not _is_meant(one, person), one.number)):
        circle = _circle(slot, approval.roles)
        found = _may_take(slot, approval, quote, person) if slot.is_open else None
        if found is not None and circle not in taken and not _has_decided(approval, person.user, circle):
            taken[circle] = found
    return tuple(sorted(taken.values(), key=lambda one: one.number))


def _may_take(slot: Slot, approval: Approval, quote: Quote, person: Person) -> Taken | None:
    role = approval.roles.lowest(slot.roles, person.roles)
    if role is None:
        return None
    absent = _absent(slot, _askers(approval, quote), person, approval.roles)
    if slot.assignee not in (None, person.user, absent):
        return None
    return Taken(slot.number, role, absent)


def _absent(slot: Slot, askers: tuple[str, ...], person: Person, roles: Roles) -> str | None:
    """Return the absent person whom the slot asks and this person substitutes for, never one of the requesters; or None."""
    for one in person.stands_in_for:
        asked = one.absent == slot.assignee if slot.assignee is not None else bool(one.roles & set(slot.asked or slot.roles))
        if asked and one.absent not in askers and roles.lowest(slot.roles, one.roles) is not None:
            return one.absent
    return None


def _is_meant(slot: Slot, person: Person) -> bool:
    """Return whether the slot asks this person directly, so that it takes precedence over others they may decide."""
    absent = {one.absent for one in person.stands_in_for}
    if slot.assignee is not None:
        return slot.assignee == person.user or slot.assignee in absent
    return bool(person.roles & set(slot.roles))


def _circle(slot: Slot, roles: Roles) -> str:
    """Return the first role of the ladder for every slot on it, and the groups of another one."""
    return roles.ladder[0] if set(slot.roles) & set(roles.ladder) else slot.role


def _has_decided(approval: Approval, user: str, circle: str) -> bool:
    return any(slot.decided_by == user and _circle(slot, approval.roles) == circle for slot in approval.slots)


def _nothing_to_decide(approval: Approval, quote: Quote, person: Person) -> DecisionRefusal:
    """Return the reason why the person may decide none of the open slots."""
    missing = listed([_role_or_higher(slot.role, approval.roles) for slot in approval.slots if slot.is_open])
    if not missing:  # defensive: a pending request always has an open slot
        return DecisionRefusal(
            "missing_role", _("{quote} names nobody who may decide about it. Nothing was changed.", quote=quote.quote_id)
        )
    theirs = [slot for slot in approval.slots if approval.roles.lowest(slot.roles, person.roles) is not None]
    if theirs:
        return _not_theirs_now(approval, quote, person.user, theirs, missing)
    absent = [_absent(slot, _askers(approval, quote), person, approval.roles) for slot in approval.slots if slot.is_open]
    for name in absent:
        if name is not None:
            scope = N_("Covering for {person} isn't enough here: {quote} needs {roles}.")
            return DecisionRefusal("delegate_scope", _(scope, person=f"<@{name}>", quote=quote.quote_id, roles=missing))
    return DecisionRefusal("missing_role", _("Only {roles} can decide about {quote}.", roles=missing, quote=quote.quote_id))


def _not_theirs_now(approval: Approval, quote: Quote, user: str, theirs: list[Slot], missing: str) -> DecisionRefusal:
    """Refuse a person whose roles suffice for the slots `theirs` but who can decide none of them now."""
    still_open = [slot for slot in theirs if slot.is_open]
    if any(_has_decided(approval, user, _circle(slot, approval.roles)) for slot in still_open):
        second = N_("You've already approved {quote}. Someone else has to approve too: {roles}.")
        return DecisionRefusal("second_person", _(second, quote=quote.quote_id, roles=missing))
    if still_open:
        who = ", ".join(f"<@{slot.assignee}>" for slot in still_open)
        return DecisionRefusal("not_asked", _("{quote} is assigned to {people}.", quote=quote.quote_id, people=who))
    done = "; ".join(slot_words(slot, approval.roles) for slot in theirs if slot.decided_by is not None)
    if done:
        waits = N_("{quote}: {done}. Your click changed nothing; it still waits for {roles}.")
        return DecisionRefusal("already_decided", _(waits, quote=quote.quote_id, done=done, roles=missing))
    first = N_("{roles} goes first. You'll be asked next about {quote}.")
    return DecisionRefusal("not_your_turn", _(first, roles=missing, quote=quote.quote_id))
