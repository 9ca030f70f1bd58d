"""Effect class slack.card: the current state on a quote's card, a Home tab, or the card of a dead letter.

Each is drawn from the state at that moment, so drawing it twice converges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import AdapterError, Failure
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Drop, FollowUps, Trouble
from quotebot import __version__, effects
from quotebot.dispatch import thread_roots
from quotebot.dispatch.cards import QuoteCards
from quotebot.dispatch.services import EffectHandler
from quotebot.domain.access import Refusal, admit
from quotebot.store import dead_letters as store
from quotebot.store import people, quotes
from quotebot.views import messages
from quotebot.views.dead_letter_card import dead_letter_card
from quotebot.views.home import home_view, load_home, refused_view

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.store.dead_letters import DeadLetterCard
    from quotebot.views.blocks import Json
    from quotebot.views.card import Card

HOME: Final = "home"
LETTER: Final = "letter"
OPS_SHARED: Final = "Another organization may read ops_channel: no dead letter is shown there unless shared_channels lists it."


class CardHandler(EffectHandler):
    """Replaces the content of a message or a Home tab. A newer update supersedes this one."""

    effect_class: ClassVar = effects.CARD

    async def perform(self, effect: Effect) -> Settlement:
        """Draw it. Raises AdapterError."""
        match effect.payload.get("what"):
            case "withdrawn":
                return await thread_roots.withdrawn(self.services.adapters.slack, effect, messages.CARD_WITHDRAWN)
            case "home":
                return await self._publish_home(effect)
            case "letter":
                return await self._update_dead_letter(effect)
            case _:
                return await self._update_quote(effect)

    async def _update_quote(self, effect: Effect) -> Settlement:
        cards, ledger = QuoteCards(self.services), self.services.ledger
        state = await cards.read(effect)
        quote, card = state.quote, cards.draw(state)
        assert quote.thread_ts is not None  # noqa: S101 -- the effect waits for the root
        if not await self.services.may_post_about(quote):
            return await thread_roots.given_away(ledger, effect, quote)
        try:
            await self.services.adapters.slack.update(
                channel=quote.place, ts=quote.thread_ts, text=card.text, blocks=card.blocks, correlation_id=effect.correlation_id
            )
        except AdapterError as error:
            return await thread_roots.given_up(ledger, effect, quote, error)
        return Delivered(quote.thread_ts, {})

    async def _publish_home(self, effect: Effect) -> Delivered:
        user, team_id = effect.payload["user"], effect.payload["team_id"]
        view = await self.services.ledger.database.read(lambda tx: self._home(tx, user, team_id))
        await self.services.adapters.slack.publish_home(user=user, view=view, correlation_id=effect.correlation_id)
        return Delivered(None, {})

    def _home(self, tx: Tx, user: str, team_id: str) -> Json:
        """Return the Home tab of a user whom the command admitted, unless Slack has reported otherwise since."""
        rules, found = self.services.rules, people.known(tx, team_id, user)
        admitted = admit(user, team_id, "member" if found is None else found.kind, rules.guest_reps)
        if isinstance(admitted, Refusal):
            return refused_view(messages.turned_away(admitted.code))
        return home_view(load_home(tx, admitted, rules, self.services.ledger.clock.now_ms()))

    async def _update_dead_letter(self, effect: Effect) -> Settlement:
        drawn, card = await dead_letter_in(self.services.ledger, effect)
        assert card is not None  # noqa: S101 -- the effect waits for its posting
        if not await self.services.channels.may_post(card.channel):
            return ops_shared()
        assert card.ts is not None  # noqa: S101 -- likewise
        try:
            await self.services.adapters.slack.update(
                channel=card.channel, ts=card.ts, text=drawn.text, blocks=drawn.blocks, correlation_id=effect.correlation_id
            )
        except AdapterError as error:
            if error.code not in thread_roots.CODES:
                raise
            return Drop(Trouble(error.failure.value, f"Somebody deleted this card ({error.code}): there is nothing to update."))
        return Delivered(card.ts, {})

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the new card if this one was found gone; a Home tab and the card of a dead letter have no follow-up."""
        if of_no_quote(effect):
            return FollowUps()
        if thread_roots.was_replaced(effect):
            return thread_roots.replaced(tx, effect, now_ms)
        return super().follow_ups(tx, effect, now_ms)

    def after_attempt(self, tx: Tx, effect: Effect) -> FollowUps:
        """Draw the card once more after the settle delay if an update was lost: it may still arrive and show an older state."""
        if effect.state != "delivered" or not effect.maybe_sent:
            return super().after_attempt(tx, effect)
        return FollowUps((_drawn_again(tx, effect, self.services.ledger.clock.now_ms() + self.services.settle_delay_ms),))


def of_no_quote(effect: Effect) -> bool:
    """Return true for a Home tab or the card of a dead letter; false for a message in a quote's thread."""
    return effect.payload.get("what") in (HOME, LETTER)


def ops_shared() -> Drop:
    """Return the settlement of a dead letter's card that other organizations could read."""
    return Drop(Trouble(Failure.VALIDATION.value, OPS_SHARED))


async def dead_letter_in(ledger: Ledger, effect: Effect) -> tuple[Card, DeadLetterCard | None]:
    """Return the current card of the dead letter that an effect names, and the record of where it is posted."""
    reference = effect.payload["reference"]
    letter = await DeadLetters(ledger, build=__version__).show(reference)
    card = await ledger.database.read(lambda tx: store.find(tx, reference))
    if letter is None:
        raise AdapterError(Failure.INTERNAL, "unknown_letter", f"There is no dead letter {reference}.")
    return dead_letter_card(letter, card), card


def _drawn_again(tx: Tx, effect: Effect, not_before: int) -> EffectIntent:
    """Return another draw of the same message at `not_before` (ms), unconditionally."""
    match effect.payload.get("what"):
        case "home":
            again = effects.home(effect.payload["user"], effect.payload["team_id"])
        case "letter":
            card = store.find(tx, effect.payload["reference"])
            assert card is not None  # noqa: S101 -- it was just drawn
            again = effects.update_dead_letter(card.reference, card.post_key)
        case _:
            return effects.card_again(effect.aggregate_id, quotes.root_effect_key(tx, effect.aggregate_id), not_before)
    return replace(again, supersede_key=None, not_before=not_before)
