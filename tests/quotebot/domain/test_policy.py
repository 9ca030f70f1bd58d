from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files

import pytest

from quotebot.domain.approvals.policy import (
    ApprovalPolicy,
    Need,
    PolicyDecision,
    Timing,
    evaluate,
    margin_figures,
    without_margin_figures,
)
from quotebot.domain.approvals.policy_document import PolicyError, lint_policy, parse_policy, policy_document, read_policy
from quotebot.domain.approvals.policy_sheet import read_policy_sheet, write_policy_sheet
from quotebot.domain.approvals.roles import LADDER
from quotebot.domain.catalogue.rulesets import parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PricedLine, PriceRequest, Pricing, price
from quotebot.domain.quotes.versions import difference_words
from quotebot.views.builder_details import TERMS, Details
from quotebot.views.card import terms_row
from quotebot.views.confirmations import proposal

POLICY_TEXT = files("quotebot").joinpath("data/policy.toml").read_text("utf-8")
POLICY = parse_policy(POLICY_TEXT)
RULESET = parse_ruleset_toml(files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8"))


def line(family: str, net: str, cost: str) -> PricedLine:
    amount = Decimal(net)
    return PricedLine(1, "x", "X", family, "seat", "recurring", 1, 1, amount, None, amount, Decimal("0.00"), amount, Decimal(cost))


def pricing(*lines: PricedLine, discount: str = "0", currency: str = "USD") -> Pricing:
    net = sum((row.net_amount for row in lines), Decimal(0))
    cost = sum((row.cost_amount for row in lines), Decimal(0))
    return Pricing("sample 1", currency, 12, Decimal(discount), lines, net, Decimal(0), net, cost)


@pytest.mark.parametrize(
    ("discount", "roles", "blocked"),
    [
        ("0", (), False),
        ("9.99", (), False),
        ("10", (), False),
        ("10.01", ("sales_manager",), False),
        ("19.99", ("sales_manager",), False),
        ("20", ("sales_manager",), False),
        ("20.01", ("vp_sales",), False),
        ("29.99", ("vp_sales",), False),
        ("30", ("vp_sales",), False),
        ("30.01", ("cfo",), False),
        ("39.99", ("cfo",), False),
        ("40", ("cfo",), False),
        ("40.01", ("cfo",), True),
        ("100", ("cfo",), True),
    ],
)
def test_each_discount_boundary_asks_for_its_role(discount: str, roles: tuple[str, ...], blocked: bool) -> None:  # noqa: FBT001 -- a table
    decision = evaluate(pricing(line("saas", "1000", "0"), discount=discount), POLICY)
    assert (decision.required_roles, decision.blocked) == (roles, blocked)
    assert decision.automatic == (roles == ())


@pytest.mark.parametrize(
    ("own", "roles", "blocked"),
    [
        ("0", (), False),
        ("11.11", ("sales_manager",), False),  # 1 - 0.9 * 0.8889 is 19.999%
        ("11.12", ("vp_sales",), False),  # 20.008%
        ("22.22", ("vp_sales",), False),
        ("33.34", ("cfo",), True),
    ],
)
def test_a_discount_on_one_line_counts_beside_the_one_on_the_whole_quote(own: str, roles: tuple[str, ...], blocked: bool) -> None:  # noqa: FBT001 -- a table
    given = replace(line("saas", "1000", "0"), requested_percent=Decimal(own))
    decision = evaluate(pricing(given, line("saas", "1000", "0"), discount="10"), POLICY)
    assert (decision.required_roles, decision.blocked) == (roles, blocked)


@pytest.mark.parametrize(
    ("net", "roles"),
    [
        ("99999.99", ()),
        ("100000.00", ()),
        ("100000.01", ("deal_desk",)),
        ("499999.99", ("deal_desk",)),
        ("500000.00", ("deal_desk",)),
        ("500000.01", ("vp_sales",)),
    ],
)
def test_each_total_boundary_asks_for_its_role(net: str, roles: tuple[str, ...]) -> None:
    assert evaluate(pricing(line("saas", net, "0")), POLICY).required_roles == roles


@pytest.mark.parametrize(
    ("family", "net", "cost", "roles"),
    [
        ("saas", "100.00", "39.99", ()),
        ("saas", "100.00", "40.00", ()),
        ("saas", "100.00", "40.01", ("cfo",)),
        ("services", "100.00", "59.99", ()),
        ("services", "100.00", "60.00", ()),
        ("services", "100.00", "60.01", ("cfo",)),
        ("saas", "0.00", "0.01", ("cfo",)),
        ("saas", "0.00", "0.00", ()),
        ("hardware", "100.00", "0.00", ("cfo",)),
    ],
)
def test_each_margin_floor_is_exact_and_a_family_without_one_goes_to_the_top(
    family: str, net: str, cost: str, roles: tuple[str, ...]
) -> None:
    assert evaluate(pricing(line(family, net, cost)), POLICY).required_roles == roles


def test_margin_is_per_family_and_a_high_one_does_not_hide_a_low_one() -> None:
    poor, rich = line("services", "100", "70"), line("saas", "10000", "0")
    assert evaluate(pricing(rich, poor), POLICY) == PolicyDecision(
        ("cfo",), ("services margin is under the floor",), blocked=False, needs=(Need(("cfo",)),), by_margin=True
    )
    assert evaluate(pricing(line("saas", "100", "70"), rich), POLICY).automatic


def test_a_margin_just_under_its_floor_is_never_shown_as_the_floor() -> None:
    priced = pricing(line("saas", "99999.99", "40000.00"))
    assert evaluate(priced, POLICY).hits == ("saas margin is under the floor",)
    assert margin_figures(priced, POLICY) == ("saas margin 59.99% is under 60%",)
    assert margin_figures(pricing(line("saas", "100000", "40000")), POLICY) == ()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "saas margin 45.35% is under 60%; total $1 (limit $2)",
            "saas margin is under the floor; total $1 (limit $2)",
        ),
        ("services margin -18.03% is under 40.5%", "services margin is under the floor"),
        ("saas is given away, so its margin is under 60%", "saas is given away, so its margin is under the floor"),
        ("hardware has no margin floor in policy sample 1", "hardware has no margin floor in policy sample 1"),
        ("saas margin is under the floor", "saas margin is under the floor"),
    ],
)
def test_a_margin_that_an_earlier_build_wrote_is_told_without_figures(written: str, told: str) -> None:
    assert without_margin_figures(written) == told


