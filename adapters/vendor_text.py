"""Sanitised text of other systems: one line, truncated, without terminal control or text direction characters."""

from __future__ import annotations

import re
from typing import Final

# C0 except tab and line feed, DEL, C1, soft hyphen, marks of direction, invisible and separating characters, tags, surrogates.
UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
REPLACED: Final = "\ufffd"


def vendor_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text on one line; unprintable characters become replacement characters."""
    cut = text[: 2 * limit]  # whitespace is collapsed below
    if not (cut.isascii() and cut.isprintable()):
        cut = UNPRINTABLE.sub(REPLACED, cut.replace("\r", "\n"))
    line = " ".join(cut.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
