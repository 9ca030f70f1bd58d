"""Backstage of the workspace, for its page: the processes of bots and database, the ledger, the armed faults, the last delivery.

| call | does |
|---|---|
| `GET /_sandbox/backstage` | an event stream, for as long as it is read: `ledger`, `weather`, `database` (if it has a server) |
| `GET /_sandbox/faults/known` | every fault that can be armed, in words, and the methods it may be narrowed to |
| `DELETE /_sandbox/faults/{id}` | disarms one fault |
| `POST /_sandbox/bot` {do: kill, start or restart, replica} | SIGKILL now, or start again; answers with the state of the process |
| `POST /_sandbox/database` {do: kill or start} | the same for the sandbox's own database server |
| `POST /_sandbox/replay` {reference, user} | `quotebot replay`, and its result |
| `POST /_sandbox/resume` {gate, user} | `quotebot resume` |

The world knows nothing of ledgers. It starts `quotebot ...` as an operator would, bounded in number and time, and passes on the
output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from aiohttp import web

from quotebot.sandbox.chance import Signal
from quotebot.sandbox.cluster import ClusterError, DatabaseServer
from quotebot.sandbox.faults import ArmedFaults, known
from quotebot.sandbox.serving import Body, answered, posted
from quotebot.sandbox.slack.errors import GestureError, Json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence

    from quotebot.sandbox.chance import Changes
    from quotebot.sandbox.slack.courier import Courier

STOP_SECONDS = 12.0  # longer than the bot drains
RESTART_PAUSE_SECONDS = 1.0
COMMAND_SECONDS = 30.0
LINE_BYTES_MAX = 8 * 2**20  # a picture of 200 commands with a dozen effects each is about 1 MB
END_SECONDS = 2.0
TIMED_OUT = 124  # exit status of timeout(1)
WATCH = ("ops", "watch", "--json", "--limit", "30")
LINGER_SECONDS = 3.0  # a reloaded page reconnects sooner than a process starts
RETRY_SECONDS = 1.0
State = Literal["starting", "running", "stopping", "dead"]
POLL_SECONDS: Final = 0.25
HEARTBEAT_POLLS: Final = 40
NO_LEDGER: Final = "The bot is somebody else's here (--no-bot), and so is its ledger: see `quotebot ops watch` beside it."
Deed = Literal["kill", "start", "restart"]
DatabaseDeed = Literal["kill", "start"]
_REFERENCE: Final = re.compile(r"(op)?[0-9]{1,19}")
_CLASS: Final = re.compile(r"[a-z]+(\.[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Standing:
    """State of the bot's process. `starts` counts its starts; `exit_status` is that of the last end, -9 for a SIGKILL."""

    state: State
    pid: int | None
    starts: int
    exit_status: int | None


class BotProcess:
    """Process manager of one bot.

    `command` and `environment` (the whole of it) start the bot, `is_connected` tells whether the world sees it, `changed` is called
    at every change of its state. A bot that exits by itself is restarted after a pause, as a supervisor would; one that was killed
    here stays dead until it is started, so that its pending effects can be inspected.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_connected: Callable[[], bool],
        changed: Callable[[], None],
        complain: Callable[[str], object],
        name: str = "The bot",
        pause_seconds: float = RESTART_PAUSE_SECONDS,
    ) -> None:
        self._name = name
        self._command = tuple(command)
        self._environment = dict(environment)
        self._is_connected = is_connected
        self._changed = changed
        self._complain = complain
        self._pause_seconds = pause_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0
        self._stopping = False
        self._wanted = True  # false: it was killed on purpose
        self._moved = asyncio.Event()  # set when it is started or killed

    @property
    def standing(self) -> Standing:
        """Return the present state of the process."""
        process = self._process
        if process is None or process.returncode is not None:
            return Standing("dead", None, self._starts, None if process is None else process.returncode)
        if self._stopping:
            return Standing("stopping", process.pid, self._starts, None)
        return Standing("running" if self._is_connected() else "starting", process.pid, self._starts, None)

    @property
    def exit_status(self) -> int | None:
        """Return its exit status; None while it runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the bot unless it runs."""
        if self._process is not None and self._process.returncode is None:
            return
        self._wanted = True
        self._starts += 1
        self._process = await asyncio.create_subprocess_exec(*self._command, env=self._environment)
        self._move()

    async def kill(self) -> None:
        """SIGKILL the bot; it stays dead until `start` or `restart`."""
        self._wanted = False
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        self._move()

    async def restart(self) -> None:
        """Stop the bot in order if it runs, and start it."""
        self._wanted = False
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """SIGTERM the bot and wait; it is killed if it does not exit in time."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._stopping = True
        self._move()
        try:
            await _end(process, STOP_SECONDS)
        finally:
            self._stopping = False
            self._move()

    async def keep(self, stop: asyncio.Event) -> None:
        """Restart the bot whenever it exits by itself, until `stop` is set."""
        while not stop.is_set():
            self._moved.clear()
            process = self._process
            ended = [process.wait()] if process is not None and self._wanted else []
            await _first_of(stop.wait(), self._moved.wait(), *ended)
            if stop.is_set() or not self._wanted or process is None or process is not self._process or self.exit_status is None:
                continue
            self._changed()
            self._complain(f"{self._name} (process {process.pid}) ended with status {self.exit_status}; starting it again.")
            await _first_of(stop.wait(), asyncio.sleep(self._pause_seconds))
            await self._revive(stop)

    async def _revive(self, stop: asyncio.Event) -> None:
        """Start the bot unless it was killed or the world stopped during the pause."""
        if self._wanted and not stop.is_set():
            await self.start()

    def _move(self) -> None:
        self._moved.set()
        self._changed()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of `waits` and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of one command: its exit status, its stdout and its stderr."""

    status: int
    data: str
    words: str


class Console:
    """Runs `quotebot` commands while the bot runs: at most one that changes something at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._one_at_a_time = asyncio.Lock()

    async def run(self, *arguments: str) -> Ran:
        """Run one command to its end."""
        async with self._one_at_a_time:
            process = await self._start(*arguments)
            try:
                data, words = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
            except TimeoutError:
                return Ran(TIMED_OUT, "", f"`quotebot {' '.join(arguments)}` took longer than {COMMAND_SECONDS:g} s and was ended.")
            finally:
                await _end(process, END_SECONDS)
        return Ran(process.returncode or 0, data.decode(errors="replace"), words.decode(errors="replace").strip())

    async def lines(self, *arguments: str) -> AsyncGenerator[str, None]:
        """Yield a command's output, line by line, until it ends. Raises ConsoleError with its stderr if it fails.

        Closing the iterator ends the command.
        """
        process = await self._start(*arguments)
        assert process.stdout is not None  # noqa: S101 -- a pipe was requested
        assert process.stderr is not None  # noqa: S101 -- as above
        try:
            while line := await process.stdout.readline():
                yield line.decode(errors="replace")
            words = (await process.stderr.read()).decode(errors="replace").strip()
            if await process.wait():
                raise ConsoleError(words or f"`quotebot {' '.join(arguments)}` ended with status {process.returncode}.")
        finally:
            await _end(process, END_SECONDS)

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )


