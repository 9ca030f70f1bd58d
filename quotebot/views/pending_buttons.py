"""Pending effects and commands of a quote: their texts, and their buttons Retry, Check and Skip, with their values.

A value names the row and the cycle that the user saw; a value of another build reads as None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain.language import N_, _
from quotebot.views.blocks import Json, button, confirm, named_version, read, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.domain.quotes.quote import Quote
    from quotebot.effects import Label

RETRY, CHECK, CANCEL = "owed.retry", "owed.check", "owed.cancel"  # action_ids, of an effect
RETRY_COMMAND, CHECK_COMMAND, CANCEL_COMMAND = "command.retry", "command.check", "command.cancel"
ROW_ID_DIGITS_MAX: Final = 18  # of a 64-bit id

_LABELS: Final = {
    RETRY: N_("Retry {name}"),
    CHECK: N_("Check {name}"),
    CANCEL: N_("Skip {name}"),
    RETRY_COMMAND: N_("Retry {name}"),
    CHECK_COMMAND: N_("Check {name} status"),
    CANCEL_COMMAND: N_("Cancel {name}"),
}


@dataclass(frozen=True, slots=True)
class EffectTexts:
    """Texts about an effect: its name on buttons and alone, a sentence for each of its states, and what skipping it means."""

    button: str
    name: str
    doing: str
    retrying: str
    is_uncertain: str
    paused: str
    missing: str
    skipping: str


_SALESFORCE_SILENT: Final = N_("Salesforce isn't responding. Retrying automatically.")
EFFECT_TEXTS: Final[Mapping[Label, EffectTexts]] = {
    "PDF": EffectTexts(
        "PDF",
        "PDF",
        N_("Creating the PDF"),
        N_("The PDF isn't ready yet. Retrying automatically."),
        N_("Checking whether the PDF arrived"),
        N_("PDFs are paused. This one follows automatically."),
        N_("No PDF yet"),
        N_("This version won't have a PDF."),
    ),
    "CRM": EffectTexts(
        N_("Salesforce"),
        N_("Salesforce"),
        N_("Writing to Salesforce"),
        _SALESFORCE_SILENT,
        N_("Checking whether Salesforce received it"),
        N_("Salesforce sync is paused. This quote syncs automatically when it resumes."),
        N_("Not in Salesforce yet"),
        N_("This quote won't be written to Salesforce."),
    ),
    "CRM status": EffectTexts(
        N_("Salesforce status"),
        N_("The status in Salesforce"),
        N_("Updating the status in Salesforce"),
        _SALESFORCE_SILENT,
        N_("Checking whether Salesforce received the status"),
        N_("Salesforce sync is paused. The status follows automatically."),
        N_("The status isn't in Salesforce yet"),
        N_("The status won't be written to Salesforce."),
    ),
    "CRM amount": EffectTexts(
        N_("Salesforce amount"),
        N_("The opportunity's amount in Salesforce"),
        N_("Updating the opportunity's amount in Salesforce"),
        _SALESFORCE_SILENT,
        N_("Checking whether Salesforce received the opportunity's amount"),
        N_("Salesforce sync is paused. The opportunity's amount follows automatically."),
        N_("The opportunity's amount isn't in Salesforce yet"),
        N_("The opportunity's amount won't be written to Salesforce."),
    ),
    "CRM stage": EffectTexts(
        N_("Salesforce stage"),
        N_("The opportunity's stage in Salesforce"),
        N_("Updating the opportunity's stage in Salesforce"),
        _SALESFORCE_SILENT,
        N_("Checking whether Salesforce received the opportunity's stage"),
        N_("Salesforce sync is paused. The opportunity's stage follows automatically."),
        N_("The opportunity's stage isn't in Salesforce yet"),
        N_("The opportunity's stage won't be written to Salesforce."),
    ),
    "CRM PDF": EffectTexts(
        N_("Salesforce PDF"),
        N_("The PDF in Salesforce"),
        N_("Updating the PDF in Salesforce"),
        _SALESFORCE_SILENT,
        N_("Checking whether Salesforce received the PDF"),
        N_("Salesforce sync is paused. The PDF follows automatically."),
        N_("The PDF isn't in Salesforce yet"),
        N_("The PDF won't be attached in Salesforce."),
    ),
}

Named = Literal["e", "o"]  # of an effect or of an operation


@dataclass(frozen=True, slots=True)
class PendingEffect:
    """Pending, delivered or ended effect of this quote on an external service.

    `detail` is the reason of a failure or a pause, or the external id after delivery. `link` is the URL of the delivered item, as
    returned by the service. `since` (Unix ms) is the start of a pause. `offers` are the action_ids of the buttons shown; they act
    on the effect `effect_id` in this `cycle`.
    """

    label: Label
    state: Literal["pending", "retrying", "in doubt", "paused", "delivered", "failed", "cancelled"]
    ref: str
    detail: str | None = None
    link: str | None = None
    since: int | None = None
    effect_id: int | None = None
    cycle: int = 1
    offers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """Unfinished command about the quote. `retried_at` (Unix ms) is its next attempt after a failed one, None before any.

    `offers` are the action_ids of the buttons shown; they act on the operation `operation_id` in this `cycle`.
    """

    name: str
    ref: str
    retried_at: int | None
    operation_id: int
    cycle: int
    offers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingEffectValue:
    """Subject of such a button when it was drawn: the effect, and the cycle that the user saw."""

    quote_id: str
    version: int
    effect_id: int
    cycle: int


@dataclass(frozen=True, slots=True)
class PendingCommandValue:
    """Subject of such a button when it was drawn: the command's operation, and the cycle that the user saw."""

    quote_id: str
    version: int
    operation_id: int
    cycle: int


