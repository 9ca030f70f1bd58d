"""Tests that an interrupted long run continues, and that its earlier findings count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.report.reports import FOLDER_VARIABLE, Report, keep_as, kept_as, merged, read_all

CHECKOUT = Path(__file__).resolve().parents[2]
FOUND = ("I3, with a line that repeats it",)


@pytest.mark.parametrize(
    ("suite", "module", "asked", "part"),
    [("windows", "crash_points", ["--only", "create"], "create"), ("simulate", "simulate", ["--seed", "7", "--days", "1"], "7")],
)
@pytest.mark.parametrize("violations", [(), FOUND], ids=["nothing was found", "something was found"])
def test_resumed_run_skips_a_finished_part_and_includes_its_report(
    tmp_path: Path, suite: str, module: str, asked: list[str], part: str, violations: tuple[str, ...]
) -> None:
    before = Report(suite, {"tries": 5}, violations, seeds=(7,), seconds=2.0)
    keep_as(tmp_path / "before", part, before)
    run = subprocess.run(
        [sys.executable, "-m", f"faults.suites.{module}", *asked, "--resume", str(tmp_path / "before")],
        cwd=CHECKOUT,
        env={**os.environ, FOLDER_VARIABLE: str(tmp_path / "reports")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, read_all(tmp_path / "reports")) == (len(violations), [merged([before])]), run.stderr


def test_a_report_that_was_cut_off_is_none(tmp_path: Path) -> None:
    assert kept_as(None, "create") is None
    assert kept_as(tmp_path, "create") is None
    (tmp_path / "create.part").write_text('{"suite": "win', encoding="utf-8")
    assert kept_as(tmp_path, "create") is None
    report = Report("windows", {"tries": 5}, FOUND)
    keep_as(tmp_path, "create", report)
    assert kept_as(tmp_path, "create") == report
    assert [path.name for path in tmp_path.iterdir()] == ["create.json"]
