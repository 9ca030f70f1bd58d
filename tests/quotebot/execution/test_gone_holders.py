"""Tests of role holders who are gone: they are asked no more, and a slot that asked only them is put to others, once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Delivered
from ledger.retention import purge
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch.registry import follow_ups
from quotebot.domain.approvals.policy import Need, PolicyDecision, Timing
from quotebot.domain.approvals.requests import open_request, reassigned
from quotebot.domain.quotes.quote import QuoteState
from quotebot.execution.executor import Executor
from quotebot.execution.membership import Directory, Known, keep_person
from quotebot.jobs.announcements import announce
from quotebot.jobs.maintenance import audit_holders, check_holders
from quotebot.jobs.scheduler import Scheduler, approval_reassignment
from quotebot.store import dead_letters
from quotebot.store import quotes as store
from quotebot.store.dead_letters import Backlog
from quotebot.views.ops_cards import ops_card
from tests.quotebot.parts import MATRIX, RULES, Bench, OneSlack, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Approval
    from quotebot.domain.rules import Rules

DAY_MS = 86_400_000


def asked(people: str, holders: dict[str, tuple[str, ...]]) -> Approval:
    """Return a request for one approval by the VP of sales: any holder, or `all` of them."""
    need = Need(("vp_sales",), "all" if people == "all" else "any")
    decision = PolicyDecision(("vp_sales",), (), blocked=False, needs=(need,))
    quote = example_quote(QuoteState.PRICED)
    return open_request("A-1", quote, decision, holders, asked_by="U0REP", at=MORNING, timing=Timing())


def test_slot_of_a_person_who_is_gone_is_put_to_their_role() -> None:
    approval = asked("all", {"vp_sales": ("U0VP", "U0VP2"), "cfo": ("U0CFO",)})
    assert [slot.assignee for slot in approval.slots] == ["U0VP", "U0VP2"]
    left = {"vp_sales": ("U0VP2",), "cfo": ("U0CFO",)}
    after = reassigned(approval, 1, left, (), frozenset({"U0VP"}))
    assert after is not None
    assert (after.slots[0].assignee, after.slots[0].asked) == (None, ("vp_sales",))
    assert reassigned(after, 1, left, (), frozenset({"U0VP"})) is None
    assert reassigned(approval, 2, left, (), frozenset({"U0VP"})) is None


@pytest.mark.parametrize(
    ("left", "asks"),
    [
        ({"vp_sales": ("U0VP2",), "cfo": ("U0CFO",)}, None),  # the other holder was asked from the start
        ({"vp_sales": (), "cfo": ("U0CFO",)}, ("vp_sales", "cfo")),
        ({"vp_sales": ("U0REP",), "cfo": ("U0CFO",)}, ("vp_sales", "cfo")),  # who asked may not approve
        ({"vp_sales": (), "cfo": ()}, None),
    ],
)
def test_role_without_a_holder_asks_the_next_higher_one(left: dict[str, tuple[str, ...]], asks: tuple[str, ...] | None) -> None:
    approval = asked("any", {"vp_sales": ("U0VP",), "cfo": ("U0CFO",)})
    after = reassigned(approval, 1, left, (), frozenset({"U0VP"}))
    assert (None if after is None else after.slots[0].asked) == asks


async def submitted(bench: Bench, rules: Rules) -> Executor:
    """Submit a quote; return the executor."""
    executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1))
    while await executor.step():
        pass
    return executor


async def test_request_is_put_to_the_next_role_once_when_its_only_approver_is_gone(bench: Bench) -> None:
    executor = await submitted(bench, RULES)
    scheduler = Scheduler(bench.ledger, [approval_reassignment(RULES)])
    assert await scheduler.step() == 0
    gone = Known("deactivated", bench.clock.now_ms())
    await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0MANAGER", gone))
    for _ in range(3):
        await scheduler.step()
        await executor.step()
    found = bench.rows("SELECT outcome FROM operations WHERE action_kind = 'approval.reassign'")
    assert found == [{"outcome": "applied"}]
    quote = await bench.ledger.database.read(lambda tx: store.load(tx, "Q-2026-0001"))
    assert quote is not None
    assert quote.approval is not None
    assert quote.approval.slots[0].asked == ("sales_manager", "deal_desk")
    (notice,) = bench.rows("SELECT payload FROM effects WHERE payload LIKE '%no longer a full member%'")
    assert "Asked now: <@U0DEALDESK>" in notice["payload"]
    asked_directly = bench.rows("SELECT payload FROM effects WHERE class = 'slack.direct' ORDER BY id")
    assert ["U0DEALDESK" in row["payload"] for row in asked_directly] == [False, True]
    assert bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'approval.reassigned'") == [{"1": 1}]


async def test_holders_are_checked_with_slack_and_those_gone_are_named(bench: Bench) -> None:
    slack: Any = OneSlack(("U0VP",))
    directory = Directory(bench.ledger, slack)
    assert await check_holders(bench.ledger, directory, RULES) == ["U0VP"]
    kinds = {row["user_id"]: (row["kind"], row["zone"]) for row in bench.rows("SELECT user_id, kind, zone FROM people")}
    assert kinds["U0VP"][0] == "deactivated"
    assert kinds["U0CFO"] == ("member", "Europe/Berlin")
    assert len(kinds) == 5


async def test_change_of_who_holds_a_role_is_audited_once(bench: Bench) -> None:
    assert [await audit_holders(bench.ledger, RULES.approvers) for _ in range(2)] == [True, False]
    assert await audit_holders(bench.ledger, {**RULES.approvers, "cfo": ("U0CFO", "U0NEW")})
    first, second = bench.rows("SELECT before, after FROM audit_events WHERE event_type = 'roles.changed' ORDER BY id")
    assert json.loads(first["before"]) == {}
    assert json.loads(second["before"]) == json.loads(first["after"])
    assert json.loads(second["after"])["cfo"] == ["U0CFO", "U0NEW"]


async def test_operators_get_one_card_about_each_holder_who_is_gone_until_they_are_back(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    held = {user for users in RULES.approvers.values() for user in users}

    async def cards(kind: str) -> list[dict[str, Any]]:
        bench.clock.advance(60_000)
        known = Known(kind, bench.clock.now_ms())
        await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0VP", known))
        for _ in range(2):
            await announce(bench.ledger, "C0OPS", held, "T0HOME")
            await executor.step()
        return bench.rows("SELECT subject, shown, closed_at IS NULL AS open FROM ops_cards")

    assert await cards("member") == []
    assert await cards("deactivated") == [{"subject": "holder:U0VP", "shown": "1", "open": 1}]
    (posted,) = bench.rows("SELECT id FROM effects WHERE class = 'slack.post'")
    assert posted
    assert await cards("member") == [{"subject": "holder:U0VP", "shown": "0", "open": 0}]
    card = await bench.ledger.database.read(lambda tx: dead_letters.ops_card(tx, "holder:U0VP"))
    assert card is not None
    gone, present = Backlog(1, 0, None, None), Backlog(0, 0, None, None)
    texts = [ops_card(card, state, None, holds=holds) for state, holds in ((gone, True), (present, True), (present, False))]
    assert "<@U0VP> holds a role" in str(texts[0].blocks)
    assert "full member again" in texts[1].text
    assert "<@U0VP> holds no role any more" in str(texts[2].blocks)


async def test_card_about_a_holder_who_is_gone_is_closed_when_they_hold_no_role(bench: Bench) -> None:
    gone = Known("deactivated", bench.clock.now_ms())
    await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0VP", gone))
    for approvers in (RULES.approvers, {**RULES.approvers, "vp_sales": ("U0NEW",)}):
        bench.clock.advance(60_000)
        executor = Executor(bench.ledger, replace(RULES, approvers=approvers), lambda low, _: low, MATRIX)
        await announce(bench.ledger, "C0OPS", {user for users in approvers.values() for user in users}, "T0HOME")
        await executor.step()
    assert bench.rows("SELECT shown, closed_at IS NULL AS open FROM ops_cards") == [{"shown": "0", "open": 0}]


async def test_card_is_closed_after_the_command_that_posted_it_was_purged(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)

    async def announced(kind: str) -> None:
        known = Known(kind, bench.clock.now_ms())
        await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0VP", known))
        assert await announce(bench.ledger, "C0OPS", ["U0VP"], "T0HOME") == 1
        await executor.step()

    async def delivered() -> None:
        for effect in await bench.ledger.claim_effects({"slack.post": 9}):
            await bench.ledger.settle(effect, Delivered("17.1", {}), lambda tx, it: follow_ups(tx, it, MORNING))

    await announced("deactivated")
    await delivered()
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await delivered()  # the newest rows are kept
    bench.clock.advance(40 * DAY_MS)
    assert (await purge(bench.ledger, bench.clock.now_ms(), dry_run=False)).operations == 1
    await announced("member")
    assert bench.rows("SELECT shown, closed_at IS NULL AS open FROM ops_cards") == [{"shown": "0", "open": 0}]


async def test_person_unknown_in_another_workspace_stays_an_approver(bench: Bench) -> None:
    foreign = Known("stranger", bench.clock.now_ms())
    await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0TYPO", "U0MANAGER", foreign))
    executor = await submitted(bench, RULES)
    assert [row["user_id"] for row in bench.rows("SELECT user_id FROM approval_copies")] == ["U0MANAGER"]
    assert await Scheduler(bench.ledger, [approval_reassignment(RULES)]).step() == 0
    assert await announce(bench.ledger, "C0OPS", ["U0MANAGER"], "T0HOME") == 0
    assert await executor.step() == 0


async def test_slot_whose_other_holder_is_the_requester_is_put_to_the_next_role(bench: Bench) -> None:
    rules = replace(RULES, approvers={**RULES.approvers, "sales_manager": ("U0MANAGER", "U0REP")})
    executor = await submitted(bench, rules)
    gone = Known("deactivated", bench.clock.now_ms())
    await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0MANAGER", gone))
    assert await Scheduler(bench.ledger, [approval_reassignment(rules)]).step() == 1
    await executor.step()
    assert bench.row("SELECT asked FROM approval_slots") == {"asked": '["sales_manager", "deal_desk"]'}
