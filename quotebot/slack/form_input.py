"""Input of forms: the parser of submitted forms, and drafts that fill a form in. Both use local rules only, no ledger.

The parser returns a command, or an error for each invalid block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    CreateByForm,
    CreateQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
)
from quotebot.domain.pricing.engine import Pricing, price
from quotebot.domain.pricing.price_requests import Changes, LineChange, PriceRequest, changed, dated
from quotebot.domain.pricing.term_clauses import clauses
from quotebot.domain.texts import composed
from quotebot.slack import grammar
from quotebot.views import forms, lifecycle_messages, messages
from quotebot.views.blocks import parse_button_value, read
from quotebot.views.forms import ACCOUNT_CHARACTERS_MAX, CONTACT, FOUND, Draft, block_of, read_choice, remembered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.commands.registry import LifecyclePayload
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import LineRequest
    from quotebot.domain.quotes.quote import ChosenOpportunity

ERROR_CHARACTERS_MAX: Final = 500
PROBLEMS_SHOWN_MAX: Final = 4
OPTION_VALUE_CHARACTERS_MAX: Final = 150
_CHARACTERS_MAX: Final = {
    forms.ACCOUNT: ACCOUNT_CHARACTERS_MAX,
    forms.LINES: forms.LINES_CHARACTERS_MAX,
    forms.CHANGES: forms.LINES_CHARACTERS_MAX,
    forms.TERM: forms.SHORT_CHARACTERS_MAX,
    forms.TERMS: forms.TERMS_CHARACTERS_MAX,
    forms.DISCOUNT: forms.SHORT_CHARACTERS_MAX,
    forms.ROW: forms.SHORT_CHARACTERS_MAX,
    forms.RECIPIENT: RECIPIENT_CHARACTERS_MAX,
    forms.REASON: REASON_CHARACTERS_MAX,
}
# all others: the products
_BLOCK_OF: Final = {
    "term": forms.TERM,
    "discount": forms.DISCOUNT,
    "currency": forms.CURRENCY,
    "no_rate": forms.CURRENCY,
    "stale_rate": forms.CURRENCY,
    "terms": forms.TERMS,
    "no_tax": forms.TERMS,
    **dict.fromkeys(("start", "payment", "po", "bill_to", "valid", "language", "template", "note"), forms.TERMS),
}

Errors = dict[str, str]  # block_id -> error, as plain text
# optional start of a message that is written like a command
_ADDRESSED = re.compile(r"(?:<@[UW][A-Z0-9]+(?:\|[^>]*)?> *)*(?:/quote )?(?:(?:new|start|create) )?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Filled:
    """Content of a submitted form: a payload, its quote, and the version that the person saw ("new" and 0: a creation)."""

    payload: CreateByForm | LifecyclePayload
    quote_id: str = "new"
    version: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """A submitted view with its fields as typed, and the ruleset that prices them. `received_at` is Unix milliseconds."""

    view: Mapping[str, Any]
    ruleset: Ruleset
    received_at: int

    def typed(self, block_id: str) -> str:
        """Return the input of a block on one line; empty if there is none."""
        return messages.one_line(composed(self.raw(block_id)))

    def lines(self, block_id: str) -> list[str]:
        """Return the non-empty lines of a large field."""
        typed = (messages.one_line(composed(line)) for line in self.raw(block_id).splitlines())
        return [line for line in typed if line]

    def raw(self, block_id: str) -> str:
        """Return the input of a block as Slack sent it; empty if there is none."""
        found: Any = self.view.get("state")
        for key in ("values", block_id, block_id):
            found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            return ""
        chosen = found.get("selected_option")
        value = chosen.get("value") if isinstance(chosen, dict) else found.get("value") or found.get("selected_conversation")
        return value if isinstance(value, str) else ""


def read_form(form: Form) -> Filled | Errors:
    """Return the content of the form, or every error by its block."""
    too_long = _too_long(form)
    if too_long:
        return too_long
    match form.view["callback_id"]:
        case forms.CREATE_FORM:
            return _creation(form)
        case forms.REVISE_FORM:
            return _revision(form)
        case forms.SEND_FORM:
            return _sending(form)
        case _:
            return _loss(form)


def last_block(view: Mapping[str, Any]) -> str:
    """Return the block that shows an error about the whole form: its last field."""
    return str(next(block["block_id"] for block in reversed(view["blocks"]) if block["type"] == "input"))


def _too_long(form: Form) -> Errors:
    """Return an error for each field over its limit. Slack's clients enforce these limits, so such a form is not read further."""
    state = form.view.get("state")
    values = state.get("values") if isinstance(state, dict) else None
    over = {}
    for block_id in values if isinstance(values, dict) else ():
        kind = forms.ROW if block_id.startswith(f"{forms.ROW}.") else block_id
        most = _CHARACTERS_MAX.get(kind, OPTION_VALUE_CHARACTERS_MAX)
        if len(form.raw(block_id)) > most:
            over[block_id] = f"At most {most:,} characters."
    return over


