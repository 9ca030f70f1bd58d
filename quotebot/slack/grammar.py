"""Grammar of typed requests for quotes, and of changes of one. It never raises and never guesses.

    for <account>: <quantity> <product> [(<attribute>=<choice>, ...)] [(optional)] [-<percent>% | @<price> because <reason>], ...
        [; term <months>] [; discount <percent>] [; currency <code>] [; tax <region>|off] [; region <region>]
        [; terms <name>, ...|none] [; segment <name>|none] [; billing <frequency>]
        [; <commercial term>, as in term_clauses.py]

verbs.py is the entry point and parses the verbs.

Keywords ignore case; the parts after the colon come in any order. The first colon ends the account. A comma inside the leading
number of an item separates thousands, one inside its parentheses attributes, one inside a quoted reason belongs to the reason, one
between the digits of its price or discount to that number; every other comma separates items.
Work is linear in the text's length, which is limited.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import CreateQuote
from quotebot.domain.language import N_, _, grouped, localized, typed_number, typed_whole
from quotebot.domain.pricing.commercial_terms import USUAL, CommercialTerms
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, clipped, find_problems
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, ZERO, Changes, LineChange, reason_text
from quotebot.domain.pricing.term_clauses import ALIASES, CLEARED, FIELDS, clauses, read_clause
from quotebot.domain.texts import composed
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from decimal import Decimal

    from quotebot.domain.catalogue.catalogue import Catalogue

TEXT_CHARACTERS_MAX = 2_048  # of a slash command
MESSAGE_CHARACTERS_MAX = 4_096  # of a message to the bot
ACCOUNT_CHARACTERS_MAX = 100
TERM_MONTHS_DEFAULT = 12
KEYWORDS = ("term", "terms", "discount", "currency", "tax", "region", "segment", "billing", *FIELDS)
_MISSPELT = tuple(word for word in KEYWORDS if word not in ("po", "vat"))  # a misspelling of a short one is another word
OPTIONS_CHARACTERS_MAX = 400  # of the attributes of one item
VERB_CHARACTERS_MAX = 20  # difflib is quadratic, and longer words match nothing
CORRECTED_MAX = 5  # unknown products of one text that are replaced by known ones

_QUANTITY = re.compile(r"[-+]?[0-9](?:[0-9.]|,(?=[0-9]))*")
_FIRST_QUANTITY = re.compile(r" (?=[-+]?[0-9][0-9.,]* ?[A-Za-z])")
_DEED = re.compile(r"(?:add|set|remove|without) +|\+", re.IGNORECASE)
_NEW_QUANTITY = re.compile(rf"(?:optional +)?{_QUANTITY.pattern}", re.IGNORECASE)
_CHANGED_QUANTITY = re.compile(rf"(?:(?:add|set) +)?{_NEW_QUANTITY.pattern}", re.IGNORECASE)
_OPTIONAL = re.compile(r"optional\b *[:=]? *(.*)|(.*?) *\(optional\)", re.IGNORECASE)
_TERM = re.compile(r"([0-9]{1,6}) ?(m|mo|mos|months?|monate?n?|y|yr|yrs|years?|jahre?n?)?")
_DISCOUNT = re.compile(r"([0-9]{1,6}(?:[.,][0-9]{1,6})?) ?%?")
_CLAUSE = re.compile(rf"({'|'.join(sorted((*KEYWORDS, *ALIASES), reverse=True))})\b[ :=]*(.*)", re.IGNORECASE)
_OWN_DISCOUNT = re.compile(r" ?- ?([0-9][0-9.,]{0,12}) ?%$")
_OWN_PRICE = re.compile(r"(?: *@| +at\b) *([^ @]+)(?: +because +(.+))?$", re.IGNORECASE)
_PRICE_BEGUN = re.compile(r"(?:@|\b(?:at|discount\b[:=]?)) *[0-9][0-9.]*$", re.IGNORECASE)
_DISCOUNT_BEGUN = re.compile(r"- ?[0-9][0-9.]*$")
_AFTER_COMMA = re.compile(r"(?:,[0-9][0-9.]*)+( ?%)?")
_COMMA_OUTSIDE_NUMBER = re.compile(r",(?![0-9])|(?<![0-9]),")
_COMMA_IN_NUMBER = re.compile(r"[0-9],[0-9]")
_PRICE_AND_MORE = re.compile(r"(?:@|\bat\b) *[0-9.]+,[0-9].*", re.IGNORECASE)
_QUOTED = re.compile(r"[\"\u201c][^\"\u201c\u201d]*[\"\u201d]")
_QUOTED_REASON = re.compile(rf"because +{_QUOTED.pattern}", re.IGNORECASE)
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_ -]{0,39}")
_CURRENCY = re.compile(r"[A-Za-z]{3}")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class Repair:
    """Corrected command, which parses, and the label of the button that gives it."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class GrammarProblem:
    """Refusal of a text, with what to type instead: escaped mrkdwn, ready to send.

    `repair` is the corrected command if the text has one obvious correction, and `choices` are commands if it can mean any of them.
    `is_start` marks a text that is no command at all, and
    `suggests` one whose message names the command that was probably meant.
    """

    message: str
    repair: Repair | None = None
    is_start: bool = False
    suggests: bool = False
    choices: tuple[Repair, ...] = ()


