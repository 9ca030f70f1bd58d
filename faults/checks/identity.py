"""One request is one command, one command is one change: I1, I2, I3, I11, I12."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import orjson

from faults.checks.business import rulesets_as_audited
from faults.checks.evidence import is_domain, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from faults.checks.evidence import Facts, Row

DAY_MS: Final = 86_400_000
DELIVERIES_KEPT_MS: Final = 7 * DAY_MS
SHOWN_UNFINISHED: Final = 250  # ordinal of the card that shows an unfinished command
REDRAWN_AFTER_A_DECISION: Final = (800, 900)  # first ordinals of the cards after a replay and after a discard at the terminal
REDRAWN_MAX: Final = 4  # cards of one dead command
TOLD_AT_A_RETRY: Final = 500  # first ordinal of a retry's notifications
ORDINALS_PER_CYCLE: Final = 1000  # SPEC: effects of a dead letter are numbered apart from those of an execution
CARDS_PER_GENERATION: Final = 1_000_000  # the card that a restore draws is numbered apart from both
# Openings of the acknowledgements that promise nothing.
NOT_RECORDED: Final = (
    "That didn't go through.",
    "We couldn't confirm that went through.",
    "That's more than ",  # commands in a minute
    "That's too large (",
    "That's too long (",
    "Quotes need a channel ",
    "2 things to fix:",  # in text that is no quote
    "We couldn't verify your Slack account.",
    "Quotebot is only available to members",
    "Quotebot isn't available to guests.",
)
TURNED_AWAY_MS: Final = 60_000  # the access gate audits one refusal per person in this time
ENDS: Final = ("operation.applied", "operation.refused")

# Events that an applied command of each kind must have left: one of each alternative.
CHANGES: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "quote.create": (frozenset({"quote.created"}),),
    "quote.create_another": (frozenset({"quote.created"}),),
    "quote.create_by_form": (frozenset({"quote.created"}),),
    "quote.clone": (frozenset({"quote.created"}),),
    "quote.revise": (frozenset({"quote.revised"}),),
    "quote.cancel": (frozenset({"quote.cancelled"}),),
    "quote.finalize": (frozenset({"quote.finalized"}),),
    "quote.mark_sent": (frozenset({"quote.sent"}),),
    "quote.accept": (frozenset({"quote.accepted"}),),
    "quote.lose": (frozenset({"quote.lost"}),),
    "quote.expire": (frozenset({"quote.expired"}),),
    "quote.note_stale": (frozenset({"quote.stale_noted"}),),
    "quote.submit": (
        frozenset({"quote.submitted"}),
        frozenset({"approval.requested", "approval.automatic", "approval.reused"}),
    ),
    "approval.decide": (
        frozenset({"approval.approved", "approval.slot_approved", "approval.rejected", "approval.changes_requested"}),
    ),
    "approval.remind": (frozenset({"approval.reminded"}),),
    "approval.escalate": (frozenset({"approval.escalated"}),),
    "approval.expire": (frozenset({"approval.expired"}),),
    "approval.reassign": (frozenset({"approval.reassigned"}),),
    "approval.delegate": (frozenset({"delegation.set", "delegation.ended"}),),
    "crm.reconcile": (frozenset({"crm.reconciled"}),),
    "crm.sync": (),
    # these change no quote: they show, ask, or work on the ledger's own rows
    "effect.steer": (),
    "command.steer": (),
    **dict.fromkeys(("message.read", "message.answer"), ()),
    **dict.fromkeys(("quote.propose", "quote.refresh", "home.show", "letter.announce", "letter.retry", "letter.discard"), ()),
    **dict.fromkeys(("digest.set", "digest.send", "link.preview"), ()),
    **dict.fromkeys(("letter.replay_all", "letter.resubmit", "ops.card"), ()),
}
CHANGES_NOTHING: Final = frozenset({"approval.refused", "approval.duplicate_suppressed", "access.refused", "delegation.refused"})


def applied_once(facts: Facts) -> Iterator[str]:
    """I1: a command is carried out at most once, makes each change once, and every key is that of its request."""
    for operation in facts.operations:
        if _sha256(operation["payload"].encode()) != operation["payload_hash"]:
            yield f"operation {operation['id']}: its payload does not have its hash"
        if operation_key(operation) != operation["operation_key"]:
            yield f"operation {operation['id']}: its key is not that of its request"
    yield from _effect_keys(facts)
    for key, events in facts.events_of_operation.items():
        ends = sum(event["event_type"] in ENDS for event in events)
        if ends > 1:
            yield f"operation {key[:8]} was carried out {ends} times"
        changes = Counter((event["event_type"], event["aggregate_id"]) for event in events if is_domain(event))
        yield from (
            f"operation {key[:8]} changed {aggregate_id} {count} times: {event_type}"
            for (event_type, aggregate_id), count in changes.items()
            if count > 1
        )
    made = Counter(quote["created_by_operation"] for quote in facts.quotes)
    yield from (f"operation {key[:8]} made {count} quotes" for key, count in made.items() if count > 1)


def all_or_nothing(facts: Facts) -> Iterator[str]:
    """I2: a command is applied with its change, its audit and all its effects, or not at all."""
    made = {quote["created_by_operation"]: quote["quote_id"] for quote in facts.quotes}
    for operation in facts.operations:
        yield from _whole(facts, operation, made)
    if not facts.forgets:
        missing = made.keys() - facts.operation_by_key.keys() - facts.tombstones.keys()
        yield from (f"quote {made[key]} was made by operation {key[:8]}, which does not exist" for key in missing)
    yield from _enqueued_and_audited(facts)
    yield from _decisions_stand(facts)
    yield from rulesets_as_audited(facts)


def acknowledged_is_kept(facts: Facts) -> Iterator[str]:
    """I3: everything that was acknowledged is in the ledger, after any crash."""
    known = {row["source_request_id"] for row in facts.deliveries} | {row["source_request_id"] for row in facts.operations}
    purged_at = max((purge["at"] for purge in facts.purges), default=None)
    first: dict[str, int] = {}
    for told in facts.history:
        first[told.request_id] = min(told.at_ms, first.get(told.request_id, told.at_ms))
    for told in facts.history:
        if not told.acked or not told.kind or told.request_id in known or (told.text or "").startswith(NOT_RECORDED):
            continue
        if purged_at is not None and first[told.request_id] <= purged_at - DELIVERIES_KEPT_MS + facts.slack_ms:
            continue  # a later redelivery is answered from the tombstone
        if told.text or not _was_turned_away(facts, told.actor, told.at_ms):
            yield f"{told.kind} {told.request_id} of {told.actor} was acknowledged and is not in the ledger"


def _was_turned_away(facts: Facts, actor: str, at_ms: int) -> bool:
    """Tell whether the access gate audited a refusal of this person around that time."""
    return any(
        (event["event_type"], event["actor"]) == ("access.refused", actor)
        and abs(event["at"] - at_ms) <= TURNED_AWAY_MS + facts.slack_ms
        for event in facts.events
    )


def one_meaning(facts: Facts) -> Iterator[str]:
    """I11: a request id has one meaning; the same id with other content never becomes a second command."""
    requests = Counter((row["source"], row["source_request_id"], row["action_kind"]) for row in facts.operations)
    yield from (
        f"{source} request {request_id} became {count} operations of kind {kind}"
        for (source, request_id, kind), count in requests.items()
        if count > 1
    )
    for delivery in facts.deliveries:
        operation = facts.operation.get(delivery["operation_id"])
        if operation is not None:
            yield from (
                f"delivery {delivery['id']} is answered by operation {operation['id']}, whose {name} is another"
                for name in ("source", "source_request_id", "action_kind")
                if delivery[name] != operation[name]
            )
        elif not facts.forgets:
            yield f"delivery {delivery['id']} belongs to an operation that does not exist"


def one_fire_per_slot(facts: Facts) -> Iterator[str]:
    """I12: no slot of a schedule fires twice."""
    fired = Counter(row["source_request_id"] for row in facts.operations if row["source"] == "scheduler")
    yield from (f"the slot {slot} was fired {count} times" for slot, count in fired.items() if count > 1)


def operation_key(operation: Row) -> str:
    """Compute the key of SPEC 3.1 from the recorded request."""
    names = ("source", "source_request_id", "action_kind", "aggregate_id", "aggregate_version", "payload_hash")
    return _sha256(orjson.dumps(["quotebot/op/1", *(operation[name] for name in names)]))


def effect_key(parent_key: str, effect_class: str, ordinal: int) -> str:
    """Compute the effect key of SPEC 5."""
    return _sha256(orjson.dumps(["quotebot/fx/1", parent_key, effect_class, ordinal]))


def _effect_keys(facts: Facts) -> Iterator[str]:
    """Each effect's key follows from its cause and from its position among the effects of that cause."""
    counts: Counter[tuple[int, int | None]] = Counter()
    for effect in facts.effects:
        cause = (effect["operation_id"], effect["parent_id"])
        place = counts[cause]
        counts[cause] += 1
        if effect["parent_id"] is not None:
            parent_key, ordinals = facts.effect.get(effect["parent_id"], {}).get("effect_key"), [place]
        else:
            operation = facts.operation.get(effect["operation_id"], {})
            parent_key, cycles = operation.get("operation_key"), operation.get("cycle", 1)
            ordinals = [place, *(cycle * ORDINALS_PER_CYCLE + i for cycle in range(1, cycles + 1) for i in range(place + 1))]
            ordinals += [row["generation"] * CARDS_PER_GENERATION for row in facts.generations]
            names = [event["event_type"] for event in facts.events_of_operation.get(parent_key, ())]
            retries = names.count("operation.retry_scheduled")  # its quote's card shows each
            told = [SHOWN_UNFINISHED, *(TOLD_AT_A_RETRY + n for n in range(1, retries + 1))]
            told += [first + n for first in REDRAWN_AFTER_A_DECISION for n in range(REDRAWN_MAX)]
            ordinals += [cycle * ORDINALS_PER_CYCLE + n for cycle in range(1, cycles + 1) for n in told]
            ordinals += range(place)  # after a replay that succeeded, the effects before it came from the dead letter
        if parent_key is None:
            yield f"effect {effect['id']} is owed by nothing that exists"
        elif not any(effect_key(parent_key, effect["class"], ordinal) == effect["effect_key"] for ordinal in ordinals):
            yield f"effect {effect['id']}: its key is not that of its cause"


