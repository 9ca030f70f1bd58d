"""Credentials that break in the middle of a deal, for an operator to repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.harness.rig import eventually
from faults.scenarios.stage import Scenario

if TYPE_CHECKING:
    from faults.scenarios.stage import Stage


async def token_broken(stage: Stage) -> str:
    """D-3: the Slack token and the Salesforce session break."""
    deal = await stage.start()
    await deal.submitted_deal()
    # a session that expires after the record is written
    await deal.arm("salesforce", "auth_expired", method="sobjects/ContentVersion", times=1)
    await deal.arm("slack", "auth_expired", method="files.completeUploadExternal", seconds=600)
    await deal.click("approval.approve", user="U0MANAGER")
    held = "gates WHERE name = 'slack' AND state = 'held' AND cause = 'auth'"
    await eventually(lambda: stage.count(held), "Slack's classes to be held", holds=lambda count: count == 1)
    (upload,) = await deal.rows(
        "SELECT state, attempts, json_type(steps, '$.uploaded') AS uploaded FROM effects WHERE class = 'slack.file'"
    )
    expected = {"state": "pending", "attempts": 0, "uploaded": "object"}
    stage.equal("the upload waits half done, its steps recorded, no attempt burnt", upload, expected)
    stage.equal("nobody sees half a file", await deal.files(), [])
    told = (await stage.quotebot("gates")).out
    stage.fact("the operator is told what waits and what to do", "quotebot resume slack" in told, told)
    stage.equal("nothing was given up", await stage.count("dead_letters"), 0)
    await deal.clear_faults()
    stage.equal("the token restored, Slack is resumed", (await stage.quotebot("resume", "slack")).status, 0)
    await deal.settled()
    stage.equal("the bytes went out once", len(await deal.witness("upload")), 1)
    stage.equal("the session that ended was renewed once", len(await deal.witness("oauth2/token")), 2)
    await checker.golden_deal(deal)
    return "held half done with every step recorded, resumed, one file, one record"


SCENARIOS: Final = (
    Scenario(
        "D-3",
        "P1",
        ("fail_once",),
        "a token breaks during a deal",
        "Slack's token is revoked between two calls of an upload and Salesforce ends the session; an operator restores the token.",
        "What is half done is recorded and held, nothing is given up, and after the resume everything is there once.",
        token_broken,
    ),
)
