"""Tests of the acknowledgement benchmark: its measurements are correct, and it judges only valid ones. No test of speed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from bench.acks.children import Bot
from bench.acks.slack import PATIENCE_SECONDS, Shot, Slack
from bench.acks.verdicts import NO_VERDICT, OURS, figures, judge, together
from bench.lifecycle import machine
from bench.lifecycle.machine import stolen_seconds
from quotebot.app.installation import open_ledger
from quotebot.settings import Settings
from quotebot.views import messages
from tests.quotebot.parts import create_command, request_for
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REFUSED = messages.NOTHING_RECORDED


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    served = Slack()
    await served.start()
    yield served
    await served.stop()


async def test_a_shot_ends_with_its_own_acknowledgement_in_whatever_order_they_come(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{slack.url}/link/app") as socket:
        assert json.loads((await socket.receive()).data)["type"] == "hello"
        await eventually(lambda: slack.connected("app"), "the connection to be known")
        volley = asyncio.create_task(slack.volley("app", ["new for {n}: 1 pro"] * 3, None))
        envelopes = [json.loads((await socket.receive()).data) for _ in range(3)]
        for envelope in reversed(envelopes):
            payload = {"text": f"did {envelope['payload']['text']}"}
            await socket.send_json({"envelope_id": envelope["envelope_id"], "payload": payload})
        shots = await volley
    assert [shot.text for shot in shots] == [f"did {envelope['payload']['text']}" for envelope in envelopes]
    assert len({shot.request_id for shot in shots}) == 3
    assert all(shot.seconds is not None and shot.seconds >= 0 for shot in shots)


async def test_a_promise_that_is_not_in_the_ledger_and_a_refusal_that_is_are_both_found(slack: Slack, tmp_path: Path) -> None:
    bot = Bot(slack, tmp_path)
    async with open_ledger(Settings(_env_file=None, data_dir=bot.ledger.parent)) as ledger:
        for name in ("kept", "denied"):
            await ledger.reserve(request_for(create_command(), name))
    said = {"kept": "On it.", "denied": REFUSED, "lost": "On it.", "refused": REFUSED}
    shots = [Shot(f"T0HOME:{name}", 0.0, 0.1, text) for name, text in said.items()]
    assert bot.problems(shots, REFUSED) == ["1 acknowledged and not recorded", "1 refused and yet recorded"]
    assert bot.problems([shots[0], shots[3]], REFUSED) == []


def test_what_the_host_keeps_of_the_processors_is_read_and_added_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(machine, "_STAT", stat)
    assert stolen_seconds() == 0.0
    stat.write_text("cpu  802849 77262 134213 430001 7412 0 3806 70200 0 0\ncpu0 1 2 3\n")
    assert stolen_seconds() == 70_200 / os.sysconf("SC_CLK_TCK")
    rows = [figures([Shot("a", 0.0, 0.002, "On it.")], REFUSED, 0.01, [], stolen) for stolen in (0.5, 0.25)]
    assert together(rows)["stolen_s"] == 0.75


def test_missing_late_and_refused_acks_are_counted_and_untrue_ones_void_figures() -> None:
    shots = [Shot("a", 0.0, 0.002, "On it."), Shot("b", 0.0, PATIENCE_SECONDS + 0.1, REFUSED), Shot("c", 0.0)]
    row = figures(shots, REFUSED, 0.03, [])
    assert (row["sent"], row["unacked"], row["late"], row["refused"], row["cpu_ms"]) == (3, 1, 1, 1, 10.0)
    assert "p50_ms" not in figures(shots, REFUSED, 0.03, ["a lie"])
    assert together([row, row])["sent"] == 6
    assert "p50_ms" not in together([row, figures(shots, REFUSED, 0.03, ["a lie"])])


def cell(p50_ms: float, **more: Any) -> dict[str, Any]:
    return {"p50_ms": p50_ms, "p99_ms": p50_ms, "max_ms": p50_ms, "unacked": 0, "refused": 0, "late": 0, "problems": [], **more}


@pytest.mark.parametrize(
    ("ours", "busy", "verdicts"),
    [
        (cell(2.0), False, ["ok", "ok", "ok"]),
        (cell(6.0), False, ["missed", "missed", "missed"]),
        (cell(6.0), True, [NO_VERDICT, NO_VERDICT, NO_VERDICT]),
        ({**cell(2.0), "p50_ms": 4.5}, False, ["missed", "missed", "ok"]),
    ],
)
def test_a_rate_is_judged_beside_both_kinds_of_bolt(ours: dict[str, Any], busy: bool, verdicts: list[str]) -> None:  # noqa: FBT001 -- the case
    table = {"200/s": {"bolt": cell(11.0), "bolt-pbr": cell(1.0), OURS: ours}}
    assert [goal["verdict"] for goal in judge(table, 0.2, busy=busy)][:3] == verdicts


@pytest.mark.parametrize("wrong", [{"problems": ["1 acknowledged and not recorded"]}, {"late": 1}])
def test_what_is_untrue_or_late_is_missed_on_a_busy_machine_too(wrong: dict[str, Any]) -> None:
    goals = judge({"flood": {OURS: cell(2.0, **wrong)}}, 0.2, busy=True)
    assert [goal["verdict"] for goal in goals].count("missed") == 1


def test_the_bill_of_an_acknowledgement_adds_up_and_every_part_is_in_it() -> None:
    root = Path(__file__).parents[1]
    command = [sys.executable, "bench/ack_cost.py", "40"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    bill = re.findall(r"^  (\S.*?)  +([0-9]+(?: +[0-9]+)*)$", done.stdout, re.MULTILINE)
    *parts, (name, whole) = [(name, [int(cell) for cell in cells.split()]) for name, cells in bill]
    assert (name, len(parts)) == ("all", 6)
    assert all(cell > 0 for _, cells in parts for cell in cells), parts
    sums = [sum(column) for column in zip(*(cells for _, cells in parts), strict=True)]
    assert all(abs(found - said) <= len(parts) for found, said in zip(sums, whole, strict=True)), "but for rounding"
    assert "Bolt, from memory" in done.stdout