def _whole(facts: Facts, operation: Row, made: Mapping[str, str]) -> Iterator[str]:
    key = operation["operation_key"]
    events = facts.events_of_operation.get(key, [])
    ends = [event for event in events if event["event_type"] in ENDS]
    changes = {event["event_type"] for event in events if is_domain(event)} - CHANGES_NOTHING
    if operation["state"] != "completed":
        if ends or changes or key in made:
            yield f"operation {operation['id']} is {operation['state']}, yet it left {sorted(changes) or 'an end'}"
        return
    if [event["event_type"] for event in ends] != [f"operation.{operation['outcome']}"]:
        yield f"operation {operation['id']} is {operation['outcome']}; audited is {[event['event_type'] for event in ends]}"
        return
    missing = [owed["key"] for owed in loaded(ends[0]["after"]).get("owes", ()) if owed["key"] not in facts.effect_by_key]
    if missing:
        yield f"operation {operation['id']} owes {len(missing)} effects that do not exist"
    if operation["outcome"] == "refused":
        if changes or key in made:
            yield f"operation {operation['id']} was refused, yet it left {sorted(changes)}"
        return
    if any(not (changes & any_of) for any_of in CHANGES.get(operation["action_kind"], ())):
        yield f"operation {operation['id']} ({operation['action_kind']}) was applied; of its change there is {sorted(changes)}"
    if "quote.created" in changes and key not in made:
        yield f"operation {operation['id']} created a quote that does not exist"


