"""MACs and seals of the audit chain: the signed content and the signing keys. Pure; events.py accesses the rows.

An event's MAC covers every column and the previous MAC in its aggregate's chain, so an edit, a deletion in the middle or a swap
breaks the chain from there on. The seal of a chain's head covers the end of the chain: a truncated chain no longer matches it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    return hmac.digest(key, orjson.dumps((EVENT_TAG, previous_mac.hex(), *values)), "sha256")


def head_seal(key: bytes, aggregate_id: str, head: ChainHead) -> bytes:
    """Seal the end of a chain."""
    return hmac.digest(key, orjson.dumps([HEAD_TAG, aggregate_id, head.event_id, head.seq, head.mac.hex()]), "sha256")


def anchor_seal(key: bytes, at: int, last_event_id: int, chains: int, heads_sha256: str) -> bytes:
    """Seal the heads of all chains at a time (Unix milliseconds)."""
    return hmac.digest(key, orjson.dumps([ANCHOR_TAG, at, last_event_id, chains, heads_sha256]), "sha256")
