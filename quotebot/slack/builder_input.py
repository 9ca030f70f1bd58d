"""Input of the quote builder as changes of a request: of the edited version, or of the empty request of a new quote.

The fields and the typed text are read separately and joined: a value may come from both only if it is the same.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import CreateByForm, CreateQuote, ReviseQuote
from quotebot.domain.approvals.advice import avoidances
from quotebot.domain.language import N_, _, localized
from quotebot.domain.pricing.commercial_terms import NAMES, TEXTS_MAX, CommercialTerms, edited
from quotebot.domain.pricing.engine import Pricing, request_of
from quotebot.domain.pricing.price_requests import (
    Changes,
    LineChange,
    PriceRequest,
    PricingProblem,
    changed,
    reason_text,
)
from quotebot.domain.pricing.term_clauses import read_clause
from quotebot.domain.quotes.versions import Simulation, simulate
from quotebot.slack import grammar
from quotebot.slack.form_fields import ERROR_CHARACTERS_MAX, Errors, Filled, Form, last_block, plain_text, said, too_long
from quotebot.views import builder, forms, messages
from quotebot.views import builder_fields as blocks
from quotebot.views.builder_details import commercial_block
from quotebot.views.forms import ACCOUNT_CHARACTERS_MAX, FOUND, block_of, read_choice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.pricing.price_requests import LineRequest
    from quotebot.domain.quotes.quote import ChosenOpportunity, Quote
    from quotebot.domain.rules import Rules
    from quotebot.views.blocks import Json
    from quotebot.views.builder import Carried

NO_PRODUCT: Final = N_("Add a product.")
ADVISED_LINES_MAX: Final = 20  # a longer quote is previewed without the search for what avoids an approval
_BLOCKS_OF: Final = {  # of a problem's code, the first one that the form has
    "term": (blocks.MONTHS, forms.TERM),
    "discount": (forms.DISCOUNT,),
    "currency": (forms.CURRENCY,),
    "no_rate": (forms.CURRENCY,),
    "stale_rate": (forms.CURRENCY,),
    "terms": (blocks.SPECIAL,),
    "no_tax": (blocks.TAX,),
    "billing": (blocks.BILLING,),
    "start": (commercial_block("start_date"),),
    "payment": (blocks.PAYMENT,),
    "valid": (blocks.VALID,),
    "po": (commercial_block("po_number"),),
    "language": (commercial_block("language"),),
    "template": (commercial_block("template"),),
    "bill_to": tuple(commercial_block(name) for name in ("bill_to_email", "vat_id", "bill_to", "bill_to_address")),
    "note": (commercial_block("approver_note"), commercial_block("customer_note")),
}
_NAMES: Final = {  # of what a form may say twice
    "term_months": N_("the term"),
    "discount_percent": N_("the discount"),
    "currency": N_("the currency"),
    "region": N_("the region"),
    "with_tax": N_("the tax"),
    "terms": N_("the special terms"),
    "segment": N_("the segment"),
    "billing_frequency": N_("the billing frequency"),
    "start_date": N_("the start date"),
    "payment_days": N_("the payment days"),
    "po_number": N_("the po number"),
    "bill_to": N_("the bill to"),
    "bill_to_email": N_("the bill to email"),
    "bill_to_address": N_("the bill to address"),
    "vat_id": N_("the vat id"),
    "valid_days": N_("the valid days"),
    "valid_until": N_("the valid until"),
    "language": N_("the language"),
    "template": N_("the template"),
    "approver_note": N_("the approver note"),
    "customer_note": N_("the customer note"),
}


def read_creation(form: Form) -> Filled | Errors:
    """Return the creation that a form asks for, or every error by its block."""
    carried = builder.carried_by(form.view.get("private_metadata") or "")
    if carried is None or "c" not in carried.stored:
        return {last_block(form.view): _(messages.UNREADABLE_FORM)}
    errors: Errors = {}
    about = carried.stored
    account, channel = _account(form), about["c"] or form.typed(forms.CHANNEL)
    if not account:
        errors[forms.ACCOUNT] = _("Enter a customer.")
    elif len(account) > ACCOUNT_CHARACTERS_MAX:
        errors[forms.ACCOUNT] = _("At most {count} characters.", count=ACCOUNT_CHARACTERS_MAX)
    if not channel:
        errors[forms.CHANNEL] = _("Choose a channel.")
    request = _checked(form, carried, errors)
    opportunity = _opportunity(form, about.get("a"), account, request, errors)
    if errors or request is None:
        return errors
    token = str(about.get("t") or form.view["root_view_id"])
    return Filled(CreateByForm(token, CreateQuote(account, request, str(channel), opportunity)))


def read_revision(form: Form) -> Filled | Errors:
    """Return the revision that a form asks for, or every error by its block."""
    carried = builder.carried_by(form.view.get("private_metadata") or "")
    if carried is None or form.quote is None or "q" not in carried.stored:
        return {last_block(form.view): _(messages.UNREADABLE_FORM)}
    errors: Errors = {}
    changes = _changes(form, carried, request_of(form.quote.pricing), errors)
    if not errors and changes == Changes():
        return {forms.TEXT if form.has(forms.TEXT) else last_block(form.view): _("No changes yet.")}
    if not errors:
        _checked(form, carried, errors)
    return errors or Filled(ReviseQuote(changes=changes), form.quote.quote_id, form.quote.version)


def wanted(form: Form, carried: Carried) -> PriceRequest | str:
    """Return the request of an open form as it is now, or the first reason why there is none."""
    errors: Errors = {}
    request = _edited(form, carried, errors)
    return request if request is not None else next(iter(errors.values()), _(NO_PRODUCT))


def _checked(form: Form, carried: Carried, errors: Errors) -> PriceRequest | None:
    """Return the request if it can be priced; else add each problem to `errors` at its block."""
    request = _edited(form, carried, errors)
    if request is None:
        return None
    found = _simulated(form, request)
    if isinstance(found, Simulation):
        return request
    _place(found, form, carried, errors)
    return None


def _simulated(form: Form, request: PriceRequest) -> Simulation | tuple[PricingProblem, ...]:
    return simulate(request, form.ruleset, form.rules.policy, form.received_at, _account(form), form.rules.segments)


def customer_of(view: Mapping[str, Any], rules: Rules, quote: Quote | None) -> tuple[str, str | None]:
    """Return the customer of an open form, and the CRM's id of its account if an opportunity was chosen."""
    if quote is not None:
        return quote.account, quote.crm_account
    form, carried = Form(view, rules, 0), builder.carried_by(view.get("private_metadata") or "")
    chosen = None if carried is None else _opportunity(form, carried.stored.get("a"), _account(form), None, {})
    return _account(form), None if chosen is None else chosen.account_id


