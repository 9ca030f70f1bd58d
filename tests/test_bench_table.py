"""Tests of the table of all benchmarks: its members, failed benchmarks, and the page made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from bench import _all, lag

ROOT: Final = Path(__file__).resolve().parent.parent
GOOD: Final = {"goal": "a beside b", "found": {"median": 5.25, "min": 5, "max": 6}, "unit": "x", "verdict": "ok"}


def script(folder: Path, body: str) -> Path:
    path = folder / "one.py"
    path.write_text(f"import json, sys, time\n{body}\n")
    return path


def test_every_benchmark_that_judges_is_in_the_table_and_tools_are_not() -> None:
    names = {path.stem for path in _all.benchmarks(ROOT / "bench")}
    assert {"start", "pricing", "ledger", "recovery", "retention", "flood"} <= names
    assert "profile" not in names


@pytest.mark.parametrize(
    ("machine", "ours", "verdict"), [(0.5, 9.9, "ok"), (9.0, 10.5, "too noisy, no verdict"), (0.5, 10.5, "missed")]
)
def test_how_late_the_loop_is_has_a_line_in_the_table(machine: float, ours: float, verdict: str) -> None:
    late = [lag.Lag(name, 1, 0.1, p99, p99) for name, p99 in (("machine", machine), ("ours", ours))]
    ((_, wanted, found, said),) = _all.rows({"lag": {"goals": [lag.goal(*late)]}})
    assert (wanted, found, said) == ("beside PDFs and slow calls the loop is less than 10 ms late, p99", f"{ours:.2f} ms", verdict)


def test_a_benchmark_is_asked_for_its_report_with_the_options_of_the_run(tmp_path: Path) -> None:
    asked = script(tmp_path, "print(json.dumps({'goals': [], 'asked': sys.argv[1:]}))")
    assert _all.run(asked, ("--quick",))["asked"] == ["--json", "--quick"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('no disk here')", "failed: status 1: no disk here"),
        ("pass", "failed: status 0: it said nothing"),
        ("print('[]')", "failed: it judged nothing"),
        ("print('{}')", "failed: it judged nothing"),
        ("time.sleep(60)", "failed: it did not end within 0.5 s"),
    ],
)
def test_one_that_ends_badly_is_a_line_with_its_last_words(tmp_path: Path, body: str, words: str) -> None:
    report = _all.run(script(tmp_path, body), (), seconds_max=0.5 if "sleep" in body else 60)
    assert [verdict for *_, verdict in _all.rows({"one": report})] == [words]


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        (GOOD, "5.25x [5.00 - 6.00]"),
        ({"found": 2.687, "unit": " s"}, "2.69 s"),
        ({"found": 3}, "3.00"),
        ({"found": None}, "-"),
        ({"found": "flat"}, "flat"),
    ],
)
def test_benchmark_result_is_formatted_for_the_table(goal: dict[str, object], told: str) -> None:
    assert _all.found(goal) == told


def test_the_table_is_aligned_on_a_terminal() -> None:
    first, second, _ = _all.lines(_all.rows({"a": {"goals": [GOOD]}, "longer": {"goals": [GOOD]}}))
    assert first.index("found") == second.index("5.25x")


def test_the_page_is_what_its_results_give() -> None:
    results = json.loads((ROOT / "docs/performance.json").read_text("utf-8"))
    assert (ROOT / "docs/performance.md").read_text("utf-8") == _all.page(results)
    assert {"start", "ledger", "pricing", "recovery"} <= set(results["reports"])
