"""Answers to the read-only verbs: list, compare, explain, simulate, audit, ops. They record nothing; only the requester sees them.

Each takes the viewer whom the access gate admitted. A quote hidden from the viewer is answered like one that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ledger.gates import Gate
from ledger.machine import OperationState
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Operation
from quotebot import __version__
from quotebot.commands.queries import OPEN, ListRequest
from quotebot.domain import money
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.advice import avoidances
from quotebot.domain.approvals.policy import evaluate, margin_rows, without_margin_figures
from quotebot.domain.language import N_, _, either, grouped, ngettext
from quotebot.domain.pricing.engine import clipped, explain, request_of, trace
from quotebot.domain.pricing.price_requests import Changes, changed
from quotebot.domain.quotes.quote import local_time, parse_quote_id, state_words
from quotebot.domain.quotes.reports import approval_counts, report
from quotebot.domain.quotes.versions import Simulation, simulate
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.slack.verbs import (
    ApprovalReportRequest,
    AuditRequest,
    CompareRequest,
    ExplainRequest,
    OpsRequest,
    ProductsRequest,
    RefRequest,
    ReportRequest,
    SimulateRequest,
)
from quotebot.store import crm, reports, rulesets
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import with_segments
from quotebot.store.quotes import Filter, Page, channels_of_account, list_quotes
from quotebot.views import (
    crm_messages,
    lifecycle_messages,
    messages,
    operator_messages,
    product_messages,
    report_messages,
    timeline,
)
from quotebot.views.blocks import section
from quotebot.views.card import PriceRow, avoidance_rows, price_rows
from quotebot.views.list_card import list_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetter
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision
    from quotebot.domain.quotes.quote import Listed, Quote, QuoteState
    from quotebot.domain.rules import Rules
    from quotebot.execution.membership import Visibility
    from quotebot.slack.verbs import Read, WhichQuote
    from quotebot.views.blocks import Json

ANSWER_CHARACTERS_MAX: Final = 3_000
ACCOUNT_CHARACTERS_MAX: Final = 40
NO_TOTAL: Final = Decimal(0)
EVENTS_READ_MAX: Final = 400  # the newest events of a quote; most of them are internal steps of the ledger
EVENTS_SHOWN_MAX: Final = 25
_NONE: Final = {
    "mine": N_("You have no {quotes}."),
    "all": N_("No {quotes}."),
    "match": N_('No {quotes} match "{customer}".'),
}
_NONE_BEYOND: Final = {
    "mine": N_("You have no {quotes} on page {page}."),
    "all": N_("No {quotes} on page {page}."),
    "match": N_('No {quotes} match "{customer}" on page {page}.'),
}
REPORTED_DAYS: Final = 90
REPORTED_MAX: Final = 2_000  # quotes of one report; a snapshot takes a fraction of a millisecond to read
LETTERS_SHOWN_MAX: Final = 10
ERROR_CHARACTERS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Reads:
    """Read-only queries of the ledger for one person."""

    ledger: Ledger
    rules: Rules  # with the ruleset that is active at the time of the answer
    visibility: Visibility | None = None  # without it a list shows only the outline of others' quotes

    async def answer(self, asked: Read, viewer: Viewer) -> str:  # noqa: PLR0911 -- one return per query
        """Return the answer as mrkdwn."""
        match asked:
            case RefRequest(ref):
                return await self.ledger.database.read(lambda tx: _became(tx, ref, viewer))
            case CompareRequest():
                return await self.ledger.database.read(lambda tx: _compared(tx, asked, viewer, self.rules))
            case ExplainRequest():
                return await self.ledger.database.read(lambda tx: _explained(tx, asked, viewer, self.rules.policy))
            case AuditRequest(quote_id):
                operator = viewer.user in self.rules.operators and not viewer.own_only
                return _cut(await self.ledger.database.read(lambda tx: trail(tx, quote_id, viewer, operator=operator)))
            case OpsRequest():
                return (await for_operators(self.ledger, viewer, self.rules.operators))[0]
            case ProductsRequest(search):
                day = datetime.fromtimestamp(self.ledger.clock.now_ms() // 1000, UTC).date()
                return _cut(product_messages.products_text(self.rules.ruleset, search, day))
            case ReportRequest() | ApprovalReportRequest():
                return _cut(await self._reported(asked, viewer))
            case SimulateRequest():
                approver = bool(self.rules.roles_of(viewer.user)) and not viewer.own_only
                return await self.ledger.database.read(lambda tx: self._simulated(tx, asked, viewer, approver=approver))
            case _:
                return (await self.listed(asked, viewer))[0]

    async def shown(self, asked: Read, viewer: Viewer) -> tuple[str, list[Json] | None]:
        """Return the answer as mrkdwn and, where it has buttons, as blocks."""
        if isinstance(asked, OpsRequest):
            return await for_operators(self.ledger, viewer, self.rules.operators)
        return await self.listed(asked, viewer) if isinstance(asked, ListRequest) else (await self.answer(asked, viewer), None)

    async def which(self, asked: WhichQuote, viewer: Viewer) -> tuple[str, list[Json]]:
        """Return the question about which quote a verb is, with the viewer's open ones, as text and as blocks."""
        _text, blocks = await self.listed(ListRequest(states=OPEN), viewer)
        question = messages.which_quote(asked.verb)
        return question, [section(question), *blocks]

    async def listed(self, asked: ListRequest, viewer: Viewer) -> tuple[str, list[Json]]:
        """Return the requested page, as text and as blocks with buttons to other pages."""
        page = await self.found(asked, viewer)
        text = _listed(page, asked)
        return text, list_blocks(page, asked, text)

    async def found(self, asked: ListRequest, viewer: Viewer) -> Page:
        """Return the requested page; a search by customer has only quotes that the viewer sees in full."""
        seen = None if asked.account is None else await self._seen(asked.account, viewer)
        page = await self.ledger.database.read(lambda tx: _page(tx, asked, viewer, seen))
        if self.visibility is not None:
            others = {quote.channel for quote in page.quotes if quote.requester != viewer.user}
            viewer = await self.visibility.about_channels(viewer, others)
        return _outlined(page, asked, viewer)

    async def _seen(self, account: str, viewer: Viewer) -> frozenset[str] | None:
        """Return the channels whose quotes a search by customer may include for this viewer; None for all channels."""
        circle = viewer.circle
        if self.visibility is not None:
            wanted = await self.ledger.database.read(lambda tx: channels_of_account(tx, viewer.team_id, account, viewer.user))
            circle = (await self.visibility.about_channels(viewer, wanted)).circle
        return None if circle.insider else circle.channels

    async def _reported(self, asked: ReportRequest | ApprovalReportRequest, viewer: Viewer) -> str:
        """Return a report about the last ninety days, for the deal desk, the roles above it and operators."""
        if viewer.own_only or viewer.user not in self.rules.report_readers:
            return _(report_messages.NOT_FOR_YOU)
        now, database = self.ledger.clock.now_ms(), self.ledger.database
        period = reports.Period(now - REPORTED_DAYS * DAY_MS, now + 1, viewer.team_id)
        kind = "approvals" if isinstance(asked, ApprovalReportRequest) else asked.kind
        if isinstance(asked, ApprovalReportRequest):
            requests = [each async for each in reports.approvals(database, period, most=REPORTED_MAX + 1)]
            found, more = approval_counts(requests[:REPORTED_MAX], asked.by), len(requests) > REPORTED_MAX
        else:
            quotes = [each async for each in reports.quotes(database, period, most=REPORTED_MAX + 1)]
            found, more = report(asked.kind, quotes[:REPORTED_MAX], asked.by, _), len(quotes) > REPORTED_MAX
        most = REPORTED_MAX if more else None
        return report_messages.report_text(kind, found, REPORTED_DAYS, most, self.rules.policy.roles)

    def _simulated(self, tx: Tx, asked: SimulateRequest, viewer: Viewer, *, approver: bool) -> str:
        before, request = None, asked.request
        if asked.quote_id is not None:
            before = _visible(tx, asked.quote_id, None, viewer)
            if before is None:
                return _not_seen(tx, asked.quote_id, viewer)
            edited = changed(request_of(before.pricing), asked.changes or Changes())
            if isinstance(edited, tuple):
                return lifecycle_messages.not_revisable(before, edited)
            request = edited
        assert request is not None  # noqa: S101 -- the grammar gives a quote or a request
        account, account_id = (asked.account, None) if before is None else (before.account, before.crm_account)
        now, rules = self.ledger.clock.now_ms(), self.rules
        if account is not None:
            rules = with_segments(tx, rules, account, account_id, now)
        found = simulate(request, rules.ruleset, rules.policy, now, account, rules.segments)
        if not isinstance(found, Simulation):
            return messages.problem_list(tuple(messages.pricing_problem(problem) for problem in found))
        head = _("*What if* \u00b7 {total} \u00b7 {approval}", total=_net(found), approval=preview(found.decision))
        margins = margin_rows(found.pricing, self.rules.policy) if approver else ()
        rows = (*price_rows(found.pricing, self.rules.policy), *margins, *self._easier(found, approver=approver))
        head = "\n".join((head, *(messages.escape(f"{name}: {value}") for name, value in rows)))
        if before is None:
            return _cut("\n".join((head, *(messages.escape(line) for line in explain(found.pricing, bold="*")))), of_quote=True)
        compared = _("Compared with {quote}:", quote=lifecycle_messages.version_name(before))
        return _cut(
            f"{head}\n{compared}\n{lifecycle_messages.differences(before.pricing, found.pricing, self.rules.policy)}", of_quote=True
        )

    def _easier(self, found: Simulation, *, approver: bool) -> tuple[PriceRow, ...]:
        changes = avoidances(found.pricing, self.rules.ruleset, self.rules.policy)
        return avoidance_rows(changes, self.rules.policy.roles, approver=approver)


