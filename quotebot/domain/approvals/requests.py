"""Life cycle of an approval request: open, decide slot by slot, remind, escalate, expire. Each step returns the new value.

waiting --> pending --> escalated        any slot rejected, or the request's end: the others are closed
|            |
`------------+--> approved | rejected | expired
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from quotebot.domain.approvals.people import asked_people, higher_with_holders
from quotebot.domain.quotes.quote import UNDECIDED, Approval, ApprovalState, Quote, Slot, SlotState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from quotebot.domain.approvals.decisions import Mandate
    from quotebot.domain.approvals.people import Holders
    from quotebot.domain.approvals.policy import Need, PolicyDecision, Timing
    from quotebot.domain.approvals.roles import Roles

    Zones = Mapping[str, str]  # Slack user id -> IANA name

NOBODY_KNOWN: Final[Mapping[str, Any]] = MappingProxyType({})
REMIND_AGAIN_MS: Final = 3_600_000  # so long after the last reminder a person may ask for another one
DUAL = 2  # people required by a dual-control need
Answer = Literal["approve", "reject", "request_changes"]
_ENDS = {"reject": ApprovalState.REJECTED, "request_changes": ApprovalState.CHANGES_REQUESTED}


def open_request(
    approval_id: str,
    quote: Quote,
    policy: PolicyDecision,
    holders: Holders,
    *,
    asked_by: str,
    at: int,
    timing: Timing,
    zones: Zones = NOBODY_KNOWN,
) -> Approval:
    """Return a pending request with one slot per required decision; slots of the first stage open at `at` (Unix ms).

    `zones` are the time zones of the holders, by user id, as far as they are known.
    """
    askers = (asked_by, *quote.makers)
    opening = _Opening(at, timing, holders, askers, zones, policy.roles)
    slots = tuple(replace(slot, number=number) for number, slot in enumerate(_slots(policy.needs, opening), start=1))
    return Approval(
        approval_id=approval_id,
        quote_id=quote.quote_id,
        quote_version=quote.version,
        required_roles=policy.required_roles,
        reasons=policy.hits,
        state=ApprovalState.PENDING,
        requested_by=asked_by,
        requested_at=at,
        slots=slots,
    )


def answered(
    approval: Approval,
    mandate: Mandate,
    actor: str,
    answer: Answer,
    reason: str | None,
    *,
    at: int,
    timing: Timing,
    holders: Holders = NOBODY_KNOWN,
    zones: Zones = NOBODY_KNOWN,
) -> Approval:
    """Return the request after one person's decision: still pending, or approved, rejected or sent back for changes.

    `holders` and `zones` count for the slots that open then, as in `open_request`.
    """
    taken = {one.number: one for one in mandate.taken}
    state = SlotState.APPROVED if answer == "approve" else SlotState.REJECTED
    slots = tuple(
        replace(
            slot,
            state=state,
            decided_by=actor,
            decided_role=taken[slot.number].role,
            on_behalf_of=taken[slot.number].on_behalf_of,
            decided_at=at,
            reason=reason,
        )
        if slot.number in taken
        else slot
        for slot in approval.slots
    )
    if answer != "approve":
        ended = replace(approval, slots=tuple(_ended(slot, SlotState.CLOSED, at) for slot in slots))
        return _decided(ended, _ENDS[answer], actor, mandate.role, reason, at)
    if all(slot.state is SlotState.APPROVED for slot in slots):
        roles = " + ".join(slot.decided_role or slot.role for slot in slots)
        return _decided(replace(approval, slots=slots), ApprovalState.APPROVED, actor, roles, reason, at)
    opening = _Opening(at, timing, holders, (approval.requested_by,), zones, approval.roles)
    return replace(approval, slots=_next_stage(slots, opening))


def reminded(approval: Approval, number: int, at: int) -> Approval | None:
    """Return the request with the slot marked as reminded, or None if not due: decided, escalated, reminded already, or early."""
    slot = slot_of(approval, number)
    if slot is None or slot.state is not SlotState.PENDING or slot.reminded_at is not None or _early(slot.remind_at, at):
        return None
    return _with(approval, replace(slot, reminded_at=at))


def reminded_again(approval: Approval, at: int) -> Approval | tuple[Slot, ...]:
    """Return the request with each open slot marked as reminded, or the open slots last reminded less than REMIND_AGAIN_MS ago."""
    recent = tuple(
        slot for slot in approval.slots if slot.is_open and slot.reminded_at is not None and at < slot.reminded_at + REMIND_AGAIN_MS
    )
    slots = tuple(replace(slot, reminded_at=at) if slot.is_open else slot for slot in approval.slots)
    return recent or replace(approval, slots=slots)


def escalated(
    approval: Approval,
    number: int,
    holders: Holders,
    makers: tuple[str, ...],
    *,
    at: int,
    timing: Timing,
    zones: Zones = NOBODY_KNOWN,
) -> Approval | None:
    """Return the request with the slot escalated to a wider circle, or None when it is not due.

    The circle grows by the next higher rung with holders; off the ladder it is all holders of the same role. Escalation removes
    no one from the circle, adds no lower authority and decides nothing.
    """
    slot = slot_of(approval, number)
    if slot is None or not slot.is_open or _early(slot.escalate_at, at):
        return None
    askers = (approval.requested_by, *makers)
    asked = slot.asked or slot.roles
    peers = {user for role in asked for user in holders.get(role, ())} - {*askers, slot.assignee}
    if slot.assignee is None or not peers:
        higher = higher_with_holders(asked, holders, askers, approval.roles)
        asked = asked if higher is None else (*asked, higher)
    more_to_ask = higher_with_holders(asked, holders, askers, approval.roles) is not None
    wider = replace(slot, state=SlotState.ESCALATED, asked=asked, assignee=None, escalated_at=at)
    opening = _Opening(at, timing, holders, askers, zones, approval.roles)
    return _with(approval, replace(wider, escalate_at=opening.due(wider, timing.escalate_ms) if more_to_ask else None))


def reassigned(approval: Approval, number: int, holders: Holders, makers: tuple[str, ...], gone: frozenset[str]) -> Approval | None:
    """Return the request with the slot put to others, or None if it still asks someone, or if there is no one else.

    `gone` are holders who may not approve any more; `holders` are the others. A slot that was put to one of them is put to their
    role. If no holder of the asked roles is left, the next higher role with holders is asked too, as by an escalation.
    """
    slot = slot_of(approval, number)
    if slot is None or not slot.is_open:
        return None
    moved = replace(slot, assignee=None) if slot.assignee in gone else slot
    askers, asked = (approval.requested_by, *makers), slot.asked or slot.roles
    if moved.assignee is None and not {user for role in asked for user in holders.get(role, ())} - set(askers):
        higher = higher_with_holders(asked, holders, askers, approval.roles)
        moved = moved if higher is None else replace(moved, asked=(*asked, higher))
    return None if moved == slot else _with(approval, moved)


def expired(approval: Approval, number: int, at: int) -> Approval | None:
    """Return the request as expired, undecided, or None when the slot is not due."""
    slot = slot_of(approval, number)
    if slot is None or not slot.is_open or approval.state is not ApprovalState.PENDING or _early(slot.expires_at, at):
        return None
    slots = tuple(_ended(each, SlotState.EXPIRED if each.is_open else SlotState.CLOSED, at) for each in approval.slots)
    return replace(approval, slots=slots, state=ApprovalState.EXPIRED, decided_at=at)


def invalidated(approval: Approval, at: int) -> Approval:
    """Return a pending request as withdrawn because its quote changed or ended; a decided one is returned unchanged."""
    if approval.state is not ApprovalState.PENDING:
        return approval
    slots = tuple(_ended(slot, SlotState.CLOSED, at) for slot in approval.slots)
    return replace(approval, slots=slots, state=ApprovalState.INVALIDATED, decided_at=at)


def slot_of(approval: Approval, number: int) -> Slot | None:
    """Return a slot by its number."""
    return next((slot for slot in approval.slots if slot.number == number), None)


@dataclass(frozen=True, slots=True)
class _Opening:
    """Everything that the deadlines of a slot depend on, when it opens or is escalated."""

    at: int
    timing: Timing
    holders: Holders
    askers: tuple[str, ...]
    zones: Zones
    roles: Roles

    def due(self, slot: Slot, ms: int) -> int:
        """Return the time `ms` from now: business hours of the people asked, if the policy has a calendar."""
        if self.timing.calendar is None:
            return self.at + ms
        asked = asked_people(slot, self.holders, (), self.askers, self.roles)
        return self.timing.after(ms, self.at, [self.zones.get(user) or self.timing.calendar.zone for user in asked])


def _slots(needs: Iterable[Need], opening: _Opening) -> Iterator[Slot]:
    """Yield the unnumbered slots: one per need, two under dual control, one per holder if the whole group must approve."""
    for need in needs:
        slot = Slot(number=0, roles=need.roles, stage=need.stage, asked=need.roles, dual_control=need.dual_control)
        group = [user for role in need.roles for user in opening.holders.get(role, ()) if user not in opening.askers]
        if need.people == "all" and len(group) > 1:
            found = [replace(slot, assignee=user) for user in dict.fromkeys(group)]
        else:
            found = [slot] * (DUAL if need.dual_control else 1)
        yield from (_opened(each, opening) if need.stage == 1 else replace(each, state=SlotState.WAITING) for each in found)


def _opened(slot: Slot, opening: _Opening) -> Slot:
    """Return an open slot. Its expiry is put off as far as the calendar puts off its escalation."""
    at, timing = opening.at, opening.timing
    escalate_at = opening.due(slot, timing.escalate_ms)
    return replace(
        slot,
        state=SlotState.PENDING,
        opened_at=at,
        remind_at=opening.due(slot, timing.remind_ms),
        escalate_at=escalate_at,
        expires_at=escalate_at + timing.expire_ms - timing.escalate_ms,
    )


def _next_stage(slots: tuple[Slot, ...], opening: _Opening) -> tuple[Slot, ...]:
    """Open the first waiting stage once no slot of an earlier one is open."""
    waiting = [slot.stage for slot in slots if slot.state is SlotState.WAITING]
    if not waiting or any(slot.is_open for slot in slots):
        return slots
    return tuple(_opened(slot, opening) if slot.stage == min(waiting) else slot for slot in slots)


def _decided(approval: Approval, state: ApprovalState, actor: str, role: str, reason: str | None, at: int) -> Approval:
    return replace(approval, state=state, decided_by=actor, decided_role=role, decided_at=at, decision_reason=reason)


def _ended(slot: Slot, state: SlotState, at: int) -> Slot:
    return replace(slot, state=state, decided_at=at) if slot.state in UNDECIDED else slot


def _with(approval: Approval, changed: Slot) -> Approval:
    return replace(approval, slots=tuple(changed if slot.number == changed.number else slot for slot in approval.slots))


def _early(due_at: int | None, at: int) -> bool:
    return due_at is None or at < due_at
