"""A quote has one card, the root of its thread. When somebody deletes that message, one new card takes its place, and its thread.

Whatever finds the message gone (an update of the card, a notice in its thread) is needless then; what it had to say is said by the
new card, or below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from ledger import keys
from ledger.records import AuditEvent, Drop, FollowUps, Trouble
from quotebot import effects
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.domain.quotes import Quote

GONE: Final = "gone"  # the durable step: which message was not there any more
CODES: Final = frozenset({"message_not_found", "cant_update_message", "thread_not_found"})


async def given_up(ledger: Ledger, effect: Effect, quote: Quote, error: AdapterError) -> Drop:
    """Return what an effect comes to whose message is gone. Raises `error` again when that is not what is wrong."""
    if error.code not in CODES or quote.thread_ts is None:
        raise error
    await ledger.record_step(effect, GONE, {"ts": quote.thread_ts})
    why = f"Slack no longer has the card of {quote.quote_id} ({error.code}): a new one takes its place."
    return Drop(Trouble(Failure.NOT_FOUND.value, why, error.http_status))


def replaced(tx: Tx, effect: Effect, now: int) -> FollowUps:
    """Owe the new card, once for each that is gone, and below it what a notice had to say."""
    quote_id, dead_ts = effect.aggregate_id, effect.steps[GONE]["ts"]
    ours = _next_key(tx, effect)
    post_key = store.replace_root(tx, quote_id, dead_ts, ours, now)
    first = post_key == ours
    owed = [effects.root_again(quote_id, dead_ts)] if first else []
    if effect.effect_class == effects.POST:
        owed.append(effects.notice(quote_id, post_key, effect.payload["text"]))
    audited = AuditEvent("quote.card_replaced", quote_id, {"ts": dead_ts}, {"post_key": post_key})
    return FollowUps(tuple(owed), (audited,) if first else ())


def _next_key(tx: Tx, effect: Effect) -> str:
    """Return the key that the next effect owed by this one gets."""
    counted = tx.one("count_children", operation_id=effect.operation_id, parent_id=effect.id)
    assert counted is not None  # noqa: S101 -- an aggregate always answers
    return keys.effect_key(effect.effect_key, effects.POST, counted["children"])