@dataclass(slots=True)
class _Draft:
    """Parts of one creation or revision parsed so far, and the problems found."""

    lines: list[LineRequest] = field(default_factory=list)
    term_months: int | None = None
    discount_percent: Decimal | None = None
    currency: str | None = None
    region: str | None = None
    with_tax: bool | None = None
    terms: tuple[str, ...] | None = None
    segment: str | None = None
    billing_frequency: str | None = None
    commercial: dict[str, Any] = field(default_factory=dict)  # field -> value; None: removed
    seen: set[str] = field(default_factory=set)
    items_seen: bool = False
    problems: list[str] = field(default_factory=list)


def normalised(text: str) -> str:
    """Return typed text on one line, in one normal form, with Slack's entities undone."""
    # Slack sends & < > as entities, and an entity's semicolon is no separator of ours.
    plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return messages.one_line(composed(plain))


def shown(text: str) -> str:
    """Return typed text as an answer repeats it: short, escaped, in quotation marks."""
    return _('"{text}"', text=messages.escape(clipped(text)))


def unknown_verb(verb: str, verbs: Iterable[str]) -> GrammarProblem:
    """Refuse a verb that is none of `verbs`, and name the nearest one, which is never executed."""
    near = difflib.get_close_matches(verb[:VERB_CHARACTERS_MAX].casefold(), list(verbs), n=1, cutoff=0.7)
    hint = _("Did you mean `/quote {command}`?", command=near[0]) if near else _("Try one of these:")
    return GrammarProblem(" ".join((_("I don't know {word}.", word=shown(verb)), hint)), is_start=True, suggests=bool(near))


def creation(rest: str, channel: str, catalogue: Catalogue) -> CreateQuote | GrammarProblem:
    """Read the text after `new`, normalised: "for Acme: 150 pro; term 12m"."""
    draft = _Draft()
    account, body = _account_and_body(rest, draft)
    request = _request(body, draft, catalogue)
    if not draft.problems:
        return CreateQuote(account=account, request=request, channel=channel)
    corrected, label = corrected_products(separated(body), catalogue)
    text = f"for {account}: {corrected.strip()}"
    repair = None if not account or text == rest else _repair(text, label, catalogue)
    return GrammarProblem(messages.problem_list(tuple(draft.problems), None if repair is None else repair.text), repair)


def separated(body: str) -> str:
    """Return a request or changes with a semicolon at each comma where one belongs: "discount 12%, remove sso"."""
    parted = [tuple(_separated(clause)) for clause in clauses(body)]
    return "; ".join(part for parts in parted for part in parts) if any(len(parts) > 1 for parts in parted) else body


def _separated(clause: str) -> Iterator[str]:
    head, clause = _parted(clause) or ("", clause)
    if head:
        yield head
    elif _CLAUSE.fullmatch(clause):
        yield clause
        return
    items: list[str] = []
    for item in _items(clause, _CHANGED_QUANTITY):
        if _CLAUSE.fullmatch(item):
            yield from filter(None, (", ".join(items), item))
            items = []
        else:
            items.append(item)
    if items:
        yield ", ".join(items)


