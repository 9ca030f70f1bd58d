"""A cell: one World, and the processes of one bot after another, each a fork that can be killed at any passage.

The cell's own process is the outside: it serves the bot's requests over a pipe, one at a time, and plays the people. A bot's
process asks for what to do next whenever it has nothing left to do, so a cell runs the same way every time.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import multiprocessing.connection
import os
import random
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Final

from faults.checking.evidence import Told
from faults.lab.bot import Conditions, LabBot, remember_tasks
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.operators import OPERATORS
from faults.lab.traps import Deed, Switch
from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.slack.line import Ack
from quotebot.sandbox.wire import Answer, Cut, Received
from quotebot.sandbox.world import World
from quotebot.slack import intake
from quotebot.slack.cards import parse_button_value

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quotebot.settings import Settings

SETTLE_SECONDS: Final = 1800.0  # of virtual time; a row that only the hourly poll wakes is late
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
LATENCIES: Final = (0.020, 0.060)

Pipe_ = multiprocessing.connection.Connection


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends: a run that is cut short leaves nobody behind (Linux)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class DiedError(Exception):
    """The bot's process ended in the middle of what it was asked."""


class BrokenError(Exception):
    """The bot's process ended with an error of its own instead of being killed."""


@dataclass(slots=True)
class Life:
    """One process of a bot, seen from the cell."""

    pid: int
    pipe: Pipe_


class Cell:
    """One World, unserved, and one ledger folder. What is measured may go through several processes, one after another."""

    def __init__(self, settings: Settings, clock: LabClock, seed: int) -> None:
        self.settings = settings
        self.clock = clock
        self.world = World(None, now=clock.seconds, monotonic=clock.monotonic, tokens=Tokens.seeded(seed), line=self).unserved()
        self.history: list[Told] = []
        self.broken: list[str] = []  # what did not hold right after a recovery
        self.life: Life | None = None
        self.was_stopped = True  # rather than dead: nobody needs to start it again
        self.passages: list[str] = []  # of the processes that were measured and ended in peace
        self.states: list[bytes] = []  # what a death at each passage would leave, as a hash, while nothing goes wrong
        self._plan: tuple[int | None, Deed] | None = None
        self._loop = VirtualLoop(clock)
        self._answered: dict[str, Any] | None = None

    # ------------------------------------------------------------------------------------------------ the bot's processes

    def measure(self, window: int | None = None, deed: Deed = "kill") -> None:
        """From now on note every passage of every process, and do the deed at the `window`-th (from 0)."""
        self.passages, self.states = [], []
        self._plan = (window, deed)
        if self.life is not None:
            self._arm()

    def unmeasured(self) -> list[str]:
        """Measure no more; return the passages so far."""
        if self.life is not None and self._plan is not None:
            self._keep(self._ask("passages"))
            self._ask("disarm")
        self._plan = None
        return self.passages

    def start(self) -> None:
        """Start a bot and wait until it is up."""
        self._fork(_bot_life)
        self._arm()
        self._ask("start")

    def settle(self) -> bool:
        """Let the bot work until nothing is left to do; false when something still was after half an hour of its time."""
        if self.life is None:
            raise DiedError
        return bool(self._ask("settle"))

    def wait(self, seconds: float) -> None:
        """Let time pass for the bot."""
        self._ask("wait", seconds)

    def stop(self) -> None:
        """End the process as SIGTERM does."""
        self._ask("stop")
        self.was_stopped = True

    def kill(self) -> None:
        """SIGKILL the bot now."""
        assert self.life is not None  # noqa: S101 -- a bot runs
        self._keep(self._ask("passages"))
        os.kill(self.life.pid, signal.SIGKILL)
        self._reap()

    def operate(self, name: str) -> None:
        """Run one operator's command in a process of its own, beside no bot."""
        self._fork(_operator_life)
        self._arm()
        self._ask("operate", name)
        self._ask("stop")

    def _arm(self) -> None:
        if self._plan is None:
            return
        window, deed = self._plan
        self._ask("arm", None if window is None else window - len(self.passages), deed)

    def _keep(self, passages: list[str]) -> None:
        if self._plan is not None:
            self.passages += passages

    # ------------------------------------------------------------------------------------------------------- the people

    def people(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let people do something in the World; what they send reaches the bot through `deliver`."""
        return self._loop.run_until_complete(work)

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Hand an envelope to the bot: the World's line."""
        del envelope_id
        self._answered = None
        told_at = self.clock.now_ms()
        with suppress(DiedError):  # who asked sees no answer; the story sees that the bot is gone
            self._ask("deliver", text)
        payload: dict[str, Any] | None = self._answered
        self.history.append(told(text, kind, payload, told_at))
        return Ack(None, None, "operation_timeout") if payload is None else Ack(payload, 1.0)

    # ------------------------------------------------------------------------------------------------------ the protocol

    def _fork(self, main: Callable[[Pipe_, Cell], None]) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            ours.close()
            status = 70
            try:
                main(theirs, self)
                status = 0
            except BaseException:  # noqa: BLE001 -- the process ends here, and says why
                try:
                    theirs.send(("failed", traceback.format_exc()))
                except OSError:
                    status = 71
            finally:
                os._exit(status)
        theirs.close()
        self.was_stopped = False
        self.life = Life(pid, ours)
        self._serve()

    def _ask(self, what: str, *arguments: Any) -> Any:
        """Ask the bot to do something and serve its requests until it has nothing left to do. Raises DiedError."""
        if self.life is None:
            raise DiedError
        try:
            self.life.pipe.send((what, *arguments))
        except OSError:
            self._reap()
            raise DiedError from None
        return self._serve()

    def _serve(self) -> Any:
        assert self.life is not None  # noqa: S101 -- just forked or asked
        pipe, world = self.life.pipe, self.world
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                self._reap()
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
            if what == "passes":
                self.states.append(self._what_a_death_would_leave())
                pipe.send(None)
            elif what == "ack":
                self._answered = arguments[0]
                pipe.send(None)
            elif what == "delay":
                pipe.send(world.delay(arguments[0]))
            else:
                pipe.send(self._receive(world, *arguments))

    def _receive(self, world: World, received: Received, waited: bool) -> Answer | None:  # noqa: FBT001 -- off the pipe
        try:
            return world.receive(received, waited=waited)
        except Cut:
            return None

    def _what_a_death_would_leave(self) -> bytes:
        """Hash all that survives a SIGKILL: the files, and what the outside has seen."""
        left = hashlib.blake2b(digest_size=16)
        for path in sorted(self.settings.data_dir.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):  # SQLite makes the index of its WAL anew
                left.update(path.name.encode())
                left.update(path.read_bytes())
        left.update(repr((len(self.world.witness.since()), len(self.history), self._answered is not None)).encode())
        return left.digest()

    def _reap(self) -> None:
        assert self.life is not None  # noqa: S101 -- one lived
        self.life.pipe.close()
        os.waitpid(self.life.pid, 0)
        self.life = None


class _Remote:
    """The World, as the bot's process reaches it."""

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


_TYPED: Final = {
    "new": "quote.create",
    "clone": "quote.clone",
    "submit": "quote.submit",
    "revise": "quote.revise",
    "cancel": "quote.cancel",
    "finalize": "quote.finalize",
    "sent": "quote.mark_sent",
    "accept": "quote.accept",
    "lost": "quote.lose",
}
_ASKED: Final = {
    "quote.submit": "quote.submit",
    "approval.approve": "approval.decide",
    "quote.create_another": "quote.create_another",
}


def told(text: str, kind: str, payload: dict[str, Any] | None, at_ms: int) -> Told:
    """Write down one delivery as its client lived it."""
    body = json.loads(text)["payload"]
    if kind == "slash_commands":
        request_id, actor = f"{body['team_id']}:{body['trigger_id']}", body["user_id"]
        asked = _TYPED.get(body["text"].partition(" ")[0], "")
    elif body["type"] == "view_submission":
        return _told_form(body, payload, at_ms)
    else:
        gesture = intake.gesture(body)
        request_id, actor = gesture.request_id, gesture.user
        asked = _ASKED.get(body["actions"][0]["action_id"], "")
    said = None if payload is None else str(payload.get("text") or "")
    return Told(request_id=request_id, kind=asked, actor=actor, acked=payload is not None, at_ms=at_ms, text=said)


def _told_form(body: dict[str, Any], payload: dict[str, Any] | None, at_ms: int) -> Told:
    value = parse_button_value(body["view"]["private_metadata"])
    command = None if value is None else intake.rejection_command(body, value, at_ms)
    assert command is not None  # noqa: S101 -- our people fill in the form
    return Told(command.source_request_id, "approval.decide", command.actor, payload is not None, at_ms)


def _bot_life(pipe: Pipe_, cell: Cell) -> None:
    clock = cell.clock.twin()
    loop = VirtualLoop(clock)
    remember_tasks(loop)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_live(pipe, cell.settings, clock))


