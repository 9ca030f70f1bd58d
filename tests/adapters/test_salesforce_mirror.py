"""Tests of an object's pages in the order of changes: no record is skipped if many share a stamp, and deletions are reported."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from adapters.salesforce.mapping import MappingFileError, default_mapping, read_mapping
from adapters.salesforce.mirror import Mirrors
from adapters.salesforce.records import MirrorPage, Position
from quotebot.sandbox.salesforce.schema import SCHEMA
from tests.adapters.test_salesforce import World, world
from tests.adapters.test_salesforce_opportunity import SHIPPED

if TYPE_CHECKING:
    from adapters.salesforce.api import Salesforce

__all__ = ["world"]  # a fixture

ACCOUNTS = default_mapping().mirrors["accounts"]


def made(world: World, name: str, **values: Any) -> str:
    return world.service._org.create(SCHEMA["account"], {"Name": name, **values})


def at(world: World, seconds: float) -> None:
    """Set the org's clock to a time of one day in 2026."""
    world.service._org._now = lambda: 1_795_257_060 + seconds


async def page(client: Salesforce, after: Position, *, again: bool = False, records: int = 2) -> MirrorPage:
    return await Mirrors(client._calls, records).page(ACCOUNTS, after, again=again, correlation_id="op")


async def every_page(client: Salesforce, after: Position, *, again: bool = False) -> list[MirrorPage]:
    pages = [await page(client, after, again=again)]
    while pages[-1].more:
        pages.append(await page(client, pages[-1].position))
    return pages


def names(pages: list[MirrorPage]) -> list[str]:
    return [each.name for one in pages for each in one.kept]


async def test_a_bulk_load_of_one_moment_is_read_whole_over_pages(world: World) -> None:
    at(world, 0)
    for number in range(5):
        made(world, f"Acme {number}")
    async with world.client() as client:
        pages = await every_page(client, Position())
        assert names(pages) == [f"Acme {number}" for number in range(5)]
        assert [len(one.kept) for one in pages] == [2, 2, 1]
        after = await page(client, pages[-1].position)
    assert (after.kept, after.position, after.more) == ((), pages[-1].position, False)


async def test_overlapping_sync_rereads_only_the_last_seconds(world: World) -> None:
    for seconds in (0, 100, 130):
        at(world, seconds)
        made(world, f"at {seconds}")
    async with world.client() as client:
        whole = await page(client, Position(), records=9)
        at(world, 125)
        made(world, "late to be seen")  # its transaction began before the newest record's ended
        again = await page(client, whole.position, again=True, records=9)
        straight = await page(client, whole.position, records=9)
    assert [each.name for each in again.kept] == ["at 100", "late to be seen", "at 130"]
    assert straight.kept == ()


async def test_deleted_record_is_reported_by_the_next_page_and_no_longer_kept(world: World) -> None:
    at(world, 0)
    gone, stays = made(world, "Gone"), made(world, "Stays")
    async with world.client() as client:
        first = await page(client, Position(), records=9)
        at(world, 10)
        world.service._org.delete(SCHEMA["account"], gone)
        second = await page(client, first.position, records=9)
    assert [each.record_id for each in first.kept] == [gone, stays]
    assert (second.kept, second.deleted) == ((), (gone,))


async def test_the_parts_of_the_mapping_read_what_they_say(world: World) -> None:
    org = world.service._org
    acme = made(world, "Acme")
    contact = org.create(SCHEMA["contact"], {"FirstName": "Jo", "LastName": "Lee", "AccountId": acme, "Email": "jo@acme.example"})
    deal = {"Name": "Renewal", "AccountId": acme, "StageName": "Closed Won", "CloseDate": "2027-01-31", "Amount": Decimal("9.5")}
    opportunity = org.create(SCHEMA["opportunity"], deal)
    product = org.create(SCHEMA["product2"], {"Name": "Pro seat", "ProductCode": "pro"})
    book = org.create(SCHEMA["pricebook2"], {"Name": "List"})
    price = {"Product2Id": product, "Pricebook2Id": book, "UnitPrice": Decimal("49.90"), "IsActive": True}
    entry = org.create(SCHEMA["pricebookentry"], price)
    async with world.client() as client:
        found = {
            kind: (await client.mirrors.page(wanted, Position(), again=False, correlation_id="op")).kept
            for kind, wanted in client.mapping.mirrors.items()
        }
    told = {kind: [(each.record_id, each.name, each.account_id, dict(each.facts)) for each in kept] for kind, kept in found.items()}
    assert told == {
        "accounts": [(acme, "Acme", "", {})],
        "contacts": [(contact, "Jo Lee", acme, {"email": "jo@acme.example"})],
        "opportunities": [
            (
                opportunity,
                "Renewal",
                acme,
                {"closed": True, "stage": "Closed Won", "closes": "2027-01-31", "currency": "USD", "amount": "9.5"},
            )
        ],
        "prices": [(entry, "Pro seat", "", {"sku": "pro", "book": "List", "price": "49.9", "currency": "USD", "active": True})],
    }


async def test_the_query_is_bound_by_stamp_and_id(world: World) -> None:
    async with world.client() as client:
        wanted = replace(ACCOUNTS, account="ParentId__c")
        query = Mirrors(client._calls)._query(wanted, Position("2026-11-21T10:31:00.000+0000", "001A"), again=False)
    assert query == (
        "SELECT Id, IsDeleted, SystemModstamp, Name, ParentId__c FROM Account WHERE SystemModstamp > 2026-11-21T10:31:00.000+00:00 "
        "OR (SystemModstamp = 2026-11-21T10:31:00.000+00:00 AND Id > '001A') ORDER BY SystemModstamp ASC, Id ASC LIMIT 200"
    )


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ("[mirror.accounts]", "[mirror.leads]", "mirror.leads: there is no such part"),
        ('facts = { email = "Email" }', 'facts = { email = "E mail" }', "mirror.contacts.facts must hold paths"),
        ('facts = { email = "Email" }', 'facts = { phone = "Phone" }', "mirror.contacts.facts must hold paths"),
        ('name = "Product2.Name"', 'name = "Product2."', "mirror.prices.name must be an API name"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused_with_its_place(was: str, becomes: str, words: str) -> None:
    assert was in SHIPPED
    with pytest.raises(MappingFileError, match=words):
        read_mapping(SHIPPED.replace(was, becomes))
