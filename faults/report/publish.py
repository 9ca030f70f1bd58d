"""Writes FAULTS.md from the reports of the suites, and says whether it is still true of the sources.

    python -m faults.report.publish --reports FOLDER    write FAULTS.md, and its headline between README.md's two `faults` marks
python -m faults.report.publish --check             exit 0: FAULTS.md was made from these very sources; 1: it is older, or
unreadable

A commit cannot name itself, so FAULTS.md names its parent and a hash of the source tree: of every tracked file, in the order of
`git ls-files`, without FAULTS.md itself, how far a long run is (FAULTS.begun.json), and the headline in README.md.

The suites of a change tell of the sources as they are; the long run takes hours and may be of older ones. When a change is
published, what the last long run said stays on the page, with the commit it was of.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from faults.checks import checker, reachability
from faults.report.reports import FOLDER_VARIABLE, Report, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE: Final = "FAULTS.md"
BEGUN: Final = "FAULTS.begun.json"  # how far a long run is, where it goes on
README: Final = "README.md"
LONG_RUN: Final = "./run test --nightly"
MARKS: Final = ("<!-- faults -->", "<!-- /faults -->")
BUGS: Final = "bugs"  # the suite whose `reached` are the planted bugs it caught
WINDOWS: Final = "windows of "
# What the headline counts: suite, the counts that are summed (a name, or how names begin), words for one and for many.
COUNTED: Final = (
    ("windows", (WINDOWS,), ("crash window", "crash windows")),
    ("windows", ("deaths during recovery",), ("death during recovery", "deaths during recovery")),
    ("power", ("states", "artefact states"), ("state after a power cut", "states after power cuts")),
    ("io_errors", ("I/O errors",), ("I/O error", "I/O errors")),
    ("simulate", ("days",), ("simulated day", "simulated days")),
    ("model", ("steps",), ("model step", "model steps")),
    ("storm", ("kills",), ("SIGKILL of the real bot", "SIGKILLs of the real bot")),
    ("storm", ("stops",), ("SIGSTOP", "SIGSTOPs")),
    ("drills", ("held",), ("drill held", "drills held")),
    (BUGS, ("caught",), ("planted bug caught", "planted bugs caught")),
)
_PARENT: Final = re.compile(r"^\| Parent commit \| `([0-9a-f]{40})` \|$", re.MULTILINE)
_TREE: Final = re.compile(r"^\| Source tree \(SHA-256\) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
_HEAD: Final = re.compile(r"^(?P<headline>Tried: .*)$[\s\S]*?(?P<origin>^\| \| \|$(?:\n\|.*$)+)", re.MULTILINE)
_LONG_HEADING: Final = "## The last long run"


class PublishError(Exception):
    """It cannot be published or checked; the message says why and what to do. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the numbers come from."""

    parent: str
    tree: str
    date: str
    command: str


def tree_hash(checkout: Path, *, pages: bool = True) -> str:
    """Return the SHA-256 (hex) of all tracked files of a checkout as they are on disk, but for what the suites wrote.

    Without `pages` docs/ and all other Markdown are left out: no suite reads them.
    """
    digest = hashlib.sha256()
    for name in _git(checkout, "ls-files", "-z").split("\0"):
        if name in ("", PAGE, BEGUN) or (not pages and (name.startswith("docs/") or name.endswith(".md"))):
            continue
        content = _content(checkout / name)
        if name == README and content is not None:
            content = _without_headline(content.decode("utf-8")).encode()
        size = "gone" if content is None else str(len(content))
        digest.update(f"{name}\0{size}\0".encode() + (content or b""))
    return digest.hexdigest()


def publish(checkout: Path, reports: Sequence[Report], command: str) -> Path:
    """Write FAULTS.md and README's headline; returns the page's path. Raises PublishError without reports or without git."""
    if not reports:
        raise PublishError("There are no reports to publish. Run the suites with --json, or name their folder with --reports.")
    parent = _git(checkout, "rev-parse", "HEAD").strip()
    origin = Origin(parent, tree_hash(checkout), f"{datetime.now(UTC):%Y-%m-%d}", command)
    readme, page = checkout / README, checkout / PAGE
    front = _with_headline(readme.read_text(encoding="utf-8"), f"{headline(reports)} [{PAGE}]({PAGE}) says how.")
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(render(reports, origin, "" if command == LONG_RUN else last_long_run(before)), encoding="utf-8")
    readme.write_text(front, encoding="utf-8")
    return page


def complaint(checkout: Path) -> str | None:
    """Return why FAULTS.md is not true of the sources any more, None when it is."""
    page = checkout / PAGE
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    parent, tree = _PARENT.search(text), _TREE.search(text)
    if parent is None or tree is None:
        return f"There is no {PAGE} that names its parent commit and its source tree. Make one: ./run test --nightly"
    if tree[1] == tree_hash(checkout):
        return None
    changed = _changed_since(checkout, parent[1])
    return f"{PAGE} is older than the sources (its parent is {parent[1][:12]}). Make it again: ./run test --nightly\n{changed}"


def last_long_run(page: str) -> str:
    """Return what a page says of the last long run: its headline and the table of where its numbers come from; "" for nothing."""
    main, _, kept = page.partition(f"{_LONG_HEADING}\n")
    found = _HEAD.search(kept or main)
    if found is None or f"| Command | `{LONG_RUN}` |" not in found["origin"]:
        return ""
    return f"{found['headline']}\n\n{found['origin']}"


def headline(reports: Sequence[Report]) -> str:
    """Return the numbers as one sentence."""
    by_suite = {report.suite: report for report in reports}
    parts = []
    for suite, names, (one, many) in COUNTED:
        number = _sum(by_suite.get(suite), names)
        if number:
            parts.append(f"{number:,} {one if number == 1 else many}")
    wrong = sum(len(report.violations) for report in reports)
    return f"Tried: {', '.join(parts)}. Found: {wrong:,} {'violation' if wrong == 1 else 'violations'}."


def render(reports: Sequence[Report], origin: Origin, long_run: str = "") -> str:
    """Return FAULTS.md; `long_run` is what `last_long_run` returned for the page before."""
    return "\n".join(_lines(reports, origin, long_run)) + "\n"


def _lines(reports: Sequence[Report], origin: Origin, long_run: str) -> Iterator[str]:
    yield "# What was tried to break it"
    yield ""
    yield headline(reports)
    yield ""
    yield "Written by the suite itself; `python -m faults.report.publish --check` says whether it is still true of the sources."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| Command | `{origin.command}` |"
    yield f"| Date | {origin.date} |"
    yield f"| Parent commit | `{origin.parent}` |"
    yield f"| Source tree (SHA-256) | `{origin.tree}` |"
    yield ""
    if long_run:
        yield from (_LONG_HEADING, "", "It takes hours: it may be of older sources than all else on this page.", "", long_run, "")
    yield "## By suite"
    yield ""
    yield "| Suite | What was done | Violations | Seconds | Seeds |"
    yield "|---|---|--:|--:|---|"
    for report in reports:
        counts = {name: number for name, number in report.counts.items() if not name.startswith(WINDOWS)}
        windows = _sum(report, (WINDOWS,))
        done = ", ".join(
            f"{number:,} {name.replace('_', ' ')}"
            for name, number in {**({"windows": windows} if windows else {}), **counts}.items()
        )
        yield f"| {report.suite} | {done} | {len(report.violations):,} | {report.seconds:,.0f} | {_seeds(report.seeds)} |"
    yield from _windows(reports)
    yield from _samples(reports)
    yield from _names(reports)
    yield from _violations(reports)


def _windows(reports: Sequence[Report]) -> Iterator[str]:
    found = Counter({name: number for report in reports for name, number in report.counts.items() if name.startswith(WINDOWS)})
    if not found:
        return
    yield from ("", "## Crash windows", "", "| Story | Windows |", "|---|--:|")
    for name, number in sorted(found.items()):
        yield f"| {name.removeprefix(WINDOWS)} | {number:,} |"


def _samples(reports: Sequence[Report]) -> Iterator[str]:
    rows = [
        f"| {report.suite}: {name.replace('_', ' ')} | {len(values):,} | {median(values):,.0f} | {max(values):,.0f} |"
        for report in reports
        for name, values in report.samples.items()
        if values
    ]
    if rows:
        yield from ("", "## Measured", "", "| What | Times | Median | Largest |", "|---|--:|--:|--:|", *rows)


def _names(reports: Sequence[Report]) -> Iterator[str]:
    """Invariants asked, interesting states reached, planted bugs caught: each by its name."""
    yield from ("", f"## The {len(checker.INVARIANTS)} invariants", "", "| | |", "|---|---|")
    yield from (f"| {name} | {words} |" for name, words in checker.INVARIANTS.items())
    every = {*reachability.IN_THE_LEDGER, *reachability.OUTSIDE}
    reached = {name for report in reports if report.suite != BUGS for name in report.reached} & every
    if reached:
        yield from ("", f"## {len(reached)} of {len(every)} interesting states were reached", "")
        yield from (f"- {name}" for name in sorted(reached))
        yield from (f"- **not reached**: {name}" for name in sorted(every - reached))
    caught = sorted({name for report in reports if report.suite == BUGS for name in report.reached})
    if caught:
        yield from ("", f"## {len(caught)} planted bugs were caught", "")
        yield from (f"- {name}" for name in caught)


def _violations(reports: Sequence[Report]) -> Iterator[str]:
    found = [line for report in reports for line in report.violations]
    if found:
        yield from ("", f"## {len(found)} violations", "", *(f"- {' '.join(line.split())}" for line in found))


def _sum(report: Report | None, names: tuple[str, ...]) -> int:
    """Sum the counts of these names; a name that ends in a blank stands for all that begin so."""
    if report is None:
        return 0
    return sum(
        number
        for name, number in report.counts.items()
        if name in names or any(begin.endswith(" ") and name.startswith(begin) for begin in names)
    )


def _seeds(seeds: Sequence[int]) -> str:
    """Return sorted seeds with their runs drawn together: 1-4, 9."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _with_headline(readme: str, sentence: str) -> str:
    before, mark, rest = readme.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise PublishError(f"{README} has no place for the headline. Write {MARKS[0]} and {MARKS[1]} on lines of their own in it.")
    return f"{before}{mark}\n{sentence}\n{end}{after}"


