"""Further fields of the quote builder: tax, billing, special terms, and the commercial terms. A button shows each group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.language import N_, _
from quotebot.domain.pricing.commercial_terms import LANGUAGE_NAMES, TEXTS_MAX, USUAL, CommercialTerms, payment_words
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, clipped
from quotebot.views.blocks import Json, button, option, plain, text_input
from quotebot.views.builder_fields import (
    BILLING,
    CHOSEN,
    COMMERCIAL,
    MORE,
    NONE,
    OPTIONS_MAX,
    PAYMENT,
    SEGMENT,
    SPECIAL,
    TAX,
    VALID,
    live,
    menu,
)
from quotebot.views.forms import OPTION_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_requests import PriceRequest

TERMS, PARTIES = f"{MORE}.terms", f"{MORE}.parties"  # action_ids of the buttons; the groups have the same names
_BUTTONS: Final = {TERMS: N_("Payment, tax and terms"), PARTIES: N_("Bill to and notes")}
_BILLING: Final = (N_("Up front"), N_("Monthly"), N_("Quarterly"), N_("Annually"))
BILLING_WORDS: Final = dict(zip(BILLING_FREQUENCIES, _BILLING, strict=True))
PAYMENT_DAYS: Final = (0, 14, 30, 45, 60, 90)
TEMPLATE_CHARACTERS_MAX: Final = 40
VALID_CHARACTERS_MAX: Final = 20
# Field of CommercialTerms -> label and example.
_PARTIES: Final = {
    "po_number": (N_("PO number"), "4711"),
    "bill_to": (N_("Billing contact"), N_("Jo Doe")),
    "bill_to_email": (N_("Billing e-mail"), "billing@acme.example"),
    "bill_to_address": (N_("Billing address"), N_("1 Main St, Springfield")),
    "vat_id": (N_("VAT ID"), "DE123456789"),
    "approver_note": (N_("Note to the approver"), N_("Their budget ends in June")),
    "customer_note": (N_("Note to the customer"), N_("Thank you for your trust")),
}
_PARTY_FIELDS: Final = (*_PARTIES, "language", "template")


def commercial_block(name: str) -> str:
    """Return the block_id of a commercial term."""
    return f"{COMMERCIAL}.{name}"


@dataclass(frozen=True, slots=True)
class Details:
    """Choices of the further fields, by the active ruleset and policy. A quote's own choice is offered also where they lack it."""

    segments: tuple[str, ...]
    taxes: tuple[str, ...]
    terms: tuple[str, ...]
    name: Callable[[str], str] = term_words  # returns a special term as people read it

    @classmethod
    def of(cls, ruleset: Ruleset, policy: ApprovalPolicy | None) -> Details:
        """Return what can be chosen under these rules."""
        segments = dict.fromkeys(book.segment.casefold() for book in ruleset.books if book.segment is not None)
        known = frozenset() if policy is None else policy.known_terms
        regions = dict.fromkeys(tax.region for tax in ruleset.taxes)
        return cls(
            tuple(sorted(segments))[: OPTIONS_MAX - 1],
            tuple(sorted(regions))[: OPTIONS_MAX - 1],
            tuple(sorted(known))[:OPTIONS_MAX],
            term_words if policy is None else policy.term_words,
        )

    def shown(self, request: PriceRequest) -> PriceRequest:
        """Return the request without what the fields cannot show."""
        if request.segment not in (None, *self.segments):
            request = replace(request, segment=None)
        if not (request.region is None or (request.with_tax and request.region in self.taxes)):
            request = replace(request, region=None, with_tax=False)
        return request if set(request.terms) <= set(self.terms) else replace(request, terms=())

    def left(self, request: PriceRequest) -> PriceRequest:
        """Return the request without what the fields show."""
        shown = self.shown(request)
        return replace(
            request,
            segment=None if shown.segment == request.segment else request.segment,
            region=None if shown.region == request.region else request.region,
            with_tax=request.with_tax and shown.region != request.region,
            terms=() if shown.terms == request.terms else request.terms,
            billing_frequency=BILLING_FREQUENCIES[0],
            commercial=USUAL,
        )

    def blocks(self, request: PriceRequest) -> list[Json]:
        """Return each group that says something, filled in with the request, and buttons for the other groups."""
        usual = replace(
            request,
            segment=None,
            region=None,
            with_tax=False,
            terms=(),
            billing_frequency=BILLING_FREQUENCIES[0],
            commercial=replace(USUAL, **{name: getattr(request.commercial, name) for name in _PARTY_FIELDS}),
        )
        said = {TERMS: request != usual, PARTIES: any(getattr(request.commercial, name) is not None for name in _PARTY_FIELDS)}
        groups = {TERMS: self._terms(request), PARTIES: _parties(request.commercial)}
        shown = [name for name in groups if said[name]]
        return [*(block for name in shown for block in groups[name]), *_buttons([name for name in groups if name not in shown])]

    def group(self, name: str, request: PriceRequest) -> list[Json]:
        """Return the fields of one group."""
        return list(_parties(request.commercial) if name == PARTIES else self._terms(request))

    def _terms(self, request: PriceRequest) -> Iterator[Json]:
        commercial = request.commercial
        yield live(
            menu(BILLING, _("Billing"), [(name, _(words)) for name, words in BILLING_WORDS.items()], request.billing_frequency)
        )
        yield live(_payment(commercial.payment_days))
        yield _date(commercial)
        yield _valid(commercial)
        own = () if request.segment is None else (request.segment,)
        if segments := _with(own, self.segments, OPTIONS_MAX - 1):
            names = [(f"{CHOSEN}{each}", clipped(each, OPTION_CHARACTERS_MAX)) for each in segments]
            yield live(menu(SEGMENT, _("Segment"), [(NONE, _("None")), *names], f"{CHOSEN}{own[0]}" if own else NONE))
        own = (request.region,) if request.with_tax and request.region is not None else ()
        if taxes := _with(own, self.taxes, OPTIONS_MAX - 1):
            regions = [(f"{CHOSEN}{each}", _("Tax of {region}", region=each)) for each in taxes]
            yield live(menu(TAX, _("Tax"), [(NONE, _("Without tax")), *regions], f"{CHOSEN}{own[0]}" if own else NONE))
        if terms := _with(request.terms, self.terms, OPTIONS_MAX):
            options = [option(clipped(self.name(each), OPTION_CHARACTERS_MAX), each) for each in terms]
            chosen = [each for each in options if each["value"] in request.terms]
            element = {"type": "multi_static_select", "action_id": SPECIAL, "options": options, "placeholder": plain(_("None"))}
            element |= {"initial_options": chosen} if chosen else {}
            hint = plain(_("Some of them need approval by Legal."))
            block = {"type": "input", "block_id": SPECIAL, "label": plain(_("Special terms")), "optional": True, "hint": hint}
            yield live({**block, "element": element})


