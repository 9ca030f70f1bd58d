"""Parser for `/quote list ...`: `[mine|all|@somebody] [open|<status> ...] [<account>] [page <n>]`, in any order."""

from __future__ import annotations

import re

from quotebot.commands.queries import OPEN, PAGE_MAX, ListRequest
from quotebot.domain.quotes.quote import QuoteState, state_words
from quotebot.slack.grammar import ACCOUNT_CHARACTERS_MAX, GrammarProblem

_PAGE = re.compile(r"\bpage ([0-9]{1,5})\b", re.IGNORECASE)
_OWNER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")


def read_list(rest: str) -> ListRequest | GrammarProblem:
    """Parse the text after `list`: the owner, the states and the page; the rest is a part of the customer's name."""
    page = _PAGE.search(rest)
    number = 1 if page is None else int(page[1])
    if not 1 <= number <= PAGE_MAX:
        return GrammarProblem(f"Pages are 1 to {PAGE_MAX:,}. Nothing was recorded. Type `/quote list page 2`.")
    text = f" {rest if page is None else rest[: page.start()] + rest[page.end() :]} "
    mine, owner, states = True, None, frozenset[QuoteState]()
    for state in QuoteState:
        for name in {state.value, state_words(state)}:
            text, found = _taken(text, name)
            states |= {state} if found else frozenset()
    text, pending = _taken(text, "pending")
    text, is_open = _taken(text, "open")
    states |= {QuoteState.PENDING_APPROVAL} if pending else frozenset()
    states |= OPEN if is_open else frozenset()
    text, everybody = _taken(text, "all")
    text, own = _taken(text, "mine")
    if named := _OWNER.search(text):
        owner, text = named[1], text[: named.start()] + text[named.end() :]
    mine = own or not (everybody or owner)
    account = text.strip().removeprefix("for ").strip()
    if len(account) > ACCOUNT_CHARACTERS_MAX:
        return GrammarProblem(f"No customer's name is longer than {ACCOUNT_CHARACTERS_MAX} characters.")
    return ListRequest(mine, owner, states, account or None, number)


def _taken(text: str, name: str) -> tuple[str, bool]:
    """Return the text without the word `name`, and whether it was found."""
    found = re.search(rf"(?<= ){re.escape(name)}(?= )", text, re.IGNORECASE)
    return (text, False) if found is None else (text[: found.start()].rstrip() + text[found.end() :], True)
