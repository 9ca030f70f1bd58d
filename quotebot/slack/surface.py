"""Slack surface: what every listener shares, from the reservation of a command to forms and private replies.

A command is reserved, then answered: nothing is confirmed before it is durable, and failures are reported as such. Forms are opened
and private replies are sent in one direct attempt each, without a record or a pending effect.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown
from ledger.intake import RETRY_FIELDS
from ledger.keys import dumps
from ledger.records import QUOTEBOT, DedupeResult, Request, Reservation
from quotebot.commands.payloads import CloneQuote, CreateQuote
from quotebot.commands.registry import PAYLOAD_BYTES_MAX
from quotebot.domain.access import Sight, may_look_up, may_see
from quotebot.domain.approvals.decisions import Mandate, may_decide
from quotebot.domain.language import _
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import QuoteState
from quotebot.execution.membership import is_direct
from quotebot.slack import delegation, grammar, payloads, verbs
from quotebot.slack.builder_input import previewed
from quotebot.slack.digest import DigestRequest
from quotebot.slack.gate import attempt, viewer_of
from quotebot.slack.queries import Reads, present_answer
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import with_segments
from quotebot.views import forms, lifecycle_messages, messages
from quotebot.views.blocks import section
from quotebot.views.builder import Draft, create_form, discount_form, revise_form
from quotebot.views.card import APPROVE_WITH_REASON, CANCEL_BY_FORM, DISCOUNT, LOSE, REJECT, REQUEST_CHANGES, RESUBMIT, REVISE, SEND
from quotebot.views.confirmations import offer_blocks, show_blocks
from quotebot.views.forms import approve_modal, changes_modal, reject_modal, window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from adapters.salesforce.records import OpenOpportunity
    from adapters.slack.api import SlackApi
    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Approval, Quote
    from quotebot.domain.rules import Rules
    from quotebot.slack.gate import AccessGate
    from quotebot.store.crm_mirror import Found
    from quotebot.store.rulesets import ActiveRuleset
    from quotebot.views.blocks import ButtonValue
    from quotebot.views.card import Card

PEOPLE_MAX: Final = 10_000  # budgets in memory; the least recently used is dropped first
ROUNDING_SECONDS: Final = 1e-6
RULESET_TTL_SECONDS: Final = 0.01  # TTL of the cached active ruleset
RULESET_REFRESH_SECONDS: Final = 0.25  # age after which a recorded command starts a background read of it
PARSE_AGE_SECONDS: Final = 5.0  # maximum age of the ruleset by which a command is parsed without a new read
OPEN_SECONDS: Final = 1.8  # a form is opened inside the acknowledgement, and Slack waits 3 s for that
REPLY_SECONDS: Final = 0.8  # an ephemeral reply is sent inside the acknowledgement
RULESET_READ_SECONDS: Final = 0.5  # longest wait for a read; a large ruleset that was just activated may take longer

RECORDED: Final = (CreateQuote, CloneQuote, verbs.ChangeRequest, delegation.DelegationRequest, DigestRequest)

NO_RETRY: Final[Mapping[str, Any]] = MappingProxyType({})
Body = dict[str, Any]
log = structlog.get_logger(__name__)
_REASONS: Final[Mapping[str, Callable[[Quote, Approval], Body]]] = {
    REJECT: reject_modal,
    REQUEST_CHANGES: changes_modal,
    APPROVE_WITH_REASON: approve_modal,
}
# action id -> verb, test of the state, form
_ABOUT_QUOTE: Final[Mapping[str, tuple[str, Callable[[QuoteState], bool], Callable[[Quote], Body]]]] = {
    SEND: ("send", lambda state: QuoteState.SENT in allowed(state), forms.send_form),
    RESUBMIT: ("submit", lambda state: state is QuoteState.DRAFT, forms.resubmit_form),
    CANCEL_BY_FORM: ("cancel", lambda state: QuoteState.CANCELLED in allowed(state), forms.cancel_form),
    LOSE: ("lose", lambda state: QuoteState.LOST in allowed(state), forms.lose_form),
}
FORMS: Final = _REASONS.keys() | _ABOUT_QUOTE.keys() | {REVISE, DISCOUNT}  # action ids that open a form


@dataclass(frozen=True, slots=True)
class Answer:
    """Content of an acknowledgement. `recorded` is None if the outcome is unknown."""

    recorded: bool | None
    text: str
    blocks: tuple[dict[str, Any], ...] = ()
    over_budget: bool = False  # refused by the person's budget: a redelivery would not help


def transport_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return how an envelope came: its id, and the number and the reason of Slack's retry if it is one."""
    retry = {name: context[name] for name in RETRY_FIELDS if context.get(name)}
    return {"envelope_id": context.get("envelope_id"), "retry": retry}


