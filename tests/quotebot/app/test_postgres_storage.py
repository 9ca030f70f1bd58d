"""Tests of an installation whose ledger is in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import sys
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from aiohttp import ClientSession
from psycopg.rows import dict_row

from ledger.audit.keyring import load_keyring
from ledger.audit.proof import load_signer, public_pem
from ledger.clock import SystemClock
from ledger.database import DatabaseError
from ledger.ledger import Ledger
from ledger.operator.backup import NotWholeError
from ledger.postgres import connections
from quotebot.app.backups import backups_of, is_due
from quotebot.app.installation import instance_lock, open_audit, open_ledger, storage_of
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.cli import terminal
from quotebot.cli.audit import SCRIPT, export_proof
from quotebot.domain.catalogue.rulesets import canonical_ruleset, parse_ruleset
from quotebot.jobs.rulesets import Import, RulesetAnswer, RulesetChanges, Who
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings
from quotebot.store import rulesets
from tests.quotebot.views.quote_examples import RULESET
from tests.rig import Deal, bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.database import Tx


@pytest.fixture
def url(create_database: Callable[[Sequence[str]], str]) -> str:
    """Return the address of an empty database."""
    return create_database(())


class DatabaseDeal(Deal):
    """A deal whose ledger is in a database."""

    def __init__(self, database: str, url: str, data_dir: Path, session: ClientSession) -> None:
        super().__init__(url, data_dir, session)
        self._database = database

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._database, row_factory=dict_row) as connection:
            found: list[dict[str, Any]] = connection.execute(sql.encode()).fetchall()
            return found


async def test_ledger_in_a_database_is_begun_locked_and_proven(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=url)
    storage = storage_of(settings)
    assert isinstance(storage, PostgresStorage)
    assert (storage.exists(), storage.holder()) == (False, None)
    async with open_ledger(settings) as ledger:
        assert await ledger.database.read(lambda tx: tx.all("last_epochs", limit=1)) == []
    assert storage.exists()
    async with instance_lock(settings):
        holder = storage.holder()
        assert holder is not None
        assert holder.alive
        assert storage.hold() is None
    assert storage.check_schema() == "it is of this build, its schema is unchanged"
    assert storage.prove(load_keyring(settings.data_dir, may_create=False))["epochs"] == 0
    assert not (settings.data_dir / "ledger.db").exists()


async def test_lock_of_the_bot_is_taken_again_after_its_session_was_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCK_CHECK_SECONDS", 0.01)
    storage = storage_of(Settings(_env_file=None, data_dir=tmp_path, ledger_url=url))
    lock = storage.hold()
    assert lock is not None
    with psycopg.connect(url, autocommit=True) as other:
        sessions = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'quotebot bot %'"
        (first,) = other.execute(sessions).fetchone() or (None,)
        other.execute("SELECT pg_terminate_backend(%s)", (first,))
        await eventually(lambda: other.execute(sessions).fetchone() not in (None, (first,)), "another session of the lock")
        await eventually(storage.holder, "its lock")
    lock.close()
    assert storage.holder() is None


async def test_a_draft_that_is_discarded_is_not_activated_by_another_process_meanwhile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=url)
    discard, loop = rulesets.discard, asyncio.get_running_loop()
    async with open_ledger(settings) as ledger:
        first = RulesetChanges(ledger)
        await first.begin(RULESET)
        draft = parse_ruleset({**canonical_ruleset(RULESET), "version": "other"})
        assert (await first.import_draft(Import(draft, "prices.csv"), Who("ops", "1"), seen=1)).version == 2
        other = await PostgresStorage(url, None, tmp_path / "marker").open(
            open_audit(settings), SystemClock(), bot=False, may_migrate=False, at_once=True
        )
        second = RulesetChanges(Ledger(other, SystemClock(), open_audit(settings)))
        activation: list[asyncio.Task[RulesetAnswer]] = []

        async def begin_activation() -> None:
            activation.append(asyncio.create_task(second.activate(2, Who("ops", "2"), seen=1)))
            await asyncio.wait(activation, timeout=0.2)

        def discard_later(tx: Tx, version: int) -> bool:
            if not activation:
                asyncio.run_coroutine_threadsafe(begin_activation(), loop).result()
            return discard(tx, version)

        monkeypatch.setattr(rulesets, "discard", discard_later)
        assert (await first.discard(2, Who("ops", "3"))).outcome == "applied"
        assert (await activation[0]).outcome == "refused"
        await other.close()


def test_doctor_names_a_server_that_can_lose_commits(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    storage = storage_of(settings)
    with pytest.raises(DatabaseError) as refused:  # a server for tests is set up like this
        storage.check_durability()
    assert [part.split(",")[0] for part in str(refused.value).split("; ")] == [
        "fsync is off",
        "full_page_writes is off",
        "synchronous_standby_names is empty",
        "the bot logs in as a superuser",
    ]


def test_command_without_a_ledger_in_the_database_names_the_setting(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("QUOTEBOT_LEDGER_URL", url), ("QUOTEBOT_DATA_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"no ledger at postgresql:.*Set QUOTEBOT_LEDGER_URL"):
        terminal.existing_site()


def test_missing_driver_is_named_with_the_extra_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "quotebot.app.postgres_storage")
    monkeypatch.setitem(sys.modules, "ledger.postgres", None)
    with pytest.raises(ConfigurationError, match=r"driver is missing \(ledger.postgres\).*extra postgres"):
        storage_of(Settings(_env_file=None, data_dir=tmp_path, ledger_url="postgresql://localhost/quotebot"))


def test_database_that_does_not_answer_is_an_error_without_the_password(tmp_path: Path) -> None:
    address = f"postgresql://quotebot@/quotebot?host={tmp_path}"
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=address, ledger_password="planted")
    with pytest.raises(DatabaseError, match="database cannot be used") as refused:
        storage_of(settings).exists()
    assert "planted" not in str(refused.value)


def test_backups_of_a_database_are_left_to_its_own_tools(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url="postgresql://localhost/quotebot")
    assert not is_due(settings, 0)
    with pytest.raises(ConfigurationError, match="with the database's own tools"):
        backups_of(settings)


async def test_a_deal_on_postgresql_ends_with_a_card_a_document_and_a_record(url: str, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    await world.start()
    try:
        async with bot_in(world, tmp_path / "bot", ledger_url=url), ClientSession() as session:
            deal = DatabaseDeal(url, world.url, tmp_path / "bot", session)
            await deal.approved_deal()
            assert len(await deal.cards()) == 1
            states = {row["state"] for row in await deal.rows("SELECT DISTINCT state FROM effects")}
            assert states <= {"delivered", "superseded"}
    finally:
        await world.stop()
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=url)
    await its_proof_is_genuine(settings, tmp_path)
    edits_are_found(settings, url)


async def its_proof_is_genuine(settings: Settings, folder: Path) -> None:
    """Export the proof of the only quote, and let the script verify it."""
    signer = load_signer(settings.data_dir)
    async with open_ledger(settings) as ledger:
        (row,) = await ledger.database.read(lambda tx: tx.all("quotes_replayed", after="", limit=2))
        bundle = await export_proof(ledger, row["quote_id"], signer, actor="ops", stored_pdf=lambda _: None)
    assert bundle is not None
    (folder / "bundle.zip").write_bytes(bundle)
    (folder / "key.pem").write_bytes(public_pem(signer))
    with as_file(files("quotebot").joinpath("data", SCRIPT)) as script:
        done = await asyncio.create_subprocess_exec(
            sys.executable, script, folder / "bundle.zip", folder / "key.pem", stdout=asyncio.subprocess.PIPE
        )
        said, _ = await done.communicate()
    assert said.startswith(b"GENUINE: ")


def edits_are_found(settings: Settings, url: str) -> None:
    """Edit rows as an administrator of the database, with its triggers off, and prove the ledger."""
    storage, keyring = storage_of(settings), load_keyring(settings.data_dir, may_create=False)
    assert storage.prove(keyring)["quotes"] == 1
    edits = (
        ("quotes", "UPDATE quotes SET account = account || 'x'", "history is not whole: quotes Q-"),
        ("operations", "UPDATE operations SET actor = 'U0CFO' WHERE id = 1", "history is not whole: operations 1: column actor"),
        ("approvals", "DELETE FROM approvals", "history is not whole: approval"),
        ("audit_events", "DELETE FROM audit_events WHERE aggregate_id = 'system/bot' AND seq = 1", "audit_events system/bot #1: "),
    )
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute("SET session_replication_role = replica")
        shell.execute("CREATE SCHEMA kept")
        for table, edit, found in edits:
            shell.execute(f"CREATE TABLE kept.{table} AS SELECT * FROM {table}".encode())  # noqa: S608 -- of the list above
            shell.execute(edit.encode())
            with pytest.raises(NotWholeError, match=found):
                storage.prove(keyring)
            shell.execute(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept.{table}".encode())  # noqa: S608 -- as above
    assert storage.prove(keyring)["quotes"] == 1
