"""The whole product in one place: the local world and the real bot over real sockets, driven through the control API.

`bot_in` runs the bot inside this process; `BotProcess` runs it as its own process, which can be killed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import operator
import os
import signal
import sqlite3
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp

from faults.checks.evidence import read_document
from faults.harness.bot import PLAN_VARIABLE, KillPlan
from faults.harness.fork_server import QUOTEBOT, Order, Spawned, shared_fork_server
from faults.harness.fresh import lay
from ledger.audit.keyring import load_keyring
from ledger.sqlite.ballast import BALLAST_BYTES
from quotebot.app.bot import Ports, run_bot
from quotebot.app.installation import schema_and_statements
from quotebot.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from quotebot.sandbox.world import World

GOLDEN = "new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%"
FIRST_QUOTE = f"Q-{datetime.now(UTC).year}-0001"
PATIENCE_SECONDS = 100.0  # on PostgreSQL an append is looked for during 65 s before it is sent again
LOOK_SECONDS = 0.02
_STARTED_MS: Final = time.time_ns() // 1_000_000
UNFINISHED: Final = """
SELECT 1 FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable')
UNION ALL SELECT 1 FROM effects WHERE state IN ('pending', 'in_flight', 'uncertain')
"""

Json = dict[str, Any]
T = TypeVar("T")


class Deal:
    """Client that drives a served world and reads its state. `data_dir` is the bot's data folder.

    `database` is the address of the ledger if it is not a file there.
    """

    def __init__(self, url: str, data_dir: Path, session: aiohttp.ClientSession, database: str | None = None) -> None:
        self.url = url
        self.data_dir = data_dir
        self.database = database
        self._session = session
        self._golden_deals = 0

    async def post(self, name: str, **body: Any) -> Json:
        """Call the control API; a status other than 200 fails the test."""
        async with self._session.post(f"{self.url}/_sandbox/{name}", json=body) as response:
            answer: Json = await response.json()
            assert response.status == 200, answer
            return answer

    async def get(self, name: str) -> Any:
        """Read from the control API; a status other than 200 fails the test."""
        async with self._session.get(f"{self.url}/_sandbox/{name}") as response:
            assert response.status == 200
            return await response.json()

    async def arm(self, target: str, effect: str, **more: Any) -> None:
        """Arm a fault."""
        await self.post("faults", target=target, effect=effect, **more)

    async def hits(self) -> int:
        """Return how often the armed faults have taken effect."""
        return sum(fault["hits"] for fault in await self.get("faults"))

    async def clear_faults(self) -> None:
        """Disarm every fault."""
        async with self._session.delete(f"{self.url}/_sandbox/faults") as response:
            assert response.status == 200

    async def slash(self, text: str | None = None, *, user: str = "U0REP", channel: str = "C0DEALS") -> Json:
        """Type a /quote command; returns request_id, ack and ack_ms.

        Without a text it is the golden deal: for Acme, then for Acme 2, and so on, because the bot asks back about repeated
        content.
        """
        if text is None:
            self._golden_deals += 1
            text = GOLDEN if self._golden_deals == 1 else GOLDEN.replace("Acme", f"Acme {self._golden_deals}")
        return await self.post("slash", user=user, channel=channel, command="/quote", text=text)

    async def click(self, action_id: str, *, user: str, channel: str = "C0DEALS", **more: Any) -> Json:
        """Click a button on the newest quote card of a channel."""
        card = await self.card(channel)
        return await self.post("action", user=user, channel=channel, message_ts=card["ts"], action_id=action_id, **more)

    async def click_ephemeral(self, action_id: str, *, user: str = "U0REP", **more: Any) -> Json:
        """Click a button on the newest ephemeral message of this person that has buttons."""
        seen = [m for m in await self.messages() if m["ephemeral_for"] == user and m["blocks"]]
        where = {"channel": seen[-1]["channel"], "message_ts": seen[-1]["ts"]}
        return await self.post("action", user=user, **where, action_id=action_id, **more)

    async def redeliver(self, request_id: str, kind: str, times: int) -> list[Json]:
        """Deliver an earlier request again, `times` times concurrently; returns the acks."""
        acks: list[Json] = (await self.post("redeliver", request_id=request_id, kind=kind, times=times))["acks"]
        return acks

    async def messages(self, channel: str = "C0DEALS") -> list[Json]:
        """Return every message of a channel, oldest first."""
        return [m for m in (await self.get("state"))["messages"] if m["channel"] == channel]

    async def cards(self, channel: str = "C0DEALS") -> list[Json]:
        """Return every quote card: root messages with blocks that are visible to all."""
        return [m for m in await self.messages(channel) if m["blocks"] and not m["thread_ts"] and not m["ephemeral_for"]]

    async def card(self, channel: str = "C0DEALS") -> Json:
        """Return the newest quote card of a channel."""
        return (await self.cards(channel))[-1]

    async def card_text(self) -> str:
        """Return the blocks of the newest card as one JSON text."""
        return json.dumps((await self.card())["blocks"], ensure_ascii=False)

    async def replies(self) -> list[Json]:
        """Return the thread replies that are visible to all."""
        return [m for m in await self.messages() if m["thread_ts"] and not m["ephemeral_for"]]

    async def whispers(self, user: str) -> list[str]:
        """Return the texts of this person's ephemeral messages."""
        return [m["text"] for m in await self.messages() if m["ephemeral_for"] == user]

    async def files(self) -> list[Json]:
        """Return the files shared in the workspace."""
        return [f for f in (await self.get("state"))["files"] if f["shares"]]

    async def crm(self, sobject: str = "Quote") -> list[Json]:
        """Return the records of the Salesforce org."""
        records: list[Json] = await self.get(f"salesforce/{sobject}")
        return records

    async def witness(self, method: str) -> list[Json]:
        """Return the request log's entries of one method."""
        return [sighting for sighting in await self.get("witness?since=0") if sighting["method"] == method]

    async def rows(self, sql: str) -> list[Json]:
        """Run a read-only query on the ledger from outside the bot."""
        if self.database is None:
            return await asyncio.to_thread(read_ledger, self.data_dir / "ledger.db", sql)
        from faults.lab.ledgers import read_database  # noqa: PLC0415 -- its driver is an extra

        return await asyncio.to_thread(read_database, self.database, sql)

    def content(self) -> sqlite3.Connection:
        """Return a connection that reads the ledger, or a copy of it if it is not a file."""
        if self.database is None:
            return sqlite3.connect(f"{(self.data_dir / 'ledger.db').absolute().as_uri()}?mode=ro", uri=True)
        from faults.lab.ledgers import in_sqlite  # noqa: PLC0415 -- as above

        return in_sqlite(self.database)

    def document(self, sha256: str) -> bytes | None:
        """Return a stored document, or None; blocks."""
        if self.database is None:
            return read_document(self.data_dir, sha256)
        from faults.lab import ledgers  # noqa: PLC0415 -- as above

        return ledgers.read_document(self.database, sha256)

    async def settled(self) -> None:
        """Wait until nothing is under way: every operation finished, every effect delivered, dead or superseded."""
        await eventually(lambda: self.rows(UNFINISHED), "everything to settle", holds=operator.not_)

    async def complete(self, action: Awaitable[T]) -> T:
        """Await `action`, then wait until nothing is under way; return the result of `action`."""
        answer = await action
        await self.settled()
        return answer

    async def submitted_deal(self) -> None:
        """Run the golden deal until its approval is pending."""
        await self.complete(self.slash())
        await self.complete(self.click("quote.submit", user="U0REP"))

    async def approved_deal(self) -> None:
        """Run the golden deal to its end."""
        await self.submitted_deal()
        await self.complete(self.click("approval.approve", user="U0MANAGER"))


