"""Tests of the stand-in over its sockets, with the unmodified simple-salesforce client and with plain HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import requests
from simple_salesforce.api import Salesforce as RestClient
from simple_salesforce.exceptions import (
    SalesforceExpiredSession,
    SalesforceGeneralError,
    SalesforceMalformedRequest,
    SalesforceResourceNotFound,
)

from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class World:
    def __init__(self, directory: Path) -> None:
        self.witness = Witness()
        self.weather = ArmedFaults()
        self.service = SalesforceService(self.witness, self.weather, directory)

    def methods(self) -> list[str]:
        return [sighting.method for sighting in self.witness.since()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.service.start()
    yield world
    await world.service.stop()


@pytest.fixture
def session(world: World) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.verify = world.service.ca_file
        yield session


async def log_in(
    world: World, session: requests.Session
) -> Any:  # its attributes are dynamic, which its type information does not show
    environment = world.service.environment()
    answer = await asyncio.to_thread(
        session.post,
        f"{environment['SALESFORCE_INSTANCE_URL']}/services/oauth2/token",
        data={"grant_type": "client_credentials"},
        auth=(environment["SALESFORCE_CLIENT_ID"], environment["SALESFORCE_CLIENT_SECRET"]),
        timeout=5,
    )
    body = answer.json()
    return RestClient(session_id=body["access_token"], instance_url=body["instance_url"], version="65.0", session=session)


def a_graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"graphs": [{"graphId": "1", "compositeRequest": list(nodes)}]}


def a_node(reference: str, sobject: str, **body: Any) -> dict[str, Any]:
    return {"method": "POST", "url": f"/services/data/v65.0/sobjects/{sobject}/", "referenceId": reference, "body": body}


async def test_simple_salesforce_creates_reads_upserts_queries_and_deletes(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)

    def story() -> None:
        created = client.Quote.create({"Name": "First", "Quotebot_Key__c": "k1", "Quotebot_Total__c": 12.5})
        assert created == {"id": created["id"], "success": True, "errors": []}
        assert client.Quote.get(created["id"])["Quotebot_Total__c"] == 12.5
        assert client.Quote.get_by_custom_id("Quotebot_Key__c", "K1")["Id"] == created["id"]
        assert client.Quote.upsert("Quotebot_Key__c/k1", {"Name": "Second"}) == 200
        assert client.Quote.upsert("Quotebot_Key__c/k2", {"Name": "Other"}) == 201
        found = client.query("SELECT Id, Name FROM Quote WHERE Quotebot_Key__c = 'k1'")
        assert (found["totalSize"], found["records"][0]["Name"]) == (1, "Second")
        assert client.Quote.describe()["keyPrefix"] == "0Q0"
        assert "Quote" in {sobject["name"] for sobject in client.describe()["sobjects"]}
        assert client.limits()["DailyApiRequests"]["Max"] == 100_000
        assert client.api_usage["api-usage"].total == 100_000
        assert client.Quote.delete(created["id"]) == 204
        with pytest.raises(SalesforceResourceNotFound):
            client.Quote.get(created["id"])

    await asyncio.to_thread(story)
    assert [record["Name"] for record in world.service.records("Quote")] == ["Other"]


async def test_simple_salesforce_writes_a_graph_all_or_nothing(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)
    quote = a_node("q", "Quote", Name="Graph", Quotebot_Key__c="g1")
    line = a_node("l", "QuoteLineItem", QuoteId="@{q.id}", Quantity=2, UnitPrice=1.5)
    bad = a_node("b", "QuoteLineItem", QuoteId="@{q.id}", Quantity=2)

    def ask(*nodes: dict[str, Any]) -> Any:
        answer = client.restful("composite/graph", method="POST", data=json.dumps(a_graph(*nodes)))
        assert answer is not None
        return answer["graphs"][0]

    refused = await asyncio.to_thread(ask, quote, line, bad)
    results = refused["graphResponse"]["compositeResponse"]
    assert not refused["isSuccessful"]
    assert [result["body"][0]["errorCode"] for result in results] == [
        "PROCESSING_HALTED",
        "PROCESSING_HALTED",
        "REQUIRED_FIELD_MISSING",
    ]
    assert world.service.records("Quote") == []

    written = await asyncio.to_thread(ask, quote, line)
    assert written["isSuccessful"]
    (stored,) = world.service.records("QuoteLineItem")
    assert stored["QuoteId"] == written["graphResponse"]["compositeResponse"][0]["body"]["id"]

    again = await asyncio.to_thread(ask, quote, line)
    assert again["graphResponse"]["compositeResponse"][0]["body"][0]["errorCode"] == "DUPLICATE_VALUE"
    graphs = [sighting for sighting in world.witness.since() if sighting.method == "composite/graph"]
    assert [(sighting.key, sighting.applied, sighting.status) for sighting in graphs] == [
        ("g1", False, 200),
        ("g1", True, 200),
        ("g1", False, 200),
    ]


async def test_a_graph_takes_500_nodes_and_no_more(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)

    def ask(count: int) -> Any:
        nodes = [a_node(f"n{number}", "Account", Name="Acme") for number in range(count)]
        return client.restful("composite/graph", method="POST", data=json.dumps(a_graph(*nodes)))

    with pytest.raises(SalesforceMalformedRequest):
        await asyncio.to_thread(ask, 501)
    assert world.service.records("Account") == []
    assert (await asyncio.to_thread(ask, 500))["graphs"][0]["isSuccessful"]


async def test_a_composite_without_all_or_none_keeps_what_succeeded(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)
    requests_ = [a_node("a", "Account", Name="Acme"), a_node("b", "Account"), a_node("c", "Account", Name="@{b.id}")]

    def ask(*, all_or_none: bool) -> list[int]:
        body = json.dumps({"allOrNone": all_or_none, "compositeRequest": requests_})
        answer = client.restful("composite", method="POST", data=body)
        assert answer is not None
        return [result["httpStatusCode"] for result in answer["compositeResponse"]]

    assert await asyncio.to_thread(ask, all_or_none=True) == [400, 400, 400]
    assert world.service.records("Account") == []
    assert await asyncio.to_thread(ask, all_or_none=False) == [201, 400, 400]
    assert len(world.service.records("Account")) == 1


async def test_an_upsert_that_becomes_an_update_may_not_carry_create_only_fields(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)

    def story() -> None:
        opportunity = client.Opportunity.create({"Name": "Deal", "StageName": "Prospecting", "CloseDate": "2026-12-31"})["id"]
        body = {"Name": "First", "OpportunityId": opportunity}
        assert client.Quote.upsert("Quotebot_Key__c/k1", body) == 201
        with pytest.raises(SalesforceMalformedRequest) as refusal:
            client.Quote.upsert("Quotebot_Key__c/k1", body)
        content: Any = refusal.value.content
        assert content[0]["errorCode"] == "INVALID_FIELD_FOR_INSERT_UPDATE"
        with pytest.raises(SalesforceMalformedRequest):
            client.Quote.upsert("Quotebot_Key__c/k1", {"Quotebot_Key__c": "k1"})
        with pytest.raises(SalesforceResourceNotFound):
            client.restful("sobjects/Quote/Quotebot_Key__c/k9", {"updateOnly": "true"}, "PATCH", data='{"Name":"x"}')

    await asyncio.to_thread(story)


@pytest.mark.parametrize(
    ("method", "path", "data", "status", "code"),
    [
        ("GET", "sobjects/Quote/0Q0SB00000000010AA", None, 404, "NOT_FOUND"),
        ("GET", "sobjects/Quote/001SB00000000010AA", None, 400, "MALFORMED_ID"),
        ("GET", "sobjects/Nonsense/describe", None, 404, "NOT_FOUND"),
        ("GET", "sobjects/Quote/Name/x", None, 404, "NOT_FOUND"),
        ("GET", "nonsense", None, 404, "NOT_FOUND"),
        ("POST", "sobjects/Quote", "{", 400, "JSON_PARSER_ERROR"),
        ("POST", "sobjects/Quote", "[]", 400, "JSON_PARSER_ERROR"),
        ("POST", "composite/graph", "{}", 400, "JSON_PARSER_ERROR"),
        ("PUT", "sobjects/Quote/0Q0SB00000000010AA", "{}", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_as_salesforce_does(
    world: World, session: requests.Session, method: str, path: str, data: str | None, status: int, code: str
) -> None:
    client = await log_in(world, session)
    with pytest.raises((SalesforceMalformedRequest, SalesforceResourceNotFound, SalesforceGeneralError)) as refusal:
        await asyncio.to_thread(client.restful, path, None, method, data=data)
    content: Any = refusal.value.content
    assert (refusal.value.status, content[0]["errorCode"]) == (status, code)


async def test_a_plain_http_client_can_log_in_with_credentials_in_the_body(world: World) -> None:
    environment = world.service.environment()
    form = {
        "grant_type": "client_credentials",
        "client_id": environment["SALESFORCE_CLIENT_ID"],
        "client_secret": environment["SALESFORCE_CLIENT_SECRET"],
    }
    async with aiohttp.ClientSession(world.service.plain_url) as client:
        async with client.post("/services/oauth2/token", data=form) as answer:
            token = await answer.json()
        assert token["instance_url"] == world.service.plain_url
        async with client.post("/services/oauth2/token", data={**form, "client_secret": "wrong"}) as answer:
            assert (answer.status, (await answer.json())["error"]) == (400, "invalid_client")
        async with client.post("/services/oauth2/token", data={"grant_type": "implicit"}) as answer:
            assert (await answer.json())["error"] == "unsupported_grant_type"
        async with client.get("/services/data/") as answer:
            assert "65.0" in {version["version"] for version in await answer.json()}
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        async with client.get("/services/data/v65.0/limits", headers=headers) as answer:
            assert answer.status == 200
            assert answer.headers["Sforce-Limit-Info"] == "api-usage=1/100000"


async def test_no_token_no_service(world: World, session: requests.Session) -> None:
    client = RestClient(session_id="00D!wrong", instance_url=world.service.url, version="65.0", session=session)
    with pytest.raises(SalesforceExpiredSession) as refusal:
        await asyncio.to_thread(client.limits)
    content: Any = refusal.value.content
    assert content[0]["errorCode"] == "INVALID_SESSION_ID"


async def test_an_expired_session_stays_expired_and_a_new_login_helps(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)
    world.weather.arm("salesforce", "auth_expired")
    with pytest.raises(SalesforceExpiredSession):
        await asyncio.to_thread(client.limits)
    with pytest.raises(SalesforceExpiredSession):
        await asyncio.to_thread(client.limits)
    client = await log_in(world, session)
    assert await asyncio.to_thread(client.limits)


async def test_a_refused_login_can_be_armed(world: World, session: requests.Session) -> None:
    world.weather.arm("salesforce", "auth_expired", method="oauth2/token")
    with pytest.raises(KeyError, match="access_token"):
        await log_in(world, session)
    client = await log_in(world, session)
    assert await asyncio.to_thread(client.limits)


async def test_a_slow_write_is_applied_although_the_client_has_gone(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)
    world.weather.arm("salesforce", "slow", method="sobjects/Quote", delay=0.3)
    with pytest.raises(requests.exceptions.ReadTimeout):
        await asyncio.to_thread(client.restful, "sobjects/Quote", None, "POST", data='{"Name":"late"}', timeout=0.05)
    assert world.service.records("Quote") == []
    await asyncio.wait_for(world.witness.wait(), 5)
    assert [record["Name"] for record in world.service.records("Quote")] == ["late"]
    assert world.witness.since()[-1].applied


async def test_temporary_authority_has_private_keys_and_is_not_trusted_by_default(world: World) -> None:
    directory = Path(world.service.ca_file).parent
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    trusting = ssl.create_default_context(cafile=world.service.ca_file)
    async with aiohttp.ClientSession() as client:
        for host in ("127.0.0.1", "localhost"):
            url = world.service.url.replace("127.0.0.1", host)
            async with client.get(f"{url}/services/data", ssl=trusting) as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get(f"{world.service.url}/services/data")


async def test_the_witness_names_the_call_and_never_sees_a_login(world: World, session: requests.Session) -> None:
    client = await log_in(world, session)
    await asyncio.to_thread(client.Quote.describe)
    await asyncio.to_thread(client.query, "SELECT Id FROM Quote")
    await asyncio.to_thread(client.Quote.upsert, "Quotebot_Key__c/k7", {"Name": "x"})
    assert world.methods() == ["oauth2/token", "sobjects/Quote/describe", "query", "sobjects/Quote"]
    last = world.witness.since()[-1]
    assert (last.key, last.applied, last.status) == ("k7", True, 201)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert world.witness.since()[0].request_hash == empty
