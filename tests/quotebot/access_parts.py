"""Viewers and an open gate, for tests below the sockets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from quotebot.domain.access import INSIDER, Refusal, Viewer, admit
from quotebot.slack.gate import Admission, approach_of

if TYPE_CHECKING:
    from collections.abc import Collection


def viewer(user: str = "U0REP", team: str = "T0HOME", *, guest_reps: Collection[str] = ()) -> Viewer:
    """Return a viewer as the gate makes one: a member, or a listed guest."""
    kind = "guest" if user in guest_reps else "member"
    admitted = admit(user, team, kind, guest_reps)
    assert isinstance(admitted, Viewer)
    return replace(admitted, circle=INSIDER)


@dataclass(frozen=True, slots=True)
class OpenGate:
    """An access gate that treats every person as a member of its workspace."""

    team_id: str = "T0HOME"

    def approached(self, body: dict[str, Any]) -> Admission | None:
        """Admit every person."""
        approach = approach_of(body)
        return None if approach is None else Admission(cast("Any", self), approach, viewer(approach.user, self.team_id))

    async def learned(self, user: str) -> Viewer | Refusal:
        """Admit every person."""
        return viewer(user, self.team_id)

    async def near(self, viewer: Viewer, quote_ids: Collection[str]) -> Viewer:
        """Allow the quotes of every channel."""
        del quote_ids
        return viewer

    def learn_later(self, admission: Admission | None) -> None:
        """Do nothing: there is nothing to fetch."""

    async def turn_away(self, body: dict[str, Any], admission: Admission) -> dict[str, Any] | None:
        """Do nothing: no person is refused."""
        raise NotImplementedError
