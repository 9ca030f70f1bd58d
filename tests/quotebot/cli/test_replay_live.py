"""Tests of a replay against a running bot, from the outage to the delivery."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import sys
from typing import TYPE_CHECKING

from adapters.failures import AdapterError, Failure
from ledger.ledger import no_follow_ups
from quotebot.app.bot import Ports
from quotebot.app.installation import dead_letters
from quotebot.cli import replay
from quotebot.sandbox.world import World
from tests.quotebot.cli.conftest import clean_environment
from tests.quotebot.deeds import Round
from tests.quotebot.parts import bench_at
from tests.rig import bot_in

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.quotebot.cli.conftest import Run

SECONDS = 90.0


async def test_a_replay_delivers_and_a_second_one_finds_it_already_there(quotebot: Run, tmp_path: Path) -> None:
    async def beside(*arguments: str) -> tuple[int, str]:
        run = await asyncio.to_thread(quotebot, *arguments)
        return run.returncode, run.stdout

    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.arm("salesforce", "5xx", seconds=60)
        await deal.approved_deal()
        ((letter),) = await deal.rows("SELECT id, effect_key FROM effects WHERE state = 'failed'")
        reference = str(letter["id"])

        status, printed = await beside("replay", reference, "--wait", "--json")  # Salesforce is still down
        assert (status, json.loads(printed)["results"][0]["outcome"]) == (3, "failed again")

        await deal.clear_faults()
        status, printed = await beside("replay", reference, "--wait")
        (quote,) = await deal.crm()
        assert status == 0
        assert printed.split(maxsplit=2) == [reference, "crm.create", f"delivered ({quote['Id']})\n"]

        status, printed = await beside("replay", reference)
        assert status == 0
        assert "already delivered" in printed
        assert quote["Id"] in printed
        assert "last replayed by" in printed
        await deal.settled()
        assert len(await deal.crm()) == 1
        (row,) = await deal.rows(f"SELECT * FROM effects WHERE id = {reference}")  # noqa: S608 -- a number of ours
        assert (row["effect_key"], row["cycle"]) == (letter["effect_key"], 3)
        assert len(json.loads(row["failure_history"])) == 2


async def test_a_wait_ends_at_once_for_a_held_class(quotebot: Run, tmp_path: Path) -> None:
    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.arm("salesforce", "5xx", seconds=60)
        await deal.approved_deal()
        assert (await asyncio.to_thread(quotebot, "pause", "crm", "--reason", "upgrade")).returncode == 0
        done = await asyncio.to_thread(quotebot, "replay", "--class", "crm", "--wait")
        assert (done.returncode, done.stdout.split()[1:]) == (75, ["crm.create", "under", "way"])
        assert "crm is held (upgrade), and so are these. To go on: quotebot resume crm" in done.stderr
        assert "1 of 1 are still under way, and this no longer waits for them" in done.stderr


async def test_a_wait_ends_at_its_limit_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with bench_at(tmp_path / "bot" / "ledger.db") as bench:
        round_ = Round(bench)
        await round_.owe("crm.create")
        round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "No."))
        await round_.step()
        found = dead_letters(bench.ledger)
        queued = await found.replay("1", actor="ops", reason=None, follow=no_follow_ups)
        monkeypatch.setattr(replay, "WAIT_SECONDS", 0.0)
        (result,) = await replay.settled(found, [queued], 0.0, lambda names: replay.held_by(bench.ledger, names))
    assert result.outcome == "under way"
    said = "1 of 1 are still under way, and this no longer waits for them. To see them: quotebot dead list --status replaying\n"
    assert capsys.readouterr().err == said


async def test_on_a_terminal_a_bar_shows_how_many_are_settled_and_stdout_carries_data_only(tmp_path: Path, checkout: Path) -> None:
    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.arm("salesforce", "5xx", seconds=60)
        await deal.approved_deal()
        await deal.clear_faults()
        terminal, screen = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "quotebot", "replay", "--class", "crm.create", "--wait", "--json"),
            cwd=tmp_path,
            env=clean_environment(tmp_path, PYTHONPATH=str(checkout), TERM="xterm"),
            stdout=asyncio.subprocess.PIPE,
            stderr=screen,
        )
        os.close(screen)
        shown = asyncio.create_task(asyncio.to_thread(read_to_end, terminal))
        printed, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        assert [result["outcome"] for result in json.loads(printed)["results"]] == ["redone"]
        bar = await shown
        assert "Settled" in bar
        assert "100%" in bar
        assert "No bot is running" not in bar


def read_to_end(terminal: int) -> str:
    """Return everything that was shown on a terminal until its last writer closed it."""
    shown = b""
    with contextlib.suppress(OSError):  # Linux says EIO at the end
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    return shown.decode()
