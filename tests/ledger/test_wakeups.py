"""Tests of the check that runs after every ledger test: it finds rows that nothing wakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.checks.wakeups import asleep_for_good
from ledger import keys
from ledger.records import Fail
from tests.ledger.parts import TROUBLE, intent

if TYPE_CHECKING:
    from tests.ledger.parts import Desk

STUCK = [
    ("UPDATE effects SET epoch = 99 WHERE id = 0", []),
    (
        "UPDATE effects SET epoch = 99 WHERE state = 'in_flight'",
        ["effect 1 is in flight and has no owner whose end anybody could notice"],
    ),
    (
        "UPDATE operations SET epoch = 99 WHERE state = 'in_progress'",
        ["operation 2 is in progress and has no owner whose end anybody could notice"],
    ),
    (
        "UPDATE effects SET state = 'delivered', epoch = NULL, lease_until = NULL, finished_at = 1 WHERE id = 1",
        ["effect 2 is pending, has no due time, and waits for effect 1, which is delivered"],
    ),
    (
        "UPDATE effects SET state = 'superseded', epoch = NULL, lease_until = NULL, finished_at = 1 WHERE id = 1",
        ["effect 2 is pending, has no due time, and waits for effect 1, which is superseded"],
    ),
    (
        "UPDATE effects SET after_id = 77 WHERE id = 2",
        ["effect 2 is pending, has no due time, and waits for effect 77, which is gone"],
    ),
]


@pytest.mark.parametrize(("harm", "found"), STUCK)
async def test_a_row_that_nothing_wakes_is_named(harm: str, found: list[str], desk: Desk) -> None:
    reserved = await desk.reserve()
    root = keys.effect_key(reserved.operation.operation_key, "slack.post", 0)
    await desk.owe(intent(), intent("slack.card", "convergent", after=root))
    await desk.claim()
    await desk.claim_operation("r2")
    desk.shell.execute("BEGIN")
    desk.shell.execute(harm)
    assert asleep_for_good(desk.shell) == found
    desk.shell.execute("ROLLBACK")


async def test_child_of_a_dead_letter_is_not_reported_as_never_woken(desk: Desk) -> None:
    reserved = await desk.reserve()
    root = keys.effect_key(reserved.operation.operation_key, "slack.post", 0)
    await desk.owe(intent(), intent("slack.card", "convergent", after=root))
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    assert asleep_for_good(desk.shell) == []