def preview(decision: PolicyDecision) -> str:
    """Return the approval that a decision requires, in words."""
    why = messages.escape(clipped("; ".join(decision.hits), 500))
    if decision.blocked:
        return _("Nobody can approve it: {why}", why=why)
    if decision.automatic:
        return _("Needs no approval")
    return _("Needs approval: *{roles}* · {why}", roles=messages.approver_words(decision.required_roles, decision.roles), why=why)


def policy_checks(decision: PolicyDecision) -> str:
    """Return the result of the policy's checks as plain text, without margin figures."""
    why = without_margin_figures("; ".join(decision.hits))
    if decision.automatic:
        return _("Approval: none needed, within policy.")
    if decision.blocked:
        return _("Approval: nobody can approve it · {why}", why=why)
    return _("Approval: {roles} · {why}", roles=messages.approver_words(decision.required_roles, decision.roles), why=why)


def _became(tx: Tx, ref: str, viewer: Viewer) -> str:
    """Return the result of the viewer's own command."""
    row = tx.one("own_operation_of_ref", prefix=ref.removeprefix("c-"), actor=viewer.user, team_id=viewer.team_id)
    if row is None:
        return messages.unknown_ref(ref)
    return without_margin_figures(present_answer(Operation.of(row)))


def _compared(tx: Tx, asked: CompareRequest, viewer: Viewer, rules: Rules) -> str:
    head = _visible(tx, asked.quote_id, None, viewer)
    if head is None:
        return _not_seen(tx, asked.quote_id, viewer)
    if head.version == 1:
        return _("{quote} has only one version.", quote=head.quote_id)
    after = head.version if asked.after is None else asked.after
    before = head.version - 1 if asked.before is None else asked.before
    quotes = [_visible(tx, asked.quote_id, version, viewer) for version in (before, after)]
    old, new = quotes
    if old is None or new is None:
        missing = before if old is None else after
        return _(
            "{quote} has no v{version}. Its latest version is v{head}.", quote=head.quote_id, version=missing, head=head.version
        )
    names = f"{head.quote_id}: v{old.version} ({state_words(old.state)}) \u2192 v{new.version} ({state_words(new.state)})"
    return _cut(f"*{names}*\n{lifecycle_messages.differences(old.pricing, new.pricing, rules.policy)}", of_quote=True)


