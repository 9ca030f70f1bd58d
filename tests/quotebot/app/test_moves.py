"""Tests of the move of a ledger between its file and a database: every row arrives, and never can both ledgers be written."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from aiohttp import ClientSession

from faults.checks import checker
from faults.harness.fork_server import Order, shared_fork_server
from ledger.audit.keyring import load_keyring
from ledger.clock import SystemClock
from ledger.database import MovedError, NotRecorded
from ledger.operator.moving import Digest, MoveError, Seal
from ledger.sqlite.locks import hold_instance_lock
from quotebot.app.backups import restore
from quotebot.app.installation import LedgerInUseError, open_ledger, storage_of
from quotebot.app.moves import count, move, undo
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings
from tests.quotebot.app.test_restore import _prepare
from tests.quotebot.parts import ManualClock
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.operator.moving import Movable, Rows


@dataclass(frozen=True, slots=True)
class Places:
    """A stopped bot's ledger in a file, with pending effects, and an empty database."""

    file: Settings
    database: Settings

    @property
    def url(self) -> str:
        """The address of the database."""
        assert self.database.ledger_url is not None
        return self.database.ledger_url


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a bot that stopped in the middle of its work."""
    folder = tmp_path_factory.mktemp("origin") / "bot"
    asyncio.run(_prepare(folder, ManualClock()))
    shutil.rmtree(folder / "kept")
    return folder


@pytest.fixture
def places(origin: Path, tmp_path: Path, create_database: Callable[[Sequence[str]], str]) -> Places:
    shutil.copytree(origin, tmp_path / "bot", ignore=shutil.ignore_patterns("*.ballast"))
    file = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_durability="local")
    return Places(file, file.model_copy(update={"ledger_url": create_database(())}))


def movable(settings: Settings) -> Movable:
    return storage_of(settings).movable()


def digests(settings: Settings) -> dict[str, tuple[int, int]]:
    """Return the number of rows of each table and their digest."""

    def of(rows: Rows, table: str) -> tuple[int, int]:
        digest = Digest()
        for _ in digest.over(rows.rows(table)):
            pass
        return digest.count, digest.value

    with movable(settings).reading() as rows:
        return {table: of(rows, table) for table in rows.tables()}


def is_writable(settings: Settings) -> bool:
    """Tell whether a program that knows nothing of seals could write to the ledger."""
    if settings.ledger_url is None:
        with closing(sqlite3.connect(settings.ledger_path, isolation_level=None)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
                file.execute("INSERT INTO meta VALUES ('probe', '')")
            except sqlite3.Error:
                return False
            return True
    with psycopg.connect(settings.ledger_url) as shell:
        try:
            shell.execute("INSERT INTO writers VALUES ('probe', 0)")
        except psycopg.Error:
            return False
        finally:
            shell.rollback()
        return True


async def test_rows_and_chains_arrive_in_a_database_and_come_back_the_same(places: Places) -> None:
    clock = SystemClock()
    document = storage_of(places.file).documents().put(b"%PDF-1.7")
    there = await move(places.file, places.url, clock, actor="operator")
    sealed, moved = digests(places.file), digests(places.database)
    assert there.tables == {table: rows for table, (rows, _) in sealed.items()}
    assert {table for table in sealed if sealed[table] != moved[table]} == {"meta"}
    keyring = load_keyring(places.file.data_dir, may_create=False)
    assert storage_of(places.database).prove(keyring)["operations"] == 4
    async with open_ledger(places.database) as ledger:
        ids = await ledger.database.write("probe", lambda tx: [row["id"] for row in tx.all("next_audit_ids", count=1)])
        assert ids[0] == moved["audit_events"][0] + 1

    shutil.rmtree(places.file.data_dir / "artefacts")
    await move(places.database, "file", clock, actor="operator")
    assert storage_of(places.file).documents().get(document) == b"%PDF-1.7"
    back = digests(places.file)
    assert {table for table in back if digests(places.database)[table] != back[table]} == {"meta"}
    assert storage_of(places.file).prove(keyring)["audit_events"] == back["audit_events"][0]
    async with open_ledger(places.file) as ledger:
        events = await ledger.database.read(lambda tx: tx.all("audit_anchors_after", after=0, limit=9))
        assert len(events) == 2
    assert len(list(places.file.data_dir.glob("replaced-*/ledger.db"))) == 1


async def test_deal_goes_on_in_the_database_and_ends_in_the_file(tmp_path: Path, create_database: Any) -> None:
    url, folder = create_database(()), tmp_path / "bot"
    async with World(tmp_path / "world").serve() as world:
        async with bot_in(world, folder) as deal:
            await deal.submitted_deal()
            await deal.settled()
        settings = Settings(_env_file=None, data_dir=folder, ledger_durability="local")
        await move(settings, url, SystemClock(), actor="operator")
        async with bot_in(world, folder, ledger_url=url, ledger_durability="local"), ClientSession() as session:
            there = Deal(world.url, folder, session, url)
            await there.click("approval.approve", user="U0MANAGER")
            await there.settled()
        await move(settings.model_copy(update={"ledger_url": url}), "file", SystemClock(), actor="operator")
        async with bot_in(world, folder) as deal:
            await deal.settled()
            await checker.golden_deal(deal)


async def test_sealed_ledger_refuses_every_process_and_names_its_new_place(places: Places) -> None:
    async with open_ledger(places.file) as early:  # a command line that opened the ledger before the move
        await move(places.file, places.url, SystemClock(), actor="operator")
        with pytest.raises(sqlite3.IntegrityError, match="the ledger was moved"):
            await early.database.write("late", lambda tx: tx.one("put_meta", name="late", value=""))
    with pytest.raises(MovedError, match=r"was moved to postgresql://.*QUOTEBOT_LEDGER_URL"):
        async with open_ledger(places.file):
            pass
    with pytest.raises(MovedError):
        storage_of(places.file).check_schema()
    with pytest.raises(MovedError):
        await restore(places.file, places.file.data_dir / "ledger-1.db", SystemClock(), actor="operator")
    async with open_ledger(places.database) as early:
        await move(places.database, "file", SystemClock(), actor="operator")
        with pytest.raises(NotRecorded, match="the ledger was moved"):
            await early.database.write("late", lambda tx: tx.one("put_meta", name="late", value=""))
    with pytest.raises(MovedError, match=r"was moved to /.*ledger\.db"):
        async with open_ledger(places.database):
            pass


async def test_move_changes_nothing_while_a_bot_runs_or_where_a_ledger_is(places: Places) -> None:
    before = digests(places.file)
    assert count(places.file, places.url) == {table: rows for table, (rows, _) in before.items()}
    lock = hold_instance_lock(places.file.ledger_path)
    assert lock is not None
    with pytest.raises(LedgerInUseError):
        await move(places.file, places.url, SystemClock(), actor="operator")
    lock.close()
    with pytest.raises(ConfigurationError, match="postgresql://"):
        await move(places.file, "mysql://db.example/quotebot", SystemClock(), actor="operator")
    with pytest.raises(ConfigurationError, match="already"):
        await move(places.file, "file", SystemClock(), actor="operator")
    other = places.database.model_copy(update={"data_dir": places.file.data_dir.with_name("other")})
    async with open_ledger(other):
        pass
    with pytest.raises(MoveError, match="holds a ledger already"):
        await move(places.file, places.url, SystemClock(), actor="operator")
    assert digests(places.file) == before
    assert is_writable(places.file)


async def test_seal_is_taken_off_only_while_the_target_has_no_ledger(places: Places) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        del done, total
        if what == "Checking the copy":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await move(places.file, places.url, SystemClock(), actor="operator", progress=interrupt)
    assert not is_writable(places.file)
    assert (await undo(places.file, actor="operator")).place == places.url
    assert is_writable(places.file)
    keyring = load_keyring(places.file.data_dir, may_create=False)
    storage_of(places.file).prove(keyring)
    with pytest.raises(ConfigurationError, match="was not moved"):
        await undo(places.file, actor="operator")
    await move(places.file, places.url, SystemClock(), actor="operator")
    with pytest.raises(MoveError, match="is complete"):
        await undo(places.file, actor="operator")
    elsewhere = places.database.model_copy(update={"data_dir": places.file.data_dir.with_name("other")})
    movable(places.database).seal(Seal("1-a", str(elsewhere.ledger_path), 1))
    with pytest.raises(MoveError, match="no note"):
        await undo(elsewhere, actor="operator")
    assert not is_writable(places.database)


@pytest.mark.takes(25)
def test_move_killed_at_any_step_is_finished_later_and_never_leaves_two(places: Places, tmp_path: Path) -> None:
    for source, target, to, count_of_steps in (
        (places.file, places.database, places.url, 7),
        (places.database, places.file, "file", 11),
    ):
        known = tmp_path / f"steps-{to[:4]}"
        arguments = (str(places.file.data_dir), source.ledger_url or "file", to, str(known))
        status = -9
        while status:
            status = asyncio.run(run_killed(tmp_path / "move.log", *arguments))
            assert status in (0, -9), (tmp_path / "move.log").read_text("utf-8")
            writable = [settings for settings in (source, target) if storage_of(settings).exists() and is_writable(settings)]
            assert len(writable) <= 1, known.read_text("utf-8")
        assert writable == [target]
        seal = movable(source).find_seal()
        assert seal is not None
        assert movable(target).find_move() == seal.move
        storage_of(target).prove(load_keyring(places.file.data_dir, may_create=False))
        assert len(known.read_text("utf-8").splitlines()) >= count_of_steps, known.read_text("utf-8")


async def run_killed(log: Path, *arguments: str) -> int:
    """Run a move until it ends or kills itself; return its status."""
    order = Order(arguments, {"PATH": "/usr/bin:/bin", "HOME": str(log.parent)}, str(log), "tests.quotebot.app.killed_move:main")
    async with shared_fork_server() as mother:
        spawned = await mother.spawn(order)
        return await asyncio.wait_for(spawned.wait(), 60)
