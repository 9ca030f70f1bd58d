"""Backstage of the workspace, for its page: the bot's process, its ledger, the armed faults, the last delivery.

| call | does |
|---|---|
| `GET /_sandbox/backstage` | an event stream, for as long as it is read: `ledger`, `weather` |
| `GET /_sandbox/faults/known` | every fault that can be armed, in words, and the methods it may be narrowed to |
| `DELETE /_sandbox/faults/{id}` | disarms one fault |
| `POST /_sandbox/bot` {do: kill, start or restart} | SIGKILL now, or start again; answers with the state of the process |
| `POST /_sandbox/replay` {reference, user} | `quotebot replay`, and its result |
| `POST /_sandbox/resume` {gate, user} | `quotebot resume` |
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from aiohttp import web

from quotebot.sandbox.answering import Body, answered, posted
from quotebot.sandbox.faults import ArmedFaults, known
from quotebot.sandbox.slack.errors import GestureError, Json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quotebot.sandbox.bot_process import BotProcess, Console, LedgerFeed
    from quotebot.sandbox.chance import Changes
    from quotebot.sandbox.slack.courier import Courier

LOOK_SECONDS: Final = 0.25
HEARTBEAT_LOOKS: Final = 40
NO_LEDGER: Final = "The bot is somebody else's here (--no-bot), and so is its ledger: see `quotebot ops watch` beside it."
Deed = Literal["kill", "start", "restart"]
_REFERENCE: Final = re.compile(r"(op)?[0-9]{1,19}")
_CLASS: Final = re.compile(r"[a-z]+(\.[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Staff:
    """The bot's process manager, command runner and ledger feed, in a sandbox that runs its own bot."""

    keeper: BotProcess
    console: Console
    feed: LedgerFeed


class Backstage:
    """The routes of the backstage. Without `staff` (a bot that is run elsewhere) only the faults are known."""

    def __init__(self, changes: Changes, weather: ArmedFaults, courier: Courier) -> None:
        self._changes = changes
        self._weather = weather
        self._courier = courier
        self.staff: Staff | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        posts: dict[str, Callable[[Body], Awaitable[Json]]] = {"bot": self._bot, "replay": self._replay, "resume": self._resume}
        return [
            *(web.post(f"/_sandbox/{name}", posted(work)) for name, work in posts.items()),
            web.get("/_sandbox/backstage", self._stream),
            web.get("/_sandbox/faults/known", answered(self._known)),
            web.delete(r"/_sandbox/faults/{id:\d{1,9}}", answered(self._disarm)),
        ]

    def standing(self) -> Json | None:
        """Return the state of the bot's process; None if this sandbox does not run it."""
        return None if self.staff is None else asdict(self.staff.keeper.standing)

    async def close(self) -> None:
        """Stop the processes that were started for viewers."""
        if self.staff is not None:
            await self.staff.feed.close()

    async def _known(self, _request: web.Request) -> Json:
        return known()

    async def _disarm(self, request: web.Request) -> Json:
        if not self._weather.disarm(int(request.match_info["id"])):
            raise GestureError(404, f"no fault {request.match_info['id']} is armed")
        return {"faults": self._weather.standing()}

    async def _bot(self, body: Body) -> Json:
        deed = body.text("do")
        if deed not in get_args(Deed):
            raise GestureError(400, f"field 'do' must be one of {', '.join(get_args(Deed))}, not {deed!r}")
        keeper = self._staff().keeper
        deeds = {"kill": keeper.kill, "start": keeper.start, "restart": keeper.restart}
        await deeds[deed]()
        return asdict(keeper.standing)

    async def _replay(self, body: Body) -> Json:
        return await self._run("replay", body, "reference", _REFERENCE, "an id such as 118 or op12")

    async def _resume(self, body: Body) -> Json:
        return await self._run("resume", body, "gate", _CLASS, "a class such as crm.create")

    async def _run(self, command: str, body: Body, field: str, form: re.Pattern[str], described: str) -> Json:
        """Run an operator's command about what a field names."""
        name = body.text(field)
        if not form.fullmatch(name):
            raise GestureError(400, f"field {field!r} must be {described}, not {name!r}")
        ran = await self._staff().console.run(command, name, "--as", f"{body.text('user')} (sandbox page)")
        return {"status": ran.status, "said": "\n".join(part for part in (ran.data.strip(), ran.words) if part)}

    def _staff(self) -> Staff:
        if self.staff is None:
            raise GestureError(409, "this sandbox runs no bot of its own (--no-bot): its process and its ledger are not known here")
        return self.staff

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Stream the ledger's picture and the faults, each when it has changed, until the client disconnects."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        if self.staff is None:
            await self._tell(response, None)
            return response
        async with self.staff.feed.viewer():
            await self._tell(response, self.staff.feed)
        return response

    async def _tell(self, response: web.StreamResponse, feed: LedgerFeed | None) -> None:
        sent: dict[str, Any] = {}
        quiet = 0
        try:
            while not self._changes.closed:
                news = {
                    "ledger": {"error": NO_LEDGER} if feed is None else feed.latest,
                    "weather": self._conditions(),
                }
                fresh = {name: value for name, value in news.items() if value is not None and value != sent.get(name)}
                quiet = 0 if fresh else quiet + 1
                text = "".join(f"event: {name}\ndata: {json.dumps(value)}\n\n" for name, value in fresh.items())
                if text or quiet % HEARTBEAT_LOOKS == 0:
                    await response.write(text.encode() or b": alive\n\n")
                sent |= fresh
                await (self._changes.after(self._changes.version, LOOK_SECONDS) if feed is None else feed.changed(LOOK_SECONDS))
        except ConnectionError:
            return

    def _conditions(self) -> Json:
        last = self._courier.last
        about = last and {"request_id": last.request_id, "kind": last.kind, "about": _about(last.payload)}
        return {"faults": self._weather.standing(), "last": about}


def _about(payload: Json) -> str:
    """Describe a delivery in a few words."""
    if "command" in payload:
        return f"{payload['command']} {payload['text']}".rstrip()
    if "event" in payload:
        return f"event {payload['event']['type']}"
    if payload.get("actions"):
        action = payload["actions"][0]
        return f"click on {action.get('text', {}).get('text') or action['action_id']}"
    callback = payload.get("callback_id") or payload.get("view", {}).get("callback_id", "")
    return f"{payload['type'].replace('_', ' ')} {callback}".rstrip()
