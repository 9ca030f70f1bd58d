"""Persistence of ruleset versions, and the cached active ruleset, inside an open ledger transaction."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot.domain.catalogue.rulesets import Ruleset, canonical_ruleset, parse_ruleset
from quotebot.domain.language import _

if TYPE_CHECKING:
    from ledger.database import Row, Tx

LISTED_MAX: Final = 200
VERSION_MAX: Final = 1_000_000_000
HASH_CHARACTERS: Final = 12  # length of a hash shown to people


@dataclass(frozen=True, slots=True)
class RulesetVersion:
    """One stored version without its document. Times are Unix milliseconds."""

    version: int
    hash: str
    label: str  # name and version from the document, e.g. "acme 7"
    state: str  # "draft" | "active" | "retired" | "discarded"
    origin: str  # the files it was read from
    note: str | None
    imported_by: str
    imported_at: int
    activated_by: str | None
    activated_at: int | None
    retired_at: int | None
    products: int
    books: int


class ActiveRuleset:
    """The active ruleset. It is read in the caller's own transaction, and parsed again only after an activation.

    While the ledger has none, before the first start of a bot, `initial` is active. Its limit of a rate's age is the
    installation's, and holds for every ruleset.
    """

    def __init__(self, initial: Ruleset) -> None:
        self._initial = initial
        self.known = initial  # the ruleset of the last read

    def read(self, tx: Tx) -> Ruleset:
        """Return the active ruleset. Caching is safe in work that may run twice: a hash always means the same content."""
        row = tx.one("active_ruleset")
        if row is None:
            return self._initial
        known = self.known
        if row["hash"] != known.hash:
            stored = document(tx, row["version"])
            known = self.known = replace(stored, rate_days_max=self._initial.rate_days_max)
        return known


def active(tx: Tx) -> RulesetVersion | None:
    """Return the active version; None before the first start of a bot."""
    row = tx.one("active_ruleset")
    return None if row is None else load(tx, row["version"])


def load(tx: Tx, version: int) -> RulesetVersion | None:
    """Return a version, or None."""
    row = tx.one("ruleset_version", version=version)
    return None if row is None else _version(row)


def of_hash(tx: Tx, ruleset_hash: str) -> RulesetVersion | None:
    """Return the version with this content that is not discarded, or None."""
    row = tx.one("ruleset_of_hash", hash=ruleset_hash)
    return None if row is None else load(tx, row["version"])


def of_label(tx: Tx, label: str) -> RulesetVersion | None:
    """Return the version with this label that is not discarded, or None."""
    row = tx.one("ruleset_of_label", label=label)
    return None if row is None else load(tx, row["version"])


def of_snapshot(tx: Tx, ruleset_hash: str, label: str) -> RulesetVersion | None:
    """Return the version that priced a snapshot, or None. The oldest snapshots have no hash and are found by their label."""
    return of_hash(tx, ruleset_hash) if ruleset_hash else of_label(tx, label)


def pricing_words(tx: Tx, ruleset_hash: str, label: str) -> str:
    """Return a sentence on the version that priced a snapshot, and the version that a revision or a clone would use now."""
    row, now = of_snapshot(tx, ruleset_hash, label), active(tx)
    if row is None:
        return _("Its price list {name} isn't stored here.", name=label)
    there = f"{row.version} ({row.label})"
    if now is None or row.version == now.version:
        return _("Price list {name}, still the active one.", name=there)
    current = f"{now.version} ({now.label})"
    return _("Price list {name}. A new version would use price list {current}.", name=there, current=current)


def newest(tx: Tx) -> tuple[RulesetVersion, ...]:
    """Return the newest versions, the newest first, at most two hundred."""
    return tuple(_version(row) for row in tx.all("ruleset_versions", before=VERSION_MAX, limit=LISTED_MAX))


def document(tx: Tx, version: int) -> Ruleset:
    """Return a version's ruleset. Raises LookupError if there is none, RulesetError if this build cannot read it."""
    row = tx.one("ruleset_document", version=version)
    if row is None:
        raise LookupError(f"there is no version {version} of the ruleset")
    return _parsed(row["document"])


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Ruleset:
    """Parse a stored document once for all callers: a large one takes a second, and it never changes."""
    return parse_ruleset(json.loads(text), stored=True)


def insert(tx: Tx, ruleset: Ruleset, *, origin: str, note: str | None, actor: str, now: int) -> int:
    """Store a draft and return its version."""
    version: int = tx.required("next_ruleset_version")["version"]
    content: Any = canonical_ruleset(ruleset)
    text = keys.canonical_json(content).decode()
    named = {"version": version, "hash": ruleset.hash, "label": ruleset.label, "document": text}
    counted = {"products": len(ruleset.catalogue.products), "books": len(ruleset.books)}
    tx.one("insert_ruleset", **named, **counted, origin=origin, note=note, imported_by=actor, imported_at=now)
    return version


def activate(tx: Tx, version: int, *, actor: str, now: int) -> int | None:
    """Retire the active version and activate this one; returns the retired one. Raises LookupError if activation is not allowed."""
    retired = tx.one("retire_ruleset", now=now)
    if tx.one("activate_ruleset", version=version, actor=actor, now=now) is None:
        raise LookupError(f"version {version} of the ruleset cannot be activated")
    return None if retired is None else int(retired["version"])


def discard(tx: Tx, version: int) -> bool:
    """Discard a draft; false if the version is not a draft."""
    return tx.one("discard_ruleset", version=version) is not None


def _version(row: Row) -> RulesetVersion:
    return RulesetVersion(**{name: row[name] for name in RulesetVersion.__dataclass_fields__})
