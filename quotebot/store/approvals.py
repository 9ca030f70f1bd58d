"""Persistence of approval requests, their slots and delegations, inside an open ledger transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot.domain.approvals.calendars import calendar_document, read_calendar
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.approvals.policy import Timing, without_margin_figures
from quotebot.domain.approvals.policy_document import read_roles, roles_document
from quotebot.domain.approvals.reuse import EarlierApproval
from quotebot.domain.approvals.roles import PACKAGED
from quotebot.domain.pricing import engine as pricing_rules
from quotebot.domain.quotes.quote import Approval, ApprovalState, PolicyStamp, Slot, SlotState
from quotebot.domain.schedule.schedules import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ledger.database import Row, Tx
    from quotebot.commands.payloads import DelegateApprovals
    from quotebot.domain.rules import Rules

UNIX_MS_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Copy:
    """Direct message that asks one person to decide one request. `post_key` is the effect that posts it.

    `lost`: it was last drawn for a person without the authority to decide. `drawings` counts those after the first one.
    """

    approval_id: str
    user_id: str
    post_key: str
    channel: str | None  # None until it was posted
    ts: str | None
    shown: bool  # it is posted, or will be
    lost: bool
    drawings: int

    @property
    def awaited(self) -> str | None:
        """Return the effect that an update waits for; None once it is posted, because the effect may have been purged since."""
        return self.post_key if self.ts is None else None


def find(tx: Tx, approval_id: str) -> Approval | None:
    """Return a request by its id, or None."""
    row = tx.one("approval_of_id", approval_id=approval_id)
    return None if row is None else _approval(tx, row)


def copies(tx: Tx, approval_id: str) -> list[Copy]:
    """Return the direct messages of a request."""
    return [_copy(row) for row in tx.all("approval_copies", approval_id=approval_id, user_id=None)]


def copy_of(tx: Tx, approval_id: str, user: str) -> Copy | None:
    """Return the direct message that asks a person to decide a request, or None."""
    row = tx.one("approval_copies", approval_id=approval_id, user_id=user)
    return None if row is None else _copy(row)


def asked_by(tx: Tx, operation_id: int) -> frozenset[str]:
    """Return the people whom a command asks in a direct message."""
    return frozenset(row["user_id"] for row in tx.all("approval_copies_of_operation", operation_id=operation_id))


def add_copy(tx: Tx, approval_id: str, user: str, post_key: str, now: int) -> None:
    """Record that a person is asked in a direct message. A second message for the same request violates the primary key."""
    tx.one("add_approval_copy", approval_id=approval_id, user_id=user, post_key=post_key, now=now)


def place_copy(tx: Tx, copy: Copy, channel: str, ts: str) -> None:
    """Record the message that was posted."""
    tx.one(
        "place_approval_copy", approval_id=copy.approval_id, user_id=copy.user_id, post_key=copy.post_key, channel=channel, ts=ts
    )


def draw_copy(tx: Tx, approval_id: str, user: str, *, lost: bool) -> None:
    """Record that the message was redrawn, with the person's authority of then."""
    tx.one("draw_approval_copy", approval_id=approval_id, user_id=user, lost=int(lost))


def is_copy_for(tx: Tx, approval_id: str, user: str, channel: str, ts: str) -> bool:
    """Return true if a message is the person's recorded copy of a request, or can be: an unconfirmed one has no ts yet."""
    copy = copy_of(tx, approval_id, user)
    return copy is not None and (copy.ts is None or (copy.channel, copy.ts) == (channel, ts))


def _copy(row: Row) -> Copy:
    flags = {"shown": bool(row["shown"]), "lost": bool(row["lost"]), "drawings": row["drawings"]}
    return Copy(row["approval_id"], row["user_id"], row["post_key"], row["channel"], row["ts"], **flags)


def latest(tx: Tx, quote_id: str, version: int) -> Approval | None:
    """Return the latest request about a version, or None."""
    row = tx.one("latest_approval", quote_id=quote_id, quote_version=version)
    return None if row is None else _approval(tx, row)


def last_decided(tx: Tx, quote_id: str) -> EarlierApproval | None:
    """Return the last decision by people on any version of the quote; None if there is none."""
    row = tx.one("last_decided_approval", quote_id=quote_id)
    if row is None:
        return None
    return EarlierApproval(_approval(tx, row), pricing_rules.from_stored(row["pricing"]), row["valid_until"])


def last_deciders(tx: Tx, quote_id: str) -> tuple[str, ...]:
    """Return the people whose decision last approved the quote, and those on whose behalf they decided."""
    rows = tx.all("last_deciders", quote_id=quote_id)
    return tuple(dict.fromkeys(user for row in rows for user in (row["decided_by"], row["on_behalf_of"]) if user is not None))


def zones_of(tx: Tx, team_id: str, users: Iterable[str]) -> dict[str, str]:
    """Return the time zones of people, as far as Slack has named them."""
    rows = tx.all("zones_of_people", team_id=team_id, users=json.dumps(sorted(set(users))))
    return {row["user_id"]: row["zone"] for row in rows}


