"""Tests of `quotebot ops`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import recovery
from ledger.records import Trouble
from quotebot.cli import tables
from quotebot.commands.payloads import AnnounceDeadLetter, DecideApproval, SubmitQuote
from quotebot.execution.executor import Executor
from tests.quotebot.parts import MATRIX, RULES, bench_at, create_command, request_for, tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run


FAR_AWAY_MS = 4_102_444_800_000


def listed(command: Run, *arguments: str) -> list[dict[str, Any]]:
    done = command("ops", "list", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)["operations"]
    return found


@pytest.fixture
def reserved(dead: Path) -> str:
    """Reserve a command without executing it; return its reference."""
    return asyncio.run(reserve(dead))


async def reserve(ledger: Path) -> str:
    async with bench_at(ledger) as bench:
        bench.clock.advance(-365 * tables.UNITS_MS["d"])  # so that it is due on any date of the test run
        made = await bench.ledger.reserve(request_for(SubmitQuote(), "waiting", quote_id="Q-2026-0001", version=None))
        await recovery.give_back(bench.ledger)  # the bot stops: none is running now
        return f"op{made.operation.id}"


def test_list_shows_the_unfinished_first(command: Run, reserved: str) -> None:
    found = listed(command)
    assert (found[0]["id"], found[0]["state"]) == (reserved, "reserved")
    assert {row["state"] for row in found[1:]} == {"completed"}
    assert "payload" not in found[0]


def test_list_filters(command: Run, reserved: str) -> None:
    assert [row["id"] for row in listed(command, "--state", "reserved")] == [reserved]
    assert {row["aggregate_id"] for row in listed(command, "--quote", "q-2026-0002")} <= {"Q-2026-0002", "new"}
    assert {row["action_kind"] for row in listed(command, "--kind", "quote.create")} == {"quote.create"}
    assert listed(command, "--actor", "U0NOBODY") == []
    assert len(listed(command, "--limit", "2")) == 2
    assert listed(command, "--since", "30d")


def shown_effects(command: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command("ops", "list", "--json", *arguments).stdout)["effects"]
    return found


@pytest.fixture
def unfinished(command: Run, dead: Path) -> dict[str, int]:
    """Leave one dead letter uncertain and the other one pending, with its class paused; return their ids."""
    first, second = (row["id"] for row in read_ledger(dead, "SELECT id FROM effects WHERE state = 'failed' ORDER BY id"))
    assert command("pause", "crm.create", "--reason", "org migration").returncode == 0
    assert command("replay", str(second)).returncode == 0
    tampered(
        dead,
        "UPDATE effects SET state = 'uncertain', uncertain_since = 1, next_attempt_at = ?, finished_at = NULL WHERE id = ?",
        *(FAR_AWAY_MS, first),
    )
    return {"uncertain": first, "paused": second}


def test_list_shows_effects_that_wait_are_blocked_or_uncertain(command: Run, unfinished: dict[str, int]) -> None:
    found = {row["id"]: row for row in shown_effects(command)}
    uncertain, paused = found[unfinished["uncertain"]], found[unfinished["paused"]]
    assert (uncertain["class"], uncertain["state"], uncertain["next_attempt_at"]) == ("crm.create", "uncertain", FAR_AWAY_MS)
    assert uncertain["correlation_id"].startswith("c-")
    assert (paused["waiting"]["cause"], paused["waiting"]["remedy"]) == ("held", "quotebot resume crm.create")
    printed = command("ops", "list").stdout
    assert "Class crm.create is paused by" in printed
    assert uncertain["correlation_id"] in printed


def test_list_filters_effects(command: Run, unfinished: dict[str, int], reserved: str) -> None:
    assert [row["id"] for row in shown_effects(command, "--state", "uncertain")] == [unfinished["uncertain"]]
    assert listed(command, "--state", "uncertain") == []
    assert shown_effects(command, "--state", "reserved") == []
    assert {row["class"] for row in shown_effects(command, "--class", "crm.create")} == {"crm.create"}
    assert listed(command, "--class", "crm.create") == []
    assert {row["quote"] for row in shown_effects(command, "--quote", "q-2026-0002")} == {"Q-2026-0002"}
    assert shown_effects(command, "--actor", "U0NOBODY") == []
    assert shown_effects(command, "--kind", "quote.delegate") == []
    assert len(shown_effects(command, "--limit", "1")) == 1
    assert [row["id"] for row in listed(command, "--state", "reserved")] == [reserved]
    assert command("ops", "list", "--class", "crm.creat").returncode == 64


def test_a_command_has_a_readable_label_in_list_show_trace_and_dead_letters(command: Run, dead: Path, reserved: str) -> None:
    label = "quote:U0REP:Q-2026-0001:submit:v1"
    (row,) = listed(command, "--state", "reserved")
    assert row["label"] == label
    for words in (("ops", "list"), ("ops", "show", reserved), ("trace", reserved)):
        assert label in command(*words).stdout, words
    assert json.loads(command("ops", "show", reserved, "--json").stdout)["operation"]["label"] == label
    assert json.loads(command("trace", reserved, "--json").stdout)["actions"][0]["operation"]["label"] == label
    letters = json.loads(command("dead", "list", "--json").stdout)["dead_letters"]
    assert {letter["label"].partition(":")[0] for letter in letters} == {"approval"}
    assert letters[0]["label"] in command("dead", "show", letters[0]["id"]).stdout
    assert letters[0]["label"] in command("dead", "list").stdout
    assert dead.exists()


def test_list_shows_people_a_table_and_says_when_there_is_more(command: Run, reserved: str) -> None:
    done = command("ops", "list", "--limit", "1")
    assert (done.returncode, reserved in done.stdout) == (0, True)
    assert "There are more than these 1" in done.stderr


def test_a_time_nobody_can_read_is_a_usage_error(command: Run, dead: Path) -> None:
    done = command("ops", "list", "--since", "yesterday")
    assert (done.returncode, done.stdout) == (64, "")
    assert dead.exists()


def test_show_tells_what_a_command_waits_for(command: Run, reserved: str) -> None:
    done = command("ops", "show", reserved)
    assert done.returncode == 0
    assert "no bot is running" in done.stdout
    assert "To do: quotebot run" in done.stderr
    printed = json.loads(command("ops", "show", reserved, "--json").stdout)
    assert (printed["operation"]["state"], printed["waiting"]["cause"]) == ("reserved", "no_bot")


def test_show_and_cancel_of_what_is_not_there(command: Run, dead: Path) -> None:
    for arguments in (("show", "op999"), ("cancel", "op999", "--reason", "x"), ("cancel", "99999", "--reason", "x")):
        done = command("ops", *arguments)
        assert (done.returncode, done.stdout) == (4, "")
    assert dead.exists()


def test_a_cancelled_command_is_closed_audited_and_its_person_told(command: Run, dead: Path, reserved: str) -> None:
    done = command("ops", "cancel", reserved, "--reason", "sent by mistake", "--as", "ops@example.com")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Canceled" in done.stdout
    (row,) = read_ledger(dead, f"SELECT * FROM operations WHERE id = {reserved.removeprefix('op')}")  # noqa: S608 -- our own id
    assert (row["state"], json.loads(row["response"])["code"]) == ("discarded", "cancelled")
    (event,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'operation.cancelled'")
    assert (event["actor"], json.loads(event["after"])["reason"]) == ("ops@example.com", "sent by mistake")
    (answer, _card) = read_ledger(dead, f"SELECT * FROM effects WHERE operation_id = {row['id']} ORDER BY id")  # noqa: S608 -- as above
    assert (answer["class"], answer["state"]) == ("slack.reply", "pending")
    assert "sent by mistake" in answer["payload"]


def test_a_second_cancel_says_that_it_was_cancelled(command: Run, reserved: str) -> None:
    command("ops", "cancel", reserved, "--reason", "sent by mistake")
    done = command("ops", "cancel", reserved, "--reason", "again")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Nothing was changed" in done.stderr


def test_what_is_done_is_not_cancelled(command: Run, dead: Path) -> None:
    done = command("ops", "cancel", "op1", "--reason", "too late", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]["verdict"]) == (3, "refused")
    assert read_ledger(dead, "SELECT 1 FROM audit_events WHERE event_type = 'operation.cancelled'") == []


def test_an_effect_that_waits_is_cancelled(command: Run, dead: Path, reserved: str) -> None:
    command("ops", "cancel", reserved, "--reason", "sent by mistake")
    (effect, *_) = read_ledger(dead, "SELECT id FROM effects WHERE state = 'pending' ORDER BY id DESC")
    done = command("ops", "cancel", str(effect["id"]), "--reason", "not wanted")
    assert (done.returncode, done.stderr) == (0, "")
    (event,) = read_ledger(dead, "SELECT effect_id FROM audit_events WHERE event_type = 'effect.cancelled'")
    assert event["effect_id"] == effect["id"]


@pytest.fixture
def given_up(dead: Path) -> str:
    """Leave a dead creation of a quote for Acme; return its reference."""
    return asyncio.run(give_up(dead, create_command(), "new"))


async def give_up(ledger: Path, payload: Any, quote_id: str) -> str:
    async with bench_at(ledger) as bench:
        bench.clock.advance(-365 * tables.UNITS_MS["d"])
        version = 0 if quote_id == "new" else None
        made = await bench.ledger.reserve(request_for(payload, f"dead {payload.kind}", quote_id=quote_id, version=version))
        claimed = {each.id: each for each in await bench.ledger.claim_operations(10)}
        await bench.ledger.fail_operation(claimed[made.operation.id], Trouble("internal", "A bug of ours."), {"code": "failed"}, ())
        await recovery.give_back(bench.ledger)
        return f"op{made.operation.id}"


def test_an_edited_copy_replaces_a_dead_command_once(command: Run, dead: Path, given_up: str) -> None:
    words = ("ops", "resubmit", given_up, "--set", "account=Bolt Ltd", "--set", "lines.0.quantity=5", "--as", "ops@example.com")
    done = command(*words, "--request-id", "fix-1", "--json")
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["outcome"], printed["repeated"]) == (0, "applied", False), done.stderr
    number = given_up.removeprefix("op")
    (original,) = read_ledger(dead, f"SELECT * FROM operations WHERE id = {number}")  # noqa: S608 -- our own id
    (copy,) = read_ledger(dead, f"SELECT * FROM operations WHERE replaces_id = {number}")  # noqa: S608 -- as above
    assert (original["state"], copy["state"], copy["actor"]) == ("discarded", "completed", original["actor"])
    assert json.loads(copy["payload"]) == {
        **json.loads(original["payload"]),
        "account": "Bolt Ltd",
        "lines": [{**json.loads(original["payload"])["lines"][0], "quantity": 5}, *json.loads(original["payload"])["lines"][1:]],
    }
    (quote,) = read_ledger(dead, "SELECT * FROM quotes WHERE account = 'Bolt Ltd'")
    assert (quote["quote_id"], quote["requester"]) == (printed["quote_id"], original["actor"])
    (resubmitted,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'operation.resubmitted'")
    assert (resubmitted["actor"], resubmitted["operation_key"]) == ("ops@example.com", copy["operation_key"])
    assert json.loads(resubmitted["after"])["replaces"] == original["operation_key"]
    (discarded,) = read_ledger(dead, "SELECT * FROM audit_events WHERE event_type = 'operation.discarded'")
    assert (discarded["actor"], discarded["operation_key"]) == ("ops@example.com", original["operation_key"])
    assert f"replaced by op{copy['id']}" in json.loads(discarded["after"])["reason"]
    assert command("audit", "verify").returncode == 0

    again = command(*words, "--request-id", "fix-1", "--json")
    assert (again.returncode, json.loads(again.stdout)["repeated"]) == (0, True)
    other = command(*words[:5], "--request-id", "fix-2")
    assert (other.returncode, other.stdout) == (65, "")
    assert f"{given_up} was replaced by op{copy['id']}" in other.stderr
    assert len(read_ledger(dead, "SELECT 1 FROM quotes WHERE account = 'Bolt Ltd'")) == 1


@pytest.mark.parametrize("words", [("replay",), ("dead", "discard", "--reason", "x"), ("ops", "resubmit", "--set", "account=Bolt")])
def test_an_action_on_a_dead_command_redraws_its_card(command: Run, dead: Path, given_up: str, words: tuple[str, ...]) -> None:
    asyncio.run(announce(dead, given_up))
    assert command(*words, given_up).returncode == 0
    drawn = [
        row for row in read_ledger(dead, "SELECT * FROM effects WHERE class = 'slack.card'") if row["target"].endswith(given_up)
    ]
    assert [row["state"] for row in drawn] == ["pending"], words


async def announce(ledger: Path, reference: str) -> None:
    """Give a dead letter its card in the operators' channel; its message is not posted yet."""
    async with bench_at(ledger) as bench:
        bench.clock.advance(-365 * tables.UNITS_MS["d"])
        payload = AnnounceDeadLetter(reference, "C0OPS")
        await bench.ledger.reserve(request_for(payload, "card", quote_id=f"letter:{reference}", version=None, actor_type="system"))
        await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
        await recovery.give_back(bench.ledger)


