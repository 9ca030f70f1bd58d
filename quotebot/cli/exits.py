"""Exit statuses, the same for every command (SPEC 6), and how an error reaches a person."""

from __future__ import annotations

import sys
from typing import Final

OK: Final = 0
UNEXPECTED: Final = 1
REFUSED: Final = 3  # some failed or were refused
NOTHING_MATCHED: Final = 4
USAGE: Final = 64
CONFLICT: Final = 65
UNAVAILABLE: Final = 69
PENDING: Final = 75  # still under way, or locked by another process
CONFIG: Final = 78


def complain(message: str) -> None:
    """Say what failed on stderr: stdout carries data only."""
    print(message, file=sys.stderr)
