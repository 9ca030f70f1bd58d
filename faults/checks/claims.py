"""Claims: nothing is sent without one; claims are fenced, counted, ordered and timed (I4, I6, I8, I9, I10)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import orjson

from faults.checks.evidence import grouped, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from faults.checks.evidence import Facts, Row

POISON_CLAIMS: Final = 3
INTERNAL_RETRIES: Final = 1
HISTORY_INLINE: Final = 20
UNAUTHORISED: Final = 401
RETRIES: Final[Mapping[str, int]] = {  # SPEC 5
    "slack.card": 5,
    "slack.post": 5,
    "slack.direct": 5,
    "slack.direct_card": 5,
    "slack.reply": 5,
    "slack.unfurl": 5,
    "slack.file": 5,
    "crm.create": 6,
    "crm.update": 6,
    "crm.read": 6,
    "pdf.render": 2,
    "llm.extract": 3,
    "llm.summarize": 3,
}
RETRIES_DEFAULT: Final = 5
CAP_MS: Final[Mapping[str, int]] = {  # SPEC 5: no drawn delay is longer, unless the service asks for it
    "slack.card": 30_000,
    "slack.post": 30_000,
    "slack.direct": 30_000,
    "slack.direct_card": 30_000,
    "slack.reply": 30_000,
    "slack.unfurl": 30_000,
    "slack.file": 30_000,
    "crm.create": 60_000,
    "crm.update": 60_000,
    "crm.read": 60_000,
    "pdf.render": 3_000,
    "llm.extract": 10_000,
    "llm.summarize": 10_000,
}
THROTTLED_CAP_MS: Final = 1_000  # the minimum after a 429 without Retry-After
CLASSES_OF_METHOD: Final[Mapping[str, tuple[str, ...]]] = {
    "chat.postMessage": ("slack.post", "slack.direct"),
    "conversations.history": ("slack.post", "slack.direct"),
    "conversations.replies": ("slack.post",),
    "conversations.open": ("slack.direct",),
    "chat.update": ("slack.card", "slack.direct_card"),
    "chat.unfurl": ("slack.unfurl",),
    "views.publish": ("slack.card",),
    "composite/graph": ("crm.create",),
    "files.getUploadURLExternal": ("slack.file",),
    "files.completeUploadExternal": ("slack.file",),
    "files.info": ("slack.file", "slack.card"),
    "upload": ("slack.file",),
}


GATE_ANSWER_MS: Final = 3_000  # the gate tries once, inside an acknowledgement


def _without_refusals(facts: Facts, requests: list[Row], replies: list[Row]) -> list[Row]:
    """Leave out one request for each refusal that the access gate audited for the same person at that time."""
    users = {loaded(reply["payload"]).get("user") for reply in replies}
    left = list(requests)
    for event in facts.events:
        if event["event_type"] == "access.refused" and event["actor"] in users and "entry" in loaded(event["after"]):
            answers = [one for one in left if abs(one["at"] * 1000 - event["at"]) <= GATE_ANSWER_MS + facts.slack_ms]
            for answer in answers[:1]:
                left.remove(answer)
    return left


def claimed_first(facts: Facts) -> Iterator[str]:
    """I4: no request is sent without an older durable claim of its effect, and no claim makes two requests."""

    def kept(requests: list[Row]) -> bool:
        return not facts.all_lost(requests)

    def shared(requests: list[Row]) -> bool:
        return any(request["applied"] for request in requests) and kept(requests)

    def answered(requests: list[Row]) -> list[Row]:
        return [request for request in requests if request["status"] != UNAUTHORISED]  # repeated once after a new login

    yield from _claimed(
        facts,
        "chat.postMessage",
        facts.effect_by_key,
        "message",
        "a message was posted under the key {key:.8}, which no effect has",
        kept,
    )
    if any(sighting["key"] is None and sighting["applied"] for sighting in facts.sightings.get("chat.postMessage", ())):
        yield "a message was posted without a key of ours"
    yield from _claimed(
        facts,
        "composite/graph",
        facts.crm_effects,
        "record",
        "Salesforce was written to under the key {key}, which no effect has",
        kept,
        answered,
    )
    yield from _claimed(
        facts,
        "files.completeUploadExternal",
        facts.file_effects,
        "file",
        "the file {key} was shared; no effect knows it",
        shared,
    )
    yield from _cards_claimed(facts)
    yield from model_asked(facts)
    for hook, replies in facts.reply_hooks.items():
        requests = [sighting for sighting in facts.sightings.get("response_url", ()) if sighting["key"] == hook]
        requests = _without_refusals(facts, requests, replies)
        yield from _covered(facts, f"the answer over {hook}", requests, replies)


def fenced(facts: Facts) -> Iterator[str]:
    """I6: only the newest fence settles, and a delivered effect is never tried again."""
    for attempt in facts.attempts:
        row = facts.effect.get(attempt["effect_id"]) or facts.operation.get(attempt["operation_id"])
        if row is None:
            yield f"attempt {attempt['id']} belongs to nothing"
        elif attempt["fence"] > row["fence"]:
            yield f"attempt {attempt['id']} has fence {attempt['fence']}; its row was never claimed so often ({row['fence']})"
        if attempt["epoch"] not in facts.epochs:
            yield f"attempt {attempt['id']} was made under epoch {attempt['epoch']}, which does not exist"
    for effect_id, attempts in facts.attempts_of.items():
        settled = [attempt for attempt in attempts if attempt["outcome"] == "delivered"]
        effect = facts.effect.get(effect_id)
        if effect is None or not settled:
            continue
        if len(settled) > 1 or settled[0]["fence"] != effect["fence"] or effect["state"] != "delivered":
            yield f"effect {effect_id} was delivered under fence {[row['fence'] for row in settled]} and tried again after that"


def counted(facts: Facts) -> Iterator[str]:
    """I8: attempts, claims and cycles are all recorded and stay within their budget; a 429 or a pause spends nothing."""
    for effect in facts.effects:
        attempts = facts.attempts_of.get(effect["id"], ())
        if len(attempts) != effect["fence"] - (effect["state"] == "in_flight"):
            yield f"effect {effect['id']} was claimed {effect['fence']} times; {len(attempts)} attempts are recorded"
        budget = RETRIES.get(effect["class"], RETRIES_DEFAULT) + 1
        if effect["attempts"] > budget:
            yield f"effect {effect['id']} ({effect['class']}) spent {effect['attempts']} attempts of {budget}"
        spendable = sum(_may_be_spent(attempt, effect) for attempt in attempts)
        if effect["attempts"] > spendable:
            yield f"effect {effect['id']} spent {effect['attempts']} attempts; {spendable} may count (no 429, no pause)"
        yield from _cycles(f"effect {effect['id']}", effect)
    for operation in facts.operations:
        yield from _tries(facts, operation)
        claimed = sum(
            event["event_type"] == "operation.claimed" for event in facts.events_of_operation.get(operation["operation_key"], ())
        )
        if claimed != operation["fence"]:
            yield f"operation {operation['id']} was claimed {operation['fence']} times; {claimed} claims are audited"
        yield from _cycles(f"operation {operation['id']}", operation)


def in_order(facts: Facts) -> Iterator[str]:
    """I9: a lane does one thing at a time, in the order in which its effects were enqueued."""
    lanes = Counter((effect["class"], effect["target"]) for effect in facts.effects if effect["state"] == "in_flight")
    yield from (f"{count} effects of lane {lane} are in flight at once" for lane, count in lanes.items() if count > 1)
    settled = {row["effect_id"]: row["id"] for row in facts.attempts if row["outcome"] == "delivered"}
    straight = sorted(
        (effect["class"], effect["target"], effect["id"], settled[effect["id"]])
        for effect in facts.effects
        if effect["id"] in settled and not effect["ever_failed"] and effect["not_before"] is None
    )
    for before, after in pairwise(straight):
        if before[:2] == after[:2] and before[3] > after[3]:
            yield f"effect {after[2]} was delivered before effect {before[2]}, which stood before it in lane {before[:2]}"
    yield from _operations_in_order(facts)


def in_time(facts: Facts) -> Iterator[str]:
    """I10: no attempt is made before its drawn delay or a Retry-After has passed, and no delay is out of bounds."""
    attempts = [attempt for attempt in facts.attempts if attempt["effect_id"] in facts.effect]
    for attempt in attempts:
        yield from _delay_within_bounds(attempt, facts.effect[attempt["effect_id"]]["class"])
    for tries in facts.attempts_of.values():
        for before, after in pairwise(sorted(tries, key=lambda row: row["fence"])):
            if _too_early(facts, before, after):
                yield (
                    f"effect {after['effect_id']} was tried {after['started_at'] - before['ended_at']} ms after attempt "
                    f"{before['id']}, which asked for {before['delay_ms']} ms"
                )
    yield from _retry_after_kept(facts, attempts)


def model_asked(facts: Facts) -> Iterator[str]:
    """Each request to the model was made under a claim of its effect."""
    yield from _claimed(
        facts,
        "chat.completions",
        facts.effect_by_key,
        "question",
        "the model was asked under the key {key:.8}, which no effect has",
    )


def _claimed(
    facts: Facts,
    method: str,
    effects: Mapping[str, Row],
    what: str,
    unknown: str,
    matters: Callable[[list[Row]], bool] = bool,
    answered: Callable[[list[Row]], list[Row]] = list,
) -> Iterator[str]:
    """Each request of this method was made under a claim of an effect. `matters`: whether requests of no effect are a violation."""
    for key, requests in grouped(facts.sightings.get(method, ()), "key").items():
        effect = effects.get(key)
        if effect is not None:
            yield from _covered(facts, f"the {what} of effect {effect['id']}", answered(requests), [effect])
        elif not facts.forgets and matters(requests):
            yield unknown.format(key=key)


def _cards_claimed(facts: Facts) -> Iterator[str]:
    cards = grouped((effect for effect in facts.effects if effect["class"] == "slack.card"), "aggregate_id")
    cards |= grouped((effect for effect in facts.effects if effect["class"] == "slack.direct_card"), "target")
    shown = {quote["thread_ts"]: quote["quote_id"] for quote in facts.quotes if quote["thread_ts"] is not None}
    shown |= {  # the cards of dead letters in the operators' channel
        effect["external_ref"]: effect["aggregate_id"]
        for effect in facts.effects
        if effect["class"] == "slack.post"
        and effect["state"] == "delivered"
        and effect["aggregate_id"].startswith(("letter:", "ops:"))
    }
    shown |= {  # the direct messages to approvers
        effect["external_ref"]: effect["target"]
        for effect in facts.effects
        if effect["class"] == "slack.direct" and effect["external_ref"] is not None
    }
    shown |= {at: effect["aggregate_id"] for effect in facts.effects if (at := _withdrawn(effect)) is not None}
    for key, requests in grouped(facts.sightings.get("chat.update", ()), "key").items():
        aggregate_id = shown.get(key.partition(":")[2])
        if aggregate_id is None:
            if not facts.all_lost(requests):
                yield f"the message {key} was redrawn; it is no quote's card, and no dead letter's"
        elif not facts.forgets:
            yield from _covered(facts, f"the card of {aggregate_id}", requests, cards.get(aggregate_id, []))


def _withdrawn(effect: Row) -> str | None:
    """Return the ts of the older message that this effect changes.

    It is a card whose channel is shared now, or that a newer card replaced, or the message of a PDF whose version was replaced.
    """
    payload = loaded(effect["payload"]) if effect["class"] == "slack.card" else {}
    if payload.get("what") == "replaced":
        found = loaded(effect["steps"]).get("message")
        return None if found is None else str(found["ts"])
    return str(payload["ts"]) if payload.get("what") in ("withdrawn", "closed") else None


def _covered(facts: Facts, what: str, requests: Iterable[Row], effects: Iterable[Row]) -> Iterator[str]:
    """Each request was made under an older claim, and no claim made two requests."""
    starts = sorted(claim["started_at"] for effect in effects for claim in facts.claims_of.get(effect["id"], ()))
    times = sorted(at for request in requests if not facts.lost(at := request["at"] * 1000))
    early = sum(at + facts.slack_ms < started for at, started in zip(times, starts, strict=False))
    if len(times) > len(starts):
        yield f"{what}: {len(times)} requests were seen, of {len(starts)} claims"
    elif early:
        yield f"{what}: {early} requests were seen before their claim"


def _may_be_spent(attempt: Row, effect: Row) -> bool:
    if attempt["cycle"] != effect["cycle"]:
        return False
    if attempt["outcome"] == "died":
        return bool(effect["category"] == "poison")
    return attempt["outcome"] in ("delivered", "bury") or (
        attempt["outcome"] in ("retry", "doubt") and attempt["category"] not in ("throttled", "auth")
    )


def _tries(facts: Facts, operation: Row) -> Iterator[str]:
    """An internal failure is retried once; a person's command is retried longer while Slack does not identify the person."""
    waits = operation["source"].startswith(("slack_", "cli"))
    if operation["attempts"] > (RETRIES_DEFAULT if waits else INTERNAL_RETRIES) + 1:
        yield f"operation {operation['id']} was executed {operation['attempts']} times in one cycle"
    allowed = {"internal": INTERNAL_RETRIES} | ({"transient": RETRIES_DEFAULT} if waits else {})
    for event in facts.events_of_operation.get(operation["operation_key"], ()):
        if event["event_type"] == "operation.retry_scheduled" and event["retry_count"] > allowed.get(event["failure_category"], 0):
            yield f"operation {operation['id']} was put back after try {event['retry_count']}: {event['failure_category']}"


