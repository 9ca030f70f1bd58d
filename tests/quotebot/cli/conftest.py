"""Fixtures: commands as people run them, and a ledger with dead letters."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from ledger.clock import SystemClock
from quotebot.app.bot import Ports
from quotebot.app.installation import open_ledger
from quotebot.cli import root, terminal
from quotebot.sandbox.world import World
from quotebot.settings import Settings
from tests import forked
from tests.quotebot.parts import copy_data
from tests.rig import bot_in

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR")  # no other variable of the test run may configure the bot

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def clean_environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment with only the variables that a command needs, and `variables`. Its user may use `--as`."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    ours = {"QUOTEBOT_DATA_DIR": str(folder / "bot"), "QUOTEBOT_CLI_OPERATORS": json.dumps([terminal.user()])}
    return {**kept, "HOME": str(folder), **ours, **variables}


def begun_ledger(folder: Path) -> Path:
    """Make a data folder with a ledger on which no bot has started yet; return the ledger's path."""

    async def made() -> None:
        async with open_ledger(Settings(data_dir=folder), SystemClock()):
            pass

    folder.mkdir()
    asyncio.run(made())
    return folder / "ledger.db"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs one command in an empty folder, inside this process: faster than `python -m quotebot`."""
    for name in [name for name in os.environ if name.startswith(("QUOTEBOT_", "SLACK_", "SALESFORCE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("QUOTEBOT_DATA_DIR", str(tmp_path / "bot"))
    monkeypatch.setenv("QUOTEBOT_CLI_OPERATORS", json.dumps([terminal.user()]))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        status = root.run(arguments)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, printed.out, printed.err)

    return run


@pytest.fixture
def quotebot(tmp_path: Path, checkout: Path) -> Run:
    """Return a function that runs `quotebot` as its own process in an empty folder."""

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        everything = clean_environment(tmp_path, PYTHONPATH=str(checkout), **(environment or {}))
        return forked.run(arguments, cwd=tmp_path, environment=everything, seconds=SECONDS)

    return run


async def with_two_dead_letters(folder: Path) -> None:
    """Run two deals while Salesforce is down until both records have failed. Every delay is the lowest possible."""
    async with (
        World(folder / "world").serve() as world,
        bot_in(world, folder / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.arm("salesforce", "5xx", seconds=60)
        await deal.approved_deal()
        await deal.approved_deal()


@pytest.fixture(scope="session")
def dead_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of a stopped bot with two dead letters of crm.create. Copy it before changing it."""
    folder = tmp_path_factory.mktemp("dead")
    asyncio.run(with_two_dead_letters(folder))
    return folder / "bot"


@pytest.fixture
def dead(tmp_path: Path, dead_ledger: Path) -> Path:
    """Put a copy of the dead letters where `quotebot` looks for the ledger; return that file."""
    copy_data(dead_ledger, tmp_path / "bot")
    return tmp_path / "bot" / "ledger.db"
