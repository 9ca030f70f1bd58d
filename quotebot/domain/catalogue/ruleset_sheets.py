"""Import and export of a ruleset's tables as CSV files: edits a base ruleset's document, or writes one out. Pure.

A file replaces its table: `products`, `books`, `constraints`, `taxes`, `rates`, `accounts` whole, `prices` those of the books it
names, `costs` those of the products it names. All other tables keep the values of the base.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue import sheets
from quotebot.domain.catalogue.rulesets import Ruleset, canonical_ruleset
from quotebot.domain.catalogue.sheets import SheetProblem, SheetRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quotebot.domain.catalogue.reader import RulesetProblem

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "products": (
        *("sku", "name", "family", "kind", "unit", "billing", "cost", "active", "aliases", "tax_category"),
        *("attributes", "components", "choices", "bundle_discount_percent"),
    ),
    "books": ("name", "currency", "segment", "region", "valid_from", "valid_until", "priority", "converts_to"),
    "prices": ("book", "sku", "kind", "from", "price", "formula", "inputs", "percent", "of", "basis", "surcharges", "floor"),
    "costs": ("sku", "cost"),
    "constraints": ("kind", "sku", "other", "quantity", "attribute", "choice", "then_attribute", "then_choices", "message"),
    "taxes": ("region", "category", "percent", "estimated", "valid_from", "valid_until"),
    "rates": ("base", "currency", "rate", "on"),
    "accounts": ("account", "segment"),
}
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "products": ("sku", "name", "family", "unit", "billing", "cost"),
    "books": ("name", "currency"),
    "prices": ("book", "sku"),
    "costs": ("sku", "cost"),
    "constraints": ("kind", "sku"),
    "taxes": ("region", "percent"),
    "rates": ("base", "currency", "rate", "on"),
    "accounts": ("account", "segment"),
}
ONCE: Final[Mapping[str, tuple[str, ...]]] = {  # the columns that must be unique in a table
    "products": ("sku",),
    "books": ("name",),
    "prices": ("book", "sku", "from"),
    "costs": ("sku",),
    "constraints": (),
    "taxes": ("region", "category", "valid_from", "valid_until"),
    "rates": ("base", "currency", "on"),
    "accounts": ("account", "segment"),
}
EXPORTED: Final = (
    "products",
    "books",
    "prices",
    "constraints",
    "taxes",
    "rates",
    "accounts",
)  # together they hold everything but the head
NUMBERS: Final = frozenset({"cost", "price", "percent", "rate", "quantity", "from", "priority", "bundle_discount_percent", "floor"})
FLAGS: Final = frozenset({"active", "estimated"})
LISTS: Final = frozenset({"aliases", "converts_to", "then_choices", "of"})
JSON: Final = frozenset({"attributes", "choices", "surcharges"})
TIERED: Final = frozenset({"range", "slab", "block"})
COMPONENT: Final = re.compile(r"([0-9]+) +([^ ]+)")

Entry = dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(slots=True)
class Edited:
    """Document under construction, with the source row and column of each part."""

    document: Entry
    problems: list[SheetProblem]
    places: dict[Path, tuple[SheetRow, str | None]] = field(default_factory=dict)

    def with_those_of(self, problems: Sequence[RulesetProblem]) -> list[SheetProblem]:
        """Return all problems, document problems mapped to their rows; one per cell, because further ones follow from it."""
        found = {(each.file, each.line, each.column or each.message): each for each in reversed(self.problems)}
        for problem in map(self.explained, problems):
            found.setdefault((problem.file, problem.line, problem.column or problem.message), problem)
        return list(found.values())

    def explained(self, problem: RulesetProblem) -> SheetProblem:
        """Convert a problem of the document to one of the source file."""
        for length in range(len(problem.path), 0, -1):
            place = self.places.get(problem.path[:length])
            if place is not None:
                row, column = place
                below = problem.path[length] if length < len(problem.path) else None
                named = column or (below if isinstance(below, str) else None)
                return row.problem(named, problem.message, problem.suggestion)
        return SheetProblem(f"ruleset, {problem.place or 'as a whole'}", None, None, None, problem.message, problem.suggestion)


def table_of(name: str) -> str | None:
    """Return the table that a file's name denotes, e.g. "prices-2027.csv"; None for other names."""
    stem = name.rpartition("/")[2].casefold()
    return next((table for table in COLUMNS if re.match(rf"{table}(?![a-z])", stem)), None)


def read_rows(table: str, file: str, data: bytes, problems: list[SheetProblem]) -> tuple[SheetRow, ...]:
    """Return the rows of one file of a table."""
    return sheets.read_sheet(file, data, COLUMNS[table], NEEDED[table], problems)


