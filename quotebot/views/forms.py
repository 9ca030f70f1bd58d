"""Forms about a quote's content, its approval and its end, as Block Kit views. slack/form_input.py parses their input.

A form's private_metadata holds, versioned, its subject as it was when the form was opened.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import REASON_CHARACTERS_MAX, RECIPIENT_CHARACTERS_MAX
from quotebot.domain import money
from quotebot.domain.language import _
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import LOSS_CATEGORIES, RECORD_ID, Approval, ChosenOpportunity, Listed, Quote, state_words, title
from quotebot.views import lifecycle_messages, messages
from quotebot.views.approval_messages import INCIDENT_EXAMPLE
from quotebot.views.blocks import ButtonValue, Json, modal, option, plain, read, section, text_input, value_text, written
from quotebot.views.card import button_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from adapters.salesforce.records import OpenOpportunity

FOUND: Final = "quote.account_found"  # block_id and action_id of the menu of accounts
OPPORTUNITY: Final = "quote.opportunity"  # prefix; a hash of the account follows, so that another account's menu starts empty
CONTACT: Final = "quote.contact_found"  # block_id and action_id of the menu of contacts
OFFERED: Final = re.compile(r"^quote\.opportunity\.")
ACCOUNT_CHARACTERS_MAX: Final = 100
OPTION_CHARACTERS_MAX: Final = 75
VALUE_CHARACTERS_MAX: Final = 150
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_KEPT: Final = ("type", "callback_id", "private_metadata", "title", "submit", "close", "blocks")  # copied to a redrawn view


@dataclass(frozen=True, slots=True)
class Choice:
    """Opportunity chosen in a form. `currency` is empty if Salesforce returned none."""

    opportunity: ChosenOpportunity
    currency: str


def account_input(*, with_more: bool) -> Json:
    """Return the menu of accounts. `with_more`: Slack reports the choice at once, so that the opportunities can be offered."""
    element = {
        "type": "external_select",
        "action_id": FOUND,
        "min_query_length": 2,
        "placeholder": plain(_("Search Salesforce accounts")),
    }
    block = {"type": "input", "block_id": FOUND, "label": plain(_("Account in Salesforce")), "optional": True, "element": element}
    return {**block, "dispatch_action": True} if with_more else block


def contact_input() -> Json:
    """Return the menu of the customer's contacts."""
    element = {
        "type": "external_select",
        "action_id": CONTACT,
        "min_query_length": 0,
        "placeholder": plain(_("Search contacts")),
    }
    return {"type": "input", "block_id": CONTACT, "label": plain(_("To which contact?")), "optional": True, "element": element}


def account_options(names: Sequence[str]) -> list[Json]:
    """Return the options of the menu of accounts. It omits names longer than 100 characters."""
    return [option(clipped(name, OPTION_CHARACTERS_MAX), name) for name in names if len(name) <= ACCOUNT_CHARACTERS_MAX]


def quote_options(quotes: Sequence[Quote | Listed]) -> list[Json]:
    """Return the options of the menu that searches quotes: each with its customer, number, state and total."""
    options = []
    for each in quotes:
        pricing = each.pricing if isinstance(each, Quote) else each
        net = money.format_amount(pricing.net_total, pricing.currency)
        tail = "".join(f" · {part}" for part in (title(each), state_words(each.state), net))
        account = clipped(messages.one_line(each.account), max(OPTION_CHARACTERS_MAX - len(tail), 10))
        value = value_text(ButtonValue(each.quote_id, each.version, None))
        options.append(option(clipped(f"{account}{tail}", OPTION_CHARACTERS_MAX), value))
    return options


def opportunity_options(found: Sequence[OpenOpportunity]) -> list[Json]:
    """Return the options of the menu of opportunities: each name with its closing date and stage."""
    options = []
    for each in found:
        tail = "".join(f" · {part}" for part in (each.closes, clipped(each.stage, 20)) if part)
        options.append(
            option(
                f"{clipped(each.name, OPTION_CHARACTERS_MAX - len(tail))}{tail}",
                " ".join(filter(None, (each.record_id, each.account_id, each.currency))),
            )
        )
    return options


def with_opportunities(view: Mapping[str, Any], account: str | None) -> Json | None:
    """Return the form with the menu of the account's opportunities; without an account, remove the menu.

    None if another build drew the form.
    """
    carried = remembered(view.get("private_metadata") or "")
    if carried is None:
        return None
    kept = {name: value for name, value in carried.items() if name not in ("v", "a")}
    blocks = [block for block in view["blocks"] if not OFFERED.match(str(block.get("block_id")))]
    if account is not None:
        after = next((index for index, block in enumerate(blocks) if block.get("block_id") == FOUND), -1)
        blocks.insert(after + 1, _opportunity_input(account))
        kept["a"] = account
    return drawn_again(view, kept, blocks)


def drawn_again(view: Mapping[str, Any], carried: Mapping[str, Any], blocks: list[Json]) -> Json:
    """Return an open form with other blocks and other metadata."""
    kept = {name: view[name] for name in _KEPT if view.get(name) is not None}
    return {**kept, "private_metadata": written(dict(carried)), "blocks": blocks}


