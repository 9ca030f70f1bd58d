"""Bolt listeners for messages to the bot, in a channel or direct. They propose and answer; they change no quote themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot.commands.payloads import CloneQuote, CreateQuote, ProposeQuote, ReadMessage
from quotebot.domain.access import Sight, may_see
from quotebot.execution.membership import is_direct
from quotebot.handlers import extraction
from quotebot.slack import delegation, grammar, message_text, payloads, verbs
from quotebot.slack.gate import ANSWER_SECONDS, attempt, viewer_of
from quotebot.store import quotes as store
from quotebot.views import messages
from quotebot.views.confirmations import problem_blocks

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.slack.surface import Surface

_MENTIONS: Final = re.compile(r"(?:<@[UW][A-Z0-9]{1,30}(?:\|[^<>]{0,200})?>[\s,:]*)+")

log = structlog.get_logger(__name__)
Body = dict[str, Any]
Blocks = list[dict[str, Any]] | None


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
            text = message_text.with_number(text, quote)
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
        blocks: Blocks = None
        match asked:
            case verbs.StatusRequest(quote_id):
                card = await self.surface.status(quote_id, viewer)
                said, blocks = (messages.unknown_quote(quote_id), None) if card is None else (card.text, card.blocks)
            case verbs.HelpRequest():
                said = messages.HELP_TEXT
            case grammar.GrammarProblem(said) if is_direct(body["event"]["channel"]) and not verbs.begins_with_verb(text):
                said = f"{said}\n{messages.HELP_TEXT}"
            case grammar.GrammarProblem(said):
                blocks = problem_blocks(said, verbs.typed_creation(text))
            case verbs.FormRequest():
                said, blocks = messages.BY_FORM, problem_blocks(messages.BY_FORM, "")
            case verbs.ChangeRequest(quote_id):
                said = messages.by_command_only(quote_id)
            case CloneQuote() | CreateQuote() | delegation.DelegationRequest() | delegation.DelegationsRequest():
                said = messages.by_command_only(None)
            case question:
                said, blocks = await self.surface.reads(rules).shown(question, viewer)
        return said, blocks

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
        """Handle "Make it v2" under a proposed change."""
        change = message_text.parse_applied(body["actions"][0].get("value") or "")
        if change is None:
            await self.surface.reply(ack, body, messages.UNREADABLE_BUTTON)
            return
        now = self.surface.ledger.clock.now_ms()
        await self.surface.click(ack, context, payloads.clicked(body, change.payload, change.quote_id, change.version, now))

    async def _tell(self, event: Body, text: str, blocks: Blocks) -> None:
        """Send the author an ephemeral answer where they wrote: one direct attempt, no pending effect."""
        sent = self.surface.slack.ephemeral(
            channel=event["channel"], user=event["user"], text=text, blocks=blocks or (), thread_ts=event.get("thread_ts")
        )
        await attempt(sent, ANSWER_SECONDS, "reply.not_sent")


def register_mentions(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners for messages to the bot."""
    mentions = Mentions(surface)
    app.event("message")(mentions.on_message)
    app.event("app_mention")(mentions.on_mention)
    app.action(message_text.APPLY)(mentions.on_apply)