def _account(form: Form) -> str:
    return (form.typed(forms.ACCOUNT) or form.typed(FOUND)) if form.quote is None else form.quote.account


def _edited(form: Form, carried: Carried, errors: Errors) -> PriceRequest | None:
    original = builder.NOTHING if form.quote is None else request_of(form.quote.pricing)
    before = len(errors)
    changes = _changes(form, carried, original, errors)
    if len(errors) > before:
        return None
    request = changed(original, changes)
    if isinstance(request, PriceRequest) and request.lines:
        return request
    if isinstance(request, PriceRequest):
        errors[_menu(form)] = _(NO_PRODUCT)
    else:
        _place(request, form, carried, errors)
    return None


def _place(problems: tuple[PricingProblem, ...], form: Form, carried: Carried, errors: Errors) -> None:
    """Add each problem to the errors at the field that it is about."""
    by_block: dict[str, list[str]] = {}
    for problem in problems:
        by_block.setdefault(_block(problem, form, carried), []).append(f"{problem.message}: {problem.suggestion}")
    errors.update({block_id: said(found) for block_id, found in by_block.items()})


def _block(problem: PricingProblem, form: Form, carried: Carried) -> str:
    keys = [key for key, sku in carried.rows if sku == problem.sku]
    candidates = [
        *(blocks.attribute_block(key, problem.attribute) for key in keys if problem.attribute),
        *(blocks.discount_block(key) for key in keys if problem.code == "discount"),
        *(blocks.price_block(key) for key in keys if problem.code == "agreed_price"),
        *(blocks.quantity_block(key) for key in keys),
        *_BLOCKS_OF.get(problem.code, ()),
        forms.TEXT,
    ]
    if problem.code == "terms" and not any(_quoted(term, problem) for term in form.several(blocks.SPECIAL)):
        candidates.insert(0, forms.TEXT)
    shown = [block_id for block_id in candidates if form.has(block_id)]
    quoted = (block_id for block_id in shown if (typed := form.typed(block_id)) and _quoted(typed, problem))
    return next(quoted, next(iter(shown), last_block(form.view)))


def _quoted(typed: str, problem: PricingProblem) -> bool:
    """Return whether a problem names what was typed, in the quotation marks of any language."""
    return any(f"{begin}{typed}{end}" in problem.message for begin, end in ('""', "\u201e\u201c"))


def _menu(form: Form) -> str:
    names = (str(block.get("block_id")) for block in form.view["blocks"])
    return next((name for name in names if blocks.PRODUCTS.match(name)), forms.TEXT)


