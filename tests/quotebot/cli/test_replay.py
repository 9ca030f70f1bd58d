"""Tests of `quotebot replay` without a running bot: the selection, the confirmation, the queued rows and the output."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli.replay import interval_ms
from quotebot.cli.terminal import checked_actor
from tests.quotebot.cli.conftest import clean_environment
from tests.quotebot.cli.test_dead import STATES, ids, listed, with_a_card_in_doubt
from tests.quotebot.parts import tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

KEYS = "SELECT id, effect_key FROM effects ORDER BY id"
OPERATIONS = "SELECT o.* FROM effects AS e JOIN operations AS o ON o.id = e.operation_id WHERE e.id = "
NO_BOT = "Queued. No bot is running here: they wait for the next start of `quotebot run`.\n"


def would_replay(command: Run, *arguments: str) -> list[str]:
    done = command("replay", *arguments, "--dry-run", "--json")
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)["would_replay"] if done.stdout else []


def test_replay_without_anything_to_replay_is_a_usage_error(command: Run, dead: Path) -> None:
    done = command("replay")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Say what to replay" in done.stderr
    assert dead.exists()


def test_one_bad_id_among_good_ones_replays_nothing(command: Run, dead: Path) -> None:
    done = command("replay", *ids(dead), "abc", "--yes")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Nothing was replayed" in done.stderr
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_a_dry_run_says_what_it_would_do_and_does_nothing(command: Run, dead: Path) -> None:
    done = command("replay", "--class", "crm.create", "--dry-run", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert (printed["schema_version"], printed["would_replay"]) == (1, ids(dead))
    assert printed["plan"][0] == {
        "id": ids(dead)[0],
        "class": "crm.create",
        "quote": "Q-2026-0001",
        "category": "transient",
        "expected": "repeated under the same key: the other side refuses it when it is already there",
        "detail": None,
    }
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_more_than_one_is_not_replayed_unasked(command: Run, dead: Path) -> None:
    done = command("replay", "--class", "crm.create", "--json")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Add --yes" in done.stderr
    table = done.stderr.splitlines()
    assert table[0] == "Would replay 2:"
    assert table[1].split() == ["ID", "Class", "Quote", "Category", "What", "will", "happen"]
    assert table[2].split()[:5] == [ids(dead)[0], "crm.create", "Q-2026-0001", "transient", "repeated"]
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_a_filter_that_matches_nothing_says_so(command: Run, dead: Path) -> None:
    done = command("replay", "--class", "slack.post")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "Nothing matched; nothing was replayed.\n")
    assert dead.exists()


def test_replay_queues_the_same_row_in_a_new_cycle_and_says_who_waits(command: Run, dead: Path) -> None:
    keys = read_ledger(dead, KEYS)
    done = command("replay", "--class", "crm.create", "--yes", "--as", "operator-7", "--reason", "outage over", "--json")
    assert (done.returncode, done.stderr) == (0, NO_BOT)
    assert [result["outcome"] for result in json.loads(done.stdout)["results"]] == ["queued", "queued"]
    assert [(row["state"], row["cycle"]) for row in read_ledger(dead, STATES)] == [("pending", 2), ("pending", 2)]
    assert read_ledger(dead, KEYS)[: len(keys)] == keys
    events = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'effect.replayed'")
    assert [(event["actor"], json.loads(event["after"])["reason"]) for event in events] == [("operator-7", "outage over")] * 2
    assert listed(command) == []  # being replayed, it is no open dead letter

    again = command("replay", ids(dead)[0])
    assert again.returncode == 75
    assert "under way; last replayed by operator-7" in again.stdout
    assert len(read_ledger(dead, "SELECT 1 FROM audit_events WHERE event_type = 'effect.replayed'")) == 2


def test_a_replay_changes_no_decision(command: Run, dead: Path) -> None:
    tables = [f"SELECT * FROM {name}" for name in ("quotes", "approvals", "operations")]  # noqa: S608 -- own names
    decided = [read_ledger(dead, table) for table in tables]
    assert all(decided)
    assert command("replay", "--class", "crm.create", "--yes").returncode == 0
    assert [read_ledger(dead, table) for table in tables] == decided


def test_replay_for_people_says_that_no_bot_is_there_to_deliver(command: Run, dead: Path) -> None:
    done = command("replay", ids(dead)[0])
    assert done.returncode == 0
    assert done.stdout.split() == [ids(dead)[0], "crm.create", "queued"]
    assert done.stderr == NO_BOT


def test_a_wait_without_a_bot_ends_at_once_and_says_so(command: Run, dead: Path) -> None:
    done = command("replay", ids(dead)[0], "--wait")
    assert (done.returncode, done.stdout.split()) == (75, [ids(dead)[0], "crm.create", "queued"])
    assert done.stderr == NO_BOT


def test_replay_by_cause_family_and_adapter(command: Run, dead: Path) -> None:
    for chosen in (("--class", "crm"), ("--adapter", "salesforce"), ("--cause", "crm.create/transient/HTTP_503")):
        assert would_replay(command, *chosen) == ids(dead), chosen
    assert would_replay(command, "--cause", "crm.create/transient/unknown") == []
    assert command("replay", "--cause", "crm.create/transient/HTTP_503", "--yes").returncode == 0
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"pending"}


def test_what_was_discarded_is_refused(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    tampered(dead, "UPDATE effects SET state = 'discarded' WHERE id = ?", reference)
    done = command("replay", reference)
    assert done.returncode == 3
    assert "discarded" in done.stdout


# ----------------------------------------------------------------------------------------------------------- what is chosen


def test_a_command_is_named_by_its_key_its_ref_or_its_request(command: Run, dead: Path) -> None:
    first, second = ids(dead)
    (operation,) = read_ledger(dead, OPERATIONS + second)
    for arguments in (
        ("--operation-key", operation["operation_key"]),
        ("--operation-key", operation["correlation_id"]),
        ("--request-id", operation["source_request_id"]),
        ("--request-id", operation["source_request_id"].partition(":")[2]),
        ("--quote", "Q-2026-0002"),
    ):
        assert would_replay(command, *arguments) == [second], arguments
    assert would_replay(command, "--operation-key", "c-nobody") == []
    assert first != second


def test_the_other_filters_narrow_too(command: Run, dead: Path) -> None:
    first, second = ids(dead)
    assert would_replay(command, "--only", "slack.card, crm.create") == [first, second]
    assert would_replay(command, "--only", "slack.card") == []
    assert would_replay(command, "--status", "failed") == [first, second]
    assert would_replay(command, "--status", "uncertain") == []
    assert would_replay(command, "--since", "7d", "--limit", "1") == [first]
    assert would_replay(command, "--category", "mapping") == []
    assert would_replay(command, second, second) == [second], "an id is replayed once however often it is named"


@pytest.mark.parametrize(
    "arguments",
    [
        ("7", "--class", "crm.create"),
        ("7", "--limit", "1"),
        ("--limit", "1"),
        ("--limit", "0", "--class", "crm.create"),
        ("--only", "slack.card,,"),
        ("--only", "%"),
        ("--class", "crm.create", "--rate", "fast"),
        ("--class", "crm.create", "--rate", "0/s"),
        ("--class", "crm.create", "--rate", "1/h"),
        ("--class", "crm.create", "--status", "delivered"),
        ("--class", "crm.create", "--as", "Quotebot"),
        ("--class", "crm.create", "--as", ""),
    ],
)
def test_what_makes_no_sense_replays_nothing(command: Run, dead: Path, arguments: tuple[str, ...]) -> None:
    done = command("replay", *arguments, "--yes")
    assert (done.returncode, done.stdout) == (64, "")
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_a_rate_is_read_as_the_time_between_two() -> None:
    assert [interval_ms(rate) for rate in (None, "1/s", "20/s", "30/m")] == [0.0, 1_000.0, 50.0, 2_000.0]


def test_an_actor_is_kept_as_given() -> None:
    assert checked_actor(" ops@example.com ", "root") == "ops@example.com"
    assert checked_actor(None, "root") == "root"


def test_at_a_rate_each_is_due_later_than_the_one_before(command: Run, dead: Path) -> None:
    assert command("replay", "--class", "crm.create", "--yes", "--rate", "2/s").returncode == 0
    due = [row["next_attempt_at"] for row in read_ledger(dead, "SELECT next_attempt_at FROM effects WHERE cycle = 2 ORDER BY id")]
    assert due[1] - due[0] == 500


def test_look_now_makes_an_uncertain_effect_due_at_once(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "bot" / "ledger.db"
    asyncio.run(with_a_card_in_doubt(path))
    (root,) = read_ledger(path, "SELECT id FROM effects WHERE state = 'failed'")
    reference = str(root["id"])
    assert command("replay", reference).returncode == 0
    tampered(path, "UPDATE effects SET next_attempt_at = 9000000000000 WHERE id = ?", reference)
    assert [letter["id"] for letter in listed(command, "--status", "uncertain")] == [reference]
    done = command("replay", "--status", "uncertain")
    assert (done.returncode, done.stdout.split()) == (0, [reference, "slack.post", "queued"])
    (now,) = read_ledger(path, f"SELECT state, cycle, next_attempt_at FROM effects WHERE id = {reference}")  # noqa: S608 -- a number
    assert (now["state"], now["cycle"]) == ("uncertain", 2)
    assert now["next_attempt_at"] < 9_000_000_000_000


# -------------------------------------------------------------------------------------------------------------- being asked


def asked_on_a_terminal(tmp_path: Path, checkout: Path, meanwhile: Any, answer: bytes) -> tuple[int, str, str]:
    """Replay everything as a person at a terminal; `meanwhile` runs while the plan is shown."""
    terminal, keyboard = pty.openpty()
    command = [sys.executable, "-m", "quotebot", "replay", "--class", "crm.create", "--as", "slow"]
    environment = clean_environment(tmp_path, PYTHONPATH=str(checkout))
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=keyboard, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(keyboard)
        assert process.stdout is not None
        assert process.stderr is not None
        said = b""
        while not said.endswith(b"[y/N] "):
            letter = process.stderr.read(1)
            assert letter, said.decode()
            said += letter
        meanwhile()
        os.write(terminal, answer)
        out, more = process.communicate(timeout=30)
    os.close(terminal)
    return process.returncode, out.decode(), (said + more).decode()


def test_on_a_terminal_no_is_no(tmp_path: Path, checkout: Path, dead: Path) -> None:
    status, out, said = asked_on_a_terminal(tmp_path, checkout, lambda: None, b"\n")
    assert (status, out) == (64, "")
    assert said.startswith("Would replay 2:\n")
    assert said.endswith("Replay these 2? [y/N] Nothing was replayed.\n")
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_replay_confirmed_after_another_operators_is_lost_and_names_that_operator(
    command: Run, tmp_path: Path, checkout: Path, dead: Path
) -> None:
    def meanwhile() -> None:
        assert command("replay", ids(dead)[0], "--as", "quick").returncode == 0

    status, out, _ = asked_on_a_terminal(tmp_path, checkout, meanwhile, b"y\n")
    lost, queued = out.splitlines()
    assert status == 65
    assert "taken by another operator; last replayed by quick on 20" in lost
    assert queued.split() == [ids(dead)[1], "crm.create", "queued"]
    assert [row["cycle"] for row in read_ledger(dead, STATES)] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--category", "time-out"), "the categories are transient, timeout,"),
        (("--class", "salesforce"), "the classes are slack.card,"),
        (("--only", "slack.card,crm.crate"), "did you mean crm.create?"),
        (("--only", "slack%"), "there is no such class"),
    ],
)
def test_replay_by_an_unknown_value_is_a_usage_error_that_names_the_values(
    command: Run, dead: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = command("replay", *arguments, "--yes")
    assert (done.returncode, done.stdout) == (64, "")
    assert words in done.stderr
    assert "Nothing was replayed" in done.stderr
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_replay_by_category_takes_the_letters_of_a_time_out(command: Run, dead: Path) -> None:
    first, _ = ids(dead)
    assert would_replay(command, "--category", "timeout") == []
    tampered(dead, "UPDATE effects SET category = 'timeout' WHERE id = ?", first)
    assert would_replay(command, "--category", "timeout") == [first]
