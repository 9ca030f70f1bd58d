"""Reports for a deal desk: discounts, cycle times, wins and losses, approvals, pipeline; by person, product or month. Pure.

Amounts of different currencies are never added up: each currency has rows of its own.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain import money
from quotebot.domain.language import N_
from quotebot.domain.pricing.commercial_terms import USUAL, CommercialTerms
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.quotes.quote import LOSS_CATEGORIES, ApprovalState, QuoteState, loss_category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

By = Literal["rep", "product", "month"]
ApprovalBy = Literal["role", "rep", "month"]
Kind = Literal["discounts", "cycle-time", "win-loss", "pipeline"]
REPORTS: Final[tuple[Kind, ...]] = ("discounts", "cycle-time", "win-loss", "pipeline")
GROUPS: Final[tuple[By, ...]] = ("rep", "product", "month")
APPROVAL_GROUPS: Final[tuple[ApprovalBy, ...]] = ("role", "rep", "month")
OPEN_STATES: Final = (
    *(QuoteState.PRICED, QuoteState.PENDING_APPROVAL, QuoteState.APPROVED, QuoteState.REJECTED),
    *(QuoteState.FINALIZED, QuoteState.SENT),
)
HOUR_MS: Final = 3_600_000
REASONS_SHOWN: Final = 3
NO_REASON: Final = N_("no reason")


@dataclass(frozen=True, slots=True)
class ReportedLine:
    """One line of a reported quote."""

    sku: str
    quantity: int
    list_amount: Decimal
    net_amount: Decimal


@dataclass(frozen=True, slots=True)
class ReportedQuote:
    """Newest version of a quote. Times are Unix milliseconds, None if it has not happened; `rep` is a Slack user id."""

    quote_id: str
    version: int
    state: QuoteState
    account: str
    rep: str
    created_at: int
    currency: str
    term_months: int
    list_total: Decimal
    net_total: Decimal
    lines: tuple[ReportedLine, ...]
    billing_frequency: str = BILLING_FREQUENCIES[0]
    terms: CommercialTerms = USUAL
    submitted_at: int | None = None  # the first request for approval
    approved_at: int | None = None
    sent_at: int | None = None  # the first sending
    closed_at: int | None = None
    closing_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReportedApproval:
    """One request for approval. `reused` and requests without roles were decided by nobody."""

    rep: str
    state: ApprovalState
    roles: tuple[str, ...]
    requested_at: int
    decided_at: int | None
    reused: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Table of a report: column names as in JSON, and the rows. Amounts and percentages are text, counts are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]

    def records(self) -> list[dict[str, str | int | None]]:
        """Return the rows as records."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def report(kind: Kind, quotes: Sequence[ReportedQuote], by: By, translated: Callable[[str], str] = str) -> Report:
    """Return one report about quotes. Labels in it are in English unless they are `translated`, for people alone."""
    match kind:
        case "discounts":
            return discounts(quotes, by)
        case "cycle-time":
            return cycle_times(quotes, by)
        case "win-loss":
            return wins_and_losses(quotes, by, translated)
        case "pipeline":
            return pipeline(quotes, by)


@dataclass(slots=True)
class _Sum:
    quotes: int = 0
    list_total: Decimal = Decimal(0)
    net_total: Decimal = Decimal(0)

    def add(self, list_amount: Decimal, net_amount: Decimal) -> None:
        self.quotes += 1
        self.list_total = money.EXACT.add(self.list_total, list_amount)
        self.net_total = money.EXACT.add(self.net_total, net_amount)


def discounts(quotes: Iterable[ReportedQuote], by: By) -> Report:
    """Return list and net totals, and the discount between them, of every quote that was priced."""
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    for quote in quotes:
        for group, list_amount, net_amount in _shares(quote, by):
            sums[(group, quote.currency)].add(list_amount, net_amount)
    return Report(
        (by, "currency", "quotes", "list_total", "net_total", "discount_percent"),
        tuple(
            (group, currency, found.quotes, str(found.list_total), str(found.net_total), _discount(found))
            for (group, currency), found in sorted(sums.items())
        ),
    )


def pipeline(quotes: Iterable[ReportedQuote], by: By) -> Report:
    """Return the number and net total of the open quotes, by state."""
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for quote in quotes:
        if quote.state in OPEN_STATES:
            for group, list_amount, net_amount in _shares(quote, by):
                sums[(group, quote.state.value, quote.currency)].add(list_amount, net_amount)
    order = {state.value: number for number, state in enumerate(OPEN_STATES)}
    rows = sorted(sums.items(), key=lambda row: (row[0][0], order[row[0][1]], row[0][2]))
    return Report(
        (by, "state", "currency", "quotes", "net_total"),
        tuple((*key, found.quotes, str(found.net_total)) for key, found in rows),
    )


@dataclass(slots=True)
class _Outcomes:
    states: Counter[QuoteState] = field(default_factory=Counter)
    won: Decimal = Decimal(0)
    lost: Decimal = Decimal(0)
    reasons: Counter[str] = field(default_factory=Counter)


