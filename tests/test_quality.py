"""Tests of lint, format and types."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 300

pytestmark = pytest.mark.timeout(SECONDS + 10)


def findings(checkout: Path, *tool: str) -> str:
    """Return the tool's findings; empty if there are none."""
    done = subprocess.run([sys.executable, "-m", *tool], cwd=checkout, capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff_finds_nothing(checkout: Path) -> None:
    assert findings(checkout, "ruff", "check", "--quiet", ".") == ""


def test_every_file_is_formatted(checkout: Path) -> None:
    assert findings(checkout, "ruff", "format", "--check", "--quiet", ".") == ""


def test_mypy_finds_nothing(checkout: Path) -> None:
    present = [folder for folder in ("quotebot", "ledger", "adapters", "faults", "tests", "bench") if (checkout / folder).is_dir()]
    assert findings(checkout, "mypy", *present) == ""
