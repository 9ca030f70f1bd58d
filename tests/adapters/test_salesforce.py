"""Tests of the Salesforce adapter against the stand-in org, over real TLS sockets."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import Salesforce, SalesforceLine, SalesforceQuote, SalesforceRecord
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import LoggedRequest, Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from adapters.salesforce.mapping import CrmMapping

GRAPH = "composite/graph"
LOGIN = "oauth2/token"


class World:
    def __init__(self, directory: Path) -> None:
        self.witness = Witness()
        self.weather = ArmedFaults()
        self.service = SalesforceService(self.witness, self.weather, directory)

    @asynccontextmanager
    async def client(
        self, *, timeout_seconds: float = 5.0, secret: str | None = None, threads: int = 4, mapping: CrmMapping | None = None
    ) -> AsyncIterator[Salesforce]:
        environment = self.service.environment()
        client = Salesforce(
            environment["SALESFORCE_INSTANCE_URL"],
            environment["SALESFORCE_CLIENT_ID"],
            secret or environment["SALESFORCE_CLIENT_SECRET"],
            ca_file=environment["SALESFORCE_CA_FILE"],
            timeout_seconds=timeout_seconds,
            threads=threads,
            mapping=mapping,
        )
        try:
            yield client
        finally:
            await client.close()

    def seen(self, method: str | None = None) -> list[LoggedRequest]:
        return [sighting for sighting in self.witness.since() if method in (None, sighting.method)]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 -- what is waited for has no event
                await asyncio.sleep(0.002)

    async def until_held(self) -> None:
        await self.until(lambda: self.weather.describe()[-1]["hits"] == 1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.service.start()
    yield world
    await world.service.stop()


def a_line(position: int = 1, **changes: object) -> SalesforceLine:
    line = SalesforceLine("pro", "Pro Plan", 3, 12, Decimal("10.125"), Decimal(10), Decimal("328.05"), position)
    return replace(line, **changes)  # type: ignore[arg-type] # each test names real fields


def a_quote(key: str = "led_Q-2026-0042_v1", *, count: int = 2, **changes: object) -> SalesforceQuote:
    items = tuple(a_line(position) for position in range(1, count + 1))
    total = sum((line.net_amount for line in items), Decimal(0))
    quote = SalesforceQuote(key, "Q-2026-0042 v1", "Acme Corp", 1, "USD", total, "hash-1", "2026-12-31", items)
    return replace(quote, **changes)  # type: ignore[arg-type] # each test names real fields


async def failure_of(client: Salesforce, quote: SalesforceQuote) -> AdapterError:
    with pytest.raises(AdapterError) as error:
        await client.create_quote(quote, correlation_id="op-1")
    return error.value


async def test_a_quote_and_its_lines_are_written_in_one_request_and_add_up(world: World) -> None:
    async with world.client() as client:
        record = await client.create_quote(a_quote(count=30), correlation_id="op-1")
    (quote,) = world.service.records("Quote")
    lines = world.service.records("QuoteLineItem")
    assert record == SalesforceRecord(str(quote["Id"]), created=True)
    assert [sighting.method for sighting in world.seen()] == [LOGIN, GRAPH]
    assert world.seen(GRAPH)[0].key == "led_Q-2026-0042_v1"
    assert (quote["Name"], quote["Quotebot_Account__c"], quote["Quotebot_Version__c"]) == ("Q-2026-0042 v1", "Acme Corp", 1)
    assert (quote["CurrencyIsoCode"], quote["ExpirationDate"], quote["Quotebot_Hash__c"]) == ("USD", "2026-12-31", "hash-1")
    assert {line["QuoteId"] for line in lines} == {quote["Id"]}
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == Decimal(str(quote["Quotebot_Total__c"]))
    assert [line["Quotebot_Position__c"] for line in lines] == list(range(1, 31))


async def test_a_repeat_finds_the_record_that_is_there(world: World) -> None:
    async with world.client() as client:
        first = await client.create_quote(a_quote(), correlation_id="op-1")
        again = await client.create_quote(a_quote(), correlation_id="op-2")
        found = await client.find_quote(a_quote().key, "hash-1", correlation_id="op-3")
    assert again == found == SalesforceRecord(first.record_id, created=False)
    assert (len(world.service.records("Quote")), len(world.service.records("QuoteLineItem"))) == (1, 2)


async def test_another_content_under_the_same_key_is_a_conflict(world: World) -> None:
    async with world.client() as client:
        await client.create_quote(a_quote(), correlation_id="op-1")
        error = await failure_of(client, a_quote(content_hash="hash-2"))
        assert (error.failure, error.possibly_applied) == (Failure.CONFLICT, False)
        with pytest.raises(AdapterError) as conflict:
            await client.find_quote(a_quote().key, "hash-2", correlation_id="op-2")
    assert conflict.value.failure is Failure.CONFLICT


async def test_a_quote_that_is_not_there_is_not_found(world: World) -> None:
    async with world.client() as client:
        assert await client.find_quote("nowhere", "hash-1", correlation_id="op-1") is None


async def test_a_duplicate_of_something_else_is_tried_again(world: World) -> None:
    org = world.service._org
    stranger = org.create(SCHEMA["quote"], {"Name": "stranger"})
    line = {"QuoteId": stranger, "Quantity": 1, "UnitPrice": 1, "Quotebot_Key__c": f"{a_quote().key}_L2"}
    org.create(SCHEMA["quotelineitem"], line)
    async with world.client() as client:
        error = await failure_of(client, a_quote())
    assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "DUPLICATE_VALUE", False)
    assert [sighting.method for sighting in world.seen()] == [LOGIN, GRAPH, "sobjects/Quote"]
    assert len(world.service.records("Quote")) == 1


async def test_the_same_key_written_by_many_at_once_is_written_once(world: World) -> None:
    async with world.client() as client:
        records = await asyncio.gather(*(client.create_quote(a_quote(), correlation_id=f"op-{n}") for n in range(12)))
    assert [record.created for record in records].count(True) == 1
    assert len({record.record_id for record in records}) == 1
    assert (len(world.service.records("Quote")), len(world.seen(LOGIN))) == (1, 1)


@pytest.mark.parametrize(
    ("quote", "code", "words"),
    [
        (a_quote(name=""), "REQUIRED_FIELD_MISSING", "Quote.Name = (0 characters)"),
        (a_quote(name="N" * 300), "STRING_TOO_LONG", "Quote.Name = (300 characters)"),
        (a_quote(currency="XXX"), "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", 'Quote.CurrencyIsoCode = "XXX"'),
        (a_quote(expires_on="soon"), "JSON_PARSER_ERROR", "Quote"),
        (a_quote(total=Decimal("1e14")), "NUMBER_OUTSIDE_VALID_RANGE", "Quote.Quotebot_Total__c"),
        (a_quote(lines=(a_line(sku="s" * 81),)), "STRING_TOO_LONG", "QuoteLineItem.Quotebot_Sku__c"),
    ],
)
async def test_a_refused_field_is_a_mapping_failure_that_names_object_field_and_value(
    world: World, quote: SalesforceQuote, code: str, words: str
) -> None:
    async with world.client() as client:
        error = await failure_of(client, quote)
    assert (error.failure, error.code, error.http_status, error.possibly_applied) == (Failure.MAPPING, code, 400, False)
    assert words in str(error)
    assert "NNN" not in str(error)
    assert world.service.records("Quote") == []
    assert len(world.seen(GRAPH)) == 1


@pytest.mark.parametrize(
    ("quote", "code"),
    [
        (a_quote(count=500), "too_many_lines"),
        (a_quote("a/b"), "invalid_key"),
        (a_quote(""), "invalid_key"),
        (a_quote("k" * 241), "invalid_key"),
        (a_quote(total=Decimal("NaN")), "invalid_number"),
    ],
)
async def test_what_no_graph_can_hold_is_refused_before_anything_is_sent(world: World, quote: SalesforceQuote, code: str) -> None:
    async with world.client() as client:
        error = await failure_of(client, quote)
    assert (error.failure, error.code, error.possibly_applied) == (Failure.VALIDATION, code, False)
    assert world.seen() == []


async def test_499_lines_fit(world: World) -> None:
    async with world.client() as client:
        assert (await client.create_quote(a_quote(count=499), correlation_id="op-1")).created
    assert len(world.service.records("QuoteLineItem")) == 499


@pytest.mark.parametrize(
    ("effect", "failure", "code", "possibly_applied", "applied"),
    [
        ("429", Failure.THROTTLED, "REQUEST_LIMIT_EXCEEDED", False, False),
        ("5xx", Failure.TRANSIENT, "SERVER_UNAVAILABLE", False, False),
        ("reset_before", Failure.TRANSIENT, "network", True, False),
        ("reset_after", Failure.TRANSIENT, "network", True, True),
        ("malformed", Failure.TRANSIENT, "unreadable", True, True),
    ],
)
async def test_a_failed_attempt_is_one_request_and_the_next_one_leaves_exactly_one_quote(
    world: World, effect: str, failure: Failure, code: str, *, possibly_applied: bool, applied: bool
) -> None:
    world.weather.arm("salesforce", effect, method=GRAPH, retry_after=7)
    async with world.client() as client:
        error = await failure_of(client, a_quote())
        assert (error.failure, error.code, error.possibly_applied) == (failure, code, possibly_applied)
        assert error.retry_after_seconds == (7 if effect == "429" else None)
        assert [sighting.applied for sighting in world.seen(GRAPH)] == [applied]
        record = await client.create_quote(a_quote(), correlation_id="op-1")
    assert record.created is not applied
    assert (len(world.service.records("Quote")), len(world.service.records("QuoteLineItem"))) == (1, 2)


async def test_an_expired_session_is_renewed_once_and_the_call_succeeds(world: World) -> None:
    async with world.client() as client:
        await client.create_quote(a_quote("k1"), correlation_id="op-1")
        world.weather.arm("salesforce", "auth_expired")
        assert (await client.create_quote(a_quote("k2"), correlation_id="op-2")).created
    assert [sighting.status for sighting in world.seen(GRAPH)] == [200, 401, 200]
    assert len(world.seen(LOGIN)) == 2


async def test_a_session_that_stays_expired_costs_one_login_and_two_requests(world: World) -> None:
    async with world.client() as client:
        await client.create_quote(a_quote("k1"), correlation_id="op-1")
        before = len(world.seen())
        world.weather.arm("salesforce", "auth_expired", times=100)
        error = await failure_of(client, a_quote("k2"))
    assert (error.failure, error.code, error.possibly_applied) == (Failure.AUTH, "INVALID_SESSION_ID", False)
    assert [sighting.method for sighting in world.seen()[before:]] == [GRAPH, LOGIN, GRAPH]


async def test_a_login_that_is_throttled_names_the_wait_too(world: World) -> None:
    world.weather.arm("salesforce", "429", method=LOGIN, retry_after=7)
    async with world.client() as client:
        error = await failure_of(client, a_quote())
    assert (error.failure, error.retry_after_seconds, error.possibly_applied) == (Failure.THROTTLED, 7, False)
    assert [sighting.method for sighting in world.seen()] == [LOGIN]


async def test_many_calls_with_an_expired_session_share_one_login(world: World) -> None:
    async with world.client() as client:
        await client.create_quote(a_quote("k0"), correlation_id="op-0")
        world.weather.arm("salesforce", "auth_expired")
        keys = [f"k{number}" for number in range(1, 9)]
        await asyncio.gather(*(client.create_quote(a_quote(key), correlation_id=key) for key in keys))
    assert len(world.service.records("Quote")) == 9
    assert len(world.seen(LOGIN)) == 2


@pytest.mark.parametrize(
    ("effect", "failure", "code"),
    [
        ("auth_expired", Failure.AUTH, "invalid_client"),
        ("429", Failure.THROTTLED, "HTTP_429"),
        ("5xx", Failure.TRANSIENT, "HTTP_503"),
        ("reset_before", Failure.TRANSIENT, "network"),
        ("reset_after", Failure.TRANSIENT, "network"),
        ("malformed", Failure.TRANSIENT, "unreadable"),
    ],
)
async def test_a_login_that_fails_has_written_nothing(world: World, effect: str, failure: Failure, code: str) -> None:
    world.weather.arm("salesforce", effect, method=LOGIN)
    async with world.client() as client:
        error = await failure_of(client, a_quote())
        assert (error.failure, error.code, error.possibly_applied) == (failure, code, False)
        assert [sighting.method for sighting in world.seen()] == [LOGIN]
        assert (await client.create_quote(a_quote(), correlation_id="op-1")).created


async def test_a_wrong_secret_is_an_auth_failure_that_does_not_repeat_it(world: World) -> None:
    async with world.client(secret="hunter2-hunter2") as client:
        error = await failure_of(client, a_quote())
    assert (error.failure, error.code) == (Failure.AUTH, "invalid_client")
    assert "hunter2" not in f"{error!r} {error.__cause__!r}"


async def test_a_slow_answer_is_cut_at_the_deadline_and_the_late_write_is_found(world: World) -> None:
    async with world.client(timeout_seconds=1.0, threads=1) as client:
        await client.create_quote(a_quote("warm"), correlation_id="op-0")
        world.weather.arm("salesforce", "slow", method=GRAPH, delay=2.0)
        error = await failure_of(client, a_quote())
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TIMEOUT, "timeout", True)
        assert (await client.create_quote(a_quote("next"), correlation_id="op-1")).created  # the only thread is free again
        await world.until(lambda: any(sighting.key == a_quote().key and sighting.applied for sighting in world.seen()))
        assert not (await client.create_quote(a_quote(), correlation_id="op-2")).created
    assert len(world.service.records("Quote")) == 3


async def test_a_deadline_that_passes_during_the_login_has_written_nothing(world: World) -> None:
    world.weather.arm("salesforce", "slow", method=LOGIN, delay=30)
    async with world.client(timeout_seconds=0.2) as client:
        error = await failure_of(client, a_quote())
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TIMEOUT, "timeout", False)


async def test_a_cancelled_call_frees_its_thread(world: World) -> None:
    async with world.client(threads=1) as client:
        await client.create_quote(a_quote("warm"), correlation_id="op-0")
        world.weather.arm("salesforce", "slow", method=GRAPH, delay=30)
        call = asyncio.ensure_future(client.create_quote(a_quote(), correlation_id="op-1"))
        await world.until_held()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await client.create_quote(a_quote("next"), correlation_id="op-2")).created


async def test_a_closed_client_leaves_no_thread_and_refuses_more_work(world: World) -> None:
    async with world.client(threads=1) as client:
        await client.create_quote(a_quote(), correlation_id="op-1")
        world.weather.arm("salesforce", "slow", method=GRAPH, delay=30)
        stuck = asyncio.ensure_future(failure_of(client, a_quote("k2")))
        await world.until_held()
        waiting = asyncio.ensure_future(failure_of(client, a_quote("k4")))
        await world.until(lambda: len(client._calls._live) == 2)
        await client.close()
        assert (await stuck).code == "network"
        assert (await waiting).code == "closed"
        assert (await failure_of(client, a_quote("k3"))).code == "closed"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("salesforce")]


async def test_an_org_that_cannot_be_reached_has_written_nothing(world: World) -> None:
    async with world.client() as client:
        await world.service.stop()
        error = await failure_of(client, a_quote())
    assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "network", False)


async def test_a_server_with_a_strange_certificate_is_not_talked_to(world: World) -> None:
    environment = world.service.environment()
    client = Salesforce(environment["SALESFORCE_INSTANCE_URL"], "id", "secret", timeout_seconds=5)
    error = await failure_of(client, a_quote())
    await client.close()
    assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "tls", False)
    assert world.seen() == []


@pytest.mark.parametrize(
    "url", ["http://acme.my.salesforce.com", "acme.my.salesforce.com", "https://user:pw@acme.my.salesforce.com"]
)
def test_only_a_plain_https_address_is_an_instance(url: str) -> None:
    with pytest.raises(ValueError, match="https address"):
        Salesforce(url, "id", "secret")


def test_a_missing_certificate_file_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Salesforce("https://acme.my.salesforce.com", "id", "secret", ca_file=str(tmp_path / "ca.pem"))
