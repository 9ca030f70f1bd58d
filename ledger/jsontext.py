"""JSON as the ledger stores and signs it: compact UTF-8 with sorted names. It is written on every commit, hence orjson."""

from __future__ import annotations

from typing import Any

import orjson


def dumps(value: object) -> str:
    """Return the JSON text of `value`, names sorted."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def loads(text: str | bytes) -> Any:
    """Parse JSON text."""
    return orjson.loads(text)