def _cycles(what: str, row: Row) -> Iterator[str]:
    closed = 0 if row["failure_history"] == "[]" else len(orjson.loads(row["failure_history"]))
    if closed != min(row["cycle"] - 1, HISTORY_INLINE):
        yield f"{what} is in cycle {row['cycle']}; its history has {closed} closed ones"
    if row["claims"] > POISON_CLAIMS:
        yield f"{what} was claimed {row['claims']} times without an end"


def _operations_in_order(facts: Facts) -> Iterator[str]:
    ended = {
        event["operation_key"]: event["id"]
        for event in facts.events
        if event["event_type"] in ("operation.applied", "operation.refused")
    }
    last: dict[str, tuple[int, int]] = {}
    for operation in facts.operations:
        at = ended.get(operation["operation_key"])
        if at is None or operation["ever_failed"] or operation["aggregate_id"] == "new":
            continue
        before = last.get(operation["lane"])
        if before is not None and before[1] > at:
            yield f"operation {operation['id']} was carried out before operation {before[0]}, which stood before it"
        last[operation["lane"]] = (operation["id"], at)


def _delay_within_bounds(attempt: Row, effect_class: str) -> Iterator[str]:
    delay, asked = attempt["delay_ms"], attempt["retry_after_ms"]
    if delay is None:
        return
    if asked is not None and delay < asked:
        yield f"attempt {attempt['id']}: the other side asked for {asked} ms, the next one was set after {delay} ms"
    longest = max(CAP_MS.get(effect_class, delay), asked or 0, THROTTLED_CAP_MS)
    if delay < 0 or (attempt["kind"] == "send" and delay > longest):
        yield f"attempt {attempt['id']} ({effect_class}): a delay of {delay} ms is outside 0..{longest}"


