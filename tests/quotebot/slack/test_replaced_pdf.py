"""Tests of the message of a PDF whose version another one replaced: it says so, and keeps its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quotebot.views.card import APPROVE
from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from quotebot.sandbox.world import World
    from tests.rig import Deal

MARKS = "SELECT state FROM effects WHERE class = 'slack.card' AND payload LIKE '%\"replaced\"%' ORDER BY id"


async def approved(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.complete(deal.click(APPROVE, user="U0MANAGER"))


async def shared(deal: Deal) -> list[dict[str, Any]]:
    return [message for message in await deal.messages() if message["files"]]


async def test_the_pdf_of_a_replaced_version_says_so_and_stays(deal: Deal) -> None:
    await approved(deal)
    (before,) = await shared(deal)
    await deal.arm("slack", "reset_before", method="files.info", times=1)
    await deal.complete(deal.slash(f"revise {FIRST_QUOTE}: discount 8%"))
    (after,) = await shared(deal)
    assert after["text"] == f"🚫 *v1 was replaced by v2*\n{before['text']}"
    assert [each["id"] for each in after["files"]] == [each["id"] for each in before["files"]]
    assert [row["state"] for row in await deal.rows(MARKS)] == ["delivered"]

    await deal.complete(deal.slash(f"submit {FIRST_QUOTE}"))  # no approval is needed
    newest = (await shared(deal))[-1]
    assert newest["ts"] != after["ts"]
    assert "replaced" not in newest["text"]


async def test_a_deleted_message_of_a_pdf_needs_no_mark_and_no_attention(deal: Deal, world: World) -> None:
    await approved(deal)
    (before,) = await shared(deal)
    message = world.slack.messages.get("C0DEALS", before["ts"])
    assert message is not None
    world.slack.messages.delete(message)
    await deal.complete(deal.slash(f"revise {FIRST_QUOTE}: discount 8%"))
    assert [row["state"] for row in await deal.rows(MARKS)] == ["superseded"]
    assert await deal.rows("SELECT 1 FROM dead_letters") == []


async def test_a_pdf_that_is_shared_after_its_version_was_replaced_is_marked_then(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.arm("slack", "5xx", method="files.getUploadURLExternal", times=1)
    await deal.click(APPROVE, user="U0MANAGER")
    await deal.complete(deal.slash(f"revise {FIRST_QUOTE}: discount 8%"))
    uploads = await deal.rows("SELECT id FROM effects WHERE class = 'slack.file' AND state = 'delivered'")
    assert len(uploads) == 1
    text = (await shared(deal))[0]["text"]
    assert text.startswith("🚫 *v1 was replaced by v2*\n")
    assert "was approved" not in text  # a notice said so while the PDF was late
