"""Customer document of a quote: every value is already text. It never contains a cost, a margin, an approver or a Slack id."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Final

from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.numbers import format_currency, format_decimal, format_percent, get_currency_symbol

from adapters.pdf.renderer import DETAILED, DocumentLine, QuoteDocument, template_names
from quotebot.domain import money
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.charging import RECURRING
from quotebot.domain.pricing.commercial_terms import payment_days
from quotebot.domain.pricing.engine import MIXED, instalments, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.pricing.priced import ZERO
from quotebot.domain.pricing.tax_lines import tax_lines
from quotebot.domain.rules import DocumentSet
from quotebot.views.document_texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.pricing.commercial_terms import CommercialTerms
    from quotebot.domain.pricing.engine import Instalment, PricedLine, Pricing
    from quotebot.domain.quotes.quote import Quote
    from quotebot.views.document_texts import DocumentTexts

ACCENT = "#1f4e79"
TITLE_CHARACTERS_MAX = 200
MONTHS_A_YEAR = 12
YEARS_FROM_MONTHS: Final = 24  # a shorter contract has no totals per year
UPFRONT: Final = BILLING_FREQUENCIES[0]
_BILLINGS: Final = (RECURRING, "one_time")
SLABS_MAX = 6  # listed in a row
INVOICES_MAX: Final = 6  # rows of the billing schedule
ADDRESS_LINES_MAX: Final = 5
FILE_ACCOUNT_CHARACTERS_MAX: Final = 60
FILE_ACCOUNT_BYTES_MAX: Final = 220  # a file's name has at most 255, with the quote's number and version
_FILE_SIGNS: Final = frozenset(" .,&+-_()")
LETTER_TERRITORIES: Final = frozenset({"US", "CA", "MX", "PH", "CL", "CO", "CR", "GT", "PA", "PR", "SV", "VE"})
NO_BREAK_SPACE: Final = "\u00a0"
_LOCALES: Final = {"en": "en_US", "de": "de_DE"}


@dataclass(frozen=True, slots=True)
class DocumentChoice:
    """Language and template of the documents of a region or a customer; None: the usual one."""

    language: str | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Seller:
    """Seller of the quote, with all that decides how their documents look besides the quote.

    `locale` is their language and country: how figures are written, and the page size. `terms` replace the standard terms.
    `clauses` holds the title and the text of a special term by its name and language. Regions and customers are in lower case.
    """

    name: str
    lines: tuple[str, ...]
    accent: str = ACCENT
    footer: str = ""
    terms: tuple[str, ...] = ()
    logo: bytes = b""  # a PNG file
    template: str = DETAILED
    locale: str = "en_US"
    templates: Mapping[str, str] = field(default_factory=dict)  # the installation's own, by name
    style: str = ""
    clauses: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    regions: Mapping[str, DocumentChoice] = field(default_factory=dict)
    customers: Mapping[str, DocumentChoice] = field(default_factory=dict)

    def choice(self, quote: Quote) -> DocumentChoice:
        """Return the language and template of a quote: its own, else its customer's, its region's, the installation's."""
        request = request_of(quote.pricing)
        agreed = request.commercial
        usual = DocumentChoice(language_of(self.locale), self.template)
        customer, region = self.customers.get(quote.account.casefold()), self.regions.get((request.region or "").casefold())
        found = [DocumentChoice(agreed.language, agreed.template), *filter(None, (customer, region)), usual]
        language, template = (next(filter(None, values), None) for values in zip(*map(astuple, found), strict=True))
        return DocumentChoice(language, template)


SET_SCHEMA: Final = 1
SETS_REMEMBERED: Final = 4


def document_set(seller: Seller) -> DocumentSet:
    """Return all that decides how documents look besides the quote, as it is stored with an approved version."""
    values = {**asdict(seller), "logo": base64.b64encode(seller.logo).decode("ascii"), "v": SET_SCHEMA}
    content = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return DocumentSet(hashlib.sha256(content.encode("ascii")).hexdigest(), content, template_names(seller.templates))


