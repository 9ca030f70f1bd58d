"""A bot without Slack with extraction by a model: the real executor, dispatcher, scheduler and client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from adapters.llm.api import Llm
from adapters.policies import POLICIES, Matrix
from quotebot import effects
from quotebot.commands.payloads import ReadMessage
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, CallLog, EffectHandlers, Model
from quotebot.execution.executor import Executor
from quotebot.jobs.scheduler import Scheduler, reading_answer
from quotebot.slack import message_text
from quotebot.views.document import Seller
from tests.quotebot.parts import RULES, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from quotebot.domain.rules import Rules
    from tests.quotebot.parts import Bench

TEXT = "Acme wants the profesional thing for 150 people, two years, they sign soon"
READ: dict[str, Any] = {
    "account": "Acme",
    "lines": [{"product": "pro", "quantity": "150", "excerpt": "profesional thing for 150 people"}],
    "term_months": "24",
    "discount_percent": None,
    "currency": None,
}
PER_DAY = 3


def completion(content: object, *, finish: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    """Return a response of the completions protocol."""
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": finish, "message": message}]}


@dataclass(slots=True)
class Script:
    """Scripted answers of a server, in order; the last one is repeated. `(status, body, headers)`, or None: it disconnects.

    With `silent` it never answers.
    """

    answers: list[tuple[int, Any, dict[str, str]] | None] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    silent: bool = False

    def says(self, content: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer every request with this from now on; content that is not a completion is wrapped in one."""
        body = completion(content if isinstance(content, str) else json.dumps(content)) if status == 200 else content
        self.answers = [(status, body, headers or {})]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(await request.json())
        if self.silent:
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        status, body, headers = answer
        if isinstance(body, str):
            return web.Response(text=body, content_type="text/html", status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)


@asynccontextmanager
async def scripted() -> AsyncIterator[Script]:
    """Serve a scripted server."""
    script = Script()
    application = web.Application()
    application.router.add_post("/v1/chat/completions", script.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield script
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Desk:
    """One lifetime of the bot's workers. Replies to people stay in the ledger, where `said` reads them."""

    bench: Bench
    executor: Executor
    dispatcher: Dispatcher
    scheduler: Scheduler
    performer: EffectHandlers
    written: int = 0

    async def write(self, text: str = TEXT, *, user: str = "U0REP") -> str:
        """Write a message as a person; return the key of its operation."""
        self.written += 1
        payload = ReadMessage(message_text.on_one_line(text), "C0DEALS", "17.5")
        now = self.bench.clock.now_ms()
        request = request_for(payload, f"m{self.written}", source="slack_event", transport={}, actor=user, received_at=now)
        reserved = await self.bench.ledger.reserve(request)
        await self.executor.step()
        return reserved.operation.operation_key

    async def work(self) -> None:
        """Make the due calls to the model, and execute their follow-ups."""
        await self.dispatcher.step()
        await self.dispatcher.drain(10.0)
        await self.executor.step()

    async def work_until_over(self) -> None:
        """Call the model until no retry is due."""
        for _ in range(8):
            await self.work()
            waiting = self.bench.rows("SELECT next_attempt_at AS due FROM effects WHERE class LIKE 'llm.%' AND state = 'pending'")
            if not waiting:
                return
            self.bench.clock.ms = max(self.bench.clock.ms, *(row["due"] for row in waiting))

    async def tick(self, ms: int = 0) -> None:
        """Advance the clock, and fire due slots."""
        self.bench.clock.advance(ms)
        await self.scheduler.step()
        await self.executor.step()

    def asked(self) -> list[dict[str, Any]]:
        """Return the calls to the model."""
        return self.bench.rows("SELECT * FROM effects WHERE class = 'llm.extract' ORDER BY id")

    def said(self, user: str = "U0REP") -> list[str]:
        """Return the replies to a person."""
        return [str(content["text"]) for content in self.replies() if content["user"] == user]

    def replies(self) -> list[dict[str, Any]]:
        """Return the pending replies."""
        rows = self.bench.rows("SELECT payload FROM effects WHERE class = 'slack.reply' ORDER BY id")
        return [json.loads(row["payload"]) for row in rows]

    def created(self) -> int:
        """Count the quotes."""
        return int(self.bench.row("SELECT count(*) AS n FROM quotes")["n"])


@asynccontextmanager
async def desk_at(
    bench: Bench,
    url: str | None,
    *,
    per_day: int = PER_DAY,
    keep_text: bool = False,
    timeout_seconds: float = 5.0,
    guest_reps: tuple[str, ...] = (),
) -> AsyncIterator[Desk]:
    """Open a desk on a ledger; without an address there is no model."""
    async with contextlib.AsyncExitStack() as stack:
        log = CallLog()
        model = None
        if url is not None:
            llm = Llm(
                base_url=url,
                api_key="sk-test",
                model="test-1",
                on_call=log.note,
                keep_text=keep_text,
                timeout_seconds=timeout_seconds,
            )
            stack.push_async_callback(llm.close)
            model = Model(llm, log)
        unused: Any = None  # nothing is sent to Slack here
        adapters = Adapters(slack=unused, pdf=unused, artefacts=unused, salesforce=None, model=model)
        rules: Rules = replace(RULES, readings_per_day=per_day, summaries_per_day=per_day, guest_reps=guest_reps)
        performer = EffectHandlers(bench.ledger, adapters, rules, Seller("Seller", ()), handlers=HANDLERS, settle_delay_seconds=1)
        lines = Matrix({name: POLICIES[name] for name in (effects.EXTRACT, effects.SUMMARIZE, "default")})
        dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, lines, settle_delay_seconds=1)
        executor = Executor(bench.ledger, rules, lambda low, _: low, Matrix(POLICIES))
        yield Desk(bench, executor, dispatcher, Scheduler(bench.ledger, [reading_answer()]), performer)
