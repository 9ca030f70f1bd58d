"""Effect handlers by class. A new effect class is one file with its handler, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.dispatch.crm import CreateRecordHandler, ReadCrmHandler, UpdateRecordHandler
from quotebot.dispatch.documents import FileHandler, RenderHandler
from quotebot.dispatch.llm import ExtractHandler, SummarizeHandler
from quotebot.dispatch.services import EffectHandler
from quotebot.dispatch.slack_card import CardHandler
from quotebot.dispatch.slack_post import DirectCardHandler, DirectHandler, PostHandler
from quotebot.dispatch.slack_reply import ReplyHandler
from quotebot.dispatch.slack_unfurl import UnfurlHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from ledger.records import Effect, FollowUps

HANDLERS: Final[Mapping[str, type[EffectHandler]]] = {
    handler.effect_class: handler
    for handler in (
        PostHandler,
        CardHandler,
        DirectHandler,
        DirectCardHandler,
        ReplyHandler,
        UnfurlHandler,
        FileHandler,
        RenderHandler,
        CreateRecordHandler,
        UpdateRecordHandler,
        ReadCrmHandler,
        ExtractHandler,
        SummarizeHandler,
    )
}


def follow_ups(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Return the follow-up effects of an effect that was settled or replayed without an attempt of this process."""
    return HANDLERS.get(effect.effect_class, EffectHandler).follow_ups(tx, effect, now_ms)
