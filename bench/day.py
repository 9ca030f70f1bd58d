"""Growth check: a day's volume through the real bot over real sockets, as fast as possible.

    ./run bench day [--commands 5000] [--warm 0] [--people 8] [--quick] [--json]

People request quotes, query, submit, approve, revise and finalize; every other quote is requested twice, and faults of all kinds
are armed all the time. After each tenth the bot settles, and the resources of its processes are recorded. Status 1: something grew,
or a command was lost. `--warm` commands run before the day. `--quick` is too short to detect growth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench._all import found  # noqa: E402 -- after the path
from quotebot.sandbox.slack.errors import GestureError  # noqa: E402 -- after the path
from quotebot.sandbox.world import World  # noqa: E402 -- after the path

DAY: Final = 5_000
LOOK: Final = 300
TENTHS: Final = 10
FLAT: Final = 1.05  # the last tenth's memory, as a multiple of the second's
RENDERER_MIB_MAX: Final = 128
WAL_BYTES_MAX: Final = 64 << 20  # the size to which it is truncated
SLACK: Final = 2  # allowed fluctuation: a closing connection, a job on a thread
QUIET_SECONDS: Final = 600.0
DRAIN_SECONDS: Final = 8.0
REP, MANAGER, CHANNEL = "U0REP", "U0MANAGER", "C0DEALS"
HELD: Final = "SELECT name FROM gates WHERE state = 'held' AND cause = 'auth'"
FAULT_EVERY_SECONDS: Final = 2.0
FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"target": "slack", "effect": "429", "retry_after": 1},
    {"target": "slack", "effect": "5xx", "times": 2},
    {"target": "slack", "effect": "reset_after", "times": 1},
    {"target": "slack", "effect": "slow", "delay": 0.3, "times": 3},
    {"target": "salesforce", "effect": "5xx", "times": 2},
    {"target": "salesforce", "effect": "reset_before", "times": 1},
    {"target": "salesforce", "effect": "auth_expired", "method": "composite/graph", "times": 1},
    {"target": "socket", "effect": "disconnect"},
    {"target": "socket", "effect": "drop_ack", "method": "slash_commands"},
)


@dataclass(frozen=True, slots=True)
class Held:
    """Resources of the bot's two processes, its renderer and its files at rest."""

    commands: int
    seconds: float
    rss_mib: float
    renderer_mib: float
    threads: int
    descriptors: int
    tasks: int
    wal_mib: float
    ledger_mib: float


