"""Reply to `/quote list`: a row per quote with a button to its card, and buttons for other pages and other filters.

A button's value holds the complete query, so that the bot stores nothing for it. A click replaces the reply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import OPEN, PAGE_MAX, ListRequest
from quotebot.domain import money
from quotebot.domain.language import _, either, initial_capital
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Listed, QuoteState, local_time, state_words, title
from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, Json, button, context, read, section, value_text, written
from quotebot.views.card import STATE_ICONS, summary_line
from quotebot.views.confirmations import SHOW

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote
    from quotebot.store.quotes import Page

NEWER, OLDER, WHOSE, WHICH = "list.newer", "list.older", "list.whose", "list.which"  # action_ids
ACCOUNT_CHARACTERS_MAX: Final = 40
_FIELDS: Final = {"m", "o", "s", "a", "p"}


def list_blocks(page: Page, asked: ListRequest, text: str) -> list[Json]:
    """Return the reply as Block Kit. `text` is its version without buttons, which is also shown if no quote was found."""
    rows = [_row(quote) for quote in page.quotes] or [section(text)]
    return [section(f"*{heading(asked)}*"), *rows, {"type": "actions", "block_id": "list.actions", "elements": _turns(page, asked)}]


def heading(asked: ListRequest) -> str:
    """Return the query in words: owner, states, customer and page."""
    named = _("All quotes") if asked.owner is None else _("Quotes of {person}", person=messages.mention(asked.owner))
    states = [_("open")] if asked.states == OPEN else sorted(map(state_words, asked.states))
    parts = [_("Your quotes") if asked.mine else named]
    parts += [initial_capital(either(states))] if states else []
    parts += [] if asked.account is None else [f'"{messages.escape(clipped(asked.account))}"']
    return " \u00b7 ".join((*parts, *((_("page {page}", page=asked.page),) if asked.page > 1 else ())))


def link_preview(quote: Quote, now: int) -> list[Json]:
    """Return a quote as it is shown below a link to its record. It stays as it was at `now` (Unix ms), and says so."""
    heading = f"*{messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)} · {title(quote)}*"
    return [section(f"{heading}\n{summary_line(quote)}"), context([_("As of {time}", time=local_time(now))])]


def question_text(asked: ListRequest) -> str:
    """Return a button's value; `parse_question` reads it."""
    states = sorted(state.value for state in asked.states)
    return written({"m": asked.mine, "o": asked.owner, "s": states, "a": asked.account, "p": asked.page})


def parse_question(text: str) -> ListRequest | None:
    """Return the query of a button, or None if this build did not write its value."""
    fields = read(text, _FIELDS)
    if fields is None or not isinstance(fields["m"], bool) or not isinstance(fields["s"], list):
        return None
    states = frozenset(state for state in QuoteState if state.value in fields["s"])
    named = all(fields[name] is None or isinstance(fields[name], str) for name in ("o", "a"))
    numbered = type(fields["p"]) is int and 1 <= fields["p"] <= PAGE_MAX
    if len(states) != len(fields["s"]) or not named or not numbered:
        return None
    return ListRequest(fields["m"], fields["o"], states, fields["a"], fields["p"])


def _turns(page: Page, asked: ListRequest) -> list[Json]:
    first = replace(asked, page=1)
    whose = replace(first, mine=False, owner=None) if asked.mine else replace(first, mine=True, owner=None)
    which = replace(first, states=frozenset[QuoteState]()) if asked.states else replace(first, states=OPEN)
    turns = [
        button(WHOSE, _("All quotes") if asked.mine else _("My quotes"), question_text(whose)),
        button(WHICH, _("All states") if asked.states else _("Open only"), question_text(which)),
    ]
    if page.number > 1:
        turns.append(button(NEWER, _("◀ Newer"), question_text(replace(asked, page=page.number - 1))))
    if page.more and page.number < PAGE_MAX:
        turns.append(button(OLDER, _("Older ▶"), question_text(replace(asked, page=page.number + 1))))
    return turns


def _row(quote: Listed) -> Json:
    account = messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)
    total = money.format_amount(quote.net_total, quote.currency)
    facts = (f"*{title(quote)}*",) if quote.outlined else (f"*{account}*", title(quote), total)
    state = f"{STATE_ICONS[quote.state]} {initial_capital(state_words(quote.state))}"
    text = f"{' · '.join(facts)}\n{state} · {messages.mention(quote.requester)}"
    return {**section(text), "accessory": button(SHOW, _("View"), value_text(ButtonValue(quote.quote_id, quote.version, None)))}
