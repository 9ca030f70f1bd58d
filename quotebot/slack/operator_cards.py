"""Bolt listeners for operators: the cards of dead letters and of their causes, and the differences with Salesforce."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger import keys
from ledger.operator.dead_letters import DeadLetters
from quotebot import __version__
from quotebot.commands.payloads import (
    CRM_AGGREGATE,
    DiscardDeadLetter,
    ReconcileCrm,
    ReplayCause,
    ResubmitDeadCommand,
    RetryDeadLetter,
)
from quotebot.commands.resubmission import checked_edit, is_editable, stored_fields
from quotebot.domain.language import _
from quotebot.effects import dead_letter_target, ops_target
from quotebot.slack import payloads
from quotebot.slack.gate import viewer_of
from quotebot.store import crm, dead_letters
from quotebot.views import crm_messages, dead_letter_card, messages, operator_messages, ops_cards
from quotebot.views.forms import parse_rejection

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from ledger.database import Tx
    from ledger.operator.dead_letters import DeadLetter
    from quotebot.domain.access import Viewer
    from quotebot.slack.surface import Surface
    from quotebot.views.blocks import Json
    from quotebot.views.crm_messages import Take

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorCards:
    """Listeners for clicks on the operators' cards and answers."""

    surface: Surface

    async def on_dead_letter(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a button on the card of a dead letter. Details and the form of a discard record nothing."""
        action = body["actions"][0]
        if action["action_id"] in (ops_cards.REPLAY_ALL, ops_cards.CAUSE_DETAILS):
            await self._on_cause(ack, body, context)
            return
        seen = dead_letter_card.parse_dead_letter_value(action.get("value") or "")
        if seen is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
        elif action["action_id"] in (dead_letter_card.DISCARD, dead_letter_card.DETAILS, dead_letter_card.EDIT):
            await self._open_dead_letter(body, action["action_id"], seen[0], await viewer_of(context))
            await ack()
        else:
            payload, now = RetryDeadLetter(*seen), self.surface.ledger.clock.now_ms()
            target = dead_letter_target(payload.reference)
            await self.surface.click(ack, body, context, payloads.clicked(body, payload, target, payload.cycle, now))

    async def _open_dead_letter(self, body: Body, action_id: str, reference: str, viewer: Viewer) -> None:
        letters = DeadLetters(self.surface.ledger, build=__version__)
        letter = await letters.show(reference)
        if not self._is_operator(viewer):
            await self.surface.reply_privately(body, _(operator_messages.NOT_OPERATOR))
        elif letter is None:
            await self.surface.reply_privately(body, operator_messages.unknown(reference))
        elif action_id != dead_letter_card.DETAILS and letter.status != "pending":
            await self.surface.reply_privately(body, operator_messages.too_late(reference, letter.status, None))
        elif action_id == dead_letter_card.EDIT:
            await self._open_edit(body, letters, letter, viewer)
        else:
            discards = action_id == dead_letter_card.DISCARD
            form = dead_letter_card.discard_form(letter) if discards else dead_letter_card.details_view(letter)
            if not await self.surface.open_form(body, form):
                await self.surface.reply_privately(body, _(messages.FORM_NOT_OPENED))

    def _is_operator(self, viewer: Viewer) -> bool:
        return not viewer.own_only and viewer.user in self.surface.rules.operators

    async def _open_edit(self, body: Body, letters: DeadLetters, letter: DeadLetter, viewer: Viewer) -> None:
        """Show an operator the content of a dead command; that they saw it is recorded."""
        if letter.kind == "effect" or not is_editable(letter.effect_class, letter.source):
            await self.surface.reply_privately(body, operator_messages.not_editable(letter.reference))
            return
        form = dead_letter_card.edit_form(letter, stored_fields(letter.effect_class, letter.payload))
        if form is None:
            await self.surface.reply_privately(body, operator_messages.too_long_to_edit(letter.reference))
            return
        await letters.record_payload_shown(letter, viewer.user, "user")
        if not await self.surface.open_form(body, form):
            await self.surface.reply_privately(body, _(messages.FORM_NOT_OPENED))

    async def on_edit(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of an edited copy; errors are shown at their field."""
        if not self._is_operator(await viewer_of(context)):
            await ack(response_action="errors", errors={dead_letter_card.PAYLOAD: _(operator_messages.NOT_OPERATOR)})
            return
        values = body["view"]["state"]["values"]
        seen = dead_letter_card.parse_dead_letter_value(body["view"].get("private_metadata") or "")
        letter = None if seen is None else await DeadLetters(self.surface.ledger, build=__version__).show(seen[0])
        reason, text = parse_rejection(values), dead_letter_card.parse_edited(values)
        if seen is None or letter is None:
            await ack(response_action="errors", errors={dead_letter_card.PAYLOAD: _(messages.UNREADABLE_FORM)})
            return
        if reason is None:
            await ack(response_action="errors", errors={dead_letter_card.REASON: _(operator_messages.REASON_NEEDED)})
            return
        try:
            stored = stored_fields(letter.effect_class, letter.payload)
            edited = checked_edit(letter.effect_class, stored, json.loads(text))
        except (ValueError, RecursionError) as error:
            said = operator_messages.not_resubmitted(error)
            await ack(response_action="errors", errors={dead_letter_card.PAYLOAD: said})
            return
        payload, now = ResubmitDeadCommand(*seen, keys.dumps(edited.canonical()), reason), self.surface.ledger.clock.now_ms()
        command = payloads.submitted(body, payload, dead_letter_target(payload.reference), payload.cycle, now)
        await self.surface.submitted(ack, context, command, dead_letter_card.REASON)

    async def on_discard(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a discard; errors are shown in the form."""
        seen = dead_letter_card.parse_dead_letter_value(body["view"].get("private_metadata") or "")
        reason = parse_rejection(body["view"]["state"]["values"])
        if seen is None or reason is None:
            text = _(messages.UNREADABLE_FORM) if seen is None else _(operator_messages.REASON_NEEDED)
            await ack(response_action="errors", errors={dead_letter_card.REASON: text})
            return
        payload, now = DiscardDeadLetter(*seen, reason), self.surface.ledger.clock.now_ms()
        command = payloads.submitted(body, payload, dead_letter_target(payload.reference), payload.cycle, now)
        await self.surface.submitted(ack, context, command, dead_letter_card.REASON)

    async def _on_cause(self, ack: Any, body: Body, context: Any) -> None:
        """Handle Retry all or Details on the card of a cause."""
        action, ledger = body["actions"][0], self.surface.ledger
        cause = ops_cards.parse_cause_value(action.get("value") or "")
        if cause is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
        elif action["action_id"] == ops_cards.CAUSE_DETAILS:
            if not self._is_operator(await viewer_of(context)):
                await self.surface.reply_privately(body, _(operator_messages.NOT_OPERATOR))
            elif not await self.surface.open_form(body, await ledger.database.read(lambda tx: _details(tx, cause))):
                await self.surface.reply_privately(body, _(messages.FORM_NOT_OPENED))
            await ack()
        else:
            now, target = ledger.clock.now_ms(), ops_target(f"{dead_letters.CAUSE}{cause}")
            await self.surface.click(ack, body, context, payloads.clicked(body, ReplayCause(cause, now), target, 0, now))

    async def on_difference(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a button on a difference with Salesforce: open the form that asks for the reason. Records nothing."""
        action = body["actions"][0]
        number = crm_messages.parse_difference(action.get("value") or "")
        take = crm_messages.TAKES.get(action["action_id"])
        if number is None or take is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        refusal = await self._ask_why(body, number, take, await viewer_of(context))
        if refusal is not None:
            await self.surface.reply_privately(body, refusal)
        await ack()

    async def _ask_why(self, body: Body, number: int, take: Take, viewer: Viewer) -> str | None:
        """Open the form of a decision on an open difference; return why it cannot be opened."""
        if not self._is_operator(viewer):
            return _(operator_messages.NOT_OPERATOR)
        found = await self.surface.ledger.database.read(lambda tx: crm.find(tx, number))
        if found is None:
            return crm_messages.unknown(number)
        if found.state != "open":
            return crm_messages.too_late(found)
        form = crm_messages.reconcile_form(found, take)
        if form is None:
            return crm_messages.too_long(number)
        return None if await self.surface.open_form(body, form) else _(messages.FORM_NOT_OPENED)

    async def on_reconcile(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form of a decision on a difference; errors are shown in the form."""
        seen = crm_messages.parse_decided(body["view"].get("private_metadata") or "")
        reason = parse_rejection(body["view"]["state"]["values"])
        error = None if reason is not None else _(operator_messages.REASON_NEEDED)
        error = error if seen is not None else _(messages.UNREADABLE_FORM)
        if not self._is_operator(await viewer_of(context)):
            error = _(operator_messages.NOT_OPERATOR)
        if error is not None or seen is None or reason is None:
            await ack(response_action="errors", errors={crm_messages.REASON: error})
            return
        payload, now = ReconcileCrm(*seen, reason), self.surface.ledger.clock.now_ms()
        command = payloads.submitted(body, payload, CRM_AGGREGATE, None, now)
        await self.surface.submitted(ack, context, command, crm_messages.REASON)


def _details(tx: Tx, cause: str) -> Json:
    letters = dead_letters.dead_letters_of_cause(tx, cause, ops_cards.LETTERS_SHOWN_MAX)
    return ops_cards.cause_details(cause, letters, dead_letters.waiting_of(tx, f"{dead_letters.CAUSE}{cause}").letters)


def register_operator_cards(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners."""
    cards = OperatorCards(surface)
    app.action(re.compile(r"^letter\."))(cards.on_dead_letter)
    app.view(dead_letter_card.DISCARD_FORM)(cards.on_discard)
    app.view(dead_letter_card.EDIT_FORM)(cards.on_edit)
    app.action(re.compile(r"^crm\."))(cards.on_difference)
    app.view(crm_messages.RECONCILE_FORM)(cards.on_reconcile)