@dataclass(slots=True)
class Day:
    """One day: the world, the bot's process, and the actions of people."""

    world: World
    folder: Path
    process: asyncio.subprocess.Process
    plan: random.Random
    began: float = field(default_factory=time.monotonic)
    commands: int = 0
    deals: int = 0
    unheard: int = 0  # gestures whose acknowledgement was lost on the way
    resumed: int = 0  # classes that were held for a refused login
    held: list[Held] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """Path of the bot's ledger."""
        return self.folder / "bot" / "ledger.db"

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a query on the ledger from outside the bot."""
        with contextlib.closing(sqlite3.connect(f"{self.ledger.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(sql, parameters).fetchall()

    async def spend(self, commands: int, warm: int, people: int) -> None:
        """Run the warm-up commands, then the day's commands tenth by tenth."""
        faults = asyncio.create_task(self._weather())
        try:
            await self._work(warm, people)
            for tenth in range(1, TENTHS + 1):
                await self._work(warm + commands * tenth // TENTHS, people)
                self.held.append(await self._look())
        finally:
            faults.cancel()

    async def _work(self, upto: int, people: int) -> None:
        await asyncio.gather(*(self._person(upto) for _ in range(people)))
        self.world.weather.clear()
        await self._until_quiet()
        print(_line(await self._look()), file=sys.stderr, flush=True)

    async def _person(self, upto: int) -> None:
        while self.commands < upto:
            self.deals += 1
            await self._deal(f"Customer {self.deals}", self.deals)

    async def _deal(self, account: str, number: int) -> None:
        """Give about ten commands on one quote."""
        discount = "discount 15%" if number % 3 == 0 else "discount 5%"
        asked = await self._type(f"new for {account}: {number % 40 + 1} pro, 1 support; term 12m; {discount}")
        if number % 2 == 0 and asked is not None:
            self.commands += 1
            with contextlib.suppress(GestureError):
                await self.world.courier.redeliver(asked, "resend", 1)
        made = await self._made(account)
        if made is None:
            return
        quote_id, ts = made
        await self._type(f"show {quote_id}")
        await self._type(f"submit {quote_id}")
        if number % 3 == 0:
            await self._click(ts, "approval.approve", MANAGER)
        await self._type(f"explain {quote_id}")
        await self._type("list mine")
        await self._type("whatever this is")
        if number % 4 == 0:
            await self._type(f"revise {quote_id}: {number % 30 + 2} pro; discount 2%")
            await self._type(f"submit {quote_id}")
        await self._type(f"finalize {quote_id}")

    async def _made(self, account: str) -> tuple[str, str] | None:
        """Wait up to 60 s for the quote and its card; return their ids, None without them."""
        for _ in range(600):
            found = await asyncio.to_thread(self.rows, "SELECT quote_id, thread_ts FROM quotes WHERE account = ?", account)
            if found and found[0][1] is not None:
                return found[0]
            await asyncio.sleep(0.1)
        return None

    async def _type(self, text: str) -> str | None:
        self.commands += 1
        with contextlib.suppress(GestureError):
            answer = await self.world.gestures.slash(REP, CHANNEL, "/quote", text)
            self.unheard += answer["ack"] is None
            request_id: str | None = answer["request_id"]
            return request_id
        await asyncio.sleep(0.2)  # there was no connection: the person types again
        return None

    async def _click(self, ts: str, action_id: str, user: str) -> None:
        for _ in range(50):
            with contextlib.suppress(GestureError):
                self.commands += 1
                await self.world.gestures.click_message(
                    user, CHANNEL, ts, action_id, block_id=None, value=None, values={}, stale=False
                )
                return
            self.commands -= 1
            await asyncio.sleep(0.1)  # the card does not have its button yet

    async def _weather(self) -> None:
        while True:
            await asyncio.sleep(FAULT_EVERY_SECONDS * self.plan.random() * 2)
            self.world.weather.clear()
            self.world.weather.arm(**self.plan.choice(FAULTS))

    async def _until_quiet(self) -> None:
        unfinished = (
            "SELECT (SELECT count(*) FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable')) + "
            "(SELECT count(*) FROM effects WHERE state IN ('pending', 'in_flight', 'uncertain'))"
        )
        until = time.monotonic() + QUIET_SECONDS
        while (await asyncio.to_thread(self.rows, unfinished))[0][0]:
            await self._resume()
            await asyncio.sleep(0.5)
            if time.monotonic() > until:
                waiting = (
                    "SELECT class, state, category, last_error, count(*) FROM effects WHERE finished_at IS NULL GROUP BY 1, 2, 3"
                )
                raise TimeoutError(f"it does not come to rest: {self.rows(waiting)}, held: {self.rows(HELD)}")
        await asyncio.sleep(3.0)  # time to close idle connections and to checkpoint the WAL

    async def _resume(self) -> None:
        """Resume classes held for a refused login, as an operator would: nothing else ends that hold."""
        for (name,) in await asyncio.to_thread(self.rows, HELD):
            command = (sys.executable, "-m", "quotebot", "resume", name)
            environment = {**os.environ, "QUOTEBOT_DATA_DIR": str(self.folder / "bot"), "PYTHONPATH": sys.path[0]}
            resuming = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
            await resuming.wait()
            self.resumed += 1

    async def _look(self) -> Held:
        told = self.folder / "tasks"
        told.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(30):
            while not told.exists() or not told.read_text("ascii"):  # noqa: ASYNC110 -- another process writes it
                await asyncio.sleep(0.05)
        pid = self.process.pid
        renderers = [child for child in _children(pid) if _renders(child)]
        bot = [pid, *(child for child in _children(pid) if child not in renderers)]  # the worker and the acknowledging process
        wal = self.ledger.with_name("ledger.db-wal")
        return Held(
            commands=self.commands,
            seconds=time.monotonic() - self.began,
            rss_mib=sum(_status(each, "VmRSS") for each in bot) / 1024,
            renderer_mib=sum(_status(each, "VmRSS") for each in renderers) / 1024,
            threads=sum(_status(each, "Threads") for each in bot),
            descriptors=sum(_descriptors(each) for each in bot),
            tasks=int(told.read_text("ascii")),
            wal_mib=(wal.stat().st_size if wal.exists() else 0) / 2**20,
            ledger_mib=self.ledger.stat().st_size / 2**20,
        )


def judge(held: list[Held], outcome: dict[str, Any], commands: int) -> list[dict[str, Any]]:
    """Return each goal with its result. No resource may be larger at the end of the last tenth than at the end of the second."""
    second, last = held[1], held[-1]
    grown = "memory of the bot at the day's end, beside that of its second tenth: at most 1.05x"
    flat = [
        (grown, last.rss_mib / second.rss_mib, "x", last.rss_mib <= FLAT * second.rss_mib),
        ("threads more than at the second tenth's end: at most 2", *_more(second.threads, last.threads)),
        ("file descriptors more: at most 2", *_more(second.descriptors, last.descriptors)),
        ("tasks more: at most 2", *_more(second.tasks, last.tasks)),
    ]
    renderer, wal = max(each.renderer_mib for each in held), max(each.wal_mib for each in held)
    lost = outcome["unfinished"] + outcome["dead"]
    twice = outcome["quotes"] - outcome["customers"]
    bounded = [
        ("memory of the renderer: at most 128 MiB", renderer, " MiB", renderer <= RENDERER_MIB_MAX),
        ("the WAL: at most 64 MiB", wal, " MiB", wal * 2**20 <= WAL_BYTES_MAX),
        ("commands unfinished or given up: none", lost, "", lost == 0),
        ("quotes more than customers: none", twice, "", twice == 0),
        ("SIGTERM at the end: exit 0 within 8 s", outcome["drain_seconds"], " s", _ended_well(outcome)),
    ]
    short = commands < DAY
    return [
        *({"goal": goal, "found": found, "unit": unit, "verdict": _verdict(met, short=short)} for goal, found, unit, met in flat),
        *({"goal": goal, "found": found, "unit": unit, "verdict": _verdict(met)} for goal, found, unit, met in bounded),
    ]


def _more(before: int, after: int) -> tuple[int, str, bool]:
    return after - before, "", after <= before + SLACK


def _ended_well(outcome: dict[str, Any]) -> bool:
    return bool(outcome["status"] == 0 and outcome["drain_seconds"] <= DRAIN_SECONDS)


def _verdict(met: bool, *, short: bool = False) -> str:  # noqa: FBT001 -- its only subject
    return "no verdict (not a day)" if short else "ok" if met else "missed"


async def day(commands: int, warm: int, people: int, folder: Path) -> tuple[list[Held], dict[str, Any]]:
    """Run one day in this folder; return the resources at the end of each tenth, and the outcome."""
    async with World(folder / "world").serve() as world:
        environment = {**os.environ, **world.environment(), "QUOTEBOT_DATA_DIR": str(folder / "bot")}
        with (folder / "bot.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.lifecycle.watched",
                str(folder / "tasks"),
                cwd=sys.path[0],
                stdout=log,
                stderr=log,
                env={**environment, "QUOTEBOT_SETTLE_DELAY_SECONDS": "1", "PYTHONPATH": sys.path[0]},
            )
        try:
            async with asyncio.timeout(60):
                while not world.socket.connections:  # noqa: ASYNC110 -- another process connects
                    await asyncio.sleep(0.05)
            lived = Day(world, folder, process, random.Random(1))  # noqa: S311 -- a plan
            await lived.spend(commands, warm, people)
            outcome = _outcome(lived)
        finally:
            started = time.monotonic()
            if process.returncode is None:
                process.terminate()
            status = await process.wait()
        return lived.held, {**outcome, "status": status, "drain_seconds": time.monotonic() - started}


def _outcome(lived: Day) -> dict[str, Any]:
    counts = {
        "unfinished": "SELECT count(*) FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable')",
        "dead": "SELECT count(*) FROM dead_letters WHERE status = 'pending'",
        "quotes": "SELECT count(*) FROM quotes",
        "customers": "SELECT count(DISTINCT account) FROM quotes",
        "effects": "SELECT count(*) FROM effects",
        "pdfs": "SELECT count(*) FROM effects WHERE class = 'pdf.render' AND state = 'delivered'",
        "duplicates": "SELECT count(*) FROM audit_events WHERE event_type = 'delivery.duplicate'",
    }
    return {
        "commands": lived.commands,
        "unheard": lived.unheard,
        "resumed": lived.resumed,
        **{name: lived.rows(sql)[0][0] for name, sql in counts.items()},
    }


def _status(pid: int, name: str) -> int:
    """Return a number of /proc/PID/status (memory in KiB); 0 if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace")
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:")), 0)


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text("ascii").split():
            yield int(child)


def _renders(pid: int) -> bool:
    return b"pdf_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _line(held: Held) -> str:
    return (
        f"{held.commands:>7,} commands {held.seconds:7.0f} s   bot {held.rss_mib:6.1f} MiB   renderer {held.renderer_mib:6.1f} MiB "
        f"  {held.threads:3} threads {held.descriptors:3} descriptors {held.tasks:3} tasks   WAL {held.wal_mib:5.1f} MiB   "
        f"ledger {held.ledger_mib:6.1f} MiB"
    )


def main() -> int:
    """Read the options, run the day and print the report."""
    parser = argparse.ArgumentParser(prog="./run bench day", description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=DAY)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commands = LOOK if options.quick else options.commands
    with tempfile.TemporaryDirectory(prefix="quotebot-day-") as folder:
        held, outcome = asyncio.run(day(commands, options.warm, options.people, Path(folder)))
    goals = judge(held, outcome, commands)
    if options.json:
        print(json.dumps({"held": [asdict(each) for each in held], "outcome": outcome, "goals": goals}, indent=2))
    else:
        print("\n".join(_line(each) for each in held))
        print(
            ", ".join(
                f"{name} {value:,.1f}" if isinstance(value, float) else f"{name} {value:,}" for name, value in outcome.items()
            )
        )
        print("\n".join(f"[{goal['verdict']}] {goal['goal']}: {found(goal)}" for goal in goals))
    return int(any(goal["verdict"] == "missed" for goal in goals))


if __name__ == "__main__":
    sys.exit(main())
