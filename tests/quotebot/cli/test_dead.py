from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Fail, Trouble
from quotebot.cli import terminal
from quotebot.cli.tables import age_words
from quotebot.commands.payloads import SubmitQuote
from quotebot.execution.executor import Executor
from tests.quotebot.parts import MATRIX, RULES, bench_at, create_command, request_for, tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

QUOTE = "Q-2026-0001"
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
    assert all(word in done.stdout for word in (*ids(dead), "crm.create", "Q-2026-0001", "Q-2026-0002", "transient", "pending"))
    assert all(head in done.stdout.splitlines()[0] for head in ("Status", "Tries", "Replays", "First failed", "Age"))


def test_list_shows_programs_every_field_and_no_payload(command: Run, dead: Path) -> None:
    first, second = listed(command)
    assert (first["class"], first["category"], first["attempts"], first["status"]) == ("crm.create", "transient", 7, "pending")
    assert ([first["id"], second["id"]], first["aggregate_id"]) == (ids(dead), "Q-2026-0001")
    assert (first["prior_replay_count"], first["failure_history"]) == (0, [])
    assert first["payload"].startswith("[redacted")


def test_list_filters(command: Run, dead: Path) -> None:
    assert [letter["id"] for letter in listed(command, "--quote", "Q-2026-0002", "--class", "crm.create")] == ids(dead)[1:]
    assert [letter["id"] for letter in listed(command, "--since", "7d", "--category", "transient", "--limit", "1")] == ids(dead)[:1]


def test_list_filters_by_family_adapter_and_cause(command: Run, dead: Path) -> None:
    cause = "crm.create/transient/HTTP_503"
    assert {"/".join((letter["class"], letter["category"], letter["code"])) for letter in listed(command)} == {cause}
    for chosen in (("--class", "crm"), ("--adapter", "salesforce"), ("--cause", cause)):
        assert [letter["id"] for letter in listed(command, *chosen)] == ids(dead), chosen
    for other in (("--class", "slack"), ("--adapter", "llm"), ("--cause", "crm.create/transient/other")):
        assert listed(command, *other) == [], other


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--adapter", "sap"), "the adapters are slack, salesforce, pdf, llm"),
        (("--adapter", "slack", "--class", "slack.post"), "Give --class or --adapter, not both"),
        (("--cause", "crm.create/mapping"), "write CLASS/CATEGORY/CODE"),
        (("--cause", "crm.make/mapping/X"), "crm.make"),
        (("--cause", "crm.create/bad/X"), "the categories are"),
    ],
)
def test_an_unknown_adapter_or_cause_is_a_usage_error(command: Run, dead: Path, arguments: tuple[str, ...], said: str) -> None:
    for verb in (("dead", "list"), ("replay",)):
        done = command(*verb, *arguments)
        assert (done.returncode, done.stdout, said in done.stderr) == (64, "", True)
    assert dead.exists()


def test_show_tells_earlier_cycles_in_words(command: Run, dead: Path) -> None:
    first, _ = ids(dead)
    assert command("replay", first, "--as", "ops@example.com").returncode == 0
    (being_replayed,) = listed(command, "--status", "replaying", "--category", "transient")
    assert (being_replayed["category"], being_replayed["code"]) == ("transient", "HTTP_503")
    assert "HTTP_503" in command("dead", "list", "--status", "replaying").stdout
    (line,) = [row for row in command("dead", "show", first).stdout.splitlines() if row.startswith("failure_history")]
    failed = r"cycle 1: 7 attempts, failed 20.+ UTC \(transient, HTTP_503\): .+\."
    assert re.fullmatch(rf"failure_history +{failed} Replayed by ops@example.com 20.+ UTC", line)


def test_list_shows_one_status_or_all(command: Run, dead: Path) -> None:
    first, second = ids(dead)
    assert command("replay", first).returncode == 0
    assert command("dead", "discard", second, "--reason", "off").returncode == 0
    for status, found in {
        "pending": [],
        "replaying": [first],
        "replayed": [],
        "discarded": [second],
        "uncertain": [],
        "all": [first, second],
    }.items():
        assert [letter["id"] for letter in listed(command, "--status", status)] == found, status
    (being_replayed,) = listed(command, "--status", "replaying")
    assert (being_replayed["prior_replay_count"], being_replayed["cycle"]) == (1, 2)
    assert command("dead", "list", "--status", "gone").returncode == 64


