"""Tests of retention: finished rows are purged in time, unfinished ones never, and requests for purged ones are still answered."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from ledger.ledger import Ledger
from ledger.measures import measure, recount, replace_totals
from ledger.records import DedupeResult, Delivered, Fail, Outcome, Retry, Trouble, Uncertain
from ledger.retention import DAY_MS, HOUR_MS, Keep, Purged, close_aggregate, purge
from tests.ledger.parts import AUDIT, QUOTE, START_MS, TROUBLE, intent, request, sure

if TYPE_CHECKING:
    from ledger.records import Effect, EffectIntent, Settlement
    from tests.ledger.parts import Desk, ManualClock
    from tests.ledger.places import Place

KEPT_MS = 30 * DAY_MS
DONE = Delivered("ref", {})
LATER = START_MS + 600 * DAY_MS
TABLES = ("operations", "deliveries", "effects", "attempts", "tombstones", "holds")


async def command(desk: Desk, request_id: str, *effects: EffectIntent, keep: int | None = START_MS + KEPT_MS) -> list[Effect]:
    """Execute a command on its own quote."""
    operation = await desk.claim_operation(request_id, aggregate_id=f"Q-{request_id}")
    await desk.ledger.execute(operation, lambda _: Outcome("applied", {"code": "ok"}, effects, (), keep))
    return [desk.effect(row["id"]) for row in desk.rows("SELECT id FROM effects WHERE operation_id = ?", operation.id)]


async def no_rest() -> None:
    """Continue at once."""


def owed(request_id: str) -> EffectIntent:
    return intent(target=f"Q-{request_id}", aggregate_id=f"Q-{request_id}")


async def delivered(desk: Desk, request_id: str) -> None:
    """Execute a command whose effect is delivered at the second attempt."""
    await command(desk, request_id, owed(request_id))
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, delay_ms=0))
    await desk.ledger.settle(await desk.claim(), DONE)


async def newest(desk: Desk) -> None:
    """Execute a command after all others: the newest row of a table is never purged."""
    await command(desk, "newest", owed("newest"), keep=None)
    await desk.ledger.settle(await desk.claim(), DONE)


def counts(desk: Desk) -> dict[str, int]:
    return {table: desk.value(f"SELECT count(*) FROM {table}") for table in TABLES}  # noqa: S608 -- own names


async def test_a_done_command_becomes_a_tombstone_when_its_time_has_come(desk: Desk) -> None:
    await delivered(desk, "r1")
    await newest(desk)
    key = desk.operation(1).operation_key
    due = START_MS + KEPT_MS
    assert (await purge(desk.ledger, due - 1, dry_run=False)).operations == 0
    assert await purge(desk.ledger, due, dry_run=False) == Purged(operations=1, effects=1, attempts=2)
    (stone,) = desk.rows("SELECT * FROM tombstones")
    assert (stone["operation_key"], stone["state"], stone["outcome"], stone["expires_at"]) == (
        *(key, "completed", "applied"),
        due + 400 * DAY_MS,
    )
    assert counts(desk) == {"operations": 1, "deliveries": 0, "effects": 1, "attempts": 1, "tombstones": 1, "holds": 0}


async def test_redelivery_of_a_purged_command_reports_its_tombstone_and_does_nothing(desk: Desk) -> None:
    await delivered(desk, "r1")
    await newest(desk)
    await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False)
    before = counts(desk)
    again = await desk.reserve("r1", aggregate_id="Q-r1")
    assert (again.sighting, again.operation.outcome, again.finished_at) == (DedupeResult.TOMBSTONE, "applied", START_MS)
    assert counts(desk) == before
    assert await desk.ledger.claim_operation() is None


async def test_after_the_delivery_is_forgotten_the_operation_still_knows_its_command(desk: Desk) -> None:
    await delivered(desk, "r1")
    await newest(desk)
    assert await purge(desk.ledger, START_MS + 7 * DAY_MS, dry_run=False) == Purged()
    assert await purge(desk.ledger, START_MS + 7 * DAY_MS + 1, dry_run=False) == Purged(deliveries=2)
    assert (await desk.reserve("r1", aggregate_id="Q-r1")).sighting is DedupeResult.DUPLICATE


async def test_a_tombstone_falls_after_its_time(desk: Desk) -> None:
    await delivered(desk, "r1")
    await newest(desk)
    await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False)
    falls = START_MS + KEPT_MS + 400 * DAY_MS
    assert (await purge(desk.ledger, falls - 1, dry_run=False)).tombstones == 0
    assert (await purge(desk.ledger, falls, dry_run=False)).tombstones == 1


ENDS: dict[str, Settlement | None] = {
    "pending": None,
    "retried": Retry(TROUBLE, delay_ms=1),
    "uncertain": Uncertain(Trouble("uncertain", "lost", maybe_sent=True), delay_ms=1),
    "failed": Fail(TROUBLE),
}


@pytest.mark.parametrize("end", ENDS)
async def test_command_with_an_unfinished_effect_is_not_purged(desk: Desk, end: str) -> None:
    settlement = ENDS[end]
    await command(desk, "r1", owed("r1"))
    if settlement is not None:
        await desk.ledger.settle(await desk.claim(), settlement)
    before = desk.snapshot()
    desk.shell.execute("UPDATE operations SET retain_until = 1 WHERE id = 1")
    await purge(desk.ledger, LATER, dry_run=False)
    for table in ("effects", "attempts"):
        assert desk.snapshot()[table] == before[table]
    assert counts(desk)["operations"] == 1
    assert counts(desk)["tombstones"] == 0


async def test_an_effect_in_flight_keeps_its_command(desk: Desk) -> None:
    await command(desk, "r1", owed("r1"))
    await desk.claim()
    await purge(desk.ledger, LATER, dry_run=False)
    assert counts(desk)["operations"] == 1


@pytest.mark.parametrize("state", ["reserved", "in_progress", "failed_retryable", "failed_terminal"])
async def test_a_command_that_is_not_done_stays_with_its_delivery(desk: Desk, state: str) -> None:
    await desk.reserve()
    if state != "reserved":
        operation = sure(await desk.ledger.claim_operation())
        if state == "failed_retryable":
            await desk.ledger.retry_operation(operation, TROUBLE, 1)
        if state == "failed_terminal":
            await desk.ledger.fail_operation(operation, TROUBLE, {}, ())
    assert desk.value("SELECT state FROM operations") == state
    desk.shell.execute("UPDATE operations SET retain_until = 1")
    await desk.reserve("newest", aggregate_id="Q-newest")
    await purge(desk.ledger, LATER, dry_run=False)
    assert desk.value("SELECT count(*) FROM operations WHERE id = 1") == 1
    assert desk.value("SELECT count(*) FROM deliveries WHERE operation_id = 1") == 1


async def test_commands_of_a_quote_with_a_dead_letter_are_not_purged(desk: Desk) -> None:
    await command(desk, "r1", owed("r1"))
    await desk.ledger.settle(await desk.claim(), DONE)
    other = await desk.claim_operation("r2", aggregate_id="Q-r1")
    await desk.ledger.execute(other, lambda _: Outcome("applied", {}, (owed("r1"),), (), START_MS))
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    await newest(desk)
    await purge(desk.ledger, LATER, dry_run=False)
    assert counts(desk)["operations"] == 3


@pytest.mark.parametrize("state", ["reserved", "failed_retryable", "in_progress", "failed_terminal"])
async def test_commands_of_a_quote_with_an_unfinished_or_failed_command_are_not_purged(desk: Desk, state: str) -> None:
    """It may still enqueue an effect after the first command's effect, now or at a replay."""
    (root,) = await command(desk, "r1", owed("r1"))
    await desk.ledger.settle(await desk.claim(), DONE)
    await newest(desk)
    later = (await desk.reserve("r2", aggregate_id="Q-r1")).operation
    if state != "reserved":
        later = sure(await desk.ledger.claim_operation())
    if state == "failed_retryable":
        await desk.ledger.retry_operation(later, TROUBLE, 0)
    if state == "failed_terminal":
        await desk.ledger.fail_operation(later, TROUBLE, {"code": "failed"}, ())
    assert desk.operation(later.id).state == state
    await purge(desk.ledger, LATER, dry_run=False)
    assert desk.effect(root.id).state == "delivered"
    assert (await purge(desk.ledger, LATER, dry_run=True)).operations == 0


