"""Ephemeral questions: confirm a second identical quote, create a proposed one, or complete a request in a form.

The value of "Create another" is the key of the refused operation, a one-time token; that of "Open" is the existing quote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain import money
from quotebot.domain.language import N_, _, grouped, ngettext
from quotebot.domain.pricing.commercial_terms import term_rows
from quotebot.domain.pricing.engine import Pricing, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.views.blocks import VALUE_CHARACTERS_MAX, ButtonValue, button, read, section, value_text, written
from quotebot.views.messages import PROPOSED_LINES_MAX, escape, line_options, option_rows, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.approvals.policy import ApprovalPolicy

CREATE_ANOTHER, SHOW, FILL_IN = "quote.create_another", "quote.show", "quote.fill_in"  # action_ids
REPAIR, EDIT_FIRST, CLONE = "quote.use_correction", "quote.edit_first", "quote.clone"
COVER: Final = "cover.set"  # action_id, also on the Home tab

SECTION_CHARACTERS_MAX: Final = 3_000

_TOKEN: Final = re.compile(r"[0-9a-f]{64}")  # an operation key, or the token of an answer


@dataclass(frozen=True, slots=True)
class Correction:
    """Corrected command that a button gives.

    It creates at most one quote per `token`, and changes a quote that is at the `version` of when the button was drawn, None if it
    changes none.
    """

    text: str
    token: str
    version: int | None


def proposal(account: str, pricing: Pricing, policy: ApprovalPolicy) -> str:
    """Ask for confirmation of an extracted quote: its customer, up to 10 lines, discount, tax, special terms and total."""
    lines = [
        f"• {grouped(line.quantity)} \u00d7 {short(line.name, 60)}{line_options(line, pricing.currency)} "
        + money.format_amount(line.net_amount, pricing.currency)
        for line in pricing.lines[:PROPOSED_LINES_MAX]
    ]
    if (more := len(pricing.lines) - PROPOSED_LINES_MAX) > 0:
        lines.append(ngettext("• and {n} more line", "• and {n} more lines", more))
    lines += option_rows(pricing)
    request = request_of(pricing)
    if request.with_tax:
        tax = money.format_amount(pricing.tax_total, pricing.currency)
        taxed = N_("• Tax of {region} (estimated): {amount}") if pricing.tax_estimated else N_("• Tax of {region}: {amount}")
        lines.append(_(taxed, region=escape(request.region or ""), amount=tax))
    elif request.region is not None:
        lines.append(_("• Prices of {region}", region=escape(request.region)))
    if request.segment is not None:
        lines.append(_("• Prices of the segment {segment}", segment=escape(request.segment)))
    if request.billing_frequency != BILLING_FREQUENCIES[0]:
        lines.append(_("• Billing: {frequency}", frequency=_(request.billing_frequency)))
    if request.terms:
        lines.append(_("• Special terms: {terms}", terms=", ".join(escape(policy.term_words(term)) for term in request.terms)))
    lines += [f"• {name}: {short(value, 100)}" for name, value in term_rows(request.commercial)]
    terms = [ngettext("{n} month", "{n} months", pricing.term_months)]
    terms += [_("{percent} off", percent=money.format_percent(pricing.discount_percent))] if pricing.discount_percent else []
    total = N_("*Total {amount}* before tax") if request.with_tax else N_("*Total {amount}*")
    said = _("*New quote for {customer}?* {terms}", customer=short(account, 100), terms=" \u00b7 ".join(terms))
    return "\n".join((said, *lines, _(total, amount=money.format_amount(pricing.net_total, pricing.currency))))


def offer_blocks(text: str, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the question as Block Kit. `offer` is {"token": operation key, "quote_id", "version"}, with the existing quote.

    An offer without a quote asks for confirmation of the proposed quote; one without a token shows the quote, or copies it.
    """
    if "token" not in offer:
        if offer.get("clone"):
            return show_blocks(text, offer["quote_id"], offer["version"], _("Clone quote"), CLONE)
        return show_blocks(text, offer["quote_id"], offer["version"], _("Show v{version}", version=offer["version"]))
    token = written({"t": offer["token"]})
    if "quote_id" not in offer:
        elements = [
            button(CREATE_ANOTHER, _("Create quote"), token, style="primary"),
            button(EDIT_FIRST, _("Edit first"), token),
        ]
        return [section(text), {"type": "actions", "block_id": "quote.offer", "elements": elements}]
    there = value_text(ButtonValue(offer["quote_id"], offer["version"], None))
    return [
        section(text),
        {
            "type": "actions",
            "block_id": "quote.offer",
            "elements": [
                button(CREATE_ANOTHER, _("Create another"), token),
                button(SHOW, _("Open {quote}", quote=offer["quote_id"]), there),
            ],
        },
    ]


