"""Fixtures of all tests, and the order of the tests."""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import structlog
from hypothesis import settings
from structlog.dev import ConsoleRenderer, plain_traceback

from faults.checks.wakeups import asleep_in
from faults.harness.test_order import dealt, seconds_of, spread
from quotebot.sandbox.world import World
from tests.postgres import create_database, postgres
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["create_database", "postgres"]  # fixtures
# No deadline per example: other workers share the machine, so a slow example proves nothing. The number stays low enough to run
# the whole suite before every change.
settings.register_profile("quotebot", deadline=None, max_examples=60)
settings.load_profile("quotebot")
# Modules with tests that take seconds; they start before the many short tests.
_EARLY: Final = frozenset(
    {
        "tests/adapters/test_pdf.py",
        "tests/adapters/test_pdf_pages.py",
        "tests/quotebot/domain/test_preview.py",
        "tests/test_bench_ledger.py",
        "tests/test_golden_ledgers.py",
        "tests/test_quality.py",
        "tests/test_runbook.py",
        "tests/test_wheel.py",
    }
)
# Modules that mostly wait, for a process, a timer or a deadline, and how many seconds each takes.
_WAITING: Final = {
    "faults/suites/test_crm_outage.py": 6,
    "faults/suites/test_drills.py": 58,
    "faults/suites/test_first_deal.py": 10,
    "faults/suites/test_full_disk.py": 8,
    "faults/suites/test_replay.py": 10,
    "faults/suites/test_standby.py": 8,
    "tests/quotebot/app/test_restore.py": 15,
    "tests/quotebot/cli/test_clock.py": 18,
    "tests/quotebot/cli/test_drain.py": 4,
    "tests/quotebot/cli/test_drill.py": 13,
    "tests/quotebot/cli/test_quote.py": 11,
    "tests/quotebot/cli/test_replay_live.py": 5,
    "tests/quotebot/cli/test_run.py": 26,
    "tests/quotebot/cli/test_terminal.py": 10,
    "tests/quotebot/slack/test_listeners.py": 16,
    "tests/quotebot/slack/test_private_channels.py": 8,
    "tests/quotebot/slack/test_receiver.py": 6,
    "tests/quotebot/slack/test_recovery.py": 17,
    "tests/quotebot/slack/test_shared_channels.py": 17,
    "tests/quotebot/test_secrets.py": 5,
    "tests/test_run.py": 10,
}
_LINES: Final = ConsoleRenderer(colors=False, exception_formatter=plain_traceback)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker start to import in a different place, so that it finds modules that others have compiled.

    Otherwise all workers would compile everything in the same order at the same time on a fresh checkout.
    """
    gc.disable()  # until all is collected: imported objects stay, and scanning them repeatedly took half a second
    worker = getattr(session.config, "workerinput", None)
    root = Path(__file__).parents[1]
    whole = [str(root / folder) for folder in session.config.getini("testpaths")]
    if worker is None or [str(root / folder) for folder in session.config.args] != whole:
        return
    files = [file for folder in whole for file in sorted(Path(folder).rglob("test_*.py"))]
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests so that each worker starts with its share of the long ones, and none of them is left for the end.

    Tests that mostly wait all belong to the first worker: the others compute meanwhile.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    suites = Path(__file__).parents[1] / "faults"
    late = [item for item in items if item.get_closest_marker("late") is not None]
    marked = [item for item in items if item.get_closest_marker("waits") is not None]
    waiting = [*marked, *(item for item in items if module_of(item) in _WAITING and item not in marked)]
    suite = [item for item in items if item.path.is_relative_to(suites) and item not in late and item not in waiting]
    long = [item for item in suite if seconds_of(item)]
    others = [item for item in suite if not seconds_of(item)]
    early = [item for item in items if module_of(item) in _EARLY or item.get_closest_marker("browser") is not None]
    known = {*late, *waiting, *suite, *early}
    short = [*(item for item in items if item not in known), *late]
    waits = sum(map(seconds_of, marked)) + sum(_WAITING[module] for module in set(map(module_of, waiting)) & _WAITING.keys())
    begins = spread(long, seconds_of, [waits, *[0.0] * (workers - 1)])
    mine = zip(shares(others, workers), shares(early, workers), strict=True)
    begins = [[*begin, *other, *soon] for begin, (other, soon) in zip(begins, mine, strict=True)]
    items[:] = dealt([[*waiting, *begins[0]], *begins[1:]], short)


def module_of(item: pytest.Item) -> str:
    """Return a test's file, relative to the checkout's root."""
    return item.nodeid.partition("::")[0]


def shares(chosen: list[pytest.Item], workers: int) -> list[list[pytest.Item]]:
    """Distribute whole modules, because their tests share fixtures; only the last worker starts a browser."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in chosen:
        modules.setdefault("browser" if item.get_closest_marker("browser") is not None else module_of(item), []).append(item)
    with_browser = modules.pop("browser", [])
    dealt = [[item for module in list(modules.values())[worker::workers] for item in module] for worker in range(workers)]
    dealt[-1] += with_browser
    return dealt


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected tests from garbage collection: they stay for the whole run, and each scan would visit thousands."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Return the root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _own_log() -> None:
    """Reset the log configuration before each test: a suite that silences the bot may share this process.

    Tracebacks are plain, because those of rich, with every variable of every frame, took a second each.
    """
    structlog.reset_defaults()
    *processors, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*processors, _LINES])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a local world that is being served."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def deal(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield the client of a real bot that runs in that world, in this process."""
    async with bot_in(world, tmp_path / "bot") as running:
        yield running
    assert asleep_in(tmp_path / "bot" / "ledger.db") == []
