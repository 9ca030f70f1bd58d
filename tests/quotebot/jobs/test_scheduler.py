"""Tests of the scheduler over a real ledger: every slot fires once, also with clock jumps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.database import load_statements
from ledger.records import Delivered, Operation
from ledger.retention import close_aggregate, purge
from quotebot.commands.payloads import DecideApproval, ExpireQuote, NoteStaleDraft, SubmitQuote
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.rules import KEEP_CLOSED_MS
from quotebot.domain.schedule.schedules import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SLOTS_MAX,
    Candidate,
    Every,
    Misfire,
    Once,
    parse_cron,
    slots_due,
)
from quotebot.execution.executor import Executor, failure_answer
from quotebot.jobs.scheduler import (
    AT_ONCE,
    GRACE_MS,
    REST_SECONDS,
    FiringOrder,
    ScheduledJob,
    Scheduler,
    approval_reminder,
    jobs,
    quote_expiry,
    stale_draft,
    zone_named,
)
from quotebot.settings import Settings
from quotebot.store import quotes as store
from tests.quotebot.parts import MATRIX, RULES, Bench, bench_at, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.audit.events import Audit
    from ledger.database import Tx
    from quotebot.commands.registry import Payload
    from quotebot.domain.schedule.schedules import Schedule

VALID_MS = RULES.valid_days * DAY_MS
YEAR = 365 * DAY_MS
QUOTE = "Q-2026-0001"
BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


@dataclass(slots=True)
class Running:
    """A scheduler and an executor over one ledger."""

    bench: Bench
    scheduler: Scheduler
    executor: Executor

    async def works(self) -> None:
        """Run both until nothing is due."""
        while await self.scheduler.step() + await self.executor.step():
            pass

    async def done(self, payload: Payload, request_id: str, **changes: Any) -> dict[str, Any]:
        """Reserve and execute one command of a person, now."""
        changes = {"received_at": self.bench.clock.now_ms(), **changes}
        operation = (await self.bench.ledger.reserve(request_for(payload, request_id, **changes))).operation
        while await self.executor.step():
            pass
        return self.bench.row("SELECT * FROM operations WHERE id = ?", operation.id)

    async def created(self, discount: str = "15", **changes: Any) -> str:
        row = await self.done(create_command(discount), f"create-{discount}", **changes)
        return str(json.loads(row["response"])["quote_id"])

    def fired(self, job: str = "") -> list[dict[str, Any]]:
        sql = "SELECT * FROM operations WHERE source = 'scheduler' AND source_request_id LIKE ? ORDER BY id"
        return self.bench.rows(sql, f"{job}%")

    def slots(self, job: str = "") -> list[int]:
        return [int(row["source_request_id"].rpartition(":")[2]) for row in self.fired(job)]

    def state(self, quote_id: str = QUOTE) -> str:
        return str(self.bench.row("SELECT state FROM quotes WHERE quote_id = ?", quote_id)["state"])


def running(bench: Bench, *table: ScheduledJob) -> Running:
    return Running(bench, Scheduler(bench.ledger, table), Executor(bench.ledger, RULES, lambda low, _: low, MATRIX))


@pytest.fixture
def expiring(bench: Bench) -> Running:
    return running(bench, quote_expiry())


@pytest.fixture
def noting(bench: Bench) -> Running:
    return running(bench, stale_draft(14, UTC))


def job_of(
    schedule: Schedule,
    *about: str,
    name: str = "reminder",
    misfire: Misfire = Misfire.COALESCE,
    late: int | None = None,
    order: FiringOrder = FiringOrder.REMINDER,
) -> ScheduledJob:
    """Return a job about quotes that were made this morning."""

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        del tx, job, now
        return [Candidate(quote_id, MORNING, quote_id, "T0HOME") for quote_id in about or (QUOTE,)][:limit]

    def payload(candidate: Candidate) -> NoteStaleDraft:
        return NoteStaleDraft(untouched_since=candidate.anchor)

    return ScheduledJob(name, order, schedule, find, payload, misfire, late)


# ---------------------------------------------------------------------------------------------------------------- expiry


async def test_quote_expires_when_its_validity_and_the_grace_period_are_over(expiring: Running) -> None:
    await expiring.created()
    expiring.bench.clock.advance(VALID_MS + GRACE_MS - 1)
    await expiring.works()
    assert (expiring.fired(), expiring.state()) == ([], "priced")
    expiring.bench.clock.advance(1)
    await expiring.works()
    assert expiring.state() == "expired"
    (row,) = expiring.fired()
    assert row["source_request_id"] == f"quote_expiry:{QUOTE}:{MORNING + VALID_MS + GRACE_MS}"
    assert (row["action_kind"], row["outcome"], row["aggregate_id"]) == ("quote.expire", "applied", QUOTE)
    assert (row["actor"], row["actor_type"], row["team_id"]) == ("quotebot", "system", "T0HOME")
    assert (row["aggregate_version"], row["pinned_version"], row["received_at"]) == (None, 1, expiring.bench.clock.now_ms())
    owed = expiring.bench.rows("SELECT class FROM effects WHERE operation_id = ? ORDER BY id", row["id"])
    assert [effect["class"] for effect in owed] == ["slack.card", "slack.post"]


async def test_what_is_about_an_expired_quote_may_be_purged_after_a_while(expiring: Running) -> None:
    await expiring.created()
    expiring.bench.clock.advance(VALID_MS + GRACE_MS)
    await expiring.works()
    kept = expiring.bench.rows("SELECT DISTINCT retain_until FROM operations")
    assert kept == [{"retain_until": expiring.bench.clock.now_ms() + KEEP_CLOSED_MS}]


async def test_a_quote_with_a_command_under_way_waits_for_its_end(expiring: Running) -> None:
    """The last moment before midnight: submitted in time, executed late."""
    await expiring.created()
    clock, ledger = expiring.bench.clock, expiring.bench.ledger
    clock.advance(VALID_MS - 1)
    request = request_for(SubmitQuote(), "submit", quote_id=QUOTE, version=1, received_at=clock.now_ms())
    submitted = (await ledger.reserve(request)).operation
    clock.advance(DAY_MS)
    assert await expiring.scheduler.step() == 0
    await expiring.works()
    assert expiring.bench.row("SELECT outcome FROM operations WHERE id = ?", submitted.id) == {"outcome": "applied"}
    assert (expiring.state(), len(expiring.fired())) == ("expired", 1)


@pytest.mark.parametrize("state", ["accepted", "lost", "cancelled", "expired"])
async def test_expiry_never_overwrites_a_final_state(expiring: Running, state: str) -> None:
    over = replace(example_quote(QuoteState(state)), valid_until=MORNING - DAY_MS)

    def insert(tx: Tx) -> None:
        store.insert(tx, over, operation_key="1" * 64, root_effect_key="2" * 64, asked_hash="3" * 64, recorded_at=MORNING)

    await expiring.bench.ledger.database.write("test", insert)
    await expiring.works()
    assert expiring.fired() == []  # it is not even requested; and if it is, because it was open just before:
    row = await expiring.done(ExpireQuote(over.valid_until), "raced", quote_id=over.quote_id, actor="quotebot", actor_type="system")
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "final")
    assert expiring.state(over.quote_id) == state
    assert expiring.bench.rows("SELECT 1 FROM effects") == []


async def test_an_expired_quote_cannot_be_submitted_or_approved(expiring: Running) -> None:
    await expiring.created("15")
    await expiring.created("16")
    await expiring.done(SubmitQuote(), "submit", quote_id=QUOTE, version=1)
    expiring.bench.clock.advance(VALID_MS + GRACE_MS)
    await expiring.works()
    assert (expiring.state(QUOTE), expiring.state("Q-2026-0002")) == ("expired", "expired")
    approve = DecideApproval("A-2026-0001-v1-1", "approve")
    approved = await expiring.done(approve, "approve", quote_id=QUOTE, version=1, actor="U0MANAGER")
    submitted = await expiring.done(SubmitQuote(), "late", quote_id="Q-2026-0002", version=1)
    assert [row["outcome"] for row in (approved, submitted)] == ["refused", "refused"]
    assert "Q-2026-0001 isn't waiting for approval any more (now: expired)." in json.loads(approved["response"])["text"]
    assert "so it can't be submitted. Its card shows what's possible now." in json.loads(submitted["response"])["text"]
    assert [row["state"] for row in expiring.bench.rows("SELECT state FROM approvals")] == ["invalidated"]


async def test_many_quotes_expire_in_one_look_each_once(expiring: Running) -> None:
    many = AT_ONCE + 3
    for number in range(many):
        request = request_for(create_command(f"0.{number + 1:02}"), f"create-{number}")
        await expiring.bench.ledger.reserve(request)
    while await expiring.executor.step():
        pass
    expiring.bench.clock.advance(YEAR)
    assert await expiring.scheduler.step() == many
    await expiring.works()
    assert expiring.bench.row("SELECT count(*) AS n FROM quotes WHERE state = 'expired'") == {"n": many}
    assert len(expiring.fired()) == many


async def test_a_tick_about_a_quote_that_does_not_exist_answers_nobody(expiring: Running) -> None:
    row = await expiring.done(ExpireQuote(1), "gone", quote_id="Q-2026-0099", actor="quotebot", actor_type="system")
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "unknown_quote")
    assert expiring.bench.rows("SELECT 1 FROM effects") == []


async def test_a_tick_that_is_given_up_answers_nobody(expiring: Running) -> None:
    request = request_for(ExpireQuote(1), "dead", quote_id=QUOTE, source="scheduler", actor="quotebot", actor_type="system")
    operation = (await expiring.bench.ledger.reserve(request)).operation
    assert isinstance(operation, Operation)
    assert await expiring.bench.ledger.database.read(lambda tx: failure_answer(tx, operation, "a bug", MORNING)) == ()
    await expiring.works()


# ----------------------------------------------------------------------------------------------------------- stale drafts


async def test_a_draft_that_nobody_touched_is_noted_once_on_a_working_morning(noting: Running) -> None:
    await noting.created()  # on a Saturday
    clock = noting.bench.clock
    clock.advance(14 * DAY_MS + DAY_MS)
    await noting.works()
    assert noting.fired() == []  # it is Sunday
    clock.advance(DAY_MS)
    await noting.works()
    (slot,) = noting.slots()
    assert datetime.fromtimestamp(slot // 1000, tz=UTC) == datetime(2026, 12, 7, 9, tzinfo=UTC)
    clock.advance(7 * DAY_MS)
    await noting.works()
    assert len(noting.fired()) == 1
    assert noting.state() == "priced"
    assert [row["class"] for row in noting.bench.rows("SELECT class FROM effects ORDER BY id")] == ["slack.post"] * 2


async def test_a_draft_that_was_touched_is_noted_anew(noting: Running) -> None:
    await noting.created()
    clock = noting.bench.clock
    clock.advance(9 * DAY_MS)
    await noting.bench.ledger.database.write("touch", lambda tx: store.set_thread(tx, QUOTE, "1.1", clock.now_ms()))
    clock.advance(13 * DAY_MS)
    await noting.works()
    assert noting.fired() == []
    clock.advance(2 * DAY_MS)
    await noting.works()
    assert [row["outcome"] for row in noting.fired()] == ["applied"]


async def test_nobody_is_reminded_of_what_expired_while_the_bot_was_down(bench: Bench) -> None:
    both = running(bench, *jobs(Settings()))
    await both.created()
    bench.clock.advance(VALID_MS + DAY_MS)
    await both.works()
    assert [row["action_kind"] for row in both.fired()] == ["quote.expire"]


def test_jobs_are_made_of_the_settings() -> None:
    table = jobs(Settings(stale_draft_days=3, time_zone="Europe/Berlin"))
    assert [job.name for job in table] == [
        "quote_expiry",
        "approval_expiry",
        "approval_escalation",
        "approval_reminder",
        "reading_answer",
        "daily_digest",
        "stale_draft",
    ]
    assert table[-1].schedule == Once(3 * DAY_MS, parse_cron("0 9 * * mon-fri", BERLIN))
    assert zone_named("UTC") is UTC


# ------------------------------------------------------------------------------------------- one operation for each slot


async def test_crash_before_a_slot_is_marked_does_not_fire_it_again(noting: Running) -> None:
    await noting.created()
    noting.bench.clock.advance(17 * DAY_MS)
    await noting.works()
    noting.bench.rows("DELETE FROM schedule_marks")
    await noting.works()
    await noting.bench.ledger.noted()
    assert len(noting.fired()) == 1
    assert len(noting.bench.rows("SELECT 1 FROM schedule_marks")) == 1
    assert len(noting.bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'delivery.duplicate'")) == 1


@pytest.mark.parametrize("closed", [False, True])
async def test_a_slot_whose_delivery_or_whole_operation_was_purged_is_not_fired_again(noting: Running, *, closed: bool) -> None:
    """First by the operation's key, then by its tombstone."""
    await noting.created()
    bench = noting.bench
    bench.clock.advance(17 * DAY_MS)
    await noting.works()
    if closed:
        await bench.ledger.database.write("test", lambda tx: close_aggregate(tx, QUOTE, MORNING))
        bench.rows("UPDATE effects SET state = 'discarded', finished_at = 1, next_attempt_at = NULL")
        await noting.created("16")  # the newest operation is never purged
    bench.clock.advance(8 * DAY_MS)
    await purge(bench.ledger, bench.clock.now_ms(), dry_run=False)
    assert bench.rows("SELECT 1 FROM deliveries WHERE source = 'scheduler'") == []
    left = noting.fired()
    assert len(left) == (0 if closed else 1)
    bench.rows("DELETE FROM schedule_marks")
    await noting.works()
    assert noting.fired() == left
    assert len(bench.rows("SELECT 1 FROM schedule_marks WHERE outcome = 'fired'")) == 1


