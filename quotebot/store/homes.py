"""Persistence of Home tabs: the section that each person chose, and what is known about the last drawing of their tab."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.commands.queries import Section

if TYPE_CHECKING:
    from ledger.database import Tx


@dataclass(frozen=True, slots=True)
class HomeChoice:
    """Section of the Home tab that a person chose, and its page, from 1."""

    section: Section = Section.ALL
    page: int = 1


def chosen(tx: Tx, team_id: str, user: str) -> HomeChoice:
    """Return what a person's Home tab shows; everything if they chose nothing."""
    row = tx.one("home_choice", team_id=team_id, user_id=user)
    if row is None or row["section"] not in set(Section):
        return HomeChoice()
    return HomeChoice(Section(row["section"]), row["page"])


def keep(tx: Tx, team_id: str, user: str, choice: HomeChoice | None, now: int) -> None:
    """Record that a person sees their Home tab and, unless it is None, the section that they chose."""
    start = HomeChoice() if choice is None else choice
    tx.one("open_home", team_id=team_id, user_id=user, section=start.section.value, page=start.page, now=now)
    if choice is not None:
        tx.one("choose_home", team_id=team_id, user_id=user, section=choice.section.value, page=choice.page, now=now)


def last_drawn(tx: Tx, aggregate_id: str) -> str | None:
    """Return the hash of the view that a Home tab shows; None if another one may have arrived after it.

    Nothing is known about a drawing before the last restore: a lost part of the ledger may have changed the tab. Nor is anything
    known if an older one seems to have been sent later: the clock was set back, or it was.
    """
    row, restored = tx.one("last_home_drawn", aggregate_id=aggregate_id), tx.one("last_generation")
    since = 0 if restored is None else restored["started_at"]
    if row is None or row["state"] != "delivered" or row["maybe_sent"] or row["last_attempt_at"] < max(since, row["last_at"]):
        return None
    found: str | None = json.loads(row["result"] or "{}").get("rendered")
    return found


def want_digest(tx: Tx, team_id: str, user: str, due_at: int | None) -> None:
    """Record that a person's next digest is due at `due_at` (Unix ms), or with None that they want none."""
    tx.one("drop_digest", team_id=team_id, user_id=user)
    if due_at is not None:
        tx.one("insert_digest", team_id=team_id, user_id=user, due_at=due_at)


def digest_due(tx: Tx, team_id: str, user: str) -> int | None:
    """Return when a person's next digest is due (Unix ms); None if they want none."""
    row = tx.one("digest_of", team_id=team_id, user_id=user)
    return None if row is None else int(row["due_at"])
