"""Tests of the direct messages to approvers after a delegation at the terminal, and after its command was purged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import Delivered
from ledger.retention import purge
from quotebot.commands.payloads import DecideApproval, DelegateApprovals, SubmitQuote
from quotebot.dispatch.registry import follow_ups
from quotebot.execution.executor import Executor
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

QUOTE, ASKED = "Q-2026-0001", "A-2026-0001-v1-1"
DAY_MS = 86_400_000
DELEGATED = DelegateApprovals("U0MANAGER", "U0DEALDESK", MORNING + DAY_MS, None)


async def delegated_at_terminal(bench: Bench) -> Executor:
    executor = Executor(bench.ledger, replace(RULES, terminal_users={"boss": "U0MANAGER"}), lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=QUOTE, version=1))
    terminal = {"source": "cli", "actor": "U0MANAGER", "transport": {"terminal_user": "boss"}}
    await bench.ledger.reserve(request_for(DELEGATED, "3", quote_id="delegation:U0MANAGER", version=None, **terminal))
    while await executor.step():
        pass
    return executor


async def decided(bench: Bench, executor: Executor) -> None:
    approve = DecideApproval(ASKED, "approve")
    await bench.ledger.reserve(request_for(approve, "4", quote_id=QUOTE, version=1, actor="U0DEALDESK"))
    await executor.step()
    newest = bench.row("SELECT action_kind, outcome FROM operations ORDER BY id DESC LIMIT 1")
    assert newest == {"action_kind": "approval.decide", "outcome": "applied"}


async def test_delegation_at_the_terminal_names_the_message_that_it_posts(bench: Bench) -> None:
    executor = await delegated_at_terminal(bench)
    posts = (
        "SELECT user_id FROM approval_copies JOIN effects ON effect_key = post_key WHERE class = 'slack.direct' ORDER BY user_id"
    )
    assert [row["user_id"] for row in bench.rows(posts)] == ["U0DEALDESK", "U0MANAGER"]
    await decided(bench, executor)


async def delivered(bench: Bench) -> None:
    classes = {row["class"]: 9 for row in bench.rows("SELECT DISTINCT class FROM effects")}
    while effects := await bench.ledger.claim_effects(classes):
        for effect in effects:
            await bench.ledger.settle(effect, Delivered("17.1", {"channel": "D0"}), lambda tx, it: follow_ups(tx, it, MORNING))


async def test_request_is_decided_after_the_command_that_asked_was_purged(bench: Bench) -> None:
    executor = await delegated_at_terminal(bench)
    await delivered(bench)
    await bench.ledger.reserve(request_for(create_command("10"), "5", actor="U0OTHER"))
    await executor.step()
    await delivered(bench)
    purged = await purge(bench.ledger, MORNING + 400 * DAY_MS, dry_run=False)
    assert purged.operations == 1
    await decided(bench, executor)
    redrawn = bench.rows("SELECT target FROM effects WHERE class = 'slack.direct_card' ORDER BY target")
    assert [row["target"] for row in redrawn] == [f"copy:{ASKED}:U0DEALDESK", f"copy:{ASKED}:U0MANAGER"]