def remembered(text: str) -> dict[str, Any] | None:
    """Return the stored fields of a creation form; None if this build did not write them.

    They are c, the channel; r and k, its lines and the number of the next one; t, a token; a, the account whose opportunities it
    offers.
    """
    kinds = ({"c", "r", "k", *more} for more in ((), ("t",), ("a",), ("t", "a")))
    return next((found for found in (read(text, names) for names in kinds) if found is not None), None)


def account_of(view: Mapping[str, Any]) -> str | None:
    """Return the account whose opportunities a form offers, or None if it offers none."""
    carried = remembered(view.get("private_metadata") or "")
    account = None if carried is None else carried.get("a")
    return account if isinstance(account, str) else None


def block_of(account: str) -> str:
    """Return the block_id of the menu of an account's opportunities."""
    return f"{OPPORTUNITY}.{hashlib.sha256(account.encode()).hexdigest()[:12]}"


def read_choice(value: str) -> Choice | None:
    """Return the opportunity of an option's value, or None if this build does not write such a value."""
    record_id, _space, rest = value.partition(" ")
    account_id, _space, currency = rest.partition(" ")
    if (
        not RECORD_ID.fullmatch(record_id)
        or not RECORD_ID.fullmatch(account_id)
        or (currency and not _CURRENCY.fullmatch(currency))
    ):
        return None
    return Choice(ChosenOpportunity(record_id, account_id), currency)


def _opportunity_input(account: str) -> Json:
    name = block_of(account)
    element = {
        "type": "external_select",
        "action_id": name,
        "min_query_length": 0,
        "placeholder": plain(clipped(_("Open opportunities for {account}", account=account), 150)),
    }
    hint = plain(_("Links the quote to this opportunity and updates its amount."))
    block = {"type": "input", "block_id": name, "label": plain(_("Opportunity")), "optional": True, "element": element}
    return {**block, "hint": hint}


CREATE_FORM, REVISE_FORM, SEND_FORM, LOSE_FORM = "quote.create", "quote.revise", "quote.send", "quote.lose"  # callback_ids
RESUBMIT_FORM, CANCEL_FORM = "quote.resubmit", "quote.cancel"  # callback_ids

FROM_MESSAGE: Final = "quote.from_message"  # callback_id of the shortcut on messages

ACCOUNT, TERM, DISCOUNT, CURRENCY, CHANNEL = "account", "term", "discount", "currency", "channel"  # block_ids
RECIPIENT, REASON, APPROVER_NOTE = "recipient", "reason", "approver_note"
LOSS: Final = "loss_category"  # block_id and action_id
TEXT = "terms"  # block_id of the typed part: whatever has no field of its own, as in a command

TEXT_CHARACTERS_MAX: Final = 2_900  # Slack's limit of a field is 3,000
SHORT_CHARACTERS_MAX: Final = 20
DETAILS_CHARACTERS_MAX: Final = REASON_CHARACTERS_MAX - max(len(f"{each}: ") for each in LOSS_CATEGORIES.values())


def send_form(quote: Quote, *, contacts: bool = False) -> Json:
    """Return the form that asks for the recipient of a finalized quote. The bot itself sends no mail.

    With `contacts`, the user may choose one of the customer's contacts in Salesforce instead of typing the recipient.
    """
    field = text_input(
        RECIPIENT,
        _("Not a contact? Type the name") if contacts else _("Who did you send it to?"),
        length_max=RECIPIENT_CHARACTERS_MAX,
        hint=_("For the record only. Quotebot doesn't send email."),
        example="buyer@acme.example",
        optional=contacts,
    )
    menu = [contact_input()] if contacts else []
    head = _("Mark as sent")
    return modal(SEND_FORM, head, head, button_value(quote), [section(about(quote)), *menu, field])


def lose_form(quote: Quote) -> Json:
    """Return the form that asks why a quote was lost: a category, and details."""
    category: Json = {
        "type": "input",
        "block_id": LOSS,
        "label": plain(_("Why was it lost?")),
        "element": {
            "type": "static_select",
            "action_id": LOSS,
            "options": [option(_(label), name) for name, label in LOSS_CATEGORIES.items()],
        },
    }
    example = _("20% over their budget")
    note = text_input(REASON, _("Details"), length_max=DETAILS_CHARACTERS_MAX, example=example, multiline=True, optional=True)
    head = _("Mark as lost")
    return modal(LOSE_FORM, head, head, button_value(quote), [section(about(quote)), category, note])


def cancel_form(quote: Quote) -> Json:
    """Return the form that cancels a quote, with an optional reason."""
    text = _("{quote}. You can't undo this, but you can clone it later.", quote=about(quote))
    field = text_input(REASON, _("Reason"), length_max=DETAILS_CHARACTERS_MAX, multiline=True, optional=True)
    head = _("Cancel quote")
    return {**modal(CANCEL_FORM, head, head, button_value(quote), [section(text), field]), "close": plain(_("Keep quote"))}