class ConsoleError(Exception):
    """A command failed; the message is its stderr."""


async def _end(process: asyncio.subprocess.Process, seconds: float) -> None:
    """SIGTERM a process and wait; it is killed if it does not exit in time."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


class LedgerFeed:
    """The newest picture of the ledger while at least one viewer has it open."""

    def __init__(self, console: Console, *, linger_seconds: float = LINGER_SECONDS) -> None:
        self._console = console
        self._linger_seconds = linger_seconds
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._news = Signal()
        self.latest: dict[str, Any] | None = None

    @property
    def is_watching(self) -> bool:
        """True while the command is running."""
        return self._task is not None

    @asynccontextmanager
    async def viewer(self) -> AsyncIterator[None]:
        """Count one viewer for the length of the block."""
        self._viewers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._ending = asyncio.get_running_loop().call_later(self._linger_seconds, self._end)

    async def changed(self, seconds: float) -> None:
        """Wait for a new picture, at most `seconds`."""
        await self._news.wait(seconds)

    async def close(self) -> None:
        """End the command."""
        await asyncio.gather(*self._end(), return_exceptions=True)

    def _end(self) -> list[asyncio.Task[None]]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        ended = [] if self._task is None else [self._task]
        for task in ended:
            task.cancel()
        self._task = self.latest = None
        return ended

    async def _follow(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._console.lines(*WATCH)) as lines:
                    async for line in lines:
                        self._show(json.loads(line))
            except (ConsoleError, ValueError) as error:
                self._show({"error": str(error)})
            await asyncio.sleep(RETRY_SECONDS)

    def _show(self, picture: dict[str, Any]) -> None:
        self.latest = picture
        self._news.fire()


@dataclass(frozen=True, slots=True)
class Staff:
    """The bots' process managers by replica, command runner and ledger feed, in a sandbox that runs its own bot or bots."""

    keepers: Mapping[str, BotProcess]
    console: Console
    feed: LedgerFeed


