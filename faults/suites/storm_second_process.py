"""A second process that works on the ledger of a bot that was stopped for longer than its leases last.

It does what a second bot of a shared ledger does: it takes over expired claims, under an epoch of its own, and exits. The stopped
bot continues afterwards with late results, whose fences are old. It prints (JSON) how many rows it took.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Final

from ledger import recovery
from ledger.ledger import Ledger
from ledger.sqlite.locks import WriteGate
from quotebot.app.installation import open_ledger
from quotebot.settings import load_settings

# A statement makes the leases expire, because real ones last minutes. It passes the write gate, as every writer does.
LET_LEASES_LAPSE: Final = """
BEGIN IMMEDIATE;
UPDATE operations SET lease_until = 1 WHERE state = 'in_progress';
UPDATE effects SET lease_until = 1 WHERE state = 'in_flight';
COMMIT;
"""


async def take_over_lapsed() -> None:
    """Let the leases expire, take over the claims, as another process with another epoch, and end that epoch in order."""
    settings = load_settings()
    with (
        closing(WriteGate(settings.ledger_path, "faults")) as gate,
        gate,
        closing(sqlite3.connect(settings.ledger_path, isolation_level=None)) as connection,
    ):
        connection.executescript(LET_LEASES_LAPSE)
    async with open_ledger(settings) as opened:
        epoch = await recovery.begin_epoch(
            opened.database, opened.clock.now_ms(), role="bot", build="faults", alone=False, replica="second"
        )
        ledger = Ledger(opened.database, opened.clock, opened.audit, epoch=epoch)
        taken = await recovery.take_back_lapsed(ledger)
        await recovery.give_back(ledger)
    print(json.dumps({"operations": taken.operations, "effects": taken.effects}), flush=True)  # noqa: T201 -- its output


def main() -> None:
    """Run in the environment of the bot."""
    asyncio.run(take_over_lapsed())


if __name__ == "__main__":
    main()
