"""Effect classes of posted messages: slack.post, slack.direct and slack.direct_card.

slack.post posts a quote's card as the root of its thread, a notice below it, and a card of the operators' channel.

slack.direct asks one approver in a direct message to decide one request; slack.direct_card redraws that message. Its channel is
opened and recorded before the message is posted, so that after a lost answer the message is looked up there. It shows margins and
goes to full members alone. A person whom it cannot reach is named in the quote's thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import AdapterError, Failure
from ledger.records import AuditEvent, Delivered, Drop, FollowUps, Trouble
from quotebot import effects
from quotebot.dispatch import ops_cards, slack_card
from quotebot.dispatch.ops_cards import GONE_CODES
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated, earliest_attempt, enqueuing, quote_of
from quotebot.dispatch.slack_card import QuoteCards, of_no_quote
from quotebot.domain.approvals.advice import basis_of
from quotebot.domain.approvals.decisions import Mandate, may_decide
from quotebot.domain.approvals.people import has_authority
from quotebot.domain.approvals.policy import without_margin_figures
from quotebot.domain.language import _
from quotebot.domain.quotes.quote import ApprovalState
from quotebot.domain.quotes.summaries import facts_of
from quotebot.domain.quotes.summaries import shown as may_be_shown
from quotebot.execution import membership
from quotebot.execution.digests import digest_home
from quotebot.store import approvals
from quotebot.store import quotes as store
from quotebot.views import approval_messages, approver_card, messages, operator_messages
from quotebot.views.approver_card import Ask
from quotebot.views.card import Card, status_card
from quotebot.views.digest_card import digest_card

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.dispatch.services import Services
    from quotebot.domain.quotes.quote import Quote
    from quotebot.store.approvals import Copy
    from quotebot.views.blocks import Json

EARLIER_QUOTES: Final = 3


class PostHandler(EffectHandler):
    """Posts a message once; after a lost answer the channel or thread is searched for the effect's key."""

    effect_class: ClassVar = effects.POST

    async def perform(self, effect: Effect) -> Settlement:
        """Post the message. Raises AdapterError."""
        return await (self._post_to_operators(effect) if of_no_quote(effect) else self._post_in_thread(effect))

    async def _post_to_operators(self, effect: Effect) -> Settlement:
        """Post a card into the operators' channel, unless another organization may read that."""
        channel: str = effect.payload["channel"]
        if not await self.services.channels.may_post(channel):
            return ops_cards.ops_shared()
        if (later := await self.services.pacer.put_off(channel, effect.id)) is not None:
            return later
        card, _posted = await ops_cards.drawn(self.services, effect)
        return await self._send(effect, channel, card.text, card.blocks, None)

    async def _post_in_thread(self, effect: Effect) -> Settlement:
        services, cards = self.services, QuoteCards(self.services)
        state = await cards.read(effect) if effect.payload["what"] == "root" else None
        quote = await services.quote(effect) if state is None else state.quote
        place = quote.place
        if slack_card.DIRECT in effect.steps or not await services.may_post_about(quote):
            if state is None:
                return await slack_card.given_away(services.ledger, effect, quote)
            effect = await slack_card.direct_place(services.ledger, services.adapters.slack, effect, quote)
            place = effect.steps[slack_card.DIRECT]["channel"]
        if (later := await services.pacer.put_off(place, effect.id, quote.requester)) is not None:
            return later
        if state is not None:
            card = cards.draw(state)
            posted = await self._send(effect, place, card.text, card.blocks, None)
            if not isinstance(posted, Delivered):
                return posted
            return replace(posted, result={**posted.result, "rendered": slack_card.rendered(card)})
        try:
            text = without_margin_figures(effect.payload["text"])
            blocks = approval_messages.to_decide(text, quote) if effect.payload.get("decide") else []
            return await self._send(effect, place, text, blocks, quote.thread_ts)
        except AdapterError as error:
            if quote.thread_ts is None:
                raise
            return await slack_card.given_up(services.ledger, effect, quote, error)

    async def _send(self, effect: Effect, channel: str, text: str, blocks: list[Json], thread_ts: str | None) -> Settlement:
        async with self.services.pacer.place_in(channel) as busy:
            if busy is not None:
                return busy
            posted = await self.services.adapters.slack.post(
                channel=channel,
                text=text,
                blocks=blocks,
                thread_ts=thread_ts,
                key=effect.effect_key,
                correlation_id=effect.correlation_id,
            )
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    async def find(self, effect: Effect) -> Delivered | None:
        """Search the channel or thread for a message with the effect's key. Raises AdapterError."""
        if of_no_quote(effect):
            channel, thread_ts = effect.payload["channel"], None
        else:
            quote = await self.services.quote(effect)
            channel = slack_card.place_of(effect, quote)
            thread_ts = None if effect.payload["what"] == "root" else quote.thread_ts
        found = await self.services.adapters.slack.find(
            channel=channel,
            thread_ts=thread_ts,
            key=effect.effect_key,
            oldest_seconds=earliest_attempt(effect, self.services.ledger.clock.now_ms()),
        )
        if found is None:
            return None
        return Delivered(found.ts, {"channel": found.channel, "ts": found.ts}, already_there=True)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Record where the message is; a root may need another card, or a reply to the requester if it failed."""
        if of_no_quote(effect):
            if effect.state == "delivered":
                ops_cards.place(tx, effect)
            return FollowUps()
        if slack_card.was_replaced(effect):
            return slack_card.replaced(tx, effect, now_ms)
        if effect.payload["what"] == "root":
            return _root_follows(tx, effect, now_ms)
        direct = _sent_directly(tx, effect, now_ms) if effect.state == "delivered" else ()
        return FollowUps((*direct, *dead_letter_card_updated(tx, effect)))


def _root_follows(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    if effect.state == "failed":
        return FollowUps((_card_not_posted(tx, effect, now_ms),))
    if effect.state != "delivered" or effect.external_ref is None:
        return FollowUps(dead_letter_card_updated(tx, effect))
    store.set_thread(tx, effect.aggregate_id, effect.external_ref, now_ms)
    moved = _card_moved(tx, effect, now_ms)
    card = effects.card(effect.aggregate_id, effect.effect_key)
    if effect.lost_from is not None:  # it may be the card of a lost part of the ledger, with another number
        return FollowUps((*moved.effects, card, *dead_letter_card_updated(tx, effect)), moved.events)
    if "replaces" in effect.payload:  # updates in the meantime went to the deleted card
        return FollowUps((card,), moved.events)
    return FollowUps((*moved.effects, *dead_letter_card_updated(tx, effect)), moved.events)


def _card_moved(tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
    """Record that a card was posted into a direct message, and point the requester to it from the channel."""
    if slack_card.DIRECT not in effect.steps:
        return FollowUps()
    quote = enqueuing(tx, effect)
    if quote.card_channel is not None:
        return FollowUps()
    # an operator who resolves an effect may name no channel
    place = (effect.result or {}).get("channel") or effect.steps[slack_card.DIRECT]["channel"]
    store.move_card(tx, quote.quote_id, place, now_ms)
    moved = AuditEvent("quote.card_moved", quote.quote_id, {"channel": quote.channel}, {"channel": place})
    pointer = effects.reply(quote.quote_id, quote.requester, quote.channel, messages.card_in_direct_message(quote), now_ms)
    return FollowUps((pointer,), (moved,))


def _sent_directly(tx: Tx, effect: Effect, now_ms: int) -> tuple[EffectIntent, ...]:
    """Send a notice to each user it mentions if its thread is a direct message that only the requester reads."""
    quote = quote_of(tx, effect)
    if quote is None or quote.card_channel is None:
        return ()
    text = effect.payload["text"]
    asked = approvals.asked_by(tx, effect.operation_id)  # their own direct message asks them
    mentioned = dict.fromkeys(messages.mentioned(text))
    return tuple(
        effects.tell(quote.quote_id, user, messages.sent_directly(quote, text), now_ms)
        for user in mentioned
        if user != quote.requester and user not in asked
    )


def _card_not_posted(tx: Tx, effect: Effect, now_ms: int) -> EffectIntent:
    """Return a reply to the requester.

    Without its card the thread does not exist, so the creating command's response_url is used.
    """
    quote = enqueuing(tx, effect)
    text = messages.card_not_posted(quote, effect.correlation_id, operator_messages.failure_words(effect.category))
    return effects.reply(quote.quote_id, quote.requester, quote.channel, text, now_ms)


@dataclass(frozen=True, slots=True)
class CopyState:
    """A request with its quote, as one person may see it. `decides`: they may decide now; `lost`: they have no authority for it."""

    quote: Quote
    copy: Copy
    ask: Ask
    newest: int  # the version
    decides: bool
    lost: bool

    @property
    def open(self) -> bool:
        """True while the request waits for decisions."""
        return self.quote.approval is not None and self.quote.approval.state is ApprovalState.PENDING

    def draw(self) -> Card:
        """Return the card for the person."""
        if self.lost:
            return approver_card.without_figures(self.quote)
        if self.decides:
            return approver_card.asking(self.quote, self.ask)
        card = status_card(self.quote, (), approvers=self.ask.waiting, away=self.ask.away, buttons=False)
        return card if self.newest == self.quote.version else approver_card.replaced(card, self.quote, self.newest)


def is_digest(effect: Effect) -> bool:
    """Return true for the daily digest, which concerns no request."""
    return effect.payload.get("what") == "digest"


class DirectHandler(EffectHandler):
    """Posts the direct message once; after a lost answer its channel is searched for the effect's key."""

    effect_class: ClassVar = effects.DIRECT

    async def perform(self, effect: Effect) -> Settlement:
        """Post the message, unless the person has nothing to decide any more. Raises AdapterError."""
        services, user = self.services, effect.payload["user"]
        if is_digest(effect):
            return await self._digest(effect)
        state = await read(services, effect)
        if state.open:
            await self._require_member(state.quote.team_id, user)
            state = await read(services, effect)
        if not state.decides:
            why = _("<@{user}> has nothing to decide about {quote} any more.", user=user, quote=state.quote.quote_id)
            return Drop(Trouble(Failure.VALIDATION.value, why))
        effect = await self._opened(effect)
        return await self._posted(effect, Card(effect.payload["text"], []) if _is_reminder(effect) else state.draw())

    async def _digest(self, effect: Effect) -> Settlement:
        """Post the digest of the current work queue, unless it is empty. Raises AdapterError."""
        services, user, team_id = self.services, effect.payload["user"], effect.payload["team_id"]
        if await services.directory.learn(team_id, user) is None:
            raise slack_card.not_known(user)
        now = services.ledger.clock.now_ms()
        home = await services.ledger.database.read(lambda tx: digest_home(tx, team_id, user, services.rules_now(tx, team_id), now))
        if home is None:
            return Drop(Trouble(Failure.VALIDATION.value, _("Nothing waits for <@{user}> any more.", user=user)))
        return await self._posted(await self._opened(effect), digest_card(home))

    async def _posted(self, effect: Effect, card: Card) -> Settlement:
        services, channel = self.services, effect.steps[slack_card.DIRECT]["channel"]
        if (later := await services.pacer.put_off(channel, effect.id, effect.payload["user"])) is not None:
            return later
        async with services.pacer.place_in(channel) as busy:
            if busy is not None:
                return busy
            posted = await services.adapters.slack.post(
                channel=channel,
                text=card.text,
                blocks=card.blocks,
                thread_ts=None,
                key=effect.effect_key,
                correlation_id=effect.correlation_id,
            )
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    async def _require_member(self, team_id: str, user: str) -> None:
        """Raise AdapterError unless Slack reports the person as a full member of the workspace."""
        found = await self.services.directory.learn(team_id, user)
        if found is None:
            raise slack_card.not_known(user)
        if found.kind != "member":
            why = _("<@{user}> is no full member of the workspace ({kind}).", user=user, kind=found.kind)
            raise AdapterError(Failure.VALIDATION, "not_a_member", why)

    async def _opened(self, effect: Effect) -> Effect:
        """Open the direct-message channel and record it. Without the scope im:write only the user is known."""
        if slack_card.DIRECT in effect.steps:
            return effect
        user = effect.payload["user"]
        try:
            channel = await self.services.adapters.slack.open_direct(user=user)
        except AdapterError as error:
            error.possibly_applied = False  # an open channel shows nothing to anybody
            if error.code != membership.MISSING_SCOPE:
                raise
            channel = user
        return await self.services.ledger.record_step(effect, slack_card.DIRECT, {"channel": channel})

    async def find(self, effect: Effect) -> Delivered | None:
        """Search the direct-message channel for a message with the effect's key. Raises AdapterError."""
        if slack_card.DIRECT not in effect.steps:
            return None
        channel: str = effect.steps[slack_card.DIRECT]["channel"]
        if channel == effect.payload["user"]:
            raise slack_card.direct_unknown()
        found = await self.services.adapters.slack.find(
            channel=channel,
            thread_ts=None,
            key=effect.effect_key,
            oldest_seconds=earliest_attempt(effect, self.services.ledger.clock.now_ms()),
        )
        return None if found is None else Delivered(found.ts, {"channel": found.channel, "ts": found.ts}, already_there=True)

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true once the channel is recorded: nothing was posted before."""
        return slack_card.DIRECT in effect.steps

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Record where the message is; name a person whom it did not reach in the quote's thread, once."""
        del now_ms
        if is_digest(effect):
            return FollowUps(dead_letter_card_updated(tx, effect))
        quote_id, user = effect.aggregate_id, effect.payload["user"]
        copy = approvals.copy_of(tx, effect.payload["approval_id"], user)
        more: tuple[EffectIntent, ...] = ()
        if _is_reminder(effect):
            return FollowUps(dead_letter_card_updated(tx, effect))
        if effect.state == "delivered" and effect.external_ref is not None and copy is not None:
            channel = (effect.result or {}).get("channel") or effect.steps.get(slack_card.DIRECT, {}).get("channel")
            if channel is not None:  # an operator who resolves an effect may name none
                approvals.place_copy(tx, copy, channel, effect.external_ref)
            if effect.lost_from is not None:  # a lost part of the ledger may have drawn it
                more = (effects.update_copy(quote_id, copy.approval_id, user, copy.awaited),)
        elif effect.state == "failed" and effect.cycle == 1:
            more = (effects.notice(quote_id, store.root_effect_key(tx, quote_id), approval_messages.not_reached(quote_id, user)),)
        return FollowUps((*more, *dead_letter_card_updated(tx, effect)))


