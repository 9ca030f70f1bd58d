"""Append-only audit: one event per change, in the transaction of the change, chained by HMAC per aggregate.

Event types are a registry; others are refused. Events are passed to the database while the transaction runs and are chained right
before its COMMIT, all events of a batch at once (`Audit.chain`), so a chain costs one read of its head per commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.audit import chain
from ledger.jsontext import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.audit.chain import Keyring
    from ledger.database import Tx
    from ledger.records import Effect, Operation

SYSTEM_CHAIN: Final = "system"  # events without an aggregate
SCHEMA_VERSION: Final = 1

LEDGER_EVENTS = frozenset(
    {
        "operation.reserved",
        "operation.claimed",
        "operation.applied",
        "operation.refused",
        "operation.retry_scheduled",
        "operation.released",
        "operation.shelved",  # its payload needs a newer build
        "operation.late_result",
        "operation.replayed",
        "operation.cancelled",
        "operation.discarded",
        "delivery.duplicate",
        "delivery.conflict",
        "delivery.dropped",  # larger than any request Slack sends
        "effect.owed",
        "effect.claimed",
        "effect.delivered",
        "effect.retry_scheduled",
        "effect.uncertain",
        "effect.superseded",
        "effect.late_result",
        "effect.released",
        "effect.replayed",
        "effect.hastened",  # an operator retried it before its next attempt was due
        "effect.resolved",
        "effect.cancelled",
        "effect.discarded",
        "dead_letter.payload_shown",
        "class.paused",
        "class.half_open",
        "class.resumed",
        "retention.purged",
        "audit.exported",
        "audit.key_rotated",
        "ledger.restored",
        "ledger.migrated",
        "system.error",  # a dead letter
        "history.bound",  # a commit changed bound rows without an event in their chain
        "history.bound_from",  # the rows of an older build were bound as found
    }
)


class Entry(NamedTuple):
    """An event before it is chained, in the order of its columns. `before` and `after` are JSON text."""

    at: int
    event_type: str
    aggregate_id: str
    operation_key: str | None
    effect_id: int | None
    correlation_id: str | None
    actor: str
    actor_type: str
    retry_count: int | None
    failure_category: str | None
    recovery_action: str | None
    before: str | None
    after: str | None


_AFTER_AGGREGATE: Final = Entry._fields.index("aggregate_id") + 1


class Audit:
    """Writer of audit events. `domain_events` are the product's additional event types; `keyring` signs the chains.

    `terminal_user` is the system user of a process started in a terminal: each event of an operator names that user.
    """

    def __init__(self, domain_events: frozenset[str], keyring: Keyring, *, terminal_user: str | None = None) -> None:
        self._known = LEDGER_EVENTS | domain_events
        self.keyring = keyring
        self.terminal_user = terminal_user

    def of_operation(
        self, tx: Tx, at: int, event_type: str, operation: Operation, *, actor: str | None = None, **details: Any
    ) -> None:
        """Append an event about an operation. `details`: retry_count, failure_category, recovery_action, before, after."""
        self.append(
            tx,
            at,
            event_type,
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            aggregate_id=details.pop("aggregate_id", operation.aggregate_id),
            actor=actor or operation.actor,
            actor_type=operation.actor_type if actor is None else _actor_type(actor),
            **details,
        )

    def of_effect(self, tx: Tx, at: int, event_type: str, effect: Effect, *, actor: str = "quotebot", **details: Any) -> None:
        """Append an event about an effect."""
        self.append(
            tx,
            at,
            event_type,
            effect_id=effect.id,
            correlation_id=effect.correlation_id,
            aggregate_id=details.pop("aggregate_id", effect.aggregate_id),
            actor=actor,
            actor_type=_actor_type(actor),
            **details,
        )

    def append(
        self,
        tx: Tx,
        at: int,
        event_type: str,
        *,
        actor: str,
        actor_type: str,
        operation_key: str | None = None,
        effect_id: int | None = None,
        correlation_id: str | None = None,
        aggregate_id: str | None = None,
        retry_count: int | None = None,
        failure_category: str | None = None,
        recovery_action: str | None = None,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one event. Raises ValueError for a type outside the registry."""
        if event_type not in self._known:
            raise ValueError(f"{event_type} is not a registered audit event type")
        if self.terminal_user is not None and actor_type == "operator":
            after = {"terminal_user": self.terminal_user, **(after or {})}
        tx.emit(
            Entry(
                at,
                event_type,
                SYSTEM_CHAIN if aggregate_id in (None, "new") else str(aggregate_id),
                operation_key,
                effect_id,
                correlation_id,
                actor,
                actor_type,
                retry_count,
                failure_category,
                recovery_action,
                None if before is None else dumps(before),
                None if after is None else dumps(after),
            )
        )

    def chain(self, tx: Tx, entries: Sequence[Entry]) -> None:
        """Append the entries of one commit to their chains. The database calls this right before COMMIT."""
        if not entries:
            return
        key_id, key = self.keyring.current
        event_id: int = tx.required("last_audit_id")["id"] or 0
        heads: dict[str, chain.ChainHead] = {}
        rows = []
        for entry in entries:
            head = heads.get(entry.aggregate_id) or _head(tx, entry.aggregate_id)
            event_id += 1
            values = (
                event_id,
                entry.at,
                entry.event_type,
                entry.aggregate_id,
                head.seq + 1,
                head.event_id,
                *entry[_AFTER_AGGREGATE:],
                SCHEMA_VERSION,
                key_id,
            )
            mac = chain.values_mac(key, head.mac, values)
            rows.append((*values, mac))
            heads[entry.aggregate_id] = chain.ChainHead(event_id, head.seq + 1, mac)
        tx.many("insert_audit", rows)
        tx.many("put_audit_head", [_sealed(key_id, key, aggregate_id, head) for aggregate_id, head in heads.items()])


def _head(tx: Tx, aggregate_id: str) -> chain.ChainHead:
    row = tx.one("audit_head", aggregate_id=aggregate_id)
    return chain.EMPTY if row is None else chain.ChainHead(row["event_id"], row["seq"], row["mac"])


def _sealed(key_id: str, key: bytes, aggregate_id: str, head: chain.ChainHead) -> tuple[object, ...]:
    return aggregate_id, *head, key_id, chain.head_seal(key, aggregate_id, head)


def _actor_type(actor: str) -> str:
    return "system" if actor == "quotebot" else "operator"
