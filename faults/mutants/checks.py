"""Detection of a seeded bug by a named test of the engine for PostgreSQL, which runs in a fork against a real server."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from faults.lab.processes import fork
from faults.mutants.ground import Caught, DoesNotFitError, Ground, Hunt, last_line, note_unfit, plant_bug
from faults.mutants.patching import put
from quotebot.sandbox.cluster import Cluster, folder_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.lab.processes import Pipe_

SECONDS: Final = 60  # of one test, which takes one or two
HANGS_AFTER: Final = 20  # a test that a bug keeps waiting for good
CHECKOUT: Final = Path(__file__).resolve().parents[2]
WARM: Final = ("quotebot.app.postgres_storage", "tests.rig", "tests.postgres")  # none of these reads a statement or the schema
_PYTEST: Final = ("-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Check(Hunt):
    """One test, by its file in tests/ledger/ and its name; with all parameters, or those of `name[...]`.

    `hangs`: the bug is caught when the test does not end.
    """

    file: str
    name: str
    hangs: bool = False

    @property
    def test(self) -> str:
        """The place where pytest finds the test."""
        return f"tests/ledger/{self.file}::{self.name}"

    def ready(self, ground: Ground) -> None:
        """Start the server that all checks share. Raises ClusterError without one."""
        for module in WARM:
            import_module(module)
        if ground.server is None:
            ground.server = Cluster(folder_for("bugs"), quick=True)
            ground.stack.callback(ground.server.remove)
            ground.server.start()

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Run the test with the bug. It must pass without."""
        if self.test not in ground.passing:
            found = _run(self.test, ground, lambda: None)
            if found is not None:
                raise DoesNotFitError(f"without any bug, too: {found.says}")
            ground.passing.add(self.test)
        return _run(self.test, ground, plant, hangs=self.hangs)


class Running:
    """Server of the checks in place of one that a worker of pytest starts for itself."""

    def __init__(self, server: Cluster) -> None:
        self.url = server.url

    def start(self) -> None:
        """Do nothing: it runs."""

    def remove(self) -> None:
        """Do nothing: it is removed after the last check."""


class Reporter:
    """Plugin of pytest that reports over a pipe. The first failure ends the process: a test that hangs is not cleaned up after."""

    def __init__(self, test: str, ground: Ground, pipe: Pipe_) -> None:
        self._test = test
        self._ground = ground
        self._pipe = pipe
        self._error: BaseException | None = None
        self.passed = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> None:
        """Remember the error."""
        self._error = None if call.excinfo is None else call.excinfo.value

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a failure of the test itself as a catch; any other is sent as a failure of the hunt."""
        if report.failed:
            note_unfit(self._ground.unfit, self._error)
            says = " ".join(str(self._error).split()) or _line(self._error)
            if report.when == "call":
                self._pipe.send(("done", Caught(_name(self._test), "1 test", f"{type(self._error).__name__}: {says}")))
            else:
                self._pipe.send(("failed", f"{self._test} cannot be run: {says}"))
            os._exit(0)
        self.passed += report.when == "call" and report.passed


def _name(test: str) -> str:
    return test.rpartition("::")[2]


def _line(error: BaseException | None) -> str:
    """Return the place of an error without words, as that of an assertion."""
    where = None if error is None else error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return "" if where is None else f"line {where.tb_lineno} of {Path(where.tb_frame.f_code.co_filename).name}"


def _run(test: str, ground: Ground, plant: Callable[[], None], *, hangs: bool = False) -> Caught | None:
    """Run a test in a fork in which the bug was seeded. Raises DoesNotFitError if the test cannot be run."""

    def run(pipe: Pipe_) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(null, stream)
        os.chdir(CHECKOUT)
        plant_bug(plant, ground)
        put(import_module("tests.postgres"), "Cluster", lambda *_, **__: Running(ground.server))  # type: ignore[arg-type] # started
        reporter = Reporter(test, ground, pipe)
        status = pytest.main([*_PYTEST, f"--basetemp={ground.folder / 'pytest'}", test], [reporter])
        if status != pytest.ExitCode.OK or not reporter.passed:
            raise LookupError(f"{test} was not run: {status!r}")
        pipe.send(("done", None))

    life = fork(run)
    try:
        if life.pipe.poll(HANGS_AFTER if hangs else SECONDS):
            end, result = life.pipe.recv()
        else:
            os.kill(life.pid, signal.SIGKILL)
            says = "it did not end"
            end, result = ("done", Caught(_name(test), "1 test", says)) if hangs else ("failed", says)
    except EOFError:
        end, result = "failed", "the process ended without a word"
    finally:
        life.pipe.close()
        os.waitpid(life.pid, 0)
    if end == "failed":
        raise DoesNotFitError(last_line(str(result)))
    return result  # type: ignore[no-any-return] # as it was sent
