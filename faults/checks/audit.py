"""Audit invariants: a complete audit, steps that follow the state machines, and no purge of what is needed (I7, I14, I18)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from faults.checks.evidence import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from faults.checks.evidence import Facts, Row

# The state each event leads to, and the states it may start from: SPEC 4, written a second time on purpose.
OPERATION_STEPS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "operation.reserved": (frozenset({""}), "reserved"),
    "operation.claimed": (frozenset({"reserved", "failed_retryable"}), "in_progress"),
    "operation.applied": (frozenset({"in_progress"}), "completed"),
    "operation.refused": (frozenset({"in_progress"}), "completed"),
    "operation.retry_scheduled": (frozenset({"in_progress"}), "failed_retryable"),
    "operation.released": (frozenset({"in_progress"}), "reserved"),
    "operation.shelved": (frozenset({"in_progress"}), "reserved"),
    "system.error": (frozenset({"in_progress"}), "failed_terminal"),
    "operation.replayed": (frozenset({"failed_terminal"}), "reserved"),
    "operation.cancelled": (frozenset({"reserved", "failed_retryable"}), "discarded"),
    "operation.discarded": (frozenset({"failed_terminal"}), "discarded"),
}
_OPEN: Final = frozenset({"pending", "in_flight", "uncertain"})
EFFECT_STEPS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "effect.claimed": (frozenset({"pending", "uncertain"}), "in_flight"),
    "effect.delivered": (frozenset({"in_flight"}), "delivered"),
    "effect.retry_scheduled": (frozenset({"in_flight"}), "pending"),
    "effect.uncertain": (frozenset({"in_flight"}), "uncertain"),
    "effect.released": (frozenset({"in_flight"}), "pending or uncertain"),
    "effect.superseded": (_OPEN | {"failed"}, "superseded"),
    "effect.cancelled": (frozenset({"pending"}), "discarded"),
    "effect.discarded": (frozenset({"failed"}), "discarded"),
    "system.error": (_OPEN, "failed"),
}
REPLAYED: Final = {"reconcile": "uncertain", "retry": "pending"}
SIGNED: Final = (
    "id",
    "at",
    "event_type",
    "aggregate_id",
    "seq",
    "previous_id",
    "operation_key",
    "effect_id",
    "correlation_id",
    "actor",
    "actor_type",
    "retry_count",
    "failure_category",
    "recovery_action",
    "before",
    "after",
    "schema_version",
    "key_id",
)
_signed_values: Final = itemgetter(*SIGNED)
_anchored_values: Final = itemgetter("at", "last_event_id", "chains", "heads_sha256")


def along_the_arrows(facts: Facts) -> Iterator[str]:
    """I7: every audited step follows an arrow of its state machine, and each row is in the state where its audit ends."""
    for key, events in facts.events_of_operation.items():
        operation = facts.operation_by_key.get(key)
        state, wrong = _walk_operation(events)
        if wrong is not None:
            yield f"operation {key[:8]}: {wrong}"
        elif operation is not None and operation["state"] != state:
            yield f"operation {operation['id']} is {operation['state']}; its audit ends with {state}"
    yield from (
        f"operation {operation['id']} exists and was never audited as reserved"
        for operation in facts.operations
        if operation["operation_key"] not in facts.events_of_operation
    )
    for effect_id, events in facts.events_of_effect.items():
        effect = facts.effect.get(effect_id)
        state, wrong = _walk_effect(events)
        if wrong is not None:
            yield f"effect {effect_id}: {wrong}"
        elif effect is not None and effect["state"] not in state.split(" or "):
            yield f"effect {effect_id} is {effect['state']}; its audit ends with {state}"
    yield from (
        f"effect {effect['id']} is {effect['state']} without any audit"
        for effect in facts.effects
        if effect["id"] not in facts.events_of_effect and effect["state"] != "pending"
    )
    yield from fields_are_right(facts)


RETRIED: Final = frozenset({"retry"})
# Of each event about a failure or its recovery: the recovery actions it may name. Its failure category is never missing.
RECOVERIES: Final[Mapping[str, frozenset[str]]] = {
    "operation.retry_scheduled": RETRIED,
    "operation.released": RETRIED,
    "operation.shelved": RETRIED,
    "operation.replayed": RETRIED,
    "operation.hastened": RETRIED,
    "operation.discarded": frozenset({"discard"}),
    "effect.retry_scheduled": RETRIED,
    "effect.uncertain": frozenset({"reconcile"}),
    "effect.released": frozenset({"retry", "resume"}),
    "effect.replayed": frozenset({"retry", "reconcile"}),
    "effect.hastened": frozenset({"retry", "reconcile"}),
    "effect.resolved": frozenset({"resolve"}),
    "effect.discarded": frozenset({"discard"}),
    "system.error": frozenset({"replay", "resolve"}),
    "class.held": frozenset({"wait", "resume"}),
}


def fields_are_right(facts: Facts) -> Iterator[str]:
    """I7: every event about a row names its command, correlation id, attempts, failure, recovery and actor."""
    types = defaultdict[str, set[str]](set)
    for operation in facts.operations:
        types[operation["actor"]].add(operation["actor_type"])
    for event in facts.events:
        for wrong in (*_wrong_actor(event, types), *_wrong_recovery(event), *_wrong_command(facts, event)):
            yield f"audit event {event['id']} ({event['event_type']}) {wrong}"


def _wrong_actor(event: Row, types: Mapping[str, set[str]]) -> Iterator[str]:
    actor, actor_type = event["actor"], event["actor_type"]
    at_terminal = "terminal_user" in loaded(event["after"])  # anyone may act there under any name
    if (actor_type == "system") != (actor == "quotebot") or (actor_type not in types.get(actor, (actor_type,)) and not at_terminal):
        yield f"is by {actor} as {actor_type}"


def _wrong_recovery(event: Row) -> Iterator[str]:
    recoveries = RECOVERIES.get(event["event_type"])
    if recoveries is not None and (event["failure_category"] is None or event["recovery_action"] not in recoveries):
        yield f"names the failure {event['failure_category']} and the recovery {event['recovery_action']}"


def _wrong_command(facts: Facts, event: Row) -> Iterator[str]:
    effect = facts.effect.get(event["effect_id"])
    owner = facts.operation_by_key.get(event["operation_key"]) if effect is None else facts.operation[effect["operation_id"]]
    if owner is None:  # it is about no row, or its row was purged
        if event["effect_id"] is not None and event["operation_key"] is None:
            yield f"is about effect {event['effect_id']} and names no command"
        return
    if (event["operation_key"], event["correlation_id"]) != (owner["operation_key"], owner["correlation_id"]):
        yield f"does not name operation {owner['id']}"
    if event["retry_count"] is None:
        yield "does not name the attempts"


def audit_is_whole(facts: Facts) -> Iterator[str]:
    """I14: the audit is whole, chained, and sealed at its heads and anchors. Without the keys only the links are checked.

    Ids are consecutive where the schema version of the event says so (1); each chain is without a gap in any case.
    """
    ends: dict[str, Row] = {}
    keys = facts.house.keys
    last = 0
    for event in facts.events:
        before = ends.get(event["aggregate_id"])
        linked = (event["seq"], event["previous_id"]) == ((before["seq"] + 1, before["id"]) if before else (1, None))
        jumps = event["id"] != last + 1 and event["schema_version"] == 1
        last = event["id"]
        if jumps or not linked:
            yield f"audit event {event['id']} is not the next one of its chain {event['aggregate_id']}"
            return
        if keys and not _is_signed(keys, event, before):
            yield f"audit event {event['id']} is not what was signed"
            return
        ends[event["aggregate_id"]] = event
    yield from _heads(facts, ends)
    yield from _anchors(facts)


def nothing_needed_is_gone(facts: Facts) -> Iterator[str]:
    """I18: retention leaves a tombstone and deletes nothing that is unfinished or dead."""
    yield from (
        f"operation {key[:8]} has a tombstone and is still there" for key in facts.tombstones.keys() & facts.operation_by_key.keys()
    )
    tombstones_deleted = any(purge.get("tombstones") for purge in facts.purges)
    for key, events in facts.events_of_operation.items():
        if key in facts.operation_by_key or all(event["event_type"].startswith("delivery.") for event in events):
            continue
        state, _ = _walk_operation(events)
        if state not in ("completed", "discarded"):
            yield f"operation {key[:8]} is gone; it was {state}"
        if key not in facts.tombstones and not tombstones_deleted:
            yield f"operation {key[:8]} is gone without a tombstone"
    for effect_id, events in facts.events_of_effect.items():
        if effect_id not in facts.effect:
            state, _ = _walk_effect(events)
            if state not in ("delivered", "superseded", "discarded"):
                yield f"effect {effect_id} is gone; it was {state}"


def _walk_operation(events: list[Row]) -> tuple[str, str | None]:
    """Return the state a command's events lead to, and what is wrong with the path to it (None if nothing is)."""
    state = ""
    for event in events:
        name = event["event_type"]
        if name in OPERATION_STEPS:
            sources, target = OPERATION_STEPS[name]
            if state not in sources:
                done = "reserved again" if name == "operation.reserved" else name
                return state, f"{done} while {state or 'not reserved'} (event {event['id']})"
            state = target
    return state, None


