"""Trace of one action, and lists of commands: delivery, decision, effects and attempts. Reads only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ledger.keys import operation_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Row, Tx


ROW_ID_MAX: Final = 2**63 - 1
Kind = Literal["effect", "operation"]
# References that people use for rows: c-xxxxxxxx or a key for an action, op12 for a command, 118 or #118 for an effect.
REFERENCE: Final = re.compile(r"(?:c-)?(?P<key>[0-9a-f]{8,64})|op(?P<operation>[0-9]{1,19})|#?(?P<effect>[0-9]{1,19})")


def row_of(tx: Tx, kind: Kind, row_id: int, *, to_change: bool = False) -> Row | None:
    """Return the effect or the operation with that id; `to_change`: it stays as it is found until the commit."""
    return None if row_id > ROW_ID_MAX else tx.one(f"{kind}_to_change" if to_change else f"{kind}_by_id", id=row_id)


SLACK_MS: Final = 2_000  # concurrent commits may be written in a different order than requested
WINDOW_ROWS: Final = 5_000


# ------------------------------------------------------------------------------------------------------------- one action


@dataclass(frozen=True, slots=True)
class TracedEffect:
    """An effect with its attempts."""

    row: Row
    attempts: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One user action: its delivery, its operation, its audit events, its effects and their attempts.

    The rows contain payloads and texts; callers that print them must omit those.
    """

    operation: Row
    delivery: Row | None  # None: purged, the operation is kept longer
    attempts: tuple[Row, ...]
    events: tuple[Row, ...]
    effects: tuple[TracedEffect, ...]


def find_operations(tx: Tx, reference: str, limit: int = 100) -> list[Row]:
    """Return the operations that a reference means, newest first.

    A reference is c-xxxxxxxx, an operation key or at least its first eight digits, op12, an effect's id, or an aggregate's id.
    Eight digits that match both an effect's id and the beginning of a key mean the key.
    """
    read = REFERENCE.fullmatch(reference)
    if read is None:
        return tx.all("operations_of_aggregate", aggregate_id=reference, limit=limit)
    if read["operation"]:
        return [row for row in [row_of(tx, "operation", int(read["operation"]))] if row is not None]
    if read["key"]:
        found = tx.all("operations_by_key", begin=read["key"], upto=read["key"] + "g", limit=limit)  # g: after every hex digit
        if found or not read["key"].isdigit() or reference.startswith("c-"):
            return found
    number = read["effect"] or read["key"]
    effect = None if len(number) > len(str(ROW_ID_MAX)) else row_of(tx, "effect", int(number))
    return [] if effect is None else [tx.required("operation_by_id", id=effect["operation_id"])]


def trace(tx: Tx, operation: Row) -> Trace:
    """Collect the rows of one operation."""
    attempts = tuple(tx.all("attempts_of_operation", operation_id=operation["id"]))
    effects = tuple(
        TracedEffect(row, tuple(tx.all("attempts_of_effect", effect_id=row["id"])))
        for row in tx.all("effects_of_operation", operation_id=operation["id"])
    )
    delivery = tx.one(
        "find_delivery",
        source=operation["source"],
        source_request_id=operation["source_request_id"],
        action_kind=operation["action_kind"],
    )
    return Trace(operation, delivery, attempts, tuple(_events(tx, operation, delivery, attempts, effects)), effects)


def _events(tx: Tx, operation: Row, delivery: Row | None, attempts: Sequence[Row], effects: Sequence[TracedEffect]) -> list[Row]:
    """Find an action's audit events: in the chain of its quote or, before it had a quote, by the times in its rows."""
    found: dict[int, Row] = {}
    chains = {operation["aggregate_id"], *(effect.row["aggregate_id"] for effect in effects)}
    for chain in chains - {"new"}:
        since = operation["created_at"] - SLACK_MS
        for row in tx.all("audit_chain_since", aggregate_id=chain, since=since, correlation_id=operation["correlation_id"]):
            found[row["id"]] = row
    if "new" in chains:
        moments = _moments(operation, delivery, attempts, effects)
        for row in _around(tx, moments, operation["correlation_id"]):
            found[row["id"]] = row
    return [found[number] for number in sorted(found)]