def _parted(clause: str) -> tuple[str, str] | None:
    """Split "discount 12%, remove sso" at the comma; None for a clause that can be read, or that this does not correct."""
    comma = _COMMA_OUTSIDE_NUMBER.search(clause)
    head, rest = ("", "") if comma is None else (clause[: comma.start()].strip(), clause[comma.end() :].strip())
    if not (_CLAUSE.fullmatch(rest) or _DEED.match(rest) or _FIRST_QUANTITY.match(f" {rest}")):
        return None
    return (head, rest) if _can_be_read(head) and not _can_be_read(clause) else None


def _can_be_read(clause: str) -> bool:
    keyword, draft = _CLAUSE.fullmatch(clause), _Draft()
    if keyword is not None:
        _read_value(_keyword(keyword), keyword[2].strip(), draft)
    return keyword is not None and not draft.problems


def corrected_products(body: str, catalogue: Catalogue) -> tuple[str, str]:
    """Return a request or changes with each unknown product replaced by the nearest known one, and the label of a button for it.

    Notes and reasons stay as typed. Of a text with many unknown products, none is replaced.
    """
    unknown = [found for found in _products(body) if catalogue.find(found[1]) is None]
    names = {name for _, name in unknown}
    if len(names) > CORRECTED_MAX:
        return body, _("Use this")
    near = {name: catalogue.suggest(name) for name in names}
    for start, name in reversed(unknown):
        body = f"{body[:start]}{near[name] or name}{body[start + len(name) :]}"
    used = [catalogue.products[sku].name for sku in near.values() if sku is not None]
    return body, _("Use {product}", product=clipped(used[0])) if len(used) == 1 else _("Use this")


def _products(body: str) -> Iterator[tuple[int, str]]:
    """Yield where each item of a request or of changes names its product, and the name."""
    at = 0
    for clause in clauses(body):
        at = body.index(clause, at)
        end = at + len(clause)
        for item in () if _CLAUSE.fullmatch(clause) else _items(clause, _CHANGED_QUANTITY):
            at = body.index(item, at)
            deed, draft = _DEED.match(item), _Draft()
            named = 0 if deed is None else deed.end()
            name = item[named:]
            if deed is None or deed[0].strip().casefold() not in ("remove", "without"):
                _read_item(name, draft)
                name = draft.lines[0].sku if draft.lines else ""
                quantity = _QUANTITY.search(item, named)
                named = named if quantity is None else quantity.end()
            if name:
                yield body.index(name, at + named), name
            at += len(item)
        at = end


def product_and_number(body: str, catalogue: Catalogue) -> tuple[str, int] | None:
    """Read "pro 200", whose number may be the new quantity or an addition; return the sku and the number, else None."""
    name, _blank, typed = body.strip().rpartition(" ")
    product, number = catalogue.find(name.strip()), whole(typed)
    return None if product is None or not number else (product.sku, number)


def _repair(text: str, label: str, catalogue: Catalogue) -> Repair | None:
    """Return the correction of a creation, if it can be read and priced."""
    draft = _Draft()
    _request(_account_and_body(text, draft)[1], draft, catalogue)
    return None if draft.problems else Repair(f"new {text}", label)


def read_request(body: str, catalogue: Catalogue) -> PriceRequest | tuple[str, ...]:
    """Read "150 pro, 150 sso; term 12m; discount 15%"; return the request, or all its problems as mrkdwn."""
    draft = _Draft()
    request = _request(body, draft, catalogue)
    return tuple(draft.problems) or request


def read_changes(body: str, catalogue: Catalogue) -> Changes | tuple[str, ...]:
    """Read "200 pro, add 10 sso, remove support; term 24m; discount 12%"; return the changes, or all problems as mrkdwn."""
    draft = _Draft()
    changes: list[LineChange] = []
    for number, clause in enumerate(clauses(body)):
        if _CLAUSE.fullmatch(clause):
            _read_clause(clause, draft)
            continue
        items = list(_items(clause, _CHANGED_QUANTITY))
        _check_optional(number, items, draft)
        for item in items:
            change = _read_change(item, draft, catalogue)
            if change is not None:
                changes.append(change)
    if draft.problems:
        return tuple(draft.problems)
    if not changes and not draft.seen:
        return (_("What should change? Examples: `200 pro`, `remove sso`, `term 24m` or `discount 12%`."),)
    return Changes(
        lines=tuple(changes),
        term_months=draft.term_months,
        discount_percent=draft.discount_percent,
        currency=draft.currency,
        region=draft.region,
        with_tax=draft.with_tax,
        terms=draft.terms,
        segment=draft.segment,
        billing_frequency=draft.billing_frequency,
        commercial=CommercialTerms(**draft.commercial),
        cleared=_cleared(draft.commercial),
    )


