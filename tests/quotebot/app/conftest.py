"""An empty database, for tests of installations on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@pytest.fixture
def url(create_database: Callable[[Sequence[str]], str]) -> str:
    """Return the address of an empty database."""
    return create_database(())