async def test_the_newest_row_stays_so_no_id_comes_twice(desk: Desk) -> None:
    await delivered(desk, "r1")
    await purge(desk.ledger, LATER, dry_run=False)
    assert counts(desk)["operations"] == 1
    await newest(desk)
    await purge(desk.ledger, LATER, dry_run=False)
    assert [row["id"] for row in desk.rows("SELECT id FROM operations")] == [2]


async def test_a_hold_that_ended_is_forgotten_and_one_that_lasts_is_not(desk: Desk) -> None:
    await desk.ledger.pause("crm", "ops", "down")
    await desk.ledger.resume("crm", "ops")
    await desk.ledger.pause("slack", "ops", "down")
    assert (await purge(desk.ledger, START_MS + 90 * DAY_MS, dry_run=False)).holds == 1
    assert [row["name"] for row in desk.rows("SELECT name FROM holds")] == ["slack"]


async def test_a_dry_run_counts_the_same_and_deletes_nothing(desk: Desk) -> None:
    for name in ("r1", "r2", "r3"):
        await delivered(desk, name)
    await newest(desk)
    await command(desk, "r4", owed("r4"))
    before = desk.snapshot()
    foreseen = await purge(desk.ledger, START_MS + KEPT_MS, dry_run=True)
    assert foreseen
    assert desk.snapshot() == before
    assert "retention.purged" not in desk.events()
    assert await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False) == foreseen


