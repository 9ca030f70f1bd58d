"""Tests of `./run`: its set-up, with empty locks so that nothing is downloaded."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(200)
SECONDS = 90
MEMORY = Path("/dev/shm")  # noqa: S108 -- the suite's own run keeps its files here
MAIN = "import ledger, os, sys; print('|'.join([ledger.__file__, os.getcwd(), *sys.argv[1:]]))\nif '75' in sys.argv: sys.exit(75)\n"


def make_place(root: Path, checkout: Path) -> Path:
    """Make a small checkout with locks that name no package."""
    for package in ("quotebot", "ledger"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
    (root / "quotebot/__main__.py").write_text(MAIN)
    for lock in ("requirements.lock", "requirements-dev.lock"):
        (root / lock).write_text("# nothing\n")
    shutil.copy2(checkout / "run", root / "run")
    return root


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the machine's environment, with a pip that stays offline."""
    return {**os.environ, "PIP_NO_INDEX": "1", "HOME": str(tmp_path_factory.mktemp("home"))}


@dataclass(frozen=True, slots=True)
class SetUp:
    """A checkout that two concurrent runs have set up. Its tests leave it set up."""

    place: Path
    answers: list[tuple[int, str, str]]


@pytest.fixture(scope="module")
def set_up(checkout: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    place = make_place(tmp_path_factory.mktemp("two words") / "quote bot", checkout)
    both = [start(place, environment, "python", "-c", "print(1)") for _ in range(2)]
    return SetUp(place, [finish(process) for process in both])


@pytest.fixture
def place(set_up: SetUp) -> Path:
    return set_up.place


@pytest.fixture(scope="module")
def quick_python(set_up: SetUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return this Python, whose new environments are copies of the one made by `set_up`: making one takes seconds."""
    folder = tmp_path_factory.mktemp("quick")
    made = folder / "made"
    shutil.copytree(set_up.place / ".venv", made, symlinks=True)
    for ours in (made / "place", *made.glob("*.done"), *made.rglob("quotebot-checkout.pth")):
        ours.unlink()
    python = folder / "python3"
    python.write_text(
        f'#!/bin/sh\n[ "$1 $2" != "-m venv" ] || exec cp -a "{made}/." "$3"\nexec "{(made / "bin/python").resolve()}" "$@"\n'
    )
    python.chmod(0o755)
    return python


def start(place: Path, environment: dict[str, str], *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [place / "run", *arguments],
        cwd=cwd or place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out.strip(), err


def run(place: Path, environment: dict[str, str], *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
    return finish(start(place, environment, *arguments, cwd=cwd))


def test_two_at_once_set_up_once(set_up: SetUp) -> None:
    assert [(status, out) for status, out, _ in set_up.answers] == [(0, "1"), (0, "1")]
    assert sum("making .venv" in err for _, _, err in set_up.answers) == 1
    assert sum("waiting for it" in err for _, _, err in set_up.answers) == 1


def test_it_runs_its_own_code_from_anywhere_and_says_nothing_itself(
    place: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/__init__.py").touch()  # a package of the same name in the current folder
    answer = run(place, environment, "status", "Q 1", cwd=tmp_path)
    assert answer == (0, f"{place}/ledger/__init__.py|{tmp_path}|status|Q 1", "")


def test_only_a_changed_lock_is_installed_again_and_the_environment_is_kept(place: Path, environment: dict[str, str]) -> None:
    kept = place / ".venv/kept"
    kept.touch()
    (place / "requirements.lock").write_text("# changed\n")
    status, _, err = run(place, environment, "x")
    assert (status, kept.exists()) == (0, True)
    assert "installing the packages of requirements.lock" in err
    assert run(place, environment, "x")[2] == ""


@pytest.mark.parametrize(
    ("arguments", "lock"),
    [(("sandbox", "--postgres"), "requirements-dev.lock"), (("sandbox", "--headless"), "requirements.lock")],
)
def test_sandbox_on_a_database_gets_the_driver(
    place: Path, environment: dict[str, str], arguments: tuple[str, ...], lock: str
) -> None:
    with (place / lock).open("a") as changed:
        changed.write("# changed once more\n")
    assert f"installing the packages of {lock}" in run(place, environment, *arguments)[2]


def test_a_working_environment_made_by_hand_is_kept(place: Path, environment: dict[str, str]) -> None:
    kept = place / ".venv/kept"
    kept.touch()
    for ours in (place / ".venv/place", *(place / ".venv").glob("*.done")):
        ours.unlink()
    status, _, err = run(place, environment, "python", "-c", "")
    assert (status, kept.exists()) == (0, True)
    assert "making .venv" not in err


def test_a_killed_set_up_is_done_again_from_the_start(
    checkout: Path, environment: dict[str, str], quick_python: Path, tmp_path: Path
) -> None:
    place = make_place(tmp_path / "killed", checkout)
    killed = start(place, environment, "x")
    assert killed.stderr is not None
    assert "making .venv" in killed.stderr.readline()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=SECONDS)

    status, out, err = run(place, {**environment, "PYTHON": str(quick_python)}, "x")
    assert (status, out) == (0, f"{place}/ledger/__init__.py|{place}|x")
    assert "making .venv" in err


def test_a_moved_checkout_makes_its_environment_anew(
    place: Path, environment: dict[str, str], quick_python: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(place, moved, symlinks=True)
    (moved / ".venv/of the old place").touch()
    status, out, err = run(moved, {**environment, "PYTHON": str(quick_python)}, "x")
    assert not (moved / ".venv/of the old place").exists()
    assert (status, out) == (0, f"{moved}/ledger/__init__.py|{moved}|x")
    assert "making .venv" in err


def test_packages_that_cannot_be_had_stop_it_with_69_and_the_next_run_tries_again(
    place: Path, environment: dict[str, str], quick_python: Path
) -> None:
    lock = place / "requirements.lock"
    lock.write_text("no-such-package==1 --hash=sha256:" + "0" * 64 + "\n")
    status, out, err = run(place, environment, "x")
    assert (status, out) == (69, "")
    assert "nothing outside .venv changed" in err

    lock.write_text("# nothing\n")
    assert run(place, {**environment, "PYTHON": str(quick_python)}, "x")[0] == 0


def test_what_uv_cannot_install_is_left_to_pip(place: Path, environment: dict[str, str], tmp_path: Path) -> None:
    # A uv without an index, as if only pip's settings name one.
    wheel = tmp_path / "uv-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as parts:
        parts.writestr("uv/__main__.py", "import sys; sys.exit('no index')\n")
        parts.writestr("uv-0.0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 0.0.1\n")
        parts.writestr("uv-0.0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        parts.writestr("uv-0.0.1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = place / "requirements-dev.lock"
    lock.write_text(f"# first\nuv==0.0.1 \\\n    --hash=sha256:{digest}\n")
    status, out, err = run(place, {**environment, "PIP_FIND_LINKS": str(tmp_path)}, "python", "-c", "import uv; print('there')")
    lock.write_text("# nothing\n")
    assert (status, out, "no index" in err) == (0, "there", True), err


def test_a_python_that_is_too_old_stops_it_with_78_and_says_what_it_found(
    checkout: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    place = make_place(tmp_path / "old", checkout)
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\necho 3.10\n")
    old.chmod(0o755)
    status, out, err = run(place, {**environment, "PYTHON": str(old)}, "x")
    assert (status, out) == (78, "")
    assert "Python 3.11 or newer is needed" in err
    assert "(3.10)" in err
    assert not (place / ".venv").exists()


def test_the_status_of_the_command_is_the_status_of_run(place: Path, environment: dict[str, str]) -> None:
    assert run(place, environment, "x", "75")[0] == 75


def test_run_keeps_test_files_in_memory_and_removes_those_of_finished_runs(place: Path, environment: dict[str, str]) -> None:
    if not MEMORY.is_dir() or (room := os.statvfs(MEMORY)).f_flag & os.ST_NOEXEC or room.f_bavail * room.f_frsize < 4 << 30:
        pytest.skip("no file system in memory with room for the suite")
    (place / "pytest.py").write_text("import os; print(os.environ['TMPDIR'])\n")
    over = start(place, environment, "python", "-c", "")
    finish(over)
    (left := MEMORY / f"quotebot-tests.{over.pid}").mkdir()
    (running := MEMORY / f"quotebot-tests.{os.getpid()}").mkdir()
    plain = {name: value for name, value in environment.items() if name != "TMPDIR"}
    status, folder, _ = run(place, plain, "test")
    assert (status, Path(folder).parent, Path(folder).is_dir()) == (0, MEMORY, True)
    assert (left.exists(), running.exists()) == (False, True)
    for made in (running, Path(folder)):
        made.rmdir()


def test_the_suite_keeps_its_files_where_it_is_told(place: Path, environment: dict[str, str], tmp_path: Path) -> None:
    (place / "pytest.py").write_text("import os; print(os.environ['TMPDIR'])\n")
    assert run(place, {**environment, "TMPDIR": str(tmp_path)}, "test")[:2] == (0, str(tmp_path))


def test_an_unknown_benchmark_is_named_with_those_there_are(place: Path, environment: dict[str, str]) -> None:
    (place / "bench").mkdir()
    (place / "bench/commit.py").write_text("import sys; print('commit', *sys.argv[1:])\n")
    status, _, err = run(place, environment, "bench", "nothing")
    assert status == 64
    assert "commit.py" in err
    assert run(place, environment, "bench", "commit", "--fast")[:2] == (0, "commit --fast")
    (place / "bench/_all.py").write_text("import sys; print('all', *sys.argv[1:])\n")
    assert run(place, environment, "bench", "--quick")[:2] == (0, "all --quick")
