"""Fields of the quote builder as Block Kit: product lines, the product menu, and the inputs of the whole quote.

An input that is `live` reports each change at once, so that the total and the approvals can be shown before the form is sent.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.catalogue.catalogue import NO_CHOICE
from quotebot.domain.language import _, localized, ngettext
from quotebot.domain.pricing.price_requests import REASON_CHARACTERS_MAX, clipped
from quotebot.domain.pricing.term_clauses import price_text
from quotebot.views import messages, product_messages
from quotebot.views.blocks import Json, option, plain, section, text_input
from quotebot.views.forms import (
    ACCOUNT,
    CURRENCY,
    DISCOUNT,
    OPTION_CHARACTERS_MAX,
    SHORT_CHARACTERS_MAX,
    TERM,
    VALUE_CHARACTERS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from quotebot.domain.catalogue.catalogue import Attribute, Catalogue, Product
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_requests import LineRequest

ROW: Final = "row"  # prefix of a line's blocks; its number follows
PRODUCT: Final = "product"  # prefix of the product menu; a number follows, so that the menu is empty after each choice
MONTHS: Final = "months"  # block_id of a term that the menu of terms does not offer
SEGMENT, BILLING, TAX, SPECIAL = "segment", "billing", "tax", "special"  # block_ids
COMMERCIAL: Final = "deal"  # prefix of the fields of commercial terms; the name of the term follows
PAYMENT, VALID = f"{COMMERCIAL}.payment_days", f"{COMMERCIAL}.valid"
MORE: Final = "form"  # prefix of the buttons that show further fields; the name of the group follows
LIVE: Final = re.compile(
    rf"^(?:row\.|product\.|form\.|(?:{ACCOUNT}|{TERM}|months|{DISCOUNT}|{CURRENCY}|segment|billing|tax|special|deal\.payment_days)$)"
)
PRODUCTS: Final = re.compile(rf"^{PRODUCT}\.")

PRICED, DISCOUNTED, OPTIONAL, REMOVE = "price", "discount", "optional", "remove"  # entries of a line's menu
OTHER: Final = "other"  # of the menu of terms
NONE: Final = "none"  # of the menus of the further fields
BY_DEFAULT: Final = "~"  # an attribute's default choice where the line does not name it
CHOSEN: Final = "="  # prefix of a choice that the line names
MONTHS_OFFERED: Final = (12, 24, 36)
OPTIONS_MAX: Final = 100
ROWS_MAX: Final = 20
NAME_CHARACTERS_MAX: Final = 60


def quantity_block(key: int) -> str:
    """Return the block_id of a line's quantity."""
    return f"{ROW}.{key}.quantity"


def discount_block(key: int) -> str:
    """Return the block_id of a line's own discount."""
    return f"{ROW}.{key}.discount"


def attribute_block(key: int, name: str) -> str:
    """Return the block_id of one attribute of a line."""
    return f"{ROW}.{key}.{CHOSEN}{name}"


def row_of(block_id: str) -> int | None:
    """Return the number of the line to which a block belongs, or None."""
    parts = block_id.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[0] == ROW and parts[1].isdecimal() else None


def live(block: Json) -> Json:
    """Return an input that reports each change at once."""
    element = block["element"]
    if element["type"] == "plain_text_input":
        element = {**element, "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed", "on_character_entered"]}}
    return {**block, "dispatch_action": True, "element": element}


def price_block(key: int) -> str:
    """Return the block_id of a line's agreed price."""
    return f"{ROW}.{key}.price"


def reason_block(key: int) -> str:
    """Return the block_id of the reason for a line's agreed price."""
    return f"{ROW}.{key}.reason"


def optional_block(key: int) -> str:
    """Return the block_id of the mark of an optional line."""
    return f"{ROW}.{key}.optional"


