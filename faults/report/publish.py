"""Writer of FAULTS.md: called by the long run (`./run test --nightly`) and at a release, with the reports of the suites.

    python -m faults.report.publish --reports FOLDER    writes FAULTS.md

The page names the commit that the suites ran on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from faults.checks import checker, reachability
from faults.report.reports import FOLDER_VARIABLE, Report, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE: Final = "FAULTS.md"
BEGUN: Final = "FAULTS.begun.json"  # saved progress of a long run, to continue elsewhere
LONG_RUN: Final = "./run test --nightly"
# Suites whose `reached` are the seeded bugs that they caught, and what these are called on the page.
BUGS: Final = {"bugs": "planted bugs", "postgres bugs": "planted bugs of the engine for PostgreSQL"}
WINDOWS: Final = "windows of "
# Numbers of the headline: suite, the counts that are summed (a name or a prefix), singular and plural.
COUNTED: Final = (
    ("windows", (WINDOWS,), ("crash window", "crash windows")),
    ("windows", ("deaths during recovery",), ("death during recovery", "deaths during recovery")),
    ("power", ("states", "artefact states"), ("state after a power cut", "states after power cuts")),
    ("io_errors", ("I/O errors",), ("I/O error", "I/O errors")),
    ("simulate", ("days",), ("simulated day", "simulated days")),
    ("model", ("steps",), ("model step", "model steps")),
    ("storm", ("kills",), ("SIGKILL of the real bot", "SIGKILLs of the real bot")),
    ("storm", ("stops",), ("SIGSTOP", "SIGSTOPs")),
    ("isolation", ("pairs ",), ("pair of transactions at SERIALIZABLE", "pairs of transactions at SERIALIZABLE")),
    ("isolation", ("days",), ("simulated day of two bots", "simulated days of two bots")),
    ("failover", ("failovers",), ("failover of PostgreSQL", "failovers of PostgreSQL")),
    (
        "replicas",
        ("replicas killed", "replicas stopped for twice their lease", "hosts of a replica gone"),
        ("fault of one of several replicas", "faults of one of several replicas"),
    ),
    ("postgres_windows", ("crash windows",), ("crash window on PostgreSQL", "crash windows on PostgreSQL")),
    (
        "postgres_windows",
        ("deaths during recovery",),
        ("death during recovery on PostgreSQL", "deaths during recovery on PostgreSQL"),
    ),
    (
        "migrations",
        ("processes killed", "pairs of processes"),
        (
            "crash or second process within a migration on PostgreSQL",
            "crashes or second processes within a migration on PostgreSQL",
        ),
    ),
    ("drills", ("held",), ("drill held", "drills held")),
    ("postgres_drills", ("held",), ("drill held on PostgreSQL", "drills held on PostgreSQL")),
    ("postgres_stories", ("held",), ("story in a browser held on PostgreSQL", "stories in a browser held on PostgreSQL")),
    ("bugs", ("caught",), ("planted bug caught", "planted bugs caught")),
    (
        "postgres bugs",
        ("caught",),
        ("planted bug of the engine for PostgreSQL caught", "planted bugs of the engine for PostgreSQL caught"),
    ),
)


class PublishError(Exception):
    """The page cannot be published or checked; the message states why and what to do. Nothing was written."""


def tree_hash(checkout: Path) -> str:
    """Return the SHA-256 (hex) of all tracked files as they are on disk, without Markdown, docs/ and the progress file.

    No suite reads pages, so a long run continues while they change.
    """
    digest = hashlib.sha256()
    for name in _git(checkout, "ls-files", "-z").split("\0"):
        if name in ("", BEGUN) or name.startswith("docs/") or name.endswith(".md"):
            continue
        content = _content(checkout / name)
        size = "gone" if content is None else str(len(content))
        digest.update(f"{name}\0{size}\0".encode() + (content or b""))
    return digest.hexdigest()


def publish(checkout: Path, reports: Sequence[Report], command: str) -> Path:
    """Write FAULTS.md and return its path. Raises PublishError without reports or without git."""
    if not reports:
        raise PublishError("There are no reports to publish. Run the suites with --json, or name their folder with --reports.")
    commit = f"`{_git(checkout, 'rev-parse', 'HEAD').strip()}`"
    if _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!*.md").strip():
        commit += " with uncommitted changes"
    page = checkout / PAGE
    page.write_text("\n".join(_lines(reports, commit, command)) + "\n", encoding="utf-8")
    return page


def headline(reports: Sequence[Report]) -> str:
    """Return the numbers as one sentence."""
    by_suite = {report.suite: report for report in reports}
    found = [(_sum(by_suite[suite], names), words) for suite, names, words in COUNTED if suite in by_suite]
    parts = [f"{number:,} {one if number == 1 else many}" for number, (one, many) in found if number]
    wrong = sum(len(report.violations) for report in reports)
    return f"Tried: {', '.join(parts)}. Found: {wrong:,} {'violation' if wrong == 1 else 'violations'}."


def _lines(reports: Sequence[Report], commit: str, command: str) -> Iterator[str]:
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    yield from ("# What was tried to break it", "", headline(reports), "")
    yield from ("| | |", "|---|---|", f"| Command | `{command}` |", f"| Date | {date} |", f"| Commit | {commit} |", "")
    yield from ("## By suite", "", "| Suite | What was done | Violations | Seconds | Seeds |", "|---|---|--:|--:|---|")
    for report in reports:
        counts = {name: number for name, number in report.counts.items() if not name.startswith(WINDOWS)}
        windows = _sum(report, (WINDOWS,))
        done = ", ".join(
            f"{number:,} {name.replace('_', ' ')}"
            for name, number in {**({"windows": windows} if windows else {}), **counts}.items()
        )
        yield f"| {report.suite} | {done} | {len(report.violations):,} | {report.seconds:,.0f} | {_seeds(report.seeds)} |"
    story_windows = sorted(
        (name.removeprefix(WINDOWS), number)
        for report in reports
        for name, number in report.counts.items()
        if name.startswith(WINDOWS)
    )
    if story_windows:
        yield from ("", "## Crash windows", "", "| Story | Windows |", "|---|--:|")
        yield from (f"| {story} | {number:,} |" for story, number in story_windows)
    samples = [
        f"| {report.suite}: {name.replace('_', ' ')} | {len(values):,} | {median(values):,.0f} | {max(values):,.0f} |"
        for report in reports
        for name, values in report.samples.items()
        if values
    ]
    if samples:
        yield from ("", "## Measured", "", "| What | Times | Median | Largest |", "|---|--:|--:|--:|", *samples)
    yield from _names(reports)
    violations = [line for report in reports for line in report.violations]
    if violations:
        yield from ("", f"## {len(violations)} violations", "", *(f"- {' '.join(line.split())}" for line in violations))


def _names(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the lines on invariants, reached interesting states and caught seeded bugs, each by name."""
    yield from ("", f"## The {len(checker.INVARIANTS)} invariants", "", "| | |", "|---|---|")
    yield from (f"| {name} | {words} |" for name, words in checker.INVARIANTS.items())
    every = reachability.STATES
    reached = {name for report in reports if report.suite not in BUGS for name in report.reached} & every
    if reached:
        yield from ("", f"## {len(reached)} of {len(every)} interesting states were reached", "")
        yield from (f"- {name}" for name in sorted(reached))
        yield from (f"- **not reached**: {name}" for name in sorted(every - reached))
    for suite, words in BUGS.items():
        caught = sorted({name for report in reports if report.suite == suite for name in report.reached})
        if caught:
            yield from ("", f"## {len(caught)} {words} were caught", "")
            yield from (f"- {name}" for name in caught)


