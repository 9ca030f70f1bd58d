"""Bolt listeners: one for the command, one for the buttons, one for the forms. Each ends in one acknowledgement.

Bolt runs with process_before_response, so the acknowledgement leaves only when the listener returns, and a listener that raises is
not acknowledged at all: Slack shows the person an error instead of silence.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot import approval_words, words
from quotebot.commands import CreateAnother, CreateQuote, ProposeQuote, parse_stored
from quotebot.deciding import offered
from quotebot.lifecycle_commands import CloneQuote
from quotebot.slack import delegating, forms, grammar, intake, verbs
from quotebot.slack.admission import viewer_of
from quotebot.slack.buttons import DISCOUNT, EXPLAIN, MORE
from quotebot.slack.crm_menus import may_look_up, register_crm_menus
from quotebot.slack.dialogs import FORMS, Dialogs
from quotebot.slack.filled import Filled, Form, last_block, read_form
from quotebot.slack.home import NEW_QUOTE
from quotebot.slack.list_card import parse_question
from quotebot.slack.mentions import register_mentions
from quotebot.slack.modals import APPROVE_CALLBACK, CHANGES_CALLBACK, REASON, REJECT_CALLBACK
from quotebot.slack.offers import CREATE_ANOTHER, FILL_IN, SHOW, parse_typed, problem_blocks
from quotebot.slack.operating import register_operating
from quotebot.slack.reads import Reads
from quotebot.slack.steering import register_steering
from quotebot.slack.values import parse_button_value
from quotebot.store import approvals as approval_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slack_bolt.async_app import AsyncApp

    from adapters.slack import SlackApi
    from ledger.ledger import Ledger
    from quotebot.commands import Command
    from quotebot.crm_lookup import AccountLookup, Found, OpportunityLookup
    from quotebot.domain.access import Viewer
    from quotebot.handlers.quotes import Rules
    from quotebot.slack.cards import Card
    from quotebot.slack.desk import FrontDesk
    from quotebot.slack.gate import Gate
    from quotebot.store.rulesets import ActiveRuleset

LOOK_SECONDS: Final = 0.01  # so long what was read of the active ruleset is taken for what is
LOOK_AGAIN_SECONDS: Final = 0.25  # how often it is read anew beside commands that do not wait for it
WORDS_SECONDS: Final = 5.0  # so old words may be by which a command is understood
RULES_SECONDS: Final = 0.5  # a large ruleset that was just activated may take longer

COMMAND: Final = "/quote"
RECORDED: Final = (CreateQuote, CloneQuote, verbs.ChangeRequest, delegating.DelegationRequest)

log = structlog.get_logger(__name__)
Body = dict[str, Any]


class NotAcknowledgedError(Exception):
    """A click or an event could not be recorded. Its acknowledgement carries no text, so it is withheld.

    Slack marks the click as failed, and delivers the event again.
    """


@dataclass(slots=True)
class Looked:
    """When the active ruleset was looked at last, in monotonic seconds."""

    at: float = float("-inf")
    reading: asyncio.Future[Any] | None = None  # nobody else may keep it


@dataclass(frozen=True, slots=True)
class Surface:
    """What the listeners work with. `status` renders a quote's card from its current state."""

    desk: FrontDesk
    ledger: Ledger
    slack: SlackApi
    rules: Rules
    active: ActiveRuleset
    status: Callable[[str, Viewer], Awaitable[Card | None]]
    gate: Gate
    looked: Looked = field(default_factory=Looked)
    lookup: AccountLookup | None = None  # names of accounts in the CRM, where that is wanted
    opportunities: OpportunityLookup | None = None  # and their open opportunities
    contacts: Callable[[str, str], Awaitable[Found[str]]] | None = None  # of a customer, as far as a copy of them is kept

    @property
    def dialogs(self) -> Dialogs:
        """Return what opens forms and whispers."""
        return Dialogs(self.ledger, self.slack, self.rules, contacts=self.contacts is not None)

    def reads(self, rules: Rules) -> Reads:
        """Return what answers questions by these rules."""
        return Reads(self.ledger, rules, self.gate.visibility)

    async def on_command(self, ack: Any, body: Body, context: Any) -> None:
        """Handle /quote: read-only verbs are answered inside the ack, mutating ones are recorded first."""
        received_at = self.ledger.clock.now_ms()
        text = body.get("text") or ""
        typed, rules = await self._understood(text, body["channel_id"])
        asked = _where_others_see(typed, body["channel_id"])
        match asked:
            case CreateQuote() | CloneQuote():
                await self._record(ack, context, intake.slash_command(body, asked, received_at))
            case verbs.ChangeRequest(quote_id, version, payload):
                about = intake.About(quote_id, version)
                await self._record(ack, context, intake.slash_command(body, payload, received_at, about))
            case delegating.DelegationRequest():
                user = body["user_id"]
                absence = delegating.delegation_command(asked, user, received_at)
                about = intake.About(f"delegation:{user}", None)
                await self._record(ack, context, intake.slash_command(body, absence, received_at, about))
            case _:
                await self._read(ack, body, rules, asked, await viewer_of(context, named(asked)))

    async def _read(self, ack: Any, body: Body, rules: Rules, asked: verbs.Meaning, viewer: Viewer) -> None:
        """Answer what records nothing, inside the acknowledgement."""
        match asked:
            case delegating.DelegationsRequest():
                now = self.ledger.clock.now_ms()
                read = partial(approval_store.delegations_of, team_id=viewer.team_id, user=viewer.user, now=now)
                await ack(text=approval_words.standing(await self.ledger.database.read(read), viewer.user))
            case verbs.FormRequest():
                opened = await self._open_creation(body, body["channel_id"], forms.Draft(), viewer)
                await (ack() if opened else ack(text=words.form_not_opened()))
            case grammar.StatusRequest(quote_id):
                card = await self.status(quote_id, viewer)
                if card is None:
                    await ack(text=words.unknown_quote(quote_id))
                else:
                    await ack(text=card.text, blocks=card.blocks)
            case grammar.HelpRequest():
                await ack(text=words.help_text())
            case grammar.GrammarProblem(message):
                await ack(text=message, blocks=problem_blocks(message, verbs.typed_creation(body.get("text") or "")))
            case CreateQuote() | CloneQuote() | verbs.ChangeRequest() | delegating.DelegationRequest():
                raise ValueError("a command is recorded, not read")
            case question:
                said, blocks = await self.reads(rules).shown(question, viewer)
                await ack(text=said, blocks=blocks)

    async def rules_now(self) -> Rules:
        """Return the rules with the active ruleset. It only gives words their meaning: a command is decided by its own look.

        Who types within a moment of somebody else shares their look.
        """
        if self._looked_seconds_ago() >= LOOK_SECONDS:
            await asyncio.wait({self._look()}, timeout=RULES_SECONDS)  # it goes on: the next command finds what was read
        return replace(self.rules, ruleset=self.active.known)

    async def _understood(self, text: str, channel: str) -> tuple[verbs.Meaning, Rules]:
        """Return what was typed, and the rules it was read by.

        A command that is understood by the words of a moment ago is not kept waiting for a look at the ledger; what is not
        understood, and what is only answered, is read by those of now.
        """
        if len(text) > grammar.TEXT_CHARACTERS_MAX:
            return grammar.GrammarProblem(words.too_long(grammar.TEXT_CHARACTERS_MAX)), self.rules
        age_seconds = self._looked_seconds_ago()
        if age_seconds < WORDS_SECONDS:
            asked = verbs.parse(text, channel, self.active.known.catalogue)
            if isinstance(asked, RECORDED):
                return asked, self.rules
        rules = await self.rules_now()
        return verbs.parse(text, channel, rules.catalogue), rules

    def _looked_seconds_ago(self) -> float:
        return self.ledger.clock.monotonic() - self.looked.at

    def _look(self) -> asyncio.Future[Any]:
        """Begin to read the active ruleset."""
        self.looked.at = self.ledger.clock.monotonic()
        self.looked.reading = reading = asyncio.ensure_future(self.ledger.database.read(self.active.read))
        reading.add_done_callback(_noticed)
        return reading

    async def _open_creation(self, body: Body, channel: str | None, draft: forms.Draft, viewer: Viewer) -> bool:
        channel = None if intake.is_direct(channel) else channel  # the form asks for one
        looks_up = self.lookup is not None and may_look_up(viewer)
        return await self.dialogs.open(
            body,
            forms.create_form(
                channel,
                (await self.rules_now()).ruleset,
                draft,
                lookup=looks_up,
                opportunities=looks_up and self.opportunities is not None,
            ),
        )

    async def _record(self, ack: Any, context: Any, command: Command) -> None:
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if self._looked_seconds_ago() >= LOOK_AGAIN_SECONDS:
            asyncio.get_running_loop().call_soon(self._look)  # once the acknowledgement is on its way
        await ack(text=answer.text, blocks=list(answer.blocks) or None)

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a click on a card. Opening a form is read-only; everything else is recorded first."""
        action_id, value = intake.button(body)
        if value is None:
            await self.dialogs.whisper(body, words.unreadable_button())
            await ack()
            return
        if action_id in FORMS:
            await self.dialogs.open_about(body, action_id, value, await viewer_of(context, value.quote_id))
            await ack()
            return
        command = intake.click_command(body, action_id, value, self.ledger.clock.now_ms())
        if intake.is_home(body):
            refused = await self.recorded(context, command)
            if refused is not None:
                await self.dialogs.whisper(body, refused)
                await ack()
                return
            command = intake.home_again_command(body, command.received_at)
        await self.click(ack, context, command)

    async def on_home(self, ack: Any, body: Body, context: Any) -> None:
        """Handle somebody opening the bot's Home tab."""
        if body["event"].get("tab") == "home":
            await self.recorded(context, intake.home_command(body, self.ledger.clock.now_ms()))
        await ack()

    async def on_new_quote(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "New quote" on a Home tab: the form, which asks for the channel too."""
        if not await self._open_creation(body, None, forms.Draft(), await viewer_of(context)):
            await self.dialogs.whisper(body, words.form_not_opened())
        await ack()

    async def on_message_shortcut(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create a quote" on a message: the form, with what can be taken over from it. Records nothing."""
        viewer = await viewer_of(context)
        draft = forms.draft_of_message((body["message"].get("text") or "")[: grammar.MESSAGE_CHARACTERS_MAX])
        if not await self._open_creation(body, body["channel"]["id"], draft, viewer):
            await self.dialogs.whisper(body, words.form_not_opened())
        await ack()

    async def on_menu(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a choice in a card's menu."""
        chosen = intake.menu(body)
        if chosen is None:
            await self.dialogs.whisper(body, words.unreadable_button())
            await ack()
            return
        deed, value = chosen
        if deed == DISCOUNT:
            await self.dialogs.open_about(body, DISCOUNT, value, await viewer_of(context, value.quote_id))
            await ack()
        elif deed == EXPLAIN:
            asked, viewer = verbs.ExplainRequest(value.quote_id, value.version), await viewer_of(context, value.quote_id)
            await self.dialogs.whisper(body, await self.reads(self.rules).answer(asked, viewer))
            await ack()
        else:
            await self.click(ack, context, intake.refresh_command(body, value, self.ledger.clock.now_ms()))

    async def on_create_another(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create another" under the question that a re-submission was answered with."""
        command = intake.create_another_command(body, self.ledger.clock.now_ms())
        if command is None:
            await self.dialogs.whisper(body, words.unreadable_button())
            await ack()
            return
        if intake.is_direct(intake.gesture(body).channel) and (draft := await self._proposed(command)) is not None:
            if not await self._open_creation(body, None, draft, await viewer_of(context)):
                await self.dialogs.whisper(body, words.form_not_opened())
            await ack()
            return
        await self.click(ack, context, command)

    async def _proposed(self, command: Command) -> forms.Draft | None:
        """Return what was proposed to whoever clicks, for the form that asks for a channel; None: it has one, or is not theirs."""
        assert isinstance(command.payload, CreateAnother)  # noqa: S101 -- of this button
        token = command.payload.token
        offer = await self.ledger.database.read(lambda tx: offered(tx, token))
        if offer is None or (offer.actor, offer.team_id) != (command.actor, self.gate.team_id):
            return None
        proposed = parse_stored(offer.action_kind, offer.payload)
        wanted = proposed.quote if isinstance(proposed, ProposeQuote) else proposed
        if not isinstance(wanted, CreateQuote) or not intake.is_direct(wanted.channel):  # asked in a channel, answered late
            return None
        return forms.draft_of_creation(wanted, token)

    async def on_show(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Show it": the quote's card as it is now, for the one who clicked. Records nothing."""
        _, value = intake.button(body)
        card = None if value is None else await self.status(value.quote_id, await viewer_of(context, value.quote_id))
        if value is None:
            await self.dialogs.whisper(body, words.unreadable_button())
        elif card is None:
            await self.dialogs.whisper(body, words.unknown_quote(value.quote_id))
        else:
            await self.dialogs.whisper(body, card.text, card.blocks)
        await ack()

    async def on_list(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a button under a list: the list it asks for takes the place of the one it is under. Records nothing."""
        asked = parse_question(body["actions"][0].get("value") or "")
        if asked is None:
            await self.dialogs.whisper(body, words.unreadable_button())
        else:
            text, blocks = await self.reads(self.rules).listed(asked, await viewer_of(context))
            await self.dialogs.whisper(body, text, blocks, replace=True)
        await ack()

    async def on_fill_in(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Complete in a form" under what could not be read: the form, with what could be taken over."""
        typed = parse_typed(body["actions"][0].get("value") or "")
        channel = intake.gesture(body).channel
        if typed is None:
            await self.dialogs.whisper(body, words.unreadable_button())
        elif not await self._open_creation(body, channel, forms.draft_of(typed), await viewer_of(context)):
            await self.dialogs.whisper(body, words.form_not_opened())
        await ack()

    async def click(self, ack: Any, context: Any, command: Command) -> None:
        """Record the command of a click, then acknowledge it. A click over the person's budget is answered privately."""
        refused = await self.recorded(context, command)
        if refused is not None and command.response_url is not None:
            await self.dialogs.respond(command.response_url, refused)
        await ack()

    async def recorded(self, context: Any, command: Command) -> str | None:
        """Record what has no text to answer with; it raises when that failed, so that nothing is acknowledged.

        A command over the person's budget is acknowledged without a record, as Slack would deliver an event again; returns why.
        """
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.over_budget:
            return answer.text
        if answer.recorded is not True:
            raise NotAcknowledgedError(answer.text)
        return None

    async def on_rejection(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a rejection or of a wish for changes; what is wrong with it is shown inside it."""
        value = parse_button_value(body["view"].get("private_metadata") or "")
        if value is None:
            await ack(response_action="errors", errors={REASON: words.unreadable_button()})
            return
        command = intake.rejection_command(body, value, self.ledger.clock.now_ms())
        if command is None:
            await ack(response_action="errors", errors={REASON: words.reason_needed()})
            return
        await self.submitted(ack, context, command, REASON)

    async def on_form(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a submitted form about a quote's content or its end; each error is shown at its field."""
        received_at = self.ledger.clock.now_ms()
        filled = read_form(Form(body["view"], (await self.rules_now()).ruleset, received_at))
        if not isinstance(filled, Filled):
            await ack(response_action="errors", errors=filled)
            return
        await self.submitted(ack, context, intake.form_command(body, filled, received_at), last_block(body["view"]))

    async def submitted(self, ack: Any, context: Any, command: Command, block_id: str) -> None:
        """Record the command of a form and close it; when it was not recorded, say so in the form, at `block_id`."""
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.recorded is True:
            await ack()
        else:
            await ack(response_action="errors", errors={block_id: answer.text})


async def ignore_event(body: Body) -> None:
    """Take note of an event and do nothing: talk in a channel is not for the bot. Bolt acknowledges when this returns."""
    log.debug("event.ignored", event_type=body.get("event", {}).get("type"))


def register(app: AsyncApp, surface: Surface) -> None:
    """Route Slack's requests to the surface, but for what is typed (see PromptApp)."""
    app.event("app_home_opened")(surface.on_home)
    register_mentions(app, surface)
    app.event(re.compile(""))(ignore_event)
    app.shortcut(forms.FROM_MESSAGE)(surface.on_message_shortcut)
    app.action(CREATE_ANOTHER)(surface.on_create_another)
    app.action(SHOW)(surface.on_show)
    app.action(re.compile(r"^list\."))(surface.on_list)
    app.action(FILL_IN)(surface.on_fill_in)
    app.action(MORE)(surface.on_menu)
    app.action(NEW_QUOTE)(surface.on_new_quote)
    register_operating(app, surface)
    register_steering(app, surface)
    register_crm_menus(app, surface)
    app.action(re.compile(r"^(quote|approval)\."))(surface.on_button)
    app.view(REJECT_CALLBACK)(surface.on_rejection)
    app.view(CHANGES_CALLBACK)(surface.on_rejection)
    app.view(APPROVE_CALLBACK)(surface.on_rejection)
    app.view(re.compile(r"^quote\."))(surface.on_form)


def named(asked: verbs.Meaning) -> str | None:
    """Return the quote that a question is about, if it names one."""
    quote_id: str | None = getattr(asked, "quote_id", None)
    return quote_id


def _where_others_see(asked: verbs.Meaning, channel: str) -> verbs.Meaning:
    """Return what was typed, or why no quote is created where it was typed."""
    creates = isinstance(asked, CreateQuote | CloneQuote)
    return grammar.GrammarProblem(words.choose_channel()) if creates and intake.is_direct(channel) else asked


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Leave what went wrong with the read to the command's own answer."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
