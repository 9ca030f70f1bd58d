"""The stories of the browser with every ledger in a database.

    python -m faults.suites.browser

They are the tests of tests/browser/test_stories.py, of which each change runs those with ledgers in files.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from faults.lab.processes import no_traceback_of_ctrl_c
from faults.report.reports import Report, finish

if TYPE_CHECKING:
    from collections.abc import Sequence

SUITE: Final = "postgres_stories"
ON_POSTGRES: Final = "QUOTEBOT_STORIES_ON_POSTGRES"
STORIES: Final = "tests/browser/test_stories.py"
WORDS: Final = {"passed": "held", "failed": "failed", "skipped": "left out"}


class Results:
    """Outcomes by test, as a plugin of pytest. An error of a fixture counts as a failure."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of a test's phases."""
        if report.failed or self.outcomes.get(report.nodeid, "passed") == "passed":
            self.outcomes[report.nodeid] = report.outcome

    def report(self, seconds: float) -> Report:
        """Return the outcomes as a report."""
        counts = Counter(WORDS[outcome] for outcome in self.outcomes.values())
        failed = [name for name, outcome in self.outcomes.items() if outcome == "failed"]
        wrong = tuple(f"{name} did not hold with its ledger in a database -- {ON_POSTGRES}=1 ./run test {name}" for name in failed)
        return Report(SUITE, counts, wrong, seconds=seconds)


def main(arguments: Sequence[str]) -> int:
    """Run the stories, with options for pytest. Returns 1 if one failed, and pytest's status without a report if none ran."""
    os.environ[ON_POSTGRES] = "1"
    results, began = Results(), time.monotonic()
    root = Path(__file__).parents[2]
    status = int(pytest.main(["--rootdir", str(root), str(root / STORIES), *arguments], plugins=[results]))
    if not results.outcomes or status == pytest.ExitCode.INTERRUPTED:
        return status
    report = results.report(time.monotonic() - began)
    told = ", ".join(f"{number} {name}" for name, number in sorted(report.counts.items()))
    return finish(report, None, [*report.violations, f"{told} in {report.seconds:.0f} s"])


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main(sys.argv[1:]))
