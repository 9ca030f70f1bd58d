"""Lifecycle of a quote: I19. A second, independent implementation of the arrows of SPEC 9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults.checks.evidence import grouped, is_domain, loaded, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from faults.checks.evidence import Facts, Row

ENDED: Final = frozenset({"accepted", "lost", "cancelled", "expired"})
ARROWS: Final[Mapping[str, frozenset[str]]] = {
    "draft": frozenset({"validated", "pending_approval", "cancelled", "expired"}),  # sent back, then submitted again as it is
    "validated": frozenset({"priced", "cancelled", "expired"}),
    "priced": frozenset({"pending_approval", "approved", "draft", "cancelled", "expired"}),
    "pending_approval": frozenset({"approved", "rejected", "draft", "cancelled", "expired"}),
    "approved": frozenset({"finalized", "draft", "cancelled", "expired"}),
    "rejected": frozenset({"draft", "cancelled", "expired"}),
    "finalized": frozenset({"sent", "cancelled", "expired"}),
    "sent": frozenset({"accepted", "lost", "cancelled", "expired"}),
}
# Events of changes that concern one version: the command must name the version that was current.
IN_TIME: Final = frozenset({"quote.revised", "quote.finalized", "quote.sent", "quote.accepted", "quote.lost", "quote.cancelled"})


def lived_rightly(facts: Facts) -> Iterator[str]:
    """I19: a quote follows its lifecycle's arrows, a change concerns the version that was seen, and every end is kept."""
    standing: dict[str, tuple[str, int]] = {}
    for event in facts.events:
        if not is_domain(event):
            continue
        after = loaded(event["after"]) if event["after"] else {}
        if "state" in after and "version" in after:
            quote_id, now = event["aggregate_id"], (after["state"], after["version"])
            yield from _step(quote_id, standing.get(quote_id), now)
            standing[quote_id] = now
        if event["event_type"] in IN_TIME:
            yield from _about_what_was_seen(facts, event)
    yield from _ends(facts)
    yield from _superseded(facts)


def _step(quote_id: str, before: tuple[str, int] | None, after: tuple[str, int]) -> Iterator[str]:
    if before is None or before == after:
        return
    (state, version), (new_state, new_version) = before, after
    if new_version == version:
        if new_state not in ARROWS.get(state, ()):
            yield f"{quote_id} v{version} went from {state} to {new_state}"
    elif new_version != version + 1 or new_state != "priced":
        yield f"{quote_id} went from v{version} to v{new_version}, which is {new_state}"
    elif state in ENDED:
        yield f"{quote_id} got v{new_version} after it was {state}"


def _about_what_was_seen(facts: Facts, event: Row) -> Iterator[str]:
    operation = facts.operation_by_key.get(event["operation_key"])
    if operation is None:
        return  # purged; its event was checked
    seen = operation["pinned_version"] if operation["aggregate_version"] is None else operation["aggregate_version"]
    was = loaded(event["before"])["version"]
    if seen is not None and seen != was:
        yield f"operation {operation['id']} was about {operation['aggregate_id']} v{seen} and changed v{was}"


def _ends(facts: Facts) -> Iterator[str]:
    """The person who ended a quote is kept, and no quote was accepted after its last day."""
    closings = {row["quote_id"]: row for row in rows(facts.ledger, "SELECT * FROM quote_closings")}
    for quote in facts.quotes:
        closing = closings.pop(quote["quote_id"], None)
        if closing is None:
            if quote["state"] in ("accepted", "lost", "cancelled"):
                yield f"{quote['quote_id']} is {quote['state']} and nobody ended it"
        elif closing["state"] != quote["state"]:
            yield f"{quote['quote_id']} is {quote['state']}; it was ended as {closing['state']}"
        elif closing["closed_at"] >= quote["valid_until"]:
            yield f"{quote['quote_id']} was {quote['state']} after its last day"
    yield from (f"{quote_id} was ended and does not exist" for quote_id in closings)


def _superseded(facts: Facts) -> Iterator[str]:
    """Every version except the newest has a recorded end, and no other version has one."""
    superseded = rows(facts.ledger, "SELECT quote_id, version FROM superseded_versions ORDER BY quote_id, version")
    ended = grouped(superseded, "quote_id")
    for quote in facts.quotes:
        found = [row["version"] for row in ended.pop(quote["quote_id"], ())]
        if found != list(range(1, quote["version"])):
            yield f"{quote['quote_id']} is at version {quote['version']}; superseded are {found}"
    yield from (f"versions of {quote_id} are superseded; it does not exist" for quote_id in ended)