def read_term(text: str) -> int | str:
    """Read "12m", "1y" or "12"; return months, or the problem as mrkdwn."""
    draft = _Draft()
    _read_term(text, draft)
    return draft.problems[0] if draft.term_months is None else draft.term_months


def read_discount(text: str) -> Decimal | str:
    """Read "15", "15%" or "12.5 %", in German also "12,5 %"; return per cent, or the problem as mrkdwn."""
    draft = _Draft()
    _read_discount(text, draft)
    return draft.problems[0] if draft.discount_percent is None else draft.discount_percent


def read_price(text: str) -> Decimal | None:
    """Read "5.40" or "1500", in German also "5,40"; None if it is no price, or could be read in two ways."""
    return typed_number(text)


def keyword_of(clause: str) -> tuple[str | None, str]:
    """Return the keyword that a clause begins with, or None, and the text after it."""
    match = _CLAUSE.fullmatch(clause)
    return (None, clause) if match is None else (_keyword(match), match[2].strip())


def whole(text: str) -> int | None:
    """Read "1500" or "1,500"; None if it is not a whole number, or could be read as another."""
    return typed_whole(text)


def _read_change(item: str, draft: _Draft, catalogue: Catalogue) -> LineChange | None:
    deed, _blank, rest = item.partition(" ")
    deed = deed.casefold()
    if deed in ("remove", "without", "take"):
        kind: Final = "take" if deed == "take" else "remove"
        return None if (sku := _known(rest.strip(), draft, catalogue)) is None else LineChange(kind, sku)
    if item.startswith("-"):
        draft.problems.append(_("{item} isn't a quantity. Give the new one, like `90 pro`, or `remove pro`.", item=shown(item)))
        return None
    adds = deed == "add" or item.startswith("+")
    plain = rest.strip() if deed in ("add", "set") else item
    before = len(draft.lines)
    _read_item(plain.removeprefix("+").strip(), draft)
    if len(draft.lines) == before:
        return None
    line = draft.lines[-1]
    sku = _known(line.sku, draft, catalogue)
    if sku is None:
        return None
    own = _resolved(line, catalogue)
    discount = line.discount_percent if _has_discount(plain) else None
    return LineChange(
        "add" if adds else "set",
        sku,
        line.quantity,
        discount,
        own.attributes or None,
        line.agreed_price,
        line.price_reason,
        optional=True if line.optional else None,
    )


def _known(name: str, draft: _Draft, catalogue: Catalogue) -> str | None:
    product = catalogue.find(name)
    if product is not None:
        return product.sku
    near = catalogue.suggest(name) if name else None
    unknown = N_("{name} isn't in the catalog. Did you mean {product}?") if near else N_("{name} isn't in the catalog.")
    draft.problems.append(_(unknown, name=shown(name), product=near))
    return None


def _request(body: str, draft: _Draft, catalogue: Catalogue) -> PriceRequest:
    for number, clause in enumerate(clauses(body)):
        _read_clause(clause, draft, number)
    term = TERM_MONTHS_DEFAULT if draft.term_months is None else draft.term_months
    discount = ZERO if draft.discount_percent is None else draft.discount_percent
    lines = tuple(_resolved(line, catalogue) for line in draft.lines)
    request = PriceRequest(
        lines,
        term,
        discount,
        currency=draft.currency,
        region=draft.region,
        with_tax=bool(draft.with_tax),
        terms=draft.terms or (),
        segment=draft.segment or None,
        billing_frequency=draft.billing_frequency or BILLING_FREQUENCIES[0],
        commercial=CommercialTerms(**draft.commercial) if draft.commercial else USUAL,
    )
    for problem in find_problems(request, catalogue):
        if lines or not draft.items_seen or problem.code != "line_count":  # unreadable items are reported as such
            draft.problems.append(messages.pricing_problem(problem))
    return request


