"""Changes that are not bugs: the suites must not report them."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from adapters.policies import Policy
from faults.lab import bot
from faults.mutants.patching import both, of, patch, put
from quotebot import worker_loop
from quotebot.dispatch.documents import FileHandler

if TYPE_CHECKING:
    from ledger.ledger import Ledger


@patch(Policy, "_jittered")
def another_jitter(honest: Any, self: Policy, base: float, draw: Any) -> Any:
    """Delays are drawn from the lower half of their range."""
    return honest(self, base, draw) / (2 if self.jitter == "full" else 1)


# A PDF takes four times as long.
another_latency = partial(put, bot, "RENDER_SECONDS", 4 * bot.RENDER_SECONDS)


@patch(FileHandler, "_upload")
async def a_token_that_is_kept(honest: Any, self: Any, effect: Any, quote: Any) -> Any:
    """An upload gets a random token, which is recorded at the first attempt and kept for later ones."""
    if "token" not in effect.steps:
        ledger: Ledger = of(self, "services").ledger
        effect = await ledger.record_step(effect, "token", {"value": secrets.token_hex(8)})
    return await honest(self, effect, quote)


# Commands do not share commits.
one_command_at_a_time = both(partial(put, worker_loop, "LATELY", 1), partial(put, worker_loop, "QUIET", 1))
