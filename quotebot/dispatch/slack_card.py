"""Effect class slack.card: the current state on a quote's card, a Home tab, or the card of a dead letter.

Each is drawn from the state at that moment, so drawing it twice converges. The same class marks the message of a PDF whose version
another one replaced, by a text that does not change.

A quote has one card, the root of its thread; if someone deletes it, a new card and thread follow. The effect that finds the message
gone (an update of the card, a notice in its thread) becomes needless; the new card, or a message below it, carries its content.
The same happens to a card whose channel another organization now shares: the new card is posted into a direct message with the
requester, and the old one is emptied. A card moves once; it stays in the direct message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import AdapterError, Failure
from ledger import keys
from ledger.gates import Gate, family
from ledger.operator.actions import THROTTLED
from ledger.records import AuditEvent, Delivered, Drop, Effect, FollowUps, Retry, Trouble
from quotebot import effects
from quotebot.dispatch import ops_cards
from quotebot.dispatch.ops_cards import GONE_CODES
from quotebot.dispatch.services import GONE, EffectHandler, announces, unknown_quote
from quotebot.domain.access import Refusal, Sight, admit, may_see
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.approvals.policy import approver_rows, evaluate
from quotebot.domain.language import N_, _
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import facts_of
from quotebot.domain.quotes.summaries import shown as may_be_shown
from quotebot.execution import membership
from quotebot.execution.executor import PENDING_MS
from quotebot.store import approvals, homes, quotes
from quotebot.views import messages
from quotebot.views.blocks import section
from quotebot.views.card import (
    Card,
    PriceRow,
    avoidance_rows,
    price_rows,
    status_card,
    summary_row,
)
from quotebot.views.home import home_view, refused_view
from quotebot.views.operator_messages import failure_words
from quotebot.views.pending_buttons import (
    CANCEL,
    CANCEL_COMMAND,
    CHECK,
    CHECK_COMMAND,
    RETRY,
    RETRY_COMMAND,
    PendingCommand,
    PendingEffect,
)
from quotebot.views.seals import Seals
from quotebot.views.work_queue import Reader, load_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adapters.slack.api import SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import EffectIntent, Settlement
    from quotebot.dispatch.services import Services
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.effects import Label
    from quotebot.views.blocks import Json

DIRECT: Final = "direct"  # durable step: the direct message that the card goes to from now on

COMMANDS_SHOWN_MAX: Final = 5  # the commands of one quote run one after another

HOME: Final = "home"
MESSAGE: Final = "message"  # durable step: the message with the PDF of a replaced version
NOT_LISTED: Final = "not_listed"
LISTED_MS: Final = 30_000  # Slack lists the message of a new file after some seconds; later none is left
ASK_AGAIN_MS: Final = 5_000
_ENDS_MARK: Final = frozenset({NOT_LISTED, membership.MISSING_SCOPE})  # retried, a missing scope would hold all of Slack


async def given_up(ledger: Ledger, effect: Effect, quote: Quote, error: AdapterError) -> Drop:
    """Return the settlement of an effect whose message is gone. Raises `error` again if it has another cause."""
    if error.code not in GONE_CODES or quote.thread_ts is None:
        raise error
    await ledger.record_step(effect, GONE, {"ts": quote.thread_ts})
    text = N_("Slack no longer has the card of {quote} ({code}): a new one takes its place.")
    why = _(text, quote=quote.quote_id, code=error.code)
    return Drop(Trouble(Failure.NOT_FOUND.value, why, error.http_status))


async def given_away(ledger: Ledger, effect: Effect, quote: Quote) -> Drop:
    """Return the settlement of an effect that would post into a channel which another organization shares."""
    assert quote.thread_ts is not None  # noqa: S101 -- the effect waits for the root
    await ledger.record_step(effect, GONE, {"ts": quote.thread_ts, "channel": quote.channel})
    text = N_("Another organization may read <#{channel}>: {quote} goes on in a direct message.")
    why = _(text, channel=quote.channel, quote=quote.quote_id)
    return Drop(Trouble(Failure.VALIDATION.value, why))


async def direct_place(ledger: Ledger, slack: SlackApi, effect: Effect, quote: Quote) -> Effect:
    """Record that this card goes to a direct message with the requester, before it is sent there.

    Without the scope im:write only the user is known: Slack accepts the card, but a lost answer cannot be reconciled.
    """
    if DIRECT in effect.steps:
        return effect
    channel = quote.card_channel
    if channel is None:
        try:
            channel = await slack.open_direct(user=quote.requester)
        except AdapterError as error:
            if error.code != "missing_scope":
                raise
            channel = quote.requester
    return await ledger.record_step(effect, DIRECT, {"channel": channel})


def not_known(user: str) -> AdapterError:
    """Return the error of a message for a person about whom Slack has not answered."""
    text = _("Slack has not answered who <@{user}> is. Nothing was sent.", user=user)
    return AdapterError(Failure.TRANSIENT, "not_known", text)


def place_of(effect: Effect, quote: Quote) -> str:
    """Return the channel in which to look up an effect's message. Raises AdapterError if it is not known."""
    place: str = effect.steps[DIRECT]["channel"] if DIRECT in effect.steps else quote.place
    if place == quote.requester:
        raise direct_unknown()
    return place


