"""`python -m faults.drill`: named failures, each against a fresh local world and the real bot over real sockets.

`quotebot drill` runs this as a child process. Exit status: 0 all held, 1 some did not, 2 no such drill, 130 stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from faults.report.reports import Report, keep
from faults.scenarios import SCENARIOS, Scenario, perform
from quotebot.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HELD, FAILED, UNKNOWN, STOPPED = 0, 1, 2, 130
# prefixes of a bot's settings: a drill must not reach a real installation
OURS: Final = ("QUOTEBOT_", "SLACK_", "SALESFORCE_", "OPENAI_")
PRIORITIES: Final = ("P0", "P1", "P2")


class UnknownDrillError(Exception):
    """There is no drill of that name. The message suggests a similar name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one drill.

    `words` contains what held, the fact that did not, or what the drill waits for; `evidence` is the kept folder.
    """

    scenario: Scenario
    state: Literal["held", "failed", "waiting"]
    seconds: float
    words: str
    evidence: Path | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The outcome as lines of text."""
        drill = f"{self.scenario.id} {self.scenario.priority} {self.scenario.title} ..."
        if self.state == "waiting":
            return (f"{drill} waits for {self.words}",)
        if self.state == "held":
            return (f"{drill} held ({self.seconds:.1f} s): {self.words}",)
        return (
            f"{drill} FAILED ({self.seconds:.1f} s)",
            f"  did not hold: {self.words}",
            f"  evidence: {self.evidence} (ledger and artefacts in bot/, bot.log, what the world saw in world/, failure.txt)",
            f"  again: quotebot drill {self.scenario.id}",
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The outcome as JSON."""
        return {
            "id": self.scenario.id,
            "priority": self.scenario.priority,
            "title": self.scenario.title,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "words": self.words,
            "evidence": None if self.evidence is None else str(self.evidence),
        }


def chosen(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Return the scenarios with these names or priorities, or `all`, each once. Raises UnknownDrillError."""
    found: dict[str, Scenario] = {}
    for name in names:
        some = [each for each in SCENARIOS if name.upper() in ("ALL", each.id, each.priority)]
        if not some:
            known = [*(each.id for each in SCENARIOS), *PRIORITIES, "all", "list"]
            close = difflib.get_close_matches(name.upper(), [each.upper() for each in known], n=1)
            meant = next((f" Did you mean {each}?" for each in known if [each.upper()] == close), "")
            raise UnknownDrillError(f"There is no drill {name}.{meant} Nothing was run. See them all: quotebot drill list")
        found |= {each.id: each for each in some}
    return tuple(found.values())


async def play(scenario: Scenario, folder: Path, database: str | None = None) -> Outcome:
    """Play one scenario in a folder made for it. The folder is removed unless something did not hold.

    `database`: see `perform`.
    """
    if scenario.play is None:
        return Outcome(scenario, "waiting", 0.0, scenario.waits_for)
    _make(folder)
    began = time.monotonic()
    try:
        words = await perform(scenario, folder, database)
    except Exception as error:  # noqa: BLE001 -- any error means that the drill did not hold; all of it is kept
        (folder / "failure.txt").write_text(traceback.format_exc(), "utf-8")
        return Outcome(scenario, "failed", time.monotonic() - began, _said(error), folder)
    except BaseException:  # stopped: nothing to keep
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(scenario, "held", time.monotonic() - began, words)


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700)


def _said(error: Exception) -> str:
    """Return what did not hold: the error's own text, or the line of the check that raised without one."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    if isinstance(error, AssertionError):
        return str(error) or f"{(frame.line or 'a check').removeprefix('assert ')} ({place})"
    return f"{type(error).__name__}: {error} ({place})"


async def play_all(
    scenarios: Sequence[Scenario],
    folder: Path,
    tell: Callable[[Outcome, str], None],
    new_database: Callable[[], str | None] = lambda: None,
) -> list[Outcome]:
    """Play the scenarios one after another, each in its own folder, and report each outcome with its position ("[2/7] ").

    `new_database` returns the address of each scenario's database, or None.
    """
    outcomes = []
    for number, scenario in enumerate(scenarios, 1):
        place = f"[{number}/{len(scenarios)}] " if len(scenarios) > 1 else ""
        with _spinning(f"{place}{scenario.id} {scenario.title}"):
            outcome = await play(scenario, folder / scenario.id, new_database())
        tell(outcome, place)
        outcomes.append(outcome)
    return outcomes


@contextlib.contextmanager
def _spinning(words: str) -> Iterator[None]:
    """Show a spinner with these words while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 -- needed only on a terminal
    from rich.markup import escape  # noqa: PLC0415 -- as above

    with Console(stderr=True).status(escape(words)):
        yield