def test_the_higher_commercial_authority_decides_when_two_rules_match() -> None:  # EC-01
    decision = evaluate(pricing(line("saas", "120000", "0"), discount="18"), POLICY)
    assert decision.required_roles == ("deal_desk",)
    assert decision.hits == ("discount 18% (limit 10%)", "total $120,000.00 (limit $100,000.00)")


def test_legal_is_asked_beside_the_commercial_role_and_never_dropped() -> None:  # EC-02, EC-03
    policy = parse_policy(POLICY_TEXT.replace('amount = 500000, role = "vp_sales"', 'amount = 500000, role = "legal"'))
    assert evaluate(pricing(line("saas", "600000", "0"), discount="25"), policy).required_roles == ("vp_sales", "legal")
    assert evaluate(pricing(line("saas", "600000", "0")), policy).required_roles == ("legal",)


SADDLED = pricing(line("saas", "600000", "0"), discount="25")  # over a discount's and over a total's limit


def routed(over: str = "", routing: str = "") -> ApprovalPolicy:
    """The sample policy with another rule for discounts over 20%, or another [routing]."""
    text = POLICY_TEXT.replace('{ percent = 20, role = "vp_sales" }', over or '{ percent = 20, role = "vp_sales" }')
    head, _, _ = text.partition("[routing]")
    return parse_policy(f"{head}[routing]\n{routing}" if routing else text)


@pytest.mark.parametrize(
    ("terms", "roles"),
    [
        ({"liability_cap"}, ("vp_sales", "legal")),
        ({"liability_cap", "exclusivity"}, ("vp_sales", "legal")),
        ({"net_60"}, ("vp_sales",)),
        (set(), ("vp_sales",)),
    ],
)
def test_each_listed_term_adds_legal_once_and_no_other_does(terms: set[str], roles: tuple[str, ...]) -> None:
    decision = evaluate(SADDLED, POLICY, frozenset(terms))
    assert decision.required_roles == roles
    assert sum("needs Legal" in hit for hit in decision.hits) == len(terms & POLICY.legal_terms)


