"""Reports for a deal desk as a message in Slack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.language import N_, _, grouped, localized, ngettext, percent
from quotebot.domain.quotes.quote import QuoteState, state_words
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.domain.approvals.roles import Roles
    from quotebot.domain.quotes.reports import Report

NOT_FOR_YOU: Final = N_("Reports are for the deal desk and above, and for operators.")
_HEADS: Final = {
    "discounts": N_("*Discounts of the last {n} days*"),
    "cycle-time": N_("*Cycle time of the last {n} days*"),
    "win-loss": N_("*Wins and losses of the last {n} days*"),
    "pipeline": N_("*Pipeline of the last {n} days*"),
    "approvals": N_("*Approvals of the last {n} days*"),
}
_FIGURES: Final = {
    "discount_percent": N_("{value} discount"),
    "win_rate_percent": N_("{value} won"),
    "median_hours": N_("{value} h median"),
    "p90_hours": N_("{value} h for 90%"),
    "list_total": N_("{value} list"),
    "net_total": N_("{value} net"),
    "accepted_net": N_("{value} net accepted"),
    "lost_net": N_("{value} net lost"),
    "accepted": N_("{value} accepted"),
    "lost": N_("{value} lost"),
    "expired": N_("{value} expired"),
    "open": N_("{value} open"),
    "automatic": N_("{value} automatic"),
    "reused": N_("{value} reused"),
    "approved": N_("{value} approved"),
    "rejected": N_("{value} rejected"),
    "changes_requested": N_("{value} sent back"),
    "invalidated": N_("{value} invalidated"),
    "pending": N_("{value} pending"),
}
_SPANS: Final = {
    "created_to_submitted": N_("created to submitted"),
    "submitted_to_approved": N_("submitted to approved"),
    "created_to_sent": N_("created to sent"),
    "sent_to_closed": N_("sent to closed"),
}
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,}")
_KEYS: Final = ("rep", "product", "month", "role", "state", "span")
_PERCENTS: Final = frozenset({"discount_percent", "win_rate_percent"})
_AMOUNTS: Final = frozenset({"list_total", "net_total", "accepted_net", "lost_net"})


def report_text(kind: str, report: Report, days: int, most: int | None, roles: Roles) -> str:
    """Return a report as mrkdwn, one line per row; `most` is the number of quotes it was limited to, if it was."""
    rows = [_row(record, roles) for record in report.records()] or [_("Nothing to report yet.")]
    if most is not None:
        limited = N_("Only the first {n} are counted. At a terminal: `quotebot report {kind}` counts all.")
        rows.append(_(limited, n=grouped(most), kind=kind))
    return "\n".join((_(_HEADS[kind], n=days), *rows))


def _row(record: dict[str, str | int | None], roles: Roles) -> str:
    keys = [_key(name, str(value), roles) for name, value in record.items() if name in _KEYS and value is not None]
    currency = record.get("currency")
    cells = [
        _cell(name, value, str(currency))
        for name, value in record.items()
        if name not in (*_KEYS, "currency") and value not in (None, 0, "", "0")
    ]
    return f"\u2022 {', '.join(keys)}: {', '.join(cells)}"


def _key(name: str, text: str, roles: Roles) -> str:
    if name == "state":
        return state_words(QuoteState(text))
    if name == "span":
        return _(_SPANS[text])
    if name == "role":
        return _("nobody") if text == "nobody" else roles.words(text)
    return messages.mention(text) if name == "rep" and _USER.fullmatch(text) else messages.escape(text.replace("_", " "))


def _cell(name: str, value: str | int | None, currency: str) -> str:
    if isinstance(value, int):
        if name == "quotes":
            return ngettext("{n} quote", "{n} quotes", value)
        return _(_FIGURES[name], value=grouped(value))
    text = str(value)
    if name not in _FIGURES:
        return messages.short(text, 200)
    whole, point, decimals = text.partition(".")
    number = f"{int(whole):,}{point}{decimals}"
    if name in _PERCENTS:
        return _(_FIGURES[name], value=percent(number))
    return _(_FIGURES[name], value=money.with_sign(number, currency) if name in _AMOUNTS else localized(number))