def _moments(operation: Row, delivery: Row | None, attempts: Sequence[Row], effects: Sequence[TracedEffect]) -> list[int]:
    """Return every recorded time (ms) of an action, in order."""
    rows: list[tuple[Row, tuple[str, ...]]] = [
        (operation, ("created_at", "claimed_at", "last_attempt_at", "finished_at", "updated_at"))
    ]
    rows += [] if delivery is None else [(delivery, ("last_seen_at",))]
    tried = [*attempts, *(attempt for effect in effects for attempt in effect.attempts)]
    rows += [(row, ("started_at", "ended_at")) for row in tried]
    rows += [(effect.row, ("created_at", "claimed_at", "finished_at", "updated_at")) for effect in effects]
    return sorted({row[name] for row, names in rows for name in names if row[name] is not None})


def _around(tx: Tx, moments: Sequence[int], correlation_id: str) -> list[Row]:
    """Return an action's events around these times. Ids grow with time, so each is found by binary search."""
    found: list[Row] = []
    done = 0
    for moment in moments:
        first = max(done, _first_event_at(tx, moment - SLACK_MS))
        page = tx.all("audit_page", first=first, limit=WINDOW_ROWS)
        window = [row for row in page if row["at"] <= moment + SLACK_MS]
        found += [row for row in window if row["correlation_id"] == correlation_id]
        done = max([done, *(row["id"] + 1 for row in window)])
    return found


def _first_event_at(tx: Tx, at: int) -> int:
    """Return the id of the first audit event at or after a time (ms), or a smaller one of no event. Ids may have gaps."""
    low, high = 1, (tx.required("last_audit_id")["id"] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        row = tx.one("audit_time", id=middle)
        if row is not None and row["at"] < at:
            low = row["id"] + 1
        else:
            high = middle
    return low


# ---------------------------------------------------------------------------------------------------------------- listing


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Filter of operations; None does not filter. `since` is Unix milliseconds, compared with the time of recording."""

    state: str | None = None
    aggregate_id: str | None = None
    actor: str | None = None
    action_kind: str | None = None
    since: int | None = None

    def fits(self, row: Row) -> bool:
        """Tell whether an operation passes the filter, apart from its aggregate."""
        wanted = {"state": self.state, "actor": self.actor, "action_kind": self.action_kind}
        return row["created_at"] >= (self.since or 0) and all(value is None or row[name] == value for name, value in wanted.items())


def label_of(operation: Row) -> str:
    """Return the readable name of a stored command."""
    seen = operation["aggregate_version"]
    version = operation["pinned_version"] if seen is None else seen
    return operation_label(operation["action_kind"], operation["actor"], operation["aggregate_id"], version)


def list_effects(tx: Tx, choice: OperationFilter, effect_class: str | None, limit: int) -> list[tuple[Row, Row]]:
    """Return the effects that are not done, each with its operation; those that were enqueued first come first.

    The state and the aggregate of the filter are the effect's, the actor and the kind those of its operation.
    """
    wanted = {"state": choice.state, "aggregate_id": choice.aggregate_id, "class": effect_class}
    wanted |= {"actor": choice.actor, "action_kind": choice.action_kind}
    rows = tx.all("unfinished_effects", **wanted, since=choice.since or 0, limit=limit)
    return [(row, tx.required("operation_by_id", id=row["operation_id"])) for row in rows]


def list_operations(tx: Tx, choice: OperationFilter, limit: int) -> list[Row]:
    """Return operations: unfinished ones first, then dead letters, then finished ones; the newest of each first."""
    if choice.aggregate_id is not None:
        found = tx.all("operations_of_aggregate", aggregate_id=choice.aggregate_id, limit=WINDOW_ROWS)
        return sorted((row for row in found if choice.fits(row)), key=lambda row: (_RANK[row["state"]], -row["id"]))[:limit]
    parameters = {"actor": choice.actor, "action_kind": choice.action_kind, "since": choice.since or 0, "limit": limit}
    rows: list[Row] = []
    if choice.state is None or _RANK[choice.state] == 0:
        rows += tx.all("unfinished_operations", state=choice.state, **parameters)
    if choice.state in (None, "failed_terminal"):
        rows += tx.all("dead_operations", **parameters)
    if choice.state in ("completed", "discarded"):
        rows += tx.all("finished_operations", state=choice.state, **parameters)
    elif choice.state is None and len(rows) < limit:
        known = {row["id"] for row in rows}
        rows += [row for row in tx.all("finished_operations", state=None, **parameters) if row["id"] not in known]
    return rows[:limit]


_RANK: Final = {
    "reserved": 0,
    "in_progress": 0,
    "failed_retryable": 0,
    "failed_terminal": 1,
    "completed": 2,
    "discarded": 2,
}
