"""Retention: finished rows are deleted after their retention period, unfinished rows never; the audit stays complete.

A purge works in small transactions; concurrent writers share a batch or wait a few milliseconds. Its counts are stored with the
batches, so the next purge continues an interrupted one and audits both together.

A tombstone replaces each purged operation: a late redelivery still gets an answer and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from ledger import measures
from ledger.records import QUOTEBOT

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.ledger import Ledger

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
DELIVERIES_MS_MIN: Final = 2 * HOUR_MS  # longer than any source repeats a delivery
BATCH: Final = 100  # rows in one transaction
BATCH_SECONDS: Final = 0.010  # a slower batch was too large
# Pause between batches: long enough for the writer to be idle, so that the WAL is checkpointed in small pieces.
REST_SECONDS: Final = 0.035
ROWS_PER_OPERATION: Final = 5  # itself, its effects and its tombstone, as a rule
FORESEEN_AT_ONCE: Final = 1_000
META: Final = "retention"  # what a running or interrupted purge has deleted but not yet audited
_DONE_STATES: Final = frozenset({"completed", "discarded"})


@dataclass(frozen=True, slots=True)
class Keep:
    """Retention periods. Raises ValueError for deliveries that could be purged while their source still repeats them."""

    deliveries_ms: int = 7 * DAY_MS
    tombstones_ms: int = 400 * DAY_MS
    holds_ms: int = 90 * DAY_MS  # upper bound of the age of an effect of any class

    def __post_init__(self) -> None:
        if self.deliveries_ms < DELIVERIES_MS_MIN:
            raise ValueError("deliveries are kept for 2 hours at least: until then a source may repeat itself")
        if self.tombstones_ms < self.deliveries_ms or self.holds_ms <= 0:
            raise ValueError("tombstones are kept as long as deliveries at least, and holds for some time")


@dataclass(frozen=True, slots=True)
class Purged:
    """Numbers of rows that were deleted, or would be."""

    deliveries: int = 0
    operations: int = 0
    effects: int = 0
    attempts: int = 0
    tombstones: int = 0
    holds: int = 0

    def __bool__(self) -> bool:
        """Tell whether any row was deleted."""
        return any(asdict(self).values())


KEEP: Final = Keep()
Progress = Callable[[Purged], None]
Rest = Callable[[], Awaitable[None]]
Counts = Counter[str]
BatchStart = tuple[int, int]  # `retain_until` and id of the last operation of the batch before
FIRST: Final[BatchStart] = (0, 0)
P = TypeVar("P")
T = TypeVar("T")


async def rest() -> None:
    """Pause between two batches, so that other writers proceed."""
    await asyncio.sleep(REST_SECONDS)


def quiet(so_far: Purged) -> None:
    """Report no progress."""
    del so_far


async def purge(
    ledger: Ledger,
    now: int,
    *,
    dry_run: bool,
    batch: int = BATCH,
    keep: Keep = KEEP,
    progress: Progress = quiet,
    between: Rest = rest,
    actor: str = QUOTEBOT,
) -> Purged:
    """Delete rows past their retention period, batch by batch; `dry_run` only counts.

    `now` is Unix milliseconds, `progress` receives the counts so far, `between` is awaited between two batches. Raises NotRecorded
    as Database.write does: earlier batches stay deleted, and the next purge continues from there.
    """
    if dry_run:
        return await ledger.database.read(lambda tx: _preview(tx, now, keep))
    await measures.fold(ledger)  # counted before the rows are deleted
    await _Purger(ledger, now, batch, keep, progress, between).run()
    return await ledger.database.write("retention.audit", partial(_one_at_a_time, lambda tx: _audit(ledger, tx, now, actor)))


def close_aggregate(tx: Tx, aggregate_id: str, until: int | None) -> int:
    """Allow purging everything about an aggregate after `until` (ms); None keeps it. Returns how many commands are affected.

    For the domain, inside the transaction that closes or reopens a quote.
    """
    return len(tx.all("retain_aggregate", aggregate_id=aggregate_id, until=until))


class _Purger:
    """One purge run. Each batch is its own transaction and stores the counts of the run in the file."""

    def __init__(self, ledger: Ledger, now: int, batch: int, keep: Keep, progress: Progress, rest: Rest) -> None:
        self._ledger = ledger
        self._now = now
        self._batch = batch
        self._operations_max = max(1, batch // ROWS_PER_OPERATION)
        self._operations = self._operations_max  # per batch: halved while batches are slow, for whatever reason
        self._keep = keep
        self._progress = progress
        self._rest = rest

    async def run(self) -> None:
        await self._batches("retention.deliveries", self._some_deliveries, 0)
        await self._batches("retention.operations", self._some_operations, FIRST, took=self._adapt)
        await self._batches("retention.leftovers", self._some_leftovers, 0)

    async def _batches(
        self,
        name: str,
        delete: Callable[[P, Tx], tuple[P | None, Purged]],
        start: P,
        took: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """Delete batch by batch, until one does not return where the next one begins. `took` receives the seconds of a batch."""
        place: P | None = start
        while place is not None:
            began = self._ledger.clock.monotonic()
            place, so_far = await self._ledger.database.write(name, partial(_one_at_a_time, partial(delete, place)))
            took(self._ledger.clock.monotonic() - began)
            self._progress(so_far)
            if place is not None:
                await self._rest()

    def _adapt(self, seconds: float) -> None:
        slow = seconds > BATCH_SECONDS
        self._operations = max(1, self._operations // 2) if slow else min(self._operations_max, self._operations + 1)

    def _some_deliveries(self, after: int, tx: Tx) -> tuple[int | None, Purged]:
        old, more = _old_deliveries(tx, self._now, self._keep, after, self._batch)
        gone = [row for row in old if _may_go(row)]
        for row in gone:
            tx.one("delete_delivery", id=row["id"])
        return (old[-1]["id"] if more else None), _add(tx, Counter(deliveries=len(gone)))

    def _some_operations(self, after: BatchStart, tx: Tx) -> tuple[BatchStart | None, Purged]:
        rows = _expired(tx, self._now, after, self._operations)
        counts: Counts = Counter()
        for row in _not_needed(tx, rows):
            counts += self._replace_by_tombstones(tx, row)
        if counts:
            measures.checkpoint(tx)
        more = len(rows) == self._operations
        return ((rows[-1]["retain_until"], rows[-1]["id"]) if more else None), _add(tx, counts)

    def _replace_by_tombstones(self, tx: Tx, row: Row) -> Counts:
        """Replace one operation and its rows by a tombstone."""
        tx.one(
            "insert_tombstone",
            operation_key=row["operation_key"],
            payload_hash=row["payload_hash"],
            state=row["state"],
            outcome=row["outcome"],
            finished_at=row["finished_at"],
            expires_at=self._now + self._keep.tombstones_ms,
        )
        attempts = len(tx.all("delete_attempts_of_effects", id=row["id"])) + len(
            tx.all("delete_attempts_of_operation", id=row["id"])
        )
        effects = len(tx.all("delete_effects_of_operation", id=row["id"]))
        deliveries = len(
            tx.all(
                "delete_delivery_of_operation",
                source=row["source"],
                source_request_id=row["source_request_id"],
                action_kind=row["action_kind"],
                id=row["id"],
            )
        )
        operations = len(tx.all("delete_operation", id=row["id"]))
        return Counter(operations=operations, effects=effects, attempts=attempts, deliveries=deliveries)

    def _some_leftovers(self, after: int, tx: Tx) -> tuple[int | None, Purged]:
        tombstones = len(tx.all("delete_tombstones", now=self._now, limit=self._batch))
        holds = len(tx.all("delete_holds", before=self._now - self._keep.holds_ms, limit=self._batch))
        so_far = _add(tx, Counter(tombstones=tombstones, holds=holds))
        return (after + 1 if self._batch in (tombstones, holds) else None), so_far


def _one_at_a_time(work: Callable[[Tx], T], tx: Tx) -> T:
    """Run `work` of a purge while no other process does such work."""
    tx.one("lock_job", name=META)
    return work(tx)


def _old_deliveries(tx: Tx, now: int, keep: Keep, after: int, limit: int) -> tuple[list[Row], bool]:
    """Return the next old deliveries, and whether there may be more: they were stored in the order of their time."""
    page = tx.all("deliveries_after", after=after, limit=limit)
    old = list(takewhile(lambda row: row["received_at"] < now - keep.deliveries_ms, page))
    return old, len(old) == limit


def _may_go(delivery: Row) -> bool:
    """Tell whether a delivery may be deleted: its command is done. Unfinished and failed commands keep their delivery."""
    return delivery["state"] is None or delivery["state"] in _DONE_STATES


def _expired(tx: Tx, now: int, after: BatchStart, limit: int) -> list[Row]:
    return tx.all("expired_operations", after=after[0], after_id=after[1], now=now, limit=limit)


def _not_needed(tx: Tx, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows that are not kept and whose quotes have no unfinished or failed rows, which may need the others."""
    busy: dict[str, bool] = {}
    for row in rows:
        if row["kept"]:
            continue
        names = [found["aggregate_id"] for found in tx.all("aggregates_of_operation", operation_id=row["id"])]
        for name in names:
            if name not in busy:
                busy[name] = tx.one("aggregate_is_busy", aggregate_id=name) is not None
        if not any(busy[name] for name in names):
            yield row


