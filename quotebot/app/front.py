"""The acknowledging process: it holds Slack's socket, records commands and acknowledges them. The workers run in the bot process.

    Slack ──▶ ingress: reserve, acknowledge ──▶ ledger ──▶ the bot: execute, deliver
                 └──── IPC: wake-ups, durations; shared memory: pending acks ───▲

Python runs one thread at a time, so in a bot of one process an acknowledgement waits for the work on earlier commands. With two
processes they compete only for the ledger's write gate. Neither runs without the other: the ingress ends when its connection does.

The two processes exchange one JSON array per line over a private socket pair. A lost message loses no command, because commands are
in the ledger: messages start and stop the acknowledging process, wake the bot for new commands, and carry counters.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from adapters.slack.api import Identity
from ledger.ledger import Ledger
from quotebot.app.clients import build_handlers, connect_outside
from quotebot.app.installation import IngressEndedError, claim_settings, load_rules, open_audit, open_database, speak, storage_of
from quotebot.app.slack_surface import Front, receiver_of
from quotebot.app.workers import Ports
from quotebot.slack.connections import LinkDisabledError, TokenRefusedError
from quotebot.store import quotes as store
from quotebot.worker_loop import AckPriority, shared_board

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quotebot.app.slack_surface import SurfaceObserver
    from quotebot.settings import Settings
    from quotebot.slack.receiver import SocketReceiver
    from quotebot.worker_loop import Board

LINE_BYTES_MAX: Final = 64 * 1024  # the peer takes a longer line for the end of the connection
BEAT_SECONDS: Final = 0.25  # interval of its status messages
SILENT_SECONDS: Final = 7.0  # an interval without a message is a silence...
SILENCES: Final = 2  # ...and after so many in a row the process counts as hung
TEND_SECONDS: Final = 60.0
NUDGE_SECONDS: Final = 0.010  # between two RESERVED messages: each wakes the other process
COUNTS: Final = 256  # observations per message, which must fit on a line
END_SECONDS: Final = 2.0  # allowed beyond the time for its last acknowledgements
# Messages to the ingress:
OPEN: Final = "open"  # the bot's identity; the ingress connects now
CLOSE: Final = "close"  # accept nothing more; the value is the time for envelopes in progress, in seconds
# Messages from the ingress:
RESERVED: Final = "reserved"  # the ledger has new commands
ALIVE: Final = "alive"  # true if a connection to Slack is alive; also the keep-alive of the ingress
COUNTED: Final = "counted"  # observations since the last such message: ["acked", kind of the envelope, seconds], ...
REFUSED: Final = "refused"  # Slack refused the app-level token; the value is its code
DISABLED: Final = "disabled"  # Slack has switched Socket Mode off
log = structlog.get_logger(__name__)


class Wire:
    """One end of the connection. Any error of the peer counts as its end, because neither process runs without the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsaid: list[bytes] = []

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Return a connection over one end of a connected socket pair; `close` closes that end."""
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX))

    def tell(self, word: str, value: Any = None) -> None:
        """Send a message to the peer, which may have ended. Never blocks; the messages of one turn of the loop are sent together.

        Raises ValueError for a message longer than LINE_BYTES_MAX, which the peer would not read.
        """
        line = json.dumps([word, value]).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"{word}: {len(line)} bytes are more than a line holds ({LINE_BYTES_MAX})")
        if not self._unsaid:
            asyncio.get_running_loop().call_soon(self._say)
        self._unsaid.append(line)

    async def receive(self) -> tuple[str, Any] | None:
        """Return the next message of the peer; None once it has ended."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        if not line.endswith(b"\n"):  # the end, or an incomplete line of a killed process
            return None
        word, value = json.loads(line)
        return word, value

    async def close(self) -> None:
        """Send the pending messages, then close the connection."""
        self._say()
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return

    def _say(self) -> None:
        if self._unsaid:
            self._writer.write(b"".join(self._unsaid))
            self._unsaid.clear()


class Ingress:
    """Handle of the acknowledging process in the bot, in place of a SocketReceiver. Forked before the loop starts, opened last."""

    def __init__(self, pid: int, end: socket.socket, board: Board, silent_seconds: float = SILENT_SECONDS) -> None:
        """`board` is the shared memory in which that process records pending acknowledgements."""
        self._pid = pid
        self._silent_seconds = silent_seconds
        self._end = end
        self.board = board
        self._wire: Wire | None = None
        self._listening: asyncio.Task[None] | None = None
        self._alive = False
        self._heard = 0  # number of received messages

    async def open(self, identity: Identity, *, reserved: Callable[[], object], observer: SurfaceObserver) -> None:
        """Make the process connect to Slack. `reserved` is called for new commands, `observer` for durations and connections."""
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
        """Wait until the process ends. Raises TokenRefusedError, LinkDisabledError or IngressEndedError."""
        assert self._listening is not None  # noqa: S101 -- opened before
        await asyncio.shield(self._listening)
        raise IngressEndedError(
            "The process that holds the connection to Slack has ended by itself. What was acknowledged is recorded and goes on at "
            "the next start. Its last lines in the log say why."
        )

    async def is_alive(self) -> bool:
        """Return true if the process last reported a live connection to Slack."""
        return self._alive and self._listening is not None and not self._listening.done()

    async def close(self, seconds: float) -> None:
        """Stop accepting envelopes, wait for the last acknowledgements, then end the process; kill it if it is late."""
        if self._wire is not None and self._listening is not None:
            self._wire.tell(CLOSE, seconds)
            await asyncio.wait({self._listening}, timeout=seconds + END_SECONDS)
            if not self._listening.done():
                self._listening.cancel()
                self._kill()
            await self._wire.close()
        self._end.close()
        with contextlib.suppress(ChildProcessError):
            await asyncio.to_thread(os.waitpid, self._pid, 0)

    async def _listen(self, wire: Wire, words: dict[str, Callable[[Any], object]]) -> None:
        """Serve messages until the process ends. A silent one is killed, so that the bot does not run without its input."""
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
        """Kill the process after SILENCES intervals in a row without a message."""
        # One silent interval may be our own: after this process was suspended, the interval is over but messages are unread.
        heard, silences = self._heard, 0
        while silences < SILENCES:
            await asyncio.sleep(self._silent_seconds)
            heard, silences = self._heard, 0 if self._heard != heard else silences + 1
        self._kill()

    def _kill(self) -> None:
        log.error("ingress.killed", pid=self._pid, why="it said nothing for too long, or did not come to its end")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _note_alive(self, alive: bool) -> None:  # noqa: FBT001 -- the received value
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