def _account_and_body(rest: str, draft: _Draft) -> tuple[str, str]:
    """Return the customer and the text of the products. Without a colon the first quantity ends the customer."""
    head, colon, body = rest.partition(":")
    first, semicolon, after = rest.partition(";")
    quantity = _FIRST_QUANTITY.search(f" {first}") if not colon or ";" in head else None
    if not colon or quantity is not None:
        at = len(first) if quantity is None else quantity.start()
        head, colon, body = first[:at], "", f"{first[at:]}{semicolon}{after}"
    preposition, _blank, account = head.strip().partition(" ")
    if preposition.casefold() != "for":
        account = head.strip()
        name = messages.escape(clipped(account)) or "Acme"
        draft.problems.append(_("Start with the customer: `for {name}: 10 pro`.", name=name))
    elif not account.strip():
        draft.problems.append(_("Name the customer between `for` and the colon."))
    elif not colon:
        name = messages.escape(clipped(account.strip()))
        draft.problems.append(_("Put a colon after the customer: `for {name}: 10 pro`.", name=name))
    account = account.strip()
    if len(account) > ACCOUNT_CHARACTERS_MAX:
        draft.problems.append(_("The customer's name is too long ({n} characters max).", n=grouped(ACCOUNT_CHARACTERS_MAX)))
    return account, body


def _check_optional(number: int, items: list[str], draft: _Draft) -> None:
    """Refuse "; optional 10 sso, 5 pro", where one product or both could be optional."""
    marked = ["optional" in item.casefold() for item in items]
    if number > 0 and items and items[0].casefold().startswith("optional") and not all(marked):
        unclear = shown(items[marked.index(False)])
        draft.problems.append(_("{item} may be optional or not. Write `(optional)` after each that is.", item=unclear))


def _read_clause(clause: str, draft: _Draft, number: int = 0) -> None:
    keyword = _CLAUSE.fullmatch(clause)
    if keyword is None:
        items = list(_items(clause))
        _check_optional(number, items, draft)
        for item in items:
            _read_item(item, draft)
        return
    name, parted = _keyword(keyword), _parted(clause)
    if name in draft.seen:
        draft.problems.append(_("You gave {keyword} twice. Keep one.", keyword=name))
    draft.seen.add(name)
    if parted is None:
        _read_value(name, keyword[2].strip(), draft)
    else:
        draft.problems.append(_("Put a semicolon before {text}, not a comma.", text=shown(parted[1])))


def _read_value(name: str, value: str, draft: _Draft) -> None:
    if name not in FIELDS:
        _CLAUSE_READERS[name](value, draft)
        return
    found = read_clause(name, value)
    if isinstance(found, str):
        draft.problems.append(_("The {keyword} {value} {problem}.", keyword=name, value=shown(value), problem=found))
    else:
        draft.commercial.update(found)


def _keyword(clause: re.Match[str]) -> str:
    name = clause[1].casefold()
    return ALIASES.get(name, name)


