"""Content of one person's Home tab: the approvals that they decide, their own quotes by the next step, and the page to show.

It is read from the ledger as a whole. Approvals are ordered by their due time, waiting quotes by their age, expiring ones by their
last day, all others newest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import OPEN, Section
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.domain.schedule.schedules import DAY_MS, local_hour
from quotebot.store import approvals as approval_store
from quotebot.store import homes
from quotebot.store import quotes as store
from quotebot.store.quotes import Filter, list_quotes
from quotebot.views.card import PriceRow, avoidance_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Approval, Listed, Quote, Slot
    from quotebot.domain.rules import Rules

EXPIRING_DAYS: Final = 7
PAGE_ROWS: Final = 15  # of a chosen section; an approval takes three blocks
ASKED_MAX: Final = 1_000  # requests of the workspace that are looked through
NEEDED_MAX: Final = 200  # approvals of one person that are counted
OWN_MAX: Final = 300  # open quotes of one person, the newest
CLOSED_MAX: Final = 60
# Rows of each section while everything is shown.
FIRST_ROWS: Final = {
    Section.NEEDS_YOU: 10,
    Section.WAITING: 5,
    Section.READY: 5,
    Section.EXPIRING: 5,
    Section.OPEN: 10,
    Section.CLOSED: 5,
}
CLOSED: Final = frozenset(state for state in QuoteState if is_final(state))


@dataclass(frozen=True, slots=True)
class Needed:
    """Approval that the person may decide now. Times are Unix milliseconds."""

    quote: Quote
    approval: Approval
    due_at: int | None = None  # when the request expires
    escalates_at: int | None = None  # when more people are asked
    margins: tuple[str, ...] = ()  # margins below their floors
    easier: tuple[PriceRow, ...] = ()  # changes that avoid the approval


@dataclass(frozen=True, slots=True)
class WaitingQuote:
    """Own quote that waits for others. Times are Unix milliseconds."""

    listed: Listed
    asked: tuple[str, ...] = ()  # user ids
    since: int | None = None
    due_at: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one section on this page. `total` counts all its rows; `more` is true if there may be more than it counts."""

    rows: tuple[Needed | WaitingQuote | Listed, ...] = ()
    total: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """Content of one person's Home tab. `hour` is their own; `approves` is true if they hold or substitute for a role."""

    parts: dict[Section, Part] = field(default_factory=dict)
    section: Section = Section.ALL
    page: int = 1
    pages: int = 1
    name: str = ""
    hour: int = 9
    approves: bool = False
    digest: bool = False  # they want the daily digest
    holds_role: bool = False  # an approver's own, not as a substitute
    covers: tuple[Delegation, ...] = ()  # who covers for them, now or later
    drawn_at: int = 0  # Unix milliseconds
    zone: str = "UTC"  # their own

    @property
    def is_first(self) -> bool:
        """True if the person neither has a quote nor has to decide about one."""
        return not any(part.total for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Reader:
    """Person for whom a Home tab is made, with their name and the IANA name of their time zone."""

    viewer: Viewer
    name: str = ""
    zone: str = "UTC"


def load_home(tx: Tx, reader: Reader, rules: Rules, now: int, choice: homes.HomeChoice | None = None) -> Home:
    """Read one person's Home tab. `now` is Unix milliseconds. A listed guest is never asked for an approval.

    Without a `choice` the tab shows the section that the person chose.
    """
    viewer = reader.viewer
    choice = homes.chosen(tx, viewer.team_id, viewer.user) if choice is None else choice
    away = approval_store.delegations(tx, viewer.team_id, now)
    roles = _authority(viewer, rules, away)
    needed, more = ([], False) if viewer.own_only or not roles else _needed(tx, viewer, rules, away, roles)
    own = list_quotes(tx, Filter(viewer.team_id, viewer.user, OPEN), rows=OWN_MAX)
    closed = list_quotes(tx, Filter(viewer.team_id, viewer.user, CLOSED), rows=CLOSED_MAX)
    steps = {**_by_step(own.quotes, now), Section.CLOSED: closed.quotes}
    size = len(needed) if choice.section is Section.NEEDS_YOU else len(steps.get(choice.section, ()))
    pages = max(1, -(-size // PAGE_ROWS))
    page = min(choice.page, pages)

    def window(section: Section) -> slice:
        if choice.section is Section.ALL:
            return slice(FIRST_ROWS[section])
        return slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS) if choice.section is section else slice(0)

    decisions = tuple(_needed_row(tx, quote, rules) for quote in needed[window(Section.NEEDS_YOU)])
    parts = {Section.NEEDS_YOU: Part(decisions, len(needed), more)}
    for section, found in steps.items():
        rows = found[window(section)]
        drawn = tuple(_waiting(tx, viewer, row, rules, away) for row in rows) if section is Section.WAITING else tuple(rows)
        parts[section] = Part(drawn, len(found), closed.more if section is Section.CLOSED else own.more)
    approves = bool(roles) and not viewer.own_only
    digest = homes.digest_due(tx, viewer.team_id, viewer.user) is not None
    holds_role = bool(rules.roles_of(viewer.user)) and not viewer.own_only
    planned = approval_store.delegations_of(tx, viewer.team_id, viewer.user, now)
    covers = tuple(each for each in planned if each.absent == viewer.user)
    return Home(
        *(parts, choice.section, page, pages, reader.name, local_hour(now, reader.zone), approves, digest),
        *(holds_role, covers, now, reader.zone),
    )


def _authority(viewer: Viewer, rules: Rules, away: tuple[Delegation, ...]) -> frozenset[str]:
    """Return the roles that a person holds, and those of the people they substitute for."""
    absent = (each.absent for each in away if each.delegate == viewer.user)
    return frozenset[str]().union(*(rules.roles_of(user) for user in (viewer.user, *absent)))


def _needed(tx: Tx, viewer: Viewer, rules: Rules, away: tuple[Delegation, ...], roles: frozenset[str]) -> tuple[list[Quote], bool]:
    """Return the quotes that wait for this person's decision, the next due first; true if there may be more than these."""
    found: list[Quote] = []
    asked = approval_store.waiting(tx, viewer.team_id, ASKED_MAX + 1)
    for quote_id, version in asked[:ASKED_MAX]:
        approval = approval_store.latest(tx, quote_id, version)
        if approval is None or not any(_concerns(slot, approval, roles) for slot in approval.slots):
            continue
        quote = store.load(tx, quote_id)
        if quote is None or may_see(viewer, quote) is Sight.NOTHING:
            continue
        if viewer.user in rules.who_may_decide(approval, quote.makers, away):
            if len(found) == NEEDED_MAX:
                return found, True
            found.append(quote)
    return found, len(asked) > ASKED_MAX


def _concerns(slot: Slot, approval: Approval, held: frozenset[str]) -> bool:
    return slot.is_open and approval.roles.lowest(slot.roles, held) is not None


def _by_step(quotes: Sequence[Listed], now: int) -> dict[Section, Sequence[Listed]]:
    """Return a person's open quotes by their next step; each is in one section."""
    found: dict[Section, list[Listed]] = {each: [] for each in (Section.WAITING, Section.READY, Section.EXPIRING, Section.OPEN)}
    for quote in quotes:
        if quote.state is QuoteState.PENDING_APPROVAL:
            section = Section.WAITING
        elif quote.state in (QuoteState.APPROVED, QuoteState.FINALIZED):
            section = Section.READY
        else:
            section = Section.EXPIRING if quote.valid_until - now < EXPIRING_DAYS * DAY_MS else Section.OPEN
        found[section].append(quote)
    found[Section.WAITING].reverse()
    found[Section.EXPIRING].sort(key=lambda quote: quote.valid_until)
    return {**found}


def _needed_row(tx: Tx, quote: Quote, rules: Rules) -> Needed:
    """Return an approval with what its approver has to know."""
    approval = quote.approval
    assert approval is not None  # noqa: S101 -- it waits for a decision
    slots = [slot for slot in approval.slots if slot.is_open]
    advice = store.load_advice(tx, quote, basis_of(rules.ruleset, rules.policy))
    return Needed(
        quote,
        approval,
        approval.due_at,
        min((slot.escalate_at for slot in slots if slot.escalate_at is not None), default=None),
        margin_figures(quote.pricing, rules.policy),
        () if advice is None else avoidance_rows(advice.changes, rules.policy.roles, approver=True),
    )


def _waiting(tx: Tx, viewer: Viewer, listed: Listed, rules: Rules, away: tuple[Delegation, ...]) -> WaitingQuote:
    quote = store.load(tx, listed.quote_id)
    approval = None if quote is None else quote.approval
    if quote is None or may_see(viewer, quote) is not Sight.FULL:
        return WaitingQuote(listed)
    if approval is None or approval.state is not ApprovalState.PENDING:
        return WaitingQuote(listed)
    asked = rules.who_may_decide(approval, quote.makers, away)
    return WaitingQuote(listed, asked, approval.asked_at, approval.due_at)
