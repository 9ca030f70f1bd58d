"""Forms and private replies to one person: one direct attempt each, without a record or a pending effect."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.failures import AdapterError
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.decisions import Mandate, may_decide
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import QuoteState
from quotebot.slack import payloads
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store
from quotebot.views import forms, lifecycle_messages, messages
from quotebot.views.blocks import plain, section
from quotebot.views.buttons import APPROVE_WITH_REASON, DISCOUNT, LOSE, REJECT, REQUEST_CHANGES, REVISE, SEND
from quotebot.views.forms import approve_modal, changes_modal, reject_modal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adapters.slack.api import SlackApi
    from ledger.ledger import Ledger
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Approval, Quote
    from quotebot.domain.rules import Rules
    from quotebot.views.blocks import ButtonValue

OPEN_SECONDS: Final = 1.8  # a form is opened inside the acknowledgement, and Slack waits 3 s for that
WHISPER_SECONDS: Final = 0.8
log = structlog.get_logger(__name__)
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialogs:
    """Forms and private replies for the person who clicked or typed."""

    ledger: Ledger
    slack: SlackApi
    rules: Rules
    contacts: bool = False  # whether the Send form offers the customer's contacts

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
        elif not await self.open(body, view):
            await self.reply_privately(body, messages.FORM_NOT_OPENED)

    def _view(self, asked: str, quote: Quote, viewer: Viewer, away: Sequence[Delegation]) -> Body | str:
        """Return the form, or the reason why it cannot be opened now."""
        if asked in _REASONS:
            return self._reason_form(asked, quote, viewer, away)
        verb, legal, form = _ABOUT_QUOTE[asked]
        if asked == SEND and self.contacts and legal(quote.state):
            return forms.send_form(quote, contacts=True)
        return form(quote) if legal(quote.state) else lifecycle_messages.wrong_state(quote, verb)

    def _reason_form(self, asked: str, quote: Quote, viewer: Viewer, away: Sequence[Delegation]) -> Body | str:
        if quote.approval is None:
            return messages.wrong_state(quote, "decide about")
        verdict = may_decide(quote.approval, quote, self.rules.person(viewer.user, viewer.team_id, away, viewer.kind))
        if not isinstance(verdict, Mandate):
            return verdict.sentence
        return _REASONS[asked](quote, quote.approval)

    async def open(self, body: Mapping[str, Any], view: Body) -> bool:
        """Open a form with the trigger of `body`; return false if Slack did not open it within OPEN_SECONDS."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self.slack.open_view(trigger_id=body["trigger_id"], view=view)
        except (AdapterError, TimeoutError) as error:
            log.warning("form.not_opened", code=_code(error))
            return False
        return True

    async def redraw(self, view: Mapping[str, Any], anew: Body) -> bool:
        """Redraw an open form that did not change meanwhile; input in remaining fields is kept. Return false if Slack did not."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self.slack.update_view(view_id=view["id"], view_hash=view["hash"], view=anew)
        except (AdapterError, TimeoutError) as error:
            log.warning("form.not_redrawn", code=_code(error))
            return False
        return True

    async def reply_privately(self, body: Body, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply that changes nothing: ephemeral under their message or, on a Home tab, in a modal.

        `replace` puts it in place of the ephemeral reply that they clicked on.
        """
        who = payloads.gesture(body)
        if who.response_url is None:
            await self.open(body, window([block for block in blocks if block["type"] != "actions"] or [section(text)]))
            return
        await self.respond(who.response_url, text, blocks, replace=replace)

    async def respond(self, response_url: str, text: str, blocks: Sequence[Body] = (), *, replace: bool = False) -> None:
        """Send one person a reply through the `response_url` of their request: one attempt, no pending effect."""
        try:
            async with asyncio.timeout(WHISPER_SECONDS):
                await self.slack.respond(response_url, text=text, blocks=blocks, replace=replace)
        except (AdapterError, TimeoutError) as error:
            log.warning("reply.not_sent", code=_code(error))


def window(blocks: list[Body]) -> Body:
    """Return a modal that only shows blocks."""
    return {"type": "modal", "title": plain("Quotebot"), "close": plain("Close"), "blocks": blocks}


def _code(error: AdapterError | TimeoutError) -> str:
    return error.code if isinstance(error, AdapterError) else "timeout"


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
