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


class NoSeals:
    """Seals that change nothing."""

    def blocks(self, _: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the blocks unchanged."""
        return blocks

    def view(self, _: str, view: dict[str, Any]) -> dict[str, Any]:
        """Return the view unchanged."""
        return view


@dataclass(frozen=True, slots=True)
class OpenGate:
    """An access gate that treats every person as a member of its workspace."""

    team_id: str = "T0HOME"

    @property
    def seals(self) -> NoSeals:
        """Seals of no effect."""
        return NoSeals()

    async def recognized(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Take every click for ours."""
        return body

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
