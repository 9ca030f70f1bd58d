"""The whole bot in a laboratory: production's core, surface and envelopes, over a Wire instead of connections.

Left out are the socket (the envelope's text is handed over directly) and the PDF renderer's child process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import httpx2
from slack_bolt.listener import async_listener
from slack_bolt.util.utils import get_arg_names_of_callable
from slack_sdk.socket_mode.request import SocketModeRequest

from adapters.pdf.renderer import RenderedPdf
from adapters.salesforce.api import Salesforce
from adapters.slack.api import BoundedWebClient, SlackApi
from faults.lab.place import artefacts, engine_for
from faults.lab.setting import lab_mapping
from faults.lab.traps import UnreachableError
from faults.lab.wire import InPlace, Wire
from quotebot.app.bot import front_of
from quotebot.app.clients import Outside, connect_model
from quotebot.app.installation import open_database
from quotebot.app.slack_surface import identify, surface_of
from quotebot.app.workers import Core, Ports, start_core
from quotebot.dispatch.services import Adapters
from quotebot.sandbox.wire import Cut, Received
from quotebot.slack.receiver import Envelopes, bolt_app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import CodeType

    from adapters.pdf.renderer import QuoteDocument
    from faults.lab.loop import LabClock
    from faults.lab.traps import Trap
    from faults.lab.wire import FarEnd
    from ledger.database import Database
    from ledger.ownership import Ownership
    from quotebot.settings import Settings

POLL_SECONDS: Final = 3600.0  # so rare that a missed wake-up becomes visible
RENDER_SECONDS: Final = 0.2
BURIAL_SECONDS: Final = 0.001
SETTLE_LOOK_SECONDS: Final = 0.05
SETTLE_LOOK_SECONDS_MAX: Final = 5.0
_NAMES: Final[dict[CodeType, list[str]]] = {}  # names of each listener's arguments, by its code object
_INSIDE: ContextVar[Any] = ContextVar("the bot a task belongs to", default=None)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Dependencies of a bot: clock, far end of its wire, trap, jitter (`draw(low, high)`) and network latency.

    One of several on a ledger also has an `owner`, an `engine` that lets it meet the others, and short polls.
    """

    clock: LabClock
    far_end: FarEnd
    trap: Trap
    draw: Callable[[float, float], float]
    latency: Callable[[], float]  # seconds in each direction: long enough for the bot to do something else meanwhile
    owner: Ownership | None = None
    engine: type[Database] | None = None
    poll_seconds: float = POLL_SECONDS


