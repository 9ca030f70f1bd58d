"""Sentences about the wait of a row, and about the answer to an operator action. Pure.

The ledger returns causes, codes and rows; the command line and Slack show these texts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ledger.machine import EffectState, OperationState
from ledger.operator.replay import last_replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.operator.actions import Ruling
    from ledger.operator.explain import Facts, Waiting

Explanation = tuple[str, str | None]  # a sentence, and the action to take, if any


def explain(wait: Waiting) -> Explanation:
    """Return the sentence about a wait and its remedy: the command or action that ends it, if there is one."""
    return _EXPLANATIONS[wait.cause](wait)


def detail(ruling: Ruling) -> str:
    """Return the answer to an operator action as text: the new state, or why nothing was changed."""
    row = ruling.row
    state = "" if row is None else row["state"]
    who = None if row is None else last_replay(row)[0]
    return _DETAILS[ruling.code].format(
        id=ruling.reference,
        category=None if row is None else row["category"],
        done="executed" if ruling.reference.startswith("op") else "sent",
        it_is=f"it is {_STATES.get(state)}" + ("" if who is None else f", last replayed by {who}"),
        objection=ruling.objection,
        too_late=_TOO_LATE.get(state, "").format(id=ruling.reference),
        wait="" if ruling.wait is None else explain(ruling.wait)[0],
    )


def _finished(wait: Waiting) -> Explanation:
    row = wait.facts.row
    words = {
        "completed": f"Done ({row['outcome'] if 'outcome' in row.keys() else ''})",  # noqa: SIM118 -- `in` looks at a row's values
        "delivered": "Delivered",
        "superseded": "No longer needed,",
        "discarded": "Canceled or discarded",
    }[row["state"]]
    because = f": {row['last_error']}" if row["last_error"] and row["state"] in ("superseded", "discarded") else ""
    when = "at an unknown time" if row["finished_at"] is None else _time(row["finished_at"])
    return f"{words} {when}{because.removesuffix('.')}. Nothing left to do.", None


def _dead(wait: Waiting) -> Explanation:
    row, reference = wait.facts.row, wait.facts.reference
    tries = f"after {row['attempts']} attempt{'' if row['attempts'] == 1 else 's'}"
    sentence = f"It is a dead letter: given up {tries} ({row['category']}: {_bare(row['last_error'])})."
    if row["category"] != "uncertain":
        return sentence, f"quotebot replay {reference}"
    return (
        f"{sentence} Whether it was done can only be seen on the other side.",
        f"quotebot dead resolve {reference} --delivered|--send-again --reason ...",
    )


def _claimed(wait: Waiting) -> Explanation:
    facts, row, owner = wait.facts, wait.facts.row, wait.facts.owner
    process = f"epoch {row['epoch']}" + ("" if owner is None else f" ({owner['role']}, process {owner['pid']})")
    since = f"since {_time(row['claimed_at'])} ({_span(facts.now - row['claimed_at'])})"
    if wait.cause == "owner_gone":
        return f"It was claimed by {process} {since}, which ended: the next start of the bot takes it back.", "quotebot run"
    return f"It is under way: claimed by {process} {since}, {_attempt(facts)}.", None


def _no_bot(wait: Waiting) -> Explanation:
    row = wait.facts.row
    if row["state"] in (OperationState.IN_PROGRESS, EffectState.IN_FLIGHT):
        return f"{_claimed(wait)[0]} But no bot is running: its next start takes it back.", "quotebot run"
    return f"It is due since {_time(row['next_attempt_at'])}, and no bot is running.", "quotebot run"


def _due(wait: Waiting) -> Explanation:
    since = _time(wait.facts.row["next_attempt_at"])
    return f"It is due since {since}: the bot takes it as soon as its class has a free hand.", None


def _for_parent(wait: Waiting) -> Explanation:
    parent, number = wait.facts.parent, wait.facts.row["after_id"]
    if parent is None:
        remedy = f"quotebot ops cancel {wait.facts.reference} --reason ..."
        return f"It waits for effect #{number}, which is not there any more.", remedy
    sentence = f"It waits for the result of effect #{number} ({parent['class']}), which is {parent['state']}."
    return sentence, f"quotebot {'replay' if parent['state'] == EffectState.FAILED else 'why'} {number}"


def _held(wait: Waiting) -> Explanation:
    gate = wait.facts.gate
    assert gate is not None  # noqa: S101 -- a hold is the cause
    because = f"since {_time(gate.held_at)} because: {_bare(gate.reason)}"
    until = "" if gate.until_at is None else f", until {_when(gate.until_at, wait.facts.now)}"
    words, remedy = {
        "operator": (f"Class {gate.name} is paused by {gate.held_by} {because}", f"quotebot resume {gate.name}"),
        "auth": (f"Class {gate.name} is held {because}", f"mend the login, then: quotebot resume {gate.name}"),
        "breaker": (f"The breaker of {gate.name} is open {because}", None),
        "throttled": (f"{gate.name} is throttled by the other side {because}", None),
    }[gate.cause or "operator"]
    return f"{words}{until}.", remedy


def _for_build(wait: Waiting) -> Explanation:
    again = _when(wait.facts.row["next_attempt_at"], wait.facts.now)
    sentence = f"It was recorded by a newer build, which this one cannot read; it is looked at again {again}."
    return sentence, "install the newer build and restart the bot"


def _for_time(wait: Waiting) -> Explanation:
    row = wait.facts.row
    when = _when(row["next_attempt_at"], wait.facts.now)
    if wait.cause == "not_before":
        return f"It is owed for later: due at {when}.", None
    after = "" if row["last_error"] is None else f', after "{_bare(row["last_error"])}"'
    if wait.cause == "uncertain":
        sentence = f"Whether it was done is not known; it is looked for at {when}{after}."
        return sentence, f"quotebot replay {wait.facts.reference} --status uncertain"
    return f"It is due at {when}, {_attempt(wait.facts)}{after}.", None


def _in_lane(wait: Waiting) -> Explanation:
    row = wait.facts.row
    lane = row["lane"] if wait.facts.kind == "operation" else f"{row['class']} of {row['target']}"
    return f"It stands behind {wait.behind} in its lane ({lane}): one at a time, in the order they came.", _why(wait)


def _alone(wait: Waiting) -> Explanation:
    if wait.behind is not None:
        return f"{wait.behind}, with which the process died before, is tried alone first.", _why(wait)
    claims = wait.facts.row["claims"]
    return f"The process died {claims} times with it, so it is tried alone: when nothing else is under way.", None


def _for_trial(wait: Waiting) -> Explanation:
    gate = wait.facts.gate
    assert gate is not None  # noqa: S101 -- a half-open gate is the cause
    sentence = f"{gate.name} is tried with one effect at a time after a hold"
    if wait.behind is None:
        return f"{sentence}; its turn comes next.", None
    return f"{sentence}: {wait.behind} is under way.", _why(wait)


_EXPLANATIONS: Final[Mapping[str, Callable[[Waiting], Explanation]]] = {
    "finished": _finished,
    "dead": _dead,
    "owner_gone": _claimed,
    "claimed": _claimed,
    "no_bot": _no_bot,
    "parent": _for_parent,
    "held": _held,
    "breaker": _held,
    "throttled": _held,
    "needs_newer_build": _for_build,
    "uncertain": _for_time,
    "not_before": _for_time,
    "time": _for_time,
    "lane": _in_lane,
    "suspect": _alone,
    "half_open": _for_trial,
    "due": _due,
}


def _why(wait: Waiting) -> str:
    return f"quotebot why {(wait.behind or '').removeprefix('#')}"


def _attempt(facts: Facts) -> str:
    return f"attempt {facts.row['attempts'] + 1}" + ("" if facts.budget is None else f" of {facts.budget}")


def _bare(sentence: str | None) -> str:
    """Return a sentence without its full stop, for use inside another."""
    return (sentence or "").removesuffix(".")


def _time(at: int | None) -> str:
    return "an unknown time" if at is None else f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _when(at: int, now: int) -> str:
    return f"{_time(at)} (in {_span(at - now)})"


def _span(milliseconds: int) -> str:
    """Return "12 s", "5 min", "3 h" or "9 d": whole units, a started second counts as one."""
    seconds = max(0, -(-milliseconds // 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_DETAILS: Final = {
    "discarded": "Discarded: it will not be {done}.",
    "delivered": "Marked as delivered: what waited for it goes on.",
    "sent_again": "Queued to be sent again, without looking for it first.",
    "cancelled": "Cancelled: it will not be {done}.",
    "cancelled_after_attempt": ("Cancelled: it will not be sent. An earlier attempt may have reached the other side all the same."),
    "looked_for": "It is looked for now, and sent again only if it is not there.",
    "tried": "It is tried again now, under the same key: what is there already is not done twice.",
    "tried_after_hold": "It is tried as soon as that is over: {wait}",
    "waits": "{wait}",
    "replayed": "An operator replayed it meanwhile. {wait}",
    "changed": "{it_is}. Nothing was changed.",
    "not_dead": "Only a dead letter can be discarded, and {id} is none: {it_is}. Nothing was changed.",
    "not_dead_command": "Only a dead command can be edited and resubmitted: {it_is}. Nothing was changed.",
    "is_command": "{id} is a command, and whether a command was done is always known: {it_is}. Nothing was changed.",
    "not_uncertain": "{id} is not in doubt: {it_is}. Nothing was changed.",
    "repeatable": (
        "{id} failed ({category}) and it is known that a repetition does no harm. Nothing was changed. Use: quotebot replay {id}"
    ),
    "objection": "{objection} Nothing was changed.",
    "too_late": "{too_late} Nothing was changed.",
    "not_found": "There is no {id}.",
    "no_operation": "There is no operation {id}.",
    "no_effect": "There is no effect {id}.",
}

_STATES: Final = {
    "reserved": "waiting to be executed",
    "in_progress": "being executed right now",
    "failed_retryable": "waiting to be executed again",
    "completed": "done",
    "failed_terminal": "a dead letter",
    "pending": "waiting to be sent",
    "in_flight": "being sent or looked for right now",
    "uncertain": "in doubt and will be looked for",
    "delivered": "delivered",
    "failed": "a dead letter",
    "superseded": "superseded by a newer one",
    "discarded": "discarded",
}

_TOO_LATE: Final = {
    "in_progress": "It is being executed right now: it is too late to cancel it.",
    "completed": "It is done already.",
    "failed_terminal": "It is a dead letter: close it with quotebot dead discard.",
    "discarded": "It was cancelled or discarded before.",
    "in_flight": "It is being sent right now: it is too late to cancel it.",
    "uncertain": "It may have been done already: end the doubt with quotebot dead resolve {id}.",
    "delivered": "It was delivered already.",
    "failed": "It is a dead letter: close it with quotebot dead discard {id}.",
    "superseded": "It became needless before.",
}