def _walk_effect(events: list[Row]) -> tuple[str, str | None]:
    state = "pending"
    for event in events:
        name = event["event_type"]
        if name == "effect.replayed":
            sources = frozenset({"failed", "uncertain"} if event["recovery_action"] == "reconcile" else {"failed"})
            target = REPLAYED.get(event["recovery_action"] or "", "")
        elif name == "effect.resolved":
            sources, target = frozenset({"failed", "uncertain"}), loaded(event["after"]).get("state", "")
        elif name in EFFECT_STEPS:
            sources, target = EFFECT_STEPS[name]
        else:
            continue
        if sources.isdisjoint(state.split(" or ")):
            return state, f"{name} while {state} (event {event['id']})"
        state = target
    return state, None


def _is_signed(keys: Mapping[str, bytes], event: Row, before: Row | None) -> bool:
    key = keys.get(event["key_id"])
    previous = bytes(32) if before is None else before["mac"]
    return key is not None and event["mac"] == _mac(key, ("quotebot/audit/1", previous.hex(), *_signed_values(event)))


def _heads(facts: Facts, ends: Mapping[str, Row]) -> Iterator[str]:
    """The head of each chain is its last event, and its seal is valid: a truncated chain does not match its head."""
    found = {row["aggregate_id"]: row for row in facts.heads}
    yield from (f"the audit chain {name} has events or a head, not both" for name in found.keys() ^ ends.keys())
    for aggregate_id in found.keys() & ends.keys():
        head, end = found[aggregate_id], ends[aggregate_id]
        if (head["event_id"], head["seq"], head["mac"]) != (end["id"], end["seq"], end["mac"]):
            yield f"the audit chain {aggregate_id} does not end where its head says"
        elif not _is_sealed(facts, head, "quotebot/audit-head/1", aggregate_id, head["event_id"], head["seq"], head["mac"].hex()):
            yield f"the head of the audit chain {aggregate_id} is not sealed by our key"


def _anchors(facts: Facts) -> Iterator[str]:
    """Each anchor seals the ends that all chains had at the anchor's last event."""
    for anchor in facts.anchors:
        ends = {event["aggregate_id"]: event for event in facts.events if event["id"] <= anchor["last_event_id"]}
        listed = [(name, end["id"], end["seq"], end["mac"].hex()) for name, end in sorted(ends.items())]
        digest = hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()
        if (anchor["chains"], anchor["heads_sha256"]) != (len(ends), digest):
            yield f"audit anchor {anchor['id']} does not seal the chains as they were"
        elif not _is_sealed(facts, anchor, "quotebot/audit-anchor/1", *_anchored_values(anchor)):
            yield f"audit anchor {anchor['id']} is not sealed by our key"


def _is_sealed(facts: Facts, row: Row, *signed: object) -> bool:
    """Tell whether the row has our key's seal of these values; true if the keys are not known."""
    keys = facts.house.keys
    return not keys or row["seal"] == _mac(keys.get(row["key_id"], b""), signed)


def _mac(key: bytes, signed: Sequence[Any]) -> bytes:
    return hmac.digest(key, orjson.dumps(signed), "sha256")
