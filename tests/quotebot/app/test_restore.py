"""Tests of a restore: nothing acknowledged before the backup is lost, no external effect is repeated, and it is atomic."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from faults.checks import checker
from ledger.audit.keyring import load_keyring
from ledger.clock import SystemClock
from ledger.database import DatabaseError, NotRecorded, WritesRefused
from ledger.operator.backup import Backup, backups_in, text_of
from ledger.operator.switch import ready
from ledger.records import Delivered, EffectIntent, Outcome
from ledger.sqlite.disk import Disk
from ledger.sqlite.locks import hold_instance_lock
from quotebot.app.backups import Restored, make_backup, restore
from quotebot.app.installation import LedgerInUseError
from quotebot.commands.payloads import DecideApproval, SubmitQuote
from quotebot.execution.executor import Executor
from quotebot.sandbox.world import World
from quotebot.settings import Settings
from quotebot.store import history
from tests.quotebot.parts import MATRIX, RULES, Bench, ManualClock, bench_at, create_command, request_for, tampered
from tests.rig import bot_in, eventually, read_ledger, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.database import Tx
    from ledger.records import Request
    from quotebot.commands.registry import Payload

HOUR = 3_600_000


async def test_restore_finds_uploads_and_records_made_after_the_backup_and_repeats_none(tmp_path: Path) -> None:
    """In the backup the PDF and the record are pending, without a recorded upload: the file is looked up in Slack by its name."""
    async with World(tmp_path / "world").serve() as world:
        settings = settings_for(world, tmp_path / "bot")
        async with bot_in(world, tmp_path / "bot") as deal:
            await deal.submitted_deal()
            await deal.arm("slack", "429", method="files.getUploadURLExternal", times=1, retry_after=1)
            await deal.arm("salesforce", "5xx", method="composite/graph", times=2)
            await deal.click("approval.approve", user="U0MANAGER")
            await eventually(lambda: sleeps(settings.ledger_path, "slack.file"), "the upload to be put off")
            backup = await asyncio.to_thread(make_backup, settings, SystemClock().now_ms(), folder=tmp_path / "kept")
            await deal.settled()
            (uploaded,) = await deal.files()
        assert [row["steps"] for row in read_ledger(backup.path, "SELECT steps FROM effects WHERE class = 'slack.file'")] == ["{}"]
        for file in (tmp_path / "bot").glob("ledger.db*"):
            file.unlink()
        await restore(settings, backup.path, SystemClock(), actor="operator")
        async with bot_in(world, tmp_path / "bot") as deal:
            await deal.settled()
            (owed,) = await deal.rows("SELECT state, external_ref FROM effects WHERE class = 'slack.file'")
            assert owed == {"state": "delivered", "external_ref": uploaded["id"]}
            await checker.golden_deal(deal)


def sleeps(path: Path, effect_class: str) -> bool:
    """Tell whether an effect of this class was tried and waits for a retry."""
    rows = read_ledger(path, "SELECT class, state, category FROM effects")
    return any(row["class"] == effect_class and row["state"] == "pending" and row["category"] for row in rows)


async def owing(bench: Bench, name: str, *effects: EffectIntent) -> None:
    """Execute one creation that enqueues these effects."""
    await bench.ledger.reserve(request_for(create_command(), name))
    operation = await bench.ledger.claim_operation()
    assert operation is not None
    await bench.ledger.execute(operation, lambda _: Outcome("applied", {"code": "ok"}, effects))


def post(target: str, semantics: Any = "append", effect_class: str = "slack.post", after: str | None = None) -> EffectIntent:
    return EffectIntent(effect_class, semantics, target, aggregate_id=target, payload={"what": "notice", "text": "hi"}, after=after)


@dataclass(frozen=True, slots=True)
class Kept:
    """Folder of a stopped bot, and a backup of it; `settings` are the installation's."""

    settings: Settings
    backup: Backup
    clock: ManualClock

    def put_back(self, disk: Disk | None = None, **changes: Any) -> Restored:
        """Restore the backup."""
        settings = self.settings.model_copy(update=changes)
        return asyncio.run(restore(settings, self.backup.path, self.clock, actor="operator", disk=disk))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Read the ledger."""
        return read_ledger(self.settings.ledger_path, sql)


async def numbers_given(bench: Bench, last: int) -> None:
    """Skip quote numbers up to `last`, as a restore does."""

    def work(tx: Tx) -> None:
        tx.one("skip_quote_numbers", year=2026, last=last)
        history.skipped(tx, bench.ledger.audit, {2026: last}, "operator", bench.clock.now_ms())

    await bench.ledger.database.write("skip", work)


async def _prepare(folder: Path, clock: ManualClock) -> Backup:
    settings = Settings(_env_file=None, data_dir=folder)
    async with bench_at(settings.ledger_path) as bench:
        await owing(bench, "r1", post("Q-1"), post("Q-2", "convergent", "slack.card"), post("Q-3", "keyed", "crm.create"))
        parent = bench.row("SELECT effect_key FROM effects WHERE id = 1")["effect_key"]
        await owing(bench, "r2", post("Q-1", after=parent), post("Q-4", "pure", "pdf.render"))
        (taken,) = await bench.ledger.claim_effects({"slack.post": 1})
        assert taken.id == 1
        await bench.ledger.reserve(request_for(create_command("10"), "r3"))
        await numbers_given(bench, 41)
        backup = await asyncio.to_thread(make_backup, settings, clock.now_ms(), folder=folder / "kept")
        await bench.ledger.reserve(request_for(create_command("5"), "r4"))
        await numbers_given(bench, 43)
    return backup


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a bot that was backed up in the middle of its work, and stopped some work later."""
    folder = tmp_path_factory.mktemp("origin") / "bot"
    asyncio.run(_prepare(folder, ManualClock()))
    return folder


