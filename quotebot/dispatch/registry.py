"""Effect handlers by class. A new effect class is one file with its handler, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.dispatch.crm_create import CreateRecordHandler
from quotebot.dispatch.crm_read import ReadCrmHandler
from quotebot.dispatch.crm_update import UpdateRecordHandler
from quotebot.dispatch.llm import ExtractHandler, SummarizeHandler
from quotebot.dispatch.pdf_render import RenderHandler
from quotebot.dispatch.services import Adapters, EffectHandler, Pacer, Services
from quotebot.dispatch.slack_card import CardHandler, QuoteCards
from quotebot.dispatch.slack_file import FileHandler
from quotebot.dispatch.slack_post import PostHandler
from quotebot.dispatch.slack_reply import ReplyHandler
from quotebot.execution.membership import Channels
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Delivered, Effect, FollowUps, Settlement
    from quotebot.domain.rules import Rules
    from quotebot.views.document import Seller

HANDLERS: Final[Mapping[str, type[EffectHandler]]] = {
    handler.effect_class: handler
    for handler in (
        PostHandler,
        CardHandler,
        ReplyHandler,
        FileHandler,
        RenderHandler,
        CreateRecordHandler,
        UpdateRecordHandler,
        ReadCrmHandler,
        ExtractHandler,
        SummarizeHandler,
    )
}


class EffectHandlers:
    """The dispatcher's Performer: it passes each effect to the handler of its class."""

    def __init__(
        self,
        ledger: Ledger,
        adapters: Adapters,
        rules: Rules,
        seller: Seller,
        *,
        settle_delay_seconds: float,
        pacer: Pacer | None = None,
        channels: Channels | None = None,
        handlers: Mapping[str, type[EffectHandler]] = HANDLERS,
    ) -> None:
        """`pacer` and `channels` default to instances of their own."""
        self.services = Services(
            ledger,
            adapters,
            rules,
            ActiveRuleset(rules.ruleset),
            seller,
            Pacer(ledger.clock) if pacer is None else pacer,
            Channels(ledger.clock, adapters.slack) if channels is None else channels,
            round(settle_delay_seconds * 1000),
        )
        self.cards = QuoteCards(self.services)
        self._handlers = {name: made(self.services) for name, made in handlers.items()}
        self._unknown = EffectHandler(self.services)  # for a class that only a newer build knows

    def _of(self, effect: Effect) -> EffectHandler:
        return self._handlers.get(effect.effect_class, self._unknown)

    async def perform(self, effect: Effect) -> Settlement:
        """Perform the effect, or return how it settles without a call. Raises AdapterError."""
        return await self._of(effect).perform(effect)

    async def find(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied before; None if not. Raises AdapterError."""
        return await self._of(effect).find(effect)

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if, by the recorded steps alone, a visible result is possible."""
        return self._of(effect).may_have_happened(effect)

    async def start_over(self, effect: Effect) -> None:
        """Discard the recorded steps of a result that never appeared: the next attempt starts from its first call."""
        if effect.steps:
            await self.services.ledger.forget_steps(effect)

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of an attempt that this process made, inside the settling transaction."""
        return self._of(effect).after_attempt(tx, effect)


def follow_ups(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Return the follow-up effects of an effect that was settled or replayed without an attempt of this process."""
    return HANDLERS.get(effect.effect_class, EffectHandler).follow_ups(tx, effect, now_ms)
