"""Changes that are not bugs: the suites must not report them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from adapters.policies import Policy
from faults.lab import bot
from faults.mutants.patching import of, put
from quotebot import ack_priority
from quotebot.dispatch.slack_file import FileHandler

if TYPE_CHECKING:
    from ledger.ledger import Ledger


def another_jitter() -> None:
    """Delays are drawn from the lower half of their range."""
    honest = of(Policy, "_jittered")
    put(
        Policy,
        "_jittered",
        lambda self, base, draw: honest(self, base, draw) / 2 if self.jitter == "full" else honest(self, base, draw),
    )


def another_latency() -> None:
    """A PDF takes four times as long."""
    put(bot, "RENDER_SECONDS", 4 * bot.RENDER_SECONDS)


def a_token_that_is_kept() -> None:
    """An upload gets a random token, which is recorded before it is used and reused by every later attempt."""
    honest = of(FileHandler, "_upload")

    async def upload(self: Any, effect: Any, quote: Any) -> Any:
        if "token" not in effect.steps:
            ledger: Ledger = of(self, "services").ledger
            effect = await ledger.record_step(effect, "token", {"value": secrets.token_hex(8)})
        return await honest(self, effect, quote)

    put(FileHandler, "_upload", upload)


def one_command_at_a_time() -> None:
    """Commands do not share commits."""
    put(ack_priority, "LATELY", 1)
    put(ack_priority, "QUIET", 1)
