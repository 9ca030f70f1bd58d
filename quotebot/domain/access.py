"""Access gate: the single decision about read and write access to quotes.

Only `admit` creates a `Viewer`, and every read and every change of a quote requires one. It decides by Slack's record of the
person (quotebot/execution/membership.py), compared with the bot's own workspace, never by the workspace that a payload names.
`may_see` is the only decision about one quote: on every surface, a viewer without full sight of a quote can neither read nor
change it. Members of a private channel, the requester, approvers and operators see its quotes in full; all others see the
outline. A channel counts as private until Slack reports it as public (quotebot/execution/membership.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from quotebot.domain.approvals.people import Kind
    from quotebot.domain.quotes.quote import Listed, Quote

Code = Literal["foreign_team", "not_a_member", "not_known", "foreign_click"]

_CODES: Final[dict[str, Code]] = {"stranger": "foreign_team", "unknown": "not_known"}


class Sight(Enum):
    """Extent of one quote that a viewer sees."""

    FULL = "full"
    OUTLINE = "outline"  # its number, status and owner
    NOTHING = "nothing"  # answers are the same as for a quote that does not exist


@dataclass(frozen=True, slots=True)
class Circle:
    """Quotes of other people that a person may see in full.

    An `insider` (an approver or an operator; only an approver substitutes for an approver) sees the quotes of every channel.
    `channels` are public or have the person as a member; `asked` are the channels that Slack was queried about.
    """

    insider: bool = False
    channels: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()


INSIDER: Final = Circle(insider=True)
NOBODY_ASKED: Final = Circle()


@dataclass(frozen=True, slots=True)
class Viewer:
    """Person admitted by the gate. Only `admit` creates one."""

    user: str
    team_id: str  # the bot's own workspace
    own_only: bool = False  # a listed guest: sees only their own quotes and never approves
    circle: Circle = NOBODY_ASKED

    @property
    def kind(self) -> Kind:
        """Slack's classification with which the person was admitted."""
        return "guest" if self.own_only else "member"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason for not admitting a person; it contains no fact about any quote."""

    code: Code
    kind: str


def admit(user: str, team_id: str, kind: str, guest_reps: Collection[str]) -> Viewer | Refusal:
    """Return the viewer, or the refusal. `team_id` is the bot's own workspace, `kind` Slack's classification of the person in it.

    An unknown person is refused, and so is a kind that this build does not know.
    """
    if kind == "member":
        return Viewer(user, team_id)
    if kind == "guest" and user in guest_reps:
        return Viewer(user, team_id, own_only=True)
    return Refusal(_CODES.get(kind, "not_a_member"), kind)


def may_see(viewer: Viewer, quote: Quote | Listed) -> Sight:
    """Return how much of this quote the viewer sees. Every read and every change uses this function only."""
    if quote.team_id != viewer.team_id or (viewer.own_only and quote.requester != viewer.user):
        return Sight.NOTHING
    circle = viewer.circle
    full = circle.insider or quote.requester == viewer.user or quote.channel in circle.channels
    return Sight.FULL if full else Sight.OUTLINE


def may_look_up(viewer: Viewer) -> bool:
    """Return whether a viewer may look names up in the CRM; a listed guest may not and types them."""
    return not viewer.own_only
