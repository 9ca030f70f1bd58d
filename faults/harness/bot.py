"""`python -m faults.harness.bot`: the real bot with a kill plan at its choke points. Only its ports are replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, TypeVar

from faults.harness.plan import PLAN_VARIABLE, KillPlan
from quotebot.app.bot import Ports, run_bot
from quotebot.app.installation import open_database
from quotebot.observability.logs import configure_logs
from quotebot.settings import load_settings
from quotebot.slack.receiver import send_ack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Database, Health, Tx

T = TypeVar("T")


class Reaper:
    """Counter of choke-point passages that kills this process at the passage the plan names."""

    def __init__(self, plan: KillPlan) -> None:
        self._plan = plan
        self._passages = 0

    def passes(self, point: str, moment: str) -> None:
        """Count one passage; does not return when it is the planned one."""
        if (point, moment) != (self._plan.point, self._plan.moment):
            return
        self._passages += 1
        if self._passages == self._plan.occurrence:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalDatabase:
    """A database whose writes are crash points: before the transaction, and after its commit reached the disk."""

    def __init__(self, database: Database, reaper: Reaper) -> None:
        self._database = database
        self._reaper = reaper

    async def write(self, name: str, work: Callable[[Tx], T], *, urgent: bool = False, deadline: float | None = None) -> T:
        """Write, with a crash point before and after."""
        self._reaper.passes(f"write:{name}", "before")
        result = await self._database.write(name, work, urgent=urgent, deadline=deadline)
        if not _is_nothing(result):  # a poll that found nothing to claim is no crash point
            self._reaper.passes(f"write:{name}", "after")
        return result

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Read. Nothing changes, so this is no crash point."""
        return await self._database.read(work)

    @property
    def health(self) -> Health:
        """Health of the real database."""
        return self._database.health

    async def tend(self) -> None:
        """Run the maintenance of the real database."""
        await self._database.tend()

    async def close(self) -> None:
        """Close the real database."""
        await self._database.close()


def _is_nothing(result: object) -> bool:
    """Tell whether a write changed nothing: its result is None, an empty list, or a tuple of empty values."""
    return result is None or result == [] or (isinstance(result, tuple) and not any(result))


def main() -> None:
    """Run the bot under the plan of the environment until it is killed or asked to stop."""
    reaper = Reaper(KillPlan.from_text(os.environ[PLAN_VARIABLE]))

    async def mortal_ack(envelope_id: str, send: Callable[[], Awaitable[None]]) -> None:
        reaper.passes("ack", "before")
        await send_ack(envelope_id, send)
        reaper.passes("ack", "after")

    async def mortal_database(*arguments: Any, **named: Any) -> MortalDatabase:
        return MortalDatabase(await open_database(*arguments, **named), reaper)

    async def run() -> Any:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await run_bot(load_settings(), stop, Ports(database=mortal_database), ack=mortal_ack)

    configure_logs(json_lines=True)
    asyncio.run(run())


if __name__ == "__main__":
    main()
