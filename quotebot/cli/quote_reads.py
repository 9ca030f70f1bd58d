"""Read-only commands of `quotebot quote`: show, list, price, preview, compare, explain. They record nothing.

None of them prints the seller's costs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ledger.clock import SystemClock
from quotebot.cli import exits, tables, terminal
from quotebot.cli.quote_work import plain
from quotebot.commands.queries import OPEN
from quotebot.domain import money
from quotebot.domain.approvals.advice import avoidances
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.pricing.commercial_terms import canonical_terms
from quotebot.domain.pricing.engine import explain as line_trace
from quotebot.domain.pricing.engine import request_of
from quotebot.domain.pricing.engine import trace as price_trace
from quotebot.domain.pricing.price_requests import changed
from quotebot.domain.quotes.quote import QuoteState, parse_quote_id, state_words
from quotebot.domain.quotes.versions import Simulation, difference_words, simulate
from quotebot.slack import grammar
from quotebot.slack.queries import policy_checks
from quotebot.slack.queries import preview as in_words
from quotebot.store import quotes as store
from quotebot.store import rulesets
from quotebot.store.crm_mirror import with_segments
from quotebot.store.quotes import Filter
from quotebot.views.card import avoidance_rows, price_rows
from quotebot.views.messages import pricing_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledger.ledger import Ledger
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.pricing.engine import PricedLine, PriceRequest, Pricing
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

Json = Annotated[bool, Parameter(name="--json", negative="")]
Version = Annotated[int | None, Parameter(validator=Number(gte=1, lte=100_000))]


async def show(quote: str, *, version: Version = None, json_output: Json = False) -> int:
    """Show one quote: its state, lines, totals and approval.

    Exit status of every command that only reads: 0 shown, 4 there is nothing like it, 64 usage.

    Parameters
    ----------
    quote
        Which, e.g. Q-2026-0042.
    version
        As this version was; without it as the quote is now.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await find(ledger, quote, version)
    if found is None:
        return no_such_quote(quote, version)
    told = facts(found)
    if json_output:
        tables.print_json({"quote": told, **priced(found.pricing)})
        return exits.OK
    for name, value in told.items():
        if value is not None and value != []:
            print(f"{name:16} {', '.join(value) if isinstance(value, list) else tables.for_people(name, value)}")
    print()
    print_lines(found.pricing, (await terminal.active_rules()).policy)
    return exits.OK


async def list_quotes(
    *,
    state: tuple[str, ...] = (),
    account: str | None = None,
    owner: str | None = None,
    team: str | None = None,
    page: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 1,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 20,
    json_output: Json = False,
) -> int:
    """List quotes, the newest first.

    Parameters
    ----------
    state
        Only those in this state, or `open` for all that have not ended; may be given several times.
    account
        Only those whose customer's name holds this.
    owner
        Only those of this person, by Slack user id.
    team
        Of this Slack workspace, by id; without it of the one that every quote belongs to.
    page
        Which page.
    limit
        Quotes on one page.
    json_output
        Print JSON.
    """
    states: frozenset[QuoteState] = frozenset()
    for name in state:
        folded = name.strip().casefold().replace(" ", "_").replace("-", "_")
        if folded != "open" and folded not in {known.value for known in QuoteState}:
            return exits.complain(
                f"There is no state {name!r}: use open, {', '.join(known.value for known in QuoteState)}.", exits.USAGE
            )
        states |= OPEN if folded == "open" else {QuoteState(folded)}
    async with terminal.existing_ledger() as ledger:
        team_id = team or await ledger.database.read(store.only_team)
        if team_id is None:
            return exits.complain("No quotes, or of several workspaces: say which with --team T....", exits.NOTHING_MATCHED)
        chosen = Filter(team_id, owner, states, account)
        found = await ledger.database.read(lambda tx: store.list_quotes(tx, chosen, page=page, rows=limit))
    if json_output:
        quotes = [asdict(quote) for quote in found.quotes]
        tables.print_json({"quotes": quotes, "page": found.number, "more": found.more})
        return exits.OK
    if not found.quotes:
        return exits.complain("No quotes.", exits.OK)
    tables.print_table(
        ("Quote", "Version", "State", "Total", "Owner", "Created", "Valid until", "Customer"),
        [
            (
                quote.quote_id,
                f"v{quote.version}",
                state_words(quote.state),
                money.format_amount(quote.net_total, quote.currency),
                quote.requester_name or quote.requester,
                tables.time_words(quote.created_at),
                tables.time_words(quote.valid_until),
                quote.account,
            )
            for quote in found.quotes
        ],
    )
    if found.more:
        exits.complain(f"There are more: --page {found.number + 1}.")
    return exits.OK


