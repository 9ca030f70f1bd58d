"""Stage of a named scenario: a fresh local world, the real bot as its own process, and an operator's command line.

A scenario states its expectations with `Stage.fact`: the first fact that does not hold ends it, with its name and the observed
value.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import aiohttp

import quotebot
from faults.checks import checker
from faults.harness.rig import BotProcess, Deal, Json, eventually
from ledger.sqlite.locks import WriteGate
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from faults.harness.bot import KillPlan

Priority = Literal["P0", "P1", "P2"]
Mode = Literal["fail_once", "fail_n", "always_fail", "timeout", "crash_after", "duplicate_replay"]

SCENARIO_SECONDS: Final = 300.0  # a busy machine takes twenty times as long as an idle one
LOOKED_UP: Final = ["claimed", "uncertain"]
SEEN_CHARACTERS_MAX: Final = 600
PACKAGES: Final = ("quotebot", "ledger", "adapters")


class DidNotHoldError(AssertionError):
    """A fact of a scenario did not hold."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One named scenario. `play` returns what held, in a few words.

    `waits_for` names the part of the product that must exist before the scenario can be played at all, `unchecked` what it cannot
    check yet.
    """

    id: str
    priority: Priority
    modes: tuple[Mode, ...]
    title: str
    happens: str
    holds: str
    play: Callable[[Stage], Awaitable[str]] | None
    waits_for: str = ""
    unchecked: str = ""
    needs_file: bool = False  # about the ledger's file


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a `quotebot` command: exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The parsed JSON of its stdout."""
        return json.loads(self.out)


