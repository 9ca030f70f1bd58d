"""Tests of a ledger that was put back to an earlier time by other tools than `restore`: it is noticed, and nothing is repeated."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import psycopg
import pytest
from aiohttp import ClientSession

from faults.checks import checker
from ledger.audit.anchors import LOG_NAME, RolledBackError, follow_ledger, keep_anchors, write_anchor
from ledger.clock import SystemClock
from ledger.postgres import replicas
from ledger.postgres.marks import LostCommitsError
from quotebot.app.backups import begin_generation
from quotebot.app.bot import run_bot
from quotebot.app.installation import LedgerInUseError, instance_lock, open_audit, open_database, open_ledger
from quotebot.sandbox.cluster import Cluster
from quotebot.sandbox.world import World
from quotebot.settings import Settings
from tests.postgres import folder_for_servers, require_server
from tests.quotebot.app.test_postgres_storage import checked
from tests.rig import Deal, bot_in, eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SERVER = {"wal_level": "replica", "max_wal_senders": "4", "wal_keep_size": "'64MB'"}


@pytest.fixture
def server() -> Iterator[Callable[..., Cluster]]:
    """Yield a function that returns a server whose files are in a folder of that name; the last of each name is ended."""
    require_server()
    folder = folder_for_servers()
    made: dict[str, Cluster] = {}

    def create(name: str, **settings: str) -> Cluster:
        made[name] = Cluster(folder / name, quick=True, settings={**SERVER, **settings})
        return made[name]

    yield create
    for each in made.values():
        each.remove()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.takes(20)
async def test_deal_after_point_in_time_recovery_repeats_no_append(
    server: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the point the upload and the record in Salesforce are pending, and afterwards Slack and Salesforce get both."""
    primary, copy = server("primary"), server("back")
    primary.start()
    async with World(tmp_path / "world").serve() as world, ClientSession() as session:
        deal = Deal(world.url, tmp_path / "bot", session, primary.url())
        async with open_ledger(settings_for(world, tmp_path / "bot", ledger_url=primary.url(), ledger_durability="local")):
            await asyncio.to_thread(copy.copy, primary)
        async with bot_in(world, tmp_path / "bot", ledger_url=primary.url(), ledger_durability="local"):
            await deal.submitted_deal()
            await deal.arm("slack", "429", method="files.getUploadURLExternal", times=1, retry_after=1)
            await deal.arm("salesforce", "5xx", method="composite/graph", times=2)
            await deal.click("approval.approve", user="U0MANAGER")
            tried = "SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id WHERE e.class = 'slack.file'"
            await eventually(lambda: deal.rows(tried), "the upload to be put off")
            with psycopg.connect(primary.url(), autocommit=True) as shell:
                shell.execute("SELECT pg_create_restore_point('before')")
            point = SystemClock().now_ms()
            await deal.settled()
            before = (await deal.files(), await deal.crm())
            assert (len(before[0]), len(before[1])) == (1, 1)
        primary.kill()
        back = server(
            "back",
            hot_standby="off",  # it answers once it is promoted
            restore_command=f"'cp {primary.data}/pg_wal/%f %p'",
            recovery_target_name="'before'",
            recovery_target_action="'promote'",
        )
        (back.data / "recovery.signal").touch()
        monkeypatch.setattr(replicas, "FREE_SECONDS", 0.5)  # the bot of the backup is certainly dead
        monkeypatch.setattr(replicas, "SETTLED_SECONDS", 0.5)
        back.start()
        settings = settings_for(world, tmp_path / "bot", ledger_url=back.url(), ledger_durability="local")
        with pytest.raises(LostCommitsError, match=r"lost commits .* begin-generation"):
            await run_bot(settings, asyncio.Event())
        assert "lost commits" in (await checked(settings, "ledger.durable"))[1]
        begun = await begin_generation(settings, point, actor="operator")
        assert (begun.generation, max(begun.numbers.values()) > 1000) == (2, True)
        async with bot_in(world, tmp_path / "bot", ledger_url=back.url(), ledger_durability="local"):
            again = Deal(world.url, tmp_path / "bot", session, back.url())
            await again.settled()
            assert (await again.files(), await again.crm()) == before
            await checker.golden_deal(again)


@pytest.mark.parametrize("engine", ["file", "database"])
async def test_start_refuses_a_ledger_behind_its_anchors_until_a_generation_begins(
    engine: str, tmp_path: Path, create_database: Callable[[Sequence[str]], str]
) -> None:
    folder = tmp_path / "bot"
    url = None if engine == "file" else create_database(())
    settings = Settings(_env_file=None, data_dir=folder, ledger_url=url, ledger_durability="local")
    async with open_ledger(settings) as ledger:
        assert await keep_anchors(ledger, folder) is None
        now = ledger.clock.now_ms()
        await ledger.database.write(
            "probe", lambda tx: ledger.audit.append(tx, now, "clock.confirmed", actor="operator", actor_type="operator")
        )
        await keep_anchors(ledger, folder)
        await follow_ledger(ledger.database, folder)
        newest = (folder / LOG_NAME).read_text("utf-8")
        (folder / LOG_NAME).write_text(newest + newest.replace('"id":1', '"id":2'), "utf-8")  # of a time that the ledger has lost
        with pytest.raises(RolledBackError, match="begin-generation"):
            await follow_ledger(ledger.database, folder)
    async with instance_lock(settings):
        with pytest.raises(LedgerInUseError):
            await begin_generation(settings, now, actor="operator")
    (folder / "postgres-mark-bot-main").write_text("bot/main b0f0 6 0", "ascii")  # of a generation that the ledger has lost
    assert (await begin_generation(settings, now, actor="operator")).generation == (2 if url is None else 7)
    async with open_ledger(settings) as ledger:
        await follow_ledger(ledger.database, folder)
        assert not (folder / LOG_NAME).exists()
        assert len(list(folder.glob("audit-anchors-until-*.log"))) == 1
        later = ledger.clock.now_ms() + 4_000_000
        await write_anchor(ledger, folder, later)
        assert len((folder / LOG_NAME).read_text("utf-8").splitlines()) == 2


async def test_smaller_mark_is_a_loss_only_in_the_same_database_and_generation(
    tmp_path: Path, create_database: Callable[[Sequence[str]], str]
) -> None:
    url = create_database(())
    settings = Settings(_env_file=None, data_dir=tmp_path, ledger_url=url, ledger_durability="local")

    async def start() -> None:
        database = await open_database(settings, open_audit(settings), SystemClock(), bot=True)
        await database.close()

    await start()
    for change in (
        "INSERT INTO meta (name, value) VALUES ('arrived', '1-a')",
        "INSERT INTO generations VALUES (2, 1, 1, '', 0, 1, 'operator')",
    ):
        with psycopg.connect(url) as shell:
            shell.execute("UPDATE writers SET n = 0")
        with pytest.raises(LostCommitsError):
            await start()
        with psycopg.connect(url) as shell:
            shell.execute(change.encode())
        await start()
