"""Tests of special contract terms: known by name, a material change, and subject to legal's approval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from quotebot.commands.payloads import CloneQuote, CreateQuote, ReviseQuote
from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.quote import QuoteState
from quotebot.handlers.approvals import submit
from quotebot.handlers.lifecycle import clone, revise
from quotebot.handlers.quotes import create
from quotebot.views.document import Seller, document_set
from tests.quotebot.handlers.test_create_and_submit import ROOT, asked, numbered
from tests.quotebot.parts import RULES, create_command

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote
    from quotebot.handlers.decision import Decision


def created(*terms: str) -> Decision:
    command = create_command("5")
    wanted = CreateQuote(command.account, replace(command.request, terms=terms), command.channel)
    return create(asked(), wanted, numbered("Q-2026-0001"), RULES)


def quote_with(*terms: str) -> Quote:
    quote = created(*terms).quote
    assert quote is not None
    return quote


def revised(quote: Quote, *terms: str) -> Decision:
    return revise(asked(), ReviseQuote(Changes(terms=terms)), quote, ROOT, RULES)


@pytest.mark.parametrize(
    ("terms", "roles"), [((), []), (("net_60",), []), (("exclusivity",), ["legal"]), (("exclusivity", "net_60"), ["legal"])]
)
def test_a_listed_term_needs_legal_and_another_known_one_nobody(terms: tuple[str, ...], roles: list[str]) -> None:
    decision = submit(asked(), quote_with(*terms), ROOT, 0, RULES)
    assert decision.quote is not None
    assert decision.quote.approval is not None
    assert list(decision.quote.approval.required_roles) == roles


def test_a_misspelt_term_is_refused_with_the_right_one_wherever_it_comes_in() -> None:
    original = quote_with("exclusivity")
    rules = replace(RULES, builtin_policy=replace(RULES.policy, legal_terms=frozenset({"exclusive"}), other_terms=frozenset()))
    decisions = [
        created("exclusivty"),
        revised(original, "exclusivty"),
        clone(asked(), CloneQuote("Q-2026-0001", "C0SALES"), original, numbered("Q-2026-0002"), rules),
    ]
    for decision, right in zip(decisions, ("exclusivity", "exclusivity", "exclusive"), strict=True):
        assert (decision.kind, decision.response["code"]) == ("refused", "not_priceable")
        assert f"Did you mean {right}?" in decision.response["text"]


def test_an_unknown_template_is_refused_with_the_known_ones_wherever_it_comes_in() -> None:
    original, command = quote_with(), create_command("5")
    assert original.pricing.request is not None
    agreed = CommercialTerms(template="own")
    wanted = replace(command, request=replace(command.request, commercial=agreed))
    old = replace(original, pricing=replace(original.pricing, request=replace(original.pricing.request, commercial=agreed)))

    def decisions(own: str) -> list[Decision]:
        rules = replace(RULES, documents=document_set(Seller("Seller", (), templates={own: "<p/>", "_head": "<p/>"})))
        return [
            create(asked(), wanted, numbered("Q-2026-0001"), rules),
            revise(asked(), ReviseQuote(Changes(commercial=agreed)), original, ROOT, rules),
            clone(asked(), CloneQuote("Q-2026-0001", "C0SALES"), old, numbered("Q-2026-0002"), rules),
        ]

    assert [decision.kind for decision in decisions("own")] == ["applied"] * 3
    for decision in decisions("other"):
        assert (decision.kind, decision.response["code"]) == ("refused", "not_priceable")
        assert '"own" is no template of a document. Write one of detailed, other, summary.' in decision.response["text"]


def test_a_term_that_the_policy_has_forgotten_since_goes_to_legal() -> None:
    rules = replace(RULES, builtin_policy=replace(RULES.policy, other_terms=frozenset()))
    decision = submit(asked(), quote_with("net_60"), ROOT, 0, rules)
    assert decision.quote is not None
    assert decision.quote.approval is not None
    assert decision.quote.approval.reasons == ("the term net_60 is unknown to the policy and needs Legal",)


def test_other_terms_are_another_version_and_the_same_terms_are_none() -> None:
    original = quote_with("net_60")
    changed = revised(original, "exclusivity", "net_60")
    assert changed.quote is not None
    assert (changed.quote.version, changed.quote.state) == (2, QuoteState.PRICED)
    assert "Special terms net 60 \u2192 exclusivity, net 60" in changed.effects[1].payload["text"]
    assert revised(original, "net_60").response["code"] == "no_change"
    assert revise(asked(), ReviseQuote(Changes(region="DE", with_tax=True)), original, ROOT, RULES).kind == "applied"


def test_a_new_term_is_worse_than_what_was_approved_and_one_less_is_not() -> None:
    one, two = (quote_with(*terms).pricing for terms in (("exclusivity",), ("exclusivity", "liability_cap")))
    assert got_worse(one, two) == ("special terms",)
    assert got_worse(two, one) == ()
