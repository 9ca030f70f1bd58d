# ruff: noqa: S608 -- the attacker writes SQL; every name in it is one of the lists below
"""Tests of an audit whose ids have gaps and were committed out of their order: absence is known by chain and place."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.anchors import LOG_NAME, Anchor, read_lines
from ledger.audit.events import EVENT_COLUMNS, SYSTEM_CHAIN, WITH_GAPS, Audit, ChainHead, head_seal, key_id, values_mac
from ledger.audit.history import Fault
from ledger.audit.verification import ANCHORS, EVENTS, HEADS, AuditTailError, require_tail
from ledger.sqlite.connections import ReadOnlyFile
from tests.ledger.audit.parts import (
    ANCHORED,
    CHAINS,
    COLUMNS,
    GIVEN_IDS,
    IDS,
    NEW,
    OLD,
    RING,
    Attacker,
    another,
    said,
    verified,
    written,
)
from tests.ledger.parts import KEYRING, START_MS, STATEMENTS, ManualClock, open_database

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.database import Tx

Statement = tuple[str, tuple[Any, ...]]
CHAIN_OF = dict(zip(IDS, CHAINS, strict=True))
PLACES = {event_id: sum(CHAIN_OF[other] == CHAIN_OF[event_id] for other in IDS if other <= event_id) for event_id in IDS}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of an unmodified ledger. Copy it before changing it."""
    folder = tmp_path_factory.mktemp("original")
    asyncio.run(written(folder, ids=IDS))
    return folder


@pytest.fixture(scope="module")
def kept(original: Path) -> list[Anchor]:
    """Return the copies of the anchors."""
    return read_lines((original / LOG_NAME).read_text("utf-8"))


@pytest.fixture
def attacker(original: Path, tmp_path: Path) -> Attacker:
    return Attacker(original, tmp_path)


def place(event_id: int) -> str:
    """Return how a missing event is named."""
    return f"{CHAIN_OF[event_id]} #{PLACES[event_id]}"


def without_chain(aggregate_id: str) -> tuple[Statement, Statement]:
    """Return the statements that remove a whole chain with its head."""
    return (
        ("DELETE FROM audit_events WHERE aggregate_id = ?", (aggregate_id,)),
        ("DELETE FROM audit_heads WHERE aggregate_id = ?", (aggregate_id,)),
    )


async def test_gaps_and_commits_out_of_order_are_whole(original: Path, kept: list[Anchor]) -> None:
    report = await verified(original / "ledger.db", kept=kept, every_anchor=True)
    assert (report.finding, report.events, report.chains) == (None, len(IDS), len(set(CHAINS)))
    assert (report.anchors, report.anchors_recomputed, report.anchors_kept_elsewhere) == (2, 2, 2)
    assert [anchor.last_event_id for anchor in kept] == [max(IDS[:number]) for number in ANCHORED]


@pytest.mark.parametrize("column", COLUMNS)
async def test_an_edit_of_any_column_names_that_event(column: str, attacker: Attacker) -> None:
    for event_id in IDS:
        value = attacker.value(f"SELECT {column} FROM audit_events WHERE id = ?", event_id)
        changed = another(column, value)
        found = await attacker.finding((f"UPDATE audit_events SET {column} = ? WHERE id = ?", (changed, event_id)))
        moved = column == "id" and PLACES[event_id] < CHAINS.count(CHAIN_OF[event_id])  # the next one of its chain lacks it
        named = place(event_id) if moved else str(changed if column == "id" else event_id)
        assert (found.table, found.row) == (EVENTS, named), (event_id, found)


async def test_a_deleted_event_is_named_by_its_chain_and_place(attacker: Attacker) -> None:
    for event_id in IDS:
        found = await attacker.finding(("DELETE FROM audit_events WHERE id = ?", (event_id,)))
        assert (found.table, found.row, found.fault) == (EVENTS, place(event_id), Fault.MISSING)


async def test_a_chain_cut_short_names_its_first_missing_place(attacker: Attacker) -> None:
    for event_id in IDS:
        cut = ("DELETE FROM audit_events WHERE id >= ? AND aggregate_id = ?", (event_id, CHAIN_OF[event_id]))
        found = await attacker.finding(cut)
        assert (found.table, found.row, found.fault) == (EVENTS, place(event_id), Fault.MISSING)


async def test_an_audit_cut_off_names_the_first_missing_place(attacker: Attacker) -> None:
    for event_id in sorted(IDS)[1:]:
        ends = {CHAIN_OF[other]: other for other in sorted(IDS)}
        cut = min(end for end in ends.values() if end >= event_id)  # the smallest id that a head names and that is gone
        first = min(other for other in IDS if other >= event_id and CHAIN_OF[other] == CHAIN_OF[cut])
        found = await attacker.finding(("DELETE FROM audit_events WHERE id >= ?", (event_id,)))
        assert (found.table, found.row, found.fault) == (EVENTS, place(first), Fault.MISSING)


