"""Ruleset: all inputs of a price besides the request, read from one plain document, with one canonical form and one hash.

It also compares two rulesets, field by field, and lints one, for review before activation.

The document consists of mappings and lists from TOML, YAML or JSON; amounts are text or exact numbers. It is validated completely
when it is read, so that ambiguous prices are found before a quote uses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ledger import keys
from quotebot.domain import money
from quotebot.domain.approvals.policy_document import PolicyError, policy_document, read_policy
from quotebot.domain.catalogue.catalogue import Catalogue, fold, read_catalogue
from quotebot.domain.catalogue.reader import DocumentError, RulesetProblem, Table, read_json, read_toml
from quotebot.domain.pricing.constraints import Constraint, read_constraints
from quotebot.domain.pricing.price_books import Flat, PriceBook, PriceEntry, Tiered, read_books
from quotebot.domain.pricing.priced import LARGEST_REMAINDER, PER_LINE
from quotebot.domain.pricing.taxes import Rate, Tax, read_rates, read_taxes

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.approvals.policy import ApprovalPolicy

DOCUMENT_SCHEMA = 1
ACCOUNT_CHARACTERS_MAX = 100
HEADER_RULES = (LARGEST_REMAINDER, PER_LINE)
ROUNDING = ("half_up_per_line",)
KEYS = (
    *("schema", "name", "version", "currency", "rounding", "header_discount"),
    *("products", "price_books", "constraints", "taxes", "rates", "accounts", "policy"),
)
ACCOUNTS_MAX = 20_000


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
    accounts: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # (account, segment), by their folded names
    policy: ApprovalPolicy | None = None  # None: the policy that ships with the build applies
    rate_days_max: int | None = None  # a setting of the installation, no part of the document: rates older than this price nothing

    def is_open(self, segment: str | None, account: str | None) -> bool:
        """Return whether the ruleset lists the customer for a segment, whose prices then need no approval."""
        return segment is not None and account is not None and (fold(account), fold(segment)) in self.accounts

    @property
    def label(self) -> str:
        """Name and version, as recorded in each pricing."""
        return f"{self.name} {self.version}"


def parse_ruleset(document: object, *, stored: bool = False) -> Ruleset:
    """Parse a document. Raises RulesetError with every problem, each with its path and a suggestion.

    A `stored` document was accepted before: later rules about texts do not apply to it.
    """
    problems: list[RulesetProblem] = []
    if not isinstance(document, Mapping):
        raise RulesetError([RulesetProblem((), "a ruleset is a table", "write name, version, currency, products, price_books")])
    table = Table(document, (), problems, stored)
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
        "accounts": _accounts(table),
        "rounding": table.choice("rounding", ROUNDING, ROUNDING[0]),
        "header_rule": table.choice("header_discount", HEADER_RULES, LARGEST_REMAINDER),
        "policy": _policy(table),
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


def _accounts(table: Table) -> dict[tuple[str, str], tuple[str, str]]:
    """Read the optional `accounts`: which customers may have the prices of a segment."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for row in table.tables("accounts", most=ACCOUNTS_MAX):
        row.only("account", "segment")
        account, segment = row.text("account", most=ACCOUNT_CHARACTERS_MAX), row.text("segment")
        if (fold(account), fold(segment)) in found:
            row.report(f"{account!r} has the segment {segment!r} already", "keep one of the two", "account")
        found[(fold(account), fold(segment))] = (account, segment)
    return found


def _policy(table: Table) -> ApprovalPolicy | None:
    given = table.entries.get("policy")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        table.report("a policy is a table", "write name, version, currency, discount, total and margin", "policy")
        return None
    try:
        return read_policy(given)
    except PolicyError as error:
        place, _, message = str(error).partition(": ")
        table.report(message, "see docs/approvals.md", "policy", *place.split("."))
        return None


def with_policy(ruleset: Ruleset, policy: ApprovalPolicy, version: str) -> Ruleset:
    """Return the same prices under another approval policy and version, with the matching hash."""
    return _again(ruleset, version, policy=policy_document(policy))


def renamed(ruleset: Ruleset, version: str) -> Ruleset:
    """Return the same rules under another version, with the matching hash. Raises RulesetError for an invalid version."""
    return _again(ruleset, version)


def _again(ruleset: Ruleset, version: str, **replaced: object) -> Ruleset:
    """Parse a ruleset, which was accepted before, with other parts; a new version is checked like any new text."""
    named = Table({"version": version}, (), [], stored=version == ruleset.version)
    named.text("version")
    if named.problems:
        raise RulesetError(named.problems)
    return parse_ruleset({**canonical_ruleset(ruleset), **replaced, "version": version}, stored=True)


