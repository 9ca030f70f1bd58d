"""Execution of each kind of command: its loader, its handler and its saver, run in this order in one transaction.

A loader reads the state that the handler needs, or returns the outcome of a command that may not go on. A handler is pure (see
handlers/) and returns a Decision. A saver writes the decision and returns the outcome that completes the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ledger.gates import is_stopped
from ledger.keys import effect_key
from ledger.records import Effect, Outcome
from ledger.retention import close_aggregate
from quotebot import effects
from quotebot.commands.payloads import (
    AcceptQuote,
    ActOnCommand,
    ActOnEffect,
    AnnounceDeadLetter,
    AnswerMessage,
    CancelQuote,
    CloneQuote,
    CreateAnother,
    CreateByForm,
    CreateQuote,
    DecideApproval,
    DelegateApprovals,
    DiscardDeadLetter,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    NoteStaleDraft,
    PreviewLinks,
    ProposeQuote,
    ReadMessage,
    ReassignApproval,
    ReconcileCrm,
    RefreshCard,
    RemindApprover,
    ReplayCause,
    ResubmitDeadCommand,
    RetryDeadLetter,
    ReviseQuote,
    SendDigest,
    SetDigest,
    ShowHome,
    ShowOpsCard,
    SubmitQuote,
    SyncCrm,
)
from quotebot.commands.queries import Section
from quotebot.commands.registry import parse_stored
from quotebot.domain.access import Sight
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.language import _
from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import ApprovalState
from quotebot.execution import digests, membership
from quotebot.execution.crm_effects import status_pending
from quotebot.execution.extraction import answer_message, ask_model
from quotebot.execution.operator_actions import (
    act_on_command,
    act_on_effect,
    announce_dead_letter,
    discard_dead_letter,
    replay_cause,
    resubmit_dead_command,
    retry_dead_letter,
    show_ops_card,
)
from quotebot.execution.run import Run, answered_at_terminal, outcome_of, rules_for
from quotebot.handlers import approvals, crm, lifecycle
from quotebot.handlers import quotes as handlers
from quotebot.handlers.decision import Decision, Twin, access_refused, refused
from quotebot.store import approvals as approval_store
from quotebot.store import crm as crm_store
from quotebot.store import crm_mirror, generations, homes, schedule
from quotebot.store import quotes as store
from quotebot.store.quotes import offered
from quotebot.views import messages
from quotebot.views.document import document_set, seller_of, with_term_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.records import EffectIntent
    from quotebot.commands.payloads import SlotCommand
    from quotebot.commands.registry import Creation, Payload
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.crm_fields import Conflict
    from quotebot.domain.quotes.quote import Approval, Quote
    from quotebot.domain.rules import Rules

# Response codes after which the card that the user saw is redrawn.
_CARD_WAS_STALE: Final = frozenset({"stale", "wrong_state", "already_decided", "not_pending", "request_expired"})
WAITING_MAX: Final = 50  # open requests, the next due, about which a new delegate is asked at once
COPIES_MAX: Final = 50  # direct messages of one command; everybody is named in the thread, and may decide on the card

HOMES_AFTER_MS: Final = 2_000  # changes within this time share one drawing of a Home tab

P = TypeVar("P")
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Kind(Generic[P, L]):
    """Loader, handler and saver of the commands with one class of payload."""

    payload: type[P]
    load: Callable[[Run, P], L | Outcome]
    handle: Callable[[Run, P, L], Decision]
    save: Callable[[Run, P, L, Decision], Outcome]

    def execute(self, run: Run, payload: P) -> Outcome:
        """Load, handle and save one command."""
        loaded = self.load(run, payload)
        if isinstance(loaded, Outcome):
            return answered_at_terminal(run.operation, loaded)
        # Savers compute the keys of further effects from the number of those that the decision has.
        return self.save(run, payload, loaded, answered_at_terminal(run.operation, self.handle(run, payload, loaded)))


def execute(run: Run, payload: Payload) -> Outcome:
    """Execute one command inside its open transaction."""
    return KINDS[type(payload)].execute(run, payload)


# Commands about an existing quote.


@dataclass(frozen=True, slots=True)
class QuoteHead:
    """Head version of the quote that a command is about. `root` is the key of the effect that posted its card."""

    quote: Quote
    root: str


def load_head(run: Run, payload: Payload) -> QuoteHead | Outcome:
    """Load the quote that the command names, or refuse a command about a quote that its actor may not see in full."""
    tx, asked, quote_id = run.tx, run.asked, run.operation.aggregate_id
    quote = store.load(tx, quote_id)
    sight = Sight.NOTHING if quote is None else run.sight(quote)
    if quote is not None and sight is Sight.FULL:
        return QuoteHead(quote, store.root_effect_key(tx, quote_id))
    outlined = quote is not None and sight is Sight.OUTLINE
    text = messages.outline(quote) if quote is not None and outlined else messages.unknown_quote(quote_id)
    answers = () if asked.actor_type == "system" else (effects.reply(quote_id, asked.actor, None, text, asked.received_at),)
    response = {"code": "out_of_sight" if outlined else "unknown_quote", "quote_id": quote_id, "text": text}
    events = () if quote is None else (access_refused(asked, quote_id, payload, "out_of_sight"),)
    return Outcome("refused", response, answers, events, retain_until=run.now + run.rules.keep_refused_ms)


def save_version(run: Run, payload: Payload, head: QuoteHead, decision: Decision) -> Outcome:
    """Save the changed quote. Once it has ended, its operations, this one included, may be purged after `rules.keep_closed_ms`."""
    tx, quote = run.tx, head.quote
    if decision.quote is not None:
        store.save(tx, quote, decision.quote, run.asked.received_at)
        if run.rules.documents is not None and any(each.effect_class == effects.RENDER for each in decision.effects):
            documents = run.rules.documents
            if decision.quote.pricing.terms and run.rules.policy.term_names:
                documents = document_set(with_term_names(seller_of(documents.content), run.rules.policy.term_names))
            store.pin_documents(tx, quote.quote_id, decision.quote.version, documents, run.now)
            who = membership.known_person(tx, quote.team_id, quote.requester)
            if who is not None:
                store.pin_contact(tx, quote.quote_id, decision.quote.version, who.email, who.phone)
        replaced: tuple[EffectIntent, ...] = ()
        if decision.quote.version != quote.version:
            save_advice(run, decision.quote)
            replaced = _replaced_pdf(run, quote)
        owed = (*decision.effects, *status_pending(tx, quote, decision.quote), *_homes(run, quote, decision.quote), *replaced)
        decision = replace(decision, effects=(*owed, *copies_pending(run, quote, decision.quote, len(owed))))
    elif decision.response["code"] in _CARD_WAS_STALE:
        card = effects.card(quote.quote_id, head.root, always=decision.response["code"] == "stale")
        stale = copies_of_actor(run, payload)
        decision = replace(decision, effects=(*decision.effects, card, *stale))
    elif isinstance(payload, RefreshCard) and quote.approval is not None and decision.kind == "applied":
        owed = (*decision.effects, *_redrawn(run, quote.approval))
        decision = replace(decision, effects=(*owed, *_asked_now(run, quote, len(owed))))
    outcome = outcome_of(decision)
    if not is_final((decision.quote or quote).state):
        return outcome
    until = run.now + run.rules.keep_closed_ms
    if outcome.kind == "applied":
        close_aggregate(tx, quote.quote_id, until)
    return replace(outcome, retain_until=until)


def _replaced_pdf(run: Run, quote: Quote) -> tuple[EffectIntent, ...]:
    """Mark the delivered PDF of a version that is no longer the newest. One that is delivered later is marked then."""
    rows = run.tx.all("effects_of_aggregate", aggregate_id=quote.quote_id)
    files = [Effect.of(row) for row in rows if row["class"] == effects.FILE]
    uploads = [each for each in files if each.payload["version"] == quote.version and each.state == "delivered"]
    if not uploads:
        return ()
    upload = uploads[-1]
    noticed = any(row["parent_id"] == upload.id and row["class"] == effects.POST for row in rows)  # in place of the comment
    return effects.mark_replaced(upload, announces=upload.payload.get("announces", False) and not noticed)


def _homes(run: Run, before: Quote, after: Quote) -> tuple[EffectIntent, ...]:
    """Redraw the opened Home tabs of everyone for whom a request for approval opens, changes hands or closes."""
    if _asking(before) == _asking(after):
        return ()
    away = _delegations(run, after)
    asked = [
        user
        for quote in (before, after)
        if quote.approval is not None and quote.approval.state is ApprovalState.PENDING
        for user in run.rules.who_may_decide(quote.approval, quote.makers, away)
    ]
    people = approval_store.homes_to_redraw(run.tx, after.team_id, (*asked, *after.makers))
    return tuple(effects.home(user, after.team_id, run.now + HOMES_AFTER_MS) for user in people)


def _asking(quote: Quote) -> tuple[object, ...]:
    slots = () if quote.approval is None else tuple((slot.state, slot.asked, slot.assignee) for slot in quote.approval.slots)
    return quote.state, quote.version, slots


def copies_pending(run: Run, before: Quote, after: Quote, ordinal: int) -> tuple[EffectIntent, ...]:
    """Return the redraws of a changed request's direct messages, and a first one to each person whom it asks now.

    `ordinal` is the number of effects that the command enqueues before these.
    """
    redrawn = () if before.approval is None else _redrawn(run, before.approval)
    return () if after.approval == before.approval else (*redrawn, *_asked_now(run, after, ordinal + len(redrawn)))


def _asked_now(run: Run, quote: Quote, ordinal: int) -> tuple[EffectIntent, ...]:
    """Return a direct message to each person whom an open request asks and who has none yet."""
    approval = quote.approval
    if approval is None or approval.state is not ApprovalState.PENDING:
        return ()
    has_one = {copy.user_id for copy in approval_store.copies(run.tx, approval.approval_id)}
    asked = run.rules.who_may_decide(approval, quote.makers, _delegations(run, quote))
    users = [user for user in asked if user not in has_one][:COPIES_MAX]
    for number, user in enumerate(users, start=ordinal):
        post_key = effect_key(run.asked.operation_key, effects.DIRECT, number)
        approval_store.add_copy(run.tx, approval.approval_id, user, post_key, run.now)
    return tuple(effects.ask_directly(quote.quote_id, approval.approval_id, user) for user in users)


def copies_of_actor(run: Run, payload: Payload) -> tuple[EffectIntent, ...]:
    """Return the redraw of the direct message in which a person decided too late, if it was there."""
    if not isinstance(payload, DecideApproval):
        return ()
    copy = approval_store.copy_of(run.tx, payload.approval_id, run.asked.actor)
    if copy is None or not copy.shown:
        return ()
    return (effects.update_copy(run.operation.aggregate_id, copy.approval_id, copy.user_id, copy.awaited),)


def _redrawn(run: Run, approval: Approval) -> tuple[EffectIntent, ...]:
    """Return the redraws of a request that was open until now; the messages of one that had ended stay as they are."""
    if approval.state is not ApprovalState.PENDING:
        return ()
    return tuple(
        effects.update_copy(approval.quote_id, copy.approval_id, copy.user_id, copy.awaited)
        for copy in approval_store.copies(run.tx, approval.approval_id)
        if copy.shown
    )


def save_advice(run: Run, quote: Quote) -> None:
    """Store what the card of a newly priced version says about its approval."""
    advice = run.precomputed.advice_of(quote.pricing, run.rules)
    if advice is not None:
        store.insert_advice(run.tx, quote, advice, basis_of(run.rules.ruleset, run.rules.policy))


def submit(run: Run, payload: SubmitQuote, head: QuoteHead) -> Decision:
    """Request the approval of the head."""
    tx, asked, quote = run.tx, run.asked, head.quote
    earlier = approval_store.last_decided(tx, quote.quote_id)
    deciders = () if earlier is None else approval_store.last_deciders(tx, quote.quote_id)
    return approvals.submit(
        asked,
        quote,
        head.root,
        store.approval_count(tx, quote.quote_id, quote.version),
        _with_zones(run, quote),
        command=payload,
        generation=generations.current(tx),
        earlier=earlier,
        gone=frozenset(user for user in deciders if not run.is_member(user)),
        delegations=_delegations(run, quote),
        asked_today=approval_store.requested_today(tx, asked.actor, asked.received_at) if run.rules.summaries_per_day else 0,
        pdf_stopped=is_stopped(tx, effects.RENDER),
    )


def decide(run: Run, payload: DecideApproval, head: QuoteHead) -> Decision:
    """Apply one person's decision."""
    asked, quote_id = run.asked, head.quote.quote_id
    others = approval_store.acted_for_others(run.tx, quote_id, asked.actor, asked.terminal_user, run.rules.terminal_users)
    delegations = _delegations(run, head.quote)
    rules = _with_zones(run, head.quote)
    return approvals.decide(
        asked,
        payload,
        head.quote,
        head.root,
        rules,
        delegations=delegations,
        acted_for_others=others,
        pdf_stopped=is_stopped(run.tx, effects.RENDER),
    )