@pytest.mark.parametrize(
    ("over", "routing", "needs"),
    [
        ("", "full_ladder = true", (Need(("sales_manager",)), Need(("deal_desk",)), Need(("vp_sales",)))),
        ("", 'order = "sequential"', (Need(("vp_sales",)),)),
        ("", 'full_ladder = true\norder = "sequential"', tuple(Need((role,), stage=n) for n, role in enumerate(LADDER[:3], 1))),
        ('{ percent = 20, roles = ["deal_desk", "legal"], roles_needed = "all" }', "", (("deal_desk",), ("vp_sales",), ("legal",))),
        ('{ percent = 20, roles = ["cfo", "legal"], roles_needed = "any" }', "", (("vp_sales",), ("cfo", "legal"))),
        ('{ percent = 20, roles = ["deal_desk", "legal"], roles_needed = "any" }', "", (("vp_sales",),)),  # vp_sales suffices
        ('{ percent = 20, role = "vp_sales", people = "all" }', "", (Need(("vp_sales",), people="all"),)),
        ('{ percent = 20, role = "vp_sales", dual_control = true }', "", (Need(("vp_sales",), dual_control=True),)),
        (
            '{ percent = 20, role = "vp_sales", dual_control = true }',
            "full_ladder = true",
            (("sales_manager",), ("deal_desk",), Need(("vp_sales",), dual_control=True)),
        ),
        (
            '{ percent = 20, roles = ["deal_desk", "legal"], roles_needed = "any", people = "all" }',
            "",
            (("vp_sales",), Need(("deal_desk", "legal"), people="all")),
        ),
        ('{ percent = 20, role = "deal_desk", dual_control = true }', "", (Need(("vp_sales",), dual_control=True),)),
    ],
)
def test_what_a_rule_may_ask_for_beside_one_role(over: str, routing: str, needs: tuple[Need | tuple[str, ...], ...]) -> None:
    wanted = tuple(need if isinstance(need, Need) else Need(need) for need in needs)
    assert evaluate(SADDLED, routed(over, routing)).needs == wanted


def test_legal_is_asked_after_the_ladder_when_one_is_asked_after_the_other() -> None:
    decision = evaluate(SADDLED, routed(routing='order = "sequential"'), frozenset({"exclusivity"}))
    assert [(need.role, need.stage) for need in decision.needs] == [("vp_sales", 1), ("legal", 2)]


def test_the_hours_of_the_routing_are_the_requests_deadlines() -> None:
    timing = routed(routing="remind_hours = 1\nescalate_hours = 3\nexpire_hours = 24").timing
    assert timing == Timing(3_600_000, 3 * 3_600_000, 24 * 3_600_000)
    assert POLICY.timing == Timing() == Timing(2 * 3_600_000, 4 * 3_600_000, 72 * 3_600_000)


def test_a_quote_in_another_currency_is_blocked_rather_than_compared() -> None:
    decision = evaluate(pricing(line("saas", "1", "0"), currency="EUR"), POLICY)
    assert decision.blocked
    assert decision.required_roles == (LADDER[-1],)
    assert not decision.automatic


