"""Lookups in the local copy of Salesforce objects, for menus and for `doctor`. crm.py fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quotebot.store import crm_mirror as store
from quotebot.store.crm_mirror import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.salesforce.records import OpenOpportunity
    from ledger.database import Database, Tx


@dataclass(frozen=True, slots=True)
class MirrorLookup:
    """Lookups for menus in the local copy, with the time when the copy was last complete; None if it never was."""

    database: Database

    async def accounts(self, beginning: str) -> Found[str] | None:
        """Return the names of accounts that begin with `beginning`."""
        return await self._found(("accounts",), lambda tx: store.account_names(tx, beginning))

    async def opportunities(self, account: str, typed: str) -> Found[OpenOpportunity] | None:
        """Return the open opportunities of an account."""
        return await self._found(("accounts", "opportunities"), lambda tx: store.open_opportunities(tx, account, typed))

    async def contacts(self, account: str, typed: str) -> Found[str]:
        """Return the contacts of an account whose name contains the typed text; none if contacts are not mirrored."""
        piece = " ".join(typed.split()).casefold()
        return await self._found(("accounts", "contacts"), lambda tx: store.contacts(tx, account, piece)) or Found()

    async def _found(self, kinds: tuple[str, ...], read: Callable[[Tx], tuple[Any, ...]]) -> Found[Any] | None:
        def look(tx: Tx) -> Found[Any] | None:
            whole = [store.cursor(tx, kind).whole_at for kind in kinds]
            since = [at for at in whole if at is not None]
            return Found(read(tx), min(since)) if len(since) == len(whole) else None

        return await self.database.read(look)
