"""Tests of the audit's statements on PostgreSQL: ids from a sequence, and one transaction at a time at the end of a chain."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ledger.audit.anchors import LOG_NAME, read_lines, write_anchor
from ledger.audit.events import Audit, Keyring
from ledger.audit.history import Fault
from ledger.audit.verification import ANCHORS, EVENTS, HEADS, require_tail, verify
from ledger.database import NotRecorded
from ledger.ledger import Ledger
from ledger.measures import fold, measure
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.marks import ALONE_LOCK
from ledger.postgres.sessions import Limits
from tests.ledger.engine.parts import LIMITS
from tests.ledger.parts import START_MS, ManualClock
from tests.ledger.postgres.parts import LEDGER, LEDGER_STATEMENTS, schema_of
from tests.ledger.postgres.test_statements import numbered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from ledger.database import Tx

    Rows = list[tuple[object, ...]]

RING = Keyring.of(b"k" * 32)
WRITERS = ("a", "b")
ROUNDS = 12
HEAD = "INSERT INTO audit_heads VALUES (%s, %s, %s, sha256(''), 'k', sha256(''))"


@pytest.fixture
def sessions(create_database: Callable[[Sequence[str]], str]) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    url = create_database(schema_of(LEDGER))
    with psycopg.connect(url) as one, psycopg.connect(url, options="-c lock_timeout=20") as other:
        yield one, other


def run(session: psycopg.Connection, name: str, value: object) -> Rows:
    """Run a statement of one parameter."""
    sql, _ = numbered(LEDGER_STATEMENTS[name])
    rows: Rows = session.execute(sql.replace("$1", "%s"), (value,)).fetchall()
    return rows


def test_ids_are_never_given_twice_and_a_rollback_leaves_a_gap(sessions: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    one, other = sessions
    assert run(one, "next_audit_ids", 2) == [(1, 2), (2, 2)]
    assert run(other, "next_audit_ids", 1) == [(3, 2)]
    one.rollback()
    assert run(one, "next_audit_ids", 1) == [(4, 2)]


@pytest.mark.parametrize("is_new", [True, False])
def test_the_end_of_a_chain_is_locked_also_before_there_is_one(
    sessions: tuple[psycopg.Connection, psycopg.Connection], *, is_new: bool
) -> None:
    one, other = sessions
    if not is_new:
        one.execute(HEAD, ("Q-1", 1, 1))
        one.commit()
    assert len(run(one, "audit_head", "Q-1")) == (not is_new)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        run(other, "audit_head", "Q-1")
    other.rollback()
    assert run(other, "audit_head", "Q-2") == []  # another chain
    one.execute(f"{HEAD} ON CONFLICT (aggregate_id) DO UPDATE SET seq = excluded.seq, event_id = excluded.event_id", ("Q-1", 7, 2))
    one.commit()
    ((event_id, seq, _),) = run(other, "audit_head", "Q-1")
    assert (event_id, seq) == (7, 2)


@asynccontextmanager
async def opened(url: str, writer: str, limits: Limits = LIMITS) -> AsyncIterator[Ledger]:
    """Open the ledger as one of several processes."""
    audit, clock = Audit(frozenset({"quote.moved"}), RING, system_chain=f"system/{writer}"), ManualClock()
    database = await PostgresDatabase.open(
        url, statements=LEDGER_STATEMENTS, clock=clock, writer=writer, limits=limits, finish=audit.chain
    )
    try:
        yield Ledger(database, clock, audit)
    finally:
        await database.close()


async def say(ledger: Ledger, *chains: str | None) -> None:
    """Write one event into each of these chains; None is the writer's system chain."""

    def work(tx: Tx) -> None:
        for chain in chains:
            ledger.audit.append(tx, START_MS, "quote.moved", actor="U0REP", actor_type="user", aggregate_id=chain)
        ledger.audit.append(tx, START_MS, "delivery.conflict", actor="U0REP", actor_type="user", aggregate_id=chains[0])

    await ledger.database.write("say", work)


async def fill(one: Ledger, other: Ledger, folder: Path) -> int:
    """Let two processes write into old and new chains at once, while both anchor and fold; return the number of events."""
    written = 0
    writes: list[Coroutine[Any, Any, object]]
    for number in range(ROUNDS):
        chains = (("Q-1", "Q-2", None), (None, f"Q-new{number}"), (f"Q-new{number}", "Q-1"), ("Q-2",))
        writes = [say(ledger, *each) for each in chains for ledger in (one, other)]
        if number % 3 == 0:
            writes += [write_anchor(one, folder, START_MS + number), fold(one), fold(other)]
        await asyncio.gather(*writes)
        written += 2 * sum(len(each) + 1 for each in chains)
    return written


