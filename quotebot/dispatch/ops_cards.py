"""Messages in the operators' channel: cards of dead letters, of their causes and of refused logins.

They are posted by effects of slack.post and redrawn by effects of slack.card, each from the state at that moment. None is shown in
a channel that another organization may read, unless the settings list it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Drop, Trouble
from quotebot import __version__, effects
from quotebot.domain.language import N_, _
from quotebot.store import dead_letters
from quotebot.views import operator_messages
from quotebot.views.card import Card
from quotebot.views.dead_letter_card import dead_letter_card
from quotebot.views.ops_cards import ops_card

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.dispatch.services import Services
    from quotebot.store.dead_letters import DeadLetterCard, OpsCard

    Update = Callable[[Effect, str, str, Card], Awaitable[Settlement | None]]

LETTER, OPS, CLOSED = "letter", "ops", "closed"  # the kinds of payloads
KINDS: Final = (LETTER, OPS, CLOSED)
GONE_CODES: Final = frozenset({"message_not_found", "cant_update_message", "thread_not_found"})
OPS_SHARED: Final = N_("Another organization may read ops_channel: no dead letter is shown there unless shared_channels lists it.")


def ops_shared() -> Drop:
    """Return the settlement of a card that other organizations could read."""
    return Drop(Trouble(Failure.VALIDATION.value, _(OPS_SHARED)))


async def drawn(services: Services, effect: Effect) -> tuple[Card, DeadLetterCard | OpsCard | None]:
    """Return the current card of an effect's subject, and the record of where it is posted. Raises AdapterError."""
    if effect.payload["what"] == OPS:
        return await services.ledger.database.read(lambda tx: _subject(services, tx, effect.payload["subject"]))
    reference = effect.payload["reference"]
    letter = await DeadLetters(services.ledger, build=__version__).show(reference)
    card = await services.ledger.database.read(lambda tx: dead_letters.find(tx, reference))
    if letter is None:
        raise AdapterError(Failure.INTERNAL, "unknown_letter", _("There is no dead letter {reference}.", reference=reference))
    return dead_letter_card(letter, card), card


async def redraw(services: Services, effect: Effect, update: Update) -> Settlement:
    """Show the current state on a card, or a pointer to the newer message on an older card. Raises AdapterError."""
    if effect.payload["what"] == CLOSED:
        shown, channel, ts = Card(_(operator_messages.CONTINUED), []), effect.payload["channel"], effect.payload["ts"]
    else:
        shown, card = await drawn(services, effect)
        if card is None or card.ts is None:
            return Drop(Trouble(Failure.NOT_FOUND.value, _("No card was posted.")))
        channel, ts = card.channel, card.ts
    if not await services.channels.may_post(channel):
        return ops_shared()
    try:
        later = await update(effect, channel, ts, shown)
    except AdapterError as error:
        if error.code not in GONE_CODES:
            raise
        why = _("Somebody deleted this card ({code}): there is nothing to update.", code=error.code)
        return Drop(Trouble(error.failure.value, why))
    return later or Delivered(ts, {})


def place(tx: Tx, effect: Effect) -> None:
    """Record the message that an effect posted."""
    if effect.external_ref is None:
        return
    if effect.payload["what"] == OPS:
        dead_letters.place_ops_card(tx, effect.payload["subject"], effect.effect_key, effect.external_ref)
    else:
        dead_letters.place(tx, effect.payload["reference"], effect.effect_key, effect.external_ref)


def redrawn_again(tx: Tx, effect: Effect) -> EffectIntent:
    """Return another update of the same message."""
    if effect.payload["what"] == CLOSED:
        return effects.close_ops_message(effect.target, effect.payload["channel"], effect.payload["ts"])
    if effect.payload["what"] == OPS:
        subject = dead_letters.ops_card(tx, effect.payload["subject"])
        assert subject is not None  # noqa: S101 -- it was just drawn
        return effects.update_ops_card(subject.subject, subject.awaited)
    card = dead_letters.find(tx, effect.payload["reference"])
    assert card is not None  # noqa: S101 -- likewise
    return effects.update_dead_letter(card.reference, card.awaited)


def _subject(services: Services, tx: Tx, subject: str) -> tuple[Card, OpsCard]:
    card = dead_letters.ops_card(tx, subject)
    if card is None:
        raise AdapterError(Failure.INTERNAL, "unknown_card", _("There is no card of {subject}.", subject=subject))
    newest = None
    if subject.startswith(dead_letters.CAUSE):
        newest = dead_letters.newest_error(tx, subject.removeprefix(dead_letters.CAUSE))
    rules = services.rules_now(tx, card.team_id)
    holds = bool(rules.roles_of(subject.removeprefix(dead_letters.HOLDER)))
    return ops_card(card, dead_letters.waiting_of(tx, subject, rules.gone), newest, holds=holds), card
