"""Moves of two processes on one ledger: the verbs that the model knows (model_machine.py), and those of several bots."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.cluster.load import request_about
from faults.lab.postgres import START_MS
from ledger.ledger import Ledger, no_follow_ups
from ledger.operator.actions import cancel_effect, cancel_operation
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Drop, EffectIntent, Fail, Hold, Outcome, Retry, Trouble, Uncertain
from ledger.recovery import begin_epoch, give_back, renew_leases, take_back_dead, take_back_lapsed
from ledger.retention import purge

if TYPE_CHECKING:
    from faults.lab.postgres import HeldDatabase, Place
    from ledger.database import Database, Tx
    from ledger.records import Effect, Operation, Request, Settlement

QUOTES: Final = ("Q-1", "Q-2")
CLASSES: Final = ("slack.post", "slack.reply", "crm.create")
BUG: Final = Trouble("internal", "a bug")
LEASE_SECONDS: Final = 2
YEAR_MS: Final = 365 * 86_400_000


class StillClock:
    """Clock of both processes; it moves only between two steps."""

    def __init__(self) -> None:
        self.now = START_MS

    def now_ms(self) -> int:
        """Return the time."""
        return self.now

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now / 1000


class Process:
    """One of two processes, with what it has claimed."""

    beside: Process  # the other one

    def __init__(self, ledger: Ledger, database: HeldDatabase, drawn: random.Random, requests: Counter[str]) -> None:
        self.ledger = ledger
        self.letters = DeadLetters(ledger, build="1.0")
        self.database = database
        self.drawn = drawn
        self.operations: list[Operation] = []
        self.effects: list[Effect] = []
        self._requests = requests  # of both processes: how many so far, by aggregate

    async def reserve(self, quote: str | None = None) -> None:
        """Reserve a new command of a quote."""
        aggregate = quote or self.drawn.choice(QUOTES)
        self._requests[aggregate] += 1
        await self.ledger.reserve(_request(aggregate, self._requests[aggregate]))

    async def reserve_again(self) -> None:
        """Reserve the newest command of a quote once more, or for the first time."""
        aggregate = self.drawn.choice(QUOTES)
        await self.ledger.reserve(_request(aggregate, self._requests[aggregate] + self.drawn.choice((0, 1))))

    async def claim(self) -> None:
        """Claim commands."""
        self.operations += await self.ledger.claim_operations(1)

    async def execute(self) -> None:
        """Execute a claimed command, with effects of which one waits for another, and one replaces an earlier one."""
        if self.operations:
            operation = self.operations.pop(0)
            there = await self.database.read(lambda tx: tx.all("effects_of_aggregate", aggregate_id=operation.aggregate_id))
            posts = [row["effect_key"] for row in there if row["class"] == "slack.post"]
            await self.ledger.execute(operation, partial(_decide, operation.aggregate_id, posts[-1] if posts else None))

    async def take(self) -> None:
        """Claim effects."""
        self.effects += await self.ledger.claim_effects(dict.fromkeys(CLASSES, 1), families={"crm": 1})

    async def deliver(self) -> None:
        """Settle a claimed effect as done."""
        await self._settle(Delivered("ref", {}))

    async def fail_for_now(self) -> None:
        """Settle it as failed because the service is away."""
        await self._settle(Retry(Trouble("unavailable", "away", unavailable=True), delay_ms=1000))

    async def leave_uncertain(self) -> None:
        """Settle it as uncertain."""
        await self._settle(Uncertain(Trouble("timeout", "no answer", maybe_sent=True), delay_ms=1000))

    async def fail(self) -> None:
        """Settle it as failed for good."""
        await self._settle(Fail(Trouble("refused", "no")))

    async def refuse_login(self) -> None:
        """Settle it as refused because of the login."""
        await self._settle(Hold(Trouble("auth", "login refused")))

    async def pause(self) -> None:
        """Hold a family of effects."""
        await self.ledger.pause("slack", "operator", "maintenance")

    async def resume(self) -> None:
        """Resume a family of effects."""
        await self.ledger.resume("slack", "operator")

    async def cancel(self) -> None:
        """Cancel the newest command that waits."""

        def work(tx: Tx) -> None:
            for row in tx.all("operations_waiting", lane=self.drawn.choice(QUOTES), before=self.ledger.clock.now_ms(), limit=1):
                cancel_operation(
                    self.ledger,
                    tx,
                    row["id"],
                    actor="operator",
                    reason="no longer wanted",
                    now=self.ledger.clock.now_ms(),
                    answer=lambda _tx, _operation, _reason: ({"code": "canceled"}, ()),
                )

        await self.ledger.database.write("cancel_operation", work)

    async def renew(self) -> None:
        """Renew the leases."""
        await renew_leases(self.ledger)

    async def retry_command(self) -> None:
        """Return a claimed command to the queue after a bug."""
        if self.operations:
            await self.ledger.retry_operation(self.operations.pop(0), BUG, 1_000)

    async def give_up_command(self) -> None:
        """Give a claimed command up."""
        if self.operations:
            await self.ledger.fail_operation(self.operations.pop(0), BUG, {}, ())

    async def shelve_command(self) -> None:
        """Leave a claimed command to a newer build."""
        if self.operations:
            await self.ledger.shelve_operation(self.operations.pop(0), "of a newer build", 1_000)

    async def take_old(self) -> None:
        """Claim effects of classes whose effects are soon too old."""
        ages = dict.fromkeys(CLASSES, 1)
        self.effects += await self.ledger.claim_effects(dict.fromkeys(CLASSES, 1), max_age_ms=ages)

    async def record_step(self) -> None:
        """Make a step of a claimed effect durable."""
        if self.effects:
            self.effects[0] = await self.ledger.record_step(self.effects[0], "0", {})

    async def drop(self) -> None:
        """Settle an effect as needless."""
        await self._settle(Drop(Trouble("superseded", "needless")))

    async def cancel_effect(self) -> None:
        """Cancel an effect that waits."""
        reference = await self._newest_effect("pending")
        if reference is not None:
            why: dict[str, Any] = {"actor": "operator", "reason": "typo", "now": self.ledger.clock.now_ms()}
            await self.ledger.database.write(
                "cancel_effect", lambda tx: cancel_effect(self.ledger, tx, int(reference), **why, follow=no_follow_ups)
            )

    async def replay(self) -> None:
        """Replay a failed effect."""
        reference = await self._newest_effect("failed")
        if reference is not None:
            await self.letters.replay(reference, actor="operator", reason=None, follow=no_follow_ups)

    async def look(self) -> None:
        """Have an uncertain effect looked for now."""
        reference = await self._newest_effect("uncertain")
        if reference is not None:
            await self.letters.replay(reference, actor="operator", reason=None, follow=no_follow_ups, look_now=True)

    async def discard(self) -> None:
        """Discard a failed effect."""
        reference = await self._newest_effect("failed")
        if reference is not None:
            await self.letters.discard(reference, actor="operator", reason="gone", follow=no_follow_ups)

    async def find_it_there(self) -> None:
        """Say that an effect of unknown outcome was delivered."""
        await self._resolve(delivered=True)

    async def send_it_again(self) -> None:
        """Say that an effect of unknown outcome was not delivered."""
        await self._resolve(delivered=False)

    async def reap(self) -> None:
        """Take the other process for dead, and its claims back."""
        epoch = self.beside.ledger.epoch
        await take_back_dead(self.ledger, [] if epoch is None else [epoch])

    async def take_lapsed(self) -> None:
        """Take back claims whose leases have lapsed."""
        await take_back_lapsed(self.ledger)

    async def stop(self) -> None:
        """Release the claims of this process, as at its end."""
        await give_back(self.ledger)
        self.operations.clear()
        self.effects.clear()

    async def purge(self) -> None:
        """Purge rows past their retention period."""
        await purge(self.ledger, self.ledger.clock.now_ms() + 2 * YEAR_MS, dry_run=False, between=_at_once)

    async def _newest_effect(self, *states: str) -> str | None:
        """Return the reference of the newest effect of a quote in one of these states, or None."""
        quote = self.drawn.choice(QUOTES)
        there = await self.database.read(lambda tx: tx.all("effects_of_aggregate", aggregate_id=quote))
        found = [row["id"] for row in there if row["state"] in states]
        return str(max(found)) if found else None

    async def _resolve(self, *, delivered: bool) -> None:
        reference = await self._newest_effect("uncertain", "failed")
        if reference is not None:
            why: dict[str, Any] = {"actor": "operator", "reason": "I looked", "follow": no_follow_ups}
            await self.letters.resolve(reference, delivered=delivered, **why)

    async def _settle(self, settlement: Settlement) -> None:
        if self.effects:
            await self.ledger.settle(self.effects.pop(0), settlement)


def _decide(quote: str, after: str | None, tx: Tx) -> Outcome:
    del tx
    effects = (
        EffectIntent("slack.post", "append", quote, quote, {"text": "card"}, supersede_key=f"card:{quote}"),
        EffectIntent("slack.reply", "repeat_once", quote, quote, {"text": "reply"}, after=after),
        EffectIntent("crm.create", "convergent", quote, quote, {"Name": "quote"}),
    )
    return Outcome("applied", {"code": "ok"}, effects)


MOVES: Final = tuple(name for name in vars(Process) if not name.startswith("_"))


def _request(aggregate: str, number: int) -> Request:
    return replace(request_about(aggregate, START_MS), source_request_id=f"T01:{aggregate}:{number}")


async def two_processes(place: Place, seed: int) -> tuple[Process, Process, StillClock]:
    """Return two processes on an empty ledger."""
    place.empty()
    clock, drawn, requests = StillClock(), random.Random(seed), Counter[str]()  # noqa: S311 -- repeatable
    made = []
    for database in place.databases:
        port: Database = database  # type: ignore[assignment] # the part that a ledger uses
        epoch = await begin_epoch(port, clock.now_ms(), role="bot", build="1.0", alone=False, replica=database.name)
        made.append(
            Process(Ledger(port, clock, database.audit, epoch=epoch, lease_seconds=LEASE_SECONDS), database, drawn, requests)
        )
    made[0].beside, made[1].beside = made[1], made[0]
    return made[0], made[1], clock


async def prepared(first: Process, other: Process) -> None:
    """Bring the ledger into a state in which each move has something to do.

    Each process has claimed a command of one quote and effects of the other quote.
    """
    for quote, process, taker in ((QUOTES[0], first, other), (QUOTES[1], other, first)):
        await process.reserve(quote)
        await process.claim()
        await process.execute()
        await taker.take()
    for quote, process in zip(QUOTES, (first, other), strict=True):
        await process.reserve(quote)
        await process.reserve(quote)
        await process.claim()


async def _at_once() -> None:
    """Pause between two batches of a purge: does nothing here."""
