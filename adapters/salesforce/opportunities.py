"""Opportunities in Salesforce: search for an account's open ones, checks of a chosen one, and writes of its amount."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.calls import RestRequest, Trip, soql_containing, soql_text
from adapters.salesforce.errors import Target
from adapters.salesforce.graph import checked_key, exact_json
from adapters.salesforce.records import HeldOpportunity, OpenOpportunity

if TYPE_CHECKING:
    from adapters.salesforce.calls import SalesforceCalls
    from adapters.salesforce.graph import SalesforceQuote
    from adapters.salesforce.mapping import ChoiceMapping, CrmMapping

OFFERED_MAX: Final = 20
_GONE: Final = frozenset({"NOT_FOUND", "ENTITY_IS_DELETED"})


class Opportunities:
    """Reader of opportunities and writer of their amount. `mapping` names the object and its fields."""

    def __init__(self, calls: SalesforceCalls, mapping: CrmMapping) -> None:
        self._calls = calls
        self._mapping = mapping

    async def find_open(self, account: str, typed: str, seconds: float) -> tuple[OpenOpportunity, ...]:
        """Return the open opportunities of accounts of that name whose own name contains `typed`, earliest close date first.

        At most 20, within `seconds`. Raises AdapterError.
        """
        choice = self._choice()
        target = Target("look opportunities up", choice.sobject)
        names = ("Id", choice.account, choice.name, choice.stage, choice.closes, *filter(None, [choice.currency]))
        like = f" AND {choice.name} LIKE {soql_containing(typed)}" if typed else ""
        whose = f"{choice.account_relationship}.{self._mapping.lookup_name} = {soql_text(account)}"
        query = (
            f"SELECT {', '.join(names)} FROM {choice.sobject} "  # noqa: S608 -- names of the mapping: API names only
            f"WHERE {whose} AND {choice.closed} = false{like} ORDER BY {choice.closes} ASC, {choice.name} ASC LIMIT {OFFERED_MAX}"
        )
        rows = await self._calls.rows(query, Trip("lookup", target), seconds=seconds)
        offered = (_offered(row, choice) for row in rows)
        return tuple(each for each in offered if each is not None)[:OFFERED_MAX]

    async def check(self, quote: SalesforceQuote, trip: Trip) -> None:
        """Check that the opportunity chosen for a quote can take its record. Raises AdapterError(CONFLICT) with the reason."""
        held = await self._held(quote.opportunity_id, trip)
        wrong = self._in_the_way(quote, held)
        if wrong is not None:
            raise AdapterError(Failure.CONFLICT, *wrong)

    async def read(self, quote: SalesforceQuote, *, correlation_id: str) -> HeldOpportunity | None:
        """Return the current opportunity of a quote, chosen or our own; None when it does not exist. Raises AdapterError."""
        sobject, amount, path, key = self._of(quote)
        place, target = f"{path}/{checked_key(key)}", Target("read the opportunity", sobject, quote.key)
        trip = Trip(correlation_id, target)

        async def read() -> HeldOpportunity | None:
            if quote.opportunity_id:
                return await self._held(quote.opportunity_id, trip)
            found = await self._calls.record(place, filter(None, [amount]), target, trip, gone=_GONE)
            if found is None:
                return None
            return HeldOpportunity(found["Id"], None, closed=False, currency=None, amount=_number(found, amount))

        return await self._calls.within_deadline(trip, read())

    async def write_amount(self, quote: SalesforceQuote, *, correlation_id: str) -> None:
        """Write the quote's total to its opportunity; never creates one. Raises AdapterError."""
        sobject, amount, path, key = self._of(quote)
        if amount is None:
            return
        target = Target("write the amount of", sobject, quote.key, {amount: str(quote.total)}, writes=True)
        trip = Trip(correlation_id, target)
        params = None if quote.opportunity_id else {"updateOnly": "true"}
        request = RestRequest("PATCH", f"{path}/{checked_key(key)}", target, exact_json({amount: quote.total}).encode(), params)
        await self._calls.within_deadline(trip, self._calls.authorised(request, trip))

    def _of(self, quote: SalesforceQuote) -> tuple[str, str | None, str, str]:
        """Return object, amount field, path and key of a quote's opportunity, chosen or our own."""
        own = self._mapping.opportunity
        if quote.opportunity_id or own is None:
            choice = self._choice()
            return choice.sobject, choice.amount, f"sobjects/{choice.sobject}", quote.opportunity_id
        return own.sobject, own.amount, f"sobjects/{own.sobject}/{own.key}", quote.opportunity_key

    def _choice(self) -> ChoiceMapping:
        if self._mapping.choice is None:
            message = (
                "An opportunity was chosen for the quote, and the mapping of Salesforce has no part [opportunity_choice] that says "
                "what one is. Nothing was written. Add the part, then replay this."
            )
            raise AdapterError(Failure.MAPPING, "opportunity_unmapped", message)
        return self._mapping.choice

    async def _held(self, record_id: str, trip: Trip) -> HeldOpportunity | None:
        choice = self._choice()
        found = await self._calls.record(
            f"sobjects/{choice.sobject}/{checked_key(record_id)}",
            (choice.account, choice.closed, *filter(None, [choice.currency, choice.amount])),
            Target("read the opportunity", choice.sobject, record_id),
            trip,
            gone=_GONE,
        )
        if found is None:
            return None
        account, currency = found.get(choice.account), found.get(choice.currency) if choice.currency else None
        return HeldOpportunity(
            record_id=found["Id"],
            account_id=account if isinstance(account, str) else None,
            closed=found.get(choice.closed) is True,
            currency=currency if isinstance(currency, str) else None,
            amount=_number(found, choice.amount),
        )

    def _in_the_way(self, quote: SalesforceQuote, held: HeldOpportunity | None) -> tuple[str, str] | None:
        """Return code and sentence of the reason against writing the quote's record under its opportunity; None without one."""
        name = f"opportunity {quote.opportunity_id} that was chosen for {quote.key}"
        stays = "Nothing was written and the quote is unchanged."
        if held is None:
            what = (
                f"The {name} is not in Salesforce any more, or our login may not read it. {stays} Restore it from the recycle bin"
            )
            return "opportunity_gone", f"{what}, then replay this; or discard this and make the quote again without it."
        if held.account_id != quote.opportunity_account_id:
            what = f"The {name} belongs to another account now ({held.account_id}, then {quote.opportunity_account_id}). {stays}"
            return (
                "opportunity_moved",
                f"{what} Give it back to its account, then replay this; or make the quote again for another.",
            )
        if held.closed:
            what = f"The {name} was closed meanwhile. {stays}"
            return (
                "opportunity_closed",
                f"{what} Open it again, then replay this; or discard this and make the quote again for another.",
            )
        if held.currency is not None and held.currency != quote.currency:
            what = f"The {name} is in {held.currency} and the quote in {quote.currency}. {stays}"
            return "opportunity_currency", f"{what} Discard this, and make the quote again in {held.currency} or for another."
        return None


def _offered(row: dict[str, Any], choice: ChoiceMapping) -> OpenOpportunity | None:
    """Convert one row for the choice; None when its id, account or name is missing."""
    currency = row.get(choice.currency) if choice.currency else None
    told = [row.get(name) for name in ("Id", choice.account, choice.name)]
    if not all(isinstance(value, str) and value for value in told):
        return None
    more = [value if isinstance(value, str) else "" for value in (row.get(choice.stage), row.get(choice.closes), currency)]
    return OpenOpportunity(*map(str, told), *more)


def _number(found: dict[str, Any], field: str | None) -> Decimal | None:
    value = found.get(field) if field else None
    return Decimal(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else None
