"""Location of the clients that run on Node; without them the tests that drive them are skipped.

npm install --prefix tests/node --no-package-lock
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("QUOTEBOT_NODE_FOLDER") or Path(__file__).resolve().parents[1] / "node")


def needs(package: str) -> pytest.MarkDecorator:
    """Return a marker that skips a test unless Node and this package are installed."""
    there = shutil.which("node") is not None and (FOLDER / "node_modules" / package).is_dir()
    return pytest.mark.skipif(not there, reason=f"no Node with {package}: npm install --prefix tests/node --no-package-lock")
