"""Tests of the advice on a card: computed once when a version is priced, stored beside it, hidden when the rules have changed."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import ReviseQuote
from quotebot.dispatch.slack_card import QuoteCards
from quotebot.domain.approvals import advice as domain
from quotebot.domain.approvals.advice import Advice, EasierChange, advise, canonical_advice, parse_advice
from quotebot.domain.pricing.engine import Pricing, price
from quotebot.domain.pricing.price_requests import Changes
from quotebot.execution.executor import Executor
from quotebot.execution.run import precompute
from quotebot.store import quotes as store
from tests.quotebot.access_parts import viewer
from tests.quotebot.parts import MATRIX, RULES, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"
REVISION = ReviseQuote(Changes(discount_percent=Decimal(12)))


@pytest.fixture
async def executor(bench: Bench) -> Executor:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    return executor


async def card(bench: Bench, **changes: Any) -> str:
    found = await QuoteCards(handlers_of(bench, **changes).services).show(QUOTE, viewer())
    assert found is not None
    return json.dumps(found.blocks, ensure_ascii=False)


async def test_card_shows_the_stored_advice_and_computes_none(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    del executor
    for name in ("avoidances", "free_discount", "advise"):
        monkeypatch.delattr(domain, name)
    assert bench.rows("SELECT version FROM quote_advice") == [{"version": 1}]
    assert "10% discount (now 15%)" in await card(bench)


async def test_each_version_has_its_own_advice(bench: Bench, executor: Executor) -> None:
    await bench.ledger.reserve(request_for(REVISION, "2", quote_id=QUOTE, version=None, source="slack_slash"))
    await executor.step()
    assert bench.rows("SELECT version FROM quote_advice ORDER BY version") == [{"version": 1}, {"version": 2}]
    assert "10% discount (now 12%)" in await card(bench)


async def test_quote_that_needs_no_approval_has_no_advice(bench: Bench, executor: Executor) -> None:
    await bench.ledger.reserve(request_for(create_command("5"), "2"))
    await executor.step()
    assert bench.row("SELECT count(*) AS advised FROM quote_advice") == {"advised": 1}


async def test_advice_of_other_rules_is_not_shown(bench: Bench, executor: Executor) -> None:
    del executor
    bench.rows("UPDATE quote_advice SET basis = 'another ruleset'")
    assert "instead of" not in await card(bench)


async def test_revision_is_advised_before_its_transaction(bench: Bench, executor: Executor) -> None:
    del executor
    request = request_for(REVISION, "2", quote_id=QUOTE, version=None, source="slack_slash")
    operation = (await bench.ledger.reserve(request)).operation
    quote = await bench.ledger.database.read(lambda tx: store.load(tx, QUOTE))
    found = precompute(operation, RULES, quote)
    assert found.advised is not None
    assert found.advice is not None
    assert found.advice_of(found.advised, RULES) is found.advice
    assert found.advice_of(replace(found.advised, net_total=Decimal(1)), RULES) is not found.advice


def test_advice_comes_back_as_it_was_stored() -> None:
    advice = Advice(Decimal("12.5"), (EasierChange("10% discount (now 15%)", ()), EasierChange("24 months", ("legal",))))
    assert parse_advice(json.loads(json.dumps(canonical_advice(advice)))) == advice
    assert parse_advice(canonical_advice(Advice(None, ()))) == Advice(None, ())


def test_a_discount_that_a_change_states_is_not_stated_twice() -> None:
    priced = price(create_command().request, RULES.ruleset)
    assert isinstance(priced, Pricing)
    assert advise(priced, RULES.ruleset, RULES.policy) == Advice(None, (EasierChange("10% discount (now 15%)", ()),))
