"""Forks: the processes of a cell, which can be killed at any passage and reach the World over a pipe, and parallel work.

All of them end at once when this process is stopped.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing.connection
import os
import random
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from faults.lab.bot import Conditions, LabBot, remember_tasks
from faults.lab.loop import VirtualLoop
from faults.lab.operators import operate
from faults.lab.traps import Switch
from quotebot.sandbox.wire import Answer, Cut, Received

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from faults.lab.loop import LabClock
    from faults.lab.traps import Trap
    from faults.lab.wire import FarEnd
    from quotebot.settings import Settings

SETTLE_SECONDS: Final = 1800.0  # of virtual time; a row that only the hourly poll finds is late
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
LATENCIES: Final = (0.020, 0.060)
INTERRUPTED: Final = 130
Asked = TypeVar("Asked")
Done = TypeVar("Done")

Pipe_ = multiprocessing.connection.Connection


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, so that an interrupted run leaves no process behind (Linux)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class DiedError(Exception):
    """The bot's process ended before it completed a request."""


class BrokenError(Exception):
    """The bot's process ended with an error of its own instead of being killed."""


@dataclass(slots=True)
class Life:
    """One process of a bot, seen from the cell."""

    pid: int
    pipe: Pipe_


def fork(main: Callable[[Pipe_], None]) -> Life:
    """Run `main` in a fork of this process, at the other end of a pipe; an error of it is sent as ("failed", its traceback)."""
    ours, theirs = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        ours.close()
        try:
            main(theirs)
        except BaseException:  # noqa: BLE001 -- the process ends here and reports the error
            theirs.send(("failed", traceback.format_exc()))
        finally:
            os._exit(0)
    theirs.close()
    return Life(pid, ours)


def in_a_fork(work: Callable[[], Any]) -> Any:
    """Run `work` in a fork of this process, so that this process stays unchanged, and return its result."""
    life = fork(lambda pipe: pipe.send(("done", work())))
    try:
        end, result = life.pipe.recv()
    except EOFError:
        end, result = "failed", "the process ended without a word"
    life.pipe.close()
    os.waitpid(life.pid, 0)
    if end == "failed":
        raise BrokenError(result)
    return result


def beside(work: Callable[[Asked], Done], asked: Sequence[Asked], at_once: int) -> Generator[Done]:
    """Yield each result as its work ends; with `at_once` 1, in this process and in order."""
    if at_once == 1:
        yield from map(work, asked)
        return
    with get_context("fork").Pool(at_once, initializer=_begin) as pool:  # leaving it ends the running forks
        yield from pool.imap_unordered(work, asked)
        pool.close()  # the forks end by themselves: a SIGTERM just before a fork waits for work would be missed
        pool.join()


@contextmanager
def no_traceback_of_ctrl_c() -> Iterator[None]:
    """Exit with status 130 on Ctrl-C, as a shell does, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))  # with SIGTERM, and it removes its files in memory
    end_with_parent()


def conditions(clock: LabClock, far_end: FarEnd, trap: Trap) -> Conditions:
    """Return the conditions of every bot of a cell: the same randomness each time."""
    chance = random.Random(1)  # noqa: S311 -- to repeat a run
    return Conditions(clock, far_end, trap, chance.uniform, lambda: chance.uniform(*LATENCIES))


class _Remote:
    """Client of the World in the bot's process."""

    def __init__(self, pipe: Pipe_, clock: LabClock) -> None:
        self._pipe = pipe
        self._clock = clock

    def ask(self, what: str, *arguments: Any) -> Any:
        self._pipe.send((what, self._clock.instant(), *arguments))
        return self._pipe.recv()

    def delay(self, received: Received) -> float:
        return float(self.ask("delay", received))

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        answer = self.ask("receive", received, waited)
        if answer is None:
            raise Cut
        return answer  # type: ignore[no-any-return] # what the cell sends


def live(pipe: Pipe_, settings: Settings, clock: LabClock) -> None:
    """Run a bot, or an operator's command at a terminal, as the requests over the pipe say, until it is stopped."""
    clock = clock.twin()
    loop = VirtualLoop(clock)
    remember_tasks(loop)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_live(pipe, settings, clock))


async def _live(pipe: Pipe_, settings: Settings, clock: LabClock) -> None:
    remote = _Remote(pipe, clock)
    trap = Switch(lambda: remote.ask("passes"))
    bot = LabBot(settings, conditions(clock, remote, trap))
    answer: Any = None
    while True:
        request = remote.ask("idle", answer)
        answer = None
        match request:
            case ("start",):
                await bot.start()
            case ("operate", name):
                await operate(name, settings, clock, trap)
            case ("trap", action, *arguments):
                getattr(trap, action)(*arguments)
            case ("deliver", text):
                answer = await bot.deliver(text, lambda payload: remote.ask("ack", payload))
            case ("settle",):
                answer = await bot.settled(SETTLE_SECONDS)
            case ("wait", seconds):
                await asyncio.sleep(seconds)
            case ("passages",):
                answer = trap.passages
            case ("stop",):
                await bot.stop()
                remote.ask("bye", trap.passages)
                return
