"""Tests of two approvers in two processes who decide about the same quotes at the same moment, over one ledger file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.ledger import Ledger
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.commands.payloads import DecideApproval, SubmitQuote
from quotebot.domain.quotes.quote import ApprovalState, QuoteState, SlotState
from quotebot.execution.executor import Executor
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.store import quotes as store
from tests.ledger.engine.parts import all_ready, ended
from tests.quotebot.parts import MATRIX, RULES, ManualClock, create_command, request_for
from tests.quotebot.views.quote_examples import decided

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote
    from tests.quotebot.parts import Bench

QUOTES = 40  # so many that neither side wins every time
SECONDS = 40
TO_WAKE_SECONDS = 0.005  # from sending the start time to that time: enough to wake on a busy processor
SIDES = {"approve": "U0MANAGER", "reject": "U0CFO"}


async def decide_all(path: Path, side: str) -> None:
    """Give one side's decision on every quote, as a separate process; both sides start each one at the same moment.

    They get the start time in advance and are awake before it: otherwise the side on the busier processor would always be last.
    """
    clock = ManualClock()
    audit = Audit(DOMAIN_EVENTS, load_keyring(path.parent))
    database = await SqliteStorage(path, *schema_and_statements()).open(audit, clock, bot=False, may_migrate=False)
    ledger = Ledger(database, clock, audit, pin=store.head_version)
    for number in range(1, QUOTES + 1):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        moment = float(await asyncio.to_thread(sys.stdin.readline))
        quote_id = f"Q-2026-{number:04d}"
        payload = DecideApproval(f"A-2026-{number:04d}-v1-1", "approve" if side == "approve" else "reject", "Too deep.")
        request = request_for(payload, f"{side}:{quote_id}", quote_id=quote_id, version=1, actor=SIDES[side])
        request = replace(request, source="cli", transport={"terminal_user": side})
        while time.monotonic() < moment:
            pass
        await ledger.reserve(request)
    await database.close()
    sys.stdout.write("done\n")


async def asked_for_approval(bench: Bench, executor: Executor) -> None:
    for number in range(1, QUOTES + 1):
        await bench.ledger.reserve(request_for(create_command(discount=f"15.{number:02d}"), f"new{number}"))
        while await executor.step():
            pass
        request = request_for(SubmitQuote(), f"submit{number}", quote_id=f"Q-2026-{number:04d}", version=1)
        await bench.ledger.reserve(request)
    while await executor.step():
        pass


async def test_of_two_processes_one_decides_each_quote_and_the_other_is_told_who_and_when(bench: Bench, checkout: Path) -> None:
    executor = Executor(bench.ledger, replace(RULES, terminal_users=SIDES), lambda _, high: high, MATRIX)
    await asked_for_approval(bench, executor)
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.quotebot.execution.test_approval_race", str(bench.path), side),
            cwd=checkout,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for side in SIDES
    ]
    for number in range(QUOTES):
        await all_ready(*racers)
        moment = time.monotonic() + TO_WAKE_SECONDS
        for racer in racers[:: 1 if number % 2 else -1]:  # the first to get the time has a tiny advantage
            assert racer.stdin is not None
            racer.stdin.write(f"{moment}\n".encode())
    await ended(*racers, seconds=SECONDS)
    while await executor.step():
        pass
    winners = [one_decision(bench, f"Q-2026-{number:04d}") for number in range(1, QUOTES + 1)]
    assert set(winners) == set(SIDES), "they did race"


def one_decision(bench: Bench, quote_id: str) -> str:
    """Check that exactly one of the two decisions counts, in every record; return it."""
    operations = bench.rows(
        "SELECT outcome, actor, response FROM operations WHERE aggregate_id = ? AND action_kind = 'approval.decide'", quote_id
    )
    won, lost = sorted(operations, key=lambda row: str(row["outcome"]))
    assert (won["outcome"], lost["outcome"]) == ("applied", "refused")
    side = next(side for side, actor in SIDES.items() if actor == won["actor"])
    state = {"approve": "approved", "reject": "rejected"}[side]
    told: dict[str, Any] = json.loads(lost["response"])
    assert told["code"] == "already_decided"
    assert f"already {state} by <@{won['actor']}>" in told["text"]
    assert "21 Nov 2026, 10:31 UTC" in told["text"]
    approval = bench.row("SELECT * FROM approvals WHERE quote_id = ?", quote_id)
    slot = bench.row("SELECT * FROM approval_slots WHERE approval_id = ?", approval["approval_id"])
    quote = bench.row("SELECT state FROM quotes WHERE quote_id = ?", quote_id)
    assert (quote["state"], approval["state"], slot["state"]) == (state, state, state)
    assert approval["decided_by"] == slot["decided_by"] == won["actor"]
    trail = bench.rows(
        "SELECT event_type, actor FROM audit_events WHERE aggregate_id = ? AND event_type LIKE 'approval.%' ORDER BY id", quote_id
    )
    events = [(row["event_type"], row["actor"]) for row in trail]
    assert events == [
        ("approval.requested", "U0REP"),
        (f"approval.{state}", won["actor"]),
        ("approval.refused", lost["actor"]),
    ]
    return side


@pytest.mark.parametrize(("first", "second"), [("approved", "rejected"), ("rejected", "approved")])
async def test_second_connection_cannot_store_a_decision_on_an_already_decided_request(
    bench: Bench, first: str, second: str
) -> None:
    """Even without lanes and claims the row's own guard keeps the first decision."""
    executor = Executor(bench.ledger, RULES, lambda _, high: high, MATRIX)
    await asked_for_approval(bench, executor)
    audit = Audit(DOMAIN_EVENTS, load_keyring(bench.path.parent))
    other = await SqliteStorage(bench.path, *schema_and_statements()).open(audit, bench.clock, bot=False, may_migrate=False)
    try:
        before = await other.read(lambda tx: store.load(tx, "Q-2026-0001"))
        assert before is not None
        after = {}
        for state in (first, second):
            answer = decided(ApprovalState(state), approval_id="A-2026-0001-v1-1", quote_id="Q-2026-0001")
            after[state] = replace(before, state=QuoteState(state), approval=answer)
        await bench.ledger.database.write("test", lambda tx: store.save(tx, before, after[first], bench.clock.now_ms()))
        with pytest.raises(store.ConcurrentChangeError):
            await other.write("test", lambda tx: store.save(tx, before, after[second], bench.clock.now_ms()))
    finally:
        await other.close()
    assert bench.row("SELECT state FROM approval_slots WHERE approval_id = 'A-2026-0001-v1-1'")["state"] == first