def read_ledger(path: Path, sql: str) -> list[Json]:
    """Run one read-only statement on a ledger file."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]


async def eventually(
    seen: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS, *, holds: Callable[[Any], bool] = bool
) -> None:
    """Return as soon as `seen` is true, or what `holds` expects of it; fail after `seconds`, naming `what`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        answer = seen()
        if holds(await answer if inspect.isawaitable(answer) else answer):
            return
        if loop.time() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(LOOK_SECONDS)


def settings_for(world: World, data_dir: Path, **overrides: Any) -> Settings:
    """Return the settings that connect a bot to the world, as its environment would set them."""
    environment = world.environment()
    values: Json = {
        **{name: value for name, value in environment.items() if name.startswith(("SLACK_", "SALESFORCE_"))},
        "approvers": json.loads(environment["QUOTEBOT_APPROVERS"]),
        "data_dir": data_dir,
        "settle_delay_seconds": 0.5,
        "drain_seconds": 2.0,
        "commands_per_minute": 100_000,  # one person stands for many
        **overrides,
    }
    return Settings(_env_file=None, **values)


@asynccontextmanager
async def bot_in(world: World, data_dir: Path, ports: Ports | None = None, **overrides: Any) -> AsyncIterator[Deal]:
    """Run the real bot against a served world for the length of the block. The room that it keeps on the disk is not reserved.

    In an empty folder it finds an unused ledger and its key, unless its clock or database is another than the usual one.
    """
    _lay(data_dir, fresh=ports is None and "ledger_url" not in overrides)
    stop = asyncio.Event()
    task = asyncio.create_task(run_bot(settings_for(world, data_dir, **overrides), stop, ports))
    try:
        await eventually(lambda: world.socket.connections > 0 or task.done(), "the bot to connect")
        if task.done():
            task.result()
        async with aiohttp.ClientSession() as session:
            yield Deal(world.url, data_dir, session)
    finally:
        stop.set()
        await task


