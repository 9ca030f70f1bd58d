"""SOQL literals for text and timestamps. Names in a query come from the mapping, which accepts API names only."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": " ", "\r": " ", "\t": " "})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def soql_text(text: str) -> str:
    """Return the text as a literal, including the quotes."""
    return f"'{_CONTROL.sub(' ', text.translate(_ESCAPED))}'"


def soql_beginning(text: str) -> str:
    """Return a LIKE literal that matches values beginning with the text; its own % and _ are escaped."""
    escaped = _CONTROL.sub(" ", text.translate(_ESCAPED))
    return "'" + escaped.replace("%", "\\%").replace("_", "\\_") + "%'"


def soql_containing(text: str) -> str:
    """Return a LIKE literal that matches values containing the text; its own % and _ are escaped."""
    return f"'%{soql_beginning(text)[1:]}"


def soql_moment(modstamp: str, *, back_seconds: float = 0.0) -> str:
    """Return a timestamp in Salesforce's format (2026-11-21T10:31:00.000+0000) as a UTC literal, `back_seconds` earlier.

    Raises ValueError if it is not a timestamp.
    """
    moment = datetime.fromisoformat(modstamp).astimezone(UTC) - timedelta(seconds=back_seconds)
    return moment.isoformat(timespec="milliseconds")
