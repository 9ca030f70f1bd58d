"""Tests of the effect that marks the PDF of a replaced version: what ends it, and what it asks again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from adapters.failures import AdapterError, Failure
from ledger.records import Drop, Retry
from quotebot import effects
from quotebot.dispatch.slack_card import LISTED_MS, CardHandler
from tests.quotebot.views.quote_examples import example_quote

QUOTE: Final = example_quote()
NOT_LISTED: Final = AdapterError(Failure.TRANSIENT, "not_listed", "Slack lists no message with this file yet.")
NO_SCOPE: Final = AdapterError(Failure.AUTH, "missing_scope", "no")
REVOKED: Final = AdapterError(Failure.AUTH, "token_revoked", "no")


async def settled(refusal: AdapterError, age_ms: int) -> Any:
    """Mark a PDF whose message Slack does not name."""

    async def find_message_of(**_: str) -> str:
        raise refusal

    async def may_post_about(_quote: Any) -> bool:
        return True

    async def quote_of(_effect: Any) -> Any:
        return QUOTE

    ledger = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: age_ms))
    adapters = SimpleNamespace(slack=SimpleNamespace(find_message_of=find_message_of))
    services: Any = SimpleNamespace(ledger=ledger, adapters=adapters, may_post_about=may_post_about, quote=quote_of)
    effect: Any = SimpleNamespace(payload={"what": "replaced", "file_id": "F1"}, steps={}, created_at=0)
    return await CardHandler(services).perform(effect)


async def test_a_message_that_slack_does_not_list_yet_is_asked_for_again() -> None:
    found = await settled(NOT_LISTED, LISTED_MS - 1)
    assert isinstance(found, Retry)
    assert (found.spent, found.trouble.unavailable) == (False, False)


@pytest.mark.parametrize("refusal", [NOT_LISTED, NO_SCOPE])
async def test_a_mark_that_cannot_be_made_becomes_needless(refusal: AdapterError) -> None:
    assert isinstance(await settled(refusal, LISTED_MS), Drop)


async def test_a_mark_waits_for_a_new_login() -> None:
    with pytest.raises(AdapterError, match="no"):
        await settled(REVOKED, LISTED_MS)


def test_nothing_is_marked_without_a_reference_to_the_file() -> None:
    upload: Any = SimpleNamespace(external_ref=None, aggregate_id="Q-2026-0001", payload={"quote_id": "Q-2026-0001", "version": 1})
    assert effects.mark_replaced(upload, announces=True) == ()
