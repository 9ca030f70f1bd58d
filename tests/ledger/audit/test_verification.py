# ruff: noqa: S608 -- the attacker writes SQL; every name in it is one of the lists below
"""Tests of an attacker with the file but without the key: every change is found, and the first bad row is named. Plain sqlite3."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.anchors import LOG_NAME, Anchor, read_lines, write_anchor
from ledger.audit.events import EVENT_COLUMNS, Audit, ChainHead, Keyring, anchor_seal, head_seal, key_id, values_mac
from ledger.audit.history import Fault
from ledger.audit.verification import ANCHORS, EVENTS, HEADS, RECOMPUTED_ANCHORS, verify
from ledger.ledger import Ledger
from ledger.migrations import SchemaChangedError
from tests.ledger.audit.parts import (
    ANCHOR_COLUMNS,
    ANCHORED,
    BLOBS,
    CHAINS,
    COLUMNS,
    EVENT_IDS,
    HEAD_COLUMNS,
    INTEGERS,
    NEW,
    OLD,
    OLD_RING,
    RING,
    STRANGE,
    Attacker,
    another,
    say,
    verified,
    written,
)
from tests.ledger.parts import START_MS, ManualClock, open_database

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.verification import VerificationReport


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of an unmodified ledger. Copy it before changing it."""
    folder = tmp_path_factory.mktemp("original")
    asyncio.run(written(folder))
    return folder


@pytest.fixture(scope="module")
def kept(original: Path) -> list[Anchor]:
    """Return the copies of the anchors."""
    return read_lines((original / LOG_NAME).read_text("utf-8"))


@pytest.fixture
def attacker(original: Path, tmp_path: Path) -> Attacker:
    return Attacker(original, tmp_path)


async def test_an_honest_ledger_is_whole(original: Path, kept: list[Anchor], tmp_path: Path) -> None:
    shutil.copytree(original, tmp_path / "copy")
    report = await verified(tmp_path / "copy" / "ledger.db", kept=kept, every_anchor=True)
    assert report.finding is None
    assert (report.events, report.chains, report.anchors, report.anchors_recomputed) == (8, 3, 2, 2)
    assert report.anchors_kept_elsewhere == len(ANCHORED)
    assert [(use.key_id, use.first_event_id, use.last_event_id, use.events, use.late) for use in report.keys] == [
        (OLD_RING.current_id, 1, 4, 4, 0),
        (RING.current_id, 5, 8, 4, 0),
    ]


async def test_an_empty_ledger_is_whole(tmp_path: Path) -> None:
    await (await open_database(tmp_path / "ledger.db", ManualClock())).close()
    report = await verified(tmp_path / "ledger.db")
    assert (report.finding, report.events, report.anchors) == (None, 0, 0)


async def test_a_ledger_that_is_being_written_to_is_verified_in_one_snapshot(tmp_path: Path) -> None:
    audit = Audit(frozenset({"quote.moved"}), RING)
    database = await open_database(tmp_path / "ledger.db", ManualClock(), audit=audit)
    try:
        for number in range(0, 100, 5):
            writing = [say(database, audit, f"Q-{number % 7}", number + more) for more in range(5)]
            report = asyncio.create_task(verify(database, RING))
            await asyncio.gather(*writing)
            assert (await report).sound
        assert (await verify(database, RING)).events == 100
    finally:
        await database.close()


# ---------------------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize("column", COLUMNS)
async def test_an_edit_of_any_column_of_any_event_names_that_event(column: str, attacker: Attacker) -> None:
    for event_id in EVENT_IDS:
        value = attacker.value(f"SELECT {column} FROM audit_events WHERE id = ?", event_id)
        edit = (f"UPDATE audit_events SET {column} = ? WHERE id = ?", (another(column, value), event_id))
        found = await attacker.finding(edit)
        assert (found.table, found.row) == (EVENTS, str(event_id)), found


