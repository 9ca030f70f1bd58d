"""Environment of the frameworks that bench/ledger.py compares with: made from a lock, and again when lock or Python changed."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "bench" / "requirements-peers.lock"
FOLDER: Final = ROOT / ".venv-peers"
MARK: Final = "installed"  # the file in it that tells from what it was made, written at the end


class CannotInstallError(Exception):
    """The packages could not be installed."""


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def interpreter(folder: Path = FOLDER) -> str:
    """Return the interpreter that runs the frameworks: the environment's, or this one if there is none."""
    python = python_of(folder)
    return str(python) if python.exists() else sys.executable


def install(lock: Path = LOCK, folder: Path = FOLDER) -> None:
    """Make the environment unless it is there. Raises CannotInstallError."""
    origin = f"{hashlib.sha256(lock.read_bytes()).hexdigest()} {Path(sys.executable).resolve()}\n"
    mark = folder / MARK
    if mark.exists() and mark.read_text("utf-8") == origin:
        return
    print(f"quotebot: installing the packages of {lock.name} into {folder.name}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], f"{folder.name} could not be made")
    named = ("--require-hashes", "--requirement", str(lock))
    python = str(python_of(folder))
    quick = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--system-certs", "--python", python, *named]
    if importlib.util.find_spec("uv") is None or subprocess.run(quick, check=False).returncode:
        sure = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input", *named]
        _run(sure, f"pip could not install {lock.name}; nothing outside {folder.name} changed")
    mark.write_text(origin, "utf-8")


def _run(command: Sequence[str], trouble: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise CannotInstallError(f"quotebot: {trouble}.")
