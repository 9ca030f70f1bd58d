from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest
from cyclopts import App

from adapters.policies import POLICIES
from quotebot.cli import policy as module
from quotebot.settings import ConfigurationError
from tests.quotebot.cli.conftest import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

COLUMNS = ["retries", "backoff", "jitter", "timeout_seconds", "max_age_seconds", "concurrency"]
OVERRIDES = {
    "crm.create": {"retries": 8, "base_seconds": 1, "cap_seconds": 120, "timeout_seconds": 30},
    "slack.post": {"concurrency": 2, "jitter": "none", "max_age_seconds": 5_400},
}
LEGEND = "* from the configuration (QUOTEBOT_RETRY, QUOTEBOT_ACK_BUDGET_SECONDS)\n"
IN_A_TERMINAL = "import sys; from quotebot.cli.policy import policy; sys.exit(policy())"


@pytest.fixture
def policy(command: Run, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `quotebot policy` in the clean environment that `command` makes."""
    app = App(name="quotebot", help_format="plaintext", result_action="return_value")
    app.command(module.policy)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        status = app(["policy", *arguments], exit_on_error=False)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, printed.out, printed.err)

    return run


@pytest.fixture
def overridden(policy: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return `policy` with a configuration that differs from the built-in matrix."""
    monkeypatch.setenv("QUOTEBOT_RETRY", json.dumps(OVERRIDES))
    monkeypatch.setenv("QUOTEBOT_ACK_BUDGET_SECONDS", "1.5")
    return policy


def rows_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    printed = json.loads(done.stdout)
    assert printed["schema_version"] == 1
    return {row["class"]: row for row in printed["policies"]}


def cells(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """Return the cells of each line, by class; two or more spaces end a cell."""
    rows = [[cell for cell in line.split("  ") if cell.strip()] for line in done.stdout.splitlines()]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_matrix_for_people_holds_every_cell(policy: Run) -> None:
    done = policy()
    table = cells(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(table) == ["Class", "slack ack", *POLICIES]
    assert table["Class"] == [
        "Semantics", "Retries", "Backoff", "Jitter", "Time-out", "Max age", "At once", "Lane", "Dead letter when",
    ]  # fmt: skip
    assert table["slack ack"] == ["-", "0", "none", "-", "2 s", "-", "-", "-", "never"]
    assert table["crm.create"] == [
        "keyed", "6", "exp 500 ms..60 s", "full", "20 s", "7 d", "2", "quote",
        "exhausted; mapping/validation terminal; auth pauses instead",
    ]  # fmt: skip
    assert table["slack.reply"][5] == "7 d"
    assert "*" not in done.stdout


def test_the_matrix_for_programs_holds_every_line_and_where_each_cell_comes_from(policy: Run) -> None:
    done = policy("--json")
    rows = rows_of(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(rows) == ["slack ack", *POLICIES]
    assert rows["pdf.render"] == {
        "class": "pdf.render",
        "semantics": "pure",
        "retries": 2,
        "backoff": "1 s, 3 s",
        "jitter": "none",
        "timeout_seconds": 60,
        "max_age_seconds": 604_800,
        "concurrency": 1,
        "lane": "quote",
        "dead_letter_when": "exhausted; a template error at first sight; any other deterministic failure at the second",
        "source": dict.fromkeys(COLUMNS, "built in"),
    }


@pytest.mark.parametrize("effect_class", POLICIES)
def test_every_line_is_printed_as_it_is(policy: Run, effect_class: str) -> None:
    line, (row,) = POLICIES[effect_class], rows_of(policy(effect_class, "--json")).values()
    for name in ("semantics", "retries", "jitter", "timeout_seconds", "max_age_seconds", "concurrency", "lane", "dead_letter_when"):
        assert row[name] == getattr(line, name)
    assert row["backoff"] == line.backoff.words


def test_an_acknowledgement_is_never_repeated_and_never_a_dead_letter(policy: Run) -> None:
    row = rows_of(policy("slack ack", "--json"))["slack ack"]
    assert (row["retries"], row["backoff"], row["timeout_seconds"], row["dead_letter_when"]) == (0, "none", 2, "never")
    assert [row[name] for name in ("semantics", "jitter", "max_age_seconds", "concurrency", "lane")] == [None] * 5


def test_one_class_is_printed_cell_under_cell(policy: Run) -> None:
    done = policy("llm.extract")
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done) == {
        "Class": ["llm.extract"],
        "Semantics": ["pure"],
        "Retries": ["3"],
        "Backoff": ["exp 300 ms..10 s"],
        "Jitter": ["bounded"],
        "Time-out": ["30 s"],
        "Max age": ["7 d"],
        "At once": ["4"],
        "Lane": ["operation"],
        "Dead letter when": ["repeated time-out or provider hard fail"],
    }


def test_what_the_configuration_changed_is_marked_for_people(overridden: Run) -> None:
    done = overridden()
    table = cells(done)
    assert (done.returncode, done.stderr) == (0, LEGEND)
    assert table["crm.create"][:7] == ["keyed", "8*", "exp 1 s..2 min*", "full", "30 s*", "7 d", "2"]
    assert table["slack.post"][:7] == ["append", "5", "exp 250 ms..30 s", "none*", "10 s", "90 min*", "2*"]
    assert table["slack ack"][4] == "1.5 s*"
    assert done.stdout.count("*") == 7


def test_what_the_configuration_changed_is_named_for_programs(overridden: Run) -> None:
    rows = rows_of(overridden("--json"))
    configured = {
        name: {column for column, source in row["source"].items() if source == "configuration"} for name, row in rows.items()
    }
    assert {name: columns for name, columns in configured.items() if columns} == {
        "slack ack": {"timeout_seconds"},
        "crm.create": {"retries", "backoff", "timeout_seconds"},
        "slack.post": {"concurrency", "jitter", "max_age_seconds"},
    }
    assert (rows["crm.create"]["retries"], rows["crm.create"]["backoff"]) == (8, "exp 1 s..2 min")


def test_an_override_equal_to_the_built_in_value_still_comes_from_the_configuration(
    policy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", '{"crm.create": {"retries": 6}, "crm.update": {}}')
    assert "6*" in policy("crm.create").stdout
    assert policy("crm.update").stderr == ""


@pytest.mark.parametrize("arguments", [("--schedule", "crm.create"), ("crm.create", "--schedule")])
def test_a_schedule_shows_each_try_with_its_wait_and_all_waits_so_far(policy: Run, arguments: tuple[str, ...]) -> None:
    done = policy(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done) == {
        "Try": ["Wait before it", "Waited in all", "If it fails"],
        "1": ["0 s", "0 s", "try 2"],
        "2": ["0 s..500 ms", "0 s..500 ms", "try 3"],
        "3": ["0 s..1 s", "0 s..1.5 s", "try 4"],
        "4": ["0 s..2 s", "0 s..3.5 s", "try 5"],
        "5": ["0 s..4 s", "0 s..7.5 s", "try 6"],
        "6": ["0 s..8 s", "0 s..15.5 s", "try 7"],
        "7": ["0 s..16 s", "0 s..31.5 s", "dead letter"],
    }


@pytest.mark.parametrize(
    ("effect_class", "bounds"),
    [
        ("slack ack", [(0, 0, 0, 0)]),
        ("pdf.render", [(0, 0, 0, 0), (1, 1, 1, 1), (3, 3, 4, 4)]),
        ("llm.extract", [(0, 0, 0, 0), (0.225, 0.375, 0.225, 0.375), (0.45, 0.75, 0.675, 1.125), (0.9, 1.5, 1.575, 2.625)]),
    ],
)
def test_a_schedule_for_programs_is_in_seconds(
    policy: Run, effect_class: str, bounds: list[tuple[float, float, float, float]]
) -> None:
    printed = json.loads(policy("--schedule", effect_class, "--json").stdout)
    assert (printed["schema_version"], printed["class"]) == (1, effect_class)
    names = ("wait_low_seconds", "wait_high_seconds", "waited_low_seconds", "waited_high_seconds")
    assert printed["schedule"] == [
        {"try": number, **dict(zip(names, row, strict=True))} for number, row in enumerate(bounds, start=1)
    ]


def test_a_schedule_follows_the_configuration(overridden: Run) -> None:
    table = cells(overridden("--schedule", "crm.create"))
    assert table["9"] == ["0 s..2 min", "0 s..247 s", "dead letter"]


def test_a_factor_and_fixed_steps_are_shown_and_scheduled(policy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", '{"crm.create": {"factor": 4}, "pdf.render": {"steps_seconds": [2, 90]}}')
    table = cells(policy())
    assert (table["crm.create"][2], table["pdf.render"][2]) == ("exp 500 ms..60 s x4*", "2 s, 90 s*")
    assert [row[0] for row in cells(policy("--schedule", "pdf.render")).values()] == ["Wait before it", "0 s", "2 s", "90 s"]
    waits = ["Wait before it", "0 s", "0 s..500 ms", "0 s..2 s", "0 s..8 s", "0 s..32 s", "0 s..60 s", "0 s..60 s"]
    assert [row[0] for row in cells(policy("--schedule", "crm.create")).values()] == waits


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"crm.create": {"factor": 11}}', r"QUOTEBOT_RETRY\.crm\.create\.factor"),
        ('{"crm.create": {"steps_seconds": [1], "factor": 3}}', "fixed steps and factor exclude each other"),
        ('{"pdf.render": {"steps_seconds": []}}', r"QUOTEBOT_RETRY\.pdf\.render\.steps_seconds"),
    ],
)
def test_a_backoff_out_of_bounds_is_a_configuration_error(
    policy: Run, monkeypatch: pytest.MonkeyPatch, given: str, words: str
) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", given)
    with pytest.raises(ConfigurationError, match=words):
        policy()


def test_an_acknowledgement_that_fails_is_the_end_of_it(policy: Run) -> None:
    assert cells(policy("--schedule", "slack ack"))["1"] == ["0 s", "0 s", "nothing more"]


def test_a_schedule_needs_a_class(policy: Run) -> None:
    done = policy("--schedule")
    assert (done.returncode, done.stdout) == (64, "")
    assert "quotebot policy --schedule crm.create" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--schedule",), ("--json",)])
def test_an_unknown_class_prints_nothing_and_names_the_known_ones(policy: Run, arguments: tuple[str, ...]) -> None:
    done = policy("crm.creat", *arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert "did you mean crm.create?" in done.stderr
    assert all(name in done.stderr for name in (*POLICIES, "slack ack"))


def test_a_bad_override_is_refused_before_anything_is_printed(
    policy: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", '{"crm.create": {"retries": 21, "semantics": "pure"}}')
    with pytest.raises(ConfigurationError, match=r"QUOTEBOT_RETRY\.crm\.create\.retries") as refused:
        policy()
    assert "QUOTEBOT_RETRY.crm.create.semantics" in str(refused.value)
    assert capsys.readouterr().out == ""


def printed_in_terminal(folder: Path, checkout: Path, columns: int, terminal: str) -> str:
    """Return the output of `quotebot policy` on a terminal with `columns` columns."""
    ours, its = pty.openpty()
    try:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
        environment = clean_environment(folder, PYTHONPATH=str(checkout), TERM=terminal)
        process = subprocess.Popen([sys.executable, "-c", IN_A_TERMINAL], stdout=its, cwd=folder, env=environment)
        os.close(its)
        its = -1
        chunks = []
        try:
            while chunk := os.read(ours, 65_536):
                chunks.append(chunk)
        except OSError:  # a terminal raises this after its last writer has closed it
            pass
        assert process.wait(timeout=30) == 0
        return b"".join(chunks).decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        if its >= 0:
            os.close(its)


@pytest.mark.parametrize(("columns", "terminal", "as_table"), [(80, "xterm", False), (200, "dumb", False), (200, "xterm", True)])
def test_a_terminal_too_narrow_for_the_table_gets_every_word_all_the_same(
    tmp_path: Path, checkout: Path, columns: int, terminal: str, *, as_table: bool
) -> None:
    printed = printed_in_terminal(tmp_path, checkout, columns, terminal)
    assert printed.count("Dead letter when") == (1 if as_table else 1 + len(POLICIES))
    assert "…" not in printed
    for name, line in POLICIES.items():
        assert name in printed
        assert line.dead_letter_when in printed
