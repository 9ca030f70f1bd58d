"""Tests of approval commands through the ledger: reminders, escalations, expiry, delegates, requested changes, reused decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.keys import digest
from ledger.records import DedupeResult, Request
from quotebot.commands.payloads import (
    ALL_OPEN,
    CancelQuote,
    DecideApproval,
    DelegateApprovals,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    RemindApprover,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.commands.queries import Section
from quotebot.domain.access import Viewer
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.approvals.policy import Threshold
from quotebot.domain.approvals.roles import Roles
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.domain.quotes.quote import plain_times
from quotebot.domain.rules import KEEP_REFUSED_MS
from quotebot.execution.executor import Executor
from quotebot.execution.membership import Known, keep_person
from quotebot.store import approvals as store
from quotebot.store import schedule
from quotebot.views.work_queue import Reader, load_home
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.commands.payloads import SlotCommand
    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench

HOUR: Final = 3_600_000
QUOTE, APPROVAL = "Q-2026-0001", "A-2026-0001-v1-1"
JOBS: Final[dict[str, tuple[type[SlotCommand], int]]] = {
    "remind": (RemindApprover, 2),
    "escalate": (EscalateApproval, 4),
    "expire": (ExpireApproval, 72),
}


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, lambda _, high: high, MATRIX)


async def done(bench: Bench, executor: Executor, request: Request) -> dict[str, Any]:
    """Reserve and execute one command; return its operation's row with the response parsed."""
    operation = (await bench.ledger.reserve(request)).operation
    while await executor.step():
        pass
    row = bench.row("SELECT * FROM operations WHERE id = ?", operation.id)
    return {**row, "response": json.loads(row["response"])}


def by(bench: Bench, payload: Payload, request_id: str, actor: str, **changes: Any) -> Request:
    """Return a person's command about the quote, as of now."""
    asked = request_for(payload, request_id, quote_id=QUOTE, version=1, actor=actor, received_at=bench.clock.now_ms())
    return replace(asked, **changes)


def tick(bench: Bench, job: str, approval_id: str = APPROVAL, slot: int = 1, **changes: Any) -> Request:
    """Return the scheduler's command about one slot, as of now."""
    command = JOBS[job][0](approval_id, slot)
    system = {"source": "scheduler", "actor_type": "system", "transport": {}}
    return by(bench, command, f"{job}:{approval_id}:{slot}:{bench.clock.now_ms()}", "quotebot", **{**system, **changes})


async def submitted(bench: Bench, executor: Executor) -> None:
    await done(bench, executor, request_for(create_command(), "1"))
    await done(bench, executor, by(bench, SubmitQuote(), "2", "U0REP"))


async def due(bench: Bench, job: Any) -> list[tuple[str, int, int]]:
    now = bench.clock.now_ms()
    found = await bench.ledger.database.read(lambda tx: schedule.slots_due(tx, job, f"approval_{job}", now, now, 64))
    assert {(each.quote_id, each.team_id) for each in found} <= {(QUOTE, "T0HOME")}
    return [(each.aggregate_id, int(each.part), each.anchor) for each in found]


def owed(bench: Bench, operation_id: int) -> list[str]:
    return [row["class"] for row in bench.rows("SELECT class FROM effects WHERE operation_id = ? ORDER BY id", operation_id)]


@pytest.mark.parametrize("job", JOBS)
async def test_the_store_names_a_slot_from_the_moment_it_is_due_until_it_is_done(
    bench: Bench, executor: Executor, job: str
) -> None:
    await submitted(bench, executor)
    due_at = MORNING + JOBS[job][1] * HOUR
    bench.clock.advance(due_at - MORNING - 1)
    assert await due(bench, job) == []
    bench.clock.advance(1)
    assert await due(bench, job) == [(APPROVAL, 1, due_at)]
    row = await done(bench, executor, tick(bench, job))
    assert (row["outcome"], row["actor_type"]) == ("applied", "system")
    assert await due(bench, job) == []


@pytest.mark.parametrize("job", JOBS)
async def test_decided_request_is_not_due_for_reminders_or_escalation(bench: Bench, executor: Executor, job: str) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    bench.clock.advance(100 * HOUR)
    assert await due(bench, job) == []
    row = await done(bench, executor, tick(bench, job))
    assert (row["outcome"], row["response"]["code"]) == ("refused", "slot_not_due")
    assert owed(bench, row["id"]) == []
    assert bench.row("SELECT state FROM quotes")["state"] == "approved"


