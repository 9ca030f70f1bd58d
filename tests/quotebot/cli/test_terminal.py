"""Tests of identity at the terminal: the uid names the person, `--as` is for operators and never decides, the audit names both."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest

from ledger.clock import SystemClock
from quotebot.app.bot import Ports
from quotebot.app.installation import open_ledger
from quotebot.cli import terminal
from quotebot.commands.payloads import DecideApproval
from quotebot.sandbox.world import World
from quotebot.settings import load_settings
from tests.quotebot.parts import request_for
from tests.rig import FIRST_QUOTE, bot_in, read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

APPROVERS = json.dumps({"sales_manager": ["U0MANAGER"], "vp_sales": ["U0VP"]})
DECISIONS = "SELECT aggregate_id, event_type FROM audit_events WHERE event_type GLOB 'approval.*' ORDER BY id"


def done(run: Run, *arguments: str, status: int = 0, **variables: str) -> dict[str, Any]:
    """Run `quotebot quote ... --json`; return the parsed output."""
    given = {"environment": variables} if variables else {}
    ended = run("quote", *arguments, "--json", **given)
    assert ended.returncode == status, ended.stderr
    printed: dict[str, Any] = json.loads(ended.stdout)
    return printed


@pytest.fixture
def submitted(command: Run, dead: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of a quote of U0REP that waits for the sales manager, made by the system user `rep`."""
    assert dead.exists()
    monkeypatch.setenv("QUOTEBOT_APPROVERS", APPROVERS)
    monkeypatch.setenv("QUOTEBOT_CLI_USERS", json.dumps({"rep": "U0REP", "boss": "U0MANAGER", "deputy": "U0MANAGER"}))
    with monkeypatch.context() as patch:
        patch.setattr(terminal, "user", lambda: "rep")
        quote: str = done(command, "new", "for Acme: 150 pro; discount 15%", "--channel", "C0DEALS")["quote_id"]
        done(command, "submit", quote)
    return quote


def decisions(dead: Path, quote: str) -> list[str]:
    return [row["event_type"] for row in read_ledger(dead, DECISIONS) if row["aggregate_id"] == quote]


def newest_event(dead: Path, event_type: str) -> dict[str, Any]:
    rows = read_ledger(dead, "SELECT event_type, actor, after FROM audit_events ORDER BY id DESC")
    return next({**row, "after": json.loads(row["after"])} for row in rows if row["event_type"] == event_type)


# -------------------------------------------------------------------------------------------------------------- who it is


def test_logname_and_user_do_not_change_who_decides(quotebot: Run, submitted: str, dead: Path) -> None:
    users = {"QUOTEBOT_CLI_USERS": json.dumps({"boss": "U0MANAGER", terminal.user(): "U0REP"}), "QUOTEBOT_APPROVERS": APPROVERS}
    forged = {"LOGNAME": "boss", "USER": "boss", "LNAME": "boss", "USERNAME": "boss", "SUDO_USER": "boss"}
    refused = quotebot("quote", "approve", submitted, environment={**users, **forged})
    assert (refused.returncode, refused.stdout) == (3, "")
    assert decisions(dead, submitted) == ["approval.requested", "approval.refused"]


async def test_a_running_bot_goes_by_its_own_settings_about_who_decides(world: World, tmp_path: Path, quotebot: Run) -> None:
    mapped = {terminal.user(): "U0REP"}
    async with bot_in(world, tmp_path / "bot", cli_users=mapped) as deal:
        await deal.submitted_deal()
        for person, status in (("U0MANAGER", 3), ("U0REP", 3)):
            given = {**world.environment(), "QUOTEBOT_CLI_USERS": json.dumps({terminal.user(): person})}
            ended = await asyncio.to_thread(quotebot, "quote", "approve", FIRST_QUOTE, environment=given)
            assert ended.returncode == status
            assert ("nothing was decided" in ended.stderr) == (person == "U0MANAGER")
            delegated = await asyncio.to_thread(quotebot, "quote", "delegate", "U0VP until 2099-01-01", environment=given)
            assert delegated.returncode == status
        assert await deal.rows("SELECT state, decided_by FROM approvals") == [{"state": "pending", "decided_by": None}]
        assert await deal.rows("SELECT 1 FROM delegations") == []
        found = "SELECT after FROM audit_events WHERE event_type = 'access.refused' AND aggregate_id GLOB 'Q-*'"
        (refused,) = await deal.rows(found)
        assert json.loads(refused["after"])["terminal_user"] == terminal.user()


def test_an_id_without_a_name_is_still_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 2_000_000_123)
    assert terminal.user() == "uid 2000000123"


