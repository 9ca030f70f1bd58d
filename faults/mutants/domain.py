"""Seeded bugs in the decisions of the domain."""

from __future__ import annotations

from typing import Any

from faults.mutants.patching import both, patch, put, sql
from quotebot.domain import money
from quotebot.domain.access import Viewer
from quotebot.domain.approvals import decisions
from quotebot.domain.approvals.slots import Slot
from quotebot.domain.rules import Rules
from quotebot.execution import transaction
from quotebot.handlers import lifecycle
from quotebot.slack import gate
from quotebot.store import quotes as store
from quotebot.store import versions


def authority_not_checked() -> None:
    """Every person holds every role."""
    put(Rules, "roles_of", lambda self, _user: frozenset(self.approvers))


def guests_approve() -> None:
    """Slack's information on a person (guest, member) is ignored."""
    put(decisions, "_not_a_member", lambda _quote, _person: None)
    for module in (transaction, gate):
        put(module, "admit", lambda user, team_id, _kind, _guest_reps: Viewer(user, team_id))


def own_request_approved() -> None:
    """The requester may approve."""
    put(decisions, "_own_request", lambda _approval, _quote, _actor: None)


def _decides_again() -> None:
    put(decisions, "_decided", lambda _approval, _quote: None)
    put(Slot, "is_open", property(lambda _slot: True))
    put(store, "require", lambda _before, _after: None)


second_decision_stands = both(
    _decides_again,
    sql("decide_approval", ("AND state = 'pending'", "")),
)


def expiry_not_looked_at() -> None:
    """A quote may be approved long after it has expired."""
    put(decisions, "_expired", lambda _quote, _received_at: None)
    put(decisions, "_request_expired", lambda _approval, _quote, _received_at: None)


def superseded_still_asked() -> None:
    """Approvals of a superseded version stay pending."""
    put(versions, "invalidated", lambda approval, _at: approval)
    put(lifecycle, "withdrawal_events", lambda _quote, _at: ())


def offer_works_twice() -> None:
    """The offer "Create another" makes a quote at each click."""
    put(store, "find_token_use", lambda _tx, _token: None)
    put(store, "use_token", lambda _tx, _token, _quote_id, _now: None)


def resubmission_not_asked_about() -> None:
    """The same request twice makes two quotes, without a question."""
    put(store, "find_twin", lambda _tx, **_asked: None)


@patch(money, "total")
def totals_by_hand(honest: Any, amounts: Any, currency: str) -> Any:
    """A total differs by a cent from the sum of its lines."""
    exact = honest(amounts, currency)
    return exact + (exact - exact.next_minus() if len(amounts) > 1 else 0)
