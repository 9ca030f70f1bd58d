"""Tests of an ephemeral reply over real sockets after its response_url has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.harness.rig import GOLDEN
from quotebot.views.confirmations import CREATE_ANOTHER

if TYPE_CHECKING:
    from tests.rig import Deal


async def test_question_with_a_used_response_url_is_sent_directly_and_its_buttons_work(deal: Deal) -> None:
    await deal.slash(GOLDEN)
    await deal.settled()
    await deal.arm("slack", "refused", method="response_url", code="used_url")

    await deal.slash(GOLDEN)
    await deal.settled()

    (question,) = [message for message in (await deal.get("state"))["messages"] if message["channel"] == "D0REP"]
    assert question["text"].startswith("In <#C0DEALS>: You just created the same quote, Q-")
    assert not [text for text in await deal.whispers("U0REP") if "You just created" in text]
    where = {"channel": question["channel"], "message_ts": question["ts"]}
    await deal.clear_faults()
    await deal.post("action", user="U0REP", action_id=CREATE_ANOTHER, **where)
    await deal.settled()
    assert len(await deal.cards()) == len(await deal.rows("SELECT 1 FROM quotes")) == 2