@functools.lru_cache(maxsize=SETS_REMEMBERED)
def seller_of(content: str) -> Seller:
    """Rebuild the seller of `document_set`. Raises ValueError for the schema of a newer build."""
    values = json.loads(content)
    if (schema := values.pop("v")) != SET_SCHEMA:
        raise ValueError(f"document set schema {schema!r} is unknown; this build reads {SET_SCHEMA}")
    regions, customers = (
        {name: DocumentChoice(**choice) for name, choice in values.pop(kind).items()} for kind in ("regions", "customers")
    )
    clauses = {
        term: {language: (title, text) for language, (title, text) in languages.items()}
        for term, languages in values.pop("clauses").items()
    }
    lines, terms, logo = tuple(values.pop("lines")), tuple(values.pop("terms")), base64.b64decode(values.pop("logo"))
    return Seller(**values, lines=lines, terms=terms, logo=logo, clauses=clauses, regions=regions, customers=customers)


def with_term_names(seller: Seller, names: Mapping[str, Mapping[str, str]]) -> Seller:
    """Return the seller with the general clause under the policy's name of each special term that has no clause in a language.

    `names` are those of the policy, by language and term.
    """
    clauses = {term: dict(languages) for term, languages in seller.clauses.items()}
    for language, named in names.items():
        for term, name in named.items():
            clauses.setdefault(term, {}).setdefault(language, _usual_clause(name, TEXTS[language]))
    return replace(seller, clauses=clauses)


