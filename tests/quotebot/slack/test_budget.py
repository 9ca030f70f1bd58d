"""Tests of a person's command budget: commands beyond it are refused before they are recorded, and others are unaffected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import NotRecorded
from quotebot.slack import surface
from quotebot.slack.surface import Answer, Budgets, Reserver
from quotebot.views import messages
from tests.quotebot.parts import ManualClock
from tests.quotebot.slack.test_reserve import COMMAND
from tests.rig import FIRST_QUOTE, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.sandbox.world import World
    from tests.quotebot.parts import Bench
    from tests.rig import Deal

PER_MINUTE = 30


@pytest.fixture
def desk(bench: Bench) -> Reserver:
    return Reserver(bench.ledger, team_id="T0HOME", ack_budget_seconds=2.0, commands_per_minute=PER_MINUTE)


async def give(desk: Reserver, number: int, **changes: Any) -> Answer:
    return await desk.receive(replace(COMMAND, source_request_id=f"T0HOME:{number}", **changes), envelope_id=f"E{number}")


async def spend_all(desk: Reserver) -> list[Answer]:
    return [await give(desk, number) for number in range(PER_MINUTE)]


async def test_a_command_beyond_the_budget_is_refused_and_nothing_is_recorded(bench: Bench, desk: Reserver) -> None:
    assert {answer.recorded for answer in await spend_all(desk)} == {True}
    before = bench.row("SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM audit_events) AS n")
    refused = await give(desk, PER_MINUTE)
    assert refused == Answer(recorded=False, text=messages.over_budget(PER_MINUTE, 2), over_budget=True)
    assert bench.row("SELECT count(*) AS n FROM operations")["n"] == PER_MINUTE
    assert bench.row("SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM audit_events) AS n") == before


async def test_the_budget_refills_evenly_over_a_minute(bench: Bench, desk: Reserver) -> None:
    await spend_all(desk)
    bench.clock.advance(1_999)
    assert (await give(desk, 100)).text == messages.over_budget(PER_MINUTE, 1)
    bench.clock.advance(1)
    assert [(await give(desk, number)).recorded for number in (101, 102)] == [True, False]
    bench.clock.advance(60_000)
    assert [(await give(desk, 200 + number)).recorded for number in range(PER_MINUTE + 1)] == [True] * PER_MINUTE + [False]


async def test_a_recorded_command_delivered_again_still_gets_its_answer(bench: Bench, desk: Reserver) -> None:
    await spend_all(desk)
    again = await give(desk, 0)
    assert again.recorded
    assert again.text == messages.OPERATION_PENDING
    await bench.ledger.noted()


async def test_other_people_and_the_system_are_not_affected(desk: Reserver) -> None:
    await spend_all(desk)
    assert (await give(desk, 100, actor="U0VP")).recorded
    assert (await give(desk, 101, actor_type="system")).recorded
    assert not (await give(desk, 102)).recorded


async def test_when_the_ledger_cannot_be_asked_the_reservation_answers(
    desk: Reserver, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unread(_: object) -> None:
        raise NotRecorded("disk")

    await spend_all(desk)
    monkeypatch.setattr(bench.ledger.database, "read", unread)
    assert (await give(desk, 100)).recorded


def test_the_person_silent_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "PEOPLE_MAX", 2)
    kept = Budgets(ManualClock(), 1)
    assert [kept.spend(person) for person in ("U1", "U2", "U1", "U3")] == [0, 0, 60, 0]
    assert [kept.spend(person) for person in ("U1", "U2")] == [60, 0]


# ------------------------------------------------------------------------------------------------------ through the socket


@pytest.fixture
async def busy(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a bot whose rep has one quote and no command left."""
    async with bot_in(world, tmp_path / "busy", commands_per_minute=5) as deal:
        for number in range(5):
            await deal.slash(f"new for Acme {number}: 1 pro")
        await deal.settled()
        yield deal


async def test_in_slack_each_kind_of_gesture_is_told_and_a_colleague_is_served(busy: Deal) -> None:
    typed = await busy.slash("new for Acme 9: 1 pro")
    assert typed["ack"]["text"].startswith("That's more than 5 commands in a minute. Try again in")
    clicked = await busy.click("quote.submit", user="U0REP")
    assert (clicked["ack"], clicked.get("error")) == ({}, None)
    assert (await busy.whispers("U0REP"))[-1].startswith("That's more than 5 commands in a minute.")
    assert "That's more" not in str(await busy.slash(f"status {FIRST_QUOTE}"))
    served = await busy.slash("new for Beta: 1 pro", user="U0VP")
    assert served["ack"] == {}
    await busy.settled()
    assert [row["actor"] for row in await busy.rows("SELECT actor FROM operations ORDER BY id")] == ["U0REP"] * 5 + ["U0VP"]


async def test_a_click_on_home_beyond_the_budget_is_told_in_a_dialog(busy: Deal) -> None:
    for number in range(4):
        await busy.slash(f"new for Beta {number}: 1 pro", user="U0VP")
    await busy.settled()
    await busy.post("home", user="U0VP")
    await busy.settled()
    home = (await busy.get("state"))["homes"]["U0VP"]
    clicked = await busy.post("action", user="U0VP", channel="C0DEALS", view_id=home["id"], action_id="home.digest")
    assert (clicked["ack"], clicked.get("error")) == ({}, None)
    (shown,) = [each["view"] for each in (await busy.get("state"))["views"] if each["user"] == "U0VP"]
    assert "That's more than 5 commands in a minute." in str(shown["blocks"])
    assert await busy.rows("SELECT 1 FROM operations WHERE action_kind = 'digest.set'") == []
