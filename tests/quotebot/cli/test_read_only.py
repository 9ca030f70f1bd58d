"""Tests of a read-only data folder: verification works, every other command ends with a message and its documented status."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.quotebot.cli.conftest import clean_environment
from tests.quotebot.parts import copy_data

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY: Final = 65534  # modes do not bind root: the command runs as this user
SECONDS: Final = 60.0
TOKENS: Final = {"SLACK_BOT_TOKEN": "xoxb-1-2-abc", "SLACK_APP_TOKEN": "xapp-1-A-2-abc"}


def open_to_all() -> Path:
    """Return the nearest folder above the temporary one that every user may enter."""
    folder = Path(tempfile.gettempdir()).resolve()
    while not all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents)):
        folder = folder.parent
    return folder


@pytest.fixture
def read_only(dead_ledger: Path) -> Iterator[Path]:
    """Yield a folder with the dead letters that its owner may only read."""
    home = Path(tempfile.mkdtemp(prefix="quotebot-read-only-", dir=open_to_all()))
    folder = home / "bot"
    copy_data(dead_ledger, folder)
    for path in [*folder.rglob("*"), folder, home]:
        if not path.name.endswith(".ballast"):  # the same file in every copy
            path.chmod(0o500 if path.is_dir() else 0o400)
            if os.getuid() == 0:
                os.chown(path, NOBODY, NOBODY)
    yield folder
    for path in [home, folder]:
        path.chmod(0o700)
    shutil.rmtree(home)


def as_reader(checkout: Path, folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    given = {"PYTHONPATH": str(checkout), "QUOTEBOT_DATA_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **TOKENS, **settings}
    command = [sys.executable, "-m", "quotebot"]
    probe = subprocess.run([*command, "--version"], check=False, cwd="/", env=clean_environment(folder, **given), **who)  # type: ignore[call-overload]
    if probe.returncode:
        pytest.skip("another user cannot read this checkout")
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*command, *arguments],
        check=False,
        cwd="/",
        env=clean_environment(folder, **given),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        **who,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("audit", "verify"), "The audit is whole. "), (("ledger", "verify"), "The ledger is whole: ")],
    ids=["audit verify", "ledger verify"],
)
def test_verifying_needs_no_write_access(checkout: Path, read_only: Path, arguments: tuple[str, ...], words: str) -> None:
    before = sorted(path.name for path in read_only.iterdir())
    done = as_reader(checkout, read_only, *arguments)
    assert (done.returncode, done.stdout.startswith(words)) == (0, True), done.stderr
    assert sorted(path.name for path in read_only.iterdir()) == before


@pytest.mark.parametrize("arguments", [("run",), ("quote", "list"), ("dead", "list"), ("backup",)], ids=" ".join)
def test_what_has_to_write_says_so(checkout: Path, read_only: Path, arguments: tuple[str, ...]) -> None:
    done = as_reader(checkout, read_only, *arguments)
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("audit", "verify"), ("ledger", "verify")], ids=" ".join)
def test_unreadable_wal_in_a_read_only_folder_is_reported(checkout: Path, read_only: Path, arguments: tuple[str, ...]) -> None:
    wal = read_only / "ledger.db-wal"
    read_only.chmod(0o700)
    wal.write_bytes(b"w" * 4096)
    wal.chmod(0o400)
    if os.getuid() == 0:
        os.chown(wal, NOBODY, NOBODY)
    read_only.chmod(0o500)
    done = as_reader(checkout, read_only, *arguments)
    assert done.returncode == 69, done.stdout
    assert "still in its write-ahead log" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_user_may_not_open_ends_every_command_with_its_name(checkout: Path, read_only: Path) -> None:
    read_only.chmod(0)
    for command in (("dead", "list"), ("run",), ("audit", "verify")):
        done = as_reader(checkout, read_only, *command)
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.startswith(f"This user may not open {read_only}. Run the command as the bot's user")
    doctor = as_reader(checkout, read_only, "doctor", "--only", "ledger.stuck", "--json")
    (found,) = json.loads(doctor.stdout)["checks"]
    assert (doctor.returncode, found["state"], found["fix"].startswith("Run the command as the bot")) == (69, "unknown", True)
    asked = as_reader(checkout, read_only, "gates", SALESFORCE_CA_FILE=str(read_only / "ca.pem"))
    assert (asked.returncode, "SALESFORCE_CA_FILE names no file that this user can read" in asked.stderr) == (78, True)


def test_doctor_does_not_blame_the_ledger_for_a_folder_that_cannot_be_written(checkout: Path, read_only: Path) -> None:
    done = as_reader(checkout, read_only, "doctor", "--only", "ledger.schema")
    assert (done.returncode, "in a folder that this user cannot write" in done.stdout) == (0, True), done.stdout
