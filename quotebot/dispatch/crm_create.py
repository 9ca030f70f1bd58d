"""Effect class crm.create: a quote version as a record in Salesforce, written under a key of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.graph import SalesforceLine, SalesforceQuote
from ledger import keys
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch.pdf_render import of_approved
from quotebot.dispatch.services import EffectHandler, enqueuing
from quotebot.domain import money
from quotebot.domain.pricing.engine import canonical
from quotebot.execution import crm_effects
from quotebot.execution.crm_effects import CHOSEN, OWN

if TYPE_CHECKING:
    from adapters.salesforce.api import Salesforce
    from adapters.salesforce.mapping import CrmMapping
    from ledger.database import Tx
    from ledger.records import Effect
    from quotebot.dispatch.services import Services
    from quotebot.domain.quotes.quote import Quote

OPPORTUNITY_NAME_MAX: Final = 120  # Salesforce's limit


class CreateRecordHandler(EffectHandler):
    """Creates the record, or finds it under its key."""

    effect_class: ClassVar = effects.CRM

    async def perform(self, effect: Effect) -> Delivered:
        """Create the record unless it exists. Raises AdapterError."""
        salesforce = connected(self.services)
        wanted = await record_of(self.services, await self.services.quote(effect))
        record = await salesforce.create_quote(wanted, correlation_id=effect.correlation_id)
        opportunity = _opportunity_kind(wanted, salesforce.mapping)
        result = {"record_id": record.record_id} | ({} if opportunity is None else {"opportunity": opportunity})
        return Delivered(record.record_id, result, already_there=not record.created)

    async def find(self, effect: Effect) -> Delivered | None:
        """Find the record under its key. Raises AdapterError."""
        salesforce = connected(self.services)
        wanted = await record_of(self.services, await self.services.quote(effect))
        found = await salesforce.find_quote(wanted.key, wanted.content_hash, correlation_id=effect.correlation_id)
        return None if found is None else Delivered(found.record_id, {"record_id": found.record_id}, already_there=True)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the redrawn card, and what the new record lacks: its PDF, its present status, the opportunity's amount."""
        delivered = effect.state == "delivered"
        more = crm_effects.after_creation(tx, effect, enqueuing(tx, effect)) if delivered else ()
        return of_approved(tx, effect, now_ms, more)


def connected(services: Services) -> Salesforce:
    """Return Salesforce's client. Raises AdapterError if none is configured: the class is paused, its effects wait."""
    if services.adapters.salesforce is None:
        missing = "Salesforce is not configured: set SALESFORCE_INSTANCE_URL and its credentials."
        raise AdapterError(Failure.AUTH, "not_configured", missing)
    return services.adapters.salesforce


async def record_of(services: Services, quote: Quote) -> SalesforceQuote:
    """Return the record of a quote version, as Salesforce is to hold it."""
    return crm_quote(quote, await services.ledger.database.read(ledger_id))


def ledger_id(tx: Tx) -> str:
    """Return the id of this ledger, which begins the key of each of its records."""
    return str(tx.required("meta", name="ledger_id")["value"])


def crm_quote(quote: Quote, ledger_id: str) -> SalesforceQuote:
    """Return the record of a quote version. Its key and its content hash depend on nothing else."""
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


def _opportunity_kind(quote: SalesforceQuote, mapping: CrmMapping) -> str | None:
    """Return which opportunity's amount follows a quote: one that a user chose, our own, or None if no amount does."""
    if quote.opportunity_id:
        return CHOSEN if mapping.choice is not None and mapping.choice.amount is not None else None
    return None if mapping.opportunity is None else OWN
