"""A deal whose ledger is in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from tests.rig import Deal

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import ClientSession


class DatabaseDeal(Deal):
    """A deal whose ledger is in a database."""

    def __init__(self, database: str, url: str, data_dir: Path, session: ClientSession) -> None:
        super().__init__(url, data_dir, session)
        self._database = database

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._database, row_factory=dict_row) as connection:
            found: list[dict[str, Any]] = connection.execute(sql.encode()).fetchall()
            return found
