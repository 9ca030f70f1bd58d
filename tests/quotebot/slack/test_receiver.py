from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from quotebot.app.bot import run_bot
from quotebot.app.installation import LedgerInUseError
from quotebot.sandbox.world import World
from quotebot.slack.receiver import envelope_id_of
from tests.quotebot.parts import gate_held
from tests.rig import Deal, bot_in, eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RECONNECT_SECONDS = 10.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world", ack_seconds=0.5).serve() as served:
        yield served


async def reconnected(world: World, deal: Deal) -> None:
    """Wait until the old connection is closed and a command is answered over a new one."""
    await eventually(lambda: world.socket.connections == 0, "the connection to be cut", RECONNECT_SECONDS)
    await answered(deal, "help")


async def answered(deal: Deal, text: str) -> None:
    """Type a command until it is answered, as a person would; without a connection it is lost."""

    async def once() -> bool:
        return (await deal.slash(text))["ack"] is not None

    await eventually(once, f"an answer to /quote {text}", RECONNECT_SECONDS)


async def test_after_a_disconnect_it_connects_again_and_works(world: World, deal: Deal) -> None:
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    await answered(deal, "new for Acme: 1 pro")
    await deal.settled()
    assert await deal.cards()


async def test_a_refused_ticket_is_thrown_away_and_a_new_one_asked_for(world: World, deal: Deal) -> None:
    await deal.arm("socket", "refuse_ticket")
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    assert len([link for link in await deal.witness("link") if not link["applied"]]) == 1
    await answered(deal, "new for Acme: 1 pro")
    await deal.settled()
    assert await deal.cards()


async def test_a_disconnect_costs_one_new_connection(world: World, deal: Deal) -> None:
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    await answered(deal, "help")
    assert len(await deal.witness("apps.connections.open")) == 2


async def test_a_first_ticket_refused_at_start_is_survived(world: World, tmp_path: Path) -> None:
    world.weather.arm("socket", "refuse_ticket")
    async with asyncio.timeout(RECONNECT_SECONDS), bot_in(world, tmp_path / "bot") as deal:
        assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]


@pytest.mark.parametrize("kind", ["resend", "retry"])
async def test_after_a_lost_ack_the_redelivery_is_answered_from_the_ledger(deal: Deal, kind: str) -> None:
    await deal.arm("socket", "drop_ack")
    lost = await deal.slash()
    assert (lost["ack"], lost["error"]) == (None, "operation_timeout")
    await deal.settled()
    acks = await deal.redeliver(lost["request_id"], kind, 2)
    assert [ack["ack"]["text"].partition(",")[0] for ack in acks] == ["Created Q-2026-0001 for Acme"] * 2
    await deal.settled()
    assert len(await deal.cards()) == len(await deal.rows("SELECT 1 FROM operations")) == 1


async def test_an_event_it_takes_no_interest_in_is_acknowledged_once(deal: Deal) -> None:
    answer = await deal.post("message", user="U0REP", channel="C0DEALS", text="lunch?")
    assert answer["ack"] == {}
    assert await deal.rows("SELECT 1 FROM operations") == []


MIB = 1024 * 1024
HEAD = '"envelope_id":"E1","type":"slash_commands","accepts_response_payload":true,"retry_attempt":0,"retry_reason":""'


def envelope(payload: dict[str, Any], envelope_id: str = "E1", *, id_last: bool = False) -> str:
    """Return an envelope as Slack sends it, or with its id after the payload."""
    frame = {"envelope_id": envelope_id, "type": "slash_commands", "accepts_response_payload": True, "payload": payload}
    return json.dumps(dict(reversed(frame.items())) if id_last else frame)


async def test_a_frame_over_one_mebibyte_is_acknowledged_audited_and_dropped(world: World, deal: Deal) -> None:
    for n, size in enumerate((MIB, 5 * MIB)):  # over our limit, and over the limit at which aiohttp disconnects
        frame = envelope({"text": "x" * size}, f"E{n}", id_last=bool(n))
        ack = await world.socket.deliver(frame, f"E{n}", "slash_commands")
        assert (ack.payload, ack.error) == ({}, None)
    dropped = await deal.rows("SELECT after FROM audit_events WHERE event_type = 'delivery.dropped' ORDER BY id")
    assert [json.loads(row["after"])["envelope_id"] for row in dropped] == ["E0", "E1"]
    assert all(json.loads(row["after"])["bytes"] > MIB for row in dropped)
    assert await deal.rows("SELECT 1 FROM operations") == []
    assert len(await deal.witness("apps.connections.open")) == 1  # the connection stayed
    assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]


DEEP = {
    "beyond the parser": f'{{"a":{"[" * 45_000}{"]" * 45_000}}}',
    "within the parser": f'{{"a":{"[" * 500}{"]" * 500}}}',
    "a number of 5,000 digits": f'{{"a":{"9" * 5_000}}}',
}


