"""Upkeep of the direct messages to approvers, for changes that no command about the quote follows.

A person may lose the role or leave the workspace while a request waits, and another may get the role. A refresh of the quote takes
the figures out of the first one's message and asks the second one. A person may also get the role back. Each such change is one
command, under a request id that names it and the drawing that it replaces, so that it is reserved once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from quotebot.commands.payloads import RefreshCard
from quotebot.domain.approvals.people import has_authority
from quotebot.execution import membership
from quotebot.jobs.scheduler import system_request
from quotebot.store import approvals, quotes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger
    from ledger.records import Request
    from quotebot.domain.rules import Rules

REQUESTS_MAX: Final = 200  # open requests of one read


async def follow_role_changes(ledger: Ledger, rules: Rules) -> int:
    """Reserve a refresh for each change that has none yet; returns how many."""
    now, count = ledger.clock.now_ms(), 0
    last: tuple[int, str] | None = (0, "")
    while last is not None:
        found, last = await ledger.database.read(partial(_page, rules=rules, last=last, now=now))
        for request in found:
            await ledger.reserve(request)
        count += len(found)
    return count


def _page(tx: Tx, *, rules: Rules, last: tuple[int, str], now: int) -> tuple[list[Request], tuple[int, str] | None]:
    """Return the refreshes due for the open requests after the `last` one read, and the one to continue after, or None."""
    rows = tx.all("open_requests", requested_at=last[0], approval_id=last[1], limit=REQUESTS_MAX)
    found = [request for row in rows for request in _changes(tx, rules, row, now)]
    return found, (rows[-1]["requested_at"], rows[-1]["approval_id"]) if len(rows) == REQUESTS_MAX else None


def _changes(tx: Tx, rules: Rules, row: Row, now: int) -> Iterator[Request]:
    """Yield the refreshes of one request that were not reserved yet. People who may not approve any more are asked nothing."""
    quote, approval = quotes.load(tx, row["quote_id"]), approvals.find(tx, row["approval_id"])
    if quote is None or approval is None or quote.approval is None or quote.approval.approval_id != approval.approval_id:
        return
    rules = approvals.present(tx, rules, quote.team_id)
    copies = {copy.user_id: copy for copy in approvals.copies(tx, approval.approval_id)}
    asked = rules.who_may_decide(approval, quote.makers, approvals.delegations(tx, quote.team_id, now))
    changed = [f"{user}:asked" for user in asked if user not in copies]
    for user, copy in copies.items():
        known = membership.known_person(tx, quote.team_id, user)
        lost = not has_authority(approval, rules.roles_of(user)) or (known is not None and known.kind != "member")
        if copy.shown and lost != copy.lost:
            changed.append(f"{user}:{'lost' if lost else 'back'}:{copy.drawings}")
    for what in changed:
        request_id = f"copy:{approval.approval_id}:{what}"
        about = {"source": "scheduler", "source_request_id": request_id, "action_kind": RefreshCard.kind}
        if tx.one("find_delivery", **about) is None:
            yield system_request("quotebot/approver/1", request_id, quote.quote_id, quote.team_id, RefreshCard(), now)
