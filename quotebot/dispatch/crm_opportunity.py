"""Writes of the fields of a quote's opportunity that follow the quote: its amount, its stage and the loss reason.

Each field has an owner in the mapping. A closed opportunity is never changed: people own closed books.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.failures import AdapterError, Failure
from ledger.records import Delivered
from quotebot.domain import money
from quotebot.domain.language import _
from quotebot.domain.quotes.crm_fields import FieldVerdict, judge
from quotebot.execution.crm_effects import AMOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.salesforce.api import Salesforce
    from adapters.salesforce.graph import SalesforceQuote
    from adapters.salesforce.mapping import CrmMapping, FollowingMapping
    from adapters.salesforce.records import HeldOpportunity
    from ledger.records import Effect


@dataclass(frozen=True, slots=True)
class Deal:
    """Facts of the newest recorded version: its CRM status, the category of its loss, and the values we may have written.

    `totals` are the totals of all versions as text, `written` the values of each field that follows the status.
    """

    status: str
    loss_reason: str | None
    totals: frozenset[str]
    written: Mapping[str, set[str]]


async def write(salesforce: Salesforce, effect: Effect, newest: SalesforceQuote, deal: Deal) -> Delivered:
    """Write the amount, or the stage and the loss reason, as far as their owners allow it. Raises AdapterError."""
    mapping, opportunities = salesforce.mapping, salesforce.opportunities
    is_amount = effect.payload["what"] == AMOUNT
    more = () if is_amount else tuple(each.field for each in mapping.following)
    held = await opportunities.read(newest, correlation_id=effect.correlation_id, more=more)
    if held is None:
        message = _(
            "The opportunity of {key} is not in Salesforce any more, or our login may not read it. Its fields were not "
            "written; the quote and its record are unchanged. Restore it from the recycle bin and replay this, or discard it.",
            key=newest.key,
        )
        raise AdapterError(Failure.CONFLICT, "opportunity_gone", message)
    replaced = set(effect.payload.get("instead_of", ()))
    sobject = opportunities.sobject_of(newest)
    if is_amount:
        found = [_amount(mapping, sobject, newest, held, deal.totals | replaced)]
        result: dict[str, Any] = {"amount": found[0]["ours"]}
        if found[0]["verdict"] == FieldVerdict.WRITE:
            await opportunities.write_amount(newest, correlation_id=effect.correlation_id)
    else:
        found, result = _fields(mapping, sobject, held, deal, replaced), {"status": deal.status}
        values = {each["name"]: each["ours"] for each in found if each["verdict"] == FieldVerdict.WRITE}
        if values:
            await opportunities.write(newest, values, correlation_id=effect.correlation_id)
    there = all(each["verdict"] != FieldVerdict.WRITE for each in found)
    rows = [{name: value for name, value in each.items() if name != "name"} for each in found]
    whole = {"record_id": held.record_id, **result, "closed": held.closed, "fields": rows}
    return Delivered(held.record_id, whole, already_there=there)


def _amount(
    mapping: CrmMapping, sobject: str, newest: SalesforceQuote, held: HeldOpportunity, expected: frozenset[str]
) -> dict[str, Any]:
    ours = money.trimmed(newest.total)
    theirs = None if held.amount is None else money.trimmed(held.amount)
    name = mapping.choice if newest.opportunity_id else mapping.opportunity or mapping.choice
    verdict = judge(mapping.amount_owner, ours, theirs, expected)
    return _row(sobject, "" if name is None or name.amount is None else name.amount, ours, theirs, _kept(held, verdict))


def _fields(mapping: CrmMapping, sobject: str, held: HeldOpportunity, deal: Deal, replaced: set[str]) -> list[dict[str, Any]]:
    """Return a row of each field for which the status has a word."""
    words = ((mapping.stage, deal.status), (mapping.loss_reason, deal.loss_reason if deal.status == "lost" else None))
    return [
        _judged(each, each.words[word], mapping, sobject, held, deal, replaced)
        for each, word in words
        if each is not None and word is not None and word in each.words
    ]


def _judged(
    field: FollowingMapping,
    ours: str,
    mapping: CrmMapping,
    sobject: str,
    held: HeldOpportunity,
    deal: Deal,
    replaced: set[str],
) -> dict[str, Any]:
    theirs = held.values.get(field.field)
    first = {} if mapping.opportunity is None else mapping.opportunity.given
    expected = {*deal.written.get(field.field, ()), *field.replaces, *replaced, *filter(None, [first.get(field.field)])}
    return _row(sobject, field.field, ours, theirs, _kept(held, judge(field.owner, ours, theirs, expected)))


def _kept(held: HeldOpportunity, verdict: FieldVerdict) -> FieldVerdict:
    return FieldVerdict.KEEP if held.closed and verdict is not FieldVerdict.THERE else verdict


def _row(sobject: str, name: str, ours: str, theirs: str | None, verdict: FieldVerdict) -> dict[str, Any]:
    return {"name": name, "field": f"{sobject}.{name}", "ours": ours, "theirs": theirs, "verdict": verdict.value}
