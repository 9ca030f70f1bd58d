"""Tests of an interrupted replay: the same command continues it after a kill, and a person's decision resolves a lost answer."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import aiohttp

from faults.checks import checker
from faults.harness.rig import Deal, bot_in, eventually, read_ledger
from ledger import recovery
from ledger.ledger import Ledger
from ledger.records import EffectIntent, Fail, Outcome, Request, Trouble
from ledger.sqlite.locks import WriteGate
from quotebot.app.installation import open_ledger
from quotebot.cli import terminal
from quotebot.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.records import Effect
    from quotebot.sandbox.world import World

ROWS = 1_000
ENOUGH = 200
CLASS = "llm.summarize"
LOOK_SECONDS = 0.002
CYCLES = f"SELECT id, cycle, state, effect_key, replayed_by FROM effects WHERE class = '{CLASS}' ORDER BY id"  # noqa: S608 -- our class


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment that a command needs, without the settings of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUOTEBOT_", "SLACK_", "SALESFORCE_"))}
    return {**kept, "QUOTEBOT_DATA_DIR": str(folder), "QUOTEBOT_CLI_OPERATORS": json.dumps([terminal.user()]), **more}


async def quotebot(settings: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line as an operator would; returns exit status, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "quotebot",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=settings,
    )
    out, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), said.decode()


async def with_dead_letters(folder: Path, rows: int) -> None:
    """Make a ledger in which one command enqueued `rows` effects, each in a lane of its own, and all were given up."""
    async with open_ledger(Settings(_env_file=None, data_dir=folder)) as opened:
        now = opened.clock.now_ms()
        epoch = await recovery.begin_epoch(opened.database, now, role="bot", build="faults")
        ledger = Ledger(opened.database, opened.clock, opened.audit, epoch=epoch)
        asked: dict[str, Any] = {
            "source": "cli",
            "source_request_id": "1",
            "action_kind": "summarize",
            "aggregate_id": "Q-2026-0001",
        }
        who: dict[str, Any] = {"actor": "rep", "actor_type": "user", "team_id": "T", "fingerprint": "f", "payload": {}}
        await ledger.reserve(Request(**asked, **who, aggregate_version=1, received_at=now))
        operation = await ledger.claim_operation()
        assert operation is not None
        owed = tuple(EffectIntent(CLASS, "pure", f"{number}", "Q-2026-0001", {}) for number in range(rows))
        await ledger.execute(operation, lambda _: Outcome("applied", {"code": "ok"}, owed))
        claimed = await ledger.claim_effects({CLASS: rows})
        assert len(claimed) == rows
        await asyncio.gather(*(_given_up(ledger, effect) for effect in claimed))


async def _given_up(ledger: Ledger, effect: Effect) -> None:
    await ledger.settle(effect, Fail(Trouble("transient", "no answer")))


def killed_in_the_middle(folder: Path) -> int:
    """SIGKILL a replay of everything while it waits for the write gate; return how many rows it had replayed.

    The gate admits writers in turn: while it is held here, the replay waits between two of its transactions.
    """
    gate = WriteGate(folder / "ledger.db", "test")
    command = [sys.executable, "-m", "quotebot", "replay", "--class", CLASS, "--yes", "--as", "first"]
    with subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        try:
            while True:
                with gate:
                    replayed = sum(bool(row["cycle"] == 2) for row in read_ledger(folder / "ledger.db", CYCLES))
                    if replayed >= ENOUGH:
                        process.kill()
                        process.wait()
                        return replayed
                try:
                    status = process.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError(f"the replay ended with status {status} after {replayed} rows, before it could be killed")
        finally:
            process.kill()
            gate.close()


async def test_killed_bulk_replay_is_continued_by_the_same_command_without_repeats(tmp_path: Path) -> None:
    folder = tmp_path / "bot"
    await with_dead_letters(folder, ROWS)
    keys = [row["effect_key"] for row in read_ledger(folder / "ledger.db", CYCLES)]

    replayed = await asyncio.to_thread(killed_in_the_middle, folder)
    assert ENOUGH <= replayed < ROWS

    status, out, _ = await quotebot(environment(folder), "replay", "--class", CLASS, "--yes", "--as", "second", "--json")
    outcomes = [result["outcome"] for result in json.loads(out)["results"]]
    rows = read_ledger(folder / "ledger.db", CYCLES)
    assert (status, outcomes) == (0, ["queued"] * (ROWS - replayed)), "exactly the rest"
    assert {(row["cycle"], row["state"]) for row in rows} == {(2, "pending")}, "every row has one cycle more, none has two"
    assert [row["effect_key"] for row in rows] == keys
    assert sum(row["replayed_by"] == "first" for row in rows) == replayed
    audited = read_ledger(folder / "ledger.db", "SELECT effect_id FROM audit_events WHERE event_type = 'effect.replayed'")
    assert sorted(row["effect_id"] for row in audited) == [row["id"] for row in rows]

    status, _, said = await quotebot(environment(folder), "replay", "--class", CLASS, "--yes")
    assert (status, said) == (4, "Nothing matched; nothing was replayed.\n")


async def test_dry_run_reports_an_uncertain_card_and_its_deal_continues_once_resolved(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", settle_delay_seconds=600.0) as deal:
        await deal.arm("slack", "reset_after", method="chat.postMessage", times=1)
        await deal.arm("slack", "5xx", method="conversations.history", seconds=600)
        await deal.slash()

        async def doubtful() -> bool:
            return bool(await deal.rows("SELECT 1 FROM effects WHERE state = 'uncertain' AND class = 'slack.post'"))

        await eventually(doubtful, "the card's answer to be lost")
    settings = environment(tmp_path / "bot", **world.environment())
    (root,) = read_ledger(deal.data_dir / "ledger.db", "SELECT id FROM effects WHERE state = 'uncertain'")
    reference = str(root["id"])
    plan = ("replay", "--status", "uncertain", "--dry-run", "--json")

    status, out, _ = await quotebot(settings, *plan)
    (row,) = json.loads(out)["plan"]
    assert (status, row["id"], row["expected"]) == (0, reference, "cannot know")  # Slack does not answer

    async with aiohttp.ClientSession() as session:
        outside = Deal(world.url, deal.data_dir, session)
        await outside.clear_faults()
        (card,) = await outside.cards()
    status, out, _ = await quotebot(settings, *plan)
    (row,) = json.loads(out)["plan"]
    assert (status, row["expected"], row["detail"]) == (0, "already there", card["ts"])

    resolved = ("dead", "resolve", reference, "--delivered", "--reason", "I see it in the channel")
    status, _, said = await quotebot(settings, *resolved)
    assert status == 3
    assert "give --ref with the link of the message" in said
    link = f"https://acme.slack.com/archives/{card['channel']}/p{card['ts'].replace('.', '')}"
    assert (await quotebot(settings, *resolved, "--ref", link))[0] == 0

    async with bot_in(world, tmp_path / "bot") as deal:
        await deal.settled()
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()
        await deal.click("approval.approve", user="U0MANAGER")
        await deal.settled()
        await checker.golden_deal(deal)
