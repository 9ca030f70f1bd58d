"""What every test may use."""

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
from faults.harness.test_order import dealt
from quotebot.sandbox.world import World
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# No deadline per example: the machine is shared with the other workers, so slowness would be noise. The number stays low enough
# for the whole suite to be run before every change.
settings.register_profile("quotebot", deadline=None, max_examples=60)
settings.load_profile("quotebot")
# What takes seconds by itself and is therefore begun before the many short tests.
_EARLY: Final = frozenset(
    {
        "tests/adapters/test_pdf.py",
        "tests/adapters/test_pdf_pages.py",
        "tests/quotebot/cli/test_drill.py",
        "tests/quotebot/cli/test_quote.py",
        "tests/quotebot/cli/test_replay_live.py",
        "tests/quotebot/cli/test_run.py",
        "tests/quotebot/domain/test_preview.py",
        "tests/test_bench_ledger.py",
        "tests/test_golden_ledgers.py",
        "tests/test_quality.py",
        "tests/test_run.py",
        "tests/test_runbook.py",
        "tests/test_wheel.py",
    }
)
_LINES: Final = ConsoleRenderer(colors=False, exception_formatter=plain_traceback)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each of several workers begin to import elsewhere: what one has compiled, assertions and all, the others find.

    On a fresh checkout each of them would compile everything, at the same time and in the same order.
    """
    gc.disable()  # until all is collected: what is imported stays, and to look through it again and again took half a second
    worker = getattr(session.config, "workerinput", None)
    root = Path(__file__).parents[1]
    whole = [str(root / folder) for folder in session.config.getini("testpaths")]
    if worker is None or [str(root / folder) for folder in session.config.args] != whole:
        return
    files = [file for folder in whole for file in sorted(Path(folder).rglob("test_*.py"))]
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):  # the collection meets it again, and tells
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each of several workers begin with its share of what takes long, so that none of it is left for the end.

    What mostly waits is the first one's alone: the others compute beside it.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    suites = Path(__file__).parents[1] / "faults"
    late = [item for item in items if item.get_closest_marker("late") is not None]
    waiting = [item for item in items if item.get_closest_marker("waits") is not None]
    suite = [item for item in items if item.path.is_relative_to(suites) and item not in late and item not in waiting]
    early = [item for item in items if module_of(item) in _EARLY or item.get_closest_marker("browser") is not None]
    known = {*late, *waiting, *suite, *early}
    short = [*(item for item in items if item not in known), *late]
    begins = [[*suite[worker::workers], *mine] for worker, mine in enumerate(shares(early, workers))]
    items[:] = dealt([[*waiting, *begins[0]], *begins[1:]], short)


def module_of(item: pytest.Item) -> str:
    """The file a test is in, from the checkout's root."""
    return item.nodeid.partition("::")[0]


def shares(early: list[pytest.Item], workers: int) -> list[list[pytest.Item]]:
    """Deal whole modules out, for what the tests of one share; a browser is started by the last worker alone."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in early:
        name = module_of(item)
        modules.setdefault(name if name in _EARLY else "browser", []).append(item)
    with_browser = modules.pop("browser", [])
    dealt = [[item for module in list(modules.values())[worker::workers] for item in module] for worker in range(workers)]
    dealt[-1] += with_browser
    return dealt


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector away from what stays for the whole run: thousands of tests would be looked through again and again."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _own_log() -> None:
    """Give each test the log as it is before anybody configures it: a suite that silences the bot shares this process.

    Only tracebacks are plain: those that rich draws, with every variable of every frame, took a second each.
    """
    structlog.reset_defaults()
    *processors, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*processors, _LINES])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A local world that is being served."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def deal(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """The real bot in that world, in this process, and the hands to drive it with."""
    async with bot_in(world, tmp_path / "bot") as running:
        yield running
    assert asleep_in(tmp_path / "bot" / "ledger.db") == []
