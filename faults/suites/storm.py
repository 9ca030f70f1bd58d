"""Kill storm: the real bot over real sockets, killed and stopped at random under continuous traffic, duplicates and faults.

`python -m faults.suites.storm --seed 4 --kills 15` runs one storm and prints its results. The same seed makes the same plan, not
the same timing. `--budget change` runs 100 kills, `--budget nightly` 5,000 kills and 600 stops. storm_runs.py decides on the number
of storms and the place of their reports.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from faults.harness.fork_server import QUOTEBOT, ForkServer, Order, Spawned, living, shared_fork_server
from faults.harness.rig import BotProcess, Deal, eventually
from faults.lab.forked_runs import no_traceback_of_ctrl_c
from faults.report.reports import Report
from faults.suites import storm_facts
from faults.suites.storm_traffic import History, People, home
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

KILLS: Final[int] = 25  # per storm
STOPS: Final[int] = 3
ACK_SECONDS: Final = 1.0  # the traffic generator waits for an ack less long than Slack
START_SECONDS: Final = 0.2  # about as long as a start takes
EARLY_DEATHS: Final = 0.2
# share of the storms: the first render of a process loads the renderer, which takes as long as many a bot lives here
PDFS_WAIT: Final = 0.7
CONNECT_SECONDS: Final = 3.0
LIFE_SECONDS: Final = 0.5
REST_SECONDS_MAX: Final = 60.0
GRACE_SECONDS: Final = 20.0  # for a SIGTERM
STANDBY_SECONDS: Final = 10.0
KEPT_OUT_SECONDS: Final = 1.0
GONE_SECONDS: Final = 5.0  # for the forks of a crashed bot to notice its end and exit
DEATHS_IN_A_ROW_MAX: Final = 6  # the bot rests after eight: before that it is restarted in order
REPLAYS_MAX: Final = 4
STRANGER: Final = "faults.suites.storm_second_process:main"
WEATHER: Final[tuple[dict[str, Any], ...]] = (
    *({"target": target, "effect": effect, "times": 2} for target in ("slack", "salesforce") for effect in
      ("5xx", "reset_before", "reset_after", "malformed")),
    {"target": "slack", "effect": "429", "retry_after": 1},
    {"target": "slack", "effect": "slow", "delay": 0.3, "times": 3},
    {"target": "slack", "effect": "auth_expired", "method": "chat.*"},
    {"target": "salesforce", "effect": "slow", "delay": 0.3, "times": 2},
    {"target": "salesforce", "effect": "auth_expired"},
    {"target": "salesforce", "effect": "429", "retry_after": 1},
    {"target": "socket", "effect": "drop_ack", "method": "interactive"},
    {"target": "socket", "effect": "drop_ack", "method": "slash_commands"},
    {"target": "socket", "effect": "disconnect"},
    {"target": "socket", "effect": "refuse_ticket"},
    {"target": "socket", "effect": "half_open", "seconds": 0.4},
)  # fmt: skip


@dataclass(slots=True)
class Storm:
    """One storm over one bot."""

    world: World
    deal: Deal
    mother: ForkServer
    folder: Path
    environment: dict[str, str]
    plan: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    violations: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    recovery_ms: list[float] = field(default_factory=list)
    _pending: list[Spawned] = field(default_factory=list)  # bots that had a due effect when they started
    _bot: Spawned = field(init=False)
    _started: list[Spawned] = field(default_factory=list)
    _deaths: int = 0

    async def rage(self, kills: int, stops: int) -> None:
        """Run traffic and inject kills and stops until `kills` and `stops` are reached."""
        deeds = self._effects(kills, stops)
        self._bot = await self._spawn("bot", "run")
        await eventually(self._is_connected, "the first bot to connect")
        if pdfs_wait := self.plan.random() < PDFS_WAIT:
            await self._quotebot("pause", "pdf.render", "--reason", "storm")
        plan = random.Random(self.plan.random())  # noqa: S311 -- a plan, not a secret
        people = People(self.deal, plan, self.history, self._is_connected, commands_max=kills * 3 // 5)
        tasks = people.at_work()
        try:
            for deed in deeds:
                await self._live()
                if self.plan.random() < 0.4:
                    await self.deal.arm(**self.plan.choice(WEATHER))
                await deed()
            if pdfs_wait:
                await self._quotebot("resume", "pdf.render")
        finally:
            self.violations += [f"a person of the storm could not go on: {end!r}" for end in await home(tasks)]

    async def rest(self) -> None:
        """Let everything settle; rows given up as poison are replayed, as an operator would, until none is left."""
        self.counts["faults"] += await self.deal.hits()
        await self.deal.clear_faults()
        await self._restart()
        for _ in range(REPLAYS_MAX):
            await eventually(self._quiet, "everything to settle", REST_SECONDS_MAX)
            given_up = await storm_facts.given_up(self.deal)
            self.violations += storm_facts.given_up_against_the_rules(given_up)
            if not given_up:
                return
            self.counts["poisoned"] += len(given_up)
            await self._quotebot("replay", "--category", "poison", "--yes")
        self.violations.append(f"after {REPLAYS_MAX} replays some is still given up")

    async def check(self) -> None:
        """Compare the state at rest with what people were promised; stops the bot at the end."""
        self.violations += await storm_facts.at_rest(self.deal, self.history)
        self.reached |= await storm_facts.states_reached(self.deal)
        await self._stop()
        await self._quotebot("audit", "verify")
        self.violations += storm_facts.in_logs(self.folder)
        self.violations += await ended_with_their_bots({bot.pid: bot.log.stem for bot in self._started})
        self.counts += storm_facts.logged(self.folder)
        self.recovery_ms += [moment for bot in self._pending if (moment := storm_facts.first_delivery_ms(bot)) is not None]

    def _effects(self, kills: int, stops: int) -> list[Callable[[], Any]]:
        """Return the actions on the bot, in random order: half of the stopped bots are killed, the other half continues."""
        taken_over = min(kills, (stops + self.plan.randint(0, 1)) // 2)
        deeds: list[Callable[[], Any]] = [
            *[self._kill] * (kills - taken_over),
            *[self._stop_and_take_over] * taken_over,
            *[self._stop_and_go_on] * (stops - taken_over),
        ]
        self.plan.shuffle(deeds)
        return deeds

    async def _live(self) -> None:
        """Wait: for a fifth of the bots not until the end of their start, for the others until they have done some work."""
        if self.plan.random() < EARLY_DEATHS:
            await asyncio.sleep(self.plan.random() * START_SECONDS)
            return
        with suppress(AssertionError):  # a fault keeps it from connecting
            await eventually(self._connected_or_dead, "the bot to connect", CONNECT_SECONDS)
        await asyncio.sleep(self.plan.random() * LIFE_SECONDS)

    def _is_connected(self) -> bool:
        return self.world.socket.connections > 0

    def _connected_or_dead(self) -> bool:
        return self._is_connected() or self._bot.returncode is not None

    async def _kill(self) -> None:
        await self._killed(self._bot)
        await self._start_bot()
        if self._deaths >= DEATHS_IN_A_ROW_MAX:
            await asyncio.sleep(START_SECONDS)
            await self._restart()

    async def _stop_and_take_over(self) -> None:
        """Stop the bot; a second one stands by and takes over when the stopped one is killed."""
        stopped = self._bot
        stopped.signal(signal.SIGSTOP)
        self.counts["stops"] += 1
        second = await self._spawn("bot", "run", "--standby")
        there = ("bot.standing_by", "bot.recovered")  # the second word: the first bot was stopped before it had the lock
        await eventually(lambda: any(word in storm_facts.said(second.log) for word in there), "the second bot", STANDBY_SECONDS)
        await asyncio.sleep(self.plan.random() * 0.3)
        await self._killed(stopped)
        await eventually(lambda: "bot.recovered" in storm_facts.said(second.log), "the second bot to take over", STANDBY_SECONDS)
        self.counts["takeovers"] += 1
        self._bot = second

    async def _stop_and_go_on(self) -> None:
        """Stop the bot until its leases expire and another process has taken its rows; then continue it."""
        self._bot.signal(signal.SIGSTOP)
        self.counts["stops"] += 1
        await asyncio.sleep(self.plan.random() * 0.2)
        stranger = await self._spawn("stranger", "lapse", main=STRANGER)
        with suppress(TimeoutError):  # it waits at the write gate if the bot was stopped inside it
            await asyncio.wait_for(stranger.wait(), KEPT_OUT_SECONDS)
        self.counts["strangers_kept_out"] += stranger.returncode is None
        self._bot.signal(signal.SIGCONT)
        status = await _end_of(stranger, "the second process beside a bot that goes on")
        if status != 0:
            self.violations.append(f"the second process ended with status {status}: {_tail(stranger.log)}")
            return
        taken = json.loads(storm_facts.said(stranger.log).splitlines()[-1])
        self.counts["taken_from_stopped"] += sum(taken.values())
        self.counts["continued"] += 1

    async def _killed(self, bot: Spawned) -> None:
        bot.signal(signal.SIGKILL)
        status = await bot.wait()
        self.counts["kills"] += 1
        self._deaths += 1
        if status != -signal.SIGKILL:
            self.violations.append(f"the bot ended by itself with status {status}: {_tail(bot.log)}")
        self.violations += await storm_facts.asleep(self.deal)

    async def _restart(self) -> None:
        await self._stop()
        await self._start_bot()

    async def _stop(self) -> None:
        """End the bot in order."""
        self._bot.signal(signal.SIGTERM)
        status = await _end_of(self._bot, "the bot that was asked to stop")
        self.counts["restarts"] += 1
        self._deaths = 0
        if status not in (0, -signal.SIGTERM):  # the second: it was not yet listening to signals
            self.violations.append(f"the bot was asked to stop and ended with status {status}: {_tail(self._bot.log)}")

    async def _start_bot(self) -> None:
        owes = await storm_facts.owes_something_due(self.deal)
        self._bot = await self._spawn("bot", "run")
        if owes:
            self._pending.append(self._bot)

    async def _quotebot(self, *arguments: str) -> None:
        """Run a command as an operator would while the bot runs; it must succeed."""
        ended = await self._spawn(arguments[0], *arguments)
        status = await _end_of(ended, f"quotebot {arguments[0]}")
        if status != 0:
            self.violations.append(f"quotebot {' '.join(arguments)} ended with status {status}: {_tail(ended.log)}")

    async def _spawn(self, name: str, *arguments: str, main: str = QUOTEBOT) -> Spawned:
        log = self.folder / f"{name}-{len(self._started) + 1:04}.log"
        started = await self.mother.spawn(Order(arguments, self.environment, str(log), main))
        self._started.append(started)
        return started

    async def _quiet(self) -> bool:
        if self._bot.returncode is not None:
            raise AssertionError(f"the bot ended with status {self._bot.returncode}: {_tail(self._bot.log)}")
        return await storm_facts.is_quiet(self.deal)


async def ended_with_their_bots(bots: dict[int, str], seconds: float = GONE_SECONDS) -> list[str]:
    """Return a line for each process that still runs `seconds` after the bot that forked it (pid -> name), and kill it."""
    with suppress(AssertionError):
        await eventually(lambda: not living(bots), "the last of them", seconds)
    left = living(bots)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return [f"a process of {bots[process.session]} outlived it by {seconds:g} s: {process.name}" for process in left]


async def run_storm(folder: Path, *, seed: int, kills: int = KILLS, stops: int = STOPS) -> Report:
    """Run one storm in a new world under `folder` and check it; the report contains violations with a command to repeat them."""
    began = time.monotonic()
    async with _new_storm(folder, seed) as storm:
        try:
            await storm.rage(kills, stops)
            await storm.rest()
            await storm.check()
        except (AssertionError, TimeoutError, RuntimeError) as error:
            storm.violations.append(str(error) or storm_facts.where(error))
    again = f"repeat: python -m faults.suites.storm --seed {seed} --kills {kills} --stops {stops}"
    return Report(
        "storm",
        dict(sorted({"storms": 1, **storm.counts, **storm.history.counts}.items())),
        tuple(f"storm {seed}: {line} ({again})" for line in storm.violations),
        tuple(sorted(storm.reached)),
        seeds=(seed,),
        seconds=round(time.monotonic() - began, 3),
        samples={"recovery_ms": tuple(storm.recovery_ms)},
    )


@asynccontextmanager
async def _new_storm(folder: Path, seed: int) -> AsyncIterator[Storm]:
    plan = random.Random(seed)  # noqa: S311 -- a plan, not a secret
    async with (
        World(folder / "world", ack_seconds=ACK_SECONDS).serve() as world,
        shared_fork_server() as mother,
        aiohttp.ClientSession() as session,
    ):
        bot = BotProcess(world, folder / "bot", folder / "unused", QUOTEBOT_DRAIN_SECONDS="1")
        environment = {**os.environ, **bot.environment}
        storm = Storm(world, Deal(world.url, folder / "bot", session), mother, folder, environment, plan)
        yield storm


async def _end_of(process: Spawned, what: str) -> int:
    """Return the exit status of a process that should end by now. Raises AssertionError if it does not."""
    try:
        return await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{what} did not end within {GRACE_SECONDS:g} s: {_tail(process.log)}") from None


def _tail(log: Path) -> str:
    return " | ".join(storm_facts.said(log).splitlines()[-3:])[-600:]


if __name__ == "__main__":
    from faults.suites.storm_runs import main  # it imports this module

    with no_traceback_of_ctrl_c():
        sys.exit(main(sys.argv[1:]))
