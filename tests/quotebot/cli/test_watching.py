"""Tests of `quotebot ops watch`: its content and its timing."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Any

from quotebot.cli.ops import changes, picture
from tests.quotebot.cli.conftest import SECONDS, clean_environment
from tests.quotebot.parts import bench_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

NOW = 1_700_000_000_000


def operation(state: str = "reserved", effects: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    facts = {"id": "op1", "action_kind": "quote.submit", "aggregate_id": "Q-2026-0001", "actor": "U0REP", "outcome": None}
    return {**facts, "state": state, "attempts": 0, "category": None, "next_attempt_at": NOW, "effects": list(effects), **more}


def effect(state: str = "pending", attempts: int = 0, category: str | None = None) -> dict[str, Any]:
    facts = {"id": 7, "class": "crm.create", "target": "Q-2026-0001", "next_attempt_at": NOW + 3_000}
    return {**facts, "state": state, "attempts": attempts, "category": category}


def seen(*operations: dict[str, Any], gates: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"operations": list(operations), "dead_letters": [], "gates": list(gates), "unfinished": {}}


HELD = {"name": "crm", "state": "held", "cause": "auth", "reason": "invalid_client"}


def test_a_line_is_printed_for_each_row_that_is_new_or_changed_and_for_no_other() -> None:
    began = seen(operation(effects=(effect(),)))
    tried = seen(operation("completed", (effect(attempts=1, category="transient"),), outcome="applied"))

    assert list(changes(None, seen(operation("completed")), NOW)) == []
    assert [line[10:] for line in changes(None, began, NOW)] == [
        "op1      quote.submit on Q-2026-0001 by U0REP: reserved",
        "7          crm.create to Q-2026-0001: pending",
    ]
    assert [line[10:] for line in changes(began, tried, NOW)] == [
        "op1      quote.submit on Q-2026-0001 by U0REP: applied",
        "7          crm.create to Q-2026-0001: pending, 1 failed (transient), next at 2023-11-14 22:13:23 UTC",
    ]
    assert list(changes(tried, tried, NOW)) == []


def test_a_class_that_is_held_is_named_and_so_is_its_release() -> None:
    assert [line[10:] for line in changes(None, seen(gates=(HELD,)), NOW)] == ["crm      is held: invalid_client"]
    assert [line[10:] for line in changes(seen(gates=(HELD,)), seen(), NOW)] == ["crm      flows again"]


async def test_the_picture_holds_commands_their_effects_and_dead_letters_but_no_payload(dead: Path) -> None:
    async with bench_at(dead) as bench:
        found = await bench.ledger.database.read(lambda tx: picture(tx, 20))

    letters = {letter["id"]: letter for letter in found["dead_letters"]}
    owed = {str(each["id"]): each for row in found["operations"] for each in row["effects"]}
    assert [letters[name]["class"] for name in letters] == ["crm.create", "crm.create"]
    assert {owed[name]["state"] for name in letters} == {"failed"}
    assert all(letter["last_error"] for letter in letters.values())
    assert "payload" not in json.dumps(found)
    assert "Acme" not in json.dumps(found)


async def test_a_reader_of_the_stream_sees_a_replay_at_once_and_a_signal_ends_it(dead: Path, command: Run, checkout: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quotebot", "ops", "watch", "--json"),
        env=clean_environment(dead.parent.parent, PYTHONPATH=str(checkout)),
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    assert process.stdout is not None
    first = json.loads(await asyncio.wait_for(process.stdout.readline(), SECONDS))
    letter = first["dead_letters"][0]["id"]
    await asyncio.to_thread(command, "replay", letter)
    second = json.loads(await asyncio.wait_for(process.stdout.readline(), SECONDS))
    process.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(process.wait(), SECONDS) == 0
    assert letter not in {each["id"] for each in second["dead_letters"]}
    assert {each["state"] for row in second["operations"] for each in row["effects"] if str(each["id"]) == letter} == {"pending"}


def test_without_a_ledger_there_is_nothing_to_watch(command: Run) -> None:
    done = command("ops", "watch", "--json")
    assert (done.returncode, done.stdout) == (78, "")
    assert "There is no ledger" in done.stderr
