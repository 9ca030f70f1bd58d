"""Commercial terms of a quote: what is agreed beside products and prices, whom it is billed to, and the notes that go with it.

No term changes a price. The terms that change what the seller commits to are compared when an approval is reused: payment, start,
validity, and who pays (billing address and VAT id). The others are not: a purchase order number, a contact, the language and
template of the document, and the notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue.reader import is_text
from quotebot.domain.language import N_, _, day_text, grouped, ngettext
from quotebot.domain.schedule.schedules import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PAYMENT_DAYS_MAX: Final = 365
VALID_DAYS_MAX: Final = 365
YEARS: Final = (2000, 2099)
LANGUAGE_NAMES: Final = {"en": N_("English"), "de": N_("German")}
LANGUAGES: Final = tuple(LANGUAGE_NAMES)
# Fields with text, and their limits.
TEXTS_MAX: Final = {
    "po_number": 40,
    "bill_to": 100,
    "bill_to_email": 80,
    "bill_to_address": 250,
    "vat_id": 30,
    "approver_note": 300,  # as much as a card shows
    "customer_note": 300,
}
CUSTOMERS_OWN: Final = ("po_number", "bill_to", "bill_to_email", "bill_to_address", "vat_id", "approver_note", "customer_note")
MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_EMAIL: Final = re.compile(r'[^\s@<>,;"]+@[^\s@<>,;"]+\.[^\s@<>,;".]+')
_VAT_ID: Final = re.compile(r"[A-Z0-9][A-Z0-9 ./+*-]{3,29}")
_TEMPLATE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_NET_TERM: Final = re.compile(r"net_([0-9]{1,3})")
_SHAPES: Final = {
    "bill_to_email": (_EMAIL, N_('"{text}" is no e-mail address')),
    "vat_id": (_VAT_ID, N_('"{text}" is no VAT id')),
    "template": (_TEMPLATE, N_('"{text}" is no template')),
}
# Rows of a card: what they show, the label, and both within a sentence.
_ROWS: Final = (
    ("start_date", N_("Start"), N_("start {value}")),
    ("payment_days", N_("Payment"), N_("payment {value}")),
    ("po_number", N_("Purchase order"), N_("purchase order {value}")),
    ("billed", N_("Bill to"), N_("bill to {value}")),
    ("valid_days", N_("Valid for"), N_("valid for {value}")),
    ("valid_until", N_("Valid until"), N_("valid until {value}")),
    ("document", N_("Document"), N_("document {value}")),
    ("approver_note", N_("Note to the approver"), N_("note to the approver {value}")),
    ("customer_note", N_("Note to the customer"), N_("note to the customer {value}")),
)
_NAMED: Final = {  # within a sentence
    "start_date": N_("start"),
    "payment_days": N_("payment"),
    "po_number": N_("purchase order"),
    "bill_to": N_("bill to"),
    "bill_to_email": N_("billing e-mail"),
    "bill_to_address": N_("billing address"),
    "vat_id": N_("VAT id"),
    "valid_days": N_("valid for"),
    "valid_until": N_("valid until"),
    "language": N_("document language"),
    "template": N_("document template"),
    "approver_note": N_("note to the approver"),
    "customer_note": N_("note to the customer"),
}


@dataclass(frozen=True, slots=True)
class CommercialTerms:
    """Commercial terms as requested; None: the installation's usual ones. Texts are on one line.

    `valid_days` counts from the version's creation, `valid_until` is the offer's last day (UTC); at most one of them is set.
    """

    start_date: date | None = None  # first day of the contract
    payment_days: int | None = None  # days after the invoice; 0: on receipt
    po_number: str | None = None  # of the customer's purchase order
    bill_to: str | None = None  # name of the billing contact
    bill_to_email: str | None = None
    bill_to_address: str | None = None
    vat_id: str | None = None
    valid_days: int | None = None
    valid_until: date | None = None
    language: str | None = None  # of the document: one of LANGUAGES
    template: str | None = None  # of the document, by name
    approver_note: str | None = None  # never on the customer's document
    customer_note: str | None = None


USUAL: Final = CommercialTerms()
NAMES: Final = tuple(field.name for field in fields(CommercialTerms))
_DATES: Final = ("start_date", "valid_until")


def canonical_terms(terms: CommercialTerms) -> dict[str, object]:
    """Return the JSON-ready form: dates as ISO text, without None."""
    return {
        name: value.isoformat() if isinstance(value, date) else value
        for name in NAMES
        if (value := getattr(terms, name)) is not None
    }


def parse_terms(stored: Mapping[str, Any]) -> CommercialTerms:
    """Rebuild the terms of `canonical_terms`."""
    values: dict[str, Any] = {name: stored[name] for name in NAMES if name in stored}
    values |= {name: date.fromisoformat(values[name]) for name in _DATES if name in values}
    return CommercialTerms(**values)


def edited(terms: CommercialTerms, changes: CommercialTerms, cleared: Iterable[str] = ()) -> CommercialTerms:
    """Return the terms with the fields set in `changes` replaced, and the `cleared` ones removed."""
    new = {name: value for name in NAMES if (value := getattr(changes, name)) is not None}
    if changes.valid_days is not None or changes.valid_until is not None:
        terms = replace(terms, valid_days=None, valid_until=None)
    return replace(terms, **{**dict.fromkeys(cleared), **new})


def renewed_terms(terms: CommercialTerms, unix_ms: int, *, same_customer: bool) -> CommercialTerms:
    """Return the terms for a clone made at `unix_ms`: without a validity that has ended.

    Another customer gets none of the fields about the original's.
    """
    kept = terms if same_customer else replace(terms, **dict.fromkeys(CUSTOMERS_OWN))
    ended = kept.valid_until is not None and kept.valid_until < _day_of(unix_ms)
    return replace(kept, valid_until=None) if ended else kept


def ends_at(terms: CommercialTerms, unix_ms: int, usual_days: int) -> int:
    """Return the end of an offer made at `unix_ms` (both Unix ms): the last millisecond of its last day, or whole days later."""
    if terms.valid_until is not None:
        following = datetime.combine(terms.valid_until + timedelta(days=1), datetime.min.time(), UTC)
        return int(following.timestamp()) * 1000 - 1
    return unix_ms + (usual_days if terms.valid_days is None else terms.valid_days) * DAY_MS


def payment_days(terms: CommercialTerms, special_terms: Iterable[str]) -> int | None:
    """Return the agreed payment days, also those of a special term such as net_60; the most, or None if none are agreed."""
    named = [int(match[1]) for term in special_terms if (match := _NET_TERM.fullmatch(term))]
    agreed = [*named, *([] if terms.payment_days is None else [terms.payment_days])]
    return max(agreed) if agreed else None


def payment_text(days: int) -> str:
    """Return "net 45", or "on receipt" for 0 days, in English: as it is typed, and as other systems get it."""
    return f"net {days}" if days else "on receipt"


def payment_words(days: int) -> str:
    """Return "net 45", or "on receipt" for 0 days, as people read it."""
    return _("net {days}", days=days) if days else _("on receipt")


def term_rows(terms: CommercialTerms) -> tuple[tuple[str, str], ...]:
    """Return (label, value) of the terms that are set, as people read them, with one row for whom the quote is billed to."""
    said = _said(terms)
    return tuple((_(label), said[name]) for name, label, _phrase in _ROWS if said[name])


def term_phrases(terms: CommercialTerms) -> tuple[str, ...]:
    """Return the rows of `term_rows` as parts of a sentence: "payment net 45"."""
    said = _said(terms)
    return tuple(_(phrase, value=said[name]) for name, _label, phrase in _ROWS if said[name])


def _said(terms: CommercialTerms) -> dict[str, str]:
    said = {name: _words(name, getattr(terms, name)) for name in NAMES}
    vat_id = said["vat_id"] and _("VAT id {id}", id=said["vat_id"])
    template = said["template"] and _("template {name}", name=said["template"])
    billed = (*(said[name] for name in ("bill_to", "bill_to_email", "bill_to_address")), vat_id)
    return {**said, "billed": ", ".join(filter(None, billed)), "document": ", ".join(filter(None, (said["language"], template)))}


def term_differences(before: CommercialTerms, after: CommercialTerms) -> tuple[tuple[str, str, str], ...]:
    """Return (label, before, after) of each term that differs; "none" for one that is not set."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in NAMES)
    return tuple(
        (_(_NAMED[name]), _words(name, old) or _("none"), _words(name, new) or _("none")) for name, old, new in pairs if old != new
    )