def follow_up(run: Run, payload: SlotCommand, head: QuoteHead) -> Decision:
    """Remind about, escalate or expire a slot that still waits; a person's reminder is about all of them."""
    delegations, found = _delegations(run, head.quote), approval_store.copies(run.tx, payload.approval_id)
    copies = {copy.user_id: copy.awaited for copy in found if copy.shown}
    rules = _with_zones(run, head.quote)
    return approvals.follow_up(run.asked, payload, head.quote, head.root, rules, delegations=delegations, copies=copies)


def _with_zones(run: Run, quote: Quote) -> Rules:
    """Return the rules with the time zones of the approvers, if the calendar of a policy counts their business hours."""
    stamp = None if quote.approval is None else quote.approval.policy
    timings = (run.rules.timing, *(() if stamp is None else (stamp.timing,)))
    if all(timing.calendar is None for timing in timings):
        return run.rules
    holders = (user for users in run.rules.approvers.values() for user in users)
    return replace(run.rules, zones=approval_store.zones_of(run.tx, quote.team_id, holders))


def _delegations(run: Run, quote: Quote) -> tuple[Delegation, ...]:
    return approval_store.delegations(run.tx, quote.team_id, run.asked.received_at)


def revise(run: Run, payload: ReviseQuote, head: QuoteHead) -> Decision:
    """Price other content as the next version."""
    rules = rules_for(run, head.quote.account, head.quote.crm_account)
    return lifecycle.revise(run.asked, payload, head.quote, head.root, rules)


