"""Seeded bugs in the engine for PostgreSQL.

Everything is found by name, in the fork in which the bug is seeded: the engine needs a driver that an installation may lack.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from faults.mutants import patching
from faults.mutants.patching import both, of, put, replaced
from ledger import database, migrations

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.mutants.patching import Plant

WRITER: Final = "ledger.postgres.writer"
MARK: Final = "ledger.postgres.marks:WriterMark"
SESSIONS: Final = "ledger.postgres.sessions"
ENGINE: Final = "ledger.postgres.engine"


def patch(place: str, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """Return a decorator as `patching.patch` does, for an attribute of what `place` names."""

    def decorate(change: Callable[..., Any]) -> Plant:
        def plant() -> None:
            patching.patch(resolve_name(place), name)(change)()

        return plant

    return decorate


def text(name: str, *changes: tuple[str, str]) -> Plant:
    """Return a bug in a named statement as this engine takes it."""

    def plant() -> None:
        honest = of(database, "replace_statements")
        put(database, "replace_statements", lambda *texts: _changed(honest(*texts), name, *changes))

    return plant


def _changed(statements: Any, name: str, *changes: tuple[str, str]) -> Any:
    """Return the statements with the change. Those of the ledger alone lack the statements of the domain."""
    return replaced(statements, name, *changes) if name in statements else statements


# --------------------------------------------------------------------------------------------- a COMMIT without an answer
@patch(MARK, "resolve")
def always_recorded(honest: Any, self: Any, connect: Any) -> Any:
    """A COMMIT without an answer is taken for recorded."""
    return True, honest(self, connect)[1]


@patch(MARK, "resolve")
def never_recorded(honest: Any, self: Any, connect: Any) -> Any:
    """A COMMIT without an answer is taken for lost, and its batch runs again."""
    return False, honest(self, connect)[1]


@patch(f"{WRITER}:BatchWriter", "_resolved")
def committed_again(_honest: Any, self: Any, _uncertain: str) -> bool:
    """COMMIT is sent once more, to a new session, and its success believed."""
    self.unknown += 1
    self.close()
    of(self, "_reconnect")().run("COMMIT")
    of(self, "_mark").recorded()
    return True


@patch(f"{SESSIONS}:Session", "commit")
def warning_ignored(honest: Any, self: Any) -> str | None:
    """COMMIT counts as durable though the server warned that no standby has it."""
    honest(self)
    return None


@patch(MARK, "_bump")
def mark_only_read(_honest: Any, self: Any, session: Any) -> bool:
    """The mark is read without being moved, which does not wait for a COMMIT that is still in progress."""
    ((found,),) = session.run(f"SELECT n FROM writers WHERE writer = {of(self, '_literal')}")  # noqa: S608 -- quoted by the mark
    recorded = bool(found - of(self, "_n"))
    put(self, "_n", found)
    return recorded


@patch(f"{SESSIONS}:Session", "shut")
def canceled(_honest: Any, self: Any) -> None:
    """The server is asked to cancel a call that takes too long, COMMIT included."""
    self.connection.cancel_safe(timeout=1.0)


@patch(MARK, "begin")
def mark_not_compared(honest: Any, self: Any, session: Any, *, alone: bool) -> None:
    """A batch begins whatever the mark is."""
    with suppress(resolve_name("ledger.postgres.marks:MarkError")):
        honest(self, session, alone=alone)


@patch(SESSIONS, "_connect")
def acknowledged_before_the_disk(honest: Any, *arguments: Any, **named: Any) -> Any:
    """COMMIT returns before anything is on a disk or a standby."""
    put(resolve_name(SESSIONS), "_SETTINGS", {**of(resolve_name(SESSIONS), "_SETTINGS"), "synchronous_commit": "off"})
    return honest(*arguments, **named)


@patch(SESSIONS, "_connect")
def idle_for_good(honest: Any, server: Any, name: str, limits: Any, *, writes: bool) -> Any:
    """A process that was stopped keeps its row locks for good."""
    return honest(server, name, limits._replace(idle=0), writes=writes)


# ------------------------------------------------------------------------------------------------------------- batches
@patch(f"{WRITER}:BatchWriter", "_roll_back")
def half_recorded(honest: Any, self: Any, session: Any, trouble: Any = None) -> bool:
    """A member's error commits what the batch did so far; the others run once more."""
    if trouble is not None:
        return bool(honest(self, session, trouble))
    session.run("COMMIT")
    of(self, "_mark").recorded()
    return True


def events_kept() -> None:
    """Items emitted in one run of a batch are still there in the next."""
    kept: list[object] = []

    @patch(WRITER, "PostgresTx")
    def transaction(honest: Any, session: Any, statements: Any, _events: Any, **named: Any) -> Any:
        return honest(session, statements, kept, **named)

    transaction()


