"""Seeded bugs in the recovery at a start: work of dead processes is forgotten, or repeated without a check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.mutants.patching import of, put, sql
from ledger import recovery
from ledger.records import Effect

forgets_operations = sql("operations_in_progress", ("state = 'in_progress'", "state = 'in_progress' AND 0"))
forgets_effects = sql("effects_in_flight", ("state = 'in_flight'", "state = 'in_flight' AND 0"))


def sends_appends_again() -> None:
    """An effect in flight at a crash is sent again without a check."""
    honest = of(recovery, "_release_effect")

    def release(ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
        honest(ledger, tx, now, replace(effect, semantics="keyed"), why)

    put(recovery, "_release_effect", release)


def repeats_for_ever() -> None:
    """An effect that cannot be read back is repeated after every crash, not once."""
    honest = of(recovery, "_release_effect")

    def release(ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
        honest(ledger, tx, now, replace(effect, maybe_sent=False), why)

    put(recovery, "_release_effect", release)


def takes_it_for_delivered() -> None:
    """An effect in flight at a crash counts as delivered."""
    honest = of(recovery, "_release_effect")

    def release(ledger: Any, tx: Any, now: int, effect: Any, why: Any) -> None:
        if effect.semantics != "append":
            honest(ledger, tx, now, effect, why)
            return
        row = tx.one("deliver_effect", id=effect.id, fence=effect.fence, external_ref="1800000000.000001", result="{}", now=now)
        ledger.audit.of_effect(tx, now, "effect.delivered", Effect.of(row))
        tx.one("wake_children", id=effect.id, now=now)

    put(recovery, "_release_effect", release)
