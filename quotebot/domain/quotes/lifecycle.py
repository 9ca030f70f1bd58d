"""The life of a quote: one table of arrows. What is not drawn here cannot happen.

    draft --> validated --> priced --> pending_approval --> approved --> finalized --> sent --> accepted
      ^                       |  |            |    |           |                          `--> lost
      |                       |  `------------|----|---------> approved   (automatic: policy needs nobody)
      |                       |               |    `--> rejected
      `-----------------------+---------------+------------+---'
            a material edit of priced, pending_approval or approved; revising rejected

    draft, validated, priced, pending_approval, approved, rejected, finalized, sent --> cancelled
    draft, validated, priced, pending_approval, approved, rejected, finalized, sent --> expired

accepted, lost, cancelled and expired are final.

These are the arrows of one version. Content is never changed in place: what was priced is immutable, so every change of it is a
new version under the same number, which is priced at once and has no approval; the version before it is superseded and blocked.
Before finalized such a change is an edit, drawn above as the way back to draft (and on to priced, in one decision); finalized
freezes a version, and a change of a finalized or sent one is a revision. What is final is not changed at all.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from quotebot.domain.quotes.quote import QuoteState

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDINGS = frozenset({QuoteState.CANCELLED, QuoteState.EXPIRED})

ARROWS: Mapping[QuoteState, frozenset[QuoteState]] = MappingProxyType(
    {
        QuoteState.DRAFT: _ENDINGS | {QuoteState.VALIDATED},
        QuoteState.VALIDATED: _ENDINGS | {QuoteState.PRICED},
        QuoteState.PRICED: _ENDINGS | {QuoteState.PENDING_APPROVAL, QuoteState.APPROVED, QuoteState.DRAFT},
        QuoteState.PENDING_APPROVAL: _ENDINGS | {QuoteState.APPROVED, QuoteState.REJECTED, QuoteState.DRAFT},
        QuoteState.APPROVED: _ENDINGS | {QuoteState.FINALIZED, QuoteState.DRAFT},
        QuoteState.REJECTED: _ENDINGS | {QuoteState.DRAFT},
        QuoteState.FINALIZED: _ENDINGS | {QuoteState.SENT},
        QuoteState.SENT: _ENDINGS | {QuoteState.ACCEPTED, QuoteState.LOST},
        QuoteState.ACCEPTED: frozenset(),
        QuoteState.LOST: frozenset(),
        QuoteState.CANCELLED: frozenset(),
        QuoteState.EXPIRED: frozenset(),
    }
)


FROZEN: frozenset[QuoteState] = frozenset({QuoteState.FINALIZED, QuoteState.SENT})


class IllegalTransitionError(ValueError):
    """Code asked for an arrow that is not drawn; nothing was changed."""


def allowed(state: QuoteState) -> frozenset[QuoteState]:
    """Return the states that may follow `state`; empty when it is final."""
    return ARROWS[state]


def require(origin: QuoteState, target: QuoteState) -> None:
    """Raise IllegalTransitionError unless `origin` may become `target`."""
    if target in ARROWS[origin]:
        return
    ways = ", ".join(sorted(ARROWS[origin])) or "nothing: it is final"
    raise IllegalTransitionError(f"A quote that is {origin} cannot become {target}; it can become {ways}. Nothing was changed.")


def is_final(state: QuoteState) -> bool:
    """Tell whether nothing can follow `state`."""
    return not ARROWS[state]


def may_be_changed(state: QuoteState) -> bool:
    """Tell whether a version in `state` may be followed by a new version with other content."""
    return state in FROZEN or state in (QuoteState.DRAFT, QuoteState.VALIDATED) or QuoteState.DRAFT in ARROWS[state]


def require_change(origin: QuoteState) -> None:
    """Raise IllegalTransitionError unless a version in state `origin` may be superseded by a new one."""
    if may_be_changed(origin):
        return
    raise IllegalTransitionError(f"A quote that is {origin} cannot have a new version: it is final. Nothing was changed.")