def _creation(form: Form) -> Filled | Errors:
    carried = form.view.get("private_metadata") or ""
    about = remembered(carried)
    if about is None:
        return {last_block(form.view): messages.UNREADABLE_FORM}
    errors: Errors = {}
    account, channel = form.typed(forms.ACCOUNT) or form.typed(FOUND), about["c"] or form.typed(forms.CHANNEL)
    if not account:
        errors[forms.ACCOUNT] = "Say who the quote is for."
    elif len(account) > ACCOUNT_CHARACTERS_MAX:
        errors[forms.ACCOUNT] = f"At most {ACCOUNT_CHARACTERS_MAX} characters."
    if not channel:
        errors[forms.CHANNEL] = "Choose where its card is to be posted."
    request = _request(form, errors)
    opportunity = _opportunity(form, about.get("a"), account, request, errors)
    if errors or request is None:
        return errors
    token = str(about.get("t") or form.view["root_view_id"])
    return Filled(CreateByForm(token, CreateQuote(account, request, str(channel), opportunity)))


def _opportunity(
    form: Form, offered_for: object, account: str, request: PriceRequest | None, errors: Errors
) -> ChosenOpportunity | None:
    """Return the chosen opportunity, if any; add to `errors` if it does not match the rest of the form."""
    block_id = block_of(offered_for) if isinstance(offered_for, str) else ""
    chosen = form.typed(block_id)
    if not chosen:
        return None
    choice = read_choice(chosen)
    currency = None if request is None else request.currency
    if choice is None:
        errors[block_id] = "This opportunity was offered by another version of the bot. Choose it again, or leave it empty."
        return None
    if account.casefold() != messages.one_line(str(offered_for)).casefold():
        said = f"It is an opportunity of {offered_for}, and the quote is for {account}. Clear one of the two. Nothing was created."
        errors[block_id] = said[:ERROR_CHARACTERS_MAX]
    elif choice.currency and currency and choice.currency != currency:
        errors[block_id] = f"It is in {choice.currency}, and the quote in {currency}. Choose one currency. Nothing was created."
    return choice.opportunity


def _request(form: Form, errors: Errors) -> PriceRequest | None:
    """Return the price request if it can be priced; else add each problem to `errors` at its block."""
    lines = _products(form, errors)
    term, discount, more = _term(form, errors), _discount(form, errors), _terms(form, errors)
    if lines is None or term is None or discount is None or more is None:
        return None
    currency = form.typed(forms.CURRENCY) or None
    request = changed(PriceRequest(lines, term, discount, currency=currency), more)
    assert isinstance(request, PriceRequest)  # noqa: S101 -- only changed lines can be refused, and there are none
    priced = price(dated(request, form.received_at), form.ruleset)
    if isinstance(priced, Pricing):
        return request
    by_block: dict[str, list[str]] = {}
    for problem in priced:
        said = f"{problem.message}: {problem.suggestion}"
        by_block.setdefault(_BLOCK_OF.get(problem.code, forms.LINES), []).append(said)
    errors.update({block_id: _said(problems) for block_id, problems in by_block.items()})
    return None


def _products(form: Form, errors: Errors) -> tuple[LineRequest, ...] | None:
    typed = ", ".join(form.lines(forms.LINES))
    if ";" in typed:
        errors[forms.LINES] = "Only products here: the term and the discount have fields of their own."
        return None
    found = grammar.read_request(typed, form.ruleset.catalogue)
    if isinstance(found, tuple):
        errors[forms.LINES] = _said([_plain(problem) for problem in found])
        return None
    return found.lines


def _term(form: Form, errors: Errors) -> int | None:
    found = grammar.read_term(form.typed(forms.TERM))
    if isinstance(found, int):
        return found
    errors[forms.TERM] = _said([_plain(found)])
    return None


def _discount(form: Form, errors: Errors) -> Decimal | None:
    found = grammar.read_discount(form.typed(forms.DISCOUNT))
    if isinstance(found, Decimal):
        return found
    errors[forms.DISCOUNT] = _said([_plain(found)])
    return None


def _terms(form: Form, errors: Errors) -> Changes | None:
    """Return the tax, region, special terms, segment and billing, as changes of a request without any."""
    typed = "; ".join(form.lines(forms.TERMS))
    found = grammar.read_changes(typed, form.ruleset.catalogue) if typed else Changes()
    if isinstance(found, tuple):
        errors[forms.TERMS] = _said([_plain(problem) for problem in found])
        return None
    if found.lines or (found.term_months, found.discount_percent, found.currency) != (None, None, None):
        errors[forms.TERMS] = "Products, term, discount and currency have fields of their own: write only the rest here."
        return None
    return found


