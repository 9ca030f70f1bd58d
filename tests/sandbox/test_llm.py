"""Tests of the LLM stand-in with the unmodified openai client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from aiohttp import web

from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.llm import LlmService, shaped, understand
from quotebot.sandbox.request_log import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEXT = "Please quote 50 pro and 2 onboarding for Acme Corp, 12 months, 10% off in EUR"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["account", "lines", "term_months", "discount_percent", "currency", "budget"],
    "properties": {
        "account": {"type": ["string", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "term_months": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "discount_percent": {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
        "currency": {"enum": ["USD", "EUR"], "type": "string"},
        "budget": {"type": ["string", "null"]},
    },
    "$defs": {
        "Line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}, "raw_excerpt": {"type": "string"}},
        }
    },
}


class World:
    def __init__(self) -> None:
        self.witness = Witness()
        self.weather = ArmedFaults()
        self.service = LlmService(self.witness, self.weather)
        self.base_url = ""

    def client(self, api_key: str | None = None) -> openai.AsyncOpenAI:
        environment = self.service.environment(self.base_url)
        return openai.AsyncOpenAI(
            base_url=environment["QUOTEBOT_LLM_BASE_URL"],
            api_key=api_key or environment["QUOTEBOT_LLM_API_KEY"],
            max_retries=0,
            timeout=5,
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    application = web.Application()
    application.add_routes(world.service.routes())
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    world.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield world
    await runner.cleanup()


async def ask(client: openai.AsyncOpenAI, text: Any = TEXT, **extra: Any) -> Any:
    return await client.chat.completions.create(
        model=extra.pop("model", "sandbox-rules-1"), messages=[{"role": "user", "content": text}], **extra
    )


def wanting(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "quote_request", "strict": True, "schema": schema}}


async def test_the_answer_has_the_shape_that_was_asked_for(world: World) -> None:
    async with world.client() as client:
        answer = await ask(client, response_format=wanting(SCHEMA))
    assert json.loads(answer.choices[0].message.content) == {
        "account": "Acme Corp",
        "lines": [
            {"sku": "pro", "quantity": 50, "raw_excerpt": "50 pro"},
            {"sku": "onboarding", "quantity": 2, "raw_excerpt": "2 onboarding"},
        ],
        "term_months": 12,
        "discount_percent": "10",
        "currency": "EUR",
        "budget": None,
    }
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.model, answer.system_fingerprint) == ("sandbox-rules-1", "fixed-rules-not-a-model")
    assert answer.usage.total_tokens > 0
    (seen,) = world.witness.since()
    assert (seen.system, seen.method, seen.applied, seen.status) == ("llm", "chat.completions", True, 200)


async def test_what_is_not_in_the_text_is_null_or_empty(world: World) -> None:
    async with world.client() as client:
        answer = await ask(client, "hello", response_format=wanting(SCHEMA))
    assert json.loads(answer.choices[0].message.content) == {
        "account": None,
        "lines": [],
        "term_months": None,
        "discount_percent": None,
        "currency": "USD",
        "budget": None,
    }


async def test_plain_and_json_answers_are_given_too_and_only_the_last_user_message_counts(world: World) -> None:
    parts = [{"type": "text", "text": "3 seats for Beta, 2 years"}]
    async with world.client() as client:
        plain = await ask(client)
        loose = await ask(client, parts, response_format={"type": "json_object"})
    assert plain.choices[0].message.content == "50 pro, 2 onboarding for Acme Corp, 12 months, 10% discount."
    assert json.loads(loose.choices[0].message.content)["term_months"] == 24


async def test_the_models_are_listed_as_not_being_models(world: World) -> None:
    async with world.client() as client:
        models = await client.models.list()
    assert [(model.id, model.owned_by) for model in models.data] == [("sandbox-rules-1", "sandbox (fixed rules, not a model)")]


@pytest.mark.parametrize(
    ("extra", "error", "code"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found"),
        ({"stream": True}, openai.BadRequestError, "unsupported_value"),
        ({"text": 5}, openai.BadRequestError, "invalid_request"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, openai.BadRequestError, "invalid_request"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    world: World, extra: dict[str, Any], error: type[openai.APIStatusError], code: str
) -> None:
    async with world.client() as client:
        with pytest.raises(error) as refusal:
            await ask(client, **extra)
    assert refusal.value.code == code
    assert not world.witness.since()[0].applied


async def test_a_wrong_key_is_refused(world: World) -> None:
    async with world.client(api_key="sk-wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await ask(client)
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


@pytest.mark.parametrize(
    ("effect", "error", "applied", "status"),
    [
        ("429", openai.RateLimitError, False, 429),
        ("5xx", openai.InternalServerError, False, 503),
        ("auth_expired", openai.AuthenticationError, False, 401),
        ("reset_before", openai.APIConnectionError, False, None),
        ("reset_after", openai.APIConnectionError, True, None),
    ],
)
async def test_an_armed_fault_hits_one_request(
    world: World, effect: str, error: type[openai.APIError], status: int | None, *, applied: bool
) -> None:
    world.weather.arm("llm", effect, retry_after=9)
    async with world.client() as client:
        with pytest.raises(error) as failure:
            await ask(client)
        assert (await ask(client)).choices
    first, second = world.witness.since()
    assert (first.applied, first.status) == (applied, status)
    assert second.applied
    if isinstance(failure.value, openai.RateLimitError):
        assert failure.value.response.headers["retry-after"] == "9"


async def test_a_malformed_answer_is_a_good_envelope_around_broken_content(world: World) -> None:
    world.weather.arm("llm", "malformed")
    async with world.client() as client:
        answer = await ask(client, response_format=wanting(SCHEMA))
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.choices[0].message.content)


async def test_a_slow_answer_comes_after_its_delay(world: World) -> None:
    world.weather.arm("llm", "slow", delay=0.05)
    seen = asyncio.ensure_future(world.witness.wait())
    async with world.client() as client:
        assert (await asyncio.wait_for(ask(client), 60)).choices
    await asyncio.wait_for(seen, 60)
    assert world.witness.since()[0].applied
    assert world.weather.describe()[0]["hits"] == 1


@pytest.mark.parametrize(
    ("text", "lines", "account", "months", "discount"),
    [
        ("1,500 licences for 12 months", [(1500, "licences")], None, 12, None),
        ("quote for Smith & Sons: 3 x pro, 1 year, 12.5 percent", [(3, "pro")], "Smith", 12, "12.5"),
        ("Nothing here", [], None, None, None),
        ("100% of 5 seats", [(5, "seats")], None, None, "100"),
    ],
)
def test_the_rules_find_what_they_are_made_for(
    text: str, lines: list[tuple[int, str]], account: str | None, months: int | None, discount: str | None
) -> None:
    facts = understand(text)
    assert [(line.quantity, line.product) for line in facts.lines] == lines
    assert (facts.account, facts.term_months, facts.discount) == (account, months, discount)


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}}}
    assert shaped(understand(TEXT), schema, TEXT)["next"]["next"]