def _explained(tx: Tx, asked: ExplainRequest, viewer: Viewer, policy: ApprovalPolicy) -> str:
    quote = _visible(tx, asked.quote_id, asked.version, viewer)
    if quote is None:
        return _not_seen(tx, asked.quote_id, viewer)
    if asked.line is not None:
        last = len(quote.pricing.every_line)
        if not 1 <= asked.line <= last:
            return _("{quote} has no line {n}. Its last one is line {last}.", quote=quote.quote_id, n=asked.line, last=last)
        return _cut(_said(quote, *explain(quote.pricing, asked.line, bold="*")))
    ruleset = rulesets.pricing_words(tx, quote.pricing.ruleset_hash, quote.pricing.ruleset)
    checks = policy_checks(evaluate(quote.pricing, policy))
    first, *steps, total = trace(quote.pricing, bold="*")
    text = _said(quote, first, ruleset, *steps, checks, total)
    if len(text) <= ANSWER_CHARACTERS_MAX:
        return text
    first, *lines, total = explain(quote.pricing, bold="*")
    hint = _("`/quote explain {quote} line 1` shows the steps of a line.", quote=quote.quote_id)
    return _cut(_said(quote, first, ruleset, checks, hint, *lines, total), of_quote=True)


def _said(quote: Quote, *sentences: str) -> str:
    return "\n".join((f"*{lifecycle_messages.version_name(quote)}*", *(messages.escape(sentence) for sentence in sentences)))