def edited(base: Ruleset, version: str, tables: Mapping[str, Sequence[SheetRow]], problems: list[SheetProblem]) -> Edited:
    """Return the document of `base` with these tables replaced, under another version."""
    document: Any = copy.deepcopy(canonical_ruleset(base))
    done = Edited({**document, "version": version}, problems)
    for table, apply in _APPLY.items():
        if table in tables:
            apply(done, _single(table, tables[table], problems))
    return done


def next_version(version: str, taken: Callable[[str], bool]) -> str:
    """Return the next free version: the last number is incremented ("7" to "8", "2026-11" to "2026-12") or a number is appended."""
    head, number = re.fullmatch(r"(.*?)([0-9]{0,9})", version, re.DOTALL).groups()  # type: ignore[union-attr] # matches any text
    if not number:
        head, number = f"{version}-", "1"
    while True:
        number = str(int(number) + 1).zfill(len(number))
        if not taken(f"{head}{number}"):
            return f"{head}{number}"


def to_sheets(ruleset: Ruleset) -> dict[str, str]:
    """Return the CSV text of every exported table."""
    document: Any = canonical_ruleset(ruleset)
    rows = {
        "products": document["products"],
        "books": [{name: value for name, value in book.items() if name != "prices"} for book in document["price_books"]],
        "prices": [row for book in document["price_books"] for entry in book["prices"] for row in _price_rows(book, entry)],
        **{table: document.get(table, []) for table in ("constraints", "taxes", "rates", "accounts")},
    }
    cells = {table: [{name: _cell(name, value) for name, value in row.items()} for row in rows[table]] for table in EXPORTED}
    return {table: sheets.write_sheet(COLUMNS[table], cells[table]) for table in EXPORTED}


# ------------------------------------------------------------------------------------------------------------ reading


def _single(table: str, rows: Sequence[SheetRow], problems: list[SheetProblem]) -> list[SheetRow]:
    """Return the rows without duplicate keys; each duplicate is a problem that names both rows."""
    names = ONCE[table]
    if not names:
        return list(rows)
    kept: dict[tuple[str, ...], SheetRow] = {}
    for row in rows:
        key = tuple(row.cells.get(name, "") for name in names)
        first = kept.setdefault(key, row)
        if first is not row:
            where = f"line {first.line}" if first.file == row.file else f"{first.file}, line {first.line}"
            said = " ".join(part for part in key if part)
            problems.append(row.problem(None, f"{said!r} is on {where} already", "keep one of the two"))
    return list(kept.values())


def _entry(row: SheetRow, problems: list[SheetProblem], *, without: Sequence[str] = ()) -> Entry:
    return {name: _value(row, name, problems) for name in row.cells if name not in without}


def _value(row: SheetRow, name: str, problems: list[SheetProblem]) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(row, name, problems)
    if name in FLAGS:
        return sheets.flag(row, name)
    return sheets.texts_of(row.cells[name]) if name in LISTS else sheets.text_of(row.cells[name])


def _json(row: SheetRow, name: str, problems: list[SheetProblem]) -> list[Entry]:
    try:
        value = json.loads(row.cells[name], parse_float=Decimal)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        return value
    example = {
        "attributes": '[{"name": "gb", "choices": ["10", "100"], "default": "10"}]',
        "choices": '[{"name": "support", "of": ["basic", "premium"], "default": "basic"}]',
        "surcharges": '[{"attribute": "gb", "choice": "100", "amount": "5"}]',
    }
    problems.append(row.problem(name, "it must be a list in JSON", f"e.g. {example[name]}"))
    return []


def _components(row: SheetRow, name: str, problems: list[SheetProblem]) -> list[Entry]:
    found = []
    for part in sheets.texts_of(row.cells[name]):
        match = COMPONENT.fullmatch(part)
        if match is None:
            problems.append(row.problem(name, f"{part!r} is no quantity with a sku", "write e.g. 10 basic | 1 care"))
        else:
            found.append({"sku": match[2], "quantity": match[1]})
    return found


def _inputs(row: SheetRow, name: str, problems: list[SheetProblem]) -> Entry:
    found: Entry = {}
    for part in sheets.texts_of(row.cells[name]):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or key in found:
            problems.append(row.problem(name, f"{part!r} is no name with a number of its own", "write e.g. base=2 | step=0.5"))
        found[key] = value
    return found


_SPECIAL: Final[Mapping[str, Callable[[SheetRow, str, list[SheetProblem]], Any]]] = {
    **dict.fromkeys(NUMBERS, sheets.number),
    **dict.fromkeys(JSON, _json),
    "components": _components,
    "inputs": _inputs,
}


