"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# No deadline per example: the machine is shared with the other workers, so slowness would be noise. The number stays low enough
# for the whole suite to be run before every change.
settings.register_profile("quotebot", deadline=None, max_examples=60)
settings.load_profile("quotebot")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