# ------------------------------------------------------------------------------------------------------------------- changes


def _changes(form: Form, carried: Carried, original: PriceRequest, errors: Errors) -> Changes:
    """Return what the form changes of the original request; add what is wrong to `errors`."""
    rows = tuple(_row_changes(form, carried, original, errors))
    chosen = replace(_chosen(form, original, errors), lines=rows)
    menu = _menu(form)
    picked = form.typed(menu)
    if picked and all(sku != picked for _key, sku in carried.rows):
        errors[menu] = _("Its line was not added yet. Choose it again.")
    typed = _typed(form, errors)
    if form.quote is None:
        skus = [sku for _key, sku in carried.rows] + [line.sku for line in typed.lines]
        twice = sorted({sku for sku in skus if skus.count(sku) > 1})
        if twice:
            said_twice = _("{products}: a product has one line. Keep one.", products=", ".join(twice))
            errors[forms.TEXT] = said_twice[:ERROR_CHARACTERS_MAX]
    else:
        typed = replace(typed, lines=_typed_lines(rows, typed.lines, original, errors))
    return _joined(chosen, typed, errors)


def _typed_lines(
    rows: tuple[LineChange, ...], typed: tuple[LineChange, ...], original: PriceRequest, errors: Errors
) -> tuple[LineChange, ...]:
    """Return the typed changes of lines without removals that the rows say too; add those that contradict a row to `errors`."""
    before = {line.sku: line.quantity for line in original.lines}
    changed_above = {row.sku: row for row in rows}
    pairs = [(changed_above[here.sku], here) for here in typed if here.sku in changed_above]
    contrary = sorted({here.sku for above, here in pairs if _contradict(above, here, before.get(here.sku))})
    if contrary:
        problem = _("Here and above are different changes of {products}. Keep one.", products=", ".join(contrary))
        errors.setdefault(forms.TEXT, problem[:ERROR_CHARACTERS_MAX])
    return tuple(here for here in typed if here.deed != "remove" or here != changed_above.get(here.sku))


def _contradict(above: LineChange, here: LineChange, quantity: int | None) -> bool:
    """Return whether a row and the typed text change a line in different ways. A row also names an unchanged quantity."""
    if "remove" in (above.deed, here.deed):
        return above.deed != here.deed
    fields_say, text_says = _values(above), _values(here)
    if above.quantity == quantity:
        del fields_say["quantity"]
    return any(fields_say[name] != text_says[name] for name in fields_say.keys() & text_says.keys())


def _values(change: LineChange) -> dict[str, object]:
    """Return what a change sets, adds or takes, by name. An agreed price and an own discount replace each other."""
    agreed = None if change.agreed_price is None else (change.agreed_price, change.price_reason)
    values = {
        "quantity": None if change.deed == "take" else (change.deed, change.quantity),
        "price": change.discount_percent if agreed is None else agreed,
        "attributes": change.attributes,
        "optional": False if change.deed == "take" else change.optional,
    }
    return {name: value for name, value in values.items() if value is not None}


def _joined(chosen: Changes, typed: Changes, errors: Errors) -> Changes:
    both: dict[str, Any] = {"lines": (*chosen.lines, *typed.lines)}
    both["commercial"] = _commercial_of_both(chosen, typed, errors)
    both["cleared"] = tuple(
        name for name in dict.fromkeys((*chosen.cleared, *typed.cleared)) if getattr(both["commercial"], name) is None
    )
    for name in (each.name for each in fields(Changes) if each.name not in both):
        above, here, unchanged = (getattr(each, name) for each in (chosen, typed, builder.UNCHANGED))
        if above != here and unchanged not in (above, here):
            errors.setdefault(forms.TEXT, _different(name))
        both[name] = here if above == unchanged else above
    return Changes(**both)


def _commercial_of_both(chosen: Changes, typed: Changes, errors: Errors) -> CommercialTerms:
    for name in NAMES:
        above, here = getattr(chosen.commercial, name), getattr(typed.commercial, name)
        if above != here and None not in (above, here):
            errors.setdefault(forms.TEXT, _different(name))
    return edited(typed.commercial, chosen.commercial)


def _different(name: str) -> str:
    return _("Here and above are different values for {what}. Keep one.", what=_(_NAMES[name]))