@dataclass(frozen=True, slots=True)
class Writer:
    """Text and numbers in one language. `locale` is a Babel locale of that language: "de_DE"."""

    texts: DocumentTexts
    locale: Locale

    def amount(self, amount: Decimal, currency: str) -> str:
        """Return an amount with its currency: "$17,340.00", "17.340,00 €"."""
        return self._money(money.round_money(amount, currency), currency)

    def number(self, amount: Decimal, currency: str) -> str:
        """Return an amount without its currency: "17,340.00"."""
        return self._digits(money.round_money(amount, currency), money.exponent(currency))

    def price(self, price: Decimal, currency: str) -> str:
        """Return a unit price without its currency, exact up to four decimals."""
        digits = money.rounded_price(price, currency).replace(",", "")
        return self._digits(Decimal(digits), len(digits.partition(".")[2]))

    def count(self, count: int) -> str:
        """Return a whole number with its separators."""
        return self._digits(Decimal(count), 0)

    def percent(self, percent: Decimal) -> str:
        """Return "15%" or "12,5 %"."""
        pattern = self.locale.percent_formats[None].pattern.replace("#,##0", "#,##0.##")
        return format_percent(percent.scaleb(-2), format=pattern, locale=self.locale)

    def day(self, unix_ms: int) -> str:
        """Return a day in words (UTC): "March 3, 2026"."""
        return self.date(datetime.fromtimestamp(unix_ms // 1000, tz=UTC).date())

    def date(self, day: date) -> str:
        """Return a date in words."""
        return format_date(day, "long", locale=self.locale)

    def months(self, count: int) -> str:
        """Return "12 months"."""
        return self.texts.one_month if count == 1 else self.texts.months.format(count=count)

    def _digits(self, value: Decimal, decimals: int) -> str:
        pattern = f"#,##0.{'0' * decimals}" if decimals else "#,##0"
        return format_decimal(value, format=pattern, locale=self.locale)

    def _money(self, value: Decimal, currency: str) -> str:
        decimals = money.exponent(currency)
        pattern = self.locale.currency_formats["standard"].pattern.replace("0.00", f"0.{'0' * decimals}" if decimals else "0")
        if pattern.startswith("\u00a4#") and get_currency_symbol(currency, locale=self.locale)[-1:].isalpha():
            pattern = pattern.replace("\u00a4#", f"\u00a4{NO_BREAK_SPACE}#")  # "KWD 1.500"
        return format_currency(value, currency, format=pattern, locale=self.locale, currency_digits=False)


@functools.cache
def writer_of(language: str, seller_locale: str) -> Writer:
    """Return the writer of a language, in the seller's locale if that is of the language, else in the language's usual one."""
    seller = Locale.parse(seller_locale)
    return Writer(TEXTS[language], seller if seller.language == language else Locale.parse(_LOCALES[language]))


def language_of(locale: str) -> str:
    """Return the language of a locale. Raises ValueError if there is no such locale, or no text in its language."""
    try:
        language: str = Locale.parse(locale).language
    except UnknownLocaleError as error:
        raise ValueError(f"{locale} is no locale; write language and country, such as en_US") from error
    if language not in TEXTS:
        raise ValueError(f"there is no document in the language of {locale}; there are {' and '.join(TEXTS)}")
    return language


def page_of(seller_locale: str) -> str:
    """Return the page size of the seller's country: "Letter" or "A4"."""
    return "Letter" if Locale.parse(seller_locale).territory in LETTER_TERRITORIES else "A4"


@dataclass(frozen=True, slots=True)
class _Page:
    """One quote in the course of being written."""

    quote: Quote
    seller: Seller
    writer: Writer

    @property
    def pricing(self) -> Pricing:
        return self.quote.pricing

    @property
    def is_recurring(self) -> bool:
        return any(line.billing == RECURRING for line in self.pricing.lines)

    @property
    def is_mixed(self) -> bool:
        return len({line.billing for line in self.pricing.lines}) > 1

    def amount(self, value: Decimal) -> str:
        return self.writer.amount(value, self.pricing.currency)

    def number(self, value: Decimal) -> str:
        return self.writer.number(value, self.pricing.currency)


def quote_document(quote: Quote, seller: Seller, prepared_by: str, contact: tuple[str, ...] = ()) -> QuoteDocument:
    """Return the document of an approved quote. Its dates come from the quote, so that rendering it twice gives the same bytes.

    `contact` is how `prepared_by` can be reached: an e-mail address, a phone number.

    Raises ValueError if there is no template of the chosen name.
    """
    agreed, choice = request_of(quote.pricing).commercial, seller.choice(quote)
    language = choice.language or language_of(seller.locale)
    writer = writer_of(language, seller.locale)
    page, texts, pricing = _Page(quote, seller, writer), writer.texts, quote.pricing
    discounted = pricing.discount_total > 0
    percents = {pricing.granted_percent(line) for line in pricing.lines}
    term = writer.months(pricing.term_months) if page.is_recurring else ""
    accepts = texts.accepts_plus_tax if pricing.tax_total else texts.accepts
    return QuoteDocument(
        title=texts.title,
        quote_id=quote.quote_id,
        version=str(quote.version),
        account=quote.account,
        issued_on=writer.day(quote.issued_at),
        valid_until=writer.day(quote.valid_until),
        prepared_by=prepared_by,
        preparer=contact,
        currency=pricing.currency,
        term=term,
        billing=_billing(page),
        bill_to=_billed_to(page, agreed),
        contact=tuple(filter(None, (agreed.bill_to, agreed.bill_to_email))),
        start_on="" if agreed.start_date is None else writer.date(agreed.start_date),
        payment=_payment(page, agreed),
        po_number=agreed.po_number or "",
        note=agreed.customer_note or "",
        lines=tuple(_rows(page, discounted=discounted)),
        unit_price_title=(texts.unit_price_per_month if term and not page.is_mixed else texts.unit_price).format(
            currency=pricing.currency
        ),
        amount_title=(texts.amount_of_term if term and not page.is_mixed else texts.amount).format(
            currency=pricing.currency, term=term
        ),
        list_total=page.amount(pricing.list_total),
        discount_label=(
            texts.discount if len(percents) > 1 else texts.discount_of.format(percent=writer.percent(next(iter(percents))))
        ),
        discount_total=f"\u2212{page.amount(pricing.discount_total)}" if discounted else "",
        net_total=page.amount(pricing.net_total),
        sections=tuple((heading, "") for heading in _headings(page).values()),
        split_rows=_split(page),
        tax_rows=tuple(_taxes(page)),
        year_rows=tuple(_years(page)),
        invoice_rows=tuple(_invoices(page)),
        options=tuple(_option(page, line) for line in pricing.options),
        terms=seller.terms or texts.standard_terms,
        clauses=tuple(
            seller.clauses.get(name, {}).get(language) or _usual_clause(term_words(name), texts) for name in pricing.terms
        ),
        acceptance=accepts.format(number=quote.quote_id, version=quote.version, total=page.amount(pricing.net_total)),
        seller_name=seller.name,
        seller_lines=seller.lines,
        accent=seller.accent,
        created_at=datetime.fromtimestamp(quote.issued_at // 1000, tz=UTC).isoformat(),
        texts=named_texts(texts),
        language=language,
        page=page_of(seller.locale),
        template=choice.template or seller.template,
        templates=seller.templates,
        style=seller.style,
        key_figures=tuple(_key_figures(page)),
        footer=seller.footer,
        logo=seller.logo,
    )


def named_texts(texts: DocumentTexts) -> dict[str, str]:
    """Return the single texts by name, as templates read them."""
    return {name: text for name, text in asdict(texts).items() if isinstance(text, str)}


def file_title(quote: Quote) -> str:
    """Return the title of a quote's file, always with its version: "Q-2026-0042 v1 - Acme"; at most 200 characters."""
    return f"{quote.quote_id} v{quote.version} - {quote.account}"[:TITLE_CHARACTERS_MAX]


def file_name(quote: Quote) -> str:
    """Return the name of a quote's file: "Quote Q-2026-0042 v1 - Acme.pdf", without signs that a file system refuses."""
    plain = "".join(sign if sign.isalnum() or sign in _FILE_SIGNS else " " for sign in quote.account)
    short = " ".join(plain.split())[:FILE_ACCOUNT_CHARACTERS_MAX].encode()[:FILE_ACCOUNT_BYTES_MAX]
    account = short.decode(errors="ignore").strip(" .")
    return f"Quote {quote.quote_id} v{quote.version}{f' - {account}' if account else ''}.pdf"


def _headings(page: _Page) -> dict[str, str]:
    """Return the heading of each kind of billing; none if all lines have the same."""
    texts, pricing = page.writer.texts, page.pricing
    if not page.is_mixed:
        return {}
    recurring = texts.recurring.format(term=page.writer.months(pricing.term_months))
    return dict(zip(_BILLINGS, (recurring, texts.one_time), strict=True))


def _split(page: _Page) -> tuple[tuple[str, str], ...]:
    """Return the recurring and the one-time part of a total that has both."""
    pricing = page.pricing
    if not page.is_mixed:
        return ()
    totals = (pricing.recurring_total, pricing.one_time_total)
    return tuple((heading, page.amount(total)) for heading, total in zip(_headings(page).values(), totals, strict=True))


def _key_figures(page: _Page) -> Iterator[tuple[str, str]]:
    """Yield the total and the other main amounts; omits those that are zero or that a snapshot of an older schema lacks."""
    texts, pricing = page.writer.texts, page.pricing
    yield texts.total_before_tax, page.amount(pricing.net_total)
    others = {
        texts.per_month: pricing.monthly_recurring_revenue,
        texts.per_year: pricing.annual_contract_value if pricing.term_months > MONTHS_A_YEAR else ZERO,
        texts.one_time: pricing.one_time_total if pricing.recurring_total else ZERO,
    }
    yield from ((name, page.amount(amount)) for name, amount in others.items() if amount)


def _billing(page: _Page) -> str:
    """Return how often a quote is invoiced; nothing for goods bought once and billed at once."""
    frequency, texts = request_of(page.pricing).billing_frequency, page.writer.texts
    if frequency == UPFRONT and not page.is_recurring:
        return ""
    found: str = getattr(texts, frequency)
    return found


def _billed_to(page: _Page, agreed: CommercialTerms) -> tuple[str, ...]:
    """Return the lines below the customer's name; an address on one line breaks at its commas."""
    parts = [] if agreed.bill_to_address is None else agreed.bill_to_address.split(", ", ADDRESS_LINES_MAX - 1)
    vat_id = "" if agreed.vat_id is None else page.writer.texts.vat_id.format(number=agreed.vat_id)
    return tuple(filter(None, (*parts, vat_id)))


def _payment(page: _Page, agreed: CommercialTerms) -> str:
    days, texts = payment_days(agreed, page.pricing.terms), page.writer.texts
    if days is None:
        return ""
    return texts.net_days.format(days=days) if days else texts.on_receipt


def _years(page: _Page) -> Iterator[tuple[str, str]]:
    """Yield the total of each year of a contract of two years or more, unless the invoices are those of the years."""
    pricing = page.pricing
    if page.is_recurring and pricing.term_months >= YEARS_FROM_MONTHS and request_of(pricing).billing_frequency != "annual":
        for year in instalments(pricing, "annual"):
            yield page.writer.texts.year.format(number=year.number), page.amount(year.amount)


def _invoices(page: _Page) -> Iterator[tuple[str, str]]:
    """Yield the instalments of a quote that is not billed upfront; equal ones in a row are one."""
    frequency, texts = request_of(page.pricing).billing_frequency, page.writer.texts
    if frequency == UPFRONT:
        return
    rows = instalments(page.pricing, frequency)
    runs = [tuple(run) for _, run in groupby(rows, key=lambda row: row.amount)]
    for run in runs[: INVOICES_MAX - 1] if len(runs) > INVOICES_MAX else runs:
        label = texts.invoice.format(number=run[0].number) if len(run) == 1 else _numbers(texts.invoices_each, run)
        yield label, page.amount(run[0].amount)
    if len(runs) > INVOICES_MAX:
        rest = tuple(row for run in runs[INVOICES_MAX - 1 :] for row in run)
        yield _numbers(texts.invoices_together, rest), page.amount(sum((row.amount for row in rest), ZERO))


def _numbers(text: str, run: tuple[Instalment, ...]) -> str:
    return text.format(first=run[0].number, last=run[-1].number)


def _taxes(page: _Page) -> Iterator[tuple[str, str]]:
    """Yield the tax of each rate, and the total with tax; nothing if the price was requested without tax."""
    texts, rows = page.writer.texts, tax_lines(page.pricing)
    for row in rows:
        text = texts.tax_estimated if row.estimated else texts.tax
        yield text.format(percent=page.writer.percent(row.percent)), page.amount(row.amount)
    if rows:
        yield texts.total_with_tax, page.amount(page.pricing.gross_total)


def _rows(page: _Page, *, discounted: bool) -> Iterator[DocumentLine]:
    """Yield each line; above the items of a bundle, in each section that has some, the row of the bundle."""
    ordered = {line.sku: line.quantity for line in request_of(page.pricing).lines}
    headings, headed = _headings(page), set[tuple[str, str]]()
    for line in page.pricing.lines:
        section = headings.get(line.billing, "")
        if line.bundle is not None and (line.bundle, section) not in headed:
            headed.add((line.bundle, section))
            quantity = page.writer.count(ordered[line.bundle]) if line.bundle in ordered else ""
            chosen = ", ".join(
                f"{each.choice.replace('_', ' ')}: {each.name}"
                for each in page.pricing.lines
                if each.bundle == line.bundle and each.choice
            )
            detail = " \u00b7 ".join(filter(None, (page.writer.texts.bundle, chosen)))
            yield DocumentLine("", line.bundle_title, line.bundle, detail, quantity, "", "", "", "", section, kind="bundle")
        yield _line(page, line, section, discounted=discounted)


def _line(page: _Page, line: PricedLine, section: str, *, discounted: bool) -> DocumentLine:
    writer, currency = page.writer, page.pricing.currency
    attributes = ", ".join(f"{name}: {choice}" for name, choice in line.attributes)
    agreed = "" if line.agreed_price is None else writer.texts.agreed_price.format(price=writer.price(line.agreed_price, currency))
    return DocumentLine(
        position=str(line.position),
        name=line.name,
        sku=line.sku,
        detail=" \u00b7 ".join(filter(None, (attributes, _mixed_price(page, line), agreed))),
        quantity=writer.count(line.quantity),
        term=writer.months(line.months) if line.billing == RECURRING else "",
        unit_price="" if line.kind in MIXED else writer.price(line.unit_price, currency),
        discount=writer.percent(page.pricing.granted_percent(line)) if discounted else "",
        amount=page.number(line.net_amount),
        section=section,
        list_amount=page.number(line.list_amount) if discounted else "",
        kind="" if line.bundle is None else "part",
    )


def _option(page: _Page, line: PricedLine) -> DocumentLine:
    """Return a line that the customer may take beside the quote, with what its unit price is for."""
    offered = _line(page, line, "", discounted=False)
    per_month = page.writer.texts.per_month if line.billing == RECURRING else ""
    detail = " \u00b7 ".join(filter(None, (offered.detail, per_month, offered.term)))
    return replace(offered, detail=detail, amount=page.amount(line.net_amount))


def _mixed_price(page: _Page, line: PricedLine) -> str:
    """Return what stands in for the unit price of a quantity that has several: every slab with its price, or the block."""
    texts, writer = page.writer.texts, page.writer
    if line.kind == "block":
        return texts.block
    if line.kind != "slab":
        return ""
    if len(line.slabs) > SLABS_MAX:
        return texts.slabs.format(count=len(line.slabs))
    prices = ((writer.count(units), writer.price(price, page.pricing.currency)) for units, price in line.slabs)
    return ", ".join(texts.slab.format(units=units, price=price) for units, price in prices)


def _usual_clause(words: str, texts: DocumentTexts) -> tuple[str, str]:
    """Return the clause of a special term, named by `words`, that the installation has no text of its own for."""
    return words[:1].upper() + words[1:], texts.special_term
