"""Persistence of the Salesforce mirror: stores pages and answers lookups; inside an open ledger transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from adapters.salesforce.records import MirrorPage, OpenOpportunity, Position
from ledger import keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.salesforce.mapping import MirrorMapping
    from ledger.database import Row, Tx
    from quotebot.domain.rules import Rules

OFFERED_MAX: Final = 20
MINUTE_MS: Final = 60_000
READINGS_MISSED: Final = 3  # a single late sync is tolerated
_LAST: Final = "\U0010ffff"  # sorts after every continuation of a name


T = TypeVar("T")


def fingerprint(wanted: MirrorMapping) -> str:
    """Return the digest of the object and its fields: it changes when the mapping of a kind changes."""
    return keys.digest([wanted.sobject, wanted.name, wanted.account, sorted(wanted.facts.items())])


@dataclass(frozen=True, slots=True)
class Cursor:
    """Sync position of one kind. `read_as` identifies the object and fields read; times are Unix milliseconds.

    `whole_at`: every change before it is stored here; None until a sync was complete.
    """

    position: Position = field(default_factory=Position)
    read_as: str = ""
    more: bool = False
    pages: int = 0
    read_at: int = 0
    whole_at: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Sync state of one kind, for operators."""

    kind: str
    records: int
    cursor: Cursor


def cursor(tx: Tx, kind: str) -> Cursor:
    """Return the cursor of a kind; an empty cursor before its first page."""
    row = tx.one("mirror_cursor", kind=kind)
    return Cursor() if row is None else _cursor(row)


def apply(tx: Tx, kind: str, before: Cursor, page: MirrorPage, *, read_as: str, asked_at: int, now: int) -> bool:
    """Store one page and its cursor; false, with nothing stored, if another page was stored since `before`."""
    anew = before.read_as != read_as
    whole_at = asked_at if not page.more else None if anew else before.whole_at
    moved = tx.one(
        "move_mirror_cursor",
        kind=kind,
        read_as=read_as,
        modstamp=page.position.modstamp,
        record_id=page.position.record_id,
        more=int(page.more),
        pages=before.pages,
        now=now,
        whole_at=whole_at,
    )
    if moved is None:
        return False
    if anew:
        tx.one("unmirror_kind", kind=kind)
    records = [
        {
            "kind": kind,
            "record_id": each.record_id,
            "name": each.name,
            "name_key": each.name.casefold(),
            "account_id": each.account_id,
            "facts": json.dumps(dict(each.facts), sort_keys=True),
        }
        for each in page.kept
    ]
    if records:
        tx.many("mirror_record", records)
    if page.deleted:
        tx.many("unmirror_record", [{"kind": kind, "record_id": each} for each in page.deleted])
    return True


def keep_only(tx: Tx, kinds: Iterable[str]) -> None:
    """Delete every kind but these."""
    wanted = frozenset(kinds)
    for row in tx.all("mirrored_kinds"):
        if row["kind"] not in wanted:
            tx.one("unmirror_kind", kind=row["kind"])
            tx.one("forget_mirror_cursor", kind=row["kind"])


def standings(tx: Tx) -> list[Standing]:
    """Return the sync state of every kind that was ever read."""
    return [Standing(row["kind"], row["records"], _cursor(row)) for row in tx.all("mirror_cursors")]


def account_names(tx: Tx, beginning: str) -> tuple[str, ...]:
    """Return account names that begin with `beginning` (case-folded), in order, at most 20."""
    rows = tx.all("mirrored_names", kind="accounts", beginning=beginning, past=beginning + _LAST, limit=OFFERED_MAX)
    return tuple(row["name"] for row in rows)


def open_opportunities(tx: Tx, account: str, typed: str) -> tuple[OpenOpportunity, ...]:
    """Return open opportunities of accounts named `account` whose own name contains `typed` (case-folded), at most 20."""
    rows = tx.all("mirrored_opportunities", account_key=account.casefold(), typed=typed, limit=OFFERED_MAX)
    return tuple(_opportunity(row) for row in rows)


def contacts(tx: Tx, account: str, typed: str) -> tuple[str, ...]:
    """Return contacts of accounts named `account` whose own name contains `typed` (case-folded), at most 20.

    The result includes the address: Jo Lee <jo@acme.example>.
    """
    rows = tx.all("mirrored_contacts", account_key=account.casefold(), typed=typed, limit=OFFERED_MAX)
    return tuple(f"{row['name']} <{row['email']}>" if row["email"] else str(row["name"]) for row in rows)


def with_segments(tx: Tx, rules: Rules, account: str, account_id: str | None, now: int) -> Rules:
    """Return the rules with the segments of a customer's mirrored account: that of the id, if given, else that of the name.

    There are none while the copy is stale or was read by another mapping, and if no account, or several, have the name.
    """
    wanted = rules.account_segments
    if wanted is None:
        return rules
    at = cursor(tx, "accounts")
    if at.read_as != wanted.read_as or is_stale(at.whole_at, wanted.minutes, now):
        return replace(rules, segments={})
    if account_id is None:
        rows = tx.all("mirrored_accounts", name=account, name_key=account.casefold())
    else:
        rows = tx.all("mirrored_account", record_id=account_id)
    found = json.loads(rows[0]["facts"]).get("segment") if len(rows) == 1 else None
    return replace(rules, segments=wanted.of(found))


def is_stale(whole_at: int | None, minutes: int | None, now: int) -> bool:
    """Return true if a kind was never complete, has no interval, or missed several syncs; times are Unix milliseconds."""
    return whole_at is None or minutes is None or now - whole_at > READINGS_MISSED * minutes * MINUTE_MS


def _opportunity(row: Row) -> OpenOpportunity:
    facts = json.loads(row["facts"])
    told = [str(facts.get(name, "")) for name in ("stage", "closes", "currency")]
    return OpenOpportunity(row["record_id"], row["account_id"], row["name"], *told)


def _cursor(row: Row) -> Cursor:
    at = Position(row["modstamp"], row["record_id"])
    return Cursor(at, row["read_as"], bool(row["more"]), row["pages"], row["read_at"], row["whole_at"])


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """Rows of a menu. `as_of` (Unix ms) is when they were read from Salesforce; None means just now."""

    rows: tuple[T, ...] = ()
    as_of: int | None = None