def line_blocks(key: int, line: LineRequest, catalogue: Catalogue, name: str, *, may_empty: bool) -> list[Json]:
    """Return the blocks of one line. `may_empty`: an empty quantity removes the line."""
    product = catalogue.products.get(line.sku)
    name = clipped(messages.one_line(name), NAME_CHARACTERS_MAX)
    quantity = text_input(
        quantity_block(key),
        _("{product}: quantity", product=name),
        length_max=SHORT_CHARACTERS_MAX,
        initial=f"{line.quantity}",
        example=_("0 to remove") if may_empty else "150",
        optional=may_empty,
    )
    priced = line.agreed_price is not None
    chosen = dict(line.attributes)
    attributes = () if product is None else product.attributes
    names = {} if product is None else choice_names(product, catalogue)
    choices = (attribute_input(key, name, each, chosen.get(each.name), names) for each in attributes)
    return [
        line_head(key, messages.escape(name), priced=priced, optional=line.optional),
        live(quantity),
        *(price_inputs(key, name, line) if priced else [own_discount_input(key, name, line)]),
        *([optional_input(key, name)] if line.optional else []),
        *(each for each in choices if each),
    ]


def line_head(key: int, text: str, *, priced: bool, optional: bool) -> Json:
    """Return the heading of a line: escaped mrkdwn beside the menu of what else can be done with the line."""
    choices = [
        (DISCOUNTED, _("Discount, not a price")) if priced else (PRICED, _("Agree on a price")),
        *([] if optional else [(OPTIONAL, _("Offer as an option"))]),
        (REMOVE, _("Remove")),
    ]
    more = {"type": "overflow", "action_id": f"{ROW}.{key}.more", "options": [option(label, deed) for deed, label in choices]}
    return {**section(text), "block_id": f"{ROW}.{key}", "accessory": more}


def own_discount_input(key: int, name: str, line: LineRequest | None = None) -> Json:
    """Return the field of a line's own discount."""
    return live(
        text_input(
            discount_block(key),
            _("{product}: discount (%)", product=name),
            length_max=SHORT_CHARACTERS_MAX,
            initial=localized(money.trimmed(line.discount_percent)) if line is not None and line.discount_percent else None,
            example="0",
            optional=True,
        )
    )


def price_inputs(key: int, name: str, line: LineRequest | None = None) -> list[Json]:
    """Return the fields of a line's agreed price and its reason, which take the place of its own discount."""
    agreed = None if line is None or line.agreed_price is None else localized(price_text(line.agreed_price))
    reason = None if line is None else line.price_reason
    price = text_input(
        price_block(key),
        _("{product}: agreed price of a unit", product=name),
        length_max=SHORT_CHARACTERS_MAX,
        initial=agreed,
        hint=_("Before the discount on the whole quote. It may need approval."),
        example=localized("5.40"),
    )
    why = text_input(
        reason_block(key),
        _("{product}: reason for the price", product=name),
        length_max=REASON_CHARACTERS_MAX,
        initial=reason,
        example=_("Volume deal"),
    )
    return [live(price), why]


def optional_input(key: int, name: str) -> Json:
    """Return the mark of an optional line, set."""
    block_id = optional_block(key)
    options = [option(_("Optional: shown beside the total, not in it"), OPTIONAL)]
    element = {"type": "checkboxes", "action_id": block_id, "options": options, "initial_options": options}
    label = plain(_("{product}: option", product=name))
    return live({"type": "input", "block_id": block_id, "label": label, "optional": True, "element": element})


def choice_names(product: Product, catalogue: Catalogue) -> dict[str, str]:
    """Return the names of what a bundle lets choose, by the choices' values; of another product none."""
    offered = [sku for choice in product.choices for sku in choice.of]
    return {
        **{sku: messages.one_line(catalogue.products[sku].name) for sku in offered},
        **({NO_CHOICE: _("None")} if offered else {}),
    }


def attribute_input(
    key: int, product: str, attribute: Attribute, chosen: str | None, names: Mapping[str, str] = MappingProxyType({})
) -> Json | None:
    """Return the menu of an attribute's choices; None if Slack cannot show them all, or the line has another choice.

    `names` are what people read instead of a choice.
    """
    choices = attribute.choices
    fits = len(choices) <= OPTIONS_MAX and all(len(each) < VALUE_CHARACTERS_MAX for each in choices)
    if not fits or (chosen is not None and chosen not in choices):
        return None
    values = {each: BY_DEFAULT if chosen is None and each == attribute.default else f"{CHOSEN}{each}" for each in choices}
    shown = chosen if chosen is not None else attribute.default
    return live(
        menu(
            attribute_block(key, attribute.name),
            f"{product}: {attribute.name.replace('_', ' ')}",
            [(values[each], clipped(names.get(each, each), OPTION_CHARACTERS_MAX)) for each in choices],
            None if shown is None else values[shown],
        )
    )


