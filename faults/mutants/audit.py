"""Seeded bugs in the audit, in replays and in retention."""

from __future__ import annotations

from functools import partial
from typing import Any

from faults.mutants.patching import both, of, patch, put, sql
from ledger.audit import events as audit
from ledger.audit.events import Audit
from ledger.ledger import Ledger
from ledger.operator import actions, replay


@patch(Audit, "of_effect")
def delivery_not_audited(honest: Any, self: Any, tx: Any, at: int, event_type: str, effect: Any, **details: Any) -> None:
    """One kind of change leaves no event."""
    if event_type != "effect.delivered":
        honest(self, tx, at, event_type, effect, **details)


def audited_apart() -> None:
    """A command is reserved in one transaction, its event is written in a later one."""
    reserve, of_operation = of(Ledger, "reserve"), of(Audit, "of_operation")
    later: list[Any] = []

    def postpone(self: Any, tx: Any, at: int, event_type: str, operation: Any, **details: Any) -> None:
        if event_type == "operation.reserved":
            later.append((at, event_type, operation))
        else:
            of_operation(self, tx, at, event_type, operation, **details)

    async def reserve_first(self: Ledger, request: Any, *, deadline: float | None = None) -> Any:
        reservation = await reserve(self, request, deadline=deadline)
        events, later[:] = later[:], []
        for event in events:
            await self.database.write("audit", lambda tx, event=event: of_operation(self.audit, tx, *event))  # type: ignore[misc] # bound here
        return reservation

    put(Audit, "of_operation", postpone)
    put(Ledger, "reserve", reserve_first)


@patch(audit, "values_mac")
def chain_not_linked(honest: Any, key: Any, _previous: Any, values: Any) -> Any:
    """Each event is signed as if it were the first of its chain."""
    return honest(key, bytes(32), values)


# Every commit starts the chain of a quote again: its events do not name their predecessors.
chain_begins_anew = sql(
    "audit_head", ("SELECT event_id,", "SELECT CASE WHEN aggregate_id LIKE 'Q-%' THEN NULL ELSE event_id END AS event_id,")
)


# A replay drops the history of the closed cycle.
history_dropped = both(
    *(partial(put, module, "closed_cycle", lambda _row, _build, _actor, _now: "[]") for module in (replay, actions))
)
no_tombstone = sql("insert_tombstone", ("VALUES (:operation_key", "SELECT :operation_key"), (":expires_at)", ":expires_at WHERE 0"))
