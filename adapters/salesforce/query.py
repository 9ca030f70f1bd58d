"""What goes into a query: text and moments as SOQL literals. Names come from the mapping, which takes API names only."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": " ", "\r": " ", "\t": " "})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def soql_text(text: str) -> str:
    """Return text as a literal, quotes included."""
    return f"'{_CONTROL.sub(' ', text.translate(_ESCAPED))}'"


def soql_beginning(text: str) -> str:
    """Return a LIKE literal for what begins with the text: its own % and _ are plain characters."""
    escaped = _CONTROL.sub(" ", text.translate(_ESCAPED))
    return "'" + escaped.replace("%", "\\%").replace("_", "\\_") + "%'"


def soql_containing(text: str) -> str:
    """Return a LIKE literal for what holds the text anywhere: its own % and _ are plain characters."""
    return f"'%{soql_beginning(text)[1:]}"


def soql_moment(modstamp: str, *, back_seconds: float = 0.0) -> str:
    """Return a moment as Salesforce answers it (2026-11-21T10:31:00.000+0000) as a literal, `back_seconds` earlier, in UTC.

    Raises ValueError for what is none.
    """
    moment = datetime.fromisoformat(modstamp).astimezone(UTC) - timedelta(seconds=back_seconds)
    return moment.isoformat(timespec="milliseconds")
