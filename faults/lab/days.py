"""Simulated days: people, Slack's duplicates, faults, operators, crashes and clock jumps around one bot, all from one seed.

All random choices come from the seed and everything runs on one virtual clock, so a seed gives the same run every time.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from faults.lab.bot import Conditions, LabBot
from faults.lab.client_record import record_of
from faults.lab.operators import ACTOR, REASON
from faults.lab.traps import Trap
from quotebot.app.installation import dead_letters
from quotebot.cli import terminal
from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.slack.courier import Ack
from quotebot.sandbox.slack.errors import GestureError
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from faults.checks.evidence import ClientRecord
    from faults.lab.loop import LabClock
    from quotebot.sandbox.slack.messages import Message
    from quotebot.settings import Settings

CHANNEL: Final = "C0DEALS"
REPS: Final = ("U0REP", "U0OPERATOR")
APPROVERS: Final = ("U0MANAGER", "U0MANAGER", "U0DEALDESK", "U0VP", "U0CFO")
WORKING_SECONDS: Final = 9 * 3600
HOUR: Final = 3600.0
HOUR_MS: Final = 3_600_000
METHODS: Final = {
    "slack": (
        "chat.postMessage",
        "chat.update",
        "response_url",
        "upload",
        "files.getUploadURLExternal",
        "files.completeUploadExternal",
    ),
    "salesforce": ("composite/graph", "oauth2/token", "sobjects/Quote"),
}
CHANGES: Final = (  # commands in a quote's lifecycle, allowed and not allowed ones
    "revise {quote}: discount {discount}%",
    "revise {quote}: add 7 pro",
    "submit {quote}",
    "finalize {quote}",
    "finalize {quote}",
    "finalize {quote} v1",
    "sent {quote} to buyer",
    "accept {quote}",
    "lost {quote}: too expensive",
    "cancel {quote}",
    "clone {quote}",
    "compare {quote}",
    "list all open",
)
EFFECTS: Final = ("429", "5xx", "reset_before", "reset_after", "slow", "malformed")
DUPLICATED: Final = 0.25  # share of all requests
LOGIN_TROUBLE: Final = 0.2  # share of Salesforce's faults
NEVER_SECONDS: Final = 30 * 24 * HOUR
COUNTED: Final = ("commands", "duplicates", "crashes", "faults", "replays", "pauses", "clock_jumps")
TALK: Final = ("help", "status Q-2027-0001", "status Q-1999-0001", "nwe for X: 1 pro", "new for")


class Office:
    """One bot and its World over some days."""

    late_seconds: tuple[float, ...] = (0.0, 0.1, 3.0, 600.0, 5 * HOUR)  # after which Slack delivers a request again
    pause_seconds = (60.0, 2 * HOUR)  # of an operator's pause, between these
    retry_seconds = (1, 30, 900)  # that an overloaded service asks for

    def __init__(self, settings: Settings, clock: LabClock, seed: int) -> None:
        self.settings = settings
        self.clock = clock
        self.chance = random.Random(seed)  # noqa: S311 -- to repeat a run
        self.world = World(None, now=clock.seconds, monotonic=clock.monotonic, tokens=Tokens.seeded(seed), line=self).unserved()
        self.bot: LabBot | None = None
        self.history: list[ClientRecord] = []
        self.requests: list[str] = []
        self.story: list[str] = []
        self.counts = Counter(dict.fromkeys(COUNTED, 0))
        self.clock_back_ms = 0
        self._customers = 0
        self._asked: list[str] = []

    # ------------------------------------------------------------------------------------------------------------- the bot

    async def start(self) -> None:
        """Start a bot on the ledger that the last one left."""
        chance = self.chance
        conditions = Conditions(self.clock, self.world, Trap(), chance.uniform, lambda: chance.uniform(0.02, 0.3))
        bot = LabBot(self.settings, conditions)
        await bot.start()
        self.bot = bot
        self.tell("the bot is up")

    async def crash(self) -> None:
        """Kill the bot, and start another one after a pause."""
        bot, self.bot = self.bot, None
        if bot is None:
            return
        self.counts["crashes"] += 1
        self.tell("the bot is killed")
        await bot.crash()
        await asyncio.sleep(self.chance.choice((0.5, 5.0, 60.0, HOUR)))
        await self.start()

    async def stop(self) -> None:
        """Stop the bot in order."""
        bot, self.bot = self.bot, None
        if bot is not None:
            await bot.stop()
            self.tell("the bot is stopped")

    def receiver(self) -> LabBot | None:
        """Return the bot that receives the next envelope."""
        return self.bot

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Carry an envelope to the current bot: the World's line."""
        del envelope_id
        at, bot = self.clock.now_ms(), self.receiver()
        answers: list[dict[str, Any]] = []
        if bot is not None and bot.alive:
            try:
                await bot.deliver(text, answers.append)
            except asyncio.CancelledError:
                if bot.alive:
                    raise
        payload: dict[str, Any] | None = answers[0] if answers else None
        self.history.append(record_of(text, kind, payload, at))
        return Ack(payload, 1.0) if payload is not None else Ack(None, None, "operation_timeout")

    # ------------------------------------------------------------------------------------------------------------ the days

    async def day(self, commands: int) -> None:
        """Run one day, then bring everything to rest: faults are cleared and dead letters replayed."""
        plan: list[tuple[float, Coroutine[Any, Any, None]]] = [
            (self.chance.uniform(0, WORKING_SECONDS), self._somebody()) for _ in range(commands)
        ]
        for what, most in ((self._faults, 6), (self.crash, 3), (self._pause, 1), (self._clock_jump, 1), (self._operator, 2)):
            plan += [(self.chance.uniform(0, WORKING_SECONDS), what()) for _ in range(self.chance.randint(0, most))]
        await asyncio.gather(*(self._at(moment, work) for moment, work in sorted(plan, key=lambda entry: entry[0])))
        await self.rest()
        await asyncio.sleep(24 * HOUR - WORKING_SECONDS)

    async def rest(self) -> None:
        """Clear the faults and wait until everything has ended."""
        self.world.weather.clear()
        if self.bot is None:
            await self.start()
        for _ in range(4):
            assert self.bot is not None  # noqa: S101 -- just started
            core = self.bot.core
            for name in (
                "crm",
                "slack",
                "pdf",
                "crm.create",
                "slack.post",
                "slack.card",
                "slack.direct",
                "slack.direct_card",
                "slack.unfurl",
                "slack.file",
                "slack.reply",
                "pdf.render",
            ):
                await core.ledger.resume(name, ACTOR)
            if not await self.bot.settled(NEVER_SECONDS):
                raise AssertionError("rest: something was still under way after a month of good weather")
            if not await self._replay():
                return

    async def _at(self, moment: float, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.sleep(moment)
        await work

    async def _replay(self) -> int:
        assert self.bot is not None  # noqa: S101 -- the caller started the bot
        ledger = self.bot.core.ledger
        found = dead_letters(ledger)
        due = await found.list()
        for letter in due:
            await found.replay(letter.reference, actor=ACTOR, reason=REASON, follow=terminal.follow(ledger))
        self.counts["replays"] += len(due)
        return len(due)

    # ------------------------------------------------------------------------------------------------------- what happens

    async def _somebody(self) -> None:
        """Let a random person act; Slack may deliver the request again, soon or late."""
        wants: dict[Callable[[], Coroutine[Any, Any, str | None]], int] = {
            self._new: 30,
            self._retype: 4,
            lambda: self._click("quote.submit", self.chance.choice(REPS)): 26,
            lambda: self._click("approval.approve", self.chance.choice(APPROVERS)): 20,
            self._reject: 6,
            self._stale: 6,
            self._another: 4,
            lambda: self.types(self.chance.choice(TALK)): 8,
            self._change: 14,
        }
        did = self.chance.choices(tuple(wants), tuple(wants.values()))[0]
        self.counts["commands"] += 1
        try:
            request_id = await did()
        except GestureError:
            return  # the message to click is gone: no person could have clicked it
        if request_id is None:
            return
        self.requests.append(request_id)
        if self.chance.random() < DUPLICATED:
            await asyncio.sleep(self.chance.choice(self.late_seconds))
            again = self.chance.choice((request_id, self.chance.choice(self.requests)))
            times = self.chance.randint(1, 3)
            self.counts["duplicates"] += times
            self.tell(f"{again} is delivered {times} more")
            await self.world.courier.redeliver(again, self.chance.choice(("resend", "retry")), times)

    async def _new(self) -> str | None:
        self._customers += 1
        quantity, discount = self.chance.randint(1, 400), self.chance.choice((0, 0, 5, 10, 11, 15, 21, 35, 41))
        return await self.types(f"new for Customer {self._customers}: {quantity} pro; discount {discount}%")

    async def _retype(self) -> str | None:
        return await self.types(self.chance.choice(self._asked)) if self._asked else None

    async def _change(self) -> str | None:
        """Let a person type a command on one of the newest quotes that its lifecycle may or may not allow."""
        quote = f"Q-2027-{max(1, self._customers - self.chance.randint(0, 5)):04d}"
        discount, verb = self.chance.choice((0, 5, 12, 25)), self.chance.choice(CHANGES)
        return await self.types(verb.format(quote=quote, discount=discount))

    async def types(self, text: str) -> str | None:
        """Let a random person type /quote. Returns the id of the delivery."""
        user = self.chance.choice(REPS)
        self._asked.append(text)
        self.tell(f"{user} types {text!r}")
        return str((await self.world.gestures.slash(user, CHANNEL, "/quote", text))["request_id"])

    async def _stale(self) -> str | None:
        """Click a button that an update has removed, or that this person may not use."""
        user = self.chance.choice((*REPS, *APPROVERS, "U0GUEST"))
        return await self._click(self.chance.choice(("quote.submit", "approval.approve")), user, stale=True)

    async def _another(self) -> str | None:
        for user in REPS:
            offers = [
                message for message in self._messages() if message.ephemeral_for == user and _has(message, "quote.create_another")
            ]
            if offers:
                return await self._press(self.chance.choice(offers), "quote.create_another", user)
        return None

    async def _reject(self) -> str | None:
        user = self.chance.choice(APPROVERS)
        cards = self._cards("approval.reject")
        if not cards:
            return None
        await self._press(self.chance.choice(cards), "approval.reject", user)
        forms = self.world.slack.views.stacks.get(user, [])
        if not forms:
            return None
        self.tell(f"{user} sends a rejection")
        answer = await self.world.gestures.submit(user, forms[-1].id, {"reason": {"reason": "too cheap"}})
        return None if answer["request_id"] is None else str(answer["request_id"])

    async def _click(self, action_id: str, user: str, *, stale: bool = False) -> str | None:
        cards = [message for message in self._messages() if message.thread_ts is None] if stale else self._cards(action_id)
        return await self._press(self.chance.choice(cards), action_id, user, stale=stale) if cards else None

    async def _press(self, message: Message, action_id: str, user: str, *, stale: bool = False) -> str | None:
        self.tell(f"{user} clicks {action_id} on {message.ts}")
        answer = await self.world.gestures.click_message(
            user, CHANNEL, message.ts, action_id, block_id=None, value=None, values={}, stale=stale
        )
        return str(answer["request_id"])

    def _messages(self) -> list[Message]:
        return [message for message in self.world.slack.messages.all()[-200:] if message.blocks]

    def _cards(self, action_id: str) -> list[Message]:
        return [message for message in self._messages() if message.ephemeral_for is None and _has(message, action_id)]

    async def _faults(self) -> None:
        target = self.chance.choice(("slack", "salesforce"))
        effect, method = self.chance.choice(EFFECTS), self.chance.choice((None, *METHODS[target]))
        if target == "salesforce" and self.chance.random() < LOGIN_TROUBLE:
            effect, method = "auth_expired", self.chance.choice(("oauth2/token", "composite/graph"))
        self.counts["faults"] += 1
        times = self.chance.choice((1, 1, 2, 4, 30))
        self.tell(f"{target} answers {method or 'everything'} with {effect}, {times} times")
        self.world.weather.arm(
            target, effect, method=method, times=times, retry_after=self.chance.choice(self.retry_seconds), delay=12.0
        )

    async def _pause(self) -> None:
        name = self.chance.choice(("crm", "slack.file", "pdf.render", "slack"))
        if self.bot is not None:
            self.counts["pauses"] += 1
            self.tell(f"an operator pauses {name}")
            await self.bot.core.ledger.pause(name, ACTOR, REASON)
        await asyncio.sleep(self.chance.uniform(*self.pause_seconds))
        if self.bot is not None:
            await self.bot.core.ledger.resume(name, ACTOR)

    async def _clock_jump(self) -> None:
        self.put_clock(self.chance.choice((-HOUR_MS, -60_000, 60_000, HOUR_MS)))

    def put_clock(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self.counts["clock_jumps"] += 1
        self.clock_back_ms += max(0, -by_ms)
        self.tell(f"the clock is put by {by_ms} ms")
        self.clock.put(by_ms)

    async def _operator(self) -> None:
        if self.bot is not None:
            await self._replay()

    # ------------------------------------------------------------------------------------------------------------ the story

    def tell(self, sentence: str) -> None:
        """Append an event to the run's log."""
        self.story.append(f"{self.clock.now_ms()} {sentence}")

    def trace_hash(self) -> str:
        """Return a hash of all events and their times: the same seed gives the same hash."""
        trace = hashlib.sha256("\n".join(self.story).encode())
        for sighting in self.world.witness.since():
            trace.update(f"{sighting.at:.3f} {sighting.system} {sighting.method} {sighting.applied} {sighting.status}\n".encode())
        for each in self.history:
            trace.update(f"{each}\n".encode())
        return trace.hexdigest()


def _has(message: Message, action_id: str) -> bool:
    return any(
        element.get("action_id") == action_id
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    )
