"""Card of a dead letter for operators, its Details view, and the form that asks for the reason of a discard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.resubmission import is_editable
from quotebot.domain.language import N_, _, ngettext
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import local_time, parse_quote_id
from quotebot.views import messages, operator_messages
from quotebot.views.blocks import Json, button, context, modal, mrkdwn, plain, read, section, text_input, written
from quotebot.views.card import Card

if TYPE_CHECKING:
    from ledger.operator.dead_letters import DeadLetter
    from quotebot.store.dead_letters import DeadLetterCard

RETRY, DISCARD, DETAILS, EDIT = "letter.retry", "letter.discard", "letter.details", "letter.edit"  # action_ids
DISCARD_FORM, EDIT_FORM = "letter.discard", "letter.resubmit"  # callback_ids
REASON: Final = "reason"
PAYLOAD: Final = "payload"
PAYLOAD_CHARACTERS_MAX: Final = 3000  # of a text input
REASON_CHARACTERS_MAX: Final = 500
ERROR_CHARACTERS_MAX: Final = 500
HISTORY_SHOWN_MAX: Final = 10
HEADER_CHARACTERS_MAX: Final = 150
TITLE_CHARACTERS_MAX: Final = 24

_STANDING: Final = {
    "pending": N_("⚠️ Needs attention"),
    "replaying": N_("⏳ Retrying"),
    "replayed": N_("✅ Done"),
    "discarded": N_("🗑️ Discarded"),
    "uncertain": N_("❔ Checking whether it went through"),
}

_ALWAYS_SAFE: Final = N_("always safe")
_SAFETY: Final = {"append": N_("checks first"), "keyed": N_("same key"), None: N_("re-evaluated")}


def dead_letter_value(letter: DeadLetter) -> str:
    """Return the value of a dead letter's buttons: its reference and the cycle that the operator saw."""
    return written({"l": letter.reference, "c": letter.cycle})


def parse_dead_letter_value(text: str) -> tuple[str, int] | None:
    """Return the dead letter's reference and the cycle that the operator saw, or None if this build did not write the value."""
    fields = read(text, {"l", "c"})
    if fields is None or not isinstance(fields["l"], str) or type(fields["c"]) is not int:
        return None
    digits = fields["l"].removeprefix("op")
    known = digits.isascii() and digits.isdigit() and len(digits) <= 18 and fields["c"] >= 1  # noqa: PLR2004 -- of a 64-bit id
    return (fields["l"], fields["c"]) if known else None


def dead_letter_card(letter: DeadLetter, card: DeadLetterCard | None) -> Card:
    """Render the card from the dead letter's current state. Retry and Discard are shown only while it waits for an operator."""
    head = _what(letter)
    gone_on = letter.status in ("replaying", "replayed")  # Details shows the earlier error
    facts = _standing(letter) if gone_on else _facts(letter)
    blocks: list[Json] = [
        {"type": "header", "text": plain(clipped(head, HEADER_CHARACTERS_MAX))},
        {"type": "section", "fields": [mrkdwn(f"*{name}*\n{fact}") for name, fact in facts.items()]},
        *([] if gone_on else [_last_error(letter)]),
        {"type": "actions", "block_id": "letter.actions", "elements": _buttons(letter)},
        *([] if card is None or card.decision is None else [context([_decided(card)])]),
    ]
    return Card(f"{head}: {_(_STANDING[letter.status])}", blocks)


def details_view(letter: DeadLetter) -> Json:
    """Return the Details view: everything an operator may need except the payload, which may name customers."""
    lines = [
        f"*{name}*: {fact}"
        for name, fact in {
            **_facts(letter),
            _("Target"): _code(letter.target),
            _("Retry safety"): _(_SAFETY.get(letter.semantics, _ALWAYS_SAFE)),
            _("Operation"): _code(letter.operation_key[:16]),
            _("At a terminal"): f"`quotebot dead show {letter.reference}`, `quotebot trace {letter.correlation_id}`",
        }.items()
    ]
    history = [_cycle(cycle) for cycle in letter.failure_history[-HISTORY_SHOWN_MAX:]]
    blocks = [section("\n".join(lines)), _last_error(letter)]
    if history:
        blocks.append(context(history))
    return {
        "type": "modal",
        "title": plain(clipped(_("Failed job {reference}", reference=letter.reference), TITLE_CHARACTERS_MAX)),
        "close": plain(_("Close")),
        "blocks": blocks,
    }


def discard_form(letter: DeadLetter) -> Json:
    """Return the form that asks for the reason of a discard."""
    sure = _("Discard this job? Anything waiting for it is dropped too. The record is kept.")
    return modal(
        DISCARD_FORM, _("Discard job"), _("Discard"), dead_letter_value(letter), [section(f"*{_what(letter)}*\n{sure}"), _why()]
    )