def in_a_row(line: LineRequest, catalogue: Catalogue) -> bool:
    """Return whether the fields of a line can hold all that it says."""
    product = catalogue.products.get(line.sku)
    if product is None or not product.active or (line.agreed_price is not None and line.discount_percent):
        return False
    known = {each.name: each for each in product.attributes}
    chosen = dict(line.attributes)
    held = type(line)(
        *(line.sku, line.quantity, line.discount_percent, None, line.attributes),
        *(line.agreed_price, line.price_reason, line.optional),
    )
    return (
        line == held
        and len(chosen) == len(line.attributes)
        and all(name in known and attribute_input(0, "", known[name], choice) is not None for name, choice in chosen.items())
    )


def product_input(number: int) -> Json:
    """Return the menu that adds a line."""
    name = f"{PRODUCT}.{number}"
    element = {"type": "external_select", "action_id": name, "min_query_length": 0, "placeholder": plain(_("Search products"))}
    return live({"type": "input", "block_id": name, "label": plain(_("Add a product")), "optional": True, "element": element})


def product_groups(ruleset: Ruleset, typed: str, day: date) -> list[Json]:
    """Return the products on sale that a typed text finds, with list prices, in groups by family."""
    groups: dict[str, list[Json]] = {}
    for product in product_messages.on_sale(ruleset, typed)[:OPTIONS_MAX]:
        price = f" \u00b7 {product_messages.price_words(product, ruleset, day, brief=True)}"
        label = f"{clipped(messages.one_line(product.name), max(OPTION_CHARACTERS_MAX - len(price), 20))}{price}"
        groups.setdefault(product.family, []).append(option(clipped(label, OPTION_CHARACTERS_MAX), product.sku))
    return [{"label": plain(clipped(family, OPTION_CHARACTERS_MAX)), "options": options} for family, options in groups.items()]


def term_inputs(months: int | None, typed: str) -> list[Json]:
    """Return the menu of terms; with another term, or with text that is none, also the field for it."""
    offered = [(f"{each}m", ngettext("{n} month", "{n} months", each)) for each in MONTHS_OFFERED]
    known = months in MONTHS_OFFERED
    terms = live(menu(TERM, _("Term"), [*offered, (OTHER, _("Other"))], f"{months}m" if known else OTHER))
    return [terms] if known else [terms, months_input(typed)]


def months_input(typed: str = "") -> Json:
    """Return the field of a term that the menu does not offer."""
    return live(text_input(MONTHS, _("Term in months"), length_max=SHORT_CHARACTERS_MAX, initial=typed, example="18"))


def discount_input(typed: str, free: str | None) -> Json:
    """Return the field of the header discount; `free` is the largest one that a policy approves by itself."""
    if free is None:
        hint = _("Applies to the whole quote.")
    else:
        hint = _("Applies to the whole quote. Over {percent} needs approval.", percent=free)
    return live(
        text_input(
            DISCOUNT,
            _("Discount (%)"),
            length_max=SHORT_CHARACTERS_MAX,
            initial=typed or "0",
            hint=hint,
            example="15",
            optional=True,
        )
    )


def currency_input(codes: Sequence[str], chosen: str | None) -> Json:
    """Return the menu of currencies."""
    return live(menu(CURRENCY, _("Currency"), [(code, code) for code in codes], chosen if chosen in codes else codes[0]))


def currencies(ruleset: Ruleset) -> tuple[str, ...]:
    """Return the currencies in which a ruleset sells, its own first."""
    sold = {code for book in ruleset.books for code in (book.currency, *book.converts_to)}
    return (ruleset.currency, *sorted(sold - {ruleset.currency}))[:OPTIONS_MAX]


def menu(name: str, label: str, choices: Sequence[tuple[str, str]], chosen: str | None) -> Json:
    """Return a menu of (value, text); its block_id and action_id are the same."""
    options = [option(text, value) for value, text in choices]
    element: Json = {"type": "static_select", "action_id": name, "options": options}
    initial = next((each for each in options if each["value"] == chosen), None)
    if initial is not None:
        element["initial_option"] = initial
    return {"type": "input", "block_id": name, "label": plain(label), "optional": False, "element": element}
