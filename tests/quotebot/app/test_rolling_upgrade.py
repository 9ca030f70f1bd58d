"""Tests of bots of two builds on one PostgreSQL database, as during an upgrade without an interruption."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from ledger.database import DatabaseError
from ledger.ledger import Ledger
from ledger.migrations import EXPAND, Migration, OlderBuildError
from ledger.operator.explain import why
from ledger.records import Delivered
from ledger.recovery import begin_epoch
from quotebot.app import postgres_storage
from quotebot.app.installation import open_audit, storage_of
from quotebot.commands.payloads import CancelQuote, SubmitQuote
from quotebot.commands.registry import readable
from quotebot.execution.executor import Executor
from quotebot.jobs.maintenance import UNREAD_MS, name_unread_commands
from quotebot.settings import Settings
from quotebot.store import quotes as store
from tests.quotebot.parts import MATRIX, RULES, ManualClock, create_command, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from ledger.records import Operation, Request

HOURS = 8
MINUTE_MS = 60_000
TABLES = [name for each in postgres_storage.migrations() for name in re.findall(r"CREATE TABLE (\w+)", each.sql)]
# The most that a file may add which an older build does not know: a column of every table, an index, and a table.
ADDED = Migration(
    "quotebot.store",
    "0990_added.sql",
    f"{EXPAND} for a test\n"
    + "".join(f"ALTER TABLE {name} ADD COLUMN newer TEXT, ADD COLUMN newest BIGINT NOT NULL DEFAULT 7;\n" for name in TABLES)
    + "CREATE INDEX quotes_newer ON quotes (newer);\nCREATE TABLE notes (id BIGINT PRIMARY KEY, quote_id TEXT REFERENCES quotes);",
)
REMOVED = Migration("quotebot.store", "0991_removed.sql", "-- contract: for a test\nALTER TABLE quotes DROP COLUMN newer;")
OLD, NEW = postgres_storage.migrations(), (*postgres_storage.migrations(), ADDED)


@dataclass
class Bot:
    """A bot of one build: it claims what it reads."""

    ledger: Ledger
    only: str
    claimed: list[Operation] = field(default_factory=list)

    async def work(self) -> None:
        """Execute and deliver until nothing is due for it."""
        executor = Executor(self.ledger, RULES, lambda low, _: low, MATRIX, only=self.only)
        claim = self.ledger.claim_operations

        async def noted(limit: int, *, only: str | None = None) -> list[Operation]:
            found = await claim(limit, only=only)
            self.claimed += found
            return found

        self.ledger.claim_operations = noted  # type: ignore[method-assign]
        try:
            while await executor.step() or await self._deliver():
                pass
        finally:
            del self.ledger.claim_operations

    async def _deliver(self) -> int:
        classes = await self.ledger.database.read(lambda tx: {row["class"] for row in tx.all("unsettled_effects")})
        effects = await self.ledger.claim_effects(dict.fromkeys(sorted(classes), 9))
        for effect in effects:
            await self.ledger.settle(effect, Delivered("ref", {"ts": "1", "channel": "C0SALES"}))
        return len(effects)


class Builds:
    """Bots of two builds on one database."""

    def __init__(self, url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url = url
        self._data_dir = data_dir
        self._monkeypatch = monkeypatch
        self.clock = ManualClock()

    @asynccontextmanager
    async def bot(
        self,
        name: str,
        migrations: Sequence[Migration],
        unread: str = " ",
        *,
        before_opening: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0),
    ) -> AsyncIterator[Bot]:
        """Run a bot of a build with these migrations that cannot read the kind `unread`.

        `before_opening` is awaited when it holds its lock.
        """
        settings = Settings(_env_file=None, data_dir=self._data_dir, ledger_url=self._url, replica_name=name)
        self._monkeypatch.setattr(postgres_storage, "migrations", lambda: migrations)
        storage, audit = storage_of(settings), open_audit(settings)
        lock = storage.hold(bot=True)
        assert lock is not None
        async with AsyncExitStack() as stack:
            stack.callback(lock.close)
            await before_opening()
            database = await storage.open(audit, self.clock, bot=True)
            stack.push_async_callback(database.close)
            now = self.clock.now_ms()
            epoch = await begin_epoch(database, now, role="bot", build=name, alone=False, replica=name)
            ledger = Ledger(database, self.clock, audit, epoch=epoch, pin=store.head_version)
            yield Bot(ledger, re.sub(rf" {re.escape(unread)}/\d+(?= )", "", readable()))
            await database.write("end", lambda tx: tx.one("end_epoch", epoch=epoch, reason="stopped", now=now))

    def check(self, migrations: Sequence[Migration]) -> str:
        """Check the schema as `doctor` of a build does."""
        self._monkeypatch.setattr(postgres_storage, "migrations", lambda: migrations)
        return storage_of(Settings(_env_file=None, data_dir=self._data_dir, ledger_url=self._url)).check_schema()


@pytest.fixture
def builds(create_database: Callable[[Sequence[str]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    return Builds(create_database(()), tmp_path, monkeypatch)


def submit(quote_id: str) -> Request:
    return request_for(SubmitQuote(), f"submit {quote_id}", quote_id=quote_id, version=1)


async def quote_ids(ledger: Ledger) -> list[str]:
    return [row["quote_id"] for row in await ledger.database.read(lambda tx: tx.all("quotes_replayed", after="", limit=1_000))]


async def test_two_builds_share_a_day_in_which_nothing_is_shelved(builds: Builds) -> None:
    async with builds.bot("old", OLD, SubmitQuote.kind) as old:
        async with builds.bot("new", NEW) as new:
            asked: set[str] = set()
            for hour in range(HOURS):
                for number in range(3):
                    await (old, new)[number % 2].ledger.reserve(
                        request_for(create_command(str(3 * hour + number)), f"{hour}/{number}")
                    )
                for place, quote_id in enumerate(sorted({*await quote_ids(new.ledger)} - asked)):
                    asked.add(quote_id)
                    cancel = request_for(CancelQuote(), f"cancel {quote_id}", quote_id=quote_id, version=1)
                    await old.ledger.reserve(cancel if place == 0 else submit(quote_id))
                if hour % 2:
                    await old.work()
                await asyncio.gather(old.work(), new.work())
                assert await new.ledger.next_operation_due_at(0) is None, "none waits"
                builds.clock.advance(60 * MINUTE_MS)
        assert {each.action_kind for each in old.claimed} == {"quote.create", "quote.cancel"}
        assert {each.action_kind for each in new.claimed} >= {"quote.submit"}
        assert len(old.claimed) + len(new.claimed) == 3 * HOURS + len(asked), "each was claimed once, so none was shelved"
    async with builds.bot("old", OLD, SubmitQuote.kind) as old:
        assert len(await quote_ids(old.ledger)) == 3 * HOURS, "an older build can also start again"


async def test_a_command_that_no_bot_reads_is_named_and_holds_up_only_its_quote(builds: Builds) -> None:
    async with builds.bot("old", NEW, SubmitQuote.kind) as old:
        await old.ledger.reserve(request_for(create_command(), "1"))
        await old.work()
        (quote_id,) = await quote_ids(old.ledger)
        waiting = (await old.ledger.reserve(submit(quote_id))).operation.id
        await old.ledger.reserve(request_for(create_command("2"), "2"))
        await old.work()
        assert len(await quote_ids(old.ledger)) == 2
        with capture_logs() as logs:
            for seconds in (0, UNREAD_MS // 1000, 1, 60):
                builds.clock.advance(seconds * 1000)
                await name_unread_commands(old.ledger, old.only)
        assert [(line["event"], line["log_level"], line["operation"], line["action_kind"]) for line in logs] == [
            ("operation.needs_newer_build", "error", f"op{waiting}", "quote.submit")
        ], "once"
        explained = await old.ledger.database.read(
            lambda tx: why(tx, f"op{waiting}", builds.clock.now_ms(), budget=lambda _: 1, bot_runs=True)
        )
        assert explained is not None
        assert explained.cause == "needs_newer_build"
        async with builds.bot("new", NEW) as new:
            await new.work()
            assert [each.id for each in new.claimed] == [waiting], "at once"
            assert await new.ledger.database.read(lambda tx: tx.all("unread_operations")) == []


async def test_older_bots_are_stopped_only_for_what_they_cannot_work_with(builds: Builds) -> None:
    newest = (*NEW, REMOVED)
    async with builds.bot("old", OLD) as old:
        async with builds.bot("new", NEW):
            assert builds.check(OLD) == "it is of this build, with what a newer one has added: quotebot.store/0990_added.sql"
            assert builds.check(NEW) == "it is of this build, its schema is unchanged"
            await old.ledger.reserve(request_for(create_command(), "1"))
        with pytest.raises(OlderBuildError, match=r"bots run on it.*0991_removed.sql changes what they use"):
            async with builds.bot("newest", newest):
                pass
        await old.work()
        assert len(old.claimed) == 1
    async with builds.bot("newest", newest):
        assert builds.check(newest) == "it is of this build, its schema is unchanged"
    with pytest.raises(DatabaseError, match=r"written by a newer build \(it has quotebot.store/0991_removed.sql\)"):
        async with builds.bot("old", OLD):
            pass


async def test_of_two_bots_that_start_with_a_removal_one_migrates_and_both_run(builds: Builds) -> None:
    newest = (*NEW, REMOVED)
    async with builds.bot("old", OLD) as old:
        await old.ledger.reserve(request_for(create_command(), "1"))
    together = asyncio.Barrier(2)

    async def started(name: str) -> int:
        async with builds.bot(name, newest, before_opening=together.wait) as bot:
            await together.wait()
            return len(await bot.ledger.database.read(lambda tx: tx.all("last_epochs", limit=9)))

    assert [*await asyncio.gather(started("r1"), started("r2"))] == [3, 3]
    assert builds.check(newest) == "it is of this build, its schema is unchanged"


async def test_replicas_that_begin_a_ledger_together_all_start(builds: Builds) -> None:
    async def started(name: str) -> int:
        async with builds.bot(name, OLD) as bot:
            await asyncio.sleep(0)
            return len(await quote_ids(bot.ledger))

    assert await asyncio.gather(*(started(f"r{number}") for number in range(2))) == [0, 0]