async def price(*text: str, json_output: Json = False) -> int:
    """Price a request without recording it, e.g. quotebot quote price "150 pro, 150 sso; term 12m; discount 15%".

    Parameters
    ----------
    text
        Products, term and discount, as after the colon of `/quote new`.
    json_output
        Print JSON.
    """
    simulation = await _simulated(" ".join(text))
    if isinstance(simulation, int):
        return simulation
    if json_output:
        tables.print_json({**priced(simulation.pricing)})
    else:
        print_lines(simulation.pricing, (await terminal.active_rules()).policy)
    return exits.OK


async def preview(*text: str, json_output: Json = False) -> int:
    """Say who would have to approve a request, without recording it.

    Parameters
    ----------
    text
        An existing quote, e.g. Q-2026-0042, and maybe a colon and changes of it; or a request as of `quotebot quote price`.
    json_output
        Print JSON.
    """
    typed = " ".join(text)
    simulation = await _simulated_quote(typed) if typed.upper().startswith("Q-") else await _simulated(typed)
    if isinstance(simulation, int):
        return simulation
    rules = await terminal.active_rules()
    decision, easier = simulation.decision, easier_ways(simulation.pricing, rules)
    if json_output:
        ruling = {"automatic": decision.automatic, "blocked": decision.blocked, "hits": list(decision.hits)}
        roles = list(decision.required_roles)
        tables.print_json({**ruling, "required_roles": roles, "easier": easier[1], **priced(simulation.pricing)})
    else:
        print(plain(in_words(decision)).replace("*", "") + ".")
        print_figures(simulation.pricing, rules.policy, easier[0])
    return exits.OK


async def compare(quote: str, before: Version = None, after: Version = None, /, *, json_output: Json = False) -> int:
    """Say what differs between two versions of a quote; without numbers between the newest and the one before it.

    Parameters
    ----------
    quote
        Which, e.g. Q-2026-0042.
    before
        The older version, e.g. 1.
    after
        The newer version; without it the newest.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        head = await find(ledger, quote)
        if head is None:
            return no_such_quote(quote)
        old = await find(ledger, quote, before or head.version - 1)
        new = head if after is None else await find(ledger, quote, after)
    if old is None or new is None:
        return exits.complain(
            f"{head.quote_id} has versions 1 to {head.version}: there are no such two to compare.", exits.NOTHING_MATCHED
        )
    said = difference_words(old.pricing, new.pricing)
    if json_output:
        versions = {"before": facts(old), "after": facts(new)}
        tables.print_json({"quote_id": head.quote_id, **versions, "differences": list(said)})
    else:
        print("\n".join(said) or "Nothing differs.")
    return exits.OK


async def explain(
    quote: str,
    *,
    line: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    version: Version = None,
    json_output: Json = False,
) -> int:
    """Say how the figures of a quote come about.

    Parameters
    ----------
    quote
        Which, e.g. Q-2026-0042.
    line
        Only this line, counted from 1.
    version
        Of this version; without it of the newest.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await find(ledger, quote, version)
        if found is None:
            return no_such_quote(quote, version)
        priced_by, label = found.pricing.ruleset_hash, found.pricing.ruleset
        row, said = await ledger.database.read(
            lambda tx: (rulesets.of_snapshot(tx, priced_by, label), rulesets.pricing_words(tx, priced_by, label))
        )
    if line is not None and line > len(found.pricing.every_line):
        return exits.complain(
            f"{found.quote_id} has {len(found.pricing.every_line)} lines; there is no line {line}.", exits.NOTHING_MATCHED
        )
    checks = policy_checks(evaluate(found.pricing, (await terminal.active_rules()).policy))
    trace = price_trace(found.pricing) if line is None else line_trace(found.pricing, line)
    if json_output:
        ruleset = {"version": None if row is None else row.version, "name": label, "hash": priced_by}
        told = {"quote_id": found.quote_id, "version": found.version, "ruleset": ruleset, "trace": list(trace), "policy": checks}
        tables.print_json({**told})
    else:
        print("\n".join(trace if line is not None else (trace[0], said, *trace[1:-1], checks, trace[-1])))
    return exits.OK


