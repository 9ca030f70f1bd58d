"""The dependencies that every Slack listener shares, and the steps that several listeners take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from quotebot.commands.lifecycle import CloneQuote
from quotebot.commands.registry import CreateQuote
from quotebot.domain.access import may_look_up
from quotebot.slack import delegation, grammar, payloads, verbs
from quotebot.slack.dialogs import Dialogs
from quotebot.slack.queries import Reads
from quotebot.views import forms, messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from adapters.slack.api import SlackApi
    from ledger.ledger import Ledger
    from quotebot.commands.registry import Command
    from quotebot.domain.access import Viewer
    from quotebot.domain.rules import Rules
    from quotebot.slack.crm_lookup import AccountLookup, OpportunityLookup
    from quotebot.slack.gate import AccessGate
    from quotebot.slack.reserve import Reserver
    from quotebot.store.crm_mirror import Found
    from quotebot.store.rulesets import ActiveRuleset
    from quotebot.views.card import Card

LOOK_SECONDS: Final = 0.01  # so long what was read of the active ruleset is taken for what is
LOOK_AGAIN_SECONDS: Final = 0.25  # how often it is read anew beside commands that do not wait for it
WORDS_SECONDS: Final = 5.0  # so old words may be by which a command is understood
RULES_SECONDS: Final = 0.5  # a large ruleset that was just activated may take longer

RECORDED: Final = (CreateQuote, CloneQuote, verbs.ChangeRequest, delegation.DelegationRequest)

Body = dict[str, Any]
log = structlog.get_logger(__name__)


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

    desk: Reserver
    ledger: Ledger
    slack: SlackApi
    rules: Rules
    active: ActiveRuleset
    status: Callable[[str, Viewer], Awaitable[Card | None]]
    gate: AccessGate
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

    async def rules_now(self) -> Rules:
        """Return the rules with the active ruleset. It only gives words their meaning: a command is decided by its own look.

        Who types within a moment of somebody else shares their look.
        """
        if self.looked_seconds_ago() >= LOOK_SECONDS:
            await asyncio.wait({self.look()}, timeout=RULES_SECONDS)  # it goes on: the next command finds what was read
        return replace(self.rules, ruleset=self.active.known)

    async def understood(self, text: str, channel: str) -> tuple[verbs.Meaning, Rules]:
        """Return what was typed, and the rules it was read by.

        A command that is understood by the words of a moment ago is not kept waiting for a look at the ledger; what is not
        understood, and what is only answered, is read by those of now.
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
        """Begin to read the active ruleset."""
        self.looked.at = self.ledger.clock.monotonic()
        self.looked.reading = reading = asyncio.ensure_future(self.ledger.database.read(self.active.read))
        reading.add_done_callback(_noticed)
        return reading

    async def open_creation(self, body: Body, channel: str | None, draft: forms.Draft, viewer: Viewer) -> bool:
        """Open the form of a new quote; false when Slack did not open it. Without a channel the form asks for one."""
        channel = None if payloads.is_direct(channel) else channel  # the form asks for one
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

    async def submitted(self, ack: Any, context: Any, command: Command, block_id: str) -> None:
        """Record the command of a form and close it; when it was not recorded, say so in the form, at `block_id`."""
        answer = await self.desk.receive(command, envelope_id=context.get("envelope_id"))
        if answer.recorded is True:
            await ack()
        else:
            await ack(response_action="errors", errors={block_id: answer.text})


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Leave what went wrong with the read to the command's own answer."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