def bound_rows_not_reported() -> None:
    """The changed rows of the audited tables are not read before COMMIT."""
    module = resolve_name(WRITER)
    put(module, "_REPORTED", f"{of(module, '_REPORTED')} WHERE false")


# ------------------------------------------------------------------------------------------------------- a former primary
@patch(f"{SESSIONS}:Address", "_require_suitable")
def timeline_forgotten(honest: Any, self: Any, connection: Any, server: Any) -> int:
    """The highest timeline seen is not remembered, so that a former primary is as good as the new one."""
    found = int(honest(self, connection, server))
    self.timeline = 0
    return found


@patch(f"{ENGINE}:SnapshotReader", "_current")
def reads_stay(honest: Any, self: Any) -> Any:
    """Reads stay with the server that they began with."""
    return self.session or honest(self)


@patch(f"{SESSIONS}:Session", "run")
def read_in_pieces(honest: Any, self: Any, sql: str) -> Any:
    """Each statement of a read sees what was committed meanwhile."""
    return honest(self, sql.replace("REPEATABLE READ", "READ COMMITTED"))


# ------------------------------------------------------------------------------------------ several processes at one time
def _shared(label: str) -> Plant:
    """Return a bug: the write of that label does not run alone."""

    @patch(f"{ENGINE}:PostgresDatabase", "write")
    def write(honest: Any, self: Any, name: str, work: Any, **named: Any) -> Any:
        return honest(self, name, work, **(named | {"alone": False} if name == label else named))

    return write


anchor_beside_writes = _shared("audit.barrier")
fold_beside_writes = _shared("measures.fold")


@patch(MARK, "begin")
def never_alone(honest: Any, self: Any, session: Any, *, alone: bool) -> None:
    """A write that must run alone shares the lock with every other."""
    del alone
    honest(self, session, alone=False)


def ids_cached() -> None:
    """Each session takes the audit's ids from the sequence in advance."""
    honest = of(migrations, "Migration")
    tables = "CREATE TABLE audit_events ( -- append only; each event signs the one before it in its aggregate's chain\n"
    plain = f"{tables}  id BIGINT PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,"

    def changed(component: str, name: str, sql: str) -> Any:
        made = honest(component, name, sql)
        return replace(made, sql=sql.replace(plain, f"{plain[:-1]} (CACHE 32),"))

    put(migrations, "Migration", changed)


@patch("ledger.postgres.paces:DatabasePaces", "take")
async def paces_not_shared(honest: Any, self: Any, name: str, at_once: int, seconds: float) -> float:
    """Each process counts its own calls alone."""
    del honest, self, name, at_once, seconds
    return 0.0


parent_not_locked = text("effect_by_key", (" FOR SHARE", ""))
gate_over_any_state = text(
    "put_gate", ("WHERE gates.state = :state_before", "WHERE gates.state <> '' OR gates.state = :state_before")
)
gates_not_locked = text("lock_gates", (" FOR UPDATE", ""))
twins_not_locked = text(
    "lock_twins", ("pg_advisory_xact_lock(hashtextextended(:requester || ' ' || :asked_hash, 0))", "(SELECT 1) AS nothing")
)
head_not_locked = text("audit_head", ("lock_audit_head(:aggregate_id)", "audit_heads WHERE aggregate_id = :aggregate_id"))
ids_from_the_highest = text(
    "next_audit_ids", ("nextval('audit_events_id_seq')", "(SELECT coalesce(max(id), 0) FROM audit_events) + generate_series")
)
purges_not_locked = text("lock_job", ("FROM pg_advisory_xact_lock(hashtextextended(:name, 0))", ""))
claims_wait = both(text("due_operations", (" SKIP LOCKED", "")), text("due_effects", (" SKIP LOCKED", "")))
claimed_twice = both(
    text("due_operations", ("  FOR UPDATE OF o SKIP LOCKED", "")), text("due_effects", ("  FOR UPDATE OF e SKIP LOCKED", ""))
)


# ------------------------------------------------------------------------------------------------------ several replicas
@patch("ledger.leases:Leases", "_is_steady")
def no_grace(honest: Any, self: Any) -> bool:
    """A replica takes lapsed claims however long it was away itself."""
    del honest, self
    return True


@patch("ledger.postgres.clock:DatabaseClock", "now_ms")
def time_of_the_machine(honest: Any, self: Any) -> int:
    """Leases are written and compared by the clock of each machine."""
    del honest
    return int(of(self, "_machine").now_ms())


@patch("ledger.ledger:Ledger", "may_claim")
def claims_in_any_term(honest: Any, self: Any) -> bool:
    """A replica that holds its lock again claims before it has looked at its epoch."""
    del honest
    return bool(self.ownership.is_held())


death_not_checked_again = text(
    "end_dead_epoch", ("AND NOT EXISTS (", "AND NOT EXISTS (SELECT 1 WHERE false) AND EXISTS (SELECT 1 UNION ALL ")
)