async def test_of_two_answers_to_one_slot_of_several_the_second_can_store_nothing(bench: Bench) -> None:
    """The request stays open for both, so only the slot's own row shows that it was decided."""
    await asked_for_approval(bench, Executor(bench.ledger, RULES, lambda _, high: high, MATRIX))
    bench.rows(
        "INSERT INTO approval_slots (approval_id, slot, stage, roles, asked, dual_control, state, opened_at) "
        "VALUES ('A-2026-0001-v1-1', 2, 1, '[\"legal\"]', '[\"legal\"]', 0, 'pending', 1)"
    )
    before = await bench.ledger.database.read(lambda tx: store.load(tx, "Q-2026-0001"))
    assert before is not None
    assert before.approval is not None
    approval, (first, second) = before.approval, before.approval.slots

    def given(by: str) -> Quote:
        slot = replace(first, state=SlotState.APPROVED, decided_by=by, decided_role="cfo", decided_at=bench.clock.now_ms())
        return replace(before, approval=replace(approval, slots=(slot, second)))

    await bench.ledger.database.write("test", lambda tx: store.save(tx, before, given("U0CFO"), 1))
    with pytest.raises(store.ConcurrentChangeError):
        await bench.ledger.database.write("test", lambda tx: store.save(tx, before, given("U0VP"), 1))
    assert bench.row("SELECT decided_by FROM approval_slots WHERE slot = 1 AND decided_by IS NOT NULL")["decided_by"] == "U0CFO"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE approvals SET state = 'approved', decided_at = 1", "an approval needs every slot"),
        ("DELETE FROM approval_slots", "a slot is kept"),
        ("UPDATE approval_slots SET roles = '[]'", "a slot keeps its identity"),
        ("UPDATE approval_slots SET state = 'approved', decided_at = 1", "CHECK constraint failed"),
    ],
)
async def test_the_file_itself_refuses_an_approval_without_its_slots(bench: Bench, sql: str, why: str) -> None:
    await asked_for_approval(bench, Executor(bench.ledger, RULES, lambda _, high: high, MATRIX))
    with pytest.raises(sqlite3.IntegrityError, match=why):
        bench.rows(sql)


if __name__ == "__main__":
    asyncio.run(decide_all(Path(sys.argv[1]), sys.argv[2]))
