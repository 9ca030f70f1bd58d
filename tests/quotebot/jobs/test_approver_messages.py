"""Tests of the upkeep of direct messages to approvers: each change of a role is followed once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quotebot.commands.payloads import SubmitQuote
from quotebot.execution.executor import Executor
from quotebot.jobs.approver_messages import follow_role_changes
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"
OWED = "SELECT class, target FROM effects WHERE class LIKE 'slack.direct%' AND operation_id = (SELECT max(id) FROM operations)"


async def test_each_change_of_a_role_is_followed_once(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=QUOTE, version=1))
    while await executor.step():
        pass
    assert await follow_role_changes(bench.ledger, RULES) == 0

    rules = replace(RULES, approvers={"sales_manager": ("U0NEW",)})
    assert await follow_role_changes(bench.ledger, rules) == 2
    executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX)
    while await executor.step():
        pass
    users = [row["user_id"] for row in bench.rows("SELECT user_id FROM approval_copies ORDER BY user_id")]
    assert users == ["U0MANAGER", "U0NEW"]
    assert ("slack.direct_card", "copy:A-2026-0001-v1-1:U0MANAGER") in [tuple(row.values()) for row in bench.rows(OWED)]
    assert await follow_role_changes(bench.ledger, rules) == 0
