"""Claims of rows, inside the claiming transaction, and the settlements that end the claims of effects.

A row is claimed if it is due, at the head of its lane, and its gate is open. A row that was in flight at two consecutive process
crashes is a suspect. It is claimed alone, so that a third crash identifies the row that causes it and no other row is
dead-lettered for it.

A settlement moves an effect under the fence of its claim, writes the attempt row and the audit event, and updates the gates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ledger.database import MissingRow
from ledger.gates import began_before, family
from ledger.intake import drop_waiting, superseded
from ledger.keys import dumps
from ledger.machine import EffectState
from ledger.records import QUOTEBOT, Delivered, Drop, Effect, Fail, Hold, Operation, Origin, Retry, Settlement, Trouble, Uncertain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ledger.audit.events import Audit
    from ledger.database import Row, Tx
    from ledger.gates import GateMove, GateRules, Gates

POISON_CLAIMS: Final = 3  # a row that was claimed at so many crashes is dead-lettered, by default
META: Final = "poison_claims"  # the limit in force, where it is not the default


@dataclass(slots=True)
class Suspects:
    """Ids of the rows that are tried alone. The sets are read when recovery releases claims; settling a row removes it.

    `claims` is the number of crashes that makes a row a suspect: one more would dead-letter it. `waiting` holds the kinds that have
    a due suspect waiting for the rows in flight; until that suspect is claimed, nothing of any kind is claimed.
    """

    claims: int = POISON_CLAIMS - 1
    operations: set[int] = field(default_factory=set)
    effects: set[int] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def any(self) -> bool:
        """Tell whether a suspect is known."""
        return bool(self.operations or self.effects)

    def load(self, tx: Tx) -> None:
        """Load the ids of the rows that were claimed at `claims` crashes."""
        operations = {row["id"] for row in tx.all("suspect_operations", suspect_claims=self.claims)}
        effects = {row["id"] for row in tx.all("suspect_effects", suspect_claims=self.claims)}
        if (operations, effects) != (self.operations, self.effects):
            self.operations, self.effects, self.waiting = operations, effects, set()

    def clear(self, row: Operation | Effect) -> None:
        """Remove a row whose attempt has ended."""
        (self.operations if isinstance(row, Operation) else self.effects).discard(row.id)


def take_operations(
    tx: Tx, now: int, suspects: Suspects, limit: int, *, only: str | None, epoch: int, lease_until: int
) -> list[Operation]:
    """Claim up to `limit` due operations, each the oldest unfinished one of its lane; `only` is that of Ledger.claim_operations."""
    due = None
    if suspects.any():
        found = (
            tx.one("due_suspect_operation", id=row_id, now=now, suspect_claims=suspects.claims, only=only)
            for row_id in sorted(suspects.operations)
        )
        due = _turn(tx, suspects, "operations", next((row for row in found if row is not None), None), epoch)
    if due is None:
        due = tx.all("due_operations", now=now, limit=limit, suspect_claims=suspects.claims, only=only)
    taken = {"epoch": epoch, "lease_until": lease_until, "now": now}
    rows = tx.each("claim_operation", [{"id": row["id"], "fence": row["fence"], **taken} for row in due])
    return [Operation.of(row) for row in rows if row is not None]


def take_effects(
    tx: Tx,
    now: int,
    suspects: Suspects,
    rules: GateRules,
    audit: Audit,
    slots: Mapping[str, int],
    *,
    max_age_ms: Mapping[str, int],
    expires: bool,
    families: Mapping[str, int],
    epoch: int,
    lease_until: int,
) -> tuple[list[Effect], list[Effect], list[Effect]]:
    """Claim due effects, up to `slots` of each class. `max_age_ms` is per class; effects of a class without an entry do not expire.

    With `expires` false no effect expires. `families` limits the effects in flight over all classes of a family. Returns the
    claimed effects, the effects that failed as expired, and those that were dropped as superseded or needless. The caller clears
    both of the latter after the commit: this may run again.
    """
    gates = rules.read(tx, now)
    due: Iterator[Row] | list[Row] | None = None
    if suspects.any():
        found = (
            tx.one("due_suspect_effect", id=row_id, now=now, suspect_claims=suspects.claims) for row_id in sorted(suspects.effects)
        )
        alone = next((row for row in found if row is not None and _allowed(tx, gates, slots, families, row["class"]) > 0), None)
        due = _turn(tx, suspects, "effects", alone, epoch)
    if due is None:
        due = _due(tx, now, suspects, gates, slots, families)
    taking, expired, dropped = [], [], []
    claims = {"epoch": epoch, "lease_until": lease_until, "now": now}
    for row in due:
        effect = Effect.of(row, origin=Origin(*tuple(row)[-len(Origin._fields) :]))
        if expires and effect.semantics != "append" and effect.expires_at is not None and effect.expires_at <= now:
            _drop_needless(tx, audit, now, effect)
            dropped.append(effect)
        elif _replaced(tx, audit, now, effect):
            dropped.append(effect)
        elif expires and effect.state is EffectState.PENDING and _too_old(tx, now, effect, _max_age_ms(effect, max_age_ms)):
            expired.append(_expire(tx, audit, now, effect))
        else:
            looks = effect.state is EffectState.UNCERTAIN or row["look_first"] == 1
            taking.append((tx.each("claim_effect", [{"id": effect.id, "fence": effect.fence, **claims}]), looks, effect.origin))
    claimed = []
    for (taken,), looks, origin in taking:
        if taken is None:
            raise MissingRow("claim_effect")
        claimed.append(Effect.of(taken, reconciling=looks, origin=origin))
    return claimed, expired, dropped


def _due(
    tx: Tx, now: int, suspects: Suspects, gates: Gates, slots: Mapping[str, int], families: Mapping[str, int]
) -> Iterator[Row]:
    """Yield due rows class by class; the caller claims each row before the next class is read."""
    due = {row["class"] for row in tx.all("due_classes", classes=dumps(list(slots)), now=now)}
    for name in slots:
        if name not in due:
            continue
        allowed = _allowed(tx, gates, slots, families, name)
        if allowed > 0:
            yield from tx.all("due_effects", **{"class": name}, now=now, limit=allowed, suspect_claims=suspects.claims)


def _allowed(tx: Tx, gates: Gates, slots: Mapping[str, int], families: Mapping[str, int], name: str) -> int:
    """Return how many effects of a class may be claimed now; a half-open family gets one over all its classes."""
    free, most = slots.get(name, 0), families.get(family(name))
    if free <= 0 or (most is None and gates.flowing(name)):
        return free
    if not gates.flowing(name):
        gates = gates.locked(tx, name)
    relatives = tx.required("in_flight_of_family", family=family(name))["busy"]
    if most is not None:
        free = max(0, min(free, most - relatives))
    busy = tx.required("in_flight_of_class", **{"class": name})["busy"]
    return gates.limit(name, free, busy, relatives)


def _turn(tx: Tx, suspects: Suspects, kind: str, due: Row | None, epoch: int) -> list[Row] | None:
    """Return the rows to claim when suspects exist: the due suspect alone, or nothing while a suspect waits or is being tried.

    Returns None when the caller may select rows as usual. Only rows that this process holds count: it is this process that the
    suspect may end.
    """
    held = [row for row in (*tx.all("operations_in_progress"), *tx.all("effects_in_flight")) if row["epoch"] == epoch]
    suspects.waiting.discard(kind)
    if due is not None and not held:
        return [due]
    if due is not None:
        suspects.waiting.add(kind)
    return [] if suspects.waiting or any(row["claims"] > suspects.claims for row in held) else None


def _max_age_ms(effect: Effect, max_age_ms: Mapping[str, int]) -> int | None:
    """Return the maximum age of an effect: that of its class, or its own if that is shorter. Only an append has its own."""
    of_class = max_age_ms.get(effect.effect_class)
    if effect.semantics != "append" or effect.expires_at is None:
        return of_class
    own = effect.expires_at - effect.created_at
    return own if of_class is None else min(own, of_class)


def _too_old(tx: Tx, now: int, effect: Effect, max_age_ms: int | None) -> bool:
    if max_age_ms is None or now - effect.aged_from <= max_age_ms:
        return False
    held = tx.all(
        "holds_since", **{"class": effect.effect_class}, family=family(effect.effect_class), since=effect.aged_from, now=now
    )
    return (
        now - effect.aged_from - _covered([(max(row["held_at"], effect.aged_from), row["ended_at"]) for row in held]) > max_age_ms
    )


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of the spans: a class and its family may be held at the same time."""
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def _expire(tx: Tx, audit: Audit, now: int, effect: Effect) -> Effect:
    error = "It waited longer than its class allows, so it was not sent late. Replay it if it is still wanted."
    row = tx.required("expire_effect", id=effect.id, fence=effect.fence, last_error=error, now=now)
    dead = Effect.of(row, origin=effect.origin)
    audit.of_effect(
        tx,
        now,
        "system.error",
        dead,
        failure_category="expired",
        recovery_action="replay",
        after={"class": dead.effect_class, "error": error},
    )
    return dead


