"""Decision of one command in one transaction: the gate, then the loader, handler and saver of its kind (kinds.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from ledger.ledger import no_follow_ups
from ledger.records import AuditEvent, EffectIntent, Operation, Outcome
from quotebot import effects
from quotebot.commands.approvals import DelegateApprovals
from quotebot.commands.lifecycle import CloneQuote
from quotebot.commands.registry import (
    DecideApproval,
    ReviseQuote,
)
from quotebot.domain.access import INSIDER, NOBODY_ASKED, Circle, Refusal, Viewer, admit
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.execution.kinds import execute
from quotebot.execution.precompute import NOTHING, Precomputed, precompute
from quotebot.execution.run import KEEP_REFUSED_MS, Run, kind_of
from quotebot.handlers.decision import Asked, Decision, refused, turned_away
from quotebot.store import dead_letters as letter_store
from quotebot.store import quotes as store
from quotebot.store.rulesets import ActiveRuleset
from quotebot.views import approval_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.commands.registry import Payload
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

log = structlog.get_logger(__name__)


def as_it_came(at: int) -> int:
    """Return the time at which a command was received: it is judged by that."""
    return at


class Decider:
    """Command transaction by the current rules. Plain synchronous code: a transaction that is run again decides the same."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        *,
        vouched: Callable[[str], bool] = lambda _: True,
        follow: FollowUpDecision = no_follow_ups,
        judged_at: Callable[[int], int] = as_it_came,
    ) -> None:
        """`vouched` returns whether the people of a command's source count as members while Slack has given no answer about them.

        `follow` decides the follow-ups of a dead letter that a command retries or discards. `judged_at` maps the time at which a
        command was received to the time by which it is judged (both Unix ms); they differ while the clock is not trusted.
        """
        self._ledger = ledger
        self._judged_at = judged_at
        self._rules = rules
        self._active = ActiveRuleset(rules.ruleset)
        self._follow = follow
        self._vouched = vouched

    async def look_ahead(self) -> None:
        """Read a newly activated ruleset before a transaction needs it: parsing a large one there would block all writes.

        Raises DatabaseError and RulesetError as the transaction does, which reads again.
        """
        await self._ledger.database.read(self._active.read)

    def _now_ms(self) -> int:
        return self._ledger.clock.now_ms()

    async def precompute(self, operation: Operation) -> Precomputed:
        """Compute the results that the command's transaction needs and that can be computed before it."""
        quote = None
        if operation.action_kind in (ReviseQuote.kind, CloneQuote.kind):
            quote_id = operation.payload.get("quote_id", operation.aggregate_id)
            quote = await self._ledger.database.read(lambda tx: _readable(tx, quote_id))
        return precompute(operation, replace(self._rules, ruleset=self._active.known), quote)

    def decide(self, tx: Tx, operation: Operation, precomputed: Precomputed = NOTHING, circle: Circle = NOBODY_ASKED) -> Outcome:
        """Load, decide and save inside the open transaction. Raises NeedsNewerBuild for a command that this build cannot read.

        `precomputed` is the result of `precompute` for this operation. A retried command redraws its own card and, if it was a dead
        letter, that card.

        Raises ChannelUnaskedError if the decision depends on a channel that Slack was not queried about (`circle.asked`): members
        of a private channel may change its quotes.
        """
        outcome = self._outcome_of(tx, operation, precomputed, circle)
        if operation.source == "cli":
            outcome = _by_terminal_user(outcome, store.transport(tx, operation.id).get("terminal_user"))
        drawn = any(
            effect.effect_class == effects.CARD and effect.aggregate_id == operation.aggregate_id for effect in outcome.effects
        )
        again = () if drawn or not operation.attempts else standing_drawn(tx, operation)
        return replace(outcome, effects=(*outcome.effects, *again, *dead_letter_card_updated(tx, operation)))

    def _outcome_of(self, tx: Tx, operation: Operation, precomputed: Precomputed, circle: Circle) -> Outcome:
        self._rules = replace(self._rules, ruleset=self._active.read(tx))  # a newly activated ruleset applies at once
        now = self._now_ms()
        payload = precomputed.payload_of(operation)
        transport = store.transport(tx, operation.id)
        asked = Asked(
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            actor=operation.actor,
            team_id=operation.team_id,
            # a replay re-checks expiry
            received_at=self._judged_at(operation.received_at if operation.cycle == 1 else now),
            seen_version=operation.pinned_version if operation.aggregate_version is None else operation.aggregate_version,
            actor_name=transport.get("actor_name", ""),
            actor_type=operation.actor_type,
            # without a bot, the command line vouches for the users of its terminal
            actor_kind=kind_of(tx, operation.team_id, operation.actor, now=now, vouched=self._vouched(operation.source)),
            terminal_user=transport.get("terminal_user"),
        )
        admitted = self._admitted(asked)
        circle = INSIDER if operation.source == "cli" else circle  # a user of the machine's terminal can read its files
        viewer = replace(admitted, circle=circle) if isinstance(admitted, Viewer) else None
        run = Run(self._ledger, tx, operation, asked, viewer, self._rules, precomputed, now, self._vouched, self._follow)
        refusal = turned_away(asked, admitted, payload, operation.aggregate_id) or self._misnamed(operation, asked, payload)
        return _answered_at_terminal(operation, execute(run, payload) if refusal is None else run.kept(refusal))

    def _misnamed(self, operation: Operation, asked: Asked, payload: Payload) -> Decision | None:
        """Refuse a decision from a terminal unless this process's own settings map the terminal user to that person in Slack.

        The settings of the process that recorded it are not trusted: the terminal user chooses that process's environment.
        """
        if operation.source != "cli" or not isinstance(payload, DecideApproval | DelegateApprovals):
            return None
        if self._rules.terminal_users.get(asked.terminal_user or "") == asked.actor:
            return None
        text = approval_messages.misnamed(asked.terminal_user, asked.actor)
        refusal = refused(asked, operation.aggregate_id, None, "misnamed", text)
        facts = {"code": "misnamed", "actor": asked.actor, "asked": payload.kind}
        return replace(refusal, events=(AuditEvent("access.refused", operation.aggregate_id, after=facts),))

    def _admitted(self, asked: Asked) -> Viewer | Refusal | None:
        """Return the gate's decision about the actor; None for the scheduler."""
        if asked.actor_type == "system":
            return None
        return admit(asked.actor, asked.team_id, asked.actor_kind, self._rules.guest_reps)


