"""Ruleset: all inputs of a price besides the request, read from one plain document, with one canonical form and one hash.

The document consists of mappings and lists from TOML, YAML or JSON; amounts are text or exact numbers. It is validated completely
when it is read, so that ambiguous prices are found before a quote uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger import keys
from quotebot.domain.catalogue.catalogue import Catalogue, read_catalogue
from quotebot.domain.catalogue.documents import DocumentError, read_json, read_toml
from quotebot.domain.catalogue.reader import RulesetProblem, Table
from quotebot.domain.pricing.constraints import Constraint, read_constraints
from quotebot.domain.pricing.price_books import PriceBook, read_books
from quotebot.domain.pricing.priced import LARGEST_REMAINDER, PER_LINE
from quotebot.domain.pricing.taxes import Rate, Tax, read_rates, read_taxes

DOCUMENT_SCHEMA = 1
HEADER_RULES = (LARGEST_REMAINDER, PER_LINE)
ROUNDING = ("half_up_per_line",)
KEYS = (
    *("schema", "name", "version", "currency", "rounding", "header_discount"),
    *("products", "price_books", "constraints", "taxes", "rates"),
)


class RulesetError(ValueError):
    """The document is invalid. `problems` holds every error."""

    def __init__(self, problems: Sequence[RulesetProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Rules that price a quote. `currency` is that of the costs and of requests without a currency."""

    name: str
    version: str
    currency: str
    catalogue: Catalogue
    books: tuple[PriceBook, ...]
    constraints: tuple[Constraint, ...]
    taxes: tuple[Tax, ...]
    rates: tuple[Rate, ...]
    rounding: str  # "half_up_per_line": rounds each amount of a line once, half up, to the currency's exponent; totals are sums
    header_rule: str  # allocation of the header discount: "largest_remainder" | "per_line"
    hash: str  # SHA-256 of the canonical document

    @property
    def label(self) -> str:
        """Name and version, as recorded in each pricing."""
        return f"{self.name} {self.version}"


def parse_ruleset(document: object) -> Ruleset:
    """Parse a document. Raises RulesetError with every problem, each with its path and a suggestion."""
    problems: list[RulesetProblem] = []
    if not isinstance(document, Mapping):
        raise RulesetError([RulesetProblem((), "a ruleset is a table", "write name, version, currency, products, price_books")])
    table = Table(document, (), problems)
    table.only(*KEYS)
    table.whole("schema", DOCUMENT_SCHEMA, DOCUMENT_SCHEMA, DOCUMENT_SCHEMA)
    catalogue = read_catalogue(table)
    parts: dict[str, Any] = {
        "name": table.text("name"),
        "version": table.text("version"),
        "currency": table.currency("currency"),
        "catalogue": catalogue,
        "books": read_books(table, catalogue.products),
        "constraints": read_constraints(table, catalogue.products),
        "taxes": read_taxes(table),
        "rates": read_rates(table),
        "rounding": table.choice("rounding", ROUNDING, ROUNDING[0]),
        "header_rule": table.choice("header_discount", HEADER_RULES, LARGEST_REMAINDER),
    }
    if problems:
        raise RulesetError(problems)
    return Ruleset(**parts, hash=ruleset_hash(Ruleset(**parts, hash="")))


def parse_ruleset_toml(text: str) -> Ruleset:
    """Parse a document from TOML text. Raises RulesetError."""
    try:
        document = read_toml(text)
    except DocumentError as error:
        raise RulesetError([RulesetProblem((), f"it is not valid TOML: {error}", "correct the text")]) from error
    return parse_ruleset(document)


def parse_ruleset_json(text: str) -> Ruleset:
    """Parse a document from JSON text; numbers are exact. Raises RulesetError."""
    try:
        document = read_json(text)
    except DocumentError as error:
        raise RulesetError([RulesetProblem((), f"it is not valid JSON: {error}", "correct the text")]) from error
    return parse_ruleset(document)


def renamed(ruleset: Ruleset, version: str) -> Ruleset:
    """Return the same rules under another version, with the matching hash. Raises RulesetError for an invalid version."""
    return parse_ruleset({**canonical_ruleset(ruleset), "version": version})


def canonical_ruleset(ruleset: Ruleset) -> dict[str, object]:
    """Return the canonical document: JSON-ready, complete, every table in a fixed order. `parse_ruleset` reads it back.

    Order has no meaning in a ruleset except in lists of names for people (aliases, choices), which keep their order.
    """
    products = ruleset.catalogue.products
    return {
        "schema": DOCUMENT_SCHEMA,
        "name": ruleset.name,
        "version": ruleset.version,
        "currency": ruleset.currency,
        "rounding": ruleset.rounding,
        "header_discount": ruleset.header_rule,
        "products": [products[sku].document() for sku in sorted(products)],
        "price_books": [book.document() for book in sorted(ruleset.books, key=lambda book: book.name)],
        "constraints": sorted((rule.document() for rule in ruleset.constraints), key=_order),
        "taxes": sorted((tax.document() for tax in ruleset.taxes), key=_order),
        "rates": sorted((rate.document() for rate in ruleset.rates), key=_order),
    }


def ruleset_hash(ruleset: Ruleset) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical document: equivalent documents have equal hashes."""
    document: Any = canonical_ruleset(ruleset)
    return keys.digest(document)


def _order(document: dict[str, object]) -> bytes:
    row: Any = document
    return keys.canonical_json(row)
