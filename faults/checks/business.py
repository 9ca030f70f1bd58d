"""Prices, totals and rulesets: I17. A second, independent implementation of the sums of SPEC 9."""

from __future__ import annotations

import hashlib
import json
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

from faults.checks.evidence import grouped, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checks.evidence import Facts

HUNDRED: Final = Decimal(100)
RULESET_STATES: Final = {"ruleset.imported": "draft", "ruleset.activated": "active", "ruleset.discarded": "discarded"}


def adds_up(facts: Facts) -> Iterator[str]:
    """I17: totals are the sums of their lines, in the ledger and in Salesforce, and a quote has every version up to its own."""
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
    yield from _opportunities(facts, totals)
    hashes = {row["hash"] for row in facts.rulesets}
    for row in facts.rulesets:
        if hashlib.sha256(row["document"].encode()).hexdigest() != row["hash"]:
            yield f"version {row['version']} of the ruleset does not have its hash"
    for version in facts.versions:
        priced_by = json.loads(version["pricing"]).get("ruleset_hash")
        if hashes and priced_by and priced_by not in hashes:
            yield f"{version['quote_id']} v{version['version']} was priced by a ruleset that is not kept"


def rulesets_as_audited(facts: Facts) -> Iterator[str]:
    """One version of the ruleset is active, and each version is in the state that the audit left it in."""
    found = {row["version"]: row["state"] for row in facts.rulesets}
    told: dict[int, str] = {}
    for event in facts.events:
        if event["event_type"] == "ruleset.activated":
            told |= {version: "retired" for version, state in told.items() if state == "active"}
        if event["event_type"].startswith("ruleset.") and (after := loaded(event["after"])):
            told[after["version"]] = RULESET_STATES[event["event_type"]]
    yield from (
        f"version {version} of the ruleset is {found.get(version)}; the audit ends with {told.get(version)}"
        for version in sorted(found.keys() | told.keys())
        if found.get(version) != told.get(version)
    )
    if found and list(found.values()).count("active") != 1:
        yield f"{list(found.values()).count('active')} versions of the ruleset are active"


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
    yield from (
        f"its {name} total is {pricing[f'{name}_total']}; its lines add up to {amount}"
        for name, amount in sums.items()
        if Decimal(pricing[f"{name}_total"]) != amount
    )


def _sums_in_salesforce(facts: Facts, totals: dict[tuple[str, int], Decimal]) -> Iterator[str]:
    """A quote in Salesforce has all its lines: their net amounts add up to the quote's net total."""
    if "QuoteLineItem" not in facts.outside.crm:
        return
    nets = {
        quote_id: sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines)
        for quote_id, lines in grouped(facts.outside.crm["QuoteLineItem"], "QuoteId").items()
    }
    for effect in facts.crm_effects.values():
        if effect["state"] == "delivered" and effect["external_ref"] in nets:
            wanted = totals.get((effect["aggregate_id"], loaded(effect["payload"])["version"]))
            if wanted is not None and nets[effect["external_ref"]] != wanted:
                yield f"Salesforce has {nets[effect['external_ref']]} for {effect['aggregate_id']}; it costs {wanted}"
        elif effect["state"] == "delivered" and "resolved_by" not in loaded(effect["result"]):
            yield f"Salesforce has no lines of {effect['aggregate_id']}"


def _opportunities(facts: Facts, totals: dict[tuple[str, int], Decimal]) -> Iterator[str]:
    """A quote's records belong to the opportunity chosen for it; at rest the opportunity has the amount of the newest record."""
    amounts = {row["Id"]: row["Amount"] for row in facts.outside.crm.get("Opportunity", ()) if not row["IsClosed"]}
    if not amounts:
        return
    hangs_on = {row["Id"]: row["OpportunityId"] for row in facts.outside.crm["Quote"]}
    created = {event["aggregate_id"]: loaded(event["after"]) for event in facts.events if event["event_type"] == "quote.created"}
    newest: dict[str, int] = {}
    for effect in facts.crm_effects.values():
        quote_id, kind = effect["aggregate_id"], loaded(effect["result"]).get("opportunity")
        if effect["state"] != "delivered" or kind is None:
            continue
        chosen = created[quote_id].get("opportunity")
        if chosen is not None and hangs_on.get(effect["external_ref"]) != chosen:
            yield f"the record {effect['external_ref']} of {quote_id} does not hang on the opportunity {chosen}"
        newest[quote_id] = max(newest.get(quote_id, 0), loaded(effect["payload"])["version"])
    owed = {
        effect["aggregate_id"]
        for effect in facts.effects
        if effect["class"] == "crm.update" and effect["state"] not in ("delivered", "superseded")
    }
    for quote_id, version in newest.items() if facts.at_rest else ():
        chosen = created[quote_id].get("opportunity")
        if chosen in amounts and quote_id not in owed and amounts[chosen] != totals[quote_id, version]:
            costs = totals[quote_id, version]
            yield f"the opportunity {chosen} has the amount {amounts[chosen]}; {quote_id} v{version} costs {costs}"