def worse_terms(before: CommercialTerms, after: CommercialTerms, days: tuple[date | None, date | None]) -> Iterator[str]:
    """Yield each material term in which `after` commits the seller to more than the approved `before`.

    `days` are the days on which the two were priced, from which a validity counts. A term that was not agreed before counts as
    more; the usual one never does. Who pays may not change at all.
    """
    if _is_more(before.payment_days, after.payment_days):
        yield "payment"
    if before.start_date != after.start_date:
        yield "start"
    if _is_more(_valid_days(before, days[0]), _valid_days(after, days[1])):
        yield "validity"
    if (before.bill_to_address, before.vat_id) != (after.bill_to_address, after.vat_id):
        yield "billing address"


def find_term_problems(
    terms: CommercialTerms, special_terms: Iterable[str], today: date | None, accepted: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str, str]]:
    """Yield (code, message, suggestion) of every problem. `today` is the day of the price, if known.

    Texts among `accepted` have been accepted before, by an older build.
    """
    for name in TEXTS_MAX:
        text = getattr(terms, name)
        if text is not None and (problem := _text_problem(name, text, accepted)) is not None:
            yield _code(name), *problem
    for name, (shape, refusal) in _SHAPES.items():
        text = getattr(terms, name)
        if text is not None and not shape.fullmatch(text[:500]):
            yield _code(name), _(refusal, text=text[:40]), _(_EXAMPLES[name])
    if terms.language is not None and terms.language not in LANGUAGES:
        message = _('"{text}" is no language of a document', text=terms.language[:40])
        yield "language", message, _("one of {choices}", choices=", ".join(LANGUAGES))
    yield from _number_problems(terms, special_terms)
    for name in _DATES:
        day = getattr(terms, name)
        if day is not None and not YEARS[0] <= day.year <= YEARS[1]:
            message = _("the year {year} is not between {first} and {last}", year=day.year, first=YEARS[0], last=YEARS[1])
            yield _code(name), message, _(_EXAMPLES[name])
    if terms.valid_days is not None and terms.valid_until is not None:
        yield "valid", _("the validity is there as days and as a date"), _("keep one")
    elif terms.valid_until is not None and today is not None and not 0 <= (terms.valid_until - today).days <= VALID_DAYS_MAX:
        past, far = (
            N_("the last day of the offer, {day}, is past"),
            N_("the last day of the offer, {day}, is more than {limit} days away"),
        )
        message = _(past if terms.valid_until < today else far, day=day_text(terms.valid_until), limit=VALID_DAYS_MAX)
        yield "valid", message, _("e.g. valid 30d")


