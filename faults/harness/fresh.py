"""An unused ledger, as a first start leaves it, made without running its hundred and fifty statements each time.

It is for tests that start on a ledger. The first start itself is tested by tests/ledger/engine and by the fault suites.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.sqlite.file import APPLICATION_ID
from ledger.sqlite.migrations import migrate

if TYPE_CHECKING:
    from ledger.migrations import Migration

_DRAWN: Final = re.compile(rb"ledger_id[0-9a-f]{8}")  # each ledger has a random id


def lay(path: Path, migrations: tuple[Migration, ...], now_ms: int) -> None:
    """Create an empty ledger with this schema and its own random id, made at `now_ms`, unless the file exists."""
    if path.exists():
        return
    empty = _empty(migrations, now_ms)
    named, times = _DRAWN.subn(b"ledger_id" + secrets.token_hex(4).encode(), empty)
    if times != 1:
        raise ValueError(f"an empty ledger names its id {times} times")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(file, "wb") as ledger:
        ledger.write(named)


@functools.cache
def _empty(migrations: tuple[Migration, ...], now_ms: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="quotebot-empty-") as folder:
        path = Path(folder) / "ledger.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            migrate(connection, migrations, now_ms)
        return path.read_bytes()
