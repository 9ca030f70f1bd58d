"""The first start of an installation, distinguished from a lost ledger.

A missing or empty ledger beside audit keys, anchors, documents or backups is a lost one (a disk that is not mounted, a wrong `rm`):
a new one would allocate every quote number again. Only a folder without any of these, or `quotebot run --new`, begins a ledger. A
marker file records the first start until the ledger exists, so that an interrupted first start can continue.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ledger.audit.anchors import LOG_NAME
from ledger.audit.keyring import key_files
from ledger.audit.proof import KEY_NAME
from ledger.operator import switch
from ledger.operator.backup import FOLDER
from quotebot.settings import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.settings import Settings

MARKER: Final = "ledger.beginning"
NAMED: Final = 4  # traces listed in the error
_DOCUMENTS: Final = "artefacts"


class LedgerLostError(ConfigurationError):
    """The ledger existed and is lost."""


def require_ledger_or_beginning(settings: Settings) -> None:
    """Raise LedgerLostError if an earlier ledger is missing or empty. Marks a first start."""
    require_ledger(settings)
    if _is_missing(settings.ledger_path):
        _mark(settings.data_dir / MARKER)


def ledger_begun(path: Path) -> None:
    """Remove the marker of a first start: the ledger at `path` is open."""
    marker = path.with_name(MARKER)
    if marker.exists():
        with contextlib.suppress(OSError):  # the folder may have become read-only
            marker.unlink()


def require_ledger(settings: Settings) -> None:
    """Raise LedgerLostError if the ledger is missing or empty and the folder has traces of an earlier one. Changes nothing."""
    if not _is_missing(settings.ledger_path) or (settings.data_dir / MARKER).exists():
        return
    found = traces_of_ledger(settings)
    if not found:
        return
    state = "is empty" if settings.ledger_path.exists() else "is missing"
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    raise LedgerLostError(
        f"The ledger {settings.ledger_path.absolute()} {state}, but there was one: its folder has "
        f"{', '.join(found[:NAMED])}{more}. Nothing was done. Is the disk mounted? Otherwise put a backup back: quotebot restore "
        "FILE.db. To begin an empty ledger on purpose: quotebot run --new; its quote numbers begin anew, so numbers that were "
        "given out appear twice."
    )


def begin_anew(settings: Settings) -> list[str]:
    """Allow the next start to begin an empty ledger; return the traces of an older one. Raises ConfigurationError if one exists."""
    if not _is_missing(settings.ledger_path):
        raise ConfigurationError(
            f"There is a ledger at {settings.ledger_path.absolute()}. Nothing was started. --new is for a folder whose ledger is "
            "lost."
        )
    found = traces_of_ledger(settings)
    _mark(settings.data_dir / MARKER)
    return found


def traces_of_ledger(settings: Settings) -> list[str]:
    """Return the names of files and folders that exist only if the installation had a ledger."""
    folder = settings.data_dir
    if not folder.is_dir():
        return []
    files = [*key_files(folder), *(folder / name for name in (LOG_NAME, KEY_NAME))]
    put_aside = sorted(folder.glob("replaced-*"))
    folders = [folder / name for name in (_DOCUMENTS, FOLDER)]
    filled = [each for each in folders if each.is_dir() and any(file.is_file() for file in each.rglob("*"))]
    return [path.name for path in (*files, *filled, *put_aside) if path.exists()]


def _is_missing(path: Path) -> bool:
    if switch.ready(path).exists():  # an interrupted restore: the next open finishes it
        return False
    wal = path.with_name(f"{path.name}-wal")
    return not any(each.exists() and each.stat().st_size for each in (path, wal))


def _mark(marker: Path) -> None:
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker.touch(mode=0o600)
