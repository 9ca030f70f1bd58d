"""The dependencies that every Slack listener shares, and the steps that several listeners take.

Forms are opened and private replies are sent in one direct attempt each, without a record or a pending effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot.commands.lifecycle import CloneQuote
from quotebot.commands.registry import CreateQuote
from quotebot.domain.access import Sight, may_look_up, may_see
from quotebot.domain.approvals.decisions import Mandate, may_decide
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import QuoteState
from quotebot.execution.membership import is_direct
from quotebot.slack import delegation, grammar, payloads, verbs
from quotebot.slack.gate import attempt
from quotebot.slack.queries import Reads
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store
from quotebot.views import forms, lifecycle_messages, messages
from quotebot.views.blocks import section
from quotebot.views.buttons import APPROVE_WITH_REASON, DISCOUNT, LOSE, REJECT, REQUEST_CHANGES, REVISE, SEND
from quotebot.views.forms import approve_modal, changes_modal, reject_modal, window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from adapters.salesforce.records import OpenOpportunity
    from adapters.slack.api import SlackApi
    from ledger.ledger import Ledger
    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Approval, Quote
    from quotebot.domain.rules import Rules
    from quotebot.slack.gate import AccessGate
    from quotebot.slack.reserve import Reserver
    from quotebot.store.crm_mirror import Found
    from quotebot.store.rulesets import ActiveRuleset
    from quotebot.views.blocks import ButtonValue
    from quotebot.views.card import Card

LOOK_SECONDS: Final = 0.01  # TTL of the cached active ruleset
LOOK_AGAIN_SECONDS: Final = 0.25  # age after which a recorded command starts a background read of it
WORDS_SECONDS: Final = 5.0  # maximum age of the catalogue by which a command is parsed without a new read
OPEN_SECONDS: Final = 1.8  # a form is opened inside the acknowledgement, and Slack waits 3 s for that
WHISPER_SECONDS: Final = 0.8
RULES_SECONDS: Final = 0.5  # longest wait for a read; a large ruleset that was just activated may take longer

RECORDED: Final = (CreateQuote, CloneQuote, verbs.ChangeRequest, delegation.DelegationRequest)

Body = dict[str, Any]
log = structlog.get_logger(__name__)
_REASONS: Final[Mapping[str, Callable[[Quote, Approval], Body]]] = {
    REJECT: reject_modal,
    REQUEST_CHANGES: changes_modal,
    APPROVE_WITH_REASON: approve_modal,
}
# action id -> verb, test of the state, form
_ABOUT_QUOTE: Final[Mapping[str, tuple[str, Callable[[QuoteState], bool], Callable[[Quote], Body]]]] = {
    REVISE: ("edit", may_be_changed, forms.revise_form),
    DISCOUNT: ("edit", may_be_changed, forms.discount_form),
    SEND: ("send", lambda state: QuoteState.SENT in allowed(state), forms.send_form),
    LOSE: ("lose", lambda state: QuoteState.LOST in allowed(state), forms.lose_form),
}
FORMS: Final = _REASONS.keys() | _ABOUT_QUOTE.keys()  # action ids that open a form


class NotAcknowledgedError(Exception):
    """A click or an event could not be recorded. Its acknowledgement carries no text, so it is withheld.

    Slack marks the click as failed, and delivers the event again.
    """


@dataclass(slots=True)
class Looked:
    """Time of the last check of the active ruleset, in monotonic seconds."""

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
    looked: Looked = field(default_factory=Looked)
    lookup: Callable[[str], Awaitable[Found[str]]] | None = None  # account names in the CRM, if enabled
    opportunities: Callable[[str, str], Awaitable[Found[OpenOpportunity]]] | None = None  # open ones of an account
    contacts: Callable[[str, str], Awaitable[Found[str]]] | None = None  # of a customer, if the CRM mirror is kept

    def reads(self, rules: Rules) -> Reads:
        """Return the queries that use these rules."""
        return Reads(self.ledger, rules, self.gate.visibility)

    async def rules_now(self) -> Rules:
        """Return the rules with the active ruleset. It is used only to parse text: each command reads the ruleset itself.

        A read younger than LOOK_SECONDS is shared instead of repeated.
        """
        if self.looked_seconds_ago() >= LOOK_SECONDS:
            await asyncio.wait({self.look()}, timeout=RULES_SECONDS)  # after the timeout it continues, for the next command
        return replace(self.rules, ruleset=self.active.known)

    async def understood(self, text: str, channel: str) -> tuple[verbs.Meaning, Rules]:
        """Return the meaning of typed text, and the rules by which it was parsed.

        A command that parses with a ruleset younger than WORDS_SECONDS does not wait for a read of the ledger. Text that does not
        parse, and read-only requests, use the current ruleset.
        """
        if len(text) > grammar.TEXT_CHARACTERS_MAX:
            return grammar.GrammarProblem(messages.too_long(grammar.TEXT_CHARACTERS_MAX)), self.rules
        age_seconds = self.looked_seconds_ago()
        if age_seconds < WORDS_SECONDS:
            asked = verbs.parse(text, channel, self.active.known.catalogue)
            if isinstance(asked, RECORDED):
                return asked, self.rules
        rules = await self.rules_now()
        return verbs.parse(text, channel, rules.catalogue), rules

    def looked_seconds_ago(self) -> float:
        """Return the age of the last check of the active ruleset."""
        return self.ledger.clock.monotonic() - self.looked.at

    def look(self) -> asyncio.Future[Any]:
        """Start a read of the active ruleset."""
        self.looked.at = self.ledger.clock.monotonic()
        self.looked.reading = reading = asyncio.ensure_future(self.ledger.database.read(self.active.read))
        reading.add_done_callback(_noticed)
        return reading

    async def reply(self, ack: Any, body: Body, text: str, blocks: Sequence[Body] = ()) -> None:
        """Send one person a private reply that changes nothing, then acknowledge."""
        await self.reply_privately(body, text, blocks)
        await ack()

    async def offer_creation(self, ack: Any, body: Body, channel: str | None, draft: forms.Draft, viewer: Viewer) -> None:
        """Open the form of a new quote, or reply that Slack did not open it; then acknowledge."""
        if not await self.open_creation(body, channel, draft, viewer):
            await self.reply_privately(body, messages.FORM_NOT_OPENED)
        await ack()

    async def open_creation(self, body: Body, channel: str | None, draft: forms.Draft, viewer: Viewer) -> bool:
        """Open the form of a new quote; return false if Slack did not open it. Without a channel the form asks for one."""
        channel = None if is_direct(channel) else channel  # the form asks for one
        looks_up = self.lookup is not None and may_look_up(viewer)
        return await self.open_form(
            body,
            forms.create_form(
                channel,
                (await self.rules_now()).ruleset,
                draft,
                lookup=looks_up,
                opportunities=looks_up and self.opportunities is not None,
            ),
        )

    async def click(self, ack: Any, context: Any, command: Command) -> None:
        """Record the command of a click, then acknowledge it. A click over the person's budget is answered privately."""
        refused = await self.recorded(context, command)
        if refused is not None and command.response_url is not None:
            await self.respond(command.response_url, refused)
        await ack()

    async def recorded(self, context: Any, command: Command) -> str | None:
        """Record a command whose acknowledgement carries no text. Raises NotAcknowledgedError if that failed, to withhold it.

        A command over the person's budget is acknowledged without a record, because Slack would redeliver an event; in that case
        the refusal is returned, otherwise None.
        """
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.over_budget:
            return answer.text
        if answer.recorded is not True:
            raise NotAcknowledgedError(answer.text)
        return None

    async def submitted(self, ack: Any, context: Any, command: Command, block_id: str) -> None:
        """Record the command of a form and close the form; if it was not recorded, show the reason at `block_id`."""
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.recorded is True:
            await ack()
        else:
            await ack(response_action="errors", errors={block_id: answer.text})

    async def open_about(self, body: Body, asked: str, value: ButtonValue, viewer: Viewer) -> None:
        """Open the form of a button if the card's version is current and the state allows it; else reply with the reason."""
        now = self.ledger.clock.now_ms()
        quote, away = await self.ledger.database.read(
            lambda tx: (store.load(tx, value.quote_id), approval_store.delegations(tx, viewer.team_id, now))
        )
        sight = Sight.NOTHING if quote is None else may_see(viewer, quote)
        if quote is None or sight is not Sight.FULL:
            await self.reply_privately(body, messages.not_seen(value.quote_id, quote, sight))
            return
        if value.version != quote.version:
            await self.reply_privately(body, messages.stale(value.version, quote))
            return
        view = self._view(asked, quote, viewer, away)
        if isinstance(view, str):
            await self.reply_privately(body, view)
        elif not await self.open_form(body, view):
            await self.reply_privately(body, messages.FORM_NOT_OPENED)

    def _view(self, asked: str, quote: Quote, viewer: Viewer, away: Sequence[Delegation]) -> Body | str:
        """Return the form, or the reason why it cannot be opened now."""
        if asked in _REASONS:
            if quote.approval is None:
                return messages.wrong_state(quote, "decide about")
            verdict = may_decide(quote.approval, quote, self.rules.person(viewer.user, viewer.team_id, away, viewer.kind))
            return _REASONS[asked](quote, quote.approval) if isinstance(verdict, Mandate) else verdict.sentence
        verb, legal, form = _ABOUT_QUOTE[asked]
        if asked == SEND and self.contacts is not None and legal(quote.state):
            return forms.send_form(quote, contacts=True)
        return form(quote) if legal(quote.state) else lifecycle_messages.wrong_state(quote, verb)

    async def open_form(self, body: Mapping[str, Any], view: Body) -> bool:
        """Open a form with the trigger of `body`; return false if Slack did not open it within OPEN_SECONDS."""
        return await attempt(self.slack.open_view(trigger_id=body["trigger_id"], view=view), OPEN_SECONDS, "form.not_opened")

    async def redraw(self, view: Mapping[str, Any], anew: Body) -> bool:
        """Redraw an open form that did not change meanwhile; input in remaining fields is kept. Return false if Slack did not."""
        return await attempt(
            self.slack.update_view(view_id=view["id"], view_hash=view["hash"], view=anew), OPEN_SECONDS, "form.not_redrawn"
        )

    async def reply_privately(self, body: Body, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply that changes nothing: ephemeral under their message or, on a Home tab, in a modal.

        `replace` puts it in place of the ephemeral reply that they clicked on.
        """
        who = payloads.gesture(body)
        if who.response_url is None:
            await self.open_form(body, window([block for block in blocks if block["type"] != "actions"] or [section(text)]))
            return
        await self.respond(who.response_url, text, blocks, replace=replace)

    async def respond(self, response_url: str, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply through the `response_url` of their request: one attempt, no pending effect."""
        await attempt(
            self.slack.respond(response_url, text=text, blocks=blocks, replace=replace), WHISPER_SECONDS, "reply.not_sent"
        )


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Log a failed read; parsing continues with the last known ruleset."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
