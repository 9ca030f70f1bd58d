"""Commands about approvals through the ledger: reminders, escalations, ends, stand-ins, wishes for changes, decisions reused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.records import Request, Sighting
from quotebot.commands import (
    DecideApproval,
    DelegateApprovals,
    EscalateApproval,
    ExpireApproval,
    RemindApprover,
    SubmitQuote,
)
from quotebot.domain.people import Delegation
from quotebot.execution import KEEP_REFUSED_MS, Executor
from quotebot.store import approvals as store
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.quotebot.slack.quote_examples import MORNING

if TYPE_CHECKING:
    from quotebot.commands import Payload, SlotCommand
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
    """Return a person's command about the quote, asked now."""
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
    found = await bench.ledger.database.read(lambda tx: store.due(tx, job, bench.clock.now_ms()))
    return [(each.approval_id, each.slot, each.due_at) for each in found]


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
    found = await bench.ledger.database.read(lambda tx: store.due(tx, "expire", MORNING + 99 * HOUR))
    assert [(each.quote_id, each.quote_version, each.team_id) for each in found] == [(QUOTE, 1, "T0HOME")]
    row = await done(bench, executor, tick(bench, job))
    assert (row["outcome"], row["actor_type"]) == ("applied", "system")
    assert await due(bench, job) == []


@pytest.mark.parametrize("job", JOBS)
async def test_what_is_decided_is_due_for_nothing(bench: Bench, executor: Executor, job: str) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    bench.clock.advance(100 * HOUR)
    assert await due(bench, job) == []
    row = await done(bench, executor, tick(bench, job))
    assert (row["outcome"], row["response"]["code"]) == ("refused", "slot_not_due")
    assert owed(bench, row["id"]) == []
    assert bench.row("SELECT state FROM quotes")["state"] == "approved"


async def test_a_reminder_owes_one_notice_and_an_escalation_the_card_too(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(2 * HOUR)
    reminded = await done(bench, executor, tick(bench, "remind"))
    bench.clock.advance(2 * HOUR)
    escalated = await done(bench, executor, tick(bench, "escalate"))
    assert (owed(bench, reminded["id"]), owed(bench, escalated["id"])) == (["slack.post"], ["slack.card", "slack.post"])
    slot = bench.row("SELECT * FROM approval_slots")
    assert (slot["state"], json.loads(slot["asked"])) == ("escalated", ["sales_manager", "deal_desk"])
    assert (slot["reminded_at"], slot["escalated_at"]) == (MORNING + 2 * HOUR, MORNING + 4 * HOUR)
    assert slot["escalate_at"] == MORNING + 8 * HOUR  # vp_sales and cfo are still above
    trail = bench.rows("SELECT event_type FROM audit_events WHERE event_type LIKE 'approval.%' ORDER BY id")
    assert [row["event_type"] for row in trail] == ["approval.requested", "approval.reminded", "approval.escalated"]


async def test_the_same_tick_again_is_the_same_operation(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(2 * HOUR)
    request = tick(bench, "remind")
    await done(bench, executor, request)
    assert (await bench.ledger.reserve(request)).sighting is Sighting.DUPLICATE
    again = await done(bench, executor, replace(request, source_request_id="T0HOME:after a restart"))
    assert again["response"]["code"] == "slot_not_due"
    assert len(bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'approval.reminded'")) == 1


async def test_an_expired_request_may_be_asked_for_again_and_the_new_one_decides(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    bench.clock.advance(72 * HOUR)
    await done(bench, executor, tick(bench, "expire"))
    late = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    assert late["response"]["code"] == "request_expired"
    assert owed(bench, late["id"]) == ["slack.reply", "slack.card"]  # the card offers to ask again
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
    assert (row["response"]["code"], "expired on" in row["response"]["text"]) == ("expired", True)


async def test_the_scheduler_is_never_answered_even_about_an_unknown_quote(bench: Bench, executor: Executor) -> None:
    row = await done(bench, executor, tick(bench, "remind", aggregate_id="Q-2026-0099"))
    assert (row["outcome"], row["response"]["code"], owed(bench, row["id"])) == ("refused", "unknown_quote", [])


async def test_who_asks_for_changes_sends_the_quote_back_to_a_draft(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    unreasoned = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "request_changes"), "3", "U0MANAGER"))
    assert unreasoned["response"]["code"] == "reason_needed"
    asked = DecideApproval(APPROVAL, "request_changes", "Drop <!here> SSO.")
    row = await done(bench, executor, by(bench, asked, "4", "U0MANAGER"))
    assert row["response"]["text"] == (
        "<@U0REP>: Q-2026-0001 was sent back for changes by <@U0MANAGER> (sales_manager) on 21 Nov 2026 10:31 UTC. "
        "It is a draft again.\n> Drop &lt;!here&gt; SSO."
    )
    assert bench.row("SELECT state FROM quotes")["state"] == "draft"
    assert bench.row("SELECT state, decided_by FROM approvals") == {"state": "changes_requested", "decided_by": "U0MANAGER"}
    late = await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "5", "U0CFO"))
    assert late["response"]["code"] == "already_decided"
    assert "sent back for changes by <@U0MANAGER>" in late["response"]["text"]


