"""Metrics of the ledger: total counts and the current state.

A count over the whole audit would take seconds on a file with a million commands. Therefore `fold` counts each row once: it adds
the events and attempts since the last fold to totals in one row (`meta`), and `measure` returns those totals plus the newer rows.
Totals outlive the rows they count: retention folds before it deletes, and keeps the totals of that time as the base of a recount.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ledger.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger

META: Final = "measures"
BASE: Final = "measures.base"  # the totals when rows that they count were last deleted: a recount begins there
FOLD_ROWS: Final = 5_000  # per table and transaction: a few milliseconds of the write lock
PURGED: Final = "purged"  # label of rows whose source or class was purged

Counts = Counter[tuple[str, ...]]  # (measure, label values...)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Number of rows of one kind in one state. `oldest_at` (ms): since when the first of them is due or in flight, if one is."""

    kind: str
    state: str
    count: int
    oldest_at: int | None


@dataclass(frozen=True, slots=True)
class OpenDeadLetters:
    """Open dead letters of one category, and when (ms) the oldest of them first failed."""

    category: str
    count: int
    oldest_at: int | None


@dataclass(frozen=True, slots=True)
class Measures:
    """Metrics of one snapshot. `now` is Unix milliseconds; `schedule_due_at` the due time of the latest scheduled command."""

    now: int
    counts: Mapping[tuple[str, ...], int]
    unfinished: tuple[Unfinished, ...]
    dead: tuple[OpenDeadLetters, ...]
    gates: tuple[Gate, ...]
    schedule_due_at: int | None
    unfolded: int


async def measure(ledger: Ledger) -> Measures:
    """Read all metrics."""
    now = ledger.clock.now_ms()
    return await ledger.database.read(lambda tx: read_measures(tx, now))


def read_measures(tx: Tx, now: int) -> Measures:
    """Read all metrics inside an open transaction."""
    (last_event, last_attempt), (events_upto, attempts_upto, counts) = _last_ids(tx), _totals(tx)
    _count(tx, counts, (events_upto, last_event), (attempts_upto, last_attempt))
    schedule = tx.one("measure_schedule", now=now)
    return Measures(
        now,
        counts,
        tuple(Unfinished(row["kind"], row["state"], row["found"], row["oldest"]) for row in tx.all("measure_unfinished", now=now)),
        tuple(OpenDeadLetters(row["category"] or "unknown", row["found"], row["oldest"]) for row in tx.all("measure_dead_letters")),
        tuple(Gate.of(row) for row in tx.all("all_gates")),
        None if schedule is None else schedule["oldest"],
        last_event - events_upto,
    )


async def fold(ledger: Ledger, *, at_once: int = FOLD_ROWS) -> int:
    """Add the rows since the last fold to the totals; returns how many ids those have. A housekeeping job.

    Each transaction counts at most `at_once` ids of each table. It is `alone`, so no row with a smaller id commits after it.
    """
    folded = 0
    while True:
        ids = await ledger.database.write("measures.fold", partial(_fold_some, at_once=at_once), alone=True)
        folded += ids
        if ids == 0:
            return folded


def _fold_some(tx: Tx, at_once: int) -> int:
    (last_event, last_attempt), (events_upto, attempts_upto, counts) = _last_ids(tx), _totals(tx)
    event = min(last_event, events_upto + at_once)
    attempt = min(last_attempt, attempts_upto + at_once)
    ids = max(0, event - events_upto) + max(0, attempt - attempts_upto)
    if ids == 0:
        return 0
    _count(tx, counts, (events_upto, event), (attempts_upto, attempt))
    tx.one("put_meta", name=META, value=_text(event, attempt, counts))
    return ids


def checkpoint(tx: Tx) -> None:
    """Keep the totals as the base of a recount, in the transaction that deletes rows which they include."""
    tx.one("put_meta", name=BASE, value=tx.required("meta", name=META)["value"])


@dataclass(frozen=True, slots=True)
class Recount:
    """The totals as the events and attempts say, and the base that the recount began with; `right`: those stored are the same."""

    value: str
    base: str | None
    right: bool


