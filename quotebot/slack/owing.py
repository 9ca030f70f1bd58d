"""The buttons under what a quote still owes to the outside: Retry, status, Cancel, where each may help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.slack.parts import Json, button, confirm
from quotebot.slack.values import named_version, read, written

if TYPE_CHECKING:
    from quotebot.domain.quotes import Quote
    from quotebot.slack.cards import OwedEffect

RETRY, CHECK, CANCEL = "owed.retry", "owed.check", "owed.cancel"  # action_ids
ROW_ID_DIGITS_MAX: Final = 18  # of a 64-bit id

_LABELS: Final = {RETRY: "Retry {}", CHECK: "Check {} status", CANCEL: "Cancel {}"}
_NOT_DONE: Final = {"PDF": "The PDF is not made and not shared here.", "CRM": "The quote is not written to Salesforce."}


@dataclass(frozen=True, slots=True)
class OwedValue:
    """What such a button was about when it was drawn: the effect, and in which of its cycles the person saw it."""

    quote_id: str
    version: int
    effect_id: int
    cycle: int


def owed_blocks(quote: Quote, owed: tuple[OwedEffect, ...]) -> list[Json]:
    """Return one row of buttons per thing that people can do something about."""
    return [
        {
            "type": "actions",
            "block_id": f"owed.{effect.label.lower()}",
            "elements": [_button(quote, effect, action_id) for action_id in effect.offers],
        }
        for effect in owed
        if effect.offers
    ]


def owed_value(value: OwedValue) -> str:
    """Return what a button carries, as text; `parse_owed_value` reads it."""
    return written({"q": value.quote_id, "n": value.version, "e": value.effect_id, "c": value.cycle})


def parse_owed_value(text: str) -> OwedValue | None:
    """Return what a button carried, or None when it is not a value this build wrote."""
    fields = read(text, {"q", "n", "e", "c"})
    about = None if fields is None else named_version(fields["q"], fields["n"])
    if fields is None or about is None or not (_is_id(fields["e"]) and _is_id(fields["c"])):
        return None
    return OwedValue(*about, fields["e"], fields["c"])


def _button(quote: Quote, effect: OwedEffect, action_id: str) -> Json:
    assert effect.effect_id is not None  # noqa: S101 -- what is offered is about something
    value = owed_value(OwedValue(quote.quote_id, quote.version, effect.effect_id, effect.cycle))
    made = button(action_id, _LABELS[action_id].format(effect.label), value, style="danger" if action_id == CANCEL else None)
    if action_id != CANCEL:
        return made
    text = f"{_NOT_DONE[effect.label]} The quote itself stays as it is."
    return {**made, "confirm": {**confirm(f"Cancel {effect.label}?", text, f"Cancel {effect.label}", "Keep it"), "style": "danger"}}


def _is_id(found: object) -> bool:
    return type(found) is int and found >= 1 and len(str(found)) <= ROW_ID_DIGITS_MAX
