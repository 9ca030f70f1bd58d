"""A cell: one World, and the processes of one bot after another, each a fork that can be killed at any passage.

The cell's own process contains the external services: it serves the bot's requests over a pipe, one at a time, and plays the
people. A bot's process asks for its next task whenever it has nothing left to do, so a cell runs the same way every time.

A bot can also run in the cell's own process, which costs a third of a fork. A kill there leaves what SIGKILL leaves: the folder is
copied at that moment, the next bot starts from the copy, and later actions of the dead bot reach neither the copy nor the external
services.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import os
import shutil
import signal
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from faults.lab.bot import LabBot, remember_tasks
from faults.lab.client_record import record_of
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.operators import operate
from faults.lab.processes import SETTLE_SECONDS, BrokenError, DiedError, Life, conditions, fork, live
from faults.lab.traps import Deed, Switch
from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.slack.courier import Ack
from quotebot.sandbox.wire import Answer, Cut
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from faults.checks.evidence import ClientRecord
    from quotebot.sandbox.wire import Answer
    from quotebot.settings import Settings


class Cell:
    """One World, unserved, and one ledger folder. A measurement may span several processes, one after another."""

    def __init__(self, settings: Settings, clock: LabClock, seed: int) -> None:
        self.settings = settings
        self.clock = clock
        self.world = World(None, now=clock.seconds, monotonic=clock.monotonic, tokens=Tokens.seeded(seed), line=self).unserved()
        self.history: list[ClientRecord] = []
        self.broken: list[str] = []  # violations found right after a recovery
        self.life: Life | LabBot | None = None  # a forked process, or a bot in this one
        self.in_place = False  # whether the next bots and operators run in this process
        self.was_stopped = True  # rather than crashed: it need not be started again
        self.passages: list[str] = []  # of the measured processes that ended in order
        self.states: list[bytes] = []  # the hash of what a crash at each passage would leave, while no fault is planned
        self.looks_on: Callable[[int], None] | None = None  # called with the number of each passage, instead of a hash
        self._known: dict[str, tuple[bytes, bytes]] = {}  # by path: each file's last content and its hash
        self.in_company = False  # whether a person in the World waits for the bot: a twin cannot copy the wait
        self._plan: tuple[int | None, Deed] | None = None
        self._switch = Switch(self._look, self._die)  # of the bot in this process
        self._commits = 0  # of earlier bots in this process
        self.died_at: str | None = None  # the passage where a bot in this process was killed
        self._deaths = 0
        self._left: bytes | None = None  # the hash that the crash of a process about to be killed must leave
        self._loop = VirtualLoop(clock)
        self._death: asyncio.Future[None] = self._loop.create_future()  # of the bot in this process
        remember_tasks(self._loop)
        self._acks = 0
        self._answers: list[dict[str, Any]] = []  # to the one envelope that a forked process handles at a time

    def twin(self) -> Cell:
        """Return a cell in the same state that shares only the settings with this one. It has no bot."""
        clock = self.clock.twin()
        twin = Cell(self.settings, clock, seed=0)
        twin.world = copy.deepcopy(self.world, {id(self): twin, id(self.clock): clock, id(self._loop): twin._loop})
        twin.history = list(self.history)
        twin.was_stopped = self.was_stopped
        return twin

    def left(self, folder: Path) -> Cell:
        """Return a cell in the state that a kill of the bot or operator now would leave. Must not be called while `in_company`.

        The ledger is a file: a database to which a bot is connected cannot be copied.
        """
        left = self.twin()
        shutil.copytree(self.settings.data_dir, folder)
        left.settings = self.settings.model_copy(update={"data_dir": folder})
        left.was_stopped = False
        return left

    def end(self) -> None:
        """Kill the process if there is one, and close the loop."""
        if isinstance(self.life, Life):
            os.kill(self.life.pid, signal.SIGKILL)
            self._reap()
        self._loop.close()

    # ------------------------------------------------------------------------------------------------ the bot's processes

    def measure(self, window: int | None = None, deed: Deed = "kill") -> None:
        """Start to record every passage of every process, and inject the fault `deed` at the `window`-th (from 0)."""
        self.passages, self.states = [], []
        self._plan = (window, deed)
        if self.life is not None:
            self._arm()

    def unmeasured(self) -> list[str]:
        """End the measurement; return its passages."""
        if self.life is not None and self._plan is not None:
            self._keep(self._passages())
            if isinstance(self.life, LabBot):
                self._switch.disarm()
            else:
                self._ask("trap", "disarm")
        self._plan = None
        return self.passages

    def start(self) -> None:
        """Start a bot and wait until it is up."""
        if not self.in_place:
            self._fork()
            self._arm()
            self._ask("start")
            return
        bot = self.life = LabBot(self.settings, conditions(self.clock, self.world, self._new_switch()))
        self._arm()
        self._run(bot.start())

    def settle(self) -> bool:
        """Let the bot work until nothing is left to do; false if something still is after half an hour of virtual time."""
        if self.life is None:
            raise DiedError
        if isinstance(self.life, LabBot):
            return bool(self._run(self.life.settled(SETTLE_SECONDS)))
        return bool(self._ask("settle"))

    def wait(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass for the bot."""
        if isinstance(self.life, LabBot):
            self._run(asyncio.sleep(seconds))
        else:
            self._ask("wait", seconds)

    def stop(self) -> None:
        """End the bot as SIGTERM does."""
        if isinstance(self.life, LabBot):
            self._run(self.life.stop())
            self._keep(self._switch.passages)
            self.life = None
        else:
            self._ask("stop")
        self.was_stopped = True

    def kill(self) -> None:
        """SIGKILL the bot now; a bot in this process ends as a SIGKILL would end it."""
        assert self.life is not None  # noqa: S101 -- a bot runs
        self._keep(self._passages())
        if isinstance(self.life, LabBot):
            self._loop.run_until_complete(self.life.crash())
            self.life = None
            return
        os.kill(self.life.pid, signal.SIGKILL)
        self._reap()

    def operate(self, name: str) -> None:
        """Run one operator's command, in a fork or in place, while no bot runs."""
        if self.in_place:
            switch = self._new_switch()
            self._arm()
            self._run(operate(name, self.settings, self.clock, switch))
            self._keep(switch.passages)
            return
        self._fork()
        self._arm()
        self._ask("operate", name)
        self._ask("stop")

    def _arm(self) -> None:
        if self._plan is None:
            return
        window, deed = self._plan
        window = None if window is None else window - len(self.passages)
        if isinstance(self.life, Life):
            self._ask("trap", "arm", window, deed)
        else:
            self._switch.arm(window, deed)

    def _passages(self) -> list[str]:
        return self._switch.passages if isinstance(self.life, LabBot) else list(self._ask("passages"))

    def _keep(self, passages: list[str]) -> None:
        if self._plan is not None:
            self.passages += passages

    # ---------------------------------------------------------------------------------------- who lives in this process

    def _new_switch(self) -> Switch:
        self.was_stopped = False
        self._death = self._loop.create_future()
        self._commits += self._switch.commits
        self._switch = Switch(self._look, self._die)
        return self._switch

    def _look(self) -> None:
        """Record what a crash here would leave: at every passage while no fault is planned, and just before a process is killed."""
        if self.looks_on is not None:
            self.looks_on(len(self.passages) + len(self._switch.passages))
            return
        if isinstance(self.life, Life) or self._plan == (None, "kill"):
            self._left = self._what_a_death_would_leave()
            self.states.append(self._left)

    def _die(self, point: str) -> None:
        """Copy the files as they are now, which is all that a SIGKILL would leave; later writes do not reach the copy.

        A database is not copied: the server rolls the open transaction back, and the dead bot passes no trap any more.
        """
        self._deaths += 1
        folder = self.settings.data_dir
        left = folder.with_name(f"after-{self._deaths}")
        shutil.copytree(folder, left)
        self.settings = self.settings.model_copy(update={"data_dir": left})
        self.died_at = point
        self._death.set_result(None)

    def _run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(self._unless_it_dies(work))

    async def _unless_it_dies(self, work: Awaitable[Any]) -> Any:
        """Wait for work of the bot or operator in this process. Raises DiedError if it is killed meanwhile."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
        if not self._death.done():
            return task.result()
        task.cancel()
        await self._end()
        raise DiedError

    async def _end(self) -> None:
        """End the unfinished work of the crashed bot: its files are no longer the ledger, and its wire refuses requests."""
        if isinstance(self.life, LabBot):
            bot, self.life = self.life, None
            await bot.crash()

    # ------------------------------------------------------------------------------------------------------- the people

    def people(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let people act in the World; their requests reach the bot through `deliver`."""
        self.in_company = True
        try:
            done = self._loop.run_until_complete(work)
        finally:
            self.in_company = False
        if self._death.done():
            self._loop.run_until_complete(self._end())
        return done

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Hand an envelope to the bot: the World's line."""
        del envelope_id
        told_at = self.clock.now_ms()
        answers: list[dict[str, Any]] = []  # to this envelope: another one may be under way in this process
        with suppress(DiedError):  # the person sees no answer; the scenario sees that the bot is gone
            if isinstance(self.life, LabBot):
                await self._unless_it_dies(self.life.deliver(text, partial(self._take, answers)))
            else:
                self._answers = answers
                self._ask("deliver", text)
        payload: dict[str, Any] | None = answers[0] if answers else None
        self.history.append(record_of(text, kind, payload, told_at))
        return Ack(None, None, "operation_timeout") if payload is None else Ack(payload, 1.0)

    def _take(self, answers: list[dict[str, Any]], answer: dict[str, Any]) -> None:
        answers.append(answer)
        self._acks += 1

    # ------------------------------------------------------------------------------------------------------ the protocol

    def _fork(self) -> None:
        self.was_stopped = False
        self.life = fork(lambda pipe: live(pipe, self.settings, self.clock))
        self._serve()

    def _ask(self, what: str, *arguments: Any) -> Any:
        """Send the bot a request and serve its own requests until it has nothing left to do. Raises DiedError."""
        if not isinstance(self.life, Life):
            raise DiedError
        try:
            self.life.pipe.send((what, *arguments))
        except OSError:
            self._reap()
            raise DiedError from None
        return self._serve()

    def _serve(self) -> Any:
        assert isinstance(self.life, Life)  # noqa: S101 -- just forked or asked
        pipe, world = self.life.pipe, self.world
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                self._reap()
                # The result of a real SIGKILL must equal its prediction, which is also what a kill in this process leaves.
                measured = self._plan is not None and self._plan[0] is not None
                if measured and self._left is not None and self._left != self._what_a_death_would_leave():
                    raise BrokenError("the files changed between the moment before a SIGKILL and the one after it") from None
                raise DiedError from None
            what, now, *arguments = message
            if what == "bye":
                self._keep(arguments[0])
                pipe.send(None)
                self._reap()
                return None
            if what == "failed":
                self._reap()
                raise BrokenError(now)
            self.clock.follow(now)
            if what == "idle":
                return arguments[0]
            answer: Answer | float | None = None
            if what == "passes":
                self._look()
            elif what == "ack":
                self._take(self._answers, arguments[0])
            elif what == "delay":
                answer = world.delay(arguments[0])
            else:
                with suppress(Cut):
                    answer = world.receive(arguments[0], waited=arguments[1])
            pipe.send(answer)

    def _what_a_death_would_leave(self) -> bytes:
        """Hash all that survives a SIGKILL: the files, what was committed, and the records of the external services."""
        seen = repr((len(self.world.witness.since()), len(self.history), self._acks, self._commits + self._switch.commits))
        left = hashlib.sha256(seen.encode())  # processors have an instruction for this one
        for name, path in _files(str(self.settings.data_dir)):
            if not name.endswith("-shm"):  # SQLite rebuilds the WAL index
                left.update(hashlib.sha256(name.encode()).digest() + self._sum_of_file(path))
        return left.digest()

    def _sum_of_file(self, path: str) -> bytes:
        """Hash a file. Most are unchanged since the last passage: comparing is faster than hashing."""
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- tens of thousands of times
            content = file.read()
        known = self._known.get(path)
        if known is None or known[0] != content:
            known = self._known[path] = (content, hashlib.sha256(content).digest())
        return known[1]

    def _reap(self) -> None:
        assert isinstance(self.life, Life)  # noqa: S101 -- a process was running
        self.life.pipe.close()
        os.waitpid(self.life.pid, 0)
        self.life = None


def _files(folder: str) -> list[tuple[str, str]]:
    """Return the names and paths of all files under a folder, in order."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found += _files(entry.path) if entry.is_dir() else [(entry.name, entry.path)]
    return sorted(found, key=itemgetter(1))
