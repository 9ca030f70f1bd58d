"""App Home of one user: approvals to decide, open quotes, recently ended quotes, a button for a new one. Always drawn in full."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import OPEN
from quotebot.domain import money
from quotebot.domain.access import Sight, Viewer, may_see
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import ApprovalState, Listed, Quote, QuoteState, state_words, title
from quotebot.store import approvals as approval_store
from quotebot.store import quotes as store
from quotebot.store.quotes import Filter, list_quotes
from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, Json, button, context, plain, section, value_text
from quotebot.views.card import STATE_ICONS, PriceRow, avoidance_rows, deciding, margin_effect
from quotebot.views.confirmations import SHOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ledger.database import Tx
    from quotebot.domain.rules import Rules

NEW_QUOTE: Final = "home.new"  # action_id

WAITING_MAX: Final = 10  # two blocks each
OPEN_MAX: Final = 20
ENDED_MAX: Final = 10
LOOKED_AT_MAX: Final = 60  # requests of the workspace per read, until enough are found that this user may decide
ACCOUNT_CHARACTERS_MAX: Final = 60
REASONS_CHARACTERS_MAX: Final = 300

CLOSED: Final = frozenset(state for state in QuoteState if is_final(state))


@dataclass(frozen=True, slots=True)
class Home:
    """Content of one user's App Home. `more_waiting` and `more_open` are true if there are more quotes than it shows."""

    waiting: tuple[Quote, ...] = ()
    more_waiting: bool = False
    open: tuple[Listed, ...] = ()
    more_open: bool = False
    ended: tuple[Listed, ...] = ()
    margins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of the waiting quotes, by id: margins below their floors
    easier: Mapping[str, tuple[PriceRow, ...]] = field(default_factory=dict)  # likewise: changes that avoid an approval


def load_home(tx: Tx, viewer: Viewer, rules: Rules, now: int) -> Home:
    """Read one user's App Home. `now` is Unix milliseconds. A listed guest is never asked for an approval."""
    user, team_id = viewer.user, viewer.team_id
    waiting = () if viewer.own_only else tuple(islice(_waiting_for(tx, viewer, rules, now), WAITING_MAX + 1))
    mine = list_quotes(tx, Filter(team_id, user, OPEN), rows=OPEN_MAX)
    ended = list_quotes(tx, Filter(team_id, user, CLOSED), rows=ENDED_MAX)
    shown = waiting[:WAITING_MAX]
    margins = {quote.quote_id: margin_figures(quote.pricing, rules.policy) for quote in shown}
    basis = basis_of(rules.ruleset, rules.policy)
    advised = {quote.quote_id: store.load_advice(tx, quote, basis) for quote in shown}
    easier = {quote_id: avoidance_rows(advice.changes, approver=True) for quote_id, advice in advised.items() if advice is not None}
    return Home(shown, len(waiting) > len(shown), mine.quotes, mine.more, ended.quotes, margins, easier)


def _waiting_for(tx: Tx, viewer: Viewer, rules: Rules, now: int) -> Iterator[Quote]:
    """Yield the quotes that wait for this user's decision, the longest waiting first."""
    away, last = approval_store.delegations(tx, viewer.team_id, now), (0, "")
    while page := approval_store.waiting(tx, viewer.team_id, last, LOOKED_AT_MAX):
        for quote_id, requested_at, approval_id in page:
            last = (requested_at, approval_id)
            quote = store.load(tx, quote_id)
            approval = None if quote is None else quote.approval
            if quote is None or approval is None or approval.state is not ApprovalState.PENDING:
                continue
            if may_see(viewer, quote) is not Sight.NOTHING and viewer.user in rules.who_may_decide(approval, quote.makers, away):
                yield quote


def home_view(home: Home) -> Json:
    """Return the view that views.publish takes, at most 100 blocks."""
    blocks = [
        {"type": "header", "text": plain("Quotebot")},
        {
            "type": "actions",
            "block_id": "home.actions",
            "elements": [button(NEW_QUOTE, "New quote", "new", style="primary")],
        },
        *_waiting(home),
        _heading("Your open quotes"),
        *([_row(listed) for listed in home.open] or [context(["You have none. New quote starts one; so does `/quote new`."])]),
        *([context(["There are more: `/quote list mine open`"])] if home.more_open else []),
    ]
    if home.ended:
        blocks += [_heading("Ended lately"), *(_row(listed) for listed in home.ended)]
    return {"type": "home", "blocks": blocks}


def refused_view(text: str) -> Json:
    """Return the Home tab of a user whom the access gate does not admit."""
    return {"type": "home", "blocks": [{"type": "header", "text": plain("Quotebot")}, section(messages.escape(text))]}


def _waiting(home: Home) -> list[Json]:
    if not home.waiting:
        return [_heading("Needs your approval"), context(["✅ Nothing waits for you."])]
    blocks = [_heading("Needs your approval")]
    for quote in home.waiting:
        assert quote.approval is not None  # noqa: S101 -- it waits for a decision
        why = messages.escape(
            clipped("; ".join(messages.one_line(reason) for reason in quote.approval.reasons), REASONS_CHARACTERS_MAX)
        )
        effect = _effect(quote, home.margins.get(quote.quote_id, ()))
        asked = f"asked for by {messages.mention(quote.approval.requested_by)}"
        rows = [f"\n💡 {name}: {clipped(value, REASONS_CHARACTERS_MAX)}" for name, value in home.easier.get(quote.quote_id, ())]
        avoids = messages.escape("".join(rows))
        blocks += [
            section(f"*{title(quote)}* for {_account(quote)}, *{messages.net(quote)}*, {asked}\n{effect}\n{why}{avoids}"),
            {"type": "actions", "block_id": f"home.decide.{quote.quote_id}", "elements": [*deciding(quote), _show(quote)]},
        ]
    if home.more_waiting:
        blocks.append(context(["These wait longest; there are more: `/quote list all pending`"]))
    return blocks


def _effect(quote: Quote, margins: tuple[str, ...]) -> str:
    """Return the effect of the discount on the price and margin. Only approvers see it: a margin is not for the whole channel."""
    pricing = quote.pricing
    amount = money.format_amount(pricing.discount_total, pricing.currency)
    discount = f"{money.format_percent(pricing.discount_percent)} discount ({amount})"
    margin = margin_effect(pricing)
    whole = () if margin is None else (margin,)
    return messages.escape("; ".join((", ".join((discount, *whole)), *margins)))


def _row(listed: Listed) -> Json:
    net = money.format_amount(listed.net_total, listed.currency)
    return {
        **section(f"{STATE_ICONS[listed.state]} *{title(listed)}* for {_account(listed)}, {net}: {state_words(listed.state)}"),
        "accessory": _show(listed),
    }


def _show(quote: Quote | Listed) -> Json:
    return button(SHOW, "Show", value_text(ButtonValue(quote.quote_id, quote.version, None)))


def _account(quote: Quote | Listed) -> str:
    return messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)


def _heading(text: str) -> Json:
    return {"type": "header", "text": plain(text)}