class LabBot:
    """One process lifetime of the bot: `start`, then `deliver` envelopes.

    `stop` ends it as SIGTERM does, `crash` as SIGKILL does.
    """

    def __init__(self, settings: Settings, conditions: Conditions) -> None:
        self._settings = settings
        self._conditions = conditions
        self._wire = Wire(conditions.far_end, conditions.trap, conditions.latency)
        self._stack = contextlib.AsyncExitStack()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in creation order
        self._envelopes: Envelopes  # of a started bot, as its core
        self.core: Core
        self._database: Any = None  # that of place.engine_for
        self.alive = True

    async def start(self) -> None:
        """Recover and start the workers, as run_bot does."""
        await self._inside(self._start())

    async def deliver(self, text: str, answered: Callable[[dict[str, Any]], None]) -> bool:
        """Hand over one envelope; `answered` gets the acknowledgement's payload. True if the envelope was acknowledged."""
        return bool(await self._inside(self._deliver(text, answered)))

    async def settled(self, seconds: float) -> bool:
        """Run until no unfinished row can proceed; false if one still can after `seconds`. Raises what ended a worker."""
        clock, step = self._conditions.clock, SETTLE_LOOK_SECONDS
        until = clock.monotonic() + seconds
        looking = self._database.looking  # a new connection would read the whole schema again
        while looking.execute(_UNDER_WAY).fetchone() is not None:
            if clock.monotonic() >= until:
                return False
            await asyncio.sleep(step)
            step = min(step * 1.5, SETTLE_LOOK_SECONDS_MAX)
            for task in self.core.workers.tasks:
                if task.done() and not task.cancelled():
                    task.result()
        return True

    async def stop(self) -> None:
        """Shut the bot down in order."""
        await self._inside(self._stack.aclose())
        self.alive = False

    async def crash(self) -> None:
        """End the bot as a SIGKILL would: its unfinished work is not done."""
        self.alive = False
        if self._database is not None:
            self._database.crash()
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=BURIAL_SECONDS)  # a task that awaits a reply of the crashed bot would never end

    async def _start(self) -> None:
        conditions = self._conditions
        ports = Ports(
            clock=conditions.clock,
            draw=conditions.draw,
            database=self._open,
            outside=self._outside,
            poll_seconds=conditions.poll_seconds,
        )
        self.core = await start_core(self._stack, self._settings, ports, asyncio.Event(), conditions.owner)
        identity = await identify(self.core.outside.adapters.slack)
        self.core.guard.compare(self.core.outside.adapters.slack.time_ms)
        surface = surface_of(front_of(self.core), self._settings, identity)
        with mock.patch.object(async_listener, "get_arg_names_of_callable", _names):
            app = bolt_app(self.core.outside.client, identity, surface)
        self._envelopes = Envelopes(app, self._ack)

    async def _open(self, settings: Settings, *arguments: Any, **named: Any) -> Any:
        engine = self._conditions.engine or engine_for(settings, self._conditions.trap)
        self._database = await open_database(settings, *arguments, engine=engine, **named)
        return self._database

    async def _outside(self, stack: contextlib.AsyncExitStack, settings: Settings) -> Outside:
        assert settings.slack_bot_token is not None  # noqa: S101 -- the laboratory's settings are complete
        assert settings.salesforce_instance_url is not None  # noqa: S101 -- as above
        assert settings.salesforce_client_id is not None  # noqa: S101 -- as above
        assert settings.salesforce_client_secret is not None  # noqa: S101 -- as above
        session: Any = self._wire.session
        client = BoundedWebClient(
            token=settings.slack_bot_token.get_secret_value(),
            base_url=str(settings.slack_api_url),
            session=session,
            retry_handlers=[],
        )
        salesforce = Salesforce(
            settings.salesforce_instance_url,
            settings.salesforce_client_id,
            settings.salesforce_client_secret.get_secret_value(),
            mapping=lab_mapping(),
            session=self._wire.salesforce,
            executor=InPlace(),
        )
        renderer: Any = _Renderer(self._conditions.trap)
        slack = SlackApi(client, session, response_url_hosts=settings.response_url_hosts)
        documents = artefacts(settings, self._conditions.trap)
        model = None
        if settings.llm_base_url is not None:
            model = connect_model(stack, settings, httpx2.AsyncClient(transport=_ModelTransport(self._wire)))
        return Outside(client, Adapters(slack=slack, pdf=renderer, artefacts=documents, salesforce=salesforce, model=model))

    async def _deliver(self, text: str, answered: Callable[[dict[str, Any]], None]) -> bool:
        async def send(response: Any) -> None:
            answered(response.to_dict().get("payload") or {})

        client: Any = SimpleNamespace(send_socket_mode_response=send)  # in place of the socket's client
        return await self._envelopes.answer(client, SocketModeRequest.from_dict(json.loads(text)))  # type: ignore[arg-type] # it is an envelope

    async def _ack(self, envelope_id: str, send: Callable[[], Awaitable[None]]) -> None:
        del envelope_id
        self._conditions.trap.passes("ack:before")
        await send()
        self._conditions.trap.passes("ack:sent")

    async def _inside(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run work as a task of this bot; tasks that it creates belong to this bot too."""
        token = _INSIDE.set(self)
        try:
            task = asyncio.get_running_loop().create_task(work)
        finally:
            _INSIDE.reset(token)
        return await task


def _names(listener: Callable[..., Any]) -> list[str]:
    """Cache the names of each listener's arguments, which Bolt would otherwise inspect again at every start of every bot."""
    code = getattr(listener, "__code__", None)
    if code is None or hasattr(listener, "__wrapped__"):
        return list(get_arg_names_of_callable(listener))
    if code not in _NAMES:
        _NAMES[code] = get_arg_names_of_callable(listener)
    return list(_NAMES[code])


class _Renderer:
    """The PDF renderer without its child process. Rendering is pure: the same document gives the same bytes."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    async def render(self, document: QuoteDocument) -> RenderedPdf:
        self._trap.passes("out:pdf:render:before")
        await asyncio.sleep(RENDER_SECONDS)
        content = b"%PDF-1.7\n" + json.dumps(asdict(document), default=str, sort_keys=True).encode()
        self._trap.passes("out:pdf:render:answered")
        return RenderedPdf(content, hashlib.sha256(content).hexdigest(), 1)


class _ModelTransport(httpx2.AsyncBaseTransport):
    """Transport of the real openai client over the wire: its requests pass the same choke points."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request to the stand-in."""
        received = Received(request.method, str(request.url), dict(request.headers), await request.aread())
        try:
            answer = await self._wire.carry("out:llm:chat.completions", received)
        except UnreachableError:
            raise httpx2.ConnectError("refused", request=request) from None
        except Cut:
            raise httpx2.RemoteProtocolError("cut", request=request) from None
        return httpx2.Response(answer.status, headers=dict(answer.headers), content=answer.body, request=request)


# An unfinished row that no open-ended hold (a pause) stops, according to the file alone.
_UNDER_WAY: Final = """
SELECT 1 FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable')
UNION ALL
SELECT 1 FROM effects AS e
WHERE (e.state IN ('in_flight', 'uncertain') OR e.state = 'pending' AND e.next_attempt_at IS NOT NULL)
  AND NOT EXISTS (
    SELECT 1 FROM gates AS g
    WHERE g.state = 'held' AND g.until_at IS NULL AND (g.name = e.class OR e.class LIKE g.name || '.%'))
LIMIT 1
"""


def remember_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop register each task with its bot, so that `crash` can end it."""

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        bot = _INSIDE.get()
        if bot is not None:
            bot._tasks[task] = None  # noqa: SLF001 -- same module
            task.add_done_callback(lambda done: bot._tasks.pop(done, None))  # noqa: SLF001 -- as above
        return task

    loop.set_task_factory(factory)
