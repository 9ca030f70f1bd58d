"""Tests of the ablation's commands: a volley that is refused would measure nothing of what it is for."""

from __future__ import annotations

import pytest

from bench.ablation import COMMAND, LARGE, LARGE_LINES, PRODUCTS
from bench.acks.without import MECHANISMS
from quotebot.commands.payloads import CreateQuote
from quotebot.domain.approvals.advice import advise
from quotebot.domain.catalogue.rulesets import parse_ruleset
from quotebot.domain.pricing.engine import Pricing, price
from quotebot.slack import verbs
from tests.quotebot.parts import RULES


@pytest.mark.parametrize(
    ("text", "lines", "advised"), [(COMMAND, 1, False), (LARGE, len(LARGE_LINES), True)], ids=["small", "large"]
)
def test_commands_of_the_ablation_are_priced_and_large_ones_are_advised(text: str, lines: int, *, advised: bool) -> None:
    ruleset = parse_ruleset(PRODUCTS)
    found = verbs.parse(text.replace("{n}", "1"), "C0DEALS", ruleset.catalogue)
    assert isinstance(found, CreateQuote)
    priced = price(found.request, ruleset)
    assert isinstance(priced, Pricing)
    assert len(priced.lines) == lines
    assert (advise(priced, ruleset, RULES.policy) is not None) is advised


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism_that_is_switched_off_exists(name: str) -> None:
    owner, attribute, _ = MECHANISMS[name]
    assert hasattr(owner, attribute)
