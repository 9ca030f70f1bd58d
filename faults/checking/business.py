"""What was decided and what it costs: I13, I17. The rules of SPEC 9, written down a second time."""

from __future__ import annotations

import hashlib
import json
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

from faults.checking.evidence import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checking.evidence import Facts, Row

LADDER: Final = ("sales_manager", "deal_desk", "vp_sales", "cfo")
DECISIONS: Final = {"approval.approved": "approved", "approval.rejected": "rejected"}
HUNDRED: Final = Decimal(100)


def decided_rightly(facts: Facts) -> Iterator[str]:
    """I13."""
    quotes = {quote["quote_id"]: quote for quote in facts.quotes}
    decided: dict[str, Row] = {}
    for event in facts.events:
        if event["event_type"] in DECISIONS:
            approval_id = loaded(event["after"])["approval_id"]
            if approval_id in decided:
                yield f"approval {approval_id} was decided twice (events {decided[approval_id]['id']} and {event['id']})"
            decided[approval_id] = event
    for approval in facts.approvals:
        quote = quotes.get(approval["quote_id"])
        if approval["state"] == "pending" or quote is None:
            continue
        if approval["decided_by"] is None:
            if json.loads(approval["required_roles"]):
                yield f"approval {approval['approval_id']} needs {approval['required_roles']} and nobody decided it"
            continue
        problems = [*_not_entitled(facts, approval, quote), *_not_what_was_shown(facts, approval, quote, decided)]
        yield from (f"approval {approval['approval_id']}: {problem}" for problem in problems)
    yield from _expired_early(facts, quotes)


def adds_up(facts: Facts) -> Iterator[str]:
    """I17."""
    totals = {}
    for version in facts.versions:
        name = f"{version['quote_id']} v{version['version']}"
        if hashlib.sha256(version["pricing"].encode()).hexdigest() != version["pricing_hash"]:
            yield f"the price of {name} does not have its hash"
        pricing = json.loads(version["pricing"])
        totals[version["quote_id"], version["version"]] = Decimal(pricing["net_total"])
        yield from (f"{name}: {problem}" for problem in _wrong_sums(pricing))
    for quote in facts.quotes:
        priced = [version["version"] for version in facts.versions if version["quote_id"] == quote["quote_id"]]
        if sorted(priced) != list(range(1, quote["version"] + 1)):
            yield f"{quote['quote_id']} is at version {quote['version']}; priced are {sorted(priced)}"
    yield from _sums_in_salesforce(facts, totals)


def _expired_early(facts: Facts, quotes: dict[str, Row]) -> Iterator[str]:
    for event in facts.events:
        operation = facts.operation_by_key.get(event["operation_key"])
        quote = quotes.get(event["aggregate_id"])
        if event["event_type"] != "quote.expired" or operation is None or quote is None:
            continue
        if operation["cycle"] == 1 and operation["received_at"] < quote["valid_until"]:
            yield f"{quote['quote_id']} was closed {quote['valid_until'] - operation['received_at']} ms before it expired"


def _not_entitled(facts: Facts, approval: Row, quote: Row) -> Iterator[str]:
    who, role = approval["decided_by"], approval["decided_role"] or ""
    if who in (approval["requested_by"], quote["requester"]):
        yield f"{who} decided what they had asked for"
    held = [part.strip() for part in role.split("+")]
    required = json.loads(approval["required_roles"])
    if len(held) != len(required) or not all(_suffices(have, need) for have, need in zip(held, required, strict=False)):
        yield f"it needs {required}, and was decided as {role!r}"
    approvers = facts.house.approvers
    if approvers is not None and not all(who in approvers.get(part, ()) for part in held):
        yield f"{who} does not hold the role {role!r}"
    if approval["decided_at"] >= quote["valid_until"]:
        yield "it was decided after the quote had expired"


def _not_what_was_shown(facts: Facts, approval: Row, quote: Row, decided: dict[str, Row]) -> Iterator[str]:
    event = decided.get(approval["approval_id"])
    if event is None:
        yield "no audited decision led to its state"
        return
    if DECISIONS[event["event_type"]] != approval["state"] or event["actor"] != approval["decided_by"]:
        yield f"it is {approval['state']} by {approval['decided_by']}; audited is {event['event_type']} by {event['actor']}"
    operation = facts.operation_by_key.get(event["operation_key"])
    if operation is None:
        return  # purged; its event was checked
    seen = operation["pinned_version"] if operation["aggregate_version"] is None else operation["aggregate_version"]
    payload = loaded(operation["payload"])
    if (seen, payload.get("approval_id")) != (approval["quote_version"], approval["approval_id"]):
        yield f"the decision was about {payload.get('approval_id')} at version {seen}"
    if operation["actor"] != approval["decided_by"] or operation["team_id"] != quote["team_id"]:
        yield f"operation {operation['id']}, which decided it, is by {operation['actor']} of {operation['team_id']}"


def _suffices(have: str, need: str) -> bool:
    if need in LADDER and have in LADDER:
        return LADDER.index(have) >= LADDER.index(need)
    return have == need


def _wrong_sums(pricing: dict[str, Any]) -> Iterator[str]:
    cent = Decimal(pricing["list_total"])
    percent = Decimal(pricing["discount_percent"])
    sums = dict.fromkeys(("list", "discount", "net", "cost"), Decimal(0))
    for line in pricing["lines"]:
        gross = Decimal(line["unit_price"]) * line["quantity"] * line["months"]
        wanted = {"list": gross.quantize(cent, ROUND_HALF_UP)}
        wanted["discount"] = (wanted["list"] * percent / HUNDRED).quantize(cent, ROUND_HALF_UP)
        wanted["net"] = wanted["list"] - wanted["discount"]
        for name, amount in wanted.items():
            if Decimal(line[f"{name}_amount"]) != amount:
                yield f"line {line['position']} has {name} {line[f'{name}_amount']}, which should be {amount}"
        for name in sums:
            sums[name] += Decimal(line[f"{name}_amount"])
    for name, amount in sums.items():
        if Decimal(pricing[f"{name}_total"]) != amount:
            yield f"its {name} total is {pricing[f'{name}_total']}; its lines add up to {amount}"


def _sums_in_salesforce(facts: Facts, totals: dict[tuple[str, int], Decimal]) -> Iterator[str]:
    """Of a quote in Salesforce every line is there: its net amounts add up to the quote's."""
    if "QuoteLineItem" not in facts.outside.crm:
        return
    nets: dict[str, Decimal] = {}
    for line in facts.outside.crm["QuoteLineItem"]:
        nets[line["QuoteId"]] = nets.get(line["QuoteId"], Decimal(0)) + Decimal(str(line["Quotebot_Net__c"]))
    for effect in facts.crm_effects.values():
        if effect["state"] == "delivered" and effect["external_ref"] in nets:
            wanted = totals.get((effect["aggregate_id"], loaded(effect["payload"])["version"]))
            if wanted is not None and nets[effect["external_ref"]] != wanted:
                yield f"Salesforce has {nets[effect['external_ref']]} for {effect['aggregate_id']}; it costs {wanted}"
        elif effect["state"] == "delivered" and "resolved_by" not in loaded(effect["result"]):
            yield f"Salesforce has no lines of {effect['aggregate_id']}"
