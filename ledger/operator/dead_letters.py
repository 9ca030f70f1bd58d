"""Dead letters: reading, replaying and resolving them. Only replay.py and actions.py change rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ledger.intake import KeyedRequest
from ledger.ledger import no_follow_ups
from ledger.operator import actions
from ledger.operator import replay as replays
from ledger.operator.actions import Ruling, Verdict
from ledger.operator.replay import Expectation, Order, Replay, ReplayPreview, ReplayResult
from ledger.operator.trace import label_of
from ledger.records import DedupeResult, Operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.operator.trace import Kind
    from ledger.records import ActorType, Effect, EffectIntent, Request, Reservation

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "Expectation",
    "Filters",
    "Replay",
    "ReplayPreview",
    "ReplayResult",
    "Ruling",
    "parse_reference",
]

T = TypeVar("T")
Status = Literal["pending", "replaying", "replayed", "discarded", "uncertain"]
UNKNOWN: Final = "unknown"  # in a cause, as in the statements
REPLAYED_ORDINAL: Final = 800  # within a cycle, of what is enqueued when a dead command was replayed into it
DISCARDED_ORDINAL: Final = 900  # ... and when it was discarded
NO_LIMIT: Final = 2**62  # more than the rows a file can hold


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row that failed for good at least once, or that is uncertain. Times are Unix milliseconds."""

    kind: Kind
    id: int
    operation_key: str
    source: str
    source_request_id: str
    effect_class: str
    target: str
    semantics: str | None  # None for an operation
    maybe_sent: bool
    aggregate_id: str
    correlation_id: str
    payload: dict[str, Any]
    category: str | None
    code: str | None
    last_error: str | None
    attempts: int
    first_failed_at: int | None
    last_attempt_at: int | None
    created_at: int
    updated_at: int
    cycle: int
    prior_replay_count: int
    handler_version: str | None  # the build of its last replay
    replayed_by: str | None
    state: str
    status: str  # pending | replaying | replayed | discarded | uncertain
    external_ref: str | None
    failure_history: list[dict[str, Any]]
    label: str = ""  # the readable name of its command

    @classmethod
    def of(cls, tx: Tx, row: Row) -> DeadLetter:
        """Read one row of the `dead_letters` view, and the name of its command."""
        special = ("effect_class", "payload", "failure_history", "maybe_sent", "label")
        return cls(
            **{name: row[name] for name in cls.__slots__ if name not in special},
            effect_class=row["class"],
            maybe_sent=bool(row["maybe_sent"]),
            payload=json.loads(row["payload"]),
            failure_history=json.loads(row["failure_history"]),
            label=label_of(tx.required("operation_by_key", operation_key=row["operation_key"])),
        )

    @property
    def cause(self) -> str:
        """Return class, category and code, as `quotebot replay --cause` takes them."""
        return f"{self.effect_class}/{self.category or UNKNOWN}/{self.code or UNKNOWN}"

    @property
    def reference(self) -> str:
        """Return the id that people type: `118` for an effect, `op12` for an operation."""
        return str(self.id) if self.kind == "effect" else f"op{self.id}"


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of a dead letter list; None does not filter. `since` is Unix milliseconds.

    `effect_class` may also be a family, such as crm; `cause` is class/category/code.
    `operation_key` may also be the short reference shown to people; `request_id` is the source's own id of the request.
    """

    status: Status | None = "pending"
    effect_class: str | None = None
    classes: tuple[str, ...] = field(default=())  # any of them; empty: all
    category: str | None = None
    cause: str | None = None
    aggregate_id: str | None = None
    since: int | None = None
    operation_key: str | None = None
    request_id: str | None = None

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the listing statements."""
        return {
            "status": self.status,
            "class": self.effect_class,
            "classes": f",{','.join(self.classes)}," if self.classes else None,
            "category": self.category,
            "cause": self.cause,
            "aggregate_id": self.aggregate_id,
            "since": self.since or 0,
            "operation_key": self.operation_key,
            "request_id": self.request_id,
        }


