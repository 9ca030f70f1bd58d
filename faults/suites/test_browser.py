"""Tests of the report on the browser's stories; the stories themselves run in tests/browser/ and every night."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faults.suites import browser
from faults.suites.browser import ON_POSTGRES, Results


def reported(name: str, *outcomes: str) -> list[Any]:
    return [SimpleNamespace(nodeid=name, outcome=outcome, failed=outcome == "failed") for outcome in outcomes]


def test_stories_that_fail_or_are_left_out_are_counted_and_those_that_fail_named() -> None:
    results = Results()
    for each in (
        *reported("a", "passed", "passed", "passed"),
        *reported("b", "skipped", "passed"),
        *reported("c", "passed", "failed", "passed"),
        *reported("d", "passed", "passed", "failed"),
    ):
        results.pytest_runtest_logreport(each)
    report = results.report(2.0)
    assert report.counts == {"held": 1, "left out": 1, "failed": 2}
    assert [line.split(" -- ")[1] for line in report.violations] == [f"{ON_POSTGRES}=1 ./run test {name}" for name in "cd"]


def test_run_that_was_interrupted_leaves_no_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(arguments: list[str], plugins: list[Results]) -> pytest.ExitCode:
        assert arguments[-1] == "-x"
        plugins[0].outcomes["a"] = "passed"
        return pytest.ExitCode.INTERRUPTED

    monkeypatch.setenv(ON_POSTGRES, "0")
    monkeypatch.setattr(pytest, "main", interrupted)
    assert browser.main(["-x"]) == pytest.ExitCode.INTERRUPTED
    assert capsys.readouterr().out == ""
