"""Anchors: an hourly seal over the ends of all chains, stored in the ledger and outside of it.

The chains reveal every change to the file except one: replacing the whole file by an older copy. Only data kept elsewhere reveals
that. Each anchor is therefore also written as a line of `audit-anchors.log` beside the ledger and of the log stream. Copy either to
a place that nobody with write access to the ledger can change.

An anchor covers every event up to its last id and none that comes later, also where events commit out of the order of their ids:
a write that is `alone` reads that id. It does nothing else, so writers hardly wait: the heads are read in one snapshot on the
reader and walked back to that id, and an anchor is one row.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from ledger.audit.events import anchor_seal
from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.database import ReadAccess, Row, Tx
    from ledger.ledger import Ledger

ANCHOR_EVERY_MS: Final = 3_600_000
LOG_NAME: Final = "audit-anchors.log"
PAGE_ROWS: Final = 1_000
_TAIL_BYTES: Final = 4_096  # longer than any line

_NUMBERS: Final = frozenset({"id", "at", "last_event_id", "chains"})

log = structlog.get_logger(__name__)
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Anchor:
    """The ends of all chains when `last_event_id` was the newest event. `at` is Unix milliseconds; hashes and the seal are hex.

    `heads_sha256` is over the JSON list of [aggregate id, event id, seq, MAC in hex], sorted by aggregate id. `last_mac` is the MAC
    of the event `last_event_id`. Only lines kept elsewhere carry it, so that each line can be compared with the ledger by itself.
    """

    id: int
    at: int
    last_event_id: int
    chains: int
    heads_sha256: str
    key_id: str
    seal: str
    last_mac: str | None = None

    @classmethod
    def of(cls, row: Row, last_mac: bytes | None = None) -> Anchor:
        """Return the anchor of a row of audit_anchors."""
        return cls(
            row["id"],
            row["at"],
            row["last_event_id"],
            row["chains"],
            row["heads_sha256"],
            row["key_id"],
            row["seal"].hex(),
            None if last_mac is None else last_mac.hex(),
        )

    def line(self) -> str:
        """Return the anchor as one line of JSON."""
        return _encode({"event": "audit.anchor", **asdict(self)})


class ChainEnds(NamedTuple):
    """Snapshot of the ends of all chains."""

    last_event_id: int
    chains: int
    heads_sha256: str


def anchor_due(newest: Anchor | None, last_event_id: int, now: int) -> bool:
    """Tell whether an anchor is due: there are newer events, and an hour passed (or the clock went back)."""
    if newest is None:
        return last_event_id > 0
    return last_event_id > newest.last_event_id and not newest.at <= now < newest.at + ANCHOR_EVERY_MS


async def keep_anchors(ledger: Ledger, folder: Path) -> Anchor | None:
    """Write an anchor when one is due. A step of the bot's housekeeping; it may be called at any interval, such as every minute.

    Of several replicas the leader writes, and each copies what the others have written, so that every log is complete.
    """
    if not ledger.ownership.alone:
        await _copy_out(ledger, folder)
        if not await ledger.ownership.leads():
            return None
    now = ledger.clock.now_ms()

    def newest(tx: Tx) -> tuple[Anchor | None, int]:
        row = tx.one("last_audit_anchor")
        return (None if row is None else Anchor.of(row)), _last_event_id(tx)

    if not anchor_due(*await ledger.database.read(newest), now):
        return None
    return await write_anchor(ledger, folder, now)


async def write_anchor(ledger: Ledger, folder: Path, now: int) -> Anchor | None:
    """Seal the ends of all chains and copy the anchor out; None when there is no event that the newest anchor does not cover."""
    upto = await ledger.database.write("audit.barrier", _last_event_id, brief=True, alone=True)
    if upto == 0:
        return None
    standing = await ledger.database.read(lambda tx: chain_ends(tx, upto))
    key_id, key = ledger.audit.keyring.current
    seal = anchor_seal(key, now, *standing)

    def insert(tx: Tx) -> Anchor | None:
        tx.one("lock_job", name="audit.anchor")  # two leaders may be here at once
        row = tx.one("insert_audit_anchor", at=now, **standing._asdict(), key_id=key_id, seal=seal)
        return None if row is None else Anchor.of(row)

    anchor = await ledger.database.write("audit.anchor", insert)
    if anchor is not None:
        await _copy_out(ledger, folder)
    return anchor


async def _copy_out(ledger: Ledger, folder: Path) -> None:
    """Append the anchors that the log in a folder does not have."""
    path = folder / LOG_NAME
    logged = await asyncio.to_thread(_last_logged, path)
    owed = await ledger.database.read(lambda tx: list(_with_macs(tx, logged)))  # including anchors that a crash kept out of the log
    if owed:
        await asyncio.to_thread(_append, path, [missing.line() for missing in owed])
    for copied in owed:
        log.info("audit.anchor", **asdict(copied))


class RolledBackError(DatabaseError):
    """The ledger is older than the log of its anchors."""

    def __init__(self, anchor: Anchor) -> None:
        super().__init__(
            f"The ledger does not have the newest anchor of {LOG_NAME} in the data folder ({anchor.id}): it was put back to an "
            "earlier time. Nothing was started: calls that were made since would be made again, and quote numbers assigned twice. "
            "If that is the ledger to go on with: quotebot ledger begin-generation (docs/backup.md)."
        )


def require_newest(tx: Tx, folder: Path) -> bool:
    """Compare the newest anchor of the log in a folder with the ledger. Raises RolledBackError if the ledger does not have it.

    False: the log is from before the ledger's newest generation, so what it has beyond the ledger was lost before.
    """
    newest = _newest_logged(folder / LOG_NAME)
    if newest is None:
        return True
    row = next(iter(tx.all("audit_anchors_after", after=newest.id - 1, limit=1)), None)
    if row is not None and Anchor.of(row) == replace(newest, last_mac=None):
        return True
    generation = tx.one("last_generation")
    if generation is None or newest.at > generation["started_at"]:
        raise RolledBackError(newest)
    return False


async def follow_ledger(database: ReadAccess, folder: Path) -> None:
    """Put the log in a folder aside if it is from before the ledger's newest generation. Raises RolledBackError."""
    if not await database.read(lambda tx: require_newest(tx, folder)):
        await asyncio.to_thread(set_aside, folder)


