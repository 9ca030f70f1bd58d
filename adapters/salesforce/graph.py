"""Composite graph request that writes a quote all or nothing, the parser of its answer, and the requests about opportunities.

The mapping (adapters/salesforce/mapping.py) names the fields. An account's open opportunities are searched, a chosen one is
checked, and its amount is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.calls import RestRequest, Trip, soql_containing, soql_text
from adapters.salesforce.errors import SalesforceRefusal, Target
from adapters.salesforce.mapping import CrmMapping, OpportunityMapping, default_mapping
from adapters.salesforce.records import HeldOpportunity, OpenOpportunity

if TYPE_CHECKING:
    from adapters.salesforce.calls import SalesforceCalls
    from adapters.salesforce.mapping import ChoiceMapping


NODES_MAX = 500  # of a graph: the quote, its lines, and the opportunity if the mapping wants one
LINES_MAX = NODES_MAX - 1
STATUS_AT_FIRST = "approved"  # a record is created when a version is approved
_KEY = re.compile(r"[A-Za-z0-9_-]{1,240}")  # fits a URL unescaped and leaves room for a line's suffix in 255 characters
_QUOTE_NODE = "quote"
_OPPORTUNITY_NODE = "opportunity"
_SUCCESS = range(200, 300)
_CUSTOMER_TEXT = frozenset(
    {"name", "account", "opportunity_name", "bill_to", "bill_to_email", "bill_to_address", "vat_id", "po_number"}
)  # of a quote: shown by length only
OFFERED_MAX: Final = 20
_GONE: Final = frozenset({"NOT_FOUND", "ENTITY_IS_DELETED"})


@dataclass(frozen=True, slots=True)
class SalesforceLine:
    """One line. `unit_price` is per unit (and month), not rounded; `discount_percent` is 0..100; `position` is 1-based."""

    sku: str
    name: str
    quantity: int
    months: int
    unit_price: Decimal
    discount_percent: Decimal
    net_amount: Decimal
    position: int


@dataclass(frozen=True, slots=True)
class SalesforceQuote:
    """One immutable quote version. `key` is its identity in Salesforce ([A-Za-z0-9_-], at most 240 characters).

    `content_hash` covers our snapshot: the same key with another hash is a conflict. `currency` is ISO 4217, `expires_on` a date
    (YYYY-MM-DD). `opportunity_key` is the identity of the opportunity that all versions share, if the mapping wants one; an
    older version (not `is_head`) never changes its amount. `opportunity_id` names an opportunity that a user chose instead, of
    the account `opportunity_account_id`. Without a value, the fields of `account_id` and of what follows it are not written.
    """

    key: str
    name: str
    account: str
    version: int
    currency: str
    total: Decimal
    content_hash: str
    expires_on: str
    lines: tuple[SalesforceLine, ...]
    opportunity_key: str = ""
    opportunity_name: str = ""
    is_head: bool = True
    opportunity_id: str = ""
    opportunity_account_id: str = ""
    account_id: str | None = None
    tax: Decimal | None = None
    bill_to: str | None = None
    bill_to_email: str | None = None
    bill_to_address: str | None = None
    vat_id: str | None = None
    po_number: str | None = None
    start_date: str | None = None
    payment: str | None = None


def checked_key(key: str) -> str:
    """Return the key. Raises AdapterError(VALIDATION) when it is not safe in a URL."""
    if _KEY.fullmatch(key):
        return key
    raise AdapterError(
        Failure.VALIDATION,
        "invalid_key",
        "The quote's Salesforce key may hold only letters, digits, '_' and '-' (at most 240). Nothing was sent.",
    )


def graph_body(
    quote: SalesforceQuote,
    api_version: str,
    mapping: CrmMapping | None = None,
    *,
    opportunity_id: str | None = None,
    closed: bool = False,
) -> bytes:
    """Return the request body: the opportunity if the mapping wants one, the quote, then its lines.

    `opportunity_id` names the existing opportunity, which keeps its amount if it is `closed`; without it one is created.
    Raises AdapterError(VALIDATION) for a bad key or too many lines.
    """
    checked_key(quote.key)
    mapping = mapping or default_mapping()
    root = f"/services/data/v{api_version}/sobjects"
    nodes = [] if closed else _opportunity_nodes(quote, root, mapping, opportunity_id)
    most = LINES_MAX - len(nodes)
    if len(quote.lines) > most:
        size = f"Quote {quote.key} has {len(quote.lines)} lines; Salesforce takes {most} at once."
        raise AdapterError(Failure.VALIDATION, "too_many_lines", f"{size} Nothing was sent. Split the quote.")
    body = _quote_body(quote, mapping)
    if link := _linked(quote, mapping, opportunity_id):  # Salesforce takes the account from the opportunity
        body = {name: value for name, value in body.items() if mapping.quote_fields.get(name) != "account_id"} | link
    nodes.append({"method": "POST", "url": f"{root}/{mapping.quote}/", "referenceId": _QUOTE_NODE, "body": body})
    for line in quote.lines:
        body = {
            mapping.line_parent: f"@{{{_QUOTE_NODE}.id}}",
            mapping.line_key: f"{quote.key}_L{line.position}",
            **_mapped(line, mapping.line_fields),
        }
        nodes.append({"method": "POST", "url": f"{root}/{mapping.line}/", "referenceId": f"line{line.position}", "body": body})
    return exact_json({"graphs": [{"graphId": "1", "compositeRequest": nodes}]}).encode()


def _opportunity_nodes(
    quote: SalesforceQuote, root: str, mapping: CrmMapping, opportunity_id: str | None
) -> list[dict[str, object]]:
    """Return the node that creates the opportunity or updates its amount to the head version's; empty if neither is needed."""
    wanted = mapping.opportunity
    if wanted is None or quote.opportunity_id:
        return []
    node: dict[str, object] = {"referenceId": _OPPORTUNITY_NODE}
    if opportunity_id is None:
        body = _opportunity_body(quote, wanted)
        return [{"method": "POST", "url": f"{root}/{wanted.sobject}/", **node, "body": body}]
    if not quote.is_head or mapping.amount_owner != "local_wins":  # another owner is heeded by a write of its own
        return []
    return [{"method": "PATCH", "url": f"{root}/{wanted.sobject}/{opportunity_id}", **node, "body": {wanted.amount: quote.total}}]


