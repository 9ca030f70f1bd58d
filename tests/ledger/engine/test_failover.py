"""Test of a failover: the primary dies under load, the standby takes over, and the former primary comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from ledger.clock import SystemClock
from quotebot.sandbox.cluster import PORT, Cluster
from tests.ledger.engine.parts import POSTGRES_SCHEMA, POSTGRES_STATEMENTS, open_postgres_book
from tests.ledger.parts import note
from tests.postgres import folder_for_servers, require_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.postgres.engine import PostgresDatabase

REPLICATION = {"wal_level": "replica", "max_wal_senders": "4"}
WRITERS = 8
ENOUGH = 40  # acknowledged writes before and after


@pytest.fixture
def servers() -> Iterator[tuple[Cluster, Cluster]]:
    """Yield a primary that waits for its standby in each COMMIT, and the standby."""
    require_server()
    primary = Cluster(folder_for_servers(), quick=True, settings=REPLICATION)
    standby = Cluster(folder_for_servers(), quick=True, settings=REPLICATION)
    try:
        primary.start()
        with psycopg.connect(primary.url()) as shell:
            shell.execute(POSTGRES_SCHEMA)
        standby.follow(primary)
        with psycopg.connect(primary.url(), autocommit=True) as shell:
            shell.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            shell.execute("SELECT pg_reload_conf()")
        yield primary, standby
    finally:
        primary.remove()
        standby.remove()


class Load:
    """Writers that each write one note after another. `acknowledged` are the notes whose write returned."""

    def __init__(self, book: PostgresDatabase) -> None:
        self._book = book
        self.acknowledged: list[str] = []
        self._more = asyncio.Event()
        self._stop = False
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]

    async def acknowledge(self, count: int) -> None:
        """Wait for `count` further acknowledged writes."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 30)

    async def stop(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _write(self, writer: int) -> None:
        number = 0
        while not self._stop:
            self.acknowledged.append(await self._book.write("note", note(f"{writer}.{number}")))
            self._more.set()
            number += 1


def notes(server: Cluster) -> list[str]:
    with psycopg.connect(server.url()) as shell:
        return [text for (text,) in shell.execute(POSTGRES_STATEMENTS["notes"]).fetchall()]


async def test_a_failover_loses_no_write_repeats_none_and_needs_no_restart(servers: tuple[Cluster, Cluster]) -> None:
    primary, standby = servers
    hosts = quote(f"{primary.socket},{standby.socket}", safe="")
    book = await open_postgres_book(f"postgresql://quotebot@/quotebot?host={hosts}&port={PORT}", SystemClock())
    load = Load(book)
    await load.acknowledge(ENOUGH)
    primary.kill()
    standby.promote()
    await load.acknowledge(ENOUGH)
    await load.stop()
    assert sorted(notes(standby)) == sorted(load.acknowledged)

    primary.start()  # with the state of its death, and ready to write on its old timeline
    with psycopg.connect(primary.url(), autocommit=True) as shell:
        shell.execute("ALTER SYSTEM RESET synchronous_standby_names")
        shell.execute("SELECT pg_reload_conf()")
    left = notes(primary)
    session = book._writer.session
    assert session is not None
    session.close()
    assert await book.write("note", note("after")) == "after"
    assert (notes(primary), notes(standby)[-1]) == (left, "after")
    assert await book.read(lambda tx: tx.all("notes")[-1]["text"]) == "after"
    await book.close()
