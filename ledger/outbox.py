"""Owing effects: written in the transaction of their cause, under keys that stay the same over attempts and replays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import keys
from ledger.records import Effect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.audit import Audit
    from ledger.database import Tx
    from ledger.records import EffectIntent


@dataclass(frozen=True, slots=True)
class Cause:
    """What owes: an operation, or an effect of it (`parent_id`). `first_ordinal` keeps the keys of later causes apart."""

    operation_id: int
    key: str
    correlation_id: str
    parent_id: int | None = None
    first_ordinal: int = 0


def owe(tx: Tx, audit: Audit, now: int, cause: Cause, intents: Iterable[EffectIntent]) -> None:
    """Write down what is owed, inside an open transaction; an older pending effect with the same supersede key becomes needless.

    Raises LookupError when an intent waits for an effect that was never owed.
    """
    for ordinal, intent in enumerate(intents, start=cause.first_ordinal):
        row = tx.one(
            "insert_effect",
            effect_key=keys.effect_key(cause.key, intent.effect_class, ordinal),
            operation_id=cause.operation_id,
            parent_id=cause.parent_id,
            **{"class": intent.effect_class},
            semantics=intent.semantics,
            target=intent.target,
            aggregate_id=intent.aggregate_id,
            correlation_id=cause.correlation_id,
            after_id=_id_of(tx, intent.after),
            supersede_key=intent.supersede_key,
            payload=json.dumps(intent.payload, sort_keys=True),
            expires_at=intent.expires_at,
            not_before=intent.not_before,
            now=now,
        )
        assert row is not None  # noqa: S101 -- a key that exists raises instead
        effect = Effect.of(row)
        audit.of_effect(tx, now, "effect.owed", effect, after={"class": intent.effect_class, "target": intent.target})
        if intent.supersede_key is not None:
            for older in tx.all("supersede_pending", supersede_key=intent.supersede_key, keep_id=effect.id, now=now):
                audit.of_effect(tx, now, "effect.superseded", Effect.of(older), after={"by": effect.id})


def _id_of(tx: Tx, effect_key: str | None) -> int | None:
    if effect_key is None:
        return None
    row = tx.one("effect_by_key", effect_key=effect_key)
    if row is None:
        raise LookupError(f"an effect waits for one that was never owed: {effect_key}")
    found: int = row["id"]
    return found