def test_the_golden_quote_at_15_percent_needs_the_sales_manager() -> None:
    result = price(
        PriceRequest((LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1)), 12, Decimal(15)), RULESET
    )
    assert isinstance(result, Pricing)
    assert evaluate(result, POLICY) == PolicyDecision(
        ("sales_manager",), ("discount 15% (limit 10%)",), blocked=False, needs=(Need(("sales_manager",)),)
    )
    assert evaluate(replace(result, discount_percent=Decimal(10)), POLICY).automatic


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("[discount]", "[discont]", "discount: a"),
        ("blocked_over = 40", "blocked_over = 29", "discount.blocked_over"),
        ("blocked_over = 40", "blocked_over = 'x'", "discount.blocked_over"),
        ("percent = 20", "percent = 10", r"discount.over\[2\].percent"),
        ("percent = 20", "percent = -1", r"discount.over\[2\].percent"),
        ("percent = 20", "perc = 20", r"discount.over\[2\]"),
        (
            '"vp_sales" },\n    { percent = 30, role = "cfo"',
            '"cfo" },\n    { percent = 30, role = "deal_desk"',
            r"discount.over\[3\].role",
        ),
        ('amount = 500000, role = "vp_sales"', 'amount = 500000, role = "ceo"', r"total.over\[2\].role"),
        ("saas = { under = 60", "saas = { below = 60", "margin.saas"),
        ('currency = "USD"', 'currency = "ZZZ"', "currency"),
        ('name = "sample"', "name = 3", "name"),
        ('version = "1"', "version = ", "not valid TOML"),
        ("full_ladder = false", "full_ladder = 1", "routing.full_ladder"),
        ('order = "parallel"', 'order = "both"', "routing.order"),
        ("remind_hours = 2", "remind_hours = 4", "routing: remind_hours"),
        ("remind_hours = 2", "remind_hours = 0", "routing.remind_hours"),
        ("remind_hours = 2", "hours = 2", "routing: may only have"),
        ('legal = ["liability_cap"', 'legal = [1, "liability_cap"', "terms.legal"),
        ('other = ["net_60"', 'other = ["net 60"', "terms.other"),
        ('other = ["net_60"', 'other = ["exclusivity"', "terms.other: exclusivity needs legal already"),
        ("other = [", "more = [", "terms: may only have"),
        ("[terms.names.de]", "[terms.names.fr]", "terms.names: may only have tables for the languages en, de"),
        ('liability_cap = "H', 'liability_kap = "H', "terms.names.de.liability_kap: the policy lists no such term"),
        ('"Vertragsstrafe"', '"<Strafe>"', "terms.names.de.penalty_clause"),
        ("saas = { under = 60", "saas = { under = 100.01", "margin.saas.under"),
        ('percent = 20, role = "vp_sales"', 'percent = 20, roles = ["cfo", "cfo"]', r"discount.over\[2\].roles"),
        ('percent = 20, role = "vp_sales"', 'percent = 20, role = "vp_sales", people = "some"', r"discount.over\[2\].people"),
        (
            'percent = 20, role = "vp_sales"',
            'percent = 20, role = "vp_sales", dual_control = 1',
            r"dual_control",
        ),
        ('percent = 20, role = "vp_sales"', 'percent = 20, roles = ["cfo"], role = "cfo"', r"discount.over\[2\]: must"),
        ("over = [\n    { amount", "under = [\n    { amount", "total.over"),
    ],
)
def test_bad_policy_data_is_an_error_that_names_the_place(old: str, new: str, place: str) -> None:
    assert old in POLICY_TEXT
    with pytest.raises(PolicyError, match=place):
        parse_policy(POLICY_TEXT.replace(old, new, 1))


def test_names_of_special_terms_survive_the_document_and_the_sheet() -> None:
    document = policy_document(POLICY)
    assert read_policy(document) == POLICY
    sheet = write_policy_sheet(document)
    assert "terms.names.de,liability_cap,Haftungsobergrenze" in sheet
    again = read_policy_sheet("p.csv", sheet.encode())
    assert isinstance(again, dict)
    assert read_policy(again) == POLICY
    assert POLICY.term_words("liability_cap") == "liability cap"
    assert "names" not in policy_document(replace(POLICY, term_names={}))["terms"]


def test_a_special_term_without_a_name_in_a_language_is_a_finding() -> None:
    unnamed = replace(POLICY, term_names={"de": {"net_60": "60 Tage"}}, other_terms=frozenset({"net_60", "no_show"}))
    found = lint_policy(unnamed, (), (), dict.fromkeys(unnamed.roles.every, ("U0",)))
    assert "no_show has no name in terms.names.de, so people read its id in words" in found
    assert not any(each.startswith("net_60") for each in found)


@pytest.mark.usefixtures("german")
def test_a_special_term_is_named_in_german_on_cards_forms_and_reasons() -> None:
    agreed = PriceRequest((LineRequest("pro", 10),), 12, Decimal(0), terms=("liability_cap",))
    found = price(agreed, RULESET)
    assert isinstance(found, Pricing)
    assert evaluate(found, POLICY).hits == ("Haftungsobergrenze: Freigabe durch Rechtsabteilung nötig",)
    assert terms_row(found, POLICY) == (("Sonderbedingungen", "Haftungsobergrenze"),)
    assert "Haftungsobergrenze" in proposal("Acme", found, POLICY)
    assert "Haftungsobergrenze" in str(Details.of(RULESET, POLICY).group(TERMS, agreed))
    without = price(replace(agreed, terms=()), RULESET)
    assert isinstance(without, Pricing)
    assert "Haftungsobergrenze" in "".join(difference_words(found, without, POLICY.term_words))
