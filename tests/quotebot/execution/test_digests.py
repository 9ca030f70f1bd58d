"""Tests of the daily digest: asked for by a person, due on working mornings, sent once and only if something waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from ledger.records import Delivered, Drop
from quotebot import effects
from quotebot.commands.payloads import DecideApproval, SetDigest, SubmitQuote
from quotebot.domain.approvals.policy import HOUR_MS
from quotebot.domain.schedule.schedules import DAY_MS, Calendar, next_morning
from quotebot.execution.executor import Executor
from quotebot.execution.membership import Known, keep_person
from quotebot.jobs.scheduler import Scheduler, daily_digest
from quotebot.slack.digest import DigestRequest, read_digest
from quotebot.slack.grammar import GrammarProblem
from tests.quotebot.parts import BERLIN, MATRIX, NEW_YORK, RULES, Bench, OneSlack, at, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from tests.rig import Deal


@dataclass(slots=True)
class Days:
    """A bot of one approver in New York who asked for the digest on a Friday, without the sockets."""

    bench: Bench
    slack: OneSlack = field(default_factory=lambda: OneSlack(zone=NEW_YORK))

    async def begin(self) -> Days:
        clock, database = self.bench.clock, self.bench.ledger.database
        clock.ms = at("2026-11-20 12:00", NEW_YORK)
        manager = Known("member", clock.ms, "Max Manager", NEW_YORK)
        await database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0MANAGER", manager))
        await self.ask(SetDigest(wanted=True), "on", "U0MANAGER")
        return self

    async def ask(self, payload: Any, number: str, actor: str = "U0REP", **more: Any) -> None:
        request = request_for(payload, number, actor=actor, received_at=self.bench.clock.now_ms(), **more)
        await self.bench.ledger.reserve(request)
        await self.work()

    async def work(self) -> None:
        executor = Executor(self.bench.ledger, RULES, lambda low, _: low, MATRIX)
        while await executor.step():
            pass

    async def submitted(self) -> None:
        await self.ask(create_command(), "new")
        await self.ask(SubmitQuote(), "submit", quote_id="Q-2026-0001", version=1)

    async def reach(self, moment: int) -> None:
        """Let the scheduler work until a time, hour by hour."""
        scheduler = Scheduler(self.bench.ledger, [daily_digest()])
        while self.bench.clock.ms < moment:
            self.bench.clock.ms = min(self.bench.clock.ms + HOUR_MS, moment)
            await scheduler.step()
            await self.work()

    async def deliver(self) -> Any:
        found = await self.bench.ledger.claim_effects({effects.DIRECT: 9})
        (effect,) = (each for each in found if each.target.startswith("digest:"))
        services = handlers_of(self.bench, slack=self.slack)
        settlement = await services.perform(effect)
        await self.bench.ledger.settle(effect, settlement, services.follow_ups)
        return settlement


def test_morning_is_nine_on_the_next_working_day_where_the_person_is() -> None:
    friday = at("2026-11-20 12:00")
    assert next_morning(friday, BERLIN) == at("2026-11-23 09:00")
    assert next_morning(friday, NEW_YORK) == at("2026-11-20 09:00", NEW_YORK)
    assert next_morning(at("2026-03-27 10:00"), BERLIN) == at("2026-03-30 09:00")  # the clocks go forward between
    calendar = Calendar(frozenset({1, 5}), 0, 1440, frozenset({date(2026, 11, 24)}))
    assert next_morning(friday, BERLIN, calendar) == at("2026-11-21 09:00")
    assert next_morning(at("2026-11-21 09:00"), BERLIN, calendar) == at("2026-11-28 09:00")


def test_digest_is_turned_on_or_off_by_one_word() -> None:
    assert (read_digest("on"), read_digest(" OFF ")) == (DigestRequest(wanted=True), DigestRequest(wanted=False))
    assert isinstance(read_digest(""), GrammarProblem)


async def test_one_digest_is_sent_per_working_morning_while_something_waits(bench: Bench) -> None:
    days = await Days(bench).begin()
    await days.submitted()
    await days.reach(at("2026-11-23 08:00", NEW_YORK))
    assert bench.rows("SELECT 1 FROM operations WHERE action_kind = 'digest.send'") == []
    await days.reach(at("2026-11-23 10:00", NEW_YORK))
    assert isinstance(await days.deliver(), Delivered)
    (posted,) = days.slack.posted
    assert posted.startswith("D0MANAGER Good morning, Max: 1 needs you")
    assert "Q-2026-0001" in posted
    assert "margin" not in posted
    assert bench.row("SELECT due_at FROM digests")["due_at"] == at("2026-11-24 09:00", NEW_YORK)


async def test_no_digest_is_sent_when_nothing_waits_or_when_it_is_late(bench: Bench) -> None:
    days = await Days(bench).begin()
    await days.reach(at("2026-11-23 10:00", NEW_YORK))
    await days.submitted()
    bench.clock.ms = at("2026-11-24 20:00", NEW_YORK)  # the bot was down all day
    await days.reach(bench.clock.ms + HOUR_MS)
    codes = bench.rows("SELECT response FROM operations WHERE action_kind = 'digest.send' ORDER BY id")
    assert ["nothing_waits" in codes[0]["response"], "too_late" in codes[1]["response"]] == [True, True]
    assert bench.rows("SELECT 1 FROM effects WHERE target LIKE 'digest:U0MANAGER:%'") == []
    assert bench.row("SELECT due_at FROM digests")["due_at"] == at("2026-11-25 09:00", NEW_YORK)


async def test_digest_is_dropped_if_nothing_waits_any_more_when_it_is_drawn(bench: Bench) -> None:
    days = await Days(bench).begin()
    await days.submitted()
    await days.reach(at("2026-11-23 10:00", NEW_YORK))
    approval = bench.row("SELECT approval_id FROM approvals")["approval_id"]
    decision = DecideApproval(approval, "approve")
    await days.ask(decision, "decide", "U0MANAGER", quote_id="Q-2026-0001", version=1)
    assert bench.row("SELECT state FROM quotes")["state"] == "approved"
    assert isinstance(await days.deliver(), Drop)
    assert days.slack.posted == []


async def test_digest_that_was_turned_off_is_not_sent(bench: Bench) -> None:
    days = await Days(bench).begin()
    await days.submitted()
    await days.ask(SetDigest(wanted=False), "off", "U0MANAGER")
    await days.reach(bench.clock.ms + 5 * DAY_MS)
    assert bench.rows("SELECT 1 FROM operations WHERE action_kind = 'digest.send'") == []


async def test_button_on_the_home_tab_turns_the_digest_on_and_off(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.post("home", user="U0MANAGER")
    await deal.settled()
    for label, wanted in (("Stop the daily digest", 1), ("Get a daily digest", 0)):
        home = (await deal.get("state"))["homes"]["U0MANAGER"]
        await deal.post("action", user="U0MANAGER", channel="C0DEALS", view_id=home["id"], action_id="home.digest")
        await deal.settled()
        assert label in str((await deal.get("state"))["homes"]["U0MANAGER"])
        assert len(await deal.rows("SELECT 1 FROM digests")) == wanted
    await deal.slash("digest on", user="U0MANAGER")
    await deal.settled()
    assert len(await deal.rows("SELECT 1 FROM digests")) == 1
