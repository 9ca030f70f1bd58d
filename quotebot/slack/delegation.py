"""Parser for `/quote delegate ...` and for the form "Set cover", with which an absent approver names a substitute.

    delegate                                                      shows my substitutes, and the people whom I substitute
    delegate off                                                  ends my absence
    delegate @colleague [from <date>] [until <date>] [reason <why>]

A date is written 2026-12-24 and is a day in the person's time zone, which `until` includes. Without `until` it is two weeks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from quotebot.commands.payloads import REASON_CHARACTERS_MAX, DelegateApprovals
from quotebot.domain.approvals.people import ABSENCE_MS_MAX, covers
from quotebot.domain.language import _
from quotebot.domain.schedule.schedules import moment_of, zone_of
from quotebot.slack.grammar import GrammarProblem, shown
from quotebot.views import forms, messages
from quotebot.views.approval_messages import delegation_refused
from quotebot.views.blocks import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotebot.slack.form_fields import Errors, Form

DEFAULT_DAYS: Final = 14
EXAMPLE: Final = "/quote delegate @colleague from 2026-12-21 until 2026-12-31 reason holidays"
EARLIEST, LATEST = date(2000, 1, 1), date(2099, 12, 31)  # days of a calendar that every time zone has
_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,30})(?:\|[^>]*)?>|@?([UW][A-Z0-9]{2,30})")
_PART = re.compile(r"(from|until|reason)[ :]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DelegationsRequest:
    """Request for a person's substitutes and the people whom they substitute."""


@dataclass(frozen=True, slots=True)
class DelegationRequest:
    """Request for a substitute from the first day to the last; without a delegate it ends the absence."""

    delegate: str | None
    first: date | None = None
    last: date | None = None
    reason: str | None = None


class UnknownPerson(GrammarProblem):
    """Refusal of a text that names no person: the form "Set cover" offers the people."""


def read_delegation(rest: str) -> DelegationsRequest | DelegationRequest | GrammarProblem:
    """Parse the text after the verb."""
    if not rest:
        return DelegationsRequest()
    if rest.casefold() == "off":
        return DelegationRequest(None)
    who = _MENTION.match(rest)
    if who is None or rest[who.end() : who.end() + 1].strip():
        name = shown(rest.partition(" ")[0])
        return UnknownPerson(_("I can't find {name}. Pick a person from the list Slack suggests.", name=name))
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
        return _problem(_reason_too_long() if reason else _("Add a reason, or leave it out."))
    return DelegationRequest(delegate, days.get("from"), days.get("until"), reason)


def delegation_command(asked: DelegationRequest, absent: str, received_at: int, zone: str) -> DelegateApprovals:
    """Return the command of a request by `absent`, received at `received_at` (Unix ms); `zone` is their IANA time zone."""
    if asked.delegate is None:
        return DelegateApprovals(absent, None, 0)
    first = today(received_at, zone) if asked.first is None else _in_calendar(asked.first)
    last = first + timedelta(days=DEFAULT_DAYS - 1) if asked.last is None else _in_calendar(asked.last)
    since = None if asked.first is None else max(_midnight(first, zone), received_at)
    return DelegateApprovals(absent, asked.delegate, _midnight(last + timedelta(days=1), zone), since, asked.reason)


def today(now: int, zone: str) -> date:
    """Return the day in a time zone at a time in Unix ms."""
    return datetime.fromtimestamp(now / 1000, zone_of(zone)).date()


def read_cover(form: Form, absent: str) -> DelegateApprovals | Errors:
    """Return the command of the submitted form "Set cover", or an error at each wrong field."""
    carried = read(form.view.get("private_metadata") or "", {"z"})
    if carried is None:
        return {forms.REASON: _(messages.UNREADABLE_FORM)}
    zone, errors = str(carried["z"]), _wrong_person(form, absent)
    days: dict[str, date] = {}
    for block_id in (forms.FIRST_DAY, forms.LAST_DAY):
        try:
            days[block_id] = date.fromisoformat(form.typed(block_id))
        except ValueError:
            errors[block_id] = _("Choose a day.")
    reason = "\n".join(form.lines(forms.REASON))
    if len(reason) > REASON_CHARACTERS_MAX:
        errors[forms.REASON] = _reason_too_long()
    if errors:
        return errors
    first, last = days[forms.FIRST_DAY], days[forms.LAST_DAY]
    begins = first if first > today(form.received_at, zone) else None
    asked = DelegationRequest(form.typed(forms.COVERED_BY), begins, last, reason or None)
    command = delegation_command(asked, absent, form.received_at, zone)
    if last < first:
        return {forms.LAST_DAY: delegation_refused("ends_first", None)}
    if not form.received_at < command.until <= form.received_at + ABSENCE_MS_MAX:
        return {forms.LAST_DAY: delegation_refused("until_past", None)}
    return command


def _wrong_person(form: Form, absent: str) -> Errors:
    chosen, rules = form.typed(forms.COVERED_BY), form.rules
    if not chosen:
        return {forms.COVERED_BY: _("Pick a person.")}
    if chosen == absent:
        return {forms.COVERED_BY: delegation_refused("to_oneself", None)}
    if not covers(rules.roles_of(chosen), rules.roles_of(absent), rules.policy.roles):
        return {forms.COVERED_BY: _("This person can't approve at your level. Pick someone who can.")}
    return {}


def _midnight(day: date, zone: str) -> int:
    return moment_of(datetime(day.year, day.month, day.day), zone_of(zone))  # noqa: DTZ001 -- local


def _in_calendar(day: date) -> date:
    return max(EARLIEST, min(day, LATEST))


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


def _reason_too_long() -> str:
    return _("That reason is too long ({n} characters max).", n=REASON_CHARACTERS_MAX)


def _problem(why: str) -> GrammarProblem:
    return GrammarProblem(" ".join((why, _("Example: `{command}`", command=EXAMPLE))))
