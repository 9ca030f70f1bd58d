"""Tests that FAULTS.md names the attempts and the commit on which they ran."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.checks import checker, reachability
from faults.report import nightly, publish
from faults.report.reports import FOLDER_VARIABLE, Report, keep, keep_as, keep_in, kept_as, merged, read_all

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

STORM = Report(
    "storm", {"kills": 100, "stops": 12}, (), ("a process died",), (1, 2, 3, 9), 61.5, {"recovery_ms": (400.0, 200.0, 900.0)}
)
WINDOWS = Report("windows", {"windows of approve": 1_200, "windows of reject": 34, "deaths during recovery": 1}, seconds=99.0)
BUGS = Report("bugs", {"planted": 2, "caught": 2}, reached=("ack before fsync", "no fence"))
POSTGRES = Report("postgres bugs", {"planted": 1, "caught": 1}, reached=("parent not locked",))
REPORTS = (WINDOWS, STORM, BUGS, POSTGRES)
# A suite as a program: it writes its report, and records each of its runs.
SUITE = """
import os, signal, sys
from pathlib import Path
from faults.report.reports import Report, keep
with Path("runs.txt").open("a") as runs:
    runs.write("{name}\\n")
if Path("{name}.interrupts.broken").exists():
    os.kill(os.getppid(), signal.SIGINT)
if list(Path().glob("{name}*.broken")):
    sys.exit(3)
