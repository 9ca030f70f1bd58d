"""A Slack with many people: each one's commands and messages, their acknowledgements one by one, and their cards."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import WSMsgType, web

from bench.acks.slack import GIVE_UP_SECONDS, TEAM, Shot, Slack

if TYPE_CHECKING:
    from collections.abc import Callable


GUEST: Final = "U0GUEST"  # prefix of the ids of guests
BOT_USER: Final = "U0BOT"
MESSAGE_CHARACTERS: Final = 40_000  # Slack's limit for one message
BLANKS: Final = "x" + " " * 39_900 + "y"
MARKS: Final = ("e" + "\u0301" * 99) * (MESSAGE_CHARACTERS // 100)
CUSTOMER: Final = "Crowd{number}End"
_CUSTOMER: Final = re.compile(rb"Crowd(\d+)End")
_USER: Final = re.compile(rb"user=([A-Z0-9]+)")


@functools.lru_cache(maxsize=16)
def _as_json(text: str, mention: bool) -> bytes:  # noqa: FBT001 -- part of the key
    """Return the text as it is sent. Cached, so that the flood does not load this process."""
    return json.dumps(f"<@{BOT_USER}>{text}"[:MESSAGE_CHARACTERS] if mention else text).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One envelope before it is sent. `number` is part of the customer's name in a command, and therefore on its card."""

    envelope_id: str
    request_id: str
    number: int
    frame: bytes


class Crowd(Slack):
    """A Slack that records when each card was first posted, by the number of its command (perf_counter seconds)."""

    def __init__(self) -> None:
        super().__init__()
        self.cards: dict[int, float] = {}
        self._counted = itertools.count(1_000_000)
        self._acked_events: dict[str, asyncio.Event] = {}

    def command(self, user: str, channel: str) -> Asked:
        """Return a command that creates a quote."""
        envelope_id, request_id, number = self._ids()
        payload = {
            "token": "bench",
            "team_id": TEAM,
            "team_domain": "bench",
            "channel_id": channel,
            "channel_name": "deals",
            "user_id": user,
            "user_name": user.lower(),
            "command": "/quote",
            "text": f"new for {CUSTOMER.format(number=number)}: 1 pro",
            "api_app_id": "A0BENCH",
            "is_enterprise_install": "false",
            "response_url": f"{self.url}/hooks/commands/{TEAM}/{number}",
            "trigger_id": f"{number}.{number}.bench",
        }
        frame = {"envelope_id": envelope_id, "payload": payload, "type": "slash_commands", "accepts_response_payload": True}
        return Asked(envelope_id, request_id, number, json.dumps(frame).encode())

    def message(self, user: str, text: str, *, mention: bool) -> Asked:
        """Return a direct message to the bot, or a message in a channel that mentions it."""
        envelope_id, request_id, number = self._ids()
        ts = f"1795297972.{number:06}"
        place = '"type": "app_mention"' if mention else '"type": "message", "channel_type": "im"'
        channel = "C0DEALS" if mention else "D0BENCH"
        event = f'"user": "{user}", "team": "{TEAM}", "channel": "{channel}", "ts": "{ts}", "event_ts": "{ts}"'
        payload = f'"type": "event_callback", "token": "bench", "team_id": "{TEAM}", "api_app_id": "A0BENCH"'
        frame = f'{{"envelope_id": "{envelope_id}", "type": "events_api", "retry_attempt": 0, "retry_reason": ""'
        head = f'{frame}, "payload": {{{payload}, "event_id": "Ev{number}", "event": {{{place}, {event}, "text": '
        return Asked(envelope_id, request_id, number, head.encode() + _as_json(text, mention) + b"}}}")

    async def send(self, name: str, asked: Asked) -> Shot:
        """Send an envelope and return its `Shot`, which gets the acknowledgement later."""
        app = self._app(name)
        self._acked_events[asked.envelope_id] = asyncio.Event()
        app.shots[asked.envelope_id] = shot = Shot(asked.request_id, time.perf_counter())
        await random.choice(app.sockets).send_frame(asked.frame, WSMsgType.TEXT)  # noqa: S311 -- Slack guarantees no order of connections
        return shot

    async def acknowledged(self, name: str, asked: Asked) -> None:
        """Wait until the envelope is acknowledged, or until it counts as lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await self._acked_events[asked.envelope_id].wait()
        del self._acked_events[asked.envelope_id]
        self._app(name).shots.pop(asked.envelope_id, None)

    async def evenly(self, name: str, ask: Callable[[int], Asked], count: int, seconds: float) -> list[tuple[Asked, Shot]]:
        """Send `count` envelopes at equal intervals over `seconds`, and wait for their acknowledgements."""
        began, sent = time.perf_counter(), []
        for index in range(count):
            asked = ask(index)
            await asyncio.sleep(max(0.0, began + index * seconds / count - time.perf_counter()))
            sent.append((asked, await self.send(name, asked)))
        await asyncio.gather(*(self.acknowledged(name, asked) for asked, _ in sent))
        return sent

    def _ids(self) -> tuple[str, str, int]:
        number = next(self._counted)
        return f"00000000-0000-4000-8000-{number:012}", f"{TEAM}:{number}.{number}.bench", number

    def _acked(self, app: Any, text: str, now: float) -> None:
        super()._acked(app, text, now)
        event = self._acked_events.get(json.loads(text).get("envelope_id", ""))
        if event is not None:
            event.set()

    async def _call(self, request: web.Request) -> web.Response:
        method, body = request.match_info["method"], await request.read()
        if method == "chat.postMessage" and (found := _CUSTOMER.search(body)) is not None:
            self.cards.setdefault(int(found[1]), time.perf_counter())
        if method == "users.info" and (who := _USER.search(body)) is not None:
            user = who[1].decode()
            person = {"id": user, "team_id": TEAM, "name": user.lower(), "is_restricted": user.startswith(GUEST)}
            return web.json_response({"ok": True, "user": person})
        return await super()._call(request)
