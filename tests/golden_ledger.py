"""Makes the golden ledger of a release: `python -m tests.golden_ledger FOLDER` writes FOLDER/<version>.sqlite and <version>.key.

Run it once with the release's own tree, and commit both files: tests/test_golden_ledgers.py opens all of them with every later
build. The ledger contains a finished deal, one with a pending approval, and one whose Salesforce record is a dead letter.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from quotebot import __version__
from quotebot.app.bot import Ports
from quotebot.sandbox.world import World
from tests.rig import bot_in


async def fill(folder: Path) -> None:
    """Run a bot and leave its data folder in `folder`/bot."""
    async with (
        World(folder / "world").serve() as world,
        bot_in(world, folder / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.approved_deal()
        await deal.submitted_deal()
        await deal.slash("new for Third: 5 pro")
        await deal.settled()
        await deal.arm("salesforce", "5xx", seconds=60)
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()


def keep(data: Path, target: Path) -> None:
    """Copy the ledger, vacuumed into one file, and its key."""
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{__version__}.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as ledger:
        ledger.execute("VACUUM INTO ?", (str(path),))
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
    shutil.copyfile(data / "audit-0001.key", target / f"{__version__}.key")


def main() -> None:
    """Make the golden ledger."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder)))
        keep(Path(folder) / "bot", Path(sys.argv[1]))


if __name__ == "__main__":
    main()
