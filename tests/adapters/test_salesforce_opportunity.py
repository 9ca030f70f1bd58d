"""Tests of a quote's opportunity, if the mapping requires one: created once with the first record, shared by all versions."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import Failure
from adapters.salesforce.describe import findings, objects_of, read_described
from adapters.salesforce.mapping import MappingFileError, read_mapping
from quotebot.sandbox.salesforce.schema import SCHEMA
from tests.adapters.test_salesforce import GRAPH, World, a_line, a_quote, failure_of, world

if TYPE_CHECKING:
    from adapters.salesforce.api import SalesforceQuote

__all__ = ["world"]  # a fixture

SHIPPED = files("adapters.salesforce").joinpath("salesforce.toml").read_text("utf-8")
# The example in the file, without its comment signs.
TEXT = SHIPPED + "".join(
    line.removeprefix("# ") + "\n" for line in SHIPPED[SHIPPED.index("# [opportunity]") :].splitlines() if line != "#"
)
MAPPING = read_mapping(TEXT)
KEY = "led_Q-2026-0042"


def version(number: int, total: str, *, is_head: bool = True) -> SalesforceQuote:
    quote = a_quote(f"{KEY}_v{number}", opportunity_key=KEY, opportunity_name="Q-2026-0042 Acme Corp", is_head=is_head)
    return replace(quote, version=number, total=Decimal(total), content_hash=f"hash-{number}")


def opportunity(world: World) -> dict[str, Any]:
    (found,) = world.service.records("Opportunity")
    return found


async def test_it_is_made_with_the_first_record_and_every_version_hangs_on_it(world: World) -> None:
    async with world.client(mapping=MAPPING) as client:
        await client.create_quote(version(1, "100.00"), correlation_id="op-1")
        made = opportunity(world)
        assert (made["Name"], made["StageName"], made["CloseDate"]) == (
            "Q-2026-0042 Acme Corp",
            "Proposal/Price Quote",
            "2026-12-31",
        )
        assert (made["Quotebot_Key__c"], made["Amount"]) == (KEY, Decimal(100))
        world.service._org.update(SCHEMA["opportunity"], made["Id"], {"StageName": "Prospecting", "Name": "Ours"})
        await client.create_quote(version(2, "80.50"), correlation_id="op-2")
    after = opportunity(world)
    assert (after["Amount"], after["StageName"], after["Name"]) == (Decimal("80.5"), "Prospecting", "Ours")
    assert {quote["OpportunityId"] for quote in world.service.records("Quote")} == {made["Id"]}
    assert len(world.service.records("Quote")) == 2


async def test_a_version_that_is_written_late_leaves_the_amount_of_the_newest_one(world: World) -> None:
    async with world.client(mapping=MAPPING) as client:
        await client.create_quote(version(2, "80.50"), correlation_id="op-2")
        await client.create_quote(version(1, "100.00", is_head=False), correlation_id="op-1")
    assert opportunity(world)["Amount"] == Decimal("80.5")
    assert len(world.service.records("Quote")) == 2


@pytest.mark.parametrize("before", [0, 1])
async def test_a_lost_answer_ends_with_exactly_one_opportunity_and_one_quote(world: World, before: int) -> None:
    async with world.client(mapping=MAPPING) as client:
        for number in range(1, before + 1):
            await client.create_quote(version(number, "100.00"), correlation_id="op")
        world.weather.arm("salesforce", "reset_after", method=GRAPH)
        last = version(before + 1, "80.50")
        assert (await failure_of(client, last)).possibly_applied
        assert not (await client.create_quote(last, correlation_id="op")).created
    assert opportunity(world)["Amount"] == Decimal("80.5")
    assert len(world.service.records("Quote")) == before + 1


async def test_a_refused_opportunity_writes_nothing_and_is_named_without_the_customer(world: World) -> None:
    text = TEXT.replace('StageName = "Proposal/Price Quote"', 'StageName = "No such stage"')
    async with world.client(mapping=read_mapping(text)) as client:
        error = await failure_of(client, version(1, "100.00"))
    assert error.failure is Failure.MAPPING
    assert "Opportunity" in str(error)
    assert "No such stage" in str(error)
    assert "Acme" not in str(error)
    assert world.service.records("Quote") == world.service.records("Opportunity") == []


async def test_one_that_somebody_makes_at_the_same_moment_is_found_at_the_next_try(world: World) -> None:
    world.weather.arm("salesforce", "slow", method=GRAPH, delay=0.2)
    async with world.client(mapping=MAPPING) as client:
        ends = await asyncio.gather(
            *(client.create_quote(version(number, "100.00"), correlation_id="op") for number in (1, 2)), return_exceptions=True
        )
        for number, end in enumerate(ends, start=1):
            if isinstance(end, BaseException):
                await client.create_quote(version(number, "100.00"), correlation_id="op")
    assert opportunity(world)["Amount"] == Decimal(100)
    assert len(world.service.records("Quote")) == 2


async def test_opportunity_takes_one_node_of_the_graph_and_leaves_498_lines(world: World) -> None:
    lines = tuple(a_line(position) for position in range(1, 500))
    async with world.client(mapping=MAPPING) as client:
        error = await failure_of(client, replace(version(1, "100.00"), lines=lines))
    assert (error.failure, error.code) == (Failure.VALIDATION, "too_many_lines")
    assert "takes 498 at once" in str(error)
    assert world.seen() == []


def looked(described: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.place, each.what) for each in findings(MAPPING, {name: read_described(one) for name, one in described.items()})]


def test_org_check_covers_the_opportunity_fields() -> None:
    described: dict[str, Any] = {name: copy.deepcopy(SCHEMA[name.lower()].describe()) for name in objects_of(MAPPING)}
    assert looked(described) == []
    fields = {each["name"]: each for each in described["Opportunity"]["fields"]}
    fields["Quotebot_Key__c"]["unique"] = False
    fields["Amount"]["updateable"] = False
    fields["LeadSource"] = {**fields["StageName"], "name": "LeadSource", "defaultedOnCreate": False}
    described["Opportunity"]["fields"].append(fields["LeadSource"])
    fields["StageName"]["picklistValues"] = [{"value": "Prospecting", "active": True}]
    fields["StageName"]["restrictedPicklist"] = True
    assert {place for place, _ in looked(described)} == {
        "Opportunity.Quotebot_Key__c",
        "Opportunity.Amount",
        "Opportunity.LeadSource",
        "Opportunity.StageName",
    }


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ('Name = "opportunity_name"', 'Name = "content_hash"', "there is no 'content_hash'"),
        ('amount = "Amount"', 'amount = "Amount Money"', "opportunity.amount must be an API name"),
        ('amount = "Amount"', 'amount = "Name"', "opportunity: Name is written twice"),
        ('link = "OpportunityId"', 'link = "Name"', "quote.fields: Name is written already"),
        ('StageName = "Proposal/Price Quote"', "StageName = 3", "opportunity.given must hold API names"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused_with_its_place(was: str, becomes: str, words: str) -> None:
    with pytest.raises(MappingFileError, match=words):
        read_mapping(TEXT[: len(SHIPPED)] + TEXT[len(SHIPPED) :].replace(was, becomes))