def direct_unknown() -> AdapterError:
    """Return the error of a direct message that cannot be looked up."""
    unknown = _("Whether it was sent cannot be looked up without the scope im:write: a direct message has no known channel.")
    return AdapterError(Failure.UNCERTAIN, "direct_unknown", unknown)


async def withdrawn(slack: SlackApi, effect: Effect, text: str) -> Delivered | Drop:
    """Replace the content of an old card with a sentence that holds no fact of the quote. Raises AdapterError."""
    where = effect.payload
    try:
        await slack.update(channel=where["channel"], ts=where["ts"], text=text, blocks=[], correlation_id=effect.correlation_id)
    except AdapterError as error:
        if error.code not in GONE_CODES:
            raise
        return Drop(Trouble(error.failure.value, _("The old card is gone already ({code}).", code=error.code)))
    return Delivered(where["ts"], {})


def was_replaced(effect: Effect) -> bool:
    """Return true if the effect was superseded because its message was gone."""
    return GONE in effect.steps and effect.state == "superseded"


def replaced(tx: Tx, effect: Effect, now: int) -> FollowUps:
    """Return the new card, once per deleted card, and below it the content of the notice or file that found it gone."""
    quote_id, dead_ts = effect.aggregate_id, effect.steps[GONE]["ts"]
    ours = _next_key(tx, effect)
    post_key = quotes.replace_root(tx, quote_id, dead_ts, ours, now)
    first = post_key == ours
    follow_ups = [effects.root_again(quote_id, dead_ts)] if first else []
    if effect.effect_class == effects.POST:
        notice = effects.notice(quote_id, post_key, effect.payload["text"], decide=effect.payload.get("decide", False))
        follow_ups.append(notice)
    if effect.effect_class == effects.FILE:
        version, sha256 = effect.payload["version"], effect.payload["sha256"]
        follow_ups.append(effects.share(quote_id, version, sha256, post_key, announces=announces(tx, effect)))
    shared = effect.steps[GONE].get("channel")
    if first and shared is not None:
        follow_ups.append(effects.card_withdrawn(quote_id, shared, dead_ts))
    audited = AuditEvent("quote.card_replaced", quote_id, {"ts": dead_ts}, {"post_key": post_key})
    return FollowUps(tuple(follow_ups), (audited,) if first else ())


def _next_key(tx: Tx, effect: Effect) -> str:
    """Return the key of the next effect that this one enqueues."""
    counted = tx.required("count_children", operation_id=effect.operation_id, parent_id=effect.id)
    return keys.effect_key(effect.effect_key, effects.POST, counted["children"])


