"""Local copy of Salesforce objects, for each kind that the installation mirrors, and lookups in that copy.

A page and its cursor are stored in one transaction. A page that is read twice, by any process, is stored once; after a crash
between reading and storing it is read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.records import Position
from ledger import keys
from ledger.records import Delivered
from quotebot.dispatch.crm import readable
from quotebot.store import crm_mirror as store
from quotebot.store.crm_mirror import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.salesforce.api import Salesforce
    from adapters.salesforce.mapping import MirrorMapping
    from adapters.salesforce.records import OpenOpportunity
    from ledger.database import Database, Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect


MINUTE_MS: Final = 60_000
READINGS_MISSED: Final = 3  # a single late sync is tolerated


@dataclass(frozen=True, slots=True)
class MirrorReader:
    """Effect handler for crm.read of a mirrored kind."""

    ledger: Ledger
    salesforce: Salesforce | None

    async def perform(self, effect: Effect) -> Delivered:
        """Read the page after the last one and store it. Raises AdapterError."""
        salesforce = readable(self.salesforce)
        kind = str(effect.payload["kind"])
        wanted = salesforce.mapping.mirrors.get(kind)
        if wanted is None:
            what = f"The mapping of Salesforce has no part [mirror.{kind}]. Nothing was read."
            message = f"{what} Add it, or take {kind} out of crm_mirror."
            raise AdapterError(Failure.MAPPING, "mirror_unmapped", message)
        read_as = fingerprint(wanted)
        before = await self.ledger.database.read(lambda tx: store.cursor(tx, kind))
        after = before.position if before.read_as == read_as else Position()
        asked_at = self.ledger.clock.now_ms()
        page = await salesforce.mirrors.page(wanted, after, again=not before.more, correlation_id=effect.correlation_id)
        now = self.ledger.clock.now_ms()
        kept = await self.ledger.database.write(
            "keep_mirror_page",
            lambda tx: store.apply(tx, kind, before, page, read_as=read_as, asked_at=asked_at, now=now),
        )
        result: dict[str, Any] = {"kind": kind, "kept": len(page.kept), "deleted": len(page.deleted), "more": page.more and kept}
        return Delivered(None, result)


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


def is_stale(whole_at: int | None, minutes: int | None, now: int) -> bool:
    """Return true if a kind was never complete, has no interval, or missed several syncs; times are Unix milliseconds."""
    return whole_at is None or minutes is None or now - whole_at > READINGS_MISSED * minutes * MINUTE_MS


def fingerprint(wanted: MirrorMapping) -> str:
    """Return the digest of the object and its fields: it changes when the mapping of a kind changes."""
    return keys.digest([wanted.sobject, wanted.name, wanted.account, sorted(wanted.facts.items())])