def _say(words: str, stream: TextIO) -> None:
    print(words, file=stream, flush=True)


def show(*, as_json: bool) -> int:
    """Print the list of drills; returns the exit status."""
    if as_json:
        _say(
            json.dumps(
                {
                    "schema_version": 1,
                    "drills": [
                        {
                            "id": each.id,
                            "priority": each.priority,
                            "modes": list(each.modes),
                            "title": each.title,
                            "happens": each.happens,
                            "holds": each.holds,
                            "waits_for": each.waits_for or None,
                            "unchecked": each.unchecked or None,
                        }
                        for each in SCENARIOS
                    ],
                },
                indent=2,
            ),
            sys.stdout,
        )
        return HELD
    print_table(
        ("Name", "Priority", "Modes", "Drill", "What must hold"),
        [(each.id, each.priority, ", ".join(each.modes) or "-", each.title, _holds(each)) for each in SCENARIOS],
    )
    return HELD


def _holds(scenario: Scenario) -> str:
    if scenario.waits_for:
        return f"{scenario.holds} (waits for {scenario.waits_for})"
    return f"{scenario.holds} (not checked yet: {scenario.unchecked})" if scenario.unchecked else scenario.holds


def summary(outcomes: Sequence[Outcome]) -> tuple[dict[str, int], str]:
    """Return how many drills held, failed and wait, as counts and as text."""
    counts = {state: sum(each.state == state for each in outcomes) for state in ("held", "failed", "waiting")}
    words = ", ".join(f"{number} {state}" for state, number in counts.items() if number or state == "held")
    return counts, words


async def _run(scenarios: Sequence[Scenario], folder: Path, new_database: Callable[[], str] | None, *, as_json: bool) -> int:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 -- this is a coroutine of asyncio.run
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    people = sys.stderr if as_json else sys.stdout

    def tell(outcome: Outcome, place: str) -> None:
        for number, line in enumerate(outcome.lines):
            _say(line if number else f"{place}{line}", people)

    began = time.monotonic()
    outcomes = await play_all(scenarios, folder, tell, new_database or (lambda: None))
    counts, words = summary(outcomes)
    if as_json:
        _say(json.dumps({"schema_version": 1, "drills": [each.facts for each in outcomes], **counts}, indent=2), sys.stdout)
    elif len(outcomes) > 1:
        _say(words, people)
    suite, option = ("drills", "") if new_database is None else ("postgres_drills", "--postgres ")
    again = f"python -m faults.drill {option}"
    violations = tuple(f"{again}{each.scenario.id}: {each.words}" for each in outcomes if each.state == "failed")
    keep(Report(suite, counts, violations, seconds=time.monotonic() - began))
    return FAILED if counts["failed"] else HELD


def leave_installation(folder: Path) -> None:
    """Change to this folder and remove all settings: neither the environment nor a .env file may configure a drill's bot."""
    for name in [name for name in os.environ if name.startswith(OURS) and name != "QUOTEBOT_FAULT_REPORTS"]:
        del os.environ[name]
    code = str(Path(__file__).resolve().parent.parent)
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH")))), "PYTHONSAFEPATH": "1"}
    os.chdir(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested drills and return the exit status."""
    parser = argparse.ArgumentParser(prog="quotebot drill", description="Play named failures and say what held.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="list, or FI-017, D-1, P0, all")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument("--postgres", action="store_true", help="keep the ledgers in databases of a server that is started for it")
    options = parser.parse_args(arguments)
    if [name.casefold() for name in options.names] == ["list"]:
        return show(as_json=options.as_json)
    try:
        scenarios = chosen(options.names)
    except UnknownDrillError as error:
        _say(str(error), sys.stderr)
        return UNKNOWN
    folder = Path(tempfile.mkdtemp(prefix="quotebot-drill-"))
    leave_installation(folder)
    try:
        if not options.postgres:
            return asyncio.run(_run(scenarios, folder, None, as_json=options.as_json))
        from faults.lab.ledgers import ledger_server  # noqa: PLC0415 -- its driver is an extra

        scenarios = tuple(each for each in scenarios if not each.needs_file)
        with ledger_server() as server:
            return asyncio.run(_run(scenarios, folder, server.create_empty, as_json=options.as_json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say("Stopped. Its bot and its world are ended; nothing of it is kept.", sys.stderr)
        return STOPPED
    finally:
        with contextlib.suppress(OSError):  # a failed drill's folder is kept
            folder.rmdir()


if __name__ == "__main__":
    sys.exit(main())
