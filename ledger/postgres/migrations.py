"""Migrations of a PostgreSQL database, and the comparison of its schema with the one that they create.

Each file is applied once, whole, in one transaction under an advisory lock, and its checksum is stored. The tables are those of the
SQLite ledger; the history of that ledger's migrations is not repeated: the first file creates everything. Later files are named as
those of SQLite are, one for each engine.

A file whose header says `expand` only adds: tables, indexes, and columns that are empty or have a default. Builds that do not know
it go on working, so it may be applied while bots of an older build run. Any other file, whose header says `contract`, is applied
only while no bot of another build runs, and an older build refuses the database from then on. Of several bots of one build that
start together, each would apply it: one does, and the others wait.

The expected schema is created in the session's temporary schema, read from the catalog and rolled back, so a role without the right
to create anything can compare, and every version of the server describes both in the same words.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import tuple_row

from ledger.database import DatabaseError
from ledger.migrations import Migration, OlderBuildError, SchemaChangedError, SchemaObject, differences, known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOCK: Final = 0x51756F74  # advisory lock: one process at a time changes the schema
LOCK_SECONDS: Final = 2  # longest wait for the locks on tables
UNDER_WAY_SECONDS: Final = 60  # longest wait of a start for a migration by another process
BOOKKEEPING: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  component TEXT NOT NULL,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at BIGINT NOT NULL,
  expands BIGINT NOT NULL DEFAULT 0, -- 1: a build that does not know it goes on working
  PRIMARY KEY (component, name)
)
"""
_REMEDY: Final = (
    "somebody wrote to the database with another program. Nothing was done, and the database is unchanged. Keep a copy of it, then "
    'restore a backup from before the change (docs/runbook.md, "The schema was changed").'
)

# Objects of one schema, without those of extensions. `pinned` is the setting that functions with a path of their own have.
_OBJECTS: Final = """
WITH own AS (
  SELECT c.oid, c.relname, c.relkind, c.relrowsecurity FROM pg_catalog.pg_class AS c
  WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS d WHERE d.classid = 'pg_catalog.pg_class'::regclass
      AND d.objid = c.oid AND d.deptype = 'e'))
SELECT CASE relkind WHEN 'v' THEN 'view' ELSE 'table' END, relname::text, relname::text,
  CASE WHEN relkind = 'v' THEN pg_catalog.pg_get_viewdef(oid, true) ELSE relkind::text || relrowsecurity::text || (
    SELECT string_agg(concat_ws(' ', a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
      a.attgenerated, pg_catalog.pg_get_expr(f.adbin, f.adrelid)), ', ' ORDER BY a.attnum)
    FROM pg_catalog.pg_attribute AS a LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
    WHERE a.attrelid = own.oid AND a.attnum > 0 AND NOT a.attisdropped) END
FROM own
UNION ALL
SELECT 'constraint', k.conname::text, own.relname::text, pg_catalog.pg_get_constraintdef(k.oid, true) || k.convalidated::text
FROM own JOIN pg_catalog.pg_constraint AS k ON k.conrelid = own.oid AND k.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT 'index', x.relname::text, own.relname::text, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true) || i.indisvalid::text
FROM own JOIN pg_catalog.pg_index AS i ON i.indrelid = own.oid JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
UNION ALL
SELECT 'trigger', t.tgname::text, own.relname::text, pg_catalog.pg_get_triggerdef(t.oid, true) || ' ' || t.tgenabled::text
FROM own JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = own.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'rule', r.rulename::text, own.relname::text, pg_catalog.pg_get_ruledef(r.oid, true)
FROM own JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = own.oid AND r.rulename <> '_RETURN'
UNION ALL
SELECT 'function', p.proname::text, pg_catalog.pg_get_function_arguments(p.oid),
  concat_ws(' ', p.prosrc, p.provolatile, p.prosecdef, p.proisstrict,
    CASE WHEN p.proconfig = ARRAY[%(pinned)s] THEN 'pinned' ELSE p.proconfig::text END)
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = %(schema)s::regnamespace AND NOT EXISTS (
  SELECT 1 FROM pg_catalog.pg_depend AS d WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
"""

