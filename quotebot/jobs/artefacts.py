"""Sweep of the document folder: keeps the stored files and the ledger's list of them consistent, and reports lost documents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from adapters.failures import AdapterError
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from adapters.artefacts import Artefacts
    from ledger.database import Database
    from quotebot.store.quotes import Artefact

RESTORED_MAX: Final = 100  # per sweep: other work waits for the renderer too
log = structlog.get_logger(__name__)


class ArtefactSweep:
    """Repeated sweep. A file without a row is removed only if the previous sweep saw it too: by then no running work owns it."""

    def __init__(self, database: Database, artefacts: Artefacts, restore: Callable[[Artefact], Awaitable[bool]]) -> None:
        self._database = database
        self._artefacts = artefacts
        self._restore = restore
        self._strays: frozenset[str] = frozenset()
        self._lost: set[str] = set()  # tried and reported once in this process

    async def sweep(self) -> tuple[int, int, int]:
        """Run one sweep; return the numbers of files without a document removed, files rendered again, and documents lost.

        Raises AdapterError if the disk refuses; the changes made until then remain.
        """
        stored = await asyncio.to_thread(self._artefacts.names)
        known, under_way = await self._database.read(lambda tx: (tuple(store.all_artefacts(tx)), store.renders_under_way(tx)))
        removed = await self._remove(stored - {each.sha256 for each in known}, under_way=under_way)
        missing = [each for each in known if each.sha256 not in stored and each.sha256 not in self._lost]
        restored = await self._bring_back(missing[:RESTORED_MAX])
        if removed or missing:
            log.info("artefacts.swept", removed=removed, restored=restored, lost=len(self._lost))
        return removed, restored, len(self._lost)

    async def _remove(self, strays: frozenset[str], *, under_way: bool) -> int:
        doomed = frozenset() if under_way else strays & self._strays  # a file is written before its row
        for sha256 in sorted(doomed):
            await asyncio.to_thread(self._artefacts.remove, sha256)
        self._strays = strays - doomed
        return len(doomed)

    async def _bring_back(self, missing: list[Artefact]) -> int:
        restored = 0
        for each in missing:
            try:
                again = await self._restore(each)
            except AdapterError as error:
                log.warning("artefacts.not_restored", quote=each.quote_id, version=each.version, error=str(error))
                break  # the same error would stop the next ones; the next sweep tries again
            restored += again
            if not again:
                self._lost.add(each.sha256)
                log.error(
                    "artefacts.lost",
                    quote=each.quote_id,
                    version=each.version,
                    sha256=each.sha256,
                    do="other fonts, branding or build make other bytes now: take it from a backup or from Slack",
                )
        return restored
