"""Tests of the stand-in's SOQL: its grammar, its answers, and its refusals in Salesforce's words."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.sandbox.salesforce import soql
from quotebot.sandbox.salesforce.org import Org
from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.salesforce.soql import stretch
from quotebot.sandbox.salesforce.soql_grammar import (
    COMPARISONS,
    Comparison,
    Condition,
    Count,
    Fields,
    Junction,
    Membership,
    Moment,
    Not,
    Order,
    Path,
    Query,
    Selected,
    Value,
    parse,
)

EMPTY = Org()
ESCAPED = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\b": r"\b", "\f": r"\f"}
NAMES = st.sampled_from(["Id", "Name", "Quotebot_Key__c", "Count", "Fields", "Today", "x_1"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: Path(tuple(names)))
MOMENTS = st.sampled_from(
    ["2026-01-31", "2026-01-31T23:59:59Z", "2026-01-31T23:59:59.5+02:00", "TODAY", "THIS_YEAR", "LAST_N_DAYS:7"]
)
VALUES = st.one_of(st.none(), st.booleans(), st.text(), st.decimals(-(10**9), 10**9, places=3), MOMENTS.map(Moment))
LEAVES = st.one_of(
    st.builds(Comparison, PATHS, st.sampled_from([sign for sign in COMPARISONS if sign != "LIKE"]), VALUES),
    st.builds(Comparison, PATHS, st.just("LIKE"), st.text()),
    st.builds(Membership, PATHS, st.lists(VALUES, min_size=1, max_size=3).map(tuple), st.booleans()),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Junction, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
ORDERS = st.lists(st.builds(Order, PATHS, st.booleans(), st.sampled_from(["", "FIRST", "LAST"])), max_size=2).map(tuple)
NUMBERS = st.none() | st.integers(0, 9999)


def queries(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Query]:
    selected = st.lists(st.one_of(PATHS, st.sampled_from(["ALL", "CUSTOM"]).map(Fields), *parts), min_size=1, max_size=3)
    columns = st.just((Count(),)) | selected.map(tuple)
    return st.builds(Query, columns, NAMES, st.none() | CONDITIONS, ORDERS, NUMBERS, NUMBERS)


def write(query: Query) -> str:
    """Return a query as text; `parse` reads it back to the same tree."""
    parts = ["SELECT", ", ".join(map(written_selected, query.selected)), "FROM", query.sobject]
    if query.where is not None:
        parts.append(f"WHERE {written_condition(query.where)}")
    if query.order:
        parts.append(f"ORDER BY {', '.join(map(written_order, query.order))}")
    if query.limit is not None:
        parts.append(f"LIMIT {query.limit}")
    if query.offset is not None:
        parts.append(f"OFFSET {query.offset}")
    return " ".join(parts)


def written_selected(selected: Selected) -> str:
    if isinstance(selected, Path):
        return ".".join(selected.names)
    if isinstance(selected, Fields):
        return f"FIELDS({selected.group})"
    return "COUNT()" if isinstance(selected, Count) else f"({write(selected)})"


def written_condition(condition: Condition) -> str:
    if isinstance(condition, Comparison):
        return f"{'.'.join(condition.path.names)} {condition.operator} {written_value(condition.value)}"
    if isinstance(condition, Membership):
        values = ", ".join(map(written_value, condition.values))
        return f"{'.'.join(condition.path.names)} {'NOT ' * condition.negated}IN ({values})"
    if isinstance(condition, Not):
        return f"NOT {written_part(condition.condition)}"
    return f" {condition.word} ".join(map(written_part, condition.conditions))


def written_part(condition: Condition) -> str:
    written = written_condition(condition)
    return f"({written})" if isinstance(condition, Junction) else written


def written_value(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return f"'{''.join(ESCAPED.get(character, character) for character in value)}'"
    return value.text if isinstance(value, Moment) else f"{value:f}"


def written_order(order: Order) -> str:
    return ".".join(order.path.names) + " DESC" * order.descending + (f" NULLS {order.nulls}" if order.nulls else "")


@given(queries(queries()))
def test_what_is_written_is_read_back_as_it_was(query: Query) -> None:
    assert parse(write(query)) == query


@given(
    st.text()
    | st.lists(st.sampled_from(["SELECT", "Id", "FROM", "Quote", "WHERE", "(", ")", "'", "AND", "=", "1", "\\"])).map(" ".join)
)
def test_whatever_is_asked_is_read_or_refused(text: str) -> None:
    try:
        soql.query(EMPTY, text)
    except SalesforceRefusalError as refusal:
        code = refusal.code
    else:
        code = ""
    assert code in {"", "MALFORMED_QUERY", "INVALID_TYPE", "INVALID_FIELD"}


@pytest.fixture(scope="module")
def org() -> Org:
    """Return an org with three deals of two accounts; the first has a quote with two lines."""
    org = Org(lambda: dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC).timestamp())
    acme, globex = (org.create(SCHEMA["account"], {"Name": name}) for name in ("Acme", "Globex 100%"))
    for name, account, amount, close in (
        ("one", acme, 10, "2026-11-18"),
        ("two", acme, None, "2026-12-01"),
        ("three", globex, 30, "2027-01-01"),
    ):
        fields = {"Name": name, "AccountId": account, "Amount": amount, "CloseDate": close, "StageName": "Prospecting"}
        org.create(SCHEMA["opportunity"], fields)
    org.create(SCHEMA["opportunity"], {"Name": "lone", "CloseDate": "2026-01-01", "StageName": "Closed Lost"})
    quote = org.create(SCHEMA["quote"], {"Name": "Q", "Description": "long"})
    for quantity in (1, 2):
        org.create(SCHEMA["quotelineitem"], {"QuoteId": quote, "Quantity": quantity, "UnitPrice": 5})
    return org


@pytest.mark.parametrize(
    ("rest", "names"),
    [
        ("WHERE Amount > 5 OR CloseDate = 2026-12-01", "one two three"),
        ("WHERE NOT Amount = 10", "two three lone"),
        ("WHERE NOT (Amount = 10 OR Amount = 30)", "two lone"),
        ("WHERE Amount NOT IN (10, NULL)", "three"),
        ("WHERE Name LIKE 'T%' AND (Amount = null OR Amount >= 30)", "two three"),
        ("WHERE Name LIKE 't_o'", "two"),
        ("WHERE Account.Name = 'acme'", "one two"),
        ("WHERE Account.Name = null", "lone"),
        ("WHERE Account.Name LIKE '%100\\%'", "three"),
        ("WHERE Account.Name LIKE 'Acm\\_' OR Account.Name LIKE '\\%'", ""),
        ("WHERE CloseDate = TODAY", "one"),
        ("WHERE CloseDate > TODAY", "two three"),
        ("WHERE CloseDate = NEXT_MONTH", "two"),
        ("WHERE CloseDate = THIS_YEAR", "one two lone"),
        ("WHERE CloseDate < LAST_N_DAYS:10", "lone"),
        ("WHERE CreatedDate >= 2026-11-18T13:00:00+01:00", "one two three lone"),
        ("WHERE CreatedDate > 2026-11-18T12:00:00Z", ""),
        ("WHERE IsDeleted = false ORDER BY Amount DESC NULLS LAST, Name", "three one lone two"),
        ("ORDER BY Amount, Name DESC", "two lone one three"),
        ("ORDER BY Account.Name DESC NULLS LAST, Name LIMIT 2", "three one"),
        ("ORDER BY Name LIMIT 2 OFFSET 1", "one three"),
    ],
)
def test_a_query_finds_what_it_asks_for(org: Org, rest: str, names: str) -> None:
    _, records = soql.query(org, f"SELECT Name FROM Opportunity {rest}")  # noqa: S608 -- the queries are written above
    assert " ".join(str(record["Name"]) for record in records) == names


def test_parents_and_children_are_records_within_records(org: Org) -> None:
    _, (one, *_, lone) = soql.query(org, "select name, account.name, Account.Owner.Email from opportunity")
    owner = {"attributes": {"type": "User"}, "Email": "integration@quotebot-sandbox.example"}
    assert one == {"Name": "one", "Account": {"attributes": {"type": "Account"}, "Name": "Acme", "Owner": owner}}
    assert lone == {"Name": "lone", "Account": None}
    _, (quote,) = soql.query(org, "SELECT Id, (SELECT Quantity FROM QuoteLineItems WHERE Quantity > 1) FROM Quote")
    line = {"attributes": {"type": "QuoteLineItem"}, "Quantity": Decimal("2.00")}
    assert quote["QuoteLineItems"] == {"totalSize": 1, "done": True, "records": [line]}


def test_fields_stand_for_all_of_a_kind(org: Org) -> None:
    _, records = soql.query(org, "SELECT FIELDS(CUSTOM) FROM Account LIMIT 1")
    assert set(records[0]) == {"Erp_Number__c", "Quotebot_Key__c"}


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            "SELECT Id FROM Nonsense",
            "INVALID_TYPE",
            "\n               ^\nERROR at Row:1:Column:16\nsObject type 'Nonsense' is not supported.",
        ),
        (
            "SELECT Id,\nColour FROM Quote",
            "INVALID_FIELD",
            "\n^\nERROR at Row:2:Column:1\nNo such column 'Colour' on entity 'Quote'.",
        ),
        ("SELECT Owner.Colour FROM Quote", "INVALID_FIELD", "on entity 'User'"),
        ("SELECT Boss.Name FROM Quote", "INVALID_FIELD", "Didn't understand relationship 'Boss' in field path"),
        ("SELECT (SELECT Id FROM Pages) FROM Quote", "INVALID_TYPE", "Didn't understand relationship 'Pages' in FROM"),
        ("SELECT Id FROM Quote WHERE Name = 1", "INVALID_FIELD", "must be of type string and should be enclosed in quotes"),
        ("SELECT Id FROM Quote WHERE Tax = '1'", "INVALID_FIELD", "must be of type currency and should not be enclosed in quotes"),
        ("SELECT Id FROM Quote WHERE Description = 'x'", "INVALID_FIELD", "can not be filtered"),
        ("SELECT Id FROM Quote WHERE ExpirationDate = 2026-02-31", "MALFORMED_QUERY", "invalid date"),
        ("SELECT Id FROM Quote WHERE Name = 'a' AND Name = 'b' OR Name = 'c'", "MALFORMED_QUERY", "unexpected token: 'OR'"),
        ("SELECT Id FROM Quote WHERE Name IN ()", "MALFORMED_QUERY", "unexpected token: ')'"),
        ("SELECT Id FROM Quote WHERE Name = 'open", "MALFORMED_QUERY", "no viable alternative at character '''"),
        ("SELECT FIELDS(ALL) FROM Quote", "MALFORMED_QUERY", "LIMIT of at most 200"),
        ("SELECT COUNT(), Id FROM Quote", "MALFORMED_QUERY", "COUNT()"),
        ("SELECT Id FROM Quote OFFSET 2001", "NUMBER_OUTSIDE_VALID_RANGE", "Maximum SOQL offset"),
        ("SELECT Id FROM ContentDocumentLink", "MALFORMED_QUERY", "Implementation restriction"),
        ("SELECT Id FROM Quote WHERE " + "(" * 60 + "Name = 'a'" + ")" * 60, "MALFORMED_QUERY", "nested too deeply"),
        ("SELECT A.B.C.D.E.F.G FROM Quote", "MALFORMED_QUERY", "at most 5 parents"),
    ],
)
def test_a_query_is_refused_in_the_words_of_salesforce(org: Org, text: str, code: str, words: str) -> None:
    with pytest.raises(SalesforceRefusalError) as refusal:
        soql.query(org, text)
    assert (refusal.value.status, refusal.value.code) == (400, code)
    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("literal", "first", "last"),
    [
        ("YESTERDAY", "2026-11-17", "2026-11-17"),
        ("TOMORROW", "2026-11-19", "2026-11-19"),
        ("THIS_WEEK", "2026-11-15", "2026-11-21"),
        ("LAST_WEEK", "2026-11-08", "2026-11-14"),
        ("LAST_MONTH", "2026-10-01", "2026-10-31"),
        ("NEXT_QUARTER", "2027-01-01", "2027-03-31"),
        ("LAST_YEAR", "2025-01-01", "2025-12-31"),
        ("LAST_90_DAYS", "2026-08-20", "2026-11-18"),
        ("NEXT_N_DAYS:2", "2026-11-19", "2026-11-20"),
        ("LAST_N_WEEKS:2", "2026-11-01", "2026-11-14"),
        ("NEXT_N_MONTHS:3", "2026-12-01", "2027-02-28"),
        ("LAST_N_YEARS:2", "2024-01-01", "2025-12-31"),
    ],
)
def test_a_date_literal_is_a_stretch_of_days(literal: str, first: str, last: str) -> None:
    today = dt.date(2026, 11, 18)  # a Wednesday
    assert stretch(literal, whole_days=True, today=today) == (first, last)
    assert stretch(literal, whole_days=False, today=today) == (f"{first}T00:00:00.000+0000", f"{last}T23:59:59.999+0000")
