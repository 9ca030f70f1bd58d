"""Live sandbox for the operator's runbook: a served world, the real bot in it, and a shell that runs the page's commands.

The bot runs on a thread of this process, so that stopping and starting it is fast; everything else is as at an operator's terminal:
the same command line, the same files, the same sockets. Commands that need systemd (`systemctl`, `journalctl`) act on that bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
import structlog

from quotebot.app.bot import Ports, run_bot
from quotebot.cli import root, terminal
from quotebot.sandbox.slack.listing import SCOPES
from quotebot.sandbox.world import World
from quotebot.settings import load_settings
from tests.rig import Deal, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    import pytest

    from quotebot.sandbox.chance import Tokens

T = TypeVar("T")
SECONDS: Final = 60.0
STOPPED: Final = 3  # systemctl's status for an inactive unit
FOLDER: Final = "/srv/quotebot"  # the data folder on the page
HEALTH: Final = "127.0.0.1:9464"  # the health server on the page


@dataclass(frozen=True, slots=True)
class Line:
    """One command of the page: its text, its expected exit status, and its expected output (`...` matches anything)."""

    command: str
    status: int
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of commands: its heading and its number under that heading."""

    heading: str
    number: int
    lines: tuple[Line, ...]


def blocks(page: str) -> list[Block]:
    """Return every block of commands of a page, in order."""
    found, heading, number = [], "", 0
    for title, body in re.findall(r"^## ([^\n]+)$|^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        heading, number = (title, 0) if title else (heading, number + 1)
        if body:
            found.append(Block(heading, number, tuple(_lines(body))))
    return found


def _lines(body: str) -> Iterator[Line]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *told = part.splitlines()
        command, _, remark = command.partition("  # status ")
        yield Line(command, int(remark or 0), tuple(line for line in told if line))


def missing(line: Line, printed: str, ours: Callable[[str], str]) -> list[str]:
    """Return the expected lines that a command did not print; column spacing is ignored. `ours` replaces example ids."""
    flat = " ".join(printed.split())
    parts = (" ".join(part.split()) for told in line.told for part in ours(told).split("..."))
    return [part for part in parts if part not in flat]


class Live:
    """The sandbox, its bot, and the actions of its users and operators."""

    def __init__(
        self, folder: Path, environment: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], tokens: Tokens | None = None
    ) -> None:
        self.folder = folder
        self._tokens = tokens
        self.data = folder / "data"
        self._environment, self._capture = environment, capture
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._bot: asyncio.Task[None] | None = None
        self._world: World
        self._health = _free_port()
        self.deal: Deal
        self.examples: dict[str, str] = {}

    @contextlib.contextmanager
    def served(self) -> Iterator[Live]:
        """Serve the world and its bot for the length of the block."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            with self._log():
                stack = self.wait(self._open())
                try:
                    self.start()
                    yield self
                finally:
                    self.stop()
                    self.wait(stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def hooks(self) -> list[str]:
        """Return the path of every response_url that Slack has issued."""
        return list(self._world.slack.passes._response_urls)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the world's thread and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def start(self) -> None:
        """Start the bot as its service would."""
        self.wait(self._start())

    def stop(self) -> None:
        """End the bot as its service would."""
        self.wait(self._end())

    def run(self, line: str) -> tuple[int, str]:
        """Run one command of the page; returns its exit status and everything it printed."""
        line = self.ours(line)
        program, *arguments = shlex.split(line)
        if program == "quotebot":
            self._capture.readouterr()
            status = root.run(arguments)
            return status, "".join(self._capture.readouterr())
        if program in ("systemctl", "journalctl"):
            return self._serve(*(word for word in arguments if word != "quotebot"))
        if program == "curl":  # not every machine has it
            return _fetched(arguments[-1])
        plain = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(["/bin/sh", "-c", line], env=plain, capture_output=True, text=True, timeout=SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    def ours(self, text: str) -> str:
        """Replace the page's example ids and paths by those of this sandbox."""
        for example, real in {**self.examples, FOLDER: str(self.data), HEALTH: f"127.0.0.1:{self._health}"}.items():
            text = re.sub(rf"(?<![\w-]){re.escape(example)}\b", real, text)
        return text

    def _serve(self, *arguments: str) -> tuple[int, str]:
        """Act as systemd would."""
        if arguments[0] in ("stop", "restart"):
            self.stop()
        if arguments[0] in ("start", "restart"):
            self.start()
        if arguments[0] == "status":
            active = self._bot is not None
            return (0, "active (running)") if active else (STOPPED, "inactive (dead)")
        return 0, (self.folder / "journal").read_text("utf-8") if arguments[0] == "-u" else ""

    async def _open(self) -> contextlib.AsyncExitStack:
        stack = contextlib.AsyncExitStack()
        self._world = await stack.enter_async_context(World(self.folder / "world", scopes=SCOPES, tokens=self._tokens).serve())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        self.deal = Deal(self._world.url, self.data, session)
        for name in [name for name in os.environ if name.startswith(("QUOTEBOT_", "SLACK_", "SALESFORCE_"))]:
            self._environment.delenv(name)
        ours = {
            "QUOTEBOT_DATA_DIR": str(self.data),
            "QUOTEBOT_HEALTH_PORT": str(self._health),
            "QUOTEBOT_SETTLE_DELAY_SECONDS": "0.5",
            "QUOTEBOT_CLI_OPERATORS": json.dumps([terminal.user()]),
        }
        for name, value in {**self._world.environment(), **ours}.items():
            self._environment.setenv(name, value)
        self._environment.chdir(self.folder)
        return stack

    async def _start(self) -> None:
        self._stop = asyncio.Event()
        bot = asyncio.create_task(run_bot(load_settings(for_slack=True), self._stop, Ports(draw=lambda low, _: low)))
        await eventually(lambda: self._world.socket.connections > 0 or bot.done(), "the bot to connect")
        self._bot = bot

    async def _end(self) -> None:
        self._stop.set()
        if self._bot is not None:
            await self._bot
        self._bot = None

    @contextlib.contextmanager
    def _log(self) -> Iterator[IO[str]]:
        with (self.folder / "journal").open("a", encoding="utf-8", buffering=1) as journal:
            structlog.configure(logger_factory=structlog.WriteLoggerFactory(journal), cache_logger_on_first_use=False)
            yield journal


def _fetched(address: str) -> tuple[int, str]:
    """Return the output of `curl -s`: the page, whatever its status is."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 -- an address of the page
            return 0, str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return 0, error.read().decode()


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