def _replaced(tx: Tx, audit: Audit, now: int, effect: Effect) -> bool:
    """Drop an effect that returned to pending while a newer one with the same target exists: the newer one replaces it."""
    if effect.supersede_key is None or effect.state is not EffectState.PENDING:
        return False
    found = tx.one("newer_pending", supersede_key=effect.supersede_key, id=effect.id)
    newer = None if found is None else tx.one("effect_by_id", id=found["id"])
    if newer is None:
        return False
    if effect.maybe_sent:  # the older effect may still arrive
        tx.one("mark_maybe_sent", effect_key=newer["effect_key"])
    error = "A newer one with the same target is owed."
    row = tx.required("drop_due_effect", id=effect.id, fence=effect.fence, category="superseded", last_error=error, now=now)
    superseded(tx, audit, now, Effect.of(row, origin=effect.origin), {"by": newer["effect_key"]})
    return True


def _drop_needless(tx: Tx, audit: Audit, now: int, effect: Effect) -> None:
    error = "Too old to be worth sending."
    row = tx.required("drop_due_effect", id=effect.id, fence=effect.fence, category="expired", last_error=error, now=now)
    dropped = Effect.of(row, origin=effect.origin)
    audit.of_effect(tx, now, "effect.superseded", dropped, failure_category="expired", after={"error": error})
    drop_waiting(tx, audit, now, effect.id, f"effect {effect.id} became needless")


