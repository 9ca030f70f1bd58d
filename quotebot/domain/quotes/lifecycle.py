"""Life cycle of a quote as one table of transitions. Transitions not listed here are impossible.

    draft --> validated --> priced --> pending_approval --> approved --> finalized --> sent --> accepted
      ^                       |  |            |    |           |                          `--> lost
      |                       |  `------------|----|---------> approved   (automatic: no approval needed)
      |                       |               |    `--> rejected
      `-----------------------+---------------+------------+---'
            a material edit of priced, pending_approval or approved; revising rejected

    draft --> pending_approval, after an approver asked for changes: the same version, submitted again with a note

    draft, validated, priced, pending_approval, approved, rejected, finalized, sent --> cancelled
    draft, validated, priced, pending_approval, approved, rejected, finalized, sent --> expired

accepted, lost, cancelled and expired are final.

These are the transitions of one version. Content is never changed in place: a price is immutable, so every change creates a new
version under the same number, which is priced at once and has no approval; the previous version is superseded and blocked. Before
finalized such a change is an edit, shown above as the transition back to draft (and on to priced, in one decision); finalized
freezes a version, and a change of a finalized or sent one is a revision. Final versions cannot be changed.
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
        QuoteState.DRAFT: _ENDINGS | {QuoteState.VALIDATED, QuoteState.PENDING_APPROVAL},
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
    """The requested transition is not in the table; nothing was changed."""


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
    """Return whether no transition leaves `state`."""
    return not ARROWS[state]


def may_be_changed(state: QuoteState) -> bool:
    """Return whether a version in `state` may be superseded by a new version with other content."""
    return state in FROZEN or state in (QuoteState.DRAFT, QuoteState.VALIDATED) or QuoteState.DRAFT in ARROWS[state]


def require_change(origin: QuoteState) -> None:
    """Raise IllegalTransitionError unless a version in state `origin` may be superseded by a new one."""
    if may_be_changed(origin):
        return
    raise IllegalTransitionError(f"A quote that is {origin} cannot have a new version: it is final. Nothing was changed.")