def _revision(form: Form) -> Filled | Errors:
    about = read(form.view.get("private_metadata") or "", {"q", "n", "l", "t", "d"})
    if about is None:
        return {last_block(form.view): messages.UNREADABLE_FORM}
    errors: Errors = {}
    lines = list(_row_changes(form, about["l"], errors))
    term = None if about["t"] is None else _term(form, errors)
    discount = _discount(form, errors)
    typed = _typed_changes(form, errors)
    if errors:
        return errors
    changes = replace(
        typed,
        lines=(*lines, *typed.lines),
        term_months=typed.term_months or (None if term == about["t"] else term),
        discount_percent=typed.discount_percent
        if typed.discount_percent is not None
        else None
        if discount == Decimal(about["d"])
        else discount,
    )
    if changes == Changes():
        return {forms.DISCOUNT: "Nothing is different yet. Change something, or close the form."}
    return Filled(ReviseQuote(changes=changes), str(about["q"]), int(about["n"]))


def _row_changes(form: Form, rows: list[Any], errors: Errors) -> Iterator[LineChange]:
    for number, (sku, quantity) in enumerate(rows):
        block_id = f"{forms.ROW}.{number}"
        typed = form.typed(block_id)
        if typed in ("", "0"):
            yield LineChange("remove", str(sku))
        elif (asked := grammar.whole(typed)) is None:
            errors[block_id] = "Write a whole number like 1500 or 1,500; empty removes the line."
        elif asked != quantity:
            yield LineChange("set", str(sku), asked)


def _typed_changes(form: Form, errors: Errors) -> Changes:
    typed = "; ".join(form.lines(forms.CHANGES))
    found = grammar.read_changes(typed, form.ruleset.catalogue) if typed else Changes()
    if isinstance(found, Changes):
        return found
    errors[forms.CHANGES] = _said([_plain(problem) for problem in found])
    return Changes()


def _sending(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.RECIPIENT: messages.UNREADABLE_FORM}
    recipient = form.typed(forms.RECIPIENT) or form.typed(CONTACT)
    if not recipient:
        return {forms.RECIPIENT: "Say to whom it was sent: a name or an address."}
    if len(recipient) > RECIPIENT_CHARACTERS_MAX:
        return {forms.RECIPIENT: lifecycle_messages.too_long("recipient", RECIPIENT_CHARACTERS_MAX)}
    return Filled(MarkSent(recipient), value.quote_id, value.version)


def _loss(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.REASON: messages.UNREADABLE_FORM}
    reason = "\n".join(form.lines(forms.REASON))
    if not reason:
        return {forms.REASON: "Say in one sentence why, so that the next quote does better."}
    if len(reason) > REASON_CHARACTERS_MAX:
        return {forms.REASON: lifecycle_messages.too_long("reason", REASON_CHARACTERS_MAX)}
    return Filled(LoseQuote(reason), value.quote_id, value.version)


def _said(problems: list[str]) -> str:
    shown = problems[:PROBLEMS_SHOWN_MAX]
    more = len(problems) - len(shown)
    text = "; ".join((*shown, *([f"and {more} more"] if more else [])))
    return f"{text[:1].upper()}{text[1:]}"[:ERROR_CHARACTERS_MAX]


def _plain(text: str) -> str:
    """Return a message of the grammar, which is mrkdwn, as plain text."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("`", "")


def draft_of(typed: str) -> Draft:
    """Return a draft from text such as "for Acme: 10 pro; term 12m", even if parts of it are wrong.

    A clause that begins with no keyword becomes a product, for the person to correct. Text without a colon becomes the customer's
    name.
    """
    head, _, body = typed.partition(":")
    account = head.strip()
    if account.casefold().startswith("for "):
        account = account[4:].strip()
    found = {"term": Draft().term, "discount": Draft().discount, "currency": ""}
    items: list[str] = []
    terms: list[str] = []
    for clause in filter(None, clauses(body)):
        keyword, value = grammar.keyword_of(clause)
        if keyword in found and value:
            found[keyword] = value
        else:
            (items if keyword is None else terms).append(clause)
    currency = found["currency"].upper() or None
    return Draft(account, ", ".join(items), found["term"], found["discount"], currency, terms="; ".join(terms))


def draft_of_creation(quote: CreateQuote, token: str | None = None) -> Draft:
    """Return a draft of a creation: the form, submitted unchanged, creates exactly this quote."""
    request = quote.request
    lines = "\n".join(forms.line_text(line) for line in request.lines)
    term, discount, terms = f"{request.term_months}m", f"{request.discount_percent:f}", forms.terms_text(request)
    return Draft(quote.account, lines, term, discount, request.currency, token, terms)


def draft_of_message(text: str) -> Draft:
    """Return a draft from a person's message, one product per line.

    A message that does not begin with "for <customer>:" is taken over whole, as products, for the person to correct.
    """
    plain_text = grammar.normalised(" ; ".join(text.splitlines()))
    command = _ADDRESSED.sub("", plain_text, count=1)
    if command.casefold().startswith("for ") and ":" in command:
        return draft_of(command)
    items = list(filter(None, clauses(command)))
    return Draft(lines="\n".join(items))