def parse_token(text: str) -> str | None:
    """Return the token of a "Create another" button, or None if this build did not write its value."""
    fields = read(text, {"t"})
    return fields["t"] if fields is not None and _is_token(fields["t"]) else None


def problem_blocks(
    message: str, typed: str | None, *, form: str | None = None, repair: tuple[Correction, str] | None = None
) -> list[dict[str, Any]] | None:
    """Return the reply to a text that could not be read: a button that opens the form, and one that gives the corrected command.

    `typed` is the text after `new`, None if no form fits; `form` is the label of its button, "Fix in form" if None; `repair` is the
    correction with its label. None if there is no button, or if the message is too long for Slack.
    """
    made: list[tuple[str, str, str]] = []
    if repair is not None:
        correction, label = repair
        made.append((REPAIR, label, written({"w": correction.text, "t": correction.token, "n": correction.version})))
    if typed is not None:
        made.append((FILL_IN, form or _("Fix in form"), written({"w": typed})))
    fitting = [each for each in made if len(each[2]) <= VALUE_CHARACTERS_MAX]
    if not fitting or len(message) > SECTION_CHARACTERS_MAX:
        return None
    first, *others = [button(*each) for each in fitting]
    return [
        section(message),
        {"type": "actions", "block_id": "quote.problem", "elements": [{**first, "style": "primary"}, *others]},
    ]


def choice_blocks(message: str, choices: Sequence[tuple[Correction, str]]) -> list[dict[str, Any]]:
    """Return the question which command is meant: each with a button that gives it, whose label is beside the correction."""
    rows = [
        {
            **section(_typed(correction.text)),
            "block_id": f"quote.choice.{number}",
            "accessory": button(REPAIR, label, written({"w": correction.text, "t": correction.token, "n": correction.version})),
        }
        for number, (correction, label) in enumerate(choices, start=1)
    ]
    return [section(message), *rows]


def choice_text(message: str, commands: Sequence[str]) -> str:
    """Return the question of `choice_blocks` without buttons: the person types the command that is meant."""
    return "\n".join((message, *map(_typed, commands)))


def _typed(command: str) -> str:
    return f"`/quote {escape(command)}`"


def cover_blocks(message: str) -> list[dict[str, Any]]:
    """Return the reply to a command that names no person: a button opens the form that offers the people."""
    choose = button(COVER, _("Set cover…"), "cover", style="primary")
    return [section(message), {"type": "actions", "block_id": "cover.problem", "elements": [choose]}]


def show_blocks(text: str, quote_id: str, version: int, label: str, action_id: str = SHOW) -> list[dict[str, Any]]:
    """Return a private answer with a button about the quote, which shows it if no other `action_id` is given."""
    there = value_text(ButtonValue(quote_id, version, None))
    return [section(text), {"type": "actions", "block_id": "quote.there", "elements": [button(action_id, label, there)]}]


def parse_typed(text: str) -> str | None:
    """Return the typed text of the button that opens the form, or None if this build did not write its value."""
    fields = read(text, {"w"})
    return fields["w"] if fields is not None and isinstance(fields["w"], str) else None


def parse_correction(text: str) -> Correction | None:
    """Return the correction that a button gives, or None if this build did not write its value."""
    fields = read(text, {"w", "t", "n"})
    if fields is None or not isinstance(fields["w"], str) or not _is_token(fields["t"]):
        return None
    version = fields["n"]
    return Correction(fields["w"], fields["t"], version) if version is None or (type(version) is int and version >= 1) else None


def _is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None
