"""Membership of people in the workspace and its channels, by Slack's facts, which are cached in memory and in the ledger.

A payload names a workspace, but not whether the person is a member of the bot's workspace, a guest, a bot or deactivated: only
`users.info` has that. An approval needs an answer from the last minute, because a role may have ended in the meantime; everything
else needs one from the last hour. If Slack does not answer, its answer from the last day counts. Without one the person is unknown,
and the gate refuses unknown persons (domain/access.py).

Facts of a quote are posted into a channel only if Slack reports that no other organization shares it, or if the setting
`shared_channels` lists it. Every other channel counts as shared, also if the installation lacks the scope or Slack does not show
the channel. An outage is neither: the caller gets the error and tries again later.

Commands query Slack after their acknowledgement and outside every transaction.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from adapters.failures import UNAVAILABLE, AdapterError, Failure
from ledger.database import DatabaseError, NotRecorded
from quotebot.domain.access import INSIDER, Circle
from quotebot.store import approvals, quotes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from adapters.slack.api import ChannelFacts, Identity, SlackApi, SlackMember
    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Operation
    from quotebot.domain.access import Viewer

TRUSTED_MS: Final = 86_400_000  # validity of an answer from Slack while there is no newer one
ASK_SECONDS: Final = 2.0
FRESH_MS: Final = 3_600_000
EXCLUDED_FRESH_MS: Final = 300_000  # a guest who has become a member is refused for at most this time
PEOPLE_MAX: Final = 10_000  # in memory
FRESH_FOR_APPROVAL_MS: Final = 60_000
APPROVING: Final = frozenset({"approval.decide", "quote.submit"})  # submitting may approve, if no one else is needed

SHARING_FRESH_MS: Final = 60_000
MEMBERS_FRESH_MS: Final = 600_000
CHANNELS_MAX: Final = 1_000  # cached at once
MISSING_SCOPE: Final = "missing_scope"
READ_SECONDS: Final = 0.8  # a read waits for Slack inside the acknowledgement

Value = TypeVar("Value")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """Slack's answer on a person, and its time (Unix ms). `kind` is one of quotebot.domain.approvals.people."""

    kind: str
    fetched_at: int
    name: str = ""  # in the person's profile
    zone: str = ""  # likewise: the IANA name of their time zone
    email: str = ""  # likewise; empty without the scope users:read.email
    phone: str = ""  # likewise

    def counts_at(self, now: int) -> bool:
        """Return true if the answer is recent enough; setting the clock back does not make an old one valid."""
        return abs(now - self.fetched_at) <= TRUSTED_MS


_STORED: Final = ("kind", "fetched_at", "name", "zone", "email", "phone")  # columns of people


def known_person(tx: Tx, team_id: str, user: str) -> Known | None:
    """Return the stored answer on a person in a workspace, or None if Slack was never asked."""
    row = tx.one("known_person", team_id=team_id, user_id=user)
    return None if row is None else Known(**{name: row[name] for name in _STORED})


