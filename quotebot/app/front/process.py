"""The process in front: it holds Slack's socket, records what arrives and acknowledges it. The one behind does the work.

    Slack ──▶ ingress: reserve, acknowledge ──▶ ledger ──▶ the bot: execute, deliver
                 └──── wire: "reserved", how long it took; board: who waits ───▲

Python runs one thread at a time, so a bot of one process makes whoever waits for an acknowledgement wait for the work of those
before. Here the two only meet at the ledger's write gate. Neither goes on without the other: the ingress ends when the wire does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.slack.api import Identity
from ledger.ledger import Ledger
from quotebot.ack_priority import Precedence, shared_board
from quotebot.app.clients import build_performer, connect_outside
from quotebot.app.front.messages import IngressEndedError, Wire
from quotebot.app.installation import load_rules, open_audit, open_database
from quotebot.app.slack_surface import Front, receiver_of
from quotebot.app.workers import Ports
from quotebot.slack.connections import LinkDisabledError, TokenRefusedError
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quotebot.ack_priority import Board
    from quotebot.app.slack_surface import SurfaceObserver
    from quotebot.settings import Settings
    from quotebot.slack.receiver import SocketReceiver

BEAT_SECONDS: Final = 0.25  # how often it looks at itself
SILENT_SECONDS: Final = 7.0  # so long without a sign of life is a silence...
SILENCES: Final = 2  # ...and after so many it hangs
TEND_SECONDS: Final = 60.0
NUDGE_SECONDS: Final = 0.010  # between two words about new commands: each wakes the other process
COUNTS: Final = 256  # so many are told in one word, which has to fit on a line
SWITCH_SECONDS: Final = 0.00005  # from the loop's thread to the ledger's, where a write has to wait for a slow disk
END_SECONDS: Final = 2.0  # beyond what its last acknowledgements may take

# What is said. To the ingress:
OPEN: Final = "open"  # who the bot is: now connect
CLOSE: Final = "close"  # take nothing more in; let what is under way be acknowledged within so many seconds
# and by it:
RESERVED: Final = "reserved"  # there are new commands in the ledger
ALIVE: Final = "alive"  # whether a connection to Slack is; said again and again, as a sign of life
COUNTED: Final = "counted"  # what there is to count since it said so last: ["acked", kind of the envelope, seconds], ...
REFUSED: Final = "refused"  # Slack refuses the app-level token, with this code
DISABLED: Final = "disabled"  # Slack has switched Socket Mode off

log = structlog.get_logger(__name__)


class Ingress:
    """The other process, as the bot sees it; in place of a SocketReceiver. Forked before there is a loop, opened when all works."""

    def __init__(self, pid: int, end: socket.socket, board: Board, silent_seconds: float = SILENT_SECONDS) -> None:
        """`board` is where it writes who is on the way to an acknowledgement."""
        self._pid = pid
        self._silent_seconds = silent_seconds
        self._end = end
        self.board = board
        self._wire: Wire | None = None
        self._listening: asyncio.Task[None] | None = None
        self._alive = False
        self._heard = 0  # how many words

    async def open(self, identity: Identity, *, reserved: Callable[[], object], observer: SurfaceObserver) -> None:
        """Let it connect. `reserved` is told of every new command, `observer` of what there is to count."""
        self._wire = await Wire.over(self._end)
        self._wire.tell(OPEN, asdict(identity))
        words: dict[str, Callable[[Any], object]] = {
            RESERVED: lambda _: reserved(),
            ALIVE: self._note_alive,
            COUNTED: lambda told: _count(observer, told),
            REFUSED: _refused,
            DISABLED: _disabled,
        }
        self._listening = asyncio.create_task(self._listen(self._wire, words))

    async def run(self) -> None:
        """Stay until it ends. Raises TokenRefusedError, LinkDisabledError or IngressEndedError."""
        assert self._listening is not None  # noqa: S101 -- opened before
        await asyncio.shield(self._listening)
        raise IngressEndedError(
            "The process that holds the connection to Slack has ended by itself. What was acknowledged is recorded and goes on at "
            "the next start. Its last lines in the log say why."
        )

    async def is_alive(self) -> bool:
        """Tell whether there is a connection over which Slack was heard of lately."""
        return self._alive and self._listening is not None and not self._listening.done()

    async def close(self, seconds: float) -> None:
        """Take nothing more in, let what is under way be acknowledged, then end it; by force when it does not come to an end."""
        if self._wire is not None and self._listening is not None:
            self._wire.tell(CLOSE, seconds)
            await asyncio.wait({self._listening}, timeout=seconds + END_SECONDS)
            if not self._listening.done():
                self._listening.cancel()
                self._kill()
            await self._wire.close()
        self._end.close()
        await asyncio.to_thread(_reap, self._pid)

    async def _listen(self, wire: Wire, words: dict[str, Callable[[Any], object]]) -> None:
        """Do what is said until it ends; for one that hangs, which must not leave the bot deaf, that is soon."""
        hearing, watching = asyncio.create_task(self._receive(wire, words)), asyncio.create_task(self._watch())
        try:
            await asyncio.wait({hearing, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            hearing.cancel()
        if hearing.done():
            hearing.result()

    async def _receive(self, wire: Wire, words: dict[str, Callable[[Any], object]]) -> None:
        while (heard := await wire.receive()) is not None:
            self._heard += 1
            word, value = heard
            words[word](value)

    async def _watch(self) -> None:
        """Kill it when nothing was said for too long."""
        heard, silences = self._heard, 0  # one alone may be ours: who is stopped and goes on finds the time over, the words waiting
        while silences < SILENCES:
            await asyncio.sleep(self._silent_seconds)
            heard, silences = self._heard, 0 if self._heard != heard else silences + 1
        self._kill()

    def _kill(self) -> None:
        log.error("ingress.killed", pid=self._pid, why="it said nothing for too long, or did not come to its end")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _note_alive(self, alive: bool) -> None:  # noqa: FBT001 -- what was heard
        self._alive = alive


def _count(observer: SurfaceObserver, told: Sequence[Sequence[Any]]) -> None:
    count: dict[str, Callable[..., None]] = {
        "acked": observer.observe_ack,
        "reserved": observer.observe_reserve,
        "connected": observer.count_connection,
    }
    for what, *numbers in told:
        count[what](*numbers)


def _refused(code: str) -> None:
    raise TokenRefusedError(code)


def _disabled(_: Any) -> None:
    raise LinkDisabledError


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def fork_ingress(settings: Settings, watched: Callable[[Settings], contextlib.AbstractContextManager[None]]) -> Ingress:
    """Fork the process in front. Call it while there is one thread and no loop; it waits, with nothing open, until `open`.

    `watched` is the block in which its log is written and its observers are told.
    """
    ours, theirs = socket.socketpair()
    board = shared_board()
    gc.freeze()  # what was imported stays: the collector neither walks it again, in front of who waits, nor unshares its memory
    pid = os.fork()
    if pid:
        theirs.close()
        return Ingress(pid, ours, board)
    status = 1
    try:
        ours.close()
        for number in (signal.SIGTERM, signal.SIGINT):  # a terminal and a service manager mean all processes: the wire says when
            signal.signal(number, signal.SIG_IGN)
        sys.setswitchinterval(SWITCH_SECONDS)
        with watched(settings):
            asyncio.run(_serve(settings, theirs, board))
        status = 0
    except BaseException:
        log.exception("ingress.failed")
    finally:
        os._exit(status)  # nothing of the process it was forked from is to be ended twice


class _WakeUp:
    """Tells the bot of new commands: of one at once, of those that follow in the next moment together.

    To wake a process that sleeps takes as long as half a commit, and whoever is acknowledged next waits for that.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._resting = False
        self._untold = False

    def __call__(self) -> None:
        """Tell of one more."""
        if self._resting:
            self._untold = True
            return
        self._wire.tell(RESERVED)
        self._resting, self._untold = True, False
        asyncio.get_running_loop().call_later(NUDGE_SECONDS, self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._untold:
            self()


class _Counters:
    """Keeps what there is to count until it is told."""

    def __init__(self) -> None:
        self._untold: list[tuple[str | float, ...]] = []

    def observe_ack(self, envelope: str, seconds: float) -> None:
        self._untold.append(("acked", envelope, seconds))

    def observe_reserve(self, seconds: float) -> None:
        self._untold.append(("reserved", seconds))

    def count_connection(self) -> None:
        self._untold.append(("connected",))

    def tell(self, wire: Wire) -> None:
        for begin in range(0, len(self._untold), COUNTS):
            wire.tell(COUNTED, self._untold[begin : begin + COUNTS])
        self._untold.clear()


async def _serve(settings: Settings, end: socket.socket, board: Board) -> None:
    wire = await Wire.over(end)
    async with contextlib.AsyncExitStack() as stack:
        outside, rules = await connect_outside(stack, settings), load_rules(settings)  # meanwhile the bot recovers
        heard = await wire.receive()
        if heard is None:  # the bot ended before it was ready
            return
        ports, tally = Ports(), _Counters()
        ledger = await _open_ledger(stack, settings, ports, on_reserved=_WakeUp(wire))
        performer = build_performer(settings, ledger, outside.adapters)
        front = Front(ledger, outside, rules, performer, tally, Precedence(ports.clock, board))
        receiver = receiver_of(front, settings, Identity(**heard[1]), clock=ports.clock, draw=ports.draw)
        working = [asyncio.create_task(work) for work in (receiver.run(), _look_after(ledger, receiver, tally, wire))]
        hearing = asyncio.create_task(wire.receive())
        await asyncio.wait([*working, hearing], return_when=asyncio.FIRST_COMPLETED)
        asked = hearing.result() if hearing.done() else None
        for task in working:
            task.cancel()
        ends = await asyncio.gather(*working, return_exceptions=True)
        if hearing.done() and asked is None:
            log.warning("ingress.alone")  # the bot was killed: what is not acknowledged is delivered again
            os._exit(1)
        await receiver.close(0.0 if asked is None else float(asked[1]))
        tally.tell(wire)
        _say_why(wire, ends)
    await wire.close()


async def _open_ledger(
    stack: contextlib.AsyncExitStack, settings: Settings, ports: Ports, on_reserved: Callable[[], object]
) -> Ledger:
    """Open the ledger beside the bot's own: to reserve and to read, with a part in the room that is kept for a full disk."""
    audit = open_audit(settings)
    database = await open_database(
        settings.ledger_path, audit, ports.clock, bot=False, may_migrate=False, keeps_room=True, at_once=True
    )
    stack.push_async_callback(database.close)
    ledger = Ledger(
        database, ports.clock, audit, lease_seconds=settings.lease_seconds, pin=store.head_version, on_reserved=on_reserved
    )
    stack.push_async_callback(ledger.noted)
    return ledger


def _say_why(wire: Wire, ends: list[BaseException | None]) -> None:
    for end in ends:
        if isinstance(end, TokenRefusedError):
            wire.tell(REFUSED, str(end))
        elif isinstance(end, LinkDisabledError):
            wire.tell(DISABLED)
        elif isinstance(end, Exception):
            raise end


async def _look_after(ledger: Ledger, receiver: SocketReceiver, tally: _Counters, wire: Wire) -> None:
    """Tell what was counted and whether the connection lives, and keep room for a full disk.

    Raises IngressEndedError when the ledger takes no writes until a restart.
    """
    tended_at = ledger.clock.monotonic()
    while True:
        tally.tell(wire)
        wire.tell(ALIVE, await receiver.is_alive())
        if (broken := ledger.database.health.broken) is not None:
            raise IngressEndedError(f"The ledger takes no writes until a restart: {broken}")
        if ledger.clock.monotonic() - tended_at >= TEND_SECONDS:
            tended_at = ledger.clock.monotonic()
            await ledger.database.tend()
        await asyncio.sleep(BEAT_SECONDS)
