"""Tests of the flood benchmark: its measurements are correct, and it judges only valid ones. No test of speed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import aiohttp
import pytest

from bench.acks.crowd import BLANKS, GUEST, MARKS, MESSAGE_CHARACTERS, Crowd
from bench.acks.verdicts import NO_VERDICT
from bench.flood import Measured, judge
from quotebot.slack.gate import approach_of
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def slack() -> AsyncIterator[Crowd]:
    served = Crowd()
    await served.start()
    yield served
    await served.stop()


def table(quiet: float, beside: float, card: float = 1.0) -> dict[str, dict[str, Measured]]:
    return {"commands": {"quiet": Measured([quiet], [[quiet]], [card]), "flood": Measured([beside], [[beside]], [card])}}


@pytest.mark.parametrize(
    ("beside", "card", "busy", "verdicts"),
    [
        (0.004, 4.9, False, ["ok", "ok"]),
        (0.0041, 5.1, False, ["missed", "missed"]),
        (0.0041, 5.1, True, [NO_VERDICT, NO_VERDICT]),
    ],
)
def test_flood_is_judged_beside_the_quiet(beside: float, card: float, busy: bool, verdicts: list[str]) -> None:  # noqa: FBT001 -- the case
    goals = judge(table(0.002, beside, card), [], busy=busy)
    assert [goal["verdict"] for goal in goals] == [*verdicts, "ok", "ok", "ok"]


def test_untrue_or_lost_is_missed_on_a_busy_machine_too() -> None:
    lost = table(0.002, 0.002)
    lost["commands"]["flood"].unacked = lost["commands"]["flood"].late = 1
    assert [goal["verdict"] for goal in judge(lost, ["1 refused and yet recorded"], busy=True)][2:] == ["missed"] * 3


def test_missing_card_leaves_no_figure_and_is_missed() -> None:
    missing = table(0.002, 0.002)
    missing["commands"]["flood"].cards_missing = 1
    assert [goal["verdict"] for goal in judge(missing, [], busy=False)][1:4] == ["not measured", "ok", "missed"]


@pytest.mark.parametrize("text", [BLANKS, MARKS])
@pytest.mark.parametrize(("mention", "entry"), [(False, "direct_message"), (True, "mention")])
async def test_guest_messages_reach_the_entry_points_they_name(slack: Crowd, text: str, mention: bool, entry: str) -> None:  # noqa: FBT001 -- the case
    asked = slack.message(f"{GUEST}1", text, mention=mention)
    envelope = json.loads(asked.frame)
    approach = approach_of(envelope["payload"])
    assert approach is not None
    assert (envelope["envelope_id"], envelope["type"]) == (asked.envelope_id, "events_api")
    assert (approach.user, approach.entry) == (f"{GUEST}1", entry)
    assert 39_900 <= len(envelope["payload"]["event"]["text"]) <= MESSAGE_CHARACTERS


async def test_card_is_noted_by_the_number_of_its_command(slack: Crowd) -> None:
    asked = slack.command("U0REP", "C0DEALS")
    text = json.loads(asked.frame)["payload"]["text"]
    async with aiohttp.ClientSession() as session:
        body = {"channel": "C0DEALS", "text": f"Quote for {text}"}
        answer = await (await session.post(f"{slack.url}/api/chat.postMessage", json=body)).json()
    assert (answer["ok"], answer["channel"], set(slack.cards)) == (True, "C0DEALS", {asked.number})


@pytest.mark.parametrize(("user", "guest"), [(f"{GUEST}1", True), ("U0OTHER001", False)])
async def test_only_guests_are_restricted(slack: Crowd, user: str, guest: bool) -> None:  # noqa: FBT001 -- the case
    async with aiohttp.ClientSession() as session:
        answer = await (await session.post(f"{slack.url}/api/users.info", data={"user": user})).json()
    assert (answer["user"]["id"], answer["user"]["is_restricted"]) == (user, guest)


async def test_each_envelope_has_its_own_acknowledgement(slack: Crowd) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{slack.url}/link/app") as socket:
        await socket.receive()
        await eventually(lambda: slack.connected("app"), "the connection to be known")
        sending = asyncio.create_task(slack.evenly("app", lambda _: slack.command("U0REP", "C0DEALS"), 2, 0.0))
        envelopes = [json.loads((await socket.receive()).data) for _ in range(2)]
        for envelope in reversed(envelopes):
            await socket.send_json({"envelope_id": envelope["envelope_id"], "payload": {"text": envelope["payload"]["text"]}})
        sent = await sending
    assert [shot.text for _, shot in sent] == [envelope["payload"]["text"] for envelope in envelopes]