def _lay(data_dir: Path, *, fresh: bool) -> None:
    """Make what would take longer than the rest of a start: an unused ledger if `fresh`, and the ballast without its blocks."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fresh and not any(data_dir.iterdir()):
        load_keyring(data_dir)
        lay(data_dir / "ledger.db", tuple(schema_and_statements()[0]), _STARTED_MS)
    file = os.open(data_dir / "ledger.db.ballast", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.ftruncate(file, BALLAST_BYTES)
    finally:
        os.close(file)


class BotProcess:
    """The real bot as its own process against a served world. `log` collects its output."""

    def __init__(self, world: World, data_dir: Path, log: Path, **environment: str) -> None:
        self._world = world
        self._data_dir = data_dir
        self._log = log
        self._environment = environment
        self._process: asyncio.subprocess.Process | Spawned | None = None
        self._mothers = AsyncExitStack()

    async def start(self, plan: KillPlan | None = None, *, under: tuple[str, ...] = ()) -> None:
        """Start it and wait until it is connected or dead.

        With a `plan` it runs under that kill plan, without one as shipped. `under` is the command of a tracer.
        """
        environment = {**os.environ, **self.environment, **({} if plan is None else {PLAN_VARIABLE: plan.to_text()})}
        module, *arguments = ["quotebot", "run"] if plan is None else ["faults.harness.bot"]
        if under or "PYTHONPATH" in self._environment:  # a fork server has imported the unmodified product
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *under, sys.executable, "-m", module, *arguments, stderr=log, env=environment
                )
        else:
            mother = await self._mothers.enter_async_context(shared_fork_server())
            main = QUOTEBOT if plan is None else "faults.harness.bot:main"
            self._process = await mother.spawn(Order(tuple(arguments), environment, str(self._log), main))
        process = self.process
        await eventually(lambda: self._world.socket.connections > 0 or process.returncode is not None, "the bot to connect")

    @property
    def environment(self) -> dict[str, str]:
        """The environment that connects a `quotebot` command to this bot's world and ledger."""
        return {
            **self._world.environment(),
            "QUOTEBOT_DATA_DIR": str(self._data_dir),
            "QUOTEBOT_SETTLE_DELAY_SECONDS": "1",
            **self._environment,
        }

    @property
    def started(self) -> bool:
        """True if the process was started at least once."""
        return self._process is not None

    @property
    def process(self) -> asyncio.subprocess.Process | Spawned:
        """The process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    async def died(self) -> None:
        """Wait until its plan or `kill` has killed it."""
        status = await self.ended()
        assert status == -signal.SIGKILL, f"the bot ended with status {status}: {self._log.read_text()[-2000:]}"
        await eventually(lambda: self._world.socket.connections == 0, "its connection to be gone")

    async def ended(self) -> int:
        """Wait until it has ended and return its exit status."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)

    def said(self) -> str:
        """Return its log so far."""
        return self._log.read_text()

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.process.kill()
        await self.died()

    async def stop(self) -> int:
        """Send SIGTERM, wait for the end and return the exit status."""
        if self.process.returncode is None:
            self.process.terminate()
        status = await self.ended()
        await self._mothers.aclose()
        return status


@asynccontextmanager
async def bot_process(world: World, folder: Path, **environment: str) -> AsyncIterator[tuple[BotProcess, Deal]]:
    """Yield a bot process that is not started yet, and its `Deal`; stop the process at the end."""
    process = BotProcess(world, folder / "bot", folder / "bot.log", **environment)
    async with aiohttp.ClientSession() as session:
        try:
            yield process, Deal(world.url, folder / "bot", session)
        finally:
            if process.started:
                await process.stop()
