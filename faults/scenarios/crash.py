"""Crashes of the bot: SIGKILL at the best-known crash points, and a restart as shipped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.harness.bot import KillPlan
from faults.scenarios.stage import Scenario

if TYPE_CHECKING:
    from faults.scenarios.stage import Stage


async def _killed_while_creating(stage: Stage, plan: KillPlan) -> None:
    """Type `/quote new` to a bot that its kill plan crashes."""
    await stage.start(plan)
    await asyncio.gather(stage.deal.slash(), stage.bot.died())


async def _finish(stage: Stage) -> None:
    """Start the bot as shipped, take the deal to its end and check it."""
    deal = await stage.start()
    await deal.settled()
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    await deal.complete(deal.click("approval.approve", user="U0MANAGER"))
    await checker.golden_deal(deal)


async def before_the_commit(stage: Stage) -> str:
    """FI-016: crash before the commit of a command."""
    await _killed_while_creating(stage, KillPlan("write:claim_operations", "after"))
    await stage.start(KillPlan("write:execute", "before"))
    await stage.bot.died()
    stage.equal("two deaths, and nothing happened yet", await stage.count("quotes"), 0)
    stage.equal("but the command is remembered", await stage.count("operations WHERE state = 'in_progress'"), 1)
    await _finish(stage)
    await stage.audited("quote.create", "reserved claimed released claimed released claimed quote.created applied")
    return "one quote, one card, made after two deaths on the way to the commit"


async def after_the_commit(stage: Stage) -> str:
    """FI-017: crash after the commit, before its effects."""
    await _killed_while_creating(stage, KillPlan("write:execute", "after"))
    stage.equal("the quote was made", await stage.count("quotes"), 1)
    stage.equal("its card is owed", await stage.count("effects WHERE class = 'slack.post' AND state = 'pending'"), 1)
    stage.equal("and not there", await stage.deal.cards(), [])
    await _finish(stage)
    stage.equal("it was decided once", await stage.count("audit_events WHERE event_type = 'quote.created'"), 1)
    await stage.audited("quote.create", "reserved claimed quote.created applied")
    await stage.audited("slack.post", "claimed delivered")
    return "one quote, one card, effects resumed after restart"


async def after_part_of_an_effect(stage: Stage) -> str:
    """FI-018: crash after an effect was applied, before it was settled, and inside the steps of an effect."""
    deal = stage.deal
    await _killed_while_creating(stage, KillPlan("write:settle", "before"))
    stage.equal("Slack took the card", len(await deal.cards()), 1)
    stage.equal("the ledger does not know it", await stage.count("effects WHERE class = 'slack.post' AND external_ref IS NULL"), 1)
    # The first step is that of the direct message to the approver.
    await stage.start(KillPlan("write:record_step", "after", 3))
    await deal.settled()
    (root,) = await deal.rows(
        "SELECT CAST(json_extract(result, '$.already_there') AS INTEGER) AS found FROM effects WHERE class = 'slack.post'"
    )
    stage.equal("the card was found by its key, not posted again", (root["found"], len(await deal.cards())), (1, 1))
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    await asyncio.gather(deal.click("approval.approve", user="U0MANAGER"), stage.bot.died())
    stage.equal("the bytes of the PDF were sent", len(await deal.witness("upload")), 1)
    stage.equal("and nobody sees them yet", await deal.files(), [])
    await stage.start()
    await deal.settled()
    asked = len(await deal.witness("files.info"))
    stage.fact("the file was looked for before it was sent again", asked, asked)
    await checker.golden_deal(deal)
    await stage.audited("slack.post", "claimed uncertain claimed delivered")
    await stage.audited("slack.file", "claimed uncertain claimed retry_scheduled claimed delivered")
    return "the card found by its key, the file looked for and sent anew, each there once"


SCENARIOS: Final = (
    Scenario(
        "FI-016",
        "P0",
        ("crash_after",),
        "crash before the domain commit",
        "The bot dies after a command was recorded and claimed, and its successor dies just before it would commit.",
        "The command is remembered, resumed by the next start, and has one effect.",
        before_the_commit,
    ),
    Scenario(
        "FI-017",
        "P0",
        ("crash_after",),
        "crash after the domain commit",
        "The bot dies when the quote is committed and nothing of what it owes is sent.",
        "The quote is made once; what it owes is sent after the restart.",
        after_the_commit,
    ),
    Scenario(
        "FI-018",
        "P0",
        ("crash_after",),
        "crash after part of an effect",
        "The bot dies when Slack has taken a card and nobody wrote that down; later between two calls of an upload.",
        "What is there is found by its key, what is not there is made anew, and everybody sees each thing once.",
        after_part_of_an_effect,
    ),
)
