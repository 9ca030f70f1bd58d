"""Evidence for the checker: the ledger's rows, what the services recorded, what the clients saw. Nothing of the code under test.

All rows are read once, in one read transaction, with plain SQL; the invariants are then pure functions of these facts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

Row = dict[str, Any]

OPEN_EFFECTS: Final = frozenset({"pending", "in_flight", "uncertain"})
OPEN_OPERATIONS: Final = frozenset({"reserved", "in_progress", "failed_retryable"})
LEDGER_EVENTS: Final = ("operation.", "effect.", "delivery.", "class.", "dead_letter.", "retention.", "audit.", "system.")


@dataclass(frozen=True, slots=True)
class Outside:
    """Records of the external services.

    Messages and files as in GET /_sandbox/state, Salesforce records by object, and the request log (`sightings`).

    The `at` of the `sightings` must come from the same clock that the bot reads.
    """

    messages: list[dict[str, Any]]
    files: list[dict[str, Any]]
    crm: Mapping[str, list[dict[str, Any]]]
    sightings: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """One delivery as its client saw it.

    `request_id` is what the ledger records ("T0TEAM:trigger"); `kind` is the command asked for ("quote.create"), empty where
    nothing is to be recorded (help, a form that opens); `text` is the text of the acknowledgement.
    """

    request_id: str
    kind: str
    actor: str
    acked: bool
    at_ms: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class House:
    """The installation: the audit's keys by id, its documents by SHA-256, the holders of each role. None or empty: not known.

    `clock_back_ms` is how far the bot's clock was set back in total; measured waits may seem shorter by that amount.
    """

    keys: Mapping[str, bytes] = field(default_factory=dict)
    document: Callable[[str], bytes | None] | None = None
    approvers: Mapping[str, Sequence[str]] | None = None
    clock_back_ms: int = 0


def read_document(folder: Path, sha256: str) -> bytes | None:
    """Return the content of a document in a bot's data folder, or None."""
    path = folder / "artefacts" / f"{sha256}.pdf"
    return path.read_bytes() if path.is_file() else None


NOBODY: Final = Outside([], [], {}, [])

_OPERATIONS: Final = """
SELECT id, operation_key, source, source_request_id, action_kind, aggregate_id, lane, aggregate_version, pinned_version,
  payload_hash, payload, correlation_id, actor, actor_type, team_id, received_at, state, outcome, response, claims, attempts, fence,
  epoch, cycle, ever_failed, category, last_error, failure_history FROM operations ORDER BY id
"""
_EFFECTS: Final = """
SELECT id, effect_key, operation_id, parent_id, class, semantics, target, aggregate_id, after_id, payload, steps, state,
  next_attempt_at, not_before, claims, attempts, fence, epoch, claimed_at, uncertain_since, maybe_sent, cycle, ever_failed,
  category, last_error, failure_history, external_ref, result, updated_at
FROM effects ORDER BY id
"""
_DELIVERIES: Final = "SELECT id, source, source_request_id, action_kind, operation_id, transport, seen FROM deliveries ORDER BY id"
_QUOTES: Final = """
SELECT quote_id, version, state, account, requester, team_id, valid_until, created_by_operation, thread_ts FROM quotes
ORDER BY quote_id
"""