class Stage:
    """One scenario's world, bot and people. `folder` contains all its records: the ledger, the bot's log, the request log.

    `database` is the address of the ledger if it is not a file there.
    """

    def __init__(self, world: World, folder: Path, session: aiohttp.ClientSession, database: str | None = None) -> None:
        self.world = world
        self.folder = folder
        self.database = database
        self.deal = Deal(world.url, folder / "bot", session, database)
        self._bots: list[BotProcess] = []

    @property
    def ledger_path(self) -> Path:
        """Path of the bot's ledger file."""
        return self.folder / "bot" / "ledger.db"

    async def documents(self) -> list[str]:
        """Return the SHA-256 of each stored document, and the name of any other file beside them."""
        if self.database is not None:
            return [row["sha256"] for row in await self.deal.rows("SELECT sha256 FROM artefact_blobs ORDER BY sha256")]
        return sorted(path.name.removesuffix(".pdf") for path in (self.folder / "bot").glob("artefacts/*"))

    def locked(self) -> AbstractContextManager[object]:
        """Hold a lock that stops every use of the ledger, as a tool or a person could."""
        if self.database is None:
            return _taken(self.ledger_path)
        from faults.lab import ledgers  # noqa: PLC0415 -- its driver is an extra

        return ledgers.locked(self.database)

    def written_by_another(self) -> AbstractContextManager[object]:
        """Write from another process that does not finish."""
        if self.database is None:
            return _gate(self.ledger_path)
        from faults.lab import ledgers  # noqa: PLC0415 -- as above

        return ledgers.written_alone(self.database)

    @property
    def bot(self) -> BotProcess:
        """The bot that was started last."""
        return self._bots[-1]

    async def start(self, plan: KillPlan | None = None, **environment: str) -> Deal:
        """Start a bot on the stage's ledger, as shipped or under a kill plan, with these settings in addition to the world's.

        Returns the client that drives the deal.
        """
        if self.database is not None:
            environment |= {"QUOTEBOT_LEDGER_URL": self.database, "QUOTEBOT_LEDGER_DURABILITY": "local"}
        bot = BotProcess(self.world, self.folder / "bot", self.folder / "bot.log", **environment)
        self._bots.append(bot)
        await bot.start(plan)
        return self.deal

    async def end(self) -> None:
        """Stop the bots that still run."""
        for bot in self._bots:
            if bot.started:
                await bot.stop()

    def fact(self, fact: str, held: object, seen: object = None) -> None:
        """Expect a fact, given as a sentence. Raises DidNotHoldError with the observed value otherwise."""
        if not held:
            raise DidNotHoldError(fact if seen is None else f"{fact} (seen: {str(seen)[:SEEN_CHARACTERS_MAX]})")

    def equal(self, fact: str, seen: object, expected: object) -> None:
        """Expect a fact that is an equality."""
        self.fact(fact, seen == expected, f"{seen!r}, not {expected!r}")

    async def until_card_says(self, words: str) -> None:
        """Wait until the newest card contains these words."""
        await eventually(self.deal.card_text, f'the card to say "{words}"', holds=lambda text: words in text)

    async def again(self, request_id: str, times: int = 3) -> list[Json | None]:
        """Redeliver a request, `times` times byte-identical and `times` times as Slack's retry, all at once; return the acks."""
        answers = await asyncio.gather(*(self.deal.redeliver(request_id, kind, times) for kind in ("resend", "retry")))
        return [answer["ack"] for some in answers for answer in some]

    async def until_counted(self, duplicates: int) -> None:
        """Wait until the audit has this number of duplicates: each is answered first and counted later."""
        await eventually(
            lambda: self.count("audit_events WHERE event_type = 'delivery.duplicate'"),
            f"{duplicates} duplicates to be counted",
            holds=lambda counted: counted == duplicates,
        )

    async def audited(self, subject: str, expected: str) -> None:
        """Expect the exact moves and changes that the audit has of the first command of a kind, or of the first effect of a class.

        A duplicate is counted after its answer, so its place varies; so does the number of lookups before an answer counts. The
        effects that an effect enqueues are checked by I2.
        """
        events = await self.deal.rows(
            "SELECT event_type FROM audit_events WHERE event_type NOT IN ('delivery.duplicate', 'effect.owed')"  # noqa: S608 -- ours
            " AND event_type NOT LIKE 'class.%' AND ("
            f" effect_id = (SELECT min(id) FROM effects WHERE class = '{subject}') OR effect_id IS NULL AND operation_key ="
            f" (SELECT operation_key FROM operations WHERE action_kind = '{subject}' ORDER BY id LIMIT 1)) ORDER BY id"
        )
        found: list[str] = []
        for event in events:
            found.append(event["event_type"].removeprefix("effect.").removeprefix("operation."))
            if found[-4:] == LOOKED_UP * 2:
                del found[-2:]
        self.equal(f"the audit of {subject} is exactly this", " ".join(found), expected)

    async def count(self, what: str) -> int:
        """Count rows of the ledger; `what` is SQL of a scenario, from the table's name on."""
        (row,) = await self.deal.rows(f"SELECT count(*) AS n FROM {what}")  # noqa: S608 -- a scenario's own text
        return int(row["n"])

    async def attempts(self, effect_class: str) -> list[Json]:
        """Return the ended attempts of a class, oldest first."""
        every = await self.deal.rows(
            "SELECT e.class, a.outcome, a.category, a.error, a.delay_ms, a.http_status FROM attempts AS a "
            "JOIN effects AS e ON e.id = a.effect_id ORDER BY a.id"
        )
        return [row for row in every if row["class"] == effect_class]

    async def ends(self, effect_class: str) -> list[tuple[str, str | None]]:
        """Return the outcome and the category of each of these attempts."""
        return [(row["outcome"], row["category"]) for row in await self.attempts(effect_class)]

    async def quotebot(self, *arguments: str) -> CommandResult:
        """Run the command line as an operator would while the bot runs."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "quotebot",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.bot.environment},
        )
        out, err = await process.communicate()
        return CommandResult(process.returncode or 0, out.decode(), err.decode())

    async def dead_letter(self) -> Json:
        """Return the one open dead letter: its id for the command line, class, aggregate_id, attempts."""
        letters = await self.deal.rows("SELECT id, class, aggregate_id, attempts FROM dead_letters WHERE status = 'pending'")
        self.equal("there is one dead letter", len(letters), 1)
        return {**letters[0], "id": str(letters[0]["id"])}


@contextmanager
def _taken(ledger: Path) -> Iterator[None]:
    with closing(sqlite3.connect(ledger, isolation_level=None)) as somebody:
        somebody.execute("BEGIN EXCLUSIVE")
        yield
        somebody.execute("ROLLBACK")


@contextmanager
def _gate(ledger: Path) -> Iterator[None]:
    with closing(WriteGate(ledger, "drill")) as gate, gate:
        yield


async def perform(scenario: Scenario, folder: Path, database: str | None = None) -> str:
    """Play one scenario in this folder, then check every invariant; return what held. Raises AssertionError and TimeoutError.

    `database` is the address of an empty database for the ledger; None: it is a file in the folder.
    """
    if scenario.play is None:
        raise ValueError(f"{scenario.id} waits for {scenario.waits_for}")
    async with (
        asyncio.timeout(SCENARIO_SECONDS),
        World(folder / "world").serve() as world,
        aiohttp.ClientSession() as session,
    ):
        stage = Stage(world, folder, session, database)
        try:
            held = await scenario.play(stage)
            await checker.nothing_under_way(stage.deal)
            stage.equal("every invariant holds", await checker.violations_of(stage.deal), [])
            stage.equal("the bot stops cleanly when asked to", await stage.bot.stop(), 0)
            return held
        finally:
            await stage.end()


def amended(folder: Path, file: str, old: str, new: str) -> dict[str, str]:
    """Make another build of the product under `folder`, with `old` replaced in `file`; return the environment that starts its bot.

    So a broken template or a wrong mapping is the same as in production, an error in the installed code, and production needs no
    switch for it.

    Raises ValueError if the text is not in the file exactly once: the scenario no longer fits the product then.
    """
    installed, copy = Path(quotebot.__file__).resolve().parent.parent, folder / "installation"
    for package in PACKAGES:
        shutil.copytree(installed / package, copy / package)  # compiled files too: the bot starts as fast as before
    path = copy / file
    text = path.read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file} does not hold {old!r} exactly once: amend the scenario")
    path.write_text(text.replace(old, new), "utf-8")
    return {"PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
