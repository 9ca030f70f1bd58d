"""Replacement of thread roots. A quote has one card, the root of its thread; if someone deletes it, a new card and thread follow.

The effect that finds the message gone (an update of the card, a notice in its thread) becomes needless; the new card, or a message
below it, carries its content.
The same happens to a card whose channel another organization now shares (channels.py): the new card is posted into a direct message
with the requester, and the old one is emptied. A card moves once; it stays in the direct message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from ledger import keys
from ledger.records import AuditEvent, Delivered, Drop, FollowUps, Trouble
from quotebot import effects
from quotebot.dispatch.services import GONE
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from adapters.slack.api import SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.domain.quotes.quote import Quote

DIRECT: Final = "direct"  # durable step: the direct message that the card goes to from now on
CODES: Final = frozenset({"message_not_found", "cant_update_message", "thread_not_found"})


async def given_up(ledger: Ledger, effect: Effect, quote: Quote, error: AdapterError) -> Drop:
    """Return the settlement of an effect whose message is gone. Raises `error` again if it has another cause."""
    if error.code not in CODES or quote.thread_ts is None:
        raise error
    await ledger.record_step(effect, GONE, {"ts": quote.thread_ts})
    why = f"Slack no longer has the card of {quote.quote_id} ({error.code}): a new one takes its place."
    return Drop(Trouble(Failure.NOT_FOUND.value, why, error.http_status))


async def given_away(ledger: Ledger, effect: Effect, quote: Quote) -> Drop:
    """Return the settlement of an effect that would post into a channel which another organization shares."""
    assert quote.thread_ts is not None  # noqa: S101 -- the effect waits for the root
    await ledger.record_step(effect, GONE, {"ts": quote.thread_ts, "channel": quote.channel})
    why = f"Another organization may read <#{quote.channel}>: {quote.quote_id} goes on in a direct message."
    return Drop(Trouble(Failure.VALIDATION.value, why))


async def direct_place(ledger: Ledger, slack: SlackApi, effect: Effect, quote: Quote) -> Effect:
    """Record that this card goes to a direct message with the requester, before it is sent there.

    Without the scope im:write only the user is known: Slack accepts the card, but a lost answer cannot be reconciled.
    """
    if DIRECT in effect.steps:
        return effect
    channel = quote.card_channel
    if channel is None:
        try:
            channel = await slack.open_direct(user=quote.requester)
        except AdapterError as error:
            if error.code != "missing_scope":
                raise
            channel = quote.requester
    return await ledger.record_step(effect, DIRECT, {"channel": channel})


def place_of(effect: Effect, quote: Quote) -> str:
    """Return the channel in which to look up an effect's message. Raises AdapterError if it is not known."""
    place: str = effect.steps[DIRECT]["channel"] if DIRECT in effect.steps else quote.place
    if place == quote.requester:
        unknown = "Whether it was sent cannot be looked up without the scope im:write: a direct message has no known channel."
        raise AdapterError(Failure.UNCERTAIN, "direct_unknown", unknown)
    return place


async def withdrawn(slack: SlackApi, effect: Effect, text: str) -> Delivered | Drop:
    """Replace the content of an old card with a sentence that holds no fact of the quote. Raises AdapterError."""
    where = effect.payload
    try:
        await slack.update(channel=where["channel"], ts=where["ts"], text=text, blocks=[], correlation_id=effect.correlation_id)
    except AdapterError as error:
        if error.code not in CODES:
            raise
        return Drop(Trouble(error.failure.value, f"The old card is gone already ({error.code})."))
    return Delivered(where["ts"], {})


def was_replaced(effect: Effect) -> bool:
    """Return true if the effect was superseded because its message was gone."""
    return GONE in effect.steps and effect.state == "superseded"


def replaced(tx: Tx, effect: Effect, now: int) -> FollowUps:
    """Return the new card, once per deleted card, and below it the content of the notice or file that found it gone."""
    quote_id, dead_ts = effect.aggregate_id, effect.steps[GONE]["ts"]
    ours = _next_key(tx, effect)
    post_key = store.replace_root(tx, quote_id, dead_ts, ours, now)
    first = post_key == ours
    follow_ups = [effects.root_again(quote_id, dead_ts)] if first else []
    if effect.effect_class == effects.POST:
        follow_ups.append(effects.notice(quote_id, post_key, effect.payload["text"]))
    if effect.effect_class == effects.FILE:
        follow_ups.append(effects.share(quote_id, effect.payload["version"], effect.payload["sha256"], post_key))
    shared = effect.steps[GONE].get("channel")
    if first and shared is not None:
        follow_ups.append(effects.card_withdrawn(quote_id, shared, dead_ts))
    audited = AuditEvent("quote.card_replaced", quote_id, {"ts": dead_ts}, {"post_key": post_key})
    return FollowUps(tuple(follow_ups), (audited,) if first else ())


def _next_key(tx: Tx, effect: Effect) -> str:
    """Return the key of the next effect that this one enqueues."""
    counted = tx.required("count_children", operation_id=effect.operation_id, parent_id=effect.id)
    return keys.effect_key(effect.effect_key, effects.POST, counted["children"])