async def _live(pipe: Pipe_, settings: Settings, clock: LabClock) -> None:
    remote = _Remote(pipe, clock)
    trap = Switch(lambda: remote.ask("passes"))
    chance = random.Random(1)  # noqa: S311 -- to repeat a run
    bot = LabBot(settings, Conditions(clock, remote, trap, chance.uniform, lambda: chance.uniform(*LATENCIES)))
    answer: Any = None
    while True:
        match remote.ask("idle", answer):
            case ("start",):
                await bot.start()
                answer = None
            case ("arm", window, deed):
                trap.arm(window, deed)
                answer = None
            case ("disarm",):
                trap.disarm()
                answer = None
            case ("deliver", text):
                answer = await bot.deliver(text, lambda payload: remote.ask("ack", payload))
            case ("settle",):
                answer = await bot.settled(SETTLE_SECONDS)
            case ("wait", seconds):
                await asyncio.sleep(seconds)
                answer = None
            case ("passages",):
                answer = trap.passages
            case ("stop",):
                await bot.stop()
                remote.ask("bye", trap.passages)
                return


def _operator_life(pipe: Pipe_, cell: Cell) -> None:
    clock = cell.clock.twin()
    loop = VirtualLoop(clock)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_operate(pipe, cell.settings, clock))


async def _operate(pipe: Pipe_, settings: Settings, clock: LabClock) -> None:
    remote = _Remote(pipe, clock)
    trap = Switch(lambda: remote.ask("passes"))
    answer: Any = None
    while True:
        match remote.ask("idle", answer):
            case ("arm", window, deed):
                trap.arm(window, deed)
                answer = None
            case ("operate", name):
                await OPERATORS[name](settings, clock, trap)
                answer = None
            case ("passages",):
                answer = trap.passages
            case ("stop",):
                remote.ask("bye", trap.passages)
                return