def _is_reminder(effect: Effect) -> bool:
    return effect.payload.get("what") == "reminder"


class DirectCardHandler(EffectHandler):
    """Shows the current state of a request in the direct message to a person. A newer update supersedes this one."""

    effect_class: ClassVar = effects.DIRECT_CARD

    async def perform(self, effect: Effect) -> Settlement:
        """Draw it. Raises AdapterError."""
        services = self.services
        state = await read(services, effect)
        channel, ts = state.copy.channel, state.copy.ts
        if channel is None or ts is None:
            return Drop(Trouble(Failure.NOT_FOUND.value, _("No message was posted.")))
        if (later := await services.pacer.put_off("chat.update", effect.supersede_key or effect.id)) is not None:
            return later
        card = state.draw()
        async with services.pacer.place_in(channel) as busy:
            if busy is not None:
                return busy
            try:
                await services.adapters.slack.update(
                    channel=channel, ts=ts, text=card.text, blocks=card.blocks, correlation_id=effect.correlation_id
                )
            except AdapterError as error:
                if error.code not in GONE_CODES:
                    raise
                why = _("Somebody deleted this message ({code}): nothing to update.", code=error.code)
                return Drop(Trouble(error.failure.value, why))
        return Delivered(ts, {"lost": state.lost})

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Record what the message shows now."""
        if effect.state == "delivered":
            lost = bool((effect.result or {}).get("lost"))
            approvals.draw_copy(tx, effect.payload["approval_id"], effect.payload["user"], lost=lost)
        return super().follow_ups(tx, effect, now_ms)

    def after_attempt(self, tx: Tx, effect: Effect) -> FollowUps:
        """Draw it once more after the settle delay if an update was lost: it may still arrive and show an older state."""
        copy = approvals.copy_of(tx, effect.payload["approval_id"], effect.payload["user"])
        drawn = super().after_attempt(tx, effect)
        if effect.state != "delivered" or not effect.maybe_sent or copy is None:
            return drawn
        not_before = self.services.ledger.clock.now_ms() + self.services.settle_delay_ms
        again = effects.update_copy(effect.aggregate_id, copy.approval_id, copy.user_id, copy.awaited)
        return replace(drawn, effects=(*drawn.effects, replace(again, supersede_key=None, not_before=not_before)))


async def read(services: Services, effect: Effect) -> CopyState:
    """Read the request of an effect as its person may see it. Raises AdapterError if there is no such request."""
    now = services.ledger.clock.now_ms()
    state = await services.ledger.database.read(lambda tx: _state(services, tx, effect, now))
    if state is None:
        unknown = _("There is no request {approval}.", approval=effect.payload["approval_id"])
        raise AdapterError(Failure.INTERNAL, "unknown_approval", unknown)
    if not state.decides or state.quote.thread_ts is None or state.quote.card_channel is not None:
        return state
    return replace(
        state, ask=replace(state.ask, thread=await services.directory.link_to(state.quote.channel, state.quote.thread_ts))
    )


def _state(services: Services, tx: Tx, effect: Effect, now: int) -> CopyState | None:
    approval_id, user = effect.payload["approval_id"], effect.payload["user"]
    approval, copy = approvals.find(tx, approval_id), approvals.copy_of(tx, approval_id, user)
    if approval is None or copy is None:
        return None
    found, head = store.load_version(tx, approval.quote_id, approval.quote_version), store.load(tx, approval.quote_id)
    if found is None or head is None:
        return None
    rules, away = services.rules_now(tx, found.team_id), approvals.delegations(tx, found.team_id, now)
    known = membership.known_person(tx, found.team_id, user)
    person = rules.person(user, found.team_id, away, "member" if known is None else known.kind)
    quote = replace(found, approval=approval)
    decides = isinstance(may_decide(approval, head, person, received_at=now), Mandate)
    advice = store.load_advice(tx, quote, basis_of(rules.ruleset, rules.policy))
    summary = store.summary_of(tx, quote.quote_id, quote.version)
    ask = Ask(
        policy=rules.policy,
        advice=advice,
        summary=None if summary is None else may_be_shown(summary, facts_of(quote)),
        waiting=rules.who_may_decide(approval, quote.makers, away),
        away=away,
        earlier=store.last_quotes_of(tx, quote, EARLIER_QUOTES) if decides else (),  # shown only then
    )
    return CopyState(quote, copy, ask, head.version, decides, person.kind != "member" or not has_authority(approval, person.roles))
