"""Tests of every refusal of the org, by its state or by an armed fault, as simple-salesforce sees them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceError

from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService, refusals
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET
from quotebot.sandbox.salesforce.org import Org
from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError, ValidationRule
from quotebot.sandbox.salesforce.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

QUOTE, LINE, ACCOUNT = SCHEMA["quote"], SCHEMA["quotelineitem"], SCHEMA["account"]
CREDENTIALS = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
# The refusals that adapters must handle: status and errorCode of each, as a client sees them.
STATUSES = {
    "API_CURRENTLY_DISABLED": 503,
    "API_DISABLED_FOR_ORG": 403,
    "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY": 400,
    "DUPLICATES_DETECTED": 400,
    "DUPLICATE_VALUE": 400,
    "ENTITY_IS_DELETED": 400,
    "ENTITY_IS_LOCKED": 400,
    "FIELD_CUSTOM_VALIDATION_EXCEPTION": 400,
    "FIELD_FILTER_VALIDATION_EXCEPTION": 400,
    "FIELD_INTEGRITY_EXCEPTION": 400,
    "INSUFFICIENT_ACCESS": 403,
    "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY": 400,
    "INSUFFICIENT_ACCESS_OR_READONLY": 403,
    "INVALID_AUTH_HEADER": 401,
    "INVALID_CROSS_REFERENCE_KEY": 400,
    "INVALID_FIELD": 400,
    "INVALID_FIELD_FOR_INSERT_UPDATE": 400,
    "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST": 400,
    "INVALID_QUERY_LOCATOR": 400,
    "INVALID_SESSION_ID": 401,
    "INVALID_TYPE": 400,
    "JSON_PARSER_ERROR": 400,
    "MALFORMED_ID": 400,
    "MALFORMED_QUERY": 400,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_FOUND": 404,
    "NUMBER_OUTSIDE_VALID_RANGE": 400,
    "QUERY_TIMEOUT": 400,
    "REQUEST_LIMIT_EXCEEDED": 403,
    "REQUEST_RUNNING_TOO_LONG": 400,
    "REQUIRED_FIELD_MISSING": 400,
    "SERVER_UNAVAILABLE": 503,
    "STRING_TOO_LONG": 400,
    "UNABLE_TO_LOCK_ROW": 400,
    "UNKNOWN_EXCEPTION": 500,
    "UNSUPPORTED_API_VERSION": 410,
}


class World:
    def __init__(self, directory: Path) -> None:
        self.witness = Witness()
        self.weather = ArmedFaults()
        self.service = SalesforceService(self.witness, self.weather, directory)

    def client(self, session: requests.Session) -> Any:
        answer = session.post(f"{self.service.url}/services/oauth2/token", data=CREDENTIALS, timeout=5).json()
        return Salesforce(session_id=answer["access_token"], instance_url=self.service.url, version="65.0", session=session)


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


def refused_with(work: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(SalesforceError) as refusal:
        work()
    content: Any = refusal.value.content
    assert isinstance(content[0]["message"], str)
    return refusal.value.status, content[0]["errorCode"]


async def test_any_code_can_be_armed_and_refuses_before_anything_is_written(world: World, session: requests.Session) -> None:
    def story() -> dict[str, int]:
        client = world.client(session)
        found = {}
        for code in sorted(refusals.CODES - refusals.OF_LOGINS.keys() - {"CONCURRENT_REQUESTS"}):
            world.weather.arm("salesforce", "refused", code=code)
            status, said = refused_with(lambda: client.Quote.create({"Name": "Quote"}))
            found[said] = status
        world.weather.arm("salesforce", "refused", code="CONCURRENT_REQUESTS")
        with pytest.raises(SalesforceError, match="ConcurrentRequests"):
            client.limits()
        world.weather.arm("salesforce", "refused", code="NEW_IN_SUMMER")
        assert refused_with(client.limits) == (400, "NEW_IN_SUMMER")
        world.weather.arm("salesforce", "refused")
        assert refused_with(lambda: client.Quote.create({"Name": "Quote"})) == (400, "UNABLE_TO_LOCK_ROW")
        assert client.Quote.create({"Name": "Quote"})["success"]
        return found

    assert await asyncio.to_thread(story) == STATUSES
    assert [record["Name"] for record in world.service.records("Quote")] == ["Quote"]


async def test_a_record_s_code_strikes_one_node_of_a_graph_and_the_others_are_halted(
    world: World, session: requests.Session
) -> None:
    def story() -> Any:
        client = world.client(session)
        world.weather.arm("salesforce", "refused", code="UNABLE_TO_LOCK_ROW", method="composite/graph")
        nodes = [
            {"method": "POST", "url": "/services/data/v65.0/sobjects/Account", "referenceId": name, "body": {"Name": name}}
            for name in ("a", "b")
        ]
        body = json.dumps({"graphs": [{"graphId": "1", "compositeRequest": nodes}]})
        return client.restful("composite/graph", method="POST", data=body)["graphs"][0]

    answer = await asyncio.to_thread(story)
    codes = [result["body"][0]["errorCode"] for result in answer["graphResponse"]["compositeResponse"]]
    assert (answer["isSuccessful"], codes) == (False, ["UNABLE_TO_LOCK_ROW", "PROCESSING_HALTED"])
    assert world.service.records("Account") == []


async def test_a_login_can_be_refused_in_every_way_of_oauth(world: World, session: requests.Session) -> None:
    def story() -> None:
        for code, (status, _) in refusals.OF_LOGINS.items():
            world.weather.arm("salesforce", "refused", code=code, method="oauth2/token")
            answer = session.post(f"{world.service.url}/services/oauth2/token", data=CREDENTIALS, timeout=5)
            assert (answer.status_code, answer.json()["error"]) == (status, code)

    await asyncio.to_thread(story)


async def test_a_spent_day_is_refused_until_there_is_more(world: World, session: requests.Session) -> None:
    def story() -> None:
        client = world.client(session)
        world.service._rest.allowance = 2
        for used in (1, 2):
            client.limits()
            assert (client.api_usage["api-usage"].used, client.api_usage["api-usage"].total) == (used, 2)
        assert refused_with(client.limits) == (403, "REQUEST_LIMIT_EXCEEDED")
        world.service._rest.allowance = 10
        assert client.limits()["DailyApiRequests"] == {"Max": 10, "Remaining": 7}

    await asyncio.to_thread(story)


async def test_an_answer_can_drip_after_the_write_was_done(world: World, session: requests.Session) -> None:
    def story() -> float:
        client = world.client(session)
        world.weather.arm("salesforce", "drip", method="sobjects/Quote", delay=0.002)
        began = time.monotonic()
        assert client.Quote.create({"Name": "Quote"})["success"]
        world.weather.arm("salesforce", "drip", method="sobjects/Quote", delay=30.0)
        with pytest.raises(requests.exceptions.RequestException):
            client.restful("sobjects/Quote", None, "POST", data='{"Name":"late"}', timeout=0.1)
        return time.monotonic() - began

    assert await asyncio.to_thread(story) > 0.1
    assert [record["Name"] for record in world.service.records("Quote")] == ["Quote", "late"]


async def test_a_header_of_another_kind_is_no_session(world: World, session: requests.Session) -> None:
    def story() -> None:
        client = world.client(session)
        client.headers["Authorization"] = "Basic eDp5"
        assert refused_with(client.limits) == (401, "INVALID_AUTH_HEADER")

    await asyncio.to_thread(story)


async def test_a_retired_version_is_gone(world: World, session: requests.Session) -> None:
    def story() -> None:
        client = world.client(session)
        client.base_url = client.base_url.replace("v65.0", "v30.0")
        assert refused_with(client.limits) == (410, "UNSUPPORTED_API_VERSION")

    await asyncio.to_thread(story)


def an_org() -> tuple[Org, str, str]:
    """Return an org with a quote and one line."""
    org = Org(lambda: 0.0)
    quote = org.create(QUOTE, {"Name": "Quote", "Quotebot_Key__c": "k"})
    return org, quote, org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2})


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(SalesforceRefusalError) as refusal:
        work()
    return refusal.value.code


def test_a_row_somebody_holds_cannot_be_written_nor_can_what_hangs_on_it() -> None:
    org, quote, line = an_org()
    org.rules.busy.add(quote)
    for write in (
        lambda: org.update(QUOTE, quote, {"Name": "new"}),
        lambda: org.create(LINE, {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2}),
        lambda: org.update(LINE, line, {"Quantity": 2}),
        lambda: org.delete(LINE, line),
    ):
        assert code_of(write) == "UNABLE_TO_LOCK_ROW"
    org.rules.busy.clear()
    org.update(QUOTE, quote, {"Name": "new"})


def test_a_record_in_an_approval_process_or_of_somebody_else_is_left_alone() -> None:
    org, quote, _ = an_org()
    org.rules.locked.add(quote)
    assert code_of(lambda: org.update(QUOTE, quote, {"Name": "new"})) == "ENTITY_IS_LOCKED"
    org.rules.locked.clear()
    org.rules.unshared.add(quote)
    assert code_of(lambda: org.delete(QUOTE, quote)) == "INSUFFICIENT_ACCESS_OR_READONLY"
    line = {"QuoteId": quote, "Quantity": 1, "UnitPrice": 2}
    assert code_of(lambda: org.create(LINE, line)) == "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY"


@pytest.mark.parametrize(
    ("trigger", "code"), [(False, "FIELD_CUSTOM_VALIDATION_EXCEPTION"), (True, "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY")]
)
def test_a_rule_of_the_admin_holds_for_new_and_for_changed_records(trigger: bool, code: str) -> None:  # noqa: FBT001 -- given
    org, quote, _ = an_org()
    rule = ValidationRule("Quote", "Nothing below 10", lambda record: "cheap" in str(record["Name"]), "Name", trigger=trigger)
    org.rules.validations.append(rule)
    with pytest.raises(SalesforceRefusalError, match="Nothing below 10") as refusal:
        org.create(QUOTE, {"Name": "a cheap one"})
    assert (refusal.value.code, refusal.value.fields) == (code, ("Name",))
    assert code_of(lambda: org.update(QUOTE, quote, {"Name": "cheap"})) == code


def test_a_duplicate_rule_is_not_the_uniqueness_of_a_key() -> None:
    org = Org(lambda: 0.0)
    org.rules.duplicate_fields["Account"] = "Name"
    first = org.create(ACCOUNT, {"Name": "Acme", "Quotebot_Key__c": "k"})
    assert code_of(lambda: org.create(ACCOUNT, {"Name": "ACME"})) == "DUPLICATES_DETECTED"
    assert code_of(lambda: org.create(ACCOUNT, {"Name": "Globex", "Quotebot_Key__c": "k"})) == "DUPLICATE_VALUE"
    org.update(ACCOUNT, first, {"Name": "acme"})


def test_a_price_comes_out_of_the_quotes_own_price_book() -> None:
    org = Org(lambda: 0.0)
    book, other = (org.create(SCHEMA["pricebook2"], {"Name": name}) for name in ("Standard", "Other"))
    product = org.create(SCHEMA["product2"], {"Name": "Pro"})
    entry = org.create(SCHEMA["pricebookentry"], {"Pricebook2Id": book, "Product2Id": product, "UnitPrice": 1})
    ours, theirs = (org.create(QUOTE, {"Name": "Quote", "Pricebook2Id": pricebook}) for pricebook in (book, other))
    line = {"PricebookEntryId": entry, "Quantity": 1, "UnitPrice": 1}
    org.create(LINE, {**line, "QuoteId": ours})
    assert code_of(lambda: org.create(LINE, {**line, "QuoteId": theirs})) == "FIELD_INTEGRITY_EXCEPTION"


def test_a_document_is_made_by_its_first_version_linked_once_and_its_versions_stay() -> None:
    org, quote, _ = an_org()
    version, document, link = (SCHEMA[name] for name in ("contentversion", "contentdocument", "contentdocumentlink"))
    made = org.create(version, {"PathOnClient": "a.pdf", "VersionData": "JVBERg=="})
    document_id = str(org.read(version, made)["ContentDocumentId"])
    org.create(link, {"ContentDocumentId": document_id, "LinkedEntityId": quote})
    again = {"ContentDocumentId": document_id, "LinkedEntityId": quote}
    assert code_of(lambda: org.create(link, again)) == "DUPLICATE_VALUE"
    assert code_of(lambda: org.create(document, {"Title": "x"})) == "INVALID_TYPE_FOR_OPERATION"
    assert code_of(lambda: org.delete(version, made)) == "INVALID_TYPE_FOR_OPERATION"
    assert code_of(lambda: org.create(version, {"PathOnClient": "a", "VersionData": "!"})) == "INVALID_BASE64_ENCODING"
    assert code_of(lambda: org.create(link, {"ContentDocumentId": document_id})) == "REQUIRED_FIELD_MISSING"
    nobody = {"ContentDocumentId": document_id, "LinkedEntityId": "0Q0SB00000000090AA"}
    assert code_of(lambda: org.create(link, nobody)) == "INVALID_CROSS_REFERENCE_KEY"
    org.delete(document, document_id)
    assert [list(org.all(sobject)) for sobject in (version, link)] == [[], []]
    assert org.read(QUOTE, quote)["LineItemCount"] == 1
