"""Every step of a migration of a database: a process is killed there, or goes on, while another one starts on the same ledger.

    python -m faults.suites.migrations                             some steps, drawn by a seed
    python -m faults.suites.migrations --budget nightly            every step
    python -m faults.suites.migrations --trial used 40 0 killed    one of them

A step is one exchange with the server, and none is listed by hand. A trial stops the second process at one of its steps (0: before
it begins), then the first at one of its own; then the second goes on until it ends or waits for the first, which is now killed, or
goes on. Both must end without an error, unless killed, and the next start must find the schema whole, and every row.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from faults.lab import ledgers
from faults.lab.processes import Pipe_, fork, no_traceback_of_ctrl_c
from faults.report.reports import Report, finish
from ledger.database import DatabaseError
from ledger.migrations import EXPAND, Migration
from quotebot.app import postgres_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faults.lab.ledgers import LedgerServer

SUITE: Final = "migrations"
TRIALS: Final = {"change": 6, "nightly": None}  # None: all
KILLED, GOES_ON = "killed", "goes on"
LAST: Final = 1 << 30
LOOK_SECONDS: Final = 0.005
ROWS: Final = """
INSERT INTO epochs (role, pid, build, started_at, seen_at) VALUES ('bot', 1, 'old', 1, 1);
INSERT INTO document_sets (sha256, content, stored_at) VALUES (repeat('a', 64), 'c', 1);
"""
NEWER: Final = (
    Migration(
        "quotebot.store",
        "0990_added.sql",
        f"{EXPAND} for a trial\nALTER TABLE document_sets ADD COLUMN newer TEXT, ADD COLUMN newest BIGINT NOT NULL DEFAULT 7;\n"
        "CREATE INDEX sets_newer ON document_sets (newer);\nCREATE TABLE notes (id BIGINT PRIMARY KEY);",
    ),
    Migration("quotebot.store", "0991_removed.sql", "-- contract: for a trial\nALTER TABLE document_sets DROP COLUMN newer;"),
)


class Trial(NamedTuple):
    """A ledger (`new` or `used`), the steps at which the first process and the second one stop, and what the first does then."""

    ledger: str
    first: int
    second: int
    then: str

    @property
    def files(self) -> Sequence[Migration]:
        """The migrations of both processes."""
        return (*postgres_storage.migrations(), *(NEWER if self.ledger == "used" else ()))


class Starting:
    """A process that starts on a ledger, and asks before each of its steps."""

    def __init__(self, url: str, files: Sequence[Migration], is_waiting: Callable[[int], bool]) -> None:
        self._life = fork(lambda pipe: _start(pipe, url, files))
        self._is_waiting = is_waiting
        self._backend = 0
        self.passed = 0
        self.end: str | None = None  # the error that ended it, or "" for none
        self._receive()

    def go_on(self, until: int = LAST) -> None:
        """Let it go on until it is before this step, waits for a lock, or has ended."""
        while self.end is None and self.passed < until:
            self._answer(is_released=False)
            self.passed += 1
            while not self._life.pipe.poll(LOOK_SECONDS):
                if self._is_waiting(self._backend):
                    return
            self._receive()

    def release(self) -> None:
        """Let it go on by itself."""
        if self.end is None:
            self._answer(is_released=True)

    def ended(self) -> str:
        """Wait for its end, and return the error or ""."""
        while self.end is None:
            self._receive()
        self._reap()
        return self.end

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._life.pid, signal.SIGKILL)
        self._reap()

    def _answer(self, *, is_released: bool) -> None:
        self._life.pipe.send(is_released)

    def _receive(self) -> None:
        what, content = self._life.pipe.recv()
        if what == "step":
            self._backend = content
        else:
            self.end = content

    def _reap(self) -> None:
        self._life.pipe.close()
        os.waitpid(self._life.pid, 0)


def _start(pipe: Pipe_, url: str, files: Sequence[Migration]) -> None:
    """Start on a ledger; ask over the pipe before each step until the answer is true."""
    is_released = False

    def step(backend: int) -> None:
        nonlocal is_released
        if not is_released:
            pipe.send(("step", backend))
            is_released = pipe.recv()

    ledgers.start_in_steps(url, files, step)
    pipe.send(("done", ""))


class Origins:
    """The ledgers of a server, as they are before a trial, and the number of steps of a start on each."""

    def __init__(self, server: LedgerServer) -> None:
        self._origins = {"new": server.create_empty(), "used": server.create()}
        ledgers.execute(self._origins["used"], ROWS)
        self._rows = ledgers.count_rows(self._origins["used"])

    @functools.cached_property
    def steps(self) -> dict[str, int]:
        """The number of steps of an undisturbed start."""
        found = {}
        for name in self._origins:
            url = ledgers.copy_of(self._origins[name])
            alone = Starting(url, Trial(name, 0, 0, KILLED).files, lambda _: False)
            alone.go_on()
            found[name] = alone.passed
            if alone.ended():
                raise DatabaseError(f"the undisturbed start failed: {alone.end}")
            ledgers.drop(url)
        return found

    def violations(self, trial: Trial) -> list[str]:
        """Run a trial and return what was wrong."""
        url = ledgers.copy_of(self._origins[trial.ledger])
        with ledgers.waits_of(url) as is_waiting:
            both = [Starting(url, trial.files, is_waiting) for _ in range(2)]
            first, second = both
            second.go_on(trial.second)
            first.go_on(trial.first)
            second.go_on()
            if trial.then == KILLED:
                first.kill()
                both.remove(first)
            for process in both:
                process.release()
            found = [error for process in both if (error := process.ended())]
        found += self._wrong(url, trial)
        ledgers.drop(url)
        return found

    def _wrong(self, url: str, trial: Trial) -> list[str]:
        """Return what the next start finds."""
        found: list[str] = []
        try:
            if ledgers.migrates(url, trial.files):
                found.append("the next start migrated once more")
            rows = ledgers.count_rows(url)
        except DatabaseError as error:
            return [*found, str(error)]
        if trial.ledger == "used":
            lost = [name for name, count in self._rows.items() if name != "schema_migrations" and rows[name] != count]
            found += [f"rows of {name} changed" for name in lost]
        return found


def trials_of(steps: dict[str, int], seed: int, count: int | None) -> list[Trial]:
    """Return the trials: at every step of the first process a second one that begins then, or has stopped at a step of its own."""
    chance = random.Random(seed)  # noqa: S311 -- to repeat a run
    found = [
        Trial(ledger, step, second, then)
        for ledger, last in steps.items()
        for step in range(last)
        for second in (0, chance.randrange(1, last))
        for then in (KILLED, GOES_ON)
    ]
    return found if count is None else chance.sample(found, count)


def run_trials(origins: Origins, trials: Sequence[Trial], seed: int) -> Report:
    """Run trials."""
    began = time.monotonic()
    wrong = [
        f"{' '.join(map(str, trial))}: {' '.join(sentence.split())} -- python -m faults.suites.migrations --trial "
        f"{trial.ledger} {trial.first} {trial.second} {trial.then!r}"
        for trial in trials
        for sentence in origins.violations(trial)
    ]
    counts = Counter("processes killed" if trial.then == KILLED else "pairs of processes" for trial in trials)
    return Report(SUITE, counts, tuple(wrong), (), (seed,), time.monotonic() - began)


def main(argv: Sequence[str]) -> int:
    """Run trials; returns 1 if one ended wrong."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.migrations", description=__doc__.splitlines()[0])
    parser.add_argument("--budget", choices=tuple(TRIALS), default="change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trial", nargs=4, metavar=("LEDGER", "FIRST", "SECOND", "THEN"))
    options = parser.parse_args(argv)
    with ledgers.ledger_server() as server:
        origins = Origins(server)
        if options.trial is None:
            trials = trials_of(origins.steps, options.seed, TRIALS[options.budget])
        else:
            ledger, first, second, then = options.trial
            trials = [Trial(ledger, int(first), int(second), then)]
        report = run_trials(origins, trials, options.seed)
    told = ", ".join(f"{number:,} {name}" for name, number in sorted(report.counts.items()))
    return finish(report, None, [*report.violations, f"{told} in {report.seconds:.0f} s: {len(report.violations)} violations"])


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main(sys.argv[1:]))
