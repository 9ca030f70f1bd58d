"""Schema and statements of a ledger on PostgreSQL, for tests: the ledger's alone, and with the domain's store."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from ledger.audit.columns import statements
from ledger.database import load_statements, replace_statements
from ledger.migrations import Migration
from ledger.postgres import paces
from ledger.postgres.migrations import BOOKKEEPING
from quotebot.store.columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping


def _migrations(package: str, folder_name: str = "postgres/schema") -> tuple[Migration, ...]:
    folder = files(package).joinpath(folder_name)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(package, name, folder.joinpath(name).read_text("utf-8")) for name in names)


def _texts(*packages: str, engine: str = "") -> Mapping[str, str]:
    return load_statements(files(package).joinpath(engine, "queries.sql").read_text("utf-8") for package in packages)


LEDGER = _migrations("ledger")
MIGRATIONS = (*LEDGER, *_migrations("quotebot.store"))
OF_SQLITE = (*_migrations("ledger", "schema"), *_migrations("quotebot.store", "schema"))
BASE = _texts("ledger", "quotebot.store")
REPLACEMENTS = _texts("ledger", "quotebot.store", engine="postgres")
LEDGER_STATEMENTS: Mapping[str, str] = {
    **replace_statements(_texts("ledger"), _texts("ledger", engine="postgres")),
    **paces.STATEMENTS,
}
DOCUMENTS = load_statements([files("quotebot.store").joinpath("postgres", "documents.sql").read_text("utf-8")])
STATEMENTS = {**replace_statements(BASE, REPLACEMENTS), **paces.STATEMENTS, **statements(TABLES), **DOCUMENTS}


def schema_of(migrations: tuple[Migration, ...]) -> tuple[str, ...]:
    """Return what creates the same database as `migrate`, for a template (see tests/postgres.py)."""
    rows = ", ".join(f"('{each.component}', '{each.name}', '{each.sha256}', 0, {int(each.expands)})" for each in migrations)
    recorded = f"INSERT INTO schema_migrations (component, name, sha256, applied_at, expands) VALUES {rows}"  # noqa: S608 -- our own names
    return ("SET search_path = public, pg_temp", BOOKKEEPING, *(each.sql for each in migrations), recorded)
