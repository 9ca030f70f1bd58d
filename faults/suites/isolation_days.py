"""Simulated days of two bots on one ledger in PostgreSQL, whose transactions meet (faults/lab/meeting.py).

A day lasts a minute, so that the bots work at the same time: people, duplicates, injected faults, operators and crashes, all from
one seed. At its end every invariant holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import traceback
from typing import TYPE_CHECKING, Any, Final

from faults.checks.checker import violations
from faults.lab import ledgers, place
from faults.lab.bot import Conditions, LabBot, remember_tasks
from faults.lab.days import Office
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.meeting import Judge, Meeting, MeetingDatabase
from faults.lab.outcome import outside_of
from faults.lab.setting import lab_settings
from faults.lab.traps import Trap
from quotebot.app.postgres_storage import statements

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from faults.lab.meeting import Ended
    from quotebot.settings import Settings

BOTS: Final = ("east", "west")
DAY_SECONDS: Final = 60.0
COMMANDS: Final = 80
POLL_SECONDS: Final = 10.0
_OPEN: Final = "SELECT epoch FROM epochs WHERE ended_at IS NULL AND role = 'bot'"


class LabOwner:
    """Ownership of a laboratory's bot: which of the others live is known without locks."""

    alone = False
    term = 0

    def __init__(self, name: str, office: SharedOffice) -> None:
        self.name = name
        self._office = office

    def is_held(self) -> bool:
        """Return true while the bot lives."""
        return True

    async def dead_epochs(self) -> list[int]:
        """Return the epochs of bots that were killed."""
        dead = self._office.dead
        if dead:
            dead &= {row["epoch"] for row in ledgers.read_database(self._office.url, _OPEN)}
        return sorted(dead)

    async def count(self) -> int:
        """Return the number of bots alive."""
        return max(1, len(self._office.started()))

    async def leads(self) -> bool:
        """Return true: each must stay correct though another leads, too."""
        return True


class SharedOffice(Office):
    """Two bots and their World. Envelopes go to either."""

    late_seconds = (0.0, 0.1, 3.0, 20.0)
    pause_seconds = (5.0, 30.0)
    retry_seconds = (1, 5, 20)

    def __init__(self, url: str, folder: Path, clock: LabClock, seed: int) -> None:
        self.url = url
        self._folder = folder
        super().__init__(self._settings_of(BOTS[0]), clock, seed)
        self.bots: dict[str, LabBot] = {}
        self.dead: set[int] = set()  # epochs of bots that were killed
        self.meeting = Meeting(lambda: Judge(url, statements()), random.Random(seed), self._poll)  # noqa: S311 -- repeatable

    def started(self) -> list[LabBot]:
        """Return the bots that run."""
        return [bot for bot in self.bots.values() if bot.alive]

    async def start(self) -> None:
        """Start every bot that does not run."""
        for name in BOTS:
            if name not in self.bots:
                await self._start(name)

    async def crash(self) -> None:
        """Kill one of the bots, and start it again after a pause."""
        name = self.chance.choice(BOTS)
        bot = self.bots.pop(name, None)
        if bot is None:
            return
        self.counts["crashes"] += 1
        self.tell(f"{name} is killed")
        if bot.core.ledger.epoch is not None:
            self.dead.add(bot.core.ledger.epoch)
        await bot.crash()
        self.bot = next(iter(self.started()), None)
        await asyncio.sleep(self.chance.choice((0.5, 5.0, 20.0)))
        if name not in self.bots:
            await self._start(name)

    async def stop(self) -> None:
        """Stop the bots in order."""
        self.bot = None
        while self.bots:
            name, bot = self.bots.popitem()
            await bot.stop()
            self.tell(f"{name} is stopped")

    def receiver(self) -> LabBot | None:
        """Return one of the bots."""
        found = self.started()
        return self.chance.choice(found) if found else None

    async def day(self, commands: int) -> None:
        """Run one short day, then bring everything to rest."""
        plan: list[tuple[float, Coroutine[Any, Any, None]]] = [
            (self.chance.uniform(0, DAY_SECONDS), self._somebody()) for _ in range(commands)
        ]
        for what, most in ((self._faults, 3), (self.crash, 3), (self._pause, 1), (self._operator, 2)):
            plan += [(self.chance.uniform(0, DAY_SECONDS), what()) for _ in range(self.chance.randint(0, most))]
        await asyncio.gather(*(self._at(moment, work) for moment, work in sorted(plan, key=lambda entry: entry[0])))
        await self.start()
        await self.rest()

    async def whole_day(self, commands: int) -> None:
        """Start the bots, run the day and stop the bots."""
        await self.start()
        await self.day(commands)
        await self.stop()

    async def _start(self, name: str) -> None:
        chance = self.chance
        settings = self._settings_of(name)
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        for key in self.settings.data_dir.glob("audit-*.key"):
            if settings.data_dir != self.settings.data_dir:
                shutil.copy(key, settings.data_dir)
        conditions = Conditions(
            self.clock,
            self.world,
            Trap(),
            chance.uniform,
            lambda: chance.uniform(0.02, 0.3),
            LabOwner(name, self),
            type("OfficeDatabase", (MeetingDatabase,), {"meeting": self.meeting}),
            POLL_SECONDS,
        )
        bot = LabBot(settings, conditions)
        await bot.start()
        self.bots[name] = self.bot = bot
        self.tell(f"{name} is up")

    def _settings_of(self, name: str) -> Settings:
        return lab_settings(self._folder / name, ledger_url=self.url, replica_name=name)

    def _poll(self) -> None:
        for bot in self.started():
            bot.core.ledger.operations_changed.set()
            bot.core.ledger.effects_changed.set()


def live(url: str, seed: int, folder: Path, commands: int = COMMANDS) -> tuple[Sequence[Ended], list[str]]:
    """Simulate the day of a seed on an unused ledger. Returns the pairs that met, and violations of the invariants."""
    clock = LabClock()
    loop = VirtualLoop(clock)
    remember_tasks(loop)
    office = SharedOffice(url, folder, clock, seed)
    found: list[str] = []

    try:
        loop.run_until_complete(office.whole_day(commands))
        found += broken(office)
    except Exception:  # noqa: BLE001 -- a violation like any other
        found.append(traceback.format_exc())
    with contextlib.suppress(RuntimeError):
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    office.meeting.close()
    return office.meeting.pairs, found


def broken(office: SharedOffice) -> list[str]:
    """Return the violations of an office at rest."""
    house = place.house(office.settings)
    with place.reading(office.settings) as ledger:
        return violations(ledger, outside_of(office.world), office.history, at_rest=True, house=house)