def gone_holders(tx: Tx, team_id: str | None, users: Iterable[str]) -> frozenset[str]:
    """Return those of the people whom Slack last reported as no full members: guests, bots, and people who left.

    Its answers about another workspace do not count; without a workspace all do.
    """
    rows = tx.all("gone_holders", team_id=team_id, users=json.dumps(sorted(set(users))))
    return frozenset(row["user_id"] for row in rows)


def present(tx: Tx, rules: Rules, team_id: str | None) -> Rules:
    """Return the rules without the role holders who may not approve in a workspace any more, by Slack's last answer."""
    return rules.without(gone_holders(tx, team_id, rules.all_approvers))


@dataclass(frozen=True, slots=True)
class LeftSlot:
    """An open slot that asks nobody who may approve, because some are gone: these people, and the time it opened (Unix ms)."""

    approval_id: str
    number: int
    quote_id: str
    team_id: str
    opened_at: int
    gone: frozenset[str]


def slots_of_gone(tx: Tx, rules: Rules) -> Iterator[LeftSlot]:
    """Yield the open slots that ask people who are gone, and besides them at most makers of the quote, who may not approve it."""
    if not gone_holders(tx, None, rules.all_approvers):
        return
    gone_in: dict[str, frozenset[str]] = {}
    for row in tx.all("open_slots"):
        team_id = row["team_id"]
        if team_id not in gone_in:
            gone_in[team_id] = gone_holders(tx, team_id, rules.all_approvers)
        roles = json.loads(row["asked"]) or json.loads(row["roles"])
        assigned = row["assignee"] is not None
        asked = {row["assignee"]} if assigned else {user for role in roles for user in rules.approvers.get(role, ())}
        left = asked - gone_in[team_id]
        if left != asked and (assigned or left <= _askers(tx, row)):
            yield LeftSlot(row["approval_id"], row["slot"], row["quote_id"], team_id, row["opened_at"], gone_in[team_id])


def _askers(tx: Tx, row: Row) -> frozenset[str]:
    """Return the requester of an approval and the makers of its quote; those before the next version include that of this one."""
    makers = tx.all("earlier_makers", quote_id=row["quote_id"], version=row["version"] + 1)
    return frozenset({row["requested_by"], row["requester"], *(maker["maker"] for maker in makers)})


def requested_today(tx: Tx, user: str, now: int) -> int:
    """Count one user's requests for approval since midnight, UTC."""
    return int(tx.required("approvals_requested_today", user=user, since=now - now % DAY_MS)["asked"])


def waiting(tx: Tx, team_id: str, limit: int) -> list[tuple[str, int]]:
    """Return the quote and version of undecided requests, the next due first."""
    return [(row["quote_id"], row["quote_version"]) for row in tx.all("approvals_waiting", team_id=team_id, limit=limit)]


def homes_to_redraw(tx: Tx, team_id: str, users: Iterable[str]) -> list[str]:
    """Return those of the people who have opened their Home tab and whose next drawing has not begun or is not planned.

    A planned drawing reads the state when it begins, so it includes every change until then.
    """
    return [row["user_id"] for row in tx.all("homes_to_redraw", team_id=team_id, users=json.dumps(sorted(set(users))))]


def insert(tx: Tx, approval: Approval) -> None:
    """Store a new request with its slots."""
    tx.one(
        "insert_approval",
        **_ending(approval),
        quote_id=approval.quote_id,
        quote_version=approval.quote_version,
        required_roles=json.dumps(approval.required_roles),
        reasons=json.dumps(approval.reasons),
        requested_by=approval.requested_by,
        requested_at=approval.requested_at,
        earlier=approval.earlier,
    )
    if approval.policy is not None:
        stamp, timing = approval.policy, approval.policy.timing
        hours = {"remind_ms": timing.remind_ms, "escalate_ms": timing.escalate_ms, "expire_ms": timing.expire_ms}
        named = {"policy": stamp.label, "ruleset_hash": stamp.ruleset_hash}
        tx.one("insert_approval_policy", approval_id=approval.approval_id, **named, **hours)
        if timing.calendar is not None:
            calendar = keys.dumps(calendar_document(timing.calendar) | {"zone": timing.calendar.zone})
            tx.one("insert_approval_calendar", approval_id=approval.approval_id, calendar=calendar)
        if stamp.roles != PACKAGED:
            tx.one("insert_approval_roles", approval_id=approval.approval_id, roles=keys.dumps(roles_document(stamp.roles)))
    if approval.note is not None:
        tx.one("insert_approval_note", approval_id=approval.approval_id, note=approval.note)
    for slot in approval.slots:
        fixed = {"stage": slot.stage, "roles": json.dumps(slot.roles), "dual_control": int(slot.dual_control)}
        tx.one("insert_approval_slot", **fixed, **_moving(approval, slot))


def save(tx: Tx, before: Approval, after: Approval) -> bool:
    """Store the changes of a request and its slots.

    False if the stored state is no longer `before`: the transaction must roll back.
    """
    for old, new in zip(before.slots, after.slots, strict=True):
        if new != old and tx.one("move_approval_slot", **_moving(after, new), old_state=old.state.value) is None:
            return False
    return after.state is before.state or tx.one("decide_approval", **_ending(after)) is not None


