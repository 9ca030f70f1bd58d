"""Who may decide an approval, checked when the decision is made and not when it was asked for.

Sentences name people as `<@U...>`, the one form every surface of the product understands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain.policy import LADDER, ORTHOGONAL
from quotebot.domain.quotes import ApprovalState, QuoteState, state_words, utc_text

if TYPE_CHECKING:
    from quotebot.domain.quotes import Approval, Quote


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not. `code` is for programs, `sentence` for the person: what, why, what now."""

    code: str  # "foreign_team", "stale", "already_decided", "not_pending", "expired", "own_request", "missing_role"
    sentence: str


@dataclass(frozen=True, slots=True)
class DecidingRole:
    """The role under which the person decides: the lowest one of theirs that suffices ("vp_sales", "deal_desk + legal")."""

    role: str


def may_decide(
    approval: Approval,
    quote: Quote,
    actor: str,
    actor_roles: frozenset[str],
    actor_team: str,
    *,
    received_at: int | None = None,
) -> Refusal | DecidingRole:
    """Return the role that lets `actor` decide `approval` of `quote` (the head version), or the refusal.

    `received_at` (Unix ms) is when the decision arrived; given, a quote past its `valid_until` is refused.
    """
    refusal = (
        _foreign(quote, actor_team)
        or _stale(approval, quote)
        or _decided(approval, quote)
        or _expired(quote, received_at)
        or _own_request(approval, quote, actor)
    )
    if refusal is not None:
        return refusal
    return _deciding_role(approval, quote, actor_roles)


def sufficient_roles(required: str) -> tuple[str, ...]:
    """Return the roles that may stand in for `required`, lowest first; an orthogonal role is only itself."""
    if required in LADDER:
        return LADDER[LADDER.index(required) :]
    return (required,) if required in ORTHOGONAL else ()


def decided_words(approval: Approval) -> str:
    """Return "approved by <@U...> (cfo) on 21 Nov 2026 10:31 UTC", or "approved automatically on ...", of a decided approval."""
    when = "" if approval.decided_at is None else f" on {utc_text(approval.decided_at)}"
    if approval.decided_by is None:
        return f"{approval.state} automatically{when}"
    role = "" if approval.decided_role is None else f" ({approval.decided_role})"
    return f"{approval.state} by <@{approval.decided_by}>{role}{when}"


def _foreign(quote: Quote, actor_team: str) -> Refusal | None:
    if actor_team and actor_team == quote.team_id:
        return None
    sentence = f"Only members of the workspace that owns {quote.quote_id} can decide about it. Nothing was changed."
    return Refusal("foreign_team", sentence)


def _stale(approval: Approval, quote: Quote) -> Refusal | None:
    if approval.quote_id == quote.quote_id and approval.quote_version == quote.version:
        return None
    sentence = (
        f"This request was for {approval.quote_id} v{approval.quote_version}; the quote is now {quote.quote_id} v{quote.version}. "
        "Nothing was changed. Decide on the card of the current version."
    )
    return Refusal("stale", sentence)


def _decided(approval: Approval, quote: Quote) -> Refusal | None:
    if approval.state is not ApprovalState.PENDING:
        return Refusal("already_decided", f"{quote.quote_id} was already {decided_words(approval)}. Your click changed nothing.")
    if quote.state is not QuoteState.PENDING_APPROVAL:
        return Refusal(
            "not_pending", f"{quote.quote_id} is {state_words(quote.state)} and awaits no approval. Nothing was changed."
        )
    return None


def _expired(quote: Quote, received_at: int | None) -> Refusal | None:
    if received_at is None or received_at < quote.valid_until:
        return None
    sentence = f"{quote.quote_id} expired on {utc_text(quote.valid_until)}. Nothing was changed. Ask the requester for a new quote."
    return Refusal("expired", sentence)


def _own_request(approval: Approval, quote: Quote, actor: str) -> Refusal | None:
    if actor not in (approval.requested_by, quote.requester, quote.revised_by):
        return None
    roles = " and ".join(_role_words(role) for role in approval.required_roles)
    sentence = f"You asked for {quote.quote_id}, so someone else has to decide: {roles}. The request stays open."
    return Refusal("own_request", sentence)


def _role_words(required: str) -> str:
    return f"{required} or a higher role" if required in LADDER[:-1] else required


def _deciding_role(approval: Approval, quote: Quote, actor_roles: frozenset[str]) -> Refusal | DecidingRole:
    held: list[str] = []
    for required in approval.required_roles:
        role = next((role for role in sufficient_roles(required) if role in actor_roles), None)
        if role is None:
            sentence = f"You do not hold the role {quote.quote_id} needs: {_role_words(required)}. The request stays open."
            return Refusal("missing_role", sentence)
        held.append(role)
    if not held:  # an automatic approval is never pending; if it were, nobody is named who could decide it
        return Refusal("missing_role", f"{quote.quote_id} names nobody who may decide about it. Nothing was changed.")
    return DecidingRole(" + ".join(held))
