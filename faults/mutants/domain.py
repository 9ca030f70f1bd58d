"""Seeded bugs in the decisions of the domain, and in the lifecycle of a quote."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from faults.mutants.patching import both, patch, put, sql
from quotebot.domain import money
from quotebot.domain.access import Viewer
from quotebot.domain.approvals import decisions
from quotebot.domain.quotes.quote import Slot
from quotebot.domain.rules import Rules
from quotebot.execution import executor
from quotebot.handlers import lifecycle
from quotebot.handlers.decision import foreign
from quotebot.slack import gate
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote


# Every person holds every role.
authority_not_checked = partial(put, Rules, "roles_of", lambda self, _user: frozenset(self.approvers))

# Slack's information on a person (guest, member) is ignored.
guests_approve = both(
    partial(put, decisions, "_not_a_member", lambda _person: None),
    partial(put, Rules, "without", lambda self, _gone: self),
    partial(put, executor, "admit", lambda user, team_id, _kind, _guest_reps: Viewer(user, team_id)),
    partial(put, gate, "admit", lambda user, team_id, _kind, _guest_reps: Viewer(user, team_id)),
)

# The requester may approve.
own_request_approved = partial(put, decisions, "_own_request", lambda _approval, _quote, _actor: None)

second_decision_stands = both(
    partial(put, decisions, "_decided", lambda _approval, _quote: None),
    partial(put, Slot, "is_open", property(lambda _slot: True)),
    partial(put, store, "require", lambda _before, _after: None),
    sql("decide_approval", ("AND state = 'pending'", "")),
)

# A quote may be approved long after it has expired.
expiry_not_looked_at = both(
    partial(put, decisions, "_expired", lambda _quote, _received_at: None),
    partial(put, decisions, "_request_expired", lambda _approval, _quote, _received_at: None),
)

# Approvals of a superseded version stay pending.
superseded_still_asked = both(
    partial(put, store, "invalidated", lambda approval, _at: approval),
    partial(put, lifecycle, "withdrawal_events", lambda _quote, _at: ()),
)

# The offer "Create another" makes a quote at each click.
offer_works_twice = both(
    partial(put, store, "find_token_use", lambda _tx, _token: None),
    partial(put, store, "use_token", lambda _tx, _token, _quote_id, _now: None),
)

# The same request twice makes two quotes, without a question.
resubmission_not_asked_about = partial(put, store, "find_twin", lambda _tx, **_asked: None)

# A quote may be accepted long after its last day.
last_day_not_looked_at = partial(put, lifecycle, "_lapsed", lambda _asked, _quote, _verb: None)

# A command on a superseded version changes the newest one.
superseded_version_changed = partial(put, lifecycle, "_not_about_head", foreign)


@patch(store, "save")
def end_not_kept(honest: Any, tx: Tx, before: Quote, after: Quote, now: int) -> None:
    """The person who ended a quote, and the reason, are not kept."""
    honest(tx, before, replace(after, closing=None), now)


@patch(money, "total")
def totals_by_hand(honest: Any, amounts: Any, currency: str) -> Any:
    """A total differs by a cent from the sum of its lines."""
    exact = honest(amounts, currency)
    return exact + (exact - exact.next_minus() if len(amounts) > 1 else 0)
