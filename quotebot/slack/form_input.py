"""Parser of submitted forms. It returns a command, or an error for each invalid block. Local rules only, no ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.commands.payloads import RECIPIENT_CHARACTERS_MAX, CancelQuote, LoseQuote, MarkSent, SubmitQuote
from quotebot.domain.language import _
from quotebot.domain.quotes.quote import LOSS_CATEGORIES
from quotebot.slack.builder_input import read_creation, read_revision
from quotebot.slack.form_fields import Errors, Filled, Form, last_block, too_long
from quotebot.views import forms, lifecycle_messages, messages
from quotebot.views.blocks import parse_button_value
from quotebot.views.forms import CONTACT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def read_form(form: Form) -> Filled | Errors:
    """Return the content of the form, or every error by its block."""
    return too_long(form) or _READERS.get(form.view["callback_id"], _loss)(form)


def _sending(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.RECIPIENT: _(messages.UNREADABLE_FORM)}
    recipient = form.typed(forms.RECIPIENT) or form.typed(CONTACT)
    if not recipient:
        return {forms.RECIPIENT: _("Enter a name or an address.")}
    if len(recipient) > RECIPIENT_CHARACTERS_MAX:
        return {forms.RECIPIENT: lifecycle_messages.too_long("recipient", RECIPIENT_CHARACTERS_MAX)}
    return Filled(MarkSent(recipient), value.quote_id, value.version)


def _resubmission(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.APPROVER_NOTE: _(messages.UNREADABLE_FORM)}
    note = "\n".join(form.lines(forms.APPROVER_NOTE))
    if not note:
        return {forms.APPROVER_NOTE: _("Add a note for the approvers.")}
    return Filled(SubmitQuote(note, value.approval_id), value.quote_id, value.version)


def _cancellation(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.REASON: _(messages.UNREADABLE_FORM)}
    return Filled(CancelQuote("\n".join(form.lines(forms.REASON)) or None), value.quote_id, value.version)


def _loss(form: Form) -> Filled | Errors:
    value = parse_button_value(form.view.get("private_metadata") or "")
    if value is None:
        return {forms.REASON: _(messages.UNREADABLE_FORM)}
    category, details = LOSS_CATEGORIES.get(form.typed(forms.LOSS)), "\n".join(form.lines(forms.REASON))
    reason = ": ".join(filter(None, (category, details)))
    if not reason:
        return {forms.REASON: _("Add a reason.")}
    if len(details) > forms.DETAILS_CHARACTERS_MAX:  # the category stands before them in the reason
        return {forms.REASON: lifecycle_messages.too_long("reason", forms.DETAILS_CHARACTERS_MAX)}
    return Filled(LoseQuote(reason), value.quote_id, value.version)


_READERS: Final[Mapping[str, Callable[[Form], Filled | Errors]]] = {
    forms.CREATE_FORM: read_creation,
    forms.REVISE_FORM: read_revision,
    forms.SEND_FORM: _sending,
    forms.RESUBMIT_FORM: _resubmission,
    forms.CANCEL_FORM: _cancellation,
}

__all__ = ["Errors", "Filled", "Form", "last_block", "read_form"]
