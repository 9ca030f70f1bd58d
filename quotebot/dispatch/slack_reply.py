"""Effect class slack.reply: an ephemeral reply to one user, by their response_url or in the channel where they asked.

If that is not possible (the address is used up, the user is not in the channel), or the reply is too late to be noticed there, it
goes as a direct message: Slack does not keep an ephemeral message for a user who is away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from adapters.failures import AdapterError, Failure
from ledger.records import Delivered
from quotebot import effects
from quotebot.dispatch.services import EffectHandler
from quotebot.execution.membership import is_direct
from quotebot.store import quotes as store
from quotebot.views import messages
from quotebot.views.confirmations import offer_blocks, problem_blocks
from quotebot.views.seals import Seals

if TYPE_CHECKING:
    from ledger.records import Effect, Settlement


class ReplyHandler(EffectHandler):
    """Sends a reply. It cannot be read back, so the ledger allows at most one repetition."""

    effect_class: ClassVar = effects.REPLY

    async def perform(self, effect: Effect) -> Settlement:
        """Send the reply. Raises AdapterError."""
        payload, text, slack = effect.payload, effect.payload["text"], self.services.adapters.slack
        transport = await self.services.ledger.database.read(lambda tx: store.transport(tx, effect.operation_id))
        response_url = transport.get("response_url")
        late = payload.get("directly", False) or effects.is_late(effect, self.services.ledger.clock.now_ms())
        if late or not (response_url or payload["channel"]):
            return await self._directly(effect)
        try:
            if response_url:
                await slack.respond(response_url, text=text, blocks=self._blocks(effect, text))
            else:
                if (later := await self.services.pacer.put_off("chat.postEphemeral", effect.id)) is not None:
                    return later
                where = {"channel": payload["channel"], "thread_ts": payload.get("thread_ts")}
                async with self.services.pacer.place_in(payload["channel"]) as busy:
                    if busy is not None:
                        return busy
                    await slack.ephemeral(user=payload["user"], text=text, blocks=self._blocks(effect, text), **where)
        except AdapterError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            return await self._directly(effect)
        return Delivered(None, {})

    async def _directly(self, effect: Effect) -> Settlement:
        user, channel = effect.payload["user"], effect.payload["channel"]
        if (later := await self.services.pacer.put_off(user, effect.id)) is not None:
            return later
        text = effect.payload["text"]
        if channel is not None and not is_direct(channel):
            text = messages.asked_in(channel, text)
        posted = await self.services.adapters.slack.post(
            channel=user,
            text=text,
            blocks=self._blocks(effect, text),
            thread_ts=None,
            key=effect.effect_key,
            correlation_id=effect.correlation_id,
        )
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    def _blocks(self, effect: Effect, text: str) -> list[dict[str, Any]]:
        """Return the reply with its buttons, sealed for the user."""
        offer = effect.payload.get("offer")
        made = (problem_blocks(text, effect.payload.get("typed")) or []) if offer is None else offer_blocks(text, offer)
        return Seals(self.services.ledger.audit.keyring).blocks(effect.payload["user"], made) if made else []
