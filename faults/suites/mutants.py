"""Bugs seeded in production code, each hunted until a finding: a property that no suite checks is not proven.

    python -m faults.suites.mutants                       every bug, and the changes that must not be flagged
    python -m faults.suites.mutants --only "key per attempt" --story      one of them, and its finding
    python -m faults.suites.mutants --budget postgres                     those of the engine for PostgreSQL

The bugs are in faults/mutants/catalogue.py, their detection in faults/mutants/detection.py. A violation that also occurs without
any bug never counts as a catch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.lab.setting import ram, silence
from faults.lab.warm_up import warm_up
from faults.mutants.catalogue import BENIGN, BUGS, POSTGRES, Bug
from faults.mutants.ground import Caught, DoesNotFitError, Ground
from faults.mutants.model import BUGS as MODEL_BUGS
from faults.report.reports import Report, finish

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BENIGN", "BUGS", "POSTGRES", "Bug", "main"]

SUITE: Final = "bugs"
POSTGRES_SUITE: Final = "postgres bugs"
WORDS: Final = 300


def hunt(bug: Bug, ground: Ground) -> Caught | None:
    """Hunt one bug in forks of this process. Raises DoesNotFitError if it cannot be seeded or the hunt itself fails."""
    bug.hunt.ready(ground)
    ground.unfit.unlink(missing_ok=True)
    found = bug.hunt.chase(ground, bug.patch)
    if ground.unfit.exists():
        raise DoesNotFitError(f"an error in the planted code: {ground.unfit.read_text(encoding='utf-8')}")
    return found


def seeded(budget: str) -> list[Bug]:
    """Return the bugs of this budget.

    The `change` budget leaves out those that faults/suites/test_model.py hunts, and their kin. `postgres` are those of that engine.
    """
    if budget == "postgres":
        return list(POSTGRES)
    return [bug for bug in (*BUGS, *BENIGN) if budget == "nightly" or bug.name not in MODEL_BUGS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the bugs; returns 1 if one survives or does not fit, or a change that is no bug is flagged."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="this one (may be given several times)")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="the k-th of n shares")
    parser.add_argument(
        "--budget",
        choices=("change", "nightly", "postgres"),
        default="change",
        help="change: without those of the model's own test; postgres: those of the engine for PostgreSQL alone",
    )
    parser.add_argument("--story", action="store_true", help="print what was wrong")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    asked = parser.parse_args(arguments)
    if asked.budget != "postgres":
        silence()
        warm_up()
    share, shares = map(int, asked.shard.split("/"))
    chosen = [bug for bug in seeded(asked.budget) if not asked.only or bug.name in asked.only][share - 1 :: shares]
    report = _hunt_all(chosen, POSTGRES_SUITE if asked.budget == "postgres" else SUITE, story=asked.story)
    caught, planted, harmless = (report.counts[name] for name in ("caught", "planted", "harmless"))
    summary = f"{caught} of {planted} caught, {harmless} harmless changes let pass, {report.seconds:.0f} s"
    return finish(report, asked.json, [*report.violations, summary])


def _hunt_all(chosen: Sequence[Bug], suite: str, *, story: bool) -> Report:
    began = time.monotonic()
    caught: list[str] = []
    violations: list[str] = []
    harmless = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quotebot-bugs-", dir=ram()))
        ground = Ground(Path(folder), stack)
        for bug in chosen:
            started, is_bug, words = time.monotonic(), bug not in BENIGN, ""
            try:
                found = hunt(bug, ground)
            except DoesNotFitError as error:
                found, words = None, f"DOES NOT FIT: {error}"
            if words:
                violations.append(f"{bug.name}: {words} -- python -m faults.suites.mutants --only {bug.name!r}")
            elif found is None:
                words = "SURVIVED" if is_bug else "let pass"
                harmless += not is_bug
                violations += [
                    f"{bug.name} survived ({bug.sentence}) -- python -m faults.suites.mutants --only {bug.name!r}"
                ] * is_bug
            else:
                words = f"caught by {found.by} after {found.after}"
                caught += [bug.name] * is_bug
                violations += [f"{bug.name} is harmless and was flagged: {found.says[:WORDS]}"] * (not is_bug)
            print(f"{bug.name}: {words}, {time.monotonic() - started:.1f} s", flush=True)
            if story and found is not None:
                print(f"    {found.says[:WORDS]}")
    counts = {"caught": len(caught), "planted": sum(bug not in BENIGN for bug in chosen), "harmless": harmless}
    return Report(suite, counts, tuple(violations), tuple(sorted(caught)), seconds=time.monotonic() - began)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of texts is part of a simulated day
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "faults.suites.mutants", *sys.argv[1:]])  # noqa: S606 -- this very command, with its own arguments
    sys.exit(main())