@pytest.mark.parametrize("payload", DEEP)
async def test_a_frame_nested_too_deeply_is_acknowledged_audited_and_dropped(world: World, deal: Deal, payload: str) -> None:
    frame = f'{{"envelope_id":"E7","type":"events_api","accepts_response_payload":false,"payload":{DEEP[payload]}}}'
    ack = await world.socket.deliver(frame, "E7", "events_api")
    assert (ack.payload, ack.error) == ({}, None)
    (dropped,) = await deal.rows("SELECT after FROM audit_events WHERE event_type = 'delivery.dropped'")
    assert json.loads(dropped["after"]) == {"envelope_id": "E7", "bytes": len(frame)}
    assert len(await deal.witness("apps.connections.open")) == 1  # the connection stayed
    assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]


async def test_a_frame_just_under_the_limit_is_read(world: World, deal: Deal) -> None:
    frame = envelope({"type": "event_callback", "event": {"type": "message", "text": "x" * (MIB - 300)}})
    assert len(frame) < MIB
    ack = await world.socket.deliver(frame, "E1", "events_api")
    assert (ack.payload, ack.error) == ({}, None)
    assert await deal.rows("SELECT 1 FROM audit_events WHERE event_type = 'delivery.dropped'") == []


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (envelope({"text": "a" * 9_000}), "E1"),
        (envelope({"text": "a" * 9_000}, id_last=True), "E1"),
        (f'{{{HEAD},"payload":{{"text":"{"a" * 9_000}"}}}}', "E1"),
        (f'{{"payload":{{"text":"{"a" * 9_000}"}},{HEAD}}}', "E1"),
        (f' {{ {HEAD.replace(":", " : ").replace(",", " , ")} , "payload" : {{}} }} ', "E1"),
        (f'{{"type":"events_api","payload":{{"a":"{"a" * 9_000}"}}}}', None),
        (f'{{"payload":{{"envelope_id":"other","text":"{"a" * 9_000}"}}}}', None),
        (f'{{"payload":{{"text":"{"a" * 9_000}","envelope_id":"other"}}}}', None),
        (json.dumps({"payload": {"text": "a" * 9_000 + '","envelope_id":"typed"}'}}), None),
        (json.dumps({"payload": {"text": '","envelope_id":"typed","' + "a" * 9_000}, "envelope_id": "E1"}), "E1"),
        ("x" * 9_000, None),
        ("[" * 9_000, None),
        ("", None),
    ],
)
def test_the_envelope_id_of_a_large_frame_is_its_own_or_none(frame: str, expected: str | None) -> None:
    assert envelope_id_of(frame) == expected


@pytest.mark.parametrize("edge", ['"envelope_id":"a",' * 250, '"a":"b",' * 500, "{" * 4_096, " " * 4_096, '"envelope_id"' * 300])
def test_looking_for_the_envelope_id_takes_no_time_worth_speaking_of(edge: str) -> None:
    started = time.process_time()
    for frame in (edge * 300, "{" + edge * 300, edge * 300 + "}"):
        envelope_id_of(frame)
    assert time.process_time() - started < 0.5


async def test_while_it_closes_the_last_command_is_acknowledged_and_a_new_one_is_not(tmp_path: Path) -> None:
    """The bot must not acknowledge a command that it will not record: Slack redelivers it to the next bot."""
    async with World(tmp_path / "world", ack_seconds=1.0).serve() as world, aiohttp.ClientSession() as session:
        stop = asyncio.Event()
        bot = asyncio.create_task(run_bot(settings_for(world, tmp_path / "bot"), stop))
        await eventually(lambda: world.socket.connections > 0, "the bot to connect")
        deal = Deal(world.url, tmp_path / "bot", session)
        with gate_held(deal.data_dir / "ledger.db"):
            last = asyncio.create_task(deal.slash("new for Last: 1 pro"))
            await eventually(lambda: len(world.socket._waiting) == 1, "the last command to be delivered")
            stop.set()
            too_late = asyncio.create_task(deal.slash("new for Late: 1 pro"))
            await eventually(lambda: len(world.socket._waiting) == 2, "a later one to be delivered")
        acknowledged, late = await last, await too_late
        await asyncio.wait_for(bot, 60.0)
        assert late["ack"] is None
        assert acknowledged["ack"] == {}
        assert len(await deal.rows("SELECT 1 FROM operations")) == 1
        async with bot_in(world, deal.data_dir) as next_bot:
            await next_bot.redeliver(late["request_id"], "retry", 1)
            await next_bot.settled()
            assert len(await next_bot.cards()) == 2


async def test_one_ledger_has_one_bot(world: World, deal: Deal) -> None:
    with pytest.raises(LedgerInUseError, match="Another bot is running") as refused:
        await run_bot(settings_for(world, deal.data_dir), asyncio.Event())
    assert "This one did nothing" in str(refused.value)
    assert (await deal.slash())["ack"] == {}
    await deal.settled()