def fork_ingress(settings: Settings, watched: Callable[[Settings], contextlib.AbstractContextManager[None]]) -> Ingress:
    """Fork the acknowledging process. Call it while there is one thread and no loop; the process does not connect until `open`.

    `watched` returns the context in which the process writes its log and notifies its observers.
    """
    ours, theirs = socket.socketpair()
    board = shared_board()
    # Imported objects are permanent. A collection must not scan them: that would delay acknowledgements and unshare their memory.
    gc.freeze()
    pid = os.fork()
    if pid:
        theirs.close()
        return Ingress(pid, ours, board)
    status = 1
    try:
        ours.close()
        for number in (signal.SIGTERM, signal.SIGINT):  # sent to all processes of the bot; this one waits for CLOSE
            signal.signal(number, signal.SIG_IGN)
        with watched(settings):
            asyncio.run(_serve(settings, theirs, board))
        status = 0
    except BaseException:
        log.exception("ingress.failed")
    finally:
        os._exit(status)  # skips the exit handlers inherited from the parent process


class _WakeUp:
    """Wake-up of the bot for new commands: at once for the first, then one for all that follow within NUDGE_SECONDS.

    Waking a sleeping process takes half as long as a commit, and the next acknowledgement waits for it.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._resting = False
        self._untold = False

    def __call__(self) -> None:
        """Report one more command."""
        if self._resting:
            self._untold = True
            return
        self._resting, self._untold = True, False
        asyncio.get_running_loop().call_soon(self._tell)  # runs when the acknowledgement is on its way

    def _tell(self) -> None:
        self._wire.tell(RESERVED)
        asyncio.get_running_loop().call_later(NUDGE_SECONDS, self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._untold:
            self()


class _Counters:
    """Buffer of observations until they are sent."""

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
    speak(settings.language)
    wire = await Wire.over(end)
    async with contextlib.AsyncExitStack() as stack:
        outside, rules = await connect_outside(stack, settings), load_rules(settings)  # the bot recovers in parallel
        heard = await wire.receive()
        if heard is None:  # the bot ended before it was ready
            return
        ports, tally = Ports(clock=storage_of(settings).clock()), _Counters()
        ledger = await _open_ledger(stack, settings, ports, on_reserved=_WakeUp(wire))
        handlers = build_handlers(settings, ledger, outside.adapters)
        front = Front(ledger, outside, rules, handlers, tally, AckPriority(ports.clock, board))
        receiver = receiver_of(front, settings, Identity(**heard[1]), clock=ports.clock, draw=ports.draw)
        working = [asyncio.create_task(work) for work in (receiver.run(), _look_after(ledger, receiver, tally, wire))]
        hearing = asyncio.create_task(wire.receive())
        await asyncio.wait([*working, hearing], return_when=asyncio.FIRST_COMPLETED)
        asked = hearing.result() if hearing.done() else None
        for task in working:
            task.cancel()
        ends = await asyncio.gather(*working, return_exceptions=True)
        if hearing.done() and asked is None:
            log.warning("ingress.alone")  # the bot was killed: Slack delivers unacknowledged envelopes again
            os._exit(1)
        await receiver.close(0.0 if asked is None else float(asked[1]))
        tally.tell(wire)
        _say_why(wire, ends)
    await wire.close()


async def _open_ledger(
    stack: contextlib.AsyncExitStack, settings: Settings, ports: Ports, on_reserved: Callable[[], object]
) -> Ledger:
    """Open a second connection to the ledger, for reserving and reading; this process may also free the space for a full disk."""
    audit = open_audit(settings)
    database = await open_database(settings, audit, ports.clock, bot=False, may_migrate=False, keeps_room=True, at_once=True)
    stack.push_async_callback(database.close)
    ledger = Ledger(database, ports.clock, audit, pin=store.head_version, on_reserved=on_reserved, **claim_settings(settings))
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
    """Report the observations and whether a connection to Slack is alive; maintain the disk space reserved for a full disk.

    Raises IngressEndedError if the ledger takes no writes until a restart.
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