class Backstage:
    """The routes of the backstage. Without `staff` (a bot that is run elsewhere) only the faults and the database are known.

    `database` is None where the ledger is a file.
    """

    def __init__(self, changes: Changes, weather: ArmedFaults, courier: Courier) -> None:
        self._changes = changes
        self._weather = weather
        self._courier = courier
        self.staff: Staff | None = None
        self.database: DatabaseServer | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        posts: dict[str, Callable[[Body], Awaitable[Json]]] = {
            "bot": self._bot,
            "database": self._operate_database,
            "replay": self._replay,
            "resume": self._resume,
        }
        return [
            *(web.post(f"/_sandbox/{name}", posted(work)) for name, work in posts.items()),
            web.get("/_sandbox/backstage", self._stream),
            web.get("/_sandbox/faults/known", answered(self._known)),
            web.delete(r"/_sandbox/faults/{id:\d{1,9}}", answered(self._disarm)),
        ]

    def standing(self) -> Json:
        """Return the state of each replica's process, and of one that runs if any does; nothing if this sandbox runs no bot."""
        each = {name: keeper.standing for name, keeper in self.staff.keepers.items()} if self.staff else {}
        best = min(each.values(), key=lambda standing: standing.state != "running", default=None)
        return {
            "process": best and asdict(best),
            "replicas": [{"name": name, **asdict(standing)} for name, standing in each.items()],
        }

    async def close(self) -> None:
        """Stop the processes that were started for viewers."""
        if self.staff is not None:
            await self.staff.feed.close()

    async def _known(self, _request: web.Request) -> Json:
        return known()

    async def _disarm(self, request: web.Request) -> Json:
        if not self._weather.disarm(int(request.match_info["id"])):
            raise GestureError(404, f"no fault {request.match_info['id']} is armed")
        return {"faults": self._weather.standing()}

    async def _bot(self, body: Body) -> Json:
        deed = _chosen(body, Deed)
        keepers = self._staff().keepers
        name = body.optional("replica", str) or next(iter(keepers))
        if name not in keepers:
            raise GestureError(404, f"no replica {name!r} here; there are {', '.join(keepers)}")
        keeper = keepers[name]
        deeds = {"kill": keeper.kill, "start": keeper.start, "restart": keeper.restart}
        await deeds[deed]()
        return asdict(keeper.standing)

    async def _operate_database(self, body: Body) -> Json:
        deed = _chosen(body, DatabaseDeed)
        database = self.database
        if database is None or not database.is_own:
            raise GestureError(409, "this sandbox runs no database server of its own (--postgres without an address)")
        try:
            await {"kill": database.kill, "start": database.start}[deed]()
        except ClusterError as error:
            raise GestureError(503, str(error)) from None
        return asdict(database.standing)

    async def _replay(self, body: Body) -> Json:
        return await self._run("replay", body, "reference", _REFERENCE, "an id such as 118 or op12")

    async def _resume(self, body: Body) -> Json:
        return await self._run("resume", body, "gate", _CLASS, "a class such as crm.create")

    async def _run(self, command: str, body: Body, field: str, form: re.Pattern[str], described: str) -> Json:
        """Run an operator's command about what a field names."""
        name = body.text(field)
        if not form.fullmatch(name):
            raise GestureError(400, f"field {field!r} must be {described}, not {name!r}")
        ran = await self._staff().console.run(command, name, "--as", f"{body.text('user')} (sandbox page)")
        return {"status": ran.status, "said": "\n".join(part for part in (ran.data.strip(), ran.words) if part)}

    def _staff(self) -> Staff:
        if self.staff is None:
            raise GestureError(409, "this sandbox runs no bot of its own (--no-bot): its process and its ledger are not known here")
        return self.staff

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Stream the ledger's picture and the faults, each when it has changed, until the client disconnects."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        if self.staff is None:
            await self._tell(response, None)
            return response
        async with self.staff.feed.viewer():
            await self._tell(response, self.staff.feed)
        return response

    async def _tell(self, response: web.StreamResponse, feed: LedgerFeed | None) -> None:
        sent: dict[str, Any] = {}
        quiet = 0
        try:
            while not self._changes.closed:
                news = {
                    "ledger": {"error": NO_LEDGER} if feed is None else feed.latest,
                    "weather": self._conditions(),
                    "database": self.database and asdict(self.database.standing),
                }
                fresh = {name: value for name, value in news.items() if value is not None and value != sent.get(name)}
                quiet = 0 if fresh else quiet + 1
                text = "".join(f"event: {name}\ndata: {json.dumps(value)}\n\n" for name, value in fresh.items())
                if text or quiet % HEARTBEAT_POLLS == 0:
                    await response.write(text.encode() or b": alive\n\n")
                sent |= fresh
                await (self._changes.after(self._changes.version, POLL_SECONDS) if feed is None else feed.changed(POLL_SECONDS))
        except ConnectionError:
            return

    def _conditions(self) -> Json:
        last = self._courier.last
        about = last and {"request_id": last.request_id, "kind": last.kind, "about": _about(last.payload)}
        return {"faults": self._weather.standing(), "last": about}


def _chosen(body: Body, deeds: object) -> str:
    """Return the field `do`, one of a Literal's."""
    deed = body.text("do")
    if deed not in get_args(deeds):
        raise GestureError(400, f"field 'do' must be one of {', '.join(get_args(deeds))}, not {deed!r}")
    return deed


def _about(payload: Json) -> str:
    """Describe a delivery in a few words."""
    if "command" in payload:
        return f"{payload['command']} {payload['text']}".rstrip()
    if "event" in payload:
        return f"event {payload['event']['type']}"
    if payload.get("actions"):
        action = payload["actions"][0]
        return f"click on {action.get('text', {}).get('text') or action['action_id']}"
    callback = payload.get("callback_id") or payload.get("view", {}).get("callback_id", "")
    return f"{payload['type'].replace('_', ' ')} {callback}".rstrip()
