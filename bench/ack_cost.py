"""Processor time of an acknowledgement, by part: the part of the bot that answers Slack, in this process, without a network.

    ./run bench ack_cost [COMMANDS]

`./run bench ack` judges; this script explains. The same commands are received in pairs, as at a thousand per second, once with the
ledger in memory and once on the disk; and on the disk one at a time, after pauses of 20 ms. The table shows processor time per
command. The columns differ only in how long the machine did something else in between, so their difference is the cost of cold
processor caches and of a virtual machine's sleep. For comparison: Bolt's time to acknowledge from memory (the same payload,
process_before_response), and the time of one flush of as many pages on an idle machine. All in one run, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response  # noqa: E402 -- after the path
from slack_bolt.async_app import AsyncApp  # noqa: E402 -- after the path
from slack_bolt.authorization import AuthorizeResult  # noqa: E402 -- after the path
from slack_sdk.socket_mode.request import SocketModeRequest  # noqa: E402 -- after the path
from slack_sdk.web.async_client import AsyncWebClient  # noqa: E402 -- after the path

from adapters.slack.api import Identity  # noqa: E402 -- after the path
from bench.lifecycle.machine import disk_folder, stolen_seconds  # noqa: E402 -- after the path
from bench.lifecycle.measure import percentile  # noqa: E402 -- after the path
from ledger.audit.events import Audit  # noqa: E402 -- after the path
from ledger.ledger import Ledger  # noqa: E402 -- after the path
from ledger.sqlite.batch import BatchRunner, SqliteTx  # noqa: E402 -- after the path
from quotebot import store  # noqa: E402 -- after the path
from quotebot.app.clients import build_handlers, connect_outside  # noqa: E402 -- after the path
from quotebot.app.installation import load_rules, open_audit, open_database  # noqa: E402 -- after the path
from quotebot.app.slack_surface import Front, receiver_of  # noqa: E402 -- after the path
from quotebot.app.workers import Ports  # noqa: E402 -- after the path
from quotebot.execution.membership import Known, keep_person  # noqa: E402 -- after the path
from quotebot.observability.logs import configure_logs  # noqa: E402 -- after the path
from quotebot.settings import Settings  # noqa: E402 -- after the path
from quotebot.slack import verbs  # noqa: E402 -- after the path
from quotebot.slack.connections import Link  # noqa: E402 -- after the path
from quotebot.slack.receiver import SocketReceiver  # noqa: E402 -- after the path
from quotebot.worker_loop import AckPriority, shared_board  # noqa: E402 -- after the path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

COMMANDS: Final = 2000
RARE: Final = 200  # commands after pauses
PAUSE_SECONDS: Final = 0.02
WARMING: Final = 100
MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- fresh folders are made in it
PAGES: Final = 8  # a commit of one command writes about this many
PARTS: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    "an envelope, taken in": (SocketReceiver, ("take",)),
    "what was typed, understood": (verbs, ("parse",)),
    "statements": (SqliteTx, ("one", "all", "many")),
    "signing": (Audit, ("chain",)),
    "COMMIT, its flush included": (BatchRunner, ("_commit", "flush")),
}
REST: Final = "the rest: tasks, futures, answers"


class Inner(threading.local):
    """Seconds spent in nested parts, by depth. The loop and the ledger's writer measure at the same time, each in its thread."""

    def __init__(self) -> None:
        self.seconds = [0.0]


class Meter:
    """Sums of the processor time by part; time spent in a nested part counts for the nested part only."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._inner = Inner()

    def watched(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return `work` wrapped so that its time counts for `part`."""

        def run(*arguments: Any, **named: Any) -> Any:
            inner = self._inner.seconds
            inner.append(0.0)
            began = time.thread_time()
            try:
                return work(*arguments, **named)
            finally:
                seconds = time.thread_time() - began
                self.spent[part] += seconds - inner.pop()
                inner[-1] += seconds

        return run


class Socket:
    """Receiver of acknowledgements in place of a connection."""

    closed = False

    def __init__(self) -> None:
        self._awaited = 0
        self._all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def awaits(self, count: int) -> asyncio.Future[None]:
        """Return a future that completes when `count` acknowledgements were sent."""
        self._awaited, self._all = count, asyncio.get_running_loop().create_future()
        return self._all

    async def send_str(self, text: str) -> None:
        """Count one acknowledgement."""
        self._awaited -= bool(text)
        if not self._awaited:
            self._all.set_result(None)


