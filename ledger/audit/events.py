"""Append-only audit: one event per change, in the transaction of the change, chained by HMAC per aggregate.

Event types are a registry; others are refused. An event about a row names its operation, its correlation id, the attempts of its
cycle so far, the category of the failure and the recovery, where there are any, and the actor.

Events are passed to the database while the transaction runs and are chained right before its COMMIT, all events of a batch at once
(`Audit.chain`), so a chain costs one read of its head per commit.

An event's MAC covers every column and the previous MAC in its aggregate's chain, so an edit, a deletion in the middle or a swap
breaks the chain from there on. The seal of a chain's head covers the end of the chain: a truncated chain no longer matches it.

The engine gives the ids, and the schema version of an event says how they follow: with one writer (SQLite) they are consecutive
over all chains (1); with several (PostgreSQL) they have gaps and commit out of order, and only grow along each chain (2). See
docs/decisions/0016-audit-ids-may-have-gaps.md.

Events also bind the tables. Temporary triggers on the writer's connection report each row of a bound table
(ledger/audit/columns.py) that a statement inserts, updates or deletes. Right before COMMIT `Binding` reads these rows once more and
adds `bound` to the `after` of an event of the same commit and chain: {table: {key: digest}}, None for a deleted row.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from ledger import keys
from ledger.keys import dumps, loads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.audit.columns import TableColumns
    from ledger.clock import Clock
    from ledger.database import Row, Tx
    from ledger.records import ActorType, Effect, Operation

KEY_BYTES: Final = 32
EVENT_TAG: Final = "quotebot/audit/1"
HEAD_TAG: Final = "quotebot/audit-head/1"
ANCHOR_TAG: Final = "quotebot/audit-anchor/1"

EVENT_COLUMNS: Final = (  # the order in which they are signed
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


class ChainHead(NamedTuple):
    """The end of a chain."""

    event_id: int | None
    seq: int
    mac: bytes


EMPTY: Final = ChainHead(None, 0, bytes(32))


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys that signed this ledger, by id. The current key signs new events; old keys verify old events."""

    current_id: str
    keys: Mapping[str, bytes]

    @property
    def current(self) -> tuple[str, bytes]:
        """The id of the current signing key, and the key."""
        return self.current_id, self.keys[self.current_id]

    @classmethod
    def of(cls, current: bytes, *older: bytes) -> Keyring:
        """Build a keyring from raw keys. Raises ValueError for a key shorter than 32 bytes."""
        for key in (current, *older):
            if len(key) < KEY_BYTES:
                raise ValueError(f"an audit key has {len(key)} bytes; it needs {KEY_BYTES}")
        return cls(key_id(current), {key_id(key): key for key in (current, *older)})


