"""Tests of `quotebot trace` and `quotebot why`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli.trace import relative
from tests.quotebot.parts import tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

DEAD = """
SELECT e.id, e.operation_id, o.operation_key, o.correlation_id, e.aggregate_id
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.state = 'failed' ORDER BY e.id
"""


def dead_letter(ledger: Path) -> dict[str, Any]:
    return dict(read_ledger(ledger, DEAD)[0])


def traced(command: Run, reference: str) -> list[dict[str, Any]]:
    done = command("trace", reference, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["schema_version"] == 1
    actions: list[dict[str, Any]] = printed["actions"]
    return actions


def test_an_action_is_traced_by_each_of_its_names(command: Run, dead: Path) -> None:
    letter = dead_letter(dead)
    names = (
        letter["correlation_id"],
        letter["operation_key"],
        letter["operation_key"][:10],
        f"op{letter['operation_id']}",
        str(letter["id"]),
    )
    for name in names:
        (action,) = traced(command, name)
        assert action["operation"]["id"] == letter["operation_id"]


def test_a_trace_tells_delivery_operation_audit_effects_and_attempts(command: Run, dead: Path) -> None:
    letter = dead_letter(dead)
    (action,) = traced(command, f"op{letter['operation_id']}")
    assert action["delivery"]["source"] == action["operation"]["source"]
    assert action["operation"]["outcome"] == "applied"
    told = [event["event_type"] for event in action["events"]]
    assert told[:2] == ["operation.reserved", "operation.claimed"]
    assert {"operation.applied", "effect.retry_scheduled", "system.error"} <= set(told)
    (record,) = [effect for effect in action["effects"] if effect["id"] == letter["id"]]
    assert (record["class"], record["state"], len(record["attempts_made"])) == ("crm.create", "failed", 7)


def test_a_trace_of_a_creation_finds_the_audit_of_the_time_before_there_was_a_quote(command: Run, dead: Path) -> None:
    (row, *_) = read_ledger(dead, "SELECT id FROM operations WHERE action_kind = 'quote.create' ORDER BY id")
    (action,) = traced(command, f"op{row['id']}")
    told = [event["event_type"] for event in action["events"]]
    assert told[:2] == ["operation.reserved", "operation.claimed"]
    assert "operation.applied" in told


def test_a_quote_is_traced_whole(command: Run, dead: Path) -> None:
    actions = traced(command, "Q-2026-0001")
    assert len(actions) > 1
    assert {"quote.create"} <= {action["operation"]["action_kind"] for action in actions}


def test_a_trace_shows_people_a_tree_with_both_kinds_of_time(command: Run, dead: Path) -> None:
    letter = dead_letter(dead)
    done = command("trace", letter["correlation_id"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{letter['correlation_id']}  op{letter['operation_id']}  ")
    assert f"effect #{letter['id']}  crm.create" in done.stdout
    assert " UTC " in done.stdout
    assert "+0 ms  delivery" in done.stdout
    assert "send, took" in done.stdout


def test_a_trace_holds_no_payload_no_answer_and_no_customer(command: Run, dead: Path) -> None:
    payloads = [row["payload"] for row in read_ledger(dead, "SELECT payload FROM operations")]
    assert any("Acme" in payload for payload in payloads)
    for arguments in (
        ("trace", "Q-2026-0001"),
        ("trace", "Q-2026-0001", "--json"),
        ("ops", "list", "--json"),
        ("ops", "show", "op1"),
    ):
        done = command(*arguments)
        assert done.returncode == 0
        assert "Acme" not in done.stdout
        assert '"payload"' not in done.stdout
        assert "response_url" not in done.stdout


def test_several_actions_with_one_name_are_all_shown(command: Run, dead: Path) -> None:
    for number, key in ((1, "abcdef01" + "0" * 56), (2, "abcdef01" + "1" * 56)):
        tampered_key(dead, number, key)
    done = command("trace", "c-abcdef01")
    assert done.returncode == 0
    assert "2 actions are called c-abcdef01" in done.stderr


def tampered_key(ledger: Path, number: int, key: str) -> None:
    tampered(ledger, "UPDATE operations SET operation_key = ?, correlation_id = ? WHERE id = ?", key, f"c-{key[:8]}", number)


def test_trace_of_an_unknown_name_matches_nothing(command: Run, dead: Path) -> None:
    for name in ("c-00000000", "op999", "99999", "Q-2026-9999", "nonsense"):
        done = command("trace", name)
        assert (done.returncode, done.stdout) == (4, "")
        assert f"Nothing is called {name}" in done.stderr
    assert dead.exists()


def test_why_names_what_to_do_about_a_dead_letter(command: Run, dead: Path) -> None:
    letter = dead_letter(dead)
    done = command("why", str(letter["id"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "It is a dead letter: given up after 7 attempts" in done.stdout
    assert f"To do: quotebot replay {letter['id']}" in done.stdout


def test_why_tells_programs_the_cause(command: Run, dead: Path) -> None:
    done = command("why", "op1", "--json")
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["schema_version"], printed["waiting"]["cause"]) == (0, 1, "finished")
    assert printed["waiting"]["reference"] == "op1"
    assert dead.exists()


def test_why_of_what_is_not_there_and_of_no_id(command: Run, dead: Path) -> None:
    assert command("why", "op999").returncode == 4
    assert command("why", "99999").returncode == 4
    done = command("why", "Q-2026-0001")
    assert (done.returncode, done.stdout) == (64, "")
    assert "is not an id" in done.stderr
    assert "Those of a quote: quotebot ops list --quote" in done.stderr
    assert dead.exists()


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(0, "+0 ms"), (999, "+999 ms"), (1_300, "+1.3 s"), (300_000, "+5 min"), (-40, "-40 ms")]
)
def test_times_are_told_since_the_action_began(milliseconds: int, words: str) -> None:
    assert relative(milliseconds) == words
