"""Selection of a request's items: bundles unpacked into components, configurations completed, constraints checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain.pricing.constraints import Chosen, find_violations
from quotebot.domain.pricing.price_requests import LINES_MAX, QUANTITY_MAX, LineRequest, PriceRequest, PricingProblem, clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue.catalogue import Catalogue, Product
    from quotebot.domain.catalogue.rulesets import Ruleset


@dataclass(frozen=True, slots=True)
class SelectedItem:
    """One line to price: a product other than a bundle, its quantity and configuration, and the originating request line."""

    product: Product
    quantity: int
    attributes: Mapping[str, str]
    line: LineRequest
    bundle: Product | None = None

    @property
    def name(self) -> str:
        """Unique name of the item within the request."""
        return self.product.sku if self.bundle is None else f"{self.bundle.sku}/{self.product.sku}"


def choose(request: PriceRequest, ruleset: Ruleset) -> tuple[SelectedItem, ...] | tuple[PricingProblem, ...]:
    """Return the items of a request whose skus are all known, or every problem with them."""
    problems: list[PricingProblem] = []
    items: list[SelectedItem] = []
    for line in request.lines:
        problems += _configuration_problems(line, ruleset.catalogue.products[line.sku])
        items += _unpacked(line, ruleset.catalogue)
    if len(items) > LINES_MAX:
        problems.append(
            PricingProblem(
                "line_count",
                f"with its bundles unpacked, the quote has {len(items)} lines; {LINES_MAX} are possible",
                "split the quote into several",
            )
        )
    for item in items:
        if not item.product.active and item.bundle is not None:
            problems.append(
                PricingProblem(
                    "inactive_sku",
                    f"{item.bundle.sku} holds {item.product.sku}, which is no longer sold",
                    f"order what {item.bundle.sku} holds without it",
                )
            )
        if item.quantity > QUANTITY_MAX:
            problems.append(
                PricingProblem(
                    "quantity",
                    f"the quantity of {item.product.sku} is 1 to {QUANTITY_MAX:,}, not {item.quantity:,}",
                    f"order fewer {item.line.sku}",
                )
            )
    problems += find_violations(ruleset.constraints, _chosen(items))
    return tuple(problems) if problems else tuple(items)


def _unpacked(line: LineRequest, catalogue: Catalogue) -> Iterator[SelectedItem]:
    product = catalogue.products[line.sku]
    if product.kind != "bundle":
        yield SelectedItem(product, line.quantity, _configuration(product, line.attributes), line)
        return
    for component in product.components:
        part = catalogue.products[component.sku]
        yield SelectedItem(part, component.quantity * line.quantity, _configuration(part, ()), line, product)


def _configuration(product: Product, chosen: tuple[tuple[str, str], ...]) -> dict[str, str]:
    defaults = {attribute.name: attribute.default for attribute in product.attributes if attribute.default is not None}
    return {**defaults, **dict(chosen)}


def _configuration_problems(line: LineRequest, product: Product) -> Iterator[PricingProblem]:
    known = {attribute.name: attribute for attribute in product.attributes}
    given = dict(line.attributes)
    if len(given) != len(line.attributes):
        yield PricingProblem("attribute", f"{line.sku} has an attribute twice", "choose each once")
    for name, choice in given.items():
        if name not in known:
            hint = f"known are {', '.join(known)}" if known else "leave it out"
            yield PricingProblem("attribute", f"{line.sku} has no attribute {clipped(name)}", hint)
        elif choice not in known[name].choices:
            yield PricingProblem(
                "attribute", f"{clipped(choice)} is no {name} of {line.sku}", f"one of {', '.join(known[name].choices)}"
            )
    for attribute in product.attributes:
        if attribute.default is None and attribute.name not in given:
            yield PricingProblem(
                "attribute", f"{line.sku} needs a choice of {attribute.name}", f"one of {', '.join(attribute.choices)}"
            )


def _chosen(items: list[SelectedItem]) -> dict[str, Chosen]:
    chosen: dict[str, Chosen] = {}
    for item in items:
        before = chosen.get(item.product.sku)
        if before is None or item.bundle is None:  # a separate line sets the configuration; bundles use the default
            chosen[item.product.sku] = Chosen(item.quantity + (before.quantity if before else 0), item.attributes)
        else:
            chosen[item.product.sku] = Chosen(before.quantity + item.quantity, before.attributes)
    return chosen