# In a list of columns, one that is never NULL and has no default.
_REFUSES_OLD: Final = re.compile(r" t  (?:, |$)")


def build_number(migrations: Sequence[Migration]) -> int:
    """Return a number of 32 bits that differs between builds with different migrations."""
    names = " ".join(f"{migration.component}/{migration.name}/{migration.sha256}" for migration in migrations)
    return int.from_bytes(hashlib.sha256(names.encode()).digest()[:4], signed=True)


def pending(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations missing from the database, in order. Only reads.

    Raises DatabaseError when the database contains a migration whose text has changed, or one that this build does not know and
    cannot work with.
    """
    done = {(migration.component, migration.name) for migration in recorded(connection, migrations)}
    return [migration for migration in migrations if (migration.component, migration.name) not in done]


def recorded(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations recorded in the database, in the order applied. Only reads. Raises DatabaseError as `pending` does."""
    rows = _recorded(connection)
    ours = {(migration.component, migration.name) for migration in migrations}
    return known([row[:4] for row in rows if row[:2] in ours or not row[4]], migrations)


def newer(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> list[str]:
    """Return the names of what a newer build has added to the database. Only reads."""
    ours = {(migration.component, migration.name) for migration in migrations}
    return sorted(f"{row[0]}/{row[1]}" for row in _recorded(connection) if row[:2] not in ours and row[4])


def _recorded(connection: psycopg.Connection[Any]) -> list[tuple[str, str, str, int, int]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT to_regclass('schema_migrations') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return []
        cursor.execute("SELECT component, name, sha256, applied_at, expands FROM schema_migrations")
        return list(cursor)


def wait_for_migrations(connection: psycopg.Connection[Any]) -> None:
    """Wait for the end of a migration that another process has begun. Raises psycopg.Error."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{UNDER_WAY_SECONDS}s'")
        connection.execute(f"SELECT pg_advisory_xact_lock_shared({LOCK})")


def migrate(
    connection: psycopg.Connection[Any],
    migrations: Sequence[Migration],
    now_ms: int,
    alone: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Apply the missing migrations in order, and return their names. The connection commits by itself (autocommit).

    `alone` tells whether no bot of another build runs. Raises OlderBuildError at a file that needs that while one does.

    Raises DatabaseError as `pending` does, when the database does not sort as a ledger must, and when a file cannot be applied:
    then nothing of that file is in the database.

    New tables get no statistics. Of an empty table that was never analyzed the server assumes some pages, and plans by the right
    index; of one that was analyzed when it was empty, that every index is as good as another. Such a plan stays in use.
    """
    require_order(connection)
    return [
        f"{migration.component}/{migration.name}"
        for migration in pending(connection, migrations)
        if _apply(connection, migration, migrations, now_ms, alone)
    ]


def require_order(connection: psycopg.Connection[Any]) -> None:
    """Raise DatabaseError unless the database stores UTF-8 and sorts texts by their bytes.

    Ranges of keys and the order of chains in an anchor depend on it, and no upgrade of the system changes it.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_catalog.pg_database "
            "WHERE datname = current_database()"
        )
        found = cursor.fetchone()
    if found not in {("UTF8", order, kind) for order in ("C", "POSIX") for kind in ("C", "POSIX")}:
        raise DatabaseError(
            f"The database has the encoding, collation and character type {', '.join(found or ())}; a ledger needs UTF8, C and C. "
            "Create it with: CREATE DATABASE quotebot TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        )


def _apply(
    connection: psycopg.Connection[Any],
    migration: Migration,
    migrations: Sequence[Migration],
    now_ms: int,
    alone: Callable[[], bool],
) -> bool:
    """Apply one file and return True; return False if another process has applied it in the meantime."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{UNDER_WAY_SECONDS}s'; SELECT pg_advisory_xact_lock({LOCK})")
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            connection.execute("SELECT FROM pg_catalog.pg_class LIMIT 0")  # or the session still sees the tables before the wait
            if migration not in pending(connection, migrations):
                return False
            if not (migration.expands or alone()):
                raise OlderBuildError(
                    f"The ledger's schema is older than this build, and bots run on it; it is unchanged. {migration.component}/"
                    f"{migration.name} changes what they use: stop them, then start this build (docs/postgresql.md)."
                )
            _look_in(connection, _schema(connection), "pg_temp")
            connection.execute(BOOKKEEPING)
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO schema_migrations (component, name, sha256, applied_at, expands) VALUES (%s, %s, %s, %s, %s)",
                (migration.component, migration.name, migration.sha256, now_ms, int(migration.expands)),
            )
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"Migration {migration.component}/{migration.name} needs rights that this role does not have ({error}). The ledger is "
            "as it was before it. Start this build once as the role that owns the tables (docs/postgresql.md)."
        ) from error
    except psycopg.Error as error:
        raise DatabaseError(
            f"Migration {migration.component}/{migration.name} could not be applied ({error}). The ledger is as it was before it; "
            "go back to the build before this one, or end what holds locks on its tables if that is the cause, and start again."
        ) from error
    return True