def failure_answer(tx: Tx, operation: Operation, error: str, now_ms: int) -> tuple[EffectIntent, ...]:
    """Return the reply to the user of a failed command, in the quote's channel or where they typed, and the redrawn cards."""
    if operation.actor_type == "system":
        return dead_letter_card_updated(tx, operation)  # no user to answer; operators see the dead letter
    quote_id = parse_quote_id(operation.aggregate_id)  # None: the command creates a quote, or concerns none
    quote = None if quote_id is None else _readable(tx, quote_id)
    channel = operation.payload.get("channel") if quote is None else quote.channel
    text = messages.terminal(error, operation.correlation_id, quote_id)
    answer = effects.reply(operation.aggregate_id, operation.actor, channel, text, now_ms)
    return (answer, *(standing_drawn(tx, operation) if operation.attempts else ()), *dead_letter_card_updated(tx, operation))


def untrusted(operation: Operation, now_ms: int) -> Outcome:
    """Refuse a command if it or its quote differs from the audit. The answer contains no facts, and no card is drawn."""
    text = messages.history_broken(operation.correlation_id)
    answers: tuple[EffectIntent, ...] = ()
    if operation.actor_type != "system" and operation.source != "cli":
        answers = (effects.reply(operation.aggregate_id, operation.actor, None, text, operation.received_at),)
    response = {"code": "history_broken", "quote_id": parse_quote_id(operation.aggregate_id), "text": text}
    return Outcome("refused", response, answers, retain_until=now_ms + KEEP_REFUSED_MS)


def standing_drawn(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Return the effect that redraws the card of the command's quote: it shows which commands wait for a retry."""
    quote_id = parse_quote_id(operation.aggregate_id)
    if quote_id is None or _readable(tx, quote_id) is None:
        return ()
    return (effects.card(quote_id, store.root_effect_key(tx, quote_id)),)


def dead_letter_card_updated(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Return the effect that redraws the card of the dead letter that this command was, if it has one."""
    card = None if operation.cycle == 1 else letter_store.find(tx, f"op{operation.id}")
    return () if card is None else (effects.update_dead_letter(card.reference, card.post_key),)


def _readable(tx: Tx, quote_id: str) -> Quote | None:
    """Load a quote; None if its row cannot be read. Drawing the card may itself fail; that must not block the dead letter."""
    try:
        return store.load(tx, quote_id)
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError):
        log.exception("quote.unreadable", quote_id=quote_id)
        return None


def _answered_at_terminal(operation: Operation, outcome: Outcome) -> Outcome:
    """Remove the replies of a terminal command: the user reads the answer at the terminal, so Slack gets none."""
    if operation.source != "cli":
        return outcome
    return replace(outcome, effects=tuple(effect for effect in outcome.effects if effect.effect_class != effects.REPLY))


def _by_terminal_user(outcome: Outcome, terminal_user: str | None) -> Outcome:
    """Return the outcome with the terminal user in each of its events."""
    if terminal_user is None:
        return outcome
    named = (replace(event, after={**(event.after or {}), "terminal_user": terminal_user}) for event in outcome.events)
    return replace(outcome, events=tuple(named))
