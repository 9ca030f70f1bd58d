"""Check of an installation's documents: every template in every language with sample quotes, and the clauses of special terms."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError
from adapters.pdf.renderer import DocumentLine, template_names
from quotebot.app.installation import load_rules
from quotebot.domain.pricing.commercial_terms import LANGUAGES, CommercialTerms
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, dated, price
from quotebot.domain.pricing.price_requests import TERMS_MAX
from quotebot.domain.quotes.quote import Quote, QuoteState
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.views.document import language_of, quote_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from adapters.pdf.renderer import PdfRenderer, QuoteDocument
    from quotebot.settings import Settings
    from quotebot.views.document import Seller

SAMPLE_AT: Final = 1_795_257_060_000  # 21 Nov 2026
SAMPLE_CONTACT: Final = ("seller@seller.example", "+1 555 0100")
SAMPLE_TERMS: Final = CommercialTerms(
    start_date=date(2027, 1, 1),
    po_number="PO-4711",
    bill_to="Ada Example",
    bill_to_email="ada@example.com",
    bill_to_address="1 High Street, 10115 Berlin, Germany",
    vat_id="DE123456789",
    customer_note="A note to the customer.",
)


def sample_quote(settings: Settings, special_terms: Sequence[str] = (), *, full: bool = True) -> Quote:
    """Return a quote of the shipped ruleset: with everything that a document may show, or of one line and nothing else.

    It has no more special terms than a quote may have.
    """
    lines = (LineRequest("pro", 150),)
    request = PriceRequest(lines, 12, Decimal(0))
    if full:
        # A special term such as net_60 sets other payment days.
        agreed = SAMPLE_TERMS if special_terms else replace(SAMPLE_TERMS, payment_days=30)
        more = (LineRequest("sso", 150, Decimal(5)), LineRequest("onboarding", 1), LineRequest("support", 1, optional=True))
        request = PriceRequest((*lines, *more), 36, Decimal(10), billing_frequency="quarterly", commercial=agreed)
    pricing = price(dated(replace(request, terms=tuple(special_terms[:TERMS_MAX])), SAMPLE_AT), load_rules(settings).ruleset)
    assert isinstance(pricing, Pricing)  # noqa: S101 -- the shipped ruleset has these products
    return Quote(
        quote_id="Q-2026-0001",
        version=1,
        state=QuoteState.APPROVED,
        account="Sample Customer Ltd",
        requester="",
        team_id="",
        channel="",
        created_at=SAMPLE_AT,
        valid_until=SAMPLE_AT + 30 * DAY_MS,
        pricing=pricing,
        requester_name="Sample Seller",
    )


def sample_documents(settings: Settings, seller: Seller, special_terms: Sequence[str]) -> Iterator[QuoteDocument]:
    """Yield the sample quotes in every language, the fuller one with a bundle and a chosen attribute."""
    usual = language_of(seller.locale)
    for language in (usual, *(other for other in LANGUAGES if other != usual)):
        for full in (True, False):
            quote = sample_quote(settings, special_terms if full else (), full=full)
            pricing, request = quote.pricing, quote.pricing.request
            assert request is not None  # noqa: S101 -- it was priced from one
            agreed = replace(request.commercial, language=language)
            spoken = replace(quote, pricing=replace(pricing, request=replace(request, commercial=agreed)))
            document = quote_document(spoken, seller, "Sample Seller", SAMPLE_CONTACT if full else ())
            yield replace(document, lines=(*_bundle(document.lines[0]), *document.lines)) if full else document


def _bundle(line: DocumentLine) -> tuple[DocumentLine, ...]:
    head = DocumentLine("", "Starter Kit", "kit", "", "1", "", "", "", "", line.section, kind="bundle")
    return head, replace(line, detail="gb: 20", kind="part")


async def lint(settings: Settings, seller: Seller, special_terms: Iterable[str], renderer: PdfRenderer) -> tuple[str, ...]:
    """Return every problem of the templates, and of the clauses of a document folder; empty if there is none."""
    terms = sorted(special_terms)
    found = []
    for name in template_names(seller.templates):
        for document in sample_documents(settings, seller, terms):
            try:
                await renderer.render(replace(document, template=name))
            except AdapterError as error:
                found.append(f"template {name}, language {document.language}: {error}")
    clauses = () if settings.document_folder is None else missing_clauses(seller, terms)
    return (*dict.fromkeys(found), *clauses)


def missing_clauses(seller: Seller, special_terms: Iterable[str]) -> Iterator[str]:
    """Yield one problem for each special term without a clause in a language that documents are written in."""
    chosen = {choice.language for choice in (*seller.regions.values(), *seller.customers.values())}
    written = {language for languages in seller.clauses.values() for language in languages}
    for term in special_terms:
        for language in LANGUAGES:
            if language in {language_of(seller.locale), *chosen, *written} and language not in seller.clauses.get(term, {}):
                yield f"special term {term} has no clause in language {language} (clauses.{term}.{language} in documents.toml)"