def resubmit_form(quote: Quote) -> Json:
    """Return the form that asks why nothing is changed, below the changes that were asked for."""
    wanted = None if quote.approval is None else quote.approval.decision_reason
    field = text_input(
        APPROVER_NOTE,
        _("Why is nothing changed?"),
        length_max=REASON_CHARACTERS_MAX,
        hint=_("The approvers will see this."),
        multiline=True,
    )
    asked = [] if wanted is None else [section("\n".join((_("Changes requested:"), messages.quoted(wanted))))]
    head, value = _("Resubmit as is"), button_value(quote, quote.approval)
    return modal(RESUBMIT_FORM, head, head, value, [section(about(quote)), *asked, field])


def about(quote: Quote) -> str:
    """Return the quote, its customer and its total as mrkdwn."""
    account = messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)
    named = lifecycle_messages.version_name(quote) if quote.version == 1 else title(quote)
    return _("*{quote}* for {account}, {net}", quote=named, account=account, net=messages.net(quote))


def channel_input() -> Json:
    """Return the menu of the channel in which the quote's card is posted."""
    return {
        "type": "input",
        "block_id": CHANNEL,
        "label": plain(_("Channel")),
        "hint": plain(_("Quotebot posts the quote here. Invite it first if it's a private channel.")),
        "optional": False,
        "element": {
            "type": "conversations_select",
            "action_id": CHANNEL,
            "default_to_current_conversation": True,
            "filter": {"include": ["public", "private"], "exclude_bot_users": True},
        },
    }


REJECT_CALLBACK = "approval.reject"
CHANGES_CALLBACK = "approval.request_changes"
APPROVE_CALLBACK = "approval.approve"


def reject_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the reason of a rejection."""
    return _reason_modal(REJECT_CALLBACK, _("Reject quote"), _("Reject"), _("Reason"), quote, approval)


def changes_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the changes required for approval."""
    return _reason_modal(CHANGES_CALLBACK, _("Request changes"), _("Request changes"), _("What needs to change?"), quote, approval)


def approve_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the written reason of an approval under dual control."""
    return _reason_modal(
        APPROVE_CALLBACK,
        _("Approve quote"),
        _("Approve"),
        _("Reason and incident number, like {example}", example=INCIDENT_EXAMPLE),
        quote,
        approval,
    )


def _reason_modal(callback_id: str, head: str, submit: str, question: str, quote: Quote, approval: Approval) -> dict[str, Any]:
    account = messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)
    summary = _(
        "*{quote}* for {account}, {net}, submitted by {requester}",
        quote=title(quote),
        account=account,
        net=messages.net(quote),
        requester=messages.mention(approval.requested_by),
    )
    hint = _("The requester will see this.")
    field = text_input(REASON, question, length_max=REASON_CHARACTERS_MAX, hint=hint, multiline=True)
    return modal(callback_id, head, submit, button_value(quote, approval), [section(summary), field])


COVER_FORM: Final = "cover.form"  # callback_id; the metadata holds the IANA name of the zone whose days are chosen
COVERED_BY, FIRST_DAY, LAST_DAY = "cover.person", "cover.first", "cover.last"  # block_ids


def cover_form(first: date, last: date, zone: str) -> Json:
    """Return the form with which an approver names who covers for them; `first` and `last` are proposed days in their `zone`."""
    person = {"type": "users_select", "action_id": COVERED_BY, "placeholder": plain(_("Pick a person"))}
    days = [
        _input(block_id, label, {"type": "datepicker", "action_id": block_id, "initial_date": day.isoformat()})
        for block_id, label, day in ((FIRST_DAY, _("From"), first), (LAST_DAY, _("Through"), last))
    ]
    blocks = [
        section(_("While you're away, this person is asked to approve instead of you.")),
        _input(COVERED_BY, _("Who covers for you?"), person),
        *days,
        text_input(REASON, _("Reason"), length_max=REASON_CHARACTERS_MAX, example=_("Vacation"), multiline=True, optional=True),
    ]
    return modal(COVER_FORM, _("Cover while you're away"), _("Save cover"), written({"z": zone}), blocks)


def _input(block_id: str, label: str, element: Json) -> Json:
    return {"type": "input", "block_id": block_id, "label": plain(label), "optional": False, "element": element}


def parse_rejection(view_state_values: Any) -> str | None:
    """Return the reason from a submitted view's `state.values`, or None if it is empty or longer than 500 characters."""
    found = view_state_values
    for key in (REASON, REASON, "value"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or len(found) > REASON_CHARACTERS_MAX:
        return None
    whole = found.encode("utf-8", "ignore").decode()  # drops lone surrogates
    lines = (messages.one_line(line) for line in whole.splitlines())
    reason = "\n".join(line for line in lines if line)
    return reason if 1 <= len(reason) <= REASON_CHARACTERS_MAX else None


def window(blocks: list[dict[str, Any]], title: str = "Quotebot") -> dict[str, Any]:
    """Return a modal that only shows blocks; `title` has at most 24 characters."""
    return {"type": "modal", "title": plain(title), "close": plain(_("Close")), "blocks": blocks}