async def test_swapped_events_name_the_first_of_them(attacker: Attacker) -> None:
    swap = "UPDATE audit_events SET id = ? WHERE id = ?"
    for first, second in combinations(sorted(IDS), 2):
        found = await attacker.finding((swap, (99, first)), (swap, (first, second)), (swap, (second, 99)))
        assert (found.table, found.row, found.fault) == (EVENTS, str(first), Fault.CHANGED)


async def test_an_event_put_into_a_gap_is_named(attacker: Attacker) -> None:
    copied = ", ".join(COLUMNS[1:])
    for event_id in (-1, 0, 4, 13, 41):
        insert = f"INSERT INTO audit_events (id, {copied}) SELECT ?, {copied} FROM audit_events WHERE id = 40"
        found = await attacker.finding((insert, (event_id,)))
        assert (found.table, found.row, found.fault) == (EVENTS, str(event_id), Fault.CHANGED)


def signed(attacker: Attacker, event_id: int, previous_id: int, seq: int) -> Statement:
    """Return an event of Q-1 that the key's owner signed after `previous_id`, as a faulty writer would."""
    fields: dict[str, Any] = dict.fromkeys(EVENT_COLUMNS)
    fields |= {"id": event_id, "at": START_MS, "event_type": "quote.moved", "aggregate_id": "Q-1", "seq": seq}
    fields |= {"previous_id": previous_id, "actor": "U0REP", "actor_type": "user", "schema_version": WITH_GAPS}
    fields["key_id"] = key_id(NEW)
    previous = attacker.value("SELECT mac FROM audit_events WHERE id = ?", previous_id)
    fields["mac"] = values_mac(NEW, previous, [fields[name] for name in EVENT_COLUMNS])
    return f"INSERT INTO audit_events ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})", tuple(fields.values())


async def test_a_place_taken_twice_by_signed_events_is_named(attacker: Attacker) -> None:
    found = await attacker.finding(signed(attacker, 16, 14, 3))  # 17 has the third place of Q-1
    assert (found.table, found.row, found.fault) == (EVENTS, "17", Fault.CHANGED)
    assert "has its place 3 in the chain Q-1" in found.meaning
    found = await attacker.finding(signed(attacker, 45, 17, 4))  # a second end
    assert (found.table, found.row, found.fault) == (HEADS, "Q-1", Fault.CHANGED)


async def test_a_signed_event_with_a_smaller_id_than_the_one_before_is_named(attacker: Attacker) -> None:
    found = await attacker.finding(signed(attacker, 16, 17, 4))
    assert (found.table, found.row, found.fault) == (EVENTS, "16", Fault.CHANGED)


async def test_a_whole_chain_removed_is_found_by_the_first_anchor_that_counts_it(attacker: Attacker, kept: list[Anchor]) -> None:
    for aggregate_id in sorted(set(CHAINS)):
        found = await attacker.finding(*without_chain(aggregate_id))
        assert (found.table, found.row, found.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)
        found = await attacker.finding(*without_chain(aggregate_id), ("DELETE FROM audit_anchors", ()), kept=kept)
        assert (found.table, found.row, found.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)