keep(Report("{name}", {{"steps": 5}}, {violations!r}, seeds=(1,)))
"""


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)  # noqa: S607 -- any git
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small repository with one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "README.md").write_text("# A product\n")
    (folder / "code.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("/var/\n/runs.txt\n__pycache__/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def published(folder: Path) -> str:
    return publish.publish(folder, REPORTS, "./run test --nightly").read_text()


def test_page_lists_command_commit_tree_crash_points_bugs_states_and_invariants(checkout: Path) -> None:
    page = published(checkout)
    assert "| Command | `./run test --nightly` |" in page
    assert f"| Commit | `{git(checkout, 'rev-parse', 'HEAD')}` |" in page
    assert "| approve | 1,200 |" in page
    assert "| storm | 100 kills, 12 stops | 0 | 62 | 1-3, 9 |" in page
    assert "| storm: recovery ms | 3 | 400 | 900 |" in page
    assert "## 2 planted bugs were caught\n\n- ack before fsync\n- no fence\n" in page
    assert "## 1 planted bugs of the engine for PostgreSQL were caught\n\n- parent not locked\n" in page
    every = len(reachability.IN_THE_LEDGER) + len(reachability.OUTSIDE)
    assert f"## 1 of {every} interesting states were reached\n\n- a process died\n- **not reached**: " in page
    assert all(f"| {name} | {words} |" in page for name, words in checker.INVARIANTS.items())


def test_the_headline_sums_the_counts_of_all_suites() -> None:
    assert publish.headline(REPORTS) == (
        "Tried: 1,234 crash windows, 1 death during recovery, 100 SIGKILLs of the real bot, 12 SIGSTOPs, 2 planted bugs caught, "
        "1 planted bug of the engine for PostgreSQL caught. Found: 0 violations."
    )


def test_a_page_of_changed_sources_says_so(checkout: Path) -> None:
    (checkout / "README.md").write_text("# Another page\n")
    assert "uncommitted" not in published(checkout), "no suite reads pages"
    (checkout / "code.py").write_text("print(2)\n")
    assert f"`{git(checkout, 'rev-parse', 'HEAD')}` with uncommitted changes" in published(checkout)


def test_the_readme_is_not_written(checkout: Path) -> None:
    published(checkout)
    assert (checkout / "README.md").read_text() == "# A product\n"


def test_violations_are_counted_and_shown_with_how_to_repeat_them(checkout: Path) -> None:
    wrong = Report("storm", {"kills": 1}, ("storm 4: a quote is lost (repeat: python -m faults.suites.storm --seed 4)",))
    page = publish.publish(checkout, [wrong], "x").read_text()
    assert "Found: 1 violation." in page
    assert "- storm 4: a quote is lost (repeat: python -m faults.suites.storm --seed 4)" in page


def test_reports_of_a_suite_are_summed_and_united(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Report("storm", {"kills": 1}, ("a",), ("x",), (2,), 1.0, {"recovery_ms": (1.0,)})
    second = Report("storm", {"kills": 2, "stops": 1}, ("a", "b"), ("y",), (1,), 2.0, {"recovery_ms": (2.0,)})
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert keep(first) is None, "without a folder nothing is kept"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "reports"))
    assert keep(first) != keep(second)
    keep(WINDOWS)
    both = Report("storm", {"kills": 3, "stops": 1}, ("a", "b"), ("x", "y"), (1, 2), 3.0, {"recovery_ms": (1.0, 2.0)})
    assert read_all(tmp_path / "reports") == [both, WINDOWS]
    assert not list((tmp_path / "reports").glob("*.part"))


def test_a_file_that_is_no_report_is_named(tmp_path: Path) -> None:
    keep_in(tmp_path, STORM)
    (tmp_path / "half.json").write_text('{"suite": "storm"')
    with pytest.raises(ValueError, match=r"half\.json is no fault report"):
        read_all(tmp_path)


@pytest.fixture
def suites(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return two suites that are committed in the checkout; the working directory is there."""
    for name in ("one_suite", "two_suite"):
        (checkout / f"{name}.py").write_text(SUITE.format(name=name, violations=()))
    (checkout / ".gitignore").write_text("/var/\n/runs.txt\n__pycache__/\n*.broken\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "suites")
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PYTHONPATH", str(Path(nightly.__file__).parents[2]))
    return {"one_suite": "one_suite", "two_suite": "two_suite"}


def test_suites_on_postgresql_are_asked_for_with_their_variant(tmp_path: Path) -> None:
    work = nightly.Work(tmp_path, "x")
    resumed = ["--budget", "nightly", "--resume", str(tmp_path / "progress" / "postgres_windows")]
    for suite, asked in {
        "postgres_windows": ["faults.suites.crash_points", "--postgres", *resumed],
        "postgres_drills": ["faults.drill", "--postgres", "all"],
        "postgres_stories": ["faults.suites.browser"],
    }.items():
        assert nightly.command_of(work, suite, nightly.SUITES[suite], "nightly") == [sys.executable, "-m", *asked]


def test_interrupted_nightly_run_skips_finished_suites_and_then_publishes(checkout: Path, suites: dict[str, str]) -> None:
    (checkout / "two_suite.broken").write_text("")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    assert not (checkout / "FAULTS.md").exists()
    (checkout / "two_suite.broken").unlink()
    assert nightly.main([], checkout=checkout, suites=suites) == 0
    assert (checkout / "runs.txt").read_text().split() == ["one_suite", "two_suite", "two_suite"]
    assert "| one_suite | 5 steps | 0 |" in (checkout / "FAULTS.md").read_text()
    assert not (checkout / "var" / "faults-nightly").exists()


def test_ctrl_c_ends_a_long_run_with_130_and_the_same_command_goes_on(checkout: Path, suites: dict[str, str]) -> None:
    run = f"sys.exit(nightly.main([], checkout=Path(), suites={suites!r}))"
    command = [sys.executable, "-c", f"import sys; from pathlib import Path; from faults.report import nightly; {run}"]
    (checkout / "two_suite.interrupts.broken").write_text("")
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "The same command goes on from here" in done.stderr
    (checkout / "two_suite.interrupts.broken").unlink()
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert (done.returncode, (checkout / "runs.txt").read_text().split()) == (0, ["one_suite", "two_suite", "two_suite"])


def test_a_long_run_begins_anew_when_the_sources_changed(checkout: Path, suites: dict[str, str]) -> None:
    (checkout / "two_suite.broken").write_text("")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    (checkout / "code.py").write_text("print(4)\n")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    assert (checkout / "runs.txt").read_text().split() == ["one_suite", "two_suite"] * 2


def test_a_long_run_that_was_saved_and_committed_goes_on_on_another_machine(checkout: Path, suites: dict[str, str]) -> None:
    (checkout / "two_suite.broken").write_text("")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    here = nightly.Work(checkout / "var" / "faults-nightly", publish.tree_hash(checkout))
    parts = {"4.json": {"steps": 2, "x": 1}, "deep/5.json": {"steps": 3}}  # of an interrupted suite
    for number, (name, counts) in enumerate(parts.items(), start=4):
        keep_as(here.progress("two_suite") / Path(name).parent, Path(name).stem, Report("two_suite", counts, seeds=(number,)))
    assert nightly.main(["--save"], checkout=checkout, suites=suites) == 0
    (checkout / "CHANGELOG.md").write_text("Pages may change.\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "how far it is")

    other = checkout.parent / "other"
    git(checkout.parent, "clone", "--quiet", str(checkout), str(other))
    there = nightly.Work(other / "var" / "faults-nightly", publish.tree_hash(other))
    there.begin(other / publish.BEGUN)
    assert there.finished == ["one_suite"]
    assert read_all(there.reports("one_suite")) == read_all(here.reports("one_suite"))
    progress = there.progress("two_suite")
    assert sorted(str(path.relative_to(progress)) for path in progress.rglob("*.json")) == sorted(parts)
    kept = [kept_as((progress / name).parent, Path(name).stem) for name in parts]
    assert merged(filter(None, kept)) == Report("two_suite", {"steps": 5, "x": 1}, seeds=(4, 5))

    (checkout / "two_suite.broken").unlink()
    assert nightly.main([], checkout=other, suites=suites) == 0
    assert (checkout / "runs.txt").read_text().split() == ["one_suite", "two_suite", "two_suite"], "the first was not run again"
    assert not (other / publish.BEGUN).exists()


def test_what_was_saved_about_other_sources_is_not_gone_on_with(checkout: Path, suites: dict[str, str]) -> None:
    (checkout / "two_suite.broken").write_text("")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    assert nightly.main(["--save"], checkout=checkout, suites=suites) == 0
    shutil.rmtree(checkout / "var")
    (checkout / "code.py").write_text("print(5)\n")
    assert nightly.main([], checkout=checkout, suites=suites) == 1
    assert (checkout / "runs.txt").read_text().split() == ["one_suite", "two_suite"] * 2


def test_nothing_is_published_when_something_was_violated(
    checkout: Path, suites: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "two_suite.py").write_text(SUITE.format(name="two_suite", violations=("two 4: a quote is lost",)))
    assert nightly.main(["--budget", "change"], checkout=checkout, suites=suites) == 1
    said = capsys.readouterr().err
    assert "two 4: a quote is lost" in said
    assert "Nothing was published" in said
    assert not (checkout / "FAULTS.md").exists()
    state = json.loads((checkout / "var" / "faults-change" / "state.json").read_text())
    assert state["finished"] == ["one_suite", "two_suite"]


def test_the_command_line_says_how_a_page_is_made() -> None:
    done = subprocess.run([sys.executable, "-m", "faults.report.publish", "--help"], capture_output=True, text=True, check=True)
    assert "--reports" in done.stdout
