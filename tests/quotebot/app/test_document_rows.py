"""Tests of rendered documents as rows of the ledger's database."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from adapters.failures import AdapterError, Failure
from ledger.database import NotRecorded
from ledger.postgres import connections, sessions
from quotebot.app import postgres_storage
from quotebot.app.postgres_storage import GRACE_MS, DocumentRows
from quotebot.jobs.maintenance import ArtefactSweep
from tests.ledger.postgres.parts import MIGRATIONS, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from quotebot.store.quotes import Artefact

CONTENT = b"%PDF-1.7 \x00\xff of a quote"
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(create_database: Callable[[Sequence[str]], str]) -> str:
    return create_database(schema_of(MIGRATIONS))


@pytest.fixture
def shell(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as made:
        yield made


def refused_by(store: DocumentRows, name: str = NAME) -> tuple[Failure, str]:
    with pytest.raises(AdapterError) as caught:
        store.get(name)
    return caught.value.failure, caught.value.code


def test_document_that_one_process_stored_is_read_by_every_other(url: str, shell: psycopg.Connection) -> None:
    one, other = DocumentRows(url), DocumentRows(url)
    assert refused_by(one) == (Failure.NOT_FOUND, "artefact_missing")
    assert (one.sweep(), one.names()) == (0, frozenset())
    assert one.put(CONTENT) == other.put(CONTENT) == NAME
    assert (other.get(NAME), other.names()) == (CONTENT, frozenset({NAME}))
    assert other.damaged() is None
    assert shell.execute("SELECT count(*) FROM artefact_blobs").fetchone() == (1,)
    assert refused_by(one, "../etc/passwd") == (Failure.VALIDATION, "invalid_sha256")


def test_document_that_was_just_stored_is_not_removed(url: str, shell: psycopg.Connection) -> None:
    store = DocumentRows(url)
    store.put(CONTENT)
    store.remove(NAME)
    shell.execute("UPDATE artefact_blobs SET stored_at = stored_at - %s", (GRACE_MS,))
    store.put(CONTENT)  # rendered again, while another process is about to remove it
    store.remove(NAME)
    assert store.names() == {NAME}
    shell.execute("UPDATE artefact_blobs SET stored_at = stored_at - %s", (GRACE_MS,))
    store.remove(NAME)
    store.remove(NAME)
    assert store.names() == frozenset()


class Rows:
    """A ledger without documents, for a sweep."""

    async def read(self, _work: object) -> tuple[tuple[Artefact, ...], bool]:
        return (), False


async def test_two_processes_that_sweep_at_once_remove_only_old_documents_of_nobody(url: str, shell: psycopg.Connection) -> None:
    store, rows = DocumentRows(url), Rows()
    sweeps = [ArtefactSweep(rows, DocumentRows(url), _never) for _ in range(2)]  # type: ignore[arg-type] # it only reads
    store.put(CONTENT)
    shell.execute("UPDATE artefact_blobs SET stored_at = 0")
    new = store.put(b"of a command that is under way")
    for sweep in sweeps:
        await sweep.sweep()
    assert store.names() == {NAME, new}
    await asyncio.gather(*(sweep.sweep() for sweep in sweeps))
    assert store.names() == {new}


async def _never(_lost: object) -> bool:
    raise AssertionError


def test_changed_document_is_never_read_and_rendering_it_again_repairs_it(url: str, shell: psycopg.Connection) -> None:
    store = DocumentRows(url)
    other = store.put(b"whole")
    store.put(CONTENT)
    edit = "UPDATE artefact_blobs SET bytes = 'forged' WHERE sha256 = %s"
    shell.execute("SET session_replication_role = replica")  # as an administrator who turns the triggers off
    with pytest.raises(psycopg.errors.CheckViolation):
        shell.execute(edit, (NAME,))
    shell.execute("ALTER TABLE artefact_blobs DROP CONSTRAINT artefact_blobs_check")
    shell.execute(edit, (NAME,))
    assert store.damaged() == NAME
    assert refused_by(store) == (Failure.NOT_FOUND, "artefact_damaged")
    assert store.get(other) == b"whole"
    store.put(CONTENT)
    assert (store.get(NAME), store.damaged()) == (CONTENT, None)


def test_document_that_is_too_large_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_storage, "DOCUMENT_BYTES_MAX", 1 << 20)
    with pytest.raises(AdapterError, match=r"has 1 MiB; the database takes 1\.") as caught:
        DocumentRows("postgresql://nobody@/none?host=/none").put(b"x" * ((1 << 20) + 1))
    assert (caught.value.failure, caught.value.code) == (Failure.RENDER, "document_too_large")


def test_without_a_server_a_document_is_tried_again_without_an_attempt() -> None:
    store = DocumentRows("postgresql://nobody@/none?host=/none")
    calls: list[Callable[[], Any]] = [lambda: store.put(CONTENT), lambda: store.get(NAME), store.names, lambda: store.remove(NAME)]
    for call in calls:
        with pytest.raises(NotRecorded, match="Another try is safe"):
            call()


def test_document_whose_commit_is_uncertain_is_not_taken_for_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sessions.Session.commit
    monkeypatch.setattr(sessions.Session, "commit", lambda self: honest(self) or "WARNING 01000")
    with pytest.raises(NotRecorded, match="not certain"):
        DocumentRows(url).put(CONTENT)


def test_server_that_does_not_answer_is_left(url: str, shell: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BRIEF_SECONDS", 0.05)
    monkeypatch.setattr(connections, "WRITER", sessions.Limits(lock=600_000, statement=600_000, idle=600_000))
    shell.execute("BEGIN; LOCK TABLE artefact_blobs")
    with pytest.raises(NotRecorded):
        DocumentRows(url).put(CONTENT)
    shell.execute("ROLLBACK")