def key_id(key: bytes) -> str:
    """Return the public name of a key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:16]


def values_mac(key: bytes, previous_mac: bytes, values: Sequence[str | int | None]) -> bytes:
    """Sign one event, given as the values of EVENT_COLUMNS in that order, after the MAC of the previous one.

    At a chain's start that MAC is 32 zero bytes.
    """
    return _mac(key, orjson.dumps((EVENT_TAG, previous_mac.hex(), *values)))


def head_seal(key: bytes, aggregate_id: str, head: ChainHead) -> bytes:
    """Seal the end of a chain."""
    return _mac(key, orjson.dumps([HEAD_TAG, aggregate_id, head.event_id, head.seq, head.mac.hex()]))


def anchor_seal(key: bytes, at: int, last_event_id: int, chains: int, heads_sha256: str) -> bytes:
    """Seal the heads of all chains at a time (Unix milliseconds)."""
    return _mac(key, orjson.dumps([ANCHOR_TAG, at, last_event_id, chains, heads_sha256]))


def _mac(key: bytes, message: bytes) -> bytes:
    mac = _begun(key).copy()
    mac.update(message)
    return mac.digest()


@functools.lru_cache(maxsize=8)
def _begun(key: bytes) -> hmac.HMAC:
    """Return a MAC that has taken in the key and no message. To begin one takes longer than to copy it and sign an event."""
    return hmac.new(key, digestmod="sha256")


SYSTEM_CHAIN: Final = "system"  # events without an aggregate
WITH_GAPS: Final = (
    2  # schema version of events whose ids only grow along a chain; those of version 1 are consecutive over all chains
)

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
        "operation.resubmitted",  # an edited copy of a dead command was reserved
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
        "operation.hastened",  # a person retried it before its next attempt was due
        "effect.hastened",  # an operator retried it before its next attempt was due
        "effect.resolved",
        "effect.cancelled",
        "effect.discarded",
        "dead_letter.payload_shown",
        "class.paused",
        "class.held",  # until a time that the service named, or again during an outage
        "class.half_open",
        "class.resumed",
        "retention.purged",
        "audit.exported",
        "audit.key_rotated",
        "ledger.restored",
        "ledger.migrated",
        "ledger.moved",  # to another engine: the last event before it
        "ledger.move_undone",
        "ledger.rebuilt",  # derived rows that were wrong were computed again
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
_chain_of = attrgetter("aggregate_id")


class Audit:
    """Writer of audit events. `domain_events` are the product's additional event types; `keyring` signs the chains.

    `terminal_user` is the system user of a process started in a terminal: each event of an operator names that user.
    `system_chain` is the chain of events without an aggregate: `system`, or `system/` and the name of this writer where several
    write one ledger, so that they do not wait for each other at one head.
    """

    def __init__(
        self,
        domain_events: frozenset[str],
        keyring: Keyring,
        *,
        terminal_user: str | None = None,
        system_chain: str = SYSTEM_CHAIN,
    ) -> None:
        if not is_system_chain(system_chain):
            raise ValueError(f"{system_chain!r} is no chain of events without an aggregate")
        self._known = LEDGER_EVENTS | domain_events
        self.keyring = keyring
        self.terminal_user = terminal_user
        self.system_chain = system_chain

    def of_operation(
        self,
        tx: Tx,
        at: int,
        event_type: str,
        operation: Operation,
        *,
        actor: str | None = None,
        actor_type: ActorType | None = None,
        **details: Any,
    ) -> None:
        """Append an event about an operation; by default its own actor caused it.

        `details`: failure_category, recovery_action, before, after, and retry_count where it is not that of the row.
        """
        self.append(
            tx,
            at,
            event_type,
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            aggregate_id=details.pop("aggregate_id", operation.aggregate_id),
            actor=actor or operation.actor,
            actor_type=operation.actor_type if actor is None else _actor_type(actor, actor_type),
            retry_count=details.pop("retry_count", operation.attempts),
            **details,
        )

    def of_effect(
        self,
        tx: Tx,
        at: int,
        event_type: str,
        effect: Effect,
        *,
        actor: str = "quotebot",
        actor_type: ActorType | None = None,
        **details: Any,
    ) -> None:
        """Append an event about an effect. `details` as in `of_operation`."""
        self.append(
            tx,
            at,
            event_type,
            operation_key=_key_of(tx, effect),
            effect_id=effect.id,
            correlation_id=effect.correlation_id,
            aggregate_id=details.pop("aggregate_id", effect.aggregate_id),
            actor=actor,
            actor_type=_actor_type(actor, actor_type),
            retry_count=details.pop("retry_count", effect.attempts),
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
        """Append the entries of one commit to their chains. The database calls this right before COMMIT.

        The heads are read first, in order, and the ids after them: an engine with several writers locks the heads as they are read,
        so that the ids of a chain grow and no two commits wait for each other.
        """
        if not entries:
            return
        if self.system_chain != SYSTEM_CHAIN:
            entries = [_in_system_chain(entry, self.system_chain) for entry in entries]
        key_id, key = self.keyring.current
        heads = dict.fromkeys(map(_chain_of, entries), EMPTY)
        named = sorted(heads)
        found = tx.each("audit_head", [(aggregate_id,) for aggregate_id in named])
        (event_id, schema_version), *others = tx.all("next_audit_ids", count=len(entries))
        for aggregate_id, row in zip(named, found, strict=True):
            if row is not None:
                heads[aggregate_id] = ChainHead(row["event_id"], row["seq"], row["mac"])
        others.reverse()
        rows = []
        for entry in entries:
            head = heads[entry.aggregate_id]
            values = (
                event_id,
                entry.at,
                entry.event_type,
                entry.aggregate_id,
                head.seq + 1,
                head.event_id,
                *entry[_AFTER_AGGREGATE:],
                schema_version,
                key_id,
            )
            mac = values_mac(key, head.mac, values)
            rows.append((*values, mac))
            heads[entry.aggregate_id] = ChainHead(event_id, head.seq + 1, mac)
            event_id = others.pop()["id"] if others else event_id + 1
        tx.many("insert_audit", rows)
        tx.many("put_audit_head", [_sealed(key_id, key, aggregate_id, head) for aggregate_id, head in heads.items()])


def is_system_chain(aggregate_id: str) -> bool:
    """Tell whether a chain holds events without an aggregate: `system`, or that of one of several writers."""
    return aggregate_id == SYSTEM_CHAIN or aggregate_id.startswith(f"{SYSTEM_CHAIN}/")


def _in_system_chain(entry: Entry, chain: str) -> Entry:
    return entry._replace(aggregate_id=chain) if entry.aggregate_id == SYSTEM_CHAIN else entry


def _sealed(key_id: str, key: bytes, aggregate_id: str, head: ChainHead) -> tuple[object, ...]:
    return aggregate_id, *head, key_id, head_seal(key, aggregate_id, head)


def _key_of(tx: Tx, effect: Effect) -> str:
    """Return the key of the command that enqueued an effect."""
    if effect.origin is not None:
        return effect.origin.operation_key
    key: str = tx.required("operation_key", id=effect.operation_id)["operation_key"]  # foreign key
    return key


def _actor_type(actor: str, given: ActorType | None) -> str:
    """Return the type of an actor: the one that is given, else that of a person at the terminal."""
    return "system" if actor == "quotebot" else given or "operator"


BOUND: Final = "bound"  # the name in an event's `after`
BOUND_EVENT: Final = "history.bound"  # event of a commit that changed rows without another event in their chain
_TRIGGERS: Final = {
    "insert": ("AFTER INSERT ON", "NEW"),
    "update": ("AFTER UPDATE OF {columns} ON", "NEW"),
    "delete": ("AFTER DELETE ON", "OLD"),
}


def row_digest(table: str, row: Mapping[str, Any] | Row, columns: Sequence[str]) -> str:
    """Return the SHA-256 of a row's bound columns: canonical JSON of [table, {column: value}], without NULL columns."""
    there = row.keys()
    values = {name: row[name] for name in columns if name in there and row[name] is not None}
    return keys.sha256(orjson.dumps([table, values], option=orjson.OPT_SORT_KEYS))