def _listed(page: Page, asked: ListRequest) -> str:
    if not page.quotes:
        return _none_found(page, asked)
    rows = [
        " · ".join(
            (f"• *{quote.quote_id}* v{quote.version}", state_words(quote.state), *_facts(quote), messages.mention(quote.requester))
        )
        for quote in page.quotes
    ]
    if page.more:
        rows.append(_("There are more: add `page {n}`.", n=page.number + 1))
    return "\n".join(rows)


def _none_found(page: Page, asked: ListRequest) -> str:
    """Return the reply to a query that finds no quote."""
    states = _named(asked.states)
    what = _("open quotes") if asked.states == OPEN else _("{states} quotes", states=either(states)) if states else _("quotes")
    whose = "match" if asked.account else "mine" if asked.mine else "all"
    text = _NONE_BEYOND[whose] if page.number > 1 else _NONE[whose]
    account = messages.escape(clipped(asked.account or ""))
    said = _(text, quotes=what, customer=account, page=page.number)
    return " ".join((said, _("`/quote list all` shows everyone's."))) if asked.mine else said


def _named(states: frozenset[QuoteState]) -> list[str]:
    return sorted(state_words(state) for state in states)


def _facts(quote: Listed) -> tuple[str, ...]:
    """Return the total and the customer, which an outlined quote does not show."""
    if quote.outlined:
        return ()
    account = messages.escape(clipped(messages.one_line(quote.account), ACCOUNT_CHARACTERS_MAX))
    return money.format_amount(quote.net_total, quote.currency), account


def _visible(tx: Tx, quote_id: str, version: int | None, viewer: Viewer) -> Quote | None:
    quote = store.load(tx, quote_id) if version is None else store.load_version(tx, quote_id, version)
    return quote if quote is not None and may_see(viewer, quote) is Sight.FULL else None


def _not_seen(tx: Tx, quote_id: str, viewer: Viewer) -> str:
    quote = store.load(tx, quote_id)
    sight = Sight.NOTHING if quote is None else may_see(viewer, quote)
    return messages.unknown_quote(quote_id) if sight is Sight.FULL else messages.not_seen(quote_id, quote, sight)


def _outlined(page: Page, asked: ListRequest, viewer: Viewer) -> Page:
    """Return a page without hidden quotes. Outlined quotes lose customer and total, and a search by customer omits them."""
    shown = [
        quote if may_see(viewer, quote) is Sight.FULL else replace(quote, outlined=True, account="", net_total=NO_TOTAL)
        for quote in page.quotes
        if may_see(viewer, quote) is not Sight.NOTHING
    ]
    kept = tuple(quote for quote in shown if asked.account is None or not quote.outlined)
    return replace(page, quotes=kept)


def _page(tx: Tx, asked: ListRequest, viewer: Viewer, seen: frozenset[str] | None) -> Page:
    """Return the requested page; only the viewer's own quotes if they see no others."""
    owner = viewer.user if asked.mine else asked.owner
    if viewer.own_only and owner not in (None, viewer.user):
        return Page((), asked.page, more=False)
    chosen = Filter(viewer.team_id, viewer.user if viewer.own_only else owner, asked.states, asked.account, viewer.user, seen)
    return list_quotes(tx, chosen, page=asked.page)


def _net(found: Simulation) -> str:
    return money.format_amount(found.pricing.net_total, found.pricing.currency)


def _cut(text: str, *, of_quote: bool = False) -> str:
    """Return the text cut to whole lines that fit one message, with the last line, which holds the total or says where all is.

    `of_quote`: the lines are those of a quote, and the answer says how to see one of them.
    """
    if len(text) <= ANSWER_CHARACTERS_MAX:
        return text
    *lines, last = text.splitlines()
    kept: list[str] = []
    room = ANSWER_CHARACTERS_MAX - len(last) - 100
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    more = len(lines) - len(kept)
    if of_quote:
        left_out = ngettext(
            "… and {n} more line; `/quote explain Q-... line 21` shows one.",
            "… and {n} more lines; `/quote explain Q-... line 21` shows one.",
            more,
        )
    else:
        left_out = ngettext("… and {n} more line", "… and {n} more lines", more)
    return "\n".join((*kept, left_out, last))


