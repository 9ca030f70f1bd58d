"""Tests of precomputation: results computed before a transaction never change its decision; stale ones are dropped."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Outcome
from quotebot.commands.payloads import CreateByForm, NeedsNewerBuild, SubmitQuote
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, price
from quotebot.execution.executor import Decider
from quotebot.execution.run import NOTHING, Precomputed, precompute
from quotebot.store.quotes import written
from tests.quotebot.parts import RULES, create_command, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Operation
    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench

DAY_MS = 86_400_000
CASES: dict[str, Payload] = {
    "created": create_command(),
    "created by a form": CreateByForm("form-1", create_command()),
    "no such product": create_command(lines=(LineRequest("prro", 1),)),
    "no such terms": replace(create_command(), request=replace(create_command().request, terms=("no such",))),
    "not a creation": SubmitQuote(),
}
Decided = tuple[Outcome, list[tuple[Any, ...]]]


class Seen(Exception):  # noqa: N818 -- rolls back the transaction
    """Exception that carries the decision out of a transaction and rolls the transaction back."""


async def reserved(bench: Bench, payload: Payload) -> Operation:
    quote_id = "Q-2026-0001" if isinstance(payload, SubmitQuote) else "new"
    return (await bench.ledger.reserve(request_for(payload, "1", quote_id=quote_id))).operation


async def decided(bench: Bench, operation: Operation, foreseen: Precomputed, decider: Decider | None = None) -> Decided:
    decider = decider or Decider(bench.ledger, RULES)

    def work(tx: Tx) -> None:
        outcome = decider.decide(tx, operation, foreseen)
        raise Seen(outcome, [tuple(row) for row in tx.all("snapshots_after", quote_id="", version=0, limit=9)])

    with pytest.raises(Seen) as seen:
        await bench.ledger.database.write("look", work)
    return seen.value.args


@pytest.mark.parametrize("payload", CASES.values(), ids=CASES)
async def test_precomputed_and_computed_commands_give_the_same_decision(payload: Payload, bench: Bench) -> None:
    operation = await reserved(bench, payload)
    foreseen = precompute(operation, RULES)
    assert foreseen.payload == payload
    assert await decided(bench, operation, foreseen) == await decided(bench, operation, NOTHING)


async def test_precomputed_price_is_not_computed_again_in_the_transaction(bench: Bench) -> None:
    foreseen = precompute(await reserved(bench, create_command()), RULES)
    assert foreseen.request is not None
    assert foreseen.price(foreseen.request, RULES.ruleset) is foreseen.priced
    assert foreseen.snapshot_of(foreseen.priced) is foreseen.snapshot  # type: ignore[arg-type] # it could be priced


async def test_a_ruleset_that_became_active_meanwhile_counts(bench: Bench) -> None:
    operation = await reserved(bench, create_command())
    dearer = replace(RULES.ruleset, version="of another day")
    foreseen = precompute(operation, RULES)
    _, ((*_, snapshot, _),) = await decided(bench, operation, foreseen, Decider(bench.ledger, replace(RULES, ruleset=dearer)))
    assert "of another day" in snapshot


async def test_a_replay_is_priced_on_its_own_day(bench: Bench) -> None:
    operation = await reserved(bench, create_command())
    foreseen = precompute(operation, RULES)
    bench.clock.advance(DAY_MS)
    again = replace(operation, cycle=2)
    assert await decided(bench, again, foreseen) == await decided(bench, again, NOTHING)
    assert await decided(bench, again, foreseen) != await decided(bench, operation, foreseen)


async def test_another_request_is_priced_as_it_is(bench: Bench) -> None:
    foreseen = precompute(await reserved(bench, create_command()), RULES)
    other = PriceRequest((LineRequest("nothing", 1),), 12, Decimal(0))
    assert foreseen.price(other, RULES.ruleset) == price(other, RULES.ruleset)
    cheaper = price(replace(create_command("20").request, priced_on=foreseen.request.priced_on), RULES.ruleset)  # type: ignore[union-attr] # foreseen
    assert foreseen.snapshot_of(cheaper) == written(cheaper)  # type: ignore[arg-type] # it can be priced


async def test_unreadable_command_is_not_precomputed_and_fails_in_its_transaction(bench: Bench) -> None:
    operation = await reserved(bench, create_command())
    newer = replace(operation, payload={**operation.payload, "v": 999})
    assert precompute(newer, RULES) is NOTHING
    with pytest.raises(NeedsNewerBuild):
        await bench.ledger.database.write("look", lambda tx: Decider(bench.ledger, RULES).decide(tx, newer, NOTHING))
