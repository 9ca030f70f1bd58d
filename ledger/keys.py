"""JSON as the ledger stores and signs it, and the keys of operations and effects: hashes of canonical JSON (RFC 8785).

A key is a JSON array, never a joined string: `a|b|c` is ambiguous. Golden vectors in the tests pin every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import rfc8785

if TYPE_CHECKING:
    Json = str | int | bool | None | Sequence["Json"] | Mapping[str, "Json"]

OPERATION_TAG = "quotebot/op/1"
EFFECT_TAG = "quotebot/fx/1"


def dumps(value: object) -> str:
    """Return the JSON text of `value`: compact, names sorted. It is written on every commit, hence orjson."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def loads(text: str | bytes) -> Any:
    """Parse JSON text."""
    return orjson.loads(text)


def canonical_json(value: Json) -> bytes:
    """Return the canonical bytes of `value`. Raises TypeError on floats: money and ratios are passed as strings.

    orjson writes RFC 8785 output when every name is ASCII (both then sort alike) and every number is an integer that a double holds
    exactly; any other value uses the slower library. A property test compares the two.
    """
    if _is_plain(value):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return rfc8785.dumps(value)


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical form, as 64 hex digits."""
    return sha256(canonical_json(value))


def sha256(canonical: bytes) -> str:
    """Return the SHA-256 of already canonical bytes, as 64 hex digits."""
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
    return sha256(orjson.dumps(named))  # strings and integers only, therefore already canonical


def effect_key(parent_key: str, effect_class: str, ordinal: int) -> str:
    """Return the idempotency key of an effect, stable over attempts and replays. `parent_key`: operation or effect."""
    return sha256(orjson.dumps([EFFECT_TAG, parent_key, effect_class, ordinal]))  # as above


def correlation_id(key: str) -> str:
    """Return the short reference shown to people: `c-` and the first eight digits of the operation key."""
    return f"c-{key[:8]}"


def trace_id(reference: str) -> str:
    """Return the id of a command's trace, derived from its short reference, so that a replay a week later has the same one."""
    return sha256(f"quotebot {reference}".encode())[:32]


def operation_label(action_kind: str, actor: str, aggregate_id: str, version: int | None) -> str:
    """Return the readable name of a command, e.g. `approval:U0CFO:Q-2026-0042:decide:v3`. Unlike its key, it need not be unique.

    `version` is the one that the person saw, else the head at reservation; a dash stands for none.
    """
    domain, _, verb = action_kind.partition(".")
    return ":".join((domain, actor, aggregate_id, verb, "-" if version is None else f"v{version}"))


_WHOLE_MAX = 2**53 - 1
_LEAVES = frozenset({str, bool, type(None)})


def _is_plain(value: Json) -> bool:
    """Tell whether orjson's output is the canonical form. Raises TypeError on a float at any depth."""
    plain = True
    todo: list[Any] = [value]
    for item in todo:  # the list grows during iteration; a loop, because every commit waits for it
        kind = type(item)
        if kind in _LEAVES or isinstance(item, str):
            continue
        if isinstance(item, int):
            plain = plain and -_WHOLE_MAX <= item <= _WHOLE_MAX
        elif kind is dict:  # the usual types first: a test against an abstract class takes long
            todo += item.values()
            plain = plain and _are_ascii(item)
        elif kind is list:
            todo += item
        elif isinstance(item, float):
            raise TypeError(f"a float cannot be part of an identity: {item!r}; use a decimal string")
        elif isinstance(item, Mapping):
            todo += item.values()
            plain = plain and isinstance(item, dict) and _are_ascii(item)
        elif isinstance(item, Sequence):
            todo += item
            plain = plain and isinstance(item, list | tuple)
        else:
            plain = False
    return plain


def _are_ascii(names: Iterable[Any]) -> bool:
    try:
        return "".join(names).isascii()
    except TypeError:  # not all names are strings
        return False