def _sum(report: Report, names: tuple[str, ...]) -> int:
    """Sum the counts of these names; a name that ends in a space is a prefix."""
    return sum(
        number
        for name, number in report.counts.items()
        if name in names or any(begin.endswith(" ") and name.startswith(begin) for begin in names)
    )


def _seeds(seeds: Sequence[int]) -> str:
    """Format sorted seeds, with consecutive ones as a range: 1-4, 9."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _content(path: Path) -> bytes | None:
    """Return the content of a tracked file, the target of a link, or None if the file is gone."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.exists() else None


def _git(checkout: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- fixed arguments
            ["git", "-C", str(checkout), *arguments],  # noqa: S607 -- whichever git the person has
            capture_output=True,
            check=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise PublishError("git is needed to name the sources, and is not installed.") from error
    except subprocess.CalledProcessError as error:
        raise PublishError(f"git {arguments[0]} failed in {checkout}: {error.stderr.strip()}") from error
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Publish; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m faults.report.publish", description="Write FAULTS.md.")
    kept = os.environ.get(FOLDER_VARIABLE)
    parser.add_argument(
        "--reports", type=Path, default=kept, required=kept is None, help=f"the folder of the reports (else ${FOLDER_VARIABLE})"
    )
    folder = Path(parser.parse_args(argv).reports)
    made_by = f"{FOLDER_VARIABLE}={folder.name} ./run test && ./run python -m faults.report.publish --reports {folder.name}"
    try:
        publish(Path(__file__).resolve().parents[2], read_all(folder), made_by)
    except (PublishError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 -- its output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
