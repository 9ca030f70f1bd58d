"""JSON as the ledger stores and signs it: compact UTF-8, names in order. Written on every commit, hence the fast library."""

from __future__ import annotations

from typing import Any

import orjson


def dumps(value: object) -> str:
    """Return the JSON text of `value`, names sorted."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def loads(text: str | bytes) -> Any:
    """Read JSON text."""
    return orjson.loads(text)
