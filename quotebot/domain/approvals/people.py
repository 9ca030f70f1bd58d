"""Holders of roles, delegations, and the people asked by an open approval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quotebot.domain.schedule.schedules import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from quotebot.domain.approvals.roles import Roles
    from quotebot.domain.quotes.quote import Approval, Slot

    Holders = Mapping[str, tuple[str, ...]]  # role -> Slack user ids

# "stranger": of another workspace. "unknown": Slack was queried about the person and has not answered.
Kind = Literal["member", "guest", "bot", "deactivated", "stranger", "unknown"]
ABSENCE_MS_MAX = 366 * DAY_MS
KINDS: frozenset[Kind] = frozenset({"member", "guest", "bot", "deactivated", "stranger", "unknown"})


@dataclass(frozen=True, slots=True)
class Delegation:
    """Delegation during an absence: `delegate` decides for `absent` from `since` until before `until` (Unix ms)."""

    absent: str
    delegate: str
    since: int
    until: int
    reason: str | None = None

    def overlaps(self, since: int, until: int) -> bool:
        """Return whether the two periods overlap."""
        return self.since < until and since < self.until


@dataclass(frozen=True, slots=True)
class StandIn:
    """Absent person with the roles they hold now."""

    absent: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Person:
    """Person at the time they act: workspace, roles held, and the absent people they substitute for."""

    user: str
    team: str
    roles: frozenset[str]
    kind: Kind = "member"
    stands_in_for: tuple[StandIn, ...] = ()


def roles_of(user: str, holders: Holders) -> frozenset[str]:
    """Return every role the person holds."""
    return frozenset(role for role, users in holders.items() if user in users)


def covers(held: frozenset[str], needed: Iterable[str], roles: Roles) -> bool:
    """Return whether the `held` roles suffice for each of `needed`; a role that is not one of `roles` only itself covers."""
    return all(each in held or roles.lowest((each,), held) is not None for each in needed)


def has_authority(approval: Approval, held: frozenset[str]) -> bool:
    """Return whether the `held` roles suffice for any decision that a request needs, open or not."""
    return any(approval.roles.lowest(slot.roles, held) is not None for slot in approval.slots)


def asked_people(
    slot: Slot, holders: Holders, delegations: Iterable[Delegation], excluded: Iterable[str], roles: Roles
) -> tuple[str, ...]:
    """Return the people an open slot asks: the holders of the roles asked, or of the next higher role that has holders.

    A person out of office is replaced by their delegate if the delegate has the authority. `excluded` are the requesters; `roles`
    are those that the request was made under.
    """
    away = {each.absent: each.delegate for each in delegations}
    out = frozenset(excluded)
    asked: list[str] = []
    for user in _asked_directly(slot, holders, out, roles):
        instead = away.get(user, user)
        may = instead not in out and roles.lowest(slot.roles, roles_of(instead, holders)) is not None
        asked.append(instead if may else user)
    return tuple(dict.fromkeys(asked))


def higher_with_holders(asked: tuple[str, ...], holders: Holders, excluded: Iterable[str], roles: Roles) -> str | None:
    """Return the lowest role above all of those `asked` with a holder not excluded; None at the top or off the ladder."""
    rungs = [roles.ladder.index(role) for role in asked if role in roles.ladder]
    if not rungs:
        return None
    out = frozenset(excluded)
    return next((role for role in roles.ladder[max(rungs) + 1 :] if set(holders.get(role, ())) - out), None)


def _asked_directly(slot: Slot, holders: Holders, out: frozenset[str], roles: Roles) -> Iterator[str]:
    if slot.assignee is not None:
        yield slot.assignee
        return
    for required in slot.asked or slot.roles:
        for role in roles.sufficient(required):
            found = [user for user in holders.get(role, ()) if user not in out]
            if found:
                yield from found
                break
