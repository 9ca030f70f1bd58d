"""Fixtures and collection hooks of the fault tests: a served world, a bot process, and the order of the tests."""

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
from faults.harness.test_order import dealt, seconds_of, spread
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LONGER_FIRST: Final = ("test_io_errors", "test_drills", "test_power", "test_checker")  # modules with tests that take seconds


def pytest_configure(config: pytest.Config) -> None:
    """Start the fork servers that all workers share. SIGINT is handled, whatever the caller's disposition."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background commands this way, and children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        leave_fork_servers((BOTS, None), (printers.WARM, None), (programs.WARM, None), (programs.WARM, "0"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests so that each worker starts with its share of the long ones; the first worker gets all that mostly wait.

    If other tests are run as well, tests/conftest.py orders them.
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


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: they stay for the whole run, and each scan would visit thousands."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a local world that is being served."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> AsyncIterator[tuple[BotProcess, Deal]]:
    """Yield a bot process that is not started yet, and its `Deal`; check at the end that no row sleeps for good."""
    async with bot_process(world, tmp_path) as pair:
        yield pair
    ledger = tmp_path / "bot" / "ledger.db"
    if ledger.exists():
        assert asleep_in(ledger) == []