def keep_person(tx: Tx, team_id: str, user: str, found: Known) -> None:
    """Store Slack's answer unless a newer one is stored; one from far in the future counts as none."""
    facts = {name: getattr(found, name) for name in _STORED}
    tx.one("keep_person", team_id=team_id, user_id=user, trusted_ms=TRUSTED_MS, **facts)


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

    async def refresh_actor(self, operation: Operation) -> bool:
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
        found = await self._ledger.database.read(lambda tx: known_person(tx, *place))
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
            found = await self._ledger.database.read(partial(known_person, team_id=team_id, user=user))
            if found is not None and is_fresh(found, now, approving=True):
                continue
            if await self._ask_once(team_id, user) is None:
                return

    async def check(self, users: Iterable[str]) -> list[str]:
        """Ask Slack about people, one after the other, and store its answers; return those who are no full members.

        It stops at the first person about whom Slack does not answer. Raises AdapterError if it does not know the workspace.
        """
        identity, gone = await self._own_identity(), []
        for user in dict.fromkeys(users):
            found = await self._ask_once(identity.team_id, user)
            if found is None:
                break
            if found.kind != "member":
                gone.append(user)
        return gone

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
            kept = await self._ledger.database.read(lambda tx: known_person(tx, team_id, user))
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
        found = await self._answer(team_id, user)
        if found is None:
            return None
        try:
            await self._ledger.database.write("directory", lambda tx: keep_person(tx, team_id, user, found))
        except NotRecorded as error:
            log.warning("directory.not_kept", error=str(error))
            return None
        self._remember((team_id, user), found)
        return found

    def _remember(self, place: tuple[str, str], found: Known) -> None:
        if len(self._known) >= PEOPLE_MAX:
            self._known.clear()
        self._known[place] = found

    async def _answer(self, team_id: str, user: str) -> Known | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                identity = await self._own_identity()
                member = await self._slack.member(user=user)
        except TimeoutError:
            log.warning("directory.unanswered", code="timeout")
            return None
        except AdapterError as error:
            if error.failure is Failure.NOT_FOUND:
                return Known("stranger", self._ledger.clock.now_ms())
            log.warning("directory.unanswered", code=error.code)
            return None
        # A command that an earlier version recorded carries the workspace of its payload.
        kind = kind_of(member, identity, self._enterprise_id) if team_id == identity.team_id else "stranger"
        return Known(kind, self._ledger.clock.now_ms(), member.name, member.zone, member.email, member.phone)

    async def link_to(self, channel: str, ts: str) -> str | None:
        """Return the address of a message in the workspace; None if Slack does not answer."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                base = (await self._own_identity()).url
        except (AdapterError, TimeoutError):
            return None
        return f"{base.rstrip('/')}/archives/{channel}/p{ts.replace('.', '')}" if base else None

    async def bot_user(self) -> str:
        """Return the bot's own user id. Raises AdapterError if Slack does not answer."""
        return (await self._own_identity()).bot_user_id

    @property
    def home(self) -> str | None:
        """The bot's own workspace; None until Slack was asked."""
        return None if self._identity is None else self._identity.team_id

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


def is_direct(channel: str | None) -> bool:
    """Return true if a channel is a direct message: no approver can read it, so no quote is created in it."""
    return channel is not None and channel.startswith("D")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Value]):
    value: Value
    at: int  # Unix ms


@dataclass(frozen=True, slots=True)
class Audience:
    """Readers of a channel that only the bot's workspace uses: its members, and in a public one every member of the workspace."""

    public: bool
    members: frozenset[str]


