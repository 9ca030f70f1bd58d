"""Nightly run: every suite's budget in sequence, then FAULTS.md. `./run test --nightly`; `--budget change` is the short form.

After an interruption (Ctrl-C, a reboot) the same command continues: a finished suite is not repeated, and an interrupted suite
continues from its last report. If the sources have changed meanwhile (docs/ and *.md excepted), everything starts again, because
numbers of two different programs must not be added up. `--save` writes the progress to FAULTS.begun.json; once that file is
committed, the same command continues from it on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from faults.report.publish import BEGUN, LONG_RUN, PublishError, publish, tree_hash
from faults.report.reports import FOLDER_VARIABLE, Report, keep_as, keep_in, merged, read_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Module and variant. Each takes --budget and --resume, and keeps its report, except those in SHORT, which have no long form. The
# longest is last.
SUITES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "windows": "faults.suites.crash_points",
        "power": "faults.suites.power",
        "io_errors": "faults.suites.io_errors",
        "drills": "faults.drill",
        "postgres_windows": "faults.suites.crash_points --postgres",
        "postgres_drills": "faults.drill --postgres",
        "postgres_stories": "faults.suites.browser",
        "reaching": "faults.suites.reaching",
        "bugs": "faults.suites.mutants",
        "postgres_bugs": "faults.suites.mutants",
        "model": "faults.suites.model",
        "migrations": "faults.suites.migrations",
        "isolation": "faults.suites.isolation",
        "failover": "faults.suites.failover",
        "replicas": "faults.suites.replicas",
        "storm": "faults.suites.storm",
        "simulate": "faults.suites.simulate",
    }
)
SHORT: Final = {
    "drills": ["all"],
    "postgres_drills": ["all"],
    "postgres_stories": [],
    "reaching": [],
    "migrations": ["--budget", "nightly"],
    "bugs": ["--budget", "nightly"],
    "postgres_bugs": ["--budget", "postgres"],
}
COMMANDS: Final = {"nightly": LONG_RUN, "change": "./run python -m faults.report.nightly --budget change"}
GRACE_SECONDS: Final = 30.0  # for a suite to record its progress after Ctrl-C
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Work:
    """Folder of one long run: `reports/<suite>`, `progress/<suite>`, and the list of finished suites with the sources' hash."""

    folder: Path
    tree: str

    def begin(self, saved: Path) -> str:
        """Continue the run in this folder, or else the `saved` one; start again if both have other sources. Returns a sentence."""
        if self._state()[0] == self.tree:
            return "Going on where it was interrupted."
        for part in ("reports", "progress"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if saved.exists() and self._restored(json.loads(saved.read_text(encoding="utf-8"))):
            return f"Going on from {saved.name}."
        self._write([])
        return "Beginning anew."

    def save(self, path: Path) -> None:
        """Write the progress to one file. The partial reports of a suite are merged, because only their sum matters."""
        finished = {suite: [asdict(report) for report in read_all(self.reports(suite))] for suite in self.finished}
        begun = {}
        for folder in sorted((self.folder / "progress").glob("*")):
            parts = sorted(str(part.relative_to(folder)) for part in folder.rglob("*.json"))
            if parts and folder.name not in finished:
                sum_of_them = merged(Report.from_text((folder / part).read_text(encoding="utf-8")) for part in parts)
                begun[folder.name] = {"parts": parts, "report": asdict(sum_of_them)}
        text = json.dumps({"tree": self.tree, "finished": finished, "begun": begun}, sort_keys=True, indent=1)
        path.write_text(f"{text}\n", encoding="utf-8")

    def _restored(self, saved: Mapping[str, Any]) -> bool:
        """Restore what `save` wrote; false if its sources differ. A suite's sum becomes its first part, the others are empty."""
        if saved["tree"] != self.tree:
            return False
        for suite, reports in saved["finished"].items():
            for report in reports:
                keep_in(self.reports(suite), Report.from_text(json.dumps(report)))
        for suite, found in saved["begun"].items():
            first = Report.from_text(json.dumps(found["report"]))
            for part in found["parts"]:
                place = self.progress(suite) / part
                keep_as(place.parent, place.stem, first if part == found["parts"][0] else Report(first.suite))
        self._write(list(saved["finished"]))  # last: after an interruption, the file is restored once more
        return True

    @property
    def finished(self) -> list[str]:
        """Suites that need not run again."""
        return self._state()[1]

    def finish(self, suite: str) -> None:
        """Record that a suite has finished."""
        self._write([*self.finished, suite])

    def reports(self, suite: str) -> Path:
        """Return the folder with the reports of a suite."""
        return self.folder / "reports" / suite

    def progress(self, suite: str) -> Path:
        """Return the folder with the progress of a suite."""
        return self.folder / "progress" / suite

    def _state(self) -> tuple[str, list[str]]:
        path = self.folder / "state.json"
        if not path.exists():
            return "", []
        state = json.loads(path.read_text(encoding="utf-8"))
        return str(state["tree"]), [str(suite) for suite in state["finished"]]

    def _write(self, finished: list[str]) -> None:
        fresh = self.folder / "state.new"
        fresh.write_text(json.dumps({"tree": self.tree, "finished": finished}), encoding="utf-8")
        fresh.replace(self.folder / "state.json")


def command_of(work: Work, suite: str, module: str, budget: str) -> list[str]:
    """Return the command that runs one suite; `module` may be followed by options."""
    asked = SHORT.get(suite, ["--budget", budget, "--resume", str(work.progress(suite))])
    return [sys.executable, "-m", *module.split(), *asked]


def run_suite(work: Work, suite: str, module: str, budget: str) -> int:
    """Run one suite as its own process on this terminal; returns its exit status. On Ctrl-C, waits for its end."""
    shutil.rmtree(work.reports(suite), ignore_errors=True)  # no earlier partial report may count twice
    environment = {**os.environ, FOLDER_VARIABLE: str(work.reports(suite))}
    with subprocess.Popen(command_of(work, suite, module, budget), env=environment) as process:  # noqa: S603 -- our own modules
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)  # Ctrl-C has reached it already; a signal to this process alone has not
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def run_all(work: Work, suites: Mapping[str, str], budget: str, console: Console) -> list[str]:
    """Run the unfinished suites; returns one line for each that left no report."""
    began, wrong = time.monotonic(), []
    for number, (suite, module) in enumerate(suites.items(), start=1):
        if suite in work.finished:
            console.print(f"{suite}: finished before")
            continue
        console.rule(f"{number} of {len(suites)}: {suite}, {(time.monotonic() - began) / 60:.0f} min so far")
        status = run_suite(work, suite, module, budget)
        if any(work.reports(suite).glob("*.json")):
            work.finish(suite)
        else:
            wrong.append(f"{suite} ended with status {status} and left no report; it will run again.")
    return wrong