def _too_early(facts: Facts, before: Row, after: Row) -> bool:
    if before["delay_ms"] is None or before["cycle"] != after["cycle"]:
        return False
    if after["started_at"] + facts.slack_ms >= before["ended_at"] + before["delay_ms"]:
        return False
    # An operator may have it checked at once, and anyone who sees its card may have it retried at once.
    return not any(
        event["event_type"] in ("effect.replayed", "effect.resolved", "effect.hastened")
        and before["ended_at"] - facts.slack_ms <= event["at"] <= after["started_at"] + facts.slack_ms
        for event in facts.events_of_effect.get(before["effect_id"], ())
    )


def _retry_after_kept(facts: Facts, attempts: list[Row]) -> Iterator[str]:
    """After a 429 with Retry-After no effect of the class starts before that time."""
    throttled = [attempt for attempt in attempts if attempt["retry_after_ms"]]
    if not throttled:
        return
    resumed = [event for event in facts.events if event["event_type"] == "class.half_open" and event["actor"] != "quotebot"]
    by_class = grouped(({**attempt, "class": facts.effect[attempt["effect_id"]]["class"]} for attempt in attempts), "class")
    for attempt in throttled:
        effect_class = facts.effect[attempt["effect_id"]]["class"]
        asked_at = _seen_at(facts, attempt, effect_class)
        over_at = asked_at + attempt["retry_after_ms"] - facts.slack_ms
        for later in by_class[effect_class]:
            # An effect claimed in the same millisecond may already have been under way.
            if not attempt["ended_at"] < later["started_at"] < over_at or later["id"] <= attempt["id"]:
                continue
            if any(
                loaded(event["after"]).get("class") in (effect_class, effect_class.partition(".")[0])
                and asked_at <= event["at"] <= later["started_at"]
                for event in resumed
            ):
                continue
            yield (
                f"attempt {later['id']} ({effect_class}) began {later['started_at'] - asked_at:.0f} ms after a 429 "
                f"that asked for {attempt['retry_after_ms']} ms"
            )


def _seen_at(facts: Facts, attempt: Row, effect_class: str) -> float:
    """Return when the service refused this attempt (ms), or when the attempt started if the refusal was not seen."""
    seen = (
        sighting["at"] * 1000
        for method, classes in CLASSES_OF_METHOD.items()
        if effect_class in classes
        for sighting in facts.sightings.get(method, ())
        if sighting["status"] == attempt["http_status"]
    )
    return min((at for at in seen if attempt["started_at"] <= at <= attempt["ended_at"]), default=float(attempt["started_at"]))