class Nobody:
    """Metrics that count nothing."""

    def observe_ack(self, envelope: str, seconds: float) -> None:
        """Do nothing."""

    def observe_reserve(self, seconds: float) -> None:
        """Do nothing."""

    def count_connection(self) -> None:
        """Do nothing."""


def envelope(number: int) -> str:
    """Return a frame as Slack sends it."""
    payload = {
        "token": "bench",
        "team_id": "T0BENCH",
        "team_domain": "bench",
        "channel_id": f"C{number:08}",
        "channel_name": "deals",
        "user_id": "U0REP",
        "user_name": "rep",
        "command": "/quote",
        "text": f"new for Acme {number}: 1 pro",
        "api_app_id": "A0BENCH",
        "is_enterprise_install": "false",
        "trigger_id": f"{number}.{number}.b",
        "response_url": f"http://127.0.0.1:1/hooks/{number}",
    }
    head = {"envelope_id": f"00000000-0000-4000-8000-{number:012}", "type": "slash_commands", "accepts_response_payload": True}
    return json.dumps({**head, "payload": payload})


@contextlib.asynccontextmanager
async def front(folder: Path) -> Any:
    """Yield a receiver of envelopes over a fresh ledger in `folder`, as in the bot's acknowledging process."""
    values: dict[str, Any] = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_API_URL": "http://127.0.0.1:1/api/"}
    settings = Settings(_env_file=None, data_dir=folder, commands_per_minute=100_000, **values)
    configure_logs(json_lines=True, secrets=settings.secrets)
    ports = Ports()
    async with contextlib.AsyncExitStack() as stack:
        core = await open_database(settings, open_audit(settings), ports.clock, bot=True)  # the bot's own: checkpoints
        stack.push_async_callback(core.close)
        signed = open_audit(settings)
        database = await open_database(settings, signed, ports.clock, bot=False, keeps_room=True, at_once=True)
        stack.push_async_callback(database.close)
        member = Known("member", ports.clock.now_ms())  # as before any second command of a person; else Slack is asked each time
        await database.write("bench", partial(keep_person, team_id="T0BENCH", user="U0REP", found=member))
        ledger = Ledger(database, ports.clock, signed, lease_seconds=settings.lease_seconds, pin=store.quotes.head_version)
        outside, rules = await connect_outside(stack, settings), load_rules(settings)
        handlers = build_handlers(settings, ledger, outside.adapters)
        made = Front(ledger, outside, rules, handlers, Nobody(), AckPriority(ports.clock, shared_board()))
        identity = Identity(**dict.fromkeys(Identity.__dataclass_fields__, "T0BENCH"))
        yield receiver_of(made, settings, identity, clock=ports.clock, draw=ports.draw)


async def taken(receiver: SocketReceiver, frames: Sequence[str], together: int, pause_seconds: float) -> list[float]:
    """Receive the frames in groups of `together`; return the seconds of each group up to its last acknowledgement."""
    socket: Any = Socket()
    link = Link(socket, asyncio.get_running_loop().create_future())
    seconds = []
    for first in range(0, len(frames), together):
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
        group = frames[first : first + together]
        acknowledged, began = socket.awaits(len(group)), time.perf_counter()
        for frame in group:
            receiver.take(json.loads(frame), link)
        await acknowledged
        seconds.append(time.perf_counter() - began)
    return seconds


async def column(folder: Path, commands: int, together: int, pause_seconds: float, meter: Meter) -> tuple[float, list[float]]:
    """Return the processor seconds per command and the seconds of each group."""
    frames = [envelope(number) for number in range(WARMING + commands)]
    async with front(folder) as receiver:
        await taken(receiver, frames[:WARMING], together, 0.0)
        meter.spent.clear()
        began = time.process_time()
        seconds = await taken(receiver, frames[WARMING:], together, pause_seconds)
        return (time.process_time() - began) / commands, seconds


