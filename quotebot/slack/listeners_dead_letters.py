"""Bolt listeners for operators: the buttons of a dead letter's card, and the form that asks for the reason of a discard."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.operator.dead_letters import DeadLetters
from quotebot import __version__
from quotebot.commands.operations import DiscardDeadLetter, RetryDeadLetter
from quotebot.slack import payloads
from quotebot.slack.admission import viewer_of
from quotebot.views import messages, operator_messages
from quotebot.views.dead_letter_card import (
    DETAILS,
    DISCARD,
    DISCARD_FORM,
    REASON,
    details_view,
    discard_form,
    parse_dead_letter_value,
)
from quotebot.views.forms import parse_rejection

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.domain.access import Viewer
    from quotebot.slack.surface import Surface

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operating:
    """Listeners for operator actions in Slack. Viewing and opening a form record nothing; decisions are recorded first."""

    surface: Surface

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle Retry, Discard or Details."""
        action = body["actions"][0]
        seen = parse_dead_letter_value(action.get("value") or "")
        if seen is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
            await ack()
        elif action["action_id"] in (DISCARD, DETAILS):
            await self._open(body, action["action_id"], seen[0], await viewer_of(context))
            await ack()
        else:
            command = payloads.dead_letter_command(body, RetryDeadLetter(*seen), self.surface.ledger.clock.now_ms())
            await self.surface.click(ack, context, command)

    async def on_form(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a discard; errors are shown in the form."""
        seen = parse_dead_letter_value(body["view"].get("private_metadata") or "")
        reason = parse_rejection(body["view"]["state"]["values"])
        if seen is None or reason is None:
            text = messages.UNREADABLE_FORM if seen is None else operator_messages.REASON_NEEDED
            await ack(response_action="errors", errors={REASON: text})
            return
        command = payloads.dead_letter_form_command(body, DiscardDeadLetter(*seen, reason), self.surface.ledger.clock.now_ms())
        await self.surface.submitted(ack, context, command, REASON)

    async def _open(self, body: Body, action_id: str, reference: str, viewer: Viewer) -> None:
        dialogs = self.surface.dialogs
        letter = await DeadLetters(self.surface.ledger, build=__version__).show(reference)
        if viewer.own_only or viewer.user not in self.surface.rules.operators:
            await dialogs.reply_privately(body, operator_messages.NOT_OPERATOR)
        elif letter is None:
            await dialogs.reply_privately(body, operator_messages.unknown(reference))
        elif action_id == DISCARD and letter.status != "pending":
            await dialogs.reply_privately(body, operator_messages.too_late(reference, letter.status, None))
        elif not await dialogs.open(body, discard_form(letter) if action_id == DISCARD else details_view(letter)):
            await dialogs.reply_privately(body, messages.FORM_NOT_OPENED)


def register_operating(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners for operator actions."""
    operating = Operating(surface)
    app.action(re.compile(r"^letter\."))(operating.on_button)
    app.view(DISCARD_FORM)(operating.on_form)
