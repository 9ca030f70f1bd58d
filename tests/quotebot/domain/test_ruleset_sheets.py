"""Tests of the export to spreadsheets and the import back without a loss; every bad cell is named with its place."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotebot.domain.catalogue import sheets
from quotebot.domain.catalogue.reader import is_text
from quotebot.domain.catalogue.ruleset_sheets import EXPORTED, edited, next_version, read_rows, table_of, to_sheets
from quotebot.domain.catalogue.rulesets import (
    Ruleset,
    RulesetError,
    canonical_ruleset,
    parse_ruleset,
    parse_ruleset_json,
    renamed,
    ruleset_changes,
)
from tests.quotebot.domain.ruleset_parts import SAMPLE, book, document, product
from tests.quotebot.domain.test_rulesets import FULL

if TYPE_CHECKING:
    from quotebot.domain.catalogue.sheets import SheetProblem

HARD = ("=1+1", "+x", "-x", "@x", "'=x", "''", "'s-Hertogenbosch", " a ", '"a"', "a|b", "[a]", "a,b;c", 'say "x"', "=")
ALL = parse_ruleset(FULL)


def imported(texts: dict[str, str | bytes], base: Ruleset = SAMPLE, version: str = "2") -> Ruleset | list[str]:
    """Import CSV texts by table; the ruleset, or every problem in words."""
    problems: list[SheetProblem] = []
    rows = {
        table: read_rows(table, f"{table}.csv", text if isinstance(text, bytes) else text.encode(), problems)
        for table, text in texts.items()
    }
    if problems:
        return [str(problem) for problem in problems]
    done = edited(base, version, rows, problems)
    try:
        ruleset = parse_ruleset(done.document)
    except RulesetError as error:
        return [str(problem) for problem in done.with_those_of(error.problems)]
    return [str(problem) for problem in problems] or ruleset


@pytest.mark.parametrize("rules", [SAMPLE, ALL], ids=["sample", "full"])
def test_what_was_exported_as_csv_is_imported_as_the_same_ruleset_over_any_other(rules: Ruleset) -> None:
    texts = to_sheets(rules)
    assert tuple(texts) == EXPORTED
    for base in (SAMPLE, ALL):
        again = imported(dict(texts), base, rules.version)
        assert isinstance(again, Ruleset)
        head = {name: canonical_ruleset(base)[name] for name in ("name", "currency", "rounding", "header_discount")}
        assert canonical_ruleset(again) == {**canonical_ruleset(rules), **head}


@pytest.mark.parametrize("name", HARD)
def test_names_that_look_like_spreadsheet_formulas_survive_the_round_trip(name: str) -> None:
    rules = parse_ruleset(
        document(
            products=[product("a", name=name, aliases=[f"{name} 1", f"{name} 2"]), product("b")],
            price_books=[book({"a": 1, "b": 2}, name=name)],
        )
    )
    texts = to_sheets(rules)
    again = imported(dict(texts), rules, rules.version)
    assert isinstance(again, Ruleset)
    assert again.hash == rules.hash
    cells = [cell for text in texts.values() for row in csv.reader(text.splitlines()) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=8).filter(lambda text: is_text(text, 80)),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_texts_come_back_through_a_sheet(texts: list[str]) -> None:
    columns = ("one", "many")
    row = {"one": sheets.cell_of_text(texts[0]), "many": sheets.cell_of_texts(texts)}
    problems: list[SheetProblem] = []
    (read,) = sheets.read_sheet("x.csv", sheets.write_sheet(columns, [row]).encode(), columns, columns, problems)
    assert problems == []
    assert (sheets.text_of(read.cells["one"]), sheets.texts_of(read.cells["many"])) == (texts[0], texts)


PRICES = "book,sku,kind,from,price\n"
COMMON = "sku,name,family,unit,billing,cost\n"

BAD: dict[str, tuple[dict[str, str | bytes], list[str]]] = {
    "no number": (
        {"prices": PRICES + "list,pro,,,ten\n"},
        ["prices.csv, line 2, column price: 'ten' is no plain number; write e.g. 10 or 10.50, without any sign"],
    ),
    "money sign": (
        {"costs": "sku,cost\npro,$2\n"},
        ["costs.csv, line 2, column cost: '$2' is no plain number; write e.g. 10 or 10.50, without any sign"],
    ),
    "below zero": (
        {"costs": "sku,cost\npro,-2\n"},
        ["costs.csv, line 2, column cost: '-2' is no plain number; write e.g. 10 or 10.50, without any sign"],
    ),
    "decimal comma between commas": (
        {"costs": 'sku,cost\npro,"2,5"\n'},
        ["costs.csv, line 2, column cost: '2,5' has a comma, and so has the file between its columns; write 2.5 with "],
    ),
    "comma or group": (
        {"costs": "sku;cost\npro;1,234\n"},
        ["costs.csv, line 2, column cost: '1,234' can mean 1.234 or 1234; write 1234, or 1.2340"],
    ),
    "point or group": (
        {"costs": "sku\tcost\npro\t1.234\n"},
        ["costs.csv, line 2, column cost: '1.234' can mean 1.234 or 1234; write 1234, or 1.2340"],
    ),
    "comma or group after a zero": (
        {"costs": "sku;cost\npro;01,234\n"},
        ["costs.csv, line 2, column cost: '01,234' can mean 1.234 or 1234; write 1234, or 1.2340"],
    ),
    "unknown column": (
        {"costs": "sku,costs\npro,2\n"},
        [
            "costs.csv, line 1: unknown column 'costs'; did you mean cost? known are sku, cost",
            "costs.csv, line 1: the column cost is missing; add it; known are sku, cost",
        ],
    ),
    "column twice": ({"costs": "sku,cost,cost\n"}, ["costs.csv, line 1, column cost: the column is there twice; keep one"]),
    "unknown product": (
        {"costs": "sku,cost\nprox,2\n"},
        ["costs.csv, line 2, column sku: 'prox' is not in the catalogue; name a product that is"],
    ),
    "unknown book": (
        {"prices": PRICES + "lst,pro,,,2\n"},
        ["prices.csv, line 2, column book: there is no price book 'lst'; known are list"],
    ),
    "twice": (
        {"rates": "base,currency,rate,on\nUSD,EUR,0.9,2026-01-02\n\nUSD,EUR,0.8,2026-01-02\n"},
        ["rates.csv, line 4: 'USD EUR 2026-01-02' is on line 2 already; keep one of the two"],
    ),
    "tiers out of range, two lines": (
        {"prices": PRICES + "list,pro,range,1,10\nlist,pro,range,50,11\nlist,sso,,,2000000000\n"},
        [
            "prices.csv, line 3, column price: a tier must not cost more than the first one, the base (it says '11'); ",
            "prices.csv, line 4, column price: '2000000000' must be between 0 and 1,000,000,000 with at most 6 decimals; ",
        ],
    ),
    "tier of another kind": (
        {"prices": PRICES + "list,pro,range,1,10\nlist,pro,slab,50,9\n"},
        ["prices.csv, line 3, column kind: it differs from line 2 (it says 'slab'); say it once, on the first tier"],
    ),
    "day of a country": (
        {"rates": "base,currency,rate,on\nUSD,EUR,0.9,02.01.2026\n"},
        ["rates.csv, line 2, column on: '02.01.2026' must be a date; write e.g. 2026-11-21"],
    ),
    "bad sku and flag": (
        {"products": COMMON.replace("cost", "cost,active") + "Pro!,Pro,saas,seat,recurring,1,maybe\n"},
        [
            "products.csv, line 2, column sku: 'Pro!' must be lower-case letters, digits, - or _, at most 40; e.g. pro-plus",
            "products.csv, line 2, column active: 'maybe' must be true or false; e.g. true",
        ],
    ),
    "bad component": (
        {"products": COMMON.replace("cost", "cost,kind,components") + "set,Set,saas,,,,bundle,pro\n"},
        ["products.csv, line 2, column components: 'pro' is no quantity with a sku; write e.g. 10 basic | 1 care"],
    ),
    "bad JSON": (
        {"products": COMMON.replace("cost", "cost,kind,attributes") + "box,Box,saas,seat,recurring,1,configurable,gb\n"},
        ["products.csv, line 2, column attributes: it must be a list in JSON (it says 'gb'); e.g. "],
    ),
    "too many cells": (
        {"costs": "sku,cost\npro,2,5\n"},
        ["costs.csv, line 2: 3 cells under 2 columns, separated by commas; put a value with a separator in it in quotes"],
    ),
    "open quote": ({"costs": 'sku,cost\npro,"2\n'}, ["costs.csv, line 2: the row cannot be read: "]),
    "another encoding": (
        {"costs": "sku,cost\npro,2\n".encode("utf-16")},
        ['costs.csv: the file is UTF-16, or no text at all; save it as "CSV UTF-8"'],
    ),
    "another code page": (
        {"costs": "sku,cost\npro,2\ncafé,3\n".encode("latin-1")},
        ['costs.csv, line 3: the text is not UTF-8; save the file as "CSV UTF-8"'],
    ),
    "empty": ({"costs": b"\xef\xbb\xbf\n"}, ["costs.csv: the file is empty; write a header and rows"]),
    "too large": (
        {"costs": b"x" * (sheets.BYTES_MAX + 1)},
        [f"costs.csv: the file has {sheets.BYTES_MAX + 1:,} bytes; at most {sheets.BYTES_MAX:,} are read; split it"],
    ),
    "too many rows": (
        {"costs": "sku,cost\n" + "pro,2\n" * (sheets.ROWS_MAX + 1)},
        [f"costs.csv, line {sheets.ROWS_MAX + 2}: more than {sheets.ROWS_MAX:,} rows; split the file"],
    ),
    "a book without prices": (
        {"books": "name,currency,priority\nlist,USD,0\nnew,EUR,0\n"},
        ["books.csv, line 3, column prices: [] must be a list of 1 to 20,000 tables; write at least one of prices"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_every_bad_cell_is_named_by_file_line_column_value_and_what_was_expected(case: str) -> None:
    texts, expected = BAD[case]
    found = imported(texts)
    assert isinstance(found, list)
    of_files = [line for line in found if not line.startswith("ruleset")]  # what the rest of the ruleset lacks by it comes on top
    assert [line[: len(wanted)] for line, wanted in zip(of_files, expected, strict=True)] == expected


GOOD: dict[str, bytes] = {
    "commas": b"sku,cost\npro,2.5\n",
    "semicolons and a decimal comma": b"sku;cost\r\npro;2,5\r\n",
    "tabs, a byte order mark, spaces": "\ufeffSKU \t Cost\n pro \t 2,5 \n\n".encode(),
    "the separator on top, empty columns": b"sep=;\nsku;cost;;\npro;2,50;;\n",
    "quotes": b'"sku","cost"\n"pro","2.5"\n',
    "old line ends": b"sku,cost\rpro,2.5\r",
}


@pytest.mark.parametrize("case", GOOD)
def test_a_file_is_read_however_a_spreadsheet_writes_it(case: str) -> None:
    rules = imported({"costs": GOOD[case]})
    assert isinstance(rules, Ruleset)
    assert str(rules.catalogue.products["pro"].cost) in ("2.5", "2.50")
    changes = [(change.table, change.key, change.field, change.old, change.new) for change in ruleset_changes(SAMPLE, rules)]
    assert changes == [("ruleset", "", "version", "1", "2"), ("products", "pro", "cost", "2", rules_text(rules))]


def rules_text(rules: Ruleset) -> str:
    document: Any = canonical_ruleset(rules)
    return next(str(row["cost"]) for row in document["products"] if row["sku"] == "pro")


def test_prices_replace_those_of_the_books_they_name_and_of_no_other() -> None:
    rules = imported({"prices": "book,sku,from,price\nlist,a,10,9\nlist,a,1,10\nlist,box,,7\n"}, ALL)
    assert isinstance(rules, Ruleset)
    before, after = ({each.name: each for each in found.books} for found in (ALL, rules))
    assert {name: each for name, each in after.items() if name != "list"} == {
        name: each for name, each in before.items() if name != "list"
    }
    assert {sku: entry.document() for sku, entry in after["list"].prices.items()} == {
        "a": {"sku": "a", "kind": "range", "tiers": [{"from": 1, "price": "10"}, {"from": 10, "price": "9"}]},
        "box": {"sku": "box", "kind": "flat", "price": "7"},
    }


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("prices.csv", "prices"),
        ("Prices-2027.CSV", "prices"),
        ("dir/taxes_de.csv", "taxes"),
        ("pricesheet.csv", None),
        ("x.csv", None),
    ],
)
def test_a_file_says_by_its_name_which_table_it_holds(name: str, table: str | None) -> None:
    assert table_of(name) == table


@pytest.mark.parametrize(
    ("version", "following"),
    [("7", "8"), ("9", "10"), ("2026-11", "2026-12"), ("v09", "v10"), ("spring", "spring-2"), ("", "-2"), ("1", "3")],
)
def test_the_next_version_counts_on_past_those_that_are_taken(version: str, following: str) -> None:
    assert next_version(version, {"2"}.__contains__) == following


def test_json_is_read_with_exact_numbers_and_every_key_once() -> None:
    assert parse_ruleset_json('{"name": "t"}'.replace("}", _rest())).catalogue.products["a"].cost == parse_cost("0.1")
    for text in ('{"name": 1, "name": 2}', "{", "[" * 100_000, '{"name": NaN}'):
        with pytest.raises(RulesetError, match="not valid JSON"):
            parse_ruleset_json(text)


def _rest() -> str:
    return (
        ', "version": "1", "currency": "USD", "products": [{"sku": "a", "name": "A", "family": "f", "unit": "u", '
        '"billing": "recurring", "cost": 0.1}], '
        '"price_books": [{"name": "l", "currency": "USD", "prices": [{"sku": "a", "price": 1}]}]}'
    )


def parse_cost(text: str) -> Any:
    return parse_ruleset(document(products=[product("a", cost=text)])).catalogue.products["a"].cost


def test_a_difference_names_what_came_what_went_and_what_changed_old_and_new() -> None:
    before = parse_ruleset(document(products=[product("a"), product("b")], taxes=[{"region": "DE", "percent": 19}]))
    after = parse_ruleset(document(products=[product("a", cost=2), product("c")], version="2"))
    told = [
        (change.kind, change.table, change.key, change.field, change.old, change.new)
        for change in ruleset_changes(before, after)
        if change.table != "products" or change.field
    ]
    assert told == [
        ("changed", "ruleset", "", "version", "1", "2"),
        ("changed", "products", "a", "cost", "1", "2"),
        ("removed", "prices", "list / b", "", "20", None),
        ("added", "prices", "list / c", "", None, "20"),
        ("removed", "taxes", "DE", "", "region DE, percent 19, estimated false", None),
    ]
    assert ruleset_changes(ALL, ALL) == ()
    assert ruleset_changes(ALL, renamed(ALL, "9")) == (ruleset_changes(ALL, renamed(ALL, "9"))[0],)