def test_a_whole_payload_is_read_from_a_file(command: Run, dead: Path, given_up: str, tmp_path: Path) -> None:
    (stored,) = read_ledger(dead, f"SELECT payload FROM operations WHERE id = {given_up.removeprefix('op')}")  # noqa: S608 -- our own id
    file = tmp_path / "payload.json"
    file.write_text(json.dumps({**json.loads(stored["payload"]), "account": "Crane AG"}))
    done = command("ops", "resubmit", given_up, "--payload", str(file), "--reason", "wrong customer")
    assert (done.returncode, "Q-" in done.stdout) == (0, True), done.stderr
    assert len(read_ledger(dead, "SELECT 1 FROM quotes WHERE account = 'Crane AG'")) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Say what to change"),
        (("--set", "account"), "--set takes FIELD=VALUE"),
        (("--set", "v=1"), "--set takes FIELD=VALUE"),
        (("--set", "customer=Bolt"), "quote.create has no field customer"),
        (("--set", "lines.9.quantity=5"), "There is no field lines.9.quantity"),
        (("--set", "lines.0.quantity=many"), "That is no payload of quote.create"),
        (("--set", "account=Acme"), "That changes nothing. A replay runs it again as it is"),
        (("--payload", "nowhere.json"), "nowhere.json cannot be read"),
    ],
)
def test_an_impossible_edit_is_refused(command: Run, dead: Path, given_up: str, arguments: tuple[str, ...], words: str) -> None:
    done = command("ops", "resubmit", given_up, *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert words in done.stderr
    assert read_ledger(dead, "SELECT 1 FROM operations WHERE replaces_id IS NOT NULL") == []


def test_only_a_dead_command_is_edited_and_never_a_decision(
    command: Run, dead: Path, given_up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("ops", "resubmit", "op1", "--set", "account=Bolt")
    assert (done.returncode, "Only a dead command" in done.stderr) == (3, True)
    assert command("ops", "resubmit", "op999", "--set", "account=Bolt").returncode == 4
    decision = asyncio.run(give_up(dead, DecideApproval("A-2026-0001-v1-1", "approve"), "Q-2026-0001"))
    done = command("ops", "resubmit", decision, "--set", "decision=reject")
    assert (done.returncode, "which nobody else may edit" in done.stderr) == (64, True)
    monkeypatch.setenv("QUOTEBOT_CLI_OPERATORS", "[]")
    done = command("ops", "resubmit", given_up, "--set", "account=Bolt")
    assert (done.returncode, "QUOTEBOT_CLI_OPERATORS names them" in done.stderr) == (64, True)


def test_a_cancel_without_words_is_a_usage_error(command: Run, dead: Path) -> None:
    done = command("ops", "cancel", "op1", "--reason", " ")
    assert (done.returncode, done.stdout) == (64, "")
    assert "--reason needs words" in done.stderr
    assert dead.exists()
