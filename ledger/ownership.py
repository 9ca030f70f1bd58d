"""Ownership of claims among the bot processes of one ledger, called replicas: who is alive, and who has died.

On SQLite there is one replica, which holds the instance lock: while it runs, every other process that claimed is dead. PostgreSQL
has several (postgres/replicas.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

MAIN: Final = "main"  # the name of a replica that was given no other


class LockHolder(NamedTuple):
    """The process that holds the lock of a replica, and whether that replica leads."""

    pid: int
    leads: bool


class Ownership(Protocol):
    """View of one replica: its own lock, and the signs of life of the others."""

    name: str
    alone: bool  # no other process claims at the same time
    term: int  # grows whenever the lock is taken again: the epoch may have been closed as dead in between

    def is_held(self) -> bool:
        """Return true while this replica holds its lock. While false, no claim and no outside call begins."""
        ...

    async def dead_epochs(self) -> list[int]:
        """Return the epochs that are open in the ledger and whose process is proven dead."""
        ...

    async def count(self) -> int:
        """Return the number of replicas alive, with this one."""
        ...

    async def leads(self) -> bool:
        """Return true if this replica does the work of which one copy is enough. Two may lead for a while, or none for seconds."""
        ...


class HeldLock(Ownership, Protocol):
    """Ownership that ends when the lock is released."""

    def close(self) -> None:
        """Release the lock."""
        ...


class SoleOwner:
    """Ownership of the only replica: its lock is released when its process ends, and taken by no other before."""

    __slots__ = ()
    name: str = MAIN
    alone: bool = True
    term: int = 0

    def is_held(self) -> bool:
        """Return true."""
        return True

    async def dead_epochs(self) -> list[int]:
        """Return no epoch: the start of this replica has closed the others."""
        return []

    async def count(self) -> int:
        """Return one."""
        return 1

    async def leads(self) -> bool:
        """Return true."""
        return True
