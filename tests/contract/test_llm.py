"""Contract tests of a language model's server: the stand-in and, with a key, a real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from adapters.failures import AdapterError, Failure
from adapters.llm.api import Llm, ModelCall
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.llm import LlmService
from quotebot.sandbox.request_log import Witness
from tests.contract.services import STAND_IN, both, given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEXT = "Please quote 50 pro and 2 onboarding for Acme Corp, 12 months, 10% off in EUR"
PRODUCTS = ("pro", "onboarding", "sso")


@dataclass(slots=True)
class Side:
    """One server."""

    settings: dict[str, str]
    calls: list[ModelCall] = field(default_factory=list)

    async def failure(self, **changes: str | float) -> AdapterError:
        client = Llm(**{**self.settings, **changes}, on_call=self.calls.append)  # type: ignore[arg-type] # each test names real ones
        try:
            with pytest.raises(AdapterError) as refusal:
                await client.extract(TEXT, products=PRODUCTS, key="contract", correlation_id="contract")
        finally:
            await client.close()
        return refusal.value


@pytest.fixture(params=both("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL"))
async def llm(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    if request.param != STAND_IN:
        yield Side({name.lower(): given(f"LLM_{name}") for name in ("BASE_URL", "API_KEY", "MODEL")})
        return
    service = LlmService(Witness(), ArmedFaults())
    application = web.Application()
    application.add_routes(service.routes())
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = service.environment(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield Side({name.removeprefix("QUOTEBOT_LLM_").lower(): value for name, value in settings.items()})
    await runner.cleanup()


async def test_a_plain_request_is_read_in_our_shape(llm: Side) -> None:
    client = Llm(**llm.settings, on_call=llm.calls.append)  # type: ignore[arg-type] # texts
    try:
        reading = await client.extract(TEXT, products=PRODUCTS, key="contract", correlation_id="contract")
    finally:
        await client.close()
    assert reading.account is not None
    assert "acme" in reading.account.lower()
    assert {(line.product, line.quantity) for line in reading.lines} == {("pro", "50"), ("onboarding", "2")}
    assert all(line.excerpt in TEXT for line in reading.lines)
    assert [call.outcome for call in llm.calls] == ["ok"]


async def test_a_wrong_key_is_a_login_trouble(llm: Side) -> None:
    assert (await llm.failure(api_key="sk-wrong")).failure is Failure.AUTH


async def test_an_unknown_model_is_not_tried_again(llm: Side) -> None:
    assert (await llm.failure(model="no-such-model")).failure in {Failure.VALIDATION, Failure.NOT_FOUND, Failure.MAPPING}


async def test_a_deadline_is_kept(llm: Side) -> None:
    assert (await llm.failure(timeout_seconds=0.0001)).failure is Failure.TIMEOUT
