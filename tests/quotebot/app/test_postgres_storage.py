"""Tests of an installation whose ledger is in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
import threading
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import psycopg
import pytest
from aiohttp import ClientSession
from psycopg.conninfo import conninfo_to_dict
from structlog.testing import capture_logs

from ledger import recovery
from ledger.audit.keyring import KeyMissing, key_files, load_keyring
from ledger.audit.proof import load_signer, public_pem
from ledger.clock import SystemClock
from ledger.database import DatabaseError
from ledger.ledger import Ledger
from ledger.operator.backup import NotWholeError
from ledger.postgres import inspection, replicas, sessions
from ledger.postgres.clock import DatabaseClock
from ledger.recovery import begin_epoch
from quotebot.app import installation
from quotebot.app.backups import authentic_backup, backups_of, is_due
from quotebot.app.installation import instance_lock, open_audit, open_ledger, storage_of
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.cli import audit, exits, terminal
from quotebot.cli.audit import SCRIPT, export_proof
from quotebot.cli.doctor import records
from quotebot.cli.doctor.checks import Site, State, examine
from quotebot.cli.doctor.table import CHECKS
from quotebot.domain.catalogue.rulesets import canonical_ruleset, parse_ruleset
from quotebot.jobs.rulesets import Import, RulesetAnswer, RulesetChanges, Who
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings
from quotebot.store import rulesets
from tests.quotebot.app.database_deal import DatabaseDeal
from tests.quotebot.parts import ManualClock
from tests.quotebot.views.quote_examples import RULESET
from tests.rig import bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Tx
    from ledger.postgres.replicas import ReplicaLock

LEASE_SECONDS = 100_000


async def test_ledger_in_a_database_is_begun_locked_and_proven(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=url)
    storage = storage_of(settings)
    assert isinstance(storage, PostgresStorage)
    assert (storage.exists(), storage.holder()) == (False, None)
    async with open_ledger(settings) as ledger:
        assert await ledger.database.read(lambda tx: tx.all("last_epochs", limit=1)) == []
    assert storage.exists()
    async with instance_lock(settings, bot=True):
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
    monkeypatch.setattr(replicas, "POLL_SECONDS", 0.01)
    storage = storage_of(Settings(_env_file=None, data_dir=tmp_path, ledger_url=url))
    lock = storage.hold(bot=True)
    assert lock is not None
    with psycopg.connect(url, autocommit=True) as other:
        sessions = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'quotebot replica main %'"
        (first,) = other.execute(sessions).fetchone() or (None,)
        other.execute("SELECT pg_terminate_backend(%s)", (first,))
        await eventually(lambda: other.execute(sessions).fetchone() not in (None, (first,)), "another session of the lock")
        await eventually(storage.holder, "its lock")
    lock.close()
    await eventually(lambda: storage.holder() is None, "the server to release it")


async def test_standby_waits_while_no_server_answers(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "POLL_SECONDS", 0.01)
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    storage = storage_of(settings)
    other, honest, failures = storage.hold(bot=True), PostgresStorage.hold, iter(range(2))
    assert other is not None

    def hold(self: PostgresStorage, *, bot: bool = False) -> ReplicaLock | None:
        if next(failures, None) is not None:
            raise DatabaseError("the server is starting up")
        other.close()
        return honest(self, bot=bot)

    with capture_logs() as logs:
        waiting = instance_lock(settings, asyncio.Event(), bot=True)
        begun = asyncio.create_task(waiting.__aenter__())
        await eventually(lambda: any(line["event"] == "bot.standing_by" for line in logs), "the standby to wait")
        monkeypatch.setattr(PostgresStorage, "hold", hold)
        assert await begun is not None
        await waiting.__aexit__(None, None, None)
    assert [line["event"] for line in logs] == ["bot.standing_by", "bot.standing_by_without_server"], "once"


async def storage_of_a_living_bot(url: str, tmp_path: Path, clock: ManualClock) -> PostgresStorage:
    """Return the storage of another process than the bot that a new ledger shows as alive."""
    async with open_ledger(Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=url)):
        pass
    with psycopg.connect(url) as shell:
        shell.execute(
            "INSERT INTO epochs (role, pid, build, started_at, seen_at) "
            "SELECT 'bot', 1, '1', now, now FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS server"
        )
    return PostgresStorage(url, None, tmp_path / "marker", lease_seconds=LEASE_SECONDS, clock=clock)


@pytest.mark.parametrize(("settled_seconds", "needed"), [(0.0, 2.0), (1e4, 1e4)], ids=["settled", "just promoted"])
async def test_lock_that_a_living_bot_has_lost_is_left_to_it_for_seconds(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_seconds: float, needed: float
) -> None:
    monkeypatch.setattr(replicas, "SETTLED_SECONDS", settled_seconds)
    clock = ManualClock()
    storage = await storage_of_a_living_bot(url, tmp_path, clock)
    bot = replicas.LockSearch(url, "main", 0, clock).take()
    assert (bot is not None, storage.hold(), storage.is_uncertain) == (True, None, False)
    for _ in range(2):  # it loses its lock, and takes it again just in time
        assert bot is not None
        bot.close()
        await eventually(lambda: not is_held(storage), "the end of the session")
        assert (storage.hold(), storage.is_uncertain) == (None, True)
        clock.advance(int(needed * 1000) - 100)
        assert (storage.hold(), storage.is_uncertain) == (None, True)
        bot = replicas.LockSearch(url, "main", 0, clock).take()
        assert (bot is not None, storage.hold(), storage.is_uncertain) == (True, None, False)
    assert bot is not None
    bot.close()
    await eventually(lambda: not is_held(storage), "the end of the session")
    assert storage.hold() is None
    clock.advance(int(needed * 1000))
    lock = storage.hold()
    assert (lock is not None, storage.is_uncertain) == (True, False)
    assert lock is not None
    lock.close()


@pytest.mark.parametrize("change", ["ended_at = seen_at, end_reason = 'stopped'", f"seen_at = seen_at - {LEASE_SECONDS * 1000}"])
async def test_lock_of_a_bot_that_has_ended_is_taken_at_once(url: str, tmp_path: Path, change: str) -> None:
    storage = await storage_of_a_living_bot(url, tmp_path, ManualClock())
    with psycopg.connect(url) as shell:
        shell.execute(f"UPDATE epochs SET {change}".encode())  # noqa: S608 -- of the list above
    lock = storage.hold()
    assert lock is not None
    lock.close()


def is_held(storage: PostgresStorage) -> bool:
    """Return true if a process holds the bot's lock."""
    holder = storage.holder()
    return holder is not None and holder.alive


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