# shared with quote.py


async def find(ledger: Ledger, typed: str, version: int | None = None) -> Quote | None:
    """Return the typed quote, as its head or as the given version; None if there is none."""
    quote_id = parse_quote_id(typed)
    if quote_id is None:
        return None
    if version is None:
        return await ledger.database.read(lambda tx: store.load(tx, quote_id))
    return await ledger.database.read(lambda tx: store.load_version(tx, quote_id, version))


def no_such_quote(typed: str, version: int | None = None) -> int:
    """Report that there is no such quote, and return the exit status."""
    named = typed if version is None else f"{typed} v{version}"
    return exits.complain(
        f"There is no quote {named}. Nothing was done. `quotebot quote list` shows them; one looks like Q-2026-0042.",
        exits.NOTHING_MATCHED,
    )


def misread_parts(problems: tuple[str, ...]) -> int:
    """Report every part of the typed text that cannot be read, and return the exit status."""
    return exits.complain(plain("\n".join(problems)), exits.USAGE)


async def _simulated(typed: str) -> Simulation | int:
    """Price a whole request as typed; an exit status if it cannot be priced."""
    rules = await terminal.active_rules()
    request = grammar.read_request(typed, rules.catalogue)
    return misread_parts(request) if isinstance(request, tuple) else _priced_request(request, rules)


async def _simulated_quote(typed: str) -> Simulation | int:
    name, colon, body = typed.partition(":")
    rules, now = await terminal.active_rules(), SystemClock().now_ms()
    async with terminal.existing_ledger() as ledger:
        found = await find(ledger, name)
        if found is None:
            return no_such_quote(name)
        account, account_id = found.account, found.crm_account
        rules = await ledger.database.read(lambda tx: with_segments(tx, rules, account, account_id, now))
    request = request_of(found.pricing)
    if not colon:
        return _priced_request(request, rules, found.account)
    changes = grammar.read_changes(body, rules.catalogue)
    if isinstance(changes, tuple):
        return misread_parts(changes)
    edited = changed(request, changes)
    return (
        misread_parts(tuple(map(pricing_problem, edited)))
        if isinstance(edited, tuple)
        else _priced_request(edited, rules, found.account)
    )


def _priced_request(request: PriceRequest, rules: Rules, account: str | None = None) -> Simulation | int:
    found = simulate(request, rules.ruleset, rules.policy, SystemClock().now_ms(), account, rules.segments)
    return found if isinstance(found, Simulation) else misread_parts(tuple(map(pricing_problem, found)))


def facts(quote: Quote) -> dict[str, Any]:
    """Return the facts of a version besides its price, with None for missing ones; times are Unix milliseconds."""
    approval, sent, closing = quote.approval, quote.sent, quote.closing
    return {
        "quote_id": quote.quote_id,
        "version": quote.version,
        "state": quote.state.value,
        "superseded": "yes" if quote.superseded else None,
        "account": quote.account,
        "requester": quote.requester,
        "channel": quote.channel,
        "created_at": quote.created_at,
        "revised_by": quote.revised_by,
        "revised_at": quote.revised_at,
        "valid_until_at": quote.valid_until,
        "approval_id": None if approval is None else approval.approval_id,
        "approval_state": None if approval is None else approval.state.value,
        "required_roles": [] if approval is None else list(approval.required_roles),
        "policy": None if approval is None or approval.policy is None else approval.policy.label,
        "reasons": [] if approval is None else list(approval.reasons),
        "decided_by": None if approval is None else approval.decided_by,
        "decided_role": None if approval is None else approval.decided_role,
        "decided_at": None if approval is None else approval.decided_at,
        "decision_reason": None if approval is None else approval.decision_reason,
        "finalized_by": None if quote.frozen is None else quote.frozen.frozen_by,
        "finalized_at": None if quote.frozen is None else quote.frozen.frozen_at,
        "sent_to": None if sent is None else sent.recipient,
        "sent_by": None if sent is None else sent.sent_by,
        "sent_at": None if sent is None else sent.sent_at,
        "closing_reason": None if closing is None else closing.reason,
        "closed_by": None if closing is None else closing.closed_by,
        "closed_at": None if closing is None else closing.closed_at,
    }


