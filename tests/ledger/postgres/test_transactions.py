"""Tests of named statements and rows on PostgreSQL."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest

from faults.cluster.proxy import Proxy
from ledger.database import DatabaseError, MissingRow, NotRecorded
from ledger.postgres import engine, sessions
from ledger.postgres.engine import SnapshotReader
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import WRITER, Address, Session
from ledger.postgres.transactions import PostgresTx, Record
from tests.quotebot.parts import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Create: TypeAlias = "Callable[[Sequence[str]], str]"


@pytest.mark.parametrize(
    ("text", "sql", "names"),
    [
        ("SELECT :b, :a, :b", "SELECT $1, $2, $1", ("b", "a")),
        ("SELECT (:a)::bigint, 7 % 2", "SELECT ($1)::bigint, 7 % 2", ("a",)),
        ("SELECT 'a :b, 5 % ''c'' ' || :d", "SELECT 'a :b, 5 % ''c'' ' || $1", ("d",)),
        ("SELECT 1 -- of :a, 5 %\nWHERE :b", "SELECT 1 \nWHERE $1", ("b",)),
    ],
)
def test_parameters_are_converted_outside_literals_casts_and_comments(text: str, sql: str, names: tuple[str, ...]) -> None:
    statement = NamedStatement(text)
    assert (statement.sql, statement.names) == (sql, names)


def test_a_row_gives_values_by_name_and_in_order_and_becomes_a_dict() -> None:
    row = Record({"id": 0, "text": 1}, (7, "a"))
    assert (row["text"], list(row), row.keys(), dict(row)) == ("a", [7, "a"], ["id", "text"], {"id": 7, "text": "a"})


@pytest.fixture
def session(create_database: Callable[[Sequence[str]], str]) -> Iterator[Session]:
    url = create_database(["CREATE TABLE kinds (n BIGINT, flag BIGINT, mac BYTEA, text TEXT)"])
    opened = Address(url).connect(name="test", limits=WRITER, writes=True)
    yield opened
    opened.close()


def transaction(session: Session, **texts: str) -> PostgresTx:
    session.run("BEGIN")
    return PostgresTx(session, {name: NamedStatement(text) for name, text in texts.items()}, [])


def test_values_come_back_as_they_went_in(session: Session) -> None:
    tx = transaction(session, put="INSERT INTO kinds VALUES (:n, :flag, :mac, :text)", get="SELECT * FROM kinds ORDER BY n")
    rows: list[dict[str, Any]] = [
        {"n": 1 << 40, "flag": True, "mac": b"\x00mac", "text": "50 % \u2014 'x'"},
        {"n": 1 << 41, "flag": None, "mac": None, "text": None},
    ]
    tx.one("put", **rows[0])
    tx.many("put", [tuple(rows[1].values())])
    assert [dict(row) for row in tx.all("get")] == rows


def test_a_missing_row_is_named_and_an_error_is_kept_though_the_work_handles_it(session: Session) -> None:
    tx = transaction(session, none="SELECT 1 WHERE false", wrong="SELECT 1 / :zero")
    with pytest.raises(MissingRow, match="none found no row"):
        tx.required("none")
    with pytest.raises(psycopg.errors.DivisionByZero):
        tx.one("wrong", zero=0)
    assert isinstance(tx.trouble, psycopg.errors.DivisionByZero)
    assert session.failed


def test_a_statement_is_prepared_once_whatever_the_size_of_its_integers(session: Session) -> None:
    tx = transaction(session, get="SELECT n FROM kinds WHERE n = :n")
    for n in (1, 1 << 20, 1 << 40, True, 2, 3, 4):
        tx.all("get", n=n)
    assert session.run("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%kinds%'") == [(1,)]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://a:secret@h:x/y?z", "cannot be read. Write it as"),
        ("postgresql://a:secret@/y?host=h,i,j&port=1,2", "one port for all of them, or one for each"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words) as refused:
        Address(url)
    assert "secret" not in str(refused.value)


@contextmanager
def former_and_new(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, threading.Event]]:
    """Yield an address of a former primary, on timeline 1, and of the new one, on 2, which answers when the event is set."""
    with Proxy(url) as former, Proxy(url) as new:
        ports = [urlsplit(each.url).port for each in (former, new)]
        answers = threading.Event()

        def read_position(connection: Any) -> tuple[str, int]:
            place = ports.index(connection.info.port)
            assert place == 0 or answers.wait(60)
            return "system", place + 1

        monkeypatch.setattr(sessions, "read_position", read_position)
        yield former.url.replace(f":{ports[0]}/", f":{ports[0]},127.0.0.1:{ports[1]}/"), answers


def test_a_process_that_missed_a_failover_does_not_use_the_former_primary(
    create_database: Create, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "timelines"
    seen.write_text("system 1\n")
    monkeypatch.setattr(sessions, "ASK_SECONDS", 60.0)
    with former_and_new(create_database(()), monkeypatch) as (url, answers):
        answers.set()
        address = Address(url, seen)
        session = address.connect(name="test", limits=WRITER, writes=True)
        assert (session.timeline, address.timeline) == (2, 2)
        assert seen.read_text() == "system 1\nsystem 2\n"
        session.close()


def test_an_answer_that_comes_late_ends_the_sessions_with_a_former_primary(
    create_database: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ASK_SECONDS", 0.0)
    with former_and_new(create_database(()), monkeypatch) as (url, answers):
        address = Address(url)
        session = address.connect(name="test", limits=WRITER, writes=True)
        assert (session.timeline, address.is_former(session)) == (1, False)
        answers.set()
        while not address.is_former(session):
            pass
        session.close()


def test_the_server_ends_waits_statements_and_idle_transactions_by_itself(session: Session) -> None:
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit", "jit")
    assert [session.run(f"SHOW {name}")[0][0] for name in names] == ["2s", "10s", "1s", "on", "off"]


async def test_read_without_a_server_is_tried_again_later_by_the_bots_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "READ_SECONDS", 0.0)
    reader = SnapshotReader(Address("postgresql://quotebot@127.0.0.1:1/quotebot"), "test", {}, ManualClock())
    with pytest.raises(NotRecorded, match=r"cannot be read: .*Connection refused"):
        await reader.read(lambda tx: tx.all("anything"))
    await reader.close()
