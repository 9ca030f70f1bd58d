"""Model-based test of the production ledger: `python -m faults.suites.model [--budget nightly] [--seed N]`.

Hypothesis draws the operations, in blocks of ten runs with one seed each: after ten runs it mutates earlier examples, and new runs
find more here. The model is model_ledger.py; the rules and the comparison are in model_machine.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from faults.harness.progress import bar
from faults.lab.processes import beside, no_traceback_of_ctrl_c
from faults.lab.setting import ram
from faults.report.reports import Report, finish, keep_in, merged, read_all
from faults.suites.model_machine import LedgerMachine, RunCounts, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RUNS: Final = 10  # per block
STEPS: Final = 60  # per run
BLOCKS: Final = {"change": 36, "nightly": 1_800}  # at least 20,000 and 1,000,000 steps


@contextmanager
def empty_ledger() -> Iterator[Template]:
    """Yield an empty ledger to copy; it is removed with everything in its folder."""
    with tempfile.TemporaryDirectory(prefix="quotebot-model-", dir=ram()) as folder:
        yield Template.make(Path(folder))


def run_block(number: int, template: Template, *, shrink: bool = True) -> Report:
    """Run the block with this seed. A disagreement is a violation; `shrink` searches the shortest program that shows it."""
    tally = RunCounts()
    machine = seed(number)(type("LedgerRun", (LedgerMachine,), {"tally": tally, "template": template}))
    began = time.monotonic()
    violations = []
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=RUNS,
                stateful_step_count=STEPS,
                phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:  # noqa: BLE001 -- any error in a run is a finding
        program = "\n".join(getattr(error, "__notes__", ()))
        violations = [
            f"{type(error).__name__}: {error}\n{program}\nagain: python -m faults.suites.model --seed {number} --blocks 1"
        ]
    return Report(
        suite="model",
        counts={"steps": tally.steps, "runs": tally.runs, "blocks": 1},
        violations=tuple(violations),
        reached=tuple(sorted(f"{source} -> {target}" for source, target in tally.walked)),
        seeds=(number,),
        seconds=time.monotonic() - began,
    )


def run_blocks(seeds: Sequence[int], *, folder: Path | None = None, at_once: int = 1) -> Report:
    """Run a block for each seed, with a bar on a terminal. Reports are kept in `folder`; blocks that have one there are skipped.

    Parallel blocks do not search the shortest program, which takes minutes; the command in the violation does.
    """
    kept = [] if folder is None else read_all(folder)
    done = {number for report in kept for number in report.seeds}
    left = [number for number in seeds if number not in done]
    with empty_ledger() as template, bar(hidden=not sys.stderr.isatty()) as progress:
        task = progress.add_task("blocks of the model", total=len(seeds), completed=len(seeds) - len(left))
        for report in beside(partial(run_block, template=template, shrink=at_once == 1), left, at_once):
            if folder is not None:
                keep_in(folder, report)
            kept.append(report)
            progress.update(task, advance=1)
    return merged(kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested budget; returns 1 if model and ledger disagreed."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.model", description=__doc__)
    parser.add_argument("--budget", choices=BLOCKS, default="change")
    parser.add_argument("--seed", type=int, default=1, help="of the first block")
    parser.add_argument("--blocks", type=int, help="instead of the budget's")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each block's report there, and leave out what is in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as well")
    asked = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # clocks are set back on purpose
    blocks = range(asked.seed, asked.seed + (asked.blocks or BLOCKS[asked.budget]))
    report = run_blocks(blocks, folder=asked.resume, at_once=(os.cpu_count() or 1) if asked.budget == "nightly" else 1)
    steps, runs = report.counts["steps"], report.counts["runs"]
    summary = f"model: {steps:,} steps in {runs:,} runs, {len(report.violations)} disagreements, {report.seconds:.0f} s"
    return finish(report, asked.json, [*report.violations, summary])


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main())
