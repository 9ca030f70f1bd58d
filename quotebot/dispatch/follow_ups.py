"""Follow-up effects after settlement: the upload after the render, the card with the pending effects, the notice of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.failures import Failure
from ledger.records import AuditEvent, FollowUps
from quotebot import effects
from quotebot.dispatch import thread_roots
from quotebot.dispatch.llm import summary_arrived
from quotebot.dispatch.pdf import remember
from quotebot.dispatch.slack_messages import dead_letter_card_updated, settled, what_of
from quotebot.execution import crm_effects
from quotebot.execution.extraction import answer_follows
from quotebot.store import quotes as store
from quotebot.views import messages, operator_messages

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent
    from quotebot.domain.quotes.quote import Quote

LABELS: Final = {effects.RENDER: "The PDF", effects.FILE: "The PDF", effects.CRM: "The write to Salesforce"}


def follow_ups(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:  # noqa: PLR0911 -- one return per class
    """Return the follow-up effects of a settled or replayed effect, inside the transaction that settles it."""
    if what_of(effect) is not None:
        return settled(tx, effect)
    if thread_roots.GONE in effect.steps and effect.state == "superseded":
        return thread_roots.replaced(tx, effect, now_ms)
    if effect.effect_class in (effects.RENDER, effects.FILE, effects.UPDATE) and effect.state == "delivered":
        remember(tx, effect, now_ms)
    match effect.effect_class:
        case effects.SUMMARIZE:
            return _summary_follows(tx, effect, now_ms)
        case effects.EXTRACT:
            return FollowUps(dead_letter_card_updated(tx, effect), commands=answer_follows(tx, effect, now_ms))
        case effects.POST:
            return _post_follows(tx, effect, now_ms)
        case effects.UPDATE:
            found = crm_effects.after_update(tx, effect, now_ms)
            return FollowUps((*_update_notified(tx, effect), *found.effects, *dead_letter_card_updated(tx, effect)), found.events)
        case effects.READ_CRM:
            found = crm_effects.after_reading(tx, effect, now_ms)
            return FollowUps((*found.effects, *dead_letter_card_updated(tx, effect)), found.events)
        case effects.RENDER | effects.FILE | effects.CRM if not _looks_the_same(effect):
            return FollowUps((*_of_a_deal(tx, effect, now_ms), *dead_letter_card_updated(tx, effect)))
        case _:
            return FollowUps(dead_letter_card_updated(tx, effect))


def _post_follows(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    if effect.payload["what"] == "root":
        return _root_follows(tx, effect, now_ms)
    told = _sent_directly(tx, effect, now_ms) if effect.state == "delivered" else ()
    return FollowUps((*told, *dead_letter_card_updated(tx, effect)))


def _root_follows(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    if effect.state == "failed":
        return FollowUps((_card_not_posted(tx, effect, now_ms),))
    if effect.state != "delivered":
        return FollowUps(dead_letter_card_updated(tx, effect))
    assert effect.external_ref is not None  # noqa: S101 -- a delivered post has its ts
    store.set_thread(tx, effect.aggregate_id, effect.external_ref, now_ms)
    moved = _card_moved(tx, effect, now_ms)
    if effect.lost_from is not None:  # it may be the card of a lost part of the ledger, with another number
        return FollowUps(
            (*moved.effects, effects.card(effect.aggregate_id, effect.effect_key), *dead_letter_card_updated(tx, effect)),
            moved.events,
        )
    if "replaces" in effect.payload:  # updates in the meantime went to the deleted card
        return FollowUps((effects.card(effect.aggregate_id, effect.effect_key),), moved.events)
    return FollowUps((*moved.effects, *dead_letter_card_updated(tx, effect)), moved.events)


def _card_moved(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Record that a card was posted into a direct message, and point the requester to it from the channel."""
    if thread_roots.DIRECT not in effect.steps:
        return FollowUps()
    quote = _enqueuing(tx, effect)
    if quote.card_channel is not None:
        return FollowUps()
    assert effect.result is not None  # noqa: S101 -- delivered
    place = effect.result.get("channel") or effect.steps[thread_roots.DIRECT]["channel"]  # an operator may name no channel
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


