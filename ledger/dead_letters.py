"""Dead letters and replay: the same row, the same key, a new cycle. Replay itself touches nothing outside the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.records import Effect, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger

HISTORY_INLINE: Final = 20  # older cycles stay in `attempts`
Kind = Literal["effect", "operation"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row that failed at least once for good. Times are Unix milliseconds."""

    kind: Kind
    id: int
    operation_key: str
    source: str
    source_request_id: str
    effect_class: str
    aggregate_id: str
    correlation_id: str
    payload: dict[str, Any]
    category: str | None
    last_error: str | None
    attempts: int
    first_failed_at: int | None
    last_attempt_at: int | None
    created_at: int
    updated_at: int
    prior_replay_count: int
    state: str
    status: str  # pending | replaying | replayed | discarded
    external_ref: str | None
    failure_history: list[dict[str, Any]]

    @classmethod
    def of(cls, row: Row) -> DeadLetter:
        """Read one row of the `dead_letters` view."""
        special = ("effect_class", "payload", "failure_history")
        return cls(
            **{name: row[name] for name in cls.__slots__ if name not in special},
            effect_class=row["class"],
            payload=json.loads(row["payload"]),
            failure_history=json.loads(row["failure_history"]),
        )

    @property
    def reference(self) -> str:
        """Return the id people type: `118` for an effect, `op12` for an operation."""
        return str(self.id) if self.kind == "effect" else f"op{self.id}"


