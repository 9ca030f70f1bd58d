"""Tests of the direct message that asks an approver: its content, decisions in it, and how it follows decisions elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quotebot.store import quotes
from quotebot.views import messages
from quotebot.views.card import APPROVE, REJECT, REQUEST_CHANGES, RESUBMIT
from quotebot.views.forms import APPROVER_NOTE, REASON
from tests.quotebot.slack.test_foreign_clicks import press, value_of
from tests.rig import FIRST_QUOTE, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from quotebot.sandbox.world import World
    from tests.rig import Deal

COPIES = "SELECT user_id, channel, ts FROM approval_copies ORDER BY user_id"
DEEP = "new for Acme: 150 pro; term 36m; discount 25%"  # needs the CFO


async def copies(deal: Deal, user: str) -> list[dict[str, Any]]:
    """Return the bot's direct messages to a person, oldest first."""
    channel = f"D{user[1:]}"
    return [m for m in (await deal.get("state"))["messages"] if m["channel"] == channel and m["blocks"] and not m["ephemeral_for"]]


async def copy_of(deal: Deal, user: str) -> dict[str, Any]:
    (found,) = await copies(deal, user)
    return found


def text_of(message: dict[str, Any]) -> str:
    return json.dumps(message["blocks"], ensure_ascii=False)


def buttons_of(message: dict[str, Any]) -> list[str]:
    return [element["action_id"] for block in message["blocks"] for element in block.get("elements", ()) if "action_id" in element]


async def state_of(deal: Deal) -> str:
    (row,) = await deal.rows("SELECT state FROM quotes")
    return str(row["state"])


async def submitted(deal: Deal, text: str = DEEP) -> None:
    await deal.complete(deal.slash(text))
    await deal.complete(deal.click("quote.submit", user="U0REP"))


async def fill_in(deal: Deal, user: str, field: str, text: str) -> None:
    """Submit the open form."""
    (view,) = (await deal.get("state"))["views"]
    await deal.complete(deal.post("submit", user=user, view_id=view["view"]["id"], values={field: {field: text}}))


async def decide(deal: Deal, user: str, action_id: str = APPROVE) -> None:
    """Click in the direct message to a person."""
    copy = await copy_of(deal, user)
    await deal.complete(deal.post("action", user=user, channel=copy["channel"], message_ts=copy["ts"], action_id=action_id))


async def test_each_approver_gets_a_message_with_what_they_need_to_decide(deal: Deal) -> None:
    await deal.complete(deal.slash("new for acme: 5 pro"))
    await submitted(deal)
    copy = await copy_of(deal, "U0CFO")
    shown = text_of(copy)
    for fact in (
        "Acme",
        "Total",
        "Discount",
        "Decide by",
        "<@U0REP>",
        "Last quotes for Acme",
        "*Pro*",
        "Margin",
        "archives/C0DEALS/p",
    ):
        assert fact in shown, fact
    assert buttons_of(copy) == ["approval.approve", "approval.request_changes", "approval.reject"]
    assert "margin 5" not in await deal.card_text()
    assert await deal.rows(COPIES) == [{"user_id": "U0CFO", "channel": "D0CFO", "ts": copy["ts"]}]
    assert not await copies(deal, "U0MANAGER")