class Facts:
    """All facts that one verdict is based on."""

    def __init__(
        self, ledger: sqlite3.Connection, outside: Outside, history: Sequence[ClientRecord], house: House, *, at_rest: bool
    ) -> None:
        self.ledger = ledger
        self.outside = outside
        self.history = history
        self.house = house
        self.at_rest = at_rest
        own = not ledger.in_transaction
        if own:
            ledger.execute("BEGIN")
        try:
            self._read()
        finally:
            if own:
                ledger.execute("ROLLBACK")

    def _read(self) -> None:
        self.operations = rows(self.ledger, _OPERATIONS)
        self.effects = rows(self.ledger, _EFFECTS)
        self.attempts = rows(self.ledger, "SELECT * FROM attempts ORDER BY id")
        self.events = rows(self.ledger, "SELECT * FROM audit_events ORDER BY id")
        self.heads = rows(self.ledger, "SELECT * FROM audit_heads")
        self.anchors = rows(self.ledger, "SELECT * FROM audit_anchors ORDER BY id")
        self.deliveries = rows(self.ledger, _DELIVERIES)
        self.quotes = rows(self.ledger, _QUOTES)
        self.versions = rows(self.ledger, "SELECT * FROM quote_versions")
        self.rulesets = rows(self.ledger, "SELECT version, hash, state, document FROM rulesets")
        self.approvals = rows(self.ledger, "SELECT * FROM approvals")
        self.slots_of = grouped(rows(self.ledger, "SELECT * FROM approval_slots ORDER BY approval_id, slot"), "approval_id")
        self.reviser_of = {  # the operation that made a version from its predecessor
            (row["quote_id"], row["version"] + 1): row["superseded_by"]
            for row in rows(self.ledger, "SELECT * FROM superseded_versions")
        }
        self.kind_of = {row["user_id"]: row["kind"] for row in rows(self.ledger, "SELECT * FROM people")}  # as reported by Slack
        self.gates = rows(self.ledger, "SELECT * FROM gates")
        self.tombstones = {row["operation_key"]: row for row in rows(self.ledger, "SELECT * FROM tombstones")}
        self.meta = {row["name"]: row["value"] for row in rows(self.ledger, "SELECT name, value FROM meta")}
        self.epochs = {row["epoch"]: row for row in rows(self.ledger, "SELECT * FROM epochs")}
        self.generations = rows(self.ledger, "SELECT generation, backup_made_at, started_at FROM generations")
        self.effect = {row["id"]: row for row in self.effects}
        self.effect_by_key = {row["effect_key"]: row for row in self.effects}
        self.operation = {row["id"]: row for row in self.operations}
        self.operation_by_key = {row["operation_key"]: row for row in self.operations}
        self.attempts_of = grouped(self.attempts, "effect_id")
        self.effects_of = grouped(self.effects, "operation_id")
        self.events_of_effect = grouped(self.events, "effect_id")
        # an event about an effect names the operation, too
        self.events_of_operation = grouped((event for event in self.events if event["effect_id"] is None), "operation_key")

    def all_lost(self, requests: Iterable[Row]) -> bool:
        """Tell whether all these requests were made in a lost part of the ledger."""
        return all(self.lost(request["at"] * 1000) for request in requests)

    def lost(self, at_ms: float) -> bool:
        """Tell whether the record of this time is lost: it was after a backup that was restored, and before the restore."""
        return any(row["backup_made_at"] - self.slack_ms <= at_ms <= row["started_at"] + self.slack_ms for row in self.generations)

    @cached_property
    def purges(self) -> list[Row]:
        """The completed purges, oldest first, each with what it deleted."""
        found = [
            {"at": event["at"], **loaded(event["after"])} for event in self.events if event["event_type"] == "retention.purged"
        ]
        if "retention" in self.meta:  # one is under way, or was killed
            found.append({"at": self.events[-1]["at"] if self.events else 0, **loaded(self.meta["retention"])})
        return found

    @cached_property
    def forgets(self) -> bool:
        """True if retention has deleted any command: rows that the audit names may then be gone."""
        return bool(self.tombstones) or any(purge.get("operations") for purge in self.purges)

    @cached_property
    def slack_ms(self) -> int:
        """Tolerance when two times are compared: the largest observed step of the clock backwards, plus 1 ms."""
        back: int = sum(max(0, before["at"] - after["at"]) for before, after in pairwise(self.events))
        return 1 + max(back, self.house.clock_back_ms)

    @cached_property
    def claims_of(self) -> dict[int, list[Row]]:
        """Every claim of each effect that may have sent something: an ended attempt, or the one under way."""
        ended = (attempt for attempt in self.attempts if attempt["kind"] == "send")
        under_way = (
            {"effect_id": effect["id"], "started_at": effect["claimed_at"]}
            for effect in self.effects
            if effect["state"] == "in_flight"
        )
        return grouped((*ended, *under_way), "effect_id")

    @cached_property
    def sightings(self) -> dict[str, list[Row]]:
        """The request log, by method."""
        return grouped(self.outside.sightings, "method")

    @cached_property
    def message_by_key(self) -> dict[str, list[Row]]:
        """The messages that carry one of Quotebot's keys, by key."""
        return grouped(self.outside.messages, message_key)

    @cached_property
    def sent_again(self) -> dict[int, int]:
        """Number of times a person ordered an effect to be sent again without a check, by effect."""
        return Counter(
            event["effect_id"]
            for event in self.events
            if event["event_type"] == "effect.resolved" and loaded(event["after"]).get("state") == "pending"
        )

    @cached_property
    def crm_effects(self) -> dict[str, Row]:
        """The effects that write to Salesforce, by the key they write under."""
        return {
            f"{self.meta.get('ledger_id')}_{effect['aggregate_id']}_v{loaded(effect['payload']).get('version')}": effect
            for effect in self.effects
            if effect["class"] == "crm.create"
        }

    @cached_property
    def file_effects(self) -> dict[str, Row]:
        """The effects that share files, by the file's id, as far as it is recorded."""
        return {
            name: effect
            for effect in self.effects
            if effect["class"] == "slack.file"
            for name in (loaded(effect["steps"]).get("ticket", {}).get("file_id"), effect["external_ref"])
            if name
        }

    @cached_property
    def reply_hooks(self) -> dict[str, list[Row]]:
        """The ephemeral replies, by the public part of their response_url."""
        found: dict[str, list[Row]] = defaultdict(list)
        for delivery in self.deliveries:
            if delivery["operation_id"] not in self.operation:
                continue  # purged, with its effects
            parts = (loaded(delivery["transport"]).get("response_url") or "").split("/")
            hooks = [part for part in parts if part][-2:-1]
            replies = [effect for effect in self.effects_of.get(delivery["operation_id"], ()) if effect["class"] == "slack.reply"]
            for hook in hooks:
                found[hook] += [reply for reply in replies if reply not in found[hook]]
        return found


def rows(ledger: sqlite3.Connection, sql: str) -> list[Row]:
    """Run one SELECT and return its rows as dicts, whatever row factory the connection has."""
    cursor = ledger.cursor()
    cursor.row_factory = None
    found = cursor.execute(sql).fetchall()
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, values, strict=True)) for values in found]


def grouped(found: Iterable[Row], by: str | Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Group rows by one column, or by what a function returns; rows without a value in it are left out."""
    groups: dict[Any, list[Row]] = {}
    for row in found:
        key = row[by] if isinstance(by, str) else by(row)
        if key is not None:
            groups.setdefault(key, []).append(row)
    return groups


def loaded(text: str | None) -> Row:
    """Parse a JSON object of the ledger; None, empty text or any other JSON value gives an empty object."""
    value = orjson.loads(text) if text else None
    return value if isinstance(value, dict) else {}


def message_key(message: Mapping[str, Any]) -> str | None:
    """Return Quotebot's key from a message's metadata, or None."""
    metadata = message.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    key = payload.get("key") if isinstance(payload, dict) else None
    return key if isinstance(key, str) else None


def is_domain(event: Row) -> bool:
    """Tell whether an audit event is about the business domain and not about the ledger's own work."""
    return not event["event_type"].startswith(LEDGER_EVENTS)
