"""State of operations and effects according to their events alone, compared with their tables.

An operation's key is the hash of its identity and its payload, and the event of its reservation contains the key. Editing or
inserting a request is therefore detected, even if its row is removed after its execution. The event of its cause names an effect
with the hash of its payload, and the event of its claim names it by its key. The state of both is that of their last event.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.jsontext import loads
from ledger.machine import EffectState, OperationState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from ledger.database import Row, Tx

SCRATCH: Final = """
CREATE TABLE operation (
  key TEXT PRIMARY KEY, actor TEXT, actor_type TEXT, correlation_id TEXT, state TEXT, outcome TEXT, seen INTEGER) WITHOUT ROWID;
CREATE TABLE owed (key TEXT PRIMARY KEY, class TEXT, target TEXT, payload TEXT, cause TEXT, seen INTEGER) WITHOUT ROWID;
CREATE TABLE effect (id INTEGER PRIMARY KEY, state TEXT, seen INTEGER);
"""
OPERATION_STATES: Final = {
    "operation.reserved": OperationState.RESERVED,
    "operation.claimed": OperationState.IN_PROGRESS,
    "operation.applied": OperationState.COMPLETED,
    "operation.refused": OperationState.COMPLETED,
    "operation.retry_scheduled": OperationState.FAILED_RETRYABLE,
    "operation.released": OperationState.RESERVED,
    "operation.shelved": OperationState.RESERVED,
    "system.error": OperationState.FAILED_TERMINAL,
    "operation.replayed": OperationState.RESERVED,
    "operation.cancelled": OperationState.DISCARDED,
    "operation.discarded": OperationState.DISCARDED,
}
EFFECT_STATES: Final = {
    "effect.claimed": EffectState.IN_FLIGHT,
    "effect.delivered": EffectState.DELIVERED,
    "effect.retry_scheduled": EffectState.PENDING,
    "effect.uncertain": EffectState.UNCERTAIN,
    "effect.superseded": EffectState.SUPERSEDED,
    "effect.cancelled": EffectState.DISCARDED,
    "effect.discarded": EffectState.DISCARDED,
    "system.error": EffectState.FAILED,
}
RELEASED: Final = "pending uncertain"  # the state before the claim
REPLAYED: Final = {"reconcile": EffectState.UNCERTAIN, "retry": EffectState.PENDING}
PAGE_ROWS: Final = 500

Wrong = tuple[str, str, str, bool]  # table, row, what is wrong, whether the row is missing


class QueueReplay:
    """State of every operation and effect according to the events. `scratch` is the replay's private database."""

    def __init__(self, scratch: sqlite3.Connection) -> None:
        self._scratch = scratch
        self._put_in: Wrong | None = None  # the first row with events but without one that created it
        scratch.executescript(SCRATCH)

    def see(self, event: Row | Mapping[str, Any]) -> None:
        """Process one event. Call it in the order of ids."""
        event_type = event["event_type"]
        if event["effect_id"] is not None:
            self._effect(event, event_type)
        elif event["operation_key"] is not None and event_type in OPERATION_STATES:
            self._operation(event, event_type)
        if event_type in ("operation.applied", "operation.refused", "effect.owed") and event["after"] is not None:
            after = loads(event["after"])
            owed = [after] if event_type == "effect.owed" else after.get("owes", ())
            self._scratch.executemany(
                "INSERT OR REPLACE INTO owed VALUES (?, ?, ?, ?, ?, 0)",
                [(one["key"], one["class"], one["target"], one.get("payload_sha256"), event["operation_key"]) for one in owed],
            )

    def wrong(self, tx: Tx) -> Wrong | None:
        """Return the first row that differs from the events or is missing."""
        return self._operations(tx) or self._effects(tx) or self._put_in or self._gone()

    def _operation(self, event: Row | Mapping[str, Any], event_type: str) -> None:
        key, state = event["operation_key"], OPERATION_STATES[event_type].value
        if event_type == "operation.reserved":
            who = (event["actor"], event["actor_type"], event["correlation_id"])
            self._scratch.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?, NULL, 0)", (key, *who, state))
            return
        outcome = event_type.removeprefix("operation.") if state == OperationState.COMPLETED else None
        found = self._scratch.execute("UPDATE operation SET state = ?, outcome = ? WHERE key = ?", (state, outcome, key))
        if not found.rowcount:
            why = "it was worked on, and no event reserved it: it was put in from outside"
            self._put_in = self._put_in or ("operations", key, why, False)

    def _effect(self, event: Row | Mapping[str, Any], event_type: str) -> None:
        if event_type == "effect.claimed":
            self._claimed(event)
        if event_type == "effect.released":
            state = RELEASED
        elif event_type == "effect.replayed":
            state = REPLAYED[event["recovery_action"]].value
        elif event_type == "effect.resolved":
            state = loads(event["after"])["state"]
        elif event_type in EFFECT_STATES:
            state = EFFECT_STATES[event_type].value
        else:
            return
        self._scratch.execute("INSERT OR REPLACE INTO effect VALUES (?, ?, 0)", (event["effect_id"], state))

    def _claimed(self, event: Row | Mapping[str, Any]) -> None:
        """Record an effect that was claimed without a cause. Events of 0.1.0 do not contain its key."""
        key = None if event["after"] is None else loads(event["after"]).get("key")
        if key is None or self._scratch.execute("SELECT 1 FROM owed WHERE key = ?", (key,)).fetchone() is not None:
            return
        why = f"it was worked on as effect {event['effect_id']}, and no event caused it: it was put in from outside"
        self._put_in = self._put_in or ("effects", key, why, False)

    def _operations(self, tx: Tx) -> Wrong | None:
        last = -1
        while rows := tx.all("operations_replayed", after=last, limit=PAGE_ROWS):
            for row in rows:
                found = self._scratch.execute("SELECT * FROM operation WHERE key = ?", (row["operation_key"],)).fetchone()
                why = "no event of the audit reserved it: it was put in from outside" if found is None else _differing(row, found)
                if why is not None:
                    return "operations", str(row["id"]), why, False
                self._scratch.execute("UPDATE operation SET seen = 1 WHERE key = ?", (row["operation_key"],))
            last = rows[-1]["id"]
        return None

    def _effects(self, tx: Tx) -> Wrong | None:
        last = -1
        while rows := tx.all("effects_replayed", after=last, limit=PAGE_ROWS):
            for row in rows:
                why = self._differing_effect(row)
                if why is not None:
                    return "effects", str(row["id"]), why, False
                self._scratch.execute("UPDATE owed SET seen = 1 WHERE key = ?", (row["effect_key"],))
                self._scratch.execute("UPDATE effect SET seen = 1 WHERE id = ?", (row["id"],))
            last = rows[-1]["id"]
        return None

    def _differing_effect(self, row: Row) -> str | None:
        owed = self._scratch.execute("SELECT class, target, payload FROM owed WHERE key = ?", (row["effect_key"],)).fetchone()
        if owed is None:
            return "no event of the audit caused it: it was put in from outside"
        stepped = self._scratch.execute("SELECT state FROM effect WHERE id = ?", (row["id"],)).fetchone()
        states = EffectState.PENDING.value if stepped is None else stepped[0]
        if row["state"] not in states.split():
            return f"column state is {row['state']!r}; the audit says {states!r}: it was edited"
        for name, said in (("class", owed[0]), ("target", owed[1])):
            if row[name] != said:
                return f"column {name} is {row[name]!r}; the audit says {said!r}: it was edited"
        if owed[2] is not None and hashlib.sha256(str(row["payload"]).encode()).hexdigest() != owed[2]:
            return "column payload does not have the hash that the audit says: it was edited"
        return None

    def _gone(self) -> Wrong | None:
        """Return a missing row that was not finished: only finished rows are ever deleted."""
        done = (OperationState.COMPLETED.value, OperationState.DISCARDED.value)
        row = self._scratch.execute(
            "SELECT key, state FROM operation WHERE seen = 0 AND state NOT IN (?, ?) LIMIT 1", done
        ).fetchone()
        if row is not None:
            return "operations", row[0], f"the audit says that it is {row[1]}; it was deleted", True
        ended = (EffectState.DELIVERED.value, EffectState.SUPERSEDED.value, EffectState.DISCARDED.value)
        row = self._scratch.execute(
            "SELECT id, state FROM effect WHERE seen = 0 AND state NOT IN (?, ?, ?) LIMIT 1", ended
        ).fetchone()
        if row is not None:
            return "effects", str(row[0]), f"the audit says that it is {row[1]}; it was deleted", True
        row = self._scratch.execute(
            "SELECT owed.key FROM owed JOIN operation ON operation.key = owed.cause WHERE operation.seen AND NOT owed.seen LIMIT 1"
        ).fetchone()
        return None if row is None else ("effects", row[0], "its command is there; it was deleted", True)


def _differing(row: Row, said: tuple[Any, ...]) -> str | None:
    """Return the first column of an operation that differs from its key or its events, as a sentence."""
    if keys.sha256(str(row["payload"]).encode()) != row["payload_hash"]:
        return "column payload does not have the hash in column payload_hash: one of them was edited"
    named = ("source", "source_request_id", "action_kind", "aggregate_id", "aggregate_version", "payload_hash")
    if keys.operation_key(**{name: row[name] for name in named}) != row["operation_key"]:
        return f"its key is not the one of its columns ({', '.join(named)}): one of them was edited"
    lane = row["operation_key"] if row["aggregate_id"] == "new" else row["aggregate_id"]
    wanted = {
        "actor": said[1],
        "actor_type": said[2],
        "correlation_id": said[3],
        "state": said[4],
        "outcome": said[5],
        "lane": lane,
    }
    for name, value in wanted.items():
        if row[name] != value:
            return f"column {name} is {row[name]!r}; the audit says {value!r}: it was edited"
    return None
