"""Opportunities in Salesforce: search for an account's open ones, checks of a chosen one, and writes of its amount."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.calls import RestRequest, Trip
from adapters.salesforce.errors import Target, lost
from adapters.salesforce.graph import checked_key, exact_json
from adapters.salesforce.query import soql_containing, soql_text
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
        place, target = self._place(quote), Target("read the opportunity", self._sobject(quote), quote.key)
        trip = Trip(correlation_id, target)
        return await self._calls.within_deadline(trip, self._read(place, quote, target, trip))

    async def write_amount(self, quote: SalesforceQuote, *, correlation_id: str) -> None:
        """Write the quote's total to its opportunity; never creates one. Raises AdapterError."""
        field = self._amount(quote)
        if field is None:
            return
        target = Target("write the amount of", self._sobject(quote), quote.key, {field: str(quote.total)}, writes=True)
        trip = Trip(correlation_id, target)
        params = None if quote.opportunity_id else {"updateOnly": "true"}
        request = RestRequest("PATCH", self._place(quote), target, exact_json({field: quote.total}).encode(), params)
        await self._calls.within_deadline(trip, self._calls.authorised(request, trip))

    def _choice(self) -> ChoiceMapping:
        if self._mapping.choice is None:
            message = (
                "An opportunity was chosen for the quote, and the mapping of Salesforce has no part [opportunity_choice] that says "
                "what one is. Nothing was written. Add the part, then replay this."
            )
            raise AdapterError(Failure.MAPPING, "opportunity_unmapped", message)
        return self._mapping.choice

    def _sobject(self, quote: SalesforceQuote) -> str:
        own = self._mapping.opportunity
        return self._choice().sobject if quote.opportunity_id or own is None else own.sobject

    def _amount(self, quote: SalesforceQuote) -> str | None:
        own = self._mapping.opportunity
        return self._choice().amount if quote.opportunity_id or own is None else own.amount

    def _place(self, quote: SalesforceQuote) -> str:
        own = self._mapping.opportunity
        if quote.opportunity_id or own is None:
            return f"sobjects/{self._choice().sobject}/{checked_key(quote.opportunity_id)}"
        return f"sobjects/{own.sobject}/{own.key}/{checked_key(quote.opportunity_key)}"

    async def _held(self, record_id: str, trip: Trip) -> HeldOpportunity | None:
        choice = self._choice()
        place, target = (
            f"sobjects/{choice.sobject}/{checked_key(record_id)}",
            Target("read the opportunity", choice.sobject, record_id),
        )
        names = ("Id", choice.account, choice.closed, *filter(None, [choice.currency, choice.amount]))
        found = await self._got(place, names, target, trip)
        return None if found is None else _held(found, choice)

    async def _read(self, place: str, quote: SalesforceQuote, target: Target, trip: Trip) -> HeldOpportunity | None:
        if quote.opportunity_id:
            return await self._held(quote.opportunity_id, trip)
        amount = self._amount(quote)
        found = await self._got(place, ("Id", *filter(None, [amount])), target, trip)
        return (
            None
            if found is None
            else HeldOpportunity(found["Id"], None, closed=False, currency=None, amount=_number(found, amount))
        )

    async def _got(self, place: str, names: tuple[str, ...], target: Target, trip: Trip) -> dict[str, Any] | None:
        request = RestRequest("GET", place, target, params={"fields": ",".join(dict.fromkeys(names))})
        try:
            found = await self._calls.authorised(request, trip)
        except AdapterError as error:
            if error.code in _GONE:
                return None
            raise
        if not isinstance(found, dict) or not isinstance(found.get("Id"), str):
            raise lost("unreadable", "its answer is not a record", target, sent=True)
        return found

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


def _held(found: dict[str, Any], choice: ChoiceMapping) -> HeldOpportunity:
    account, currency = found.get(choice.account), found.get(choice.currency) if choice.currency else None
    return HeldOpportunity(
        record_id=found["Id"],
        account_id=account if isinstance(account, str) else None,
        closed=found.get(choice.closed) is True,
        currency=currency if isinstance(currency, str) else None,
        amount=_number(found, choice.amount),
    )


def _number(found: dict[str, Any], field: str | None) -> Decimal | None:
    value = found.get(field) if field else None
    return Decimal(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else None