def set_aside(folder: Path) -> None:
    """Give the log of an earlier ledger another name, so that a new one begins."""
    newest = _newest_logged(folder / LOG_NAME)
    if newest is not None:
        (folder / LOG_NAME).replace(folder / f"audit-anchors-until-{newest.at}.log")


def read_lines(text: str) -> list[Anchor]:
    """Read the anchors of a log or of a copy of it. Raises ValueError naming the first line that is not an anchor."""
    anchors = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found: dict[str, Any] = json.loads(line)
            values = {name: found[name] for name in Anchor.__slots__}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no anchor") from error
        if any(type(value) is not (int if name in _NUMBERS else str) for name, value in values.items()):
            raise ValueError(f"line {number} is no anchor")
        anchors.append(Anchor(**values))
    return anchors


def chain_ends(tx: Tx, upto: int) -> ChainEnds:
    """Return the ends of all chains when `upto` was the newest event; every event up to it must be committed.

    Uses the memory of one page of heads: the JSON list that is hashed is never held as a whole.
    """
    digest, chains, after = hashlib.sha256(b"["), 0, ""
    while page := tx.all("audit_head_page", after=after, limit=PAGE_ROWS):
        last: str = page[-1]["aggregate_id"]
        heads = tx.all("audit_heads_at", after=after, last=last, upto=upto)
        if heads:
            listed = _encode([(aggregate_id, event_id, seq, mac.hex()) for aggregate_id, event_id, seq, mac in heads])
            digest.update((b"," if chains else b"") + listed[1:-1].encode())  # without its brackets
        chains, after = chains + len(heads), last
    digest.update(b"]")
    return ChainEnds(upto, chains, digest.hexdigest())


def _last_event_id(tx: Tx) -> int:
    last: int | None = tx.required("last_audit_id")["id"]
    return last or 0


def _with_macs(tx: Tx, after: int) -> Iterator[Anchor]:
    while rows := tx.all("audit_anchors_after", after=after, limit=PAGE_ROWS):
        for row in rows:
            event = tx.one("audit_mac", id=row["last_event_id"])
            yield Anchor.of(row, b"" if event is None else event["mac"])
        after = rows[-1]["id"]


def _last_logged(path: Path) -> int:
    """Return the id of the last complete line; 0 if there is none or it is not an anchor: then all anchors are written again."""
    newest = _newest_logged(path)
    return 0 if newest is None else newest.id


def _newest_logged(path: Path) -> Anchor | None:
    """Return the anchor of the last complete line, or None."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]  # a last part without line end is a torn line
        return read_lines(lines[-1].decode())[-1]
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _append(path: Path, lines: list[str]) -> None:
    """Append complete lines durably; a line torn by a crash is removed first."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        tail = os.pread(descriptor, size - start, start)
        if tail and not tail.endswith(b"\n"):
            os.ftruncate(descriptor, start + tail.rfind(b"\n") + 1)
            os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