async def test_a_run_is_audited_once_with_its_counts_and_an_idle_one_not_at_all(desk: Desk) -> None:
    for name in ("r1", "r2", "r3"):
        await delivered(desk, name)
    await newest(desk)
    progress: list[Purged] = []
    done = await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False, batch=1, between=no_rest, progress=progress.append)
    assert done == Purged(deliveries=4, operations=3, effects=3, attempts=6)
    assert desk.last_event("retention.purged")["after"] == asdict(done)
    assert [each.operations for each in progress] == sorted(each.operations for each in progress)
    await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False)
    assert desk.events().count("retention.purged") == 1


async def test_between_two_batches_the_file_is_left_to_others(desk: Desk) -> None:
    """Other writers write between two batches: no transaction of a purge is open during its pause."""
    for name in ("r1", "r2"):
        await delivered(desk, name)
    await newest(desk)
    seen: list[str] = []

    async def another_writer() -> None:
        if len(seen) < 3:
            seen.append((await desk.reserve(f"meanwhile {len(seen)}", aggregate_id=f"Q-{len(seen)}")).sighting.value)

    await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False, batch=1, between=another_writer)
    assert seen == ["new"] * 3
    assert counts(desk)["tombstones"] == 2


class PowerCut(BaseException):
    """Simulated end of the process."""


async def test_a_run_killed_between_batches_is_continued_and_audited_whole(desk: Desk, clock: ManualClock, place: Place) -> None:
    for name in ("r1", "r2", "r3"):
        await delivered(desk, name)
    await newest(desk)

    def die(so_far: Purged) -> None:
        if so_far.operations == 2:
            raise PowerCut

    with pytest.raises(PowerCut):
        await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False, batch=1, between=no_rest, progress=die)
    assert "retention.purged" not in desk.events()
    next_process = await place.open(clock)
    try:
        done = await purge(Ledger(next_process, clock, AUDIT), START_MS + KEPT_MS, dry_run=False, batch=1, between=no_rest)
    finally:
        await next_process.close()
    assert done == Purged(deliveries=4, operations=3, effects=3, attempts=6)
    assert desk.events().count("retention.purged") == 1


async def test_the_audit_is_never_purged_and_counts_outlive_what_they_counted(desk: Desk) -> None:
    for name in ("r1", "r2"):
        await delivered(desk, name)
    await newest(desk)
    before = [tuple(row) for row in desk.rows("SELECT * FROM audit_events ORDER BY id")]
    counted = (await measure(desk.ledger)).counts
    await purge(desk.ledger, LATER, dry_run=False)
    kept = desk.rows("SELECT * FROM audit_events WHERE event_type <> 'retention.purged' ORDER BY id")
    assert [tuple(row) for row in kept] == before
    assert (await measure(desk.ledger)).counts == counted
    assert await desk.ledger.database.read(lambda tx: recount(tx).right)
    desk.shell.execute("UPDATE meta SET value = 'x' WHERE name = 'measures'")
    found = await desk.ledger.database.read(recount)
    assert not found.right
    assert await desk.ledger.database.write("rebuild", lambda tx: replace_totals(tx, found))
    assert (await measure(desk.ledger)).counts == counted
    desk.shell.execute("DELETE FROM meta WHERE name = 'measures.base'")
    assert not await desk.ledger.database.write("rebuild", lambda tx: replace_totals(tx, found))


async def test_closing_a_quote_dates_everything_about_it_and_opening_it_again_undoes_that(desk: Desk) -> None:
    creation = await desk.claim_operation("create", aggregate_id="new", action_kind="quote.create", aggregate_version=0)
    await desk.ledger.execute(creation, lambda _: Outcome("applied", {}, (intent(),)))
    for name in ("r1", "r2"):  # without effects: only the audit leads to them
        await desk.ledger.execute(await desk.claim_operation(name), lambda _: Outcome("refused", {}))
    await command(desk, "other", owed("other"), keep=None)
    until = "SELECT retain_until FROM operations ORDER BY id"

    assert await desk.ledger.database.write("close", lambda tx: close_aggregate(tx, QUOTE, 77)) == 3
    assert [row["retain_until"] for row in desk.rows(until)] == [77, 77, 77, None]
    await desk.ledger.database.write("open", lambda tx: close_aggregate(tx, QUOTE, None))
    assert [row["retain_until"] for row in desk.rows(until)] == [None] * 4


@pytest.mark.parametrize("wrong", [{"deliveries_ms": 2 * HOUR_MS - 1}, {"tombstones_ms": DAY_MS}, {"holds_ms": 0}])
def test_nothing_is_kept_too_short(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="kept"):
        Keep(**wrong)
    assert Keep(deliveries_ms=2 * HOUR_MS).deliveries_ms == 2 * HOUR_MS


async def test_a_request_that_was_purged_is_the_same_request(desk: Desk) -> None:
    """A tombstone matches its command by the key alone: the original row is gone."""
    await delivered(desk, "r1")
    await newest(desk)
    await purge(desk.ledger, START_MS + KEPT_MS, dry_run=False)
    other = await desk.ledger.reserve(request("r1", aggregate_id="Q-r1", payload={"schema": 1, "note": "another"}))
    assert other.sighting is DedupeResult.NEW