def key_text(values: Sequence[object]) -> str:
    """Return a row's primary key as one text: the value itself, or a JSON array of several values."""
    return str(values[0]) if len(values) == 1 else orjson.dumps(values).decode()


class Binding:
    """Rows that the open transaction of one writer changed. `tables` is the classification."""

    def __init__(self, tables: Mapping[str, TableColumns]) -> None:
        self._tables = {name: table for name, table in tables.items() if table.bound}
        self._touched: dict[tuple[str, tuple[object, ...]], tuple[str, bool]] = {}

    def __bool__(self) -> bool:
        """Tell whether any bound row was changed since the last `entries`."""
        return bool(self._touched)

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make a writer's connection report the rows it changes. The triggers are temporary, so the file does not contain them."""
        connection.create_function("bind_row", -1, self.report)
        connection.executescript("".join(self._triggers()))

    def bind(self, table: str, aggregate_id: str, key: Sequence[object]) -> None:
        """Bind the current state of a row with the next commit."""
        self._touched[(table, tuple(key))] = (aggregate_id, False)

    def entries(self, tx: Tx, entries: Sequence[Entry], now: int) -> list[Entry]:
        """Return the entries of a commit with the digests of its changed rows added.

        A rolled-back statement may have reported a row that is unchanged, or one that does not exist: the first is bound again, the
        second is left out.
        """
        touched, self._touched = self._touched, {}
        chains: dict[str, dict[str, dict[str, str | None]]] = {}
        told: dict[str, dict[str, object]] = {}
        for (name, key), (aggregate_id, deleted) in touched.items():
            table = self._tables[name]
            row = tx.one(f"bound_row_{name}", **dict(zip(table.keys, key, strict=True)))
            if row is None and not deleted:
                continue
            digest = None if row is None else row_digest(name, row, table.bound)
            chains.setdefault(aggregate_id, {}).setdefault(name, {})[key_text(key)] = digest
            if row is not None and table.told:
                told.setdefault(aggregate_id, {}).update({column: row[column] for column in table.told.split()})
        done = list(entries)
        for aggregate_id, bound in chains.items():
            _attach(done, aggregate_id, bound, told.get(aggregate_id, {}), now)
        return done

    def report(self, name: str, aggregate_id: str | None, deleted: int, *key: object) -> None:
        """Bind a row that a statement changed; `deleted` is 0 or 1."""
        self._touched[(name, key)] = (aggregate_id or SYSTEM_CHAIN, bool(deleted))

    def _triggers(self) -> Iterator[str]:
        for name, table in self._tables.items():
            for event, (when, row) in _TRIGGERS.items():
                keys = ", ".join(f"{row}.{key}" for key in table.keys)
                yield (
                    f"CREATE TEMP TRIGGER bound_{name}_{event} {when.format(columns=', '.join(table.bound))} main.{name} "
                    f"BEGIN SELECT bind_row('{name}', {table.chain.format(row=row)}, {int(event == 'delete')}, {keys}); END;\n"
                )


def _attach(entries: list[Entry], aggregate_id: str, bound: Mapping[str, object], told: Mapping[str, object], now: int) -> None:
    """Put digests into the last domain event of the chain, else into the last event of the chain, else into a new event."""
    last = None
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].aggregate_id == aggregate_id:
            last = place if last is None else last
            if entries[place].event_type not in LEDGER_EVENTS:
                last = place
                break
    if last is None:
        after = dumps({BOUND: bound})
        entries.append(Entry(now, BOUND_EVENT, aggregate_id, None, None, None, "quotebot", "system", None, None, None, None, after))
        return
    entry = entries[last]
    after = {} if entry.after is None else loads(entry.after)
    entries[last] = entry._replace(after=dumps({**told, **after, BOUND: bound}))


def finish_with(audit: Audit, bound: Binding, clock: Clock) -> Callable[[Tx, Sequence[Entry]], None]:
    """Return the last step of every commit: it binds the changed rows, then chains the events."""

    def finish(tx: Tx, entries: Sequence[Entry]) -> None:
        audit.chain(tx, bound.entries(tx, entries, clock.now_ms()) if bound else entries)

    return finish
