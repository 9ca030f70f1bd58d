"""Sentences about the wait of a row, and about the answer to an operator action. Pure.

The ledger returns causes, codes and rows; the command line and Slack show these texts.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from ledger.machine import EffectState, OperationState
from ledger.operator.replay import last_replay
from quotebot.domain.language import N_, _, ngettext
from quotebot.views.operator_messages import failure_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.database import Row
    from ledger.operator.actions import Ruling
    from ledger.operator.explain import Facts, Waiting

Explanation = tuple[str, str | None]  # a sentence, and the action to take, if any


def explain(wait: Waiting, *, operator: bool = True) -> Explanation:
    """Return the sentence about a wait and its remedy: the command or action that ends it, if there is one.

    A person who is no operator reads the category of a failure in place of the service's own text.
    """
    return _EXPLANATIONS[wait.cause](wait if operator else _without_diagnoses(wait))


def detail(ruling: Ruling, *, operator: bool = True) -> str:
    """Return the answer to an action as text: the new state, or why nothing was changed. `operator` as in `explain`."""
    row = ruling.row
    state = "" if row is None else row["state"]
    who = None if row is None else last_replay(row)[0]
    is_command = ruling.reference.startswith("op")
    now = _(_STATES[state]) if state in _STATES else state
    return _(
        (_COMMAND_DETAILS if is_command and ruling.code in _COMMAND_DETAILS else _DETAILS)[ruling.code],
        id=ruling.reference,
        category=None if row is None else row["category"],
        it_is=_("it is {state}", state=now) if who is None else _("it is {state}, last replayed by {who}", state=now, who=who),
        objection=ruling.objection,
        too_late=_(_TOO_LATE[state], id=ruling.reference) if state in _TOO_LATE else "",
        wait="" if ruling.wait is None else explain(ruling.wait, operator=operator)[0],
    )


def _without_diagnoses(wait: Waiting) -> Waiting:
    facts, row, gate = wait.facts, wait.facts.row, wait.facts.gate
    if facts.kind == "effect" and row["last_error"] and row["state"] not in _FINISHED_BECAUSE:
        told = {name: row[name] for name in row.keys()}  # noqa: SIM118 -- as a row
        row = cast("Row", {**told, "last_error": failure_words(row["category"])})
    if gate is not None and gate.cause in _HELD_FOR:
        gate = replace(gate, reason=failure_words(_HELD_FOR[gate.cause]))
    return replace(wait, facts=replace(facts, row=row, gate=gate))


def _finished(wait: Waiting) -> Explanation:
    row = wait.facts.row
    state = row["state"]
    when = _("at an unknown time") if row["finished_at"] is None else _time(row["finished_at"])
    if state in _FINISHED_BECAUSE and row["last_error"]:
        return _(_FINISHED_BECAUSE[state], when=when, reason=_bare(row["last_error"])), None
    outcome = row["outcome"] if "outcome" in row.keys() else ""  # noqa: SIM118 -- `in` looks at a row's values
    return _(_FINISHED[state], when=when, outcome=outcome), None


def _dead(wait: Waiting) -> Explanation:
    row, reference = wait.facts.row, wait.facts.reference
    sentence = ngettext(
        "It is a dead letter: given up after {n} attempt ({category}: {error}).",
        "It is a dead letter: given up after {n} attempts ({category}: {error}).",
        row["attempts"],
        category=row["category"],
        error=_bare(row["last_error"]),
    )
    if row["category"] != "uncertain":
        return sentence, f"quotebot replay {reference}"
    return (
        " ".join((sentence, _("Whether it was done can only be seen on the other side."))),
        f"quotebot dead resolve {reference} --delivered|--send-again --reason ...",
    )


def _claimed(wait: Waiting) -> Explanation:
    facts, row, owner = wait.facts, wait.facts.row, wait.facts.owner
    process = _("epoch {epoch}", epoch=row["epoch"])
    if owner is not None:
        process = _("epoch {epoch} ({role}, process {pid})", epoch=row["epoch"], role=owner["role"], pid=owner["pid"])
    claim = {"process": process, "time": _time(row["claimed_at"]), "span": _span(facts.now - row["claimed_at"])}
    if wait.cause == "owner_gone":
        sentence = _(
            "It was claimed by {process} since {time} ({span}), which ended: the next start of the bot takes it back.", **claim
        )
        return sentence, "quotebot run"
    sentence = _("It is under way: claimed by {process} since {time} ({span}), {attempt}.", **claim, attempt=_attempt(facts))
    return sentence, None


def _no_bot(wait: Waiting) -> Explanation:
    row = wait.facts.row
    if row["state"] in (OperationState.IN_PROGRESS, EffectState.IN_FLIGHT):
        return " ".join((_claimed(wait)[0], _("But no bot is running: its next start takes it back."))), "quotebot run"
    return _("It is due since {time}, and no bot is running.", time=_time(row["next_attempt_at"])), "quotebot run"


def _due(wait: Waiting) -> Explanation:
    since = _time(wait.facts.row["next_attempt_at"])
    return _("It is due since {time}: the bot takes it as soon as its class has a free hand.", time=since), None


def _for_parent(wait: Waiting) -> Explanation:
    parent, number = wait.facts.parent, wait.facts.row["after_id"]
    if parent is None:
        remedy = f"quotebot ops cancel {wait.facts.reference} --reason ..."
        return _("It waits for effect #{number}, which is not there any more.", number=number), remedy
    sentence = _(
        "It waits for the result of effect #{number} ({name}), which is {state}.",
        number=number,
        name=parent["class"],
        state=parent["state"],
    )
    return sentence, f"quotebot {'replay' if parent['state'] == EffectState.FAILED else 'why'} {number}"


def _held(wait: Waiting) -> Explanation:
    gate = wait.facts.gate
    assert gate is not None  # noqa: S101 -- a hold is the cause
    since = {"time": _time(gate.held_at), "reason": _bare(gate.reason)}
    if gate.until_at is None:
        because = _("since {time} because: {reason}", **since)
    else:
        because = _("since {time} because: {reason}, until {until}", **since, until=_when(gate.until_at, wait.facts.now))
    sentence, remedy = {
        "operator": (N_("Class {name} is paused by {who} {because}."), f"quotebot resume {gate.name}"),
        "auth": (N_("Class {name} is held {because}."), _("mend the login, then: quotebot resume {name}", name=gate.name)),
        "breaker": (N_("The breaker of {name} is open {because}."), None),
        "throttled": (N_("{name} is throttled by the other side {because}."), None),
    }[gate.cause or "operator"]
    return _(sentence, name=gate.name, who=gate.held_by, because=because), remedy


def _for_build(wait: Waiting) -> Explanation:
    due = wait.facts.row["next_attempt_at"]
    if due <= wait.facts.now:
        sentence = _("It was recorded by a newer build, and no bot that runs can read it. It is due since {time}.", time=_time(due))
        return sentence, _("start a bot of the newer build")
    again = _when(due, wait.facts.now)
    sentence = _("It was recorded by a newer build, which this one cannot read; it is looked at again {when}.", when=again)
    return sentence, _("install the newer build and restart the bot")


def _for_time(wait: Waiting) -> Explanation:
    row = wait.facts.row
    told = {"when": _when(row["next_attempt_at"], wait.facts.now), "error": _bare(row["last_error"])}
    after = row["last_error"] is not None
    if wait.cause == "not_before":
        return _("It is owed for later: due at {when}.", when=told["when"]), None
    if wait.cause == "uncertain":
        known = N_("Whether it was done is not known; it is looked for at {when}.")
        failed = N_('Whether it was done is not known; it is looked for at {when}, after "{error}".')
        return _(failed if after else known, **told), f"quotebot replay {wait.facts.reference} --status uncertain"
    due, retried = N_("It is due at {when}, {attempt}."), N_('It is due at {when}, {attempt}, after "{error}".')
    return _(retried if after else due, **told, attempt=_attempt(wait.facts)), None


def _in_lane(wait: Waiting) -> Explanation:
    row = wait.facts.row
    lane = row["lane"] if wait.facts.kind == "operation" else _("{name} of {target}", name=row["class"], target=row["target"])
    sentence = _(
        "It stands behind {behind} in its lane ({lane}): one at a time, in the order they came.", behind=wait.behind, lane=lane
    )
    return sentence, _why(wait)


def _alone(wait: Waiting) -> Explanation:
    if wait.behind is not None:
        return _("{behind}, with which the process died before, is tried alone first.", behind=wait.behind), _why(wait)
    claims = wait.facts.row["claims"]
    sentence = _("The process died {claims} times with it, so it is tried alone: when nothing else is under way.", claims=claims)
    return sentence, None


def _for_trial(wait: Waiting) -> Explanation:
    gate = wait.facts.gate
    assert gate is not None  # noqa: S101 -- a half-open gate is the cause
    if wait.behind is None:
        return _("{name} is tried with one effect at a time after a hold; its turn comes next.", name=gate.name), None
    sentence = _(
        "{name} is tried with one effect at a time after a hold: {behind} is under way.", name=gate.name, behind=wait.behind
    )
    return sentence, _why(wait)


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
    number = facts.row["attempts"] + 1
    if facts.budget is None:
        return _("attempt {number}", number=number)
    return _("attempt {number} of {budget}", number=number, budget=facts.budget)


def _bare(sentence: str | None) -> str:
    """Return a sentence without its full stop, for use inside another."""
    return (sentence or "").removesuffix(".")


def _time(at: int | None) -> str:
    return _("an unknown time") if at is None else f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _when(at: int, now: int) -> str:
    return _("{time} (in {span})", time=_time(at), span=_span(at - now))


def _span(milliseconds: int) -> str:
    """Return "12 s", "5 min", "3 h" or "9 d": whole units, a started second counts as one."""
    seconds = max(0, -(-milliseconds // 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_HELD_FOR: Final = {"auth": "auth", "breaker": "transient", "throttled": "throttled"}  # categories, by the cause of a hold
_FINISHED: Final = {
    "completed": N_("Done ({outcome}) {when}. Nothing left to do."),
    "delivered": N_("Delivered {when}. Nothing left to do."),
    "superseded": N_("No longer needed, {when}. Nothing left to do."),
    "discarded": N_("Canceled or discarded {when}. Nothing left to do."),
}
_FINISHED_BECAUSE: Final = {
    "superseded": N_("No longer needed, {when}: {reason}. Nothing left to do."),
    "discarded": N_("Canceled or discarded {when}: {reason}. Nothing left to do."),
}

_DETAILS: Final = {
    "discarded": N_("Discarded: it will not be sent."),
    "delivered": N_("Marked as delivered: what waited for it goes on."),
    "sent_again": N_("Queued to be sent again, without looking for it first."),
    "cancelled": N_("Canceled: it will not be sent."),
    "cancelled_after_attempt": N_(
        "Canceled: it will not be sent. An earlier attempt may have reached the other side all the same."
    ),
    "looked_for": N_("It is looked for now, and sent again only if it is not there."),
    "tried": N_("It is tried again now, under the same key: what is there already is not done twice."),
    "tried_after_hold": N_("It is tried as soon as that is over: {wait}"),
    "waits": "{wait}",
    "replayed": N_("An operator replayed it meanwhile. {wait}"),
    "changed": N_("{it_is}. Nothing was changed."),
    "not_dead": N_("Only a dead letter can be discarded, and {id} is none: {it_is}. Nothing was changed."),
    "not_dead_command": N_("Only a dead command can be edited and resubmitted: {it_is}. Nothing was changed."),
    "is_command": N_("{id} is a command, and whether a command was done is always known: {it_is}. Nothing was changed."),
    "not_uncertain": N_("{id} is not in doubt: {it_is}. Nothing was changed."),
    "repeatable": N_(
        "{id} failed ({category}) and it is known that a repetition does no harm. Nothing was changed. Use: quotebot replay {id}"
    ),
    "objection": N_("{objection} Nothing was changed."),
    "too_late": N_("{too_late} Nothing was changed."),
    "not_found": N_("There is no {id}."),
    "no_operation": N_("There is no operation {id}."),
    "no_effect": N_("There is no effect {id}."),
}

_COMMAND_DETAILS: Final = {
    "discarded": N_("Discarded: it will not be executed."),
    "cancelled": N_("Canceled: it will not be executed."),
}

_STATES: Final = {
    "reserved": N_("waiting to be executed"),
    "in_progress": N_("being executed right now"),
    "failed_retryable": N_("waiting to be executed again"),
    "completed": N_("done"),
    "failed_terminal": N_("a dead letter"),
    "pending": N_("waiting to be sent"),
    "in_flight": N_("being sent or looked for right now"),
    "uncertain": N_("in doubt and will be looked for"),
    "delivered": N_("delivered"),
    "failed": N_("a dead letter"),
    "superseded": N_("superseded by a newer one"),
    "discarded": N_("discarded"),
}

_TOO_LATE: Final = {
    "in_progress": N_("It is being executed right now: it is too late to cancel it."),
    "completed": N_("It is done already."),
    "failed_terminal": N_("It is a dead letter: close it with quotebot dead discard."),
    "discarded": N_("It was canceled or discarded before."),
    "in_flight": N_("It is being sent right now: it is too late to cancel it."),
    "uncertain": N_("It may have been done already: end the doubt with quotebot dead resolve {id}."),
    "delivered": N_("It was delivered already."),
    "failed": N_("It is a dead letter: close it with quotebot dead discard {id}."),
    "superseded": N_("It became needless before."),
}