def delegate(tx: Tx, operation_key: str, team_id: str, absence: DelegateApprovals, asked_at: int) -> None:
    """Store an absence and its delegate, or its end. `asked_at` is when the user asked for it (Unix ms)."""
    since = asked_at if absence.since is None else absence.since
    tx.one(
        "insert_delegation",
        operation_key=operation_key,
        team_id=team_id,
        absent=absence.absent,
        delegate=absence.delegate,
        since=since,
        until=max(absence.until, since),
        asked_at=asked_at,
        reason=absence.reason,
    )


def delegations(tx: Tx, team_id: str, at: int) -> tuple[Delegation, ...]:
    """Return the absences and delegates in a workspace at a time (Unix ms)."""
    return tuple(_delegation(row) for row in tx.all("delegations_at", team_id=team_id, now=at))


def delegations_of(tx: Tx, team_id: str, user: str, now: int) -> tuple[Delegation, ...]:
    """Return the present and future absences in which a person is absent or is the delegate."""
    return tuple(_delegation(row) for row in tx.all("delegations_of", team_id=team_id, user=user, now=now))


def _delegation(row: Row) -> Delegation:
    return Delegation(row["absent"], row["delegate"], row["since"], row["until"], row["reason"])


def _ending(approval: Approval) -> dict[str, Any]:
    return {
        "approval_id": approval.approval_id,
        "state": approval.state.value,
        "decided_by": approval.decided_by,
        "decided_role": approval.decided_role,
        "decided_at": approval.decided_at,
        "decision_reason": approval.decision_reason,
    }


def acted_for_others(tx: Tx, quote_id: str, user: str, terminal_user: str | None, terminal_users: Mapping[str, str]) -> bool:
    """Return true if a person acted on the quote in another person's name: at a terminal, or by an edited copy of a dead command.

    Of a clone, acts on its source before it was copied count as well.

    `user` is the person in Slack, `terminal_user` their system user if they are at a terminal now, `terminal_users` the setting
    that maps system users to Slack users.
    """
    others = [row for row in _acts_for_others(tx, quote_id) if row["actor"] != user]
    at_terminals = {row["terminal_user"] for row in others} - {None}
    return any(row["edited_by"] == user for row in others) or any(
        name == terminal_user or terminal_users.get(name) == user for name in at_terminals
    )


def _acts_for_others(tx: Tx, quote_id: str) -> list[Row]:
    found: list[Row] = []
    source, until = quote_id, UNIX_MS_MAX
    while source:
        rows = tx.all("acts_for_others", quote_id=source, until=until)
        found += rows
        source, until = next(((row["cloned_from"], row["at"]) for row in rows if row["cloned_from"]), ("", until))
    return found


def _moving(approval: Approval, slot: Slot) -> dict[str, Any]:
    return {
        "approval_id": approval.approval_id,
        "slot": slot.number,
        "state": slot.state.value,
        "asked": json.dumps(slot.asked),
        **{name: getattr(slot, name) for name in _AS_THEY_ARE},
    }


_AS_THEY_ARE = (
    *("assignee", "opened_at", "remind_at", "escalate_at", "expires_at", "reminded_at", "escalated_at"),
    *("decided_by", "decided_role", "on_behalf_of", "decided_at", "reason"),
)


def _approval(tx: Tx, row: Row) -> Approval:
    return Approval(
        approval_id=row["approval_id"],
        quote_id=row["quote_id"],
        quote_version=row["quote_version"],
        required_roles=tuple(json.loads(row["required_roles"])),
        reasons=tuple(without_margin_figures(reason) for reason in json.loads(row["reasons"])),
        state=ApprovalState(row["state"]),
        requested_by=row["requested_by"],
        requested_at=row["requested_at"],
        decided_by=row["decided_by"],
        decided_role=row["decided_role"],
        decided_at=row["decided_at"],
        decision_reason=row["decision_reason"],
        slots=tuple(_slot(slot) for slot in tx.all("approval_slots", approval_id=row["approval_id"])),
        earlier=row["earlier"],
        policy=None if row["policy"] is None else _stamp(row),
        note=row["note"],
    )


def _stamp(row: Row) -> PolicyStamp:
    stored = None if row["calendar"] is None else json.loads(row["calendar"])
    zone = None if stored is None else stored.pop("zone")
    calendar = None if zone is None else replace(read_calendar(stored), zone=zone)
    timing = Timing(row["remind_ms"], row["escalate_ms"], row["expire_ms"], calendar)
    roles = PACKAGED if row["own_roles"] is None else read_roles(json.loads(row["own_roles"]))
    return PolicyStamp(row["policy"], row["ruleset_hash"], timing, roles)


def _slot(row: Row) -> Slot:
    return Slot(
        number=row["slot"],
        roles=tuple(json.loads(row["roles"])),
        stage=row["stage"],
        state=SlotState(row["state"]),
        asked=tuple(json.loads(row["asked"])),
        dual_control=bool(row["dual_control"]),
        **{name: row[name] for name in _AS_THEY_ARE},
    )
