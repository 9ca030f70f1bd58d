"""Kill storm: the real bot over real sockets, killed and stopped at random under continuous traffic, duplicates and faults.

`python -m faults.suites.storm --seed 4 --kills 15` runs one storm and prints its results. The same seed makes the same plan, not
the same timing. `--budget change` runs 100 kills, `--budget nightly` 5,000 kills and 600 stops, in several storms at a time. A long
run keeps the report of each finished storm, and a restarted run continues from there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from faults.harness.fork_server import (
    BOTS,
    QUOTEBOT,
    ForkServer,
    Order,
    Spawned,
    leave_fork_servers,
    living,
    shared_fork_server,
    was_left,
)
from faults.harness.progress import bar
from faults.harness.rig import BotProcess, Deal, eventually
from faults.lab.processes import no_traceback_of_ctrl_c
from faults.lab.setting import ram
from faults.report.reports import FOLDER_VARIABLE, Report, finish, keep_in, merged, read_all
from faults.suites import storm_facts
from faults.suites.storm_traffic import History, People, home
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KILLS: Final[int] = 25  # per storm
STOPS: Final[int] = 3
STORMS: Final = {"change": 4, "nightly": 200}  # 100 and 5,000 kills
TIDYING_SECONDS: Final = 10.0  # of an interrupted storm
AT_ONCE: Final = 3  # they mostly wait
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
        # Half of the stopped bots are killed, the other half continues.
        taken_over = min(kills, (stops + self.plan.randint(0, 1)) // 2)
        deeds: list[Callable[[], Any]] = [
            *[self._kill] * (kills - taken_over),
            *[self._stop_and_take_over] * taken_over,
            *[self._stop_and_go_on] * (stops - taken_over),
        ]
        self.plan.shuffle(deeds)
        self._bot = await self._spawn("bot", "run")
        await eventually(self._is_connected, "the first bot to connect")
        if pdfs_wait := self.plan.random() < PDFS_WAIT:
            await self._quotebot("pause", "pdf.render", "--reason", "storm")
        plan = random.Random(self.plan.random())  # noqa: S311 -- a plan, not a secret
        tasks = People(self.deal, plan, self.history, self._is_connected, commands_max=kills * 3 // 5).at_work()
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
            given_up = await self.deal.rows(storm_facts.GIVEN_UP)
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

    async def _live(self) -> None:
        """Wait: for a fifth of the bots not until the end of their start, for the others until they have done some work."""
        if self.plan.random() < EARLY_DEATHS:
            await asyncio.sleep(self.plan.random() * START_SECONDS)
            return
        with suppress(AssertionError):  # a fault keeps it from connecting
            await eventually(
                lambda: self._is_connected() or self._bot.returncode is not None, "the bot to connect", CONNECT_SECONDS
            )
        await asyncio.sleep(self.plan.random() * LIFE_SECONDS)

    def _is_connected(self) -> bool:
        return self.world.socket.connections > 0

    async def _kill(self) -> None:
        await self._killed(self._bot)
        await self._start_bot()
        if self._deaths >= DEATHS_IN_A_ROW_MAX:
            bot = self._bot
            await eventually(lambda: "bot.recovered" in storm_facts.said(bot.log), "the bot to start", GRACE_SECONDS)
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
        return not await self.deal.rows(storm_facts.UNFINISHED)


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
    async with (
        World(folder / "world", ack_seconds=ACK_SECONDS).serve() as world,
        shared_fork_server() as mother,
        aiohttp.ClientSession() as session,
    ):
        bot = BotProcess(world, folder / "bot", folder / "unused", QUOTEBOT_DRAIN_SECONDS="1")
        plan = random.Random(seed)  # noqa: S311 -- a plan, not a secret
        storm = Storm(world, Deal(world.url, folder / "bot", session), mother, folder, {**os.environ, **bot.environment}, plan)
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


async def _end_of(process: Spawned, what: str) -> int:
    """Return the exit status of a process that should end by now. Raises AssertionError if it does not."""
    try:
        return await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{what} did not end within {GRACE_SECONDS:g} s: {_tail(process.log)}") from None


def _tail(log: Path) -> str:
    return " | ".join(storm_facts.said(log).splitlines()[-3:])[-600:]


async def one_storm(seed: int, kills: int = KILLS, stops: int = STOPS) -> Report:
    """Run one storm. After a violation its files stay, and stderr names their folder."""
    folder = Path(tempfile.mkdtemp(prefix="quotebot-storm-", dir=ram()))  # SIGKILL does not lose what was written
    try:
        report = await run_storm(folder, seed=seed, kills=kills, stops=stops)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if report.violations:
        sys.stderr.write(f"storm {seed}: its ledger and logs are kept in {folder}\n")
    else:
        shutil.rmtree(folder)
    return report


async def many_storms(seeds: Sequence[int], finished: Callable[[Report], None]) -> None:
    """Run a storm for each seed, each in a process of its own, AT_ONCE at a time; `finished` gets each report."""
    turns = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="quotebot-storms-") as folder:

        async def one(seed: int) -> None:
            async with turns:
                finished(await _storm_process(seed, Path(folder, f"{seed}.json")))

        async with asyncio.TaskGroup() as all_of_them:
            for seed in seeds:
                all_of_them.create_task(one(seed))


async def _storm_process(seed: int, answer: Path) -> Report:
    environment = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    command = (sys.executable, "-m", "faults.suites.storm", "--seed", str(seed), "--json", str(answer))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, env=environment)
    try:
        status = await process.wait()
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)  # Ctrl-C reached it already; a signal to this process alone did not
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), TIDYING_SECONDS)
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return _report_of(seed, status, answer)


def _report_of(seed: int, status: int, answer: Path) -> Report:
    if answer.exists():
        return Report.from_text(answer.read_text(encoding="utf-8"))
    line = f"storm {seed}: it ended with status {status} and no report (repeat: python -m faults.suites.storm --seed {seed})"
    return Report("storm", {}, (line,), seeds=(seed,))


def run_budget(seeds: Sequence[int], resume: Path | None) -> Report:
    """Run the storms with a progress bar on stderr and return one report; storms with a report in the folder are skipped."""
    reports = [] if resume is None else read_all(resume)
    done = {seed for report in reports for seed in report.seeds}
    with bar() as progress:
        task = progress.add_task("storms", total=len(seeds), completed=len(done))

        def finished(report: Report) -> None:
            reports.append(report)
            if resume is not None:
                keep_in(resume, report)
            for line in report.violations:
                progress.console.print(line, markup=False, soft_wrap=True)
            progress.advance(task)

        asyncio.run(many_storms([seed for seed in seeds if seed not in done], finished))
    return merged(reports)


def main(argv: Sequence[str]) -> int:
    """Run one storm, or a budget of them; returns 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.storm", description="Kill and stop the real bot at random.")
    parser.add_argument("--budget", choices=tuple(STORMS))
    parser.add_argument("--seed", type=int, default=1, help="of the storm, or of the first one of a budget")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--stops", type=int, default=STOPS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each storm's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # the world need not log that a killed bot cut its requests
    if options.budget is None:
        report = asyncio.run(one_storm(options.seed, options.kills, options.stops))
    else:
        if not was_left(BOTS):
            leave_fork_servers((BOTS, None))  # for all storms: a fork server per storm takes two seconds each
        report = run_budget(range(options.seed, options.seed + STORMS[options.budget]), options.resume)
    counts = report.counts
    recovery = sorted(report.samples.get("recovery_ms", ()))
    quick = f"; first delivery {median(recovery):.0f} ms after a start, {recovery[-1]:.0f} ms at most" if recovery else ""
    summary = (
        f"{counts.get('kills', 0):,} kills and {counts.get('stops', 0):,} stops in {report.seconds:.0f} s, "
        f"{counts.get('gestures', 0):,} gestures, {counts.get('acknowledged', 0):,} acknowledged, "
        f"{counts.get('duplicates', 0):,} duplicates{quick}: {len(report.violations)} violations"
    )
    return finish(report, options.json, [*report.violations, summary])


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main(sys.argv[1:]))