def away(bench: Bench, absent: str, delegate: str | None, until: int, request_id: str = "d", **changes: Any) -> Request:
    command = DelegateApprovals(absent, delegate, until)
    return replace(by(bench, command, request_id, absent, aggregate_id=f"delegation:{absent}", source="cli"), **changes)


async def test_a_delegate_decides_and_every_record_names_both(bench: Bench, executor: Executor) -> None:
    until = MORNING + 100 * HOUR
    row = await done(bench, executor, away(bench, "U0MANAGER", "U0DEALDESK", until))
    assert (row["outcome"], row["retain_until"]) == ("applied", until + KEEP_REFUSED_MS)
    assert owed(bench, row["id"]) == ["slack.reply"]
    await submitted(bench, executor)
    asked = bench.row("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%needs approval%'")["payload"]
    assert ("<@U0DEALDESK>" in asked, "<@U0MANAGER>" in asked) == (True, False)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0DEALDESK"))
    slot = bench.row("SELECT decided_by, decided_role, on_behalf_of FROM approval_slots")
    assert slot == {"decided_by": "U0DEALDESK", "decided_role": "deal_desk", "on_behalf_of": "U0MANAGER"}
    event = bench.row("SELECT after FROM audit_events WHERE event_type = 'approval.approved'")["after"]
    assert ("U0DEALDESK" in event, "U0MANAGER" in event) == (True, True)
    delegated = json.loads(bench.row("SELECT after FROM audit_events WHERE event_type = 'delegation.set'")["after"])
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
    ],
)
async def test_a_delegation_is_refused_for(
    bench: Bench, executor: Executor, absent: str, delegate: str, hours: int, changes: dict[str, Any], code: str
) -> None:
    row = await done(bench, executor, away(bench, absent, delegate, MORNING + hours * HOUR, **changes))
    assert (row["outcome"], row["response"]["code"], owed(bench, row["id"])) == ("refused", code, ["slack.reply"])
    assert "Nothing was changed" in row["response"]["text"]
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


def edited(bench: Bench) -> None:
    """Take the decided quote back to a draft and price it anew, as an edit does that leaves every figure as it was."""
    for state in ("draft", "validated", "priced"):
        bench.rows("UPDATE quotes SET state = ?", state)


async def test_an_edited_quote_that_got_no_worse_rests_on_the_earlier_decision(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "approve"), "3", "U0MANAGER"))
    edited(bench)
    bench.clock.advance(1)
    row = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP"))
    assert (row["outcome"], row["response"]["code"]) == ("applied", "approved")
    assert owed(bench, row["id"]) == ["slack.card", "slack.post", "pdf.render", "crm.create"]
    found = bench.row("SELECT * FROM approvals WHERE approval_id = 'A-2026-0001-v1-2'")
    assert (found["state"], found["earlier"], found["decided_by"]) == ("approved", APPROVAL, None)
    assert bench.row("SELECT decided_by FROM approval_slots WHERE approval_id = 'A-2026-0001-v1-2'")["decided_by"] == "U0MANAGER"


async def test_after_a_rejection_an_edited_quote_is_asked_for(bench: Bench, executor: Executor) -> None:
    await submitted(bench, executor)
    await done(bench, executor, by(bench, DecideApproval(APPROVAL, "reject", "No."), "3", "U0MANAGER"))
    edited(bench)
    bench.clock.advance(1)
    row = await done(bench, executor, by(bench, SubmitQuote(), "4", "U0REP"))
    assert row["response"]["code"] == "submitted"