async def test_chains_that_two_processes_write_are_whole_and_every_event_is_counted_once(
    create_database: Callable[[Sequence[str]], str], tmp_path: Path
) -> None:
    url = create_database(schema_of(LEDGER))
    async with opened(url, "a") as one, opened(url, "b") as other:
        written = await fill(one, other, tmp_path)
        await fold(other)
        measured = await measure(one)
        assert (measured.counts[("idempotency", "conflict")], measured.unfolded) == (ROUNDS * 4 * 2, 0)
        kept = read_lines((tmp_path / LOG_NAME).read_text("utf-8"))
        report = await verify(other.database, RING, anchors_kept_elsewhere=kept, every_anchor=True)
        assert (report.finding, report.events, report.chains) == (None, written, ROUNDS + 4)
        assert report.anchors == report.anchors_recomputed == report.anchors_kept_elsewhere == len(kept) >= 1
        await require_tail(one.database, RING)


async def test_no_anchor_and_no_fold_ends_before_the_writes_under_way(
    create_database: Callable[[Sequence[str]], str], tmp_path: Path
) -> None:
    url = create_database(schema_of(LEDGER))
    async with opened(url, "a", Limits(lock=20, statement=20_000, idle=20_000)) as ledger:
        await say(ledger, "Q-1")
        with psycopg.connect(url) as under_way:
            under_way.execute("SELECT pg_advisory_xact_lock_shared(%s)", (ALONE_LOCK,))  # as each write begins
            for upkeep in (write_anchor(ledger, tmp_path, START_MS), fold(ledger)):
                with pytest.raises(NotRecorded, match="lock timeout"):
                    await upkeep
            await say(ledger, "Q-1")
        anchor = await write_anchor(ledger, tmp_path, START_MS)
        assert anchor is not None
        assert anchor.last_event_id == await fold(ledger) == 4


async def test_database_put_back_to_an_earlier_state_is_found_by_anchors_kept_elsewhere(
    create_database: Callable[[Sequence[str]], str], tmp_path: Path
) -> None:
    url = create_database(schema_of(LEDGER))
    async with opened(url, "a") as ledger:
        await say(ledger, "Q-1", None)
        await write_anchor(ledger, tmp_path, START_MS)
    address, _, name = url.partition("?")[0].rpartition("/")
    earlier = f"{name}_earlier"
    with psycopg.connect(url.replace(f"/{name}", "/postgres", 1), autocommit=True) as shell:
        shell.execute(f"CREATE DATABASE {earlier} TEMPLATE {name} STRATEGY FILE_COPY".encode())
        try:
            async with opened(url, "b") as ledger:
                await say(ledger, "Q-1")
                await write_anchor(ledger, tmp_path, START_MS + 1)
            kept = read_lines((tmp_path / LOG_NAME).read_text("utf-8"))
            async with opened(url.replace(f"{address}/{name}", f"{address}/{earlier}"), "a") as ledger:
                assert (await verify(ledger.database, RING)).finding is None
                await say(ledger, "Q-2", "Q-1")  # it goes on from there
                found = (await verify(ledger.database, RING, anchors_kept_elsewhere=kept)).finding
            assert found is not None
            assert (found.table, found.row, found.fault) == (ANCHORS, "2", Fault.ROLLED_BACK)
        finally:
            shell.execute(f"DROP DATABASE {earlier} WITH (FORCE)".encode())


@pytest.mark.parametrize(
    ("statement", "table", "row", "fault"),
    [
        ("UPDATE audit_events SET actor = 'mallory' WHERE aggregate_id = 'Q-1' AND seq = 2", EVENTS, None, Fault.CHANGED),
        ("DELETE FROM audit_events WHERE aggregate_id = 'Q-1' AND seq = 2", EVENTS, "Q-1 #2", Fault.MISSING),
        ("DELETE FROM audit_events WHERE aggregate_id = 'Q-1' AND seq > 2", EVENTS, "Q-1 #3", Fault.MISSING),
        ("DELETE FROM audit_events WHERE aggregate_id = 'system/b'", EVENTS, "system/b #1", Fault.MISSING),
        ("DELETE FROM audit_heads WHERE aggregate_id = 'system/a'", HEADS, "system/a", Fault.MISSING),
        ("UPDATE audit_heads SET seq = seq + 1 WHERE aggregate_id = 'Q-1'", HEADS, "Q-1", Fault.CHANGED),
        (
            "DELETE FROM audit_events WHERE aggregate_id = 'Q-1'; DELETE FROM audit_heads WHERE aggregate_id = 'Q-1'",
            ANCHORS,
            "1",
            Fault.ROLLED_BACK,
        ),
    ],
)
async def test_a_database_administrator_who_turns_the_triggers_off_is_found(
    statement: str,
    table: str,
    row: str | None,
    fault: Fault,
    create_database: Callable[[Sequence[str]], str],
    tmp_path: Path,
) -> None:
    url = create_database(schema_of(LEDGER))
    async with opened(url, "a") as one, opened(url, "b") as other:
        await say(one, "Q-1", None)
        await say(other, "Q-2", "Q-1", None)
        await write_anchor(one, tmp_path, START_MS)
        with psycopg.connect(url, autocommit=True) as shell:
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
                shell.execute(statement)
            shell.execute("SET session_replication_role = replica")
            event = shell.execute("SELECT id FROM audit_events WHERE aggregate_id = 'Q-1' AND seq = 2").fetchone()
            shell.execute(statement)
        found = (await verify(one.database, RING)).finding
        assert found is not None
        assert (found.table, found.row, found.fault) == (table, row or str(event and event[0]), fault)
