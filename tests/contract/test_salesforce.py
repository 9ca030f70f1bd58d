"""Contract tests of Salesforce: the stand-in and, with credentials, a real org."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import requests
from simple_salesforce.api import Salesforce as RestClient
from simple_salesforce.exceptions import SalesforceError, SalesforceResourceNotFound

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import Salesforce, SalesforceLine, SalesforceQuote
from adapters.salesforce.records import Position
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET
from tests.contract.services import STAND_IN, both, given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

VERSION = "65.0"
LINES = (
    SalesforceLine("pro", "Pro Plan", 3, 12, Decimal("10.125"), Decimal(10), Decimal("328.05"), 1),
    SalesforceLine("sso", "SSO", 1, 12, Decimal(50), Decimal(0), Decimal("600.00"), 2),
)


@dataclass(slots=True)
class Side:
    """One org. Each test has its own `key`; the records written under it are deleted afterwards."""

    instance_url: str
    client_id: str
    client_secret: str
    ca_file: str | None
    key: str

    def adapter(self, *, secret: str | None = None) -> Salesforce:
        return Salesforce(self.instance_url, self.client_id, secret or self.client_secret, ca_file=self.ca_file)

    def quote(self, **changes: object) -> SalesforceQuote:
        quote = SalesforceQuote(self.key, "Contract test", "Acme", 1, "USD", Decimal("928.05"), "hash-1", "2030-12-31", LINES)
        return replace(quote, **changes)  # type: ignore[arg-type] # each test names real fields

    def plain(self) -> Any:
        """Return simple-salesforce's own client, for facts that no adapter reads."""
        session = requests.Session()
        session.trust_env = self.ca_file is None
        session.verify = self.ca_file or True
        form = {"grant_type": "client_credentials", "client_id": self.client_id, "client_secret": self.client_secret}
        answer = session.post(f"{self.instance_url}/services/oauth2/token", data=form, timeout=30).json()
        return RestClient(session_id=answer["access_token"], instance_url=self.instance_url, version=VERSION, session=session)

    def tidy(self) -> None:
        client = self.plain()
        try:
            client.restful(f"sobjects/Quote/Quotebot_Key__c/{self.key}", method="DELETE")
        except SalesforceResourceNotFound:
            return


@pytest.fixture(params=both("SALESFORCE_INSTANCE_URL", "SALESFORCE_CLIENT_ID", "SALESFORCE_CLIENT_SECRET"))
async def org(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Side]:
    key = f"contract-{uuid.uuid4().hex}_v1"
    if request.param == STAND_IN:
        service = SalesforceService(Witness(), ArmedFaults(), tmp_path)
        await service.start()
        side = Side(service.url, CLIENT_ID, CLIENT_SECRET, service.ca_file, key)
        yield side
        await asyncio.to_thread(side.tidy)
        await service.stop()
        return
    url = given("SALESFORCE_INSTANCE_URL").rstrip("/")
    client_id, secret = given("SALESFORCE_CLIENT_ID"), given("SALESFORCE_CLIENT_SECRET")
    side = Side(url, client_id, secret, given("SALESFORCE_CA_FILE") or None, key)
    yield side
    await asyncio.to_thread(side.tidy)


async def test_a_quote_is_written_once_however_often_it_is_sent(org: Side) -> None:
    client = org.adapter()
    try:
        first = await client.create_quote(org.quote(), correlation_id="contract")
        again = await client.create_quote(org.quote(), correlation_id="contract")
        found = await client.find_quote(org.key, "hash-1", correlation_id="contract")
        with pytest.raises(AdapterError) as conflict:
            await client.create_quote(org.quote(content_hash="hash-2"), correlation_id="contract")
    finally:
        await client.close()
    assert first.record_id.startswith("0Q0")
    assert (first.created, again.created) == (True, False)
    assert again.record_id == first.record_id
    assert found == again
    assert conflict.value.failure is Failure.CONFLICT


async def test_a_quote_with_one_bad_line_leaves_nothing(org: Side) -> None:
    client = org.adapter()
    bad = replace(LINES[1], name="x" * 300)
    try:
        with pytest.raises(AdapterError) as refusal:
            await client.create_quote(org.quote(lines=(LINES[0], bad)), correlation_id="contract")
        found = await client.find_quote(org.key, "hash-1", correlation_id="contract")
    finally:
        await client.close()
    assert (refusal.value.failure, refusal.value.code) == (Failure.MAPPING, "STRING_TOO_LONG")
    assert found is None


async def test_a_wrong_secret_is_a_login_trouble_and_not_an_outage(org: Side) -> None:
    client = org.adapter(secret="wrong")
    try:
        with pytest.raises(AdapterError) as refusal:
            await client.find_quote(org.key, "hash-1", correlation_id="contract")
    finally:
        await client.close()
    assert refusal.value.failure is Failure.AUTH


async def writable_fields(client: Salesforce, sobject: str) -> set[str]:
    described = await client.describe(sobject)
    assert described is not None
    return {field.name for field in described.fields.values() if field.createable}


async def test_the_fields_we_write_can_be_written(org: Side) -> None:
    client = org.adapter()
    try:
        quote = await writable_fields(client, "Quote")
        line = await writable_fields(client, "QuoteLineItem")
    finally:
        await client.close()
    assert {"Name", "Quotebot_Key__c", "Quotebot_Hash__c", "Quotebot_Total__c"} <= quote
    assert {"QuoteId", "Quantity", "UnitPrice", "Discount", "Quotebot_Net__c"} <= line
    assert not {"GrandTotal", "QuoteNumber", "Id"} & quote


def refused(work: Callable[[], object]) -> tuple[int, list[dict[str, Any]]]:
    with pytest.raises(SalesforceError) as refusal:
        work()
    content: Any = refusal.value.content
    return refusal.value.status, content


