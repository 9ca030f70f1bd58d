"""Tests of the sentences about the wait of a row, and about the answer to an operator action."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.gates import Gate
from ledger.operator.actions import Ruling, Verdict
from ledger.operator.explain import Facts, Waiting, waiting
from quotebot.views import waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Row

NOW = 1_764_000_000_000
TIME = "2025-11-24 16:00:00 UTC"
EFFECT: dict[str, Any] = {
    "id": 118,
    "class": "crm.create",
    "target": "Q-2026-0001",
    "state": "pending",
    "category": None,
    "last_error": None,
    "attempts": 0,
    "claims": 0,
    "epoch": None,
    "claimed_at": None,
    "lease_until": None,
    "next_attempt_at": NOW,
    "not_before": None,
    "last_attempt_at": None,
    "finished_at": None,
    "after_id": None,
    "failure_history": "[]",
}
COMMAND: dict[str, Any] = {
    **{name: EFFECT[name] for name in EFFECT if name not in ("class", "target", "after_id", "not_before")},
    "id": 12,
    "state": "reserved",
    "lane": "Q-2026-0001",
    "action_kind": "quote.submit",
    "outcome": None,
}


def row_of(values: dict[str, Any]) -> Row:
    return values  # type: ignore[return-value] # a mapping reads like a row


def effect(**changed: Any) -> Row:
    return row_of({**EFFECT, **changed})


def command(**changed: Any) -> Row:
    return row_of({**COMMAND, **changed})


def wait_of(row: Row, **facts: Any) -> Waiting:
    return waiting(Facts(row, "operation" if "lane" in row.keys() else "effect", NOW, **facts))  # noqa: SIM118 -- as a row


CLAIMED: dict[str, Any] = {"state": "in_flight", "epoch": 3, "claimed_at": NOW - 4_000, "lease_until": NOW + 26_000}
OWNER = row_of({"role": "bot", "pid": 77, "ended_at": None})
ENDED = row_of({"role": "bot", "pid": 77, "ended_at": NOW - 1})
UNDER_WAY = f"claimed by epoch 3 (bot, process 77) since {TIME.replace('16:00:00', '15:59:56')} (4 s)"
BREAKER = Gate("crm", "held", "breaker", "5 failures in a row", None, NOW, NOW + 30_000)
HALF_OPEN = Gate("crm", "half_open", "breaker", "5 failures in a row")

WAITS: dict[str, tuple[Waiting, str, str | None]] = {
    "completed": (
        wait_of(command(state="completed", outcome="applied", finished_at=NOW)),
        f"Done (applied) {TIME}. Nothing left to do.",
        None,
    ),
    "delivered": (
        wait_of(effect(state="delivered", finished_at=NOW, last_error="503 before")),
        f"Delivered {TIME}. Nothing left to do.",
        None,
    ),
    "superseded": (
        wait_of(effect(state="superseded", finished_at=NOW, last_error="effect 2 became needless.")),
        f"No longer needed, {TIME}: effect 2 became needless. Nothing left to do.",
        None,
    ),
    "discarded": (
        wait_of(effect(state="discarded", finished_at=None)),
        "Canceled or discarded at an unknown time. Nothing left to do.",
        None,
    ),
    "dead": (
        wait_of(effect(state="failed", attempts=1, category="mapping", last_error="No such field.")),
        "It is a dead letter: given up after 1 attempt (mapping: No such field).",
        "quotebot replay 118",
    ),
    "dead command": (
        wait_of(command(state="failed_terminal", attempts=7, category="internal", last_error="a bug")),
        "It is a dead letter: given up after 7 attempts (internal: a bug).",
        "quotebot replay op12",
    ),
    "dead and uncertain": (
        wait_of(effect(state="failed", attempts=2, category="uncertain", last_error="cannot know")),
        (
            "It is a dead letter: given up after 2 attempts (uncertain: cannot know). "
            "Whether it was done can only be seen on the other side."
        ),
        "quotebot dead resolve 118 --delivered|--send-again --reason ...",
    ),
    "claimed": (wait_of(effect(**CLAIMED), owner=OWNER, budget=7), f"It is under way: {UNDER_WAY}, attempt 1 of 7.", None),
    "claimed by an unknown process": (
        wait_of(effect(**CLAIMED)),
        f"It is under way: {UNDER_WAY.replace(' (bot, process 77)', '')}, attempt 1.",
        None,
    ),
    "claimed without a bot": (
        wait_of(effect(**CLAIMED), owner=OWNER, budget=7, bot_runs=False),
        f"It is under way: {UNDER_WAY}, attempt 1 of 7. But no bot is running: its next start takes it back.",
        "quotebot run",
    ),
    "claimed by a process that ended": (
        wait_of(effect(**CLAIMED), owner=ENDED),
        f"It was {UNDER_WAY}, which ended: the next start of the bot takes it back.",
        "quotebot run",
    ),
    "parent": (
        wait_of(effect(next_attempt_at=None, after_id=4), parent=row_of({"class": "pdf.render", "state": "in_flight"})),
        "It waits for the result of effect #4 (pdf.render), which is in_flight.",
        "quotebot why 4",
    ),
    "dead parent": (
        wait_of(effect(next_attempt_at=None, after_id=4), parent=row_of({"class": "pdf.render", "state": "failed"})),
        "It waits for the result of effect #4 (pdf.render), which is failed.",
        "quotebot replay 4",
    ),
    "missing parent": (
        wait_of(effect(next_attempt_at=None, after_id=4)),
        "It waits for effect #4, which is not there any more.",
        "quotebot ops cancel 118 --reason ...",
    ),
    "paused": (
        wait_of(effect(), gate=Gate("crm", "held", "operator", "org migration", "ops", NOW)),
        f"Class crm is paused by ops since {TIME} because: org migration.",
        "quotebot resume crm",
    ),
    "refused login": (
        wait_of(effect(), gate=Gate("crm", "held", "auth", "401 session expired.", None, NOW)),
        f"Class crm is held since {TIME} because: 401 session expired.",
        "mend the login, then: quotebot resume crm",
    ),
    "breaker": (
        wait_of(effect(), gate=BREAKER),
        f"The breaker of crm is open since {TIME} because: 5 failures in a row, until 2025-11-24 16:00:30 UTC (in 30 s).",
        None,
    ),
    "throttled": (
        wait_of(effect(), gate=Gate("crm", "held", "throttled", "429", None, NOW, NOW + 600_000)),
        f"crm is throttled by the other side since {TIME} because: 429, until 2025-11-24 16:10:00 UTC (in 10 min).",
        None,
    ),
    "newer build": (
        wait_of(command(category="needs_newer_build", next_attempt_at=NOW + 60_000)),
        "It was recorded by a newer build, which this one cannot read; it is looked at again 2025-11-24 16:01:00 UTC (in 60 s).",
        "install the newer build and restart the bot",
    ),
    "newer build that does not run": (
        wait_of(command(category="needs_newer_build", next_attempt_at=NOW)),
        f"It was recorded by a newer build, and no bot that runs can read it. It is due since {TIME}.",
        "start a bot of the newer build",
    ),
    "time": (
        wait_of(effect(next_attempt_at=NOW + 11_001, attempts=1, last_error="503 from the other side."), budget=7),
        'It is due at 2025-11-24 16:00:11 UTC (in 12 s), attempt 2 of 7, after "503 from the other side".',
        None,
    ),
    "not before": (
        wait_of(effect(next_attempt_at=NOW + 10_800_000, not_before=NOW + 10_800_000)),
        "It is owed for later: due at 2025-11-24 19:00:00 UTC (in 3 h).",
        None,
    ),
    "uncertain": (
        wait_of(effect(state="uncertain", next_attempt_at=NOW + 60_000, attempts=1, last_error="time-out")),
        'Whether it was done is not known; it is looked for at 2025-11-24 16:01:00 UTC (in 60 s), after "time-out".',
        "quotebot replay 118 --status uncertain",
    ),
    "lane of a target": (
        wait_of(effect(), ahead=117),
        "It stands behind #117 in its lane (crm.create of Q-2026-0001): one at a time, in the order they came.",
        "quotebot why 117",
    ),
    "lane of commands": (
        wait_of(command(), ahead=11),
        "It stands behind op11 in its lane (Q-2026-0001): one at a time, in the order they came.",
        "quotebot why op11",
    ),
    "suspect": (
        wait_of(effect(claims=2)),
        "The process died 2 times with it, so it is tried alone: when nothing else is under way.",
        None,
    ),
    "behind a suspect": (
        wait_of(effect(), suspect="#99"),
        "#99, with which the process died before, is tried alone first.",
        "quotebot why 99",
    ),
    "behind a suspect command": (
        wait_of(effect(), suspect="op9"),
        "op9, with which the process died before, is tried alone first.",
        "quotebot why op9",
    ),
    "next trial": (
        wait_of(effect(), gate=HALF_OPEN),
        "crm is tried with one effect at a time after a hold; its turn comes next.",
        None,
    ),
    "behind a trial": (
        wait_of(effect(), gate=HALF_OPEN, trial=7),
        "crm is tried with one effect at a time after a hold: #7 is under way.",
        "quotebot why 7",
    ),
    "due": (wait_of(effect()), f"It is due since {TIME}: the bot takes it as soon as its class has a free hand.", None),
    "due without a bot": (
        wait_of(command(), bot_runs=False),
        f"It is due since {TIME}, and no bot is running.",
        "quotebot run",
    ),
}


@pytest.mark.parametrize(("wait", "sentence", "remedy"), WAITS.values(), ids=list(WAITS))
def test_a_wait_is_one_sentence_and_a_remedy(wait: Waiting, sentence: str, remedy: str | None) -> None:
    assert waits.explain(wait) == (sentence, remedy)


def test_a_person_reads_the_category_of_a_failure_and_an_operator_its_text() -> None:
    key = "Salesforce refused to write the quote 6910d0b8_Q-2026-0001_v1."
    wait = wait_of(effect(state="pending", attempts=1, category="mapping", last_error=key, next_attempt_at=NOW + 1_000))
    held = Gate("crm", "held", "auth", key, None, NOW)
    paused = wait_of(effect(state="pending", category="auth", last_error=key), gate=held)
    for told in (wait, paused):
        assert "6910d0b8" in waits.explain(told)[0]
        assert "6910d0b8" not in waits.explain(told, operator=False)[0]
    assert 'after "The service does not know a field or its value".' in waits.explain(wait, operator=False)[0]
    assert "because: The login was refused." in waits.explain(paused, operator=False)[0]


def test_a_wait_is_told_in_german(german: None) -> None:
    told = {name: waits.explain(wait)[0] for name, (wait, _, _) in WAITS.items()}
    assert told["dead"] == "Der Auftrag ist fehlgeschlagen: aufgegeben nach 1 Versuch (mapping: No such field)."
    assert told["lane of a target"].startswith("Steht in seiner Reihe (crm.create für Q-2026-0001) hinter #117: ")
    dead = Ruling("118", Verdict.LOST, "not_dead", effect(state="delivered"))
    assert waits.detail(dead) == (
        "Nur ein fehlgeschlagener Auftrag kann verworfen werden, und 118 ist keiner. Stand: zugestellt. Nichts wurde geändert."
    )


def test_every_cause_has_a_sentence() -> None:
    assert {wait.cause for wait, _, _ in WAITS.values()} == set(waits._EXPLANATIONS)


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [
        (-1, "0 s"),
        (1, "1 s"),
        (119_000, "119 s"),
        (119_001, "2 min"),
        (7_199_000, "119 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_a_started_second_counts_and_units_begin_at_two(ahead_ms: int, words: str) -> None:
    assert waits._span(ahead_ms) == words


# ---------------------------------------------------------------------------------------------------------------- rulings


REPLAYED = json.dumps([{"replayed_by": "first", "replayed_at": NOW}])
DUE = wait_of(effect())
DUE_TEXT, _ = waits.explain(DUE)


def rulings() -> Iterator[tuple[Ruling, str]]:
    done, refused, lost, missing = Verdict.DONE, Verdict.REFUSED, Verdict.LOST, Verdict.NOT_FOUND
    yield Ruling("118", done, "discarded", effect()), "Discarded: it will not be sent."
    yield Ruling("op12", done, "discarded", command()), "Discarded: it will not be executed."
    yield Ruling("118", done, "delivered", effect()), "Marked as delivered: what waited for it goes on."
    yield Ruling("118", done, "sent_again", effect()), "Queued to be sent again, without looking for it first."
    yield Ruling("118", done, "cancelled", effect()), "Canceled: it will not be sent."
    yield Ruling("op12", done, "cancelled", command()), "Canceled: it will not be executed."
    yield (
        Ruling("118", done, "cancelled_after_attempt", effect()),
        "Canceled: it will not be sent. An earlier attempt may have reached the other side all the same.",
    )
    yield (
        Ruling("118", done, "looked_for", effect(), DUE),
        "It is looked for now, and sent again only if it is not there.",
    )
    yield (
        Ruling("118", done, "tried", effect(), DUE),
        "It is tried again now, under the same key: what is there already is not done twice.",
    )
    yield Ruling("118", done, "tried_after_hold", effect(), DUE), f"It is tried as soon as that is over: {DUE_TEXT}"
    yield Ruling("118", refused, "waits", effect(), DUE), DUE_TEXT
    yield Ruling("118", lost, "replayed", effect(), DUE), f"An operator replayed it meanwhile. {DUE_TEXT}"
    yield (
        Ruling("118", lost, "changed", effect(state="failed", failure_history=REPLAYED)),
        "it is a dead letter, last replayed by first. Nothing was changed.",
    )
    for state, words in (
        ("uncertain", "in doubt and will be looked for"),
        ("delivered", "delivered"),
        ("in_flight", "being sent or looked for right now"),
        ("superseded", "superseded by a newer one"),
        ("discarded", "discarded"),
    ):
        yield (
            Ruling("118", refused, "not_dead", effect(state=state)),
            f"Only a dead letter can be discarded, and 118 is none: it is {words}. Nothing was changed.",
        )
    for state, words in (
        ("reserved", "waiting to be executed"),
        ("in_progress", "being executed right now"),
        ("failed_retryable", "waiting to be executed again"),
        ("completed", "done"),
        ("failed_terminal", "a dead letter"),
    ):
        yield (
            Ruling("op12", refused, "is_command", command(state=state)),
            f"op12 is a command, and whether a command was done is always known: it is {words}. Nothing was changed.",
        )
    yield (
        Ruling("op12", refused, "not_dead_command", command(state="completed")),
        "Only a dead command can be edited and resubmitted: it is done. Nothing was changed.",
    )
    yield (
        Ruling("118", refused, "not_uncertain", effect()),
        "118 is not in doubt: it is waiting to be sent. Nothing was changed.",
    )
    yield (
        Ruling("118", refused, "repeatable", effect(state="failed", category="mapping")),
        "118 failed (mapping) and it is known that a repetition does no harm. Nothing was changed. Use: quotebot replay 118",
    )
    yield (
        Ruling("118", refused, "objection", effect(), objection="slack.post needs its timestamp, not {None}."),
        "slack.post needs its timestamp, not {None}. Nothing was changed.",
    )
    for state, words in (
        ("in_flight", "It is being sent right now: it is too late to cancel it."),
        ("uncertain", "It may have been done already: end the doubt with quotebot dead resolve 118."),
        ("delivered", "It was delivered already."),
        ("failed", "It is a dead letter: close it with quotebot dead discard 118."),
        ("superseded", "It became needless before."),
        ("discarded", "It was canceled or discarded before."),
    ):
        yield Ruling("118", refused, "too_late", effect(state=state)), f"{words} Nothing was changed."
    for state, words in (
        ("in_progress", "It is being executed right now: it is too late to cancel it."),
        ("completed", "It is done already."),
        ("failed_terminal", "It is a dead letter: close it with quotebot dead discard."),
        ("discarded", "It was canceled or discarded before."),
    ):
        yield Ruling("op12", refused, "too_late", command(state=state)), f"{words} Nothing was changed."
    yield Ruling("118", missing, "not_found"), "There is no 118."
    yield Ruling("op12", missing, "no_operation"), "There is no operation op12."
    yield Ruling("118", missing, "no_effect"), "There is no effect 118."


@pytest.mark.parametrize(("ruling", "text"), list(rulings()), ids=lambda value: value.code if isinstance(value, Ruling) else "")
def test_an_answer_to_an_operator_is_text(ruling: Ruling, text: str) -> None:
    assert waits.detail(ruling) == text


def test_every_code_has_a_text() -> None:
    assert {ruling.code for ruling, _ in rulings()} == set(waits._DETAILS)