@pytest.mark.parametrize("column", ["operation_key", "effect_id", "correlation_id", "retry_count", "before", "after"])
async def test_an_emptied_or_filled_column_names_its_event(column: str, attacker: Attacker) -> None:
    for event_id in EVENT_IDS:
        value = attacker.value(f"SELECT {column} FROM audit_events WHERE id = ?", event_id)
        changed = None if value is not None else 0 if column in INTEGERS else ""
        found = await attacker.finding((f"UPDATE audit_events SET {column} = ? WHERE id = ?", (changed, event_id)))
        assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.CHANGED)


@pytest.mark.parametrize("event_id", EVENT_IDS)
async def test_a_deleted_event_is_named_as_missing(event_id: int, attacker: Attacker) -> None:
    found = await attacker.finding(("DELETE FROM audit_events WHERE id = ?", (event_id,)))
    assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.MISSING)


@pytest.mark.parametrize("event_id", EVENT_IDS)
async def test_an_audit_cut_off_anywhere_names_the_first_event_that_is_gone(event_id: int, attacker: Attacker) -> None:
    found = await attacker.finding(("DELETE FROM audit_events WHERE id >= ?", (event_id,)))
    assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.MISSING)


@pytest.mark.parametrize("aggregate_id", sorted(set(CHAINS)))
async def test_a_chain_cut_short_names_the_first_event_that_is_gone(aggregate_id: str, attacker: Attacker) -> None:
    of_chain = [number for number, owner in enumerate(CHAINS, 1) if owner == aggregate_id]
    for event_id in of_chain:
        found = await attacker.finding(("DELETE FROM audit_events WHERE id >= ? AND aggregate_id = ?", (event_id, aggregate_id)))
        assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.MISSING)


@pytest.mark.parametrize(("first", "second"), [*combinations(EVENT_IDS, 2)])
async def test_two_swapped_events_name_the_first_of_them(first: int, second: int, attacker: Attacker) -> None:
    swap = "UPDATE audit_events SET id = ? WHERE id = ?"
    found = await attacker.finding((swap, (99, first)), (swap, (first, second)), (swap, (second, 99)))
    assert (found.table, found.row, found.fault) == (EVENTS, str(first), Fault.CHANGED)


@pytest.mark.parametrize("event_id", EVENT_IDS)
async def test_an_event_replaced_by_another_is_named(event_id: int, attacker: Attacker) -> None:
    donor = event_id % len(CHAINS) + 1
    copied = ", ".join(COLUMNS[1:])
    found = await attacker.finding(
        ("DELETE FROM audit_events WHERE id = ?", (event_id,)),
        (f"INSERT INTO audit_events (id, {copied}) SELECT ?, {copied} FROM audit_events WHERE id = ?", (event_id, donor)),
    )
    assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.CHANGED)


@pytest.mark.parametrize("event_id", [-7, 0, 9, 12])
async def test_an_event_put_in_from_outside_is_named(event_id: int, attacker: Attacker) -> None:
    copied = ", ".join(COLUMNS[1:])
    found = await attacker.finding(
        (f"INSERT INTO audit_events (id, {copied}) SELECT ?, {copied} FROM audit_events WHERE id = 8", (event_id,))
    )
    named = 9 if event_id == 12 else event_id  # the ids before it are missing
    assert (found.table, found.row) == (EVENTS, str(named))


def forged(attacker: Attacker, key: bytes, key_id: str) -> tuple[str, tuple[Any, ...]]:
    """Return the next event of Q-1, signed with the attacker's own key."""
    head = ChainHead(8, 4, attacker.value("SELECT mac FROM audit_heads WHERE aggregate_id = 'Q-1'"))
    fields: dict[str, Any] = dict.fromkeys(EVENT_COLUMNS)
    fields |= {"id": 9, "at": START_MS, "event_type": "quote.moved", "aggregate_id": "Q-1", "seq": 5, "previous_id": head.event_id}
    fields |= {"actor": "mallory", "actor_type": "user", "schema_version": 1, "key_id": key_id}
    fields["mac"] = values_mac(key, head.mac, [fields[name] for name in EVENT_COLUMNS])
    marks = ", ".join("?" * len(COLUMNS))
    return f"INSERT INTO audit_events ({', '.join(COLUMNS)}) VALUES ({marks})", tuple(fields[name] for name in COLUMNS)


