"""Trial of the wheel in an empty folder, without the checkout.

    ./run wheel [FOLDER]

It builds the wheel into FOLDER (default dist/), installs it with its dependencies into a new virtual environment and runs `init`,
`doctor` and `sandbox` there. pip's own settings define the package index. Exit status 1: something failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements.lock", "requirements-extras.lock")  # go with the wheel
PACKAGES: Final = ("quotebot", "ledger", "adapters", "faults")
KEPT: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR")
NEEDED: Final = frozenset({"settings.tokens", "people.approvers"})  # what only its owner can give a new installation
SECONDS: Final = 60.0


def build(folder: Path) -> Path:
    """Build the wheel into a folder and return it."""
    asked = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    (found,) = folder.glob("quotebot-*.whl")
    return found


def installation(folder: Path, wheel: Path) -> tuple[tuple[str, ...], ...]:
    """Return what pip is told, one call after the other: every package by its hash, then the wheel without an index."""
    return (
        ("--require-hashes", "-r", str(folder / LOCKS[0])),
        ("--no-deps", "--no-index", str(wheel)),
    )


def strangers_environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment that configures nothing."""
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, "HOME": str(folder), **more}


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run one command to its end and return its status, its data and its words."""
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, done.stdout, done.stderr


def try_init(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """See that `init` writes a file and names a manifest that is there; return the manifest's text."""
    status, told, words = run(command, folder, environment, "init")
    assert (status, (folder / "quotebot.toml").stat().st_mode & 0o777) == (0, 0o600), words
    (named,) = [line.rpartition(": ")[2] for line in told.splitlines() if "manifest.yml" in line]
    return Path(named).read_text("utf-8")


def try_doctor(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """See that `doctor` runs every check, and misses nothing but what only the owner can give."""
    status, told, words = run(command, folder, environment, "doctor", "--offline", "--json")
    checks = {each["id"]: each for each in json.loads(told)["checks"]}
    troubles = {name for name, each in checks.items() if each["state"] not in ("ok", "skipped")}
    assert status == 78, words
    assert troubles == NEEDED, (words, [checks[name] for name in troubles])
    assert checks["pdf.renders"]["state"] == "ok"  # templates and fonts


@contextmanager
def sandbox(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve a sandbox for the length of the block; give its address."""
    with (folder / "sandbox.log").open("wb") as log:
        asked = [*command, "sandbox", "--port", "0", "--headless"]
        process = subprocess.Popen(asked, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("Sandbox ready: "), (folder / "sandbox.log").read_text()
        yield ready.split()[2]
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0, (folder / "sandbox.log").read_text()


def try_sandbox(address: str) -> None:
    """See that the page is whole, and that the bot answers a command with a card."""
    page = _read(f"{address}/")
    scripts = [part.partition('"')[0] for part in page.split('src="')[1:]]
    assert scripts
    assert all(_read(f"{address}/{script.lstrip('/')}") for script in scripts)
    asked = {"user": "U0REP", "channel": "C0DEALS", "command": "/quote", "text": "new for Acme: 150 pro; discount 15%"}
    command = urllib.request.Request(f"{address}/_sandbox/slash", json.dumps(asked).encode(), {"Content-Type": "application/json"})  # noqa: S310 -- our own address
    with urllib.request.urlopen(f"{address}/_sandbox/events", timeout=SECONDS) as changes:  # noqa: S310 -- as above
        urllib.request.urlopen(command, timeout=SECONDS).close()  # noqa: S310 -- as above
        give_up = time.monotonic() + SECONDS
        while not any(message["blocks"] for message in json.loads(_read(f"{address}/_sandbox/state"))["messages"]):
            assert time.monotonic() < give_up, "no card"
            changes.readline()  # the page's own stream: a line for each change, and a sign of life every ten seconds


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 -- our own address
        return str(answer.read().decode())


def main(arguments: Sequence[str]) -> int:
    """Build, install, try."""
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("quotebot-*.whl"):
        old.unlink()
    wheel = build(target.resolve())
    for lock in LOCKS:
        shutil.copy2(ROOT / lock, target)
    print(f"built      {wheel} ({wheel.stat().st_size:,} bytes)")
    with tempfile.TemporaryDirectory(prefix="quotebot-wheel-") as place:
        began, home, empty = time.monotonic(), Path(place) / "venv", Path(place) / "empty"
        empty.mkdir()
        venv.create(home, with_pip=True)
        for what in installation(target.resolve(), wheel):
            pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *what], check=True)
        print(f"installed  into a fresh environment in {time.monotonic() - began:.0f} s")
        command, environment = [str(home / "bin/quotebot")], strangers_environment(empty)
        try_init(command, empty, environment)
        print("init       writes quotebot.toml and names the manifest")
        try_doctor(command, empty, environment)
        print("doctor     runs, renders a PDF, asks for what only the owner has")
        with sandbox(command, empty, environment) as address:
            try_sandbox(address)
        print("sandbox    serves its page; the bot answers /quote with a card")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
