"""A kill storm: the real bot, killed at random while commands, clicks, duplicates and faults keep coming.

`python -m faults.storm --seed 4 --kills 15` runs one and says what came of it. The same seed makes the same plan, not the same
timing.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faults import checks
from faults.rig import bot_process
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from faults.rig import BotProcess, Deal, Json

FAULTS = ("reset_after", "reset_before", "5xx", "malformed")
STATE_WORDS = {"approved": "Approved", "pending_approval": "Pending approval", "priced": "Priced"}


@dataclass(slots=True)
class Storm:
    """One storm over one bot. `acked` holds the customers whose `/quote new` was acknowledged: their quotes must exist, once."""

    bot: BotProcess
    deal: Deal
    plan: random.Random
    sent: int = 0
    kills: int = 0
    acked: list[str] = field(default_factory=list)

    async def rage(self, kills: int) -> None:
        """Keep people busy, kill the bot `kills` times, then let everything settle."""
        people = [asyncio.create_task(self._ask_for_quotes()), asyncio.create_task(self._click_buttons())]
        try:
            for _ in range(kills):
                await asyncio.sleep(self.plan.random() * 1.2)
                if self.plan.random() < 0.3:
                    target = self.plan.choice(("slack", "salesforce"))
                    await self.deal.arm(target, self.plan.choice(FAULTS), times=2)
                await self.bot.kill()
                await self.bot.start()
                self.kills += 1
        finally:
            for person in people:
                person.cancel()
            await asyncio.gather(*people, return_exceptions=True)
        await self.deal.clear_faults()
        await self.deal.settled()

    async def check(self) -> None:
        """Check that nothing acknowledged was lost, nothing was done twice, and every card shows its quote's state."""
        await checks.exactly_once(self.deal)
        rows = await self.deal.rows("SELECT quote_id, account, state FROM quotes")
        accounts = [row["account"] for row in rows]
        assert len(accounts) == len(set(accounts)), "a command made two quotes"
        assert set(self.acked) <= set(accounts), "an acknowledged command is lost"
        dead = await self.deal.rows("SELECT class, category FROM dead_letters")
        # A row whose process died on it three times in a row is given up by rule; nothing else may be.
        assert all(letter["category"] == "poison" for letter in dead), dead
        unposted = sum(letter["class"] == "slack.post" for letter in dead)
        cards = await self.deal.cards()
        assert len(rows) - unposted <= len(cards) <= len(rows)
        undrawn = any(letter["class"] == "slack.card" for letter in dead)
        states = {row["quote_id"]: STATE_WORDS[row["state"]] for row in rows}
        for card in cards:
            assert undrawn or states[card["text"].split()[1]] in card["text"], card["text"]

    async def _ask_for_quotes(self) -> None:
        while True:
            self.sent += 1
            customer = f"Customer {self.sent}"
            answer = await self._type(customer)
            if answer["ack"]:
                self.acked.append(customer)
            if self.plan.random() < 0.3:
                await self._redeliver(answer)
            if not answer["ack"] or self.plan.random() < 0.2:  # nobody answered: people type it again, and some do anyway
                await self._retype(customer)
            await asyncio.sleep(self.plan.random() * 0.3)

    async def _retype(self, customer: str) -> None:
        """Type the last command again. Whichever of the two is executed second is asked back: there is one quote."""
        answer = await self._type(customer)
        if answer["ack"]:
            self.acked.append(customer)

    async def _type(self, customer: str) -> Json:
        return await self.deal.slash(f"new for {customer}: {self.sent} pro; discount {self.sent % 20}%")

    async def _click_buttons(self) -> None:
        while True:
            await asyncio.sleep(self.plan.random() * 0.3)
            buttons = [
                (card, block["elements"][0]["action_id"])
                for card in await self.deal.cards()
                for block in card["blocks"]
                if block["type"] == "actions"
            ]
            if not buttons:
                continue
            card, action_id = self.plan.choice(buttons)
            user = "U0REP" if action_id == "quote.submit" else "U0MANAGER"
            with suppress(AssertionError):  # the card was redrawn since it was looked at: nobody could have clicked that
                where = {"channel": card["channel"], "message_ts": card["ts"]}
                answer = await self.deal.post("action", user=user, **where, action_id=action_id)
                if self.plan.random() < 0.3:
                    await self._redeliver(answer)

    async def _redeliver(self, answer: Json) -> None:
        await self.deal.redeliver(answer["request_id"], self.plan.choice(("resend", "retry")), self.plan.randint(1, 3))


async def run_storm(folder: Path, *, seed: int, kills: int) -> Storm:
    """Run one storm in a new world under `folder` and check it."""
    async with World(folder / "world").serve() as world, bot_process(world, folder) as (bot, deal):
        await bot.start()
        storm = Storm(bot, deal, random.Random(seed))  # noqa: S311 -- a plan, not a secret
        await storm.rage(kills)
        await storm.check()
        return storm


def main() -> None:
    """Run one storm from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quotebot-storm-") as folder:
        storm = asyncio.run(run_storm(Path(folder), seed=options.seed, kills=options.kills))
    print(f"{storm.kills} kills, {storm.sent} commands, {len(storm.acked)} acknowledged: 0 lost, 0 doubled")  # noqa: T201 -- its output


if __name__ == "__main__":
    main()
