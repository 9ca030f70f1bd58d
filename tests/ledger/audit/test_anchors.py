"""Tests of anchors: their contents, when they are written, and their copies."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import pytest
import structlog

from ledger.audit.anchors import ANCHOR_EVERY_MS, LOG_NAME, Anchor, anchor_due, keep_anchors, read_lines, write_anchor
from ledger.audit.events import anchor_seal
from ledger.audit.verification import verify
from ledger.ledger import Ledger
from tests.ledger.parts import AUDIT, KEYRING, START_MS, sure
from tests.ledger.places import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.database import Database, Tx
    from tests.ledger.parts import Desk

T = TypeVar("T")

ANCHOR = Anchor(1, START_MS, 10, 2, "f" * 64, "k", "s")


def lines(folder: Path) -> list[Anchor]:
    return read_lines((folder / LOG_NAME).read_text("utf-8"))


async def test_an_anchor_seals_every_chains_end_in_the_order_of_their_ids(desk: Desk, tmp_path: Path) -> None:
    for request_id, aggregate_id in (("r1", "Q-2"), ("r2", "Q-10"), ("r3", "Q-\u00fc"), ("r4", "Q-2")):
        await desk.reserve(request_id, aggregate_id=aggregate_id)
    anchor = sure(await write_anchor(desk.ledger, tmp_path, START_MS))
    heads = desk.rows("SELECT aggregate_id, event_id, seq, mac FROM audit_heads")
    ends = sorted([row["aggregate_id"], row["event_id"], row["seq"], row["mac"].hex()] for row in heads)
    expected = hashlib.sha256(json.dumps(ends, separators=(",", ":")).encode()).hexdigest()
    newest = desk.value("SELECT max(id) FROM audit_events")
    assert (anchor.id, anchor.at, anchor.last_event_id, anchor.chains) == (1, START_MS, newest, len(ends))
    assert anchor.heads_sha256 == expected
    assert bytes.fromhex(anchor.seal) == anchor_seal(KEYRING.current[1], START_MS, newest, len(ends), expected)
    (row,) = desk.rows("SELECT * FROM audit_anchors")
    assert Anchor.of(row) == anchor


async def test_an_anchor_is_copied_to_the_log_file_and_to_the_log_stream(desk: Desk, tmp_path: Path) -> None:
    await desk.reserve()
    with structlog.testing.capture_logs() as logged:
        anchor = sure(await write_anchor(desk.ledger, tmp_path, START_MS))
    mac = desk.value("SELECT mac FROM audit_events WHERE id = ?", anchor.last_event_id)
    expected = {**asdict(anchor), "last_mac": mac.hex()}
    assert [asdict(line) for line in lines(tmp_path)] == [expected]
    assert logged == [{"event": "audit.anchor", "log_level": "info", **expected}]
    assert (tmp_path / LOG_NAME).stat().st_mode & 0o777 == 0o600
    assert read_lines(json.dumps(logged[0])) == lines(tmp_path)  # the stream can be given to the verifier, too


@pytest.mark.parametrize(
    ("newest", "last_event_id", "now", "due"),
    [
        (None, 0, START_MS, False),
        (None, 1, START_MS, True),
        (ANCHOR, 11, START_MS + ANCHOR_EVERY_MS - 1, False),
        (ANCHOR, 11, START_MS + ANCHOR_EVERY_MS, True),
        (ANCHOR, 10, START_MS + ANCHOR_EVERY_MS, False),  # no event since
        (ANCHOR, 11, START_MS - 1, True),  # the clock went back: no hour is waited for twice
    ],
)
def test_an_anchor_is_due_an_hour_after_the_last_one_when_something_happened(
    newest: Anchor | None, last_event_id: int, now: int, *, due: bool
) -> None:
    assert anchor_due(newest, last_event_id, now) is due


async def test_housekeeping_writes_one_anchor_an_hour(desk: Desk, tmp_path: Path) -> None:
    assert await keep_anchors(desk.ledger, tmp_path) is None
    await desk.reserve("r1")
    assert sure(await keep_anchors(desk.ledger, tmp_path)).id == 1
    await desk.reserve("r2")
    assert await keep_anchors(desk.ledger, tmp_path) is None
    desk.clock.advance(ANCHOR_EVERY_MS)
    assert sure(await keep_anchors(desk.ledger, tmp_path)).id == 2
    desk.clock.advance(ANCHOR_EVERY_MS)
    assert await keep_anchors(desk.ledger, tmp_path) is None
    assert [line.id for line in lines(tmp_path)] == [1, 2]


async def test_an_empty_ledger_gets_no_anchor(ledger: Ledger, tmp_path: Path) -> None:
    assert await write_anchor(ledger, tmp_path, START_MS) is None
    assert not (tmp_path / LOG_NAME).exists()


async def test_two_anchors_of_the_same_moment_are_one(desk: Desk, tmp_path: Path) -> None:
    await desk.reserve()
    written = await asyncio.gather(*(write_anchor(desk.ledger, tmp_path, START_MS) for _ in range(3)))
    assert [anchor is None for anchor in written].count(False) == 1
    assert [line.id for line in lines(tmp_path)] == [1]


@pytest.mark.parametrize("damage", ["lost", "torn", "none whole"])
async def test_lines_that_a_crash_kept_out_of_the_log_come_with_the_next_anchor(damage: str, desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    for number in (1, 2):
        await desk.reserve(f"r{number}")
        await write_anchor(desk.ledger, tmp_path, START_MS + number)
    first, second = log.read_bytes().splitlines(keepends=True)
    log.write_bytes({"lost": first, "torn": first + second[:-30], "none whole": first[:-1]}[damage])
    await desk.reserve("r3")
    await write_anchor(desk.ledger, tmp_path, START_MS + 3)
    assert [line.id for line in lines(tmp_path)] == [1, 2, 3]
    assert log.read_bytes().startswith(first + second)


class Racing:
    """A database in which another writer writes right after each read."""

    def __init__(self, database: Database, desk: Desk) -> None:
        self._database = database
        self._desk = desk
        self._number = 0
        self.write = database.write
        self.close = database.close
        self.tend = database.tend
        self.health = database.health

    async def read(self, work: Callable[[Tx], T]) -> T:
        result = await self._database.read(work)
        self._number += 1
        await self._desk.reserve(f"race{self._number}", aggregate_id=f"Q-{self._number}")
        return result


async def test_what_is_written_while_an_anchor_is_made_is_not_in_it_and_does_no_harm(
    desk: Desk, database: Database, tmp_path: Path
) -> None:
    await desk.reserve()
    racing = Ledger(Racing(database, desk), desk.clock, AUDIT)
    anchor = sure(await write_anchor(racing, tmp_path, START_MS))
    assert anchor.last_event_id < desk.value("SELECT max(id) FROM audit_events")
    report = await verify(database, KEYRING, anchors_kept_elsewhere=lines(tmp_path))
    assert report.sound
    assert report.anchors_recomputed == 1


async def test_more_heads_than_a_page_and_long_chains_are_recomputed(desk: Desk, database: Database, tmp_path: Path) -> None:
    def work(tx: Tx) -> None:
        for number in range(2_500):
            AUDIT.append(tx, START_MS, "quote.moved", actor="a", actor_type="user", aggregate_id=f"Q-{number % 1_250}")

    for _ in range(2):
        await database.write("many", work)
        await write_anchor(desk.ledger, tmp_path, START_MS)
    report = await verify(database, KEYRING, anchors_kept_elsewhere=lines(tmp_path))
    assert (report.sound, report.events, report.chains, report.anchors_recomputed) == (True, 5_000, 1_250, 2)


async def test_only_the_newest_anchors_are_recomputed_unless_all_are_asked_for(
    desk: Desk, database: Database, tmp_path: Path
) -> None:
    for number in range(26):
        await desk.reserve(f"r{number}")
        await write_anchor(desk.ledger, tmp_path, START_MS + number)
    report = await verify(database, KEYRING)
    assert (report.sound, report.anchors, report.anchors_recomputed) == (True, 26, 24)
    report = await verify(database, KEYRING, every_anchor=True)
    assert (report.sound, report.anchors_recomputed) == (True, 26)


GOOD = Anchor(1, 1, 1, 1, "f", "k", "00", "00").line()


@pytest.mark.parametrize(
    "text", ["nonsense", "{}", "[]", '{"id": 1}', "\x00", GOOD.replace('"k"', "[]"), GOOD.replace(":1,", ":true,")]
)
def test_a_line_that_is_no_anchor_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="line 3 is no anchor"):
        read_lines(f"{GOOD}\n\n{text}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_anchors SET at = 1",
        "DELETE FROM audit_anchors",
        "INSERT INTO audit_anchors SELECT * FROM audit_anchors WHERE id = 1 ON CONFLICT (id) DO UPDATE SET at = 1",
        "INSERT INTO audit_anchors SELECT 7, at, last_event_id, chains, heads_sha256, key_id, seal FROM audit_anchors",
    ],
)
async def test_an_anchor_cannot_be_changed_replaced_or_deleted(statement: str, desk: Desk, tmp_path: Path) -> None:
    await desk.reserve()
    await write_anchor(desk.ledger, tmp_path, START_MS)
    with pytest.raises(Refused, match="anchors are append only"):
        desk.shell.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_heads SET seq = seq",
        "UPDATE audit_heads SET seq = seq - 1, event_id = event_id + 1",
        "UPDATE audit_heads SET seq = seq + 1",
        "UPDATE audit_heads SET aggregate_id = 'other', seq = seq + 1, event_id = event_id + 1",
        "DELETE FROM audit_heads",
    ],
)
async def test_the_end_of_a_chain_only_moves_forward(statement: str, desk: Desk) -> None:
    await desk.reserve()
    before = [tuple(row) for row in desk.rows("SELECT * FROM audit_heads")]
    with pytest.raises(Refused, match="a chain only grows"):
        desk.shell.execute(statement)
    assert [tuple(row) for row in desk.rows("SELECT * FROM audit_heads")] == before
