"""Tests of the org's rules without a socket: ids, values, references, queries, transactions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from quotebot.sandbox.salesforce import soql
from quotebot.sandbox.salesforce.org import Org
from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.salesforce.values import long_form, record_id

QUOTE = SCHEMA["quote"]
LINE = SCHEMA["quotelineitem"]


def a_quote(org: Org, **fields: Any) -> str:
    return org.create(QUOTE, {"Name": "Quote", **fields})


def test_an_id_has_its_prefix_and_a_checksum_of_its_capitals() -> None:
    made = record_id("0Q0", 62)
    assert made == "0Q0SB00000000100AA"
    assert long_form("001A000000abcDE") == "001A000000abcDEIAY"  # third group: D and E are its 4th and 5th letters


def test_an_id_is_found_by_its_short_form_and_in_any_case() -> None:
    made = record_id("0QL", 10_000_000)
    assert long_form(made[:15]) == made
    assert long_form(made.lower()) == made
    assert long_form("garbage") is None


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"Name": ""}, "REQUIRED_FIELD_MISSING", ("Name",)),
        ({"Nonsense__c": "x"}, "INVALID_FIELD", None),
        ({"GrandTotal": 1}, "INVALID_FIELD_FOR_INSERT_UPDATE", ("GrandTotal",)),
        ({"Name": "x" * 256}, "STRING_TOO_LONG", ("Name",)),
        ({"Status": "Shipped"}, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", ("Status",)),
        ({"Quotebot_Total__c": Decimal("1e14")}, "NUMBER_OUTSIDE_VALID_RANGE", ("Quotebot_Total__c",)),
        ({"Quotebot_Total__c": "12.50"}, "JSON_PARSER_ERROR", None),
        ({"ExpirationDate": "soon"}, "JSON_PARSER_ERROR", None),
        ({"OpportunityId": "garbage"}, "MALFORMED_ID", ("OpportunityId",)),
        ({"OpportunityId": record_id("001", 1)}, "MALFORMED_ID", ("OpportunityId",)),
        ({"OpportunityId": record_id("006", 1)}, "INVALID_CROSS_REFERENCE_KEY", ("OpportunityId",)),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_code_and_field(
    fields: dict[str, object], code: str, named: tuple[str, ...] | None
) -> None:
    org = Org()
    with pytest.raises(SalesforceRefusalError) as refusal:
        a_quote(org, **fields)
    assert (refusal.value.code, refusal.value.fields) == (code, named)
    assert list(org.all(QUOTE)) == []


def test_numbers_are_rounded_half_up_to_the_scale_of_their_field() -> None:
    org = Org()
    made = a_quote(org, Tax=Decimal("0.125"))
    assert org.read(QUOTE, made)["Tax"] == Decimal("0.13")


def test_a_unique_key_is_taken_whatever_its_case() -> None:
    org = Org()
    first = a_quote(org, Quotebot_Key__c="abc")
    with pytest.raises(SalesforceRefusalError, match=f"Quotebot_Key__c duplicates value on record with id: {first}"):
        a_quote(org, Quotebot_Key__c="ABC")
    assert org.find(QUOTE, "quotebot_key__C", "aBc") == first


def test_a_deleted_quote_takes_its_lines_along_and_frees_its_key() -> None:
    org = Org()
    quote = a_quote(org, Quotebot_Key__c="k")
    org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2})
    org.delete(QUOTE, quote)
    assert list(org.all(LINE)) == []
    assert a_quote(org, Quotebot_Key__c="k") != quote
    with pytest.raises(SalesforceRefusalError) as refusal:
        org.update(QUOTE, quote, {"Name": "again"})
    assert refusal.value.code == "ENTITY_IS_DELETED"
    with pytest.raises(SalesforceRefusalError, match="entity is deleted"):
        org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2})


def test_a_failed_transaction_leaves_no_trace() -> None:
    org = Org()
    kept = a_quote(org, Quotebot_Key__c="kept")

    def a_transaction_that_fails() -> None:
        with org.transaction():
            quote = a_quote(org, Quotebot_Key__c="gone")
            org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2})
            org.update(QUOTE, kept, {"Name": "changed"})
            org.delete(QUOTE, kept)
            raise KeyError

    with pytest.raises(KeyError):
        a_transaction_that_fails()
    assert [(quote["Id"], quote["Name"]) for quote in org.all(QUOTE)] == [(kept, "Quote")]
    assert list(org.all(LINE)) == []
    assert org.find(QUOTE, "Quotebot_Key__c", "gone") is None
    assert org.find(QUOTE, "Quotebot_Key__c", "kept") == kept


def test_a_quote_adds_up_its_lines_as_the_platform_does() -> None:
    org = Org()
    quote = a_quote(org, Tax=1)
    org.create(LINE, {"QuoteId": quote, "Quantity": 3, "UnitPrice": Decimal("10.50"), "Discount": 10})
    org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2})
    view = org.read(QUOTE, quote)
    assert (view["LineItemCount"], view["Subtotal"], view["TotalPrice"]) == (2, Decimal("33.50"), Decimal("30.35"))
    assert view["GrandTotal"] == Decimal("31.35")


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("WHERE Name = 'B'", ["b"]),
        ("WHERE Name IN ('a', 'c') AND Tax > 1", ["c"]),
        ("WHERE Tax != null ORDER BY Tax DESC LIMIT 1", ["c"]),
        ("WHERE ExpirationDate < 2026-02-01", ["a"]),
        (r"WHERE Name = 'd\'s'", ["d's"]),
        ("ORDER BY Name DESC LIMIT 2", ["d's", "c"]),
        ("WHERE Name = 'nobody'", []),
    ],
)
def test_a_query_selects_orders_and_limits(where: str, names: list[str]) -> None:
    org = Org()
    a_quote(org, Name="a", Tax=1, ExpirationDate="2026-01-01")
    a_quote(org, Name="b")
    a_quote(org, Name="c", Tax=3, ExpirationDate="2026-03-01")
    a_quote(org, Name="d's")
    _, records = soql.query(org, f"SELECT Name FROM Quote {where}")  # noqa: S608 -- the queries are written above
    assert [record["Name"] for record in records] == names


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT Id FROM Nonsense", "INVALID_TYPE"),
        ("SELECT Nonsense FROM Quote", "INVALID_FIELD"),
        ("SELECT Id FROM Quote WHERE Tax = 'x'", "INVALID_FIELD"),
        ("SELECT Id FROM Quote WHERE", "MALFORMED_QUERY"),
        ("SELECT Id FROM Quote WHERE Name ~ 'x'", "MALFORMED_QUERY"),
        ("SELECT Id FROM Quote LIMIT x", "MALFORMED_QUERY"),
        ("SELECT Id FROM Quote GROUP", "MALFORMED_QUERY"),
        ("", "MALFORMED_QUERY"),
    ],
)
def test_a_query_that_cannot_be_read_is_refused(text: str, code: str) -> None:
    with pytest.raises(SalesforceRefusalError) as refusal:
        soql.query(Org(), text)
    assert refusal.value.code == code


def test_describe_tells_what_may_be_written() -> None:
    fields = {field["name"]: field for field in QUOTE.describe()["fields"]}  # type: ignore[attr-defined] # a list of dicts
    assert fields["Quotebot_Key__c"]["externalId"]
    assert fields["Quotebot_Key__c"]["unique"]
    assert not fields["GrandTotal"]["createable"]
    assert not fields["OpportunityId"]["updateable"]
    assert fields["OpportunityId"]["nillable"]
    assert {"active": True, "defaultValue": True, "label": "Draft", "value": "Draft"} in fields["Status"]["picklistValues"]