def canonical_ruleset(ruleset: Ruleset) -> dict[str, object]:
    """Return the canonical document: JSON-ready, complete, every table in a fixed order. `parse_ruleset` reads it back.

    Order has no meaning in a ruleset except in lists of names for people (aliases, choices), which keep their order.
    """
    products = ruleset.catalogue.products
    document: dict[str, object] = {
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
    if ruleset.accounts:
        document["accounts"] = [{"account": name, "segment": segment} for name, segment in sorted(ruleset.accounts.values())]
    return document if ruleset.policy is None else {**document, "policy": policy_document(ruleset.policy)}


def ruleset_hash(ruleset: Ruleset) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical document: equivalent documents have equal hashes."""
    document: Any = canonical_ruleset(ruleset)
    return keys.digest(document)


def _order(document: dict[str, object]) -> bytes:
    row: Any = document
    return keys.canonical_json(row)


Entry = dict[str, Any]

# the lists of a document, and the fields that identify a row
ROW_KEYS = {
    "products": ("sku",),
    "price_books": ("name",),
    "constraints": ("kind", "sku", "other", "attribute", "choice", "then_attribute"),
    "taxes": ("region", "category", "valid_from", "valid_until"),
    "rates": ("base", "currency", "on"),
    "accounts": ("account", "segment"),
}
HEAD_FIELDS = ("name", "version", "currency", "rounding", "header_discount")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `key` names the row, `field` the changed field; `old` and `new` are display texts, None if absent."""

    kind: Literal["added", "removed", "changed"]
    table: str  # "ruleset", "products", "price_books", "prices", "constraints", "taxes", "rates", "accounts", "policy"
    key: str
    field: str
    old: str | None
    new: str | None


def ruleset_changes(before: Ruleset, after: Ruleset) -> tuple[Change, ...]:
    """Return every difference in a fixed order; empty for equal rulesets."""
    old: Any = canonical_ruleset(before)
    new: Any = canonical_ruleset(after)
    found = list(_fields("ruleset", "", {name: old[name] for name in HEAD_FIELDS}, {name: new[name] for name in HEAD_FIELDS}))
    for table, names in ROW_KEYS.items():
        found += _rows(table, _keyed(old.get(table, []), names), _keyed(new.get(table, []), names))
        if table == "price_books":
            found += _rows("prices", _prices(old[table]), _prices(new[table]))
    found += _rows("policy", _policy_rules(old.get("policy")), _policy_rules(new.get("policy")))
    return tuple(found)


def _policy_rules(document: Entry | None) -> dict[str, Entry]:
    """Return a policy's rules as rows, each keyed by its condition, e.g. "discount over 10"."""
    if document is None:
        return {}
    found = {"head": {name: document[name] for name in ("name", "version", "currency")}}
    found["discount blocked over"] = {"percent": document["discount"]["blocked_over"]}
    for table, unit in (("discount", "percent"), ("total", "amount"), ("term", "months"), ("payment", "days")):
        for rule in document.get(table, {}).get("over", ()):
            found[f"{table} over {rule[unit]}"] = {name: value for name, value in rule.items() if name != unit}
    for table in ("margin", "quantity"):
        found |= {f"{table} {name}": rule for name, rule in document.get(table, {}).items()}
    return found | {table: document[table] for table in _WHOLE_TABLES if table in document}


_WHOLE_TABLES = ("segment", "price", "terms", "routing", "calendar", "roles")


def _keyed(rows: list[Entry], names: tuple[str, ...]) -> dict[str, Entry]:
    keyed: dict[str, Entry] = {}
    for row in rows:
        key = " ".join(str(row[name]) for name in names if row.get(name) not in (None, ""))
        while key in keyed:  # one product may have several rules of a kind, each with its own numbers
            key += " +"
        keyed[key] = {name: value for name, value in row.items() if name != "prices"}
    return keyed


def _prices(books: list[Entry]) -> dict[str, Entry]:
    """Return each book's prices as one row per product, so that the parts of a price stay together."""
    return {f"{book['name']} / {row['sku']}": {"price": price_words(row)} for book in books for row in book["prices"]}


def price_words(row: Mapping[str, Any]) -> str:
    """Return the display text of one entry of a price book, e.g. "range 1: 10, 50: 8"."""
    match row["kind"]:
        case "flat":
            said = str(row["price"])
        case "formula":
            inputs = ", ".join(f"{name} = {value}" for name, value in row["inputs"].items())
            said = f"{row['formula']}{f' with {inputs}' if inputs else ''}"
        case "percent":
            said = f"{row['percent']} % of {', '.join(row['of']) or 'everything'} ({row['basis']})"
        case mode:
            tiers = ", ".join(f"{tier['from']}: {tier['price']}" for tier in row["tiers"])
            said = f"{mode} {tiers}"
    extra = ", ".join(f"{each['attribute']} = {each['choice']}: +{each['amount']}" for each in row.get("surcharges", ()))
    return f"{said}; {extra}" if extra else said


def _rows(table: str, old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        if key not in new:
            yield Change("removed", table, key, "", _whole(old[key]), None)
        elif key not in old:
            yield Change("added", table, key, "", None, _whole(new[key]))
        else:
            yield from _fields(table, key, old[key], new[key])


def _fields(table: str, key: str, old: Entry, new: Entry) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change("changed", table, key, name, _shown(old.get(name)), _shown(new.get(name)))


def _whole(row: Entry) -> str:
    if set(row) == {"price"}:
        return str(row["price"])
    return ", ".join(f"{name} {_shown(value)}" for name, value in row.items() if value not in ([], None))


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def lint(ruleset: Ruleset) -> tuple[str, ...]:
    """Return every finding as one sentence, in a fixed order; empty without findings."""
    return (
        *(*_unpriced(ruleset), *_unsold_components(ruleset), *_below_cost(ruleset), *_unconvertible(ruleset)),
        *(*_unsold_segments(ruleset), *_above_price(ruleset)),
    )


def _unsold_segments(ruleset: Ruleset) -> Iterator[str]:
    sold = {fold(book.segment) for book in ruleset.books if book.segment is not None}
    for segment in sorted({segment for _, segment in ruleset.accounts.values() if fold(segment) not in sold}):
        yield f"there are customers of the segment {segment}, but no price book has it"


def _unpriced(ruleset: Ruleset) -> Iterator[str]:
    priced = {sku for book in ruleset.books for sku in book.prices}
    for sku, product in sorted(ruleset.catalogue.products.items()):
        if product.active and product.kind != "bundle" and sku not in priced:
            yield f"{sku} is on sale but has no price in any book"


def _unsold_components(ruleset: Ruleset) -> Iterator[str]:
    products = ruleset.catalogue.products
    for sku, product in sorted(products.items()):
        for component in product.components:
            if product.active and not products[component.sku].active:
                yield f"{sku} is on sale but holds {component.sku}, which is not"
        for choice in product.choices:
            for part in choice.of:
                if product.active and not products[part].active:
                    yield f"{sku} is on sale but offers {part} as {choice.name}, which is not"


def _below_cost(ruleset: Ruleset) -> Iterator[str]:
    for book in sorted(ruleset.books, key=lambda row: row.name):
        for sku, entry in sorted(book.prices.items()):
            lowest, cost = _lowest(entry), ruleset.catalogue.products[sku].cost
            if book.currency == ruleset.currency and lowest is not None and lowest < cost:
                yield f"{sku} is sold at {money.trimmed(lowest)} in {book.name}, below its cost of {money.trimmed(cost)}"


def _above_price(ruleset: Ruleset) -> Iterator[str]:
    for book in sorted(ruleset.books, key=lambda row: row.name):
        for sku, entry in sorted(book.prices.items()):
            lowest = _lowest(entry)
            if entry.floor is not None and lowest is not None and lowest < entry.floor:
                floor, price = money.trimmed(entry.floor), money.trimmed(lowest)
                yield f"the floor {floor} of {sku} in {book.name} is above its own price of {price} there"


def _lowest(entry: PriceEntry) -> Decimal | None:
    """Return the lowest unit price if the entry states one; None for other kinds of price."""
    if isinstance(entry.kind, Flat):
        return entry.kind.price
    if isinstance(entry.kind, Tiered) and entry.kind.kind != "block":
        return min(tier.price for tier in entry.kind.tiers)
    return None


def _unconvertible(ruleset: Ruleset) -> Iterator[str]:
    known = {(rate.base, rate.currency) for rate in ruleset.rates}
    for book in sorted(ruleset.books, key=lambda row: row.name):
        for currency in sorted({book.currency, *book.converts_to}):
            for base in sorted({book.currency, ruleset.currency} - {currency}):
                if (base, currency) not in known:
                    yield f"{book.name} serves {currency}, but there is no rate from {base}: nothing can be quoted in it"
