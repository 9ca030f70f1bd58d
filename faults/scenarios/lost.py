"""Loss of the disk, and a restore from a backup."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from faults.scenarios.stage import Scenario

if TYPE_CHECKING:
    from faults.harness.rig import Deal
    from faults.scenarios.stage import Stage

ACKED: Final = 4  # quotes requested and acknowledged before the backup begins
MEANWHILE: Final = 4  # and while it is being made
LATER: Final = 2  # and after it: these are lost


async def twice(deal: Deal) -> list[str]:
    """Return the keys and names that exist more than once in the external services."""
    keys = Counter(message["metadata"]["event_payload"]["key"] for message in await deal.messages() if message.get("metadata"))
    names = Counter(file["name"] for file in await deal.files())
    records = Counter(record["Quotebot_Key__c"] for record in await deal.crm())
    return [name for counted in (keys, names, records) for name, times in counted.items() if times > 1]


async def restored(stage: Stage) -> str:
    """D-5: the disk is lost and the ledger restored from a backup."""
    deal = await stage.start()
    await deal.submitted_deal()
    await deal.arm("slack", "slow", method="chat.postMessage", delay=2, times=6)
    await deal.arm("salesforce", "slow", delay=2, times=1)
    await deal.click("approval.approve", user="U0MANAGER")
    told = [await deal.slash(f"new for Early {number}: 5 pro") for number in range(ACKED)]
    stage.fact("what came before the backup was acknowledged", all(answer["ack"] for answer in told), told)
    backing = asyncio.create_task(stage.quotebot("backup", "--to", str(stage.folder / "kept"), "--json"))
    await asyncio.gather(*(deal.slash(f"new for Meanwhile {number}: 5 pro") for number in range(MEANWHILE)))
    made = await backing
    stage.equal("it was backed up while it worked", made.status, 0)
    backup = made.data
    await deal.clear_faults()
    for number in range(LATER):
        await deal.slash(f"new for Later {number}: 5 pro")
    await deal.settled()
    cards = len(await deal.cards())
    stage.equal("everything asked for was done before the disk is lost", cards, 1 + ACKED + MEANWHILE + LATER)
    await stage.bot.kill()
    for file in stage.ledger_path.parent.glob("ledger.db*"):
        file.unlink()
    done = await stage.quotebot("restore", backup["path"], "--yes", "--json")
    stage.equal("the backup is put back", (done.status, done.status or done.data["generation"]), (0, 2))
    await stage.start()
    await deal.settled()
    known = await stage.count("quotes WHERE account LIKE 'Early%'")
    stage.equal("no command that was acknowledged before the backup is lost", known, ACKED)
    stage.equal("nothing outside is there twice", await twice(deal), [])
    stage.equal("and no card was posted again", len(await deal.cards()), cards)
    stage.equal("nothing had to be given up", await stage.count("dead_letters"), 0)
    await deal.complete(deal.slash("new for After: 5 pro"))
    (row,) = await deal.rows("SELECT quote_id FROM quotes WHERE account = 'After'")
    shown = json.dumps([message["text"] for message in await deal.cards()][:-1])
    stage.fact("a new quote has a number that nobody saw before", row["quote_id"] not in shown, row)
    return f"{backup['tables']['operations']} commands back, each deed outside once, new numbers above all that were seen"


SCENARIOS: Final = (
    Scenario(
        "D-5",
        "P1",
        ("crash_after",),
        "the disk is lost, a backup is put back",
        "A backup is made while quotes are asked for and owed deeds are under way; all of it is done, then the bot dies and its "
        "ledger is gone. The backup is put back.",
        "No command acknowledged before the backup is lost, nothing outside is done twice, no quote number is given out again.",
        restored,
    ),
)