def wins_and_losses(quotes: Iterable[ReportedQuote], by: By, translated: Callable[[str], str] = str) -> Report:
    """Return accepted, lost and expired quotes, the share of accepted ones among them, and the most frequent reasons of losses.

    Reasons of one category count together, under its `translated` label.
    """
    found: dict[tuple[str, str], _Outcomes] = defaultdict(_Outcomes)
    for quote in quotes:
        for group, _list_amount, net_amount in _shares(quote, by):
            outcomes = found[(group, quote.currency)]
            outcomes.states[quote.state] += 1
            if quote.state is QuoteState.ACCEPTED:
                outcomes.won = money.EXACT.add(outcomes.won, net_amount)
            elif quote.state is QuoteState.LOST:
                outcomes.lost = money.EXACT.add(outcomes.lost, net_amount)
                category = loss_category(quote.closing_reason)
                own = "" if category else " ".join((quote.closing_reason or "").split())
                outcomes.reasons[own or translated(LOSS_CATEGORIES[category] if category else NO_REASON)] += 1
    return Report(
        (by, "currency", "accepted", "lost", "expired", "open", "win_rate_percent", "accepted_net", "lost_net", "reasons"),
        tuple((*key, *_outcome_cells(outcomes)) for key, outcomes in sorted(found.items())),
    )


def _outcome_cells(found: _Outcomes) -> tuple[str | int | None, ...]:
    accepted, lost, expired = (found.states[state] for state in (QuoteState.ACCEPTED, QuoteState.LOST, QuoteState.EXPIRED))
    still_open = sum(found.states[state] for state in OPEN_STATES)
    ended = accepted + lost + expired
    reasons = "; ".join(f"{reason} ({count})" for reason, count in found.reasons.most_common(REASONS_SHOWN))
    rate = _percent(Decimal(accepted), Decimal(ended)) if ended else None
    return accepted, lost, expired, still_open, rate, str(found.won), str(found.lost), reasons


_SPANS: Final[Mapping[str, Callable[[ReportedQuote], tuple[int | None, int | None]]]] = {
    "created_to_submitted": lambda quote: (quote.created_at, quote.submitted_at),
    "submitted_to_approved": lambda quote: (quote.submitted_at, quote.approved_at),
    "created_to_sent": lambda quote: (quote.created_at, quote.sent_at),
    "sent_to_closed": lambda quote: (quote.sent_at, quote.closed_at),
}


def cycle_times(quotes: Iterable[ReportedQuote], by: By) -> Report:
    """Return the median and the 90th percentile of each span of a quote's life, in hours."""
    hours: dict[tuple[str, str], list[float]] = defaultdict(list)
    for quote in quotes:
        for group, _list_amount, _net_amount in _shares(quote, by):
            for name, span in _SPANS.items():
                begin, end = span(quote)
                if begin is not None and end is not None and end >= begin:
                    hours[(group, name)].append((end - begin) / HOUR_MS)
    order = tuple(_SPANS)
    rows = sorted(hours.items(), key=lambda row: (row[0][0], order.index(row[0][1])))
    return Report(
        (by, "span", "quotes", "median_hours", "p90_hours"),
        tuple((*key, len(values), f"{statistics.median(values):.1f}", f"{_p90(values):.1f}") for key, values in rows),
    )


def approval_counts(approvals: Iterable[ReportedApproval], by: ApprovalBy) -> Report:
    """Return the results of requests for approval and the median hours until a decision."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    hours: dict[str, list[float]] = defaultdict(list)
    for approval in approvals:
        for group in _approval_groups(approval, by):
            counts[group][_result(approval)] += 1
            if approval.decided_at is not None and approval.roles and not approval.reused:
                hours[group].append((approval.decided_at - approval.requested_at) / HOUR_MS)
    results = ("automatic", "reused", "approved", "rejected", "changes_requested", "expired", "invalidated", "pending")
    return Report(
        (by, *results, "median_hours"),
        tuple(
            (
                group,
                *(found[result] for result in results),
                f"{statistics.median(hours[group]):.1f}" if hours[group] else None,
            )
            for group, found in sorted(counts.items())
        ),
    )


def _approval_groups(approval: ReportedApproval, by: ApprovalBy) -> tuple[str, ...]:
    if by == "rep":
        return (approval.rep,)
    return (month(approval.requested_at),) if by == "month" else approval.roles or ("nobody",)


def _result(approval: ReportedApproval) -> str:
    if approval.reused:
        return "reused"
    return approval.state.value if approval.roles else "automatic"


def month(unix_ms: int) -> str:
    """Return the UTC month of a time, e.g. "2026-11"."""
    return f"{datetime.fromtimestamp(unix_ms / 1000, tz=UTC):%Y-%m}"


def _shares(quote: ReportedQuote, by: By) -> Iterator[tuple[str, Decimal, Decimal]]:
    """Yield each group of a quote with its list and net amount: one, or one per product."""
    if by != "product":
        yield quote.rep if by == "rep" else month(quote.created_at), quote.list_total, quote.net_total
        return
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for line in quote.lines:
        sums[line.sku].add(line.list_amount, line.net_amount)
    for sku, found in sums.items():
        yield sku, found.list_total, found.net_total


def _discount(found: _Sum) -> str:
    return _percent(money.EXACT.subtract(found.list_total, found.net_total), found.list_total) if found.list_total else "0.00"


def _percent(part: Decimal, whole: Decimal) -> str:
    return f"{part * money.HUNDRED / whole:.2f}"


def _p90(hours: Sequence[float]) -> float:
    ordered = sorted(hours)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
