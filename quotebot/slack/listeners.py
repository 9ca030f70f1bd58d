"""Bolt listeners: one for the command, one for the buttons, one for the form. Each ends in one acknowledgement.

Bolt runs with process_before_response, so the acknowledgement leaves only when the listener returns, and a listener that raises is
not acknowledged at all: Slack shows the person an error instead of silence.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.failures import AdapterError
from quotebot import approval_words, words
from quotebot.commands import CreateQuote
from quotebot.domain.approvals import Mandate, may_decide
from quotebot.lifecycle_commands import CloneQuote
from quotebot.slack import delegating, grammar, intake, verbs
from quotebot.slack.cards import APPROVE_WITH_REASON, REJECT, REQUEST_CHANGES, ButtonValue, parse_button_value
from quotebot.slack.modals import (
    APPROVE_CALLBACK,
    CHANGES_CALLBACK,
    REASON,
    REJECT_CALLBACK,
    approve_modal,
    changes_modal,
    reject_modal,
)
from quotebot.slack.offers import CREATE_ANOTHER, SHOW
from quotebot.slack.reads import Reads
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from slack_bolt.async_app import AsyncApp

    from adapters.slack import SlackApi
    from ledger.ledger import Ledger
    from quotebot.commands import Command
    from quotebot.domain.quotes import Approval, Quote
    from quotebot.handlers.quotes import Rules
    from quotebot.slack.cards import Card
    from quotebot.slack.desk import FrontDesk
    from quotebot.store.rulesets import ActiveRuleset

OPEN_SECONDS: Final = 1.8  # a form is opened inside the acknowledgement, and Slack waits 3 s for that
WHISPER_SECONDS: Final = 0.8
RULES_SECONDS: Final = 0.5  # a large ruleset that was just activated may take longer

FORMS: Final = {REJECT: reject_modal, REQUEST_CHANGES: changes_modal, APPROVE_WITH_REASON: approve_modal}
log = structlog.get_logger(__name__)
Body = dict[str, Any]


class NotAcknowledgedError(Exception):
    """The click could not be recorded. Its acknowledgement carries no text, so it is withheld: Slack marks the click as failed."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What the listeners work with. `status` renders a quote's card from its current state."""

    desk: FrontDesk
    ledger: Ledger
    slack: SlackApi
    rules: Rules
    active: ActiveRuleset
    status: Callable[[str], Awaitable[Card | None]]

    async def on_command(self, ack: Any, body: Body, context: Any) -> None:
        """Handle /quote: read-only verbs are answered inside the ack, mutating ones are recorded first."""
        received_at = self.ledger.clock.now_ms()
        rules = await self._rules_now()
        asked = verbs.parse(body.get("text") or "", body["channel_id"], rules.catalogue)
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
            case delegating.DelegationsRequest():
                user, team_id = body["user_id"], intake.home_team(body)
                read = partial(approval_store.delegations_of, team_id=team_id, user=user, now=received_at)
                await ack(text=approval_words.standing(await self.ledger.database.read(read), user))
            case grammar.StatusRequest(quote_id):
                card = await self.status(quote_id)
                if card is None:
                    await ack(text=words.unknown_quote(quote_id))
                else:
                    await ack(text=card.text, blocks=card.blocks)
            case grammar.HelpRequest():
                await ack(text=words.help_text())
            case grammar.GrammarProblem(message):
                await ack(text=message)
            case question:
                text = await Reads(self.ledger, rules).answer(question, body["user_id"], intake.home_team(body))
                await ack(text=text)

    async def _rules_now(self) -> Rules:
        """Return the rules with the active ruleset. It only gives words their meaning: a command is decided by its own look."""
        reading = asyncio.ensure_future(self.ledger.database.read(self.active.read))
        reading.add_done_callback(_noticed)
        await asyncio.wait({reading}, timeout=RULES_SECONDS)  # it goes on: the next command finds what was read
        return replace(self.rules, ruleset=self.active.known)

    async def _record(self, ack: Any, context: Any, command: Command) -> None:
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        await ack(text=answer.text, blocks=list(answer.blocks) or None)

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a click on a card. Opening a form is read-only; everything else is recorded first."""
        action_id, value = intake.button(body)
        if value is None:
            await self._whisper(body, words.unreadable_button())
            await ack()
            return
        if action_id in FORMS:
            await self._open_reason_form(body, value, FORMS[action_id])
            await ack()
            return
        await self._click(ack, context, intake.click_command(body, action_id, value, self.ledger.clock.now_ms()))

    async def on_create_another(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Create another" under the question that a re-submission was answered with."""
        command = intake.create_another_command(body, self.ledger.clock.now_ms())
        if command is None:
            await self._whisper(body, words.unreadable_button())
            await ack()
            return
        await self._click(ack, context, command)

    async def on_show(self, ack: Any, body: Body) -> None:
        """Handle "Show it": the quote's card as it is now, for the one who clicked. Records nothing."""
        _, value = intake.button(body)
        card = None if value is None else await self.status(value.quote_id)
        if value is None:
            await self._whisper(body, words.unreadable_button())
        elif card is None:
            await self._whisper(body, words.unknown_quote(value.quote_id))
        else:
            await self._whisper(body, card.text, card.blocks)
        await ack()

    async def _click(self, ack: Any, context: Any, command: Command) -> None:
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.recorded is not True:
            raise NotAcknowledgedError(answer.text)
        await ack()

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
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.recorded is True:
            await ack()
        else:
            await ack(response_action="errors", errors={REASON: answer.text})

    async def _open_reason_form(self, body: Body, value: ButtonValue, form: Callable[[Quote, Approval], Body]) -> None:
        now = self.ledger.clock.now_ms()
        who = intake.gesture(body)
        quote, away = await self.ledger.database.read(
            lambda tx: (store.load(tx, value.quote_id), approval_store.delegations(tx, who.team_id, now))
        )
        if quote is None or quote.approval is None:
            await self._whisper(body, words.unknown_quote(value.quote_id))
            return
        if value.version != quote.version:
            await self._whisper(body, words.stale(value.version, quote))
            return
        verdict = may_decide(quote.approval, quote, self.rules.person(who.user, who.team_id, away))
        if not isinstance(verdict, Mandate):
            await self._whisper(body, words.refusal(verdict))
            return
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self.slack.open_view(trigger_id=body["trigger_id"], view=form(quote, quote.approval))
        except (AdapterError, TimeoutError) as error:
            log.warning("form.not_opened", code=_code(error))
            await self._whisper(body, words.form_not_opened())

    async def _whisper(self, body: Body, text: str, blocks: Sequence[Body] = ()) -> None:
        """Tell one person something that changes nothing: one direct try, nothing owed."""
        who = intake.gesture(body)
        if who.response_url is None:
            return
        try:
            async with asyncio.timeout(WHISPER_SECONDS):
                await self.slack.respond(who.response_url, text=text, blocks=blocks)
        except (AdapterError, TimeoutError) as error:
            log.warning("reply.not_sent", code=_code(error))


def _code(error: AdapterError | TimeoutError) -> str:
    return error.code if isinstance(error, AdapterError) else "timeout"


async def ignore_event(body: Body) -> None:
    """Take note of an event and do nothing: talk in a channel is not for the bot. Bolt acknowledges when this returns."""
    log.debug("event.ignored", event_type=body.get("event", {}).get("type"))


def register(app: AsyncApp, surface: Surface) -> None:
    """Route Slack's requests to the surface."""
    app.event(re.compile(""))(ignore_event)
    app.command("/quote")(surface.on_command)
    app.action(CREATE_ANOTHER)(surface.on_create_another)
    app.action(SHOW)(surface.on_show)
    app.action(re.compile(r"^(quote|approval)\."))(surface.on_button)
    app.view(REJECT_CALLBACK)(surface.on_rejection)
    app.view(CHANGES_CALLBACK)(surface.on_rejection)
    app.view(APPROVE_CALLBACK)(surface.on_rejection)


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Leave what went wrong with the read to the command's own answer."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
