"""Place of a laboratory's ledger: a file in its data folder, or a database. Only this module tells them apart.

What concerns databases is loaded when it is needed: its driver is an extra.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from adapters.artefacts import Artefacts
from faults.checks.checker import house_of
from faults.lab import database
from faults.lab.reader import looking_at, read_only
from faults.lab.traps import TrappedFiles
from quotebot.sandbox.slack.directory import APPROVERS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from adapters.artefacts import ArtefactStore
    from faults.checks.evidence import House
    from faults.lab.traps import Trap
    from quotebot.settings import Settings


def engine_for(settings: Settings, trap: Trap) -> Any:
    """Return the engine of this place without its threads, whose writer passes the trap."""
    if settings.ledger_url is None:
        return database.engine(trap)
    from faults.lab import postgres  # noqa: PLC0415 -- as above

    return postgres.engine(trap)


def artefacts(settings: Settings, trap: Trap) -> ArtefactStore:
    """Return the store of rendered documents, whose changes pass the trap."""
    if settings.ledger_url is None:
        return Artefacts(settings.data_dir / "artefacts", TrappedFiles(trap))
    from faults.lab import postgres  # noqa: PLC0415 -- as above

    return postgres.TrappedDocuments(settings.ledger_url, trap)


def house(settings: Settings) -> House:
    """Return what the place says about the installation."""
    if settings.ledger_url is None:
        return house_of(settings.data_dir, approvers=APPROVERS)
    from faults.lab import ledgers  # noqa: PLC0415 -- as above

    return house_of(settings.data_dir, approvers=APPROVERS, document=partial(ledgers.read_document, settings.ledger_url))


@contextmanager
def reading(settings: Settings) -> Iterator[sqlite3.Connection]:
    """Yield a connection that reads the ledger while a bot may be running."""
    ledger = read_only(settings.ledger_path) if settings.ledger_url is None else _in_sqlite(settings.ledger_url)
    try:
        yield ledger
    finally:
        ledger.close()


def content(settings: Settings) -> sqlite3.Connection:
    """Return a connection to the present content, valid until the next call in this process. Do not close it."""
    return looking_at(settings.ledger_path) if settings.ledger_url is None else _in_sqlite(settings.ledger_url)


def copied(settings: Settings, folder: Path) -> Settings:
    """Copy the data folder to `folder`, and the database if there is one. No bot may be running then. Returns the new settings."""
    shutil.copytree(settings.data_dir, folder)
    if settings.ledger_url is None:
        return settings.model_copy(update={"data_dir": folder})
    from faults.lab import ledgers  # noqa: PLC0415 -- as above

    return settings.model_copy(update={"data_dir": folder, "ledger_url": ledgers.copy_of(settings.ledger_url)})


def forget(settings: Settings) -> None:
    """Delete the database of a copy; its folder is the caller's."""
    if settings.ledger_url is not None:
        from faults.lab import ledgers  # noqa: PLC0415 -- as above

        ledgers.drop(settings.ledger_url)


def _in_sqlite(url: str) -> sqlite3.Connection:
    from faults.lab import ledgers  # noqa: PLC0415 -- as above

    return ledgers.in_sqlite(url)
