"""Slack's record of a person, compared with the bot's own workspace and cached in memory and in the ledger.

A payload names a workspace, but not whether the person is a member of the bot's workspace, a guest, a bot or deactivated: only
`users.info` has that. An approval needs an answer from the last minute, because a role may have ended in the meantime; everything
else needs one from the last hour. If Slack does not answer, its answer from the last day counts. Without one the person is unknown,
and the gate refuses unknown persons (domain/access.py). Commands query Slack after their acknowledgement and outside every
transaction.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from adapters.failures import AdapterError, Failure
from ledger.database import DatabaseError, NotRecorded
from quotebot.store import approvals, people
from quotebot.store.people import Known

if TYPE_CHECKING:
    from adapters.slack.api import Identity, SlackApi, SlackMember
    from ledger.ledger import Ledger
    from ledger.records import Operation

ASK_SECONDS: Final = 2.0
FRESH_MS: Final = 3_600_000
EXCLUDED_FRESH_MS: Final = 300_000  # a guest who has become a member is refused for at most this time
PEOPLE_MAX: Final = 10_000  # in memory
FRESH_FOR_APPROVAL_MS: Final = 60_000
APPROVING: Final = frozenset({"approval.decide", "quote.submit"})  # submitting may approve, if no one else is needed

log = structlog.get_logger(__name__)


class Directory:
    """Cache of Slack's records of people, for one process."""

    def __init__(
        self, ledger: Ledger, slack: SlackApi, *, identity: Identity | None = None, enterprise_id: str | None = None
    ) -> None:
        """`identity` is the bot's own; without it Slack is queried once. `enterprise_id` is the configured organization."""
        self._ledger = ledger
        self._slack = slack
        self._identity = identity
        self._enterprise_id = enterprise_id
        self._known: dict[tuple[str, str], Known] = {}  # (team, user)
        self._asking: dict[tuple[str, str], asyncio.Task[Known | None]] = {}

    async def know(self, operation: Operation) -> bool:
        """Ensure that the ledger has a recent answer about the actor. False if Slack gives none and no earlier one counts."""
        if operation.actor_type == "system":
            return True
        if operation.action_kind == "quote.submit":
            await self._refresh_deciders(operation)
        now = self._ledger.clock.now_ms()
        place = (operation.team_id, operation.actor)
        approving = operation.action_kind in APPROVING
        if self.remembered(*place, now, approving=approving) is not None:
            return True
        found = await self._ledger.database.read(lambda tx: people.known(tx, *place))
        if found is not None and is_fresh(found, now, approving=approving):
            return True
        if await self._ask_once(*place) is not None:
            return True
        return found is not None and found.counts_at(now)

    async def _refresh_deciders(self, operation: Operation) -> None:
        """Refresh the approvers whose earlier approval may be reused. Without an answer, that of the last day counts."""
        now, team_id = self._ledger.clock.now_ms(), operation.team_id
        deciders = await self._ledger.database.read(lambda tx: approvals.last_deciders(tx, operation.aggregate_id))
        for user in deciders:
            found = await self._ledger.database.read(partial(people.known, team_id=team_id, user=user))
            if found is not None and is_fresh(found, now, approving=True):
                continue
            if await self._ask_once(team_id, user) is None:
                return

    def remembered(self, team_id: str, user: str, now: int, *, approving: bool = False) -> Known | None:
        """Return the cached answer, if it is recent. Uses neither ledger nor network: it runs before an acknowledgement."""
        found = self._known.get((team_id, user))
        return found if found is not None and is_fresh(found, now, approving=approving) else None

    async def learn(self, team_id: str, user: str) -> Known | None:
        """Return the answer for a read: from memory, the ledger or Slack; None if the person stays unknown."""
        now = self._ledger.clock.now_ms()
        if (found := self.remembered(team_id, user, now)) is not None:
            return found
        try:
            kept = await self._ledger.database.read(lambda tx: people.known(tx, team_id, user))
        except DatabaseError:
            log.exception("directory.unread")
            return None
        if kept is not None and is_fresh(kept, now):
            self._remember((team_id, user), kept)
            return kept
        found = await self._ask_once(team_id, user)
        return kept if found is None and kept is not None and kept.counts_at(now) else found

    async def _ask_once(self, team_id: str, user: str) -> Known | None:
        """Query Slack and store its answer. Concurrent calls about the same person share one request."""
        place = (team_id, user)
        asking = self._asking.get(place)
        if asking is None:
            asking = self._asking[place] = asyncio.create_task(self._ask(team_id, user))
            asking.add_done_callback(lambda _: self._asking.pop(place, None))
        return await asyncio.shield(asking)

    async def _ask(self, team_id: str, user: str) -> Known | None:
        kind = await self._kind_of(team_id, user)
        if kind is None:
            return None
        found = Known(kind, self._ledger.clock.now_ms())
        try:
            await self._ledger.database.write("directory", lambda tx: people.keep(tx, team_id, user, found))
        except NotRecorded as error:
            log.warning("directory.not_kept", error=str(error))
            return None
        self._remember((team_id, user), found)
        return found

    def _remember(self, place: tuple[str, str], found: Known) -> None:
        if len(self._known) >= PEOPLE_MAX:
            self._known.clear()
        self._known[place] = found

    async def _kind_of(self, team_id: str, user: str) -> str | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                identity = await self._own_identity()
                member = await self._slack.member(user=user)
        except TimeoutError:
            log.warning("directory.unanswered", code="timeout")
            return None
        except AdapterError as error:
            if error.failure is Failure.NOT_FOUND:
                return "stranger"
            log.warning("directory.unanswered", code=error.code)
            return None
        # A command that an earlier version recorded carries the workspace of its payload.
        return kind_of(member, identity, self._enterprise_id) if team_id == identity.team_id else "stranger"

    async def _own_identity(self) -> Identity:
        if self._identity is None:
            self._identity = await self._slack.identify()
        return self._identity


def is_fresh(found: Known, now: int, *, approving: bool = False) -> bool:
    """Return true if an answer is recent enough not to query Slack again."""
    longest = FRESH_FOR_APPROVAL_MS if approving else FRESH_MS if found.kind == "member" else EXCLUDED_FRESH_MS
    return 0 <= now - found.fetched_at < longest


def kind_of(member: SlackMember, home: Identity, enterprise_id: str | None) -> str:
    """Return the first kind that excludes a person from the bot's workspace, or "member".

    Members of the Enterprise organization count as members if it is configured and Slack reports that the bot is part of it.
    """
    of_organization = enterprise_id is not None and enterprise_id == home.enterprise_id and enterprise_id in member.enterprise_ids
    if member.deactivated:
        return "deactivated"
    if home.team_id not in member.teams and not of_organization:
        return "stranger"
    if member.bot:
        return "bot"
    return "guest" if member.guest else "member"
