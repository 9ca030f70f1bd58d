"""Tests of the audit of installed packages: an unavailable service is never reported as clean, and every licence was reviewed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.advisories import LOCKS, UNAVAILABLE, Package, audit, licences, locked

if TYPE_CHECKING:
    from pathlib import Path

HOLE: Final = {"name": "jinja2", "version": "3.1.6", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.7"]}]}
CLEAN: Final = {"name": "attrs", "version": "26.1.0", "vulns": []}
LOCK: Final = """\
attrs==26.1.0 \\
    --hash=sha256:0
not-here-at-all==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:0
    # via nobody==1
"""


def saying(told: object, *, status: int, words: str = "") -> list[str]:
    """Return the command of a fake pip-audit with this answer."""
    program = f"import sys; print({json.dumps(told)!r}); print({words!r}, file=sys.stderr); sys.exit({status})"
    return [sys.executable, "-c", program]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(LOCK)
    return path


@pytest.mark.parametrize(
    ("told", "ended", "status", "printed"),
    [
        ({"dependencies": [CLEAN]}, 0, 0, "requirements.lock: 0 known holes in 2 packages"),
        ({"dependencies": [CLEAN, HOLE]}, 1, 1, "jinja2 3.1.6: PYSEC-1, mended by 3.1.7"),
        ({"dependencies": [{**HOLE, "vulns": [{"id": "CVE-1"}]}]}, 1, 1, "CVE-1, mended by no version yet"),
        ("", 1, UNAVAILABLE, "could not be asked (no route to host). Nothing is known"),
        ({"error": "x"}, 0, UNAVAILABLE, "Nothing is known"),
    ],
)
def test_a_hole_a_clean_answer_and_no_answer_are_three_things(
    told: Any, ended: int, status: int, printed: str, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(saying(told, status=ended, words="no route to host"), [lock]) == status
    assert printed in capsys.readouterr().out


def test_a_command_that_is_not_there_is_no_clean_answer(lock: Path) -> None:
    assert audit(["/nowhere/pip-audit"], [lock]) == UNAVAILABLE


def test_a_lock_is_read_with_the_licences_of_what_is_installed(lock: Path) -> None:
    assert locked(lock) == [Package("attrs", "26.1.0", "MIT"), Package("not-here-at-all", "1.0", None)]


def test_every_licence_of_what_the_product_brings_is_known(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert licences(checkout / LOCKS[0]) == 0, capsys.readouterr().out
    assert len(capsys.readouterr().out.splitlines()) > 50


def test_a_licence_that_is_none_or_strange_does_not_fit() -> None:
    assert [Package("a", "1", licence).fits for licence in ("", "GPL-3.0-only", "AGPL", "GPL or MPL 1.1", None)] == [
        *(False, False, False),
        *(True, True),
    ]
