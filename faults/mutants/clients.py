"""Seeded bugs in the calls to the external services."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from adapters.failures import AdapterError
from adapters.salesforce.api import Salesforce
from adapters.slack.api import SlackApi
from faults.mutants.patching import of, put
from ledger import keys
from quotebot.dispatch import crm_create
from quotebot.dispatch.crm_create import CreateRecordHandler
from quotebot.dispatch.pdf_files import Documents
from quotebot.dispatch.slack_post import PostHandler


def key_per_attempt() -> None:
    """Every attempt posts under its own key."""
    honest = of(PostHandler, "_post_in_thread")

    async def post(self: Any, effect: Any) -> Any:
        return await honest(self, replace(effect, effect_key=keys.digest([effect.effect_key, effect.fence])))

    put(PostHandler, "_post_in_thread", post)


def key_per_repetition() -> None:
    """Only a repetition posts under its own key: the bug is invisible until a fault occurs."""
    honest = of(PostHandler, "_post_in_thread")

    async def post(self: Any, effect: Any) -> Any:
        again = effect.fence > 1
        return await honest(self, replace(effect, effect_key=keys.digest([effect.effect_key, effect.fence])) if again else effect)

    put(PostHandler, "_post_in_thread", post)


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


def new_key_at_a_replay() -> None:
    """A replay writes its record under its own key."""
    honest = of(CreateRecordHandler, "perform")

    async def create(self: Any, effect: Any) -> Any:
        if effect.cycle == 1:
            return await honest(self, effect)
        write = of(crm_create, "crm_quote")
        put(crm_create, "crm_quote", lambda quote, ledger_id: _of_cycle(write(quote, ledger_id), effect.cycle))
        return await honest(self, effect)

    put(CreateRecordHandler, "perform", create)


def _of_cycle(quote: Any, cycle: int) -> Any:
    return replace(quote, key=f"{quote.key}_{cycle}")


def library_retries() -> None:
    """A request whose answer is lost is silently sent once more."""
    honest = of(SlackApi, "_call")

    async def call(self: Any, method: str, **content: Any) -> Any:
        try:
            return await honest(self, method, **content)
        except AdapterError as error:
            if error.code != "network":
                raise
            return await honest(self, method, **content)

    put(SlackApi, "_call", call)


def every_post_twice() -> None:
    """Each message is posted twice."""
    honest = of(SlackApi, "post")

    async def post(self: Any, **content: Any) -> Any:
        await honest(self, **content)
        return await honest(self, **content)

    put(SlackApi, "post", post)


def line_left_out_of_the_crm() -> None:
    """Salesforce gets all lines except the last."""
    honest = of(crm_create, "crm_quote")

    def crm_quote(quote: Any, ledger_id: str) -> Any:
        whole = honest(quote, ledger_id)
        return replace(whole, lines=whole.lines[:-1])

    put(crm_create, "crm_quote", crm_quote)


def another_file_shared() -> None:
    """The uploaded file differs from the rendered one."""
    honest = of(Documents, "content")

    async def content(self: Any, effect: Any, quote: Any) -> tuple[Any, bytes]:
        effect, stored = await honest(self, effect, quote)
        return effect, bytes(stored) + b"\n"

    put(Documents, "content", content)
