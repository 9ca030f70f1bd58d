"""Tests of the table of all benchmarks: its members, failed benchmarks, and the page made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from bench import _all, lag
from bench.lifecycle.pictures import PICTURES

ROOT: Final = Path(__file__).resolve().parent.parent
GOOD: Final = {"goal": "a beside b", "found": {"median": 5.25, "min": 5, "max": 6}, "unit": "x", "verdict": "ok"}


def script(folder: Path, body: str) -> Path:
    path = folder / "one.py"
    path.write_text(f"import json, sys, time\n{body}\n")
    return path


def test_every_benchmark_that_judges_is_in_the_table_and_tools_are_not() -> None:
    names = {path.stem for path in _all.benchmarks(ROOT / "bench")}
    assert {"start", "pricing", "ledger", "recovery", "retention", "flood", "counts"} <= names
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
    drawn = {picture.file: _all.FOLDER / picture.file for picture in PICTURES}
    assert {name: path.read_text("utf-8") for name, path in drawn.items() if path.exists()} == _all.pictures(results)
    assert {"start", "ledger", "pricing", "recovery"} <= set(results["reports"])


def ledger(noise: float | None, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"goals": [GOOD], "noise": noise, "rounds": 5, "rows": list(rows)}


def results(**reports: dict[str, Any]) -> dict[str, Any]:
    return {"taken_at": "today", "quick": False, "reports": reports}


DRAWN: Final = {"size": 0, "variant": "quotebot c=1", "problems": [], "ops_per_s": 500.0, "p50_ms": 2.0}
LACKING: Final = {"size": 0, "variant": "huey c=1", "problems": ["not installed"]}


def test_a_row_without_a_verdict_is_left_out_of_the_page_and_named_with_its_reason() -> None:
    noisy = {**GOOD, "goal": "c beside d", "verdict": "too noisy, no verdict"}
    absent = [{"goal": goal, "found": None, "verdict": "no verdict: not installed"} for goal in ("e beside f", "g beside h")]
    page = _all.page(
        results(a={"goals": [GOOD, noisy, *absent]}, b={"goals": [{"goal": "it runs", "verdict": "failed: status 2"}]})
    )
    table = [line for line in page.splitlines() if line.startswith(("| a", "| b |"))]
    assert table == ["| a | a beside b | 5.25x [5.00 - 6.00] | ok |"]
    assert page.splitlines()[-1] == (
        "Left out, because there is no verdict: a (c beside d): too noisy, no verdict; "
        "a (e beside f), a (g beside h): not installed; b (it runs): failed: status 2."
    )
    assert "Left out" not in _all.page(results(a={"goals": [GOOD]}))


def test_the_page_shows_the_pictures_and_names_what_is_not_in_them() -> None:
    page = _all.page(results(ledger=ledger(0.1, DRAWN, LACKING)))
    for picture in PICTURES:
        assert f"(pictures/{picture.file})" in page
    assert "Medians of 5 rounds." in page
    assert "Not drawn: huey c=1 (not installed)." in page


@pytest.mark.parametrize("noise", [0.3, None])
def test_a_noisy_run_gives_no_pictures_and_deletes_the_old_ones(
    noise: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in (("PAGE", "page.md"), ("KEPT", "page.json"), ("FOLDER", "")):
        monkeypatch.setattr(_all, name, tmp_path / path)
    _all.write(results(ledger=ledger(0.1, DRAWN)))
    assert {path.name for path in tmp_path.glob("*.svg")} == {picture.file for picture in PICTURES}
    _all.write(results(ledger=ledger(noise, DRAWN)))
    assert list(tmp_path.glob("*.svg")) == []
    assert "pictures/" not in (tmp_path / "page.md").read_text()


def single(found: float | None, verdict: str = "ok", goal: str = "it is quick") -> list[dict[str, Any]]:
    return [{"goal": goal, "found": found, "unit": " ms", "verdict": verdict}]


@pytest.mark.parametrize(
    ("runs", "told", "verdict"),
    [
        ([single(3.0), single(9.0, "missed"), single(4.0)], "4.00 ms [3.00 - 9.00]", "ok"),
        ([single(3.0), single(9.0, "missed"), single(8.0, "missed")], "8.00 ms [3.00 - 9.00]", "missed"),
        ([single(0), single(0), single(1, "missed")], "0.00 ms [0.00 - 1.00]", "missed"),  # a count: once is too often
        ([single(3.0), single(4.0, "too noisy, no verdict"), single(5.0)], "3.00 ms", "too noisy, no verdict"),
        ([single(3.0), single(4.0), single(5.0, goal="it runs")], "3.00 ms", "no verdict: not in every run"),
        ([single(3.0)], "3.00 ms", "ok"),
    ],
)
def test_single_numbers_of_several_runs_are_judged_as_one_with_their_spread(
    runs: list[list[dict[str, Any]]], told: str, verdict: str
) -> None:
    ((_, _, found, said),) = _all.rows({"one": {"goals": _all.merged(runs)}})
    assert (found, said) == (told, verdict)


@pytest.mark.parametrize(("found", "runs"), [("2.5", 3), ("{'median': 2, 'min': 1, 'max': 3}", 1), ("None", 1)])
def test_a_benchmark_that_gives_single_numbers_is_run_several_times(found: str, runs: int, tmp_path: Path) -> None:
    body = f"open('log', 'a').write('x'); print(json.dumps({{'goals': [{{'goal': 'g', 'found': {found}, 'verdict': 'ok'}}]}}))"
    asked = script(tmp_path, body.replace("'log'", repr(str(tmp_path / "log"))))
    _all.run_times(asked, (), 3)
    assert (tmp_path / "log").read_text() == "x" * runs


def test_a_benchmark_whose_tool_is_not_installed_gives_no_verdict(tmp_path: Path) -> None:
    report = _all.run(script(tmp_path, "print('no valgrind', file=sys.stderr); sys.exit(69)"), ())
    assert [row[-1] for row in _all.rows({"one": report})] == ["no verdict: no valgrind"]
