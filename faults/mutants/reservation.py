"""Seeded bugs in the reservation: in the acknowledgement, and in the identity of a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from slack_sdk.socket_mode.response import SocketModeResponse

from faults.mutants.patching import both, of, patch, put, sql
from ledger.intake import KeyedRequest
from ledger.ledger import Ledger
from ledger.records import DedupeResult, Operation, Reservation
from quotebot.slack.receiver import Envelopes
from quotebot.slack.surface import Reserver


@patch(Envelopes, "answer")
async def ack_before_reserve(_honest: Any, self: Any, client: Any, request: Any) -> bool:
    """The acknowledgement is sent, then the envelope is read."""
    response = SocketModeResponse(envelope_id=request.envelope_id, payload=None)
    await self.ack(request.envelope_id, lambda: client.send_socket_mode_response(response))
    await of(self, "_bolt").answer(request.payload, {"envelope_id": request.envelope_id})
    return True


@patch(Ledger, "reserve")
async def ack_before_the_commit(honest: Any, self: Ledger, request: Any, *, deadline: float | None = None) -> Reservation:
    """The acknowledgement is sent while the reservation is being written."""
    writing = asyncio.create_task(honest(self, request, deadline=deadline))
    self._noting.add(writing)  # keeps the task alive
    await asyncio.sleep(0)
    operation = Operation.reserved(0, KeyedRequest.of(request).key, request, None, self.clock.now_ms())
    return Reservation(DedupeResult.NEW, operation)


@patch(Reserver, "receive")
async def request_id_of_the_envelope(honest: Any, self: Any, command: Any, *, envelope_id: str | None, **more: Any) -> Any:
    """A request is identified by its envelope, which differs at every delivery."""
    return await honest(self, replace(command, source_request_id=str(envelope_id)), envelope_id=envelope_id, **more)


@patch(Reserver, "receive")
async def request_id_of_the_moment(honest: Any, self: Any, command: Any, *, envelope_id: str | None, **more: Any) -> Any:
    """A request is identified by its time of arrival."""
    timed = replace(command, source_request_id=f"{command.source_request_id}:{command.received_at}")
    return await honest(self, timed, envelope_id=envelope_id, **more)


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
