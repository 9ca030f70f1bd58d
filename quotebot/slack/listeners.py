"""Bolt listeners: one for the command, one for the buttons, one for the forms. Each ends in one acknowledgement.

Bolt runs with process_before_response, so the acknowledgement is sent only when the listener returns. If a listener raises,
nothing is acknowledged: Slack shows the person an error instead of silence.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot.commands.lifecycle import CloneQuote
from quotebot.commands.registry import CreateAnother, CreateQuote, ProposeQuote, parse_stored
from quotebot.slack import delegation, grammar, payloads, verbs
from quotebot.slack.admission import viewer_of
from quotebot.slack.crm_menus import register_crm_menus
from quotebot.slack.dialogs import FORMS
from quotebot.slack.form_drafts import draft_of, draft_of_creation, draft_of_message
from quotebot.slack.form_input import Filled, Form, form_command, last_block, read_form
from quotebot.slack.listeners_dead_letters import register_operating
from quotebot.slack.listeners_effects import register_effects
from quotebot.slack.listeners_mentions import register_mentions
from quotebot.slack.surface import LOOK_AGAIN_SECONDS, Surface
from quotebot.store import approvals as approval_store
from quotebot.store.offers import offered
from quotebot.views import approval_messages, forms, messages
from quotebot.views.blocks import parse_button_value
from quotebot.views.buttons import DISCOUNT, EXPLAIN, MORE
from quotebot.views.confirmations import CREATE_ANOTHER, FILL_IN, SHOW, parse_typed, problem_blocks
from quotebot.views.forms import APPROVE_CALLBACK, CHANGES_CALLBACK, REASON, REJECT_CALLBACK
from quotebot.views.home import NEW_QUOTE
from quotebot.views.list_card import parse_question

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.rules import Rules

COMMAND: Final = "/quote"

log = structlog.get_logger(__name__)
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QuoteListeners:
    """Listeners for the command, the buttons, menus and forms of quotes."""

    surface: Surface

    async def on_command(self, ack: Any, body: Body, context: Any) -> None:
        """Handle /quote: read-only verbs are answered inside the ack, mutating ones are recorded first."""
        received_at = self.surface.ledger.clock.now_ms()
        text = body.get("text") or ""
        typed, rules = await self.surface.understood(text, body["channel_id"])
        asked = _where_others_see(typed, body["channel_id"])
        match asked:
            case CreateQuote() | CloneQuote():
                await self._record(ack, context, payloads.slash_command(body, asked, received_at))
            case verbs.ChangeRequest(quote_id, version, payload):
                about = payloads.About(quote_id, version)
                await self._record(ack, context, payloads.slash_command(body, payload, received_at, about))
            case delegation.DelegationRequest():
                user = body["user_id"]
                absence = delegation.delegation_command(asked, user, received_at)
                about = payloads.About(f"delegation:{user}", None)
                await self._record(ack, context, payloads.slash_command(body, absence, received_at, about))
            case _:
                await self._read(ack, body, rules, asked, await viewer_of(context, named(asked)))

    async def _read(self, ack: Any, body: Body, rules: Rules, asked: verbs.Meaning, viewer: Viewer) -> None:
        """Answer a read-only request inside the acknowledgement."""
        match asked:
            case delegation.DelegationsRequest():
                now = self.surface.ledger.clock.now_ms()
                read = partial(approval_store.delegations_of, team_id=viewer.team_id, user=viewer.user, now=now)
                await ack(text=approval_messages.standing(await self.surface.ledger.database.read(read), viewer.user))
            case verbs.FormRequest():
                opened = await self.surface.open_creation(body, body["channel_id"], forms.Draft(), viewer)
                await (ack() if opened else ack(text=messages.FORM_NOT_OPENED))
            case grammar.StatusRequest(quote_id):
                card = await self.surface.status(quote_id, viewer)
                if card is None:
                    await ack(text=messages.unknown_quote(quote_id))
                else:
                    await ack(text=card.text, blocks=card.blocks)
            case grammar.HelpRequest():
                await ack(text=messages.HELP_TEXT)
            case grammar.GrammarProblem(message):
                await ack(text=message, blocks=problem_blocks(message, verbs.typed_creation(body.get("text") or "")))
            case CreateQuote() | CloneQuote() | verbs.ChangeRequest() | delegation.DelegationRequest():
                raise ValueError("a command is recorded, not read")
            case question:
                said, blocks = await self.surface.reads(rules).shown(question, viewer)
                await ack(text=said, blocks=blocks)

    async def _record(self, ack: Any, context: Any, command: Command) -> None:
        answer = await self.surface.desk.receive(command, envelope_id=context.get("envelope_id"))
        if self.surface.looked_seconds_ago() >= LOOK_AGAIN_SECONDS:
            asyncio.get_running_loop().call_soon(self.surface.look)  # runs when the acknowledgement is on its way
        await ack(text=answer.text, blocks=list(answer.blocks) or None)

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a click on a card. Opening a form is read-only; everything else is recorded first."""
        action_id, value = payloads.button(body)
        if value is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
            await ack()
            return
        if action_id in FORMS:
            await self.surface.dialogs.open_about(body, action_id, value, await viewer_of(context, value.quote_id))
            await ack()
            return
        command = payloads.click_command(body, action_id, value, self.surface.ledger.clock.now_ms())
        if payloads.is_home(body):
            refused = await self.surface.recorded(context, command)
            if refused is not None:
                await self.surface.dialogs.reply_privately(body, refused)
                await ack()
                return
            command = payloads.home_again_command(body, command.received_at)
        await self.surface.click(ack, context, command)

    async def on_home(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the opening of the bot's Home tab."""
        if body["event"].get("tab") == "home":
            await self.surface.recorded(context, payloads.home_command(body, self.surface.ledger.clock.now_ms()))
        await ack()

    async def on_new_quote(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "New quote" on a Home tab: open the form, which also asks for the channel."""
        if not await self.surface.open_creation(body, None, forms.Draft(), await viewer_of(context)):
            await self.surface.dialogs.reply_privately(body, messages.FORM_NOT_OPENED)
        await ack()

    async def on_message_shortcut(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create a quote" on a message: open the form with a draft from the message. Records nothing."""
        viewer = await viewer_of(context)
        draft = draft_of_message((body["message"].get("text") or "")[: grammar.MESSAGE_CHARACTERS_MAX])
        if not await self.surface.open_creation(body, body["channel"]["id"], draft, viewer):
            await self.surface.dialogs.reply_privately(body, messages.FORM_NOT_OPENED)
        await ack()

    async def on_menu(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a choice in a card's menu."""
        chosen = payloads.menu(body)
        if chosen is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
            await ack()
            return
        deed, value = chosen
        if deed == DISCOUNT:
            await self.surface.dialogs.open_about(body, DISCOUNT, value, await viewer_of(context, value.quote_id))
            await ack()
        elif deed == EXPLAIN:
            asked, viewer = verbs.ExplainRequest(value.quote_id, value.version), await viewer_of(context, value.quote_id)
            await self.surface.dialogs.reply_privately(body, await self.surface.reads(self.surface.rules).answer(asked, viewer))
            await ack()
        else:
            await self.surface.click(ack, context, payloads.refresh_command(body, value, self.surface.ledger.clock.now_ms()))

    async def on_create_another(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create another": confirm the offered creation. In a direct message, open the form, which asks for a channel."""
        command = payloads.create_another_command(body, self.surface.ledger.clock.now_ms())
        if command is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
            await ack()
            return
        if payloads.is_direct(payloads.gesture(body).channel) and (draft := await self._proposed(command)) is not None:
            if not await self.surface.open_creation(body, None, draft, await viewer_of(context)):
                await self.surface.dialogs.reply_privately(body, messages.FORM_NOT_OPENED)
            await ack()
            return
        await self.surface.click(ack, context, command)

    async def _proposed(self, command: Command) -> forms.Draft | None:
        """Return a draft of the creation offered to the person who clicked, for the form that asks for a channel.

        None if the creation has a channel already or was not offered to this person.
        """
        assert isinstance(command.payload, CreateAnother)  # noqa: S101 -- the payload of this button
        token = command.payload.token
        offer = await self.surface.ledger.database.read(lambda tx: offered(tx, token))
        if offer is None or (offer.actor, offer.team_id) != (command.actor, self.surface.gate.team_id):
            return None
        proposed = parse_stored(offer.action_kind, offer.payload)
        wanted = proposed.quote if isinstance(proposed, ProposeQuote) else proposed
        if not isinstance(wanted, CreateQuote) or not payloads.is_direct(wanted.channel):  # requested in a channel
            return None
        return draft_of_creation(wanted, token)

    async def on_show(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Show it": send the current card of the quote to the person who clicked. Records nothing."""
        _, value = payloads.button(body)
        card = None if value is None else await self.surface.status(value.quote_id, await viewer_of(context, value.quote_id))
        if value is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
        elif card is None:
            await self.surface.dialogs.reply_privately(body, messages.unknown_quote(value.quote_id))
        else:
            await self.surface.dialogs.reply_privately(body, card.text, card.blocks)
        await ack()

    async def on_list(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a button under a list: replace the list with the requested one. Records nothing."""
        asked = parse_question(body["actions"][0].get("value") or "")
        if asked is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
        else:
            text, blocks = await self.surface.reads(self.surface.rules).listed(asked, await viewer_of(context))
            await self.surface.dialogs.reply_privately(body, text, blocks, replace=True)
        await ack()

    async def on_fill_in(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Complete in a form" under text that could not be read: open the form with the readable parts."""
        typed = parse_typed(body["actions"][0].get("value") or "")
        channel = payloads.gesture(body).channel
        if typed is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
        elif not await self.surface.open_creation(body, channel, draft_of(typed), await viewer_of(context)):
            await self.surface.dialogs.reply_privately(body, messages.FORM_NOT_OPENED)
        await ack()

    async def on_rejection(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a decision (reject, request changes or approve); errors are shown in the form."""
        value = parse_button_value(body["view"].get("private_metadata") or "")
        if value is None:
            await ack(response_action="errors", errors={REASON: messages.UNREADABLE_BUTTON})
            return
        command = payloads.rejection_command(body, value, self.surface.ledger.clock.now_ms())
        if command is None:
            await ack(response_action="errors", errors={REASON: messages.REASON_NEEDED})
            return
        await self.surface.submitted(ack, context, command, REASON)

    async def on_form(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a submitted form that creates, revises, sends or loses a quote; each error is shown at its field."""
        received_at = self.surface.ledger.clock.now_ms()
        filled = read_form(Form(body["view"], (await self.surface.rules_now()).ruleset, received_at))
        if not isinstance(filled, Filled):
            await ack(response_action="errors", errors=filled)
            return
        await self.surface.submitted(ack, context, form_command(body, filled, received_at), last_block(body["view"]))


async def ignore_event(body: Body) -> None:
    """Log an event that is not for the bot, such as talk in a channel. Bolt acknowledges when this returns."""
    log.debug("event.ignored", event_type=body.get("event", {}).get("type"))


def register(app: AsyncApp, surface: Surface) -> None:
    """Register all listeners except the one for typed commands (see PromptApp)."""
    quotes = QuoteListeners(surface)
    app.event("app_home_opened")(quotes.on_home)
    register_mentions(app, surface)
    app.event(re.compile(""))(ignore_event)
    app.shortcut(forms.FROM_MESSAGE)(quotes.on_message_shortcut)
    app.action(CREATE_ANOTHER)(quotes.on_create_another)
    app.action(SHOW)(quotes.on_show)
    app.action(re.compile(r"^list\."))(quotes.on_list)
    app.action(FILL_IN)(quotes.on_fill_in)
    app.action(MORE)(quotes.on_menu)
    app.action(NEW_QUOTE)(quotes.on_new_quote)
    register_operating(app, surface)
    register_effects(app, surface)
    register_crm_menus(app, surface)
    app.action(re.compile(r"^(quote|approval)\."))(quotes.on_button)
    app.view(REJECT_CALLBACK)(quotes.on_rejection)
    app.view(CHANGES_CALLBACK)(quotes.on_rejection)
    app.view(APPROVE_CALLBACK)(quotes.on_rejection)
    app.view(re.compile(r"^quote\."))(quotes.on_form)


def named(asked: verbs.Meaning) -> str | None:
    """Return the quote id of a request, if it has one."""
    quote_id: str | None = getattr(asked, "quote_id", None)
    return quote_id


def _where_others_see(asked: verbs.Meaning, channel: str) -> verbs.Meaning:
    """Return the request, or the refusal to create a quote in a direct message."""
    creates = isinstance(asked, CreateQuote | CloneQuote)
    return grammar.GrammarProblem(messages.CHOOSE_CHANNEL) if creates and payloads.is_direct(channel) else asked