def _with(own: tuple[str, ...], offered: tuple[str, ...], most: int) -> list[str]:
    """Return the choices of a menu, sorted: those of the quote, and as many of the others as fit."""
    return sorted([*dict.fromkeys((*own, *offered))][:most])


def _payment(days: int | None) -> Json:
    offered = sorted({*PAYMENT_DAYS, *([] if days is None else [days])})
    choices = [(f"{each}", f"{words[:1].upper()}{words[1:]}") for each in offered if (words := payment_words(each))]
    return menu(PAYMENT, _("Payment"), [(NONE, _("As usual")), *choices], NONE if days is None else f"{days}")


def _date(terms: CommercialTerms) -> Json:
    name = commercial_block("start_date")
    element: Json = {"type": "datepicker", "action_id": name, "placeholder": plain(_("Choose a day"))}
    if terms.start_date is not None:
        element["initial_date"] = terms.start_date.isoformat()
    return {"type": "input", "block_id": name, "label": plain(_("Start date")), "optional": True, "element": element}


def _valid(terms: CommercialTerms) -> Json:
    until = "" if terms.valid_until is None else terms.valid_until.isoformat()
    return text_input(
        VALID,
        _("Offer valid for"),
        length_max=VALID_CHARACTERS_MAX,
        initial=until if terms.valid_days is None else _("{days} days", days=terms.valid_days),
        hint=_("A number of days, or the last day."),
        example=_("45 days or 2027-01-31"),
        optional=True,
    )


def _parties(terms: CommercialTerms) -> Iterator[Json]:
    for name, (label, example) in _PARTIES.items():
        yield text_input(
            commercial_block(name),
            _(label),
            length_max=TEXTS_MAX[name],
            initial=getattr(terms, name),
            example=_(example),
            optional=True,
        )
    language = "" if terms.language is None else terms.language
    languages = [(code, _(name)) for code, name in LANGUAGE_NAMES.items()]
    yield menu(commercial_block("language"), _("Document language"), [(NONE, _("As usual")), *languages], language or NONE)
    yield text_input(
        commercial_block("template"),
        _("Document template"),
        length_max=TEMPLATE_CHARACTERS_MAX,
        initial=terms.template,
        example="detailed",
        optional=True,
    )


def _buttons(names: Sequence[str]) -> list[Json]:
    """Return one block for each button, so that the group can take its place."""
    return [{"type": "actions", "block_id": name, "elements": [button(name, _(_BUTTONS[name]), "more")]} for name in names]