async def from_memory(commands: int) -> float:
    """Return the processor seconds that Bolt needs to acknowledge one envelope."""

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=None, team_id="T0BENCH", bot_token="xoxb-1", bot_id="B0BENCH", bot_user_id="U0BENCH")  # noqa: S106

    async def quote(ack: Callable[..., Awaitable[Any]]) -> None:
        await ack(text="On it.")

    app = AsyncApp(client=AsyncWebClient(), authorize=authorize, process_before_response=True)
    app.command("/quote")(quote)
    client: Any = _Client()
    began = 0.0
    for number, frame in enumerate([envelope(number) for number in range(WARMING + commands)]):
        if number == WARMING:
            began = time.process_time()
        request: Any = SocketModeRequest.from_dict(json.loads(frame))
        at = time.perf_counter()
        await send_async_response(client, request, await run_async_bolt_app(app, request), at)
    if client.sent != WARMING + commands:
        raise RuntimeError(f"Bolt acknowledged {client.sent} of {WARMING + commands}")
    return (time.process_time() - began) / commands


class _Client:
    def __init__(self) -> None:
        self.sent = 0
        self.logger = logging.getLogger(__name__)

    async def send_socket_mode_response(self, response: Any) -> None:
        self.sent += bool(json.dumps(response.to_dict()))


def flushes(folder: Path, count: int, pause_seconds: float) -> list[float]:
    """Return the seconds of each flush, after as many pages as in a commit were written over old ones."""
    content, seconds = os.urandom(PAGES * 4096), []
    file = os.open(folder / "flushed", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.pwrite(file, content, 0)
        for _ in range(count):
            time.sleep(pause_seconds)
            began = time.perf_counter()
            os.pwrite(file, content, 0)
            os.fdatasync(file)
            seconds.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return seconds


def spread(seconds: list[float]) -> str:
    """Return p50 and p99 in milliseconds."""
    return f"{percentile(seconds, 50) * 1000:.2f} / {percentile(seconds, 99) * 1000:.2f} ms"


def watch(meter: Meter) -> None:
    """Start to measure the parts."""
    for part, (owner, names) in PARTS.items():
        for name in names:
            setattr(owner, name, meter.watched(part, getattr(owner, name)))


def line(words: str, cells: Iterable[str]) -> None:
    """Print one line of the table."""
    print(f"  {words:36}" + "".join(f"{cell:>20}" for cell in cells))


def main() -> None:
    """Measure, then print the table."""
    commands = int(sys.argv[1]) if len(sys.argv) > 1 else COMMANDS
    meter, stolen = Meter(), stolen_seconds()
    watch(meter)
    columns = {
        "memory, in pairs": (MEMORY, commands, 2, 0.0),
        "disk, in pairs": (disk_folder(), commands, 2, 0.0),
        "disk, seldom": (disk_folder(), min(commands, RARE), 1, PAUSE_SECONDS),
    }
    if not MEMORY.is_dir():
        del columns["memory, in pairs"]
    bills, whole, groups = [], [], []
    for place, count, together, pause_seconds in columns.values():
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nobody,
            contextlib.redirect_stderr(nobody),  # the log is not used
            tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=place) as folder,
        ):
            cpu, seconds = asyncio.run(column(Path(folder), count, together, pause_seconds, meter))
        bill = {part: meter.spent[part] / count for part in PARTS}
        bills.append({**bill, REST: cpu - sum(bill.values())})
        whole.append(cpu)
        groups.append(spread(seconds))
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=disk_folder()) as folder:
        bare = [spread(flushes(Path(folder), commands, 0.0)), spread(flushes(Path(folder), RARE, PAUSE_SECONDS))]
    bolt = asyncio.run(from_memory(commands))
    print("processor time per command in microseconds, watching included")
    line("", columns)
    for part in bills[0]:
        line(part, (f"{bill[part] * 1e6:.0f}" for bill in bills))
    line("all", (f"{cpu * 1e6:.0f}" for cpu in whole))
    line("to the last of a group, p50 / p99", groups)
    line("one bare flush, p50 / p99", [*[""] * (len(columns) - len(bare)), *bare])
    print(
        f"Bolt, from memory, no task, no connection: {bolt * 1e6:.0f}; ours in pairs on the disk: {whole[-2] / bolt:.1f}x of that."
    )
    print(f"At 1,000 a second one processor is busy for {whole[-2] * 1000:.0%} with this, the connection not counted.")
    print(f"Meanwhile {stolen_seconds() - stolen:.1f} s of processor were stolen.")


if __name__ == "__main__":
    main()