def note_stale(run: Run, payload: NoteStaleDraft, head: QuoteHead) -> Decision:
    """Remind the requester of a quote that has not changed."""
    touched_at = schedule.touched_at(run.tx, head.quote.quote_id)
    return lifecycle.note_stale(run.asked, payload, head.quote, head.root, touched_at)


# Creations.


@dataclass(frozen=True, slots=True)
class Creating:
    """Creation that may go on. `original` is the quote to clone, None if it is unknown or `hidden` from the actor."""

    creation: Creation
    original: Quote | None = None
    hidden: bool = False
    token: str | None = None  # of a form or an offer, which creates at most one quote


def load_creation(run: Run, payload: Creation) -> Creating | Outcome:
    """Refuse a creation if the person created an identical quote within RESUBMISSION_MS before the reservation."""
    twin = store.find_twin(
        run.tx,
        requester=run.asked.actor,
        team_id=run.asked.team_id,
        asked_hash=run.precomputed.hash_of(payload),
        since=run.operation.received_at - handlers.RESUBMISSION_MS,
    )
    if twin is not None:
        return run.kept(handlers.resubmission(run.asked, payload, Twin(*twin)))
    return _with_original(run, payload)


def load_form(run: Run, payload: CreateByForm) -> Creating | Outcome:
    """Refuse a form that has created its quote. A second submission, even with other values, is answered with that quote.

    The form of an offer is also refused if its button has created the quote.
    """
    token = f"{run.asked.team_id}:{payload.token}"
    made = store.find_token_use(run.tx, token) or store.find_token_use(run.tx, payload.token)
    if made is not None:
        text = messages.already_created(made)
        return run.kept(refused(run.asked, made, payload.quote.channel, "already_created", text))
    loaded = load_creation(run, payload.quote)
    return replace(loaded, token=token) if isinstance(loaded, Creating) else loaded


