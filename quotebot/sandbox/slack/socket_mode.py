"""Socket Mode as in Slack: tickets, hello, pings, up to ten connections, one random connection per envelope, acks from any."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from quotebot.sandbox.chance import Changes, Signal, Tokens
from quotebot.sandbox.serving import cut
from quotebot.sandbox.slack.courier import Ack
from quotebot.sandbox.slack.directory import APP_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quotebot.sandbox.faults import ArmedFaults, Fault
    from quotebot.sandbox.request_log import Witness
    from quotebot.sandbox.slack.errors import Json
    from quotebot.sandbox.slack.passes import Passes

CONNECTIONS_MAX = 10
PING_SECONDS = 5.0
WARNING_SECONDS = 10.0  # between the warning and the cut
FRAME_BYTES_MAX = 4 * 2**20
REMEMBERED_ENVELOPES = 10_000


@dataclass(slots=True, eq=False)
class Connection:
    """One live WebSocket. A muted one is neither read nor written, like a peer behind a dead link."""

    socket: web.WebSocketResponse
    request: web.Request
    app_token: str
    muted: bool = False

    def mute(self) -> None:
        """Stop reading; the kernel's buffer keeps the client's data."""
        self.muted = True
        self.request.protocol.pause_reading()

    def unmute(self) -> None:
        """Read again, starting with the buffered data."""
        self.muted = False
        self.request.protocol.resume_reading()

    async def send(self, text: str) -> bool:
        """Send a frame; False if the connection is dead. A muted connection drops the frame."""
        if self.muted:
            return True
        try:
            await self.socket.send_str(text)
        except (ConnectionError, RuntimeError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Waiting:
    kind: str
    answer: asyncio.Future[Json]


class SocketMode:
    """The server end of every Socket Mode connection."""

    def __init__(
        self,
        passes: Passes,
        changes: Changes,
        weather: ArmedFaults,
        witness: Witness,
        tokens: Tokens,
        *,
        ack_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._passes = passes
        self._changes = changes
        self._weather = weather
        self._witness = witness
        self._tokens = tokens
        self._ack_seconds = ack_seconds
        self._monotonic = monotonic
        self._connections: list[Connection] = []
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._fate: OrderedDict[str, str] = OrderedDict()  # envelope_id -> the kind of a further ack for it
        self._tasks: set[asyncio.Task[None]] = set()
        self._handled: set[int] = set()
        self._weather_changed = Signal()
        self._sent = Signal()
        weather.subscribe(self._on_faults)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def is_connected(self, app_token: str) -> bool:
        """Return true if a connection was opened with this app-level token."""
        return any(connection.app_token == app_token for connection in self._connections)

    @property
    def is_waiting(self) -> bool:
        """True while an envelope waits for its ack."""
        return bool(self._waiting)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/link/", self._link)]

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Send an envelope to one random live connection and wait for its ack."""
        overtaken = self._take(kind, "out_of_order")
        if overtaken is not None:  # until another envelope was sent; the ack timeout starts after that
            await self._sent.wait(overtaken.delay)
        waiting = _Waiting(kind, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(envelope_id, deque()).append(waiting)
        started = self._monotonic()
        try:
            async with asyncio.timeout(self._ack_seconds):
                if not await self._send_to_one(text):
                    return Ack(None, None, "dispatch_failed")
                payload = await waiting.answer
        except TimeoutError:
            self._remember(envelope_id, "late")
            return Ack(None, None, "operation_timeout")
        finally:
            self._forget(envelope_id, waiting)
        return Ack(payload, round((self._monotonic() - started) * 1000, 3))

    async def close(self) -> None:
        """Close every connection and stop the helpers."""
        for connection in list(self._connections):
            if connection.muted:
                connection.unmute()
        await asyncio.gather(*(connection.socket.close(code=1001) for connection in list(self._connections)))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send_to_one(self, text: str) -> bool:
        """Send over one connection, a healthy one if there is any. False without a live connection."""
        candidates = list(self._connections)
        while candidates:
            healthy = [connection for connection in candidates if not connection.muted]
            chosen = self._tokens.choice(healthy or candidates)
            if await chosen.send(text):
                self._sent.fire()
                return True
            candidates.remove(chosen)
        return False

    async def _link(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection from its ticket to its end."""
        app_token = self._passes.redeem_ticket(request.query.get("ticket", ""))
        if self._take("link", "refuse_ticket") or app_token is None:
            self._witness.record("socket", "link", key=None, applied=False, status=403, request=request.path_qs)
            return web.Response(text="ticket refused", status=403)
        socket = web.WebSocketResponse(compress=False, timeout=0.5, max_msg_size=FRAME_BYTES_MAX)
        await socket.prepare(request)
        if len(self._connections) >= CONNECTIONS_MAX or self._take("link", "too_many_websockets"):
            await socket.send_str(_disconnect("too_many_websockets"))
            await socket.close()
            return socket
        connection = Connection(socket, request, app_token)
        self._connections.append(connection)
        self._changes.bump()
        pings = self._spawn(self._ping(connection))
        try:
            if not self._take("link", "no_hello"):
                await connection.send(self._hello())
            await self._read(connection)
        finally:
            pings.cancel()
            self._connections.remove(connection)
            self._changes.bump()
        return socket

    def _take(self, method: str, effect: str) -> Fault | None:
        return self._weather.take("socket", method, only=frozenset({effect}))

    async def _read(self, connection: Connection) -> None:
        async for message in connection.socket:
            if connection.muted:
                connection.request.protocol.pause_reading()
            elif message.type is WSMsgType.TEXT:
                self._frame(message.data)

    async def _ping(self, connection: Connection) -> None:
        """Ping as Slack does; some clients send no pings and rely on the server's."""
        while True:
            if not connection.muted:
                try:
                    await connection.socket.ping(b"Ping from sandbox")
                except (ConnectionError, RuntimeError):
                    return
            await asyncio.sleep(PING_SECONDS)

    async def _frame_later(self, text: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._frame(text, waited=True)

    def _frame(self, text: str, *, waited: bool = False) -> None:
        """Process one frame from the app: an ack, or an unknown frame."""
        try:
            frame = json.loads(text)
        except ValueError:
            frame = None
        envelope_id = frame.get("envelope_id") if isinstance(frame, dict) else None
        if not isinstance(frame, dict) or not isinstance(envelope_id, str):
            self._witness.record("socket", "frame", key=None, applied=False, status="unreadable", request=text)
            return
        queue = self._waiting.get(envelope_id)
        if not queue:
            fate = self._fate.get(envelope_id, "unknown_envelope")
            self._witness.record("socket", "ack", key=envelope_id, applied=False, status=fate, request=text)
            return
        if self._take(queue[0].kind, "drop_ack"):
            self._witness.record("socket", "ack", key=envelope_id, applied=False, status=None, request=text)
            return
        late = None if waited else self._take(queue[0].kind, "delay_ack")
        if late is not None and late.delay:
            self._spawn(self._frame_later(text, late.delay))
            return
        waiting = queue.popleft()
        self._remember(envelope_id, "repeated")
        self._witness.record("socket", "ack", key=envelope_id, applied=True, status=200, request=text)
        payload = frame.get("payload")
        if not waiting.answer.done():
            waiting.answer.set_result(payload if isinstance(payload, dict) else {})

    def _remember(self, envelope_id: str, fate: str) -> None:
        self._fate[envelope_id] = fate
        if len(self._fate) > REMEMBERED_ENVELOPES:
            self._fate.popitem(last=False)

    def _forget(self, envelope_id: str, waiting: _Waiting) -> None:
        queue = self._waiting.get(envelope_id)
        if queue is None:
            return
        if waiting in queue:
            queue.remove(waiting)
        if not queue:
            del self._waiting[envelope_id]

    def _hello(self) -> str:
        return json.dumps(
            {
                "type": "hello",
                "num_connections": len(self._connections),
                "debug_info": {"host": "applink-sandbox", "build_number": 1, "approximate_connection_time": 18060},
                "connection_info": {"app_id": APP_ID},
            }
        )

    def _on_faults(self) -> None:
        """Apply the faults that take effect as soon as they are armed."""
        self._weather_changed.fire()
        for fault in self._weather.armed("socket"):
            if fault.id in self._handled or fault.effect not in ("disconnect", "half_open", "reset"):
                continue
            self._handled.add(fault.id)
            if not self._connections:
                continue  # they apply to the connections of this moment
            if fault.effect == "disconnect":
                fault.hits += len(self._connections)
                self._spawn(self._disconnect_all(fault.method or "refresh_requested"))
            elif fault.effect == "reset":
                fault.hits += len(self._connections)
                for connection in self._connections:
                    cut(connection.request, reset=True)
            else:
                self._spawn(self._half_open(fault))

    async def _disconnect_all(self, reason: str) -> None:
        leaving = list(self._connections)
        for connection in leaving:
            await connection.send(_disconnect(reason))
        if reason == "warning":
            await asyncio.sleep(WARNING_SECONDS)
        for connection in leaving:
            await connection.socket.close(code=1001)

    async def _half_open(self, fault: Fault) -> None:
        """Mute the present connections until the fault is cleared or its time is over."""
        muted = [connection for connection in self._connections if not connection.muted]
        fault.hits += len(muted)
        for connection in muted:
            connection.mute()
        while self._weather.holds(fault):
            await self._weather_changed.wait(None if fault.until is None else max(0.0, fault.until - self._monotonic()))
        for connection in muted:
            connection.unmute()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _disconnect(reason: str) -> str:
    return json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-sandbox"}})