def test_the_newest_first_on_request_and_what_is_left_out_is_said(command: Run, dead: Path) -> None:
    tampered(dead, "UPDATE effects SET updated_at = updated_at + 1000 WHERE id = ?", ids(dead)[1])
    assert [letter["id"] for letter in listed(command, "--oldest")] == ids(dead)
    assert [letter["id"] for letter in listed(command, "--newest")] == ids(dead)[::-1]
    done = command("dead", "list", "--limit", "1")
    assert done.stderr == "There are more than these 1: see them with a larger --limit.\n"
    assert json.loads(command("dead", "list", "--limit", "1", "--json").stdout)["more"] is True
    assert command("dead", "list", "--limit", "0").returncode == 64


def test_list_of_nothing_prints_no_data(command: Run, dead: Path) -> None:
    done = command("dead", "list", "--class", "slack.post")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No dead letters.\n")
    assert dead.exists()


def test_list_by_category_finds_the_letters_of_a_time_out(command: Run, dead: Path) -> None:
    assert listed(command, "--category", "timeout") == []
    tampered(dead, "UPDATE effects SET category = 'timeout' WHERE id = ?", ids(dead)[0])
    assert [letter["id"] for letter in listed(command, "--category", "timeout")] == ids(dead)[:1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--category", "time-out"),
            "time-out: there is no such category (did you mean timeout?); the categories are transient, timeout,",
        ),
        (("--category", "x"), "x: there is no such category; the categories are transient,"),
        (("--class", "crm.crate"), "crm.crate: there is no such class (did you mean crm.create?); the classes are slack.card,"),
        (("--class", "quote.crate"), "a command is listed under its kind, e.g. quote.create"),
    ],
)
def test_list_by_an_unknown_value_is_a_usage_error_that_names_the_values(
    command: Run, dead: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = command("dead", "list", *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert words in done.stderr
    assert dead.exists()


def test_list_by_class_takes_the_kind_of_a_command_too(command: Run, dead: Path) -> None:
    assert listed(command, "--class", "quote.create") == []
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
    assert (event["actor_type"], json.loads(event["after"])) == ("operator", {"id": reference, "terminal_user": terminal.user()})


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


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-5, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_599_999, "59 min"), (3_600_000, "1 h"), (172_800_000, "2 d")],
)
def test_an_age_is_told_in_its_largest_unit(milliseconds: int, words: str) -> None:
    assert age_words(milliseconds) == words


# ---------------------------------------------------------------------------------------------------------------- discard