def recount(tx: Tx) -> Recount:
    """Count all rows that the stored totals include once more. If those cannot be read: none but the base, to which a fold adds."""
    stored, base = (None if (row := tx.one("meta", name=name)) is None else str(row["value"]) for name in (META, BASE))
    (last_event, last_attempt), (events, attempts, counts) = _last_ids(tx), _totals(tx, BASE)
    try:
        events_upto, attempts_upto, _ = _totals(tx)
    except (ValueError, LookupError, TypeError, AttributeError):
        events_upto, attempts_upto = events, attempts
    events_upto, attempts_upto = max(events, min(events_upto, last_event)), max(attempts, min(attempts_upto, last_attempt))
    _count(tx, counts, (events, events_upto), (attempts, attempts_upto))
    value = _text(events_upto, attempts_upto, counts)
    return Recount(value, base, stored in (None, value))


def replace_totals(tx: Tx, found: Recount) -> bool:
    """Store recounted totals; false if rows were deleted since the recount. The next fold adds what is newer."""
    row = tx.one("meta", name=BASE)
    if found.base != (None if row is None else row["value"]):
        return False
    tx.one("put_meta", name=META, value=found.value)
    return True


def _text(events_upto: int, attempts_upto: int, counts: Counts) -> str:
    value = {
        "events_upto": events_upto,
        "attempts_upto": attempts_upto,
        "counts": sorted([*key, found] for key, found in counts.items()),
    }
    return json.dumps(value, separators=(",", ":"))


def _totals(tx: Tx, name: str = META) -> tuple[int, int, Counts]:
    """Return the ids of the last event and the last attempt that the totals include, and the totals."""
    row = tx.one("meta", name=name)
    stored: dict[str, Any] = {"events_upto": 0, "attempts_upto": 0, "counts": []} if row is None else json.loads(row["value"])
    return stored["events_upto"], stored["attempts_upto"], Counter({tuple(key): found for *key, found in stored["counts"]})


def _last_ids(tx: Tx) -> tuple[int, int]:
    return tx.required("last_audit_id")["id"] or 0, tx.required("last_attempt_id")["id"] or 0


def _count(tx: Tx, counts: Counts, events: tuple[int, int], attempts: tuple[int, int]) -> None:
    """Add the events and attempts after the first id of each pair, up to the second."""
    for row in tx.all("count_audit_events", after=events[0], upto=events[1]):
        for key in _meanings_of_event(row):
            counts[key] += row["found"]
    for row in tx.all("count_attempts", after=attempts[0], upto=attempts[1]):
        for key in _meanings_of_attempts(row):
            counts[key] += row["found"]


_EVENTS: Final = {
    "operation.reserved": ("idempotency", "new"),
    "delivery.conflict": ("idempotency", "conflict"),
    "effect.resolved": ("uncertain_resolutions", "person"),
    "operation.late_result": ("fence_rejections", "operation"),
    "effect.late_result": ("fence_rejections", "effect"),
}


def _meanings_of_event(row: Row) -> list[tuple[str, ...]]:
    """Return the counter keys of one kind of event."""
    if row["event_type"] == "system.error":
        return [("dead_letters", row["category"] or "unknown")]
    if row["event_type"] == "delivery.duplicate":
        source = row["source"]
        return [("idempotency", "tombstone" if source is None else "duplicate"), ("duplicate_deliveries", source or PURGED)]
    return [_EVENTS[row["event_type"]]]


_RESOLVED: Final = {"delivered": "found", "retry": "absent", "bury": "given_up", "drop": "needless"}


def _meanings_of_attempts(row: Row) -> list[tuple[str, ...]]:
    """Return the counter keys of attempts of one kind and outcome."""
    name = "operation" if row["kind"] == "execute" else row["class"] or PURGED
    meanings: list[tuple[str, ...]] = [("attempts", name, row["outcome"])]
    if row["again"]:
        meanings.append(("retry_attempts", name))
    if row["kind"] == "reconcile" and row["outcome"] in _RESOLVED:
        meanings.append(("uncertain_resolutions", _RESOLVED[row["outcome"]]))
    return meanings
