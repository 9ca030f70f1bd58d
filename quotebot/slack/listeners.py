"""Bolt listeners for the command, the buttons, the forms, and messages to the bot. Each ends in one acknowledgement.

Bolt runs with process_before_response, so the acknowledgement is sent only when the listener returns. If a listener raises,
nothing is acknowledged: Slack shows the person an error instead of silence. The listeners for messages propose and answer; they
change no quote themselves.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot.commands.payloads import (
    ActOnCommand,
    ActOnEffect,
    CloneQuote,
    CreateAnother,
    CreateQuote,
    ProposeQuote,
    ReadMessage,
    RefreshCard,
    SetDigest,
)
from quotebot.commands.registry import parse_stored
from quotebot.domain.access import Sight, may_see
from quotebot.domain.language import _
from quotebot.execution.membership import is_direct
from quotebot.execution.operator_actions import command_status, effect_status
from quotebot.handlers import extraction
from quotebot.slack import delegation, grammar, message_text, payloads, verbs
from quotebot.slack.builder import edited_version, register_builder
from quotebot.slack.crm_menus import register_crm_menus
from quotebot.slack.digest import DigestRequest
from quotebot.slack.drafts import draft_of, draft_of_creation, draft_of_message
from quotebot.slack.form_input import Filled, Form, last_block, read_form
from quotebot.slack.gate import ANSWER_SECONDS, attempt, viewer_of
from quotebot.slack.guidance import answered, register_guidance
from quotebot.slack.home_listeners import register_home
from quotebot.slack.operator_cards import register_operator_cards
from quotebot.slack.shared_links import register_links
from quotebot.slack.surface import FORMS, RULESET_REFRESH_SECONDS, Answer, Surface, transport_of
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store
from quotebot.store.quotes import offered
from quotebot.views import approval_messages, builder, forms, help_messages, messages
from quotebot.views.blocks import parse_button_value
from quotebot.views.card import EXPLAIN, MORE
from quotebot.views.confirmations import CREATE_ANOTHER, EDIT_FIRST, FILL_IN, SHOW, parse_typed, problem_blocks, show_blocks
from quotebot.views.forms import APPROVE_CALLBACK, CHANGES_CALLBACK, REASON, REJECT_CALLBACK
from quotebot.views.home import FIND
from quotebot.views.list_card import parse_question
from quotebot.views.pending_buttons import (
    CANCEL,
    CANCEL_COMMAND,
    CHECK,
    CHECK_COMMAND,
    parse_pending_command_value,
    parse_pending_effect_value,
)

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.commands.payloads import Deed
    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

_MENTIONS: Final = re.compile(r"(?:<@[UW][A-Z0-9]{1,30}(?:\|[^<>]{0,200})?>[\s,:]*)+")
log = structlog.get_logger(__name__)
Body = dict[str, Any]
Blocks = list[dict[str, Any]] | None
COMMAND: Final = "/quote"


@dataclass(frozen=True, slots=True)
class Mentions:
    """Listeners that parse a message as a command or else as free text. A click confirms what the message requests."""

    surface: Surface

    async def on_message(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a direct message like a mention. Messages in channels, edits, deletions and other subtypes are ignored."""
        event = body["event"]
        if event.get("channel_type") != "im" or "subtype" in event:
            await ack()
        else:
            await self.on_mention(ack, body, context)

    async def on_mention(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a message that mentions the bot."""
        event = body["event"]
        if event.get("bot_id") or "user" not in event:
            await ack()
            return
        text = event.get("text") or ""
        if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
            await self._tell(event, messages.message_too_long(grammar.MESSAGE_CHARACTERS_MAX), None)
            await ack()
            return
        text = _MENTIONS.sub(" ", text, count=1).strip()
        rules = await self.surface.rules_now()
        quote = await self._quote_of_thread(body, context)
        if quote is not None:
            text, rules = (
                message_text.with_number(text, quote),
                await self.surface.rules_for(rules, quote.account, quote.crm_account),
            )
            change = message_text.proposed(text, quote, rules, self.surface.ledger.clock.now_ms())
            if change is not None:
                await self._tell(event, *change)
                await ack()
                return
        asked = verbs.parse(text, event["channel"], rules.catalogue, grammar.MESSAGE_CHARACTERS_MAX)
        if (
            isinstance(asked, grammar.GrammarProblem)
            and rules.readings_per_day
            and message_text.is_for_a_model(text, rules.catalogue)
        ):
            reading = ReadMessage(message_text.on_one_line(text), event["channel"], event.get("thread_ts"))
            await self._record(ack, body, context, payloads.said(body, reading, self.surface.ledger.clock.now_ms()))
            return
        found = message_text.read(text, rules.catalogue) if isinstance(asked, grammar.GrammarProblem) else None
        if found is not None and not found.open_questions:
            asked = extraction.creation(found, event["channel"])
        if isinstance(asked, CreateQuote):
            proposed = ProposeQuote(asked, event.get("thread_ts"), () if found is None else found.remarks)
            await self._record(ack, body, context, payloads.said(body, proposed, self.surface.ledger.clock.now_ms()))
            return
        if found is None and isinstance(asked, grammar.GrammarProblem) and asked.is_start:
            asked = message_text.asks_about(text, quote) or asked
        viewer = await viewer_of(context, getattr(asked, "quote_id", None))
        answer = await self._answer(body, text, asked, rules, viewer) if found is None else message_text.asked_back(found)
        await self._tell(event, *answer)
        await ack()

    async def _record(self, ack: Any, body: Body, context: Any, command: Command) -> None:
        refused = await self.surface.recorded(context, command)
        if refused is not None:
            await self._tell(body["event"], refused, None)
        await ack()

    async def _answer(self, body: Body, text: str, asked: verbs.Meaning, rules: Rules, viewer: Viewer) -> tuple[str, Blocks]:
        """Return the answer to any request except a whole creation."""
        match asked:
            case grammar.GrammarProblem(is_start=True, suggests=False):
                unclear = _(help_messages.NOT_UNDERSTOOD)
                return unclear, help_messages.start_blocks(unclear)
            case verbs.FormRequest():
                return _(messages.BY_FORM), problem_blocks(_(messages.BY_FORM), "", form=_("Open form"))
            case verbs.ChangeRequest(quote_id, version):
                said = _(messages.BY_COMMAND_ONLY)
                return said, show_blocks(said, quote_id, version or 1, _("Open {quote}", quote=quote_id))
            case verbs.QuoteFormRequest():
                return asked.problem, None
            case CloneQuote() | CreateQuote() | delegation.DelegationRequest() | delegation.DelegationsRequest() | DigestRequest():
                return _(messages.COMMAND_ONLY), None
            case question:
                return await answered(self.surface, question, text, rules, viewer, payloads.answer_token(body))

    async def _quote_of_thread(self, body: Body, context: Any) -> Quote | None:
        """Return the quote whose thread holds the message; None if there is none or its author lacks full sight of it."""
        event = body["event"]
        thread_ts = event.get("thread_ts")
        if thread_ts is None:
            return None
        viewer = await viewer_of(context)
        channel, team_id = event["channel"], viewer.team_id
        quote = await self.surface.ledger.database.read(lambda tx: store.of_thread(tx, channel, thread_ts, team_id))
        if quote is None:
            return None
        return quote if may_see(await viewer_of(context, quote.quote_id), quote) is Sight.FULL else None

    async def on_apply(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Save as v2" under a proposed change."""
        change = message_text.parse_applied(body["actions"][0].get("value") or "")
        if change is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        now = self.surface.ledger.clock.now_ms()
        await self.surface.click(ack, body, context, payloads.clicked(body, change.payload, change.quote_id, change.version, now))

    async def _tell(self, event: Body, text: str, blocks: Blocks) -> None:
        """Send the author an ephemeral answer where they wrote: one direct attempt, no pending effect."""
        sealed = self.surface.gate.seals.blocks(event["user"], blocks or ())
        sent = self.surface.slack.ephemeral(
            channel=event["channel"], user=event["user"], text=text, blocks=sealed, thread_ts=event.get("thread_ts")
        )
        await attempt(sent, ANSWER_SECONDS, "reply.not_sent")


def register_mentions(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners for messages to the bot."""
    mentions = Mentions(surface)
    app.event("message")(mentions.on_message)
    app.event("app_mention")(mentions.on_mention)
    app.action(message_text.APPLY)(mentions.on_apply)


@dataclass(frozen=True, slots=True)
class QuoteListeners:
    """Listeners for the command, the buttons, menus and forms of quotes."""

    surface: Surface

    async def on_command(self, ack: Any, body: Body, context: Any) -> None:
        """Handle /quote: read-only verbs are answered inside the ack, mutating ones are recorded first."""
        received_at = self.surface.ledger.clock.now_ms()
        text = body.get("text") or ""
        asked, rules = await self.surface.understood(text, body["channel_id"])
        if isinstance(asked, CreateQuote | CloneQuote) and is_direct(body["channel_id"]):
            await viewer_of(context)
            blocks = problem_blocks(_(messages.CHOOSE_CHANNEL), verbs.typed_creation(text), form=_("Choose channel"))
            await ack(text=_(messages.CHOOSE_CHANNEL), blocks=blocks)
            return
        match asked:
            case CreateQuote() | CloneQuote():
                await self._record(ack, context, payloads.slash_command(body, asked, received_at))
            case verbs.ChangeRequest(quote_id, version, payload):
                await self._record(ack, context, payloads.slash_command(body, payload, received_at, quote_id, version))
            case delegation.DelegationRequest():
                user = body["user_id"]
                absence = delegation.delegation_command(asked, user, received_at, await self._zone_of(user))
                await self._record(ack, context, payloads.slash_command(body, absence, received_at, f"delegation:{user}", None))
            case DigestRequest(wanted):
                turned = payloads.slash_command(body, SetDigest(wanted), received_at, f"digest:{body['user_id']}", None)
                await self._record(ack, context, turned)
            case _:
                await self._read(ack, body, rules, asked, await viewer_of(context, getattr(asked, "quote_id", None)))

    async def _read(self, ack: Any, body: Body, rules: Rules, asked: verbs.Meaning, viewer: Viewer) -> None:
        """Answer a read-only request inside the acknowledgement."""
        match asked:
            case delegation.DelegationsRequest():
                now = self.surface.ledger.clock.now_ms()
                read = partial(approval_store.delegations_of, team_id=viewer.team_id, user=viewer.user, now=now)
                found, zone = await self.surface.ledger.database.read(read), await self._zone_of(viewer.user)
                await ack(text=approval_messages.standing(found, viewer.user, zone))
            case verbs.FormRequest():
                opened = await self.surface.open_creation(body, body["channel_id"], builder.Draft(), viewer)
                await (ack() if opened else ack(text=_(messages.FORM_NOT_OPENED)))
            case verbs.QuoteFormRequest():
                await self._open_about(ack, body, asked, viewer)
            case CreateQuote() | CloneQuote() | verbs.ChangeRequest() | delegation.DelegationRequest() | DigestRequest():
                raise ValueError("a command is recorded, not read")
            case question:
                token = payloads.answer_token(body)
                said, blocks = await answered(self.surface, question, body.get("text") or "", rules, viewer, token)
                await ack(text=said, blocks=blocks)

    async def _zone_of(self, user: str) -> str:
        return await self.surface.gate.zone_of(user) or self.surface.rules.time_zone

    async def _open_about(self, ack: Any, body: Body, asked: verbs.QuoteFormRequest, viewer: Viewer) -> None:
        """Open the form that a typed verb needs, or say why it cannot be opened, or what to type instead."""
        view = await self.surface.form_about(asked.action_id, asked.quote_id, asked.version, viewer)
        if isinstance(view, Answer):
            await ack(text=view.text, blocks=list(view.blocks) or None)
        elif await self.surface.open_form(body, view):
            await ack()
        else:
            await ack(text=asked.problem)

    async def _record(self, ack: Any, context: Any, command: Command) -> None:
        answer = await self.surface.desk.receive(command, **transport_of(context))
        if self.surface.ruleset_age_seconds() >= RULESET_REFRESH_SECONDS:
            asyncio.get_running_loop().call_soon(self.surface.read_ruleset)  # runs when the acknowledgement is on its way
        await ack(text=answer.text, blocks=list(answer.blocks) or None)

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a click on a card. Opening a form is read-only; everything else is recorded first."""
        action_id, value = payloads.button(body)
        if value is None:
            await self.surface.outdated(ack, body, context)
            return
        if action_id in FORMS:
            await self.surface.open_about(body, action_id, value, await viewer_of(context, value.quote_id))
            await ack()
            return
        command = payloads.click_command(body, action_id, value, self.surface.ledger.clock.now_ms())
        if payloads.is_home(body):
            refused = await self.surface.recorded(context, command)
            if refused is not None:
                await self.surface.reply(ack, body, refused)
                return
            await self.surface.recorded(context, payloads.home_again_command(body, command.received_at))
            await ack()
        else:
            await self.surface.click(ack, body, context, command)

    async def on_message_shortcut(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create a quote" on a message: open the form with a draft from the message. Records nothing."""
        viewer = await viewer_of(context)
        text = (body["message"].get("text") or "")[: grammar.MESSAGE_CHARACTERS_MAX]
        draft = draft_of_message(text, (await self.surface.rules_now()).catalogue)
        await self.surface.offer_creation(ack, body, body["channel"]["id"], draft, viewer)

    async def on_menu(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a choice in a card's menu."""
        chosen = payloads.menu(body)
        if chosen is None:
            await self.surface.outdated(ack, body, context)
            return
        deed, value = chosen
        if deed in FORMS:
            await self.surface.open_about(body, deed, value, await viewer_of(context, value.quote_id))
            await ack()
        elif deed == EXPLAIN:
            asked, viewer = verbs.ExplainRequest(value.quote_id, value.version), await viewer_of(context, value.quote_id)
            reads = self.surface.reads(await self.surface.rules_now())
            await self.surface.reply(ack, body, await reads.answer(asked, viewer))
        else:
            await self.surface.click(
                ack,
                body,
                context,
                payloads.clicked(body, RefreshCard(), value.quote_id, value.version, self.surface.ledger.clock.now_ms()),
            )

    async def on_create_another(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create another": confirm the offered creation. In a direct message, open the form, which asks for a channel."""
        command = payloads.create_another_command(body, self.surface.ledger.clock.now_ms())
        if command is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        wanted = await self._proposed(command)
        if is_direct(payloads.gesture(body).channel) and wanted is not None and is_direct(wanted.channel):
            await self._open_proposed(ack, body, context, command, wanted)
        else:
            await self.surface.click(ack, body, context, command)

    async def on_edit_first(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Edit first" under a proposed quote: open the form with it. Records nothing."""
        command = payloads.create_another_command(body, self.surface.ledger.clock.now_ms())
        wanted = None if command is None else await self._proposed(command)
        if command is None or wanted is None:
            await self.surface.reply(ack, body, _(messages.OFFER_GONE))
        else:
            await self._open_proposed(ack, body, context, command, wanted)

    async def _open_proposed(self, ack: Any, body: Body, context: Any, command: Command, wanted: CreateQuote) -> None:
        """Open the form of an offered creation, which creates it at most once. In a direct message it asks for a channel."""
        assert isinstance(command.payload, CreateAnother)  # noqa: S101 -- the payload of these buttons
        draft, rules = draft_of_creation(wanted, command.payload.token), await self.surface.rules_now()
        if not builder.fits(draft, rules.ruleset, rules.policy):  # the form would lose products
            await self.surface.reply(ack, body, _(messages.TOO_LONG_FOR_FORM))
            return
        await self.surface.offer_creation(ack, body, wanted.channel, draft, await viewer_of(context))

    async def _proposed(self, command: Command) -> CreateQuote | None:
        """Return the creation offered to the person who clicked; None if it was not offered to this person."""
        assert isinstance(command.payload, CreateAnother)  # noqa: S101 -- the payload of these buttons
        token = command.payload.token
        offer = await self.surface.ledger.database.read(lambda tx: offered(tx, token))
        if offer is None or (offer.actor, offer.team_id) != (command.actor, self.surface.gate.team_id):
            return None
        proposed = parse_stored(offer.action_kind, offer.payload)
        wanted = proposed.quote if isinstance(proposed, ProposeQuote) else proposed
        return wanted if isinstance(wanted, CreateQuote) else None

    async def on_show(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Open", "Show v2", "Show lines" and a found quote: send its whole card to the person alone. Records nothing."""
        _action, value = payloads.button(body)
        card = None if value is None else await self.surface.status(value.quote_id, await viewer_of(context, value.quote_id))
        if value is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
        elif card is None:
            await self.surface.reply(ack, body, messages.unknown_quote(value.quote_id))
        else:
            await self.surface.reply(ack, body, card.text, card.blocks)

    async def on_list(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a button under a list: replace the list with the requested one. Records nothing."""
        asked = parse_question(body["actions"][0].get("value") or "")
        if asked is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        text, blocks = await self.surface.reads(self.surface.rules).listed(asked, await viewer_of(context))
        await self.surface.reply_privately(body, text, blocks, replace=True)
        await ack()

    async def on_fill_in(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Fix in form" under text that could not be read: open the form with the readable parts."""
        typed = parse_typed(body["actions"][0].get("value") or "")
        channel = payloads.gesture(body).channel
        if typed is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
        else:
            draft = draft_of(typed, (await self.surface.rules_now()).catalogue)
            await self.surface.offer_creation(ack, body, channel, draft, await viewer_of(context))

    async def on_rejection(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a decision (reject, request changes or approve); errors are shown in the form."""
        value = parse_button_value(body["view"].get("private_metadata") or "")
        if value is None:
            await ack(response_action="errors", errors={REASON: _(messages.UNREADABLE_BUTTON)})
            return
        command = payloads.rejection_command(body, value, self.surface.ledger.clock.now_ms())
        if command is None:
            await ack(response_action="errors", errors={REASON: _(messages.REASON_NEEDED)})
            return
        await self.surface.submitted(ack, context, command, REASON)

    async def on_form(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a submitted form that creates, revises, sends or loses a quote; each error is shown at its field."""
        received_at = self.surface.ledger.clock.now_ms()
        view, rules = body["view"], await self.surface.rules_now()
        filled = read_form(Form(view, rules, received_at, await edited_version(self.surface, view, context)))
        if not isinstance(filled, Filled):
            await ack(response_action="errors", errors=filled)
            return
        command = payloads.submitted(body, filled.payload, filled.quote_id, filled.version, received_at)
        await self.surface.submitted(ack, context, command, last_block(body["view"]))

    async def on_pending_effect(self, ack: Any, body: Body, context: Any) -> None:
        """Handle Retry, status or Cancel of a quote's pending effect. Viewing records nothing."""
        action, ledger = body["actions"][0], self.surface.ledger
        value, now = parse_pending_effect_value(action.get("value") or ""), ledger.clock.now_ms()
        if value is None:
            await self.surface.outdated(ack, body, context)
        elif action["action_id"] == CHECK:
            viewer = await viewer_of(context, value.quote_id)
            operator = viewer.user in self.surface.rules.operators and not viewer.own_only
            read = partial(
                effect_status, quote_id=value.quote_id, effect_id=value.effect_id, viewer=viewer, now=now, operator=operator
            )
            await self.surface.reply(ack, body, await ledger.database.read(read))
        else:
            payload = ActOnEffect("cancel" if action["action_id"] == CANCEL else "retry", value.effect_id, value.cycle)
            await self.surface.click(ack, body, context, payloads.clicked(body, payload, value.quote_id, value.version, now))

    async def on_pending_command(self, ack: Any, body: Body, context: Any) -> None:
        """Handle Retry, status or Cancel of an unfinished command. Viewing records nothing."""
        action, ledger = body["actions"][0], self.surface.ledger
        value, now = parse_pending_command_value(action.get("value") or ""), ledger.clock.now_ms()
        if value is None:
            await self.surface.outdated(ack, body, context)
        elif action["action_id"] == CHECK_COMMAND:
            viewer = await viewer_of(context, value.quote_id)
            operator = viewer.user in self.surface.rules.operators and not viewer.own_only
            quote_id, row_id = value.quote_id, value.operation_id
            said = await ledger.database.read(lambda tx: command_status(tx, quote_id, row_id, viewer, now, operator=operator))
            await self.surface.reply(ack, body, said)
        else:
            deed: Deed = "cancel" if action["action_id"] == CANCEL_COMMAND else "retry"
            payload = ActOnCommand(deed, value.quote_id, value.operation_id, value.cycle)
            await self.surface.click(ack, body, context, payloads.clicked(body, payload, payload.aggregate_id, value.cycle, now))


async def ignore_event(body: Body) -> None:
    """Log an event that is not for the bot, such as talk in a channel. Bolt acknowledges when this returns."""
    log.debug("event.ignored", event_type=body.get("event", {}).get("type"))


def register(app: AsyncApp, surface: Surface) -> None:
    """Register all listeners except the one for typed commands (see PromptApp)."""
    quotes = QuoteListeners(surface)
    register_home(app, surface)
    register_mentions(app, surface)
    register_guidance(app, surface)
    register_links(app, surface)
    app.event(re.compile(""))(ignore_event)
    app.shortcut(forms.FROM_MESSAGE)(quotes.on_message_shortcut)
    app.action(CREATE_ANOTHER)(quotes.on_create_another)
    app.action(EDIT_FIRST)(quotes.on_edit_first)
    app.action(SHOW)(quotes.on_show)
    app.action(FIND)(quotes.on_show)
    app.action(re.compile(r"^list\."))(quotes.on_list)
    app.action(FILL_IN)(quotes.on_fill_in)
    app.action(MORE)(quotes.on_menu)
    register_operator_cards(app, surface)
    app.action(re.compile(r"^owed\."))(quotes.on_pending_effect)
    app.action(re.compile(r"^command\."))(quotes.on_pending_command)
    register_crm_menus(app, surface)
    register_builder(app, surface)
    app.action(re.compile(r"^(quote|approval)\."))(quotes.on_button)
    app.view(REJECT_CALLBACK)(quotes.on_rejection)
    app.view(CHANGES_CALLBACK)(quotes.on_rejection)
    app.view(APPROVE_CALLBACK)(quotes.on_rejection)
    app.view(re.compile(r"^quote\."))(quotes.on_form)