class Channels:
    """Cache of Slack's facts about channels. `listed` are the shared channels that may hold quotes."""

    def __init__(self, clock: Clock, slack: SlackApi, listed: Collection[str] = ()) -> None:
        self._clock = clock
        self._slack = slack
        self._listed = frozenset(listed)
        self._facts: dict[str, _Kept[ChannelFacts | None]] = {}
        self._members: dict[str, _Kept[frozenset[str]]] = {}

    async def may_post(self, channel: str) -> bool:
        """Return true if facts of a quote may be posted into a channel. Raises AdapterError if Slack does not answer."""
        if is_direct(channel) or channel in self._listed:
            return True
        facts = await self._ask(channel, SHARING_FRESH_MS)
        return facts is not None and not facts.ext_shared

    async def open_to(self, user: str, channels: Iterable[str], *, seconds: float) -> frozenset[str]:
        """Return those of the channels that are public in the workspace, or that have the person as a member.

        A channel is left out if this is not known within `seconds`: a missing scope, a channel without the bot, an outage.
        """
        tasks = {channel: asyncio.ensure_future(self.is_open_to(user, channel)) for channel in dict.fromkeys(channels)}
        if not tasks:
            return frozenset()
        _, late = await asyncio.wait(tasks.values(), timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return frozenset(channel for channel, task in tasks.items() if not task.cancelled() and task.result())

    async def is_open_to(self, user: str, channel: str) -> bool | None:
        """Return true if a channel is public or has the person as a member; None if Slack does not answer."""
        if is_direct(channel):
            return False
        try:
            facts = await self._ask(channel, MEMBERS_FRESH_MS)
            if facts is None or facts.kind == "direct":
                return False
            return facts.kind == "public" or user in await self._members_of(channel)
        except AdapterError as error:
            log.warning("channel.unanswered", channel=channel, code=error.code)
            return None if error.failure in (*UNAVAILABLE, Failure.THROTTLED) else False

    async def audience(self, channel: str) -> Audience | None:
        """Return the readers of a channel; None for direct messages, shared channels, and those that Slack does not show.

        Raises AdapterError if Slack does not answer.
        """
        if is_direct(channel):
            return None
        try:
            facts = await self._ask(channel, SHARING_FRESH_MS)
            if facts is None or facts.kind == "direct" or facts.ext_shared or facts.org_shared:
                return None
            members = await self._members_of(channel, SHARING_FRESH_MS)
        except AdapterError as error:
            if error.failure in (*UNAVAILABLE, Failure.THROTTLED):
                raise
            return None
        return Audience(facts.kind == "public", members) if members else None

    async def is_public(self, channel: str) -> bool:
        """Return true if every member of the workspace can read a channel; false for one that Slack does not show.

        Raises AdapterError if Slack does not answer.
        """
        try:
            facts = await self._ask(channel, SHARING_FRESH_MS)
        except AdapterError as error:
            if error.failure in (*UNAVAILABLE, Failure.THROTTLED):
                raise
            return False
        return facts is not None and facts.kind == "public"

    async def _ask(self, channel: str, fresh_ms: int) -> ChannelFacts | None:
        """Return a channel's facts, at most `fresh_ms` old; None if the scope for them is missing."""
        now = self._clock.now_ms()
        kept = self._facts.get(channel)
        if kept is not None and 0 <= now - kept.at < fresh_ms:
            return kept.value
        try:
            facts = await self._slack.channel(channel=channel)
        except AdapterError as error:
            if error.code != MISSING_SCOPE:
                raise
            log.warning("channel.unknown", channel=channel, do="quotebot doctor --only slack.channel_scopes")
            facts = None
        _cached(self._facts, channel, _Kept(facts, now))
        return facts

    async def _members_of(self, channel: str, fresh_ms: int = MEMBERS_FRESH_MS) -> frozenset[str]:
        now = self._clock.now_ms()
        kept = self._members.get(channel)
        if kept is not None and 0 <= now - kept.at < fresh_ms:
            return kept.value
        try:
            members = await self._slack.members(channel=channel)
        except AdapterError as error:
            if error.failure not in (Failure.AUTH, Failure.NOT_FOUND):
                raise
            log.warning("channel.members_unknown", channel=channel, code=error.code)
            members = frozenset()
        _cached(self._members, channel, _Kept(members, now))
        return members


def _cached(kept: dict[str, _Kept[Value]], channel: str, value: _Kept[Value]) -> None:
    if len(kept) >= CHANNELS_MAX:
        kept.clear()
    kept[channel] = value


@dataclass(frozen=True, slots=True)
class Visibility:
    """Lookup of a person's circle. `insiders` are the persons with a role in the settings."""

    ledger: Ledger
    channels: Channels
    insiders: frozenset[str]

    async def about_quotes(self, viewer: Viewer, quote_ids: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of these quotes needs."""
        if not quote_ids or viewer.own_only:
            return viewer
        wanted = await self.ledger.database.read(lambda tx: _channels_of(tx, quote_ids, viewer.user))
        return await self.about_channels(viewer, wanted)

    async def about_channels(self, viewer: Viewer, channels: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of quotes of these channels needs."""
        if not channels or viewer.own_only or viewer.circle.insider:
            return viewer
        if viewer.user in self.insiders:
            return replace(viewer, circle=INSIDER)
        found = await self.channels.open_to(viewer.user, channels, seconds=READ_SECONDS)
        return replace(viewer, circle=Circle(channels=found, asked=frozenset(channels)))

    async def of_actor(self, user: str, channel: str) -> Circle | None:
        """Return the circle of a person who changes a quote of this channel; None if Slack does not answer."""
        if user in self.insiders:
            return INSIDER
        found = await self.channels.is_open_to(user, channel)
        asked = frozenset({channel})
        return None if found is None else Circle(channels=asked if found else frozenset(), asked=asked)


def _channels_of(tx: Tx, quote_ids: Collection[str], user: str) -> frozenset[str]:
    """Return the channels of those quotes that the person did not request."""
    found = (quotes.origin(tx, quote_id) for quote_id in quote_ids)
    return frozenset(channel for requester, channel in filter(None, found) if requester != user)