def load_offer(run: Run, payload: CreateAnother) -> Creating | Outcome:
    """Load the creation of an offer, such as a refused resubmission. A second click is refused with the first quote.

    So is a click after the offer was edited in a form, which uses the same token.
    """
    asked, offer = run.asked, offered(run.tx, payload.token)
    if offer is None:
        return run.kept(handlers.refused_offer(asked, "offer_gone", None))
    if (offer.actor, offer.team_id) != (asked.actor, asked.team_id):
        return run.kept(handlers.refused_offer(asked, "not_your_offer", None))
    made = store.find_token_use(run.tx, payload.token) or store.find_token_use(run.tx, f"{asked.team_id}:{payload.token}")
    if made is not None:
        return run.kept(handlers.refused_offer(asked, "already_created", made))
    proposed = parse_stored(offer.action_kind, offer.payload)
    proposed = proposed.quote if isinstance(proposed, CreateByForm | ProposeQuote) else proposed
    assert isinstance(proposed, CreateQuote | CloneQuote)  # noqa: S101 -- every offer is a creation
    return replace(_with_original(run, proposed), token=payload.token)


def _with_original(run: Run, creation: Creation) -> Creating:
    if isinstance(creation, CreateQuote):
        return Creating(creation)
    if creation.version is None:
        original = store.load(run.tx, creation.quote_id)
    else:
        original = store.load_version(run.tx, creation.quote_id, creation.version)
    hidden = original is not None and run.sight(original) is not Sight.FULL
    return Creating(creation, None if hidden else original, hidden)