async def test_the_next_bot_knows_what_the_last_one_fired(bench: Bench) -> None:
    job = job_of(Every(2 * HOUR_MS))
    first = running(bench, job)
    await first.created()
    bench.clock.advance(3 * HOUR_MS)
    await first.works()
    second = running(replace(bench, ledger=await bench.another_bot()), job)
    assert await second.scheduler.step() == 0
    assert first.slots() == [MORNING + 2 * HOUR_MS]


async def test_two_schedulers_that_look_at_the_same_time_fire_a_slot_once(bench: Bench) -> None:
    job = job_of(Every(2 * HOUR_MS))
    first, second = running(bench, job), running(bench, job)
    await first.created()
    bench.clock.advance(3 * HOUR_MS)
    await asyncio.gather(first.scheduler.step(), second.scheduler.step())
    await bench.ledger.noted()
    await first.works()
    assert first.slots() == [MORNING + 2 * HOUR_MS]


# ------------------------------------------------------------------------------------------------------ clocks that jump


@pytest.mark.parametrize("jump", [HOUR_MS, YEAR])
async def test_a_clock_put_back_fires_nothing_again_and_loses_nothing_that_comes(bench: Bench, jump: int) -> None:
    hourly = running(bench, job_of(Every(HOUR_MS)))
    await hourly.created()
    bench.clock.advance(5 * HOUR_MS)
    await hourly.works()
    bench.clock.advance(-jump)
    await hourly.works()
    before = hourly.slots()
    bench.clock.advance(jump)
    await hourly.works()
    assert hourly.slots() == before  # 4 h, 5 h: none of them again
    bench.clock.advance(HOUR_MS)
    await hourly.works()
    assert hourly.slots() == [*before, MORNING + 6 * HOUR_MS]


