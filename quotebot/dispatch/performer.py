"""Effect handlers: one match from effect class to adapter call, and the follow-ups of a settled effect.

Messages are rendered from the state at the moment of the call, so a card that is sent twice converges. A call that must not be
repeated carries the effect's key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import SalesforceLine, SalesforceQuote
from ledger import keys
from ledger.gates import Gate
from ledger.records import Delivered, Effect, FollowUps, Settlement
from quotebot import effects
from quotebot.dispatch import thread_roots
from quotebot.dispatch.card_state import effect_lines, pending_lines
from quotebot.dispatch.crm import CrmReader, CrmUpdates, OpportunityAmounts, newest_of_record, opportunity_kind
from quotebot.dispatch.crm_mirror import MirrorReader
from quotebot.dispatch.follow_ups import follow_ups, quote_of
from quotebot.dispatch.llm import Model, ModelEffects
from quotebot.dispatch.pacing import Pacer
from quotebot.dispatch.pdf import DocumentEffects
from quotebot.dispatch.slack_messages import SurfaceEffects, drawn_again, what_of
from quotebot.dispatch.slack_replies import PrivateAnswers
from quotebot.domain import money
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.avoidance import avoidances
from quotebot.domain.approvals.policy import evaluate, without_margin_figures
from quotebot.domain.approvals.preview import free_discount
from quotebot.domain.pricing.engine import canonical
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import facts_of
from quotebot.domain.quotes.summaries import shown as may_be_shown
from quotebot.execution.channels import Channels
from quotebot.execution.crm_effects import AMOUNT
from quotebot.store import approvals as approval_store
from quotebot.store import extractions
from quotebot.store import quotes as store
from quotebot.store.rulesets import ActiveRuleset
from quotebot.views import messages, price_rows
from quotebot.views.blocks import section
from quotebot.views.card import Card, status_card
from quotebot.views.document import file_title

if TYPE_CHECKING:
    from adapters.artefacts import Artefacts
    from adapters.pdf.renderer import PdfRenderer
    from adapters.salesforce.api import Salesforce
    from adapters.slack.api import SharedFile, SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.views.card import PendingEffect
    from quotebot.views.document import Seller

    _CardState = tuple[Quote, tuple["PendingEffect", ...], tuple[Delegation, ...], str | None, tuple[str, ...]]

LOOK_BACK_SECONDS: Final = 60  # the external service's clock may differ from ours
TICKET, UPLOADED = "ticket", "uploaded"  # durable steps of an upload
OPPORTUNITY_NAME_MAX: Final = 120  # Salesforce's limit


@dataclass(frozen=True, slots=True)
class Adapters:
    """Connections to the external services, built by app/clients.py.

    Without Salesforce or a model, their effects wait as paused.
    """

    slack: SlackApi
    pdf: PdfRenderer
    artefacts: Artefacts
    salesforce: Salesforce | None
    model: Model | None = None


class QuotePerformer:
    """The one implementation of the dispatcher's Performer."""

    def __init__(
        self,
        ledger: Ledger,
        adapters: Adapters,
        rules: Rules,
        seller: Seller,
        *,
        settle_delay_seconds: float,
        pacer: Pacer | None = None,
        channels: Channels | None = None,
    ) -> None:
        """`pacer` assigns turns per channel, `channels` finds out who can read a channel; each defaults to a new instance."""
        self._channels = channels
        self._pacer = Pacer(ledger.clock) if pacer is None else pacer
        self._ledger = ledger
        self._adapters = adapters
        self._rules = rules
        self._active = ActiveRuleset(rules.ruleset)
        self._seller = seller
        self._settle_delay_ms = round(settle_delay_seconds * 1000)

    async def perform(self, effect: Effect) -> Settlement:  # noqa: PLR0911 -- one return per class
        """Perform the effect, or return that it is needless. Raises AdapterError."""
        match effect.effect_class:
            case effects.POST | effects.CARD:
                return await self._show(effect)
            case effects.REPLY:
                return await PrivateAnswers(self._ledger, self._adapters.slack, self._pacer).give(effect)
            case effects.RENDER:
                return await self.documents.render(await self._quote(effect))
            case effects.FILE:
                return await self._share(effect)
            case effects.CRM:
                return await self._create_in_crm(effect)
            case effects.EXTRACT | effects.SUMMARIZE:
                return await self._ask_model(effect)
            case effects.UPDATE:
                return await self._update_crm(effect)
            case effects.READ_CRM if effect.payload["what"] == "mirror":
                return await MirrorReader(self._ledger, self._adapters.salesforce).perform(effect)
            case effects.READ_CRM:
                return await CrmReader(self._ledger, self._adapters.salesforce).perform(effect)
            case unknown:
                raise AdapterError(Failure.INTERNAL, "unknown_class", f"This build cannot perform {unknown}.")

    async def _ask_model(self, effect: Effect) -> Delivered:
        model = ModelEffects(self._ledger, self._adapters.model)
        if effect.effect_class == effects.EXTRACT:
            ruleset = await self._ledger.database.read(self._active.read)
            return await model.extract(effect, ruleset.catalogue)
        return await model.summarize(effect, await self._quote(effect))

    async def _show(self, effect: Effect) -> Settlement:
        """Post or redraw a message: in a quote's thread, or on a Home tab or dead letter card."""
        if effect.payload.get("what") == "withdrawn":
            return await thread_roots.withdrawn(self._adapters.slack, effect, messages.card_withdrawn())
        of_a_quote, posts = what_of(effect) is None, effect.effect_class == effects.POST
        if of_a_quote:
            return await (self._post(effect) if posts else self._update_card(effect))
        return await (self._surface.post(effect) if posts else self._surface.draw(effect))

    @property
    def _surface(self) -> SurfaceEffects:
        return SurfaceEffects(self._ledger, self._adapters.slack, self._rules, self._pacer, self.channels)

    @cached_property
    def channels(self) -> Channels:
        """Lookup of the people who can read a channel."""
        return Channels(self._ledger.clock, self._adapters.slack) if self._channels is None else self._channels

    @property
    def documents(self) -> DocumentEffects:
        """The renderer and store of documents."""
        return DocumentEffects(self._ledger, self._adapters.pdf, self._adapters.artefacts, self._seller)

    async def look_up(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied.

        Only appends are reconciled; the replay preview looks up keyed writes.
        """
        if what_of(effect) is not None:
            return await self._found(effect, effect.payload["channel"], None)
        quote = await self._quote(effect)
        if effect.effect_class == effects.CRM:
            return await self._find_in_crm(effect, quote)
        if effect.effect_class == effects.FILE:
            shared = await self._find_file(effect, quote)
            return None if shared is None else _shared(shared, already_there=True)
        place = thread_roots.place_of(effect, quote)
        return await self._found(effect, place, None if effect.payload["what"] == "root" else quote.thread_ts)

    async def _find_file(self, effect: Effect, quote: Quote) -> SharedFile | None:
        """Find an upload by its id. One from a lost part of the ledger has another id, so it is found by its name as well."""
        slack = self._adapters.slack
        if TICKET in effect.steps:
            shared = await slack.find_file(file_id=effect.steps[TICKET]["file_id"], channel=quote.place)
            if shared is not None:
                return shared
        if effect.lost_from is None or quote.thread_ts is None:
            return None
        owed_before = await self._ledger.database.read(lambda tx: tx.one("was_in_backup", operation_id=effect.operation_id))
        if owed_before is None:  # a new decision makes a new document
            return None
        return await slack.find_shared(
            channel=quote.place, thread_ts=quote.thread_ts, filename=_filename(quote), oldest_seconds=_earliest(effect)
        )

    async def _found(self, effect: Effect, channel: str, thread_ts: str | None) -> Delivered | None:
        found = await self._adapters.slack.find(
            channel=channel,
            thread_ts=thread_ts,
            key=effect.effect_key,
            oldest_seconds=_earliest(effect),
        )
        if found is None:
            return None
        return Delivered(found.ts, {"channel": found.channel, "ts": found.ts}, already_there=True)

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if the effect may be visible: an upload shows nothing before its last call; any other effect is one call."""
        if thread_roots.GONE in effect.steps:
            return False
        return effect.effect_class != effects.FILE or UPLOADED in effect.steps or effect.lost_from is not None

    async def start_over(self, effect: Effect) -> None:
        """Discard an upload that never appeared: the next attempt starts from its first call."""
        if effect.steps:
            await self._ledger.forget_steps(effect)

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of a settled effect, inside the settling transaction."""
        now = self._ledger.clock.now_ms()
        owed = follow_ups(tx, effect, now)
        if effect.effect_class != effects.CARD or effect.state != "delivered" or not effect.maybe_sent:
            return owed
        # A lost update may still arrive and show an older state: the card is drawn once more after the settle delay.
        again_at = now + self._settle_delay_ms
        if what_of(effect) is not None:
            return FollowUps((drawn_again(tx, effect, again_at),))
        root = store.root_effect_key(tx, effect.aggregate_id)
        return FollowUps((effects.card_again(effect.aggregate_id, root, again_at),))

    async def status(self, quote_id: str, viewer: Viewer) -> Card | None:
        """Render a quote's card in its current state; None if the quote does not exist or the viewer may not see it."""
        found = await self._look(quote_id)
        if found is None:
            return None
        quote = found[0][0]
        match may_see(viewer, quote):
            case Sight.FULL:
                return self._drawn(*found)
            case Sight.OUTLINE:
                return Card(messages.outline(quote), [section(messages.outline(quote))])
        return None

    async def _look(self, quote_id: str) -> tuple[_CardState, Ruleset] | None:
        state, ruleset = await self._ledger.database.read(lambda tx: (self._card_state(tx, quote_id), self._active.read(tx)))
        return None if state is None else (state, ruleset)

    def _drawn(self, state: _CardState, ruleset: Ruleset) -> Card:
        quote, owed, away, summary, pending = state
        approvers = () if quote.approval is None else self._rules.who_may_decide(quote.approval, quote.makers, away)
        decision = evaluate(quote.pricing, self._rules.policy)
        undecided = quote.state is QuoteState.PRICED and not decision.automatic
        free = free_discount(quote.pricing, ruleset, self._rules.policy) if undecided else None
        shown = price_rows.rows(quote.pricing, self._rules.policy)
        easier: tuple[price_rows.Row, ...] = ()
        if undecided or quote.state is QuoteState.PENDING_APPROVAL:
            changes = avoidances(quote.pricing, ruleset, self._rules.policy)
            free = None if any(change.grants(free) for change in changes) else free  # an avoidance line already says it
            shown, easier = (*shown, *price_rows.summary_row(_summary_of(quote, summary))), price_rows.avoidance_rows(changes)
        return status_card(
            quote,
            owed,
            approvers=approvers,
            away=away,
            decision=decision,
            free_discount=free,
            figures=shown,
            easier=easier,
            pending=pending,
        )

    def _card_state(self, tx: Tx, quote_id: str) -> _CardState | None:
        quote = store.load(tx, quote_id)
        if quote is None:
            return None
        rows = [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=quote_id)]
        # effects of a superseded version do not belong on this card
        rows = [effect for effect in rows if effect.payload.get("version") in (None, quote.version)]
        gates = [Gate.of(row) for row in tx.all("all_gates")]
        away = approval_store.delegations(tx, quote.team_id, self._ledger.clock.now_ms())
        return (
            quote,
            effect_lines(rows, gates),
            away,
            extractions.summary_of(tx, quote_id, quote.version),
            pending_lines(tx, quote_id),
        )

    async def _post(self, effect: Effect) -> Settlement:
        seen = await self._seen(effect) if effect.payload["what"] == "root" else None
        quote = await self._quote(effect) if seen is None else seen[0][0]
        place = quote.place
        if thread_roots.DIRECT in effect.steps or not await self._readable_here(quote):
            if seen is None:
                return await thread_roots.given_away(self._ledger, effect, quote)
            effect = await thread_roots.direct_place(self._ledger, self._adapters.slack, effect, quote)
            place = effect.steps[thread_roots.DIRECT]["channel"]
        if (later := self._pacer.put_off(place, effect.id, quote.requester)) is not None:
            return later
        if seen is not None:
            card = self._drawn(*seen)
            text, blocks, thread_ts = card.text, card.blocks, None
        else:
            text, blocks, thread_ts = without_margin_figures(effect.payload["text"]), [], quote.thread_ts
        try:
            posted = await self._adapters.slack.post(
                channel=place,
                text=text,
                blocks=blocks,
                thread_ts=thread_ts,
                key=effect.effect_key,
                correlation_id=effect.correlation_id,
            )
        except AdapterError as error:
            if thread_ts is None:
                raise
            return await thread_roots.given_up(self._ledger, effect, quote, error)
        return Delivered(posted.ts, {"channel": posted.channel, "ts": posted.ts})

    async def _update_card(self, effect: Effect) -> Settlement:
        seen = await self._seen(effect)
        quote, card = seen[0][0], self._drawn(*seen)
        assert quote.thread_ts is not None  # noqa: S101 -- the effect waits for the root
        if not await self._readable_here(quote):
            return await thread_roots.given_away(self._ledger, effect, quote)
        try:
            await self._adapters.slack.update(
                channel=quote.place, ts=quote.thread_ts, text=card.text, blocks=card.blocks, correlation_id=effect.correlation_id
            )
        except AdapterError as error:
            return await thread_roots.given_up(self._ledger, effect, quote, error)
        return Delivered(quote.thread_ts, {})

    async def _readable_here(self, quote: Quote) -> bool:
        """Return true if the facts of a quote may be posted where its card is. Raises AdapterError when Slack does not answer."""
        try:
            return quote.card_channel is not None or await self.channels.may_post(quote.channel)
        except AdapterError as error:
            error.possibly_applied = False  # nothing was sent yet
            raise

    async def _share(self, effect: Effect) -> Settlement:
        quote = await self._quote(effect)
        if not await self._readable_here(quote):
            return await thread_roots.given_away(self._ledger, effect, quote)
        if UPLOADED not in effect.steps:
            effect = await self._upload(effect, quote)
        file_id = effect.steps[TICKET]["file_id"]
        try:
            completed = await self._adapters.slack.complete_upload(
                file_id=file_id,
                title=file_title(quote),
                channel=quote.place,
                thread_ts=quote.thread_ts,
                comment=messages.pdf_comment(quote),
            )
        except AdapterError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            shared = await self._adapters.slack.find_file(file_id=file_id, channel=quote.place)
            if shared is not None:
                return _shared(shared, already_there=True)  # completed by an earlier attempt
            # Slack has dropped the upload, or does not show it yet: it is looked up after the settle delay, then uploaded again.
            gone = "Slack does not know the uploaded file; it is looked for once more before it is uploaded again."
            raise AdapterError(Failure.TRANSIENT, "upload_gone", gone, possibly_applied=True) from error
        return _shared(completed, already_there=False)

    async def _upload(self, effect: Effect, quote: Quote) -> Effect:
        """Send the bytes. No one sees them before the completing call, so any failure here may be retried."""
        effect, content = await self.documents.content(effect, quote)
        try:
            ticket = await self._adapters.slack.upload_url(filename=_filename(quote), length=len(content))
            effect = await self._ledger.record_step(effect, TICKET, {"file_id": ticket.file_id})
            await self._adapters.slack.upload_bytes(ticket.upload_url, content)
        except AdapterError as error:
            error.possibly_applied = False
            raise
        return await self._ledger.record_step(effect, UPLOADED, {"bytes": len(content)})

    async def _create_in_crm(self, effect: Effect) -> Delivered:
        if self._adapters.salesforce is None:
            raise AdapterError(
                Failure.AUTH, "not_configured", "Salesforce is not configured: set SALESFORCE_INSTANCE_URL and its credentials."
            )
        quote = await self._quote(effect)
        ledger_id = await self._ledger.database.read(_ledger_id)
        salesforce, wanted = self._adapters.salesforce, _crm_quote(quote, ledger_id)
        record = await salesforce.create_quote(wanted, correlation_id=effect.correlation_id)
        hangs_on = opportunity_kind(wanted, salesforce.mapping)
        result = {"record_id": record.record_id} | ({} if hangs_on is None else {"opportunity": hangs_on})
        return Delivered(record.record_id, result, already_there=not record.created)

    async def _update_crm(self, effect: Effect) -> Delivered:
        quote = await self._quote(effect)
        ledger_id = await self._ledger.database.read(_ledger_id)
        if effect.payload["what"] == AMOUNT:
            newest = await self._ledger.database.read(lambda tx: newest_of_record(tx, effect.aggregate_id))
            amounts = OpportunityAmounts(self._adapters.salesforce)
            return await amounts.perform(effect, _crm_quote(newest, ledger_id))
        record = _crm_quote(quote, ledger_id)
        updates = CrmUpdates(self._ledger, self._adapters.salesforce, self._content_of)
        return await updates.perform(effect, quote, record.key, record.content_hash)

    async def _content_of(self, effect: Effect, quote: Quote) -> bytes:
        return (await self.documents.content(effect, quote))[1]

    async def _find_in_crm(self, effect: Effect, quote: Quote) -> Delivered | None:
        if self._adapters.salesforce is None:
            raise AdapterError(Failure.AUTH, "not_configured", "Salesforce is not configured: it cannot be asked.")
        wanted = _crm_quote(quote, await self._ledger.database.read(_ledger_id))
        found = await self._adapters.salesforce.find_quote(wanted.key, wanted.content_hash, correlation_id=effect.correlation_id)
        return None if found is None else Delivered(found.record_id, {"record_id": found.record_id}, already_there=True)

    async def _quote(self, effect: Effect) -> Quote:
        quote = await self._ledger.database.read(lambda tx: quote_of(tx, effect))
        if quote is None:
            raise AdapterError(Failure.INTERNAL, "unknown_quote", f"There is no quote {effect.aggregate_id}.")
        return quote

    async def _seen(self, effect: Effect) -> tuple[_CardState, Ruleset]:
        """Read everything that a card shows, in one read transaction."""
        seen = await self._look(effect.aggregate_id)
        if seen is None:
            raise AdapterError(Failure.INTERNAL, "unknown_quote", f"There is no quote {effect.aggregate_id}.")
        return seen


