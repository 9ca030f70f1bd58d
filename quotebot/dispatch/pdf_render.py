"""Effect class pdf.render: the document of an approved version, and what follows any effect of the approval.

The document, its upload and the record in Salesforce share their follow-ups: the redrawn card, and a notice of a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import Failure
from ledger.records import FollowUps
from quotebot import effects
from quotebot.dispatch.pdf_files import remember
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated, enqueuing
from quotebot.execution import crm_effects
from quotebot.store import quotes as store
from quotebot.views import messages, operator_messages

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Delivered, Effect, EffectIntent

NAMES: Final = {effects.RENDER: "The PDF", effects.FILE: "The PDF", effects.CRM: "The write to Salesforce"}


class RenderHandler(EffectHandler):
    """Renders the PDF of one quote version; the upload into the thread and the copy in Salesforce follow."""

    effect_class: ClassVar = effects.RENDER

    async def perform(self, effect: Effect) -> Delivered:
        """Return the stored document. Raises AdapterError."""
        return await self.services.documents.render(await self.services.quote(effect))

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the upload, the attachment to the record that exists already, and the redrawn card."""
        more: tuple[EffectIntent, ...] = ()
        if effect.state == "delivered" and effect.result is not None:
            remember(tx, effect, now_ms)
            root = store.root_effect_key(tx, effect.aggregate_id)
            upload = effects.share(effect.aggregate_id, effect.payload["version"], effect.result["sha256"], root)
            more = (upload, *crm_effects.document_pending(tx, effect))
        return of_approved(tx, effect, now_ms, more)


def of_approved(tx: Tx, effect: Effect, now_ms: int, more: tuple[EffectIntent, ...] = ()) -> FollowUps:
    """Return the redrawn card, a notice if the effect failed or was recovered, and `more` after them."""
    if _looks_the_same(effect):
        return FollowUps(dead_letter_card_updated(tx, effect))
    root = store.root_effect_key(tx, effect.aggregate_id)
    if effect.state in ("pending", "uncertain"):  # after the current card, without replacing it: this effect may settle first
        again = effects.card_again(effect.aggregate_id, root, now_ms)
        return FollowUps((again, *dead_letter_card_updated(tx, effect)))
    notices: tuple[EffectIntent, ...] = ()
    if effect.state == "failed" or effect.effect_class != effects.RENDER:
        notices = outcome_notices(tx, effect, NAMES[effect.effect_class])
    card = effects.card(effect.aggregate_id, root)
    return FollowUps((card, *notices, *more, *dead_letter_card_updated(tx, effect)))


def outcome_notices(tx: Tx, effect: Effect, name: str) -> tuple[EffectIntent, ...]:
    """Return a notice in the quote's thread if the effect failed, or was delivered after a replay; `name` begins its sentence."""
    failed, recovered = effect.state == "failed", effect.cycle > 1 and effect.state == "delivered"
    if not (failed or recovered):
        return ()
    quote = enqueuing(tx, effect)
    if failed:
        text = messages.dead_letter(name, effect.correlation_id, effect.last_error or "it failed", quote)
    else:
        text = operator_messages.recovered(name, quote, effect.correlation_id)
    return (effects.notice(effect.aggregate_id, store.root_effect_key(tx, effect.aggregate_id), text),)


def _looks_the_same(effect: Effect) -> bool:
    """Return true if the card would not change: after the first failure it already shows that the effect is retried.

    A wait that the external service asks for does not count as a failure.
    """
    if effect.state not in ("pending", "uncertain") or effect.category in (None, Failure.AUTH.value):
        return False
    return effect.attempts != 1 or effect.category == Failure.THROTTLED.value
