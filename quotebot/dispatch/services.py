"""Services that the effect handlers share, and the base class of a handler: perform, find, follow up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import AdapterError, Failure
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch.pdf_files import Documents
from quotebot.store import dead_letters
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from adapters.artefacts import Artefacts
    from adapters.llm.api import Llm, ModelCall
    from adapters.pdf.renderer import PdfRenderer
    from adapters.salesforce.api import Salesforce
    from adapters.slack.api import SlackApi
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.dispatch.pacing import Pacer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.execution.channels import Channels
    from quotebot.store.rulesets import ActiveRuleset
    from quotebot.views.document import Seller

GONE: Final = "gone"  # durable step: the message that no longer exists, so its effect can have no result
LOOK_BACK_SECONDS: Final = 60  # the external service's clock may differ from ours


@dataclass(slots=True)
class CallLog:
    """Buffer for the adapter's records of its calls until they are written to the ledger."""

    calls: list[ModelCall] = field(default_factory=list)

    def note(self, call: ModelCall) -> None:
        """Add the record of one call."""
        self.calls.append(call)

    def take(self) -> list[ModelCall]:
        """Return the records so far and empty the buffer."""
        taken, self.calls = self.calls, []
        return taken


@dataclass(frozen=True, slots=True)
class Model:
    """The connected model and the log of its adapter's calls."""

    llm: Llm
    log: CallLog


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


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a handler may use. `pacer` assigns turns per Slack channel, `channels` queries the members of a channel."""

    ledger: Ledger
    adapters: Adapters
    rules: Rules
    active: ActiveRuleset
    seller: Seller
    pacer: Pacer
    channels: Channels
    settle_delay_ms: int

    @property
    def documents(self) -> Documents:
        """The renderer and store of documents."""
        return Documents(self.ledger, self.adapters.pdf, self.adapters.artefacts, self.seller)

    async def quote(self, effect: Effect) -> Quote:
        """Return the quote of an effect, see `quote_of`. Raises AdapterError if there is none."""
        quote = await self.ledger.database.read(lambda tx: quote_of(tx, effect))
        if quote is None:
            raise unknown_quote(effect)
        return quote

    async def may_post_about(self, quote: Quote) -> bool:
        """Return true if the facts of a quote may be posted where its card is. Raises AdapterError when Slack does not answer."""
        try:
            return quote.card_channel is not None or await self.channels.may_post(quote.channel)
        except AdapterError as error:
            error.possibly_applied = False  # nothing was sent yet
            raise


class EffectHandler:
    """Handler of one effect class. registry.py maps the classes to their handlers.

    Messages are rendered from the state at the moment of the call, so a card that is sent twice converges. A call that must not be
    repeated carries the effect's key. This base class stands in for a class that only a newer build knows.
    """

    effect_class: ClassVar[str]

    def __init__(self, services: Services) -> None:
        self.services = services

    async def perform(self, effect: Effect) -> Settlement:
        """Perform the effect, or return that it is needless. Raises AdapterError."""
        message = f"This build cannot perform {effect.effect_class}."
        raise AdapterError(Failure.INTERNAL, "unknown_class", message)

    async def find(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied before; None if not. Raises AdapterError.

        Only appends are reconciled, and the replay preview asks for keyed writes; other classes have nothing to find.
        """
        del effect
        return None

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if, by the recorded steps alone, a visible result is possible."""
        return GONE not in effect.steps

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the follow-up effects of a settled or replayed effect, inside the transaction that settles it."""
        del now_ms
        return FollowUps(dead_letter_card_updated(tx, effect))

    def after_attempt(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of an attempt that this process made."""
        return self.follow_ups(tx, effect, self.services.ledger.clock.now_ms())


def unknown_quote(effect: Effect) -> AdapterError:
    """Return the error of an effect whose quote does not exist: a bug of ours."""
    return AdapterError(Failure.INTERNAL, "unknown_quote", f"There is no quote {effect.aggregate_id}.")


def quote_of(tx: Tx, effect: Effect) -> Quote | None:
    """Return the quote of an effect: for a document or a record the version that was approved, even if a newer one exists."""
    version = effect.payload.get("version")
    return store.load(tx, effect.aggregate_id) if version is None else store.load_version(tx, effect.aggregate_id, version)


def enqueuing(tx: Tx, effect: Effect) -> Quote:
    """Return the quote that enqueued an effect. Raises LookupError if there is none: its effects exist only with it."""
    quote = quote_of(tx, effect)
    if quote is None:
        raise LookupError(f"There is no quote {effect.aggregate_id}.")
    return quote


def earliest_attempt(effect: Effect) -> float:
    """Return the earliest possible time of the first attempt (Unix seconds), with a margin for clock differences."""
    first_ms = effect.created_at if effect.lost_from is None else min(effect.created_at, effect.lost_from)
    return first_ms / 1000 - LOOK_BACK_SECONDS


def dead_letter_card_updated(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return a redraw of the dead letter card of this effect, if operators have one and its content has changed."""
    if effect.cycle == 1 and effect.state != "discarded":
        return ()  # it was no dead letter before
    card = dead_letters.find(tx, str(effect.id))
    return () if card is None else (effects.update_dead_letter(card.reference, card.post_key),)