def _put_table(key: str) -> Callable[[Edited, list[SheetRow]], None]:
    def put(done: Edited, rows: list[SheetRow]) -> None:
        done.document[key] = [_entry(row, done.problems) for row in rows]
        done.places |= {(key, index): (row, None) for index, row in enumerate(rows)}

    return put


def _put_costs(done: Edited, rows: list[SheetRow]) -> None:
    index_of = {product.get("sku"): index for index, product in enumerate(done.document["products"])}
    for row in rows:
        index = index_of.get(row.cells.get("sku"))
        if index is None:
            done.problems.append(row.problem("sku", f"{row.cells.get('sku')!r} is not in the catalogue", "name a product that is"))
        elif "cost" not in row.cells:
            done.problems.append(row.problem("cost", "the cost is missing", "write e.g. 2.50"))
        else:
            done.document["products"][index]["cost"] = _value(row, "cost", done.problems)
            done.places[("products", index, "cost")] = (row, "cost")


def _put_books(done: Edited, rows: list[SheetRow]) -> None:
    prices = {book["name"]: book["prices"] for book in done.document["price_books"]}
    done.document["price_books"] = [
        {**_entry(row, done.problems), "prices": prices.get(sheets.text_of(row.cells.get("name", "")), [])} for row in rows
    ]
    done.places |= {("price_books", index): (row, None) for index, row in enumerate(rows)}


def _put_prices(done: Edited, rows: list[SheetRow]) -> None:
    index_of = {book.get("name"): index for index, book in enumerate(done.document["price_books"])}
    groups: dict[tuple[int, str], list[SheetRow]] = {}
    for row in rows:
        index = index_of.get(sheets.text_of(row.cells.get("book", "")))
        if index is None:
            known = ", ".join(str(name) for name in index_of)
            done.problems.append(row.problem("book", f"there is no price book {row.cells.get('book', '')!r}", f"known are {known}"))
        else:
            groups.setdefault((index, row.cells.get("sku", "")), []).append(row)
    for index in {index for index, _ in groups}:
        done.document["price_books"][index]["prices"] = []
    for (index, _), group in groups.items():
        entries = done.document["price_books"][index]["prices"]
        path = ("price_books", index, "prices", len(entries))
        done.places[path] = (group[0], None)
        entries.append(_price(done, group, path))


def _price(done: Edited, group: list[SheetRow], path: Path) -> Entry:
    """Return one product's price from one row, or from a row per tier, of which the first holds the other fields."""
    first = group[0]
    if len(group) == 1 and "from" not in first.cells and first.cells.get("kind") not in TIERED:
        return _entry(first, done.problems, without=("book",))
    tiers = sorted(
        ((_value(row, "from", done.problems) if "from" in row.cells else "0", row) for row in group),
        key=lambda tier: (Decimal(tier[0]), tier[1].line),
    )
    for number, (_, row) in enumerate(tiers):
        done.places[(*path, "tiers", number)] = (row, None)
        for name in ("kind", "surcharges", "floor"):
            if row.cells.get(name, first.cells.get(name)) != first.cells.get(name):
                done.problems.append(row.problem(name, f"it differs from line {first.line}", "say it once, on the first tier"))
    prices = [{"price": _value(row, "price", done.problems)} if "price" in row.cells else {} for _, row in tiers]
    rest = _entry(first, done.problems, without=("book", "from", "price"))
    return {**rest, "tiers": [{"from": start, **price} for (start, _), price in zip(tiers, prices, strict=True)]}


_APPLY: Final[Mapping[str, Callable[[Edited, list[SheetRow]], None]]] = {
    "products": _put_table("products"),
    "costs": _put_costs,
    "books": _put_books,
    "prices": _put_prices,
    **{table: _put_table(table) for table in ("constraints", "taxes", "rates", "accounts")},
}


# ------------------------------------------------------------------------------------------------------------ writing


def _price_rows(book: Entry, entry: Entry) -> list[Entry]:
    tiers = entry.get("tiers")
    if tiers is None:
        return [{"book": book["name"], **entry}]
    rest = {name: value for name, value in entry.items() if name != "tiers"}
    return [{"book": book["name"], **(rest if number == 0 else {"sku": entry["sku"]}), **tier} for number, tier in enumerate(tiers)]


def _cell(name: str, value: Any) -> str:
    if name in LISTS:
        return sheets.cell_of_texts(value)
    if name == "components":
        return " | ".join(f"{row['quantity']} {row['sku']}" for row in value)
    if name == "inputs":
        return " | ".join(f"{key}={amount}" for key, amount in value.items())
    if name in JSON:
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return sheets.cell_of_text(str(value))
