"""Persistence of a quote's lifecycle and versions, and lists of quotes; inside an open ledger transaction.

Saves are guarded as in quotes.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from quotebot.domain.approvals.requests import invalidated
from quotebot.domain.quotes.lifecycle import require_change
from quotebot.domain.quotes.quote import Listed, Quote, QuoteState
from quotebot.store import approvals
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from ledger.database import Row, Tx

PAGE_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of a workspace's quotes. None, and an empty set of states, do not filter.

    `account` is a part of the customer's name; only its ASCII letters match in either case. With `seen`, quotes of others than
    `viewer` are limited to these channels: a search by customer must not even count quotes whose customer is hidden.
    """

    team_id: str
    owner: str | None = None  # a Slack user id
    states: frozenset[QuoteState] = frozenset()
    account: str | None = None
    viewer: str = ""  # a Slack user id
    seen: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, the newest quote first; `more` is true if there is a next page."""

    quotes: tuple[Listed, ...]
    number: int  # 1-based
    more: bool


def save(tx: Tx, before: Quote, after: Quote, now: int) -> None:
    """Store every change of a decision: a transition, a new version, a sending, an end; `now` is Unix ms.

    Raises ConcurrentChangeError if `before` is no longer current, IllegalTransitionError for a transition that is not allowed.
    """
    if after.version != before.version:
        _supersede(tx, before, after, now)
        return
    store.save(tx, before, after, now)
    if after.frozen is not None and before.frozen is None:
        tx.one(
            "record_freezing",
            quote_id=after.quote_id,
            version=after.version,
            frozen_by=after.frozen.frozen_by,
            frozen_at=after.frozen.frozen_at,
        )
    if after.sent is not None and before.sent is None:
        tx.one(
            "record_sending",
            quote_id=after.quote_id,
            version=after.version,
            recipient=after.sent.recipient,
            sent_by=after.sent.sent_by,
            sent_at=after.sent.sent_at,
        )
    if after.closing is not None and before.closing is None:
        tx.one(
            "record_closing",
            quote_id=after.quote_id,
            version=after.version,
            state=after.state.value,
            reason=after.closing.reason,
            closed_by=after.closing.closed_by,
            closed_at=after.closing.closed_at,
        )


def list_quotes(tx: Tx, chosen: Filter, *, page: int = 1, rows: int = PAGE_ROWS) -> Page:
    """Return one page of the matching quotes; page 1 is the newest. A page past the end is empty."""
    found = tx.all(
        "list_quotes",
        team_id=chosen.team_id,
        owner=chosen.owner,
        states=f" {' '.join(sorted(chosen.states))} " if chosen.states else "",
        account=chosen.account or "",
        viewer=chosen.viewer,
        seen=None if chosen.seen is None else f" {' '.join(sorted(chosen.seen))} ",
        limit=rows + 1,
        offset=(page - 1) * rows,
    )
    return Page(tuple(_listed(row) for row in found[:rows]), page, len(found) > rows)


def channels_of_account(tx: Tx, team_id: str, account: str, viewer: str) -> frozenset[str]:
    """Return the channels of the quotes that others made for a customer with `account` in its name."""
    rows = tx.all("channels_of_account", team_id=team_id, account=account, viewer=viewer)
    return frozenset(row["channel"] for row in rows)


def known_name(tx: Tx, requester: str, team_id: str) -> str:
    """Return a person's Slack name at the time of their newest quote; empty if they have none in this workspace."""
    row = tx.one("name_of_requester", requester=requester, team_id=team_id)
    return "" if row is None else str(row["requester_name"])


def only_team(tx: Tx) -> str | None:
    """Return the workspace of all quotes, or None if there are no quotes or several workspaces."""
    row = tx.required("teams_of_quotes")
    first: str | None = row["first"]
    return first if first == row["last"] else None


def _supersede(tx: Tx, before: Quote, after: Quote, now: int) -> None:
    require_change(before.state)
    assert (after.version, after.state) == (before.version + 1, QuoteState.PRICED)  # noqa: S101 -- ensured by revise
    assert after.revised_by is not None  # noqa: S101 -- likewise
    if before.approval is not None and not approvals.save(tx, before.approval, invalidated(before.approval, after.issued_at)):
        raise store.ConcurrentChangeError(before.approval.approval_id)
    store.insert_version(tx, after)
    tx.one(
        "supersede_version",
        quote_id=before.quote_id,
        version=before.version,
        state=before.state.value,
        valid_until=before.valid_until,
        superseded_by=after.revised_by,
        superseded_at=after.issued_at,
    )
    moved = tx.one(
        "next_version",
        quote_id=before.quote_id,
        version=before.version,
        old_state=before.state.value,
        valid_until=after.valid_until,
        now=now,
    )
    if moved is None:
        raise store.ConcurrentChangeError(before.quote_id)


def _listed(row: Row) -> Listed:
    return Listed(
        quote_id=row["quote_id"],
        version=row["version"],
        state=QuoteState(row["state"]),
        account=row["account"],
        requester=row["requester"],
        requester_name=row["requester_name"],
        team_id=row["team_id"],
        channel=row["channel"],
        created_at=row["created_at"],
        valid_until=row["valid_until"],
        net_total=Decimal(row["net_total"]),
        currency=row["currency"],
    )
