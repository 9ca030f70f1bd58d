"""Repricing check: prices every stored snapshot again with its own ruleset, and reports each that is not the same to the byte.

Snapshots are read in pages and nothing is written, so the check may run beside a bot and over any number of quotes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot.domain.catalogue.rulesets import Ruleset, RulesetError
from quotebot.domain.pricing import engine
from quotebot.store import rulesets as store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger

AT_ONCE: Final = 200
RULESETS_KEPT: Final = 8  # parsed rulesets; neighbouring quotes mostly share one


@dataclass(frozen=True, slots=True)
class Repriced:
    """One stored snapshot, priced again. `ruleset_version` is the ledger's number of its ruleset, None if that is not stored.

    `differences` lists the deviations, old and new; empty if the result is the same to the byte.
    """

    quote_id: str
    version: int
    ruleset: str
    ruleset_version: int | None
    differences: tuple[str, ...]


class Repricing:
    """Repricing of one ledger's snapshots. `builtin` is the ruleset of quotes that are older than the ledger's rulesets."""

    def __init__(self, ledger: Ledger, builtin: Ruleset) -> None:
        self._ledger = ledger
        self._builtin = builtin
        self._parsed: dict[tuple[str, str], tuple[int | None, Ruleset | None]] = {}

    async def count(self) -> int:
        """Return the number of snapshots."""
        row = await self._ledger.database.read(lambda tx: tx.one("count_snapshots"))
        return 0 if row is None else int(row["snapshots"])

    async def all(self) -> AsyncIterator[Repriced]:
        """Yield every snapshot, by quote and version."""
        rows = await self._after("", 0)
        while rows:
            for repriced in rows:
                yield repriced
            rows = await self._after(rows[-1].quote_id, rows[-1].version)

    async def _after(self, quote_id: str, version: int) -> list[Repriced]:
        def work(tx: Tx) -> list[Repriced]:
            rows = tx.all("snapshots_after", quote_id=quote_id, version=version, limit=AT_ONCE)
            return [self._repriced(tx, row) for row in rows]

        return await self._ledger.database.read(work)

    def _repriced(self, tx: Tx, row: Row) -> Repriced:
        text: str = row["pricing"]
        named = {"quote_id": row["quote_id"], "version": row["version"], "ruleset": row["ruleset"]}
        try:
            snapshot: dict[str, Any] = json.loads(text)
            stored = engine.from_canonical(snapshot)
        except (ValueError, ArithmeticError) as error:
            return Repriced(**named, ruleset_version=None, differences=(f"the snapshot cannot be read: {error}",))
        number, ruleset = self._ruleset(tx, stored.ruleset_hash, stored.ruleset)
        found = list(_altered(row, text, stored))
        if ruleset is None:
            found.append(f"its ruleset {engine.clipped(stored.ruleset)} is not stored, or cannot be read any more")
        else:
            found += engine.reprice(stored, ruleset)
        return Repriced(**named, ruleset_version=number, differences=tuple(found))

    def _ruleset(self, tx: Tx, ruleset_hash: str, label: str) -> tuple[int | None, Ruleset | None]:
        key = (ruleset_hash, label)
        if key not in self._parsed:
            if len(self._parsed) >= RULESETS_KEPT:
                self._parsed.clear()
            self._parsed[key] = self._look_up(tx, ruleset_hash, label)
        return self._parsed[key]

    def _look_up(self, tx: Tx, ruleset_hash: str, label: str) -> tuple[int | None, Ruleset | None]:
        row = store.of_snapshot(tx, ruleset_hash, label)
        if row is None:
            same = ruleset_hash == self._builtin.hash if ruleset_hash else label == self._builtin.label
            return None, self._builtin if same else None
        try:
            return row.version, store.document(tx, row.version)
        except RulesetError:
            return row.version, None


def _altered(row: Row, text: str, stored: engine.Pricing) -> list[str]:
    """Return the deviations of the stored text itself: its hash, its canonical form, and the ruleset's name beside it."""
    content: Any = engine.canonical(stored)
    found = []
    if keys.sha256(text.encode()) != row["pricing_hash"]:
        found.append("the snapshot is not what was stored: its hash differs")
    if keys.canonical_json(content).decode() != text:
        found.append("the snapshot is not in its canonical form")
    if row["ruleset"] != stored.ruleset:
        found.append(f"ruleset: {engine.clipped(row['ruleset'])} is now {engine.clipped(stored.ruleset)}")
    return found
