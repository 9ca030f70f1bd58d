"""`python -m faults.harness.bot`: the real bot with a kill plan at its choke points. Only its ports are replaced.

A kill plan is the crash of one process as data, small enough for one environment variable.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from quotebot.app.bot import Ports, run_bot
from quotebot.app.installation import open_database
from quotebot.observability.logs import configure_logs
from quotebot.settings import load_settings
from quotebot.slack.receiver import send_ack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Database, Tx

T = TypeVar("T")
PLAN_VARIABLE: Final = "QUOTEBOT_FAULT_PLAN"


@dataclass(frozen=True, slots=True)
class KillPlan:
    """Order to SIGKILL a process `moment` the n-th passage (`occurrence`, from 1) of `point`.

    Points are the choke points: `write:<name>` (a ledger transaction), `ack` (an acknowledgement to Slack).
    """

    point: str
    moment: Literal["before", "after"]
    occurrence: int = 1

    def to_text(self) -> str:
        """Return the plan as the value of PLAN_VARIABLE."""
        return json.dumps(asdict(self))


class Reaper:
    """Counter of choke-point passages that kills this process at the passage the plan names."""

    def __init__(self, plan: KillPlan) -> None:
        self._plan = plan
        self._passages = 0

    def passes(self, point: str, moment: str) -> None:
        """Count one passage; does not return when it is the planned one."""
        if (point, moment) == (self._plan.point, self._plan.moment):
            self._passages += 1
            if self._passages == self._plan.occurrence:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalDatabase:
    """A database whose writes are crash points: before the transaction, and after its commit reached the disk."""

    def __init__(self, database: Database, reaper: Reaper) -> None:
        self._database = database
        self._reaper = reaper

    async def write(
        self,
        name: str,
        work: Callable[[Tx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        """Write, with a crash point before and after."""
        self._reaper.passes(f"write:{name}", "before")
        result = await self._database.write(name, work, urgent=urgent, brief=brief, deadline=deadline, alone=alone)
        if not _is_nothing(result):  # a poll that found nothing to claim is no crash point
            self._reaper.passes(f"write:{name}", "after")
        return result

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the real database: it changes nothing in the ledger, so it is no crash point."""
        return getattr(self._database, name)


def _is_nothing(result: object) -> bool:
    """Tell whether a write changed nothing: its result is None, an empty list, or a tuple of empty values."""
    return result is None or result == [] or (isinstance(result, tuple) and not any(result))


def main() -> None:
    """Run the bot under the plan of the environment until it is killed or asked to stop."""
    reaper = Reaper(KillPlan(**json.loads(os.environ[PLAN_VARIABLE])))

    async def mortal_ack(envelope_id: str, send: Callable[[], Awaitable[None]]) -> None:
        reaper.passes("ack", "before")
        await send_ack(envelope_id, send)
        reaper.passes("ack", "after")

    async def mortal_database(*arguments: Any, **named: Any) -> Any:
        return MortalDatabase(await open_database(*arguments, **named), reaper)

    async def run() -> Any:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await run_bot(load_settings(), stop, Ports(database=mortal_database), ack=mortal_ack)

    configure_logs(json_lines=True)
    asyncio.run(run())


if __name__ == "__main__":
    main()
