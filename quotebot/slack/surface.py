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

LOOK_SECONDS: Final = 0.01  # TTL of the cached active ruleset
LOOK_AGAIN_SECONDS: Final = 0.25  # age after which a recorded command starts a background read of it
WORDS_SECONDS: Final = 5.0  # maximum age of the catalogue by which a command is parsed without a new read
RULES_SECONDS: Final = 0.5  # longest wait for a read; a large ruleset that was just activated may take longer

RECORDED: Final = (CreateQuote, CloneQuote, verbs.ChangeRequest, delegation.DelegationRequest)

Body = dict[str, Any]
log = structlog.get_logger(__name__)


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
    lookup: AccountLookup | None = None  # account names in the CRM, if enabled
    opportunities: OpportunityLookup | None = None  # open opportunities of an account
    contacts: Callable[[str, str], Awaitable[Found[str]]] | None = None  # of a customer, if the CRM mirror is kept

    @property
    def dialogs(self) -> Dialogs:
        """Return the forms and ephemeral replies of this surface."""
        return Dialogs(self.ledger, self.slack, self.rules, contacts=self.contacts is not None)

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

    async def open_creation(self, body: Body, channel: str | None, draft: forms.Draft, viewer: Viewer) -> bool:
        """Open the form of a new quote; return false if Slack did not open it. Without a channel the form asks for one."""
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


def _noticed(reading: asyncio.Future[Any]) -> None:
    """Log a failed read; parsing continues with the last known ruleset."""
    if not reading.cancelled() and reading.exception() is not None:
        log.warning("ruleset.unread", error=repr(reading.exception()))