def _cleared(commercial: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commercial fields to remove: a validity in days replaces one with a date, and the other way round."""
    removed = [name for name, value in commercial.items() if value is None]
    set_valid = any(commercial.get(name) is not None for name in ("valid_days", "valid_until"))
    return tuple(name for name in removed if not (set_valid and name.startswith("valid_")))


def _items(clause: str, lead: re.Pattern[str] = _NEW_QUANTITY) -> Iterator[str]:
    """Yield the items of a clause; a comma inside an item's leading number belongs to the number."""
    start = 0
    while start < len(clause):
        if clause[start] in ", ":
            start += 1
            continue
        quantity = lead.match(clause, start)
        comma = clause.find(",", _after_options(clause, quantity.end() if quantity else start))
        comma = _after_reason(clause, start, _after_number(clause, start, comma))
        end = len(clause) if comma < 0 else comma
        yield clause[start:end].strip()
        start = end


def _after_options(clause: str, start: int) -> int:
    """Return where the next comma that separates items may be: after the attributes of the item, if it has some."""
    comma, opened = clause.find(",", start), clause.find("(", start)
    closed = clause.find(")", opened, opened + OPTIONS_CHARACTERS_MAX) if 0 <= opened < comma else -1
    return closed if closed >= 0 and "=" in clause[opened:closed] else start


def _after_number(clause: str, start: int, comma: int) -> int:
    """Return the comma that ends an item, where `comma` may be inside the number of the item's price or discount."""
    rest = _AFTER_COMMA.match(clause, comma) if comma >= 0 else None
    if rest is None or "because" in clause[start:comma].casefold():
        return comma
    if not (_PRICE_BEGUN.search(clause, start, comma) or (rest[1] and _DISCOUNT_BEGUN.search(clause, start, comma))):
        return comma
    return clause.find(",", rest.end())


def _after_reason(clause: str, start: int, comma: int) -> int:
    """Return the comma that ends an item, where `comma` may be inside the item's quoted reason."""
    if comma < 0 or "because" not in clause[start:comma].casefold():
        return comma
    reason, number = _QUOTED_REASON.search(clause, start), _AFTER_COMMA.match(clause, comma)
    if reason is not None and reason.start() < comma < reason.end():
        return clause.find(",", reason.end())
    # "8,40 sso" may be a price or the end of the reason and 40 of a product: it stays one item, and is refused
    return clause.find(",", number.end()) if number is not None and clause[comma - 1].isdigit() else comma


def _has_discount(item: str) -> bool:
    return _OWN_DISCOUNT.search(item) is not None


def _read_item(item: str, draft: _Draft) -> None:
    draft.items_seen = True
    item, optional = _without_optional(item)
    first = item.partition(" ")[0].casefold()
    quantity = _QUANTITY.match(item)
    if quantity is None:
        if first in KEYWORDS:
            hint = _("Put a semicolon before it: `; {item}`.", item=messages.escape(clipped(item)))
        elif difflib.get_close_matches(first[:VERB_CHARACTERS_MAX], _MISSPELT, n=1, cutoff=0.7):
            hint = _("Parts look like `term 12m` and `discount 15%`.")
        else:
            hint = _("Write it first: `10 {product}`.", product=messages.escape(clipped(first)))
        draft.problems.append(" ".join((_("{item} has no quantity.", item=shown(item)), hint)))
        return
    name, agreed, reason = _read_price(item[quantity.end() :].strip(), draft)
    own = _OWN_DISCOUNT.search(name)
    name, marked = _without_optional(name if own is None else name[: own.start()].strip())
    attributes: tuple[tuple[str, str], ...] = ()
    opened = name.rfind("(")
    if opened > 0 and name.endswith(")") and "=" in name[opened:]:
        parts = [part.partition("=") for part in name[opened + 1 : -1].split(",")]
        attributes = tuple((key.strip(), choice.strip()) for key, _sign, choice in parts)
        name = name[:opened].strip()
    if not name:
        draft.problems.append(_("{item} names no product. Example: `10 pro`.", item=shown(item)))
        return
    count = whole(quantity[0])
    if count is None:
        draft.problems.append(_("{item} needs a whole quantity, like 1500 or 1,500.", item=shown(item)))
        return
    discount = ZERO if own is None else typed_number(own[1])
    if discount is None:
        draft.problems.append(_no_discount(f"{own[1]}%" if own else ""))
        return
    optional = optional or marked
    draft.lines.append(LineRequest(name, count, discount, None, attributes, agreed, reason, optional=optional))


def _without_optional(text: str) -> tuple[str, bool]:
    """Split "optional 10 sso" or "10 sso (optional)" into the rest and whether the line is optional."""
    found = _OPTIONAL.fullmatch(text)
    return (text, False) if found is None else (found[1] or found[2] or "", True)


def _read_price(name: str, draft: _Draft) -> tuple[str, Decimal | None, str]:
    """Split "pro @5.40 because volume deal" into the name, the agreed price, and its reason."""
    own, more = _OWN_PRICE.search(name), _PRICE_AND_MORE.search(name)
    if own is None and more is not None:
        draft.problems.append(_no_price(more[0]))
        return name[: more.start()].strip(), None, ""
    if own is None or ("@" not in own[0].partition(own[1])[0] and not own[1][0].isdigit()):
        return name, None, ""
    agreed = read_price(own[1])
    if agreed is None:
        draft.problems.append(_no_price(own[1]))
        return name[: own.start()].strip(), None, ""
    reason = own[2] or ""
    if not _QUOTED.fullmatch(reason) and _COMMA_IN_NUMBER.search(reason):
        text = shown(reason)
        draft.problems.append(
            _('{text} has a comma between digits. Put the reason in quotation marks: `because "..."`.', text=text)
        )
    return name[: own.start()].strip(), agreed, reason_text((own[2] or "").strip('"\u201c\u201d '))


def _read_term(value: str, draft: _Draft) -> None:
    match = _TERM.fullmatch(value.casefold())
    if match is None:
        draft.problems.append(_("{text} isn't a term. Examples: `term 12m` or `term 1y`.", text=shown(value)))
        return
    years = match[2] is not None and match[2][0] in "yj"
    draft.term_months = int(match[1]) * (12 if years else 1)


def _read_discount(value: str, draft: _Draft) -> None:
    match = _DISCOUNT.fullmatch(value)
    draft.discount_percent = None if match is None else typed_number(match[1])
    if draft.discount_percent is None:
        draft.problems.append(_no_discount(value))


def _no_discount(text: str) -> str:
    example = localized("12.5")
    return _("{text} isn't a discount. Examples: `discount 15%` or `discount {example}%`.", text=shown(text), example=example)


def _no_price(text: str) -> str:
    example = localized("5.40")
    return _("{text} isn't a price. Write it like {example} or 1500, without a currency.", text=shown(text), example=example)


def _read_currency(value: str, draft: _Draft) -> None:
    if _CURRENCY.fullmatch(value) is None:
        draft.problems.append(_("{text} isn't a currency code. Example: `currency EUR`.", text=shown(value)))
        return
    draft.currency = value.upper()


def _read_tax(value: str, draft: _Draft) -> None:
    draft.with_tax = value.casefold() not in ("off", "none", "no")
    if draft.with_tax:
        _read_region(value, draft)


def _read_region(value: str, draft: _Draft) -> None:
    if _REGION.fullmatch(value) is None:
        draft.problems.append(_("{text} isn't a region code. Examples: `tax DE` or `region DE`.", text=shown(value)))
    elif draft.region not in (None, value.upper()):
        two = _("You gave two regions, {region} and {other}. Keep one.", region=draft.region, other=value.upper())
        draft.problems.append(two)
    else:
        draft.region = value.upper()


def _read_terms(value: str, draft: _Draft) -> None:
    names = [re.sub(r"[ -]+", "_", name.strip().casefold()) for name in value.split(",") if name.strip()]
    if not names:
        draft.problems.append(_("Name a special term, like `terms liability_cap, exclusivity`, or write `terms none`."))
    draft.terms = () if names == ["none"] else tuple(sorted(set(names)))


def _read_segment(value: str, draft: _Draft) -> None:
    if _SEGMENT.fullmatch(value) is None:
        draft.problems.append(_("{text} isn't a segment. Example: `segment partner`.", text=shown(value)))
        return
    draft.segment = "" if value.casefold() in CLEARED else value.casefold()


def _read_billing(value: str, draft: _Draft) -> None:
    near = difflib.get_close_matches(value[:VERB_CHARACTERS_MAX].casefold(), BILLING_FREQUENCIES, n=1, cutoff=0.6)
    if value.casefold() not in BILLING_FREQUENCIES:
        names = ", ".join(BILLING_FREQUENCIES)
        meant = _("Did you mean `billing {name}`?", name=near[0]) if near else _("Choose one of {names}.", names=names)
        draft.problems.append(" ".join((_("I don't know the billing {text}.", text=shown(value)), meant)))
        return
    draft.billing_frequency = value.casefold()


_CLAUSE_READERS: Final[Mapping[str, Callable[[str, _Draft], None]]] = {
    "term": _read_term,
    "terms": _read_terms,
    "discount": _read_discount,
    "currency": _read_currency,
    "tax": _read_tax,
    "region": _read_region,
    "segment": _read_segment,
    "billing": _read_billing,
}


def _resolved(line: LineRequest, catalogue: Catalogue) -> LineRequest:
    """Return the line with the catalogue's spelling of the product, its attributes and their choices, where it knows them."""
    product = catalogue.find(line.sku)
    if product is None or (product.sku == line.sku and not line.attributes):
        return line
    known = {attribute.name.casefold(): attribute for attribute in product.attributes}
    attributes: list[tuple[str, str]] = []
    for name, choice in line.attributes:
        attribute = known.get(name.casefold())
        known_choice = None if attribute is None else catalogue.choice(product, attribute, choice)
        attributes.append((name if attribute is None else attribute.name, choice if known_choice is None else known_choice))
    return replace(line, sku=product.sku, attributes=tuple(sorted(attributes)))