def _summary_of(quote: Quote, kept: str | None) -> str | None:
    """Return a summary if its figures are still among the facts; an earlier build gave margins to the model."""
    return None if kept is None else may_be_shown(kept, facts_of(quote))


def _filename(quote: Quote) -> str:
    return f"{quote.quote_id}-v{quote.version}.pdf"


def _earliest(effect: Effect) -> float:
    """Return the earliest possible time of the first attempt (Unix seconds), with a margin for clock differences."""
    first_ms = effect.created_at if effect.lost_from is None else min(effect.created_at, effect.lost_from)
    return first_ms / 1000 - LOOK_BACK_SECONDS


def _shared(file: SharedFile, *, already_there: bool) -> Delivered:
    return Delivered(file.file_id, {"file_id": file.file_id, "permalink": file.permalink}, already_there=already_there)


def _ledger_id(tx: Tx) -> str:
    row = tx.one("meta", name="ledger_id")
    assert row is not None  # noqa: S101 -- written by the first migration
    found: str = row["value"]
    return found


def _crm_quote(quote: Quote, ledger_id: str) -> SalesforceQuote:
    snapshot: Any = canonical(quote.pricing)
    return SalesforceQuote(
        key=f"{ledger_id}_{quote.quote_id}_v{quote.version}",
        name=f"{quote.quote_id} v{quote.version} {quote.account}",
        account=quote.account,
        version=quote.version,
        currency=quote.pricing.currency,
        total=quote.pricing.net_total,
        content_hash=keys.digest(snapshot),
        expires_on=datetime.fromtimestamp(quote.valid_until // 1000, tz=UTC).date().isoformat(),
        lines=tuple(
            SalesforceLine(
                sku=line.sku,
                name=line.name,
                quantity=line.quantity,
                months=line.months,
                unit_price=money.multiply(line.unit_price, line.months),  # for the whole term: Salesforce multiplies by quantity
                discount_percent=quote.pricing.granted_percent(line),
                net_amount=line.net_amount,
                position=line.position,
            )
            for line in quote.pricing.lines
        ),
        opportunity_key=f"{ledger_id}_{quote.quote_id}",
        opportunity_name=f"{quote.quote_id} {quote.account}"[:OPPORTUNITY_NAME_MAX],
        is_head=not quote.superseded,
        opportunity_id="" if quote.opportunity is None else quote.opportunity.record_id,
        opportunity_account_id="" if quote.opportunity is None else quote.opportunity.account_id,
    )
