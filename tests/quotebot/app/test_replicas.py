"""Tests of several bots on one database, which are its replicas: they share the work, and each is named."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from aiohttp import ClientSession

from quotebot import __version__
from quotebot.app.bot import run_bot
from quotebot.app.postgres_storage import SESSIONS_OF_REPLICA
from quotebot.cli import operate
from quotebot.cli.doctor.checks import Site, State, examine
from quotebot.cli.doctor.table import CHECKS
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings
from tests.quotebot.app.database_deal import DatabaseDeal
from tests.rig import bot_in, eventually, settings_for

if TYPE_CHECKING:
    from pathlib import Path


async def listed(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit status and the replicas that `quotebot replicas` prints."""
    capsys.readouterr()
    status = await operate.replicas(json_output=True)
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["replicas"]
    return status, found


async def checked(settings: Settings, check: str) -> tuple[State, str]:
    """Return the outcome of one check of `doctor`."""
    (result,) = await examine(Site(settings), [each for each in CHECKS if each.id == check])
    return result.state, result.words


def sessions(url: str) -> int:
    """Return the number of sessions of the bots."""
    with psycopg.connect(url) as shell:
        ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'quotebot %'"
        return int((shell.execute(ours).fetchone() or (0,))[0])


async def test_two_bots_share_deals_on_one_database(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("QUOTEBOT_LEDGER_URL", url), ("QUOTEBOT_DATA_DIR", str(tmp_path / "east"))):
        monkeypatch.setenv(name, value)
    shared: dict[str, Any] = {"ledger_url": url, "ledger_durability": "local"}
    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "east", **shared, replica_name="east"),
        ClientSession() as session,
    ):
        deal = DatabaseDeal(url, world.url, tmp_path / "east", session)
        (tmp_path / "west").mkdir()
        for key in (tmp_path / "east").glob("audit-*.key"):
            shutil.copy(key, tmp_path / "west")
        async with bot_in(world, tmp_path / "west", **shared, replica_name="west"):
            await eventually(lambda: world.socket.connections == 2, "both to connect")
            await deal.approved_deal()
            assert (len(await deal.cards()), len(await deal.files()), len(await deal.crm())) == (1, 1, 1)
            status, found = await listed(capsys)
            assert [(each["name"], each["build"], each["lock_held"]) for each in found] == [
                ("east", __version__, True),
                ("west", __version__, True),
            ]
            assert (status, sum(each["leads"] for each in found) <= 1) == (0, True)
            assert sessions(url) <= 2 * SESSIONS_OF_REPLICA
            await too_many_sockets_are_refused(world, tmp_path / "north", url)
        status, found = await listed(capsys)
        assert (status, [each["name"] for each in found]) == (0, ["east"])
        await deal.slash("new for Acme: 10 pro; term 12m")
        await deal.settled()
        assert len(await deal.cards()) == 2
        appends = await deal.rows("SELECT effect_key FROM effects WHERE semantics = 'append' AND state = 'delivered'")
        assert len(appends) == len({row["effect_key"] for row in appends})
        ends = await deal.rows("SELECT replica, end_reason FROM epochs ORDER BY epoch")
        assert [(row["replica"], row["end_reason"]) for row in ends] == [("east", None), ("west", "stopped")]
    assert await listed(capsys) == (0, [])


async def too_many_sockets_are_refused(world: World, folder: Path, url: str) -> None:
    """Start a third replica, with which the app would have more connections than Slack gives it, beside two that run."""
    settings = settings_for(world, folder, ledger_url=url, ledger_durability="local", replica_name="north", socket_connections=4)
    said = "3 replicas with 4 connections to Slack each are 12"
    with pytest.raises(ConfigurationError, match=said):
        await run_bot(settings, asyncio.Event())
    state, words = await checked(settings, "slack.sockets")
    assert (state, words.startswith(said)) == (State.ERROR, True)
    state, _ = await checked(settings.model_copy(update={"socket_connections": 3}), "slack.sockets")
    assert state is State.OK


async def test_doctor_names_a_database_without_connections_for_a_restart(url: str, tmp_path: Path) -> None:
    settings, name = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url), urlsplit(url).path[1:]
    assert (await checked(settings, "ledger.connections"))[0] is State.OK
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute(f"ALTER DATABASE {name} CONNECTION LIMIT {2 * SESSIONS_OF_REPLICA}".encode())
    state, words = await checked(settings, "ledger.connections")
    assert state is State.WARNING
    assert words.startswith("1 replicas need up to")


async def test_list_of_replicas_shows_the_bot_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUOTEBOT_DATA_DIR", str(tmp_path / "bot"))
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot"):
        assert await operate.replicas() == 0
        (headers, row) = capsys.readouterr().out.splitlines()[-2:]
        assert headers.split()[:4] == ["NAME", "HOST", "PROCESS", "BUILD"]
        assert (row.split()[0], row.split()[-2:]) == ("main", ["yes", "held"])
    assert await operate.replicas() == 0
    assert "No bot runs" in capsys.readouterr().err