def test_unmapped_terminal_user_is_refused_and_asked_to_be_mapped(command: Run, submitted: str) -> None:
    refused = command("quote", "approve", submitted)
    assert (refused.returncode, refused.stdout) == (64, "")
    assert f"The system user {terminal.user()} is nobody in Slack yet" in refused.stderr


# ------------------------------------------------------------------------------------------------------------------- --as


@pytest.mark.parametrize("verb", [("approve",), ("reject", "--reason", "too deep")])
def test_as_never_decides(quotebot: Run, submitted: str, dead: Path, verb: tuple[str, ...]) -> None:
    refused = quotebot("quote", verb[0], submitted, *verb[1:], "--as", "U0MANAGER", environment={"QUOTEBOT_APPROVERS": APPROVERS})
    assert (refused.returncode, refused.stdout) == (64, "")
    assert "Decisions are made under your own name" in refused.stderr
    assert decisions(dead, submitted) == ["approval.requested"]


def test_as_never_delegates(command: Run, submitted: str, dead: Path) -> None:
    assert submitted
    refused = command("quote", "delegate", "U0VP", "--as", "U0MANAGER")
    assert (refused.returncode, refused.stdout) == (64, "")
    assert read_ledger(dead, "SELECT * FROM operations WHERE action_kind = 'approval.delegate'") == []


FOR_OPERATORS = {
    "quote": ("quote", "cancel", "{quote}", "--as", "U0REP"),
    "delegations": ("quote", "delegate", "--as", "U0MANAGER"),
    "pause": ("pause", "crm", "--reason", "x", "--as", "boss"),
    "resume": ("resume", "crm", "--as", "boss"),
    "replay": ("replay", "--class", "crm.create", "--yes", "--as", "boss"),
    "discard": ("dead", "discard", "{dead}", "--reason", "x", "--as", "boss"),
    "resolve": ("dead", "resolve", "{dead}", "--delivered", "--reason", "x", "--as", "boss"),
    "cancel": ("ops", "cancel", "op1", "--reason", "x", "--as", "boss"),
    "sync": ("crm", "sync", "--as", "U0OPS"),
    "activate": ("catalog", "activate", "1", "--as", "boss"),
}


