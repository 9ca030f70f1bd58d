"""Bolt listeners for the buttons of a quote's pending effects. Viewing records nothing; decisions are recorded first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quotebot.commands.operations import ActOnEffect
from quotebot.execution.operator_actions import standing
from quotebot.slack import payloads
from quotebot.slack.admission import viewer_of
from quotebot.views import messages
from quotebot.views.card import CANCEL, CHECK, parse_pending_effect_value

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from quotebot.domain.access import Viewer
    from quotebot.slack.surface import Surface
    from quotebot.views.card import PendingEffectValue

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EffectListeners:
    """Listeners for the buttons of pending effects."""

    surface: Surface

    async def on_button(self, ack: Any, body: Body, context: Any) -> None:
        """Handle Retry, status or Cancel."""
        action = body["actions"][0]
        value = parse_pending_effect_value(action.get("value") or "")
        if value is None:
            await self.surface.dialogs.reply_privately(body, messages.UNREADABLE_BUTTON)
            await ack()
        elif action["action_id"] == CHECK:
            await self._tell(body, value, await viewer_of(context, value.quote_id))
            await ack()
        else:
            payload = ActOnEffect("cancel" if action["action_id"] == CANCEL else "retry", value.effect_id, value.cycle)
            command = payloads.effect_action_command(body, payload, value, self.surface.ledger.clock.now_ms())
            await self.surface.click(ack, context, command)

    async def _tell(self, body: Body, value: PendingEffectValue, viewer: Viewer) -> None:
        ledger = self.surface.ledger
        now, operator = ledger.clock.now_ms(), viewer.user in self.surface.rules.operators and not viewer.own_only
        text = await ledger.database.read(lambda tx: standing(tx, value.quote_id, value.effect_id, viewer, now, operator=operator))
        await self.surface.dialogs.reply_privately(body, text)


def register_effects(app: AsyncApp, surface: Surface) -> None:
    """Register the listener for the buttons of pending effects."""
    app.action(re.compile(r"^owed\."))(EffectListeners(surface).on_button)