@pytest.mark.parametrize("jump", [HOUR_MS, YEAR])
async def test_a_clock_put_forward_and_right_again_loses_no_slot(bench: Bench, jump: int) -> None:
    hourly = running(bench, job_of(Every(HOUR_MS), late=6 * HOUR_MS))
    await hourly.created()
    bench.clock.advance(jump)
    await hourly.works()
    assert hourly.slots() == [MORNING + jump]  # of a whole year one
    bench.clock.advance(-jump)
    for _ in range(4):
        bench.clock.advance(HOUR_MS)
        await hourly.works()
    wanted = {MORNING + number * HOUR_MS for number in range(1, 5)} | {MORNING + jump}
    assert sorted(hourly.slots()) == sorted(wanted)


async def test_what_was_dropped_while_the_clock_was_wrong_is_fired_when_it_is_right(bench: Bench) -> None:
    once = running(bench, job_of(Once(2 * HOUR_MS), late=6 * HOUR_MS))
    await once.created()
    bench.clock.advance(YEAR)
    await once.works()
    assert once.slots() == []
    assert bench.row("SELECT outcome, slot FROM schedule_marks") == {"outcome": "dropped", "slot": MORNING + 2 * HOUR_MS}
    assert await once.scheduler.step() == 0  # and is not checked again
    bench.clock.advance(3 * HOUR_MS - YEAR)
    await once.works()
    assert once.slots() == [MORNING + 2 * HOUR_MS]


