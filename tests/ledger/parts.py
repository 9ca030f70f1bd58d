"""Shared parts of the ledger's tests: a manual clock, and a ledger with a second connection to its file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ledger
from ledger.audit.events import Audit, Keyring
from ledger.database import load_statements
from ledger.ledger import Ledger
from ledger.migrations import Migration
from ledger.records import Effect, EffectIntent, Operation, Outcome, Request, Reservation, Semantics, Trouble
from ledger.recovery import begin_epoch
from ledger.sqlite.engine import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from ledger.clock import Clock
    from ledger.database import Row, Tx
    from tests.ledger.places import Place, Shell

T = TypeVar("T")

HOME = Path(ledger.__file__).parent
STATEMENTS = load_statements([(HOME / "queries.sql").read_text("utf-8")])
MIGRATIONS = tuple(Migration("ledger", file.name, file.read_text("utf-8")) for file in sorted((HOME / "schema").glob("*.sql")))
KEYRING = Keyring.of(b"k" * 32)
AUDIT = Audit(frozenset({"quote.submitted", "quote.moved"}), KEYRING)
START_MS = 1_800_000_000_000
QUOTE = "Q-2026-0001"
TROUBLE = Trouble("transient", "503 from the other side", http_status=503)


FINISHED = 2_000  # commands in a history
ZEROS = "0" * 64
HISTORY = f"""
INSERT INTO operations (operation_key, source, source_request_id, action_kind, aggregate_id, lane, payload_hash, payload,
  correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {FINISHED})
SELECT
  substr('{ZEROS}' || n, length('' || n) + 1), 'cli', '' || n, 'quote.submit', 'Q-' || n, 'Q-' || n,
  substr('{ZEROS}' || n, length('' || n) + 1),
  '{{}}', 'c-' || n, 'a', 'user', 'T', 1, 1, 1, 1
FROM numbers;
INSERT INTO deliveries (source, source_request_id, action_kind, operation_id, fingerprint, transport, received_at, last_seen_at)
SELECT source, source_request_id, action_kind, id, 'f', '{{}}', 1, 1 FROM operations;
INSERT INTO effects (effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, payload, next_attempt_at,
  aged_from, created_at, updated_at)
SELECT operation_key, id, 'slack.post', 'append', aggregate_id, aggregate_id, correlation_id, '{{}}', 1, 1, 1, 1 FROM operations;
UPDATE operations SET state = 'in_progress', epoch = 1, lease_until = 1, fence = 1, next_attempt_at = NULL;
UPDATE operations SET state = 'completed', epoch = NULL, lease_until = NULL, outcome = 'applied', finished_at = 1;
UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 1, fence = 1, next_attempt_at = NULL;
UPDATE effects SET state = 'delivered', epoch = NULL, lease_until = NULL, finished_at = 1;
"""  # noqa: S608 -- one number of our own


class ManualClock:
    """Both clocks; they stand still until the test advances them."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, milliseconds: int) -> None:
        self.wall_ms += milliseconds
        self.seconds += milliseconds / 1000


@dataclass
class Signs:
    """The signs of life of several replicas, as a test makes them."""

    name: str
    held: bool = True
    alone: bool = False
    term: int = 0
    dead: list[int] = field(default_factory=list)

    def is_held(self) -> bool:
        return self.held

    async def dead_epochs(self) -> list[int]:
        return self.dead

    async def count(self) -> int:
        return 2

    async def leads(self) -> bool:
        return self.held


async def open_database(
    path: Path,
    clock: Clock,
    *,
    statements: Mapping[str, str] | None = None,
    migrations: Sequence[Migration] = MIGRATIONS,
    audit: Audit | None = None,
) -> SqliteDatabase:
    """Open a ledger file with the ledger's own schema, and with the statements that a test adds."""
    return await SqliteDatabase.open(
        path,
        statements={**STATEMENTS, **(statements or {})},
        migrations=migrations,
        clock=clock,
        finish=(audit or AUDIT).chain,
    )


def open_shell(path: Path) -> sqlite3.Connection:
    """Open the ledger's file as another program would."""
    shell = sqlite3.connect(path, isolation_level=None)
    shell.row_factory = sqlite3.Row
    return shell


def request(request_id: str = "r1", **changes: Any) -> Request:
    """Return a request about QUOTE from a slash command."""
    asked: dict[str, Any] = {
        "source": "slack_slash",
        "source_request_id": f"T01:{request_id}",
        "action_kind": "quote.submit",
        "aggregate_id": QUOTE,
        "aggregate_version": 1,
        "payload": {"schema": 1, "note": "as discussed"},
        "fingerprint": "submit as discussed",
        "actor": "U0REP",
        "actor_type": "user",
        "team_id": "T01",
        "received_at": START_MS,
    }
    return Request(**{**asked, **changes})


def intent(effect_class: str = "slack.post", semantics: Semantics = "append", target: str = QUOTE, **changes: Any) -> EffectIntent:
    """Return an effect to enqueue: by default a post in the quote's thread."""
    return EffectIntent(effect_class, semantics, target, **{"aggregate_id": QUOTE, "payload": {"text": "hello"}, **changes})


def applied(*effects: EffectIntent) -> Callable[[Tx], Outcome]:
    """Return work that applies the command and enqueues `effects`."""
    return lambda _: Outcome("applied", {"code": "ok"}, effects)


