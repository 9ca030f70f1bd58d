"""Tests of the price trace in Slack: book, steps, inputs, slabs and policy checks; comparison by line, bundles included."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import CreateQuote, ReviseQuote
from quotebot.domain.pricing.engine import canonical, from_canonical, reprice, trace, without_costs
from quotebot.domain.pricing.price_requests import Changes, LineChange, LineRequest, PriceRequest
from quotebot.execution.executor import Executor
from quotebot.slack.queries import ANSWER_CHARACTERS_MAX, Reads
from quotebot.slack.verbs import CompareRequest, ExplainRequest
from quotebot.views.product_messages import products_text
from tests.quotebot.access_parts import viewer
from tests.quotebot.domain.ruleset_parts import ask, book, priced, product, ruleset
from tests.quotebot.parts import MATRIX, RULES, Bench, request_for

if TYPE_CHECKING:
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.slack.verbs import Read

TIERS = [{"from": 1, "price": 10}, {"from": 50, "price": 8}, {"from": 100, "price": 6}]
PRICES: list[dict[str, Any]] = [
    {"sku": "seat", "kind": "slab", "tiers": TIERS},
    {"sku": "pack", "kind": "block", "tiers": [{"from": 1, "price": 50}, {"from": 10, "price": 400}]},
    {"sku": "disk", "kind": "formula", "formula": "base * max(1, 20 - term_months)", "inputs": {"base": "0.5"}},
    {"sku": "care", "price": 90},
]
MIXED = ruleset(
    products=[product("seat"), product("pack"), product("disk"), product("care", billing="one_time", cost=77)],
    price_books=[book(PRICES)],
)
STARTER = product(
    "starter",
    kind="bundle",
    name="Starter Kit",
    components=[{"sku": "seat", "quantity": 10}, {"sku": "care", "quantity": 1}],
    bundle_discount_percent=5,
)
BUNDLED = ruleset(
    products=[product("seat"), product("care", billing="one_time"), STARTER],
    price_books=[book({"seat": 10, "care": 90})],
)


async def quoted(bench: Bench, rules: Ruleset, request: PriceRequest, *changes: Changes) -> None:
    """Create a quote, and a version of it for each change."""
    executor = Executor(bench.ledger, replace(RULES, ruleset=rules), lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(CreateQuote("Acme", request, "C0SALES"), "1"))
    await executor.step()
    for number, change in enumerate(changes, start=1):
        payload = ReviseQuote(changes=change)
        await bench.ledger.reserve(request_for(payload, f"r{number}", quote_id="Q-2026-0001", version=number))
        await executor.step()


async def answer(bench: Bench, asked: Read) -> list[str]:
    text = await Reads(bench.ledger, RULES).answer(asked, viewer("U0REP", "T0HOME"))
    assert len(text) <= ANSWER_CHARACTERS_MAX
    return text.splitlines()


async def test_explain_shows_book_steps_inputs_slabs_and_policy_checks(bench: Bench) -> None:
    request = ask(("seat", 120), ("pack", 12), ("disk", 3), ("care", 1), term=12, discount="15")
    await quoted(bench, MIXED, request)
    said = await answer(bench, ExplainRequest("Q-2026-0001"))
    assert said[0] == "*Q-2026-0001 v1*"
    assert said[4].startswith(
        "*Seat* 120 (49 in tier 1-49 at 10; 50 in tier 50-99 at 8; 21 in tier 100+ at 6) \u00d7 12 months = $12,192.00, less 15%"
    )
    assert "8.466667" not in "".join(said)
    for step in (
        "Price book: list, kind slab.",
        "slab: 490 (49 in tier 1-49 at 10)",
        "slab: 126 (21 in tier 100+ at 6)",
        "Price book: list, kind formula.",
        "formula: 4 (base * max(1, 20 - term_months) with base = 0.5, term_months = 12)",
        "discount on the whole: 15%, this line's share $1,828.80",
    ):
        assert f"  \u2022 {step}" in said
    assert any(row.startswith("*Pack* 12 (400 for the block 10+ as a whole) \u00d7 12 months") for row in said)
    assert said[-2] == "Approval: Sales Manager · discount 15% (limit 10%)"
    assert said[-1].startswith("Total: ")
    assert not any(word in row for row in said for word in ("77", "cost", " margin "))


def test_snapshot_of_an_older_build_has_no_bundle_name_and_is_priced_the_same() -> None:
    pricing = priced(ask(("starter", 2), ("seat", 7), term=12), BUNDLED)
    stored: dict[str, Any] = canonical(pricing)
    assert [line.get("bundle_name") for line in stored["lines"]] == ["Starter Kit", "Starter Kit", None]
    older = {**stored, "lines": [{name: line[name] for name in line if name != "bundle_name"} for line in stored["lines"]]}
    read = from_canonical(older)
    assert canonical(read) == older
    assert reprice(read, BUNDLED) == reprice(pricing, BUNDLED) == ()
    assert read.lines[0].full_name == "Seat (of starter)"


def test_explain_says_which_component_of_a_bundle_was_chosen() -> None:
    suite = product("suite", kind="bundle", components=[{"sku": "seat"}], choices=[{"name": "care", "of": ["care"]}])
    rules = ruleset(products=[product("seat"), product("care"), suite])
    said = trace(priced(ask(LineRequest("suite", 2, attributes=(("care", "care"),))), rules))
    assert said.count("  \u2022 Chosen as care.") == 1


async def test_explain_of_one_line_shows_its_steps_and_one_month_is_singular(bench: Bench) -> None:
    await quoted(bench, MIXED, ask(("disk", 3), term=1))
    said = await answer(bench, ExplainRequest("Q-2026-0001", line=1))
    assert said[1].startswith("*Disk* 3 \u00d7 $9.50 \u00d7 1 month = *$28.50*")
    assert said[3] == "formula: 9.5 (base * max(1, 20 - term_months) with base = 0.5, term_months = 1)"


async def test_explain_hides_inputs_of_a_formula_that_tell_cost_or_margin(bench: Bench) -> None:
    formula = {"kind": "formula", "formula": "unit_cost * markup", "inputs": {"unit_cost": "7.25", "markup": "2"}}
    rules = ruleset(products=[product("disk")], price_books=[book([{"sku": "disk", **formula}])])
    await quoted(bench, rules, ask(("disk", 3), term=1))
    said = "\n".join(await answer(bench, ExplainRequest("Q-2026-0001")))
    assert "formula: 14.5 (unit_cost * markup with unit_cost = (internal), markup = 2)" in said
    assert "7.25" not in said
    (_family, listed, _hint) = products_text(rules, "disk", date(2026, 11, 21)).splitlines()
    assert listed.endswith("unit_cost * markup with markup = 2, unit_cost = (internal)")


@pytest.mark.parametrize("value", ["7.25", "7,25", "-3", "1E+2", "0.5"])
def test_no_figure_of_an_internal_input_is_left_in_a_text(value: str) -> None:
    said = f"cost * 2 with unit_cost = {value}, q = 3; region = eu"
    assert without_costs(said) == "cost * 2 with unit_cost = (internal), q = 3; region = eu"
    assert without_costs(f"q with margin = {value}") == "q with margin = (internal)"


async def test_explain_of_a_long_quote_keeps_a_sentence_for_each_line(bench: Bench) -> None:
    skus = [f"p{number}" for number in range(18)]
    rules = ruleset(products=[product(sku) for sku in skus])
    await quoted(bench, rules, ask(*((sku, 5) for sku in skus), term=12, discount="5"))
    said = await answer(bench, ExplainRequest("Q-2026-0001"))
    assert "`/quote explain Q-2026-0001 line 1` shows the steps of a line." in said
    assert [row for row in said if row.startswith("*P17* 5 \u00d7 ")]
    assert "Approval: none needed, within policy." in said


async def test_compare_names_choices_own_discounts_and_billing_at_the_same_price(bench: Bench) -> None:
    box = product("box", kind="configurable", attributes=[{"name": "gb", "choices": ["10", "20"]}])
    line = LineRequest("box", 3, attributes=(("gb", "10"),))
    changes = (
        Changes((LineChange("set", "box", 3, attributes=(("gb", "20"),)),)),
        Changes(billing_frequency="quarterly", segment="partner"),
        Changes((LineChange("set", "box", 3, Decimal(10)),)),
    )
    await quoted(bench, ruleset(products=[box]), ask(line, term=12), *changes)
    rows = [await answer(bench, CompareRequest("Q-2026-0001", version, version + 1)) for version in (1, 2, 3)]
    assert rows[0][1:] == ["\u2022 Box: gb 10 \u2192 gb 20, $360.00 \u2192 $360.00"]
    assert rows[1][1:] == ["\u2022 Segment none \u2192 partner", "\u2022 Billing upfront \u2192 quarterly"]
    assert rows[2][2] == "\u2022 Box: own discount 0% \u2192 10%, $360.00 \u2192 $324.00"


async def test_compare_tells_a_bundle_from_the_same_product_alone(bench: Bench) -> None:
    request = PriceRequest(ask(("starter", 2), ("seat", 7)).lines, 12, Decimal(0))
    more = Changes((LineChange("set", "starter", 3),))
    await quoted(bench, BUNDLED, request, more, Changes((LineChange("remove", "seat"),)))
    said = await answer(bench, CompareRequest("Q-2026-0001", 1, 2))
    assert said[1:] == [
        "\u2022 Total $3,291.00 \u2192 $4,516.50 (+$1,225.50)",
        "\u2022 Seat (of Starter Kit): 20 \u2192 30, $2,280.00 \u2192 $3,420.00",
        "\u2022 Care (of Starter Kit): 2 \u2192 3, $171.00 \u2192 $256.50",
        "\u2022 List price $3,420.00 \u2192 $4,710.00",
    ]
    assert "\u2022 Removed 7 \u00d7 Seat: $840.00" in await answer(bench, CompareRequest("Q-2026-0001", 2, 3))
