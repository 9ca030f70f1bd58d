"""Identity: canonical JSON (RFC 8785) and the keys hashed from it.

A key is a JSON array, never a joined string: `a|b|c` is ambiguous. Golden vectors in the tests pin every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import orjson
import rfc8785

if TYPE_CHECKING:
    Json = str | int | bool | None | Sequence["Json"] | Mapping[str, "Json"]

OPERATION_TAG = "quotebot/op/1"
EFFECT_TAG = "quotebot/fx/1"


def canonical_json(value: Json) -> bytes:
    """Return the one byte form of `value`. Floats are refused: money and ratios travel as strings.

    The quick encoder writes what RFC 8785 asks for when every name is ASCII (only then do both sort alike) and every number a whole
    one that a double holds; anything else goes the library's slow way. A property test holds the two together.
    """
    if _is_plain(value):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return rfc8785.dumps(value)


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical form, as 64 hex digits."""
    return sha256(canonical_json(value))


def sha256(canonical: bytes) -> str:
    """Return the SHA-256 of bytes that are canonical already, as 64 hex digits."""
    return hashlib.sha256(canonical).hexdigest()


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
    if isinstance(aggregate_version, float):
        raise TypeError(f"a float cannot be part of an identity: {aggregate_version!r}")
    named = [OPERATION_TAG, source, source_request_id, action_kind, aggregate_id, aggregate_version, payload_hash]
    return sha256(orjson.dumps(named))  # text and whole numbers alone: canonical as it is


def effect_key(parent_key: str, effect_class: str, ordinal: int) -> str:
    """Return the idempotency key of an owed effect, stable over attempts and replays. `parent_key`: operation or effect."""
    return sha256(orjson.dumps([EFFECT_TAG, parent_key, effect_class, ordinal]))  # as above


def correlation_id(key: str) -> str:
    """Return the short reference people see: `c-` and the first eight digits of the operation key."""
    return f"c-{key[:8]}"


_WHOLE_MAX = 2**53 - 1


def _is_plain(value: Json) -> bool:
    """Tell whether the quick encoder's form is the canonical one. Raises TypeError on a float."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_WHOLE_MAX <= value <= _WHOLE_MAX
    if isinstance(value, float):
        raise TypeError(f"a float cannot be part of an identity: {value!r}; use a decimal string")
    if isinstance(value, dict):
        return all([_is_plain(item) and _is_ascii(name) for name, item in value.items()])  # noqa: C419 -- all: floats are refused anywhere
    if isinstance(value, list | tuple):
        return all([_is_plain(item) for item in value])  # noqa: C419 -- as above
    _refuse_floats(value)
    return False


def _is_ascii(name: object) -> bool:
    return isinstance(name, str) and name.isascii()


def _refuse_floats(value: Json) -> None:
    if isinstance(value, Mapping):
        for item in value.values():
            _is_plain(item)
    elif isinstance(value, Sequence):
        for item in value:
            _is_plain(item)
