"""Verification of the audit: proves that it is complete and unchanged, or names the first faulty row.

Everything is read in one snapshot, page by page, so memory does not grow with the ledger. The order makes "first" exact: the seals
of the heads, then every event by its id (its MAC follows from rows that were proven before it), then whether the heads match the
existing events, then the anchors, last those kept elsewhere.

A missing event is known by its number if the ids are consecutive, as the schema version of the event after it says. If ids have
gaps, it is known by its place: the next event of its chain follows another one, or the sealed head names an event that is not
there. It is then named by chain and place (`Q-2026-0042 #7`), because no row that can be trusted says its id.

Keys: an event may be signed with any key of the keyring, but keys must come into use in the order of their files. An older key may
continue beside a newer one, because a bot signs with the key it started with. `KeyUse` reports how often and until when, so that an
operator can compare it with the time of the bot's restart.

The file alone cannot reveal that it was replaced as a whole, or truncated together with its heads. The anchors kept elsewhere
reveal that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ledger.audit.anchors import Anchor, chain_ends
from ledger.audit.events import EMPTY, EVENT_COLUMNS, WITH_GAPS, ChainHead, anchor_seal, head_seal, values_mac
from ledger.audit.history import Fault, Finding
from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ledger.audit.events import Keyring
    from ledger.audit.history import TableReplay
    from ledger.database import ReadAccess, Row, Tx

PAGE_ROWS: Final = 1_000
RECOMPUTED_ANCHORS: Final = 24  # the newest ones; each costs a pass over all heads

EVENTS: Final = "audit_events"
HEADS: Final = "audit_heads"
ANCHORS: Final = "audit_anchors"
AUDIT_TABLES: Final = (EVENTS, HEADS, ANCHORS)
KEPT_ELSEWHERE: Final = "anchors kept elsewhere"


@dataclass(slots=True)
class KeyUse:
    """Use of one signing key. `late` counts the events signed after a newer key came into use (by a bot not yet restarted)."""

    key_id: str
    first_event_id: int
    last_event_id: int
    last_at: int
    events: int = 0
    late: int = 0


@dataclass(slots=True)
class VerificationReport:
    """Verified rows, up to the first faulty row if there is one (`finding`)."""

    events: int = 0
    chains: int = 0
    anchors: int = 0
    anchors_recomputed: int = 0
    anchors_kept_elsewhere: int = 0
    keys: list[KeyUse] = field(default_factory=list)
    finding: Finding | None = None

    @property
    def sound(self) -> bool:
        """True if no row is faulty."""
        return self.finding is None


async def verify(
    database: ReadAccess,
    keyring: Keyring,
    *,
    anchors_kept_elsewhere: Sequence[Anchor] = (),
    every_anchor: bool = False,
    replay: Callable[[], TableReplay] | None = None,
) -> VerificationReport:
    """Verify all chains, heads and anchors, and the tables by `replay` (ledger/audit/history.py).

    `every_anchor` also recomputes the old anchors, which takes a pass over all heads for each.
    """
    return await database.read(
        lambda tx: _Verification(tx, keyring, anchors_kept_elsewhere, every_anchor=every_anchor, replay=replay).run()
    )


def verify_within(
    tx: Tx, keyring: Keyring, *, events_max: int, replay: Callable[[], TableReplay] | None = None
) -> VerificationReport | None:
    """Verify inside an open transaction, as `verify` does, or return None when there are more than `events_max` events."""
    if tx.one("audit_event_back", back=events_max) is not None:
        return None
    return _Verification(tx, keyring, (), every_anchor=False, replay=replay).run()


async def require_tail(database: ReadAccess, keyring: Keyring) -> None:
    """Verify the newest events and the newest anchor before a start. Raises AuditTailError naming the first faulty row."""
    found = await database.read(lambda tx: _Verification(tx, keyring, (), every_anchor=False).tail())
    if found is not None:
        raise AuditTailError(
            f"The end of the audit is not sound: {found.table} {found.row}: {found.meaning}. Nothing was started and nothing was "
            "changed. Keep a copy of the whole data folder, see all of it with `quotebot audit verify`, then put a backup back: "
            "quotebot restore FILE.db"
        )


class AuditTailError(DatabaseError):
    """The newest part of the audit was changed."""


def event_is_sound(keyring: Keyring, previous_mac: bytes, event: Any) -> bool:
    """Tell whether an event (a row, or its columns by name) carries the MAC of its columns and of the previous MAC."""
    key = keyring.keys.get(event["key_id"])
    try:
        values = [event[name] for name in EVENT_COLUMNS]
        return key is not None and values_mac(key, previous_mac, values) == event["mac"]
    except TypeError:  # a value of a type that no column has
        return False


class _TamperedError(Exception):
    def __init__(self, fault: Fault, table: str, row: object, meaning: str) -> None:
        super().__init__(meaning)
        self.finding = Finding(fault, table, str(row), meaning)


class _Verification:
    """One verification pass over one snapshot."""

    def __init__(
        self,
        tx: Tx,
        keyring: Keyring,
        kept: Sequence[Anchor],
        *,
        every_anchor: bool,
        replay: Callable[[], TableReplay] | None = None,
    ) -> None:
        self._tx = tx
        self._keys = keyring.keys
        self._keyring = keyring
        self._age = {key_id: age for age, key_id in enumerate(reversed(list(keyring.keys)))}  # the oldest key file is 0
        self._newest_key = -1
        self._uses: dict[str, KeyUse] = {}
        self._kept = sorted(kept, key=lambda anchor: anchor.last_event_id)
        self._every_anchor = every_anchor
        self._replay = None if replay is None else replay()
        self._marks: dict[int, tuple[int, bytes]] = {}  # at the last event of each anchor: chains so far, its MAC
        self._last = 0  # id of the last proven event
        self._numbered: int | None = None  # its schema version
        self._heads_seen = 0
        self._places = 0  # events that the heads count
        self._cut: tuple[int, str] | None = None  # first event that a head names and that is not there, and its chain
        self._empty_head: str | None = None  # aggregate id of a head that names an event of another chain
        self.report = VerificationReport()

    def run(self) -> VerificationReport:
        try:
            anchors = [*self._rows(ANCHORS, "audit_anchors_after", "id", 0)]
            self._marks = dict.fromkeys((row["last_event_id"] for row in anchors), (0, b""))
            self._marks |= {anchor.last_event_id: (0, b"") for anchor in self._kept}
            self._heads()
            self._events()
            self._ends()
            self._anchors(anchors)
            self._kept_elsewhere(anchors)
            found = None if self._replay is None else self._replay.finding(self._tx)  # the events are all proven at this point
            self.report.finding = found
        except _TamperedError as tampered:
            self.report.finding = tampered.finding
        finally:
            if self._replay is not None:
                self._replay.close()
        self.report.keys = sorted(self._uses.values(), key=lambda use: self._age[use.key_id])
        return self.report

    def tail(self) -> Finding | None:
        """Verify the newest page of events, the ends of their chains and the newest anchor, and return the fault."""
        before = self._tx.one("audit_event_back", back=PAGE_ROWS)
        start = self._last = 0 if before is None else before["id"]
        try:
            for aggregate_id in sorted(self._events()):
                self._sealed_head(self._tx.required("audit_head_sealed", aggregate_id=aggregate_id))
            cut = self._tx.one("audit_end_missing", after=start)
            if cut is not None:
                raise self._cut_off(*cut)
            newest = self._tx.one("last_audit_anchor")
            if newest is not None:
                anchor = Anchor.of(newest)
                self._sealed(anchor, ANCHORS)
                self._within(anchor, ANCHORS)
        except _TamperedError as tampered:
            return tampered.finding
        return None

    def _rows(self, table: str, statement: str, column: str, after: object) -> Iterator[Row]:
        limit = PAGE_ROWS
        while True:
            try:
                rows = self._tx.all(statement, after=after, limit=limit)
            except Exception as error:  # any error of the driver for an unreadable page
                if limit == 1:
                    where = after + 1 if isinstance(after, int) else f"after {after!r}"
                    raise _TamperedError(Fault.UNREADABLE, table, where, f"the row cannot be read ({error})") from error
                limit = 1  # row by row up to the unreadable one
                continue
            if not rows:
                return
            yield from rows
            after = rows[-1][column]

    def _heads(self) -> None:
        """Verify the seal of every head."""
        for row in self._rows(HEADS, "audit_heads_after", "aggregate_id", ""):
            self._sealed_head(row)
            named = (row["event_id"], row["aggregate_id"])
            if row["event_aggregate_id"] is None:
                self._cut = min(self._cut or named, named)
            elif row["event_aggregate_id"] != row["aggregate_id"]:
                self._empty_head = self._empty_head or row["aggregate_id"]
            self._heads_seen += 1
            self._places += row["seq"]

    def _sealed_head(self, row: Row) -> None:
        aggregate_id = row["aggregate_id"]
        key = self._keys.get(row["key_id"])
        if key is None:
            raise _TamperedError(Fault.UNKNOWN_KEY, HEADS, aggregate_id, self._unknown(row["key_id"]))
        try:
            sealed = head_seal(key, aggregate_id, ChainHead(row["event_id"], row["seq"], row["mac"])) == row["seal"]
        except (TypeError, AttributeError):  # a value of a type that no column has
            sealed = False
        if not sealed:
            raise _TamperedError(
                Fault.CHANGED, HEADS, aggregate_id, "the end of this chain was changed by somebody without the key"
            )

    def _events(self) -> set[str]:
        """Verify the events after the last proven one; return the chains they belong to."""
        report, chains = self.report, set[str]()
        for row in self._rows(EVENTS, "audit_events_after", "id", self._last):
            event_id = row["id"]
            jumps = event_id != self._last + 1 and row["schema_version"] != WITH_GAPS
            if jumps and self._numbered != WITH_GAPS and not self._may_jump(row):
                raise self._deleted(self._last + 1, event_id)
            self._event(row)
            if jumps:
                raise self._deleted(event_id - 1, event_id)
            if self._replay is not None:
                self._replay.see(row)
            chains.add(row["aggregate_id"])
            self._last, self._numbered = event_id, row["schema_version"]
            report.events += 1
            report.chains += row["seq"] == 1
            if event_id in self._marks:
                self._marks[event_id] = (report.chains, row["mac"])
        return chains

    def _event(self, row: Row) -> None:
        event_id, aggregate_id, seq = row["id"], row["aggregate_id"], row["seq"]
        if row["key_id"] not in self._keys:
            raise _TamperedError(Fault.UNKNOWN_KEY, EVENTS, event_id, self._unknown(row["key_id"]))
        starts = row["previous_id"] is None
        previous = EMPTY.mac if starts else row["previous_mac"]
        if previous is None or not event_is_sound(self._keyring, previous, row):
            raise self._unsound(row)
        follows = (row["previous_aggregate_id"], row["previous_seq"]) == (aggregate_id, seq - 1) and row["previous_id"] < event_id
        if not (seq == 1 if starts else follows):
            raise _TamperedError(
                Fault.CHANGED, EVENTS, event_id, f"it is signed, but it does not follow event {row['previous_id']}"
            )
        self._key_used(row)
        if row["head_seq"] is None:
            raise _TamperedError(Fault.MISSING, HEADS, aggregate_id, "the end of this chain was deleted")
        if seq > row["head_seq"] or (seq == row["head_seq"] and (event_id, row["mac"]) != (row["head_event_id"], row["head_mac"])):
            raise _TamperedError(
                Fault.CHANGED, HEADS, aggregate_id, f"the end of this chain was put back: event {event_id} is not in it"
            )

    def _unsound(self, row: Row) -> _TamperedError:
        """Return what is wrong at an event whose MAC does not fit: it was changed, or the one that it follows is missing.

        The one that it follows is missing only if no row has its id and no proven event has the place before this one: otherwise
        the id in `previous_id` was edited.
        """
        event_id, aggregate_id, seq = row["id"], row["aggregate_id"], row["seq"]
        if row["previous_id"] is not None and row["previous_mac"] is None:
            place = self._free_place(aggregate_id, event_id)
            if seq > place:
                words = f"the event is missing; the next one of its chain is {event_id}"
                return _TamperedError(Fault.MISSING, EVENTS, f"{aggregate_id} #{place}", words)
        words = f"event {seq} of {aggregate_id} ({row['event_type']}) was changed, moved or written by somebody without the key"
        return _TamperedError(Fault.CHANGED, EVENTS, event_id, words)

    def _may_jump(self, row: Row) -> bool:
        """Tell whether an event was signed as one with gaps before its id: then only its schema version was edited."""
        signed = {name: row[name] for name in (*EVENT_COLUMNS, "mac")} | {"schema_version": WITH_GAPS}
        return event_is_sound(self._keyring, row["previous_mac"] or EMPTY.mac, signed)

    def _deleted(self, event_id: int, next_id: int) -> _TamperedError:
        return _TamperedError(Fault.MISSING, EVENTS, event_id, f"the event was deleted; the next one there is {next_id}")

    def _cut_off(self, event_id: int, aggregate_id: str) -> _TamperedError:
        words = f"the end of this chain was cut off; it goes on to event {event_id}"
        if event_id > self._last and self._numbered != WITH_GAPS:
            words = f"the end of the audit was cut off; the chain {aggregate_id} goes on to event {event_id}"
            return _TamperedError(Fault.MISSING, EVENTS, self._last + 1, words)
        return _TamperedError(Fault.MISSING, EVENTS, f"{aggregate_id} #{self._free_place(aggregate_id, event_id)}", words)

    def _free_place(self, aggregate_id: str, before: int) -> int:
        """Return the place in a chain after its events with smaller ids."""
        last: int = self._tx.required("audit_place_before", aggregate_id=aggregate_id, before=before)["seq"]
        return last + 1

    def _key_used(self, row: Row) -> None:
        key_id, event_id = row["key_id"], row["id"]
        use = self._uses.get(key_id)
        age = self._age[key_id]
        if use is None:
            if age < self._newest_key:
                words = f"key {key_id} comes in after a newer one; keys come in in the order of their files"
                raise _TamperedError(Fault.UNKNOWN_KEY, EVENTS, event_id, words)
            use = self._uses[key_id] = KeyUse(key_id, event_id, event_id, row["at"])
            self._newest_key = age
        use.last_event_id, use.last_at = event_id, row["at"]
        use.events += 1
        use.late += age < self._newest_key

    def _ends(self) -> None:
        """Check, after the last event, that each head's event is there, and that the tables contain no other rows."""
        report = self.report
        if self._cut is not None:
            raise self._cut_off(*self._cut)
        twice = None if report.events == self._places else self._tx.one("audit_place_taken_twice")
        if twice is not None:
            words = f"it is signed, but another event has its place {twice['seq']} in the chain {twice['aggregate_id']}"
            raise _TamperedError(Fault.CHANGED, EVENTS, twice["id"], words)
        totals = self._tx.required("audit_totals")
        if totals["events"] != report.events:
            words = "no event of the ledger has such an id: it was put in from outside"
            raise _TamperedError(Fault.CHANGED, EVENTS, totals["first_event_id"], words)
        if not totals["heads"] == self._heads_seen == report.chains:
            words = f"there are {totals['heads']} heads for {report.chains} chains: one was put in from outside"
            raise _TamperedError(Fault.CHANGED, HEADS, self._empty_head or "", words)

    def _anchors(self, rows: list[Row]) -> None:
        newest_first = len(rows) if self._every_anchor else RECOMPUTED_ANCHORS
        sealed_before = 0
        for number, row in enumerate(rows, 1):
            if row["id"] != number:
                raise _TamperedError(Fault.MISSING, ANCHORS, number, f"the anchor was deleted; the next one there is {row['id']}")
            try:
                anchor = Anchor.of(row)
            except AttributeError as error:  # its seal is not a blob
                raise _TamperedError(Fault.CHANGED, ANCHORS, number, "the anchor was changed") from error
            self._sealed(anchor, ANCHORS)
            if anchor.last_event_id <= sealed_before:
                raise _TamperedError(Fault.CHANGED, ANCHORS, number, "it seals no more than the anchor before it")
            sealed_before = anchor.last_event_id
            self._within(anchor, ANCHORS)
            same = self._marks[anchor.last_event_id][0] == anchor.chains
            if same and number > len(rows) - newest_first:
                self.report.anchors_recomputed += 1
                same = chain_ends(self._tx, anchor.last_event_id).heads_sha256 == anchor.heads_sha256
            if not same:
                raise _TamperedError(Fault.ROLLED_BACK, ANCHORS, number, "the chains do not end where the anchor says they did")
            self.report.anchors += 1

    def _kept_elsewhere(self, rows: list[Row]) -> None:
        for anchor in self._kept:
            self._sealed(anchor, KEPT_ELSEWHERE)
            self._within(anchor, KEPT_ELSEWHERE)
            here = rows[anchor.id - 1] if 1 <= anchor.id <= len(rows) else None
            if here is None:
                words = f"the ledger has {len(rows)} anchors; this one of {_time(anchor.at)} was deleted, or the file was put back"
                raise _TamperedError(Fault.ROLLED_BACK, ANCHORS, anchor.id, words)
            _, mac = self._marks[anchor.last_event_id]
            if here["seal"].hex() != anchor.seal or mac.hex() != anchor.last_mac:
                words = (
                    f"it is not the one that was written on {_time(anchor.at)} and kept elsewhere: the file was put back to an "
                    "earlier day and went on from there"
                )
                raise _TamperedError(Fault.ROLLED_BACK, ANCHORS, anchor.id, words)
            self.report.anchors_kept_elsewhere += 1

    def _sealed(self, anchor: Anchor, table: str) -> None:
        key = self._keys.get(anchor.key_id)
        if key is None:
            raise _TamperedError(Fault.UNKNOWN_KEY, table, anchor.id, self._unknown(anchor.key_id))
        try:
            seal = anchor_seal(key, anchor.at, anchor.last_event_id, anchor.chains, anchor.heads_sha256)
        except TypeError:  # a value that no anchor has
            seal = b""
        if seal.hex() != anchor.seal:
            raise _TamperedError(Fault.CHANGED, table, anchor.id, "the anchor was changed by somebody without the key")

    def _within(self, anchor: Anchor, table: str) -> None:
        if anchor.last_event_id > self._last:
            where = "in the ledger" if table == ANCHORS else "kept elsewhere"
            words = (
                f"anchor {anchor.id} {where}, of {_time(anchor.at)}, seals events up to {anchor.last_event_id}: "
                "the end of the audit was cut off, or the file was put back to an earlier day"
            )
            raise _TamperedError(Fault.ROLLED_BACK, EVENTS, self._last + 1, words)

    def _unknown(self, key_id: object) -> str:
        files = len(self._keys)
        return f"it is signed with key {key_id}, which is in none of the {files} key files: one is missing, or the row is forged"


def _time(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
