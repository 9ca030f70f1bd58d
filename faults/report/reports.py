"""Reports of the fault suites, stored as JSON files; FAULTS.md is generated from them."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER_VARIABLE: Final = "QUOTEBOT_FAULT_REPORTS"


@dataclass(frozen=True, slots=True)
class Report:
    """Result of one run of one suite.

    `counts` are sums (windows, states, kills, ...: each suite has its own names), `violations` are lines with a command to repeat
    each, `reached` are the names of the interesting states that occurred, `seconds` is wall time. `samples` are single measured
    values, by a name that contains the unit (`recovery_ms`); FAULTS.md shows their median and the largest.
    """

    suite: str
    counts: Mapping[str, int] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    seconds: float = 0.0
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Report:
        """Parse the output of `to_text`. Raises ValueError, KeyError or TypeError for anything else."""
        found: dict[str, Any] = json.loads(text)
        return cls(
            suite=str(found["suite"]),
            counts={str(name): int(value) for name, value in found["counts"].items()},
            violations=tuple(map(str, found["violations"])),
            reached=tuple(map(str, found["reached"])),
            seeds=tuple(map(int, found["seeds"])),
            seconds=float(found["seconds"]),
            samples={str(name): tuple(map(float, values)) for name, values in found.get("samples", {}).items()},
        )


def keep(report: Report) -> Path | None:
    """Write the report to a new file in the folder QUOTEBOT_FAULT_REPORTS; returns its path, None without a folder."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return keep_in(Path(folder), report) if folder else None


def finish(report: Report, file: Path | None, lines: Iterable[str]) -> int:
    """End a suite's command: keep the report, also write it to `file`, print the lines. Returns 1 if anything was violated."""
    keep(report)
    if file is not None:
        file.write_text(report.to_text(), encoding="utf-8")
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 1 if report.violations else 0


def keep_in(folder: Path, report: Report) -> Path:
    """Write the report to `<suite>-<pid>-<n>.json` in this folder, without overwriting an older one."""
    whole = _written(folder, f"{report.suite}-{os.getpid()}", report)
    try:
        for number in count(1):
            path = folder / f"{report.suite}-{os.getpid()}-{number}.json"
            try:
                path.hardlink_to(whole)
            except FileExistsError:
                continue
            return path
    finally:
        whole.unlink()
    raise AssertionError  # the numbers never end


def keep_as(folder: Path, name: str, report: Report) -> None:
    """Write the report of one part of a suite atomically, for a later resume."""
    _written(folder, name, report).replace(folder / f"{name}.json")


def _written(folder: Path, name: str, report: Report) -> Path:
    """Write the report to a file of which nothing counts until it is renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.part"
    part.write_text(report.to_text(), encoding="utf-8")
    return part


def kept_as(folder: Path | None, name: str) -> Report | None:
    """Return the stored report of one part of a suite; None if there is none and the part must run."""
    path = None if folder is None else folder / f"{name}.json"
    return Report.from_text(path.read_text(encoding="utf-8")) if path is not None and path.exists() else None


def read_all(folder: Path) -> list[Report]:
    """Return one report per suite, sorted by name: counts and seconds are summed, everything else is united.

    Raises ValueError that names the first file that is not a report.
    """
    by_suite: dict[str, list[Report]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            report = Report.from_text(path.read_text(encoding="utf-8"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no fault report ({error!r}); remove it, or run its suite again") from error
        by_suite.setdefault(report.suite, []).append(report)
    return [merged(reports) for _, reports in sorted(by_suite.items())]


def merged(reports: Iterable[Report]) -> Report:
    """Merge the reports of one suite into one."""
    several = tuple(reports)
    counts: Counter[str] = Counter()
    for report in several:
        counts.update(report.counts)
    return Report(
        suite=several[0].suite,
        counts=dict(sorted(counts.items())),
        violations=tuple(dict.fromkeys(line for report in several for line in report.violations)),
        reached=tuple(sorted({name for report in several for name in report.reached})),
        seeds=tuple(sorted({seed for report in several for seed in report.seeds})),
        seconds=sum(report.seconds for report in several),
        samples={
            name: tuple(value for report in several for value in report.samples.get(name, ()))
            for name in sorted({name for report in several for name in report.samples})
        },
    )
