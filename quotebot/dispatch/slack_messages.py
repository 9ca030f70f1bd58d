"""Slack messages outside a quote's thread: the App Home of a user, and the dead letter cards for operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Drop, FollowUps, Trouble
from quotebot import __version__, effects
from quotebot.dispatch import thread_roots
from quotebot.domain.access import Refusal, admit
from quotebot.store import dead_letters as store
from quotebot.store import people
from quotebot.views import messages
from quotebot.views.dead_letter_card import dead_letter_card
from quotebot.views.home import home_view, load_home, refused_view

if TYPE_CHECKING:
    from adapters.slack.api import SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.dispatch.pacing import Pacer
    from quotebot.domain.dead_letters import DeadLetterCard
    from quotebot.domain.rules import Rules
    from quotebot.execution.channels import Channels
    from quotebot.views.blocks import Json
    from quotebot.views.card import Card

HOME: Final = "home"
LETTER: Final = "letter"
OPS_SHARED: Final = "Another organization may read ops_channel: no dead letter is shown there unless shared_channels lists it."


def what_of(effect: Effect) -> str | None:
    """Return which of these an effect is; None if it belongs to a quote's thread."""
    what = effect.payload.get("what")
    return what if what in (HOME, LETTER) else None


@dataclass(frozen=True, slots=True)
class SurfaceEffects:
    """Effect handler for these messages. Each is drawn from the current state, so drawing it twice converges."""

    ledger: Ledger
    slack: SlackApi
    rules: Rules
    pacer: Pacer
    channels: Channels

    async def draw(self, effect: Effect) -> Settlement:
        """Replace a Home tab or the card of a dead letter. Raises AdapterError."""
        return await (self._publish_home(effect) if what_of(effect) == HOME else self._update_dead_letter(effect))

    async def post(self, effect: Effect) -> Settlement:
        """Post the card of a dead letter into the operators' channel, unless that may be shared. Raises AdapterError."""
        if not await self.channels.may_post(effect.payload["channel"]):
            return Drop(Trouble(Failure.VALIDATION.value, OPS_SHARED))
        if (later := self.pacer.put_off(effect.payload["channel"], effect.id)) is not None:
            return later
        card, _ = await self._dead_letter(effect)
        posted = await self.slack.post(
            channel=effect.payload["channel"],
            text=card.text,
            blocks=card.blocks,
            thread_ts=None,
            key=effect.effect_key,
            correlation_id=effect.correlation_id,
        )
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    async def _publish_home(self, effect: Effect) -> Delivered:
        user, team_id = effect.payload["user"], effect.payload["team_id"]
        view = await self.ledger.database.read(lambda tx: self._home(tx, user, team_id))
        await self.slack.publish_home(user=user, view=view, correlation_id=effect.correlation_id)
        return Delivered(None, {})

    def _home(self, tx: Tx, user: str, team_id: str) -> Json:
        """Return the Home tab of a user whom the command admitted, unless Slack has reported otherwise since."""
        found = people.known(tx, team_id, user)
        admitted = admit(user, team_id, "member" if found is None else found.kind, self.rules.guest_reps)
        if isinstance(admitted, Refusal):
            return refused_view(messages.turned_away(admitted.code))
        return home_view(load_home(tx, admitted, self.rules, self.ledger.clock.now_ms()))

    async def _update_dead_letter(self, effect: Effect) -> Settlement:
        drawn, card = await self._dead_letter(effect)
        assert card is not None  # noqa: S101 -- the effect waits for its posting
        if not await self.channels.may_post(card.channel):
            return Drop(Trouble(Failure.VALIDATION.value, OPS_SHARED))
        assert card.ts is not None  # noqa: S101 -- likewise
        try:
            await self.slack.update(
                channel=card.channel, ts=card.ts, text=drawn.text, blocks=drawn.blocks, correlation_id=effect.correlation_id
            )
        except AdapterError as error:
            if error.code not in thread_roots.CODES:
                raise
            return Drop(Trouble(error.failure.value, f"Somebody deleted this card ({error.code}): there is nothing to update."))
        return Delivered(card.ts, {})

    async def _dead_letter(self, effect: Effect) -> tuple[Card, DeadLetterCard | None]:
        """Return the current card of a dead letter, and the record of where it is posted."""
        reference = effect.payload["reference"]
        letter = await DeadLetters(self.ledger, build=__version__).show(reference)
        card = await self.ledger.database.read(lambda tx: store.find(tx, reference))
        if letter is None:
            raise AdapterError(Failure.INTERNAL, "unknown_letter", f"There is no dead letter {reference}.")
        return dead_letter_card(letter, card), card


def settled(tx: Tx, effect: Effect) -> FollowUps:
    """Record where the card of a dead letter is once it is posted; these effects have no other follow-up."""
    if effect.effect_class == effects.POST and effect.state == "delivered":
        assert effect.external_ref is not None  # noqa: S101 -- a delivered post has its ts
        store.place(tx, effect.payload["reference"], effect.external_ref)
    return FollowUps()


def drawn_again(tx: Tx, effect: Effect, not_before: int) -> EffectIntent:
    """Return another draw of the same message at `not_before` (ms), unconditionally: a lost update may arrive in between."""
    if what_of(effect) == HOME:
        again = effects.home(effect.payload["user"], effect.payload["team_id"])
    else:
        card = store.find(tx, effect.payload["reference"])
        assert card is not None  # noqa: S101 -- it was just drawn
        again = effects.update_dead_letter(card.reference, card.post_key)
    return replace(again, supersede_key=None, not_before=not_before)


def dead_letter_card_updated(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return a redraw of the dead letter card of this effect, if operators have one and its content has changed."""
    if effect.cycle == 1 and effect.state != "discarded":
        return ()  # it was no dead letter before
    card = store.find(tx, str(effect.id))
    return () if card is None else (effects.update_dead_letter(card.reference, card.post_key),)
