"""Seeded bugs in the calls to the external services."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from adapters.failures import AdapterError
from adapters.salesforce.api import Salesforce
from adapters.slack.api import SlackApi
from faults.mutants.patching import of, patch, put
from ledger import keys
from quotebot.dispatch import crm
from quotebot.dispatch.crm import CreateRecordHandler
from quotebot.dispatch.documents import Documents
from quotebot.dispatch.slack_post import PostHandler


@patch(PostHandler, "_post_in_thread")
async def key_per_attempt(honest: Any, self: Any, effect: Any) -> Any:
    """Every attempt posts under its own key."""
    return await honest(self, replace(effect, effect_key=keys.digest([effect.effect_key, effect.fence])))


@patch(PostHandler, "_post_in_thread")
async def key_per_repetition(honest: Any, self: Any, effect: Any) -> Any:
    """Only a repetition posts under its own key: the bug is invisible until a fault occurs."""
    again = effect.fence > 1
    return await honest(self, replace(effect, effect_key=keys.digest([effect.effect_key, effect.fence])) if again else effect)


def crm_key_per_attempt() -> None:
    """Every attempt writes its record under its own key."""
    honest = of(Salesforce, "create_quote")
    tries: Counter[str] = Counter()

    async def create_quote(self: Any, quote: Any, *, correlation_id: str) -> Any:
        tries[quote.key] += 1
        if tries[quote.key] > 1:
            quote = replace(quote, key=f"{quote.key}_{tries[quote.key]}")
        return await honest(self, quote, correlation_id=correlation_id)

    put(Salesforce, "create_quote", create_quote)


@patch(CreateRecordHandler, "perform")
async def new_key_at_a_replay(honest: Any, self: Any, effect: Any) -> Any:
    """A replay writes its record under its own key."""
    if effect.cycle > 1:

        @patch(crm, "crm_quote")
        def of_cycle(write: Any, quote: Any, ledger_id: str) -> Any:
            written = write(quote, ledger_id)
            return replace(written, key=f"{written.key}_{effect.cycle}")

        of_cycle()
    return await honest(self, effect)


@patch(SlackApi, "_call")
async def library_retries(honest: Any, self: Any, method: str, **content: Any) -> Any:
    """A request whose answer is lost is silently sent once more."""
    try:
        return await honest(self, method, **content)
    except AdapterError as error:
        if error.code != "network":
            raise
        return await honest(self, method, **content)


@patch(SlackApi, "post")
async def every_post_twice(honest: Any, self: Any, **content: Any) -> Any:
    """Each message is posted twice."""
    await honest(self, **content)
    return await honest(self, **content)


@patch(crm, "crm_quote")
def line_left_out_of_the_crm(honest: Any, quote: Any, ledger_id: str) -> Any:
    """Salesforce gets all lines except the last."""
    whole = honest(quote, ledger_id)
    return replace(whole, lines=whole.lines[:-1])


@patch(Documents, "content")
async def another_file_shared(honest: Any, self: Any, effect: Any, quote: Any) -> tuple[Any, bytes]:
    """The uploaded file differs from the rendered one."""
    effect, stored = await honest(self, effect, quote)
    return effect, bytes(stored) + b"\n"