def _linked(quote: SalesforceQuote, mapping: CrmMapping, opportunity_id: str | None) -> dict[str, object]:
    """Return the field that links the quote to its opportunity: the chosen one, else our own if the mapping wants one."""
    if quote.opportunity_id and mapping.choice is not None:
        return {mapping.choice.link: quote.opportunity_id}
    if mapping.opportunity is None:
        return {}
    return {mapping.opportunity.link: opportunity_id or f"@{{{_OPPORTUNITY_NODE}.id}}"}


def _opportunity_body(quote: SalesforceQuote, wanted: OpportunityMapping) -> dict[str, object]:
    key = {wanted.key: checked_key(quote.opportunity_key)}
    return {**key, **_mapped(quote, wanted.fields), **wanted.given, wanted.amount: quote.total}


def exact_json(value: object) -> str:
    """Write JSON with every Decimal as its exact literal; a float is a bug. Raises AdapterError(VALIDATION) for NaN."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise AdapterError(Failure.VALIDATION, "invalid_number", "An amount of the quote is not a number. Nothing was sent.")
        return format(value, "f")
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{exact_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact_json, value)) + "]"
    if isinstance(value, str | bool | int) or value is None:
        return json.dumps(value)
    raise TypeError(f"{type(value).__name__} has no exact JSON form")


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """Result of a graph: the new quote's id, or the refusal with the object and the values it concerns."""

    quote_id: str | None
    refusal: SalesforceRefusal | None = None
    sobject: str = "Quote"
    values: Mapping[str, str] = field(default_factory=dict)


