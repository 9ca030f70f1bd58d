"""Tests of `quotebot crm` against the sandbox's org, over its real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from quotebot.cli import root, terminal
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

SHIPPED: Final = files("adapters.salesforce").joinpath("salesforce.toml").read_text("utf-8")
SECRET: Final = "SALESFORCE_CLIENT_SECRET"
OWN = """
[quote.fields]
Quotebot_Digest__c = "content_hash"
"""


@pytest.fixture
async def service(tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SalesforceService]:
    del command
    service = SalesforceService(Witness(), ArmedFaults(), tmp_path / "org")
    await service.start()
    monkeypatch.setenv(SECRET, service.environment()[SECRET])  # the command line takes no secret
    yield service
    await service.stop()


async def asked(*arguments: str) -> int:
    """Run a command while the org is served."""
    return await asyncio.to_thread(root.run, ["crm", "check", *arguments])


def given(service: SalesforceService, **changes: str) -> list[str]:
    environment = {name.lower(): value for name, value in service.environment().items() if name != SECRET}
    return [f"--set={name}={value}" for name, value in {**environment, **changes}.items()]


async def test_an_org_that_agrees_ends_with_0(service: SalesforceService, command: Run, capsys: pytest.CaptureFixture[str]) -> None:
    del command
    assert await asked(*given(service), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "agrees": True, "findings": []}


async def test_a_segment_field_that_is_not_there_or_not_read_is_named(
    service: SalesforceService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, text = tmp_path / "own.toml", SHIPPED.replace("# facts = { segment", "facts = { segment")
    for field, more, place, what in (
        ("Type", {}, "Account.Type", "it says the segment, and nobody reads it"),
        ("Class__c", {"crm_mirror": '["accounts"]'}, "Account.Class__c", "there is no such field, or our login may not see it"),
    ):
        own.write_text(text.replace('"Type"', f'"{field}"'), "utf-8")
        assert await asked(*given(service, salesforce_mapping=str(own), **more), "--json") == 78
        assert [(each["place"], each["what"]) for each in json.loads(capsys.readouterr().out)["findings"]] == [(place, what)]
    own.write_text(text, "utf-8")
    assert await asked(*given(service, salesforce_mapping=str(own), crm_mirror='["accounts"]')) == 0


async def test_what_is_missing_is_named_with_why_and_how_to_mend_it(
    service: SalesforceService, command: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del command
    own = tmp_path / "own.toml"
    own.write_text(SHIPPED.replace("Quotebot_Hash__c", "Quotebot_Digest__c"), "utf-8")
    assert await asked(*given(service, salesforce_mapping=str(own)), "--json") == 78
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["place"] == "Quote.Quotebot_Digest__c"
    assert all(found[part] for part in ("what", "why", "fix"))
    assert await asked(*given(service, salesforce_mapping=str(own))) == 78
    printed = capsys.readouterr().out
    assert "Quote.Quotebot_Digest__c: there is no such field" in printed
    assert "1 to mend" in printed


async def test_a_refused_login_and_an_org_that_is_away_have_their_own_statuses(
    service: SalesforceService, command: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del command
    with monkeypatch.context() as wrong:
        wrong.setenv(SECRET, "wrong")
        assert await asked(*given(service)) == 78
    assert await asked(*given(service, salesforce_instance_url="https://127.0.0.1:1")) == 69
    printed: Any = capsys.readouterr()
    assert "refused to log in" in printed.err
    assert "no connection" in printed.err
    assert printed.out == ""


def with_a_difference(ledger: Path) -> None:
    """Put one difference about the first quote into the reconcile queue."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(
            "INSERT INTO crm_conflicts (quote_id, version, record_id, field, ours, theirs, found_at) "
            "SELECT quote_id, 1, '0Q0', 'Quote.Status', 'Presented', 'In Review', 1 FROM quotes ORDER BY quote_id LIMIT 1"
        )


def test_the_reconcile_queue_is_listed_and_settled_once(dead: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_OPERATORS", '["U0OPS"]')
    assert (command("crm", "reconcile", "list").returncode, command("crm", "reconcile", "list").stdout) == (0, "")
    with_a_difference(dead)
    (listed,) = json.loads(command("crm", "reconcile", "list", "--json").stdout)["conflicts"]
    assert (listed["id"], listed["state"], listed["difference"]["theirs"]) == (1, "open", "In Review")
    assert "In Review" in command("crm", "reconcile", "list").stdout
    settle = ("crm", "reconcile", "apply", "1", "--take", "theirs", "--reason", "the owner is right", "--as", "U0OPS")
    done = command(*settle, "--request-id", "r1")
    assert (done.returncode, "stays" in done.stdout) == (0, True)
    assert command(*settle, "--request-id", "r1").returncode == 0  # the same request again
    late = command(*settle, "--request-id", "r2")
    assert (late.returncode, "was settled by @U0OPS" in late.stderr) == (3, True)
    assert command("crm", "reconcile", "list").stdout == ""
    assert json.loads(command("crm", "reconcile", "list", "--all", "--json").stdout)["conflicts"][0]["state"] == "theirs"


def test_a_person_who_is_no_operator_settles_nothing_at_the_terminal(
    dead: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUOTEBOT_OPERATORS", '["U0OPS"]')
    monkeypatch.setenv("QUOTEBOT_CLI_USERS", json.dumps({terminal.user(): "U0REP"}))
    with_a_difference(dead)
    refused = command("crm", "reconcile", "apply", "1", "--take", "ours", "--reason", "mine")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (3, "Only Quotebot operators can do that.")
    assert json.loads(command("crm", "reconcile", "list", "--json").stdout)["conflicts"][0]["state"] == "open"


def test_a_decision_about_nothing_or_by_nobody_is_refused(dead: Path, command: Run) -> None:
    del dead
    base = ("crm", "reconcile", "apply", "7", "--take", "ours", "--reason", "x")
    assert command(*base, "--as", "U0OPS").returncode == 4
    assert command(*base).returncode == 64


def test_the_mapping_in_force_is_printed(command: Run) -> None:
    fields = json.loads(command("crm", "fields", "--json").stdout)["fields"]
    assert {"object": "Quote", "field": "Quotebot_Key__c", "holds": "our key", "written": "once, with the record"} in fields
    assert "Quotebot_Net__c" in command("crm", "fields").stdout


def test_without_a_salesforce_there_is_nothing_to_check(command: Run) -> None:
    done = command("crm", "check")
    assert (done.returncode, done.stdout) == (78, "")
    assert "docs/salesforce.md" in done.stderr