HARMLESS = {  # a server for tests is set up like this
    "fsync is off",
    "full_page_writes is off",
    "synchronous_standby_names is empty",
    "the bot logs in as a superuser",
}


def risks_of(settings: Settings) -> set[str]:
    """Return the beginnings of what `doctor` finds in the server."""
    with pytest.raises(DatabaseError) as refused:
        storage_of(settings).check_durability()
    return {part.split(",")[0] for part in str(refused.value).split("; ")} - HARMLESS


async def checked(settings: Settings, check: str) -> tuple[State, str]:
    """Return the outcome of one check of `doctor`."""
    (result,) = await examine(Site(settings), [each for each in CHECKS if each.id == check])
    return result.state, result.words


async def test_doctor_names_a_server_that_can_lose_commits(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    with pytest.raises(DatabaseError) as refused:
        storage_of(settings).check_durability()
    assert {part.split(",")[0] for part in str(refused.value).split("; ")} == HARMLESS
    state, words = await checked(settings, "ledger.durable")  # before a first start
    assert state is State.ERROR
    assert "synchronous_standby_names is empty" in words
    assert storage_of(settings).is_missing()


def test_doctor_names_no_missing_standby_where_durability_is_local(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url, ledger_durability="local")
    with pytest.raises(DatabaseError) as refused:
        storage_of(settings).check_durability()
    assert "standby" not in str(refused.value)


def test_doctor_names_commits_that_wait_for_no_disk(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    name = urlsplit(url).path[1:]
    with psycopg.connect(url, autocommit=True) as shell:
        for value, local in (("off", True), ("local", False), ("remote_write", True)):
            shell.execute(f"ALTER DATABASE {name} SET synchronous_commit = {value}".encode())
            found = {f"synchronous_commit is {value} for this role"}
            assert risks_of(settings) == found
            assert risks_of(settings.model_copy(update={"ledger_durability": "local"})) == (found if local else set())


def test_doctor_names_a_database_that_sorts_by_a_language(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute("CREATE DATABASE sorted TEMPLATE template0 LC_CTYPE 'C.UTF-8' STRATEGY FILE_COPY")
        try:
            settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url.replace(urlsplit(url).path, "/sorted"))
            assert any("character type UTF8" in words and "C.UTF-8" in words for words in all_risks(settings))
        finally:
            shell.execute("DROP DATABASE sorted WITH (FORCE)")


def all_risks(settings: Settings) -> list[str]:
    """Return what `doctor` finds in the server."""
    with pytest.raises(DatabaseError) as refused:
        storage_of(settings).check_durability()
    return str(refused.value).split("; ")


async def test_processes_keep_the_time_of_the_databases_server(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    machine = ManualClock(0)
    async with open_ledger(settings, DatabaseClock(machine)) as ledger:
        now, hour = SystemClock().now_ms(), 3_600_000
        assert now - hour < ledger.clock.now_ms() < now + hour
        epoch = await recovery.begin_epoch(ledger.database, ledger.clock.now_ms(), role="bot", build="1")
        row = await ledger.database.read(lambda tx: tx.one("last_epochs", limit=1))
        assert row is not None
        assert (row["epoch"], now - hour < row["seen_at"] < now + hour) == (epoch, True)
    assert isinstance(storage_of(settings).clock(), DatabaseClock)


@pytest.mark.parametrize(("ahead_seconds", "found"), [(3_600, "s ahead of"), (-3_600, "s behind"), (0, "it agrees")])
async def test_doctor_names_a_clock_that_differs_from_the_servers(url: str, tmp_path: Path, ahead_seconds: int, found: str) -> None:
    now_ms = SystemClock().now_ms
    site = Site(Settings(_env_file=None, data_dir=tmp_path, ledger_url=url), lambda: now_ms() / 1000 + ahead_seconds)
    (result,) = await examine(site, [each for each in CHECKS if each.id == "clock.database"])
    assert result.state is (State.WARNING if ahead_seconds else State.OK)
    assert found in result.words


async def test_doctor_names_a_server_that_is_too_old(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    state, words = await checked(settings, "sqlite.version")
    assert (state, words.split()[0]) == (State.OK, "PostgreSQL")
    monkeypatch.setattr(sessions, "SERVER_MIN", 990000)
    state, words = await checked(settings, "sqlite.version")
    assert state is State.ERROR
    assert words.endswith("the ledger needs 99 or newer.")


def test_doctor_names_a_pooler_that_changes_sessions(url: str, tmp_path: Path) -> None:
    with Pooler(url) as pooler:
        found = inspection.risks(pooler.url, needs_standby=False, timelines=tmp_path / "none")
    assert found[-1].startswith("a pooler changes the session")


class Pooler:
    """A pooler between clients and a server: a transaction gets the session that was used last."""

    def __init__(self, url: str) -> None:
        self._server = conninfo_to_dict(url)
        self._free: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        address = f"host=127.0.0.1 port={self._listener.getsockname()[1]} sslmode=disable gssencmode=disable"
        self.url = f"{address} user={self._server['user']} dbname={self._server['dbname']}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for server in self._free:
            server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._server['host']}/.s.PGSQL.{self._server['port']}")
        size = client.recv(4, socket.MSG_WAITALL)
        server.sendall(size + client.recv(int.from_bytes(size) - 4, socket.MSG_WAITALL))
        with contextlib.suppress(OSError), client:
            within = self._answer(server, client, place=0)
            while client.recv(1, socket.MSG_PEEK) not in {b"", b"X"}:
                if not within:
                    server = self._free.pop()
                while self._pass_on(client, server)[:1] not in {b"Q", b"S"}:
                    pass
                within = self._answer(server, client, place=len(self._free))
            if within:
                server.close()

    def _answer(self, server: socket.socket, client: socket.socket, place: int) -> bool:
        """Pass an answer on; return true within a transaction. Otherwise the session is free before the client knows."""
        while (message := self._message(server))[:1] != b"Z":
            client.sendall(message)
        within = message[-1:] != b"I"
        if not within:
            self._free.insert(place, server)
        client.sendall(message)
        return within

    def _pass_on(self, source: socket.socket, target: socket.socket) -> bytes:
        message = self._message(source)
        target.sendall(message)
        return message

    @staticmethod
    def _message(source: socket.socket) -> bytes:
        head = source.recv(5, socket.MSG_WAITALL)
        return head + source.recv(int.from_bytes(head[1:]) - 4, socket.MSG_WAITALL)


async def test_former_primary_is_refused_after_a_restart_of_the_bot(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    async with open_ledger(settings):
        pass
    seen = tmp_path / "postgres-timelines.log"
    (system, timeline) = seen.read_text("ascii").split()
    assert seen.stat().st_mode & 0o077 == 0
    assert risks_of(settings) == set()
    with seen.open("a") as file:
        file.write(f"1 9\n{system} {int(timeline) + 1}\n")
    assert risks_of(settings) == {f"the server is on timeline {timeline} and was on {int(timeline) + 1}: a former primary"}
    with pytest.raises(DatabaseError, match="it is a former primary"):
        async with open_ledger(settings):
            pass
    seen.write_text("1 9\n")  # of another database
    async with open_ledger(settings):
        pass


async def test_data_folder_with_other_audit_keys_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EVENTS_MAX", 0)  # an audit that is too long for this command to verify
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)
    async with open_ledger(settings, terminal_user="ops") as ledger:
        audit, now = ledger.audit, ledger.clock.now_ms()
        await ledger.database.write(
            "note", lambda tx: audit.append(tx, now, "ledger.migrated", actor="ops", actor_type="operator", after={"build": "1"})
        )
    other = settings.model_copy(update={"data_dir": tmp_path / "other"})
    load_keyring(other.data_dir)
    state, words = await checked(other, "audit.whole")
    assert state is State.ERROR
    assert "which is not in this data folder" in words
    with pytest.raises(KeyMissing, match="Copy all its keys"):
        async with open_ledger(other):
            pass
    assert (await checked(settings, "audit.whole"))[0] is State.SKIPPED


async def test_machine_without_the_audit_keys_is_told_where_they_are(url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "one", ledger_url=url)
    other = settings.model_copy(update={"data_dir": tmp_path / "other"})
    async with open_ledger(settings) as ledger:
        await begin_epoch(ledger.database, 1, role="bot", build="1", replica="b2", host="db7.example")
    where = r"Copy all its keys \(audit-\*\.key\) from the data folder on db7\.example, where bot b2 was started last"
    with pytest.raises(KeyMissing, match=where):
        open_audit(other)
    assert not list(other.data_dir.glob("audit-*"))
    load_keyring(other.data_dir)  # it began at the same moment, and the ledger has no event yet
    with pytest.raises(KeyMissing, match=f"has begun this ledger with the audit key .*{where}"):
        async with open_ledger(other):
            pass
    for key in key_files(settings.data_dir):
        (other.data_dir / key.name).write_bytes(key.read_bytes())
    async with open_ledger(other):
        pass


async def test_bot_does_not_start_on_a_server_that_can_lose_commits(url: str, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    await world.start()
    try:
        with pytest.raises(ConfigurationError, match=r"; synchronous_standby_names is empty.* Nothing was done\."):
            async with bot_in(world, tmp_path / "bot", ledger_url=url):
                pass
    finally:
        await world.stop()
    assert not storage_of(Settings(_env_file=None, data_dir=tmp_path, ledger_url=url)).exists()


def test_command_without_a_ledger_in_the_database_names_the_setting(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("QUOTEBOT_LEDGER_URL", url), ("QUOTEBOT_DATA_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"no ledger at postgresql:.*Set QUOTEBOT_LEDGER_URL"):
        terminal.existing_site()


async def test_audit_verify_names_a_document_whose_content_was_changed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("QUOTEBOT_LEDGER_URL", url), ("QUOTEBOT_DATA_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    async with open_ledger(settings := Settings(_env_file=None)):
        document = storage_of(settings).documents().put(b"%PDF")
    assert await audit.verify() == exits.OK
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute(FORGED_DOCUMENT)
    assert await audit.verify() == exits.REFUSED
    assert f"TAMPERED: artefact_blobs {document}: changed: the content of this document was changed." in capsys.readouterr().out


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
    with pytest.raises(ConfigurationError, match="with the database's own tools"):
        authentic_backup(settings, tmp_path / "none.db")


@pytest.fixture
def bot_url(url: str) -> Iterator[str]:
    """Return the address of the database for a role that owns it."""
    name = urlsplit(url).path[1:]
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute(f"CREATE ROLE {name}_bot LOGIN; ALTER DATABASE {name} OWNER TO {name}_bot".encode())
        yield url.replace("//quotebot@", f"//{name}_bot@")
        shell.execute(
            f"REASSIGN OWNED BY {name}_bot, {name}_owner TO quotebot; DROP OWNED BY {name}_bot; "
            f"DROP ROLE {name}_bot, {name}_owner".encode()
        )


def documented_grants(name: str) -> str:
    """Return the statements of docs/postgresql.md that give the tables of a database another owner."""
    text = Path("docs/postgresql.md").read_text("utf-8").partition("## A role that cannot change the audit")[2]
    found = "\n".join(re.findall(r"```sql\n(.*?)```", text, re.DOTALL))
    found = found.replace("ON DATABASE quotebot", f"ON DATABASE {name}").replace("quotebot_owner", f"{name}_owner")
    return re.sub(r"\bquotebot\b", f"{name}_bot", found)


async def test_a_deal_by_a_role_without_rights_to_the_audit_ends_with_a_record(url: str, bot_url: str, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=bot_url)
    async with open_ledger(settings):
        pass
    owned = (State.WARNING, "the bot's role owns the tables, or is a member of the role that does")
    assert await checked(settings, "ledger.role") == owned
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute(documented_grants(urlsplit(url).path[1:]).encode())
        assert (await checked(settings, "ledger.role"))[0] is State.OK
        shell.execute(f"GRANT TRUNCATE, UPDATE ON audit_events TO {urlsplit(url).path[1:]}_bot".encode())
        found = (State.WARNING, "the bot's role has TRUNCATE on audit_events, UPDATE on audit_events")
        assert await checked(settings, "ledger.role") == found
        shell.execute(f"REVOKE TRUNCATE, UPDATE ON audit_events FROM {urlsplit(url).path[1:]}_bot".encode())
    world = World(tmp_path / "world")
    await world.start()
    try:
        async with bot_in(world, tmp_path / "bot", ledger_url=bot_url, ledger_durability="local"), ClientSession() as session:
            deal = DatabaseDeal(url, world.url, tmp_path / "bot", session)
            await deal.approved_deal()
            assert len(await deal.cards()) == 1
            states = {row["state"] for row in await deal.rows("SELECT DISTINCT state FROM effects")}
            assert states <= {"delivered", "superseded"}
            documents = storage_of(settings).documents()
            rendered = await deal.rows("SELECT sha256 FROM artefacts")
            assert [{"sha256": name} for name in documents.names()] == rendered
            assert [file["sha256"] for file in await deal.files()] == [row["sha256"] for row in rendered]
            assert not (tmp_path / "bot" / "artefacts").exists()
    finally:
        await world.stop()
    await its_proof_is_genuine(settings, tmp_path)
    the_audit_is_refused(bot_url)
    edits_are_found(settings, url)


def the_audit_is_refused(bot_url: str) -> None:
    """Try what the bot's role must not do."""
    with psycopg.connect(bot_url, autocommit=True) as bot:
        for statement in (
            "UPDATE audit_events SET actor = 'U0CFO'",
            "DELETE FROM audit_events",
            "DELETE FROM audit_heads",
            "UPDATE audit_anchors SET chains = 0",
            "DELETE FROM schema_migrations",
            "TRUNCATE quotes CASCADE",
            "TRUNCATE audit_events",
            "TRUNCATE artefact_blobs",
            "ALTER TABLE artefact_blobs DROP CONSTRAINT artefact_blobs_check",
            "ALTER TABLE audit_events DISABLE TRIGGER ALL",
            "DROP TRIGGER audit_no_update ON audit_events",
            "CREATE TABLE public.notes (id BIGINT)",
            "SET session_replication_role = replica",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                bot.execute(statement)


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


FORGED_DOCUMENT = """
ALTER TABLE artefact_blobs DROP CONSTRAINT artefact_blobs_check;
UPDATE artefact_blobs SET bytes = 'forged';
ALTER TABLE artefact_blobs ADD CONSTRAINT artefact_blobs_check CHECK (encode(sha256(bytes), 'hex') = sha256) NOT VALID;
UPDATE pg_constraint SET convalidated = true WHERE conname = 'artefact_blobs_check'
"""


def edits_are_found(settings: Settings, url: str) -> None:
    """Edit rows as an administrator of the database, with its triggers off, and prove the ledger."""
    storage, keyring = storage_of(settings), load_keyring(settings.data_dir, may_create=False)
    assert storage.prove(keyring)["quotes"] == 1
    edits = (
        ("quotes", "UPDATE quotes SET account = account || 'x'", "history is not whole: quotes Q-"),
        ("quotes", "UPDATE quotes SET state = 'draft'", "history is not whole: quotes Q-"),
        (
            "quote_versions",
            "UPDATE quote_versions SET pricing = replace(pricing, '1', '2')",
            "history is not whole: quote_versions Q-",
        ),
        ("effects", "UPDATE effects SET payload = payload || ' ' WHERE id = 2", "history is not whole: effects 2: "),
        ("operations", "UPDATE operations SET actor = 'U0CFO' WHERE id = 1", "history is not whole: operations 1: column actor"),
        ("approvals", "DELETE FROM approvals", "history is not whole: approval"),
        (
            "audit_events",
            "DELETE FROM audit_events WHERE aggregate_id = 'system/bot/main' AND seq = 1",
            "audit_events system/bot/main #1: ",
        ),
        ("audit_events", "UPDATE audit_events SET actor = 'U0CFO' WHERE seq = 2", "audit is not whole: audit_events "),
        ("artefact_blobs", FORGED_DOCUMENT, "documents are not whole: artefact_blobs [0-9a-f]{64}: its content was changed"),
    )
    with psycopg.connect(url, autocommit=True) as shell:
        shell.execute("SET session_replication_role = replica")
        shell.execute("CREATE SCHEMA kept")
        for table, edit, found in edits:
            shell.execute(f"CREATE TABLE kept.{table} AS SELECT * FROM {table}".encode())  # noqa: S608 -- of the list above
            shell.execute(edit.encode())
            with pytest.raises(NotWholeError, match=found):
                storage.prove(keyring)
            back = f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept.{table}; DROP TABLE kept.{table}"  # noqa: S608 -- as above
            shell.execute(back.encode())
    assert storage.prove(keyring)["quotes"] == 1