@pytest.fixture
def kept(origin: Path, tmp_path: Path) -> Kept:
    shutil.copytree(origin, tmp_path / "bot", ignore=shutil.ignore_patterns("*.ballast"))
    (backup,) = backups_in(tmp_path / "bot" / "kept")
    clock = ManualClock()
    clock.advance(HOUR)
    return Kept(Settings(_env_file=None, data_dir=tmp_path / "bot"), backup, clock)


def test_restore_makes_unsettled_effects_uncertain_and_dependents_check_first(kept: Kept) -> None:
    done = kept.put_back()
    assert (done.generation, done.is_uncertain) == (2, 5)
    effects = kept.rows("SELECT id, class, state, maybe_sent, look_first, attempts, claims, lost_from FROM effects ORDER BY id")
    assert [(row["id"], row["state"], row["look_first"]) for row in effects] == [
        (1, "uncertain", 0),
        (2, "uncertain", 0),
        (3, "uncertain", 0),
        (4, "pending", 1),
        (5, "uncertain", 0),
    ]
    assert {(row["maybe_sent"], row["attempts"]) for row in effects} == {(1, 0)}
    assert {row["lost_from"] for row in effects} == {kept.backup.manifest.made_at}
    assert [row["state"] for row in kept.rows("SELECT state FROM operations ORDER BY id")] == ["completed", "completed", "reserved"]


def test_a_generation_says_where_it_comes_from_in_its_row_and_in_the_audit(kept: Kept) -> None:
    kept.put_back()
    (row,) = kept.rows("SELECT * FROM generations")
    assert (row["generation"], row["backup_sha256"], row["last_operation_id"]) == (2, kept.backup.manifest.sha256, 3)
    (event,) = kept.rows("SELECT actor, actor_type, after FROM audit_events WHERE event_type = 'ledger.restored'")
    assert (event["actor"], event["actor_type"], json.loads(event["after"])["is_uncertain"]) == ("operator", "operator", 5)
    again = kept.put_back()
    assert again.generation == 3, "the ledger that is replaced had a second one already"
    with closing(sqlite3.connect(kept.settings.ledger_path)) as ledger, pytest.raises(sqlite3.IntegrityError, match="as it began"):
        ledger.execute("UPDATE generations SET started_at = 1")


def test_the_replaced_ledger_is_put_aside_whole_with_its_log_of_anchors(kept: Kept) -> None:
    (kept.settings.data_dir / "audit-anchors.log").write_text("{}\n", "utf-8")
    done = kept.put_back()
    assert done.replaced is not None
    assert {path.name for path in done.replaced.iterdir()} - {"ledger.db-wal"} == {"audit-anchors.log", "ledger.db"}
    assert len(read_ledger(done.replaced / "ledger.db", "SELECT id FROM operations")) == 4
    assert not (kept.settings.data_dir / "audit-anchors.log").exists()
    names = {path.name for path in kept.settings.data_dir.iterdir()}
    assert not any("restor" in name for name in names), names


