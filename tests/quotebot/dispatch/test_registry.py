"""Registry of effect handlers: every class has one, and a new class needs a handler, its registry line and its retry policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from adapters.failures import AdapterError
from adapters.policies import POLICIES, Matrix, Policy
from ledger.records import Delivered, Effect, EffectIntent, FollowUps, Outcome
from quotebot import effects
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import HANDLERS, follow_ups
from quotebot.dispatch.services import EffectHandler
from tests.quotebot.parts import handlers_of, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"


class PageHandler(EffectHandler):
    """A new effect class: calls the pager of the person on duty, then writes that it did."""

    effect_class: ClassVar = "pager.call"
    called: ClassVar[list[str]] = []

    async def perform(self, effect: Effect) -> Delivered:
        self.called.append(effect.payload["text"])
        return Delivered("page-1", {})

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        del tx, now_ms
        return FollowUps((effects.read_crm(effect.aggregate_id),))


def test_every_class_with_a_policy_has_one_handler_and_no_other_has() -> None:
    assert set(HANDLERS) == set(POLICIES) - {"default"}


async def test_new_effect_class_needs_its_handler_its_line_and_its_policy(bench: Bench) -> None:
    lines: dict[str, Policy] = {**POLICIES, PageHandler.effect_class: POLICIES[effects.RENDER]}
    handlers = handlers_of(bench, handlers={**HANDLERS, PageHandler.effect_class: PageHandler})
    dispatcher = Dispatcher(bench.ledger, handlers, lambda low, _: low, Matrix(lines), settle_delay_seconds=1)
    await enqueue(bench, PageHandler.effect_class)
    await dispatcher.step()
    await dispatcher.drain(5.0)
    assert PageHandler.called == ["wake up"]
    assert bench.rows("SELECT class, state FROM effects ORDER BY id") == [
        {"class": "pager.call", "state": "delivered"},
        {"class": "crm.read", "state": "pending"},
    ]


async def test_class_of_a_newer_build_is_an_internal_error_with_no_follow_up(bench: Bench) -> None:
    await enqueue(bench, "pager.call")
    (effect,) = await bench.ledger.claim_effects({"pager.call": 1})
    handlers = handlers_of(bench)
    with pytest.raises(AdapterError, match=r"This build cannot perform pager\.call"):
        await handlers.perform(effect)
    assert await handlers.find(effect) is None
    assert await bench.ledger.database.read(lambda tx: follow_ups(tx, effect, 0)) == FollowUps()


async def enqueue(bench: Bench, effect_class: str) -> None:
    await bench.ledger.reserve(request_for(SubmitQuote(), "1", quote_id=QUOTE))
    claimed = await bench.ledger.claim_operation()
    assert claimed is not None
    intent = EffectIntent(effect_class, "keyed", "pager", QUOTE, {"text": "wake up"})
    await bench.ledger.execute(claimed, lambda _: Outcome("applied", {"text": "ok"}, (intent,)))
