"""Constraints on products: combinations, quantities and configurations in six kinds; all violations are reported at once."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain.language import _, grouped
from quotebot.domain.pricing.price_requests import QUANTITY_MAX, PricingProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue.catalogue import Product
    from quotebot.domain.catalogue.reader import Table

CONSTRAINTS_MAX = 2_000
KINDS = ("requires", "excludes", "min_quantity", "max_quantity", "same_quantity", "attribute")
KEYS = {
    "requires": ("other",),
    "excludes": ("other",),
    "min_quantity": ("quantity",),
    "max_quantity": ("quantity",),
    "same_quantity": ("other",),
    "attribute": ("attribute", "choice", "then_attribute", "then_choices"),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """One rule about `sku`; the kind determines which other fields are used.

    requires: `other` must be in the quote too. excludes: it must not. min_quantity, max_quantity: at least, at most `quantity`
    units. same_quantity: as many units as of `other`, if both are in the quote. attribute: with `attribute` = `choice`,
    `then_attribute` must be one of `then_choices`. `message` replaces the default text.
    """

    kind: str
    sku: str
    other: str = ""
    quantity: int = 0
    attribute: str = ""
    choice: str = ""
    then_attribute: str = ""
    then_choices: tuple[str, ...] = ()
    message: str | None = None

    def document(self) -> dict[str, object]:
        """Return the constraint in the form of a ruleset document."""
        values: dict[str, object] = {
            "other": self.other,
            "quantity": self.quantity,
            "attribute": self.attribute,
            "choice": self.choice,
            "then_attribute": self.then_attribute,
            "then_choices": list(self.then_choices),
        }
        own = {key: values[key] for key in KEYS[self.kind]}
        return {"kind": self.kind, "sku": self.sku, **own, **({} if self.message is None else {"message": self.message})}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Units of a product in a quote, with bundles unpacked, its configuration, and the sku of the line that sets it."""

    quantity: int
    attributes: Mapping[str, str]
    line: str


def find_violations(constraints: tuple[Constraint, ...], chosen: Mapping[str, Chosen]) -> tuple[PricingProblem, ...]:
    """Return every violation, in the order of the constraints; `chosen` is by sku."""
    return tuple(
        PricingProblem(rule.kind, rule.message or message, suggestion, chosen[rule.sku].line)
        for rule in constraints
        if rule.sku in chosen
        for message, suggestion in _violation(rule, chosen)
    )


def _violation(rule: Constraint, chosen: Mapping[str, Chosen]) -> Iterator[tuple[str, str]]:
    own, sku = chosen[rule.sku], rule.sku
    other, both = chosen.get(rule.other), {"sku": sku, "other": rule.other}
    if rule.kind == "requires" and other is None:
        yield _("{sku} needs {other}", **both), _("add {other}, or leave {sku} out", **both)
    if rule.kind == "excludes" and other is not None:
        yield _("{sku} and {other} do not go together", **both), _("leave one of them out: {sku} or {other}", **both)
    if rule.kind == "min_quantity" and own.quantity < rule.quantity:
        yield (
            _(
                "{sku} is sold from {limit} on, not {quantity}",
                sku=sku,
                limit=grouped(rule.quantity),
                quantity=grouped(own.quantity),
            ),
            _("e.g. {quantity} {sku}", quantity=rule.quantity, sku=sku),
        )
    if rule.kind == "max_quantity" and own.quantity > rule.quantity:
        yield (
            _("{sku} is sold up to {limit}, not {quantity}", sku=sku, limit=grouped(rule.quantity), quantity=grouped(own.quantity)),
            _("e.g. {quantity} {sku}", quantity=rule.quantity, sku=sku),
        )
    if rule.kind == "same_quantity" and other is not None and other.quantity != own.quantity:
        numbers = {"own": grouped(own.quantity), "theirs": grouped(other.quantity)}
        yield (
            _("{sku} and {other} go in equal numbers, not {own} and {theirs}", **both, **numbers),
            _("e.g. {quantity} {sku}, {quantity} {other}", **both, quantity=other.quantity),
        )
    if rule.kind == "attribute" and own.attributes.get(rule.attribute) == rule.choice:
        found = own.attributes.get(rule.then_attribute)
        if found not in rule.then_choices:
            message = _(
                "{sku} with {attribute} = {choice} cannot have {other} = {found}",
                sku=sku,
                attribute=rule.attribute,
                choice=rule.choice,
                other=rule.then_attribute,
                found=found,
            )
            yield message, _("choose {name} = {choices}", name=rule.then_attribute, choices=_either(rule.then_choices))


def _either(choices: tuple[str, ...]) -> str:
    return functools.reduce(lambda first, second: _("{first} or {second}", first=first, second=second), choices)


def read_constraints(table: Table, products: Mapping[str, Product]) -> tuple[Constraint, ...]:
    """Read `constraints` of a ruleset's document; a contradiction that no quote can satisfy is a problem of the document."""
    found: list[Constraint] = []
    by_sku: defaultdict[str, list[Constraint]] = defaultdict(list)
    for row in table.tables("constraints", most=CONSTRAINTS_MAX):
        kind = row.choice("kind", KINDS)
        row.only("kind", "sku", "message", *KEYS[kind])
        rule = _read(row, kind)
        _check_names(row, rule, products)
        if any(_contradict(rule, earlier) or _contradict(earlier, rule) for earlier in by_sku[rule.sku]):
            row.report("it contradicts a constraint before it: no quote satisfies both", "remove one of them")
        for sku in {rule.sku, rule.other} - {""}:
            by_sku[sku].append(rule)
        found.append(rule)
    return tuple(found)


def _read(row: Table, kind: str) -> Constraint:
    keys = KEYS[kind]
    return Constraint(
        kind=kind,
        sku=row.text("sku"),
        other=row.text("other") if "other" in keys else "",
        quantity=row.whole("quantity", 1, QUANTITY_MAX) if "quantity" in keys else 0,
        attribute=row.text("attribute") if "attribute" in keys else "",
        choice=row.text("choice") if "attribute" in keys else "",
        then_attribute=row.text("then_attribute") if "attribute" in keys else "",
        then_choices=row.texts("then_choices") if "attribute" in keys else (),
        message=row.optional_text("message"),
    )


def _check_names(row: Table, rule: Constraint, products: Mapping[str, Product]) -> None:
    for key, sku in (("sku", rule.sku), ("other", rule.other)):
        if sku and (sku not in products or products[sku].kind == "bundle"):
            row.report(f"{sku!r} is no product of its own in the catalogue", "name one that is", key)
    if rule.other and rule.other == rule.sku:
        row.report("a product has no such relation to itself", "name another product", "other")
    if rule.kind != "attribute" or rule.sku not in products:
        return
    choices = {attribute.name: attribute.choices for attribute in products[rule.sku].attributes}
    if rule.choice not in choices.get(rule.attribute, ()):
        row.report(f"{rule.sku} has no {rule.attribute} = {rule.choice}", "name a choice it has", "choice")
    if not rule.then_choices or set(rule.then_choices) - set(choices.get(rule.then_attribute, ())):
        row.report(f"these are not choices of {rule.sku}'s {rule.then_attribute}", "name choices it has", "then_choices")


def _contradict(rule: Constraint, other: Constraint) -> bool:
    if rule.kind == "requires" and other.kind == "excludes":
        return {rule.sku, rule.other} == {other.sku, other.other}
    return rule.kind == "min_quantity" and other.kind == "max_quantity" and rule.sku == other.sku and rule.quantity > other.quantity
