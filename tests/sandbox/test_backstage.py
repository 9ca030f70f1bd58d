"""Tests of the Backstage page: the bot's process, its ledger's feed, faults in words, the last delivery."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, cast, get_args

import pytest

from quotebot.sandbox.backstage import BotProcess, Console, ConsoleError, LedgerFeed, Staff
from quotebot.sandbox.cluster import Cluster, ClusterError, DatabaseServer
from quotebot.sandbox.faults import KINDS, METHODS, SOCKET_EFFECTS, ArmedFaults, Effect, Target
from quotebot.sandbox.slack import web_api
from quotebot.sandbox.slack.directory import APP_TOKEN
from tests.rig import eventually
from tests.sandbox.conftest import DEADLINE_SECONDS, wired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from quotebot.sandbox.world import World
    from tests.sandbox.conftest import Hand

PYTHON = (sys.executable, "-I", "-S", "-c")
SLEEPER = (*PYTHON, "import signal; signal.pause()")
# Prints its arguments and its process id as JSON, and keeps running.
WATCHER = (
    *PYTHON,
    "import json, os, signal, sys; print(json.dumps({'asked': sys.argv[1:], 'pid': os.getpid()}), flush=True); signal.pause()",
)
REPLAYER = (*PYTHON, "import sys; print('did', *sys.argv[1:]); print('queued', file=sys.stderr); sys.exit(3)")


async def until(seen: Callable[[], bool]) -> None:
    await eventually(seen, "it to happen", DEADLINE_SECONDS)


async def drain(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines]


class Kept:
    """A process manager with an idle child, and its reports."""

    def __init__(self) -> None:
        self.changes = 0
        self.complaints: list[str] = []
        self.connected = False
        self.keeper = BotProcess(
            SLEEPER,
            {},
            is_connected=lambda: self.connected,
            changed=self._changed,
            complain=self.complaints.append,
            pause_seconds=0.0,
        )

    def _changed(self) -> None:
        self.changes += 1


@asynccontextmanager
async def kept() -> AsyncIterator[Kept]:
    made, stop = Kept(), asyncio.Event()
    await made.keeper.start()
    keeping = asyncio.create_task(made.keeper.keep(stop))
    try:
        yield made
    finally:
        stop.set()
        await keeping
        await made.keeper.stop()


def gone(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_bot_that_was_killed_on_purpose_stays_dead_until_it_is_started() -> None:
    async with kept() as made:
        keeper = made.keeper
        assert keeper.standing.state == "starting"
        made.connected = True
        first = keeper.standing
        assert (first.state, first.starts) == ("running", 1)

        before = made.changes
        await keeper.kill()
        assert (keeper.standing.state, keeper.standing.exit_status) == ("dead", -signal.SIGKILL)
        assert gone(first.pid)
        assert made.changes > before

        await keeper.start()
        await keeper.start()
        assert (keeper.standing.state, keeper.standing.starts) == ("running", 2)
        assert made.complaints == []


async def test_a_bot_that_dies_by_itself_is_started_again() -> None:
    async with kept() as made:
        first = made.keeper.standing.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: made.keeper.standing.starts == 2)
        assert made.complaints == [f"The bot (process {first}) ended with status -9; starting it again."]
        assert made.keeper.standing.pid != first


async def test_a_restart_ends_the_old_process_with_a_signal_it_can_handle() -> None:
    async with kept() as made:
        first = made.keeper.standing.pid
        await made.keeper.restart()
        assert gone(first)
        assert (made.keeper.standing.state, made.keeper.standing.starts) == ("starting", 2)
        assert made.complaints == []


async def test_one_watcher_serves_every_viewer_and_none_runs_when_nobody_looks() -> None:
    feed = LedgerFeed(Console(WATCHER, {}), linger_seconds=0.0)
    assert not feed.is_watching
    async with feed.viewer():
        await until(lambda: feed.latest is not None)
        assert feed.latest is not None
        pid = feed.latest["pid"]
        async with feed.viewer():
            assert feed.latest["pid"] == pid
        assert not gone(pid)
    await until(lambda: gone(pid))
    assert not feed.is_watching


async def test_a_command_that_fails_says_so_in_its_own_words() -> None:
    console = Console((*PYTHON, "import sys; sys.exit('There is no ledger.')"), {})
    with pytest.raises(ConsoleError, match="There is no ledger"):
        await drain(console.lines("ops", "watch"))
    feed = LedgerFeed(console)
    async with feed.viewer():
        await until(lambda: feed.latest == {"error": "There is no ledger."})
    await feed.close()


def staffed(world: World, command: tuple[str, ...]) -> Kept:
    made, console = Kept(), Console(command, {})
    world.backstage.staff = Staff({"main": made.keeper}, console, LedgerFeed(console))
    return made


async def test_replay_and_resume_run_the_operators_own_commands(hand: Hand, world: World) -> None:
    staffed(world, REPLAYER)
    assert await hand.post("replay", reference="118", user="rep") == {
        "status": 3,
        "said": "did replay 118 --as rep (sandbox page)\nqueued",
    }
    assert (await hand.post("resume", gate="crm", user="rep"))["said"].startswith("did resume crm --as rep")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("replay", {"reference": "--all", "user": "rep"}),
        ("replay", {"reference": "118 119", "user": "rep"}),
        ("resume", {"gate": "--help", "user": "rep"}),
        ("bot", {"do": "pat"}),
    ],
)
async def test_unknown_actions_and_option_like_values_are_refused(
    hand: Hand, world: World, name: str, body: dict[str, Any]
) -> None:
    staffed(world, REPLAYER)
    await hand.post(name, expect=400, **body)


@pytest.mark.parametrize(("name", "body"), [("replay", {"reference": "1", "user": "rep"}), ("bot", {"do": "kill"})])
async def test_a_world_without_a_bot_of_its_own_has_nothing_to_kill_or_replay(hand: Hand, name: str, body: dict[str, Any]) -> None:
    assert "runs no bot of its own" in (await hand.post(name, expect=409, **body))["error"]
    assert (await hand.get("state"))["process"] is None


async def test_the_state_tells_how_the_bot_is_doing_and_a_kill_shows_at_once(hand: Hand, world: World) -> None:
    made = staffed(world, WATCHER)
    await made.keeper.start()
    assert (await hand.get("state"))["process"]["state"] == "starting"
    assert (await hand.post("bot", do="kill"))["state"] == "dead"
    assert (await hand.get("state"))["process"]["exit_status"] == -9
    assert (await hand.post("bot", do="restart"))["starts"] == 2
    await made.keeper.stop()


async def test_each_of_several_bots_is_shown_killed_and_started_by_its_name(hand: Hand, world: World) -> None:
    several, console = {name: Kept() for name in "ab"}, Console(WATCHER, {})
    world.backstage.staff = Staff({name: each.keeper for name, each in several.items()}, console, LedgerFeed(console))
    several["b"].connected = True
    for each in several.values():
        await each.keeper.start()
    state = await hand.get("state")
    assert [(each["name"], each["state"]) for each in state["replicas"]] == [("a", "starting"), ("b", "running")]
    assert state["process"]["pid"] == several["b"].keeper.standing.pid, "one that runs, if any does"
    assert (await hand.post("bot", do="kill", replica="b"))["state"] == "dead"
    assert several["a"].keeper.standing.state == "starting"
    assert (await hand.post("bot", do="kill", replica="c", expect=404))["error"] == "no replica 'c' here; there are a, b"
    for each in several.values():
        await each.keeper.stop()


async def test_a_bot_is_connected_by_the_app_level_token_it_came_with(hand: Hand, world: World) -> None:
    headers = {"Authorization": f"Bearer {APP_TOKEN}-b"}
    async with hand.session.post(f"{world.url}/api/apps.connections.open", headers=headers) as response:
        address = (await response.json(content_type=None))["url"]
    async with hand.session.ws_connect(address):
        await until(lambda: world.socket.is_connected(f"{APP_TOKEN}-b"))
        assert not world.socket.is_connected(APP_TOKEN)
    await until(lambda: not world.socket.is_connected(f"{APP_TOKEN}-b"))


async def news(hand: Hand, count: int) -> list[tuple[str, Any]]:
    """Return the first events of the backstage stream."""
    found: list[tuple[str, Any]] = []
    async with hand.session.get(f"{hand.world.url}/_sandbox/backstage") as stream, asyncio.timeout(DEADLINE_SECONDS):
        while len(found) < count:
            event = (await stream.content.readuntil(b"\n\n")).decode()
            if event.startswith("event: "):
                name, data = event.removeprefix("event: ").split("\ndata: ")
                found.append((name, json.loads(data)))
    return found


async def test_stream_sends_the_ledger_and_the_faults_while_it_is_read(hand: Hand, world: World) -> None:
    staffed(world, WATCHER)
    async with wired(world, hand) as wire:
        answering = asyncio.create_task(hand.slash("help"))
        await wire.ack(await wire.envelope())
        await answering
    fault = await hand.post("faults", target="salesforce", effect="5xx", times=2)

    told = dict(await news(hand, 2))

    assert told["ledger"]["asked"] == ["ops", "watch", "--json", "--limit", "30"]
    assert told["weather"]["last"]["about"] == "/quote help"
    assert [(each["id"], each["active"], each["hits"]) for each in told["weather"]["faults"]] == [(fault["id"], True, 0)]


class FakeCluster:
    """A server that starts unless `trouble` is set."""

    engine = "PostgreSQL 15"

    def __init__(self) -> None:
        self.pid: int | None = None
        self.starts = 0
        self.trouble: str | None = None

    def start(self) -> None:
        if self.trouble is not None:
            raise ClusterError(self.trouble)
        self.starts += 1
        self.pid = 7

    def kill(self) -> None:
        self.pid = None


async def test_database_of_the_sandbox_is_shown_killed_and_started(hand: Hand, world: World) -> None:
    cluster = FakeCluster()
    world.backstage.database = DatabaseServer(cast("Cluster", cluster), "postgresql://", world.slack.changes.bump)
    assert (await hand.post("database", do="start"))["state"] == "running"
    await hand.post("database", do="start")
    assert cluster.starts == 1
    assert dict(await news(hand, 3))["database"] == {"engine": "PostgreSQL 15", "state": "running", "pid": 7}
    assert (await hand.post("database", do="kill"))["state"] == "dead"
    cluster.trouble = "The server did not start; server.log says why."
    assert (await hand.post("database", expect=503, do="start"))["error"] == cluster.trouble
    await hand.post("database", expect=400, do="restart")


async def test_only_a_database_server_of_the_sandbox_can_be_killed(hand: Hand, world: World) -> None:
    assert "database" not in dict(await news(hand, 2))
    assert "no database server of its own" in (await hand.post("database", expect=409, do="kill"))["error"]
    world.backstage.database = DatabaseServer(None, "postgresql://db.example/quotebot", world.slack.changes.bump)
    assert dict(await news(hand, 3))["database"]["state"] == "elsewhere"
    await hand.post("database", expect=409, do="kill")


async def test_one_fault_is_cleared_and_the_others_stay(hand: Hand) -> None:
    first, second = [await hand.post("faults", target="slack", effect=effect) for effect in ("5xx", "slow")]
    async with hand.session.delete(f"{hand.world.url}/_sandbox/faults/{first['id']}") as response:
        assert [each["id"] for each in (await response.json())["faults"]] == [second["id"]]
    async with hand.session.delete(f"{hand.world.url}/_sandbox/faults/{first['id']}") as response:
        assert response.status == 404


def test_a_fault_tells_what_is_left_of_it() -> None:
    now = 100.0
    weather = ArmedFaults(monotonic=lambda: now)
    weather.arm("slack", "5xx", times=1)
    weather.arm("llm", "429", seconds=30)
    weather.take("slack", "chat.postMessage")
    now = 112.0

    assert [(each["active"], each["seconds_left"]) for each in weather.standing()] == [(False, None), (True, 18)]
    now = 131.0
    assert [each["active"] for each in weather.standing()] == [False, False]


def test_every_method_a_fault_may_be_narrowed_to_is_one_that_slack_serves() -> None:
    assert set(METHODS) == set(get_args(Target))
    assert set(METHODS["slack"]) <= {*web_api.METHODS, "upload", "response_url"}


def test_every_fault_that_can_be_armed_has_its_words() -> None:
    told = {(kind.target, kind.effect) for kind in KINDS}
    possible = {
        (target, effect)
        for target, effect in product(get_args(Target), get_args(Effect))
        if (target == "socket") == (effect in SOCKET_EFFECTS)
    }
    assert told == possible
    assert all(kind.about.endswith(".") for kind in KINDS)


async def test_the_catalogue_of_faults_can_be_armed_as_it_stands(hand: Hand) -> None:
    for kind in (await hand.get("faults/known"))["kinds"]:
        await hand.post("faults", target=kind["target"], effect=kind["effect"], seconds=1)
    assert len(await hand.get("faults")) == len(KINDS)
