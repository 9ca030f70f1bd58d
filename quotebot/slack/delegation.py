"""Parser for `/quote delegate ...`, with which an absent approver names a substitute.

    delegate                                                      shows my substitutes, and the people whom I substitute
    delegate off                                                  ends my absence
    delegate @colleague [from <date>] [until <date>] [reason <why>]

A date is written 2026-12-24 and is a day in UTC; `until` includes it. Without `until` an absence lasts two weeks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from quotebot.commands.payloads import REASON_CHARACTERS_MAX, DelegateApprovals
from quotebot.domain.language import _
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.slack.grammar import GrammarProblem, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DAYS: Final = 14
EXAMPLE: Final = "/quote delegate @colleague from 2026-12-21 until 2026-12-31 reason holidays"
_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,30})(?:\|[^>]*)?>|@?([UW][A-Z0-9]{2,30})")
_PART = re.compile(r"(from|until|reason)[ :]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DelegationsRequest:
    """Request for a person's substitutes and the people whom they substitute."""


@dataclass(frozen=True, slots=True)
class DelegationRequest:
    """Request for a substitute from the first day to the last, in UTC; without a delegate it ends the absence."""

    delegate: str | None
    first: date | None = None
    last: date | None = None
    reason: str | None = None


def read_delegation(rest: str) -> DelegationsRequest | DelegationRequest | GrammarProblem:
    """Parse the text after the verb."""
    if not rest:
        return DelegationsRequest()
    if rest.casefold() == "off":
        return DelegationRequest(None)
    who = _MENTION.match(rest)
    if who is None or rest[who.end() : who.end() + 1].strip():
        name = shown(rest.partition(" ")[0])
        return _problem(_("I can't find {name}. Pick a person from the list that Slack suggests.", name=name))
    return _read_parts(who[1] or who[2], dict(_parts(rest[who.end() :].strip())))


def _read_parts(delegate: str, parts: dict[str, str]) -> DelegationRequest | GrammarProblem:
    if "" in parts:
        return _problem(_("I didn't understand {text}.", text=shown(parts[""])))
    days: dict[str, date] = {}
    for name in ("from", "until"):
        try:
            days |= {name: date.fromisoformat(parts[name])} if name in parts else {}
        except ValueError:
            return _problem(_("{text} isn't a date like 2026-12-24.", text=shown(parts[name])))
    reason = parts.get("reason")
    if reason is not None and not 1 <= len(reason) <= REASON_CHARACTERS_MAX:
        too_long = _("That reason is too long ({n} characters max).", n=REASON_CHARACTERS_MAX)
        return _problem(too_long if reason else _("Add a reason, or leave it out."))
    return DelegationRequest(delegate, days.get("from"), days.get("until"), reason)


def delegation_command(asked: DelegationRequest, absent: str, received_at: int) -> DelegateApprovals:
    """Return the command of a request by `absent`, received at `received_at` (Unix ms)."""
    if asked.delegate is None:
        return DelegateApprovals(absent, None, 0)
    first = datetime.fromtimestamp(received_at / 1000, UTC).date() if asked.first is None else asked.first
    last = first + timedelta(days=DEFAULT_DAYS - 1) if asked.last is None else asked.last
    since = None if asked.first is None else max(_midnight(asked.first), received_at)
    return DelegateApprovals(absent, asked.delegate, _midnight(last) + DAY_MS, since, asked.reason)


def _midnight(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_MS


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each part with its name; text that belongs to no part has the name "". A reason extends to the end."""
    while text:
        found = _PART.match(text)
        if found is None:
            yield "", text
            return
        name, rest = found[1].casefold(), text[found.end() :]
        if name == "reason":
            yield name, rest.strip()
            return
        value, _blank, text = rest.partition(" ")
        yield name, value
        text = text.strip()


def _problem(why: str) -> GrammarProblem:
    return GrammarProblem(" ".join((why, _("Example: `{command}`", command=EXAMPLE))))
