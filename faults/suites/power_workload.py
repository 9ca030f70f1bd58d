"""A few days of work for the disk: every kind of write of the ledger, through production code, each noted when it was answered.

The clock advances by one tick per write only, so a write can be found by its time: in the audit, or in the row it made. `Fact`
records that time; a later check needs none of the code under test.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from adapters.policies import POLICIES, Matrix
from ledger import recovery
from ledger.audit.events import Audit
from ledger.audit.keyring import load_keyring
from ledger.claims import POISON_CLAIMS, STORED_AS
from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, WritesRefused
from ledger.ledger import Ledger
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, EffectIntent, Fail, Hold, Request, Retry, Trouble, Uncertain
from quotebot import effects
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage
from quotebot.commands.payloads import CreateQuote, DecideApproval, SubmitQuote
from quotebot.dispatch.registry import follow_ups
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.catalogue.rulesets import parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PriceRequest
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.rules import Rules
from quotebot.execution.executor import Executor, failure_answer
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.store import quotes as store

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from ledger.database import Database, Tx
    from ledger.records import Effect, FollowUps, Operation, Settlement
    from quotebot.commands.registry import Payload

T = TypeVar("T")

MORNING_MS: Final = 1_795_257_060_000  # 21 Nov 2026 10:31 UTC
FILE_NAME: Final = "ledger.db"
IDLE_SECONDS: Final = 0.08  # longer than the writer waits before it checkpoints the WAL
SETTLE_MS: Final = 60_000  # longer than any row waits before its next check
ROUNDS_TO_FINISH: Final = 200
HANGS_SECONDS: Final = 100.0
ENDING_SECONDS: Final = 5.0  # the threads of closing connections take milliseconds to end
REP: Final = "U0REP"
MANAGER: Final = "U0MANAGER"
LINES: Final = (LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1))
OUTAGE: Final = Trouble("transient", "The other side did not answer.", maybe_sent=True)
GONE: Final = Trouble("validation", "The other side refused it for good.")
IN_AUDIT: Final = "SELECT count(*) FROM audit_events WHERE at = ?"
IN_EPOCHS: Final = "SELECT count(*) FROM epochs WHERE started_at = ?"
IN_STEPS: Final = "SELECT count(*) FROM effects WHERE json_extract(steps, '$.ticket.at') = ?"

Told = Literal["recorded", "not recorded", "unknown"]


@dataclass(slots=True)
class TickingClock:
    """Clock that advances one millisecond per write, and only then."""

    ms: int = MORNING_MS

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return self.ms

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self.ms / 1000


@dataclass(frozen=True, slots=True)
class Fact:
    """The result that one write's caller got, after `seen` events. `sql`, run with `at`, counts what the write left."""

    what: str
    at: int
    sql: str
    told: Told
    seen: int


@dataclass(slots=True)
class Diary:
    """The results that the callers got, in order. `seen` counts the file-system events so far."""

    seen: Callable[[], int] = lambda: 0
    facts: list[Fact] = field(default_factory=list)
    quotes: list[str] = field(default_factory=list)
    ended_by: str | None = None  # why the process had to end: it could not continue safely

    def note(self, what: str, at: int, sql: str, told: Told) -> None:
        """Note the result that a caller just got."""
        self.facts.append(Fact(what, at, sql, told, self.seen()))


class ProcessEnds(Exception):  # noqa: N818 -- the fact
    """The bot would end its process here."""


@cache
def rules() -> Rules:
    """Return the rules that the bot is shipped with; read once."""
    data = files("quotebot").joinpath("data")
    return Rules(
        parse_ruleset_toml(data.joinpath("catalogue.toml").read_text("utf-8")),
        parse_policy(data.joinpath("policy.toml").read_text("utf-8")),
        dict.fromkeys(("sales_manager", "deal_desk", "vp_sales", "cfo", "legal"), (MANAGER,)),
    )


def audit_of(folder: Path) -> Audit:
    """Return the audit with the keys in this folder."""
    return Audit(DOMAIN_EVENTS, load_keyring(folder))


