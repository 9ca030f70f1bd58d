"""Tests of time-outs: their category and budget, and that the time-out of each class reaches the calls of its effects."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from adapters.failures import AdapterError, Failure
from adapters.http import closed_session
from adapters.llm.api import Llm
from adapters.pdf.renderer import PdfRenderer
from adapters.policies import POLICIES, Matrix, RetryOverride, policy_for
from adapters.salesforce.records import CrmDocument
from adapters.slack.api import BoundedWebClient, SlackApi
from quotebot.app.clients import build_adapters
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.settings import Settings
from tests.adapters.test_pdf import DOCUMENT
from tests.adapters.test_salesforce_errors import QUOTE, talking_to
from tests.adapters.test_salesforce_errors import Scripted as SilentSalesforce
from tests.quotebot.deeds import Round

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from ledger.records import Delivered, Effect
    from tests.quotebot.parts import Bench

SECONDS = 0.1  # of the class under test; every other time-out is that of the matrix


def timed_out() -> AdapterError:
    return AdapterError(Failure.TIMEOUT, "timeout", "No answer.", possibly_applied=True)


async def test_a_time_out_has_its_own_category_and_the_whole_budget(bench: Bench) -> None:
    play = Round(bench)
    tries = policy_for("crm.create").retries + 1
    await play.owe("crm.create")
    play.performer.sends.extend(timed_out() for _ in range(tries))
    for _ in range(tries):
        await play.next_step()
    row = play.row()
    assert (row["state"], row["attempts"], row["category"], row["last_error"]) == (
        "failed",
        tries,
        "timeout",
        "No answer (timeout).",
    )
    assert bench.row("SELECT count(*) AS n FROM attempts WHERE category = 'timeout'")["n"] == tries


async def test_five_time_outs_of_three_effects_hold_their_class(bench: Bench) -> None:
    play = Round(bench)
    for target in "abcde":
        await play.owe("crm.create", target)
    play.performer.sends.extend(timed_out() for _ in range(5))
    while play.performer.sends:
        assert await play.step()
    assert bench.row("SELECT state, cause FROM gates WHERE name = 'crm.create'") == {"state": "held", "cause": "breaker"}


class Calls:
    """Performer that makes one real call of an effect's class, against services that never answer."""

    def __init__(self, slack: SlackApi, model: Llm, salesforce: Any, pdf: PdfRenderer, url: str) -> None:
        who: Any = {"key": "k", "correlation_id": "c-1"}
        place: Any = {"channel": "C1", "text": "x", "blocks": ()}
        document = CrmDocument(key="k1", record_id="0Q0", title="t", file_name="f.pdf", content=b"%PDF")
        self._calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "slack.card": lambda: slack.update(ts="1.1", correlation_id="c-1", **place),
            "slack.post": lambda: slack.post(thread_ts=None, **place, **who),
            "slack.direct": lambda: slack.open_direct(user="U1"),
            "slack.direct_card": lambda: slack.update(ts="1.1", correlation_id="c-1", **place),
            "slack.reply": lambda: slack.respond(f"{url}/respond", text="x"),
            "slack.unfurl": lambda: slack.unfurl(channel="C1", ts="1.1", previews={}, correlation_id="c-1"),
            "slack.file": lambda: slack.upload_bytes(f"{url}/upload", b"x"),
            "crm.create": lambda: salesforce.create_quote(QUOTE, correlation_id="c-1"),
            "crm.update": lambda: salesforce.attach(document, correlation_id="c-1"),
            "crm.read": lambda: salesforce.changed_quotes("2026-01-01T00:00:00.000+0000", correlation_id="c-1"),
            "pdf.render": lambda: pdf.render(DOCUMENT),
            "llm.extract": lambda: model.extract("x", products=("Pro",), **who),
            "llm.summarize": lambda: model.summarize("x", **who),
            "default": lambda: slack.post(thread_ts="1.1", **place, **who),
        }

    async def perform(self, effect: Effect) -> Delivered:
        await self._calls[effect.effect_class]()
        raise AssertionError("it was answered")


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Serve on a port that accepts requests and never answers; yield its address."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(read, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0)  # lets the loop close the cut connections


async def unanswered(*_: object) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("effect_class", POLICIES)
async def test_the_time_out_of_each_class_ends_the_calls_of_its_effects(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect_class: str
) -> None:
    monkeypatch.setattr(PdfRenderer, "_exchange", unanswered)
    lines = {**POLICIES, effect_class: replace(POLICIES[effect_class], timeout_seconds=SECONDS)}
    async with silent() as url, closed_session() as session, talking_to(SilentSalesforce(), tmp_path, timeout_seconds=20) as crm:
        client = BoundedWebClient(token="xoxb-1", base_url=f"{url}/", session=session, retry_handlers=[])
        slack = SlackApi(client, session, response_url_hosts=frozenset({url.removeprefix("http://")}))
        model = Llm(base_url=url, api_key="k", model="m", on_call=lambda _: None)
        play = Round(bench)
        performer: Any = play.performer
        performer.perform = Calls(slack, model, crm, PdfRenderer(timeout_seconds=lines["pdf.render"].timeout_seconds), url).perform
        play.dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, Matrix(lines), settle_delay_seconds=1)
        await play.owe(effect_class)
        assert await play.step() == 1
        await model.close()
    row = play.row()
    assert (row["category"], row["attempts"]) == ("timeout", 1)
    assert row["last_error"] != "The call did not end in time (timeout).", "the dispatcher had to cut it off"


async def test_a_configured_time_out_longer_than_the_others_of_its_service_is_kept(tmp_path: Path) -> None:
    longer = {"crm.update": 60, "llm.summarize": 45, "slack.file": 70, "pdf.render": 61}
    settings = Settings(
        data_dir=tmp_path,
        salesforce_instance_url="https://crm.example.com",
        salesforce_client_id="id",
        salesforce_client_secret=SecretStr("secret"),
        llm_base_url="https://llm.example.com/v1",
        llm_model="m",
        retry={name: RetryOverride(timeout_seconds=seconds) for name, seconds in longer.items()},
    )
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(closed_session())
        client = BoundedWebClient(token="xoxb-1", base_url="https://slack.example.com/api/", session=session, retry_handlers=[])
        adapters: Any = build_adapters(stack, client, session, settings)
        assert adapters.salesforce._calls._session.get_adapter("https://x")._timeout_seconds == longer["crm.update"]
        assert adapters.model.llm._client.timeout == longer["llm.summarize"]
        assert adapters.pdf._timeout_seconds == longer["pdf.render"]
