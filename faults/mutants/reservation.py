"""Seeded bugs in the reservation: in the acknowledgement, and in the identity of a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from slack_sdk.socket_mode.response import SocketModeResponse

from faults.mutants.patching import both, of, put, sql
from ledger.ledger import Ledger
from ledger.records import DedupeResult, Operation, Reservation
from ledger.reservation import KeyedRequest
from quotebot.slack.receiver import Envelopes
from quotebot.slack.reserve import Reserver


def ack_before_reserve() -> None:
    """The acknowledgement is sent, then the envelope is read."""

    async def answer(self: Any, client: Any, request: Any) -> bool:
        response = SocketModeResponse(envelope_id=request.envelope_id, payload=None)
        await self.ack(request.envelope_id, lambda: client.send_socket_mode_response(response))
        await of(self, "_bolt").answer(request.payload, {"envelope_id": request.envelope_id})
        return True

    put(Envelopes, "answer", answer)


def ack_before_the_commit() -> None:
    """The acknowledgement is sent while the reservation is being written."""
    honest = of(Ledger, "reserve")

    async def reserve(self: Ledger, request: Any, *, deadline: float | None = None) -> Reservation:
        writing = asyncio.create_task(honest(self, request, deadline=deadline))
        self._noting.add(writing)  # keeps the task alive
        await asyncio.sleep(0)
        operation = Operation.reserved(0, KeyedRequest.of(request).key, request, None, self.clock.now_ms())
        return Reservation(DedupeResult.NEW, operation)

    put(Ledger, "reserve", reserve)


def request_id_of_the_envelope() -> None:
    """A request is identified by its envelope, which differs at every delivery."""
    honest = of(Reserver, "receive")

    async def receive(self: Any, command: Any, *, envelope_id: str | None) -> Any:
        return await honest(self, replace(command, source_request_id=str(envelope_id)), envelope_id=envelope_id)

    put(Reserver, "receive", receive)


def request_id_of_the_moment() -> None:
    """A request is identified by its time of arrival."""
    honest = of(Reserver, "receive")

    async def receive(self: Any, command: Any, *, envelope_id: str | None) -> Any:
        timed = replace(command, source_request_id=f"{command.source_request_id}:{command.received_at}")
        return await honest(self, timed, envelope_id=envelope_id)

    put(Reserver, "receive", receive)


known_by_its_payload = both(  # and so by the payload schema of the build that reads it
    sql("find_delivery", ("AND action_kind = :action_kind", "AND action_kind = :action_kind AND 0")),
    sql(
        "insert_delivery",
        ("VALUES (:source,", "SELECT :source,"),
        (":now, :now)", ":now, :now WHERE 1 ON CONFLICT DO NOTHING"),
    ),
)


def duplicate_executed() -> None:
    """A duplicate becomes a command of its own."""
    honest = of(KeyedRequest, "of")
    counted = iter(range(1, 1000))

    def of_request(request: Any) -> KeyedRequest:
        number = next(counted)
        return honest(replace(request, source_request_id=f"{request.source_request_id}#{number}"))  # type: ignore[no-any-return] # it is one

    put(KeyedRequest, "of", staticmethod(of_request))
