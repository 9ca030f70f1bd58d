"""Deliveries to the bot: envelopes are sent over a line, kept for redelivery, and retried where Slack retries."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from quotebot.sandbox.slack.directory import APP_ID, BOT_USER_ID, TEAM_ID, VERIFICATION_TOKEN
from quotebot.sandbox.slack.errors import GestureError, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quotebot.sandbox.chance import Tokens, VirtualClock

# Times of the retries of an event without an ack, counted from its first delivery.
EVENT_RETRY_SECONDS = (0.0, 60.0, 300.0)
# Additional retries of an app that has Delayed Events switched on: once an hour for a day.
DELAYED_EVENT_SECONDS = tuple(3600.0 * hour for hour in range(1, 25))
REMEMBERED_DELIVERIES = 10_000
REDELIVERIES_MAX = 50
Kind = Literal["slash_commands", "interactive", "events_api"]


@dataclass(frozen=True, slots=True)
class Ack:
    """Response to one envelope. `payload` is None without an ack, {} for a bare one; `error` is Slack's code for a missing ack."""

    payload: Json | None
    milliseconds: float | None
    error: str | None = None

    def body(self) -> Json:
        """Return the ack in the control API's format."""
        body: Json = {"ack": self.payload, "ack_ms": self.milliseconds}
        return body if self.error is None else {**body, "error": self.error}


class Line(Protocol):
    """Transport of envelopes to the bot; Socket Mode is the usual one."""

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Send one envelope (JSON text) and wait for its ack; `kind` is slash_commands, interactive or events_api.

        Without an ack the Ack contains Slack's error: dispatch_failed (no connection) or operation_timeout (no ack in time).
        """
        ...


@dataclass(slots=True)
class Delivery:
    """One delivery to the bot. `on_ack` applies its first answer to the workspace and returns the error, if any."""

    request_id: str
    kind: Kind
    payload: Json
    accepts_response: bool
    envelope_id: str
    text: str
    on_ack: Callable[[Ack], str | None]
    attempt: int = 0
    answered: bool = False


class Courier:
    """Wraps payloads in envelopes, delivers them over the line, and redelivers them on request."""

    def __init__(self, line: Line, clock: VirtualClock, tokens: Tokens, *, delayed_events: bool = False) -> None:
        """Set up the courier.

        With `delayed_events` an event without an ack is sent once an hour for a day, after its three retries.
        """
        self._retry_seconds = (*EVENT_RETRY_SECONDS, *(DELAYED_EVENT_SECONDS if delayed_events else ()))
        self._line = line
        self._clock = clock
        self._tokens = tokens
        self._deliveries: OrderedDict[str, Delivery] = OrderedDict()
        self._tasks: set[asyncio.Task[object]] = set()

    async def send(
        self, kind: Kind, payload: Json, *, accepts_response: bool, on_ack: Callable[[Ack], str | None]
    ) -> tuple[Delivery, Ack]:
        """Deliver once and apply the answer; the returned Ack carries the error the person sees, if any."""
        envelope_id = self._tokens.uuid()
        delivery = Delivery(
            request_id=self._tokens.object_id("R"),
            kind=kind,
            payload=payload,
            accepts_response=accepts_response,
            envelope_id=envelope_id,
            text=_envelope(kind, payload, envelope_id, 0, accepts_response=accepts_response),
            on_ack=on_ack,
        )
        self._deliveries[delivery.request_id] = delivery
        if len(self._deliveries) > REMEMBERED_DELIVERIES:
            self._deliveries.popitem(last=False)
        return delivery, await self._attempt(delivery, delivery.envelope_id, delivery.text)

    async def raise_event(self, event: Json, *, ext_shared: bool = False, enterprise_id: str | None = None) -> tuple[Delivery, Ack]:
        """Deliver an event; without an ack it is retried in the background, as Slack does. Returns the result of the first attempt.

        `ext_shared` marks an event in an externally shared channel, `enterprise_id` is the organization of the workspace.
        """
        payload: Json = {
            "token": VERIFICATION_TOKEN,
            "team_id": TEAM_ID,
            **({} if enterprise_id is None else {"enterprise_id": enterprise_id}),
            "context_team_id": TEAM_ID,
            "context_enterprise_id": enterprise_id,
            "api_app_id": APP_ID,
            "event": event,
            "type": "event_callback",
            "event_id": self._tokens.object_id("Ev"),
            "event_time": self._clock.microseconds() // 1_000_000,
            "authorizations": [
                {
                    "enterprise_id": enterprise_id,
                    "team_id": TEAM_ID,
                    "user_id": BOT_USER_ID,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": ext_shared,
            "event_context": f"4-{self._tokens.object_id('')}",
        }
        started = self._clock.now()
        delivery, ack = await self.send("events_api", payload, accepts_response=False, on_ack=lambda ack: ack.error)
        if ack.payload is None:
            self.spawn(self._retry_event(delivery, started))
        return delivery, ack

    async def redeliver(self, request_id: str, how: Literal["resend", "retry"], times: int) -> list[Ack]:
        """Deliver again, `times` at once: byte-identical ("resend") or as Slack's retry. Raises GestureError 404."""
        delivery = self._deliveries.get(request_id)
        if delivery is None:
            raise GestureError(404, f"no delivery {request_id!r} (the last {REMEMBERED_DELIVERIES} are kept)")
        envelopes = [(delivery.envelope_id, delivery.text) if how == "resend" else self._retry_of(delivery) for _ in range(times)]
        return list(await asyncio.gather(*(self._attempt(delivery, envelope_id, text) for envelope_id, text in envelopes)))

    @property
    def last(self) -> Delivery | None:
        """Return the last delivery."""
        return next(reversed(self._deliveries.values()), None)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background until the world stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop every background delivery."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _retry_of(self, delivery: Delivery) -> tuple[str, str]:
        delivery.attempt += 1
        envelope_id = self._tokens.uuid()
        return envelope_id, _envelope(
            delivery.kind, delivery.payload, envelope_id, delivery.attempt, accepts_response=delivery.accepts_response
        )

    async def _attempt(self, delivery: Delivery, envelope_id: str, text: str) -> Ack:
        """Deliver one envelope. The person sees the first answer only; an error is shown as long as there is none."""
        ack = await self._line.deliver(text, envelope_id, delivery.kind)
        if delivery.answered:
            return ack
        delivery.answered = ack.payload is not None
        error = delivery.on_ack(ack)
        return ack if error is None else Ack(ack.payload, ack.milliseconds, error)

    async def _retry_event(self, delivery: Delivery, started: float) -> None:
        for wait_seconds in self._retry_seconds:
            await self._clock.until(started + wait_seconds)
            if delivery.answered:
                return
            ack = await self._attempt(delivery, *self._retry_of(delivery))
            if ack.payload is not None:
                return


def _envelope(kind: Kind, payload: Json, envelope_id: str, attempt: int, *, accepts_response: bool) -> str:
    envelope: Json = {
        "envelope_id": envelope_id,
        "payload": payload,
        "type": kind,
        "accepts_response_payload": accepts_response,
    }
    if kind == "events_api":
        envelope |= {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
    return json.dumps(envelope)