def test_what_is_discarded_stays_and_its_card_says_so(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    done = command("dead", "discard", reference, "--reason", "the deal is off", "--as", "ops@example.com")
    assert (done.returncode, done.stdout.split()[:2]) == (0, [reference, "crm.create"])
    assert [row["state"] for row in read_ledger(dead, STATES)] == ["discarded", "failed"]
    (event,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'effect.discarded'")
    assert (event["actor"], json.loads(event["after"])) == (
        "ops@example.com",
        {"reason": "the deal is off", "terminal_user": terminal.user()},
    )
    owed = read_ledger(dead, f"SELECT class, state FROM effects WHERE parent_id = {reference} ORDER BY id DESC LIMIT 1")  # noqa: S608 -- a number
    assert owed == [{"class": "slack.card", "state": "pending"}]

    again = command("dead", "discard", reference, "--reason", "twice")
    assert (again.returncode, again.stdout) == (3, "")
    assert again.stderr == f"Only a dead letter can be discarded, and {reference} is none: it is discarded. Nothing was changed.\n"


@pytest.mark.parametrize(
    "arguments", [(), ("--reason", " "), ("--reason", "x", "--as", "quotebot"), ("--reason", "x", "--as", "a\nb")]
)
def test_a_discard_needs_a_reason_and_an_honest_name(command: Run, dead: Path, arguments: tuple[str, ...]) -> None:
    assert command("dead", "discard", ids(dead)[0], *arguments).returncode == 64
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


def test_discard_or_resolve_of_an_unknown_reference_matches_nothing(command: Run, dead: Path) -> None:
    for verb in (("discard", "999"), ("discard", "op999"), ("resolve", "999", "--send-again"), ("resolve", "op999", "--delivered")):
        done = command("dead", *verb, "--reason", "x")
        assert (done.returncode, done.stderr) == (4, f"There is no {verb[1]}.\n")
    assert dead.exists()


# ---------------------------------------------------------------------------------------------------------------- resolve


@pytest.mark.parametrize("choice", [(), ("--delivered", "--send-again"), ("--send-again", "--ref", "17.1")])
def test_resolve_needs_exactly_one_choice(command: Run, dead: Path, choice: tuple[str, ...]) -> None:
    done = command("dead", "resolve", ids(dead)[0], "--reason", "x", *choice)
    assert (done.returncode, done.stdout) == (64, "")
    assert "--delivered" in done.stderr


def test_keyed_crm_effect_cannot_be_resolved_by_a_person(command: Run, dead: Path) -> None:
    reference = ids(dead)[0]
    done = command("dead", "resolve", reference, "--delivered", "--reason", "x", "--json")
    assert done.returncode == 3
    result = json.loads(done.stdout)["result"]
    assert (result["verdict"], f"Use: quotebot replay {reference}" in result["detail"]) == ("refused", True)
    assert {row["state"] for row in read_ledger(dead, STATES)} == {"failed"}


@pytest.fixture
def doubtful(tmp_path: Path) -> Path:
    """Return a ledger in which the first quote's card is uncertain; its dependants wait for it."""
    path = tmp_path / "bot" / "ledger.db"
    asyncio.run(with_a_card_in_doubt(path))
    return path


async def with_a_card_in_doubt(path: Path) -> None:
    async with bench_at(path) as bench:
        executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
        await bench.ledger.reserve(request_for(create_command(), "r1"))
        await executor.step()
        await bench.ledger.reserve(request_for(SubmitQuote(), "r2", quote_id=QUOTE, version=1))
        await executor.step()
        (root,) = await bench.ledger.claim_effects({"slack.post": 1})
        await bench.ledger.settle(root, Fail(Trouble("uncertain", "the channel cannot be read", maybe_sent=True)))


ROOT = "SELECT id, state, external_ref, cycle, maybe_sent FROM effects WHERE class = 'slack.post' ORDER BY id LIMIT 1"
WAITING = "SELECT count(*) AS n FROM effects WHERE after_id IS NOT NULL AND state = 'pending' AND next_attempt_at IS NULL"


@pytest.mark.parametrize("ref", [None, "17.1", "C0SALES", "https://acme.slack.com/archives/C0SALES"])
def test_a_thread_needs_the_timestamp_of_its_first_message(command: Run, doubtful: Path, ref: str | None) -> None:
    (root,) = read_ledger(doubtful, ROOT)
    given = () if ref is None else ("--ref", ref)
    done = command("dead", "resolve", str(root["id"]), "--delivered", "--reason", "it is there", *given)
    assert (done.returncode, done.stdout) == (3, "")
    assert "give --ref with the link of the message (in Slack: More actions, Copy link). Nothing was changed." in done.stderr
    assert read_ledger(doubtful, ROOT) == [root]


@pytest.mark.parametrize(
    "ref", ["1795257060.000100", "https://acme.slack.com/archives/C0SALES/p1795257060000100", "p1795257060000100"]
)
def test_resolving_a_card_with_its_timestamp_continues_the_thread(command: Run, doubtful: Path, ref: str) -> None:
    (root,) = read_ledger(doubtful, ROOT)
    assert read_ledger(doubtful, WAITING)[0]["n"] > 0
    done = command("dead", "resolve", str(root["id"]), "--delivered", "--reason", "it is there", "--ref", ref)
    assert done.returncode == 0
    (now,) = read_ledger(doubtful, ROOT)
    assert (now["state"], now["external_ref"]) == ("delivered", "1795257060.000100")
    assert read_ledger(doubtful, "SELECT thread_ts FROM quotes") == [{"thread_ts": "1795257060.000100"}]
    assert read_ledger(doubtful, WAITING) == [{"n": 0}]


def test_card_sent_again_is_not_checked_for_first(command: Run, doubtful: Path) -> None:
    (root,) = read_ledger(doubtful, ROOT)
    done = command("dead", "resolve", str(root["id"]), "--send-again", "--reason", "the channel is empty")
    assert (done.returncode, "without looking for it first" in done.stdout) == (0, True)
    (now,) = read_ledger(doubtful, ROOT)
    assert (now["state"], now["cycle"], now["maybe_sent"]) == ("pending", 2, 0)