async def test_reminder_enqueues_a_notice_and_an_escalation_also_the_card(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(2 * HOUR)
    reminded = await done(bench, executor, tick(bench, "remind"))
    bench.clock.advance(2 * HOUR)
    escalated = await done(bench, executor, tick(bench, "escalate"))
    assert (owed(bench, reminded["id"]), owed(bench, escalated["id"])) == (
        ["slack.post", "slack.direct", "slack.direct_card"],
        ["slack.card", "slack.post", "slack.direct_card", "slack.direct"],
    )
    slot = bench.row("SELECT * FROM approval_slots")
    assert (slot["state"], json.loads(slot["asked"])) == ("escalated", ["sales_manager", "deal_desk"])
    assert (slot["reminded_at"], slot["escalated_at"]) == (MORNING + 2 * HOUR, MORNING + 4 * HOUR)
    assert slot["escalate_at"] == MORNING + 8 * HOUR  # vp_sales and cfo are still above
    trail = bench.rows("SELECT event_type FROM audit_events WHERE event_type LIKE 'approval.%' ORDER BY id")
    assert [row["event_type"] for row in trail] == ["approval.requested", "approval.reminded", "approval.escalated"]


def click(bench: Bench, request_id: str, actor: str = "U0REP", **changes: Any) -> Request:
    """Return a person's click on Remind, as of now."""
    return by(bench, RemindApprover(APPROVAL, ALL_OPEN), request_id, actor, **changes)


async def test_a_person_reminds_the_approvers_at_most_once_an_hour(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(HOUR)
    asked = await done(bench, executor, click(bench, "3"))
    assert (asked["response"]["code"], owed(bench, asked["id"])) == (
        "reminded",
        ["slack.post", "slack.direct", "slack.direct_card"],
    )
    (event,) = bench.rows("SELECT actor, actor_type FROM audit_events WHERE event_type = 'approval.reminded'")
    assert event == {"actor": "U0REP", "actor_type": "user"}
    bench.clock.advance(HOUR - 1)
    soon = await done(bench, executor, click(bench, "4", "U0CFO"))
    assert (soon["response"]["code"], owed(bench, soon["id"])) == ("reminded_already", ["slack.reply"])
    assert plain_times(soon["response"]["text"]) == (
        "The last reminder to Sales Manager was sent 21 Nov 2026, 11:31 UTC. You can remind again from 21 Nov 2026, 12:31 UTC."
    )
    bench.clock.advance(1)
    assert await due(bench, "remind") == []  # the one that was asked for stands for the automatic one
    assert (await done(bench, executor, click(bench, "5")))["response"]["code"] == "reminded"


async def test_remind_heeds_the_automatic_reminder_and_reaches_an_escalated_slot(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(2 * HOUR)
    await done(bench, executor, tick(bench, "remind"))
    assert (await done(bench, executor, click(bench, "3")))["response"]["code"] == "reminded_already"
    bench.clock.advance(2 * HOUR)
    await done(bench, executor, tick(bench, "escalate"))
    asked = await done(bench, executor, click(bench, "4"))
    assert owed(bench, asked["id"]).count("slack.direct") == 2
    assert "<@U0DEALDESK>" in asked["response"]["text"]


async def test_remind_is_refused_once_its_request_or_version_is_over(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    stale = await done(bench, executor, click(bench, "3", aggregate_version=2))
    foreign = await done(bench, executor, click(bench, "4", team_id="T0OTHER"))
    one_slot = await done(bench, executor, by(bench, RemindApprover(APPROVAL, 1), "5", "U0REP"))
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "6", "U0MANAGER"))
    late = await done(bench, executor, click(bench, "7"))
    codes = [row["response"]["code"] for row in (stale, foreign, one_slot, late)]
    assert codes == ["stale", "unknown_quote", "scheduled_only", "not_pending"]
    assert owed(bench, late["id"])[:2] == ["slack.reply", "slack.card"]
    assert bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'approval.reminded'") == []


async def test_the_same_tick_again_is_the_same_operation(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(2 * HOUR)
    request = tick(bench, "remind")
    await done(bench, executor, request)
    assert (await bench.ledger.reserve(request)).sighting is DedupeResult.DUPLICATE
    again = await done(bench, executor, replace(request, source_request_id="T0HOME:after a restart"))
    assert again["response"]["code"] == "slot_not_due"
    assert len(bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'approval.reminded'")) == 1


async def test_an_expired_request_may_be_asked_for_again_and_the_new_one_decides(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(72 * HOUR)
    await done(bench, executor, tick(bench, "expire"))
    late = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    assert late["response"]["code"] == "request_expired"
    assert owed(bench, late["id"]) == ["slack.reply", "slack.card", "slack.direct_card"]  # the card offers to ask again
    again = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP"))
    assert again["response"]["code"] == "submitted"
    await done(bench, executor, by(bench, DecideApproval("A-2026-0001-v1-2", "approve"), "5", "U0MANAGER"))
    found = bench.rows("SELECT approval_id, state, decided_by FROM approvals ORDER BY approval_id")
    assert [tuple(row.values()) for row in found] == [
        (APPROVAL, "expired", None),
        ("A-2026-0001-v1-2", "approved", "U0MANAGER"),
    ]


async def test_a_quote_past_its_end_is_neither_submitted_nor_escalated(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(30 * 24 * HOUR)
    assert (await done(bench, executor, tick(bench, "escalate")))["response"]["code"] == "slot_not_due"
    await done(bench, executor, request_for(create_command(discount="16"), "n", received_at=bench.clock.now_ms()))
    bench.clock.advance(30 * 24 * HOUR)
    row = await done(bench, executor, by(bench, SubmitQuote(), "late", "U0REP", aggregate_id="Q-2026-0002"))
    assert (row["response"]["code"], "was valid until" in row["response"]["text"]) == ("expired", True)


async def test_the_scheduler_is_never_answered_even_about_an_unknown_quote(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, tick(bench, "remind", aggregate_id="Q-2026-0099"))
    assert (row["outcome"], row["response"]["code"], owed(bench, row["id"])) == ("refused", "unknown_quote", [])


async def test_who_asks_for_changes_sends_the_quote_back_to_a_draft(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    unreasoned = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "request_changes"), "3", "U0MANAGER"))
    assert unreasoned["response"]["code"] == "reason_needed"
    asked = DecideApproval(APPROVAL, "request_changes", "Drop <!here> SSO.")
    row = await done(bench, executor, by(bench, asked, "4", "U0MANAGER"))
    assert plain_times(row["response"]["text"]) == (
        "<@U0REP> ✏️ <@U0MANAGER> requested changes to Q-2026-0001:\n> Drop &lt;!here&gt; SSO."
    )
    assert bench.row("SELECT state FROM quotes")["state"] == "draft"
    assert bench.row("SELECT state, decided_by FROM approvals") == {"state": "changes_requested", "decided_by": "U0MANAGER"}
    late = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "5", "U0CFO"))
    assert late["response"]["code"] == "already_decided"
    assert "Changes to Q-2026-0001 were already requested by <@U0MANAGER>" in late["response"]["text"]


async def sent_back(bench: Bench, executor: Executor, approval_id: str, request_id: str, decision: Any = "request_changes") -> None:
    command = DecideApproval(approval_id, decision, "Drop SSO.")
    assert (await done(bench, executor, by(bench, command, request_id, "U0MANAGER")))["outcome"] == "applied"


async def test_a_version_that_was_sent_back_is_submitted_again_with_a_note(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await sent_back(bench, executor, APPROVAL, "3")
    plain = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP"))
    assert (plain["outcome"], plain["response"]["code"]) == ("refused", "wrong_state")
    again = SubmitQuote("They need <SSO>.", APPROVAL)
    row = await done(bench, executor, by(bench, again, "5", "U0REP"))
    assert (row["outcome"], row["response"]["code"]) == ("applied", "submitted")
    assert bench.row("SELECT version, state FROM quotes") == {"version": 1, "state": "pending_approval"}
    second = APPROVAL.removesuffix("-1") + "-2"
    assert bench.rows("SELECT approval_id, note FROM approval_notes") == [{"approval_id": second, "note": "They need <SSO>."}]
    asked = bench.rows("SELECT after FROM audit_events WHERE event_type = 'approval.requested' ORDER BY id")
    assert json.loads(asked[-1]["after"])["note_sha256"] == digest([second, "They need <SSO>."])
    told = [
        json.loads(each["payload"]) for each in bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' ORDER BY id")
    ]
    assert told[-1]["text"].endswith("Submitted again without changes:\n> They need &lt;SSO&gt;.")
    assert owed(bench, row["id"]).count("slack.direct") == 1
    twice = await done(bench, executor, by(bench, again, "6", "U0REP"))
    assert (twice["outcome"], twice["response"]["code"]) == ("refused", "wrong_state")
    await sent_back(bench, executor, second, "7")
    late = await done(bench, executor, by(bench, again, "8", "U0REP"))  # from a form that shows the first wish
    assert (late["outcome"], late["response"]["code"]) == ("refused", "stale")
    await done(bench, executor, by(bench, SubmitQuote("Really.", second), "9", "U0REP"))
    third = await done(bench, executor, by(bench, DecideApproval(second[:-1] + "3", "approve"), "10", "U0MANAGER"))
    assert third["response"]["code"] == "approved"


async def test_a_rejected_version_is_not_submitted_again_as_it_is(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await sent_back(bench, executor, APPROVAL, "3", "reject")
    row = await done(bench, executor, by(bench, SubmitQuote("They need SSO.", APPROVAL), "4", "U0REP"))
    assert (row["outcome"], row["response"]["code"]) == ("refused", "wrong_state")
    assert bench.row("SELECT state FROM quotes")["state"] == "rejected"


def away(bench: Bench, absent: str, delegate: str | None, until: int, request_id: str = "d", **changes: Any) -> Request:
    command = DelegateApprovals(absent, delegate, until)
    return replace(by(bench, command, request_id, absent, aggregate_id=f"delegation:{absent}"), **changes)


async def test_cover_redraws_the_cards_that_wait_for_the_absent_person(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    for request_id, absent, delegate, redrawn in (
        ("a", "U0MANAGER", "U0DEALDESK", True),
        ("b", "U0MANAGER", None, True),
        ("c", "U0VP", "U0CFO", False),
    ):
        row = await done(bench, executor, away(bench, absent, delegate, MORNING + 100 * HOUR, request_id))
        assert (row["outcome"], "slack.card" in owed(bench, row["id"])) == ("applied", redrawn)


async def test_a_delegate_decides_and_every_record_names_both(bench: Bench, executor: Executor) -> None:
    until = MORNING + 100 * HOUR
    row = await done(bench, executor, away(bench, "U0MANAGER", "U0DEALDESK", until))
    assert (row["outcome"], row["retain_until"]) == ("applied", until + KEEP_REFUSED_MS)
    assert owed(bench, row["id"]) == ["slack.reply", "slack.reply"]
    told = json.loads(bench.rows("SELECT payload FROM effects ORDER BY id")[-1]["payload"])
    assert (told["user"], told["text"].startswith("You cover for <@U0MANAGER> through ")) == ("U0DEALDESK", True)
    await submitted(bench, executor)
    asked = bench.row("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%please review%'")["payload"]
    assert ("<@U0DEALDESK>" in asked, "<@U0MANAGER>" in asked) == (True, False)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0DEALDESK"))
    slot = bench.row("SELECT decided_by, decided_role, on_behalf_of FROM approval_slots")
    assert slot == {"decided_by": "U0DEALDESK", "decided_role": "deal_desk", "on_behalf_of": "U0MANAGER"}
    event = bench.row("SELECT after FROM audit_events WHERE event_type = 'approval.approved'")["after"]
    assert ("U0DEALDESK" in event, "U0MANAGER" in event) == (True, True)
    delegated = json.loads(bench.row("SELECT after FROM audit_events WHERE event_type = 'delegation.set'")["after"])
    assert delegated.pop("bound").keys() == {"delegations"}
    assert delegated == {"absent": "U0MANAGER", "delegate": "U0DEALDESK", "until": until}


@pytest.mark.parametrize(
    ("absent", "delegate", "hours", "changes", "code"),
    [
        ("U0VP", "U0MANAGER", 1, {}, "lower_scope"),
        ("U0VP", "U0LEGAL", 1, {}, "lower_scope"),
        ("U0LEGAL", "U0CFO", 1, {}, "lower_scope"),
        ("U0VP", "U0VP", 1, {}, "to_oneself"),
        ("U0VP", "U0CFO", 0, {}, "until_past"),
        ("U0VP", "U0CFO", 367 * 24, {}, "until_past"),
        ("U0REP", "U0CFO", 1, {}, "no_authority"),
        ("U0VP", "U0CFO", 1, {"actor": "U0CFO"}, "not_yours"),
        ("U0VP", "U0CFO", 2, {"payload": DelegateApprovals("U0VP", "U0CFO", 2, 2).canonical()}, "until_past"),
    ],
)
async def test_a_delegation_is_refused_for(
    bench: Bench, executor: Executor, absent: str, delegate: str, hours: int, changes: dict[str, Any], code: str
) -> None:
    row = await done(bench, executor, away(bench, absent, delegate, MORNING + hours * HOUR, **changes))
    assert (row["outcome"], row["response"]["code"], owed(bench, row["id"])) == ("refused", code, ["slack.reply"])
    assert bench.rows("SELECT 1 FROM delegations") == []


async def test_the_newest_delegation_of_a_person_is_in_force_until_it_ends(bench: Bench, executor: Executor) -> None:
    async def now() -> tuple[Delegation, ...]:
        return await bench.ledger.database.read(lambda tx: store.delegations(tx, "T0HOME", bench.clock.now_ms()))

    await done(bench, executor, away(bench, "U0VP", "U0CFO", MORNING + 9 * HOUR, "1"))
    assert await now() == (Delegation("U0VP", "U0CFO", MORNING, MORNING + 9 * HOUR),)
    bench.clock.advance(HOUR)
    await done(bench, executor, away(bench, "U0VP", None, 0, "2"))
    assert await now() == ()
    bench.clock.advance(HOUR)
    await done(bench, executor, away(bench, "U0VP", "U0CFO", MORNING + 9 * HOUR, "3"))
    bench.clock.advance(7 * HOUR - 1)
    assert [each.delegate for each in await now()] == ["U0CFO"]
    bench.clock.advance(1)
    assert await now() == ()


DAY: Final = 24 * HOUR


async def test_the_delegate_of_a_cover_that_another_one_replaces_is_told(bench: Bench) -> None:
    rules = replace(RULES, approvers={**RULES.approvers, "cfo": ("U0CFO", "U0CFO2")})
    executor = Executor(bench.ledger, rules, lambda _, high: high, MATRIX)
    for number, (instead, first, back) in enumerate([("U0CFO", 0, 4), ("U0CFO", 20, 30)]):
        command = DelegateApprovals("U0VP", instead, MORNING + back * DAY, MORNING + first * DAY)
        await done(bench, executor, by(bench, command, f"d{number}", "U0VP", aggregate_id="delegation:U0VP"))
    longer = DelegateApprovals("U0VP", "U0CFO", MORNING + 5 * DAY)
    row = await done(bench, executor, by(bench, longer, "longer", "U0VP", aggregate_id="delegation:U0VP"))
    assert [(user, text.startswith("You cover for <@U0VP>")) for user, text in told(bench, row["id"])] == [("U0CFO", True)]
    bench.clock.advance(1)
    other = DelegateApprovals("U0VP", "U0CFO2", MORNING + 9 * DAY, MORNING + 3 * DAY)
    row = await done(bench, executor, by(bench, other, "other", "U0VP", aggregate_id="delegation:U0VP"))
    (former, _), (user, _) = told(bench, row["id"])
    assert (former, user) == ("U0CFO", "U0CFO2")
    assert told(bench, row["id"])[0][1] == "You no longer cover for <@U0VP>: <@U0CFO2> does."


def told(bench: Bench, operation_id: int) -> list[tuple[str, str]]:
    """Return the people whom a command tells in a direct message, with the texts."""
    rows = bench.rows("SELECT payload FROM effects WHERE operation_id = ? AND class = 'slack.reply' ORDER BY id", operation_id)
    found = [json.loads(row["payload"]) for row in rows]
    return [(each["user"], plain_times(each["text"])) for each in found if each.get("directly")]


async def test_days_of_a_cover_are_told_in_the_time_zone_of_who_reads_them(bench: Bench, executor: Executor) -> None:
    since, until = (int(datetime(2026, 12, day, 8, tzinfo=UTC).timestamp() * 1000) for day in (21, 25))  # in Los Angeles
    known = {"U0VP": "America/Los_Angeles", "U0CFO": "Asia/Tokyo"}
    for user, zone in known.items():
        person = Known("member", bench.clock.now_ms(), zone=zone)
        await bench.ledger.database.write("test", partial(keep_person, team_id="T0HOME", user=user, found=person))
    payload = DelegateApprovals("U0VP", "U0CFO", until, since)
    row = await done(bench, executor, by(bench, payload, "d", "U0VP", aggregate_id="delegation:U0VP"))
    assert "from 21 Dec 2026 through 24 Dec 2026" in plain_times(row["response"]["text"])
    ((user, text),) = told(bench, row["id"])
    assert (user, "from 21 Dec 2026 through 25 Dec 2026" in text) == ("U0CFO", True)  # 16:59 there


async def test_each_delegate_of_an_ended_absence_is_told_once(bench: Bench) -> None:
    rules = replace(RULES, approvers={**RULES.approvers, "cfo": ("U0CFO", "U0CFO2")})
    executor = Executor(bench.ledger, rules, lambda _, high: high, MATRIX)
    periods = [("U0CFO", 0, 2), ("U0CFO2", 3, 4), ("U0CFO", 5, 6)]
    for number, (instead, first, back) in enumerate(periods):
        command = DelegateApprovals("U0VP", instead, MORNING + back * DAY, MORNING + first * DAY)
        await done(bench, executor, by(bench, command, f"d{number}", "U0VP", aggregate_id="delegation:U0VP"))
    still = DelegateApprovals("U0MANAGER", "U0VP", MORNING + 9 * DAY, MORNING + 8 * DAY)  # who is absent covers for others then
    row = await done(bench, executor, by(bench, still, "still", "U0MANAGER", aggregate_id="delegation:U0MANAGER"))
    assert row["outcome"] == "applied"
    bench.clock.advance(1)
    row = await done(bench, executor, away(bench, "U0VP", None, 0, "off"))
    sentence = "You no longer cover for <@U0VP>. Approval requests for them go to them again."
    assert told(bench, row["id"]) == [("U0CFO", sentence), ("U0CFO2", sentence)]
    again = await done(bench, executor, away(bench, "U0VP", None, 0, "again"))
    assert (again["response"]["code"], told(bench, again["id"])) == ("delegation_ended", [])


ABSENCES: Final[dict[str, tuple[list[tuple[str | None, int, int]], dict[int, str]]]] = {
    # (who instead, first day, day of return) as told one after the other; who is asked on which day
    "one that begins later": ([("U0CFO", 2, 4)], {1: "", 2: "U0CFO", 3: "U0CFO", 4: ""}),
    "two that do not meet": ([("U0CFO", 0, 2), ("U0CFO2", 4, 6)], {1: "U0CFO", 3: "", 5: "U0CFO2"}),
    "one that shortens another": ([("U0CFO", 0, 6), ("U0CFO", 0, 3)], {2: "U0CFO", 4: ""}),
    "one that replaces another": ([("U0CFO", 0, 6), ("U0CFO2", 2, 4)], {1: "", 3: "U0CFO2", 5: ""}),
    "back before the next": ([("U0CFO", 0, 2), ("U0CFO", 4, 6), (None, 0, 0)], {1: "", 5: ""}),
    "told again after being back": ([("U0CFO", 0, 6), (None, 0, 0), ("U0CFO2", 1, 6)], {0: "", 1: "U0CFO2"}),
}


@pytest.mark.parametrize("case", ABSENCES)
async def test_of_overlapping_absences_the_last_one_entered_applies(bench: Bench, case: str) -> None:
    told, asked = ABSENCES[case]
    rules = replace(RULES, approvers={**RULES.approvers, "cfo": ("U0CFO", "U0CFO2")})
    executor = Executor(bench.ledger, rules, lambda _, high: high, MATRIX)
    for number, (instead, first, back) in enumerate(told):
        since = None if first == 0 else MORNING + first * DAY
        command = DelegateApprovals("U0VP", instead, 0 if instead is None else MORNING + back * DAY, since, "away")
        request = by(bench, command, f"d{number}", "U0VP", aggregate_id="delegation:U0VP")
        assert (await done(bench, executor, request))["outcome"] == "applied"
        bench.clock.advance(1)
    for day, instead in asked.items():
        at = MORNING + day * DAY + 10
        found = await bench.ledger.database.read(partial(store.delegations, team_id="T0HOME", at=at))
        assert (day, "".join(each.delegate for each in found)) == (day, instead)


async def test_nobody_stands_in_for_a_stand_in(bench: Bench, executor: Executor) -> None:
    await done(bench, executor, away(bench, "U0CFO", "U0CFO2", MORNING + DAY, "1"))  # not the cfo's equal: refused
    assert bench.rows("SELECT 1 FROM delegations") == []
    rules = replace(RULES, approvers={**RULES.approvers, "cfo": ("U0CFO", "U0CFO2")})
    executor = Executor(bench.ledger, rules, lambda _, high: high, MATRIX)
    await done(bench, executor, away(bench, "U0CFO", "U0CFO2", MORNING + DAY, "2"))
    row = await done(bench, executor, away(bench, "U0VP", "U0CFO", MORNING + 2 * DAY, "3"))
    assert row["response"]["code"] == "delegate_away"
    after = bench.row("SELECT after FROM audit_events WHERE event_type = 'delegation.refused' AND after LIKE '%delegate_away%'")
    assert json.loads(after["after"]) == {"code": "delegate_away", "actor": "U0VP", "delegate": "U0CFO"}
    later = DelegateApprovals("U0VP", "U0CFO", MORNING + 3 * DAY, MORNING + DAY)
    row = await done(bench, executor, by(bench, later, "4", "U0VP", aggregate_id="delegation:U0VP"))
    assert row["outcome"] == "applied"


async def revised(bench: Bench, executor: Executor, *lines: LineChange) -> None:
    """Make the next version of the quote."""
    row = await done(bench, executor, by(bench, ReviseQuote(Changes(lines)), "r", "U0REP"))
    assert row["response"]["code"] == "revised"


LESS: Final = LineChange("set", "pro", 149)
MORE: Final = LineChange("add", "pro", 10)


async def test_a_new_version_that_got_no_worse_rests_on_the_earlier_decision(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    await revised(bench, executor, LESS)
    row = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP", aggregate_version=2))
    assert (row["outcome"], row["response"]["code"]) == ("applied", "approved")
    assert owed(bench, row["id"]) == ["slack.card", "pdf.render", "crm.create"]
    found = bench.row("SELECT * FROM approvals WHERE quote_version = 2")
    assert (found["state"], found["earlier"], found["decided_by"]) == ("approved", APPROVAL, None)
    assert bench.row("SELECT decided_by FROM approval_slots WHERE approval_id = 'A-2026-0001-v2-1'")["decided_by"] == "U0MANAGER"


async def test_small_reductions_do_not_add_up_past_the_approved_version(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    codes = []
    for version, seats in enumerate((147, 144, 143, 142), start=2):
        change = ReviseQuote(Changes((LineChange("set", "pro", seats),)))
        await done(bench, executor, by(bench, change, f"r{version}", "U0REP", aggregate_version=version - 1))
        row = await done(bench, executor, by(bench, SubmitQuote(), f"s{version}", "U0REP", aggregate_version=version))
        codes.append(row["response"]["code"])
    assert codes == ["approved", "approved", "approved", "submitted"]
    earlier = bench.rows("SELECT DISTINCT earlier FROM approvals WHERE earlier IS NOT NULL")
    assert [row["earlier"] for row in earlier] == [APPROVAL]


async def test_an_approval_is_not_reused_past_the_end_of_the_approved_offer(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    codes = []
    for version, wait in enumerate((29 * 24 * HOUR, 24 * HOUR), start=2):
        bench.clock.advance(wait)
        change = ReviseQuote(Changes((LineChange("set", "pro", 151 - version),)))
        await done(bench, executor, by(bench, change, f"r{version}", "U0REP", aggregate_version=version - 1))
        row = await done(bench, executor, by(bench, SubmitQuote(), f"s{version}", "U0REP", aggregate_version=version))
        codes.append(row["response"]["code"])
    assert codes == ["approved", "submitted"]


async def test_an_approval_is_not_reused_after_its_decider_lost_the_role(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    await revised(bench, executor, LESS)
    rules = replace(RULES, approvers={**RULES.approvers, "sales_manager": ("U0OTHER",)})
    executor = Executor(bench.ledger, rules, lambda _, high: high, MATRIX)
    row = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP", aggregate_version=2))
    assert row["response"]["code"] == "submitted"


async def test_a_new_version_that_got_worse_or_was_rejected_before_is_asked_for(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    await revised(bench, executor, MORE)
    worse = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP", aggregate_version=2))
    assert worse["response"]["code"] == "submitted"
    no = by(bench, DecideApproval("A-2026-0001-v2-1", "reject", "No."), "5", "U0MANAGER", aggregate_version=2)
    assert (await done(bench, executor, no))["outcome"] == "applied"
    await done(bench, executor, by(bench, ReviseQuote(Changes((LESS,))), "6", "U0REP", aggregate_version=2))
    again = await done(bench, executor, by(bench, SubmitQuote(), "7", "U0REP", aggregate_version=3))
    assert again["response"]["code"] == "submitted"


async def test_a_rejection_counts_before_an_approval_of_a_clock_that_was_ahead(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    bench.clock.advance(-HOUR)
    await revised(bench, executor, MORE)
    await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP", aggregate_version=2))
    no = by(bench, DecideApproval("A-2026-0001-v2-1", "reject", "No."), "5", "U0MANAGER", aggregate_version=2)
    assert (await done(bench, executor, no))["outcome"] == "applied"
    await done(bench, executor, by(bench, ReviseQuote(Changes((LESS,))), "6", "U0REP", aggregate_version=2))
    again = await done(bench, executor, by(bench, SubmitQuote(), "7", "U0REP", aggregate_version=3))
    assert again["response"]["code"] == "submitted"


async def test_a_request_after_the_clock_was_set_back_can_be_decided(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "request_changes", "Ask for less."), "3", "U0MANAGER"))
    bench.clock.advance(-HOUR)
    again = await done(bench, executor, by(bench, SubmitQuote("They need it."), "4", "U0REP"))
    assert again["response"]["code"] == "submitted"
    yes = await done(bench, executor, by(bench, DecideApproval("A-2026-0001-v1-2", "approve"), "5", "U0MANAGER"))
    assert (yes["outcome"], yes["response"]["code"]) == ("applied", "approved")


async def test_who_revised_a_quote_neither_approves_it_nor_is_asked(bench: Bench, executor: Executor) -> None:
    await done(bench, executor, request_for(create_command(), "1"))
    await done(bench, executor, by(bench, ReviseQuote(Changes((MORE,))), "2", "U0MANAGER"))
    await done(bench, executor, by(bench, SubmitQuote(), "3", "U0REP", aggregate_version=2))
    asked = bench.row("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%please review%'")["payload"]
    assert ("<@U0DEALDESK>" in asked, "<@U0MANAGER>" in asked) == (True, False)
    own = by(bench, DecideApproval("A-2026-0001-v2-1", "approve"), "4", "U0MANAGER", aggregate_version=2)
    assert (await done(bench, executor, own))["response"]["code"] == "own_request"


@pytest.mark.parametrize("end", [ReviseQuote(Changes((MORE,))), CancelQuote("not wanted"), ExpireQuote(MORNING + 720 * HOUR)])
async def test_a_new_version_and_an_end_close_what_is_asked(bench: Bench, executor: Executor, end: Payload) -> None:
    await submitted(bench, executor)
    system = {"source": "scheduler", "actor_type": "system", "transport": {}} if isinstance(end, ExpireQuote) else {}
    bench.clock.advance(720 * HOUR if isinstance(end, ExpireQuote) else HOUR)
    at = bench.clock.now_ms()
    assert (await done(bench, executor, by(bench, end, "end", "U0REP", **system)))["outcome"] == "applied"
    approval, slot = bench.row("SELECT * FROM approvals"), bench.row("SELECT * FROM approval_slots")
    assert (approval["state"], approval["decided_at"], approval["decided_by"]) == ("invalidated", at, None)
    assert (slot["state"], slot["decided_at"], slot["decided_by"]) == ("closed", at, None)
    event = bench.row("SELECT after FROM audit_events WHERE event_type = 'approval.invalidated'")["after"]
    assert [each["state"] for each in json.loads(event)["slots"]] == ["closed"]
    bench.clock.advance(100 * HOUR)
    assert [await due(bench, job) for job in JOBS] == [[], [], []]
    late = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    assert late["response"]["code"] == ("stale" if isinstance(end, ReviseQuote) else "not_pending")
    ticked = await done(bench, executor, tick(bench, "escalate"))
    assert ticked["response"]["code"] == "slot_not_due"


OWN_ROLES: Final = Roles(("team_lead", "sales_manager", "cfo"), ("legal", "security"), {"team_lead": "Team Lead"})
OWN: Final = replace(
    RULES,
    builtin_policy=replace(RULES.policy, version="own", roles=OWN_ROLES, discount_over=(Threshold(Decimal(5), "team_lead"),)),
    approvers={"team_lead": ("U0LEAD",), "sales_manager": ("U0MANAGER",), "cfo": ("U0CFO",)},
)


async def test_a_quote_lives_under_an_own_ladder_from_submission_to_decision(bench: Bench) -> None:
    executor = Executor(bench.ledger, OWN, lambda _, high: high, MATRIX)
    await submitted(bench, executor)
    (notice,) = bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%please review%'")
    assert "<@U0LEAD>, please review" in notice["payload"]
    bench.clock.advance(4 * HOUR)
    escalated = await done(bench, executor, tick(bench, "escalate"))
    assert "no answer from Team Lead after 4 hours. <@U0LEAD>, <@U0MANAGER> can decide now" in escalated["response"]["text"]
    assert json.loads(bench.row("SELECT asked FROM approval_slots")["asked"]) == ["team_lead", "sales_manager"]
    refused = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0LEGAL"))
    assert refused["response"]["text"] == f"Only Team Lead or above can decide about {QUOTE}."
    decided = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "4", "U0LEAD"))
    assert "approved by <@U0LEAD> (Team Lead)" in decided["response"]["text"]
    stored = await bench.ledger.database.read(lambda tx: store.find(tx, APPROVAL))
    assert stored is not None
    assert stored.policy is not None
    assert stored.policy.roles == OWN_ROLES


async def test_an_open_request_keeps_its_roles_and_new_ones_follow_the_active_policy(bench: Bench) -> None:
    await submitted(bench, Executor(bench.ledger, OWN, lambda _, high: high, MATRIX))
    active = replace(OWN, builtin_policy=RULES.policy, approvers={**RULES.approvers, **OWN.approvers})
    executor = Executor(bench.ledger, active, lambda _, high: high, MATRIX)

    def waiting(tx: Tx) -> list[Any]:
        needed: Any = load_home(tx, lead, active, bench.clock.now_ms()).parts[Section.NEEDS_YOU]
        return [row.approval.required_roles for row in needed.rows]

    lead = Reader(Viewer("U0LEAD", "T0HOME"))
    assert await bench.ledger.database.read(waiting) == [("team_lead",)]
    away = DelegateApprovals("U0LEAD", "U0MANAGER", bench.clock.now_ms() + 9 * HOUR)
    await done(bench, executor, request_for(away, "d", quote_id="delegation:U0LEAD", version=None, actor="U0LEAD"))
    bench.clock.advance(4 * HOUR)
    escalated = await done(bench, executor, tick(bench, "escalate"))
    assert "Team Lead" in escalated["response"]["text"]
    decided = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "4", "U0MANAGER"))
    assert "approved by <@U0MANAGER>" in decided["response"]["text"]

    await done(bench, executor, request_for(create_command(), "n", received_at=bench.clock.now_ms()))
    again = by(bench, SubmitQuote(), "again", "U0REP", aggregate_id="Q-2026-0002")
    assert (await done(bench, executor, again))["response"]["text"] == "Submitted Q-2026-0002. Waiting for Sales Manager."
    alone = by(bench, DecideApproval("A-2026-0002-v1-1", "approve"), "no", "U0LEAD", aggregate_id="Q-2026-0002")
    assert (await done(bench, executor, alone))["response"]["code"] == "missing_role"
