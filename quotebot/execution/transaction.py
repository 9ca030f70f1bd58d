"""Decision of one command in one transaction: load its aggregate, call the handler, save the handler's decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger.ledger import no_follow_ups
from ledger.records import AuditEvent, EffectIntent, Operation, Outcome
from ledger.retention import close_aggregate
from quotebot import effects
from quotebot.commands.approvals import DelegateApprovals, EscalateApproval, ExpireApproval, RemindApprover
from quotebot.commands.crm import CrmPayload, ReconcileCrm, SyncCrm
from quotebot.commands.extraction import AnswerMessage, ReadingPayload, ReadMessage
from quotebot.commands.lifecycle import CloneQuote, ExpireQuote, NoteStaleDraft, RefreshCard
from quotebot.commands.operations import ActOnEffect, LetterPayload, ShowHome
from quotebot.commands.registry import (
    CreateAnother,
    CreateByForm,
    CreateQuote,
    DecideApproval,
    ProposeQuote,
    SubmitQuote,
    parse_stored,
)
from quotebot.domain.access import INSIDER, NOBODY_ASKED, Circle, Refusal, Sight, Viewer, admit, may_see
from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.execution.crm_effects import status_pending
from quotebot.execution.extraction import ReadingWork
from quotebot.execution.operator_actions import DeadLetterActions, EffectActions
from quotebot.execution.precompute import NOTHING, Precomputed, content_hash, precompute
from quotebot.handlers import approvals, crm, escalation, expiry, lifecycle
from quotebot.handlers import quotes as handlers
from quotebot.handlers.access import out_of_sight, turned_away
from quotebot.handlers.decision import Asked, Decision, Twin, refused
from quotebot.store import approvals as approval_store
from quotebot.store import crm as crm_store
from quotebot.store import crm_mirror, generations, people, schedule, versions
from quotebot.store import dead_letters as letter_store
from quotebot.store import quotes as store
from quotebot.store.offers import offered
from quotebot.store.rulesets import ActiveRuleset
from quotebot.views import approval_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.commands.registry import ApartPayload, ApprovalPayload, Creation, Payload, QuotePayload
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

KEEP_REFUSED_MS: Final = 30 * 86_400_000
KEEP_CLOSED_MS: Final = 90 * 86_400_000  # retention of a quote's operations after the quote has ended

log = structlog.get_logger(__name__)


class ChannelUnaskedError(Exception):
    """A decision depends on the membership of a private channel. Nothing was written; the caller must query Slack first."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.channel = channel


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
        self._letters = DeadLetterActions(ledger, follow, rules.operators)
        self._steering = EffectActions(ledger, follow, rules.operators)
        self._vouched = vouched

    async def look_ahead(self) -> None:
        """Read a newly activated ruleset before a transaction needs it: parsing a large one there would block all writes.

        Raises DatabaseError and RulesetError as the transaction does, which reads again.
        """
        await self._ledger.database.read(self._active.read)

    def _now_ms(self) -> int:
        return self._ledger.clock.now_ms()

    def precompute(self, operation: Operation) -> Precomputed:
        """Compute the results that the command's transaction needs and that do not depend on it."""
        return precompute(operation, self._active.known)

    def decide(self, tx: Tx, operation: Operation, foreseen: Precomputed = NOTHING, circle: Circle = NOBODY_ASKED) -> Outcome:
        """Load, decide and save inside the open transaction. Raises NeedsNewerBuild for a command that this build cannot read.

        `foreseen` is the result of `precompute` for this operation. A retried command redraws its card and its dead letter's card.
        Raises ChannelUnaskedError if the decision depends on a channel that Slack was not queried about (`circle.asked`): members
        of a private channel may change its quotes.
        """
        outcome = self._outcome_of(tx, operation, foreseen, circle)
        if operation.source == "cli":
            outcome = _by_terminal_user(outcome, store.transport(tx, operation.id).get("terminal_user"))
        drawn = any(owed.effect_class == effects.CARD and owed.aggregate_id == operation.aggregate_id for owed in outcome.effects)
        again = () if drawn or not operation.attempts else standing_drawn(tx, operation)
        return replace(outcome, effects=(*outcome.effects, *again, *dead_letter_card_updated(tx, operation)))

    def _outcome_of(self, tx: Tx, operation: Operation, foreseen: Precomputed, circle: Circle) -> Outcome:
        self._rules = replace(self._rules, ruleset=self._active.read(tx))  # a newly activated ruleset applies at once
        payload = foreseen.payload_of(operation)
        transport = store.transport(tx, operation.id)
        asked = Asked(
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            actor=operation.actor,
            team_id=operation.team_id,
            # a replay re-checks expiry
            received_at=self._judged_at(operation.received_at if operation.cycle == 1 else self._now_ms()),
            seen_version=operation.pinned_version if operation.aggregate_version is None else operation.aggregate_version,
            actor_name=transport.get("actor_name", ""),
            actor_type=operation.actor_type,
            actor_kind=self._kind(tx, operation),
            terminal_user=transport.get("terminal_user"),
        )
        admitted = self._admitted(asked)
        circle = INSIDER if operation.source == "cli" else circle  # a user of the machine's terminal can read its files
        viewer = replace(admitted, circle=circle) if isinstance(admitted, Viewer) else None
        refusal = turned_away(asked, admitted, payload, operation.aggregate_id) or self._misnamed(operation, asked, payload)
        if refusal is not None:
            outcome = _outcome(refusal)
        elif isinstance(payload, CreateQuote | CloneQuote):
            outcome = self._create(tx, asked, payload, foreseen, viewer, reserved_at=operation.received_at)
        elif isinstance(payload, CreateByForm):
            outcome = self._create_by_form(tx, asked, payload, foreseen, viewer, reserved_at=operation.received_at)
        elif isinstance(payload, CreateAnother):
            outcome = self._create_another(tx, asked, payload, viewer)
        elif isinstance(payload, LetterPayload | ShowHome | ProposeQuote | ReadingPayload | DelegateApprovals | CrmPayload):
            return _answered_at_terminal(operation, self._apart(tx, asked, payload, operation.team_id))
        else:
            return _answered_at_terminal(operation, self._change(tx, asked, payload, operation.aggregate_id, viewer))
        outcome = _answered_at_terminal(operation, outcome)
        if outcome.kind == "refused":  # there is no quote whose end would set the retention period
            return replace(outcome, retain_until=self._now_ms() + KEEP_REFUSED_MS)
        return outcome

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

    def _kind(self, tx: Tx, operation: Operation) -> str:
        """Return the actor's kind from Slack's last answer. Without one that counts, `vouched` decides by the source.

        Without a bot, the command line vouches for the users of its terminal.
        """
        return self._kind_of(tx, operation.team_id, operation.actor, operation.source)

    def _kind_of(self, tx: Tx, team_id: str, user: str, source: str) -> str:
        found = people.known(tx, team_id, user)
        if found is not None and found.counts_at(self._now_ms()):
            return found.kind
        if self._vouched(source):
            return "member" if found is None else found.kind
        return "unknown"

    def _admitted(self, asked: Asked) -> Viewer | Refusal | None:
        """Return the gate's decision about the actor; None for the scheduler."""
        if asked.actor_type == "system":
            return None
        return admit(asked.actor, asked.team_id, asked.actor_kind, self._rules.guest_reps)

    def _create(
        self, tx: Tx, asked: Asked, payload: Creation, foreseen: Precomputed, viewer: Viewer | None, *, reserved_at: int
    ) -> Outcome:
        """Create the quote, unless the person created an identical one within RESUBMISSION_MS before the reservation."""
        asked_hash = foreseen.hash_of(payload)
        since = reserved_at - handlers.RESUBMISSION_MS
        twin = store.find_twin(tx, requester=asked.actor, team_id=asked.team_id, asked_hash=asked_hash, since=since)
        if twin is not None:
            return _outcome(handlers.resubmission(asked, payload, Twin(*twin)))
        return _outcome(self._make(tx, asked, payload, asked_hash, foreseen, viewer))

    def _create_by_form(
        self, tx: Tx, asked: Asked, payload: CreateByForm, foreseen: Precomputed, viewer: Viewer | None, *, reserved_at: int
    ) -> Outcome:
        """Create the quote of a form, once per form. A second submission, even with other values, is answered with that quote."""
        token = f"{asked.team_id}:{payload.token}"
        made = store.find_token_use(tx, token)
        if made is not None:
            return _outcome(handlers.already_made(asked, made, payload.quote.channel))
        outcome = self._create(tx, asked, payload.quote, foreseen, viewer, reserved_at=reserved_at)
        if outcome.kind == "applied":
            store.use_token(tx, token, outcome.response["quote_id"], self._now_ms())
        return outcome

    def _create_another(self, tx: Tx, asked: Asked, payload: CreateAnother, viewer: Viewer | None) -> Outcome:
        """Create the quote of an offer, such as a refused resubmission, once. A second click is refused with the first quote."""
        offer = offered(tx, payload.token)
        if offer is None:
            return _outcome(handlers.refused_offer(asked, "offer_gone", None))
        if (offer.actor, offer.team_id) != (asked.actor, asked.team_id):
            return _outcome(handlers.refused_offer(asked, "not_your_offer", None))
        made = store.find_token_use(tx, payload.token)
        if made is not None:
            return _outcome(handlers.refused_offer(asked, "already_created", made))
        proposed = parse_stored(offer.action_kind, offer.payload)
        proposed = proposed.quote if isinstance(proposed, CreateByForm | ProposeQuote) else proposed
        assert isinstance(proposed, CreateQuote | CloneQuote)  # noqa: S101 -- every offer is a creation
        decision = self._make(tx, asked, proposed, content_hash(proposed), NOTHING, viewer)
        if decision.quote is not None:
            store.use_token(tx, payload.token, decision.quote.quote_id, self._now_ms())
        return _outcome(decision)

    def _make(
        self, tx: Tx, asked: Asked, payload: Creation, asked_hash: str, foreseen: Precomputed, viewer: Viewer | None
    ) -> Decision:
        year = datetime.fromtimestamp(asked.received_at / 1000, tz=UTC).year

        def allocate() -> str:
            return store.next_quote_id(tx, year)

        if isinstance(payload, CloneQuote):
            original = _original(tx, payload)
            if original is not None and self._sight(viewer, original) is not Sight.FULL:
                decision = lifecycle.clone(asked, payload, None, allocate, self._rules)
                return replace(decision, events=(*decision.events, out_of_sight(asked, payload.quote_id, payload)))
            decision = lifecycle.clone(asked, payload, original, allocate, self._rules)
        else:
            decision = handlers.create(asked, payload, allocate, self._rules, foreseen.price)
        if decision.quote is not None:
            store.insert(
                tx,
                decision.quote,
                operation_key=asked.operation_key,
                root_effect_key=handlers.root_key(asked.operation_key),
                asked_hash=asked_hash,
                recorded_at=self._now_ms(),
                snapshot=foreseen.snapshot_of(decision.quote.pricing),
            )
        return decision

    def _delegate(self, tx: Tx, asked: Asked, payload: DelegateApprovals) -> Outcome:
        """Store a delegation. The command is retained while the delegation is in force, plus KEEP_REFUSED_MS."""
        since = asked.received_at if payload.since is None else payload.since
        away = () if payload.delegate is None else approval_store.delegations_of(tx, asked.team_id, payload.delegate, since)
        decision = escalation.delegate(asked, payload, self._rules, away)
        now = self._now_ms()
        if decision.kind == "applied":
            approval_store.delegate(tx, asked.operation_key, asked.team_id, payload, asked.received_at)
        return replace(_outcome(decision), retain_until=max(payload.until, now) + KEEP_REFUSED_MS)

    def _apart(self, tx: Tx, asked: Asked, payload: ApartPayload, team_id: str) -> Outcome:  # noqa: PLR0911 -- one per kind
        """Decide a command that concerns no quote."""
        now = self._now_ms()
        keep_until = now + KEEP_REFUSED_MS
        match payload:
            case DelegateApprovals():
                return self._delegate(tx, asked, payload)
            case ProposeQuote():
                return replace(_outcome(handlers.propose(asked, payload, self._rules)), retain_until=keep_until)
            case ReadMessage() | AnswerMessage():
                decided = ReadingWork(self._rules).decide(tx, asked, payload, now)
                return replace(_outcome(decided), retain_until=keep_until)
            case ShowHome():
                owed = effects.home(payload.user, team_id, now + payload.after_ms if payload.after_ms else None)
                return Outcome("applied", {"code": "home", "text": messages.home_follows()}, (owed,), retain_until=keep_until)
            case SyncCrm():
                crm_mirror.keep_only(tx, payload.mirrors)
                return replace(_outcome(crm.sync(payload)), retain_until=keep_until)
            case ReconcileCrm():
                return replace(_outcome(_reconciled(tx, asked, payload, now)), retain_until=keep_until)
            case _:
                return replace(_outcome(self._letters.decide(tx, asked, payload, now)), retain_until=keep_until)

    def _change(self, tx: Tx, asked: Asked, payload: QuotePayload, quote_id: str, viewer: Viewer | None) -> Outcome:
        quote = store.load(tx, quote_id)
        sight = Sight.NOTHING if quote is None else self._sight(viewer, quote)
        if quote is None or sight is not Sight.FULL:
            outlined = quote is not None and sight is Sight.OUTLINE
            text = messages.outline(quote) if quote is not None and outlined else messages.unknown_quote(quote_id)
            answers = () if asked.actor_type == "system" else (effects.reply(quote_id, asked.actor, None, text, asked.received_at),)
            response = {"code": "out_of_sight" if outlined else "unknown_quote", "quote_id": quote_id, "text": text}
            events = () if quote is None else (out_of_sight(asked, quote_id, payload),)
            return Outcome("refused", response, answers, events, retain_until=self._now_ms() + KEEP_REFUSED_MS)
        root = store.root_effect_key(tx, quote_id)
        decision = self._decide_about(tx, asked, payload, quote, root)
        if decision.quote is not None:
            versions.save(tx, quote, decision.quote, asked.received_at)
            decision = replace(decision, effects=(*decision.effects, *status_pending(tx, quote, decision.quote)))
        elif decision.response["code"] in _CARD_WAS_STALE:
            decision = replace(decision, effects=(*decision.effects, effects.card(quote_id, root)))
        return self._kept(tx, decision.quote or quote, _outcome(decision))

    def _sight(self, viewer: Viewer | None, quote: Quote) -> Sight:
        """Return how much of a quote the command's actor sees; the scheduler, which is no viewer, sees everything."""
        if viewer is None:
            return Sight.FULL
        sight = may_see(viewer, quote)
        if sight is not Sight.OUTLINE:
            return sight
        if viewer.user in self._rules.role_holders:
            return Sight.FULL
        if quote.channel not in viewer.circle.asked:
            raise ChannelUnaskedError(quote.channel)
        return sight

    def _decide_about(self, tx: Tx, asked: Asked, payload: QuotePayload, quote: Quote, root: str) -> Decision:
        match payload:
            case SubmitQuote() | DecideApproval() | RemindApprover() | EscalateApproval() | ExpireApproval():
                return self._decide_approval(tx, asked, payload, quote, root)
            case ExpireQuote():
                return expiry.expire(asked, payload, quote, root)
            case NoteStaleDraft():
                return expiry.note_stale(asked, payload, quote, root, schedule.touched_at(tx, quote.quote_id))
            case RefreshCard():
                return lifecycle.refresh(asked, quote, root)
            case ActOnEffect():
                return self._steering.decide(tx, asked, payload, quote, root)
            case _:
                return lifecycle.change(asked, payload, quote, root, self._rules)

    def _decide_approval(self, tx: Tx, asked: Asked, payload: ApprovalPayload, quote: Quote, root: str) -> Decision:
        away = approval_store.delegations(tx, quote.team_id, asked.received_at)
        if isinstance(payload, SubmitQuote):
            requests = store.approval_count(tx, quote.quote_id, quote.version)
            earlier = approval_store.last_decided(tx, quote.quote_id)
            deciders = () if earlier is None else approval_store.last_deciders(tx, quote.quote_id)
            gone = frozenset(user for user in deciders if self._kind_of(tx, quote.team_id, user, "slack") != "member")
            generation = generations.current(tx)
            today = approval_store.requested_today(tx, asked.actor, asked.received_at) if self._rules.summaries_per_day else 0
            return approvals.submit(
                asked,
                quote,
                root,
                requests,
                self._rules,
                generation=generation,
                earlier=earlier,
                gone=gone,
                delegations=away,
                asked_today=today,
            )
        if isinstance(payload, DecideApproval):
            people_at_terminals = self._rules.terminal_users
            others = approval_store.acted_for_others(tx, quote.quote_id, asked.actor, asked.terminal_user, people_at_terminals)
            return approvals.decide(asked, payload, quote, root, self._rules, delegations=away, acted_for_others=others)
        return escalation.follow_up(asked, payload, quote, root, self._rules, delegations=away)

    def _kept(self, tx: Tx, quote: Quote, outcome: Outcome) -> Outcome:
        """Set the retention of a quote that has ended: its operations, this one included, may be purged after KEEP_CLOSED_MS."""
        if not is_final(quote.state):
            return outcome
        until = self._now_ms() + KEEP_CLOSED_MS
        if outcome.kind == "applied":
            close_aggregate(tx, quote.quote_id, until)
        return replace(outcome, retain_until=until)


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


# Response codes after which the card that the user saw is redrawn.
_CARD_WAS_STALE: Final = frozenset({"stale", "wrong_state", "already_decided", "not_pending", "request_expired"})


def _reconciled(tx: Tx, asked: Asked, payload: ReconcileCrm, now: int) -> Decision:
    conflict = crm_store.find(tx, payload.conflict)
    decision = crm.reconcile(asked, payload, conflict)
    if decision.kind == "applied":
        crm_store.settle(tx, payload.conflict, payload.take, asked.actor, payload.reason.strip(), now)
    return decision


def _original(tx: Tx, payload: CloneQuote) -> Quote | None:
    if payload.version is None:
        return store.load(tx, payload.quote_id)
    return store.load_version(tx, payload.quote_id, payload.version)


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


def _outcome(decision: Decision) -> Outcome:
    response: dict[str, Any] = decision.response
    return Outcome(decision.kind, response, decision.effects, decision.events)