def _of_a_deal(tx: Tx, effect: Effect, now_ms: int) -> list[EffectIntent]:
    """Return the redrawn card and the next messages or effects of a quote's thread."""
    root = store.root_effect_key(tx, effect.aggregate_id)
    if effect.state in ("pending", "uncertain"):  # after the current card, without replacing it: this effect may settle first
        return [effects.card_again(effect.aggregate_id, root, now_ms)]
    owed = [effects.card(effect.aggregate_id, root)]
    if effect.state == "failed":
        reason = effect.last_error or "it failed"
        text = messages.dead_letter(LABELS[effect.effect_class], effect.correlation_id, reason, _enqueuing(tx, effect))
        owed.append(effects.notice(effect.aggregate_id, root, text))
    if effect.cycle > 1 and effect.state == "delivered" and effect.effect_class != effects.RENDER:
        text = operator_messages.recovered(LABELS[effect.effect_class], _enqueuing(tx, effect), effect.correlation_id)
        owed.append(effects.notice(effect.aggregate_id, root, text))
    if effect.effect_class == effects.RENDER and effect.state == "delivered":
        assert effect.result is not None  # noqa: S101 -- delivered
        owed.append(effects.share(effect.aggregate_id, effect.payload["version"], effect.result["sha256"], root))
    if effect.state == "delivered":
        owed += _in_crm(tx, effect)
    return owed


def _in_crm(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return the CRM effects after a delivered render or record, in whichever order the two were delivered."""
    if effect.effect_class == effects.RENDER:
        return crm_effects.document_pending(tx, effect)
    return crm_effects.after_creation(tx, effect, _enqueuing(tx, effect)) if effect.effect_class == effects.CRM else ()


def _update_notified(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return a notice on the outcome of a write that follows a record; the card shows only the record itself."""
    gave_up, came_true = effect.state == "failed", effect.cycle > 1 and effect.state == "delivered"
    if not (gave_up or came_true):
        return ()
    quote, label = _enqueuing(tx, effect), crm_effects.label_of(effect)
    if gave_up:
        text = messages.dead_letter(label, effect.correlation_id, effect.last_error or "it failed", quote)
    else:
        text = operator_messages.recovered(label, quote, effect.correlation_id)
    return (effects.notice(effect.aggregate_id, store.root_effect_key(tx, effect.aggregate_id), text),)


def _summary_follows(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Redraw the card for the approvers if the model's summary may be shown. The card never waits for the summary."""
    letter, quote = dead_letter_card_updated(tx, effect), quote_of(tx, effect)
    if quote is None or not summary_arrived(tx, effect, quote, now_ms):
        return FollowUps(letter)
    return FollowUps((effects.card(quote.quote_id, store.root_effect_key(tx, quote.quote_id)), *letter))


def quote_of(tx: Tx, effect: Effect) -> Quote | None:
    """Return the quote of an effect: for a document or a record the version that was approved, even if a newer one exists."""
    version = effect.payload.get("version")
    return store.load(tx, effect.aggregate_id) if version is None else store.load_version(tx, effect.aggregate_id, version)


def _enqueuing(tx: Tx, effect: Effect) -> Quote:
    quote = quote_of(tx, effect)
    assert quote is not None  # noqa: S101 -- an effect of a quote exists only with its quote
    return quote


def _card_not_posted(tx: Tx, effect: Effect, now_ms: int) -> EffectIntent:
    """Return a reply to the requester.

    Without its card the thread does not exist, so the creating command's response_url is used.
    """
    quote = _enqueuing(tx, effect)
    text = messages.card_not_posted(quote, effect.correlation_id, effect.last_error or "Slack refused it")
    return effects.reply(quote.quote_id, quote.requester, quote.channel, text, now_ms)


def _looks_the_same(effect: Effect) -> bool:
    """Return true if the card would not change: after the first failure it already shows that the effect is retried.

    A wait that the external service asks for does not count as a failure.
    """
    if effect.state not in ("pending", "uncertain") or effect.category in (None, Failure.AUTH.value):
        return False
    return effect.attempts != 1 or effect.category == Failure.THROTTLED.value