def test_no_number_that_may_have_been_given_out_is_given_out_again(kept: Kept) -> None:
    done = kept.put_back()
    (row,) = kept.rows("SELECT last FROM quote_numbers WHERE year = 2026")
    assert row["last"] == done.numbers[2026] >= 41 + 30 * 3600
    kept.settings.ledger_path.unlink()
    assert kept.put_back().numbers[2026] == done.numbers[2026], (
        "without the replaced ledger time alone tells how far it may have come"
    )


def test_restore_is_refused_while_a_bot_is_running(kept: Kept) -> None:
    before = kept.settings.ledger_path.read_bytes()
    lock = hold_instance_lock(kept.settings.ledger_path)
    assert lock is not None
    try:
        with pytest.raises(LedgerInUseError, match="Stop the bot or the command that uses it first"):
            kept.put_back()
    finally:
        lock.close()
    assert kept.settings.ledger_path.read_bytes() == before


def test_restore_of_a_damaged_newer_or_keyless_backup_changes_nothing(kept: Kept) -> None:
    path, beside = kept.backup.path, kept.backup.path.with_suffix(".json")
    whole, manifest, before = path.read_bytes(), beside.read_text("utf-8"), kept.settings.ledger_path.read_bytes()

    def refused(words: str) -> None:
        with pytest.raises(DatabaseError, match=words):
            kept.put_back()
        path.write_bytes(whole)
        beside.write_text(manifest, "utf-8")
        assert kept.settings.ledger_path.read_bytes() == before
        assert not ready(kept.settings.ledger_path).exists()

    path.write_bytes(whole[:-1])
    refused("the checksum differs")
    beside.unlink()
    refused("There is no manifest")
    beside.write_text('{"schema": 3}', "utf-8")
    refused("was written by a newer build")
    tampered(path, "INSERT INTO schema_migrations VALUES ('ledger', '9999_new.sql', 'x', 1)")
    content = path.read_bytes()
    tables = kept.backup.manifest.tables | {"schema_migrations": kept.backup.manifest.tables["schema_migrations"] + 1}
    news = replace(kept.backup.manifest, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), tables=tables)
    beside.write_text(text_of(news.signed(load_keyring(kept.settings.data_dir))), "utf-8")
    refused("was written by a newer build")
    (kept.settings.data_dir / "audit-0001.key").rename(kept.settings.data_dir / "away")
    refused("The audit key audit-0001.key is missing")


