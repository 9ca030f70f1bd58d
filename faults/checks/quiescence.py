"""A sound file, and nothing unfinished without a reason once everything is drained: I16, L1, L2, L3, L4, L6."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults.checks.effects import answers_of, card_shows_the_state
from faults.checks.evidence import OPEN_EFFECTS, OPEN_OPERATIONS, grouped, loaded
from faults.checks.wakeups import asleep_for_good

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checks.evidence import Facts, Row

ENDED_BY_THEMSELVES: Final = frozenset({"breaker", "throttled"})
ANSWER_DAYS: Final = 6
DAY_MS: Final = 24 * 3600_000
UNANSWERED_KINDS: Final = frozenset({"scheduler", "effect"})  # sources without a person to answer


def file_is_sound(facts: Facts) -> Iterator[str]:
    """I16: the file is sound: integrity, foreign keys, strict tables."""
    ask = facts.ledger.execute
    yield from (str(problem) for (problem,) in ask("PRAGMA integrity_check") if problem != "ok")
    yield from (f"a row of {table} refers to one that does not exist" for table, *_ in ask("PRAGMA foreign_key_check"))
    loose = (
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 AND name NOT LIKE 'sqlite_%'"
    )
    yield from (f"the table {name} is not STRICT" for (name,) in ask(loose))


def everything_ended(facts: Facts) -> Iterator[str]:
    """L1, at rest: every unfinished row waits for a visible reason (a held class, a dead parent, a newer build)."""
    shelved: set[str] = set()
    for operation in facts.operations:
        if operation["state"] not in OPEN_OPERATIONS:
            continue
        if operation["category"] == "needs_newer_build":
            shelved.add(operation["lane"])
        if operation["lane"] not in shelved:
            yield f"operation {operation['id']} ({operation['action_kind']}) is still {operation['state']}"
    held = {gate["name"] for gate in facts.gates if gate["state"] == "held" and gate["until_at"] is None}
    excused: set[int] = set()
    lanes: set[tuple[str, str]] = set()
    for effect in facts.effects:
        if effect["state"] not in OPEN_EFFECTS:
            continue
        lane = (effect["class"], effect["target"])
        if effect["state"] != "in_flight" and (_is_held(facts, effect, held, excused) or lane in lanes):
            excused.add(effect["id"])
            lanes.add(lane)
        else:
            yield f"effect {effect['id']} ({effect['class']}) is still {effect['state']}"


def everything_wakes(facts: Facts) -> Iterator[str]:
    """L2: every unfinished row has something that wakes it."""
    yield from asleep_for_good(facts.ledger)


def dead_is_announced(facts: Facts) -> Iterator[str]:
    """L3: each failed row is a dead letter with a reason, notified once per cycle."""
    dead = [("effect", row) for row in facts.effects if row["state"] == "failed"]
    dead += [("operation", row) for row in facts.operations if row["state"] == "failed_terminal"]
    if not dead:
        return
    listed = {(kind, row_id) for kind, row_id in facts.ledger.execute("SELECT kind, id FROM dead_letters WHERE status = 'pending'")}
    for kind, row in dead:
        if (kind, row["id"]) not in listed:
            yield f"{kind} {row['id']} was given up and is no dead letter"
        if not row["category"] or not row["last_error"]:
            yield f"{kind} {row['id']} was given up without a reason"
        of_row = facts.events_of_effect.get(row["id"]) if kind == "effect" else facts.events_of_operation.get(row["operation_key"])
        told = sum(event["event_type"] == "system.error" for event in of_row or ())
        if told != row["cycle"]:
            yield f"{kind} {row['id']} was given up in cycle {row['cycle']}; {told} alerts are audited"


def holds_end(facts: Facts) -> Iterator[str]:
    """L4: a hold ends by itself, or by a person who was notified."""
    paused = {loaded(event["after"]).get("class") for event in facts.events if event["event_type"] == "class.paused"}
    for gate in facts.gates:
        if gate["state"] != "held":
            continue
        if gate["cause"] in ENDED_BY_THEMSELVES and gate["until_at"] is None:
            yield f"{gate['name']} is held ({gate['cause']}) and nothing ends it"
        if gate["until_at"] is None and gate["name"] not in paused:
            yield f"{gate['name']} is held ({gate['cause']}) and nobody was told"


def everybody_is_answered(facts: Facts) -> Iterator[str]:
    """L6, at rest: every person got an answer, and the quote's card shows the quote's final state."""
    for operation in facts.operations:
        if operation["state"] == "completed" and "code" not in loaded(operation["response"]):
            yield f"operation {operation['id']} is completed and has no answer to repeat"
        said_no = operation["outcome"] == "refused" or operation["state"] in ("failed_terminal", "discarded")
        told = any(effect["class"] == "slack.reply" for effect in facts.effects_of.get(operation["id"], ()))
        if said_no and not told and operation["source"] not in UNANSWERED_KINDS:
            end = operation["outcome"] or operation["state"]
            yield f"operation {operation['id']} came to {end}; {operation['actor']} was not told"
    # An ephemeral reply is retried for `ANSWER_DAYS`, whatever its address is.
    for effect in facts.effects:
        let_go = effect["class"] == "slack.reply" and effect["state"] == "superseded" and effect["category"] == "expired"
        if let_go and effect["updated_at"] < facts.operation[effect["operation_id"]]["received_at"] + ANSWER_DAYS * DAY_MS:
            yield f"effect {effect['id']}, an answer to one person, was let go before {ANSWER_DAYS} days had passed"
    yield from messages_answered(facts)
    # A quote has its card, unless the post failed; its requester is then notified.
    posts = grouped((effect for effect in facts.effects if effect["class"] == "slack.post"), "aggregate_id")
    yield from (
        f"{quote['quote_id']} does not know its card"
        for quote in facts.quotes
        if quote["thread_ts"] is None and any(effect["state"] == "delivered" for effect in posts.get(quote["quote_id"], ()))
    )
    yield from card_shows_the_state(facts)


def messages_answered(facts: Facts) -> Iterator[str]:
    """Every message meant for a model was answered, by the model or without it."""
    answers = answers_of(facts)
    yield from (
        f"operation {operation['id']}: its message was never answered"
        for operation in facts.operations
        if (operation["action_kind"], operation["outcome"]) == ("message.read", "applied")
        and not answers[operation["operation_key"]]
    )


def _is_held(facts: Facts, effect: Row, held: set[str], excused: set[int]) -> bool:
    if effect["class"] in held or effect["class"].partition(".")[0] in held:
        return True
    parent = facts.effect.get(effect["after_id"]) if effect["next_attempt_at"] is None else None
    return parent is not None and (parent["state"] == "failed" or parent["id"] in excused)