async def test_an_upsert_says_whether_it_created_and_takes_the_key_from_its_address_alone(org: Side) -> None:
    def story() -> None:
        client = org.plain()
        place = f"sobjects/Quote/Quotebot_Key__c/{org.key}"
        answers = [client.restful(place, method="PATCH", data=json.dumps({"Name": name})) for name in ("one", "two")]
        assert [answer["created"] for answer in answers] == [True, False]
        assert answers[0]["id"] == answers[1]["id"]
        status, errors = refused(lambda: client.restful(place, method="PATCH", data=json.dumps({"Quotebot_Key__c": org.key})))
        assert (status, errors[0]["errorCode"]) == (400, "INVALID_FIELD")

    await asyncio.to_thread(story)


async def test_a_second_record_of_a_key_names_the_first(org: Side) -> None:
    def story() -> None:
        client = org.plain()
        record = {"Name": "Contract test", "Quotebot_Key__c": org.key}
        first = client.Quote.create(record)["id"]
        status, errors = refused(lambda: client.Quote.create(record))
        assert (status, errors[0]["errorCode"]) == (400, "DUPLICATE_VALUE")
        assert "duplicate value found: Quotebot_Key__c duplicates value on record with id: " in errors[0]["message"]
        assert first[:15] in errors[0]["message"]

    await asyncio.to_thread(story)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT Id FROM Quote WHERE", "MALFORMED_QUERY"),
        ("SELECT Id FROM Quote WHERE Name = 'a' AND Name = 'b' OR Name = 'c'", "MALFORMED_QUERY"),
        ("SELECT NoSuchField__c FROM Quote", "INVALID_FIELD"),
        ("SELECT Id FROM NoSuchObject__c", "INVALID_TYPE"),
        ("SELECT Id FROM ContentDocumentLink", "MALFORMED_QUERY"),
    ],
)
async def test_a_query_is_refused_with_the_code_we_know(org: Side, query: str, code: str) -> None:
    status, errors = await asyncio.to_thread(lambda: refused(lambda: org.plain().query(query)))
    assert (status, errors[0]["errorCode"]) == (400, code)


async def test_a_file_can_be_hung_on_a_quote_and_the_use_of_the_day_is_told(org: Side) -> None:
    def story() -> None:
        client = org.plain()
        quote = client.Quote.create({"Name": "Contract test", "Quotebot_Key__c": org.key})["id"]
        fields = {"Title": "Contract test", "PathOnClient": "quote.pdf", "FirstPublishLocationId": quote}
        client.ContentVersion.create({**fields, "VersionData": "JVBERi0xLjc="})
        links = client.query(f"SELECT ContentDocumentId FROM ContentDocumentLink WHERE LinkedEntityId = '{quote}'")  # noqa: S608 -- an id
        assert links["totalSize"] == 1
        client.ContentDocument.delete(links["records"][0]["ContentDocumentId"])
        assert client.api_usage["api-usage"].used > 0

    await asyncio.to_thread(story)


async def test_a_spent_token_is_refused_as_such(org: Side) -> None:
    def story() -> None:
        client = org.plain()
        client.headers["Authorization"] = "Bearer 00D000000000000!not-a-token"
        status, errors = refused(client.limits)
        assert (status, errors[0]["errorCode"]) == (401, "INVALID_SESSION_ID")

    await asyncio.to_thread(story)


async def test_a_quote_is_put_under_an_opportunity_that_was_offered_and_its_amount_follows(org: Side) -> None:
    plain = await asyncio.to_thread(org.plain)
    made = await asyncio.to_thread(plain.Account.create, {"Name": org.key})
    fields = {"Name": "Contract's 100 %", "AccountId": made["id"], "StageName": "Prospecting", "CloseDate": "2030-12-31"}
    await asyncio.to_thread(plain.Opportunity.create, fields)
    client = org.adapter()
    try:
        (offered,) = await client.opportunities.find_open(org.key, "contract's 100 %", 20.0)
        quote = org.quote(opportunity_id=offered.record_id, opportunity_account_id=offered.account_id)
        assert (await client.create_quote(quote, correlation_id="contract")).created
        await client.opportunities.write_amount(quote, correlation_id="contract")
        held = await client.opportunities.read(quote, correlation_id="contract")
        assert held is not None
        assert (held.account_id, held.closed, held.amount) == (made["id"], False, Decimal("928.05"))
        await asyncio.to_thread(plain.Opportunity.delete, offered.record_id)
        with pytest.raises(AdapterError) as gone:
            await client.create_quote(replace(quote, key=f"{org.key}9"), correlation_id="contract")
        assert gone.value.code == "opportunity_gone"
    finally:
        await client.close()
        await asyncio.to_thread(plain.Account.delete, made["id"])


async def test_what_changed_is_read_in_order_and_what_was_deleted_is_told(org: Side) -> None:
    plain = await asyncio.to_thread(org.plain)
    made = await asyncio.to_thread(plain.Account.create, {"Name": org.key})
    stamp = (await asyncio.to_thread(plain.Account.get, made["id"]))["SystemModstamp"]
    client = org.adapter()
    try:
        wanted, before = client.mapping.mirrors["accounts"], Position(stamp, "")
        page = await client.mirrors.page(wanted, before, again=False, correlation_id="contract")
        assert made["id"] in [each.record_id for each in page.kept]
        await asyncio.to_thread(plain.Account.delete, made["id"])
        after = await client.mirrors.page(wanted, before, again=False, correlation_id="contract")
        again = await client.mirrors.page(wanted, after.position, again=True, correlation_id="contract")
    finally:
        await client.close()
    assert made["id"] in after.deleted
    assert made["id"] in again.deleted
