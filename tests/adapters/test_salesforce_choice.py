"""Tests of a chosen opportunity: the offered ones, the obstacles to a record under one, and its amount."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from simple_salesforce.format import format_soql

from adapters.failures import Failure
from adapters.salesforce.mapping import MappingFileError, default_mapping, read_mapping
from quotebot.sandbox.salesforce.schema import SCHEMA
from tests.adapters.test_salesforce import World, a_quote, failure_of, world
from tests.adapters.test_salesforce_errors import Scripted, http, talking_to
from tests.adapters.test_salesforce_opportunity import MAPPING as WITH_OWN
from tests.adapters.test_salesforce_opportunity import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from adapters.salesforce.api import SalesforceQuote

__all__ = ["world"]  # a fixture


def account(world: World, name: str) -> str:
    return world.service._org.create(SCHEMA["account"], {"Name": name})


def opportunity(world: World, account_id: str, name: str = "Renewal", **values: Any) -> str:
    fields = {"Name": name, "AccountId": account_id, "StageName": "Prospecting", "CloseDate": "2027-01-31", **values}
    return world.service._org.create(SCHEMA["opportunity"], fields)


def chosen(world: World, **values: Any) -> tuple[SalesforceQuote, str, str]:
    """Return a quote for a new opportunity, with the ids of the opportunity and its account."""
    account_id = account(world, "Acme")
    record_id = opportunity(world, account_id, **values)
    return (
        replace(a_quote("led_Q-2026-0042_v1"), opportunity_id=record_id, opportunity_account_id=account_id),
        record_id,
        account_id,
    )


async def test_the_open_ones_of_the_account_are_offered_the_next_to_close_first(world: World) -> None:
    acme, bolt = account(world, "Acme"), account(world, "Bolt")
    later = opportunity(world, acme, "Renewal 2028", CloseDate="2028-01-31")
    sooner = opportunity(world, acme, "Seats, 100% more", CurrencyIsoCode="EUR")
    opportunity(world, acme, "Old deal", StageName="Closed Lost")
    opportunity(world, bolt, "Bolt's")
    async with world.client() as client:
        every = await client.opportunities.find_open("Acme", "", 5.0)
        some = await client.opportunities.find_open("Acme", "0% m", 5.0)
        nobody = await client.opportunities.find_open("Acme' OR Name != '", "", 5.0)
    assert [(each.record_id, each.account_id, each.currency) for each in every] == [(sooner, acme, "EUR"), (later, acme, "USD")]
    assert ([each.name for each in some], nobody) == (["Seats, 100% more"], ())


async def test_what_is_typed_cannot_change_the_query(tmp_path: Path) -> None:
    script = Scripted(http(200, b'{"records": [{"Id": "006", "Name": null}]}'))
    async with talking_to(script, tmp_path) as client:
        assert await client.opportunities.find_open("O'Brien\\", "50%_'", 5.0) == ()
    query = parse_qs(urlsplit(script.requests[0].split()[1].decode()).query)["q"][0]
    assert query == (
        "SELECT Id, AccountId, Name, StageName, CloseDate, CurrencyIsoCode FROM Opportunity WHERE Account.Name = 'O\\'Brien\\\\' "
        "AND IsClosed = false AND Name LIKE '%50\\%\\_\\'%' ORDER BY CloseDate ASC, Name ASC LIMIT 20"
    )


async def test_typed_text_enters_a_query_only_through_format_soql(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[str] = []

    def spy(query: str, *values: str) -> str:
        formatted.extend(values)
        return str(format_soql(query, *values))

    monkeypatch.setattr("simple_salesforce.format.format_soql", spy)
    async with world.client() as client:
        await client.find_accounts("Ac\nme", 5.0)
        await client.opportunities.find_open("O'Brien", "50%", 5.0)
    assert formatted == ["Ac me", "50%", "O'Brien"]


@pytest.mark.parametrize("mapping", [default_mapping(), WITH_OWN], ids=["alone", "beside our own"])
async def test_the_record_hangs_on_the_chosen_opportunity_and_none_is_made(world: World, mapping: Any) -> None:
    quote, record_id, _ = chosen(world)
    async with world.client(mapping=mapping) as client:
        assert (await client.create_quote(quote, correlation_id="op")).created
        assert not (await client.create_quote(quote, correlation_id="op")).created
    (record,) = world.service.records("Quote")
    (untouched,) = world.service.records("Opportunity")
    assert (record["OpportunityId"], untouched["Id"], untouched["Amount"]) == (record_id, record_id, None)


IN_THE_WAY: dict[str, tuple[Callable[[World, str], object], str]] = {
    "opportunity_gone": (lambda world, key: world.service._org.delete(SCHEMA["opportunity"], key), "is not in Salesforce any more"),
    "opportunity_moved": (
        lambda world, key: world.service._org.update(SCHEMA["opportunity"], key, {"AccountId": account(world, "Bolt")}),
        "belongs to another account now",
    ),
    "opportunity_closed": (
        lambda world, key: world.service._org.update(SCHEMA["opportunity"], key, {"StageName": "Closed Won"}),
        "was closed meanwhile",
    ),
    "opportunity_currency": (
        lambda world, key: world.service._org.update(SCHEMA["opportunity"], key, {"CurrencyIsoCode": "EUR"}),
        "is in EUR and the quote in USD",
    ),
}


@pytest.mark.parametrize("code", IN_THE_WAY)
async def test_one_that_does_not_fit_any_more_stops_the_write_with_a_sentence(world: World, code: str) -> None:
    quote, record_id, _ = chosen(world)
    happens, words = IN_THE_WAY[code]
    happens(world, record_id)
    async with world.client() as client:
        error = await failure_of(client, quote)
    assert (error.failure, error.code, error.possibly_applied) == (Failure.CONFLICT, code, False)
    assert words in str(error)
    assert "Nothing was written and the quote is unchanged." in str(error)
    assert record_id in str(error)
    assert world.service.records("Quote") == []


@pytest.mark.parametrize("code", IN_THE_WAY)
async def test_record_written_before_the_opportunity_became_unsuitable_is_found(world: World, code: str) -> None:
    quote, record_id, _ = chosen(world)
    world.weather.arm("salesforce", "reset_after", method="composite/graph")
    async with world.client() as client:
        assert (await failure_of(client, quote)).possibly_applied
        IN_THE_WAY[code][0](world, record_id)
        assert not (await client.create_quote(quote, correlation_id="op")).created
    assert len(world.service.records("Quote")) == 1


async def test_the_amount_alone_is_written_and_read_exactly(world: World) -> None:
    quote, record_id, account_id = chosen(world)
    async with world.client() as client:
        await client.opportunities.write_amount(replace(quote, total=Decimal("1234567.89")), correlation_id="op")
        held = await client.opportunities.read(quote, correlation_id="op")
        world.service._org.delete(SCHEMA["opportunity"], record_id)
        gone = await client.opportunities.read(quote, correlation_id="op")
    assert held is not None
    assert (held.record_id, held.account_id, held.closed, held.amount) == (record_id, account_id, False, Decimal("1234567.89"))
    assert gone is None


async def test_choice_without_a_mapping_is_refused_before_anything_is_written(world: World) -> None:
    quote, _, _ = chosen(world)
    async with world.client(mapping=replace(default_mapping(), choice=None)) as client:
        error = await failure_of(client, quote)
    assert (error.failure, error.code) == (Failure.MAPPING, "opportunity_unmapped")
    assert world.service.records("Quote") == []


def test_the_account_is_reached_by_its_relationship() -> None:
    choice = default_mapping().choice
    assert choice is not None
    assert choice.account_relationship == "Account"
    assert replace(choice, account="Customer__c").account_relationship == "Customer__r"


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ('closed = "IsClosed"', 'closed = "Is Closed"', "opportunity_choice.closed must be an API name"),
        ('amount = "Amount" # follows', 'amount = "" # follows', "opportunity_choice.amount must be an API name"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused_with_its_place(was: str, becomes: str, words: str) -> None:
    assert was in SHIPPED
    with pytest.raises(MappingFileError, match=words):
        read_mapping(SHIPPED.replace(was, becomes))
