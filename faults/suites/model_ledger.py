"""The ledger as a few dicts: the promises of SPEC §4 to §8 for every verb. Pure code: it knows no SQL and imports nothing.

Rows are `Op` (a command) and `Fx` (an effect). Every verb adds to `events` what the audit must record, to `tries` the attempts that
ended and to `told` the rows that were given up; names are "op3" and "fx7". Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from faults.suites.model_gates import Gates, family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SEMANTICS: Final = {
    "slack.post": "append",
    "slack.card": "convergent",
    "slack.reply": "repeat_once",
    "crm.create": "keyed",
    "crm.update": "convergent",
    "pdf.render": "pure",
}
POISON: Final = 3  # crashes while it was claimed
DAY: Final = 24 * 3_600_000
DELIVERIES_KEPT, TOMBSTONES_KEPT, DISCARDED_KEPT, HOLDS_KEPT = 7 * DAY, 400 * DAY, 30 * DAY, 90 * DAY
ARROWS: Final = frozenset(
    {
        *[("reserved", to) for to in ("in_progress", "discarded")],
        *[("in_progress", to) for to in ("completed", "failed_retryable", "failed_terminal", "reserved")],
        *[("failed_retryable", to) for to in ("in_progress", "failed_terminal", "discarded")],
        *[("failed_terminal", to) for to in ("reserved", "discarded")],
        *[("pending", to) for to in ("in_flight", "superseded", "failed", "discarded")],
        *[("in_flight", to) for to in ("delivered", "pending", "uncertain", "failed", "superseded")],
        *[("uncertain", to) for to in ("in_flight", "delivered", "failed", "superseded")],
        *[("failed", to) for to in ("pending", "uncertain", "delivered", "superseded", "discarded")],
    }
)
UNDER_WAY: Final = ("in_progress", "in_flight")
ENDED: Final = ("completed", "failed_terminal", "discarded", "delivered", "failed", "superseded")
NEEDLESS: Final = ("superseded", "discarded")
Key = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class ModelRow:
    """One command or effect."""

    prefix: ClassVar[str]  # of its name
    id: int
    due: int | None
    touched: int
    state: str
    claims: int = 0
    attempts: int = 0
    fence: int = 0
    cycle: int = 1
    failed: bool = False  # a dead letter, now or earlier

    @property
    def name(self) -> str:
        """The name of this row in events."""
        return f"{self.prefix}{self.id}"


@dataclass(slots=True, kw_only=True)
class Op(ModelRow):
    """One command; `lane` is None if it creates an aggregate."""

    prefix = "op"
    key: Key
    lane: str | None
    state: str = "reserved"
    retain: int | None = None


@dataclass(slots=True, kw_only=True)
class Fx(ModelRow):
    """One effect; `after` is the effect whose result it needs, `looking` is true if this claim checks before it sends."""

    prefix = "fx"
    op: int
    cls: str
    target: str
    after: int | None
    expires: int | None
    not_before: int | None
    aged_from: int
    created: int
    state: str = "pending"
    sent: bool = False  # an attempt may have reached the service
    unknown: bool = False  # given up because its outcome cannot be known
    looking: bool = False
    claimed: int = 0
    steps: tuple[int, ...] = ()

    @property
    def converges(self) -> bool:
        """True if a newer effect with the same target replaces this one."""
        return SEMANTICS[self.cls] == "convergent"


class ExpectedEffect(NamedTuple):
    """An effect to enqueue."""

    cls: str
    target: str
    after: int | None = None
    expires: int | None = None
    not_before: int | None = None


class Verdict(NamedTuple):
    """The result of an attempt: delivered, retry, doubt, bury, drop or hold."""

    kind: str
    delay: int = 0
    spent: bool = True
    sent: bool = False
    unknown: bool = False
    unavailable: bool = False
    until: int | None = None  # the service asked for a pause until then


@dataclass(slots=True)
class Delivery:
    """One delivery, bound to its operation when it first arrives."""

    op: int
    meaning: str
    at: int
    seen: int = 1


class Try(NamedTuple):
    """One attempt that ended."""

    whose: str
    fence: int
    outcome: str
    kind: str


@dataclass(slots=True)
class Model:
    """The whole state of the ledger, as far as SPEC defines its behaviour."""

    ops: dict[int, Op] = field(default_factory=dict)
    fxs: dict[int, Fx] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    tombs: dict[Key, tuple[int, int]] = field(default_factory=dict)  # the operation's id, and the expiry of the tombstone
    gates: Gates = field(default_factory=Gates)
    tries: list[Try] = field(default_factory=list)
    purged_tries: set[int] = field(default_factory=set)
    suspects: set[str] = field(default_factory=set)  # claimed at two crashes: it is tried alone
    waiting: set[str] = field(default_factory=set)  # the kinds of which a suspect waits for its turn
    events: list[tuple[str, str]] = field(default_factory=list)
    told: list[tuple[str, int]] = field(default_factory=list)
    walked: set[tuple[str, str]] = field(default_factory=set)  # transitions, for coverage
    last_op: int = 0
    last_fx: int = 0

    # ------------------------------------------------------------------------------------------------------- commands

    def reserve(self, now: int, request: str, key: Key, meaning: str, lane: str | None) -> tuple[str, int]:
        """Bind a delivery to its operation; return the kind of delivery (new, duplicate, ...) and the operation id (0: purged)."""
        known = self.deliveries.get(request)
        if known is not None:
            known.seen += 1
            kind = "duplicate" if known.meaning == meaning else "conflict"
            self._say(f"delivery.{kind}", f"op{known.op}")
            return kind, known.op
        if key in self.tombs:
            self._say("delivery.duplicate", f"op{self.tombs[key][0]}")
            return "tombstone", 0
        found = next((op for op in self.ops.values() if op.key == key), None)
        if found is None:
            self.last_op += 1
            self.ops[self.last_op] = Op(id=self.last_op, key=key, lane=lane, due=now, touched=now)
        op_id = self.last_op if found is None else found.id
        self.deliveries[request] = Delivery(op_id, meaning, now)
        self._say("operation.reserved" if found is None else "delivery.duplicate", f"op{op_id}")
        return ("new" if found is None else "duplicate"), op_id

    def claim_ops(self, now: int, limit: int) -> list[int]:
        """Claim due commands: the oldest unfinished one of each lane, unless one of the lane is being executed."""
        alone = next((op for op in self.ops.values() if op.name in self.suspects and self._op_due(op, now, suspect=True)), None)
        turn = self._turn("op", alone)
        due = sorted((op for op in self.ops.values() if self._op_due(op, now)), key=lambda op: (op.due, op.id))[:limit]
        taken = due if turn is None else [op for op in turn if isinstance(op, Op)]
        for op in taken:
            self._claim(op, "in_progress", now)
            self._say("operation.claimed", op.name)
        return [op.id for op in taken]

    def execute(self, now: int, op_id: int, fence: int, outcome: str, retain: int | None, owed: Sequence[ExpectedEffect]) -> bool:
        """Complete a command with its effects; false if the claim was lost: nothing is changed then."""
        op = self._held_op(op_id, fence)
        if op is None:
            return False
        self._to(op, "completed", now, claims=0, attempts=op.attempts + 1, retain=op.retain if retain is None else retain)
        self.suspects.discard(op.name)
        self.enqueue(now, op.id, owed)
        self._say(f"operation.{outcome}", op.name)
        return True

    def settle_op(self, now: int, op_id: int, fence: int, how: str, delay: int = 0, owed: Sequence[ExpectedEffect] = ()) -> None:
        """Put back a command that this build cannot read ("shelve": the claim does not count), retry it, or give it up ("bury")."""
        op = self._held_op(op_id, fence)
        if op is None:
            return
        if how == "shelve":
            self._to(op, "reserved", now, due=now + delay, claims=op.claims - 1)
            self._say("operation.shelved", op.name)
            return
        self._tried(op, how)
        self.suspects.discard(op.name)
        if how == "retry":
            self._to(op, "failed_retryable", now, due=now + delay, claims=0, attempts=op.attempts + 1)
            self._say("operation.retry_scheduled", op.name)
        else:
            self._to(op, "failed_terminal", now, claims=0, attempts=op.attempts + 1, failed=True)
            self._say("system.error", op.name)
            self.enqueue(now, op.id, owed, cause=op.name)
            self.told.append((op.name, op.cycle))

    # --------------------------------------------------------------------------------------------------------- effects

    def enqueue(self, now: int, op_id: int, owed: Iterable[ExpectedEffect], cause: str | None = None) -> None:
        """Enqueue effects in the transaction of their cause; a newer update supersedes an older pending one with its target."""
        doubted, needless = [], []
        for deed in owed:
            self.last_fx += 1
            if SEMANTICS[deed.cls] == "convergent":
                older = [fx for fx in self._same_target(deed.cls, deed.target) if fx.state == "pending"]
                doubted += [self.last_fx] if any(fx.sent for fx in older) else []
                for fx in older:
                    self._drop(fx, now)  # unless one superseded before it was its parent
            parent = None if deed.after is None else self.fxs[deed.after]
            starts = max(now, deed.not_before or 0)
            due = starts if parent is None or parent.state == "delivered" else None
            self.fxs[self.last_fx] = Fx(
                id=self.last_fx, op=op_id, **deed._asdict(), aged_from=starts, created=now, due=due, touched=now
            )
            needless += [parent.id] if parent is not None and parent.state in NEEDLESS else []
            if cause is not None:
                self._say("effect.owed", cause)
        for fx_id in doubted:
            self.fxs[fx_id].sent = True
        for parent_id in needless:
            self._drop_waiting(parent_id, now)

    def claim_fxs(self, now: int, slots: Mapping[str, int], max_age: Mapping[str, int]) -> list[tuple[int, bool]]:
        """Claim due effects by class: the oldest unfinished one of each lane. Returns ids, and whether each is checked first."""
        for event in self.gates.lift_ended(now):
            self._say(event, "")
        alone = next((fx for fx in self.fxs.values() if self._fx_due(fx, now, suspect=True) and self._free(fx.cls, slots)), None)
        turn = self._turn("fx", alone)
        taken: list[tuple[int, bool]] = []
        for cls in slots:
            due = sorted((fx for fx in self._of(cls) if self._fx_due(fx, now)), key=lambda fx: (fx.due, fx.id))
            batch = due[: self._free(cls, slots)] if turn is None else [fx for fx in turn if isinstance(fx, Fx) and fx.cls == cls]
            taken += [(fx.id, fx.looking) for fx in batch if self._take(fx, now, max_age.get(cls))]
        return taken

    def _take(self, fx: Fx, now: int, max_age: int | None) -> bool:
        newer = self._newer(fx, "pending") if fx.state == "pending" else None
        if SEMANTICS[fx.cls] == "append" and fx.expires is not None:  # it is given up, not dropped: people may wait for it
            own = fx.expires - fx.created
            max_age = own if max_age is None else min(own, max_age)
        elif fx.expires is not None and fx.expires <= now:
            self._drop(fx, now)
            self.suspects.discard(fx.name)
            return False
        if newer is not None:
            newer.sent |= fx.sent
            self._drop(fx, now)
        elif fx.state == "pending" and max_age is not None and self._age(fx, now) > max_age:
            self._fail(fx, now)
        else:
            fx.looking = fx.state == "uncertain"
            fx.claimed = now
            self._claim(fx, "in_flight", now)
            self._say("effect.claimed", fx.name)
            return True
        self.suspects.discard(fx.name)
        return False

    def settle(self, now: int, fx_id: int, fence: int, verdict: Verdict, owed: Sequence[ExpectedEffect] = ()) -> bool:
        """Record the result of an attempt, with its follow-up effects; false if the claim was lost."""
        fx = self._held_fx(fx_id, fence)
        if fx is None:
            self._say("effect.late_result", f"fx{fx_id}")
            return False
        verdict = self._adjust(fx, verdict, now)
        self._tried(fx, verdict.kind)
        fx.sent |= verdict.kind in ("retry", "doubt", "bury", "hold") and (verdict.sent or verdict.kind == "doubt")
        back = {"due": now + verdict.delay, "claims": fx.claims - 1 if fx.looking else 0, "attempts": fx.attempts + verdict.spent}
        if verdict.kind == "hold":
            self._to(fx, "uncertain" if fx.looking else "pending", now, **{**back, "due": now, "attempts": fx.attempts})
            fx.sent |= fx.looking
        elif verdict.kind in ("retry", "doubt"):
            self._to(fx, "pending" if verdict.kind == "retry" else "uncertain", now, **back)
        elif verdict.kind == "drop":
            self._to(fx, "superseded", now, claims=0)
        else:
            failed = verdict.kind == "bury"
            self._to(fx, "failed" if failed else "delivered", now, claims=0, attempts=fx.attempts + 1, failed=failed or fx.failed)
            fx.unknown = verdict.unknown
        if fx.claims < POISON - 1:
            self.suspects.discard(fx.name)
        self._say(_SETTLED[verdict.kind], fx.name)
        self._after_settle(fx, verdict, now)
        self.enqueue(now, fx.op, owed, cause=fx.name)
        if fx.state == "failed":
            self.told.append((fx.name, fx.cycle))
        return True

    def _adjust(self, fx: Fx, verdict: Verdict, now: int) -> Verdict:
        """Adjust a verdict.

        A login refused before the last resume does not count; a failed update yields to a newer pending one.
        """
        if verdict.kind == "hold" and self.gates.began_before_resume(family(fx.cls), fx.claimed, now):
            return verdict._replace(kind="doubt" if fx.looking else "retry", delay=0, spent=False, until=None)
        newer = self._newer(fx, "pending") if verdict.kind == "retry" else None
        if newer is None:
            return verdict
        newer.sent |= fx.sent or verdict.sent
        return verdict._replace(kind="drop")

    def _after_settle(self, fx: Fx, verdict: Verdict, now: int) -> None:
        if verdict.kind == "delivered":
            self._wake_waiting(fx, now)
        elif verdict.kind == "drop":
            self._drop_waiting(fx.id, now)
        if verdict.kind == "hold":
            news = self.gates.refused_login(fx.cls, now)
        elif verdict.unavailable and verdict.kind != "delivered":
            news = self.gates.unanswered(fx.cls, fx.id, now)
        else:
            news = self.gates.answered(fx.cls, fx.claimed, now)
        if verdict.until is not None and verdict.kind in ("retry", "doubt", "drop"):
            news += self.gates.throttled(fx.cls, now, verdict.until)
        for event in news:
            self._say(event, fx.name)

    def record_step(self, now: int, fx_id: int, fence: int, step: int | None) -> bool:
        """Record the result of a step, or (None) forget all steps; false if the claim was lost."""
        fx = self._held_fx(fx_id, fence)
        if fx is None:
            return False
        fx.touched = now
        fx.steps = () if step is None else tuple(sorted({*fx.steps, step}))
        return True

    # ------------------------------------------------------------------------------------------- processes, one by one

    def crash(self, now: int, answer: ExpectedEffect) -> None:
        """Release, as the next process, the rows that the last one held.

        A row that was claimed at three crashes is given up, and its person is notified.
        """
        for row in self._rows():
            if row.due is not None and row.due > now and row.touched > now:  # written by a clock that was ahead
                row.due, row.touched = now + max(0, row.due - row.touched), now
        self.gates.shorten(now)
        held = [row for row in self._rows() if row.state in UNDER_WAY]
        for op in [row for row in held if isinstance(row, Op)]:
            if op.claims >= POISON:
                self.settle_op(now, op.id, op.fence, "bury", owed=[answer])
            else:
                self._tried(op, "died")
                self._release_op(op, now, op.claims)
        for fx in [row for row in held if isinstance(row, Fx)]:
            self._tried(fx, "died")
            if fx.claims >= POISON:
                fx.sent, fx.claims, fx.attempts = True, 0, fx.attempts + 1
                self._fail(fx, now)
            else:
                self._release_fx(fx, now, fx.claims)
        self.suspects = {row.name for row in self._rows() if row.claims >= POISON - 1 and row.due is not None}
        self.waiting = set()
        for _ in self.gates.try_logins_again(now):
            self._say("class.half_open", "")

    def stop(self, now: int) -> None:
        """Release the held rows at the end of a clean stop, which does not count as a crash."""
        for row in [row for row in self._rows() if row.state in UNDER_WAY]:
            self._tried(row, "released")
            if isinstance(row, Op):
                self._release_op(row, now, row.claims - 1)
            else:
                self._release_fx(row, now, row.claims - 1)

    def _release_op(self, op: Op, now: int, claims: int) -> None:
        self._to(op, "reserved", now, due=now, claims=claims)
        self._say("operation.released", op.name)

    def _release_fx(self, fx: Fx, now: int, claims: int) -> None:
        kind = SEMANTICS[fx.cls]
        if kind == "repeat_once" and fx.sent and not fx.looking:  # it may be sent twice, but not three times
            fx.claims = 0
            self._drop(fx, now)
            return
        doubtful = kind in ("append", "repeat_once")
        fx.sent = True
        self._to(fx, "uncertain" if doubtful else "pending", now, due=now, claims=claims)
        self._say("effect.uncertain" if doubtful else "effect.released", fx.name)

    # ------------------------------------------------------------------------------------------------- what people say

    def pause(self, name: str, now: int) -> bool:
        """Hold a class or a family until a person resumes it."""
        news = self.gates.pause(name, now)
        if news:
            self._say("class.paused", "")
        return news

    def resume(self, name: str, now: int) -> bool:
        """Set what was held to half open: one attempt at a time."""
        resumed = self.gates.resume(name, now)
        for _ in range(resumed):
            self._say("class.half_open", "")
        return resumed > 0

    def replay(self, now: int, name: str, due: int, *, look: bool) -> None:
        """Put a dead letter back to work: the same row, a new cycle. An effect that may have been sent is checked first."""
        row = self.row(name)
        if isinstance(row, Op) and row.state == "failed_terminal":
            self._to(row, "reserved", now, due=due, claims=0, attempts=0, cycle=row.cycle + 1)
            self._say("operation.replayed", name)
        elif isinstance(row, Fx) and row.state == "failed":
            newer = self._newer(row, "pending", "in_flight", "uncertain", "delivered")
            if newer is not None:
                newer.sent |= row.sent and newer.state != "delivered"
                self._drop(row, now)
                return
            doubtful = row.sent and SEMANTICS[row.cls] == "append"
            row.aged_from = now
            self._to(row, "uncertain" if doubtful else "pending", now, due=due, claims=0, attempts=0, cycle=row.cycle + 1)
            self._say("effect.replayed", name)
        elif look and isinstance(row, Fx) and row.state == "uncertain" and row.due is not None:
            row.due, row.touched = min(row.due, due), now
            self._say("effect.replayed", name)

    def discard(self, now: int, name: str) -> None:
        """Close a dead letter; the effects that waited for it are dropped."""
        if self.row(name).state in ("failed_terminal", "failed"):
            self._close(now, name, "discarded")

    def resolve(self, now: int, name: str, *, delivered: bool) -> None:
        """Apply a person's decision about an unknown outcome: it was delivered, or it is to be sent again."""
        fx = self.row(name)
        if isinstance(fx, Op):
            return
        unknown = fx.unknown or (fx.sent and SEMANTICS[fx.cls] == "append")
        if fx.state != "uncertain" and not (fx.state == "failed" and unknown):
            return
        if delivered:
            self._to(fx, "delivered", now)
            self._wake_waiting(fx, now)
        else:
            if fx.state == "uncertain":
                self._fail(fx, now, told=False)
            self._to(fx, "pending", now, due=now, claims=0, attempts=0, cycle=fx.cycle + 1)
            fx.sent, fx.steps, fx.aged_from = False, (), now
        self._say("effect.resolved", fx.name)

    def cancel(self, now: int, name: str) -> None:
        """Close a row that has not begun."""
        if self.row(name).state in ("reserved", "failed_retryable", "pending"):
            self._close(now, name, "cancelled")

    def _close(self, now: int, name: str, event: str) -> None:
        row = self.row(name)
        if isinstance(row, Op):
            self._to(row, "discarded", now, retain=now + DISCARDED_KEPT)
            self._say(f"operation.{event}", name)
        else:
            self._to(row, "discarded", now)
            self._say(f"effect.{event}", name)
            self._drop_waiting(row.id, now)

    def purge(self, now: int) -> None:
        """Delete finished rows that nothing needs; each command leaves a tombstone. The newest row of a table stays, too."""
        before = (len(self.deliveries), len(self.ops), len(self.tombs), len(self.gates.holds))
        for request, delivery in list(self.deliveries.items()):
            if delivery.at >= now - DELIVERIES_KEPT:
                break
            if self.ops[delivery.op].state in ("completed", "discarded"):
                del self.deliveries[request]
        over = [op for op in self.ops.values() if op.retain is not None and op.retain <= now]
        for op in [op for op in over if op.state in ("completed", "discarded") and not self._needed(op)]:
            self._forget(op, now)
        self.tombs = {key: tomb for key, tomb in self.tombs.items() if tomb[1] > now}
        self.gates.holds = [hold for hold in self.gates.holds if hold.ended is None or hold.ended > now - HOLDS_KEPT]
        if before != (len(self.deliveries), len(self.ops), len(self.tombs), len(self.gates.holds)):
            self._say("retention.purged", "")

    def _needed(self, op: Op) -> bool:
        mine = [fx for fx in self.fxs.values() if fx.op == op.id]
        names = {op.name, *(fx.name for fx in mine)}
        newest = (
            op.id == self.last_op or any(fx.id == self.last_fx for fx in mine) or (self.tries and self.tries[-1].whose in names)
        )
        unfinished = any(fx.state not in ("delivered", *NEEDLESS) for fx in mine)
        return bool(newest or unfinished or any(self._busy(fx.target) for fx in mine))

    def _busy(self, quote: str) -> bool:
        owed = any(fx.target == quote and fx.state not in ("delivered", *NEEDLESS) for fx in self.fxs.values())
        return owed or any(op.lane == quote and op.state not in ("completed", "discarded") for op in self.ops.values())

    def _forget(self, op: Op, now: int) -> None:
        mine = {op.name, *(fx.name for fx in self.fxs.values() if fx.op == op.id)}
        self.purged_tries |= {index for index, one in enumerate(self.tries) if one.whose in mine}
        self.tombs[op.key] = (op.id, now + TOMBSTONES_KEPT)
        self.fxs = {fx.id: fx for fx in self.fxs.values() if fx.op != op.id}
        self.deliveries = {request: each for request, each in self.deliveries.items() if each.op != op.id}
        del self.ops[op.id]

    # --------------------------------------------------------------------------------------------------------- private

    def row(self, name: str) -> Op | Fx:
        """Return the row with this name."""
        return self.ops[int(name[2:])] if name.startswith("op") else self.fxs[int(name[2:])]

    def _rows(self) -> Iterator[Op | Fx]:
        yield from self.ops.values()
        yield from self.fxs.values()

    def _say(self, event: str, whose: str) -> None:
        self.events.append((event, whose))

    def _to(self, row: Op | Fx, state: str, now: int, *, due: int | None = None, **changes: object) -> None:
        if (row.state, state) not in ARROWS:
            raise AssertionError(f"{row.name}: {row.state} -> {state} is no arrow")
        self.walked.add((row.state, state))
        row.state, row.due, row.touched = state, due, now
        for name, value in changes.items():
            setattr(row, name, value)

    def _claim(self, row: Op | Fx, state: str, now: int) -> None:
        self._to(row, state, now, claims=row.claims + 1, fence=row.fence + 1)

    def _tried(self, row: Op | Fx, outcome: str) -> None:
        kind = "execute" if isinstance(row, Op) else "reconcile" if row.looking else "send"
        self.tries.append(Try(row.name, row.fence, outcome, kind))

    def _fail(self, fx: Fx, now: int, *, told: bool = True) -> None:
        self._to(fx, "failed", now, failed=True, unknown=False)
        self._say("system.error", fx.name)
        if told:
            self.told.append((fx.name, fx.cycle))

    def _drop(self, fx: Fx, now: int) -> None:
        if fx.state == "superseded":
            return
        self._to(fx, "superseded", now)
        self._say("effect.superseded", fx.name)
        self._drop_waiting(fx.id, now)

    def _waiting_for(self, parent: int) -> list[Fx]:
        return [fx for fx in self.fxs.values() if fx.after == parent and fx.state == "pending" and fx.due is None]

    def _drop_waiting(self, parent: int, now: int) -> None:
        for fx in self._waiting_for(parent):
            self._drop(fx, now)

    def _wake_waiting(self, parent: Fx, now: int) -> None:
        for fx in self._waiting_for(parent.id):
            fx.due = fx.aged_from = max(now, fx.not_before or 0)
            fx.touched = now

    def _of(self, cls: str) -> Iterator[Fx]:
        return (fx for fx in self.fxs.values() if fx.cls == cls)

    def _same_target(self, cls: str, target: str) -> list[Fx]:
        return [fx for fx in self._of(cls) if fx.target == target]

    def _newer(self, fx: Fx, *states: str) -> Fx | None:
        newer = (other for other in self._same_target(fx.cls, fx.target) if other.id > fx.id and other.state in states)
        return next(newer, None) if fx.converges else None

    def _held_op(self, op_id: int, fence: int) -> Op | None:
        op = self.ops.get(op_id)
        if op is not None and op.state == "in_progress" and op.fence == fence:
            return op
        self._say("operation.late_result", f"op{op_id}")
        return None

    def _held_fx(self, fx_id: int, fence: int) -> Fx | None:
        fx = self.fxs.get(fx_id)
        return fx if fx is not None and fx.state == "in_flight" and fx.fence == fence else None

    def _op_due(self, op: Op, now: int, *, suspect: bool = False) -> bool:
        if op.due is None or op.due > now or (op.claims >= POISON - 1) is not suspect:
            return False
        lane = [other for other in self.ops.values() if op.lane is not None and other.lane == op.lane and other is not op]
        ahead = any(other.id < op.id and other.state not in ENDED for other in lane)
        return not ahead and (suspect or not any(other.state == "in_progress" for other in lane))

    def _fx_due(self, fx: Fx, now: int, *, suspect: bool = False) -> bool:
        if fx.due is None or fx.due > now or (fx.claims >= POISON - 1) is not suspect or (suspect and fx.name not in self.suspects):
            return False
        lane = [other for other in self._same_target(fx.cls, fx.target) if other is not fx and other.state not in ENDED]
        ahead = any(other.id < fx.id and not self._for_later(other, now) for other in lane)
        return not ahead and (suspect or not any(other.state == "in_flight" for other in lane))

    @staticmethod
    def _for_later(fx: Fx, now: int) -> bool:
        """True if the effect is scheduled for a later time: it does not occupy its lane then. An effect that is due does."""
        return fx.not_before is not None and fx.not_before > now and (fx.due is None or fx.due > now)

    def _free(self, cls: str, slots: Mapping[str, int]) -> int:
        return self.gates.free(cls, slots.get(cls, 0), [fx.cls for fx in self.fxs.values() if fx.state == "in_flight"])

    def _turn(self, kind: str, alone: Op | Fx | None) -> list[Op | Fx] | None:
        """Return the suspect whose turn it is; an empty list while one waits or is being tried; None to claim as usual."""
        if not self.suspects:
            return None
        held = [row for row in self._rows() if row.state in UNDER_WAY]
        self.waiting.discard(kind)
        if alone is not None and not held:
            return [alone]
        if alone is not None:
            self.waiting.add(kind)
        return [] if self.waiting or any(row.claims >= POISON for row in held) else None

    def _age(self, fx: Fx, now: int) -> int:
        """Return the effect's age, without the time its class or family was held (ms)."""
        return now - fx.aged_from - self.gates.held_since(fx.cls, fx.aged_from, now)


_SETTLED: Final = {
    "delivered": "effect.delivered",
    "retry": "effect.retry_scheduled",
    "doubt": "effect.uncertain",
    "bury": "system.error",
    "drop": "effect.superseded",
    "hold": "effect.released",
}
