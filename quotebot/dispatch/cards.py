"""Cards of quotes in their current state: the quote, its pending effects and commands, and the actions that people can take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ledger.gates import Gate, family
from ledger.operator.actions import THROTTLED
from ledger.records import Effect
from quotebot import effects
from quotebot.dispatch.services import unknown_quote
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import facts_of
from quotebot.domain.quotes.summaries import shown as may_be_shown
from quotebot.execution.operator_actions import LABELS
from quotebot.store import approvals, extractions
from quotebot.store import quotes as store
from quotebot.views import messages, price_rows
from quotebot.views.blocks import section
from quotebot.views.card import CANCEL, CHECK, RETRY, Card, PendingEffect, status_card

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger.database import Tx
    from quotebot.dispatch.services import Services
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Quote
    from quotebot.execution.operator_actions import Label

COMMANDS_SHOWN_MAX: Final = 5  # the commands of one quote run one after another


@dataclass(frozen=True, slots=True)
class CardState:
    """Everything that a card shows, read in one transaction."""

    quote: Quote
    pending: tuple[PendingEffect, ...]
    away: tuple[Delegation, ...]
    summary: str | None  # the model's, unless its figures are no longer among the facts
    commands: tuple[str, ...]  # the commands that wait for another attempt, as mrkdwn
    advice: Advice | None  # None if the version needs no approval, or if the rules have changed since it was priced


@dataclass(frozen=True, slots=True)
class QuoteCards:
    """Reads and draws the cards of quotes."""

    services: Services

    async def show(self, quote_id: str, viewer: Viewer) -> Card | None:
        """Draw a quote's card as far as the viewer may see it; None if the quote does not exist or may not be seen."""
        state = await self._read(quote_id)
        sight = Sight.NOTHING if state is None else may_see(viewer, state.quote)
        if state is None or sight is Sight.NOTHING:
            return None
        if sight is Sight.FULL:
            return self.draw(state)
        outline = messages.outline(state.quote)
        return Card(outline, [section(outline)])

    async def read(self, effect: Effect) -> CardState:
        """Read the card of an effect's quote. Raises AdapterError if there is no such quote."""
        state = await self._read(effect.aggregate_id)
        if state is None:
            raise unknown_quote(effect)
        return state

    async def _read(self, quote_id: str) -> CardState | None:
        return await self.services.ledger.database.read(lambda tx: self._state(tx, quote_id))

    def _state(self, tx: Tx, quote_id: str) -> CardState | None:
        quote = store.load(tx, quote_id)
        if quote is None:
            return None
        rows = [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=quote_id)]
        # effects of a superseded version do not belong on this card
        rows = [effect for effect in rows if effect.payload.get("version") in (None, quote.version)]
        gates = [Gate.of(row) for row in tx.all("all_gates")]
        summary = extractions.summary_of(tx, quote_id, quote.version)
        return CardState(
            quote,
            effect_lines(rows, gates),
            approvals.delegations(tx, quote.team_id, self.services.ledger.clock.now_ms()),
            None if summary is None else may_be_shown(summary, facts_of(quote)),
            pending_lines(tx, quote_id),
            store.load_advice(tx, quote, basis_of(self.services.active.read(tx), self.services.rules.policy)),
        )

    def draw(self, state: CardState) -> Card:
        """Return the card."""
        quote, rules = state.quote, self.services.rules
        approvers = () if quote.approval is None else rules.who_may_decide(quote.approval, quote.makers, state.away)
        decision = evaluate(quote.pricing, rules.policy)
        undecided = quote.state is QuoteState.PRICED and not decision.automatic
        shown = price_rows.rows(quote.pricing, rules.policy)
        easier: tuple[price_rows.Row, ...] = ()
        if undecided or quote.state is QuoteState.PENDING_APPROVAL:
            shown = (*shown, *price_rows.summary_row(state.summary))
            easier = () if state.advice is None else price_rows.avoidance_rows(state.advice.changes)
        return status_card(
            quote,
            state.pending,
            approvers=approvers,
            away=state.away,
            decision=decision,
            free_discount=state.advice.free_discount if state.advice is not None and undecided else None,
            figures=shown,
            easier=easier,
            pending=state.commands,
        )


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