@pytest.mark.parametrize(
    ("zone", "summer", "winter"),
    [
        (BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)),
        (NEW_YORK, datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("local", ["30 1 * * *", "30 2 * * *"])
async def test_both_changes_of_the_clocks_have_one_slot_a_day(
    bench: Bench, zone: ZoneInfo, summer: datetime, winter: datetime, local: str
) -> None:
    for change in (summer, winter):
        start = round(change.timestamp()) * 1000

        def find(tx: Tx, job: str, now: int, limit: int, /, start: int = start) -> Sequence[Candidate]:
            del tx, job, now, limit
            return [Candidate(QUOTE, start, QUOTE, "T0HOME")]

        daily = replace(job_of(parse_cron(local, zone), name=f"daily-{start}"), find=find)
        work = running(bench, daily)
        bench.clock.ms = start
        for _ in range(4 * 48):
            await work.scheduler.step()
            bench.clock.advance(15 * MINUTE_MS)
        days = [datetime.fromtimestamp(slot // 1000, tz=zone).date().toordinal() for slot in work.slots(daily.name)]
        first = datetime.fromtimestamp(start // 1000, tz=zone).date().toordinal()
        assert days == [first + 1, first + 2]
    await work.works()


def _shortened(audit: Audit, until: int, tx: Any) -> None:
    """Set an earlier end of the quote, in its row and in its chain."""
    tx._connection.execute("UPDATE quotes SET valid_until = ? WHERE quote_id = ?", (until, QUOTE))
    facts = {"state": "priced", "valid_until": until}
    audit.append(tx, MORNING, "quote.stale_noted", actor="quotebot", actor_type="system", aggregate_id=QUOTE, after=facts)


async def test_after_a_week_of_downtime_each_job_fires_once_and_nothing_is_approved(bench: Bench) -> None:
    """Reminders are 2 h after the request and 6 h late at most, escalations 4 h after it; one quote expired meanwhile."""
    table = (
        job_of(Once(2 * HOUR_MS), name="reminder_once", late=6 * HOUR_MS),
        job_of(Every(2 * HOUR_MS), QUOTE, "Q-2026-0002", name="reminder_again", late=6 * HOUR_MS),
        job_of(Once(4 * HOUR_MS), QUOTE, "Q-2026-0002", name="escalation", order=FiringOrder.ESCALATION),
        job_of(Every(HOUR_MS), name="skipped", misfire=Misfire.SKIP, order=FiringOrder.NOTICE),
        quote_expiry(),
    )
    work = running(bench, *table)
    await work.created("15")
    await work.created("16")
    await work.done(SubmitQuote(), "submit", quote_id="Q-2026-0002", version=1)
    await bench.ledger.database.write("shorten", partial(_shortened, bench.ledger.audit, MORNING + DAY_MS))
    bench.clock.advance(7 * DAY_MS + 90 * MINUTE_MS)
    await work.scheduler.step()
    fired = [row["source_request_id"].rsplit(":", 1)[0] for row in work.fired()]
    assert fired == [
        f"quote_expiry:{QUOTE}",
        f"escalation:{QUOTE}",
        "escalation:Q-2026-0002",
        f"reminder_again:{QUOTE}",
        "reminder_again:Q-2026-0002",
    ]
    dropped = bench.rows("SELECT job FROM schedule_marks WHERE outcome = 'dropped' ORDER BY job")
    assert [row["job"] for row in dropped] == ["reminder_once", "skipped"]
    await work.works()
    assert len(work.fired()) == len(fired)
    assert [(row["state"], row["decided_at"]) for row in bench.rows("SELECT * FROM approvals")] == [("pending", None)]
    assert (work.state(QUOTE), work.state("Q-2026-0002")) == ("expired", "pending_approval")
    outcomes = {row["source_request_id"].split(":")[0]: row["outcome"] for row in work.fired() if row["aggregate_id"] == QUOTE}
    assert outcomes == {"quote_expiry": "applied", "escalation": "refused", "reminder_again": "refused"}


async def test_slots_that_are_caught_up_with_come_in_order(bench: Bench) -> None:
    work = running(bench, job_of(Every(HOUR_MS), misfire=Misfire.CATCH_UP))
    await work.created()
    bench.clock.advance(5 * HOUR_MS)
    await work.works()
    assert work.slots() == [MORNING + number * HOUR_MS for number in range(1, 6)]


async def test_what_is_over_does_not_hide_what_is_due_behind_it(bench: Bench) -> None:
    """A job whose query returns every row each time, the oldest first."""
    early = tuple(f"Q-2026-1{number:03}" for number in range(AT_ONCE * 2))
    first, both = job_of(Once(HOUR_MS), *early), job_of(Once(HOUR_MS), *early, "Q-2026-2000")
    bench.clock.advance(HOUR_MS)
    assert await running(bench, first).scheduler.step() == len(early)
    work = running(bench, both)
    assert await work.scheduler.step() == 1
    assert work.fired()[-1]["aggregate_id"] == "Q-2026-2000"
    assert await work.scheduler.step() == 0
    await work.works()


async def test_a_broken_job_stops_no_other_and_is_tried_again_after_a_while(bench: Bench) -> None:
    broken = [True]

    def find(tx: Tx, job: str, now: int, limit: int, /) -> Sequence[Candidate]:
        if broken:
            raise ValueError("a bug")
        return job_of(Every(HOUR_MS)).find(tx, job, now, limit)

    work = running(
        bench, replace(job_of(Every(HOUR_MS), name="broken", order=FiringOrder.EXPIRY), find=find), job_of(Every(HOUR_MS))
    )
    await work.created()
    bench.clock.advance(HOUR_MS)
    await work.works()
    assert (len(work.slots("broken")), len(work.slots("reminder"))) == (0, 1)
    broken.clear()
    assert await work.scheduler.step() == 0
    bench.clock.advance(round(REST_SECONDS * 1000))
    await work.works()
    assert work.slots("broken") == [MORNING + HOUR_MS]


async def test_a_slot_that_cannot_be_recorded_is_not_marked_and_stays_due(bench: Bench) -> None:
    work = running(bench, job_of(Every(HOUR_MS)))
    await work.created()
    bench.clock.advance(HOUR_MS)
    bench.rows("CREATE TRIGGER full BEFORE INSERT ON operations BEGIN SELECT RAISE(ABORT, 'no'); END")
    await work.scheduler.step()
    assert (work.fired(), bench.rows("SELECT 1 FROM schedule_marks")) == ([], [])
    bench.rows("DROP TRIGGER full")
    bench.clock.advance(round(REST_SECONDS * 1000))
    await work.works()
    assert work.slots() == [MORNING + HOUR_MS]


JUMPS = st.sampled_from([MINUTE_MS, HOUR_MS, -HOUR_MS, DAY_MS, 7 * DAY_MS, YEAR, -YEAR, 3 * HOUR_MS])
SCHEDULES = st.sampled_from(
    [
        Once(),
        Once(2 * HOUR_MS),
        Every(HOUR_MS),
        Every(HOUR_MS, times=3),
        parse_cron("30 2 * * *", BERLIN),
        parse_cron("0 9 * * 1-5", NEW_YORK),
    ]
)


@settings(max_examples=10, deadline=None)
@given(SCHEDULES, st.sampled_from([Misfire.COALESCE, Misfire.CATCH_UP]), st.lists(JUMPS, min_size=2, max_size=6))
def test_wherever_the_clock_goes_no_slot_is_fired_early_or_twice_and_none_is_lost(
    schedule: Schedule, misfire: Misfire, jumps: list[int]
) -> None:
    async def walk(folder: Path) -> None:
        async with bench_at(folder / "ledger.db") as bench:
            work = running(bench, job_of(schedule, misfire=misfire))
            await work.created()
            for jump in jumps:
                bench.clock.advance(jump)
                await work.scheduler.step()
                due = slots_due(schedule, MORNING, None, bench.clock.now_ms())
                assert set(due[-SLOTS_MAX if misfire is Misfire.CATCH_UP else -1 :]) <= set(work.slots())
            fired = work.fired()
            assert len({row["source_request_id"] for row in fired}) == len(fired)
            assert all(row["received_at"] >= int(row["source_request_id"].rpartition(":")[2]) for row in fired)
            await bench.ledger.noted()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(walk(Path(folder)))


# ------------------------------------------------------------------------------------------------------------ approvals

APPROVAL = "A-2026-0001-v1-1"


@pytest.fixture
async def asked(bench: Bench) -> Running:
    """Return all jobs of the bot, with one quote that waits for its sales manager since MORNING."""
    work = running(bench, *jobs(Settings()))
    await work.created()
    await work.done(SubmitQuote(), "submit", quote_id=QUOTE, version=1)
    return work


def steps(work: Running) -> list[tuple[str, str, int]]:
    """Return the fired slots: the job, its slot in hours after MORNING, and the outcome."""
    names = [row["source_request_id"].split(":") for row in work.fired()]
    hours = [(int(slot) - MORNING) // HOUR_MS for *_, slot in names]
    outcomes = [row["outcome"] for row in work.fired()]
    return [(name[0], outcome, at) for name, outcome, at in zip(names, outcomes, hours, strict=True)]


async def test_unanswered_request_is_reminded_escalated_and_expired_each_on_time(asked: Running) -> None:
    await asked.works()
    assert asked.fired() == []
    for _ in range(75 * 2):
        asked.bench.clock.advance(HOUR_MS // 2)
        await asked.works()
    assert steps(asked) == [
        ("approval_reminder", "applied", 2),
        ("approval_escalation", "applied", 4),
        ("approval_escalation", "applied", 8),
        ("approval_escalation", "applied", 12),
        ("approval_expiry", "applied", 72),
    ]
    assert [row["source_request_id"].rpartition(":")[0] for row in asked.fired("approval_reminder")] == [
        f"approval_reminder:{APPROVAL}/1"
    ]
    approval = asked.bench.row("SELECT state, decided_by FROM approvals")
    assert (asked.state(), approval) == ("pending_approval", {"state": "expired", "decided_by": None})


@pytest.mark.parametrize(
    ("hours", "fired"),
    [
        (3, ["approval_reminder"]),
        (5, ["approval_escalation"]),
        (50, ["approval_escalation"]),
        (73, ["approval_expiry"]),
        (VALID_MS // HOUR_MS + 1, ["quote_expiry"]),
    ],
)
async def test_after_a_downtime_only_the_furthest_step_of_a_request_is_made(asked: Running, hours: int, fired: list[str]) -> None:
    asked.bench.clock.advance(hours * HOUR_MS)
    await asked.works()
    assert [(name, outcome) for name, outcome, _ in steps(asked)] == [(name, "applied") for name in fired]


async def test_pending_decision_is_executed_before_its_request_is_escalated_or_expired(asked: Running) -> None:
    bench = asked.bench
    bench.clock.advance(72 * HOUR_MS - 1)
    approve = DecideApproval(APPROVAL, "approve")
    in_time = request_for(approve, "in-time", quote_id=QUOTE, version=1, actor="U0MANAGER", received_at=bench.clock.now_ms())
    await bench.ledger.reserve(in_time)
    bench.clock.advance(HOUR_MS)
    assert await asked.scheduler.step() == 0
    await asked.works()
    assert (asked.state(), asked.fired()) == ("approved", [])


async def test_what_arrives_in_time_and_is_recorded_late_is_heard(asked: Running) -> None:
    bench = asked.bench
    bench.clock.advance(71 * HOUR_MS)
    await asked.works()
    bench.clock.advance(HOUR_MS + GRACE_MS - 1)
    received_at = MORNING + 72 * HOUR_MS - 1
    await asked.works()
    row = await asked.done(
        DecideApproval(APPROVAL, "approve"), "late", quote_id=QUOTE, version=1, actor="U0MANAGER", received_at=received_at
    )
    assert (row["outcome"], asked.state()) == ("applied", "approved")


async def test_a_reminder_is_not_made_up_for_more_than_six_hours_late(bench: Bench) -> None:
    work = running(bench, approval_reminder())
    await work.created()
    await work.done(SubmitQuote(), "submit", quote_id=QUOTE, version=1)
    bench.clock.advance(8 * HOUR_MS + 1)
    await work.works()
    assert (work.fired(), bench.row("SELECT job, outcome FROM schedule_marks")) == (
        [],
        {"job": "approval_reminder", "outcome": "dropped"},
    )


async def reminded(bench: Bench) -> Running:
    """Enqueue a reminder behind a posted card, all messages before it delivered."""
    work = running(bench, approval_reminder())
    await work.created()
    await work.done(SubmitQuote(), "submit", quote_id=QUOTE, version=1)
    for _ in range(2):
        for effect in await bench.ledger.claim_effects({"slack.post": 9}):
            await bench.ledger.settle(effect, Delivered("17.1", {}))
    due = bench.row("SELECT remind_at FROM approval_slots")["remind_at"]
    bench.clock.advance(due - bench.clock.now_ms())
    await work.works()
    assert last_post(bench)["state"] == "pending"
    return work


def last_post(bench: Bench) -> dict[str, Any]:
    return bench.row("SELECT state, category FROM effects WHERE class = 'slack.post' ORDER BY id DESC LIMIT 1")


AGES = {"slack.post": 7 * 24 * HOUR_MS}


@pytest.mark.parametrize(("late_ms", "state"), [(0, "in_flight"), (1, "failed")])
async def test_a_reminder_that_waits_as_a_message_for_more_than_six_hours_is_not_sent(
    bench: Bench, late_ms: int, state: str
) -> None:
    await reminded(bench)
    bench.clock.advance(6 * HOUR_MS + late_ms)
    await bench.ledger.claim_effects({"slack.post": 9}, max_age_ms=AGES)
    assert last_post(bench) == {"state": state, "category": "expired" if state == "failed" else None}


async def test_a_reminder_that_waits_as_a_message_does_not_age_while_slack_is_paused(bench: Bench) -> None:
    await reminded(bench)
    await bench.ledger.pause("slack", "U0OPS", "maintenance")
    bench.clock.advance(20 * HOUR_MS)
    await bench.ledger.resume("slack", "U0OPS")
    assert len(await bench.ledger.claim_effects({"slack.post": 9}, max_age_ms=AGES)) == 1


async def test_another_notice_waits_as_long_as_its_class_allows(bench: Bench) -> None:
    work = running(bench, approval_reminder())
    await work.created()
    await work.done(SubmitQuote(), "submit", quote_id=QUOTE, version=1)
    (root,) = await bench.ledger.claim_effects({"slack.post": 9})
    await bench.ledger.settle(root, Delivered("17.1", {}))
    bench.clock.advance(24 * HOUR_MS)
    (notice,) = await bench.ledger.claim_effects({"slack.post": 9}, max_age_ms=AGES)
    assert (notice.payload["what"], notice.state) == ("notice", "in_flight")


async def test_a_request_that_is_asked_again_is_reminded_of_again(asked: Running) -> None:
    asked.bench.clock.advance(73 * HOUR_MS)
    await asked.works()
    await asked.done(SubmitQuote(), "again", quote_id=QUOTE, version=1)
    asked.bench.clock.advance(2 * HOUR_MS)
    await asked.works()
    assert [(name, outcome) for name, outcome, _ in steps(asked)] == [
        ("approval_expiry", "applied"),
        ("approval_reminder", "applied"),
    ]
    assert "A-2026-0001-v1-2/1" in asked.fired("approval_reminder")[0]["source_request_id"]


# ------------------------------------------------------------------------------------------------------------- its reads


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("quotes_to_expire", "quotes_open"),
        ("stale_drafts", "quotes_drafts"),
        ("slots_to_remind", "approval_slots_to_remind"),
        ("slots_to_escalate", "approval_slots_to_escalate"),
        ("slots_to_expire", "approval_slots_to_expire"),
    ],
)
async def test_a_look_finds_what_is_due_by_an_index(bench: Bench, statement: str, index: str) -> None:
    text = load_statements([files("quotebot.store").joinpath("queries.sql").read_text("utf-8")])[statement]
    with contextlib.closing(sqlite3.connect(bench.path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", {"job": "j", "now": 1, "until": 1, "limit": 1}).fetchall()
    used = " ".join(detail for *_, detail in plan)
    assert f"USING INDEX {index}" in used or f"USING COVERING INDEX {index}" in used
    assert "SCAN" not in used
    assert "TEMP B-TREE" not in used
