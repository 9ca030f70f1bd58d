"""State of a quote's pending effects and commands as its card shows it, with the actions that people can take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledger.gates import Gate, family
from ledger.operator.actions import THROTTLED
from quotebot import effects
from quotebot.execution.operator_actions import LABELS
from quotebot.views import messages
from quotebot.views.card import CANCEL, CHECK, RETRY, PendingEffect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger.database import Tx
    from ledger.records import Effect
    from quotebot.execution.operator_actions import Label

COMMANDS_SHOWN_MAX: Final = 5  # the commands of one quote run one after another


def effect_lines(rows: Iterable[Effect], gates: Iterable[Gate]) -> tuple[PendingEffect, ...]:
    """Return the newest PDF and CRM effects as the card shows them; a PDF counts as delivered when its upload is."""
    latest = {LABELS[effect.effect_class]: effect for effect in rows if effect.effect_class in LABELS}
    held = {gate.name: gate for gate in gates if gate.state == "held"}
    return tuple(_line(label, effect, held) for label, effect in latest.items())


def pending_lines(tx: Tx, quote_id: str) -> tuple[str, ...]:
    """Return, as mrkdwn, the commands about a quote that wait for another attempt."""
    rows = tx.all("operations_to_retry", lane=quote_id)[:COMMANDS_SHOWN_MAX]
    return tuple(
        f"⏳ {row['action_kind'].partition('.')[2].replace('_', ' ')}: "
        f"{messages.retry_pending(row['correlation_id'], row['next_attempt_at'])}"
        for row in rows
    )


def _line(label: Label, effect: Effect, held: Mapping[str, Gate]) -> PendingEffect:
    ref = effect.correlation_id
    if effect.state in ("failed", "discarded"):
        return PendingEffect(label, "cancelled" if effect.state == "discarded" else "failed", ref, effect.last_error)
    if effect.state != "delivered":
        return _waiting_line(label, effect, _gate(effect, held))
    if effect.effect_class == effects.RENDER:
        return PendingEffect(label, "pending", ref)  # the upload follows
    link = (effect.result or {}).get("permalink")
    return PendingEffect(label, "delivered", ref, effect.external_ref if label == "CRM" else None, link)


def _waiting_line(label: Label, effect: Effect, gate: Gate | None) -> PendingEffect:
    """Return the line of an undelivered effect with its cause and its buttons.

    No retry is offered while only an operator can resume the class.
    """
    line = PendingEffect(label, "pending", effect.correlation_id, effect_id=effect.id, cycle=effect.cycle)
    cancels = () if effect.state == "uncertain" else (CANCEL,)
    if gate is not None and gate.until_at is None:
        return replace(line, state="paused", detail=gate.reason, since=gate.held_at, offers=(CHECK, *cancels))
    if effect.state == "uncertain":
        return replace(line, state="in doubt", detail=effect.last_error, offers=(RETRY, CHECK))
    if effect.attempts and effect.category not in (None, THROTTLED):
        return replace(line, state="retrying", detail=effect.last_error, offers=(RETRY, CHECK, CANCEL))
    if gate is not None:  # the first attempt follows when the hold ends
        return replace(line, state="retrying", detail=gate.reason, offers=(CHECK, *cancels))
    return line


def _gate(effect: Effect, held: Mapping[str, Gate]) -> Gate | None:
    """Return the gate that holds an effect's class; a hold without an end time takes precedence."""
    names = (effect.effect_class, family(effect.effect_class))
    found = [held[name] for name in names if name in held]
    return min(found, key=lambda gate: gate.until_at is not None, default=None)
