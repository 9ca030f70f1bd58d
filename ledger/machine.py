"""State machines of operations and effects, as data. A test checks the SQL guards and the triggers against these tables.

Operation::

    reserved ──claim──► in_progress | discarded
    in_progress ──────► completed (applied, refused) | failed_retryable | failed_terminal | reserved (its owner crashed)
    failed_retryable ─► in_progress | failed_terminal | discarded
    failed_terminal ──► reserved (replay) | discarded

Effect::

    pending ──claim──► in_flight | superseded | failed (expired) | discarded
    in_flight ───────► delivered | pending (retry) | uncertain | failed | superseded
    uncertain ───────► in_flight (lookup first) | delivered | failed | superseded
    failed ──────────► pending (replay) | uncertain (replay) | delivered (resolve) | superseded | discarded

A state that starts no line is terminal.
"""

from __future__ import annotations

from enum import StrEnum


class OperationState(StrEnum):
    """State of a command."""

    RESERVED = "reserved"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED_RETRYABLE = "failed_retryable"
    FAILED_TERMINAL = "failed_terminal"
    DISCARDED = "discarded"


class EffectState(StrEnum):
    """State of an effect."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    UNCERTAIN = "uncertain"
    DELIVERED = "delivered"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"


OPERATION_ARROWS: dict[OperationState, frozenset[OperationState]] = {
    OperationState.RESERVED: frozenset({OperationState.IN_PROGRESS, OperationState.DISCARDED}),
    OperationState.IN_PROGRESS: frozenset(
        {OperationState.COMPLETED, OperationState.FAILED_RETRYABLE, OperationState.FAILED_TERMINAL, OperationState.RESERVED}
    ),
    OperationState.FAILED_RETRYABLE: frozenset(
        {OperationState.IN_PROGRESS, OperationState.FAILED_TERMINAL, OperationState.DISCARDED}
    ),
    OperationState.FAILED_TERMINAL: frozenset({OperationState.RESERVED, OperationState.DISCARDED}),
    OperationState.COMPLETED: frozenset(),
    OperationState.DISCARDED: frozenset(),
}

EFFECT_ARROWS: dict[EffectState, frozenset[EffectState]] = {
    EffectState.PENDING: frozenset({EffectState.IN_FLIGHT, EffectState.SUPERSEDED, EffectState.FAILED, EffectState.DISCARDED}),
    EffectState.IN_FLIGHT: frozenset(
        {EffectState.DELIVERED, EffectState.PENDING, EffectState.UNCERTAIN, EffectState.FAILED, EffectState.SUPERSEDED}
    ),
    EffectState.UNCERTAIN: frozenset({EffectState.IN_FLIGHT, EffectState.DELIVERED, EffectState.FAILED, EffectState.SUPERSEDED}),
    EffectState.FAILED: frozenset(
        {EffectState.PENDING, EffectState.UNCERTAIN, EffectState.DELIVERED, EffectState.SUPERSEDED, EffectState.DISCARDED}
    ),
    EffectState.DELIVERED: frozenset(),
    EffectState.SUPERSEDED: frozenset(),
    EffectState.DISCARDED: frozenset(),
}
