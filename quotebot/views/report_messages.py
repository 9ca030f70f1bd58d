"""Reports for a deal desk as a message in Slack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.quotes.quote import QuoteState, state_words
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.domain.quotes.reports import Report

NOT_FOR_YOU: Final = "Reports are for the deal desk and above, and for operators."
_WORDS: Final = {
    "discount_percent": "discount",
    "win_rate_percent": "won",
    "median_hours": "h median",
    "p90_hours": "h for nine of ten",
    "list_total": "list",
    "net_total": "net",
    "accepted_net": "net accepted",
    "lost_net": "net lost",
    "changes_requested": "sent back",
}
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,}")
_KEYS: Final = ("rep", "product", "month", "role", "state", "span")
_PERCENTS: Final = frozenset({"discount_percent", "win_rate_percent"})
_AMOUNTS: Final = frozenset({"list_total", "net_total", "accepted_net", "lost_net"})


def report_text(kind: str, report: Report, days: int, most: int | None) -> str:
    """Return a report as mrkdwn, one line per row; `most` is the number of quotes it was limited to, if it was."""
    head = f"*{kind.replace('-', ' ').capitalize()} of the last {days} days*"
    rows = [_row(record) for record in report.records()]
    limited = "" if most is None else f"\nOnly the first {most:,} are counted. At a terminal: `quotebot report {kind}` counts all."
    return "\n".join((head, *(rows or ["Nothing to report yet."]))) + limited


def _row(record: dict[str, str | int | None]) -> str:
    keys = [_key(name, str(value)) for name, value in record.items() if name in _KEYS and value is not None]
    currency = record.get("currency")
    cells = [
        _cell(name, value, str(currency))
        for name, value in record.items()
        if name not in (*_KEYS, "currency") and value not in (None, 0, "", "0")
    ]
    return f"\u2022 {', '.join(keys)}: {', '.join(cells)}"


def _key(name: str, text: str) -> str:
    if name == "state":
        return state_words(QuoteState(text))
    return messages.mention(text) if name == "rep" and _USER.fullmatch(text) else messages.escape(text.replace("_", " "))


def _cell(name: str, value: str | int | None, currency: str) -> str:
    if isinstance(value, int):
        words = _WORDS.get(name, name.replace("_", " "))
        return f"{value:,} {words.removesuffix('s') if value == 1 and name == 'quotes' else words}"
    text = str(value)
    if name not in _WORDS:
        return messages.short(text, 200)
    whole, point, decimals = text.partition(".")
    number = f"{int(whole):,}{point}{decimals}"
    if name in _AMOUNTS:
        number = money.with_sign(number, currency)
    return f"{number}{'%' if name in _PERCENTS else ''} {_WORDS[name]}"