def effect_buttons(quote: Quote, effect: PendingEffect) -> Json:
    """Return the row of buttons of an effect that offers any."""
    assert effect.effect_id is not None  # noqa: S101 -- an effect that offers buttons has an id
    value = pending_effect_value(PendingEffectValue(quote.quote_id, quote.version, effect.effect_id, effect.cycle))
    texts = EFFECT_TEXTS[effect.label]
    return _row(f"owed.{effect.label.lower().replace(' ', '_')}", effect.offers, _(texts.button), value, texts.skipping)


def command_buttons(quote: Quote, command: PendingCommand) -> Json:
    """Return the row of buttons of a command that offers any."""
    value = pending_command_value(PendingCommandValue(quote.quote_id, quote.version, command.operation_id, command.cycle))
    return _row(f"command.{command.operation_id}", command.offers, command.name, value, N_("The command won't run."))


def pending_effect_value(value: PendingEffectValue) -> str:
    """Return a button's value as text; `parse_pending_effect_value` reads it."""
    return written({"q": value.quote_id, "n": value.version, "e": value.effect_id, "c": value.cycle})


def parse_pending_effect_value(text: str) -> PendingEffectValue | None:
    """Return the value of a button, or None if this build did not write it."""
    found = _parsed(text, "e")
    return None if found is None else PendingEffectValue(*found)


def pending_command_value(value: PendingCommandValue) -> str:
    """Return a button's value as text; `parse_pending_command_value` reads it."""
    return written({"q": value.quote_id, "n": value.version, "o": value.operation_id, "c": value.cycle})


def parse_pending_command_value(text: str) -> PendingCommandValue | None:
    """Return the value of a button, or None if this build did not write it."""
    found = _parsed(text, "o")
    return None if found is None else PendingCommandValue(*found)


def _parsed(text: str, named: Named) -> tuple[str, int, int, int] | None:
    fields = read(text, {"q", "n", named, "c"})
    about = None if fields is None else named_version(fields["q"], fields["n"])
    if fields is None or about is None or not (_is_id(fields[named]) and _is_id(fields["c"])):
        return None
    return (*about, fields[named], fields["c"])


def _row(block_id: str, offers: tuple[str, ...], name: str, value: str, not_done: str) -> Json:
    elements = [_button(action_id, name, value, not_done) for action_id in offers]
    return {"type": "actions", "block_id": block_id, "elements": elements}


def _button(action_id: str, name: str, value: str, not_done: str) -> Json:
    cancels = action_id in (CANCEL, CANCEL_COMMAND)
    label = _(_LABELS[action_id], name=name)
    made = button(action_id, label, value, style="danger" if cancels else None)
    if not cancels:
        return made
    unchanged = _("The quote itself doesn't change.")
    sure = confirm(f"{label}?", f"{_(not_done)} {unchanged}", label, _("Go back"))
    return {**made, "confirm": {**sure, "style": "danger"}}


def _is_id(found: object) -> bool:
    return type(found) is int and found >= 1 and len(str(found)) <= ROW_ID_DIGITS_MAX
