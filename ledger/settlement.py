"""Recording of an attempt's end: the guarded move, the attempt row, the audit event, and the gates of its class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledger import outbox
from ledger.gates import began_before, family
from ledger.keys import dumps
from ledger.records import Delivered, Drop, Fail, Hold, Retry, Settlement, Trouble, Uncertain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.audit.events import Audit
    from ledger.database import Row, Tx
    from ledger.gates import GateRules
    from ledger.records import Effect

QUOTEBOT: Final = "quotebot"
NEWER: Final = Trouble("superseded", "A newer one with the same target is owed.")

_MOVE: Final[Mapping[type, str]] = {Retry: "retry_effect", Uncertain: "doubt_effect", Fail: "bury_effect", Drop: "drop_effect"}

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


def adjust(tx: Tx, now: int, effect: Effect, settlement: Settlement) -> Settlement:
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
                tx.one("doubt_newer", id=newer["id"], dropped=effect.id, fence=effect.fence)
            needless = replace(NEWER, maybe_sent=settlement.trouble.maybe_sent, unavailable=settlement.trouble.unavailable)
            return Drop(needless, settlement.hold_until)
    return settlement


def move(tx: Tx, now: int, effect: Effect, settlement: Settlement) -> Row | None:
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
        deaths = effect.claims - 1 if effect.reconciling else 0  # a finished lookup says nothing about a send that crashes
        guard |= {"spent": int(settlement.spent), "next_attempt_at": now + settlement.delay_ms, "claims": deaths}
    return tx.one(_MOVE[type(settlement)], **guard)


def record(tx: Tx, audit: Audit, gates: GateRules, now: int, claimed: Effect, effect: Effect, settlement: Settlement) -> bool:
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
        retry_count=effect.attempts,
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
        outbox.drop_waiting(tx, audit, now, effect.id, f"effect {effect.id} became needless")
    return _tell_gates(tx, audit, gates, now, claimed, settlement) or woken


def record_attempt(
    tx: Tx, now: int, claimed: Effect, *, outcome: str, trouble: Trouble | None = None, delay_ms: int | None = None
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
    if isinstance(settlement, Hold):
        before, _ = gates.hold(tx, now, family(effect.effect_class), "auth", settlement.trouble.error, QUOTEBOT)
        if before.state == "flowing":  # one alert per outage: a repeated failed trial is not reported
            _audit_gate(tx, audit, now, effect, "class.paused", family(effect.effect_class), settlement.trouble.error)
        return True
    restrained = True
    if not isinstance(settlement, Delivered) and settlement.trouble.unavailable:
        opened = gates.failed(tx, now, effect.effect_class, effect.id, settlement.trouble.error, QUOTEBOT)
        if opened is not None:
            _audit_gate(tx, audit, now, effect, "class.paused", opened.name, settlement.trouble.error)
    else:
        opened_again, restrained = gates.answered(tx, now, effect.effect_class, effect.claimed_at)
        for gate in opened_again:
            _audit_gate(tx, audit, now, effect, "class.resumed", gate.name, "a trial got an answer")
    if isinstance(settlement, Retry | Uncertain | Drop) and settlement.hold_until is not None:
        gates.hold(tx, now, effect.effect_class, "throttled", settlement.trouble.error, QUOTEBOT, settlement.hold_until)
    return restrained


def _audit_gate(tx: Tx, audit: Audit, now: int, effect: Effect, event_type: str, name: str, why: str) -> None:
    audit.append(
        tx,
        now,
        event_type,
        actor=QUOTEBOT,
        actor_type="system",
        effect_id=effect.id,
        correlation_id=effect.correlation_id,
        after={"class": name, "why": why},
    )