@dataclass(frozen=True, slots=True)
class CardState:
    """Everything that a card shows, read in one transaction."""

    quote: Quote
    pending: tuple[PendingEffect, ...]
    away: tuple[Delegation, ...]
    summary: str | None  # the model's, unless its figures are no longer among the facts
    commands: tuple[PendingCommand, ...]
    advice: Advice | None  # None if the version needs no approval, or if the rules have changed since it was priced
    rules: Rules
    shown: str | None  # hash of what the card shows; None if that is not known for certain


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
            return self.draw(state, viewer)
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
        quote = quotes.load(tx, quote_id)
        if quote is None:
            return None
        effects_of_quote = [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=quote_id)]
        restored = tx.one("last_generation")
        # effects of a superseded version do not belong on this card
        rows = [effect for effect in effects_of_quote if effect.payload.get("version") in (None, quote.version)]
        gates = [Gate.of(row) for row in tx.all("all_gates")]
        summary = quotes.summary_of(tx, quote_id, quote.version)
        now = self.services.ledger.clock.now_ms()
        rules = self.services.rules_now(tx, quote.team_id)
        return CardState(
            quote,
            effect_lines(rows, gates),
            approvals.delegations(tx, quote.team_id, now),
            None if summary is None else may_be_shown(summary, facts_of(quote)),
            pending_commands(tx, quote_id, now),
            quotes.load_advice(tx, quote, basis_of(rules.ruleset, rules.policy)),
            rules,
            _shown(effects_of_quote, quote, 0 if restored is None else restored["started_at"]),
        )

    def draw(self, state: CardState, viewer: Viewer | None = None) -> Card:
        """Return the card; with a `viewer` for them alone, and if the quote waits for their decision with its margins."""
        quote, rules = state.quote, state.rules
        approvers = () if quote.approval is None else rules.who_may_decide(quote.approval, quote.makers, state.away)
        decision = evaluate(quote.pricing, rules.policy)
        undecided = quote.state is QuoteState.PRICED and not decision.automatic
        shown = price_rows(quote.pricing, rules.policy)
        easier: tuple[PriceRow, ...] = ()
        decides = viewer is not None and not viewer.own_only and quote.approval is not None and viewer.user in approvers
        if undecided or quote.state is QuoteState.PENDING_APPROVAL:
            shown = (*shown, *summary_row(state.summary))
            shown = (*shown, *(approver_rows(quote.pricing, rules.policy) if decides else ()))
            easier = () if state.advice is None else avoidance_rows(state.advice.changes, rules.policy.roles, approver=decides)
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
            decides=decides or rules.decide_in_channel,
            whole=viewer is not None,
        )


def rendered(card: Card) -> str:
    """Return the hash of a card's content."""
    return keys.sha256(keys.dumps([card.text, card.blocks]).encode())


def _shown(of_quote: Iterable[Effect], quote: Quote, since: int) -> str | None:
    """Return the hash of the last card that was sent, or None if another one may have arrived after it.

    Nothing is known about a card sent before `since` (Unix ms), the last restore: a lost part of the ledger may have changed it.
    Nor is anything known if an older one seems to have been sent later: the clock was set back, or it was.
    """
    drawn = [effect for effect in of_quote if effect.last_attempt_at is not None and _is_card(effect)]
    last = max(drawn, key=lambda effect: effect.id, default=None)
    if last is None or last.state != "delivered" or last.maybe_sent or last.external_ref != quote.thread_ts:
        return None
    found: str | None = (last.result or {}).get("rendered")
    return found if (last.last_attempt_at or 0) >= max(since, *(each.last_attempt_at or 0 for each in drawn)) else None


def _is_card(effect: Effect) -> bool:
    what = effect.payload.get("what")
    return (effect.effect_class, what) in ((effects.CARD, None), (effects.POST, "root"))


_OFFERED: Final[Mapping[str, tuple[str, ...]]] = {  # under a command, by its state
    "failed_retryable": (RETRY_COMMAND, CHECK_COMMAND, CANCEL_COMMAND),
    "reserved": (CHECK_COMMAND, CANCEL_COMMAND),
    "in_progress": (CHECK_COMMAND,),
}


def effect_lines(rows: Iterable[Effect], gates: Iterable[Gate]) -> tuple[PendingEffect, ...]:
    """Return the newest effects of each label as the card shows them.

    A PDF counts as delivered when its upload is. A delivered update of the record has no line: the card shows the record itself.
    """
    latest: dict[Label, Effect] = {}
    for effect in rows:
        label = None if effect.state == "superseded" else effects.label_of(effect)
        if label is not None:
            latest[label] = effect
    held = {gate.name: gate for gate in gates if gate.state == "held"}
    shown = {
        label: effect for label, effect in latest.items() if effect.effect_class != effects.UPDATE or effect.state != "delivered"
    }
    return tuple(_line(label, effect, held) for label, effect in shown.items())