def edit_form(letter: DeadLetter, fields: Any) -> Json | None:
    """Return the form of an edited copy of a dead command, with its stored `fields`, or None if they are too long for it."""
    texts = (json.dumps(fields, ensure_ascii=False, indent=indent) for indent in (1, None))
    text = next((text for text in texts if len(text) <= PAYLOAD_CHARACTERS_MAX), None)
    if text is None:
        return None
    said = _("This runs as a new command of the same person, and the failed one is discarded.")
    blocks = [
        section(f"*{_what(letter)}*\n{said}"),
        text_input(PAYLOAD, _("Content (JSON)"), length_max=PAYLOAD_CHARACTERS_MAX, initial=text, multiline=True),
        _why(),
    ]
    return modal(EDIT_FORM, _("Edit and resubmit"), _("Resubmit"), dead_letter_value(letter), blocks)


def _why() -> Json:
    return text_input(REASON, _("Why?"), length_max=REASON_CHARACTERS_MAX, hint=_("For the audit."), multiline=True)


def parse_edited(view_state_values: Any) -> str:
    """Return the edited content from a submitted view's `state.values`; empty if there is none."""
    found = view_state_values
    for key in (PAYLOAD, PAYLOAD, "value"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _buttons(letter: DeadLetter) -> list[Json]:
    value = dead_letter_value(letter)
    details = button(DETAILS, _("Details"), value)
    if letter.status != "pending":
        return [details]
    edit = (
        [button(EDIT, _("Edit and resubmit"), value)]
        if letter.kind == "operation" and is_editable(letter.effect_class, letter.source)
        else []
    )
    retry = button(RETRY, _("Retry"), value, style="primary")
    return [retry, *edit, button(DISCARD, _("Discard"), value, style="danger"), details]


def _standing(letter: DeadLetter) -> dict[str, str]:
    return {
        _("Status"): _(_STANDING[letter.status]),
        _("About"): _code(letter.aggregate_id) if parse_quote_id(letter.aggregate_id) is None else letter.aggregate_id,
        _("Ref"): _code(letter.correlation_id),
        _("Command"): _code(letter.label),
    }


def _facts(letter: DeadLetter) -> dict[str, str]:
    failed_at = letter.last_attempt_at or letter.updated_at
    return {
        **_standing(letter),
        _("Failure"): _code(letter.category or "unknown"),
        _("Attempts"): _attempts(letter),
        _("Last tried"): local_time(failed_at),
    }


def _decided(card: DeadLetterCard) -> str:
    assert card.decision is not None  # noqa: S101 -- called only for a decided dead letter
    assert card.decided_by is not None  # noqa: S101 -- CHECK constraint of the table
    assert card.decided_at is not None  # noqa: S101 -- CHECK constraint of the table
    said = operator_messages.decided(card.decision, card.decided_by, card.decided_at)
    reason = "" if card.reason is None else f"\n{messages.quoted(clipped(card.reason, REASON_CHARACTERS_MAX))}"
    return f"{said[:1].upper()}{said[1:]}{reason}"


def _cycle(cycle: dict[str, Any]) -> str:
    replayed = cycle.get("replayed_at")
    told = {"cycle": cycle.get("cycle"), "attempts": cycle.get("attempts"), "error": _error(cycle.get("last_error"))}
    if replayed is None:
        return _("Cycle {cycle}: {attempts} attempts, {error}", **told)
    return _("Cycle {cycle}: {attempts} attempts, {error}, replayed {when}", **told, when=local_time(int(replayed)))


def _what(letter: DeadLetter) -> str:
    told = {"job": operator_messages.job(letter.effect_class), "reference": letter.reference}
    if parse_quote_id(letter.aggregate_id) is None:
        return _("{job} failed (#{reference})", **told)
    return _("{job} failed · {quote} (#{reference})", **told, quote=letter.aggregate_id)


def _attempts(letter: DeadLetter) -> str:
    count = ngettext("{n} attempt", "{n} attempts", letter.attempts)
    retried = letter.prior_replay_count
    if not retried:
        return count
    return ngettext("{attempts}, retried {n} time", "{attempts}, retried {n} times", retried, attempts=count)


def _last_error(letter: DeadLetter) -> Json:
    head = _("Last error")
    return section(f"*{head}*\n{_error(letter.last_error)}")


def _error(error: object) -> str:
    return messages.short(str(error or _("none is known")), ERROR_CHARACTERS_MAX)


def _code(text: str) -> str:
    return f"`{messages.short(text, 100).replace('`', '')}`"
