"""Stored file of each rendered document; inside an open ledger transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Tx

PAGE_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Artefact:
    """One rendered document. `rendered_at` is Unix milliseconds, UTC; both names are SHA-256 in hex."""

    render_key: str  # hash of everything that determines its appearance
    sha256: str  # hash of the file
    quote_id: str
    version: int
    pages: int
    rendered_at: int


def remember(tx: Tx, artefact: Artefact) -> None:
    """Record a stored file; repeating it has no effect."""
    tx.one(
        "insert_artefact",
        render_key=artefact.render_key,
        sha256=artefact.sha256,
        quote_id=artefact.quote_id,
        version=artefact.version,
        pages=artefact.pages,
        now=artefact.rendered_at,
    )


def of_key(tx: Tx, render_key: str) -> Artefact | None:
    """Return the latest file of a render key, or None."""
    row = tx.one("artefact_of_key", render_key=render_key)
    return None if row is None else Artefact(**dict(row))


def everything(tx: Tx) -> Iterator[Artefact]:
    """Yield all artefacts, page by page, within one transaction."""
    render_key = sha256 = ""
    while rows := tx.all("artefacts_after", render_key=render_key, sha256=sha256, limit=PAGE_ROWS):
        yield from (Artefact(**dict(row)) for row in rows)
        render_key, sha256 = rows[-1]["render_key"], rows[-1]["sha256"]


def under_way(tx: Tx) -> bool:
    """Return true while a document is being rendered or uploaded: its file may exist before its row."""
    return tx.one("renders_under_way") is not None
