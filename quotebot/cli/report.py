"""`quotebot report`: numbers for a deal desk, and the quotes themselves as CSV. Read-only; a bot may run."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from ledger.clock import SystemClock
from quotebot.cli import exits, tables, terminal
from quotebot.domain.catalogue import sheets
from quotebot.domain.quotes.quote import QuoteState, loss_category
from quotebot.domain.quotes.reports import ApprovalBy, By, Kind, Report, ReportedQuote, approval_counts, report
from quotebot.store import reports

if TYPE_CHECKING:
    from collections.abc import Iterable

app = App(name="report", help="Report discounts, cycle times, wins and losses, approvals and pipeline")

DAYS: Final = 90
Json = Annotated[bool, Parameter(name="--json", negative="")]
Csv = Annotated[bool, Parameter(name="--csv", negative="")]
WORDS: Final = {"p90_hours": "90 % within (h)", "median_hours": "Median (h)", "win_rate_percent": "Win rate %"}
QUOTE_COLUMNS: Final = (
    *("quote_id", "version", "state", "account", "rep", "created_at", "submitted_at", "approved_at", "sent_at", "closed_at"),
    *("closing_reason", "currency", "term_months", "list_total", "net_total"),
    *("billing_frequency", "start_date", "payment_days", "po_number", "loss_category"),
)
LINE_COLUMNS: Final = ("quote_id", "version", "state", "account", "currency", "sku", "quantity", "list_amount", "net_amount")


@app.command
async def discounts(
    *, by: By = "rep", since: date | None = None, until: date | None = None, json_output: Json = False, csv: Csv = False
) -> int:
    """Show list and net totals and the discount between them, of the quotes made in a period.

    Each report counts a quote in its newest version; amounts of different currencies have rows of their own.

    Parameters
    ----------
    by
        rep, product or month (UTC).
    since
        The first day, e.g. 2026-01-01; without it 90 days ago.
    until
        The last day; without it today.
    json_output
        Print JSON.
    csv
        Print CSV.
    """
    return await _reported("discounts", by, since, until, json_output=json_output, csv=csv)


@app.command(name="cycle-time")
async def cycle_time(
    *, by: By = "rep", since: date | None = None, until: date | None = None, json_output: Json = False, csv: Csv = False
) -> int:
    """Show how long quotes take from creation to submission, approval, sending and their end. Options as of `discounts`."""
    return await _reported("cycle-time", by, since, until, json_output=json_output, csv=csv)


@app.command(name="win-loss")
async def win_loss(
    *, by: By = "rep", since: date | None = None, until: date | None = None, json_output: Json = False, csv: Csv = False
) -> int:
    """Show accepted, lost and expired quotes, the win rate and the reasons of losses. Options as of `discounts`."""
    return await _reported("win-loss", by, since, until, json_output=json_output, csv=csv)


@app.command
async def approvals(
    *, by: ApprovalBy = "role", since: date | None = None, until: date | None = None, json_output: Json = False, csv: Csv = False
) -> int:
    """Show the results of requests for approval and the time to a decision: by role, rep or month. Options as of `discounts`."""
    period = _period(since, until)
    if isinstance(period, int):
        return period
    async with terminal.existing_ledger() as ledger:
        found = approval_counts([each async for each in reports.approvals(ledger.database, period)], by)
    return _print(found, "approvals", period, json_output=json_output, csv=csv)


@app.command
async def pipeline(
    *, by: By = "rep", since: date | None = None, until: date | None = None, json_output: Json = False, csv: Csv = False
) -> int:
    """Show the open quotes by state, with their net totals. Options as of `discounts`."""
    return await _reported("pipeline", by, since, until, json_output=json_output, csv=csv)


@app.command
async def quotes(*, since: date | None = None, until: date | None = None, lines: bool = False, json_output: Json = False) -> int:
    """Export the quotes made in a period as CSV: one row per quote, or per line.

    Parameters
    ----------
    since
        The first day, e.g. 2026-01-01; without it 90 days ago.
    until
        The last day; without it today.
    lines
        One row per line of each quote.
    json_output
        Print JSON.
    """
    found = await _quotes(since, until)
    if isinstance(found, int):
        return found
    columns = LINE_COLUMNS if lines else QUOTE_COLUMNS
    records = [row for quote in found for row in (_line_records(quote) if lines else [_record(quote)])]
    if json_output:
        tables.print_json({"lines" if lines else "quotes": records})
    else:
        _print_csv(columns, records)
    return exits.OK


# ------------------------------------------------------------------------------------------------- shared helpers


async def _reported(kind: Kind, by: By, since: date | None, until: date | None, *, json_output: bool, csv: bool) -> int:
    period = _period(since, until)
    if isinstance(period, int):
        return period
    async with terminal.existing_ledger() as ledger:
        found = report(kind, [each async for each in reports.quotes(ledger.database, period)], by)
    return _print(found, kind, period, json_output=json_output, csv=csv)


def _print(found: Report, kind: str, period: reports.Period, *, json_output: bool, csv: bool) -> int:
    if json_output and csv:
        return exits.complain("Give one of --json and --csv.", exits.USAGE)
    if json_output:
        tables.print_json({"report": kind, "since": _day(period.since), "until": _day(period.until - 1), "rows": found.records()})
    elif csv:
        _print_csv(found.columns, found.records())
    elif found.rows:
        heads = [WORDS.get(name, name.replace("_", " ").capitalize()) for name in found.columns]
        tables.print_table(heads, [["-" if cell is None else str(cell) for cell in row] for row in found.rows])
    else:
        exits.complain(f"There is nothing to report from {_day(period.since)} to {_day(period.until - 1)}.")
    return exits.OK


def _print_csv(columns: tuple[str, ...], records: Iterable[dict[str, str | int | None]]) -> None:
    cells = [{name: "" if value is None else str(value) for name, value in record.items()} for record in records]
    print(sheets.write_sheet(columns, cells).replace("\r\n", "\n"), end="")


async def _quotes(since: date | None, until: date | None) -> list[ReportedQuote] | int:
    period = _period(since, until)
    if isinstance(period, int):
        return period
    async with terminal.existing_ledger() as ledger:
        return [each async for each in reports.quotes(ledger.database, period)]


def _period(since: date | None, until: date | None) -> reports.Period | int:
    """Return the period of whole UTC days, or the exit status of one that ends before it begins."""
    today = datetime.fromtimestamp(SystemClock().now_ms() / 1000, tz=UTC).date()
    last = today if until is None else _date(until)
    first = last - timedelta(days=DAYS) if since is None else _date(since)
    if first > last:
        return exits.complain(f"--since {first} is after --until {last}. Nothing was read.", exits.USAGE)
    return reports.Period(_midnight(first), _midnight(last + timedelta(days=1)))


def _date(given: date) -> date:
    return given.date() if isinstance(given, datetime) else given


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def _day(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, tz=UTC):%Y-%m-%d}"


def _time(unix_ms: int | None) -> str | None:
    return None if unix_ms is None else f"{datetime.fromtimestamp(unix_ms / 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def _record(quote: ReportedQuote) -> dict[str, str | int | None]:
    return {
        "quote_id": quote.quote_id,
        "version": quote.version,
        "state": quote.state.value,
        "account": quote.account,
        "rep": quote.rep,
        **{name: _time(getattr(quote, name)) for name in ("created_at", "submitted_at", "approved_at", "sent_at", "closed_at")},
        "closing_reason": quote.closing_reason,
        "currency": quote.currency,
        "term_months": quote.term_months,
        "list_total": str(quote.list_total),
        "net_total": str(quote.net_total),
        "billing_frequency": quote.billing_frequency,
        "start_date": None if quote.terms.start_date is None else quote.terms.start_date.isoformat(),
        "payment_days": quote.terms.payment_days,
        "po_number": quote.terms.po_number,
        "loss_category": loss_category(quote.closing_reason) if quote.state is QuoteState.LOST else None,
    }


def _line_records(quote: ReportedQuote) -> list[dict[str, str | int | None]]:
    head = {name: value for name, value in _record(quote).items() if name in LINE_COLUMNS}
    return [
        {
            **head,
            "sku": line.sku,
            "quantity": line.quantity,
            "list_amount": str(line.list_amount),
            "net_amount": str(line.net_amount),
        }
        for line in quote.lines
    ]