@dataclass
class Desk:
    """A ledger with the methods that tests need, and a second connection to read it."""

    ledger: Ledger
    clock: ManualClock
    shell: Shell

    async def reserve(self, request_id: str = "r1", **changes: Any) -> Reservation:
        """Reserve a request; each id is another command."""
        return await self.ledger.reserve(request(request_id, **changes))

    async def claim_operation(self, request_id: str = "r1", **changes: Any) -> Operation:
        """Reserve a request and claim it."""
        await self.reserve(request_id, **changes)
        return sure(await self.ledger.claim_operation())

    async def owe(self, *effects: EffectIntent, request_id: str = "r1") -> list[Effect]:
        """Execute a command that enqueues `effects`; return the enqueued rows."""
        operation = await self.claim_operation(request_id)
        await self.ledger.execute(operation, applied(*effects))
        return [self.effect(row["id"]) for row in self.rows("SELECT id FROM effects WHERE operation_id = ?", operation.id)]

    async def claim_each(self) -> list[Effect]:
        """Claim everything that is due, in the order in which the classes were first enqueued."""
        classes = self.rows("SELECT class FROM effects GROUP BY class ORDER BY min(id)")
        return await self.ledger.claim_effects({row["class"]: 100 for row in classes})

    async def claim(self) -> Effect:
        """Claim the only due effect."""
        (effect,) = await self.claim_each()
        return effect

    async def claimed_ids(self) -> list[int]:
        """Claim everything that is due; return the ids in order of claim."""
        return [effect.id for effect in await self.claim_each()]

    def rows(self, sql: str, *parameters: object) -> list[Row]:
        """Read from the shell."""
        return self.shell.execute(sql, parameters)

    def value(self, sql: str, *parameters: object) -> Any:
        """Read one value from the shell."""
        (value,) = self.shell.execute(sql, parameters)[0]
        return value

    def effect(self, effect_id: int) -> Effect:
        """Return an effect as stored."""
        (row,) = self.rows("SELECT * FROM effects WHERE id = ?", effect_id)
        return Effect.of(row)

    def operation(self, operation_id: int = 1) -> Operation:
        """Return an operation as stored."""
        (row,) = self.rows("SELECT * FROM operations WHERE id = ?", operation_id)
        return Operation.of(row)

    def events(self) -> list[str]:
        """Return the types of all audit events, oldest first."""
        return [row["event_type"] for row in self.rows("SELECT event_type FROM audit_events ORDER BY id")]

    def last_event(self, event_type: str) -> dict[str, Any]:
        """Return the newest audit event of a type, with its JSON parsed."""
        row = self.rows("SELECT * FROM audit_events WHERE event_type = ? ORDER BY id DESC LIMIT 1", event_type)[0]
        return {**dict(row), "after": None if row["after"] is None else json.loads(row["after"])}

    def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row except the audit's; they must be equal if nothing changed."""
        tables = ("operations", "deliveries", "effects", "attempts", "gates", "holds", "epochs")
        return {table: [tuple(row) for row in self.rows(f"SELECT * FROM {table} ORDER BY 1, 2")] for table in tables}  # noqa: S608 -- own names


async def restart(desk: Desk) -> Desk:
    """Start the next process on the same file, as after a kill of the last one; no claim is released yet."""
    epoch = await begin_epoch(desk.ledger.database, desk.clock.now_ms(), role="bot", build="1.1")
    return Desk(Ledger(desk.ledger.database, desk.clock, desk.ledger.audit, epoch=epoch), desk.clock, desk.shell)


def sure(value: T | None) -> T:
    """Return `value`, which must not be None."""
    assert value is not None
    return value


NOTES = Migration("test", "0001_notes.sql", "CREATE TABLE notes (text TEXT NOT NULL) STRICT;")
NOTE_STATEMENTS = {
    "note": "INSERT INTO notes (text) VALUES (:text)",
    "notes": "SELECT text FROM notes ORDER BY rowid",
    "big_note": "INSERT INTO notes (text) VALUES (:text || hex(zeroblob(100000)))",
    "stop_growing": "PRAGMA max_page_count = 1",  # clamped to the size the file has
    "grow_again": "PRAGMA max_page_count = 1073741823",
}


async def open_notebook(path: Path, clock: ManualClock) -> SqliteDatabase:
    """Open a ledger file with an additional table of notes, for simple writes."""
    return await open_database(path, clock, statements=NOTE_STATEMENTS, migrations=(*MIGRATIONS, NOTES))


def note(text: str) -> Callable[[Tx], str]:
    """Return work that writes one note; its result is the text."""

    def work(tx: Tx) -> str:
        tx.one("note", text=text)
        return text

    return work


def notes(shell: sqlite3.Connection) -> list[str]:
    """Return the notes on disk, in order."""
    return [row["text"][:20] for row in shell.execute("SELECT text FROM notes ORDER BY rowid")]


class Held:
    """Work that stops in the middle of its transaction until it is released."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begun = threading.Event()
        self._released = threading.Event()

    def __call__(self, tx: Tx) -> str:
        tx.one("note", text=self._text)
        self._begun.set()
        assert self._released.wait(10)
        return self._text

    async def begun(self) -> None:
        """Wait until the work has begun."""
        assert await asyncio.to_thread(self._begun.wait, 10)

    def release(self) -> None:
        self._released.set()


@asynccontextmanager
async def one_of_several(place: Place, clock: Clock, name: str) -> AsyncIterator[Ledger]:
    """Yield the ledger of one of several bots on one database."""
    database = await place.open(clock)
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0", alone=False, replica=name)
    try:
        yield Ledger(database, clock, AUDIT, epoch=epoch)
    finally:
        await database.close()