@pytest.mark.parametrize("claimed", [RING.current_id, key_id(STRANGE)])
async def test_a_forged_event_is_named_whatever_key_it_claims(claimed: str, attacker: Attacker) -> None:
    found = await attacker.finding(forged(attacker, STRANGE, claimed))
    fault = Fault.CHANGED if claimed == RING.current_id else Fault.UNKNOWN_KEY
    assert (found.table, found.row, found.fault) == (EVENTS, "9", fault)


async def test_a_forged_event_with_a_forged_end_names_the_end(attacker: Attacker) -> None:
    sql, values = forged(attacker, STRANGE, RING.current_id)
    head = ChainHead(9, 5, values[-1])
    found = await attacker.finding(
        (sql, values),
        (
            "UPDATE audit_heads SET event_id = 9, seq = 5, mac = ?, seal = ? WHERE aggregate_id = 'Q-1'",
            (head.mac, head_seal(STRANGE, "Q-1", head)),
        ),
    )
    assert (found.table, found.row, found.fault) == (HEADS, "Q-1", Fault.CHANGED)


@pytest.mark.parametrize("event_id", EVENT_IDS)
async def test_an_event_that_cannot_even_be_read_is_named(event_id: int, attacker: Attacker) -> None:
    found = await attacker.finding(("UPDATE audit_events SET actor = CAST(x'ff' AS TEXT) WHERE id = ?", (event_id,)))
    assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.UNREADABLE)


async def test_a_table_made_lax_for_a_foreign_type_is_not_opened(attacker: Attacker) -> None:
    path = attacker.tamper()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("CREATE TABLE lax AS SELECT * FROM audit_events")
        shell.execute("DROP TABLE audit_events")
        shell.execute("ALTER TABLE lax RENAME TO audit_events")
        shell.execute("UPDATE audit_events SET actor = CAST(actor AS BLOB) WHERE id = 3")
    with pytest.raises(SchemaChangedError, match="table audit_events was changed"):
        await open_database(path, ManualClock())


TAMPERINGS = st.lists(
    st.tuples(st.sampled_from(EVENT_IDS), st.sampled_from([*COLUMNS[1:], "delete"]), st.integers(0, 2**31)), min_size=1, max_size=4
)


@given(TAMPERINGS)
def test_of_many_tamperings_the_first_one_is_named(
    tmp_path_factory: pytest.TempPathFactory, original: Path, tamperings: list[tuple[int, str, int]]
) -> None:
    attacker = Attacker(original, tmp_path_factory.getbasetemp())
    statements: list[tuple[str, tuple[Any, ...]]] = []
    for event_id, (column, number) in {event_id: (column, number) for event_id, column, number in tamperings}.items():
        if column == "delete":
            statements.append(("DELETE FROM audit_events WHERE id = ?", (event_id,)))
            continue
        value: Any = number.to_bytes(32, "big") if column in BLOBS else number if column in INTEGERS else f"{number}"
        if value != attacker.value(f"SELECT {column} FROM audit_events WHERE id = ?", event_id):
            statements.append((f"UPDATE audit_events SET {column} = ? WHERE id = ?", (value, event_id)))
    if not statements:
        return
    first = min(parameters[-1] for _, parameters in statements)
    found = asyncio.run(attacker.finding(*statements))
    assert (found.table, found.row) == (EVENTS, str(first))


# ----------------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize("column", HEAD_COLUMNS)
@pytest.mark.parametrize("aggregate_id", sorted(set(CHAINS)))
async def test_an_edit_of_any_column_of_any_chains_end_names_it(column: str, aggregate_id: str, attacker: Attacker) -> None:
    value = attacker.value(f"SELECT {column} FROM audit_heads WHERE aggregate_id = ?", aggregate_id)
    changed = another(column, value)
    found = await attacker.finding((f"UPDATE audit_heads SET {column} = ? WHERE aggregate_id = ?", (changed, aggregate_id)))
    named = changed if column == "aggregate_id" else aggregate_id
    assert (found.table, found.row, found.fault) == (HEADS, named, Fault.CHANGED)


