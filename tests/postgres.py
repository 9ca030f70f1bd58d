"""PostgreSQL for tests: one server per worker, started by the first test that needs it, and a new database per test."""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from quotebot.sandbox.cluster import Cluster, find_programs, folder_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

WITHOUT_SERVER: Final = "no PostgreSQL server is installed (Debian: apt-get install postgresql)"


class Server:
    """A server whose databases are copies of templates: each schema is created once."""

    def __init__(self, cluster: Cluster) -> None:
        from psycopg import connect  # noqa: PLC0415 -- 150 ms that only the workers with such a test wait for

        self._connect = connect
        self._cluster = cluster
        self._numbers = itertools.count(1)
        self._admin = connect(cluster.url("postgres"), autocommit=True)
        self._templates = {name for (name,) in self._admin.execute("SELECT datname FROM pg_database")}

    def create(self, schema: Sequence[str]) -> str:
        """Create a database with this schema (the text of its files, in order) and return its address."""
        template = f"template_{hashlib.sha256(repr(tuple(schema)).encode()).hexdigest()[:16]}"
        if template not in self._templates:
            self._copy(template, "template0")
            with self._connect(self._cluster.url(template)) as connection:
                for text in schema:
                    connection.execute(text)
            self._templates.add(template)
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self._copy(name, template)
        return self._cluster.url(name)

    def drop(self, url: str) -> None:
        """Delete a database; connections to it are closed."""
        name = urlsplit(url).path[1:]
        self._admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def close(self) -> None:
        """Close the connection to the server."""
        self._admin.close()

    def _copy(self, name: str, template: str) -> None:
        # FILE_COPY takes a third of the processor time that the default takes for a database as small as this.
        self._admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')


def folder_for_servers() -> Path:
    """Return a new folder for a server. The next run removes one that a killed run left behind (./run)."""
    return folder_for("postgres")


def require_server() -> None:
    """Skip the test without an installed server, or fail it where every test must run."""
    if find_programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(WITHOUT_SERVER)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Yield the server of this worker."""
    require_server()
    folder = folder_for_servers()
    cluster = Cluster(folder, quick=True)
    try:
        cluster.start()
        server = Server(cluster)
        yield server
        server.close()
    finally:
        cluster.remove()


@pytest.fixture
def create_database(postgres: Server) -> Iterator[Callable[[Sequence[str]], str]]:
    """Yield a function that creates a database with a schema for this test, and returns its address."""
    made: list[str] = []

    def create(schema: Sequence[str]) -> str:
        made.append(postgres.create(schema))
        return made[-1]

    yield create
    for url in made:
        postgres.drop(url)