def trail(tx: Tx, quote_id: str, viewer: Viewer, *, operator: bool) -> str:
    """Return a quote's history as mrkdwn, oldest event first; without full sight of the quote, `messages.not_seen`."""
    quote = store.load(tx, quote_id)
    sight = Sight.NOTHING if quote is None else may_see(viewer, quote)
    if quote is None or sight is not Sight.FULL:
        return messages.not_seen(quote_id, quote, sight)
    told = [row for row in tx.all("audit_chain", aggregate_id=quote_id, limit=EVENTS_READ_MAX) if timeline.is_shown(row)]
    shown = told[-EVENTS_SHOWN_MAX:]
    return timeline.timeline(quote, shown, left_out=len(shown) < len(told), operator=operator)


async def for_operators(ledger: Ledger, viewer: Viewer, operators: Sequence[str]) -> tuple[str, list[Json] | None]:
    """Return the dead letters, the held classes and the differences with Salesforce as mrkdwn; other people get a refusal.

    Differences have buttons, and therefore blocks.
    """
    if viewer.own_only or viewer.user not in operators:
        return _(operator_messages.NOT_OPERATOR), None
    most = crm_messages.DIFFERENCES_SHOWN_MAX
    found = await ledger.database.read(lambda tx: crm.listed(tx, most + 1))
    standing = _cut(await _standing(ledger, clear=not found))
    if not found:
        return standing, None
    text, blocks = crm_messages.waiting(found[:most], more=len(found) > most)
    return _cut(f"{text}\n{standing}"), [section(standing), *blocks]


async def _standing(ledger: Ledger, *, clear: bool) -> str:
    """Return the dead letters and held classes; `clear`: nothing else waits for an operator."""
    letters = await DeadLetters(ledger, build=__version__).list(limit=LETTERS_SHOWN_MAX + 1, newest=True)
    gates = await ledger.database.read(lambda tx: [Gate.of(row) for row in tx.all("all_gates")])
    held = [_gate(gate) for gate in gates if gate.state == "held"]
    more = len(letters) > LETTERS_SHOWN_MAX
    dead = [_dead_letter(letter) for letter in letters[:LETTERS_SHOWN_MAX]]
    rest = _("At a terminal: `quotebot dead list`, `quotebot gates`, `quotebot ops list`, `quotebot why <id>`")
    if not dead and not held and clear:
        return "\n".join((_("*All clear.* No failed jobs, nothing paused."), rest))
    if more:
        count = _("The newest {n} failed jobs", n=grouped(len(dead)))
    else:
        count = ngettext("{n} failed job", "{n} failed jobs", len(dead)) if dead else _("No failed jobs")
    return "\n".join((f"*{count}*", *dead, *(held or [_("Nothing is paused.")]), rest))


def _dead_letter(letter: DeadLetter) -> str:
    category = letter.category or _("unknown")
    about = "" if parse_quote_id(letter.aggregate_id) is None else f" · {letter.aggregate_id}"
    why = messages.escape(clipped(messages.one_line(letter.last_error or _("no reason is known")), ERROR_CHARACTERS_MAX))
    return f"• `{letter.reference}` {operator_messages.job(letter.effect_class)}{about} ({category}): {why}"


def _gate(gate: Gate) -> str:
    why = messages.escape(clipped(messages.one_line(gate.reason or _("no reason is known")), ERROR_CHARACTERS_MAX))
    how = f"`quotebot resume {gate.name}`" if gate.until_at is None else _("retries automatically")
    if gate.held_at is None:
        return _("• *{name}* is paused: {why} ({how})", name=gate.name, why=why, how=how)
    return _("• *{name}* is paused since {time}: {why} ({how})", name=gate.name, time=local_time(gate.held_at), why=why, how=how)


def present_answer(operation: Operation) -> str:
    """Return the answer to a recorded command by its present state."""
    ref = operation.correlation_id
    match operation.state:
        case OperationState.COMPLETED | OperationState.FAILED_TERMINAL:
            response: dict[str, Any] = operation.response or {}
            if operation.state is OperationState.COMPLETED:
                return str(response.get("text") or messages.finished(operation.outcome))
            return str(response.get("text") or messages.terminal(operation.last_error or _("it failed"), ref, None))
        case OperationState.FAILED_RETRYABLE:
            return messages.retry_pending(operation.next_attempt_at)
        case OperationState.DISCARDED:
            return _(messages.DISCARDED)
        case _:
            return _(messages.OPERATION_PENDING)
