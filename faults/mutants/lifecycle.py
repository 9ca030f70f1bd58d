"""Seeded bugs in the lifecycle of a quote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from faults.mutants.patching import patch, put
from quotebot.handlers import lifecycle
from quotebot.handlers.decision import foreign
from quotebot.store import versions

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote


def last_day_not_looked_at() -> None:
    """A quote may be accepted long after its last day."""
    put(lifecycle, "_lapsed", lambda _asked, _quote, _verb: None)


def superseded_version_changed() -> None:
    """A command on a superseded version changes the newest one."""
    put(lifecycle, "_not_about_head", foreign)


@patch(versions, "save")
def end_not_kept(honest: Any, tx: Tx, before: Quote, after: Quote, now: int) -> None:
    """The person who ended a quote, and the reason, are not kept."""
    honest(tx, before, replace(after, closing=None), now)
