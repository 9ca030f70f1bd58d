"""Scenes of rare states that need more than steps: repeated crashes on the same row, and a bot that returns late.

They run in an Office of the simulated days: bots in this process, on one virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from faults.lab.bot import Conditions, LabBot
from faults.lab.database import InlineDatabase
from faults.lab.operators import ACTOR, REASON
from faults.lab.steps import newest_delivery
from faults.lab.traps import Trap
from ledger import recovery
from ledger.ledger import Ledger
from ledger.records import Retry, Trouble
from quotebot.app.installation import dead_letters, open_audit, open_database
from quotebot.cli import terminal
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from faults.lab.days import Office

HOUR: Final = 3600.0
EXECUTING, DELIVERING = "claim_operations", "claim_effects"
Scene = Callable[["Office"], Coroutine[Any, Any, None]]
LATE: Final = Trouble("transient", "It came back after a long sleep.")


class _Once(Trap):
    """A trap that signals, once armed, the end of the first commit that contains this write. Writes may share a commit."""

    def __init__(self, write: str) -> None:
        self.reached = asyncio.Event()
        self.armed = False
        self._write = write

    def passes(self, point: str) -> None:
        """Check whether this passage is that commit."""
        kind, _, rest = point.partition(":")
        writes, _, moment = rest.partition(":")
        if self.armed and kind == "commit" and moment == "after" and self._write in writes.split("+"):
            self.reached.set()


async def _dies_at(office: Office, write: str, text: str | None = None) -> None:
    """Start a bot that is killed right after its first commit of this write: at its start, or when a person types `text`."""
    chance, trap = office.chance, _Once(write)
    trap.armed = text is None
    bot = LabBot(office.settings, Conditions(office.clock, office.world, trap, chance.uniform, lambda: chance.uniform(0.02, 0.3)))

    async def killed() -> None:
        await trap.reached.wait()
        await bot.crash()

    death = asyncio.create_task(killed())
    with contextlib.suppress(asyncio.CancelledError):  # of the start, which the crash ends
        await bot.start()
        office.bot = bot
        if text is not None:
            trap.armed = True
            await office.types(text)
    async with asyncio.timeout(HOUR):
        await death
    office.bot = None
    office.tell(f"the bot is killed after {write}")
    await asyncio.sleep(1)


async def _dies_three_times_at(office: Office, write: str) -> None:
    """Crash at the command's first execution or delivery and at the next two starts, then start a bot that lives."""
    for text in ("new for Poison: 5 pro", None, None):
        await _dies_at(office, write, text)
    await office.start()


async def poisonous_command(office: Office) -> None:
    """A command is in progress at three crashes in a row, becomes a dead letter, and is executed when it is replayed."""
    await _dies_three_times_at(office, EXECUTING)
    await office.rest()


async def discarded_command(office: Office) -> None:
    """A command is in progress at three crashes in a row, becomes a dead letter, and an operator discards it."""
    await _dies_three_times_at(office, EXECUTING)
    assert office.bot is not None  # noqa: S101 -- just started
    ledger = office.bot.core.ledger
    for letter in await dead_letters(ledger).list():
        follow = terminal.follow(ledger)
        await dead_letters(ledger).discard(letter.reference, actor=ACTOR, reason=REASON, follow=follow)
    await office.rest()


async def poisonous_effect(office: Office) -> None:
    """An effect is in flight at three crashes in a row, becomes a dead letter, and is delivered when it is replayed."""
    await _dies_three_times_at(office, DELIVERING)
    await office.rest()


async def waiting_for_a_suspect(office: Office) -> None:
    """While an effect that was in flight at two crashes is tried alone, a command waits, and Slack delivers it again."""
    await _dies_at(office, DELIVERING, "new for Suspect: 5 pro")
    await _dies_at(office, DELIVERING)
    office.world.weather.arm("slack", "slow", method="conversations.history", times=1, delay=9.0)
    await office.start()
    await asyncio.sleep(1)
    await office.types("new for Patient: 5 pro")
    await office.world.courier.redeliver(newest_delivery(office.world).request_id, "resend", 1)
    await office.rest()


async def late_results(office: Office) -> None:
    """Another bot claims a command, then an effect, sleeps until a second bot has done them, and then returns its results."""
    await _dies_at(office, "reserve", "new for Late: 5 pro")
    async with _another(office) as other:
        (operation,) = await other.claim_operations(1)
        await _dies_at(office, "execute")
        await other.retry_operation(operation, LATE, 0)
    async with _another(office) as other:
        (effect,) = await other.claim_effects({"slack.post": 1})
        await office.start()
        await office.rest()
        await other.settle(effect, Retry(LATE, 0, spent=False))


async def all_at_once(office: Office) -> None:
    """A person finds no bot running; then several people act at the same time, one of them twice."""
    await office.types("new for Nobody: 5 pro")
    await office.start()
    typing = [asyncio.create_task(office.types(f"new for Customer {number}: 5 pro")) for number in range(3)]
    await asyncio.sleep(0)
    await office.world.courier.redeliver(newest_delivery(office.world).request_id, "resend", 2)
    await asyncio.gather(*typing)
    await office.rest()


async def wrong_clock(office: Office) -> None:
    """A person sets the clock back by an hour."""
    await office.start()
    await office.types("new for Early: 5 pro")
    await office.rest()
    office.put_clock(-3_600_000)
    await office.types("new for Earlier: 5 pro")
    await office.rest()


@contextlib.asynccontextmanager
async def _another(office: Office) -> AsyncIterator[Ledger]:
    """Yield a bot's ledger with its own epoch and no workers."""
    settings, clock = office.settings, office.clock
    audit = open_audit(settings)
    database = await open_database(settings, audit, clock, bot=False, engine=InlineDatabase)
    try:
        epoch = await recovery.begin_epoch(database, clock.now_ms(), role="bot", build="another", alone=False, replica="another")
        yield Ledger(database, clock, audit, epoch=epoch, lease_seconds=settings.lease_seconds, pin=store.head_version)
    finally:
        await database.close()


SCENES: Final[tuple[Scene, ...]] = (
    poisonous_command,
    discarded_command,
    poisonous_effect,
    waiting_for_a_suspect,
    late_results,
    all_at_once,
    wrong_clock,
)
