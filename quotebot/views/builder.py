"""Quote builder: the form of a new quote and of a new version, with lines that are added and removed, and a live total.

slack/builder_input.py parses its input. Its metadata holds the numbers and products of the lines; the fields hold everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain import money
from quotebot.domain.language import N_, _, grouped, localized
from quotebot.domain.pricing.engine import MIXED, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, Changes, LineRequest, PriceRequest
from quotebot.domain.pricing.term_clauses import line_text, terms_text
from quotebot.domain.quotes.lifecycle import may_be_changed
from quotebot.domain.quotes.quote import QuoteState
from quotebot.views import builder_fields as fields
from quotebot.views import messages
from quotebot.views.blocks import Json, modal, read, section, text_input, written
from quotebot.views.builder_details import Details
from quotebot.views.card import needs_text
from quotebot.views.forms import (
    ACCOUNT,
    ACCOUNT_CHARACTERS_MAX,
    CREATE_FORM,
    REVISE_FORM,
    TERM,
    TEXT,
    TEXT_CHARACTERS_MAX,
    about,
    account_input,
    channel_input,
    drawn_again,
    remembered,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence

    from quotebot.domain.approvals.advice import Avoidance
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.approvals.roles import Roles
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.priced import Pricing
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.quotes.versions import Simulation

PREVIEW: Final = "preview"  # block_id of the live total
UNCHANGED: Final = Changes()
NOTHING: Final = PriceRequest((), 12, Decimal(0))  # of a new quote, before anything is filled in
LINE_BLOCKS_MAX: Final = 64  # of all lines together; the other fields need the rest of Slack's 100
CARRIED_CHARACTERS_MAX: Final = 1_200  # of the lines; the name of an account and a token are carried too
QUOTED_CHARACTERS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Draft:
    """Initial content of the form of a new quote. All forms with the same `token` create one quote together.

    `term` and `discount` are typed text, `text` is the typed part of the form, and `quoted` is mrkdwn above the fields.
    """

    account: str = ""
    lines: tuple[LineRequest, ...] = ()
    term: str = "12m"
    discount: str = "0"
    currency: str | None = None
    token: str | None = None
    more: Changes = UNCHANGED  # tax, segment, billing, special terms
    text: str = ""
    quoted: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """Metadata of an open builder. `rows` are the numbers and products of its lines, in order; `next_key` is the next number."""

    rows: tuple[tuple[int, str], ...]
    next_key: int
    stored: Mapping[str, Any]  # all fields, to be written back

    def written(self, rows: Sequence[tuple[int, str]], next_key: int) -> dict[str, Any]:
        """Return the fields with other lines."""
        return {**self.stored, "r": [list(row) for row in rows], "k": next_key}


def carried_by(text: str) -> Carried | None:
    """Return the metadata of a builder; None if this build did not write it."""
    found = remembered(text) or read(text, {"q", "n", "d", "r", "k"})
    if found is None or not isinstance(found["r"], list) or not isinstance(found["k"], int):
        return None
    rows = [row for row in found["r"] if isinstance(row, list) and len(row) == 2]  # noqa: PLR2004 -- a number and a product
    if len(rows) != len(found["r"]):
        return None
    stored = {name: value for name, value in found.items() if name != "v"}
    return Carried(tuple((int(key), str(sku)) for key, sku in rows), found["k"], stored)


# ------------------------------------------------------------------------------------------------------------------- drawn


def create_form(
    channel: str | None,
    ruleset: Ruleset,
    draft: Draft = Draft(),
    *,
    policy: ApprovalPolicy | None = None,
    lookup: bool = False,
    opportunities: bool = False,
    by_customer: bool = False,
) -> Json:
    """Return the form that creates a quote in `channel`; if `channel` is None, the form asks for it.

    With `lookup`, the user may choose the customer from the accounts in Salesforce instead of typing it; with `opportunities`,
    also one of the account's opportunities. `by_customer`: the total and the approvals depend on the customer.
    """
    rows, text = _split(draft, ruleset, policy)
    details = Details.of(ruleset, policy)
    months = draft.term.removesuffix("m")
    term = int(months) if months.isdecimal() else None
    shown = details.shown(_request_of(draft.more))
    further = details.blocks(shown)
    known = ruleset.catalogue.products
    customer = text_input(
        ACCOUNT,
        _("Not in Salesforce? Type the name") if lookup else _("Customer"),
        length_max=ACCOUNT_CHARACTERS_MAX,
        initial=draft.account,
        example=_("Acme"),
        optional=lookup,
    )
    blocks = [
        *([section(draft.quoted[:QUOTED_CHARACTERS_MAX])] if draft.quoted else []),
        *([account_input(with_more=opportunities or by_customer)] if lookup else []),
        fields.live(customer) if by_customer else customer,
        *(
            block
            for key, line in enumerate(rows)
            for block in fields.line_blocks(key, line, ruleset.catalogue, known[line.sku].name, may_empty=False)
        ),
        fields.product_input(len(rows)),
        *fields.term_inputs(term, draft.term),
        fields.discount_input(draft.discount, _free(policy)),
        fields.currency_input(fields.currencies(ruleset), draft.currency),
        _preview(_("Add a product to see the total.")),
        *further,
        *([channel_input()] if channel is None else []),
        _text_input(_("Anything else"), text, _("Anything a command may say, with semicolons: 10 sso; terms net_60")),
    ]
    once = {} if draft.token is None else {"t": draft.token}
    listed = [[key, line.sku] for key, line in enumerate(rows)]
    carried = written({"c": channel, **once, "r": listed, "k": len(rows)})
    return modal(CREATE_FORM, _("New quote"), _("Create quote"), carried, blocks)


def fits(draft: Draft, ruleset: Ruleset, policy: ApprovalPolicy | None) -> bool:
    """Return whether the form of a new quote can hold all that a draft says."""
    return len(_split(draft, ruleset, policy)[1]) <= TEXT_CHARACTERS_MAX


def revise_form(quote: Quote, ruleset: Ruleset, policy: ApprovalPolicy | None = None) -> Json:
    """Return the form that edits a quote as its next version. Lines without fields stay as they are."""
    request = request_of(quote.pricing)
    details = Details.of(ruleset, policy)
    known, names = ruleset.catalogue.products, {line.sku: line.name for line in quote.pricing.every_line}
    drawn: list[list[str | int]] = []
    blocks: list[Json] = [section(_("{quote}\nSaving creates v{version}.", quote=about(quote), version=quote.version + 1))]
    for key, line in enumerate(request.lines[: fields.ROWS_MAX]):
        product = known.get(line.sku)
        name = names.get(line.sku, line.sku) if product is None else product.name
        more = fields.line_blocks(key, line, ruleset.catalogue, name, may_empty=True)
        if len(blocks) - 1 + len(more) > LINE_BLOCKS_MAX or len(str([*drawn, [key, line.sku]])) > CARRIED_CHARACTERS_MAX:
            break
        drawn.append([key, line.sku])
        blocks += more
    left = len(request.lines) - len(drawn)
    hint = _("e.g. add 10 sso; remove support; billing annual")
    if left:
        hint = _(
            "e.g. add 10 sso; remove support; billing annual. The other {count} lines stay as they are; change them here, by name.",
            count=left,
        )
    currencies = dict.fromkeys((quote.pricing.currency, *fields.currencies(ruleset)))
    blocks += [
        fields.product_input(len(drawn)),
        *fields.term_inputs(request.term_months, f"{request.term_months}"),
        fields.discount_input(localized(money.trimmed(request.discount_percent)), _free(policy)),
        fields.currency_input(tuple(currencies)[: fields.OPTIONS_MAX], quote.pricing.currency),
        _unchanged(quote),
        *details.blocks(request),
        _text_input(_("Other changes"), "", hint),
    ]
    carried = written({"q": quote.quote_id, "n": quote.version, "d": len(drawn), "r": drawn, "k": len(drawn)})
    return modal(REVISE_FORM, _("Edit quote"), _saving(quote), carried, blocks)


def discount_form(quote: Quote, policy: ApprovalPolicy | None = None) -> Json:
    """Return the form that changes only the discount, with the total and the approvals as they would be."""
    percent = localized(money.trimmed(request_of(quote.pricing).discount_percent))
    blocks = [
        section(about(quote)),
        fields.discount_input(percent, _free(policy)),
        _unchanged(quote),
    ]
    carried = written({"q": quote.quote_id, "n": quote.version, "d": 0, "r": [], "k": 0})
    return modal(REVISE_FORM, _("Change discount"), _saving(quote), carried, blocks)


def _saving(quote: Quote) -> str:
    return _("Save as v{version}", version=quote.version + 1)


def _unchanged(quote: Quote) -> Json:
    return _preview(_("Total {total}. No changes yet.", total=messages.net(quote)))


def _split(draft: Draft, ruleset: Ruleset, policy: ApprovalPolicy | None) -> tuple[tuple[LineRequest, ...], str]:
    """Return the lines that get fields of their own, and the typed text with everything else. The order of lines is kept."""
    rows: list[LineRequest] = []
    size = 0
    for line in draft.lines[: fields.ROWS_MAX]:
        size += len(fields.line_blocks(0, line, ruleset.catalogue, "", may_empty=False))
        if not fields.in_a_row(line, ruleset.catalogue) or size > LINE_BLOCKS_MAX or any(row.sku == line.sku for row in rows):
            break
        rows.append(line)
    details = Details.of(ruleset, policy)
    left = details.left(_request_of(draft.more))
    unsold = draft.currency if draft.currency not in (None, *fields.currencies(ruleset)) else None
    parts = (
        ", ".join(line_text(line) for line in draft.lines[len(rows) :]),
        "" if unsold is None else f"currency {unsold}",  # shown, so that none is replaced silently
        terms_text(left),
        draft.text,
    )
    return tuple(rows), "; ".join(filter(None, parts))


def _request_of(more: Changes) -> PriceRequest:
    return replace(
        NOTHING,
        segment=more.segment or None,
        region=more.region,
        with_tax=bool(more.with_tax),
        terms=more.terms or (),
        billing_frequency=more.billing_frequency or BILLING_FREQUENCIES[0],
        commercial=more.commercial,
    )


def _free(policy: ApprovalPolicy | None) -> str | None:
    return money.format_percent(policy.discount_over[0].limit) if policy is not None and policy.discount_over else None


def _text_input(label: str, initial: str, hint: str) -> Json:
    return text_input(
        TEXT,
        label,
        length_max=TEXT_CHARACTERS_MAX,
        initial=initial,
        hint=hint,
        example="10 sso; terms net_60",
        multiline=True,
        optional=True,
    )


def _preview(text: str) -> Json:
    return {**section(text), "block_id": PREVIEW}


# ---------------------------------------------------------------------------------------------------------------- drawn again


def with_line(view: Mapping[str, Any], carried: Carried, sku: str, ruleset: Ruleset) -> Json:
    """Return the form with a line of a product, one unit. A product that has a line already, or that does not fit, adds none."""
    product, key = ruleset.catalogue.products.get(sku), carried.next_key
    at = _place_of(fields.PRODUCTS, view)
    blocks = [*view["blocks"]]
    if at is None:
        return drawn_again(view, carried.stored, blocks)
    rows = [*carried.rows]
    if product is not None and all(sku != row[1] for row in rows):
        line = fields.line_blocks(key, LineRequest(sku, 1), ruleset.catalogue, product.name, may_empty="q" in carried.stored)
        size = len(str([*rows, (key, sku)]))
        if len(rows) < fields.ROWS_MAX and _have_room(view, len(line)) and size <= CARRIED_CHARACTERS_MAX:
            blocks[at:at] = line
            rows.append((key, sku))
            at += len(line)
    blocks[at] = fields.product_input(key + 1)
    return drawn_again(view, carried.written(rows, key + 1), blocks)


def without_line(view: Mapping[str, Any], carried: Carried, key: int) -> Json:
    """Return the form without a line."""
    blocks = [block for block in view["blocks"] if fields.row_of(str(block.get("block_id"))) != key]
    return drawn_again(view, carried.written([row for row in carried.rows if row[0] != key], carried.next_key), blocks)


def with_price(view: Mapping[str, Any], carried: Carried, key: int, name: str, *, priced: bool) -> Json:
    """Return the form with the fields of an agreed price in place of a line's own discount, or the other way round.

    Fields that do not fit are left out.
    """
    before = (fields.discount_block(key),) if priced else (fields.price_block(key), fields.reason_block(key))
    after = fields.price_inputs(key, name) if priced else [fields.own_discount_input(key, name)]
    blocks = [block for block in view["blocks"] if block.get("block_id") not in before]
    names = [block.get("block_id") for block in blocks]
    if not _have_room(view, len(after) - len(before)):
        blocks = [*view["blocks"]]
    elif len(blocks) < len(view["blocks"]) and fields.quantity_block(key) in names:
        at = names.index(fields.quantity_block(key)) + 1
        blocks[at:at] = after
    return drawn_again(view, carried.stored, blocks)


def with_option(view: Mapping[str, Any], carried: Carried, key: int, name: str) -> Json:
    """Return the form with the mark of an optional line, set; without it if it does not fit."""
    blocks = [*view["blocks"]]
    names = [block.get("block_id") for block in blocks]
    if fields.optional_block(key) not in names and fields.quantity_block(key) in names and _have_room(view, 1):
        blocks.insert(names.index(fields.quantity_block(key)) + 1, fields.optional_input(key, name))
    return drawn_again(view, carried.stored, blocks)


def with_months(view: Mapping[str, Any], carried: Carried, *, other: bool) -> Json:
    """Return the form with the field of a term in months, or without it."""
    blocks = [block for block in view["blocks"] if block.get("block_id") != fields.MONTHS]
    names = [block.get("block_id") for block in blocks]
    if other and TERM in names:
        blocks.insert(names.index(TERM) + 1, fields.months_input())
    return drawn_again(view, carried.stored, blocks)


def with_details(view: Mapping[str, Any], carried: Carried, name: str, ruleset: Ruleset, policy: ApprovalPolicy | None) -> Json:
    """Return the form with a group of further fields in place of the button that asks for it."""
    blocks: list[Json] = []
    for block in view["blocks"]:
        more = block.get("block_id") == name and block["type"] == "actions"
        blocks += Details.of(ruleset, policy).group(name, NOTHING) if more else [block]
    return drawn_again(view, carried.stored, blocks)


def with_preview(view: Mapping[str, Any], carried: Carried, foot: str, priced: Pricing | None, ruleset: Ruleset) -> Json:
    """Return the form with its total, and the amount of each line, as they are now."""
    rows = dict(carried.rows)
    shown = {block.get("block_id") for block in view["blocks"]}
    blocks = []
    for block in view["blocks"]:
        key = fields.row_of(str(block.get("block_id")))
        if block.get("block_id") == PREVIEW:
            blocks.append(_preview(foot))
        elif key in rows and block["type"] == "section":
            text = _line_words(rows[key], priced, ruleset)
            agreed, optional = fields.price_block(key) in shown, fields.optional_block(key) in shown
            blocks.append(fields.line_head(key, text, priced=agreed, optional=optional))
        else:
            blocks.append(block)
    return drawn_again(view, carried.stored, blocks)


def _have_room(view: Mapping[str, Any], more: int) -> bool:
    """Return whether the lines may have so many more blocks."""
    drawn = sum(fields.row_of(str(block.get("block_id"))) is not None for block in view["blocks"])
    return drawn + more <= LINE_BLOCKS_MAX


def _place_of(block_id: re.Pattern[str], view: Mapping[str, Any]) -> int | None:
    found = (index for index, block in enumerate(view["blocks"]) if block_id.match(str(block.get("block_id"))))
    return next(found, None)


def _line_words(sku: str, priced: Pricing | None, ruleset: Ruleset) -> str:
    product = ruleset.catalogue.products.get(sku)
    name = messages.short(sku if product is None else product.name, fields.NAME_CHARACTERS_MAX)
    if product is not None and product.kind == "bundle":
        chosen = () if priced is None else (line for line in priced.every_line if line.bundle == sku and line.choice)
        units = {choice.name: choice.quantity for choice in product.choices}
        held = [(part.quantity, part.sku) for part in product.components]
        held += [(units.get(line.choice, 1), line.sku) for line in chosen]
        parts = ", ".join(f"{grouped(quantity)} {part}" for quantity, part in held)
        return f"{_amount_words(name, sku, priced)}\n{messages.short(parts, 300)}"
    return _amount_words(name, sku, priced)


def _amount_words(name: str, sku: str, priced: Pricing | None) -> str:
    lines = [] if priced is None else [line for line in priced.every_line if (line.bundle or line.sku) == sku]
    if priced is None or not lines:
        return f"*{name}*"
    net = money.total(tuple(line.net_amount for line in lines), priced.currency)
    amount = f"*{money.format_amount(net, priced.currency)}*"
    (line, *others) = lines
    if others or line.bundle is not None or line.kind in MIXED:
        return f"*{name}* \u00b7 {amount}"
    unit = money.format_unit_price(line.unit_price, priced.currency)
    per = _("{price}/month", price=unit) if line.billing == "recurring" else unit
    words = f"*{name}* \u00d7 {grouped(line.quantity)} \u00b7 {per} \u00b7 {amount}"
    return _("{line} (optional)", line=words) if line in priced.options else words


# ----------------------------------------------------------------------------------------------------------------- the total


NO_ROOM: Final = N_(
    "This form has no room for that. Remove another line, or write this one below instead, e.g. `10 sso (optional)`."
)


def full() -> str:
    """State that no other product fits into the form."""
    return _("This form holds {count} products at most. Write the rest below, e.g. `10 sso`.", count=fields.ROWS_MAX)


def foot_of_problem(text: str) -> str:
    """Return the foot of a form that has no price yet; `text` is plain text."""
    return _("*No total yet:* {why}", why=messages.escape(messages.one_line(text))[:1_000])


def foot(found: Simulation, easier: Sequence[Avoidance], before: Quote | None) -> str:
    """Return the total and the approvals of a form as it is filled in; `before` is the edited version of a quote."""
    return "\n".join((*_totals(found.pricing, before), *_approvals(found, easier, before)))


def _totals(pricing: Pricing, before: Quote | None) -> Iterator[str]:
    currency = pricing.currency
    parts = [_("*Total {total}*", total=money.format_amount(pricing.net_total, currency))]
    if pricing.discount_total:
        parts.append(_("list price {price}", price=money.format_amount(pricing.list_total, currency)))
    if pricing.tax_total:
        parts.append(_("{total} with tax", total=money.format_amount(pricing.gross_total, currency)))
    yield " \u00b7 ".join(parts)
    if before is None:
        return
    if before.pricing.currency != currency:
        yield _("Was {total}", total=messages.net(before))
    elif change := money.EXACT.subtract(pricing.net_total, before.pricing.net_total):
        sign = "+" if change > 0 else "\u2212"
        difference = f"{sign}{money.format_amount(abs(change), currency)}"
        yield _("{difference} against v{version}", difference=difference, version=before.version)


def _approvals(found: Simulation, easier: Sequence[Avoidance], before: Quote | None) -> Iterator[str]:
    decision = found.decision
    why = messages.escape("; ".join(decision.hits))[:1_000]
    if decision.blocked:
        yield _("\u26d4 Can't be submitted: {why}", why=why)
    elif decision.automatic:
        yield _("\u2705 No approval needed")
    else:
        yield f"\u23f3 {needs_text(decision.required_roles, decision.hits, decision.roles)}"
        if before is not None and _was_approved(before):
            yield _("Saving asks for approval of v{version} again", version=before.version + 1)
    for change in easier:
        if not change.by_margin:  # the figure would reveal product costs
            yield messages.escape(_avoided(change, decision.roles))[:300]


def _avoided(change: Avoidance, roles: Roles) -> str:
    percent, needed = money.format_percent(change.after), messages.approver_words(change.roles, roles)
    if change.what == "discount" and change.roles:
        return _("At {percent} it needs only: {roles}", percent=percent, roles=needed)
    if change.what == "discount":
        return _("No approval needed at {percent}", percent=percent)
    if change.roles:
        return _("With {change} it needs only: {roles}", change=change.words, roles=needed)
    return _("No approval needed with {change}", change=change.words)


def _was_approved(quote: Quote) -> bool:
    return may_be_changed(quote.state) and quote.state not in (QuoteState.DRAFT, QuoteState.VALIDATED, QuoteState.PRICED)