class Replay(StrEnum):
    """What a replay request came to."""

    QUEUED = "queued"
    ALREADY_THERE = "already there"
    UNDER_WAY = "under way"
    CLOSED = "closed"  # superseded or discarded: nothing is owed any more
    NOT_FOUND = "not found"
    DELIVERED = "delivered"
    FAILED_AGAIN = "failed again"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The answer to one replay request. `external_ref` is set when it is already there; `detail` names the other operator."""

    reference: str
    outcome: Replay
    effect_class: str = ""
    external_ref: str | None = None
    detail: str | None = None


def parse_reference(text: str) -> tuple[Kind, int]:
    """Read `118` or `op12`. Raises ValueError for anything else."""
    kind: Kind = "operation" if text.startswith("op") else "effect"
    digits = text.removeprefix("op")
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{text!r} is not an id: use the number `quotebot dead list` shows, such as 118 or op12")
    return kind, int(digits)


class DeadLetters:
    """Reads and replays the dead letters of one ledger."""

    def __init__(self, ledger: Ledger, *, build: str) -> None:
        self._ledger = ledger
        self._build = build

    async def list(
        self,
        *,
        status: str | None = "pending",
        effect_class: str | None = None,
        category: str | None = None,
        aggregate_id: str | None = None,
        since: int | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first. `since` is Unix milliseconds."""

        def work(tx: Tx) -> list[DeadLetter]:
            rows = tx.all(
                "list_dead_letters",
                status=status,
                **{"class": effect_class},
                category=category,
                aggregate_id=aggregate_id,
                since=since,
                limit=limit,
            )
            return [DeadLetter.of(row) for row in rows]

        return await self._ledger.database.read(work)

    async def show(self, reference: str) -> DeadLetter | None:
        """Return one dead letter, or None."""
        kind, row_id = parse_reference(reference)

        def work(tx: Tx) -> DeadLetter | None:
            row = tx.one("dead_letter", kind=kind, id=row_id)
            return None if row is None else DeadLetter.of(row)

        return await self._ledger.database.read(work)

    async def replay(self, reference: str, *, actor: str, reason: str | None, follow: FollowUpDecision) -> ReplayResult:
        """Put one dead letter back to work, in one transaction. `follow` decides what else is owed (the quote's card)."""
        kind, row_id = parse_reference(reference)
        now = self._ledger.clock.now_ms()

        def effect(tx: Tx) -> ReplayResult:
            return self._replay_effect(tx, now, reference, row_id, actor, reason, follow)

        def operation(tx: Tx) -> ReplayResult:
            return self._replay_operation(tx, now, reference, row_id, actor, reason)

        work: Callable[[Tx], ReplayResult] = effect if kind == "effect" else operation
        result = await self._ledger.database.write("replay", work)
        self._ledger.effects_changed.set()
        self._ledger.operations_changed.set()
        return result

    async def standing(self, result: ReplayResult) -> ReplayResult | None:
        """Return how a queued replay ended, or None while it is under way."""
        kind, row_id = parse_reference(result.reference)

        def work(tx: Tx) -> ReplayResult | None:
            row = tx.one("effect_by_id" if kind == "effect" else "operation_by_id", id=row_id)
            assert row is not None  # noqa: S101 -- it was replayed, and rows are not deleted
            outcome = _ENDED.get(row["state"])
            if outcome is None:
                return None
            delivered_before = kind == "effect" and row["state"] == "delivered" and json.loads(row["result"])["already_there"]
            external_ref = row["external_ref"] if kind == "effect" else None
            return replace(result, outcome=Replay.ALREADY_THERE if delivered_before else outcome, external_ref=external_ref)

        return await self._ledger.database.read(work)

    async def record_payload_shown(self, letter: DeadLetter, actor: str) -> None:
        """Note in the audit that a person looked at a payload."""
        now = self._ledger.clock.now_ms()
        await self._ledger.database.write(
            "payload_shown",
            lambda tx: self._ledger.audit.append(
                tx,
                now,
                "dead_letter.payload_shown",
                actor=actor,
                actor_type="operator",
                correlation_id=letter.correlation_id,
                aggregate_id=letter.aggregate_id,
                after={"id": letter.reference},
            ),
        )

    def _replay_effect(
        self, tx: Tx, now: int, reference: str, row_id: int, actor: str, reason: str | None, follow: FollowUpDecision
    ) -> ReplayResult:
        row = tx.one("effect_by_id", id=row_id)
        if row is None:
            return ReplayResult(reference, Replay.NOT_FOUND)
        effect = Effect.of(row)
        if effect.state != "failed":
            return ReplayResult(
                reference, _STANDING[effect.state.value], effect.effect_class, effect.external_ref, _last_replayer(row)
            )
        in_doubt = effect.maybe_sent and effect.semantics == "append"
        replayed = tx.one(
            "replay_effect_in_doubt" if in_doubt else "replay_effect",
            id=effect.id,
            cycle=effect.cycle,
            failure_history=self._closed_cycle(row, actor, now),
            now=now,
        )
        assert replayed is not None  # noqa: S101 -- read in this very transaction
        now_pending = Effect.of(replayed)
        self._ledger.audit.of_effect(
            tx,
            now,
            "effect.replayed",
            now_pending,
            actor=actor,
            recovery_action="reconcile" if in_doubt else "retry",
            after={"reason": reason, "cycle": now_pending.cycle},
        )
        self._ledger.owe_children(tx, now, now_pending, follow(tx, now_pending).effects)
        return ReplayResult(reference, Replay.QUEUED, effect.effect_class)

    def _replay_operation(self, tx: Tx, now: int, reference: str, row_id: int, actor: str, reason: str | None) -> ReplayResult:
        row = tx.one("operation_by_id", id=row_id)
        if row is None:
            return ReplayResult(reference, Replay.NOT_FOUND)
        operation = Operation.of(row)
        if operation.state != "failed_terminal":
            return ReplayResult(reference, _STANDING[operation.state.value], operation.action_kind, None, _last_replayer(row))
        tx.one(
            "replay_operation",
            id=operation.id,
            cycle=operation.cycle,
            failure_history=self._closed_cycle(row, actor, now),
            now=now,
        )
        self._ledger.audit.of_operation(
            tx, now, "operation.replayed", operation, actor=actor, recovery_action="retry", after={"reason": reason}
        )
        return ReplayResult(reference, Replay.QUEUED, operation.action_kind)

    def _closed_cycle(self, row: Row, actor: str, now: int) -> str:
        history = json.loads(row["failure_history"])
        history.append(
            {
                "cycle": row["cycle"],
                "attempts": row["attempts"],
                "first_failed_at": row["first_failed_at"],
                "failed_at": row["finished_at"],
                "category": row["category"],
                "last_error": row["last_error"],
                "handler_version": self._build,
                "replayed_by": actor,
                "replayed_at": now,
            }
        )
        return json.dumps(history[-HISTORY_INLINE:], sort_keys=True)


_ENDED: Final = {
    "delivered": Replay.DELIVERED,
    "completed": Replay.DELIVERED,
    "failed": Replay.FAILED_AGAIN,
    "failed_terminal": Replay.FAILED_AGAIN,
    "superseded": Replay.CLOSED,
    "discarded": Replay.CLOSED,
}

_STANDING: Final = {
    "delivered": Replay.ALREADY_THERE,
    "completed": Replay.ALREADY_THERE,
    "pending": Replay.UNDER_WAY,
    "in_flight": Replay.UNDER_WAY,
    "uncertain": Replay.UNDER_WAY,
    "reserved": Replay.UNDER_WAY,
    "in_progress": Replay.UNDER_WAY,
    "failed_retryable": Replay.UNDER_WAY,
    "superseded": Replay.CLOSED,
    "discarded": Replay.CLOSED,
}


def _last_replayer(row: Row) -> str | None:
    history = json.loads(row["failure_history"])
    return history[-1]["replayed_by"] if history else None