def _enqueued_and_audited(facts: Facts) -> Iterator[str]:
    """Every enqueued effect is audited as enqueued, and every effect audited as enqueued exists."""
    audited: set[str] = set()
    for event in facts.events:
        if event["event_type"] in ENDS:
            audited.update(owed["key"] for owed in loaded(event["after"]).get("owes", ()))
        elif event["event_type"] == "effect.owed":
            key = loaded(event["after"])["key"]
            audited.add(key)
            owner_is_there = event["effect_id"] in facts.effect or event["operation_key"] in facts.operation_by_key
            if key not in facts.effect_by_key and owner_is_there:
                yield f"the effect {key[:8]} was audited as owed and does not exist"
    yield from (
        f"effect {effect['id']} ({effect['class']}) exists and was never audited as owed"
        for effect in facts.effects
        if effect["effect_key"] not in audited
    )


def _decisions_stand(facts: Facts) -> Iterator[str]:
    """The domain's rows match their events: the quote's state and the approval's decision."""
    last: dict[str, Any] = {}
    approvals: dict[str, str] = {}
    for event in facts.events:
        if is_domain(event):
            after = loaded(event["after"])
            if "state" in after:
                last[event["aggregate_id"]] = after["state"]
            if event["event_type"].startswith("approval.") and event["event_type"] not in CHANGES_NOTHING:
                approvals[after["approval_id"]] = _APPROVAL_STATES.get(event["event_type"], "")
    yield from (
        f"{quote['quote_id']} is {quote['state']}; its audit ends with {last.get(quote['quote_id'])}"
        for quote in facts.quotes
        if last.get(quote["quote_id"]) != quote["state"]
    )
    for approval in facts.approvals:
        audited = approvals.pop(approval["approval_id"], None)
        if audited != approval["state"]:
            yield f"approval {approval['approval_id']} is {approval['state']}; audited is {audited}"
    yield from (f"approval {approval_id} was audited and does not exist" for approval_id in approvals)


_APPROVAL_STATES: Final = {
    "approval.requested": "pending",
    "approval.automatic": "approved",
    "approval.reused": "approved",
    "approval.slot_approved": "pending",
    "approval.reminded": "pending",
    "approval.escalated": "pending",
    "approval.reassigned": "pending",
    "approval.approved": "approved",
    "approval.rejected": "rejected",
    "approval.changes_requested": "changes_requested",
    "approval.expired": "expired",
    "approval.invalidated": "invalidated",
}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
