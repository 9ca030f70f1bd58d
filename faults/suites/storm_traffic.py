"""Traffic generator of a storm: people request quotes, retype, click, reject with a reason; every request is delivered twice.

It records what people were promised: an acknowledged gesture is a promise, whatever happens to the bot afterwards.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from faults.harness.rig import eventually
from quotebot.views import messages
from quotebot.views.seals import MARK

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from faults.harness.rig import Deal, Json

REP, MANAGER = "U0REP", "U0MANAGER"
DISCOUNTS: Final = 20  # percent, from 0: above 10 a manager has to approve
UNTRUE: Final = (messages.NOTHING_RECORDED, messages.MAYBE_RECORDED)  # acknowledgements that promise nothing
PAUSE_SECONDS: Final = 0.15
ASK_SECONDS: Final = 1.0
PAGE_SECONDS: Final = 0.2
RETYPED: Final = 0.2  # of the answered commands
LATELY: Final = 0.7  # share of the duplicates that repeat one of the last requests
PATIENT: Final = 0.8  # share of the pauses
PATIENCE_SECONDS: Final = 1.0
DECLINED: Final = 0.5  # share of the offers


@dataclass(slots=True)
class History:
    """Actions of people and the promises to them: customers, quotes and tokens whose gesture was acknowledged as recorded."""

    counts: Counter[str] = field(default_factory=Counter)
    customers: set[str] = field(default_factory=set)  # of an acknowledged /quote new
    changes: set[tuple[str, str]] = field(default_factory=set)  # (kind of command, quote) of an acknowledged click or form
    tokens: set[str] = field(default_factory=set)  # of every "Create another" that was clicked
    kept_tokens: set[str] = field(default_factory=set)  # ... and acknowledged
    requests: list[str] = field(default_factory=list)

    def note(self, answer: Json) -> bool:
        """Count a gesture; tell whether it was acknowledged as recorded."""
        self.counts["gestures"] += 1
        if answer["request_id"] is not None:
            self.requests.append(answer["request_id"])
        ack = answer["ack"]
        told = ack is not None and not str(ack.get("text", "")).startswith(UNTRUE) and "response_action" not in ack
        self.counts["acknowledged"] += told
        return told


@dataclass(slots=True)
class People:
    """Busy people. `is_there` tells whether the bot is connected; `commands_max` limits the number of quotes requested."""

    deal: Deal
    plan: random.Random
    history: History
    is_there: Callable[[], bool]
    commands_max: int
    _page: list[Json] = field(default_factory=list)  # the last read of the workspace: several people share one recent page
    _looked_at: float = -math.inf

    def at_work(self) -> list[asyncio.Task[None]]:
        """Start all of them."""
        clicking = (self._click(user) for user in (REP, REP, MANAGER, MANAGER))
        return [asyncio.create_task(person) for person in (self._ask(), *clicking, self._duplicate(), self._create_another())]

    async def _ask(self) -> None:
        """Request quotes; retype a request without an answer, and some others too: there is one quote all the same."""
        for number in range(1, self.commands_max + 1):
            text = f"new for Customer {number}: {number} pro; discount {number * 7 % DISCOUNTS}%"
            heard = await self._type(number, text)
            if not heard or self._happens(RETYPED):
                await self._pause()
                await self._type(number, text)
            await asyncio.sleep(self.plan.random() * ASK_SECONDS)
            await self._pause()

    async def _type(self, number: int, text: str) -> bool:
        heard = False
        with suppress(AssertionError):
            heard = self.history.note(await self.deal.slash(text, user=REP))
        self.history.counts["commands"] += 1
        if heard:
            self.history.customers.add(f"Customer {number}")
        return heard

    async def _click(self, user: str) -> None:
        """Click what the cards offer this person."""
        wanted = {REP: ("quote.submit",), MANAGER: ("approval.approve", "approval.approve", "approval.reject")}[user]
        while True:
            await self._pause()
            action_id = self.plan.choice(wanted)
            found = [
                (card, button)
                for card in await self._messages()
                for button in _buttons(card)
                if not card["ephemeral_for"] and button["action_id"] == action_id
            ]
            if not found:
                continue
            card, button = self.plan.choice(found)
            quote_id = json.loads(button["value"])["q"]
            with suppress(AssertionError):  # the card was redrawn since it was read: no person could have clicked that
                answer = await self._act(user, card, action_id)
                if action_id == "approval.reject":
                    await self._give_a_reason(user, quote_id)
                elif self.history.note(answer):
                    self.history.changes.add(("quote.submit" if user == REP else "approval.decide", quote_id))

    async def _act(self, user: str, message: Json, action_id: str, **more: Any) -> Json:
        where = {"channel": message["channel"], "message_ts": message["ts"]}
        answer: Json = await self.deal.post("action", user=user, **where, action_id=action_id, **more)
        return answer

    async def _give_a_reason(self, user: str, quote_id: str) -> None:
        for seen in (await self.deal.get("state"))["views"]:
            view = seen["view"]
            if seen["user"] != user or view.get("callback_id") != "approval.reject":
                continue
            about = json.loads(view["private_metadata"].rpartition(MARK)[0])["q"]
            reason = {"reason": {"reason": f"Too cheap for {about}"}}
            if (
                self.history.note(await self.deal.post("submit", user=user, view_id=view["id"], values=reason))
                and about == quote_id
            ):
                self.history.changes.add(("approval.decide", quote_id))

    async def _duplicate(self) -> None:
        """Deliver a request again: a recent one or an old one; byte-identical, or as Slack's retry."""
        while True:
            await self._pause()
            if not self.history.requests:
                continue
            recent = self.history.requests[-3:] if self._happens(LATELY) else self.history.requests
            times = self.plan.randint(1, 3)
            self.history.counts["duplicates"] += times
            with suppress(AssertionError):
                await self.deal.redeliver(self.plan.choice(recent), self.plan.choice(("resend", "retry")), times)

    async def _create_another(self) -> None:
        """Answer the question whether the same quote is wanted once more: sometimes yes."""
        while True:
            await self._pause()
            await self._pause()
            offered = [
                (message, button)
                for message in await self._messages()
                for button in _buttons(message)
                if message["ephemeral_for"] == REP and button["action_id"] == "quote.create_another"
            ]
            if not offered or self._happens(DECLINED):
                continue
            message, button = self.plan.choice(offered)
            token = json.loads(button["value"].partition(MARK)[0])["t"]
            self.history.tokens.add(token)
            with suppress(AssertionError):
                if self.history.note(await self._act(REP, message, button["action_id"])):
                    self.history.kept_tokens.add(token)

    async def _messages(self) -> list[Json]:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > PAGE_SECONDS:
            self._looked_at = now
            self._page = await self.deal.messages()
        return self._page

    def _happens(self, share: float) -> bool:
        return self.plan.random() < share

    async def _pause(self) -> None:
        """Wait for a random time; most people also wait until the bot is connected, so that short-lived bots get some work."""
        await asyncio.sleep(self.plan.random() * 2 * PAUSE_SECONDS)
        if self._happens(PATIENT):
            with suppress(AssertionError):
                await eventually(self.is_there, "the bot", PATIENCE_SECONDS)


async def home(tasks: list[asyncio.Task[None]]) -> list[BaseException]:
    """End all tasks; return their errors."""
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [
        end for end in ends if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError | aiohttp.ClientError)
    ]


def _buttons(message: Json) -> list[Json]:
    return [element for block in message["blocks"] or () if block["type"] == "actions" for element in block["elements"]]
