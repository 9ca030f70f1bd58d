"""Upkeep of the direct messages to approvers, for changes that no command about the quote follows.

A person may lose the role or leave the workspace while a request waits, and another may get the role. A refresh of the quote takes
the figures out of the first one's message and asks the second one. Each such change is one command, under a request id that names
it, so that it is reserved once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ledger import keys
from ledger.records import QUOTEBOT, Request
from quotebot.commands.payloads import RefreshCard
from quotebot.domain.approvals.people import has_authority
from quotebot.execution import membership
from quotebot.store import approvals, quotes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.rules import Rules

REQUESTS_MAX: Final = 200  # open requests that one run reads


class RoleChange(NamedTuple):
    """One person whose message is out of date, or missing, in an open request."""

    request_id: str
    quote_id: str
    team_id: str


async def follow_role_changes(ledger: Ledger, rules: Rules) -> int:
    """Reserve a refresh for each change that has none yet; returns how many."""
    now = ledger.clock.now_ms()
    found = await ledger.database.read(lambda tx: list(_changes(tx, rules, now)))
    for change in found:
        payload = RefreshCard()
        await ledger.reserve(
            Request(
                source="scheduler",
                source_request_id=change.request_id,
                action_kind=payload.kind,
                aggregate_id=change.quote_id,
                aggregate_version=None,
                payload=payload.canonical(),
                fingerprint=keys.digest(["quotebot/approver/1", change.request_id]),
                actor=QUOTEBOT,
                actor_type="system",
                team_id=change.team_id,
                received_at=now,
            )
        )
    return len(found)


def _changes(tx: Tx, rules: Rules, now: int) -> Iterator[RoleChange]:
    """Yield the changes that no refresh was reserved for. People who may not approve any more are asked nothing."""
    rules = approvals.present(tx, rules)
    for row in tx.all("open_requests", limit=REQUESTS_MAX):
        quote, approval = quotes.load(tx, row["quote_id"]), approvals.find(tx, row["approval_id"])
        if quote is None or approval is None or quote.approval is None or quote.approval.approval_id != approval.approval_id:
            continue
        copies = {copy.user_id: copy for copy in approvals.copies(tx, approval.approval_id)}
        asked = rules.who_may_decide(approval, quote.makers, approvals.delegations(tx, quote.team_id, now))
        changed = [f"{user}:asked" for user in asked if user not in copies]
        for user, copy in copies.items():
            known = membership.known_person(tx, quote.team_id, user)
            if copy.shown and (not has_authority(approval, rules.roles_of(user)) or (known is not None and known.kind != "member")):
                changed.append(f"{user}:lost")
        for what in changed:
            request_id = f"copy:{approval.approval_id}:{what}"
            about = {"source": "scheduler", "source_request_id": request_id, "action_kind": RefreshCard.kind}
            if tx.one("find_delivery", **about) is None:
                yield RoleChange(request_id, quote.quote_id, quote.team_id)