@pytest.mark.parametrize("aggregate_id", sorted(set(CHAINS)))
async def test_a_deleted_end_of_a_chain_is_named_as_missing(aggregate_id: str, attacker: Attacker) -> None:
    found = await attacker.finding(("DELETE FROM audit_heads WHERE aggregate_id = ?", (aggregate_id,)))
    assert (found.table, found.row, found.fault) == (HEADS, aggregate_id, Fault.MISSING)


async def test_an_end_put_back_to_where_the_chain_once_ended_is_named(attacker: Attacker) -> None:
    once = ChainHead(3, 1, attacker.value("SELECT mac FROM audit_events WHERE id = 3"))
    sealed = head_seal(NEW, "Q-2", once)  # as it may have been in the file earlier
    put_back = ("UPDATE audit_heads SET event_id = ?, seq = ?, mac = ?, seal = ? WHERE aggregate_id = 'Q-2'", (*once, sealed))
    found = await attacker.finding(put_back)
    assert (found.table, found.row, found.fault) == (HEADS, "Q-2", Fault.CHANGED)
    found = await attacker.finding(put_back, ("DELETE FROM audit_events WHERE id = 7", ()))
    assert (found.table, found.row, found.fault) == (EVENTS, "7", Fault.MISSING)


async def test_an_end_of_no_chain_is_found(attacker: Attacker) -> None:
    copied = "event_id, seq, mac, key_id, seal"
    for aggregate_id in ("", "Q-0", "Z"):
        found = await attacker.finding(
            (f"INSERT INTO audit_heads (aggregate_id, {copied}) SELECT ?, {copied} FROM audit_heads LIMIT 1", (aggregate_id,))
        )
        assert (found.table, found.row, found.fault) == (HEADS, aggregate_id, Fault.CHANGED)


# --------------------------------------------------------------------------------------------------------- anchors


@pytest.mark.parametrize("column", ANCHOR_COLUMNS)
@pytest.mark.parametrize("anchor_id", [1, 2])
async def test_an_edit_of_any_column_of_any_anchor_names_it(column: str, anchor_id: int, attacker: Attacker) -> None:
    value = attacker.value(f"SELECT {column} FROM audit_anchors WHERE id = ?", anchor_id)
    found = await attacker.finding((f"UPDATE audit_anchors SET {column} = ? WHERE id = ?", (another(column, value), anchor_id)))
    assert (found.table, found.row) == (ANCHORS, str(anchor_id))


async def test_a_deleted_anchor_is_named(attacker: Attacker, kept: list[Anchor]) -> None:
    found = await attacker.finding(("DELETE FROM audit_anchors WHERE id = 1", ()))
    assert (found.table, found.row, found.fault) == (ANCHORS, "1", Fault.MISSING)
    found = await attacker.finding(("DELETE FROM audit_anchors WHERE id = 2", ()), kept=kept)
    assert (found.table, found.row, found.fault) == (ANCHORS, "2", Fault.ROLLED_BACK)


async def test_swapped_anchors_are_named(attacker: Attacker) -> None:
    swap = "UPDATE audit_anchors SET id = ? WHERE id = ?"
    found = await attacker.finding((swap, (9, 1)), (swap, (1, 2)), (swap, (2, 9)))
    assert found.table == ANCHORS


