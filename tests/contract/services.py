"""The two sides of every contract test: the stand-in, and the real service if its credentials are in the environment."""

from __future__ import annotations

import os
from typing import Final

import pytest

STAND_IN: Final = "stand-in"
REAL: Final = "real"
PREFIX: Final = "QUOTEBOT_CONTRACT_"


def both(*names: str) -> list[object]:
    """Return the parameters of a fixture; the real side is skipped unless every variable QUOTEBOT_CONTRACT_<name> is set."""
    missing = [PREFIX + name for name in names if not os.environ.get(PREFIX + name)]
    without = pytest.mark.skipif(bool(missing), reason=f"not set: {', '.join(missing)} (docs/contract-tests.md)")
    return [STAND_IN, pytest.param(REAL, marks=[pytest.mark.enable_socket, without])]


def given(name: str) -> str:
    """Return one of the variables; empty if it is not set."""
    return os.environ.get(PREFIX + name, "")