class Work:
    """One process's work on a ledger. `rng` chooses actions and people; `diary` records the result of each write."""

    def __init__(
        self, database: Database, front: Database, clock: TickingClock, audit: Audit, diary: Diary, rng: random.Random
    ) -> None:
        self.ledger = Ledger(database, clock, audit, pin=store.head_version)
        self.front = Ledger(front, clock, audit, pin=store.head_version)  # it reserves: see quotebot/app/front.py
        self._clock = clock
        self._diary = diary
        self._rng = rng
        self._executor = Executor(self.ledger, rules(), lambda low, _: low, Matrix(POLICIES))
        self._requests = 0

    # ------------------------------------------------------------------------------------------------------ one write

    async def _answered(self, what: str, write: Callable[[], Awaitable[T]], sql: str = IN_AUDIT) -> T | None:
        """Run `write` in a millisecond of its own and note its result, unless it may leave nothing to find later (sql is "").

        Raises ProcessEnds where the bot would end.
        """
        self._clock.ms += 1
        at = self._clock.ms
        done: T | None = None
        told: Told = "recorded"
        end: DatabaseError | None = None
        try:
            done = await write()
        except (WritesRefused, OutcomeUnknown) as error:
            told, end = "unknown" if isinstance(error, OutcomeUnknown) else "not recorded", error
        except NotRecorded:
            told = "not recorded"
        if sql and (done or done is None):  # an empty claim wrote nothing
            self._diary.note(what, at, sql, told)
        if end is not None:
            self._diary.ended_by = str(end)
            raise ProcessEnds from end
        return done

    async def start(self) -> None:
        """Recover, as a bot does at start."""
        database = self.ledger.database
        self.ledger.epoch = await self._answered(
            "epoch", lambda: recovery.begin_epoch(database, self._clock.ms, role="bot", build="power"), IN_EPOCHS
        )
        if self.ledger.epoch is None:
            raise ProcessEnds
        await self._answered("take back", lambda: recovery.take_back(self.ledger, answer=self._answer, follow=self._follow), "")

    def _answer(self, tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
        return failure_answer(tx, operation, "it failed again and again", self._clock.ms)

    def _follow(self, tx: Tx, effect: Effect) -> FollowUps:
        return follow_ups(tx, effect, self._clock.ms)

    # ------------------------------------------------------------------------------------------------------- commands

    async def ask(self, *asked: tuple[Payload, str, int, str]) -> None:
        """Reserve commands at the same time: they share a commit. Each is (payload, quote, version, person)."""
        await _together([self._reserve(*each) for each in asked])

    async def _reserve(self, payload: Payload, quote_id: str, version: int, person: str) -> None:
        self._requests += 1
        request = Request(
            source="slack_slash" if quote_id == "new" else "slack_interactive",
            source_request_id=f"T0HOME:{self._clock.ms}.{self._requests}",
            action_kind=payload.kind,
            aggregate_id=quote_id,
            aggregate_version=version,
            payload=payload.canonical(),
            fingerprint="f" * 64,
            actor=person,
            actor_type="user",
            team_id="T0HOME",
            received_at=self._clock.ms,
            transport={"actor_name": "somebody"},
        )
        await self._answered(f"reserve {payload.kind}", lambda: self.front.reserve(request))

    def creation(self) -> tuple[Payload, str, int, str]:
        """Return a command that creates a quote."""
        account = f"Account {self._rng.randrange(10**9)}"
        return CreateQuote(account, PriceRequest(LINES, 12, Decimal(self._rng.choice((5, 15, 15, 18)))), "C0SALES"), "new", 0, REP

    async def execute(self) -> None:
        """Claim the reserved commands and decide them, all at once."""
        claimed = await self._answered("claim", lambda: self.ledger.claim_operations(64)) or []
        await _together([self._execute(operation) for operation in claimed])

    async def _execute(self, operation: Operation) -> None:
        if self._rng.random() < 0.1:  # noqa: PLR2004 -- one in ten
            await self._answered("retry", lambda: self.ledger.retry_operation(operation, OUTAGE, 0))
            return
        if operation.action_kind == "quote.submit" and self._rng.random() < 0.15:  # noqa: PLR2004 -- now and then
            response = {"code": "failed", "quote_id": operation.aggregate_id, "text": "It failed."}
            answer = await self.ledger.database.read(lambda tx: self._answer(tx, operation))
            await self._answered("bury", lambda: self.ledger.fail_operation(operation, GONE, response, answer))
            return
        done = await self._answered(
            "execute", lambda: self.ledger.execute(operation, lambda tx: self._executor.decide(tx, operation))
        )
        if done is not None and done.kind == "applied" and operation.action_kind == CreateQuote.kind:
            self._diary.quotes.append(str(done.response["quote_id"]))

    async def go_on(self) -> None:
        """Submit and approve the present quotes, as people would."""
        known = tuple(self._diary.quotes)
        quotes = await self.ledger.database.read(lambda tx: [store.load(tx, quote_id) for quote_id in known])
        asked: list[tuple[Payload, str, int, str]] = []
        for quote in quotes:
            assert quote is not None  # noqa: S101 -- its creation was answered
            if quote.state is QuoteState.PRICED:
                asked.append((SubmitQuote(), quote.quote_id, quote.version, REP))
            elif quote.state is QuoteState.PENDING_APPROVAL and quote.approval is not None:
                asked.append((DecideApproval(quote.approval.approval_id, "approve"), quote.quote_id, quote.version, MANAGER))
        if asked:
            await self.ask(*asked)

    # -------------------------------------------------------------------------------------------------------- effects

    async def deliver(self) -> None:
        """Claim due effects and settle them with various results."""
        slots = dict.fromkeys(Matrix(POLICIES).lines, 4)
        claimed = await self._answered("claim effects", lambda: self.ledger.claim_effects(slots, follow=self._follow)) or []
        await _together([self._deliver(effect) for effect in claimed])

    async def _deliver(self, effect: Effect) -> None:
        if effect.effect_class == effects.FILE and "ticket" not in effect.steps:
            at = self._clock.ms + 1
            ticket = {"at": at, "file_id": f"F{at}"}
            if await self._answered("step", lambda: self.ledger.record_step(effect, "ticket", ticket), IN_STEPS) is None:
                return
        settlement = self._settlement(effect)
        await self._answered(f"settle {STORED_AS[type(settlement)]}", lambda: self.ledger.settle(effect, settlement, self._follow))

    def _settlement(self, effect: Effect) -> Settlement:
        chance = self._rng.random()
        if chance < 0.65 or effect.claims >= POISON_CLAIMS:  # noqa: PLR2004 -- most
            return _done(effect)
        if chance < 0.75:  # noqa: PLR2004 -- some
            return Retry(OUTAGE, delay_ms=0)
        if chance < 0.85 and effect.semantics == "append":  # noqa: PLR2004 -- some
            return Uncertain(OUTAGE, delay_ms=0)
        if chance < 0.95:  # noqa: PLR2004 -- some
            return Fail(GONE)
        return Hold(OUTAGE)

    async def operate(self) -> None:
        """Replay dead letters and resume paused classes, as an operator would."""
        letters = DeadLetters(self.ledger, build="power")
        for letter in await letters.list():
            await self._answered("replay", partial(letters.replay, letter.reference, actor="op", reason=None, follow=self._follow))
        for name in Matrix(POLICIES).lines:
            await self._answered("resume", partial(self.ledger.resume, name, "op"), "")

    # --------------------------------------------------------------------------------------------------------- days

    async def finish(self) -> None:
        """Finish all open work, as a bot does once all faults have ended; dead letters stay as they are."""
        for name in Matrix(POLICIES).lines:
            await self.ledger.resume(name, "op")
        slots = dict.fromkeys(Matrix(POLICIES).lines, 64)
        for _ in range(ROUNDS_TO_FINISH):
            self._clock.ms += SETTLE_MS
            self.ledger.effects_changed.clear()
            operations = await self.ledger.claim_operations(64)
            owed = await self.ledger.claim_effects(slots, follow=self._follow)
            executions = [self.ledger.execute(each, partial(self._executor.decide, operation=each)) for each in operations]
            await _together([*executions, *(self.ledger.settle(effect, _done(effect), self._follow) for effect in owed)])
            if not operations and not owed and not self.ledger.effects_changed.is_set():
                return

    async def one_of_each(self) -> None:
        """Do one of each kind of write, in as few commits as possible."""
        await self.ask(self.creation(), self.creation())
        await self.execute()
        await self.deliver()
        await self.operate()

    async def day(self, rounds: int) -> None:
        """Work: single and parallel commands, effects, an operator; a rest with a checkpoint of the WAL; claims left behind."""
        for number in range(rounds):
            await self.ask(self.creation())
            await self.execute()
            await self.ask(*(self.creation() for _ in range(self._rng.randrange(1, 4))))
            await self.execute()
            await self.deliver()
            await self.go_on()
            await self.execute()
            await self.deliver()
            await self.operate()
            await self.execute()
            await self.deliver()
            if number % 2 == 0:
                await asyncio.sleep(IDLE_SECONDS)
        await self.ask(self.creation(), self.creation())
        await self._answered("claim", lambda: self.ledger.claim_operations(1))
        slots = dict.fromkeys(Matrix(POLICIES).lines, 1)
        await self._answered("claim effects", lambda: self.ledger.claim_effects(slots, follow=self._follow))


async def live(
    folder: Path, clock: TickingClock, audit: Audit, diary: Diary, rng: random.Random, task: Callable[[Work], Awaitable[None]]
) -> None:
    """Run as a bot, both of its processes in one: open the ledger, recover, do the task, close. The diary notes an early end."""
    opened: list[Database] = []
    try:
        storage = SqliteStorage(folder / FILE_NAME, *schema_and_statements())
        opened.append(await storage.open(audit, clock, bot=True, copy_after=1))  # in every rest
        opened.append(await storage.open(audit, clock, bot=False, may_migrate=False, at_once=True))
    except DatabaseError as error:
        diary.ended_by = str(error)
        for database in opened:
            await database.close()
        return
    behind, front = opened
    work = Work(behind, front, clock, audit, diary, rng)
    try:
        await work.start()
        await task(work)
    except ProcessEnds:
        pass
    except sqlite3.Error as error:  # a read failed: the bot's workers would end it
        diary.ended_by = str(error)
    finally:
        for ledger, database in ((work.front, front), (work.ledger, behind)):
            await ledger.noted()
            await database.close()


def run_to_end(work: Coroutine[Any, Any, T], *, hangs_seconds: float = HANGS_SECONDS, ending_seconds: float = ENDING_SECONDS) -> T:
    """Run `work`, then wait for the threads of its connections, which call the loop once more; both waits are bounded.

    Raises TimeoutError if the work hangs.
    """
    return asyncio.run(_to_end(work, hangs_seconds, ending_seconds))


async def _to_end(work: Coroutine[Any, Any, T], hangs_seconds: float, ending_seconds: float) -> T:
    threads = set(threading.enumerate())
    try:
        return await asyncio.wait_for(work, hangs_seconds)
    finally:
        until = time.monotonic() + ending_seconds
        for thread in set(threading.enumerate()) - threads:
            if "_connection_worker" in thread.name:  # polling would only delay it
                # a connection that hung or was interrupted may never have been closed
                thread.join(max(0.0, until - time.monotonic()))
        await asyncio.sleep(0)


def _done(effect: Effect) -> Delivered:
    return Delivered(f"ref.{effect.id}", {"sha256": f"{effect.id:064x}", "ts": f"{effect.id}.0"})


async def _together(all_of_them: Sequence[Awaitable[object]]) -> None:
    """Wait until all have ended, then raise the first exception."""
    for end in await asyncio.gather(*all_of_them, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
