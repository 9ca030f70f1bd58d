"""Tests of `quotebot drill`: the arguments passed to the player, and that the installation is untouched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from faults.harness.rig import eventually
from tests.quotebot.cli.conftest import SECONDS, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run


def test_a_drill_is_played_beside_the_installation(quotebot: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("QUOTEBOT_ACK_BUDGET_SECONDS=nonsense\n")  # would stop any bot that reads it
    done = quotebot("drill", "FI-004", environment={"QUOTEBOT_QUOTE_VALID_DAYS": "nonsense", "TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("FI-004 P2 a storm of unknown verbs ... held (")
    assert {path.name for path in tmp_path.iterdir()} == {".env"}


def test_a_drill_is_told_as_json(quotebot: Run) -> None:
    done = quotebot("drill", "FI-021", "--json")
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["schema_version"]) == (0, 1)
    assert (printed["held"], printed["failed"], printed["waiting"]) == (1, 0, 0)
    assert [(drill["id"], drill["state"]) for drill in printed["drills"]] == [("FI-021", "held")]
    assert "FI-021 P0 the language model answers nonsense ... held (" in done.stderr


def test_the_list_names_every_drill(quotebot: Run) -> None:
    done = quotebot("drill", "list")
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert (names[0], names[1], names[-1], len(names)) == ("Name", "FI-001", "D-7", 30)
    drills = json.loads(quotebot("drill", "list", "--json").stdout)["drills"]
    assert [drill["id"] for drill in drills] == names[1:]


def test_an_unknown_name_runs_nothing(quotebot: Run) -> None:
    done = quotebot("drill", "FI-001", "FI-17")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "There is no drill FI-17. Did you mean FI-017? Nothing was run. See them all: quotebot drill list\n"


def test_no_name_is_answered_with_what_can_be_typed(quotebot: Run) -> None:
    done = quotebot("drill")
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: quotebot drill" in done.stderr


async def test_a_stopped_drill_ends_its_bot_and_leaves_nothing(tmp_path: Path, checkout: Path) -> None:
    def bots() -> list[int]:
        locks = tmp_path.glob("quotebot-drill-*/FI-006/bot/ledger.db.lock")
        return [int(words) for lock in locks if (words := lock.read_text().strip())]

    environment = clean_environment(tmp_path, PYTHONPATH=str(checkout), TMPDIR=str(tmp_path))
    command = [sys.executable, "-m", "quotebot", "drill", "FI-006"]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    await eventually(lambda: process.returncode is not None or bots() != [], "the drill's bot to start", SECONDS)
    (bot,) = bots()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(SECONDS):
        _, said = await process.communicate()
    assert (process.returncode, said.decode().splitlines()[-1]) == (
        130,
        "Stopped. Its bot and its world are ended; nothing of it is kept.",
    )
    assert left_in(tmp_path) == []
    with pytest.raises(ProcessLookupError):
        os.kill(bot, 0)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
