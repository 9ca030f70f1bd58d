from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.quotebot.parts import tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

KEYS = "SELECT id, effect_key FROM effects ORDER BY id"
STATES = "SELECT id, state, cycle FROM effects WHERE class = 'crm.create' ORDER BY id"


def ids(ledger: Path) -> list[str]:
    return [str(row["id"]) for row in read_ledger(ledger, STATES)]


def listed(command: Run, *arguments: str) -> list[dict[str, Any]]:
    done = command("dead", "list", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["schema_version"] == 1
    letters: list[dict[str, Any]] = printed["dead_letters"]
    return letters


# ------------------------------------------------------------------------------------------------------------- list, show


def test_list_shows_people_a_table(command: Run, dead: Path) -> None:
    done = command("dead", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in (*ids(dead), "crm.create", "Q-2026-0001", "Q-2026-0002", "transient"))


def test_list_shows_programs_every_field_and_no_payload(command: Run, dead: Path) -> None:
    first, second = listed(command)
    assert (first["class"], first["category"], first["attempts"], first["status"]) == ("crm.create", "transient", 7, "pending")
    assert ([first["id"], second["id"]], first["aggregate_id"]) == (ids(dead), "Q-2026-0001")
    assert (first["prior_replay_count"], first["failure_history"]) == (0, [])
    assert first["payload"].startswith("[redacted")


def test_list_filters(command: Run, dead: Path) -> None:
    assert [letter["id"] for letter in listed(command, "--quote", "Q-2026-0002", "--class", "crm.create")] == ids(dead)[1:]
    assert [letter["id"] for letter in listed(command, "--since", "7d", "--category", "transient", "--limit", "1")] == ids(dead)[:1]


def test_list_of_nothing_prints_no_data(command: Run, dead: Path) -> None:
    done = command("dead", "list", "--class", "slack.post")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No dead letters.\n")
    assert dead.exists()


@pytest.mark.parametrize("since", ["yesterday", "2", "-2h", "2w"])
def test_a_time_nobody_can_read_is_a_usage_error(command: Run, dead: Path, since: str) -> None:
    done = command("dead", "list", f"--since={since}")
    assert (done.returncode, done.stdout) == (64, "")
    assert "write 90s, 30m, 2h or 7d" in done.stderr
    assert dead.exists()


def test_a_vendors_brackets_are_shown_as_they_are(command: Run, dead: Path) -> None:
    tampered(dead, "UPDATE effects SET last_error = 'no [/field] like [bold]x' WHERE state = 'failed'")
    done = command("dead", "list", "--limit", "1")
    assert done.returncode == 0
    assert "[/field]" in done.stdout
    assert "[bold]" in done.stdout


def test_show_hides_the_payload_and_says_how_to_go_on(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    done = command("dead", "show", reference)
    assert done.returncode == 0
    assert "crm.create" in done.stdout
    assert "[redacted: --show-payload shows it, and that is audited]" in done.stdout
    assert done.stderr == f"\nTo try it again: quotebot replay {reference}\n"
    assert read_ledger(dead, "SELECT 1 FROM audit_events WHERE event_type = 'dead_letter.payload_shown'") == []


def test_a_payload_is_shown_on_request_and_that_is_audited(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    done = command("dead", "show", reference, "--show-payload", "--json")
    letter = json.loads(done.stdout)["dead_letter"]
    assert (done.returncode, done.stderr, letter["payload"]) == (0, "", {"quote_id": "Q-2026-0001", "version": 1})
    (event,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'dead_letter.payload_shown'")
    assert (event["actor_type"], json.loads(event["after"])) == ("operator", {"id": reference})


@pytest.mark.parametrize("verb", [("dead", "show"), ("replay",)])
def test_an_id_that_is_not_there_matches_nothing(command: Run, dead: Path, verb: tuple[str, ...]) -> None:
    for reference in ("99999", "op99999"):
        done = command(*verb, reference)
        assert done.returncode == 4
        assert reference in done.stdout + done.stderr
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


@pytest.mark.parametrize("reference", ["abc", "12a", "op", "-7", "99999999999999999999", "²"])
@pytest.mark.parametrize("verb", [("dead", "show"), ("replay",)])
def test_what_can_be_no_id_is_a_usage_error(command: Run, verb: tuple[str, ...], reference: str) -> None:
    done = command(*verb, "--", reference)
    assert (done.returncode, done.stdout) == (64, "")
    assert "Traceback" not in done.stderr


# ----------------------------------------------------------------------------------------------------------------- replay


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
    assert json.loads(done.stdout) == {"schema_version": 1, "would_replay": ids(dead)}
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_more_than_one_is_not_replayed_unasked(command: Run, dead: Path) -> None:
    done = command("replay", "--class", "crm.create", "--json")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Add --yes" in done.stderr
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_a_filter_that_matches_nothing_says_so(command: Run, dead: Path) -> None:
    done = command("replay", "--class", "slack.post")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "Nothing matched; nothing was replayed.\n")
    assert dead.exists()


def test_replay_queues_the_same_row_in_a_new_cycle_and_says_who_waits(command: Run, dead: Path) -> None:
    keys = read_ledger(dead, KEYS)
    done = command("replay", "--class", "crm.create", "--yes", "--as", "operator-7", "--reason", "outage over", "--json")
    assert (done.returncode, done.stderr) == (0, "")
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


def test_replay_for_people_says_that_the_bot_delivers(command: Run, dead: Path) -> None:
    done = command("replay", ids(dead)[0])
    assert done.returncode == 0
    assert done.stdout.split() == [ids(dead)[0], "crm.create", "queued"]
    assert done.stderr == "Queued: the running bot delivers them. Use --wait to follow.\n"


def test_what_was_discarded_is_closed(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    tampered(dead, "UPDATE effects SET state = 'discarded' WHERE id = ?", reference)
    done = command("replay", reference)
    assert done.returncode == 3
    assert "closed" in done.stdout
