"""Effects in the external services: each one the ledger enqueued is there, once and complete (I5, I15, and the card of L6)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Final

from faults.checks.evidence import OPEN_EFFECTS, grouped, loaded, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checks.evidence import Facts, Row

REPLIES_MAX: Final = 2  # a reply that cannot be read back is repeated once
# Opening words of a card about a quote in each state.
STATE_WORDS: Final = {
    "draft": "Changes requested",
    "validated": "Validated",
    "priced": "Draft",
    "pending_approval": "Waiting for approval",
    "approved": "Approved",
    "rejected": "Rejected",
    "finalized": "Ready to send",
    "sent": "Sent to customer",
    "accepted": "Won",
    "lost": "Lost",
    "cancelled": "Canceled",
    "expired": "Expired",
}
NOT_WRITTEN: Final = ("Writing to Salesforce", "Not in Salesforce yet", "Salesforce sync is paused")
MIRRORED: Final = {"accounts": "Account", "opportunities": "Opportunity"}


def done_once(facts: Facts) -> Iterator[str]:
    """I5: a delivered effect is in its service once: one message, record or file per key; an ephemeral reply at most twice."""
    yield from _messages_once(facts)
    yield from _records_once(facts)
    yield from _files_once(facts)
    yield from messages_answered_once(facts)
    for hook, replies in facts.reply_hooks.items():
        seen = sum(sighting["applied"] and sighting["key"] == hook for sighting in facts.sightings.get("response_url", ()))
        most = REPLIES_MAX * sum(reply["cycle"] for reply in replies)
        if seen > most:
            yield f"an answer to one person arrived {seen} times (at most {most})"


def files_match(facts: Facts) -> Iterator[str]:
    """I15: a rendered file is stored under its own checksum, and the file in Slack is that file."""
    shared = {file["id"]: file for file in facts.outside.files}
    for effect in facts.effects:
        if effect["class"] == "slack.file" and effect["state"] == "delivered":
            file = shared.get(effect["external_ref"])
            if file is not None and file["sha256"] != loaded(effect["payload"]).get("sha256"):
                yield f"the file {effect['external_ref']} in Slack is not the rendered one"
        if effect["class"] == "pdf.render" and effect["state"] == "delivered" and facts.house.document is not None:
            sha256 = loaded(effect["result"]).get("sha256", "")
            content = facts.house.document(sha256)
            if content is None:
                yield f"effect {effect['id']} rendered {sha256[:12]}; there is no such file"
            elif hashlib.sha256(content).hexdigest() != sha256:
                yield f"the stored file {sha256[:12]} is damaged"


def card_shows_the_state(facts: Facts) -> Iterator[str]:
    """L6, for the quote's card: at rest it shows the quote's final state."""
    cards = grouped((effect for effect in facts.effects if effect["class"] == "slack.card"), "aggregate_id")
    crm = {effect["aggregate_id"]: effect for effect in facts.effects if effect["class"] == "crm.create"}
    by_ts = {message["ts"]: message for message in facts.outside.messages}
    for quote in facts.quotes:
        card = by_ts.get(quote["thread_ts"])
        given_up = any(effect["state"] not in ("delivered", "superseded") for effect in cards.get(quote["quote_id"], ()))
        if card is None or given_up:
            continue
        words = STATE_WORDS[quote["state"]]
        if words not in card["text"]:
            yield f"the card of {quote['quote_id']} does not say {words!r}: {card['text']!r}"
        if crm.get(quote["quote_id"], {}).get("state") == "delivered":
            said = json.dumps(card["blocks"])
            yield from (f"the card of {quote['quote_id']} still says {wrong!r}" for wrong in NOT_WRITTEN if wrong in said)


def answers_of(facts: Facts) -> Counter[str]:
    """Return how often each message meant for a model was answered, by the key of its operation."""
    found: Counter[str] = Counter()
    for operation in facts.operations:
        if operation["outcome"] != "applied":
            continue
        if operation["action_kind"] == "message.read" and loaded(operation["response"]).get("code") != "model_asked":
            found[operation["operation_key"]] += 1  # answered at once, without the model
        if operation["action_kind"] == "message.answer":
            found[loaded(operation["payload"])["reading"]] += 1
    return found


def messages_answered_once(facts: Facts) -> Iterator[str]:
    """No message meant for a model was answered twice."""
    yield from (
        f"the message {reading[:8]} was answered {times} times" for reading, times in answers_of(facts).items() if times > 1
    )


def _messages_once(facts: Facts) -> Iterator[str]:
    for key, messages in facts.message_by_key.items():
        effect = facts.effect_by_key.get(key)
        if len(messages) > _messages_max(facts, effect):
            yield f"{len(messages)} messages carry the key {key[:8]}"
        if effect is not None:
            yield from _owned(facts, effect, f"message {messages[0]['ts']}")
        elif not facts.forgets and not all(facts.lost(float(message["ts"]) * 1000) for message in messages):
            yield f"message {messages[0]['ts']} carries the key {key[:8]}, which no effect has"
    for effect in _delivered(facts, "slack.post", "slack.direct", "slack.reply"):
        if effect["class"] == "slack.reply" and effect["external_ref"] is None:
            continue
        seen = [message["ts"] for message in facts.message_by_key.get(effect["effect_key"], ())]
        if effect["external_ref"] not in seen:
            yield f"effect {effect['id']} is delivered as message {effect['external_ref']}; there is {seen or 'none'}"


def _messages_max(facts: Facts, effect: Row | None) -> int:
    """Maximum number of messages with an effect's key: an ephemeral reply sent as a direct message cannot be read back either."""
    if effect is None:
        return 1
    if effect["class"] == "slack.reply":
        return REPLIES_MAX * int(effect["cycle"])
    return 1 + facts.sent_again.get(effect["id"], 0)