def read_graph(answer: object, quote: SalesforceQuote, mapping: CrmMapping | None = None) -> GraphAnswer:
    """Parse the answer to `graph_body`. Raises ValueError when it does not have the expected shape."""
    try:
        graph = _only(_only(answer)["graphs"][0])
        nodes = [_only(node) for node in graph["graphResponse"]["compositeResponse"]]
        succeeded = graph["isSuccessful"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("not the answer to a graph") from error
    if succeeded is True:
        return GraphAnswer(_quote_id(nodes, expected=1 + len(quote.lines)))
    if succeeded is not False:
        raise ValueError("a graph that neither succeeded nor failed")
    return _culprit(nodes, quote, mapping or default_mapping())


def _culprit(nodes: list[dict[str, Any]], quote: SalesforceQuote, mapping: CrmMapping) -> GraphAnswer:
    """Return the refusal of the node that failed the graph; the other nodes only report PROCESSING_HALTED."""
    halted = SalesforceRefusal(400, "PROCESSING_HALTED")
    for node in nodes:
        status = node.get("httpStatusCode")
        if not isinstance(status, int) or status in _SUCCESS:
            continue
        refusal = SalesforceRefusal.read(status, node.get("body"))
        if refusal.code == "PROCESSING_HALTED":
            halted = refusal
            continue
        wanted = mapping.opportunity
        if wanted is not None and node.get("referenceId") == _OPPORTUNITY_NODE:
            return GraphAnswer(None, refusal, wanted.sobject, _tellable(_opportunity_body(quote, wanted), wanted.fields))
        line = next((line for line in quote.lines if node.get("referenceId") == f"line{line.position}"), None)
        if line is None:
            held = {**mapping.quote_fields, mapping.quote_key: "key", mapping.status.field: "status"}
            return GraphAnswer(None, refusal, mapping.quote, _tellable(_quote_body(quote, mapping), held))
        return GraphAnswer(None, refusal, mapping.line, _tellable(_mapped(line, mapping.line_fields), {}))
    return GraphAnswer(None, halted, mapping.quote)


def _quote_id(nodes: list[dict[str, Any]], *, expected: int) -> str:
    own = [node for node in nodes if node.get("referenceId") != _OPPORTUNITY_NODE]
    if any(node.get("httpStatusCode") not in _SUCCESS for node in nodes):
        raise ValueError("a successful graph with a failed node")
    created = [node for node in own if node.get("httpStatusCode") in _SUCCESS]
    if len(created) != expected:
        raise ValueError("a successful graph with missing nodes")
    for node in created:
        body = node.get("body")
        if node.get("referenceId") == _QUOTE_NODE and isinstance(body, dict) and isinstance(body.get("id"), str):
            return str(body["id"])
    raise ValueError("a successful graph without the quote's id")


def _quote_body(quote: SalesforceQuote, mapping: CrmMapping) -> dict[str, object]:
    return {
        mapping.quote_key: quote.key,
        **_mapped(quote, mapping.quote_fields),
        mapping.status.field: mapping.status.words[STATUS_AT_FIRST],
    }


def _mapped(source: SalesforceQuote | SalesforceLine, fields: Mapping[str, str]) -> dict[str, object]:
    values = {name: getattr(source, attribute) for name, attribute in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def _tellable(body: Mapping[str, object], held: Mapping[str, str]) -> dict[str, str]:
    """Return the values in displayable form, customer text by its length only. `held` maps a field to our attribute."""
    return {
        name: f"({len(str(value))} characters)" if held.get(name) in _CUSTOMER_TEXT else json.dumps(str(value)[:80])
        for name, value in body.items()
    }


def _only(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise TypeError("not an object")


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

    async def read(self, quote: SalesforceQuote, *, correlation_id: str, more: tuple[str, ...] = ()) -> HeldOpportunity | None:
        """Return the current opportunity of a quote, chosen or our own, with `more` fields; None when it does not exist.

        Raises AdapterError.
        """
        sobject, amount, path, key = self._of(quote)
        place, target = f"{path}/{checked_key(key)}", Target("read the opportunity", sobject, quote.key)
        trip = Trip(correlation_id, target)

        async def read() -> HeldOpportunity | None:
            if quote.opportunity_id:
                return await self._held(quote.opportunity_id, trip, more)
            closed = self._mapping.closed
            found = await self._calls.record(place, (*filter(None, [amount, closed]), *more), target, trip, gone=_GONE)
            if found is None:
                return None
            is_closed, number = closed is not None and found.get(closed) is True, _number(found, amount)
            return HeldOpportunity(found["Id"], None, closed=is_closed, currency=None, amount=number, values=_texts(found, more))

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

    async def write(self, quote: SalesforceQuote, values: Mapping[str, str], *, correlation_id: str) -> None:
        """Write fields of a quote's opportunity; never creates one. Raises AdapterError."""
        sobject, _, path, key = self._of(quote)
        shown = {name: json.dumps(value) for name, value in values.items()}
        target = Target(f"write the {' and the '.join(values)} of", sobject, quote.key, shown, writes=True)
        trip = Trip(correlation_id, target)
        params = None if quote.opportunity_id else {"updateOnly": "true"}
        request = RestRequest("PATCH", f"{path}/{checked_key(key)}", target, exact_json(dict(values)).encode(), params)
        await self._calls.within_deadline(trip, self._calls.authorised(request, trip))

    def sobject_of(self, quote: SalesforceQuote) -> str:
        """Return the object of a quote's opportunity, chosen or our own."""
        return self._of(quote)[0]

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

    async def _held(self, record_id: str, trip: Trip, more: tuple[str, ...] = ()) -> HeldOpportunity | None:
        choice = self._choice()
        found = await self._calls.record(
            f"sobjects/{choice.sobject}/{checked_key(record_id)}",
            (choice.account, choice.closed, *filter(None, [choice.currency, choice.amount]), *more),
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
            values=_texts(found, more),
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


def _texts(found: dict[str, Any], names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: str(found[name]) if found.get(name) is not None else None for name in names}
