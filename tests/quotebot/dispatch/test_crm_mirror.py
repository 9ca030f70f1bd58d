"""Tests of the Salesforce mirror: it follows the org page by page, deletes unwanted records, and supplies menus."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.salesforce.mapping import default_mapping
from adapters.salesforce.mirror import Mirrors
from adapters.salesforce.records import Mirrored, MirrorPage, Position
from quotebot.commands.payloads import SyncCrm
from quotebot.dispatch.crm_mirror import MirrorLookup
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.slack.crm_menus import AccountLookup, OpportunityLookup
from quotebot.store import crm_mirror as store
from quotebot.store.crm_mirror import Found
from tests.quotebot.crm_parts import Crm, crm_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.quotebot.parts import Bench

KINDS = ("accounts", "contacts", "opportunities", "prices")


@pytest.fixture
async def crm(bench: Bench, tmp_path: Path) -> AsyncIterator[Crm]:
    async with crm_at(bench, tmp_path / "org") as crm:
        yield crm


async def sync(crm: Crm, *kinds: str) -> None:
    await crm.ask(SyncCrm(kinds), "quotebot", quote_id="crm", version=0, source="scheduler", actor_type="system")
    await crm.settle()


def account(crm: Crm, name: str) -> str:
    return crm.service._org.create(SCHEMA["account"], {"Name": name})


def deal(crm: Crm, account_id: str, name: str, **values: Any) -> str:
    fields = {"Name": name, "AccountId": account_id, "StageName": "Prospecting", "CloseDate": "2027-01-31", **values}
    return crm.service._org.create(SCHEMA["opportunity"], fields)


def names(bench: Bench, kind: str = "accounts") -> list[str]:
    return [row["name"] for row in bench.rows("SELECT name FROM crm_mirror WHERE kind = ? ORDER BY name", kind)]


def reads(crm: Crm) -> int:
    return sum((seen.method or "").startswith("queryAll") for seen in crm.witness.since())


async def test_it_is_read_page_by_page_and_then_follows_every_change(crm: Crm, bench: Bench) -> None:
    crm.client.mirrors = Mirrors(crm.client._calls, 2)
    ids = [account(crm, f"Acme {number}") for number in range(5)]
    await sync(crm, "accounts")
    assert names(bench) == [f"Acme {number}" for number in range(5)]
    assert [row["state"] for row in bench.rows("SELECT state FROM effects WHERE payload LIKE '%mirror%'")] == ["delivered"] * 3
    org = crm.service._org
    org.update(SCHEMA["account"], ids[0], {"Name": "Zenith"})
    org.delete(SCHEMA["account"], ids[1])
    account(crm, "Birch")
    await sync(crm, "accounts")
    assert names(bench) == ["Acme 2", "Acme 3", "Acme 4", "Birch", "Zenith"]


async def test_mirror_keeps_only_the_configured_kinds_and_deletes_the_others(crm: Crm, bench: Bench) -> None:
    deal(crm, account(crm, "Acme"), "Renewal")
    await sync(crm)
    assert bench.rows("SELECT 1 FROM crm_mirror") == []
    await sync(crm, *KINDS)
    assert (names(bench), names(bench, "opportunities")) == (["Acme"], ["Renewal"])
    await sync(crm, "accounts")
    assert [row["kind"] for row in bench.rows("SELECT kind FROM crm_mirror_cursors")] == ["accounts"]
    assert names(bench, "opportunities") == []


async def test_a_page_is_kept_once_and_one_that_is_older_than_what_is_kept_never(bench: Bench) -> None:
    def page(name: str, *deleted: str, more: bool = False) -> MirrorPage:
        return MirrorPage((Mirrored("001A", name, "", {}),), deleted, Position("2026-11-21T10:31:00.000+0000", "001A"), more)

    def keep(page: MirrorPage, before: store.Cursor) -> Any:
        return bench.ledger.database.write(
            "keep", lambda tx: store.apply(tx, "accounts", before, page, read_as="a", asked_at=1, now=2)
        )

    nothing = store.Cursor()
    assert [await keep(page("Acme"), nothing), await keep(page("Old"), nothing)] == [True, False]
    assert names(bench) == ["Acme"]
    first = await bench.ledger.database.read(lambda tx: store.cursor(tx, "accounts"))
    assert [await keep(page("Birch", more=True), first), await keep(page("Acme"), first)] == [True, False]
    second = await bench.ledger.database.read(lambda tx: store.cursor(tx, "accounts"))
    assert (names(bench), second.more, second.whole_at, second.pages) == (["Birch"], True, 1, 2)


async def test_another_mapping_reads_everything_anew(crm: Crm, bench: Bench) -> None:
    account(crm, "Acme")
    crm.service._org.create(SCHEMA["contact"], {"LastName": "Lee"})
    await sync(crm, "accounts")
    mapping = default_mapping()
    crm.client.mapping = replace(mapping, mirrors={"accounts": mapping.mirrors["contacts"]})
    await sync(crm, "accounts")
    assert names(bench) == ["Lee"]


async def test_the_last_tenth_of_the_allowance_is_left_to_quotes(crm: Crm, bench: Bench) -> None:
    account(crm, "Acme")
    crm.service._rest.served = 90_000
    await crm.client.describe("Quote")
    await crm.ask(SyncCrm(("accounts",)), "quotebot", quote_id="crm", version=0, source="scheduler", actor_type="system")
    await crm.step()
    waits = bench.rows("SELECT state, category, attempts FROM effects WHERE class = 'crm.read'")
    assert {"state": "pending", "category": "throttled", "attempts": 0} in waits
    assert names(bench) == []


async def test_a_part_that_the_mapping_lacks_is_a_dead_letter_that_says_so(crm: Crm) -> None:
    crm.client.mapping = replace(default_mapping(), mirrors={})
    await sync(crm, "accounts")
    effect = crm.effect("crm.read", "mirror")
    assert (effect["state"], effect["category"]) == ("failed", "mapping")
    assert "no part [mirror.accounts]" in effect["last_error"]


async def test_menus_are_answered_from_it_while_the_org_is_away(crm: Crm, bench: Bench) -> None:
    acme = account(crm, "Acme Corp")
    account(crm, "Zenith")
    deal(crm, acme, "Seats", CloseDate="2028-01-31")
    sooner = deal(crm, acme, "Renewal")
    deal(crm, acme, "Old deal", StageName="Closed Lost")
    mirror = MirrorLookup(bench.ledger.database)
    accounts = AccountLookup(crm.client.find_accounts, bench.clock, mirror.accounts)
    opportunities = OpportunityLookup(crm.client.opportunities.find_open, bench.clock, mirror.opportunities)
    crm.weather.arm("salesforce", "5xx", method="query", times=100)
    assert (await accounts("acm"), await opportunities("Acme Corp", "")) == (Found(), Found())
    crm.weather.clear()
    whole_at = bench.clock.now_ms()
    await sync(crm, *KINDS)
    crm.weather.arm("salesforce", "5xx", method="query", times=100)
    bench.clock.advance(90_000)
    assert await accounts("ACM") == Found(("Acme Corp",), whole_at)
    found = await opportunities("Acme Corp", "")
    assert ([each.name for each in found.rows], found.rows[0].record_id, found.as_of) == (["Renewal", "Seats"], sooner, whole_at)
    assert [each.name for each in (await opportunities("Acme Corp", "eat")).rows] == ["Seats"]


async def test_the_contacts_of_a_customer_are_offered_by_name_and_address(crm: Crm, bench: Bench) -> None:
    acme, other = account(crm, "Acme"), account(crm, "Acme Corp")
    for owner, first, last, email in (
        (acme, "Jo", "Lee", "jo@acme.example"),
        (acme, None, "Abbot", None),
        (other, "Kim", "Lee", "kim@other.example"),
    ):
        crm.service._org.create(SCHEMA["contact"], {"FirstName": first, "LastName": last, "AccountId": owner, "Email": email})
    mirror = MirrorLookup(bench.ledger.database)
    assert await mirror.contacts("acme", "") == Found()
    await sync(crm, "accounts", "contacts")
    assert (await mirror.contacts("acme", "")).rows == ("Abbot", "Jo Lee <jo@acme.example>")
    assert (await mirror.contacts("acme", " LEE")).rows == ("Jo Lee <jo@acme.example>",)


async def test_what_was_offered_from_it_is_what_salesforce_itself_offers(crm: Crm, bench: Bench) -> None:
    acme = account(crm, "Acme Corp")
    for number in range(25):
        deal(crm, acme, f"Deal {number:02}", CloseDate=f"2027-01-{31 - number:02}")
    await sync(crm, *KINDS)
    kept = await MirrorLookup(bench.ledger.database).opportunities("Acme Corp", "")
    assert kept is not None
    assert kept.rows == await crm.client.opportunities.find_open("Acme Corp", "", 5.0)
    assert len(kept.rows) == 20
