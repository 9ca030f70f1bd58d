"""The amount of a quote's opportunity in Salesforce: what the newest version there comes to.

It is worked out and written at the moment of the call, so that late, lost and repeated writes converge on the newest version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.failures import AdapterError, Failure
from ledger.records import Delivered
from quotebot.crm_owed import CHOSEN, OWN, newest_recorded
from quotebot.domain import money
from quotebot.store import quotes

if TYPE_CHECKING:
    from adapters.salesforce import Salesforce, SalesforceQuote
    from adapters.salesforce_mapping import CrmMapping
    from ledger.database import Tx
    from ledger.records import Effect
    from quotebot.domain.quotes import Quote


@dataclass(frozen=True, slots=True)
class OpportunityAmounts:
    """Performs crm.update of the amount. `salesforce` is None where it is not configured: then it waits, paused."""

    salesforce: Salesforce | None

    async def perform(self, effect: Effect, newest: SalesforceQuote) -> Delivered:
        """Write it, unless it is there already or the opportunity was closed: its books are people's then. Raises AdapterError."""
        if self.salesforce is None:
            raise AdapterError(Failure.AUTH, "not_configured", "Salesforce is not configured: the amount waits.")
        opportunities = self.salesforce.opportunities
        held = await opportunities.read(newest, correlation_id=effect.correlation_id)
        if held is None:
            message = (
                f"The opportunity of {newest.key} is not in Salesforce any more, or our login may not read it. Its amount was not "
                "written; the quote and its record are unchanged. Restore it from the recycle bin and replay this, or discard it."
            )
            raise AdapterError(Failure.CONFLICT, "opportunity_gone", message)
        result = {"record_id": held.record_id, "amount": money.trimmed(newest.total), "closed": held.closed}
        there = held.closed or held.amount == newest.total
        if not there:
            await opportunities.write_amount(newest, correlation_id=effect.correlation_id)
        return Delivered(held.record_id, result, already_there=there)


def newest_of_record(tx: Tx, quote_id: str) -> Quote:
    """Return the newest version that Salesforce has a record of."""
    quote = quotes.load_version(tx, quote_id, newest_recorded(tx, quote_id))
    assert quote is not None  # noqa: S101 -- it was written
    return quote


def opportunity_kind(quote: SalesforceQuote, mapping: CrmMapping) -> str | None:
    """Return whose opportunity's amount follows a quote: one that somebody chose, or our own; None: no amount does."""
    if quote.opportunity_id:
        return CHOSEN if mapping.choice is not None and mapping.choice.amount is not None else None
    return None if mapping.opportunity is None else OWN