_EXAMPLES: Final = {
    "bill_to_email": N_("e.g. email billing@acme.example"),
    "vat_id": N_("e.g. vat DE123456789"),
    "template": N_("lower-case letters, digits, - and _, e.g. template detailed"),
    "start_date": N_("e.g. start 2027-01-31"),
    "valid_until": N_("e.g. valid until 2027-01-31"),
}


def _number_problems(terms: CommercialTerms, special_terms: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    days, valid = terms.payment_days, terms.valid_days
    if days is not None and not 0 <= days <= PAYMENT_DAYS_MAX:
        yield (
            "payment",
            _("a payment is due 0 to {limit} days after the invoice, not {days}", limit=PAYMENT_DAYS_MAX, days=str(days)[:20]),
            _("e.g. payment net 45"),
        )
    elif days is not None and payment_days(USUAL, special_terms) not in (None, days):
        named = payment_words(payment_days(USUAL, special_terms) or 0)
        message = _("the payment {payment} contradicts the special term {term}", payment=payment_words(days), term=named)
        yield "payment", message, _("keep one")
    if valid is not None and not 1 <= valid <= VALID_DAYS_MAX:
        message = _("an offer is valid for 1 to {limit} days, not {days}", limit=VALID_DAYS_MAX, days=str(valid)[:20])
        yield "valid", message, _("e.g. valid 45d")


def _text_problem(name: str, text: str, accepted: frozenset[str]) -> tuple[str, str] | None:
    what, limit = _(_NAMED[name]), TEXTS_MAX[name]
    if len(text) > limit:
        message = _("the {name} has {count} characters, and {limit} are possible", name=what, count=grouped(len(text)), limit=limit)
        return message, _("shorten it")
    if (text not in accepted and not is_text(text, limit)) or text != " ".join(text.split()):
        return _("the {name} is no text on one line", name=what), _("write it without control characters")
    return None


def _code(name: str) -> str:
    return {"start_date": "start", "valid_until": "valid", "po_number": "po", "approver_note": "note", "customer_note": "note"}.get(
        name, name if name in ("language", "template") else "bill_to"
    )


def _words(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "payment_days":
        return payment_words(value)
    if name == "valid_days":
        return ngettext("{n} day", "{n} days", value)
    if name == "language":
        return _(LANGUAGE_NAMES.get(value, str(value)))
    return day_text(value) if name in _DATES else str(value)


def _valid_days(terms: CommercialTerms, today: date | None) -> int | None:
    if terms.valid_until is None or today is None:
        return terms.valid_days
    return (terms.valid_until - today).days


def _is_more(before: int | None, after: int | None) -> bool:
    return after is not None and (before is None or after > before)


def _day_of(unix_ms: int) -> date:
    return datetime.fromtimestamp(unix_ms // 1000, UTC).date()
