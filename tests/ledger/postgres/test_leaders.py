"""Tests of the jobs for a whole ledger while two processes do them at once, as may be for a while after the leader was lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from ledger.audit.anchors import ANCHOR_EVERY_MS, LOG_NAME, keep_anchors, read_lines
from ledger.audit.verification import verify
from ledger.measures import fold, measure, recount
from ledger.ownership import SoleOwner
from ledger.records import Outcome
from ledger.retention import purge
from tests.ledger.parts import AUDIT, KEYRING, START_MS, one_of_several, request

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.ledger import Ledger
    from tests.ledger.parts import ManualClock
    from tests.ledger.places import Place

COMMANDS = 40


@pytest.fixture
def engine_name() -> str:
    return "postgres"


async def commands(ledger: Ledger) -> None:
    """Execute commands that may be purged at once; one more keeps the newest ids."""
    await asyncio.gather(*(ledger.reserve(request(f"r{number}", aggregate_id=f"Q-{number}")) for number in range(COMMANDS + 1)))
    while claimed := await ledger.claim_operations(COMMANDS):
        for operation in sorted(claimed, key=lambda each: each.id):
            done = Outcome("applied", {"code": "ok"}, (), (), START_MS if operation.id <= COMMANDS else None)
            await ledger.execute(operation, partial(lambda outcome, _: outcome, done))


async def no_rest() -> None:
    """Continue at once."""


async def test_two_purges_at_once_delete_and_count_each_row_once(place: Place, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        await commands(one)
        now = START_MS + 2
        await asyncio.gather(*(purge(ledger, now, dry_run=False, batch=5, between=no_rest) for ledger in (one, other)))
        events = place.shell().execute("SELECT after FROM audit_events WHERE event_type = 'retention.purged'")
        audited: Counter[str] = sum((Counter(json.loads(row["after"])) for row in events), Counter())
        assert (audited["operations"], audited["deliveries"]) == (COMMANDS, COMMANDS)
        assert place.shell().execute("SELECT name FROM meta WHERE name = 'retention'") == []
        assert (await verify(one.database, KEYRING)).sound


async def test_two_leaders_count_each_event_once(place: Place, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        await asyncio.gather(commands(one), *(fold(ledger, at_once=7) for ledger in (one, other, one, other)))
        await asyncio.gather(fold(one, at_once=7), fold(other, at_once=7))
        assert (await one.database.read(recount)).right
        assert (await measure(other)).counts[("idempotency", "new")] == COMMANDS + 1


async def test_two_leaders_seal_the_same_events_once(place: Place, clock: ManualClock, tmp_path: Path) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        await commands(one)
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        made = await asyncio.gather(*(keep_anchors(*each) for each in zip((one, other), folders, strict=True)))
        assert len([anchor for anchor in made if anchor is not None]) == 1
        assert [row["id"] for row in place.shell().execute("SELECT id FROM audit_anchors")] == [1]
        assert (await verify(one.database, KEYRING)).sound


async def test_new_leader_continues_the_log_of_anchors_with_those_of_the_one_before(
    place: Place, clock: ManualClock, tmp_path: Path
) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        folders = {ledger: tmp_path / str(number) for number, ledger in enumerate((one, other))}
        for number, ledger in enumerate((one, one, other, other, one)):
            folders[ledger].mkdir(exist_ok=True)
            await ledger.reserve(request(f"r{number}", aggregate_id=f"Q-{number}"))
            await ledger.database.write(
                "say", lambda tx: AUDIT.append(tx, START_MS, "ledger.migrated", actor="a", actor_type="operator")
            )
            assert await keep_anchors(ledger, folders[ledger]) is not None
            clock.advance(ANCHOR_EVERY_MS)
        logs = [read_lines((folder / LOG_NAME).read_text("utf-8")) for folder in folders.values()]
        assert [[anchor.id for anchor in log] for log in logs] == [[1, 2, 3, 4, 5], [1, 2, 3, 4]]
        assert logs[0][:4] == logs[1]
        report = await verify(one.database, KEYRING, anchors_kept_elsewhere=logs[1])
        assert (report.finding, report.anchors_kept_elsewhere) == (None, 4)


class Follower(SoleOwner):
    """One of several replicas, which does not lead."""

    __slots__ = ()
    alone = False

    async def leads(self) -> bool:
        return False


async def test_replica_that_does_not_lead_copies_the_anchors_of_the_one_that_does(
    place: Place, clock: ManualClock, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        other.ownership = Follower()
        await commands(one)
        assert await keep_anchors(other, folders[1]) is None
        assert await keep_anchors(one, folders[0]) is not None
        for _ in range(2):
            assert await keep_anchors(other, folders[1]) is None
        assert [(folder / LOG_NAME).read_text("utf-8").count("\n") for folder in folders] == [1, 1]
        assert (folders[0] / LOG_NAME).read_text("utf-8") == (folders[1] / LOG_NAME).read_text("utf-8")


async def test_purge_forgets_commands_of_a_terminal_that_ended_a_day_ago(place: Place, clock: ManualClock) -> None:
    long = f"cli/{'host' * 20}/4"
    old = ("cli/gone/1", "cli/live/2", "bot/main", long)
    async with one_of_several(place, clock, "one") as ledger:
        shell = place.shell()
        (ours,) = (row["writer"] for row in shell.execute("SELECT writer FROM writers WHERE taken_at > 0"))
        for writer in old:
            shell.execute("INSERT INTO writers (writer, n) VALUES (?, 7)", (writer,))
        shell.execute("INSERT INTO writers (writer, n, taken_at) SELECT 'cli/new/3', 7, taken_at FROM writers WHERE taken_at > 0")
        url = place.address
        with (
            psycopg.connect(url, application_name="quotebot cli/live/2"),
            psycopg.connect(url, application_name=f"quotebot {long}"),
        ):
            await purge(ledger, START_MS, dry_run=False)
            found = {row["writer"] for row in shell.execute("SELECT writer FROM writers")}
            assert found == {ours, "bot/main", "cli/live/2", "cli/new/3", long}
