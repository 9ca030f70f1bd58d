"""Access gate in front of every Slack listener, and the answers to people whom it refuses.

A person whom this process knows and does not admit is refused at once, before their text is read. The request of a person whom
it does not know yet reaches the listener: a command is recorded, acknowledged and checked at its execution, while a read waits for
Slack's answer about the person. No listener can read a quote without a `Viewer`, and only `Admission.viewer` returns one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from adapters.failures import AdapterError
from ledger.database import DatabaseError
from quotebot.domain.access import Refusal, Viewer, admit
from quotebot.execution.membership import is_direct
from quotebot.slack import payloads
from quotebot.slack.form_fields import last_block
from quotebot.store import approvals, dead_letters, quotes
from quotebot.views import messages
from quotebot.views.blocks import read_any, section
from quotebot.views.confirmations import SHOW
from quotebot.views.forms import window
from quotebot.views.home import FIND, refused_view
from quotebot.views.seals import MARK, Seals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping

    from adapters.slack.api import SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.execution.membership import Directory, Known, Visibility

ADMISSION: Final = "admission"  # the key in a listener's context

Entry = Literal["command", "button", "form", "menu", "shortcut", "home", "mention", "direct_message"]
_INTERACTIVE: Final[Mapping[str, Entry]] = {
    "block_actions": "button",
    "view_submission": "form",
    "view_closed": "form",
    "block_suggestion": "menu",
    "message_action": "shortcut",
    "shortcut": "shortcut",
}
_EVENTS: Final[Mapping[str, Entry]] = {"app_home_opened": "home", "app_mention": "mention", "message": "direct_message"}
LEARN_SECONDS: Final = 1.0  # a read waits for users.info inside the acknowledgement, and Slack waits 3 s for that
CLICKS: Final = frozenset({"button", "form", "menu"})  # entry points whose container is checked
ANSWER_SECONDS: Final = 1.0
AUDIT_SECONDS: Final = 1.0
QUIET_MS: Final = 60_000  # one audit event and one answer per person and entry point in this time
COUNTED_MAX: Final = 10_000
Body = dict[str, Any]
log = structlog.get_logger(__name__)


class TurnedAwayError(Exception):
    """A listener needs a viewer and the person is not admitted. The gate answers in the listener's place."""


@dataclass(frozen=True, slots=True)
class Approach:
    """One request of one person at one entry point."""

    user: str
    entry: Entry


@dataclass(slots=True)
class Admission:
    """Gate decision about one request. `known` is None while this process does not know the person."""

    gate: AccessGate
    approach: Approach
    known: Viewer | Refusal | None

    async def viewer(self, quote_ids: Collection[str] = ()) -> Viewer:
        """Return the viewer of a read; queries Slack about an unknown person. Raises TurnedAwayError if the person is refused.

        Of quotes not in `quote_ids`, the viewer sees their own in full and the outline of all others.
        """
        if self.known is None:
            self.known = await self.gate.learned(self.approach.user)
        if isinstance(self.known, Refusal):
            raise TurnedAwayError(self.known.code)
        return await self.gate.near(self.known, quote_ids) if quote_ids else self.known


def approach_of(body: Body) -> Approach | None:
    """Return the person and the entry point of a request; None for an event that is not for the bot, e.g. talk in a channel."""
    if "command" in body:
        return Approach(body["user_id"], "command")
    gesture = _INTERACTIVE.get(str(body.get("type")))
    if gesture is not None:
        return Approach(body["user"]["id"], gesture)
    event = body.get("event") or {}
    entry, user = _EVENTS.get(str(event.get("type"))), event.get("user")
    if entry == "direct_message" and (event.get("channel_type") != "im" or "subtype" in event):
        return None
    return Approach(user, entry) if entry is not None and isinstance(user, str) and not event.get("bot_id") else None


async def viewer_of(context: Mapping[str, Any], *quote_ids: str | None) -> Viewer:
    """Return the viewer of a listener's request, with sight of these quotes; None ids are ignored. Raises TurnedAwayError."""
    admission: Admission = context[ADMISSION]
    return await admission.viewer([quote_id for quote_id in quote_ids if quote_id is not None])