def priced(pricing: Pricing) -> dict[str, Any]:
    """Return a price in its JSON form: amounts as text, without the seller's costs."""
    return {
        "currency": pricing.currency,
        "term_months": pricing.term_months,
        "discount_percent": str(pricing.discount_percent),
        "list_total": str(pricing.list_total),
        "discount_total": str(pricing.discount_total),
        "net_total": str(pricing.net_total),
        "tax_total": str(pricing.tax_total),
        "tax_estimated": pricing.tax_estimated,
        "gross_total": str(pricing.gross_total),
        "terms": list(pricing.terms),
        "commercial_terms": canonical_terms(request_of(pricing).commercial),
        "lines": [_line(line) for line in pricing.lines],
        "optional_lines": [_line(line) for line in pricing.options],
    }


def _line(line: PricedLine) -> dict[str, Any]:
    return {
        "position": line.position,
        "sku": line.sku,
        "name": line.name,
        "quantity": line.quantity,
        "months": line.months,
        "unit_price": str(line.unit_price),
        "tier": line.tier,
        "list_amount": str(line.list_amount),
        "discount_amount": str(line.discount_amount),
        "net_amount": str(line.net_amount),
        **({} if line.bundle is None else {"bundle": line.bundle, "choice": line.choice or None}),
        **({} if line.agreed_price is None else {"agreed_price": str(line.agreed_price), "price_reason": line.price_reason}),
    }


def _own(line: PricedLine, pricing: Pricing) -> Iterator[str]:
    """Yield what sets a line apart: its bundle, its attributes, its own price or discount, and whether it is optional."""
    if line.bundle is not None:
        yield f"{line.choice} of {line.bundle_title}" if line.choice else f"of {line.bundle_title}"
    yield from (f"{name} {choice}" for name, choice in line.attributes)
    if line.agreed_price is not None:
        yield f"agreed price {money.format_unit_price(line.agreed_price, pricing.currency)}"
    elif line.requested_percent:
        yield f"{money.format_percent(line.requested_percent)} off"
    if line in pricing.options:
        yield "optional"


def print_lines(pricing: Pricing, policy: ApprovalPolicy) -> None:
    """Print the lines and totals of a price as a table, and below it tax, the total in the policy's currency and special terms."""
    currency = pricing.currency
    totals = (
        ("", "", "", "", f"list {money.format_number(pricing.list_total, currency)}", f"Total in {currency}"),
        ("", "", "", "", f"net {money.format_number(pricing.net_total, currency)}", money.format_percent(pricing.discount_percent)),
    )
    tables.print_table(
        ("Line", "Quantity", "Unit price", "Months", "Net", "Product"),
        [
            *(
                (
                    str(line.position),
                    f"{line.quantity:,}",
                    money.format_unit_price(line.unit_price, currency),
                    "once" if line.billing == "one_time" else str(line.months),
                    money.format_number(line.net_amount, currency),
                    ", ".join((f"{line.name} ({line.sku})", *_own(line, pricing))),
                )
                for line in pricing.every_line
            ),
            *totals,
        ],
    )
    print_figures(pricing, policy)


def easier_ways(pricing: Pricing, rules: Rules) -> tuple[Sequence[tuple[str, str]], list[dict[str, Any]]]:
    """Return the smallest changes that avoid an approval, as display rows and in their JSON form."""
    found = tuple(change for change in avoidances(pricing, rules.ruleset, rules.policy) if not change.by_margin)
    told = [
        {"what": way.what, "sku": way.name or None, "before": str(way.before), "after": str(way.after), "roles": list(way.roles)}
        for way in found
    ]
    return avoidance_rows(found, rules.policy.roles), told


def print_figures(pricing: Pricing, policy: ApprovalPolicy, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print the figures beside the lines: tax, the total in the policy's currency, special terms, and `more`."""
    for name, value in (*price_rows(pricing, policy), *more):
        print(f"{name}: {value}")