NEWER: Final = Trouble("superseded", "A newer one with the same target is owed.")

_MOVE: Final[Mapping[type, str]] = {Retry: "retry_effect", Uncertain: "mark_uncertain", Fail: "fail_effect", Drop: "drop_effect"}

STORED_AS: Final[Mapping[type, str]] = {  # outcomes of attempts in ledgers of every release
    Delivered: "delivered",
    Retry: "retry",
    Uncertain: "doubt",
    Fail: "bury",
    Drop: "drop",
    Hold: "hold",
}

_AUDITED_AS: Final[Mapping[type, tuple[str, str | None]]] = {  # event type, recovery action
    Delivered: ("effect.delivered", None),
    Retry: ("effect.retry_scheduled", "retry"),
    Uncertain: ("effect.uncertain", "reconcile"),
    Fail: ("system.error", "replay"),
    Drop: ("effect.superseded", None),
    Hold: ("effect.released", "resume"),
}


def adjust_settlement(tx: Tx, now: int, effect: Effect, settlement: Settlement) -> Settlement:
    """Return the settlement to record, given rows that the worker did not know.

    A login that was refused before the last resume proves nothing about the new one. A failed update is not repeated when a newer
    one with the same target is pending.
    """
    if isinstance(settlement, Hold):
        login = tx.one("gate", name=family(effect.effect_class))
        if login is None or not began_before(effect.claimed_at, login["resumed_at"], now):
            return settlement
        again = Uncertain if effect.reconciling else Retry
        return again(settlement.trouble, delay_ms=0, spent=False)
    if isinstance(settlement, Retry) and effect.supersede_key is not None:
        newer = tx.one("newer_pending", supersede_key=effect.supersede_key, id=effect.id)
        if newer is not None:
            if settlement.trouble.maybe_sent or effect.maybe_sent:
                tx.one("mark_newer_maybe_sent", id=newer["id"], dropped=effect.id, fence=effect.fence)
            needless = replace(NEWER, maybe_sent=settlement.trouble.maybe_sent, unavailable=settlement.trouble.unavailable)
            return Drop(needless, settlement.hold_until)
    return settlement


def settle_effect(tx: Tx, now: int, effect: Effect, settlement: Settlement) -> Row | None:
    """Move the effect under the fence of its claim; None when the fence is stale and nothing was changed."""
    guard: dict[str, object] = {"id": effect.id, "fence": effect.fence, "now": now}
    if isinstance(settlement, Delivered):
        result = dumps({**settlement.result, "already_there": settlement.already_there})
        return tx.one("deliver_effect", **guard, external_ref=settlement.external_ref, result=result)
    if isinstance(settlement, Hold):  # uncertainty outlasts the pause: it must still be reconciled first
        kind = Uncertain if effect.reconciling else Retry
        settlement = kind(settlement.trouble, delay_ms=0, spent=False)
    trouble = settlement.trouble
    guard |= {"category": trouble.category, "last_error": trouble.error, "maybe_sent": int(trouble.maybe_sent)}
    if isinstance(settlement, Retry | Uncertain):
        # a finished lookup says nothing about a send that crashes, nor does an attempt without a call
        deaths = effect.claims - 1 if effect.reconciling or not trouble.asked else 0
        guard |= {"spent": int(settlement.spent), "next_attempt_at": now + settlement.delay_ms, "claims": deaths}
    if isinstance(settlement, Fail):
        guard["code"] = trouble.code
    return tx.one(_MOVE[type(settlement)], **guard)


