"""`quotebot crm` against the sandbox's org, over its real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli import root
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.weather import Weather
from quotebot.sandbox.witness import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

OWN = """
[quote.fields]
Quotebot_Digest__c = "content_hash"
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[SalesforceService]:
    service = SalesforceService(Witness(), Weather(), tmp_path / "org")
    await service.start()
    yield service
    await service.stop()


async def asked(*arguments: str) -> int:
    """Run a command beside the served org."""
    return await asyncio.to_thread(root.run, ["crm", "check", *arguments])


def given(service: SalesforceService, **changes: str) -> list[str]:
    environment = {name.lower(): value for name, value in service.environment().items()}
    return [f"--set={name}={value}" for name, value in {**environment, **changes}.items()]


async def test_an_org_that_agrees_ends_with_0(service: SalesforceService, command: Run, capsys: pytest.CaptureFixture[str]) -> None:
    del command
    assert await asked(*given(service), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "agrees": True, "findings": []}


async def test_what_is_missing_is_named_with_why_and_how_to_mend_it(
    service: SalesforceService, command: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del command
    from importlib.resources import files  # noqa: PLC0415 -- one test's own

    text = files("adapters").joinpath("salesforce.toml").read_text("utf-8")
    own = tmp_path / "own.toml"
    own.write_text(text.replace("Quotebot_Hash__c", "Quotebot_Digest__c"), "utf-8")
    assert await asked(*given(service, salesforce_mapping=str(own)), "--json") == 78
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["place"] == "Quote.Quotebot_Digest__c"
    assert all(found[part] for part in ("what", "why", "fix"))
    assert await asked(*given(service, salesforce_mapping=str(own))) == 78
    printed = capsys.readouterr().out
    assert "Quote.Quotebot_Digest__c: there is no such field" in printed
    assert "1 to mend" in printed


async def test_a_refused_login_and_an_org_that_is_away_have_their_own_statuses(
    service: SalesforceService, command: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    del command
    assert await asked(*given(service, salesforce_client_secret="wrong")) == 78
    assert await asked(*given(service, salesforce_instance_url="https://127.0.0.1:1")) == 69
    printed: Any = capsys.readouterr()
    assert "refused to log in" in printed.err
    assert "no connection" in printed.err
    assert printed.out == ""


def test_without_a_salesforce_there_is_nothing_to_check(command: Run) -> None:
    done = command("crm", "check")
    assert (done.returncode, done.stdout) == (78, "")
    assert "docs/salesforce.md" in done.stderr
