"""Contract of a model's server: tested on the stand-in, and on a real server if the environment names one.

QUOTEBOT_CONTRACT_LLM_BASE_URL, _API_KEY and _MODEL name it; it gets a few requests. Sockets to it must be allowed:
pytest --allow-hosts=127.0.0.1,::1,localhost,<its address> tests/adapters/test_llm_contract.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from adapters.failures import AdapterError, Failure
from adapters.llm.api import Llm
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.llm import LlmService
from quotebot.sandbox.request_log import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEXT = "Please quote 50 pro for Acme Corp, 12 months, 10% off in EUR"
REAL = {name: os.environ.get(f"QUOTEBOT_CONTRACT_LLM_{name}", "") for name in ("BASE_URL", "API_KEY", "MODEL")}
IS_NAMED = pytest.mark.skipif(not all(REAL.values()), reason="QUOTEBOT_CONTRACT_LLM_BASE_URL, _API_KEY, _MODEL name no real server")


@dataclass(frozen=True, slots=True)
class Server:
    base_url: str
    api_key: str
    model: str

    def client(self, api_key: str | None = None) -> Llm:
        key = self.api_key if api_key is None else api_key
        return Llm(base_url=self.base_url, api_key=key, model=self.model, on_call=lambda _: None)


@pytest.fixture(params=["stand-in", pytest.param("real", marks=IS_NAMED)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    if request.param == "real":
        yield Server(REAL["BASE_URL"], REAL["API_KEY"], REAL["MODEL"])
        return
    service = LlmService(Witness(), ArmedFaults())
    application = web.Application()
    application.add_routes(service.routes())
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    asked = service.environment(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield Server(*(asked[f"QUOTEBOT_LLM_{name}"] for name in ("BASE_URL", "API_KEY", "MODEL")))
    await runner.cleanup()


async def test_a_message_is_read_in_the_agreed_shape_and_facts_are_summed_up(server: Server) -> None:
    llm = server.client()
    read = await llm.extract(TEXT, products=["pro: Pro"], key="k" * 64, correlation_id="c-1")
    said = await llm.summarize("15% discount on $100.00 list.", key="s" * 64, correlation_id="c-2")
    await llm.close()
    assert (read.account, read.term_months, read.discount_percent, read.currency) == ("Acme Corp", "12", "10", "EUR")
    assert [line.quantity for line in read.lines] == ["50"]
    assert said


async def test_its_models_are_listed_and_a_wrong_key_is_refused_as_one(server: Server) -> None:
    llm, stranger = server.client(), server.client("sk-wrong")
    assert server.model in await llm.models()
    with pytest.raises(AdapterError) as refused:
        await stranger.extract(TEXT, products=[], key="w" * 64, correlation_id="c-3")
    await llm.close()
    await stranger.close()
    assert refused.value.failure is Failure.AUTH
