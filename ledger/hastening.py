"""Trying at once what waits for its next try, on a person's word. The same row, the same key: nothing is done twice by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.machine import EffectState
from ledger.records import Effect
from ledger.references import effect_row
from ledger.resolution import Ruling, Verdict
from ledger.waiting import effect_facts, waiting

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger

THROTTLED: Final = "throttled"  # the other side named a time: that wait is not ours to shorten
_FOR_TIME: Final = frozenset({"time", "uncertain"})  # what only a due time stands in the way of
_OVER_SOON: Final = frozenset({"breaker", "throttled"})  # holds that end by themselves


def hasten_effect(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, now: int, cycle_seen: int) -> Ruling:
    """Make an effect due that waits between two tries, or look at once for one in doubt, inside an open transaction.

    Whatever else it waits for (a paused class, the effect before it, a wait the other side asked for) stays as it is: then it is
    refused with what it waits for. While a hold lasts that ends by itself, it becomes the next that is tried.
    """
    reference = str(row_id)
    row = effect_row(tx, row_id)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, f"There is no effect {reference}.")
    effect, found = Effect.of(row), waiting(effect_facts(tx, row, now))
    if effect.cycle != cycle_seen:
        return Ruling(reference, Verdict.LOST, f"An operator replayed it meanwhile. {found.sentence}", effect.effect_class)
    held = found.cause in _OVER_SOON and effect.next_attempt_at is not None and effect.next_attempt_at > now
    if not (held or found.cause in _FOR_TIME) or effect.category == THROTTLED:
        return Ruling(reference, Verdict.REFUSED, found.sentence, effect.effect_class)
    if effect.state is EffectState.UNCERTAIN:
        tx.one("look_now", id=effect.id, fence=effect.fence, next_attempt_at=now, now=now)
        sentence = "It is looked for now, and sent again only if it is not there."
    else:
        tx.one("hasten_effect", id=effect.id, fence=effect.fence, now=now)
        sentence = "It is tried again now, under the same key: what is there already is not done twice."
    if held:
        sentence = f"It is tried as soon as that is over: {found.sentence}"
    ledger.audit.of_effect(tx, now, "effect.hastened", effect, actor=actor, after={"due_at": effect.next_attempt_at})
    return Ruling(reference, Verdict.DONE, sentence, effect.effect_class)