@dataclass(slots=True)
class _Refused:
    """The refusals of one person at one entry point since the last audit event."""

    audited_at: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class AccessGate:
    """Gate that admits or refuses people by Slack's record of them, and answers those whom it refuses."""

    ledger: Ledger
    slack: SlackApi
    directory: Directory
    team_id: str  # the bot's own workspace
    guest_reps: Collection[str] = ()
    visibility: Visibility | None = None  # without it everybody sees only the outline of others' quotes
    _refused: dict[tuple[str, str, str], _Refused] = field(default_factory=dict)
    _learning: set[asyncio.Task[Any]] = field(default_factory=set)

    def approached(self, body: Body) -> Admission | None:
        """Return the admission of the sender; None for an event that is no request to the bot. Uses no ledger and no network."""
        approach = approach_of(body)
        if approach is None:
            return None
        found = self.directory.remembered(self.team_id, approach.user, self.ledger.clock.now_ms())
        known = None if found is None else admit(approach.user, self.team_id, found.kind, self.guest_reps)
        return Admission(self, approach, known)

    async def learned(self, user: str) -> Viewer | Refusal:
        """Return the viewer or the refusal by Slack's or the ledger's record; after LEARN_SECONDS the person counts as unknown."""
        found = await self._found(user)
        return admit(user, self.team_id, "unknown" if found is None else found.kind, self.guest_reps)

    async def zone_of(self, user: str) -> str:
        """Return the IANA name of a person's time zone by Slack's or the ledger's record; empty if it is not known in time."""
        found = await self._found(user)
        return "" if found is None else found.zone

    async def _found(self, user: str) -> Known | None:
        try:
            async with asyncio.timeout(LEARN_SECONDS):
                return await self.directory.learn(self.team_id, user)
        except TimeoutError:
            return None

    async def near(self, viewer: Viewer, quote_ids: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of these quotes needs."""
        return viewer if self.visibility is None else await self.visibility.about_quotes(viewer, quote_ids)

    def learn_later(self, admission: Admission | None) -> None:
        """Start to load the record of an unknown person after their request, so that the next one is decided at once."""
        if admission is not None and admission.known is None:
            learning = asyncio.create_task(self.directory.learn(self.team_id, admission.approach.user))
            self._learning.add(learning)
            learning.add_done_callback(self._learning.discard)

    async def recognized(self, body: Body) -> Body | None:
        """Return a click, a form or a menu's question without its seals; None if its container was not made for it and this person.

        The container of a button is a card that the ledger recorded for the quote or dead letter which its value names. Slack names
        no lasting message for an ephemeral reply or a view: there the value itself is sealed. What is typed into the menu of a Home
        tab is a search by the person who types, and its answer depends on them alone. Raises DatabaseError.
        """
        person, view = body["user"]["id"], body.get("view")
        if view is None:
            return await self._in_message(person, body)
        if body["type"] == "block_suggestion" and view.get("type") == "home" and body.get("action_id") == FIND:
            return body
        carried = None
        if view.get("callback_id"):
            carried = self.seals.opened(person, view["callback_id"], view.get("private_metadata") or "")
        if carried is not None:
            body = {**body, "view": {**view, "private_metadata": carried}}
        if body["type"] != "block_actions":
            return None if carried is None else body
        return self._unsealed(person, body) or (None if carried is None else body)

    async def _in_message(self, person: str, body: Body) -> Body | None:
        container, value = body.get("container") or {}, _chosen(body["actions"][0]) if body["type"] == "block_actions" else None
        channel, ts = container.get("channel_id"), container.get("message_ts")
        if channel is None or ts is None:
            return None
        if value is None:
            return body
        if container.get("is_ephemeral") or (is_direct(channel) and MARK in value):
            return self._unsealed(person, body)
        about = read_any(value)
        if about is None:
            return None if MARK in value else body  # of another build: its listener says so
        return body if await self.ledger.database.read(lambda tx: self._recorded(tx, body, about, channel, ts)) else None

    def _recorded(self, tx: Tx, body: Body, about: Body, channel: str, ts: str) -> bool:
        """Return true if the ledger recorded the message as the card of the quote or dead letter that a value names.

        In a direct message it may also be the copy that asks this person to decide the request which the value names. A reminder
        in the quote's thread has a button that shows the quote, and no other.
        """
        approval_id, person = about.get("a"), body["user"]["id"]
        if isinstance(approval_id, str) and is_direct(channel) and approvals.is_copy_for(tx, approval_id, person, channel, ts):
            return True
        if isinstance(about.get("q"), str):
            if body["actions"][0]["action_id"] == SHOW and quotes.is_reminder_of(tx, about["q"], ts):
                return True
            return quotes.is_card_of(tx, about["q"], channel, ts, self.team_id)
        if isinstance(about.get("l"), str):
            card = dead_letters.find(tx, about["l"])
            return card is None or (card.channel == channel and card.ts in (None, ts))
        if isinstance(about.get("cause"), str):
            of_cause = dead_letters.ops_card(tx, f"{dead_letters.CAUSE}{about['cause']}")
            return of_cause is None or (of_cause.channel == channel and of_cause.ts in (None, ts))
        return False

    def _unsealed(self, person: str, body: Body) -> Body | None:
        """Return a click without the seal on its value, or None if it was not sealed for this person and action."""
        action = body["actions"][0]
        value = self.seals.opened(person, action["action_id"], _chosen(action) or "")
        if value is None:
            return None
        held = {**action, "value": value}
        if "selected_option" in action:
            held = {**action, "selected_option": {**action["selected_option"], "value": value}}
        return {**body, "actions": [held, *body["actions"][1:]]}

    @property
    def seals(self) -> Seals:
        """The seals of this installation."""
        return Seals(self.ledger.audit.keyring)

    async def turn_away(self, body: Body, admission: Admission) -> Body | None:
        """Audit a refusal and answer it; return the acknowledgement's payload. No answer contains a fact about a quote."""
        approach, refusal = admission.approach, admission.known
        assert isinstance(refusal, Refusal)  # noqa: S101 -- called for refused people only
        is_first = await self._audit(approach, refusal)
        text = messages.turned_away(refusal.code)
        match approach.entry:
            case "command":
                return {"text": text}
            case "form" if body["type"] == "view_submission":
                return {"response_action": "errors", "errors": {last_block(body["view"]): text}}
            case "menu":
                return {"options": []}
            case _ if is_first or refusal.code == "foreign_click":
                await self._tell(body, approach, text)
        return None

    async def _tell(self, body: Body, approach: Approach, text: str) -> None:
        """Send the refusal where an acknowledgement carries no text."""
        work: Awaitable[object] | None = None
        if approach.entry == "home":
            work = self.slack.publish_home(user=approach.user, view=refused_view(text), correlation_id="access")
        elif approach.entry in ("mention", "direct_message"):
            event = body["event"]
            work = self.slack.ephemeral(channel=event["channel"], user=approach.user, text=text, thread_ts=event.get("thread_ts"))
        elif approach.entry in ("button", "shortcut"):
            response_url = payloads.gesture(body).response_url
            if response_url is not None:
                work = self.slack.respond(response_url, text=text)
            else:
                work = self.slack.open_view(trigger_id=body["trigger_id"], view=window([section(text)]))
        if work is not None:
            await attempt(work, ANSWER_SECONDS, "reply.not_sent")

    async def _audit(self, approach: Approach, refusal: Refusal) -> bool:
        """Audit one refusal per QUIET_MS, person, entry point and code, with the number since the last; false for the others."""
        now = self.ledger.clock.now_ms()
        place = (approach.user, approach.entry, refusal.code)
        counted = self._refused.get(place)
        if counted is not None and 0 <= now - counted.audited_at < QUIET_MS:
            counted.since += 1
            return False
        if len(self._refused) >= COUNTED_MAX:
            self._refused.clear()
        self._refused[place] = _Refused(now)
        after = {
            "code": refusal.code,
            "actor": approach.user,
            "actor_kind": refusal.kind,
            "entry": approach.entry,
            "count": 1 if counted is None else counted.since + 1,
        }

        def work(tx: Tx) -> None:
            self.ledger.audit.append(tx, now, "access.refused", actor=approach.user, actor_type="user", after=after)

        log.info("access.refused", code=refusal.code, entry=approach.entry, slack_user=approach.user)
        try:
            await self.ledger.database.write("access", work, deadline=self.ledger.clock.monotonic() + AUDIT_SECONDS)
        except DatabaseError:
            log.exception("access.refusal_not_audited", slack_user=approach.user)
        return True


def _chosen(action: Body) -> str | None:
    """Return the value of a clicked button or a chosen entry; None if it has none."""
    value = (action.get("selected_option") or action).get("value")
    return value if isinstance(value, str) else None


async def attempt(work: Awaitable[object], seconds: float, failure: str) -> bool:
    """Make one direct call to Slack; if it fails or takes longer than `seconds`, log the event `failure` and return false."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except (AdapterError, TimeoutError) as error:
        log.warning(failure, code=error.code if isinstance(error, AdapterError) else "timeout")
        return False
    return True
