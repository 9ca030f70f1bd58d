"""Tests of business hours: deadlines that count them, holidays, clock changes, the policy's table, and what a request keeps."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import SubmitQuote
from quotebot.domain.approvals.calendars import calendar_document, read_calendar
from quotebot.domain.approvals.policy import HOUR_MS, Need, PolicyDecision, Timing
from quotebot.domain.approvals.policy_document import PolicyError, parse_policy, policy_document, read_policy
from quotebot.domain.approvals.requests import escalated, open_request
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.schedule.schedules import after_working
from quotebot.execution.executor import Executor
from quotebot.execution.membership import Known, keep_person
from quotebot.store import quotes as store
from tests.quotebot.parts import BERLIN, MATRIX, NEW_YORK, RULES, Bench, at, create_command, request_for
from tests.quotebot.views.quote_examples import example_quote

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Approval

POLICY_TEXT = files("quotebot").joinpath("data/policy.toml").read_text("utf-8")
HOURS = read_calendar({"from": "09:00", "until": "17:00", "holidays": ["2026-12-25"]})
AROUND_THE_CLOCK = read_calendar({"days": ["sat", "sun"], "from": "00:00", "until": "24:00"})


@pytest.mark.parametrize(
    ("start", "hours", "due"),
    [
        ("2026-11-23 10:00", 2, "2026-11-23 12:00"),  # a Monday
        ("2026-11-23 16:00", 2, "2026-11-24 10:00"),
        ("2026-11-23 15:00", 2, "2026-11-23 17:00"),
        ("2026-11-23 03:00", 2, "2026-11-23 11:00"),  # at night
        ("2026-11-23 22:00", 2, "2026-11-24 11:00"),
        ("2026-11-21 12:00", 2, "2026-11-23 11:00"),  # on a Saturday
        ("2026-11-20 16:30", 4, "2026-11-23 12:30"),  # over a weekend
        ("2026-12-24 16:00", 2, "2026-12-28 10:00"),  # over a holiday and a weekend
        ("2026-11-23 09:00", 16, "2026-11-24 17:00"),
    ],
)
def test_deadline_counts_business_hours_alone(start: str, hours: int, due: str) -> None:
    assert after_working(HOURS, BERLIN, at(start), hours * HOUR_MS) == at(due)


@pytest.mark.parametrize(
    ("start", "hours", "due"),
    [
        ("2026-03-27 16:00", 2, "2026-03-30 10:00"),  # the clocks go forward on the Sunday between
        ("2026-10-23 16:00", 2, "2026-10-26 10:00"),  # and back
    ],
)
def test_business_hours_are_local_times_before_and_after_a_clock_change(start: str, hours: int, due: str) -> None:
    assert after_working(HOURS, BERLIN, at(start), hours * HOUR_MS) == at(due)


def test_day_of_a_clock_change_is_as_long_as_it_is() -> None:
    spring, autumn = at("2026-03-29 00:00"), at("2026-10-25 00:00")
    assert after_working(AROUND_THE_CLOCK, BERLIN, spring, 23 * HOUR_MS) == at("2026-03-30 00:00")
    assert after_working(AROUND_THE_CLOCK, BERLIN, autumn, 25 * HOUR_MS) == at("2026-10-26 00:00")
    assert after_working(AROUND_THE_CLOCK, BERLIN, spring + HOUR_MS, 2 * HOUR_MS) == at("2026-03-29 04:00")
    early = read_calendar({"days": ["sun"], "from": "02:30", "until": "08:00"})
    assert after_working(early, BERLIN, spring, HOUR_MS) == at("2026-03-29 04:00")  # 02:30 does not exist: the gap ends at 03:00


def opened(start: int, zones: dict[str, str], **timing: Any) -> Approval:
    """Return a request that asks U0VP and U0CFO for one approval, opened at `start`."""
    quote = example_quote(QuoteState.PRICED)
    decision = PolicyDecision(("vp_sales",), (), blocked=False, needs=(Need(("vp_sales",)),))
    holders = {"vp_sales": ("U0VP", "U0VP2"), "cfo": ("U0CFO",)}
    hours = Timing(calendar=replace(HOURS, zone=BERLIN), **timing)
    return open_request("A-1", quote, decision, holders, asked_by="U0REP", at=start, timing=hours, zones=zones)


def test_slot_counts_the_hours_of_whom_it_asks_and_keeps_its_time_after_escalation() -> None:
    night = at("2026-11-23 20:00")
    (slot,) = opened(night, {}).slots
    assert (slot.remind_at, slot.escalate_at) == (at("2026-11-24 11:00"), at("2026-11-24 13:00"))
    assert slot.expires_at == at("2026-11-24 13:00") + 68 * HOUR_MS
    (slot,) = opened(night, {"U0VP": NEW_YORK}).slots
    assert slot.remind_at == at("2026-11-23 16:00", NEW_YORK)  # it is 14:00 there, and the first to have the time counts
    (slot,) = opened(night, {"U0VP": NEW_YORK, "U0VP2": "Asia/Tokyo"}).slots
    assert slot.remind_at == at("2026-11-23 16:00", NEW_YORK)


def test_escalation_counts_the_hours_of_the_wider_circle() -> None:
    approval = opened(at("2026-11-23 12:00"), {})
    (slot,) = approval.slots
    assert slot.escalate_at == at("2026-11-23 16:00")
    holders = {"vp_sales": ("U0VP",), "cfo": ("U0CFO",)}
    timing = Timing(calendar=replace(HOURS, zone=BERLIN))
    wider = escalated(approval, 1, holders, (), at=slot.escalate_at or 0, timing=timing)
    assert wider is not None
    assert (wider.slots[0].asked, wider.slots[0].escalate_at) == (("vp_sales", "cfo"), None)


def test_policy_document_carries_its_calendar_there_and_back() -> None:
    table = 'days = ["mon", "thu"]\nfrom = "08:30"\nuntil = "24:00"\nholidays = [2026-12-25, "2026-05-01"]'
    policy = parse_policy(f"{POLICY_TEXT}\n[calendar]\n{table}\n")
    document = policy_document(policy)
    assert document["calendar"] == {
        "days": ["mon", "thu"],
        "from": "08:30",
        "until": "24:00",
        "holidays": ["2026-05-01", "2026-12-25"],
    }
    assert read_policy(document) == policy
    assert "calendar" not in policy_document(parse_policy(POLICY_TEXT))
    assert calendar_document(read_calendar({"from": "09:00", "until": "17:00"}))["days"] == ["mon", "tue", "wed", "thu", "fri"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('days = ["monday"]\nfrom = "09:00"\nuntil = "17:00"', "calendar.days: must be a list of mon"),
        ('from = "9"\nuntil = "17:00"', "calendar.from: '9' must be a time such as 09:00"),
        ('from = "17:00"\nuntil = "09:00"', "calendar.until: must be at least an hour after from"),
        ('from = "09:00"\nuntil = "24:01"', "calendar.until: '24:01' must be a time"),
        ('from = "09:00"\nuntil = "17:00"\nholidays = ["Christmas"]', "calendar.holidays: Invalid isoformat"),
        ('from = "09:00"\nuntil = "17:00"\nholidays = [2026-12-25T10:00:00]', "calendar.holidays: 2026-12-25 10:00:00 is no day"),
        ('from = "09:00"\nuntil = "17:00"\nzone = "Europe/Berlin"', r"calendar.days: a \[calendar\] may only have"),
        ('from = "09:00"\nuntil = "17:00"\nlunch = "12:00"', r"calendar.days: a \[calendar\] may only have"),
    ],
)
def test_unreadable_calendar_is_refused_naming_the_key(table: str, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        parse_policy(f"{POLICY_TEXT}\n[calendar]\n{table}\n")


async def test_request_keeps_the_calendar_and_the_zones_it_was_made_with(bench: Bench) -> None:
    policy = replace(RULES.builtin_policy, timing=Timing(calendar=HOURS))
    rules = replace(RULES, builtin_policy=policy, time_zone=BERLIN)
    manager = Known("member", bench.clock.now_ms(), zone=NEW_YORK)
    await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0MANAGER", manager))
    executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX)
    bench.clock.ms = at("2026-11-23 20:00")
    await bench.ledger.reserve(request_for(create_command(), "1", received_at=bench.clock.now_ms()))
    await executor.step()
    asked = request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1, received_at=bench.clock.now_ms())
    await bench.ledger.reserve(asked)
    await executor.step()
    quote = await bench.ledger.database.read(lambda tx: store.load(tx, "Q-2026-0001"))
    assert quote is not None
    assert quote.approval is not None
    assert quote.approval.policy is not None
    assert quote.approval.policy.timing.calendar == replace(HOURS, zone=BERLIN)
    assert quote.approval.slots[0].remind_at == at("2026-11-23 16:00", NEW_YORK)
