"""How an attempt's end is written down: the guarded move, the attempt's row, the audit event, the pause it may cause."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ledger.records import Bury, Delivered, Doubt, Drop, Hold, Retry, Settlement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.audit import Audit
    from ledger.database import Row, Tx
    from ledger.records import Effect, Trouble

QUOTEBOT: Final = "quotebot"

_MOVE: Final[Mapping[type, str]] = {Retry: "retry_effect", Doubt: "doubt_effect", Bury: "bury_effect", Drop: "drop_effect"}

_AUDITED_AS: Final[Mapping[type, tuple[str, str | None]]] = {  # event type, recovery action
    Delivered: ("effect.delivered", None),
    Retry: ("effect.retry_scheduled", "retry"),
    Doubt: ("effect.uncertain", "reconcile"),
    Bury: ("system.error", "replay"),
    Drop: ("effect.superseded", None),
    Hold: ("effect.released", "resume"),
}


def move(tx: Tx, now: int, effect: Effect, settlement: Settlement) -> Row | None:
    """Move the effect under the fence of its claim; None when the fence is stale and nothing was changed."""
    guard: dict[str, object] = {"id": effect.id, "fence": effect.fence, "now": now}
    if isinstance(settlement, Delivered):
        result = json.dumps({**settlement.result, "already_there": settlement.already_there}, sort_keys=True)
        return tx.one("deliver_effect", **guard, external_ref=settlement.external_ref, result=result)
    if isinstance(settlement, Hold):  # a doubt outlives the pause: it must still look before it sends
        kind = Doubt if effect.reconciling else Retry
        settlement = kind(settlement.trouble, delay_ms=0, spent=False)
    trouble = settlement.trouble
    guard |= {"category": trouble.category, "last_error": trouble.error, "maybe_sent": int(trouble.maybe_sent)}
    if isinstance(settlement, Retry | Doubt):
        guard |= {"spent": int(settlement.spent), "next_attempt_at": now + settlement.delay_ms}
    return tx.one(_MOVE[type(settlement)], **guard)


def record(tx: Tx, audit: Audit, now: int, effect: Effect, settlement: Settlement) -> None:
    """Close the attempt and audit the move; `effect` is as it is now."""
    trouble = None if isinstance(settlement, Delivered) else settlement.trouble
    tx.one(
        "end_effect_attempt",
        id=effect.id,
        fence=effect.fence,
        outcome=type(settlement).__name__.lower(),
        http_status=None if trouble is None else trouble.http_status,
        category=None if trouble is None else trouble.category,
        error=None if trouble is None else trouble.error,
        retry_after_ms=None if trouble is None else trouble.retry_after_ms,
        delay_ms=settlement.delay_ms if isinstance(settlement, Retry | Doubt) else None,
        now=now,
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
    if isinstance(settlement, Hold):
        _pause(tx, now, effect, settlement.trouble, None)
        audit.of_effect(tx, now, "class.paused", effect, after={"reason": settlement.trouble.error})
    elif isinstance(settlement, Retry | Doubt) and settlement.hold_until is not None:
        _pause(tx, now, effect, settlement.trouble, settlement.hold_until)


def _pause(tx: Tx, now: int, effect: Effect, trouble: Trouble, until: int | None) -> None:
    tx.one("pause_class", **{"class": effect.effect_class}, reason=trouble.error, paused_by=QUOTEBOT, until_at=until, now=now)