def create(run: Run, payload: Payload, loaded: Creating) -> Decision:
    """Create a quote, or clone one."""
    del payload
    asked, creation = run.asked, loaded.creation
    year = datetime.fromtimestamp(asked.received_at / 1000, tz=UTC).year

    def allocate() -> str:
        return store.next_quote_id(run.tx, year)

    if isinstance(creation, CreateQuote):
        rules = rules_for(run, creation.account, creation.crm_account)
        return handlers.create(asked, creation, allocate, rules, run.precomputed.price)
    account = creation.account or ("" if loaded.original is None else loaded.original.account)
    decision = lifecycle.clone(asked, creation, loaded.original, allocate, rules_for(run, account))
    if loaded.hidden:
        return replace(decision, events=(*decision.events, access_refused(asked, creation.quote_id, creation, "out_of_sight")))
    return decision


def propose(run: Run, payload: ProposeQuote, loaded: None) -> Decision:
    """Price the content of a message and ask its author to confirm it."""
    del loaded
    return handlers.propose(run.asked, payload, rules_for(run, payload.quote.account, payload.quote.crm_account))


def save_creation(run: Run, payload: Payload, loaded: Creating, decision: Decision) -> Outcome:
    """Insert the new quote and use up its token."""
    del payload
    if decision.quote is None:
        return run.kept(decision)
    store.insert(
        run.tx,
        decision.quote,
        operation_key=run.asked.operation_key,
        root_effect_key=handlers.root_key(run.asked.operation_key),
        asked_hash=run.precomputed.hash_of(loaded.creation),
        recorded_at=run.now,
        snapshot=run.precomputed.snapshot_of(decision.quote.pricing),
    )
    save_advice(run, decision.quote)
    if loaded.token is not None:
        store.use_token(run.tx, loaded.token, decision.quote.quote_id, run.now)
    return outcome_of(decision)


# Commands that concern no quote.


def load_nothing(run: Run, payload: Payload) -> None:
    """Load nothing: the command itself is enough."""


def save_nothing(run: Run, payload: Payload, loaded: object, decision: Decision) -> Outcome:
    """Save nothing beside the outcome: the handler decides about effects alone, or its loader has written already."""
    del payload, loaded
    return run.kept(decision)