def record_settlement(
    tx: Tx, audit: Audit, gates: GateRules, now: int, claimed: Effect, effect: Effect, settlement: Settlement
) -> bool:
    """Close the attempt and audit the move. `claimed` is the effect as it was attempted, `effect` as it is now.

    Returns whether other effects may have become due, or due at another time. The lane of the effect is not checked.
    """
    trouble = None if isinstance(settlement, Delivered) else settlement.trouble
    record_attempt(
        tx,
        now,
        claimed,
        outcome=STORED_AS[type(settlement)],
        trouble=trouble,
        delay_ms=settlement.delay_ms if isinstance(settlement, Retry | Uncertain) else None,
    )
    event_type, recovery_action = _AUDITED_AS[type(settlement)]
    audit.of_effect(
        tx,
        now,
        event_type,
        effect,
        failure_category=None if trouble is None else trouble.category,
        recovery_action=recovery_action,
        after={
            "class": effect.effect_class,
            "external_ref": effect.external_ref,
            "next_attempt_at": effect.next_attempt_at,
            "error": None if trouble is None else trouble.error,
        },
    )
    woken = True
    if isinstance(settlement, Delivered):
        woken = tx.one("wake_children", id=effect.id, now=now) is not None
    elif isinstance(settlement, Drop):
        drop_waiting(tx, audit, now, effect.id, f"effect {effect.id} became needless")
    return _tell_gates(tx, audit, gates, now, claimed, settlement) or woken


def record_attempt(
    tx: Tx, now: int, claimed: Effect, *, outcome: str, trouble: Trouble | None, delay_ms: int | None = None
) -> None:
    """Write the row of an attempt that ended."""
    tx.one(
        "insert_attempt",
        operation_id=None,
        effect_id=claimed.id,
        cycle=claimed.cycle,
        fence=claimed.fence,
        epoch=claimed.epoch,
        kind="reconcile" if claimed.reconciling else "send",
        started_at=claimed.claimed_at,
        outcome=outcome,
        http_status=None if trouble is None else trouble.http_status,
        category=None if trouble is None else trouble.category,
        error=None if trouble is None else trouble.error,
        retry_after_ms=None if trouble is None else trouble.retry_after_ms,
        delay_ms=delay_ms,
        now=now,
    )


def _tell_gates(tx: Tx, audit: Audit, gates: GateRules, now: int, effect: Effect, settlement: Settlement) -> bool:
    """Update the gates of the class and its family after this attempt; false when they flowed before and still flow."""
    name = effect.effect_class
    if isinstance(settlement, Hold):
        why = settlement.trouble
        _audit_gate(tx, audit, now, effect, gates.hold(tx, now, family(name), "auth", why.error, QUOTEBOT), why)
        return True
    trouble, restrained = None if isinstance(settlement, Delivered) else settlement.trouble, True
    if trouble is not None and not trouble.asked:
        return True
    if trouble is not None and trouble.unavailable:
        moves = gates.failed(tx, now, name, effect.id, trouble.error, QUOTEBOT)
    else:
        moves, restrained = gates.answered(tx, now, name, effect.claimed_at)
    if isinstance(settlement, Retry | Uncertain | Drop) and settlement.hold_until is not None:
        why = settlement.trouble
        moves.append(gates.hold(tx, now, name, "throttled", why.error, QUOTEBOT, settlement.hold_until))
    for move in moves:
        _audit_gate(tx, audit, now, effect, move, trouble)
    return restrained


def _audit_gate(tx: Tx, audit: Audit, now: int, effect: Effect, move: GateMove, trouble: Trouble | None) -> None:
    """Audit the move of a gate that an effect's attempt caused; an answer opens it."""
    event, held = move.event_type, move.after.state == "held"
    if event is None:
        return
    audit.of_effect(
        tx,
        now,
        event,
        effect,
        aggregate_id=None,
        failure_category=trouble.category if held and trouble is not None else None,
        recovery_action=_HOLD_ENDS[move.after.until_at is None] if held else None,
        after=move.facts(trouble.error if held and trouble is not None else "a trial got an answer"),
    )


_HOLD_ENDS: Final = {True: "resume", False: "wait"}  # by a person, or by itself
