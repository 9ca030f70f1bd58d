"""Tests of the upkeep of direct messages to approvers: each change of a role is followed once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import Delivered
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch.registry import follow_ups
from quotebot.execution.executor import Executor
from quotebot.jobs import approver_messages
from quotebot.jobs.approver_messages import follow_role_changes
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    import pytest

    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"
WITHOUT = replace(RULES, approvers={**RULES.approvers, "sales_manager": ("U0NEW",)})
CLASSES = dict.fromkeys(("slack.post", "slack.card", "slack.direct", "slack.direct_card"), 9)
REFRESHED = "SELECT aggregate_id FROM operations WHERE source = 'scheduler'"
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


async def submitted(bench: Bench) -> Executor:
    """Submit two quotes for approval and execute that; return the executor."""
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in (1, 2):
        await bench.ledger.reserve(request_for(create_command(f"{11 + number}"), f"c{number}"))
        await bench.ledger.reserve(request_for(SubmitQuote(), f"s{number}", quote_id=f"Q-2026-000{number}", version=1))
    await executed(executor)
    return executor


async def executed(executor: Executor) -> None:
    while await executor.step():
        pass


async def drawn(bench: Bench, *, lost: bool) -> None:
    """Deliver every effect; each message to an approver is redrawn for a person who has lost the authority, or has it."""
    while effects := await bench.ledger.claim_effects(CLASSES):
        for effect in effects:
            result = {"lost": lost} if effect.effect_class == "slack.direct_card" else {"channel": "D0"}
            await bench.ledger.settle(effect, Delivered("17.1", result), lambda tx, it: follow_ups(tx, it, MORNING))


async def test_authority_that_returns_and_is_lost_again_is_followed_each_time(bench: Bench) -> None:
    executor = await submitted(bench)
    await drawn(bench, lost=False)
    for rules, changes in ((WITHOUT, 4), (RULES, 2), (WITHOUT, 2), (RULES, 2)):  # the first one asks the new holder as well
        assert await follow_role_changes(bench.ledger, rules) == changes
        await executed(executor)
        assert await follow_role_changes(bench.ledger, rules) == 0
        await drawn(bench, lost=rules is WITHOUT)


async def test_authority_that_returned_before_the_message_was_redrawn_can_be_lost_again(bench: Bench) -> None:
    executor = await submitted(bench)
    await drawn(bench, lost=False)
    await follow_role_changes(bench.ledger, WITHOUT)
    await executed(executor)
    await drawn(bench, lost=False)  # they have the role again
    assert await follow_role_changes(bench.ledger, WITHOUT) == 2


async def test_changes_are_followed_in_every_open_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await submitted(bench)
    monkeypatch.setattr(approver_messages, "REQUESTS_MAX", 1)
    assert await follow_role_changes(bench.ledger, WITHOUT) == 4
    assert {row["aggregate_id"] for row in bench.rows(REFRESHED)} == {"Q-2026-0001", "Q-2026-0002"}