def load_absences(run: Run, payload: DelegateApprovals) -> tuple[Delegation, ...]:
    """Load the absences of the absent person, and those in which the delegate takes part."""
    since = run.asked.received_at if payload.since is None else payload.since
    found = approval_store.delegations_of(run.tx, run.asked.team_id, payload.absent, since)
    own = tuple(each for each in found if each.absent == payload.absent)
    if payload.delegate is None:
        return own
    return tuple(dict.fromkeys((*own, *approval_store.delegations_of(run.tx, run.asked.team_id, payload.delegate, since))))


def delegate(run: Run, payload: DelegateApprovals, away: tuple[Delegation, ...]) -> Decision:
    """Delegate the user's decisions, or end that."""
    people = [user for user in (payload.absent, payload.delegate) if user is not None]
    rules = replace(run.rules, zones=approval_store.zones_of(run.tx, run.asked.team_id, people))
    return approvals.delegate(run.asked, payload, rules, away)


def save_delegation(run: Run, payload: DelegateApprovals, loaded: object, decision: Decision) -> Outcome:
    """Store a delegation, ask the delegate about the requests that wait, and redraw the cards that name the absent person.

    The command is retained while the delegation is in force, plus `rules.keep_refused_ms`.
    """
    del loaded
    if decision.kind == "applied":
        approval_store.delegate(run.tx, run.asked.operation_key, run.asked.team_id, payload, run.asked.received_at)
        people = approval_store.homes_to_redraw(run.tx, run.asked.team_id, [payload.absent])
        decision = replace(decision, effects=(*decision.effects, *(effects.home(user, run.asked.team_id) for user in people)))
        for quote_id, _ in approval_store.waiting(run.tx, run.asked.team_id, WAITING_MAX):
            quote = store.load(run.tx, quote_id)
            if quote is None or quote.approval is None:
                continue
            if payload.delegate is not None:
                decision = replace(decision, effects=(*decision.effects, *_asked_now(run, quote, len(decision.effects))))
            if payload.absent in run.rules.who_may_decide(quote.approval, quote.makers):
                card = effects.card(quote_id, store.root_effect_key(run.tx, quote_id))
                decision = replace(decision, effects=(*decision.effects, card))
    return replace(outcome_of(decision), retain_until=max(payload.until, run.now) + run.rules.keep_refused_ms)


def show_home(run: Run, payload: ShowHome, loaded: None) -> Decision:
    """Enqueue the App Home of the user."""
    del loaded
    not_before = run.now + payload.after_ms if payload.after_ms else None
    home = effects.home(payload.user, run.operation.team_id, not_before, always=payload.always)
    return Decision("applied", {"code": "home", "text": _(messages.HOME_FOLLOWS)}, None, (home,))


def save_home(run: Run, payload: ShowHome, loaded: None, decision: Decision) -> Outcome:
    """Store the section that the user chose."""
    del loaded
    section = next((each for each in Section if each == payload.section), None)
    choice = None if section is None else homes.HomeChoice(section, max(payload.page, 1))
    homes.keep(run.tx, run.operation.team_id, payload.user, choice, run.now)
    return run.kept(decision)


def preview_links(run: Run, payload: PreviewLinks, loaded: None) -> Decision:
    """Enqueue the previews. Whether everybody in the channel may see them is asked when they are sent."""
    del loaded
    links = {link.url: link.quote_id for link in payload.links}
    place = (payload.aggregate_id, run.operation.team_id, payload.channel, payload.ts)
    shown = effects.preview_links(*place, links, run.asked.received_at)
    return Decision("applied", {"code": "link_preview", "text": _(messages.PREVIEW_FOLLOWS)}, None, (shown,))


def save_mirrors(run: Run, payload: SyncCrm, loaded: None, decision: Decision) -> Outcome:
    """Delete the copies of kinds that are no longer mirrored."""
    del loaded
    crm_mirror.keep_only(run.tx, payload.mirrors)
    return run.kept(decision)


def load_conflict(run: Run, payload: ReconcileCrm) -> Conflict | None:
    """Load the difference; None if there is no such one."""
    return crm_store.find(run.tx, payload.conflict)