def pending_commands(tx: Tx, quote_id: str, now: int) -> tuple[PendingCommand, ...]:
    """Return the commands about a quote that wait for another attempt, and those of people that are unfinished for PENDING_MS."""
    rows = tx.all("operations_waiting", lane=quote_id, before=now - PENDING_MS, limit=COMMANDS_SHOWN_MAX)
    return tuple(
        PendingCommand(
            messages.command_name(row["action_kind"]),
            row["correlation_id"],
            row["next_attempt_at"] if row["state"] == "failed_retryable" else None,
            row["id"],
            row["cycle"],
            _OFFERED[row["state"]],
        )
        for row in rows
    )


def _line(label: Label, effect: Effect, held: Mapping[str, Gate]) -> PendingEffect:
    ref = effect.correlation_id
    if effect.state == "failed":
        return PendingEffect(label, "failed", ref, effect.last_error)
    if effect.state == "discarded":  # after a failure with the service's own text, or cancelled with a person's reason
        return PendingEffect(label, "cancelled", ref, failure_words(effect.category) if effect.category else effect.last_error)
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


class CardHandler(EffectHandler):
    """Replaces the content of a message or a Home tab. A newer update supersedes this one."""

    effect_class: ClassVar = effects.CARD

    async def perform(self, effect: Effect) -> Settlement:
        """Draw it. Raises AdapterError."""
        match effect.payload.get("what"):
            case "withdrawn":
                return await withdrawn(self.services.adapters.slack, effect, _(messages.CARD_WITHDRAWN))
            case "home":
                return await self._publish_home(effect)
            case "replaced":
                return await self._mark_replaced(effect)
            case ops_cards.LETTER | ops_cards.OPS | ops_cards.CLOSED:
                return await ops_cards.redraw(self.services, effect, self._update)
            case _:
                return await self._update_quote(effect)

    async def _update_quote(self, effect: Effect) -> Settlement:
        cards, ledger = QuoteCards(self.services), self.services.ledger
        state = await cards.read(effect)
        quote, card = state.quote, cards.draw(state)
        assert quote.thread_ts is not None  # noqa: S101 -- the effect waits for the root
        if not await self.services.may_post_about(quote):
            return await given_away(ledger, effect, quote)
        result = {"rendered": rendered(card)}
        if state.shown == result["rendered"] and not must_be_sent(effect):
            return Delivered(quote.thread_ts, result, already_there=True)
        try:
            later = await self._update(effect, quote.place, quote.thread_ts, card)
        except AdapterError as error:
            return await given_up(ledger, effect, quote, error)
        return later or Delivered(quote.thread_ts, result)

    async def _mark_replaced(self, effect: Effect) -> Settlement:
        """Write above the comment of a PDF which version replaced its own. The upload's answer does not say which message it is.

        What Slack refuses for good needs no attention: the card says which version is valid. Raises AdapterError.
        """
        services, file_id = self.services, effect.payload["file_id"]
        quote = await services.quote(effect)
        if not await services.may_post_about(quote):
            why = _("Another organization may read <#{channel}>: the message stays as it is.", channel=quote.place)
            return Drop(Trouble(Failure.VALIDATION.value, why))
        comment = messages.replaced_pdf(quote, announces=effect.payload.get("announces", False))
        try:
            if MESSAGE not in effect.steps:
                found = await services.adapters.slack.find_message_of(file_id=file_id, channel=quote.place)
                if found is None:
                    return Drop(Trouble(Failure.NOT_FOUND.value, _("There is no message with this PDF in the quote's channel.")))
                effect = await services.ledger.record_step(effect, MESSAGE, {"ts": found})
            ts: str = effect.steps[MESSAGE]["ts"]
            later = await self._update(effect, quote.place, ts, Card(comment, []), (file_id,))
        except AdapterError as error:
            if error.code == NOT_LISTED and services.ledger.clock.now_ms() - effect.created_at < LISTED_MS:
                return Retry(Trouble(error.failure.value, str(error)), delay_ms=ASK_AGAIN_MS, spent=False)
            if error.failure not in (Failure.NOT_FOUND, Failure.VALIDATION) and error.code not in _ENDS_MARK:
                raise
            why = _("The message with this PDF cannot be marked ({code}).", code=error.code)
            return Drop(Trouble(error.failure.value, why, error.http_status))
        return later or Delivered(ts, {"ts": ts})

    async def _update(self, effect: Effect, channel: str, ts: str, card: Card, file_ids: tuple[str, ...] = ()) -> Settlement | None:
        """Replace a message's content; return the retry if that has to wait. Raises AdapterError."""
        if (later := await self.services.pacer.put_off("chat.update", effect.supersede_key or effect.id)) is not None:
            return later
        async with self.services.pacer.place_in(channel) as busy:
            if busy is None:
                await self.services.adapters.slack.update(
                    channel=channel,
                    ts=ts,
                    text=card.text,
                    blocks=card.blocks,
                    correlation_id=effect.correlation_id,
                    file_ids=file_ids,
                )
            return busy

    async def _publish_home(self, effect: Effect) -> Settlement:
        if (later := await self.services.pacer.put_off("views.publish", effect.supersede_key or effect.id)) is not None:
            return later
        user, team_id = effect.payload["user"], effect.payload["team_id"]
        if await self.services.directory.learn(team_id, user) is None:
            raise not_known(user)
        view, shown = await self.services.ledger.database.read(lambda tx: self._home(tx, effect.aggregate_id, user, team_id))
        result = {"rendered": keys.digest(view)}
        if shown == result["rendered"] and not must_be_sent(effect):
            return Delivered(None, result, already_there=True)
        view = {**view, "blocks": Seals(self.services.ledger.audit.keyring).blocks(user, view["blocks"])}
        await self.services.adapters.slack.publish_home(user=user, view=view, correlation_id=effect.correlation_id)
        return Delivered(None, result)

    def _home(self, tx: Tx, aggregate_id: str, user: str, team_id: str) -> tuple[Json, str | None]:
        """Return the Home tab of a user by Slack's last answer about them, and what the tab shows."""
        rules, found = self.services.rules_now(tx, team_id), membership.known_person(tx, team_id, user)
        admitted = admit(user, team_id, "member" if found is None else found.kind, rules.guest_reps)
        shown = homes.last_drawn(tx, aggregate_id)
        if isinstance(admitted, Refusal):
            return refused_view(messages.turned_away(admitted.code)), shown
        now = self.services.ledger.clock.now_ms()
        name, zone = ("", "") if found is None else (found.name, found.zone)
        reader = Reader(admitted, name, zone or rules.time_zone)
        return home_view(load_home(tx, reader, rules, now)), shown

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the new card if this one was found gone; a Home tab and the card of a dead letter have no follow-up."""
        if of_no_quote(effect):
            return FollowUps()
        if was_replaced(effect):
            return replaced(tx, effect, now_ms)
        return super().follow_ups(tx, effect, now_ms)

    def after_attempt(self, tx: Tx, effect: Effect) -> FollowUps:
        """Draw the card once more after the settle delay if an update was lost: it may still arrive and show an older state."""
        if effect.state != "delivered" or not effect.maybe_sent or effect.payload.get("what") == "replaced":
            return super().after_attempt(tx, effect)
        return FollowUps((_drawn_again(tx, effect, self.services.ledger.clock.now_ms() + self.services.settle_delay_ms),))


def must_be_sent(effect: Effect) -> bool:
    """Return true if a card is sent even unchanged: a person or an operator asks for it, or an earlier one may still arrive."""
    asked = effect.payload.get("always", False) or effect.cycle > 1
    return asked or effect.maybe_sent or effect.lost_from is not None


def of_no_quote(effect: Effect) -> bool:
    """Return true for a Home tab or a card in the operators' channel; false for a message in a quote's thread."""
    return effect.payload.get("what") in (HOME, *ops_cards.KINDS)


def _drawn_again(tx: Tx, effect: Effect, not_before: int) -> EffectIntent:
    """Return another draw of the same message at `not_before` (ms), unconditionally."""
    match effect.payload.get("what"):
        case "home":
            again = effects.home(effect.payload["user"], effect.payload["team_id"])
        case ops_cards.LETTER | ops_cards.OPS | ops_cards.CLOSED:
            again = ops_cards.redrawn_again(tx, effect)
        case _:
            root_key = quotes.root_effect_key(tx, effect.aggregate_id)
            return effects.card_again(effect.aggregate_id, root_key, not_before, always=True)
    return replace(again, supersede_key=None, not_before=not_before)
