"""The access gate: the one decision about who may read and write quotes.

`admit` is the only maker of a `Viewer`, and every read and every change of a quote takes a `Viewer`. It decides by Slack's answer
about the person (quotebot/execution/actors.py), judged against the bot's own workspace, never by the workspace that a payload
names. `may_see` is the only decision about one quote: a quote that a viewer cannot see in full is neither shown to them nor changed
by them, on any surface. Quotes made in a private channel are for its members, the requester, approvers and operators; everybody
else sees their outline. A channel counts as private until Slack says that it is public (quotebot/execution/channels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from quotebot.domain.approvals.people import Kind

Code = Literal["foreign_team", "not_a_member", "not_known"]

_CODES: Final[dict[str, Code]] = {"stranger": "foreign_team", "unknown": "not_known"}


class Sight(Enum):
    """How much of one quote a viewer sees."""

    FULL = "full"
    OUTLINE = "outline"  # its number, status and owner
    NOTHING = "nothing"  # every answer is that of a quote that does not exist


class Visible(Protocol):
    """The facts of a quote that decide who sees it."""

    @property
    def team_id(self) -> str: ...  # noqa: D102 -- the quote's workspace

    @property
    def requester(self) -> str: ...  # noqa: D102 -- a Slack user id

    @property
    def channel(self) -> str: ...  # noqa: D102 -- where it was made


@dataclass(frozen=True, slots=True)
class Circle:
    """The quotes of others that a person may see in full.

    An `insider` sees those of every channel: an approver (only an approver stands in for one), an operator. `channels` are public
    or have the person as a member; `asked` are those Slack was asked about.
    """

    insider: bool = False
    channels: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()


INSIDER: Final = Circle(insider=True)
NOBODY_ASKED: Final = Circle()


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person whom the gate admitted. Only `admit` makes one."""

    user: str
    team_id: str  # the bot's own workspace
    own_only: bool = False  # a listed guest: their own quotes, and never an approval
    circle: Circle = NOBODY_ASKED

    @property
    def kind(self) -> Kind:
        """Slack's answer that admitted the person."""
        return "guest" if self.own_only else "member"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a person is not admitted; it holds no fact about any quote."""

    code: Code
    kind: str


def admit(user: str, team_id: str, kind: str, guest_reps: Collection[str]) -> Viewer | Refusal:
    """Return the viewer, or the refusal. `team_id` is the bot's own workspace, `kind` Slack's answer about the person in it.

    An unknown person is refused, as is a kind that this build does not know.
    """
    if kind == "member":
        return Viewer(user, team_id)
    if kind == "guest" and user in guest_reps:
        return Viewer(user, team_id, own_only=True)
    return Refusal(_CODES.get(kind, "not_a_member"), kind)


def may_see(viewer: Viewer, quote: Visible) -> Sight:
    """Return how much of this quote the viewer sees. Every read and every change asks this function, and nothing else."""
    if quote.team_id != viewer.team_id or (viewer.own_only and quote.requester != viewer.user):
        return Sight.NOTHING
    circle = viewer.circle
    full = circle.insider or quote.requester == viewer.user or quote.channel in circle.channels
    return Sight.FULL if full else Sight.OUTLINE


def may_look_up(viewer: Viewer) -> bool:
    """Tell whether a viewer is shown names out of the CRM: a listed guest types them."""
    return not viewer.own_only