class Reserver:
    """Recorder of commands within the time budget of an acknowledgement."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        team_id: str,
        ack_budget_seconds: float,
        observe: Callable[[float], object] = lambda _: None,
        arrivals: Mapping[str, float] = MappingProxyType({}),
        commands_per_minute: int | None = None,
        reserving: Callable[[], object] = lambda: None,
    ) -> None:
        """`team_id` is the bot's own workspace.

        `observe` is called with the seconds that each reservation took; `arrivals` maps envelope ids to arrival times (monotonic
        seconds). `commands_per_minute` is the budget of each person; None: there is no limit. `reserving` is called before each
        reservation, but not for a refused command.
        """
        self._ledger = ledger
        self._team_id = team_id
        self._budget = ack_budget_seconds
        self._observe = observe
        self._arrivals = arrivals
        self._reserving = reserving
        self._budgets = None if commands_per_minute is None else Budgets(ledger.clock, commands_per_minute)

    async def receive(self, command: Command, *, envelope_id: str | None, retry: Mapping[str, Any] = NO_RETRY) -> Answer:
        """Record the command and return its answer (SPEC 3.3), for a first delivery or a duplicate.

        `retry` is the number and the reason of Slack's retry; they are stored with the delivery.
        """
        payload = command.payload.canonical()
        # The canonical form has the same length as the ledger's JSON, which is faster to make.
        if len(dumps(payload).encode()) > PAYLOAD_BYTES_MAX:
            log.warning("command.too_large", action_kind=command.payload.kind)
            return Answer(recorded=False, text=messages.command_too_large(PAYLOAD_BYTES_MAX))
        request = Request(
            source=command.source,
            source_request_id=command.source_request_id,
            action_kind=command.payload.kind,
            aggregate_id=command.aggregate_id,
            aggregate_version=command.aggregate_version,
            payload=payload,
            fingerprint=command.fingerprint,
            actor=command.actor,
            actor_type=command.actor_type,
            team_id=self._team_id,
            received_at=command.received_at,
            transport={
                "envelope_id": envelope_id,
                "response_url": command.response_url,
                "actor_name": command.actor_name,
                **retry,
            },
        )
        began = self._ledger.clock.monotonic()
        refused = await self._over_budget(request)
        if refused is not None:
            return refused
        deadline = self._arrivals.get(envelope_id or "", began) + self._budget
        self._reserving()
        try:
            reservation = await self._ledger.reserve(request, deadline=deadline)
        except NotRecorded:
            log.warning("command.not_recorded", action_kind=request.action_kind)
            return Answer(recorded=False, text=_(messages.NOTHING_RECORDED))
        except OutcomeUnknown:
            log.exception("command.maybe_recorded", action_kind=request.action_kind)
            return Answer(recorded=None, text=_(messages.MAYBE_RECORDED))
        self._observe(self._ledger.clock.monotonic() - began)
        if reservation.sighting is not DedupeResult.NEW:  # the worker logs the result of a new one
            repeated = partial(
                log.info,
                "command.repeated",
                action_kind=request.action_kind,
                correlation_id=reservation.operation.correlation_id,
                sighting=reservation.sighting.value,
                **retry,
            )
            asyncio.get_running_loop().call_soon(repeated)  # runs when the acknowledgement is on its way
        return answer_for(reservation)

    async def _over_budget(self, request: Request) -> Answer | None:
        """Return the refusal of a person's command over their budget; None for others, and for one that is recorded already."""
        if self._budgets is None or request.actor_type != "user":
            return None
        wait_seconds = self._budgets.spend(request.actor)
        if not wait_seconds:
            return None
        try:
            recorded = await self._ledger.database.read(
                lambda tx: tx.one(
                    "find_delivery",
                    source=request.source,
                    source_request_id=request.source_request_id,
                    action_kind=request.action_kind,
                )
            )
        except DatabaseError:
            return None  # the reservation reports the actual state
        if recorded is not None:
            return None
        log.warning("command.over_budget", action_kind=request.action_kind, wait_seconds=wait_seconds)
        text = messages.over_budget(self._budgets.per_minute, wait_seconds)
        return Answer(recorded=False, text=text, over_budget=True)

    async def drop(self, envelope_id: str | None, size: int) -> None:
        """Audit an envelope of `size` bytes that is too large to be read. It is dropped even if the audit fails."""
        now = self._ledger.clock.now_ms()
        after = {"envelope_id": envelope_id, "bytes": size}

        def work(tx: Tx) -> None:
            self._ledger.audit.append(tx, now, "delivery.dropped", actor=QUOTEBOT, actor_type="system", after=after)

        log.warning("envelope.dropped", envelope_id=envelope_id, bytes=size)
        try:
            await self._ledger.database.write("drop", work, deadline=self._ledger.clock.monotonic() + self._budget)
        except DatabaseError:
            log.exception("envelope.drop_not_audited", envelope_id=envelope_id)