def require_schema(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> None:
    """Compare a database with its recorded migrations. Raises SchemaChangedError, or DatabaseError as `pending`."""
    found = schema_differences(connection, migrations)
    if found:
        raise SchemaChangedError(found, _REMEDY)


def schema_differences(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> list[str]:
    """Return one sentence for each object that is missing, foreign or changed. Raises DatabaseError as `pending`.

    What a newer build may have added is not foreign.
    """
    before = recorded(connection, migrations)
    names = {(migration.component, migration.name) for migration in before}
    applied = [migration for migration in migrations if (migration.component, migration.name) in names]
    if not applied:
        return []
    schema = _schema(connection)
    pinned = f"search_path={schema}, pg_temp"
    with connection.transaction(force_rollback=True):
        _look_in(connection, schema, "pg_temp")
        actual = _objects(connection, schema, pinned)
        meanwhile = recorded(connection, migrations) != before  # by another bot that starts
        _look_in(connection, "pg_temp", schema)
        try:
            connection.execute(BOOKKEEPING.replace("IF NOT EXISTS", ""))
            for migration in applied:
                connection.execute(migration.sql)
        except psycopg.errors.UndefinedFunction as error:  # functions are never looked up in the temporary schema
            return [f"{error.diag.message_primary or 'a function is missing'}"]
        found = connection.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchone()
        expected = _objects(connection, next(iter(found or ())), f"search_path=pg_temp, {schema}")
    if meanwhile:
        return schema_differences(connection, migrations)
    return differences(expected, without_additions(expected, actual) if newer(connection, migrations) else actual)


def without_additions(expected: Counter[SchemaObject], actual: Counter[SchemaObject]) -> Counter[SchemaObject]:
    """Return the objects without those that an expanding file of a newer build may have added.

    It adds no rule, trigger or constraint to a table of this build, which could refuse what this build writes.
    """
    tables = {name: text or "" for kind, name, _, text in expected if kind == "table"}
    ours = {each[:2] for each in expected}
    kept = Counter[SchemaObject]()
    for each in actual:
        kind, name, table, text = each
        if kind == "table" and name in tables:
            grown = (text or "").removeprefix(f"{tables[name]}, ")
            kept[kind, name, table, text if grown == text or _REFUSES_OLD.search(grown) else tables[name]] += 1
        elif (
            (kind, name) in ours
            or (kind in {"constraint", "trigger", "rule"} and table in tables)
            or (kind == "index" and table in tables and "UNIQUE" in (text or ""))
        ):
            kept[each] += 1
    return kept


def _schema(connection: psycopg.Connection[Any]) -> str:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        ((name,),) = cursor.fetchall()
    if name is None:
        raise DatabaseError("The role's search_path names no schema that exists. Create one: CREATE SCHEMA quotebot")
    return str(name)


def _look_in(connection: psycopg.Connection[Any], *schemas: str) -> None:
    """Let names of this transaction mean objects of these schemas. Without its name last, the temporary one comes first."""
    connection.execute(f"SET LOCAL search_path = {', '.join(schemas)}")


def _objects(connection: psycopg.Connection[Any], schema: str, pinned: str) -> Counter[SchemaObject]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_OBJECTS, {"schema": schema, "pinned": pinned})
        return Counter(cursor.fetchall())