def put_back(event_id: int, attacker: Attacker) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the statements that reset the file to when `event_id` was its newest event. An old copy contains the seals."""
    heads: list[tuple[str, tuple[Any, ...]]] = []
    for aggregate_id in sorted(set(CHAINS)):
        of_chain = [number for number, owner in enumerate(CHAINS, 1) if owner == aggregate_id and number <= event_id]
        if not of_chain:
            heads.append(("DELETE FROM audit_heads WHERE aggregate_id = ?", (aggregate_id,)))
            continue
        head = ChainHead(of_chain[-1], len(of_chain), attacker.value("SELECT mac FROM audit_events WHERE id = ?", of_chain[-1]))
        key = OLD if of_chain[-1] <= len(CHAINS) // 2 else NEW
        sql = "UPDATE audit_heads SET event_id = ?, seq = ?, mac = ?, key_id = ?, seal = ? WHERE aggregate_id = ?"
        heads.append((sql, (*head, key_id(key), head_seal(key, aggregate_id, head), aggregate_id)))
    cut: list[tuple[str, tuple[Any, ...]]] = [("DELETE FROM audit_events WHERE id > ?", (event_id,))]
    if event_id < ANCHORED[-1]:
        cut.append(("DELETE FROM audit_anchors WHERE last_event_id > ?", (event_id,)))
    return (*cut, *heads)


@pytest.mark.parametrize("event_id", range(1, 8))
async def test_a_file_put_back_as_a_whole_is_found_up_to_the_last_anchor_kept_elsewhere(
    event_id: int, attacker: Attacker, kept: list[Anchor]
) -> None:
    statements = put_back(event_id, attacker)
    assert (await verified(attacker.tamper(*statements))).sound  # the file alone cannot show it
    report = await verified(attacker.tamper(*statements), kept=kept)
    if event_id >= ANCHORED[-1]:
        assert report.sound
    else:
        assert report.finding is not None
        assert (report.finding.table, report.finding.row, report.finding.fault) == (EVENTS, str(event_id + 1), Fault.ROLLED_BACK)


async def test_a_file_that_was_put_back_and_went_on_is_found(tmp_path: Path, kept: list[Anchor]) -> None:
    await written(tmp_path, start=50)  # longer than the anchors reach, and valid by itself
    assert (await verified(tmp_path / "ledger.db")).sound
    report = await verified(tmp_path / "ledger.db", kept=kept)
    assert report.finding is not None
    assert (report.finding.table, report.finding.row, report.finding.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)


async def test_anchors_of_the_lost_file_put_into_the_other_one_do_not_fit(
    tmp_path: Path, attacker: Attacker, kept: list[Anchor]
) -> None:
    (tmp_path / "other").mkdir()
    await written(tmp_path / "other", start=50)
    other = Attacker(tmp_path / "other", tmp_path)
    columns = [name for name in ANCHOR_COLUMNS if name != "id"]
    lost = [attacker.value(f"SELECT {column} FROM audit_anchors WHERE id = 2") for column in columns]
    splice = (f"UPDATE audit_anchors SET {', '.join(f'{column} = ?' for column in columns)} WHERE id = 2", tuple(lost))
    found = await other.finding(splice)
    assert (found.table, found.row, found.fault) == (ANCHORS, "2", Fault.ROLLED_BACK)
    report = await verified(other.tamper(splice), kept=kept[1:])
    assert report.finding is not None
    assert report.finding.fault is Fault.ROLLED_BACK


@pytest.mark.parametrize(
    ("field", "value"),
    [("at", 5), ("seal", "00" * 32), ("key_id", "nobody"), ("chains", 9), ("chains", 2**70), ("heads_sha256", "f")],
)
async def test_a_changed_line_of_a_kept_anchor_is_found(
    field: str, value: object, original: Path, tmp_path: Path, kept: list[Anchor]
) -> None:
    shutil.copyfile(original / "ledger.db", tmp_path / "ledger.db")
    fields = {name: getattr(kept[0], name) for name in Anchor.__slots__} | {field: value}
    report = await verified(tmp_path / "ledger.db", kept=[Anchor(**fields), kept[1]])
    assert report.finding is not None
    assert (report.finding.table, report.finding.row) == ("anchors kept elsewhere", "1")


@pytest.mark.parametrize("change", ["last_mac", "seal"])
async def test_a_kept_anchor_is_held_against_the_ledgers_own_and_against_its_last_event(
    change: str, original: Path, tmp_path: Path, kept: list[Anchor]
) -> None:
    shutil.copyfile(original / "ledger.db", tmp_path / "ledger.db")
    first = kept[0]
    other = {
        "last_mac": replace(first, last_mac="00" * 32),
        "seal": replace(  # of another future, in which the same event was the newest
            first,
            at=first.at + 1,
            seal=anchor_seal(OLD, first.at + 1, first.last_event_id, first.chains, first.heads_sha256).hex(),
        ),
    }[change]
    report = await verified(tmp_path / "ledger.db", kept=[other])
    assert report.finding is not None
    assert (report.finding.table, report.finding.row, report.finding.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)


async def test_an_anchor_too_old_to_be_recomputed_is_held_against_the_number_of_chains(tmp_path: Path) -> None:
    clock = ManualClock()
    audit = Audit(frozenset({"quote.moved"}), RING)
    database = await open_database(tmp_path / "ledger.db", clock, audit=audit)
    for number in range(RECOMPUTED_ANCHORS + 1):
        await say(database, audit, f"Q-{number}", number)
        await write_anchor(Ledger(database, clock, audit), tmp_path, clock.now_ms())
    await database.close()
    other = tmp_path / "other"
    other.mkdir()
    seal = anchor_seal(NEW, START_MS, 1, 2, "f" * 64)  # of another future; only the key's owner can have sealed it
    path = Attacker(tmp_path, other).tamper(
        ("UPDATE audit_anchors SET chains = 2, heads_sha256 = ?, seal = ? WHERE id = 1", ("f" * 64, seal))
    )
    report = await verified(path)
    assert report.finding is not None
    assert (report.finding.table, report.finding.row, report.finding.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)


# ------------------------------------------------------------------------------------------------------------ keys


async def signed_by(path: Path, *rings: Keyring) -> VerificationReport:
    """Let several processes in turn write an event into the same chain, each with the keyring it started with."""
    clock = ManualClock()
    for number, ring in enumerate(rings):
        audit = Audit(frozenset({"quote.moved"}), ring)
        database = await open_database(path, clock, audit=audit)
        await say(database, audit, "Q-1", number)
        await database.close()
    newest = max(rings, key=lambda ring: len(ring.keys))
    return await verified(path, ring=newest)


async def test_a_bot_that_goes_on_with_the_older_key_breaks_no_chain_and_is_reported(tmp_path: Path) -> None:
    report = await signed_by(tmp_path / "ledger.db", OLD_RING, RING, OLD_RING, OLD_RING, RING)
    assert report.sound
    assert [(use.key_id, use.events, use.late, use.last_event_id) for use in report.keys] == [
        (OLD_RING.current_id, 3, 2, 4),
        (RING.current_id, 2, 0, 5),
    ]


async def test_a_bot_that_was_restarted_first_signs_with_the_new_key_only(tmp_path: Path) -> None:
    report = await signed_by(tmp_path / "ledger.db", OLD_RING, RING, RING)
    assert report.sound
    assert [use.late for use in report.keys] == [0, 0]


async def test_a_key_that_comes_in_after_a_newer_one_is_named(tmp_path: Path) -> None:
    report = await signed_by(tmp_path / "ledger.db", RING, OLD_RING)
    assert report.finding is not None
    assert (report.finding.table, report.finding.row, report.finding.fault) == (EVENTS, "2", Fault.UNKNOWN_KEY)


async def test_a_key_that_is_gone_is_said_to_be_missing_not_the_event_to_be_edited(original: Path, tmp_path: Path) -> None:
    shutil.copyfile(original / "ledger.db", tmp_path / "ledger.db")
    report = await verified(tmp_path / "ledger.db", ring=OLD_RING)
    assert report.finding is not None
    assert report.finding.fault is Fault.UNKNOWN_KEY
    assert "one is missing, or the row is forged" in report.finding.meaning