def answer_for(reservation: Reservation) -> Answer:
    """Return the answer to a delivery, by the state of its operation; an earlier question is repeated with its buttons.

    A new command gets none: its result is its answer.
    """
    operation = reservation.operation
    if reservation.sighting is DedupeResult.CONFLICT:
        return Answer(recorded=True, text=_(messages.CONFLICT))
    if reservation.sighting is DedupeResult.NEW:
        return Answer(recorded=True, text="")
    if reservation.sighting is DedupeResult.TOMBSTONE:
        finished_at = operation.received_at if reservation.finished_at is None else reservation.finished_at
        return Answer(recorded=True, text=messages.finished_long_ago(operation.outcome, finished_at))
    text, offer = present_answer(operation), (operation.response or {}).get("offer")
    return Answer(recorded=True, text=text, blocks=() if offer is None else tuple(offer_blocks(text, offer)))


class Budgets:
    """Token buckets, one per person."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._seconds = 60.0 / per_minute  # time to refill one command
        self._full_at: dict[str, float] = {}  # person -> time when their budget is full again (monotonic seconds)

    def spend(self, person: str) -> int:
        """Spend one command of a person and return 0; if none is left, spend nothing and return the seconds until the next."""
        now = self._clock.monotonic()
        full_at = max(self._full_at.pop(person, now), now)
        wait_seconds = full_at + self._seconds - now - 60.0
        within = wait_seconds <= ROUNDING_SECONDS
        self._full_at[person] = full_at + self._seconds if within else full_at
        while len(self._full_at) > PEOPLE_MAX:
            del self._full_at[next(iter(self._full_at))]
        return 0 if within else math.ceil(wait_seconds)


class NotAcknowledgedError(Exception):
    """A click or an event could not be recorded. Its acknowledgement carries no text, so it is withheld.

    Slack marks the click as failed, and delivers the event again.
    """


@dataclass(slots=True)
class RulesetRead:
    """Last read of the active ruleset, begun `at` (monotonic seconds)."""

    at: float = float("-inf")
    reading: asyncio.Future[Any] | None = None  # the event loop keeps no strong reference to it


@dataclass(frozen=True, slots=True)
class Surface:
    """Dependencies of the listeners. `status` renders a quote's card from its current state."""

    desk: Reserver
    ledger: Ledger
    slack: SlackApi
    rules: Rules
    active: ActiveRuleset
    status: Callable[[str, Viewer], Awaitable[Card | None]]
    gate: AccessGate
    last_read: RulesetRead = field(default_factory=RulesetRead)
    lookup: Callable[[str], Awaitable[Found[str]]] | None = None  # account names in the CRM, if enabled
    opportunities: Callable[[str, str], Awaitable[Found[OpenOpportunity]]] | None = None  # open ones of an account
    contacts: Callable[[str, str], Awaitable[Found[str]]] | None = None  # of a customer, if the CRM mirror is kept
    record_hosts: frozenset[str] = frozenset()  # hosts of links to records of the CRM

    def reads(self, rules: Rules) -> Reads:
        """Return the queries that use these rules."""
        return Reads(self.ledger, rules, self.gate.visibility)

    async def rules_now(self) -> Rules:
        """Return the rules with the active ruleset. It is used only to parse text: each command reads the ruleset itself.

        A read younger than RULESET_TTL_SECONDS is shared instead of repeated.
        """
        if self.ruleset_age_seconds() >= RULESET_TTL_SECONDS:
            await asyncio.wait(
                {self.read_ruleset()}, timeout=RULESET_READ_SECONDS
            )  # after the timeout it continues, for the next command
        return replace(self.rules, ruleset=self.active.known)

    async def rules_for(self, rules: Rules, account: str, account_id: str | None = None) -> Rules:
        """Return the rules with the segments of a customer, by the CRM's id of its account or else by name."""
        if rules.account_segments is None:
            return rules
        now = self.ledger.clock.now_ms()
        return await self.ledger.database.read(lambda tx: with_segments(tx, rules, account, account_id, now))

    async def understood(self, text: str, channel: str) -> tuple[verbs.Meaning, Rules]:
        """Return the meaning of typed text, and the rules by which it was parsed.

        A command that parses with a ruleset younger than PARSE_AGE_SECONDS does not wait for a read of the ledger. Text that does
        not parse, and read-only requests, use the current ruleset.
        """
        if len(text) > grammar.TEXT_CHARACTERS_MAX:
            return grammar.GrammarProblem(messages.too_long(grammar.TEXT_CHARACTERS_MAX)), self.rules
        age_seconds = self.ruleset_age_seconds()
        if age_seconds < PARSE_AGE_SECONDS:
            asked = verbs.parse(text, channel, self.active.known.catalogue)
            if isinstance(asked, RECORDED):
                return asked, self.rules
        rules = await self.rules_now()
        return verbs.parse(text, channel, rules.catalogue), rules

    def ruleset_age_seconds(self) -> float:
        """Return the age of the last read of the active ruleset."""
        return self.ledger.clock.monotonic() - self.last_read.at

    def read_ruleset(self) -> asyncio.Future[Any]:
        """Start a read of the active ruleset."""
        self.last_read.at = self.ledger.clock.monotonic()
        self.last_read.reading = reading = asyncio.ensure_future(self.ledger.database.read(self.active.read))
        reading.add_done_callback(_noticed)
        return reading

    async def reply(self, ack: Any, body: Body, text: str, blocks: Sequence[Body] = ()) -> None:
        """Send one person a private reply that changes nothing, then acknowledge."""
        await self.reply_privately(body, text, blocks)
        await ack()

    async def offer_creation(self, ack: Any, body: Body, channel: str | None, draft: Draft, viewer: Viewer) -> None:
        """Open the form of a new quote, or reply that Slack did not open it; then acknowledge."""
        if not await self.open_creation(body, channel, draft, viewer):
            await self.reply_privately(body, _(messages.FORM_NOT_OPENED))
        await ack()

    async def open_creation(self, body: Body, channel: str | None, draft: Draft, viewer: Viewer) -> bool:
        """Open the form of a new quote; return false if Slack did not open it. Without a channel the form asks for one."""
        channel = None if is_direct(channel) else channel  # the form asks for one
        looks_up, rules = self.lookup is not None and may_look_up(viewer), await self.rules_now()
        view = create_form(
            channel,
            rules.ruleset,
            draft,
            policy=rules.policy,
            lookup=looks_up,
            opportunities=looks_up and self.opportunities is not None,
            by_customer=rules.account_segments is not None,
        )
        if draft.lines or draft.text:
            view = previewed(view, await self.rules_for(rules, draft.account), self.ledger.clock.now_ms(), None)
        return await self.open_form(body, view)

    async def click(self, ack: Any, body: Body, context: Any, command: Command) -> None:
        """Record the command of a click, then acknowledge it. A click over the person's budget is answered privately."""
        refused = await self.recorded(context, command)
        if refused is not None:
            await self.reply_privately(body, refused)
        await ack()

    async def recorded(self, context: Any, command: Command) -> str | None:
        """Record a command whose acknowledgement carries no text. Raises NotAcknowledgedError if that failed, to withhold it.

        A command over the person's budget is acknowledged without a record, because Slack would redeliver an event; in that case
        the refusal is returned, otherwise None.
        """
        answer = await self.desk.receive(command, **transport_of(context))
        if answer.over_budget:
            return answer.text
        if answer.recorded is not True:
            raise NotAcknowledgedError(answer.text)
        return None

    async def submitted(self, ack: Any, context: Any, command: Command, block_id: str) -> None:
        """Record the command of a form and close the form; if it was not recorded, show the reason at `block_id`."""
        answer = await self.desk.receive(command, **transport_of(context))
        if answer.recorded is True:
            await ack()
        else:
            await ack(response_action="errors", errors={block_id: answer.text})

    async def open_about(self, body: Body, asked: str, value: ButtonValue, viewer: Viewer) -> None:
        """Open the form of a button if the card's version is current and the state allows it; else reply with the reason."""
        view = await self.form_about(asked, value.quote_id, value.version, viewer)
        if isinstance(view, Answer):
            await self.reply_privately(body, view.text, view.blocks)
        elif not await self.open_form(body, view):
            await self.reply_privately(body, _(messages.FORM_NOT_OPENED))

    async def form_about(self, asked: str, quote_id: str, version: int | None, viewer: Viewer) -> Body | Answer:
        """Return the form about the `version` of a quote that the person saw, None for the head, or why it cannot be opened."""
        now = self.ledger.clock.now_ms()
        quote, away = await self.ledger.database.read(
            lambda tx: (store.load(tx, quote_id), approval_store.delegations(tx, viewer.team_id, now))
        )
        sight = Sight.NOTHING if quote is None else may_see(viewer, quote)
        if quote is None or sight is not Sight.FULL:
            return Answer(recorded=False, text=messages.not_seen(quote_id, quote, sight))
        if version not in (None, quote.version):
            text = messages.stale(version or 0, quote)
            shown = show_blocks(text, quote_id, quote.version, _("Show v{version}", version=quote.version))
            return Answer(recorded=False, text=text, blocks=tuple(shown))
        view = self._view(asked, quote, viewer, away)
        return Answer(recorded=False, text=view) if isinstance(view, str) else view

    def _view(self, asked: str, quote: Quote, viewer: Viewer, away: Sequence[Delegation]) -> Body | str:
        """Return the form, or the reason why it cannot be opened now."""
        if asked in _REASONS:
            if quote.approval is None:
                return lifecycle_messages.not_offered(quote, "decide")
            verdict = may_decide(quote.approval, quote, self.rules.person(viewer.user, viewer.team_id, away, viewer.kind))
            return _REASONS[asked](quote, quote.approval) if isinstance(verdict, Mandate) else verdict.sentence
        if asked in (REVISE, DISCOUNT):
            if not may_be_changed(quote.state):
                return lifecycle_messages.wrong_state(quote, "edit")
            rules = replace(self.rules, ruleset=self.active.known)
            return discount_form(quote, rules.policy) if asked == DISCOUNT else revise_form(quote, rules.ruleset, rules.policy)
        verb, legal, form = _ABOUT_QUOTE[asked]
        if asked == SEND and self.contacts is not None and legal(quote.state):
            return forms.send_form(quote, contacts=True)
        return form(quote) if legal(quote.state) else lifecycle_messages.wrong_state(quote, verb)

    async def visible(self, quote_id: str, viewer: Viewer) -> Quote | None:
        """Return a quote's head version; None if there is no such quote, or the viewer may not see it in full."""
        quote = await self.ledger.database.read(lambda tx: store.load(tx, quote_id))
        return quote if quote is not None and may_see(viewer, quote) is Sight.FULL else None

    async def outdated(self, ack: Any, body: Body, context: Any) -> None:
        """Reply to a click on a card's button that this build cannot read, with a button that shows the quote of that card."""
        viewer, place = await viewer_of(context), body.get("container") or {}
        where = {"channel": place.get("channel_id") or "", "thread_ts": place.get("message_ts") or "", "team_id": viewer.team_id}
        quote = await self.ledger.database.read(lambda tx: store.of_thread(tx, **where))
        if quote is None or may_see(await viewer_of(context, quote.quote_id), quote) is not Sight.FULL:
            await self.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        text = _(messages.OUTDATED_BUTTON)
        await self.reply(ack, body, text, show_blocks(text, quote.quote_id, quote.version, _("Show quote")))

    async def open_form(self, body: Mapping[str, Any], view: Body) -> bool:
        """Open a form with the trigger of `body`; return false if Slack did not open it within OPEN_SECONDS."""
        person = body["user_id"] if "user_id" in body else body["user"]["id"]
        sealed = self.gate.seals.view(person, view)
        return await attempt(self.slack.open_view(trigger_id=body["trigger_id"], view=sealed), OPEN_SECONDS, "form.not_opened")

    async def redraw(self, person: str, view: Mapping[str, Any], anew: Body) -> str | None:
        """Redraw a person's open form that did not change meanwhile; input in remaining fields is kept.

        Return its new hash, or None if Slack did not redraw it.
        """
        hashes: list[str] = []

        async def update() -> None:
            sealed = self.gate.seals.view(person, anew)
            hashes.append(await self.slack.update_view(view_id=view["id"], view_hash=view["hash"], view=sealed))

        done = await attempt(update(), OPEN_SECONDS, "form.not_redrawn")
        return hashes[0] if done else None

    async def reply_privately(self, body: Body, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply that changes nothing: ephemeral under their message or, on a Home tab, in a modal.

        `replace` puts it in place of the ephemeral reply that they clicked on.
        """
        who = payloads.gesture(body)
        blocks = self.gate.seals.blocks(who.user, blocks)
        if who.response_url is None:
            await self.open_form(body, window([block for block in blocks if block["type"] != "actions"] or [section(text)]))
            return
        await self.respond(who.response_url, text, blocks, replace=replace)

    async def respond(self, response_url: str, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply through the `response_url` of their request: one attempt, no pending effect."""
        await attempt(self.slack.respond(response_url, text=text, blocks=blocks, replace=replace), REPLY_SECONDS, "reply.not_sent")


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Log a failed read; parsing continues with the last known ruleset."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
