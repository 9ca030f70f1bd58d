"""Tests of the notifications to the service manager, over a real socket of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest

from quotebot.app.bot import run_bot
from quotebot.observability.systemd import Supervisor
from tests.rig import eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from quotebot.sandbox.world import World


class Manager:
    """Receiver of a service manager's notifications."""

    def __init__(self, ear: socket.socket, address: str) -> None:
        self._ear = ear
        self.address = address
        self._heard: list[str] = []

    def heard(self) -> list[str]:
        """Return all notifications so far, in order."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._heard.append(self._ear.recv(4096).decode())
        return self._heard


@contextlib.contextmanager
def listening(name: str) -> Iterator[Manager]:
    """Listen on a path, or on an abstract name of Linux (@...)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(0)
        ear.bind(name.replace("@", "\0", 1))
        yield Manager(ear, name)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with listening(str(tmp_path / "notify")) as found:
        yield found


def supervisor(manager: Manager, **more: str) -> Supervisor:
    return Supervisor.of({"NOTIFY_SOCKET": manager.address, **more})


def test_facts_arrive_as_the_protocol_has_them_by_either_kind_of_address(manager: Manager) -> None:
    with listening(f"@quotebot-test-{os.getpid()}") as other:
        for each in (manager, other):
            supervisor(each).tell(READY=1, STATUS="Recovered and delivering")
            assert each.heard() == ["READY=1\nSTATUS=Recovered and delivering"]


async def test_watchdog_messages_come_three_times_per_interval_and_end_with_the_bot(manager: Manager) -> None:
    async with supervisor(manager, WATCHDOG_USEC="60000", WATCHDOG_PID=str(os.getpid())).notifying(asyncio.Event()):
        await eventually(lambda: len(manager.heard()) >= 3, "three signs of life")
    await asyncio.sleep(0)
    assert set(manager.heard()) == {"WATCHDOG=1"}


@pytest.mark.parametrize(
    "wanted", [{}, {"WATCHDOG_USEC": "60000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}]
)
def test_watchdog_that_is_off_or_for_another_process_is_ignored(wanted: dict[str, str]) -> None:
    assert Supervisor.of({"NOTIFY_SOCKET": "/nowhere", **wanted}).patience_seconds is None


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    Supervisor.of({}).tell(READY=1)
    Supervisor.of({"WATCHDOG_USEC": "60000"}).tell(READY=1)
    Supervisor(str(tmp_path / "gone")).tell(READY=1)


async def test_the_bot_says_that_it_works_and_that_it_is_stopping(manager: Manager, world: World, tmp_path: Path) -> None:
    stop = asyncio.Event()
    bot = asyncio.create_task(run_bot(settings_for(world, tmp_path / "bot"), stop, supervisor=supervisor(manager)))
    await eventually(lambda: world.socket.connections > 0 or bot.done(), "the bot to connect")
    stop.set()
    await bot
    assert manager.heard() == [
        "READY=1\nSTATUS=Recovered and delivering",
        "STOPPING=1\nSTATUS=Finishing what is under way",
    ]


async def test_a_bot_that_stands_by_works_by_waiting(manager: Manager, world: World, tmp_path: Path) -> None:
    stop = asyncio.Event()
    settings = settings_for(world, tmp_path / "bot")
    active = asyncio.create_task(run_bot(settings, stop))
    await eventually(lambda: world.socket.connections > 0, "the active bot to connect")
    leave = asyncio.Event()
    waiting = asyncio.create_task(run_bot(settings, leave, standby=True, supervisor=supervisor(manager)))
    await eventually(lambda: manager.heard() != [], "the other to say that it waits")
    assert manager.heard() == ["READY=1\nSTATUS=Waiting for the active bot to end"]
    leave.set()
    await waiting
    assert manager.heard()[1:] == ["STOPPING=1\nSTATUS=Finishing what is under way"]
    stop.set()
    await active
