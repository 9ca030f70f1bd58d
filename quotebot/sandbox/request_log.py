"""The request log: an ordered record of every request that the world received, and of whether it took effect.

Checkers trust it over the bot's own ledger, because the services themselves write it.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from quotebot.sandbox.chance import Signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request as the world received it. `at` is Unix seconds; `key` is the bot's own key where the protocol carries one."""

    seq: int
    at: float
    system: str  # slack | salesforce | llm | socket
    method: str  # chat.postMessage, composite/graph, ack, ...
    key: str | None
    applied: bool
    status: int | str | None  # HTTP status, Slack error code, or None when the connection was cut
    request_hash: str


class Witness:
    """Append-only request log, in memory, optionally mirrored to a JSON-lines file that survives a crash of the world."""

    def __init__(self, path: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._sightings: list[LoggedRequest] = []
        self._path = path
        self._now = now
        self._changed = Signal()

    def record(
        self, system: str, method: str, *, key: str | None, applied: bool, status: int | str | None, request: bytes | str
    ) -> LoggedRequest:
        """Append one entry; `request` is the raw body, of which only the hash is kept."""
        raw = request.encode() if isinstance(request, str) else request
        sighting = LoggedRequest(
            seq=len(self._sightings) + 1,
            at=self._now(),
            system=system,
            method=method,
            key=key,
            applied=applied,
            status=status,
            request_hash=hashlib.sha256(raw).hexdigest(),
        )
        self._sightings.append(sighting)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(sighting)) + "\n")
        self._changed.fire()
        return sighting

    def since(self, seq: int = 0) -> list[LoggedRequest]:
        """Return every entry after `seq`, in order."""
        return self._sightings[seq:]

    async def wait(self) -> None:
        """Return at the next entry."""
        await self._changed.wait()
