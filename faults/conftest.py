"""A served world for every fault test."""

from __future__ import annotations

import gc
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from faults.checks.wakeups import asleep_in
from faults.harness import printers, programs
from faults.harness.fork_server import BOTS, leave_fork_servers
from faults.harness.rig import BotProcess, Deal, bot_process
from faults.harness.test_order import dealt, spread
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LONGER_FIRST: Final = ("test_io_errors", "test_drills", "test_power", "test_checker")  # of what takes seconds, by its modules


def pytest_configure(config: pytest.Config) -> None:
    """Let all workers share what imports everything for them. SIGINT is handled, whatever the caller's disposition."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background commands so, and children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        leave_fork_servers((BOTS, None), (printers.WARM, None), (programs.WARM, None), (programs.WARM, "0"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each of several workers begin with its share of what takes long; what mostly waits is the first one's alone.

    Where these suites are not all that is run, tests/conftest.py sees to it.
    """
    if not all(item.path.is_relative_to(Path(__file__).parent) for item in items):
        return
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    late = [item for item in items if item.get_closest_marker("late") is not None]
    waiting = [item for item in items if item.get_closest_marker("waits") is not None]
    long = [item for item in items if item not in waiting and seconds_of(item)]
    longer = [item for name in _LONGER_FIRST for item in items if item.path.stem == name and item not in [*late, *long]]
    known = {*late, *waiting, *long, *longer}
    begins = spread(long, seconds_of, [sum(map(seconds_of, waiting)), *[0.0] * (workers - 1)])
    begins = [[*begin, *longer[worker::workers]] for worker, begin in enumerate(begins)]
    items[:] = dealt([[*waiting, *begins[0]], *begins[1:]], [*(item for item in items if item not in known), *late])


def seconds_of(item: pytest.Item) -> float:
    """How long a test is said to take; 0 when nothing is said."""
    mark = item.get_closest_marker("takes")
    return 0.0 if mark is None else float(mark.args[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector away from what stays for the whole run: thousands of tests would be looked through again and again."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Return a local world that is being served."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> AsyncIterator[tuple[BotProcess, Deal]]:
    """Return a bot process that is not started yet, and the hands for it."""
    async with bot_process(world, tmp_path) as pair:
        yield pair
    ledger = tmp_path / "bot" / "ledger.db"
    if ledger.exists():
        assert asleep_in(ledger) == []
