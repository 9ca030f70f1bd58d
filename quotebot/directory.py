"""Asks Slack who somebody is, before their command is executed: after its acknowledgement and outside every transaction.

A payload says which workspace a person belongs to, but not whether they are a guest, a bot or gone: only users.info does. Its
answer is kept in the ledger. For an approval it is asked for again after a minute, because a role may have ended meanwhile; for
anything else after an hour. When Slack does not answer, what it said within the last day still counts; beyond that what approves
is tried again for a while and then refused: see handlers/outsiders.py.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from adapters.failures import AdapterError, Failure
from ledger.database import NotRecorded
from quotebot.store import approvals, people
from quotebot.store.people import Known

if TYPE_CHECKING:
    from adapters.slack import Member, SlackApi
    from ledger.ledger import Ledger
    from ledger.records import Operation

ASK_SECONDS: Final = 2.0
FRESH_MS: Final = 3_600_000
PEOPLE_MAX: Final = 10_000  # remembered at once
FRESH_FOR_APPROVAL_MS: Final = 60_000
APPROVING: Final = frozenset({"approval.decide", "quote.submit"})  # submitting may approve, when nobody else is needed

log = structlog.get_logger(__name__)


class Directory:
    """Who people are, by Slack's word, kept in the ledger."""

    def __init__(self, ledger: Ledger, slack: SlackApi) -> None:
        self._ledger = ledger
        self._slack = slack
        self._kept_at: dict[tuple[str, str], int] = {}  # (team, user) -> when what the ledger says of them was fetched

    async def know(self, operation: Operation) -> bool:
        """Make sure that what the ledger says of the actor is recent. False when that is needed and Slack does not answer."""
        if operation.actor_type == "system":
            return True
        if operation.action_kind == "quote.submit":
            await self._refresh_deciders(operation)
        now = self._ledger.clock.now_ms()
        team_id, user = operation.team_id, operation.actor
        fresh = FRESH_FOR_APPROVAL_MS if operation.action_kind in APPROVING else FRESH_MS
        kept_at = self._kept_at.get((team_id, user))
        if kept_at is not None and 0 <= now - kept_at < fresh:
            return True
        found = await self._ledger.database.read(lambda tx: people.known(tx, team_id, user))
        if found is not None and 0 <= now - found.fetched_at < fresh:
            return True
        kind = await self._kind_of(team_id, user)
        if kind is not None and await self._kept(team_id, user, Known(kind, now)):
            return True
        vouched = operation.source == "cli" or (found is not None and found.counts_at(now))
        return vouched or operation.action_kind not in APPROVING

    async def _refresh_deciders(self, operation: Operation) -> None:
        """Ask about those whose earlier approval the submission may reuse. Without an answer, that of the last day counts."""
        now, team_id = self._ledger.clock.now_ms(), operation.team_id
        deciders = await self._ledger.database.read(lambda tx: approvals.last_deciders(tx, operation.aggregate_id))
        for user in deciders:
            found = await self._ledger.database.read(partial(people.known, team_id=team_id, user=user))
            if found is not None and 0 <= now - found.fetched_at < FRESH_FOR_APPROVAL_MS:
                continue
            kind = await self._kind_of(team_id, user)
            if kind is None:
                return
            await self._kept(team_id, user, Known(kind, now))

    async def _kept(self, team_id: str, user: str, found: Known) -> bool:
        try:
            await self._ledger.database.write("directory", lambda tx: people.keep(tx, team_id, user, found))
        except NotRecorded as error:
            log.warning("directory.not_kept", error=str(error))
            return False
        if len(self._kept_at) >= PEOPLE_MAX:
            self._kept_at.clear()
        self._kept_at[(team_id, user)] = found.fetched_at
        return True

    async def _kind_of(self, team_id: str, user: str) -> str | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                member = await self._slack.member(user=user)
        except TimeoutError:
            log.warning("directory.unanswered", code="timeout")
            return None
        except AdapterError as error:
            if error.failure is Failure.NOT_FOUND:
                return "stranger"
            log.warning("directory.unanswered", code=error.code)
            return None
        return kind_of(member, team_id)


def kind_of(member: Member, team_id: str) -> str:
    """Return what somebody is in a workspace: the first that excludes them, or "member"."""
    if member.deactivated:
        return "deactivated"
    if member.foreign or team_id not in member.teams:
        return "stranger"
    if member.bot:
        return "bot"
    return "guest" if member.guest else "member"
