"""Exit statuses, the same for every command (SPEC 6), and the output of errors."""

from __future__ import annotations

import sys
from typing import Final

OK: Final = 0
UNEXPECTED: Final = 1
REFUSED: Final = 3  # some rows failed or were refused
NOTHING_MATCHED: Final = 4
USAGE: Final = 64
CONFLICT: Final = 65
UNAVAILABLE: Final = 69
PENDING: Final = 75  # in progress, or locked by another process
CONFIG: Final = 78


class UsageError(ValueError):
    """Invalid input; nothing was done."""


def complain(message: str, status: int = OK) -> int:
    """Print an error to stderr and return the exit status. Stdout carries data only."""
    print(message, file=sys.stderr)
    return status