def parse_reference(text: str) -> tuple[Kind, int]:
    """Parse `118` or `op12`. Raises ValueError for any other text."""
    kind: Kind = "operation" if text.startswith("op") else "effect"
    digits = text.removeprefix("op")
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{text!r} is not an id: use the number `quotebot dead list` shows, such as 118 or op12")
    return kind, int(digits)


class DeadLetters:
    """Access to the dead letters of one ledger: list, replay, discard, resubmit and resolve. Replayed rows record `build`."""

    def __init__(
        self, ledger: Ledger, *, build: str, redrawn: Callable[[Tx, Operation], Sequence[EffectIntent]] = lambda _tx, _operation: ()
    ) -> None:
        """`redrawn` returns the effects that show what became of a dead command; `follow` decides those of a dead effect."""
        self._ledger = ledger
        self._build = build
        self._redrawn = redrawn

    async def list(self, filters: Filters | None = None, *, limit: int | None = 100, newest: bool = False) -> list[DeadLetter]:
        """Return dead letters, those that wait longest first, or the `newest` first."""
        chosen = filters or Filters()
        statement = "newest_dead_letters" if newest else "list_dead_letters"
        if chosen.status == "uncertain":
            statement = "list_uncertain"
        parameters = {**chosen.parameters(), "limit": NO_LIMIT if limit is None else limit}
        return await self._ledger.database.read(lambda tx: [DeadLetter.of(tx, row) for row in tx.all(statement, **parameters)])

    async def show(self, reference: str) -> DeadLetter | None:
        """Return one dead letter, or None."""
        return (await self.show_each([reference]))[0]

    async def show_each(self, references: Sequence[str]) -> Sequence[DeadLetter | None]:
        """Return the dead letter of each reference, or None."""
        parsed = [parse_reference(reference) for reference in references]

        def work(tx: Tx) -> list[DeadLetter | None]:
            rows = [tx.one("dead_letter", kind=kind, id=row_id) for kind, row_id in parsed]
            return [None if row is None else DeadLetter.of(tx, row) for row in rows]

        return await self._ledger.database.read(work)

    async def replay(
        self,
        reference: str,
        *,
        actor: str,
        reason: str | None,
        follow: FollowUpDecision,
        cycle_seen: int | None = None,
        due_at: int | None = None,
        look_now: bool = False,
    ) -> ReplayResult:
        """Return one dead letter to the queue, in one transaction; nothing outside the ledger is changed.

        `follow` decides further effects to enqueue (the quote's card). `cycle_seen` is the cycle the operator looked at: after
        another replay nothing is done. `due_at` (ms) is the earliest time of its claim. `look_now` also accepts an uncertain effect
        and reconciles it now.
        """
        order = self._order(reference, actor, reason, follow, cycle_seen=cycle_seen, due_at=due_at, look_now=look_now)

        def work(tx: Tx) -> ReplayResult:
            result = replays.replay(self._ledger, tx, order)
            if result.outcome is Replay.QUEUED:
                self._redraw(tx, order, REPLAYED_ORDINAL)
            return result

        return await self._write("replay", work)

    async def standings(self, results: Sequence[ReplayResult]) -> Sequence[ReplayResult | None]:
        """Return how each queued replay ended, or None while it is under way; all from one snapshot."""
        parsed = [(result, *parse_reference(result.reference)) for result in results]
        return await self._ledger.database.read(lambda tx: [replays.standing(tx, *each) for each in parsed])

    async def preview(
        self, references: Sequence[str], ask: Callable[[Effect], Awaitable[ReplayPreview]] | None = None
    ) -> Sequence[ReplayPreview]:
        """Return the expected result of replaying each. `ask` may query the external service about effects that need a lookup."""
        parsed = [parse_reference(reference) for reference in references]
        expected = await self._ledger.database.read(lambda tx: [replays.preview_replay(tx, *each) for each in parsed])
        if ask is None:
            return [foresight for foresight, _ in expected]
        return [
            foresight if effect is None or foresight.expectation is not Expectation.LOOKED_FOR else await ask(effect)
            for foresight, effect in expected
        ]

    async def discard(
        self, reference: str, *, actor: str, reason: str, follow: FollowUpDecision, cycle_seen: int | None = None
    ) -> Ruling:
        """Close one dead letter for good. Nothing is deleted; effects that wait for a discarded effect are superseded."""
        order = self._order(reference, actor, reason, follow, cycle_seen=cycle_seen)

        def work(tx: Tx) -> Ruling:
            ruling = actions.discard(self._ledger, tx, order)
            if ruling.verdict is Verdict.DONE:
                self._redraw(tx, order, DISCARDED_ORDINAL)
            return ruling

        return await self._write("discard", work)

    async def resubmit(
        self, reference: str, request: Request, *, actor: str, reason: str | None
    ) -> tuple[Ruling, Reservation | None]:
        """Reserve an edited copy of a dead command and discard the original, in one transaction."""
        order = self._order(reference, actor, reason, no_follow_ups)
        keyed = KeyedRequest.of(request)

        def work(tx: Tx) -> tuple[Ruling, Reservation | None]:
            ruling, reservation = actions.resubmit(self._ledger, tx, order, keyed)
            if reservation is not None and reservation.sighting is DedupeResult.NEW:
                self._redraw(tx, order, DISCARDED_ORDINAL)
            return ruling, reservation

        return await self._write("resubmit", work)

    async def resolve(
        self,
        reference: str,
        *,
        delivered: bool,
        actor: str,
        reason: str,
        follow: FollowUpDecision,
        external_ref: str | None = None,
        objection: Callable[[Effect, str | None], str | None] = lambda _effect, _external_ref: None,
    ) -> Ruling:
        """Resolve an uncertain effect on an operator's statement: it was delivered, or it is to be sent again.

        `objection` returns why this effect cannot be marked as delivered with this `external_ref`, or None.
        """
        order = self._order(reference, actor, reason, follow)
        return await self._write(
            "resolve",
            lambda tx: actions.resolve(
                self._ledger, tx, order, delivered=delivered, external_ref=external_ref, objection=objection
            ),
        )

    async def record_payload_shown(self, letter: DeadLetter, actor: str, actor_type: ActorType = "operator") -> None:
        """Record in the audit that an operator viewed a payload."""
        now = self._ledger.clock.now_ms()
        await self._ledger.database.write(
            "payload_shown",
            lambda tx: self._ledger.audit.append(
                tx,
                now,
                "dead_letter.payload_shown",
                actor=actor,
                actor_type=actor_type,
                operation_key=letter.operation_key,
                effect_id=letter.id if letter.kind == "effect" else None,
                correlation_id=letter.correlation_id,
                aggregate_id=letter.aggregate_id,
                retry_count=letter.attempts,
                failure_category=letter.category,
                after={"id": letter.reference},
            ),
        )

    def _redraw(self, tx: Tx, order: Order, ordinal: int) -> None:
        """Enqueue what shows a changed dead command; `ordinal` separates its key from others of the same cycle."""
        if order.kind == "operation":
            operation = Operation.of(tx.required("operation_by_id", id=order.row_id))
            self._ledger.enqueue_for(tx, order.now, operation, self._redrawn(tx, operation), first=ordinal)

    def _order(self, reference: str, actor: str, reason: str | None, follow: FollowUpDecision, **more: Any) -> Order:
        kind, row_id = parse_reference(reference)
        return Order(reference, kind, row_id, actor, reason, follow, self._build, self._ledger.clock.now_ms(), **more)

    async def _write(self, name: str, work: Callable[[Tx], T]) -> T:
        result = await self._ledger.database.write(name, work)
        self._ledger.effects_changed.set()
        self._ledger.operations_changed.set()
        return result