def _records_once(facts: Facts) -> Iterator[str]:
    by_key = grouped(facts.outside.crm.get("Quote", []), "Quotebot_Key__c")
    for key, found in by_key.items():
        if len(found) > 1:
            yield f"Salesforce has {len(found)} records under the key {key}"
        effect = facts.crm_effects.get(key)
        if effect is not None:
            yield from _owned(facts, effect, f"record {found[0]['Id']}")
        elif not facts.forgets and not facts.generations:  # the effect may be lost
            yield f"Salesforce has a record under the key {key}, which no effect has"
    for key, effect in facts.crm_effects.items():
        ids = [record["Id"] for record in by_key.get(key, ())]
        if effect["state"] == "delivered" and not _by_a_person(effect) and effect["external_ref"] not in ids:
            yield f"effect {effect['id']} is delivered as record {effect['external_ref']}; there is {ids or 'none'}"
    yield from _documents_once(facts)
    yield from _copied(facts)
    yield from (
        f"Salesforce was asked for different things under the key {key}"
        for key, seen in grouped(facts.sightings.get("composite/graph", ()), "key").items()
        if len({sighting["request_hash"] for sighting in seen}) > 1
    )


def _copied(facts: Facts) -> Iterator[str]:
    """For a mirrored kind, every record that changed before its mirror was complete is kept."""
    kept = {row["record_id"]: row["name"] for row in rows(facts.ledger, "SELECT record_id, name FROM crm_mirror")}
    for cursor in rows(facts.ledger, "SELECT kind, whole_at FROM crm_mirror_cursors WHERE whole_at IS NOT NULL"):
        for record in facts.outside.crm.get(MIRRORED.get(cursor["kind"], ""), ()):
            changed_at = datetime.fromisoformat(record["SystemModstamp"]).timestamp() * 1000
            name = kept.get(record["Id"])
            if changed_at < cursor["whole_at"] and name != record["Name"]:
                yield (
                    f"{cursor['kind']} are whole as of {cursor['whole_at']}; "
                    f"{record['Id']} is kept as {name}, and is {record['Name']}"
                )


def _documents_once(facts: Facts) -> Iterator[str]:
    """Each PDF is one file in Salesforce, and every file recorded as attached exists."""
    if "ContentVersion" not in facts.outside.crm:
        return
    documents = facts.outside.crm["ContentVersion"]
    yield from (
        f"Salesforce has {len(found)} files under the key {key}"
        for key, found in grouped(documents, "Quotebot_Key__c").items()
        if len(found) > 1
    )
    there = {document["Id"] for document in documents}
    for effect in _delivered(facts, "crm.update"):
        if loaded(effect["payload"]).get("what") == "document" and effect["external_ref"] not in there:
            yield f"effect {effect['id']} is delivered as file {effect['external_ref']} in Salesforce; it is not there"


def _files_once(facts: Facts) -> Iterator[str]:
    shared = Counter(
        {file["id"]: sum(len(places) for places in file["shares"].values()) for file in facts.outside.files if file["shares"]}
    )
    for file_id, places in shared.items():
        effect = facts.file_effects.get(file_id)
        if places > 1:
            yield f"the file {file_id} is shared {places} times"
        if effect is not None:
            yield from _owned(facts, effect, f"file {file_id}")
        elif not facts.forgets and not facts.generations:  # the effect may be lost
            yield f"the file {file_id} is shared; no effect knows it"
    by_effect = Counter(facts.file_effects[file_id]["id"] for file_id in shared if file_id in facts.file_effects)
    yield from (
        f"effect {effect_id} shared {count} files"
        for effect_id, count in by_effect.items()
        if count > 1 + facts.sent_again.get(effect_id, 0)
    )
    yield from (
        f"effect {effect['id']} is delivered as file {effect['external_ref']}; it is not shared"
        for effect in _delivered(facts, "slack.file")
        if not shared[effect["external_ref"]]
    )


def _owned(facts: Facts, effect: Row, what: str) -> Iterator[str]:
    """An object that exists in a service was recorded as sent or as possibly sent; the ledger never states that it was not."""
    if effect["state"] in ("delivered", "in_flight") or effect["maybe_sent"] or effect["id"] in facts.sent_again:
        return
    if effect["state"] in OPEN_EFFECTS or facts.at_rest:
        yield f"{what} is there; effect {effect['id']} is {effect['state']} and was never sent"


def _by_a_person(effect: Row) -> bool:
    """Tell whether a person declared the effect delivered; the ledger then has no proof of its own."""
    return "resolved_by" in loaded(effect["result"])


def _delivered(facts: Facts, *classes: str) -> Iterator[Row]:
    """Yield the effects of these classes that were delivered, without those that a person declared delivered."""
    return (
        effect
        for effect in facts.effects
        if effect["class"] in classes and effect["state"] == "delivered" and not _by_a_person(effect)
    )