def _chosen(form: Form, original: PriceRequest, errors: Errors) -> Changes:
    """Return the changes that the fields of the whole quote say."""
    term, discount = _term(form, errors), _discount(form, errors)
    currency, segment, tax = form.typed(forms.CURRENCY), form.typed(blocks.SEGMENT), form.typed(blocks.TAX)
    priced_in = original.currency if form.quote is None else form.quote.pricing.currency
    billing = form.typed(blocks.BILLING)
    terms: tuple[str, ...] | None = None
    if form.has(blocks.SPECIAL):
        terms = tuple(sorted(set(form.several(blocks.SPECIAL))))
    region = tax.removeprefix(blocks.CHOSEN) if tax.startswith(blocks.CHOSEN) else None
    with_tax = None if not tax else region is not None
    named = segment.removeprefix(blocks.CHOSEN) if segment.startswith(blocks.CHOSEN) else "" if segment == blocks.NONE else None
    commercial, cleared = _commercial(form, original.commercial, errors)
    return Changes(
        commercial=commercial,
        cleared=cleared,
        term_months=_unless(term, original.term_months),
        discount_percent=_unless(discount, original.discount_percent),
        currency=_unless(currency or None, priced_in),
        region=_unless(region, original.region),
        with_tax=_unless(with_tax, original.with_tax),
        terms=_unless(terms, tuple(sorted(original.terms))),
        segment=_unless(named, original.segment or ""),
        billing_frequency=_unless(billing or None, original.billing_frequency),
    )


def _commercial(form: Form, before: CommercialTerms, errors: Errors) -> tuple[CommercialTerms, tuple[str, ...]]:
    """Return the commercial terms that the fields change, and those that they remove."""
    found: dict[str, Any] = {}
    for name in (name for name in NAMES if form.has(commercial_block(name))):
        typed = form.typed(commercial_block(name))
        found[name] = None if typed in ("", blocks.NONE) and name not in TEXTS_MAX else typed or None
    try:
        found |= {name: date.fromisoformat(found[name]) for name in ("start_date",) if found.get(name)}
        found |= {name: int(found[name]) for name in ("payment_days",) if found.get(name)}
    except ValueError:
        return before, ()  # no option of the menus
    if found.get("vat_id"):
        found["vat_id"] = found["vat_id"].upper()
    if form.has(blocks.VALID):
        typed = form.typed(blocks.VALID)
        valid = read_clause("valid", typed or "none")
        if isinstance(valid, str):
            errors[blocks.VALID] = _("Enter a number of days, or a day like 2027-01-31.")
        else:
            found |= valid
    differing = {name: value for name, value in found.items() if value != getattr(before, name)}
    new = {name: value for name, value in differing.items() if value is not None}
    removed = [name for name, value in differing.items() if value is None]
    replaced = any(name.startswith("valid_") for name in new)
    return CommercialTerms(**new), tuple(name for name in removed if not (replaced and name.startswith("valid_")))


def _unless(value: Any, same: object) -> Any:
    return None if value == same else value


def _row_changes(form: Form, carried: Carried, original: PriceRequest, errors: Errors) -> Iterator[LineChange]:
    drawn = original.lines[: int(carried.stored.get("d", 0))]
    kept = {key for key, _sku in carried.rows}
    yield from (LineChange("remove", line.sku) for key, line in enumerate(drawn) if key not in kept)
    for key, sku in carried.rows:
        change = _row_change(form, key, sku, drawn[key] if key < len(drawn) else None, errors)
        if change is not None:
            yield change


def _row_change(form: Form, key: int, sku: str, before: LineRequest | None, errors: Errors) -> LineChange | None:
    at = blocks.quantity_block(key)
    typed = form.typed(at)
    if before is not None and typed in ("", "0"):
        return LineChange("remove", sku)
    quantity = grammar.whole(typed)
    if not quantity:
        errors[at] = (
            _("Enter a whole number like 1500, or remove the line.")
            if before is None
            else _("Enter a whole number, or 0 to remove.")
        )
    own = _own_discount(form, key, errors)
    agreed, reason = _agreed_price(form, key, errors)
    marked = blocks.OPTIONAL in form.several(blocks.optional_block(key)) if form.has(blocks.optional_block(key)) else None
    attributes = _attributes(form, key, sku, before)
    if before is None:
        return LineChange("set", sku, quantity or 0, own or None, attributes or None, agreed, reason, marked or None)
    if agreed is not None:
        discount, own = None, None
        if (agreed, reason) == (before.agreed_price, before.price_reason):
            agreed, reason = None, ""
    else:
        discount = None if (own, None) == (before.discount_percent, before.agreed_price) else own
    change = LineChange(
        "set",
        sku,
        quantity or 0,
        discount,
        None if attributes == tuple(sorted(before.attributes)) else attributes,
        agreed,
        reason,
        None if marked == before.optional else marked,
    )
    return None if change == LineChange("set", sku, before.quantity) else change


