"""Decisions and their actors: I13. A second, independent implementation of the rules of SPEC 9."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from faults.checks.evidence import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checks.evidence import Facts, Row

LADDER: Final = ("sales_manager", "deal_desk", "vp_sales", "cfo")
ENDINGS: Final = {  # the events that end a request, and the state they leave
    "approval.approved": "approved",
    "approval.rejected": "rejected",
    "approval.changes_requested": "changes_requested",
    "approval.expired": "expired",
    "approval.invalidated": "invalidated",
}
UNDECIDED_ENDS: Final = ("expired", "invalidated")
ANSWERS: Final = frozenset({*ENDINGS, "approval.slot_approved"}) - {f"approval.{end}" for end in UNDECIDED_ENDS}
GIVEN: Final = ("approved", "rejected")


def decided_rightly(facts: Facts) -> Iterator[str]:
    """I13: a decision is made once, on the version shown, by another person with the role."""
    quotes = {quote["quote_id"]: quote for quote in facts.quotes}
    ended: dict[str, Row] = {}
    answers: dict[str, list[Row]] = {}
    for event in facts.events:
        if event["event_type"] not in ENDINGS and event["event_type"] not in ANSWERS:
            continue
        approval_id = loaded(event["after"])["approval_id"]
        if event["event_type"] in ANSWERS:
            answers.setdefault(approval_id, []).append(event)
        if event["event_type"] in ENDINGS:
            if approval_id in ended:
                yield f"approval {approval_id} was decided twice (events {ended[approval_id]['id']} and {event['id']})"
            ended[approval_id] = event
    for approval in facts.approvals:
        quote, slots = quotes.get(approval["quote_id"]), facts.slots_of.get(approval["approval_id"], [])
        if quote is None:
            continue
        events = answers.get(approval["approval_id"], [])
        problems = [*_as_asked(approval, slots), *_as_audited(approval, quote, ended.get(approval["approval_id"]))]
        for slot in slots:
            if slot["state"] in GIVEN:
                problems += _not_entitled(facts, approval, quote, slot)
                problems += () if approval["earlier"] else _not_what_was_shown(facts, approval, quote, slot, events)
        yield from (f"approval {approval['approval_id']}: {problem}" for problem in [*problems, *_one_person_twice(slots)])
    yield from _expired_early(facts, quotes)


def _as_asked(approval: Row, slots: list[Row]) -> Iterator[str]:
    """The request matches its slots: every required role has its slot, and the request is approved when all slots are."""
    required = set(json.loads(approval["required_roles"]))
    asked = {" or ".join(json.loads(slot["roles"])) for slot in slots}
    if required != asked:
        yield f"it needs {sorted(required)}, and has slots of {sorted(asked)}"
    states = [slot["state"] for slot in slots]
    if approval["state"] == "approved" and set(states) - {"approved"}:
        yield f"it is approved, and its slots are {states}"
    if approval["state"] in ("rejected", "changes_requested") and "rejected" not in states:
        yield f"it is {approval['state']}, and nobody said no"
    if approval["state"] == "pending" and not set(states) & {"pending", "escalated"}:
        yield f"it is pending, and nobody is asked: {states}"
    decided = [slot["decided_role"] for slot in slots if slot["state"] in GIVEN]
    if approval["state"] == "approved" and slots and (approval["decided_role"] or "").split(" + ") != decided:
        yield f"it was decided as {approval['decided_role']!r}, its slots as {decided}"
    if approval["decided_by"] is not None and approval["decided_by"] not in {slot["decided_by"] for slot in slots}:
        yield f"it was decided by {approval['decided_by']}, who decided none of its slots"


def _as_audited(approval: Row, quote: Row, event: Row | None) -> Iterator[str]:
    """A decision is audited, and no approval is pending for a superseded version or for a quote that has ended."""
    if approval["decided_by"] is not None or approval["state"] in UNDECIDED_ENDS:
        if event is None:
            yield "no audited decision led to its state"
        elif ENDINGS[event["event_type"]] != approval["state"]:
            yield f"it is {approval['state']}; audited is {event['event_type']}"
        elif approval["decided_by"] is not None and event["actor"] != approval["decided_by"]:
            yield f"it was decided by {approval['decided_by']}; audited is {event['actor']}"
    if approval["state"] == "pending" and (approval["quote_version"], "pending_approval") != (quote["version"], quote["state"]):
        yield f"it is pending, and the quote is {quote['state']} at version {quote['version']}"


def _not_entitled(facts: Facts, approval: Row, quote: Row, slot: Row) -> Iterator[str]:
    who, role, needed = slot["decided_by"], slot["decided_role"] or "", json.loads(slot["roles"])
    askers = (approval["requested_by"], quote["requester"], facts.reviser_of.get((quote["quote_id"], approval["quote_version"])))
    if who in askers or (slot["on_behalf_of"] is not None and slot["on_behalf_of"] in askers):
        yield f"{who} decided what they had asked for"
    if facts.kind_of.get(who, "member") != "member":
        yield f"{who} is no full member but a {facts.kind_of[who]}"
    if not any(_suffices(role, each) for each in needed):
        yield f"it needs {needed}, and was decided as {role!r}"
    approvers = facts.house.approvers
    if approvers is not None and who not in approvers.get(role, ()):
        yield f"{who} does not hold the role {role!r}"
    if slot["decided_at"] >= quote["valid_until"]:
        yield "it was decided after the quote had expired"
    if approval["earlier"] is None and slot["expires_at"] is not None and slot["decided_at"] >= slot["expires_at"]:
        yield "it was decided after the request had expired"


def _not_what_was_shown(facts: Facts, approval: Row, quote: Row, slot: Row, events: list[Row]) -> Iterator[str]:
    event = next((each for each in events if _tells(each, slot)), None)
    if event is None:
        yield f"slot {slot['slot']} is {slot['state']} by {slot['decided_by']}; no audited decision led to it"
        return
    operation = facts.operation_by_key.get(event["operation_key"])
    if operation is None:
        return  # purged; its event was checked
    seen = operation["pinned_version"] if operation["aggregate_version"] is None else operation["aggregate_version"]
    payload = loaded(operation["payload"])
    if (seen, payload.get("approval_id")) != (approval["quote_version"], approval["approval_id"]):
        yield f"the decision was about {payload.get('approval_id')} at version {seen}"
    if operation["actor"] != slot["decided_by"] or operation["team_id"] != quote["team_id"]:
        yield f"operation {operation['id']}, which decided it, is by {operation['actor']} of {operation['team_id']}"


def _tells(event: Row, slot: Row) -> bool:
    """Tell whether an event records the decision that this slot shows."""
    told: Row = next((each for each in loaded(event["after"]).get("slots", ()) if each["slot"] == slot["slot"]), {})
    shown = {name: slot[name] for name in ("state", "decided_by", "decided_role", "on_behalf_of")}
    return event["actor"] == slot["decided_by"] and shown.items() <= told.items()


def _expired_early(facts: Facts, quotes: dict[str, Row]) -> Iterator[str]:
    for event in facts.events:
        if event["event_type"] == "quote.expired":
            operation, quote = facts.operation_by_key.get(event["operation_key"]), quotes.get(event["aggregate_id"])
            if operation and quote and operation["cycle"] == 1 and operation["received_at"] < quote["valid_until"]:
                yield f"{quote['quote_id']} was closed {quote['valid_until'] - operation['received_at']} ms before it expired"


def _one_person_twice(slots: list[Row]) -> Iterator[str]:
    """The roles of the ladder form one circle, each other role its own: within a circle every approval is by another person."""
    given: Counter[tuple[str, str]] = Counter()
    for slot in slots:
        if slot["state"] == "approved":
            roles = json.loads(slot["roles"])
            given[slot["decided_by"], "commercial" if set(roles) & set(LADDER) else " or ".join(roles)] += 1
    yield from (f"{who} gave {count} yeses of the {circle} circle" for (who, circle), count in given.items() if count > 1)


def _suffices(have: str, need: str) -> bool:
    if need in LADDER and have in LADDER:
        return LADDER.index(have) >= LADDER.index(need)
    return have == need
