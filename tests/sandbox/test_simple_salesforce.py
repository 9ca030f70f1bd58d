"""Tests of simple-salesforce as in its own documentation, with a domain and credentials, unaware of the stand-in.

A proxy and a CA redirect it here, as two environment variables would (HTTPS_PROXY and REQUESTS_CA_BUNDLE).
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceAuthenticationFailed, SalesforceMoreThanOneRecord
from simple_salesforce.format import format_soql

from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET, MY_DOMAIN, PASSWORD, USERNAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

DOMAIN = MY_DOMAIN.removesuffix(".salesforce.com")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[SalesforceService]:
    service = SalesforceService(Witness(), ArmedFaults(), tmp_path)
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
def session(service: SalesforceService) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"https": service.proxy_url}
        session.verify = service.ca_file
        yield session


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def by_credentials(session: requests.Session, secret: str = CLIENT_SECRET) -> Any:
    return Salesforce(domain=DOMAIN, consumer_key=CLIENT_ID, consumer_secret=secret, version="65.0", session=session)


async def test_it_logs_in_writes_reads_upserts_queries_all_and_describes(
    service: SalesforceService, session: requests.Session
) -> None:
    def story() -> None:
        client = by_credentials(session)
        assert client.base_url == f"https://{MY_DOMAIN}/services/data/v65.0/"
        created = client.Account.create({"Name": "O'Hara & Søn"})
        assert client.Account.get(created["id"])["Name"] == "O'Hara & Søn"
        assert client.Account.update(created["id"], {"Name": "O'Hara"}) == 204
        assert client.Quote.upsert("Quotebot_Key__c/k1", {"Name": "First"}) == 201
        assert client.Quote.upsert("Quotebot_Key__c/k1", {"Name": "Second"}) == 200
        query = format_soql("SELECT Id, Name FROM Account WHERE Name = {}", "O'Hara")
        assert client.query(query)["records"][0]["attributes"]["url"].endswith(created["id"])

        client.bulk_of = [{"Name": f"Bulk {number}", "attributes": {"type": "Account"}} for number in range(200)]
        for _ in range(11):
            client.restful("composite/sobjects", method="POST", json={"allOrNone": True, "records": client.bulk_of})
        found = client.query_all("SELECT Id FROM Account WHERE Name LIKE 'Bulk%'")
        assert (found["totalSize"], len(found["records"]), found["done"]) == (2200, 2200, True)
        assert len({record["Id"] for record in found["records"]}) == 2200

        described = client.Quote.describe()
        assert {"Quotebot_Key__c", "OwnerId"} <= {field["name"] for field in described["fields"]}
        assert "QuoteLineItems" in {child["relationshipName"] for child in described["childRelationships"]}
        assert client.Account.delete(created["id"]) == 204

    await asyncio.to_thread(story)


async def test_it_logs_in_with_a_signed_assertion_and_with_a_password(
    service: SalesforceService, session: requests.Session, key: rsa.RSAPrivateKey
) -> None:
    service.login.upload_certificate(public_pem(key))

    def story() -> None:
        signed = Salesforce(username=USERNAME, consumer_key=CLIENT_ID, privatekey=private_pem(key), session=session)
        assert signed.sf_instance == MY_DOMAIN
        assert signed.query("SELECT Name FROM User WHERE Email = 'rep@quotebot-sandbox.example'")["totalSize"] == 1
        known: dict[str, Any] = {"username": USERNAME, "consumer_key": CLIENT_ID, "consumer_secret": CLIENT_SECRET}
        assert Salesforce(**known, password=PASSWORD, session=session).limits()

    await asyncio.to_thread(story)


@pytest.mark.filterwarnings("ignore:(?s).*connected app policy")  # its advice about an unapproved user
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"consumer_key": "another app"}, "invalid_client_id"),
        ({"username": "nobody@example.com"}, "invalid_grant"),
        ({"domain": "acme.my"}, "invalid_grant"),
        ({"privatekey": "another key"}, "invalid_grant"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
async def test_an_assertion_that_is_not_ours_is_no_login(
    service: SalesforceService, session: requests.Session, key: rsa.RSAPrivateKey, changes: dict[str, str], code: str
) -> None:
    other = rsa.generate_private_key(65537, 2048) if "privatekey" in changes else key
    service.login.upload_certificate(public_pem(key))
    given: dict[str, Any] = {"username": USERNAME, "consumer_key": CLIENT_ID, **changes, "privatekey": private_pem(other)}
    with pytest.raises(SalesforceAuthenticationFailed) as refusal:
        await asyncio.to_thread(Salesforce, **given, session=session)
    assert refusal.value.code == code


def test_assertions_are_signed_with_rsa(tmp_path: Path) -> None:
    service = SalesforceService(Witness(), ArmedFaults(), tmp_path)
    with pytest.raises(ValueError, match="RSA"):
        service.login.upload_certificate(public_pem(ec.generate_private_key(ec.SECP256R1())))


async def test_the_soap_login_is_off_as_in_a_new_org(service: SalesforceService, session: requests.Session) -> None:
    with pytest.raises(SalesforceAuthenticationFailed) as refusal:
        await asyncio.to_thread(Salesforce, username=USERNAME, password=PASSWORD, security_token="x", session=session)
    assert refusal.value.code == "INVALID_OPERATION"


async def test_an_external_id_that_two_records_share_is_answered_with_both(
    service: SalesforceService, session: requests.Session
) -> None:
    def story() -> None:
        client = by_credentials(session)
        for name in ("One", "Two"):
            client.Account.create({"Name": name, "Erp_Number__c": "E-1"})
        with pytest.raises(SalesforceMoreThanOneRecord) as refusal:
            client.Account.get_by_custom_id("Erp_Number__c", "E-1")
        assert len(refusal.value.content) == 2

    await asyncio.to_thread(story)


async def test_a_file_is_published_on_a_record_by_base64_and_by_multipart(
    service: SalesforceService, session: requests.Session
) -> None:
    content = b"%PDF-1.7 \x00\xff\r\n--"

    def story() -> None:
        client = by_credentials(session)
        quote = client.Quote.create({"Name": "Quote"})["id"]
        encoded = base64.b64encode(content).decode()
        fields = {"Title": "Quote v1", "PathOnClient": "quote.pdf", "FirstPublishLocationId": quote}
        first = client.ContentVersion.create({**fields, "VersionData": encoded})["id"]
        document = client.ContentVersion.get(first)["ContentDocumentId"]
        parts: dict[str, Any] = {
            "entity_content": (None, f'{{"PathOnClient": "quote.pdf", "ContentDocumentId": "{document}"}}', "application/json"),
            "VersionData": ("quote.pdf", content + b"2", "application/pdf"),
        }
        headers = {"Authorization": f"Bearer {client.session_id}"}
        answer = session.post(f"{client.base_url}sobjects/ContentVersion/", headers=headers, files=parts, timeout=5)
        second = answer.json()["id"]
        select = "SELECT Id, VersionNumber, IsLatest FROM ContentVersion WHERE ContentDocumentId = {}"
        versions = client.query(format_soql(select, document))
        assert [(row["Id"], row["VersionNumber"], row["IsLatest"]) for row in versions["records"]] == [
            (first, "1", False),
            (second, "2", True),
        ]
        for version, expected in ((first, content), (second, content + b"2")):
            data = client.ContentVersion.get(version)["VersionData"]
            assert session.get(f"https://{MY_DOMAIN}{data}", headers=headers, timeout=5).content == expected
        links = client.query(format_soql("SELECT ContentDocumentId FROM ContentDocumentLink WHERE LinkedEntityId = {}", quote))
        assert [row["ContentDocumentId"] for row in links["records"]] == [document]

    await asyncio.to_thread(story)


async def test_what_was_changed_and_what_was_deleted_can_be_asked_for(
    service: SalesforceService, session: requests.Session
) -> None:
    def story() -> None:
        client = by_credentials(session)
        kept, gone = (client.Account.create({"Name": name})["id"] for name in ("kept", "gone"))
        client.Account.delete(gone)
        day = dt.timedelta(days=1)
        now = dt.datetime.now(dt.UTC)
        assert client.Account.updated(now - day, now + day)["ids"] == [kept]
        assert [each["id"] for each in client.Account.deleted(now - day, now + day)["deletedRecords"]] == [gone]
        assert client.Account.updated(now + day, now + 2 * day)["ids"] == []
        query = "SELECT Name FROM Account WHERE IsDeleted = true"
        assert [found["Name"] for found in client.query_all(query, include_deleted=True)["records"]] == ["gone"]
        assert client.query(query)["totalSize"] == 0

    await asyncio.to_thread(story)


async def test_the_proxy_leads_to_salesforce_and_nowhere_else(service: SalesforceService) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"https": service.proxy_url}
        with pytest.raises(requests.exceptions.ProxyError, match="403"):
            await asyncio.to_thread(session.get, "https://example.com/", timeout=5)