def _agreed_price(form: Form, key: int, errors: Errors) -> tuple[Decimal | None, str]:
    at = blocks.price_block(key)
    if not form.has(at):
        return None, ""
    price = grammar.read_price(form.typed(at))
    if price is None:
        errors[at] = _("Enter a price like {example} or 1500.", example=localized("5.40"))
    reason = reason_text(form.typed(blocks.reason_block(key)))
    if not reason:
        errors[blocks.reason_block(key)] = _("Say why, for the approver.")
    return price, reason


def _own_discount(form: Form, key: int, errors: Errors) -> Decimal | None:
    at = blocks.discount_block(key)
    found = grammar.read_discount(form.typed(at) or "0")
    if isinstance(found, Decimal):
        return found
    errors[at] = _("Enter a number from 0 to 100.")
    return None


def _attributes(form: Form, key: int, sku: str, before: LineRequest | None) -> tuple[tuple[str, str], ...]:
    product = form.ruleset.catalogue.products.get(sku)
    found = {} if before is None else dict(before.attributes)
    for attribute in () if product is None else product.attributes:
        chosen = form.raw(blocks.attribute_block(key, attribute.name))
        if chosen == blocks.BY_DEFAULT:
            found.pop(attribute.name, None)
        elif chosen.startswith(blocks.CHOSEN):
            found[attribute.name] = chosen.removeprefix(blocks.CHOSEN)
    return tuple(sorted(found.items()))


def _term(form: Form, errors: Errors) -> int | None:
    if not form.has(forms.TERM):
        return None
    typed, at = form.typed(forms.TERM), forms.TERM
    if typed == blocks.OTHER and form.has(blocks.MONTHS):
        at, typed = blocks.MONTHS, form.typed(blocks.MONTHS)
    found = grammar.read_term(typed)
    if isinstance(found, int):
        return found
    errors[at] = _("Enter a term like 12 or 24 months.")
    return None


def _discount(form: Form, errors: Errors) -> Decimal | None:
    found = grammar.read_discount(form.typed(forms.DISCOUNT) or "0")
    if isinstance(found, Decimal):
        return found
    errors[forms.DISCOUNT] = _("Enter a number from 0 to 100.")
    return None


def _typed(form: Form, errors: Errors) -> Changes:
    typed = "; ".join(form.lines(forms.TEXT))
    found = grammar.read_changes(typed, form.ruleset.catalogue) if typed else Changes()
    if isinstance(found, Changes):
        return found
    errors[forms.TEXT] = said([plain_text(problem) for problem in found])
    return Changes()


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
        errors[block_id] = _("This opportunity was offered by another version of the bot. Choose it again, or leave it empty.")
        return None
    if account.casefold() != messages.one_line(str(offered_for)).casefold():
        problem = _(
            "This opportunity belongs to {owner}, not {account}. Pick another or clear it.", owner=offered_for, account=account
        )
        errors[block_id] = problem[:ERROR_CHARACTERS_MAX]
    elif choice.currency and currency and choice.currency != currency:
        errors[block_id] = _(
            "This opportunity is in {currency}, and the quote in {other}. Choose one currency.",
            currency=choice.currency,
            other=currency,
        )
    return choice.opportunity


def previewed(view: Mapping[str, Any], rules: Rules, now: int, quote: Quote | None, notice: str = "") -> Json:
    """Return an open or new builder with the total, the approvals and the amount of each line. `now` is Unix milliseconds.

    `notice` is mrkdwn that stands before them.
    """
    carried = builder.carried_by(view.get("private_metadata") or "")
    assert carried is not None  # noqa: S101 -- callers draw or have checked the form
    foot, pricing = _foot(view, carried, rules, now, quote)
    return builder.with_preview(view, carried, f"{notice}\n{foot}" if notice else foot, pricing, rules.ruleset)


def _foot(view: Mapping[str, Any], carried: Carried, rules: Rules, now: int, quote: Quote | None) -> tuple[str, Pricing | None]:
    form = Form(view, rules, now, quote)
    over = too_long(form)
    request = next(iter(over.values())) if over else wanted(form, carried)
    if isinstance(request, str):
        return builder.foot_of_problem(request), None
    found = _simulated(form, request)
    if not isinstance(found, Simulation):
        return builder.foot_of_problem(f"{found[0].message}: {found[0].suggestion}"), None
    short = len(found.pricing.lines) <= ADVISED_LINES_MAX
    easier = avoidances(found.pricing, rules.ruleset, rules.policy) if short else ()
    return builder.foot(found, easier, quote), found.pricing