def main(argv: Sequence[str] | None = None, *, checkout: Path | None = None, suites: Mapping[str, str] = SUITES) -> int:
    """Run all suites and publish; returns 0 if nothing was violated, 1 otherwise, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="./run test --nightly", description="Run every suite of faults and write FAULTS.md.")
    parser.add_argument("--budget", choices=tuple(COMMANDS), default="nightly")
    parser.add_argument("--save", action="store_true", help=f"only write how far it is to {BEGUN}, for another machine to go on")
    options = parser.parse_args(argv)
    checkout = checkout or Path(__file__).resolve().parents[2]
    console = Console(stderr=True)
    try:
        work = Work(checkout / "var" / f"faults-{options.budget}", tree_hash(checkout))
        console.print(work.begin(checkout / BEGUN))
        if options.save:
            work.save(checkout / BEGUN)
            console.print(
                f"{BEGUN} says how far it is. Commit it: where it is checked out, {COMMANDS['nightly']} goes on from there."
            )
            return 0
        wrong = run_all(work, suites, options.budget, console)
        reports = [report for suite in suites if suite in work.finished for report in read_all(work.reports(suite))]
        wrong += [line for report in reports for line in report.violations]
        if tree_hash(checkout) != work.tree:
            wrong.append("The sources changed while the suites ran.")
        if not wrong:
            page = publish(checkout, reports, COMMANDS[options.budget])
            shutil.rmtree(work.folder)
            (checkout / BEGUN).unlink(missing_ok=True)
            console.print(f"0 violations. {page.name} is written; commit it.")
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on from here.")
        return INTERRUPTED
    except PublishError as error:
        wrong = [str(error)]
    for line in wrong:
        console.print(line, markup=False, soft_wrap=True)
    if wrong:
        console.print("Nothing was published. The reports are in var/; once the sources are changed all begins anew.")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as on Ctrl-C; a service manager sends SIGTERM
    sys.exit(main())
