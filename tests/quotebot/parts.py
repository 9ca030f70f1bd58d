"""Real parts for tests below the sockets: a ledger in a file, a manual clock, commands as people give them in Slack."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from adapters.policies import POLICIES, Matrix
from adapters.slack.api import Identity, PostedMessage, SlackMember
from faults.harness.fresh import lay
from ledger import recovery
from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.ledger import Ledger
from ledger.records import Request
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.commands.payloads import CreateQuote
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, EffectHandlers
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.pricing.engine import PriceRequest
from quotebot.domain.rules import Rules
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.store import quotes as store
from quotebot.views.document import Seller
from tests.quotebot.views.quote_examples import GOLDEN, MORNING, RULESET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from quotebot.commands.registry import Payload
    from quotebot.domain.pricing.engine import LineRequest

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
MATRIX = Matrix(POLICIES)
POLICY = parse_policy(files("quotebot").joinpath("data/policy.toml").read_text("utf-8"))
RULES = Rules(
    RULESET,
    POLICY,
    {
        "sales_manager": ("U0MANAGER",),
        "deal_desk": ("U0DEALDESK",),
        "vp_sales": ("U0VP",),
        "cfo": ("U0CFO",),
        "legal": ("U0LEGAL",),
    },
)


def handlers_of(bench: Bench, *, slack: Any = None, settle_delay_seconds: float = 1, **more: Any) -> EffectHandlers:
    """Return the effect handlers of a bench without adapters, except for `slack`."""
    unused: Any = None
    adapters = Adapters(slack=slack, pdf=unused, artefacts=unused, salesforce=None)
    return EffectHandlers(
        bench.ledger,
        adapters,
        RULES,
        Seller("Seller", ()),
        settle_delay_seconds=settle_delay_seconds,
        **{"handlers": HANDLERS, **more},
    )


def at(local: str, zone: str = BERLIN) -> int:
    """Return a local time as Unix milliseconds."""
    return int(datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


@dataclass(slots=True)
class OneSlack:
    """Slack's records of people, of whom those in `gone` have left, and the messages posted."""

    gone: tuple[str, ...] = ()
    zone: str = BERLIN
    posted: list[str] = field(default_factory=list)

    async def identify(self) -> Identity:
        return Identity("T0HOME", "U0BOT", "B0BOT")

    async def member(self, *, user: str) -> SlackMember:
        gone = user in self.gone
        return SlackMember(frozenset({"T0HOME"}), deactivated=gone, bot=False, guest=False, name="Max Manager", zone=self.zone)

    async def open_direct(self, *, user: str) -> str:
        return f"D{user[1:]}"

    async def post(self, *, channel: str, text: str, blocks: Any, **_: object) -> PostedMessage:
        self.posted.append(f"{channel} {text} {blocks}")
        return PostedMessage(channel, f"1.{len(self.posted)}")


@dataclass(slots=True)
class ManualClock:
    """Clock that advances only on request. It starts on 21 Nov 2026, 10:31 UTC."""

    ms: int = MORNING

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return self.ms

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self.ms / 1000

    def advance(self, ms: int) -> None:
        """Advance by `ms` milliseconds."""
        self.ms += ms


@dataclass(frozen=True, slots=True)
class Bench:
    """The ledger of the one active bot, without its workers; `path` is its file."""

    ledger: Ledger
    clock: ManualClock
    path: Path

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """Read or write the file from outside the bot, with plain SQL."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            return [dict(row) for row in connection.execute(sql, parameters)]
        finally:
            connection.close()

    def row(self, sql: str, *parameters: object) -> dict[str, Any]:
        """Read exactly one row."""
        (found,) = self.rows(sql, *parameters)
        return found

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table that a command may write."""
        tables = ("operations", "deliveries", "effects", "attempts", "audit_events", "quotes", "quote_numbers", "approvals")
        return {table: self.row(f"SELECT count(*) AS n FROM {table}")["n"] for table in tables}  # noqa: S608 -- own table names

    async def another_bot(self, **limits: Any) -> Ledger:
        """Return the ledger of the next process, which assumes that this one is dead."""
        epoch = await recovery.begin_epoch(self.ledger.database, self.clock.now_ms(), role="bot", build="next")
        return Ledger(self.ledger.database, self.clock, self.ledger.audit, epoch=epoch, **limits)


@asynccontextmanager
async def bench_at(path: Path) -> AsyncIterator[Bench]:
    """Make a ledger in a file and open it."""
    clock = ManualClock()
    migrations, _ = schema_and_statements()
    lay(path, tuple(migrations), clock.now_ms())
    audit = Audit(DOMAIN_EVENTS, load_keyring(path.parent))
    database = await SqliteStorage(path, *schema_and_statements()).open(audit, clock, bot=True, keeps_room=False)
    try:
        epoch = await recovery.begin_epoch(database, clock.now_ms(), role="bot", build="test")
        yield Bench(Ledger(database, clock, audit, epoch=epoch, pin=store.head_version), clock, path)
    finally:
        await database.close()


def create_command(discount: str = "15", lines: tuple[LineRequest, ...] = GOLDEN) -> CreateQuote:
    """Return the golden creation."""
    return CreateQuote("Acme", PriceRequest(lines, 12, Decimal(discount)), "C0SALES")


def request_for(
    payload: Payload,
    request_id: str,
    *,
    quote_id: str = "new",
    version: int | None = 0,
    **changes: Any,
) -> Request:
    """Return the request of one gesture."""
    values: dict[str, Any] = {
        "source": "slack_slash" if quote_id == "new" else "slack_interactive",
        "source_request_id": f"T0HOME:{request_id}",
        "action_kind": payload.kind,
        "aggregate_id": quote_id,
        "aggregate_version": version,
        "payload": payload.canonical(),
        "fingerprint": "f" * 64,
        "actor": "U0REP",
        "actor_type": "user",
        "team_id": "T0HOME",
        "received_at": MORNING,
        "transport": {"response_url": "https://hooks.slack.com/commands/T0HOME/1/secret", "actor_name": "rep"},
    }
    return Request(**{**values, **changes})


@contextlib.contextmanager
def gate_held(ledger_path: Path) -> Iterator[None]:
    """Block every writer of the ledger, as another process inside its write gate does."""
    gate = os.open(ledger_path.with_name(ledger_path.name + ".gate"), os.O_RDWR)
    fcntl.flock(gate, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(gate)


def tampered(path: Path, sql: str, *parameters: object) -> None:
    """Write to the file of a closed ledger without its guards, as plain SQL could; the guards are recreated."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql, parameters)
        for _, guard in guards:
            connection.execute(guard)


def reshaped(path: Path, *statements: str) -> None:
    """Change the schema of a closed ledger."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for sql in statements:
            connection.execute(sql)


def copy_data(folder: Path, to: Path) -> None:
    """Copy the data folder of a stopped bot. The ballast for a full disk, 32 MiB of zeros, is the same file in both."""
    shutil.copytree(folder, to, copy_function=_link_ballast)


def _link_ballast(source: str, target: str) -> str:
    if not source.endswith(".ballast"):
        return shutil.copy2(source, target)
    os.link(source, target)
    return target
