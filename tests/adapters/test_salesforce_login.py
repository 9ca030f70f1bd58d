"""Tests of the login: the bot's identity, and the number of requests after a refused session, counted on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_curve_key
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import Salesforce
from adapters.salesforce.calls import ApiUsage
from adapters.salesforce.transport import ClientCredentials, JwtBearer
from quotebot.sandbox.salesforce.tls import make_server_context
from tests.adapters.test_salesforce import GRAPH, LOGIN, World, a_quote
from tests.adapters.test_salesforce_errors import TOKEN, http, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NOW = 1_800_000_000


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.service.start()
    yield world
    await world.service.stop()


def pem(key: Any, *, passphrase: bytes | None = None) -> str:
    sealed = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)
    return text.decode()


def part(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=="))


async def logged_in(tmp_path: Path, credentials: JwtBearer | ClientCredentials) -> tuple[str, bytes]:
    """Log in to a recording server; return the headers and the form that it received."""
    seen: list[tuple[bytes, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length.group(1))) if length else b""
        seen.append((head, body))
        writer.write(http(200, TOKEN) if b"/oauth2/token" in head else refusal(404, "NOT_FOUND"))
        await writer.drain()
        writer.close()

    context, ca_file = make_server_context(tmp_path)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = Salesforce(address, "app", credentials=credentials, ca_file=str(ca_file), timeout_seconds=5)
    try:
        assert await client.describe("Quote") is None
    finally:
        await client.close()
        server.close()
        for _ in range(5):
            await asyncio.sleep(0)
    return seen[0][0].decode(), seen[0][1]


async def test_a_login_by_key_sends_an_assertion_that_the_certificate_verifies(tmp_path: Path, key: RSAPrivateKey) -> None:
    bearer = JwtBearer("app", "bot@acme.example", pem(key), "https://test.salesforce.com", now=lambda: NOW + 0.9)
    head, body = await logged_in(tmp_path, bearer)
    form = parse_qs(body.decode())
    header, claims, signature = form["assertion"][0].split(".")
    key.public_key().verify(base64.urlsafe_b64decode(signature + "=="), f"{header}.{claims}".encode(), PKCS1v15(), SHA256())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert part(header) == {"alg": "RS256", "typ": "JWT"}
    assert part(claims) == {
        "iss": "app",
        "sub": "bot@acme.example",
        "aud": "https://test.salesforce.com",
        "exp": NOW + 180,
    }
    assert "authorization:" not in head.lower()


async def test_a_login_by_secret_sends_it_in_a_header_and_nowhere_else(tmp_path: Path) -> None:
    head, body = await logged_in(tmp_path, ClientCredentials("app", "s3cret"))
    assert f"Authorization: Basic {base64.b64encode(b'app:s3cret').decode()}" in head
    assert body == b"grant_type=client_credentials"


@pytest.mark.parametrize("bad", ["no key", "passphrase", "curve", "short"])
async def test_a_key_that_cannot_sign_pauses_the_crm_and_is_never_repeated(tmp_path: Path, key: RSAPrivateKey, bad: str) -> None:
    makers: dict[str, Callable[[], str]] = {
        "no key": lambda: "planted nonsense",
        "passphrase": lambda: pem(key, passphrase=b"planted"),
        "curve": lambda: pem(generate_curve_key(SECP256R1())),
        "short": lambda: pem(generate_private_key(65537, 1024)),  # noqa: S505 -- the weak key that is refused
    }
    text = makers[bad]()
    _, ca_file = make_server_context(tmp_path)
    client = Salesforce("https://127.0.0.1:1", "app", credentials=JwtBearer("app", "bot", text), ca_file=str(ca_file))
    with pytest.raises(AdapterError) as error:
        await client.describe("Quote")
    await client.close()
    assert (error.value.failure, error.value.code) == (Failure.AUTH, "private_key_unusable")
    assert "planted" not in str(error.value)
    assert text[:40] not in str(error.value)


def test_credentials_print_no_secret(key: RSAPrivateKey) -> None:
    shown = repr([ClientCredentials("app", "planted"), JwtBearer("app", "bot", pem(key)), JwtBearer("a", "b", pem(key)).request()])
    assert "planted" not in shown
    assert "PRIVATE" not in shown
    assert "assertion" not in shown


async def test_rejected_session_costs_one_login_and_one_request_for_all_waiting_calls(world: World) -> None:
    world.weather.arm("salesforce", "auth_expired", times=1000)
    async with world.client() as client:
        first = await asyncio.gather(
            *(client.create_quote(a_quote(f"k{number}"), correlation_id="op") for number in range(8)), return_exceptions=True
        )
        seen = [sighting.method for sighting in world.seen()]
        await asyncio.gather(client.create_quote(a_quote(), correlation_id="op"), return_exceptions=True)
    assert [(end.failure, end.code) for end in first if isinstance(end, AdapterError)] == [(Failure.AUTH, "INVALID_SESSION_ID")] * 8
    assert seen == [LOGIN, GRAPH]
    assert [sighting.method for sighting in world.seen()[len(seen) :]] == [LOGIN, GRAPH]  # once more after the pause


async def test_a_session_that_ends_for_good_costs_one_login_and_one_repeated_request(world: World) -> None:
    async with world.client(threads=4) as client:
        await client.create_quote(a_quote("k0"), correlation_id="op")
        before = len(world.seen())
        world.weather.arm("salesforce", "auth_expired", times=1000)
        ends = await asyncio.gather(
            *(client.create_quote(a_quote(f"k{number}"), correlation_id="op") for number in range(1, 5)), return_exceptions=True
        )
    seen = [sighting.method for sighting in world.seen()[before:]]
    assert all(isinstance(end, AdapterError) and end.failure is Failure.AUTH for end in ends)
    assert seen.count(LOGIN) == 1
    assert seen.count(GRAPH) <= len(ends) + 1  # requests in flight when the session ended, and one that proves the new session


async def test_after_a_pause_the_next_call_logs_in_anew(world: World) -> None:
    world.weather.arm("salesforce", "auth_expired", times=1)
    async with world.client() as client:
        with pytest.raises(AdapterError):
            await client.create_quote(a_quote(), correlation_id="op")
        assert (await client.create_quote(a_quote(), correlation_id="op")).created
    assert [sighting.method for sighting in world.seen()] == [LOGIN, GRAPH] * 2


async def test_every_answer_tells_how_much_of_the_allowance_is_used(world: World) -> None:
    async with world.client() as client:
        used = [client.usage]
        await client.create_quote(a_quote("k1"), correlation_id="op")
        used.append(client.usage)
        await client.describe("Quote")
        used.append(client.usage)
    assert used == [None, ApiUsage(1, 100_000), ApiUsage(2, 100_000)]
