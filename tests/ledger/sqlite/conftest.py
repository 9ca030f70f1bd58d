"""Fixtures: ledgers on SQLite only."""

from __future__ import annotations

import pytest


@pytest.fixture
def engine_name() -> str:
    return "sqlite"