def save_reconciled(run: Run, payload: ReconcileCrm, loaded: object, decision: Decision) -> Outcome:
    """Settle the difference."""
    del loaded
    if decision.kind == "applied":
        crm_store.settle(run.tx, payload.conflict, payload.take, run.asked.actor, payload.reason.strip(), run.now)
    return run.kept(decision)


KINDS: Final[Mapping[type[Payload], Kind[Any, Any]]] = {
    kind.payload: kind
    for kind in (
        Kind(CreateQuote, load_creation, create, save_creation),
        Kind(CloneQuote, load_creation, create, save_creation),
        Kind(CreateByForm, load_form, create, save_creation),
        Kind(CreateAnother, load_offer, create, save_creation),
        Kind(SubmitQuote, load_head, submit, save_version),
        Kind(DecideApproval, load_head, decide, save_version),
        Kind(RemindApprover, load_head, follow_up, save_version),
        Kind(EscalateApproval, load_head, follow_up, save_version),
        Kind(ExpireApproval, load_head, follow_up, save_version),
        Kind(ReassignApproval, load_head, follow_up, save_version),
        Kind(ReviseQuote, load_head, revise, save_version),
        Kind(CancelQuote, load_head, lambda run, it, at: lifecycle.cancel(run.asked, it, at.quote, at.root), save_version),
        Kind(FinalizeQuote, load_head, lambda run, _, at: lifecycle.finalize(run.asked, at.quote, at.root), save_version),
        Kind(MarkSent, load_head, lambda run, it, at: lifecycle.mark_sent(run.asked, it, at.quote, at.root), save_version),
        Kind(AcceptQuote, load_head, lambda run, _, at: lifecycle.accept(run.asked, at.quote, at.root), save_version),
        Kind(LoseQuote, load_head, lambda run, it, at: lifecycle.lose(run.asked, it, at.quote, at.root), save_version),
        Kind(ExpireQuote, load_head, lambda run, it, at: lifecycle.expire(run.asked, it, at.quote, at.root), save_version),
        Kind(NoteStaleDraft, load_head, note_stale, save_version),
        Kind(RefreshCard, load_head, lambda run, _, at: lifecycle.refresh(run.asked, at.quote, at.root), save_version),
        Kind(ActOnEffect, load_head, lambda run, it, at: act_on_effect(run, it, at.quote, at.root), save_version),
        Kind(ActOnCommand, load_nothing, lambda run, it, _: act_on_command(run, it), save_nothing),
        Kind(DelegateApprovals, load_absences, delegate, save_delegation),
        Kind(ProposeQuote, load_nothing, propose, save_nothing),
        Kind(ReadMessage, load_nothing, lambda run, it, _: ask_model(run, it), save_nothing),
        Kind(AnswerMessage, load_nothing, lambda run, it, _: answer_message(run, it), save_nothing),
        Kind(ShowHome, load_nothing, show_home, save_home),
        Kind(PreviewLinks, load_nothing, preview_links, save_nothing),
        Kind(SetDigest, load_nothing, digests.set_digest, digests.save_digest),
        Kind(SendDigest, digests.load_morning, digests.send_digest, digests.save_morning),
        Kind(SyncCrm, load_nothing, lambda _, it, __: crm.sync(it), save_mirrors),
        Kind(
            ReconcileCrm,
            load_conflict,
            lambda run, it, found: crm.reconcile(run.asked, it, found, run.rules.operators),
            save_reconciled,
        ),
        Kind(AnnounceDeadLetter, load_nothing, lambda run, it, _: announce_dead_letter(run, it), save_nothing),
        Kind(RetryDeadLetter, load_nothing, lambda run, it, _: retry_dead_letter(run, it), save_nothing),
        Kind(DiscardDeadLetter, load_nothing, lambda run, it, _: discard_dead_letter(run, it), save_nothing),
        Kind(ResubmitDeadCommand, load_nothing, lambda run, it, _: resubmit_dead_command(run, it), save_nothing),
        Kind(ShowOpsCard, load_nothing, lambda run, it, _: show_ops_card(run, it), save_nothing),
        Kind(ReplayCause, load_nothing, lambda run, it, _: replay_cause(run, it), save_nothing),
    )
}
