"""Ledgers on PostgreSQL for tests: each is a database of the worker's server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.transactions import Record
from tests.ledger.parts import AUDIT
from tests.ledger.places import Refused
from tests.ledger.postgres.parts import LEDGER, LEDGER_STATEMENTS, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.audit.events import Audit
    from ledger.clock import Clock
    from ledger.database import Row
    from tests.postgres import Server


class PostgresShell:
    """A shell on a database. In a transaction each statement has a savepoint: a refused one does not end the transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)

    def execute(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = (), /) -> list[Row]:
        inside = self._connection.info.transaction_status == TransactionStatus.INTRANS and sql not in {"COMMIT", "ROLLBACK"}
        if inside:
            self._connection.execute("SAVEPOINT statement")
        try:
            return self._rows(sql, parameters)
        except psycopg.IntegrityError as error:
            if inside:
                self._connection.execute("ROLLBACK TO statement")
            raise Refused(str(error)) from error

    def close(self) -> None:
        self._connection.close()

    def _rows(self, sql: str, parameters: Sequence[object] | Mapping[str, object]) -> list[Row]:
        if isinstance(parameters, Mapping):
            statement = NamedStatement(sql)
            cursor: psycopg.Cursor[Any] = psycopg.RawCursor(self._connection)
            cursor.execute(statement.sql, [parameters[name] for name in statement.names])
        else:
            cursor = self._connection.execute(sql.replace("%", "%%").replace("?", "%s"), parameters)
        if cursor.description is None:
            return []
        columns = {column.name: place for place, column in enumerate(cursor.description)}
        return [Record(columns, row) for row in cursor]


class PostgresPlace:
    """A database with the ledger's schema."""

    statements = LEDGER_STATEMENTS

    def __init__(self, address: str) -> None:
        self.address = address
        self._writers = count(1)
        self._shell: PostgresShell | None = None

    async def open(self, clock: Clock, *, audit: Audit = AUDIT) -> PostgresDatabase:
        return await PostgresDatabase.open(
            self.address,
            statements=self.statements,
            clock=clock,
            writer=f"{os.getpid()}/{next(self._writers)}",
            finish=audit.chain,
        )

    def shell(self) -> PostgresShell:
        if self._shell is None:
            self._shell = PostgresShell(self.address)
        return self._shell

    def close(self) -> None:
        if self._shell is not None:
            self._shell.close()


def create(server: Server) -> PostgresPlace:
    """Create an empty ledger on a server."""
    return PostgresPlace(server.create(schema_of(LEDGER)))
