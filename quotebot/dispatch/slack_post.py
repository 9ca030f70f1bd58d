"""Effect class slack.post: a quote's card as the root of its thread, a notice below it, and a card of the operators' channel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from adapters.failures import AdapterError
from ledger.records import AuditEvent, Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch import ops_cards, slack_card
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated, earliest_attempt, enqueuing, quote_of
from quotebot.dispatch.slack_card import QuoteCards, of_no_quote
from quotebot.domain.approvals.policy import without_margin_figures
from quotebot.store import quotes as store
from quotebot.views import messages

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.views.blocks import Json


class PostHandler(EffectHandler):
    """Posts a message once; after a lost answer the channel or thread is searched for the effect's key."""

    effect_class: ClassVar = effects.POST

    async def perform(self, effect: Effect) -> Settlement:
        """Post the message. Raises AdapterError."""
        return await (self._post_to_operators(effect) if of_no_quote(effect) else self._post_in_thread(effect))

    async def _post_to_operators(self, effect: Effect) -> Settlement:
        """Post a card into the operators' channel, unless another organization may read that."""
        channel: str = effect.payload["channel"]
        if not await self.services.channels.may_post(channel):
            return ops_cards.ops_shared()
        if (later := self.services.pacer.put_off(channel, effect.id)) is not None:
            return later
        card, _ = await ops_cards.drawn(self.services, effect)
        return await self._send(effect, channel, card.text, card.blocks, None)

    async def _post_in_thread(self, effect: Effect) -> Settlement:
        services, cards = self.services, QuoteCards(self.services)
        state = await cards.read(effect) if effect.payload["what"] == "root" else None
        quote = await services.quote(effect) if state is None else state.quote
        place = quote.place
        if slack_card.DIRECT in effect.steps or not await services.may_post_about(quote):
            if state is None:
                return await slack_card.given_away(services.ledger, effect, quote)
            effect = await slack_card.direct_place(services.ledger, services.adapters.slack, effect, quote)
            place = effect.steps[slack_card.DIRECT]["channel"]
        if (later := services.pacer.put_off(place, effect.id, quote.requester)) is not None:
            return later
        if state is not None:
            card = cards.draw(state)
            posted = await self._send(effect, place, card.text, card.blocks, None)
            if not isinstance(posted, Delivered):
                return posted
            return replace(posted, result={**posted.result, "rendered": slack_card.rendered(card)})
        try:
            return await self._send(effect, place, without_margin_figures(effect.payload["text"]), [], quote.thread_ts)
        except AdapterError as error:
            if quote.thread_ts is None:
                raise
            return await slack_card.given_up(services.ledger, effect, quote, error)

    async def _send(self, effect: Effect, channel: str, text: str, blocks: list[Json], thread_ts: str | None) -> Settlement:
        async with self.services.pacer.place_in(channel) as busy:
            if busy is not None:
                return busy
            posted = await self.services.adapters.slack.post(
                channel=channel,
                text=text,
                blocks=blocks,
                thread_ts=thread_ts,
                key=effect.effect_key,
                correlation_id=effect.correlation_id,
            )
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    async def find(self, effect: Effect) -> Delivered | None:
        """Search the channel or thread for a message with the effect's key. Raises AdapterError."""
        if of_no_quote(effect):
            channel, thread_ts = effect.payload["channel"], None
        else:
            quote = await self.services.quote(effect)
            channel = slack_card.place_of(effect, quote)
            thread_ts = None if effect.payload["what"] == "root" else quote.thread_ts
        found = await self.services.adapters.slack.find(
            channel=channel, thread_ts=thread_ts, key=effect.effect_key, oldest_seconds=earliest_attempt(effect)
        )
        if found is None:
            return None
        return Delivered(found.ts, {"channel": found.channel, "ts": found.ts}, already_there=True)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Record where the message is; a root may need another card, or a reply to the requester if it failed."""
        if of_no_quote(effect):
            if effect.state == "delivered":
                ops_cards.place(tx, effect)
            return FollowUps()
        if slack_card.was_replaced(effect):
            return slack_card.replaced(tx, effect, now_ms)
        if effect.payload["what"] == "root":
            return _root_follows(tx, effect, now_ms)
        direct = _sent_directly(tx, effect, now_ms) if effect.state == "delivered" else ()
        return FollowUps((*direct, *dead_letter_card_updated(tx, effect)))


def _root_follows(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    if effect.state == "failed":
        return FollowUps((_card_not_posted(tx, effect, now_ms),))
    if effect.state != "delivered" or effect.external_ref is None:
        return FollowUps(dead_letter_card_updated(tx, effect))
    store.set_thread(tx, effect.aggregate_id, effect.external_ref, now_ms)
    moved = _card_moved(tx, effect, now_ms)
    card = effects.card(effect.aggregate_id, effect.effect_key)
    if effect.lost_from is not None:  # it may be the card of a lost part of the ledger, with another number
        return FollowUps((*moved.effects, card, *dead_letter_card_updated(tx, effect)), moved.events)
    if "replaces" in effect.payload:  # updates in the meantime went to the deleted card
        return FollowUps((card,), moved.events)
    return FollowUps((*moved.effects, *dead_letter_card_updated(tx, effect)), moved.events)


def _card_moved(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Record that a card was posted into a direct message, and point the requester to it from the channel."""
    if slack_card.DIRECT not in effect.steps:
        return FollowUps()
    quote = enqueuing(tx, effect)
    if quote.card_channel is not None:
        return FollowUps()
    # an operator who resolves an effect may name no channel
    place = (effect.result or {}).get("channel") or effect.steps[slack_card.DIRECT]["channel"]
    store.move_card(tx, quote.quote_id, place, now_ms)
    moved = AuditEvent("quote.card_moved", quote.quote_id, {"channel": quote.channel}, {"channel": place})
    pointer = effects.reply(quote.quote_id, quote.requester, quote.channel, messages.card_in_direct_message(quote), now_ms)
    return FollowUps((pointer,), (moved,))


def _sent_directly(tx: Tx, effect: Effect, now_ms: int) -> tuple[EffectIntent, ...]:
    """Send a notice to each user it mentions if its thread is a direct message that only the requester reads."""
    quote = quote_of(tx, effect)
    if quote is None or quote.card_channel is None:
        return ()
    text = effect.payload["text"]
    mentioned = dict.fromkeys(messages.mentioned(text))
    return tuple(
        effects.tell(quote.quote_id, user, messages.sent_directly(quote, text), now_ms)
        for user in mentioned
        if user != quote.requester
    )


def _card_not_posted(tx: Tx, effect: Effect, now_ms: int) -> EffectIntent:
    """Return a reply to the requester.

    Without its card the thread does not exist, so the creating command's response_url is used.
    """
    quote = enqueuing(tx, effect)
    text = messages.card_not_posted(quote, effect.correlation_id, effect.last_error or "Slack refused it")
    return effects.reply(quote.quote_id, quote.requester, quote.channel, text, now_ms)
