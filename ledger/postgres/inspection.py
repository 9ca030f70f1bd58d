"""Inspection of a PostgreSQL server and of the bot's role on it. Nothing is changed, and every function blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.database import DatabaseError
from ledger.postgres.clock import SERVER_TIME, skew
from ledger.postgres.connections import THERE, connect, connected, value
from ledger.postgres.marks import NOTES, LostCommitsError, MarkNote, marked
from ledger.postgres.migrations import require_order
from ledger.postgres.sessions import TimelineLog, read_position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import psycopg

_SETTINGS: Final = (
    "SELECT name, setting FROM pg_catalog.pg_settings "
    "WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names')"
)
_NEEDED: Final = {
    "fsync": "fsync is off, so a power cut loses what was acknowledged",
    "full_page_writes": "full_page_writes is off, so a power cut can damage the database",
}
_WAITING: Final = frozenset({"on", "remote_apply"})  # values of synchronous_commit that wait for the disk of a standby
_PID: Final = "SELECT pg_backend_pid()"
_PIDS_COMPARED: Final = 5
# The server ends this session by itself, so that a pooler with a single one does not wait for it for ever.
_HOLD: Final = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 2000"
_OWNS: Final = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class AS c
  WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND pg_has_role(c.relowner, 'MEMBER'))
"""
_MAY_CREATE: Final = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
# Rights that the bot never needs.
_RIGHTS: Final = """
SELECT r.name || ' on ' || c.relname FROM pg_catalog.pg_class AS c
CROSS JOIN (VALUES ('TRUNCATE'), ('TRIGGER'), ('UPDATE'), ('DELETE')) AS r (name)
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND has_table_privilege(c.oid, r.name)
  AND (r.name IN ('TRUNCATE', 'TRIGGER') OR c.relname IN ('audit_events', 'audit_anchors', 'generations', 'schema_migrations')
    OR (c.relname = 'audit_heads' AND r.name = 'DELETE'))
ORDER BY 1
"""
# Of the server, the database and the role the narrowest limit. A login sees the kind of its own sessions alone.
_LEFT: Final = """
WITH others AS (
  SELECT count(*) AS everywhere, count(*) FILTER (WHERE datname = current_database()) AS here FROM pg_catalog.pg_stat_activity
  WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
    AND NOT (application_name LIKE 'quotebot %%' AND datname = current_database()))
SELECT least(
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true), '0')::int - others.everywhere,
  CASE WHEN d.datconnlimit >= 0 THEN d.datconnlimit - others.here END,
  CASE WHEN r.rolconnlimit >= 0 THEN r.rolconnlimit END)
FROM others, pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r
WHERE d.datname = current_database() AND r.rolname = current_user
"""
_RIGHTS_NAMED: Final = 3


def risks(url: str, *, needs_standby: bool, timelines: Path) -> list[str]:
    """Return why the server could lose or confuse what it acknowledged, or this login change the audit unnoticed."""
    with connected(url) as connection:
        settings = dict(connection.execute(_SETTINGS).fetchall())
        found = _losses(settings, needs_standby=needs_standby)
        commit = settings["synchronous_commit"]
        if commit not in _WAITING and (needs_standby or commit != "local"):
            whose = "for this role, this database or the server"
            found.append(f"synchronous_commit is {commit} {whose}: the bot's sessions override it, its migrations do not")
        if value(connection, "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"):
            found.append("the bot logs in as a superuser, who can change the audit with its guards off")
        try:
            require_order(connection)
        except DatabaseError as error:
            found.append(str(error))
        system, timeline = read_position(connection)
        highest = TimelineLog(timelines).highest(system)
        if timeline < highest:
            found.append(f"the server is on timeline {timeline} and was on {highest}: a former primary, whose commits are lost")
        found += _lost_commits(connection, timelines.parent)
        if _changes_session(url, connection):
            found.append("a pooler changes the session between transactions, which ends locks and prepared statements")
    return found


def losses(url: str) -> list[str]:
    """Return why what the bot acknowledged could be lost with the server."""
    with connected(url) as connection:
        return _losses(dict(connection.execute(_SETTINGS).fetchall()), needs_standby=True)


def connections_left(url: str) -> int:
    """Return how many connections this login may have at once in this database, beside those of other programs."""
    with connected(url) as connection:
        return int(value(connection, _LEFT))


def clock_skew_ms(url: str, now_ms: Callable[[], int]) -> int:
    """Return how far at least the clock `now_ms` (Unix ms) is ahead of the server's; negative: behind."""
    with connected(url) as connection:
        before_ms = now_ms()
        server_ms = float(value(connection, SERVER_TIME))
        return skew(before_ms, server_ms, now_ms())


def needless_rights(url: str) -> str | None:
    """Return which rights this login has beyond those of a bot, or None."""
    with connected(url) as connection:
        if value(connection, _OWNS):
            return "the bot's role owns the tables, or is a member of the role that does"
        found = [str(right) for (right,) in connection.execute(_RIGHTS).fetchall()]
        if value(connection, _MAY_CREATE):
            found.insert(0, "CREATE on the schema")
    if not found:
        return None
    more = f" and {len(found) - _RIGHTS_NAMED} more" if len(found) > _RIGHTS_NAMED else ""
    return f"the bot's role has {', '.join(found[:_RIGHTS_NAMED])}{more}"


def _losses(settings: Mapping[str, str], *, needs_standby: bool) -> list[str]:
    found = [words for name, words in _NEEDED.items() if settings[name] != "on"]
    if needs_standby and not settings["synchronous_standby_names"].strip():
        found.append("synchronous_standby_names is empty, so what is acknowledged is lost with the server's disk")
    return found


def _lost_commits(connection: psycopg.Connection[tuple[Any, ...]], folder: Path) -> list[str]:
    """Return, for each writer with a note in the folder, that commits of it are missing."""
    found = []
    for note in filter(None, map(MarkNote.read, sorted(folder.glob(f"{NOTES}*")))):
        if value(connection, THERE):
            row = connection.execute(marked(note.writer)).fetchone()
            try:
                note.require_kept(MarkNote(note.writer, *(row or ("", 0, 0))))
            except LostCommitsError as error:
                found.append(str(error))
    return found


def _changes_session(url: str, connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Tell whether a transaction elsewhere can take the server's session of this connection, as behind a pooler."""
    seen = {value(connection, _PID) for _ in range(_PIDS_COMPARED)}
    other = connect(url)
    try:
        other.execute(_HOLD)
        seen.add(value(connection, _PID))
    finally:
        other.close()
    return len(seen) > 1