def _preview(tx: Tx, now: int, keep: Keep) -> Purged:
    """Count the rows a purge would delete."""
    counts: Counts = Counter()
    after, more = 0, True
    while more:
        old, more = _old_deliveries(tx, now, keep, after, FORESEEN_AT_ONCE)
        counts["deliveries"] += sum(map(_may_go, old))
        after = old[-1]["id"] if old else after
    place = FIRST
    while rows := _expired(tx, now, place, FORESEEN_AT_ONCE):
        for row in _not_needed(tx, rows):
            counts += _belongings(tx, row, now - keep.deliveries_ms)
        place = (rows[-1]["retain_until"], rows[-1]["id"])
    tombstones = tx.required("count_tombstones_expired", now=now)["found"]
    holds = tx.required("count_holds_ended", before=now - keep.holds_ms)["found"]
    counts += Counter(tombstones=tombstones, holds=holds)
    return Purged(**counts)


def _belongings(tx: Tx, row: Row, old_before: int) -> Counts:
    """Count one operation with its rows; an old delivery was already counted with the deliveries."""
    effects = tx.all("effects_of_operation", operation_id=row["id"])
    attempts = sum(len(tx.all("attempts_of_effect", effect_id=effect["id"])) for effect in effects)
    attempts += len(tx.all("attempts_of_operation", operation_id=row["id"]))
    delivery = tx.one(
        "find_delivery", source=row["source"], source_request_id=row["source_request_id"], action_kind=row["action_kind"]
    )
    young = delivery is not None and delivery["operation_id"] == row["id"] and delivery["received_at"] >= old_before
    return Counter(operations=1, effects=len(effects), attempts=attempts, deliveries=int(young))


def _so_far(tx: Tx) -> Counts:
    """Return what was deleted and not audited yet, by this run or by an interrupted one."""
    row = tx.one("meta", name=META)
    return Counter() if row is None else Counter(json.loads(row["value"]))


def _add(tx: Tx, counts: Counts) -> Purged:
    so_far = _so_far(tx) + counts
    if counts.total():
        tx.one("put_meta", name=META, value=json.dumps(so_far, sort_keys=True))
    return Purged(**so_far)


def _audit(ledger: Ledger, tx: Tx, now: int, actor: str) -> Purged:
    """Write the single audit event of the run; none when nothing was deleted. Forget the writers that have ended."""
    tx.all("forget_writers", keep=DAY_MS)
    purged = Purged(**_so_far(tx))
    if purged:
        actor_type = "system" if actor == QUOTEBOT else "operator"
        ledger.audit.append(tx, now, "retention.purged", actor=actor, actor_type=actor_type, after=asdict(purged))
        tx.one("delete_meta", name=META)
    return purged