@pytest.mark.parametrize("case", FOR_OPERATORS)
def test_as_is_for_operators_named_in_the_settings(
    command: Run, submitted: str, dead: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("QUOTEBOT_CLI_OPERATORS", '["somebody-else"]')
    monkeypatch.setenv("LOGNAME", "somebody-else")
    before = read_ledger(dead, "SELECT max(id) AS id FROM audit_events")
    letter = read_ledger(dead, "SELECT id FROM effects WHERE state = 'failed'")[0]["id"]
    refused = command(*(part.format(quote=submitted, dead=letter) for part in FOR_OPERATORS[case]))
    assert (refused.returncode, refused.stdout) == (64, "")
    assert f"--as is for operators at the terminal, and the system user {terminal.user()} is none of them" in refused.stderr
    assert read_ledger(dead, "SELECT max(id) AS id FROM audit_events") == before


# -------------------------------------------------------------------------------------------------------------- the audit


def test_the_proof_of_a_quote_names_who_decided_at_which_terminal(
    command: Run, submitted: str, dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "user", lambda: "boss")
    assert done(command, "approve", submitted)["code"] == "approved"
    assert command("audit", "export", submitted).returncode == 0
    with ZipFile(tmp_path / f"{submitted}-proof.zip") as bundle:
        events = json.loads(bundle.read("chain.json"))
    by = {event["event_type"]: (event["actor"], json.loads(event["after"] or "{}").get("terminal_user")) for event in events}
    assert by["quote.created"] == by["quote.submitted"] == by["approval.requested"] == ("U0REP", "rep")
    assert by["approval.approved"] == ("U0MANAGER", "boss")
    assert newest_event(dead, "audit.exported")["after"]["terminal_user"] == "boss"


OPERATING = {
    "class.paused": ("pause", "crm", "--reason", "x", "--as", "boss"),
    "effect.replayed": ("replay", "--class", "crm.create", "--yes", "--as", "boss"),
    "effect.discarded": ("dead", "discard", "{dead}", "--reason", "x"),
    "dead_letter.payload_shown": ("dead", "show", "{dead}", "--show-payload"),
    "audit.key_rotated": ("audit", "rotate-key"),
    "audit.exported": ("audit", "export", "Q-2026-0001"),
}


@pytest.mark.parametrize("event_type", OPERATING)
def test_what_an_operator_does_names_the_terminal_user(command: Run, dead: Path, event_type: str) -> None:
    letter, quote = (
        read_ledger(dead, f"SELECT {column} FROM effects WHERE state = 'failed'")[0][column]  # noqa: S608 -- the test's own
        for column in ("id", "aggregate_id")
    )
    named = (part.format(dead=letter).replace("Q-2026-0001", quote) for part in OPERATING[event_type])
    ended = command(*named)
    assert ended.returncode == 0, ended.stderr
    event = newest_event(dead, event_type)
    assert event["after"]["terminal_user"] == terminal.user()
    assert event["actor"] == ("boss" if "boss" in OPERATING[event_type] else terminal.user())


def test_a_resume_and_a_restore_name_the_terminal_user(command: Run, dead: Path) -> None:
    assert command("pause", "crm", "--reason", "x").returncode == command("resume", "crm").returncode == 0
    assert newest_event(dead, "class.half_open")["after"]["terminal_user"] == terminal.user()
    made = json.loads(command("backup", "--json").stdout)["file"]
    assert command("restore", str(dead.parent / "backups" / made), "--yes").returncode == 0
    assert newest_event(dead, "ledger.restored")["after"]["terminal_user"] == terminal.user()


# ------------------------------------------------------------------------------------------------------- one person, once


def test_operator_who_acted_for_others_may_not_decide_at_a_terminal(
    command: Run, submitted: str, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "user", lambda: "boss")
    monkeypatch.setenv("QUOTEBOT_CLI_OPERATORS", '["boss"]')
    done(command, "revise", submitted, "discount 16%", "--as", "U0OTHER")
    done(command, "submit", submitted, "--as", "U0REP")
    for user in ("boss", "deputy"):  # two system users of one person
        monkeypatch.setattr(terminal, "user", lambda user=user: user)
        refused = done(command, "approve", submitted, status=3)
        assert refused["code"] == "acted_for_others"
        assert "somebody else has to decide" in refused["text"]
    assert newest_event(dead, "approval.refused")["after"]["code"] == "acted_for_others"


def test_a_terminal_user_mapped_to_somebody_else_meanwhile_may_not_decide(
    command: Run, submitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "user", lambda: "rep")
    monkeypatch.setenv("QUOTEBOT_CLI_USERS", '{"rep": "U0MANAGER"}')
    assert done(command, "approve", submitted, status=3)["code"] == "acted_for_others"


async def test_operator_who_acted_for_others_may_not_decide_in_slack(quotebot: Run, tmp_path: Path) -> None:
    async def beside(*arguments: str) -> dict[str, Any]:
        return await asyncio.to_thread(done, quotebot, *arguments)

    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low), cli_users={terminal.user(): "U0MANAGER"}) as deal,
    ):
        await deal.slash()
        await deal.settled()
        quote = (await deal.rows("SELECT quote_id FROM quotes"))[0]["quote_id"]
        await beside("submit", quote, "--as", "U0REP")
        await deal.settled()
        await deal.click("approval.approve", user="U0MANAGER")
        await deal.settled()
        assert (await deal.rows("SELECT state FROM quotes"))[0]["state"] == "pending_approval"
        assert "acted_for_others" in json.dumps(await deal.rows("SELECT response FROM operations ORDER BY id DESC LIMIT 1"))


# ------------------------------------------------------------------------------------------------- alone, without the bot


async def reserve_approval_in_slack(quote: str, approval_id: str, team_id: str) -> int:
    """Record a click on Approve, as the bot did right before it stopped; return its operation."""
    async with open_ledger(load_settings()) as ledger:
        clicked = request_for(
            DecideApproval(approval_id, "approve", None),
            "click",
            quote_id=quote,
            version=1,
            actor="U0MANAGER",
            team_id=team_id,
            received_at=SystemClock().now_ms(),
        )
        return (await ledger.reserve(clicked)).operation.id


def test_the_command_line_alone_leaves_approvals_from_slack_to_the_bot(
    command: Run, submitted: str, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (approval,) = read_ledger(dead, f"SELECT * FROM approvals WHERE quote_id = '{submitted}'")  # noqa: S608 -- the test's own
    team = read_ledger(dead, "SELECT team_id FROM quotes")[0]["team_id"]
    clicked = asyncio.run(reserve_approval_in_slack(submitted, approval["approval_id"], team))
    monkeypatch.setattr(terminal, "user", lambda: "rep")
    other = done(command, "new", "for Zed: 5 pro", "--channel", "C0DEALS")["quote_id"]
    assert done(command, "cancel", other)["code"] == "cancelled"
    waiting = done(command, "cancel", submitted, status=75)  # behind the click, whose turn comes first
    states = {row["id"]: row["state"] for row in read_ledger(dead, "SELECT id, state FROM operations")}
    assert (states[clicked], states[int(waiting["operation"].removeprefix("op"))]) == ("reserved", "reserved")
    assert done(command, "show", submitted)["quote"]["state"] == "pending_approval"