class DeadDisk(Disk):
    """Disk steps of a process that dies before its `step`-th one."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.names: list[str] = []

    def _passes(self, name: str) -> None:
        self.names.append(name)
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1

    def create(self, path: Path) -> None:
        self._passes("create")
        super().create(path)

    def make_folder(self, folder: Path) -> None:
        self._passes("make_folder")
        super().make_folder(folder)

    def sync(self, path: Path) -> None:
        self._passes("sync")
        super().sync(path)

    def rename(self, path: Path, to: Path) -> None:
        self._passes("rename")
        super().rename(path, to)

    def link(self, path: Path, to: Path) -> None:
        self._passes("link")
        super().link(path, to)

    def remove(self, path: Path) -> None:
        self._passes("remove")
        super().remove(path)


async def opened_by_the_next_bot(path: Path) -> list[int]:
    async with bench_at(path) as bench:
        assert bench.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        return [row["id"] for row in bench.rows("SELECT id FROM operations ORDER BY id")]


def test_crash_during_a_restore_leaves_one_whole_ledger_and_allows_another_try(origin: Path, tmp_path: Path) -> None:
    seen = []
    for step in range(100):
        folder = tmp_path / str(step)
        shutil.copytree(origin, folder, ignore=shutil.ignore_patterns("*.ballast"))
        settings = Settings(_env_file=None, data_dir=folder)
        (backup,) = backups_in(folder / "kept")
        clock, disk = ManualClock(), DeadDisk(step)
        clock.advance(HOUR)
        try:
            asyncio.run(restore(settings, backup.path, clock, actor="operator", disk=disk))
        except KeyboardInterrupt:
            ids = asyncio.run(opened_by_the_next_bot(settings.ledger_path))
            assert ids in ([1, 2, 3], [1, 2, 3, 4]), disk.names
            seen.append(len(ids))
            asyncio.run(restore(settings, backup.path, clock, actor="operator"))
            assert asyncio.run(opened_by_the_next_bot(settings.ledger_path)) == [1, 2, 3]
        else:
            break
    assert seen == sorted(seen, reverse=True), "once the new one is in force, it stays"
    assert {3, 4} == set(seen)


async def test_a_process_of_the_old_generation_writes_nothing_any_more(origin: Path, tmp_path: Path) -> None:
    shutil.copytree(origin, tmp_path / "bot", ignore=shutil.ignore_patterns("*.ballast"))
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot")
    (backup,) = backups_in(tmp_path / "bot" / "kept")
    async with bench_at(settings.ledger_path) as old:  # a bot whose lock was removed
        (taken,) = await old.ledger.claim_effects({"crm.create": 1})
        await restore(settings, backup.path, old.clock, actor="operator")
        with pytest.raises(NotRecorded, match="old generation"):
            await old.ledger.settle(taken, Delivered("0Q0", {}))
        with pytest.raises(WritesRefused, match="old generation"):
            await old.ledger.reserve(request_for(create_command("5"), "late"))
    (row,) = read_ledger(settings.ledger_path, "SELECT state FROM effects WHERE class = 'crm.create'")
    assert row["state"] == "uncertain"
    assert len(read_ledger(settings.ledger_path, "SELECT id FROM operations")) == 3


async def test_a_button_of_the_lost_part_approves_nothing_that_was_asked_for_since(tmp_path: Path) -> None:
    settings, click = Settings(_env_file=None, data_dir=tmp_path / "bot"), DecideApproval("A-2026-0001-v1-1", "approve")
    async with bench_at(settings.ledger_path) as bench:
        await executed(bench, request_for(create_command("15"), "r1"))
        backup = await asyncio.to_thread(make_backup, settings, bench.clock.now_ms(), folder=tmp_path / "kept")
        await executed(bench, about(SubmitQuote(), "r2"))
        (lost,) = bench.rows("SELECT approval_id, state FROM approvals")
        assert lost == {"approval_id": click.approval_id, "state": "pending"}
    await restore(settings, backup.path, ManualClock(), actor="operator")
    async with bench_at(settings.ledger_path) as bench:
        await executed(bench, about(SubmitQuote(), "r3"))
        await executed(bench, about(click, "r4", actor="U0MANAGER"))
        (row,) = bench.rows("SELECT approval_id, state FROM approvals")
        assert row == {"approval_id": "A-2026-0001-v1-g2-1", "state": "pending"}
        await executed(bench, about(DecideApproval(row["approval_id"], "approve"), "r5", actor="U0MANAGER"))
        assert bench.row("SELECT state FROM approvals")["state"] == "approved"


async def executed(bench: Bench, request: Request) -> None:
    """Reserve a command and execute all due ones."""
    await bench.ledger.reserve(request)
    executor = Executor(bench.ledger, RULES, lambda _, high: high, MATRIX)
    while await executor.step():
        pass


def about(payload: Payload, request_id: str, actor: str = "U0REP") -> Request:
    """Return a command about the first quote."""
    return request_for(payload, request_id, quote_id="Q-2026-0001", version=1, actor=actor)


async def test_effects_of_unfinished_or_repeated_commands_check_first_after_a_restore(kept: Kept) -> None:
    await restore(kept.settings, kept.backup.path, kept.clock, actor="operator")
    async with bench_at(kept.settings.ledger_path) as bench:
        bench.clock.advance(HOUR + 60_000)
        await owing(bench, "r3", post("Q-5"))  # of the backup
        await owing(bench, "r9", post("Q-6"), post("Q-6", "keyed", "crm.create"))  # may be the redelivery of a lost one
        claimed = {each.target: each for each in await bench.ledger.claim_effects({"slack.post": 9})}
        assert [claimed[name].reconciling for name in ("Q-5", "Q-6")] == [True, True]
        bench.clock.advance(4 * 24 * HOUR)
        await owing(bench, "r10", post("Q-7"))
        (plain,) = [each for each in await bench.ledger.claim_effects({"slack.post": 9}) if each.target == "Q-7"]
        assert not plain.reconciling
