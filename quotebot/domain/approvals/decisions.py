"""Authorization of approval decisions, checked when the decision is made, not when the approval was requested.

Sentences name people as `<@U...>`, the form that every surface supports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, Slot, SlotState, local_time, state_words

if TYPE_CHECKING:
    from quotebot.domain.approvals.people import Person, Roles

NOT_KNOWN = "We couldn't verify your Slack account."


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
    when = "" if approval.decided_at is None else f", {local_time(approval.decided_at)}"
    if approval.state is ApprovalState.EXPIRED:
        return f"approval request expired{when}, no decision"
    if approval.state is ApprovalState.INVALIDATED:
        return f"withdrawn from approval{when}"
    verb = "changes requested" if approval.state is ApprovalState.CHANGES_REQUESTED else approval.state.value
    if approval.earlier is not None:
        return f"{verb}: the approval of {_version_of(approval.earlier)} by {_deciders(approval)} still covers this version"
    if approval.decided_by is None:
        return f"{verb} automatically: within policy"
    return f"{verb} by {_deciders(approval) or _named(approval.decided_by, approval.decided_role, None, approval.roles)}{when}"


def slot_words(slot: Slot, roles: Roles) -> str:
    """Return "Legal: approved by <@U...> (Legal), ..." or "Legal: pending" of one slot."""
    if slot.decided_at is None or slot.decided_by is None:
        return f"{roles.words(slot.role)}: {slot.state.value}"
    decider = _named(slot.decided_by, slot.decided_role or slot.role, slot.on_behalf_of, roles)
    return f"{roles.words(slot.role)}: {slot.state.value} by {decider}, {local_time(slot.decided_at)}"


def _already(quote: Quote, approval: Approval) -> str:
    words = decided_words(approval)
    if approval.state is ApprovalState.CHANGES_REQUESTED:
        return f"Changes to {quote.quote_id} were already requested{words.removeprefix('changes requested')}"
    return f"{quote.quote_id} was already {words}"


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
    return " and ".join(_named(by, " + ".join(held), absent, approval.roles) for (by, absent), held in roles.items())


def _named(user: str | None, role: str | None, absent: str | None, roles: Roles) -> str:
    instead = "" if absent is None else f", for <@{absent}>"
    return f"<@{user}>" if role is None else f"<@{user}> ({roles.words(role)}{instead})"


def _foreign(quote: Quote, person: Person) -> DecisionRefusal | None:
    if person.team and person.team == quote.team_id and person.kind != "stranger":
        return None
    return DecisionRefusal("foreign_team", f"{quote.quote_id} belongs to another workspace, so you can't decide about it.")


def _not_a_member(person: Person) -> DecisionRefusal | None:
    if person.kind == "member":
        return None
    if person.kind == "unknown":
        return DecisionRefusal("not_known", f"{NOT_KNOWN} Try again in a minute.")
    return DecisionRefusal(
        "not_a_member",
        "Guests and bots can't approve quotes.",
    )


def _stale(approval: Approval, quote: Quote) -> DecisionRefusal | None:
    if approval.quote_id == quote.quote_id and approval.quote_version == quote.version:
        return None
    return DecisionRefusal(
        "stale",
        f"This request was for {approval.quote_id} v{approval.quote_version}; the quote is now v{quote.version}. "
        f"Review v{quote.version} on its card.",
    )


def _decided(approval: Approval, quote: Quote) -> DecisionRefusal | None:
    if approval.state is ApprovalState.EXPIRED:
        return _lapsed(approval, quote, approval.decided_at)
    if approval.state not in (ApprovalState.PENDING, ApprovalState.INVALIDATED):
        return DecisionRefusal("already_decided", f"{_already(quote, approval)}. Your click changed nothing.")
    if quote.state is not QuoteState.PENDING_APPROVAL:
        return DecisionRefusal(
            "not_pending", f"{quote.quote_id} isn't waiting for approval any more (now: {state_words(quote.state)})."
        )
    return None


def _expired(quote: Quote, received_at: int | None) -> DecisionRefusal | None:
    if received_at is None or received_at < quote.valid_until:
        return None
    return DecisionRefusal(
        "expired",
        f"{quote.quote_id} expired {local_time(quote.valid_until)}.",
    )


def _request_expired(approval: Approval, quote: Quote, received_at: int | None) -> DecisionRefusal | None:
    ends = [slot.expires_at for slot in approval.slots if slot.is_open and slot.expires_at is not None]
    if received_at is None or not ends or received_at < min(ends):
        return None
    return _lapsed(approval, quote, min(ends))


def _lapsed(approval: Approval, quote: Quote, at: int | None) -> DecisionRefusal:
    when = "" if at is None else f" {local_time(at)}"
    return DecisionRefusal(
        "request_expired",
        f"The request to approve {quote.quote_id} expired{when}. <@{approval.requested_by}> can submit it again.",
    )


def _own_request(approval: Approval, quote: Quote, actor: str) -> DecisionRefusal | None:
    if actor not in _askers(approval, quote):
        return None
    roles = " and ".join(_role_or_higher(role, approval.roles) for role in approval.required_roles)
    asked = actor in (approval.requested_by, quote.requester)
    part = "You can't approve your own quote" if asked else f"You worked on {quote.quote_id}, so you can't approve it"
    return DecisionRefusal("own_request", f"{part}. It needs {roles}.")


def _askers(approval: Approval, quote: Quote) -> tuple[str, ...]:
    """Return the people who request the approval: neither they nor their substitutes may give it."""
    return (approval.requested_by, *quote.makers)


def _role_or_higher(required: str, roles: Roles) -> str:
    return f"{roles.words(required)} or above" if required in roles.ladder[:-1] else roles.words(required)


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
    missing = " and ".join(_role_or_higher(slot.role, approval.roles) for slot in approval.slots if slot.is_open)
    if not missing:  # defensive: a pending request always has an open slot
        return DecisionRefusal("missing_role", f"{quote.quote_id} names nobody who may decide about it. Nothing was changed.")
    theirs = [slot for slot in approval.slots if approval.roles.lowest(slot.roles, person.roles) is not None]
    if theirs:
        return _not_theirs_now(approval, quote, person.user, theirs, missing)
    absent = [_absent(slot, _askers(approval, quote), person, approval.roles) for slot in approval.slots if slot.is_open]
    for name in absent:
        if name is not None:
            return DecisionRefusal(
                "delegate_scope",
                f"Covering for <@{name}> isn't enough here: {quote.quote_id} needs {missing}.",
            )
    return DecisionRefusal("missing_role", f"Only {missing} can decide about {quote.quote_id}.")


def _not_theirs_now(approval: Approval, quote: Quote, user: str, theirs: list[Slot], missing: str) -> DecisionRefusal:
    """Refuse a person whose roles suffice for the slots `theirs` but who can decide none of them now."""
    still_open = [slot for slot in theirs if slot.is_open]
    if any(_has_decided(approval, user, _circle(slot, approval.roles)) for slot in still_open):
        return DecisionRefusal(
            "second_person",
            f"You've already approved {quote.quote_id}. Someone else has to approve too: {missing}.",
        )
    if still_open:
        who = ", ".join(f"<@{slot.assignee}>" for slot in still_open)
        return DecisionRefusal("not_asked", f"{quote.quote_id} is assigned to {who}.")
    done = "; ".join(slot_words(slot, approval.roles) for slot in theirs if slot.decided_by is not None)
    if done:
        return DecisionRefusal(
            "already_decided", f"{quote.quote_id}: {done}. Your click changed nothing; it still waits for {missing}."
        )
    return DecisionRefusal("not_your_turn", f"{missing} goes first. You'll be asked next about {quote.quote_id}.")
