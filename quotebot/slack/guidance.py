"""Private answers to questions, help and refused texts, and the Bolt listeners for the buttons under them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quotebot.commands.payloads import CloneQuote, CreateByForm, CreateQuote
from quotebot.domain.access import Viewer
from quotebot.domain.language import _
from quotebot.domain.pricing.price_requests import Changes
from quotebot.execution.membership import is_direct
from quotebot.slack import grammar, message_text, payloads, verbs
from quotebot.slack.delegation import UnknownPerson
from quotebot.slack.drafts import draft_of
from quotebot.slack.gate import ANSWER_SECONDS, attempt, viewer_of
from quotebot.views import help_messages, messages
from quotebot.views.confirmations import (
    CLONE,
    REPAIR,
    Correction,
    choice_blocks,
    choice_text,
    cover_blocks,
    parse_correction,
    problem_blocks,
)
from quotebot.views.forms import window

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.domain.rules import Rules
    from quotebot.slack.surface import Surface
    from quotebot.views.blocks import Json

    Answerable = verbs.HelpRequest | verbs.WhichQuote | verbs.StatusRequest | grammar.GrammarProblem | verbs.Read

Body = dict[str, Any]


def helped(asked: verbs.HelpRequest) -> tuple[str, list[Json]]:
    """Return the help, or the answer to a greeting, as text and as blocks."""
    if asked.greets:
        hello = _(help_messages.HELLO)
        return hello, help_messages.start_blocks(hello)
    return help_messages.help_text(), help_messages.help_blocks()


async def answered(
    surface: Surface, asked: Answerable, text: str, rules: Rules, viewer: Viewer, token: str
) -> tuple[str, list[Json] | None]:
    """Return the private answer to a question, to a request for help, or to the `text` that could not be read.

    `token` is that of the answer: its buttons create at most one quote.
    """
    match asked:
        case verbs.HelpRequest():
            return helped(asked)
        case verbs.WhichQuote():
            return await surface.reads(rules).which(asked, viewer)
        case verbs.StatusRequest(quote_id):
            card = await surface.status(quote_id, viewer)
            return (messages.unknown_quote(quote_id), None) if card is None else (card.text, card.blocks)
        case UnknownPerson(message) | grammar.GrammarProblem(message, is_start=True):
            unknown_person = isinstance(asked, UnknownPerson)
            return message, cover_blocks(message) if unknown_person else help_messages.start_blocks(message)
        case grammar.GrammarProblem():
            return await _corrected(surface, asked, text, rules, viewer, token)
        case question:
            return await _question_answered(surface, question, rules, viewer)


async def _corrected(
    surface: Surface, asked: grammar.GrammarProblem, text: str, rules: Rules, viewer: Viewer, token: str
) -> tuple[str, list[Json] | None]:
    """Return the answer to a text that could not be read, with a button for each correction that can apply only once."""
    corrections = asked.choices or (() if asked.repair is None else (asked.repair,))
    offered: list[tuple[Correction, str]] = []
    for each in corrections:
        version = await _version_seen(surface, verbs.parse(each.text, "", rules.catalogue), viewer)
        if version is not None:
            offered.append((Correction(each.text, token, version or None), each.label))
    if not asked.choices:
        one = offered[0] if offered else None
        return asked.message, problem_blocks(asked.message, verbs.typed_creation(text), repair=one)
    if len(offered) == len(corrections):
        return asked.message, choice_blocks(asked.message, offered)
    return choice_text(asked.message, [each.text for each in corrections]), None


async def _question_answered(surface: Surface, asked: verbs.Read, rules: Rules, viewer: Viewer) -> tuple[str, list[Json] | None]:
    """Return the answer to a question; under that about a change of a quote, a button makes the change."""
    if not isinstance(asked, verbs.SimulateRequest) or asked.quote_id is None:
        return await surface.reads(rules).shown(asked, viewer)
    quote = await surface.visible(asked.quote_id, viewer)
    said = await surface.reads(rules).answer(asked, viewer)
    if quote is None:
        return said, None
    rules, now = await surface.rules_for(rules, quote.account, quote.crm_account), surface.ledger.clock.now_ms()
    return said, message_text.apply_blocks(said, quote, asked.changes or Changes(), rules, now)


async def _version_seen(surface: Surface, asked: verbs.Meaning, viewer: Viewer) -> int | None:
    """Return the version of a quote that a corrected command changes: the given one or the head. 0 if it changes none.

    None if the person does not see the quote, or if that is not known in time: a button for the command could apply twice.
    """
    if not isinstance(asked, verbs.ChangeRequest):
        return 0
    if asked.version is not None:
        return asked.version
    quote = await surface.visible(asked.quote_id, await surface.gate.near(viewer, (asked.quote_id,)))
    return None if quote is None else quote.version


@dataclass(frozen=True, slots=True)
class Guidance:
    """Listeners for the buttons under help and under refused texts."""

    surface: Surface

    async def on_joined(self, ack: Any, body: Body, context: Any) -> None:
        """Welcome the bot's inviter in a channel, privately. Of other people's joining, and without an inviter, nothing is said."""
        event = body["event"]
        inviter, channel = event.get("inviter"), event.get("channel")
        if event.get("user") == context.get("bot_user_id") and inviter and channel:
            gate = self.surface.gate
            if isinstance(await gate.learned(inviter), Viewer):
                welcome = _(help_messages.WELCOME)
                blocks = gate.seals.blocks(inviter, help_messages.start_blocks(welcome))
                sent = self.surface.slack.ephemeral(channel=channel, user=inviter, text=welcome, blocks=blocks)
                await attempt(sent, ANSWER_SECONDS, "reply.not_sent")
        await ack()

    async def on_help(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Help"."""
        await viewer_of(context)
        await self.surface.reply(ack, body, *helped(verbs.HelpRequest()))

    async def on_commands(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "All commands": open the list."""
        await viewer_of(context)
        if not await self.surface.open_form(body, window(help_messages.all_commands(), _("All commands"))):
            await self.surface.reply_privately(body, _(messages.FORM_NOT_OPENED))
        await ack()

    async def on_repair(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the button that gives the corrected command. In a direct message a new quote needs a channel: open the form."""
        given, channel = parse_correction(body["actions"][0].get("value") or ""), payloads.gesture(body).channel or ""
        if given is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        viewer = await viewer_of(context)
        asked, rules = await self.surface.understood(given.text, channel)
        now = self.surface.ledger.clock.now_ms()
        match asked:
            case CreateQuote() if is_direct(channel):
                draft = draft_of(verbs.typed_creation(given.text) or "", rules.catalogue)
                await self.surface.offer_creation(ack, body, None, replace(draft, token=given.token), viewer)
            case CreateQuote():
                once = CreateByForm(given.token, asked)
                await self.surface.click(ack, body, context, payloads.clicked(body, once, "new", 0, now))
            case verbs.ChangeRequest(quote_id, version, payload):
                seen = given.version if version is None else version
                if seen is None:  # of an earlier build: the head at each click would be another one
                    await self.surface.reply(ack, body, _(messages.OFFER_GONE))
                    return
                await self.surface.click(ack, body, context, payloads.clicked(body, payload, quote_id, seen, now))
            case verbs.SimulateRequest():
                await self.surface.reply(ack, body, await self.surface.reads(rules).answer(asked, viewer))
            case _:  # the catalog has changed meanwhile
                await self.surface.reply(ack, body, _(messages.OFFER_GONE))

    async def on_clone(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Clone quote": copy it into the channel of the click; outside of channels, into that of the person's own quote."""
        _action, value = payloads.button(body)
        if value is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        viewer, channel = await viewer_of(context, value.quote_id), payloads.gesture(body).channel
        if is_direct(channel):
            quote = await self.surface.visible(value.quote_id, viewer)
            channel = quote.channel if quote is not None and quote.requester == viewer.user else None
        if channel is None or is_direct(channel):
            await self.surface.reply(ack, body, _(messages.CHOOSE_CHANNEL))
            return
        copied = CloneQuote(value.quote_id, channel, value.version)
        await self.surface.click(ack, body, context, payloads.clicked(body, copied, "new", 0, self.surface.ledger.clock.now_ms()))


def register_guidance(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners."""
    guidance = Guidance(surface)
    app.event("member_joined_channel")(guidance.on_joined)
    app.action(help_messages.HELP)(guidance.on_help)
    app.action(help_messages.COMMANDS)(guidance.on_commands)
    app.action(REPAIR)(guidance.on_repair)
    app.action(CLONE)(guidance.on_clone)