async def test_a_whole_chain_removed_before_any_anchor_is_not_found_by_the_audit_alone(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    await written(tmp_path / "one", chains=(*CHAINS[:-1], "Q-9"), ids=IDS)
    attacker = Attacker(tmp_path / "one", tmp_path / "other")
    assert (await verified(attacker.tamper(*without_chain("Q-9")))).sound
    found = await attacker.finding(("DELETE FROM audit_events WHERE aggregate_id = 'Q-9'", ()))
    assert (found.table, found.row, found.fault) == (EVENTS, "Q-9 #1", Fault.MISSING)


async def test_consecutive_ids_show_a_whole_chain_removed_before_any_anchor(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    await written(tmp_path / "one", chains=(*CHAINS[:-2], "Q-9", "Q-1"))
    found = await Attacker(tmp_path / "one", tmp_path / "other").finding(*without_chain("Q-9"))
    assert (found.table, found.row, found.fault) == (EVENTS, "7", Fault.MISSING)


async def test_an_end_put_back_together_with_its_events_is_found_by_an_anchor(attacker: Attacker) -> None:
    once = ChainHead(12, 1, attacker.value("SELECT mac FROM audit_events WHERE id = 12"))
    put_back = "UPDATE audit_heads SET event_id = ?, seq = ?, mac = ?, key_id = ?, seal = ? WHERE aggregate_id = 'Q-1'"
    found = await attacker.finding(
        ("DELETE FROM audit_events WHERE aggregate_id = 'Q-1' AND id > 12", ()),
        (put_back, (*once, key_id(OLD), head_seal(OLD, "Q-1", once))),
    )
    assert (found.table, found.row, found.fault) == (ANCHORS, "1", Fault.ROLLED_BACK)


# ------------------------------------------------------------------------------------------------- both numberings in one ledger


async def test_consecutive_events_keep_their_rule_before_and_after_those_with_gaps(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    path = tmp_path / "one" / "ledger.db"
    audit = Audit(frozenset({"quote.moved"}), RING)
    for statements, events in (
        (None, (("Q-1", None), ("Q-2", None))),  # 1 and 2
        (GIVEN_IDS, (("Q-1", 7), ("Q-3", 5))),
        (None, (("Q-4", None), ("Q-5", None), ("Q-1", None))),  # 8, 9 and 10
    ):
        database = await open_database(path, clock, audit=audit, statements=statements)
        for aggregate_id, event_id in events:
            work = said(aggregate_id, 1, event_id)
            await database.write("say", lambda tx, work=work: work(audit, tx))  # type: ignore[misc] # bound here
        await database.close()
    assert (await verified(path)).sound
    attacker = Attacker(path.parent, tmp_path / "other")
    for aggregate_id, row in (("Q-4", "8"), ("Q-5", "9")):  # the next event says that ids have no gaps
        found = await attacker.finding(*without_chain(aggregate_id))
        assert (found.table, found.row, found.fault) == (EVENTS, row, Fault.MISSING)
    found = await attacker.finding(("DELETE FROM audit_events WHERE id = 1", ()))
    assert (found.row, found.fault) == ("1", Fault.MISSING)
    found = await attacker.finding(("DELETE FROM audit_events WHERE id = 7", ()))
    assert (found.row, found.fault) == ("7", Fault.MISSING)  # 8 says so
    found = await attacker.finding(("DELETE FROM audit_events WHERE id = 2", ()))
    assert (found.row, found.fault) == ("Q-2 #1", Fault.MISSING)  # 5 does not say so, but the end of the chain does


# ------------------------------------------------------------------------------------------------------------- the tail


async def test_a_start_refuses_any_event_that_is_missing_among_the_newest(attacker: Attacker, tmp_path: Path) -> None:
    consecutive = tmp_path / "consecutive"
    consecutive.mkdir()
    await written(consecutive)
    (tmp_path / "other").mkdir()
    other = Attacker(consecutive, tmp_path / "other")
    missing = [(attacker, event_id, place(event_id)) for event_id in IDS] + [
        (other, event_id, str(event_id)) for event_id in (1, 7, 8)
    ]
    for tamperer, event_id, named in missing:
        path = tamperer.tamper(("DELETE FROM audit_events WHERE id = ?", (event_id,)))
        with pytest.raises(AuditTailError, match=f"audit_events {named}: "):
            await require_tail(ReadOnlyFile(path, STATEMENTS), RING)


# ---------------------------------------------------------------------------------------------------------- system chains


def heard(tx: Tx, audit: Audit, event_type: str, aggregate_id: str | None = None) -> None:
    audit.append(tx, START_MS, event_type, actor="quotebot", actor_type="system", aggregate_id=aggregate_id)


async def test_each_of_several_writers_has_its_own_system_chain(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "ledger.db"
    for writer in ("b", "a", "b"):
        audit = Audit(frozenset(), RING, system_chain=f"{SYSTEM_CHAIN}/{writer}")
        database = await open_database(path, clock, audit=audit)
        await database.write("hear", lambda tx, audit=audit: heard(tx, audit, "class.resumed"))  # type: ignore[misc] # bound here
        await database.write("hear", lambda tx, audit=audit: heard(tx, audit, "class.resumed", "Q-1"))  # type: ignore[misc] # as above
        chains = await database.read(lambda tx: [row["aggregate_id"] for row in tx.all("system_chains")])
        newest = await database.read(lambda tx: tx.required("newest_of_system", event_type="class.resumed", or_type=""))
        await database.close()
    assert chains == ["system/a", "system/b"]
    assert (newest["aggregate_id"], newest["seq"]) == ("system/b", 2)
    assert (await verified(path)).chains == 3


def test_a_system_chain_has_a_name_that_is_known_as_one() -> None:
    with pytest.raises(ValueError, match="'Q-1' is no chain of events without an aggregate"):
        Audit(frozenset(), KEYRING, system_chain="Q-1")