def _without_headline(readme: str) -> str:
    """Return README without what stands between the marks."""
    return _with_headline(readme, "") if all(mark in readme for mark in MARKS) else readme


def _content(path: Path) -> bytes | None:
    """Return what a tracked file holds, None when it is gone; of a link where it points to."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.exists() else None


def _changed_since(checkout: Path, parent: str) -> str:
    """Name the files that differ from the commit that FAULTS.md came in with, or from its parent while it is not committed."""
    last = _git(checkout, "log", "-1", "--format=%H", "--", PAGE).strip()
    dirty = bool(_git(checkout, "status", "--porcelain", "--", PAGE).strip())
    since = last if last and not dirty else parent
    try:
        names = _git(checkout, "diff", "--name-only", since, "--", ".", f":!{PAGE}", f":!{BEGUN}").split("\n")
    except PublishError:
        return f"Commit {since[:12]} is not in this repository, so what changed cannot be named."
    return "\n".join(["Changed since:", *(f"  {name}" for name in names if name)])


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
    """Publish, or check what was published; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m faults.report.publish", description="Write or check FAULTS.md.")
    parser.add_argument("--check", action="store_true", help="only say whether FAULTS.md is true of these sources")
    parser.add_argument("--reports", type=Path, help=f"the folder of the reports (else ${FOLDER_VARIABLE})")
    options = parser.parse_args(argv)
    checkout = Path(__file__).resolve().parents[2]
    folder = options.reports or os.environ.get(FOLDER_VARIABLE)
    try:
        if options.check:
            why = complaint(checkout)
        elif folder is None:
            why = f"Name the folder of the reports with --reports or ${FOLDER_VARIABLE}. Nothing was written."
        else:
            why = None
            name = Path(folder).name
            made_by = f"{FOLDER_VARIABLE}={name} ./run test && ./run python -m faults.report.publish --reports {name}"
            publish(checkout, read_all(Path(folder)), made_by)
    except (PublishError, ValueError) as error:
        why = str(error)
    if why is not None:
        print(why, file=sys.stderr)  # noqa: T201 -- its output
    return 0 if why is None else 1


if __name__ == "__main__":
    sys.exit(main())
