"""Tests of the proxy that breaks connections to PostgreSQL: each fault leaves the server and the client as its name says."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from faults.cluster.proxy import CommitFault, Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = ("CREATE TABLE notes (text TEXT)",)


@pytest.fixture
def url(create_database: Callable[[tuple[str, ...]], str]) -> str:
    return create_database(SCHEMA)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(proxy.url)) as connection:
        yield connection


def notes(url: str) -> int:
    """Count the notes after every transaction that still runs has ended."""
    with psycopg.connect(url) as direct:
        direct.execute("LOCK TABLE notes IN EXCLUSIVE MODE")
        return len(direct.execute("SELECT 1 FROM notes").fetchall())


@pytest.mark.parametrize(("fault", "recorded"), [(CommitFault.LOST, 0), (CommitFault.SENT, 1), (CommitFault.UNANSWERED, 1)])
@pytest.mark.parametrize("pipelined", [False, True], ids=["simple", "pipelined"])
def test_commit_breaks_before_at_or_after_the_server(
    fault: CommitFault, recorded: int, pipelined: object, connection: psycopg.Connection, proxy: Proxy, url: str
) -> None:
    def write() -> None:
        with connection.pipeline() if pipelined else nullcontext():
            connection.execute("INSERT INTO notes VALUES ('a')")
            connection.commit()

    write()
    proxy.at_next_commit(fault)
    with pytest.raises(psycopg.OperationalError):
        write()
    proxy.wait_until_struck()
    give_up_at = time.monotonic() + 20
    while notes(url) < 1 + recorded and time.monotonic() < give_up_at:  # the server may still be executing it
        time.sleep(0.01)
    assert notes(url) == 1 + recorded


def test_late_commit_is_recorded_when_it_is_released(connection: psycopg.Connection, proxy: Proxy, url: str) -> None:
    connection.execute("INSERT INTO notes VALUES ('a')")
    proxy.at_next_commit(CommitFault.LATE)
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    with psycopg.connect(url) as direct:
        assert direct.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    proxy.release()
    assert notes(url) == 1


def test_silent_commit_is_recorded_and_leaves_the_client_waiting(connection: psycopg.Connection, proxy: Proxy, url: str) -> None:
    connection.execute("INSERT INTO notes VALUES ('a')")
    proxy.at_next_commit(CommitFault.SILENT)
    ended = threading.Event()

    def commit() -> None:
        with suppress(psycopg.OperationalError):
            connection.commit()
        ended.set()

    waiting = threading.Thread(target=commit)
    waiting.start()
    proxy.wait_until_struck()
    assert notes(url) == 1
    assert not ended.is_set()
    proxy.cut(reset=True)
    waiting.join(20)
    assert ended.is_set()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_cut_breaks_open_connections_and_serves_new_ones(reset: object, connection: psycopg.Connection, proxy: Proxy) -> None:
    proxy.cut(reset=bool(reset))
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with psycopg.connect(proxy.url) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)
    assert proxy.accepted == 2


def test_server_that_is_away_refuses_until_it_comes_back(connection: psycopg.Connection, proxy: Proxy) -> None:
    proxy.go_away()
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url)
    proxy.come_back()
    psycopg.connect(proxy.url).close()


def test_swallowed_packets_are_received_and_never_answered(connection: psycopg.Connection, proxy: Proxy, url: str) -> None:
    proxy.swallow()
    ended = threading.Event()

    def execute() -> None:
        with suppress(psycopg.OperationalError):
            connection.execute("INSERT INTO notes VALUES ('a')")
        ended.set()

    waiting = threading.Thread(target=execute)
    waiting.start()
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port)) as new:
        new.sendall(struct.pack("!ii", 8, 80877103))  # asks for encryption; a server answers with one byte
        new.settimeout(0.05)
        with pytest.raises(TimeoutError):
            new.recv(1)
    assert not ended.is_set()
    proxy.come_back()
    psycopg.connect(proxy.url).close()
    proxy.cut()
    waiting.join(20)
    assert notes(url) == 0


def test_a_server_keeps_the_session_of_a_vanished_machine_until_it_ends_it(
    connection: psycopg.Connection, proxy: Proxy, url: str
) -> None:
    pid = connection.info.backend_pid
    with psycopg.connect(url, autocommit=True) as direct:

        def sessions() -> int:
            return len(direct.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall())

        proxy.vanish()
        connection.close()
        with closing(psycopg.connect(url)):  # meanwhile the proxy may have told the server
            assert sessions() == 1
        proxy.end_at_server()
        while sessions():
            pass


def test_messages_are_delayed(connection: psycopg.Connection, proxy: Proxy) -> None:
    proxy.delay(0.03)
    before = time.monotonic()
    connection.execute("SELECT 1")
    assert time.monotonic() - before >= 0.06