async def test_decision_in_the_message_redraws_the_card_and_the_message(deal: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    await submitted(deal)
    monkeypatch.delattr(quotes, "last_quotes_of")  # they are read only for a message that asks
    await decide(deal, "U0CFO")
    assert await state_of(deal) == "approved"
    copy = await copy_of(deal, "U0CFO")
    assert buttons_of(copy) == []
    assert "Approved by <@U0CFO>" in text_of(copy)
    assert "margin" not in text_of(copy).lower()
    assert "<@U0CFO>" in await deal.card_text()
    assert APPROVE not in await deal.card_text()


async def test_rejection_in_the_message_asks_for_a_reason_and_shows_it(deal: Deal) -> None:
    await submitted(deal)
    await decide(deal, "U0CFO", REJECT)
    (view,) = (await deal.get("state"))["views"]
    await deal.complete(deal.post("submit", user="U0CFO", view_id=view["view"]["id"], values={REASON: {REASON: "too cheap"}}))
    assert await state_of(deal) == "rejected"
    assert "too cheap" in text_of(await copy_of(deal, "U0CFO"))


async def test_decision_in_the_channel_follows_in_every_message(deal: Deal) -> None:
    await submitted(deal, f"{DEEP}; terms liability cap")
    assert buttons_of(await copy_of(deal, "U0LEGAL"))
    await deal.complete(deal.click(APPROVE, user="U0CFO"))
    assert buttons_of(await copy_of(deal, "U0CFO")) == []
    assert "Waiting for <@U0LEGAL>" in text_of(await copy_of(deal, "U0CFO"))
    assert "✅" in text_of(await copy_of(deal, "U0LEGAL"))
    await decide(deal, "U0LEGAL")
    assert await state_of(deal) == "approved"
    for user in ("U0CFO", "U0LEGAL"):
        assert "Approved by" in text_of(await copy_of(deal, user))


async def test_later_click_in_a_message_changes_nothing(world: World, deal: Deal) -> None:
    await submitted(deal)
    copy = await copy_of(deal, "U0CFO")
    await deal.complete(deal.click(APPROVE, user="U0CFO"))
    await press(world, "U0CFO", copy, APPROVE, value_of(copy, APPROVE))
    await deal.settled()
    assert await deal.rows("SELECT outcome FROM operations WHERE action_kind = 'approval.decide' ORDER BY id") == [
        {"outcome": "applied"},
        {"outcome": "refused"},
    ]
    assert buttons_of(await copy_of(deal, "U0CFO")) == []


async def test_new_version_and_cancellation_take_the_buttons_away(deal: Deal) -> None:
    await submitted(deal)
    await deal.complete(deal.slash(f"revise {FIRST_QUOTE}: discount 24%"))
    assert "v1 was replaced by v2" in text_of(await copy_of(deal, "U0CFO"))
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    first, second = await copies(deal, "U0CFO")
    assert (buttons_of(first), bool(buttons_of(second))) == ([], True)
    await deal.complete(deal.slash(f"cancel {FIRST_QUOTE}: not wanted"))
    assert [buttons_of(each) for each in await copies(deal, "U0CFO")] == [[], []]


async def test_quote_resubmitted_as_it_is_asks_again_with_the_note(deal: Deal) -> None:
    await submitted(deal)
    await decide(deal, "U0CFO", REQUEST_CHANGES)
    await fill_in(deal, "U0CFO", REASON, "Leave SSO out.")
    await deal.complete(deal.click(RESUBMIT, user="U0REP"))
    (form,) = (await deal.get("state"))["views"]
    assert "Leave SSO out." in text_of(form["view"])
    await fill_in(deal, "U0REP", APPROVER_NOTE, "They buy it *for* SSO.")
    assert await state_of(deal) == "pending_approval"
    first, second = await copies(deal, "U0CFO")
    assert (buttons_of(first), bool(buttons_of(second))) == ([], True)
    assert "Submitted again without changes:\\n> They buy it" in text_of(second)
    assert "Submitted again" in (await deal.replies())[-1]["text"]
    assert RESUBMIT not in await deal.card_text()


async def test_stand_in_is_asked_and_decides_for_the_absent(deal: Deal) -> None:
    await deal.complete(deal.slash("delegate <@U0DEALDESK>", user="U0MANAGER"))
    await deal.submitted_deal()
    assert [row["user_id"] for row in await deal.rows(COPIES)] == ["U0DEALDESK"]
    await decide(deal, "U0DEALDESK")
    assert "<@U0MANAGER>" in text_of(await copy_of(deal, "U0DEALDESK"))


async def test_delegate_is_asked_at_once_about_requests_that_wait(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.complete(deal.slash("delegate <@U0DEALDESK>", user="U0MANAGER"))
    await decide(deal, "U0DEALDESK")
    assert await state_of(deal) == "approved"
    assert [buttons_of(await copy_of(deal, user)) for user in ("U0MANAGER", "U0DEALDESK")] == [[], []]


async def test_without_buttons_in_the_channel_the_message_alone_has_them(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path, approval_buttons_in_channel=False) as deal:
        await deal.submitted_deal()
        assert APPROVE not in await deal.card_text()
        assert "quote.cancel" in await deal.card_text()
        await decide(deal, "U0MANAGER")
        assert await state_of(deal) == "approved"


async def test_message_of_another_person_is_no_place_to_decide(world: World, deal: Deal) -> None:
    await submitted(deal)
    copy = await copy_of(deal, "U0CFO")
    await press(world, "U0VP", copy, APPROVE, value_of(copy, APPROVE))
    await deal.settled()
    assert await state_of(deal) == "pending_approval"
    assert (await deal.rows("SELECT actor FROM audit_events WHERE event_type = 'access.refused'")) == [{"actor": "U0VP"}]
    assert any(messages.turned_away("foreign_click") in m["text"] for m in (await deal.get("state"))["messages"])


async def test_unreachable_approver_is_named_in_the_thread_with_a_dead_letter(deal: Deal) -> None:
    await deal.complete(deal.slash(DEEP))
    await deal.arm("slack", "refused", method="conversations.open", code="user_disabled")
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    (named,) = [reply["text"] for reply in await deal.replies() if "<@U0CFO>, a direct message" in reply["text"]]
    assert named.endswith("Please decide on your Home tab.")  # the card may have no buttons
    assert await deal.rows("SELECT class, status FROM dead_letters") == [{"class": "slack.direct", "status": "pending"}]
    await deal.complete(deal.click(APPROVE, user="U0CFO"))
    assert await state_of(deal) == "approved"


async def test_approver_who_is_a_guest_gets_no_figures(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path, approvers={"cfo": ["U0GUEST"]}) as deal:
        await submitted(deal)
        assert not await copies(deal, "U0GUEST")
        assert any("<@U0GUEST>, a direct message" in reply["text"] for reply in await deal.replies())


async def test_lost_role_takes_the_figures_and_a_new_holder_is_asked(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path) as deal:
        await deal.submitted_deal()
        assert "Margin" in text_of(await copy_of(deal, "U0MANAGER"))
    async with bot_in(world, tmp_path, approvers={"sales_manager": ["U0DEALDESK"]}) as deal:
        await eventually(lambda: copies(deal, "U0DEALDESK"), "the new holder to be asked")
        await deal.settled()
        assert "Acme" not in text_of(await copy_of(deal, "U0MANAGER"))
        lost = await deal.rows("SELECT user_id FROM approval_copies WHERE lost")
        assert lost == [{"user_id": "U0MANAGER"}]
        await decide(deal, "U0DEALDESK")
        assert await state_of(deal) == "approved"
        assert "no longer needs you" in text_of(await copy_of(deal, "U0MANAGER"))
