"""Identity: canonical JSON (RFC 8785) and the keys hashed from it.

A key is a JSON array, never a joined string: `a|b|c` is ambiguous. Golden vectors in the tests pin every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import rfc8785

if TYPE_CHECKING:
    Json = str | int | bool | None | Sequence["Json"] | Mapping[str, "Json"]

OPERATION_TAG = "quotebot/op/1"
EFFECT_TAG = "quotebot/fx/1"


def canonical_json(value: Json) -> bytes:
    """Return the one byte form of `value`. Floats are refused: money and ratios travel as strings."""
    _refuse_floats(value)
    return rfc8785.dumps(value)


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical form, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def operation_key(
    *,
    source: str,
    source_request_id: str,
    action_kind: str,
    aggregate_id: str,
    aggregate_version: int | None,
    payload_hash: str,
) -> str:
    """Return the idempotency key of a command (SPEC 3.1)."""
    return digest([OPERATION_TAG, source, source_request_id, action_kind, aggregate_id, aggregate_version, payload_hash])


def effect_key(parent_key: str, effect_class: str, ordinal: int) -> str:
    """Return the idempotency key of an owed effect, stable over attempts and replays. `parent_key`: operation or effect."""
    return digest([EFFECT_TAG, parent_key, effect_class, ordinal])


def correlation_id(key: str) -> str:
    """Return the short reference people see: `c-` and the first eight digits of the operation key."""
    return f"c-{key[:8]}"


def _refuse_floats(value: Json) -> None:
    if isinstance(value, float):
        raise TypeError(f"a float cannot be part of an identity: {value!r}; use a decimal string")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            _refuse_floats(item)
