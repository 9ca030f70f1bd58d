"""Seeded bugs in the recovery at a start: work of dead processes is forgotten, or repeated without a check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.mutants.patching import patch, sql
from ledger import recovery
from ledger.records import Effect

forgets_operations = sql("operations_in_progress", ("state = 'in_progress'", "state = 'in_progress' AND 0"))
forgets_effects = sql("effects_in_flight", ("state = 'in_flight'", "state = 'in_flight' AND 0"))


@patch(recovery, "_release_effect")
def sends_appends_again(honest: Any, ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
    """An effect in flight at a crash is sent again without a check."""
    honest(ledger, tx, now, replace(effect, semantics="keyed"), why)


@patch(recovery, "_release_effect")
def repeats_for_ever(honest: Any, ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
    """An effect that cannot be read back is repeated after every crash, not once."""
    honest(ledger, tx, now, replace(effect, maybe_sent=False), why)


@patch(recovery, "_release_effect")
def takes_it_for_delivered(honest: Any, ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
    """An effect in flight at a crash counts as delivered."""
    if effect.semantics != "append":
        honest(ledger, tx, now, effect, why)
        return
    row = tx.one("deliver_effect", id=effect.id, fence=effect.fence, external_ref="1800000000.000001", result="{}", now=now)
    ledger.audit.of_effect(tx, now, "effect.delivered", Effect.of(row))
    tx.one("wake_children", id=effect.id, now=now)
