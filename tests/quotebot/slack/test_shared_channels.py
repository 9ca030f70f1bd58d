"""Tests of quotes and externally shared channels: posted in listed channels, sent as direct messages otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli.doctor.others import CHANNEL_SCOPES, SCOPES
from quotebot.execution import membership
from quotebot.sandbox.world import World
from quotebot.views.card import APPROVE, SUBMIT
from tests.rig import FIRST_QUOTE, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig import Deal

SHARED = "C0PARTNER"
SECRET = "new for Very Secret Corp: 150 pro; term 12m; discount 15%"


async def seen_in(deal: Deal, channel: str) -> str:
    """Return everything that is visible to all in a channel, as one text."""
    state = await deal.get("state")
    messages = [each for each in state["messages"] if each["channel"] == channel and not each["ephemeral_for"]]
    files = [each for each in state["files"] if channel in each["shares"]]
    return json.dumps([[each["text"], each["blocks"]] for each in messages] + [each["name"] for each in files], ensure_ascii=False)


async def decide_at_home(deal: Deal, user: str) -> None:
    await deal.post("home", user=user)
    await deal.settled()
    home = (await deal.get("state"))["homes"][user]
    await deal.post("action", user=user, view_id=home["id"], action_id=APPROVE)
    await deal.settled()


def whispered(state: dict[str, Any], channel: str, user: str) -> list[str]:
    return [each["text"] for each in state["messages"] if each["channel"] == channel and each["ephemeral_for"] == user]


async def dead(deal: Deal) -> list[Any]:
    return await deal.rows("SELECT class, last_error FROM effects WHERE state = 'failed'")


async def test_quote_of_an_unlisted_shared_channel_lives_in_a_direct_message(deal: Deal) -> None:
    await deal.slash(SECRET, channel=SHARED)
    await deal.settled()
    assert FIRST_QUOTE in (await deal.card("D0REP"))["text"]
    state = await deal.get("state")
    assert f"The card of {FIRST_QUOTE} is in your direct messages" in whispered(state, SHARED, "U0REP")[-1]

    await deal.complete(deal.click(SUBMIT, user="U0REP", channel="D0REP"))
    assert "asks you to approve" in await seen_in(deal, "D0MANAGER")
    await deal.complete(deal.click(APPROVE, user="U0MANAGER", channel="D0MANAGER"))
    assert "Approved" in (await deal.card("D0REP"))["text"]
    assert f"Quote {FIRST_QUOTE} v1 - Very Secret Corp.pdf" in await seen_in(deal, "D0REP")

    assert await seen_in(deal, SHARED) == "[]"
    assert whispered(await deal.get("state"), SHARED, "U0PARTNER") == []
    assert await dead(deal) == []
    moved = await deal.rows("SELECT count(*) AS n FROM audit_events WHERE event_type = 'quote.card_moved'")
    assert moved == [{"n": 1}]


async def test_listed_shared_channel_holds_the_quote(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", shared_channels=(SHARED,)) as deal:
        await deal.slash(SECRET, channel=SHARED)
        await deal.settled()
        await deal.complete(deal.click(SUBMIT, user="U0REP", channel=SHARED))
        await deal.complete(deal.click(APPROVE, user="U0MANAGER", channel=SHARED))
        text = await seen_in(deal, SHARED)
        assert "Very Secret Corp" in text
        assert f"Quote {FIRST_QUOTE} v1 - Very Secret Corp.pdf" in text
        assert requests_of(world) == 0


@pytest.mark.parametrize("with_teams", [True, False])
async def test_partner_reads_what_is_posted_and_asks_and_decides_nothing(world: World, tmp_path: Path, *, with_teams: bool) -> None:
    async with bot_in(world, tmp_path / "bot", shared_channels=(SHARED,)) as deal:
        await deal.slash(SECRET, channel=SHARED)
        await deal.settled()
        await deal.complete(deal.click(SUBMIT, user="U0REP", channel=SHARED))
        await deal.complete(deal.click(APPROVE, user="U0PARTNER", channel=SHARED))
        typed = await deal.slash(f"status {FIRST_QUOTE}", user="U0PARTNER", channel=SHARED)
        for text in (f"@quotebot status {FIRST_QUOTE}", "@quotebot list all", f"@quotebot cancel {FIRST_QUOTE}"):
            await deal.post("message", user="U0PARTNER", channel=SHARED, text=text, with_teams=with_teams)
        await deal.settled()
        state = await deal.get("state")
        answers = [json.dumps(each) for each in state["messages"] if each["ephemeral_for"] == "U0PARTNER"]
        assert not [each for each in (*answers, json.dumps(typed)) if "Secret" in each or "USD" in each or FIRST_QUOTE in each]
        assert await deal.rows("SELECT state FROM quotes") == [{"state": "pending_approval"}]
        assert await deal.rows("SELECT 1 FROM audit_events WHERE event_type = 'access.refused'") != []


def requests_of(world: World) -> int:
    return len([each for each in world.witness.since() if each.method == "conversations.info"])


async def test_invited_organization_counts_as_one_that_reads(deal: Deal) -> None:
    await deal.post("channel", channel="C0DEALS", pending=True)
    await deal.slash(SECRET)
    await deal.settled()
    assert await seen_in(deal, "C0DEALS") == "[]"
    assert "Very Secret Corp" in await seen_in(deal, "D0REP")


async def test_card_leaves_a_channel_that_becomes_shared(deal: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "SHARING_FRESH_MS", 0)
    await deal.slash(SECRET)
    await deal.settled()
    await deal.click(SUBMIT, user="U0REP")
    await deal.settled()
    await deal.post("channel", channel="C0DEALS", shared=True)
    await deal.click(APPROVE, user="U0MANAGER")
    await deal.settled()

    card = await deal.card("D0REP")
    assert f"{FIRST_QUOTE}" in card["text"]
    assert "Approved" in card["text"]
    direct = await seen_in(deal, "D0REP")
    assert f"Quote {FIRST_QUOTE} v1 - Very Secret Corp.pdf" in direct
    shared = await seen_in(deal, "C0DEALS")
    assert "This card is gone" in shared
    assert f"Quote {FIRST_QUOTE} v1 - Very Secret Corp.pdf" not in shared
    assert [each["blocks"] for each in await deal.cards()] == []
    assert await deal.rows("SELECT channel FROM quote_places") == [{"channel": "D0REP"}]
    assert await deal.rows("SELECT count(*) AS n FROM replaced_roots") == [{"n": 1}]
    assert await dead(deal) == []

    await deal.post("channel", channel="C0DEALS", shared=False)
    await deal.slash(f"revise {FIRST_QUOTE}: discount 12%")
    await deal.settled()
    assert "v2" in (await deal.card("D0REP"))["text"]


async def test_text_in_the_direct_thread_is_about_the_quote(deal: Deal) -> None:
    await deal.slash(SECRET, channel=SHARED)
    await deal.settled()
    card = await deal.card("D0REP")
    await deal.post("message", user="U0REP", channel="D0REP", thread_ts=card["ts"], text="discount 12%")
    assert FIRST_QUOTE in whispered(await deal.get("state"), "D0REP", "U0REP")[-1]


async def test_without_the_scope_the_main_job_goes_on_by_direct_message(tmp_path: Path) -> None:
    async with World(tmp_path / "world", scopes=SCOPES).serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.slash(SECRET)
        await deal.settled()
        assert await seen_in(deal, "C0DEALS") == "[]"
        assert "Very Secret Corp" in await seen_in(deal, "D0REP")
        await deal.complete(deal.click(SUBMIT, user="U0REP", channel="D0REP"))
        await decide_at_home(deal, "U0MANAGER")
        assert f"Quote {FIRST_QUOTE} v1 - Very Secret Corp.pdf" in await seen_in(deal, "D0REP")
        assert await dead(deal) == []


async def test_outage_of_the_look_up_posts_nothing_and_is_tried_again(deal: Deal) -> None:
    await deal.arm("slack", "5xx", method="conversations.info", times=2)
    await deal.slash(SECRET)
    await deal.settled()
    assert "Very Secret Corp" in await seen_in(deal, "C0DEALS")
    assert await deal.rows("SELECT 1 FROM quote_places") == []


async def test_bot_that_was_removed_posts_nothing_anywhere_else(deal: Deal) -> None:
    await deal.post("channel", channel="C0DEALS", private=True, with_bot=False)
    await deal.slash(SECRET)
    await deal.settled()
    assert await seen_in(deal, "C0DEALS") == "[]"
    (failed,) = await dead(deal)
    assert failed["class"] == "slack.post"
    assert "channel_not_found" in failed["last_error"]


@pytest.mark.parametrize("effect", ["reset_before", "reset_after"])
async def test_direct_card_whose_answer_is_lost_is_posted_once(deal: Deal, effect: str) -> None:
    await deal.arm("slack", effect, method="chat.postMessage", times=1)
    await deal.slash(SECRET, channel=SHARED)
    await deal.settled()
    cards = [each for each in (await deal.get("state"))["messages"] if each["channel"] == "D0REP" and each["blocks"]]
    assert len(cards) == 1
    assert await deal.rows("SELECT channel FROM quote_places") == [{"channel": "D0REP"}]


async def announced(deal: Deal) -> str:
    """Wait until the effect of a dead letter's card has ended, and return its state."""
    found: list[str] = []

    async def settled() -> bool:
        sql = "SELECT state FROM effects WHERE class = 'slack.post' AND json_extract(payload, '$.what') = 'letter'"
        found[:] = [row["state"] for row in await deal.rows(sql) if row["state"] not in ("pending", "in_flight")]
        return bool(found)

    await eventually(settled, "the dead letter is announced")
    return found[0]


async def test_dead_letters_are_not_shown_in_a_shared_operator_channel(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", ops_channel=SHARED) as deal:
        await deal.arm("salesforce", "refused", code="FIELD_CUSTOM_VALIDATION_EXCEPTION", times=50)
        await deal.approved_deal()
        await deal.settled()
        assert await announced(deal) == "superseded"
        assert await seen_in(deal, SHARED) == "[]"


async def test_without_the_scope_dead_letters_are_shown_only_in_a_listed_channel(tmp_path: Path) -> None:
    for listed in ((), ("C0OPS",)):
        place = tmp_path / str(len(listed))
        async with (
            World(place / "world", scopes=SCOPES).serve() as world,
            bot_in(world, place / "bot", ops_channel="C0OPS", shared_channels=listed) as deal,
        ):
            await deal.arm("salesforce", "refused", code="FIELD_CUSTOM_VALIDATION_EXCEPTION", times=50)
            await deal.slash(SECRET)
            await deal.settled()
            await deal.complete(deal.click(SUBMIT, user="U0REP", channel="D0REP"))
            await decide_at_home(deal, "U0MANAGER")
            await deal.settled()
            assert await announced(deal) == ("delivered" if listed else "superseded")
            assert (await seen_in(deal, "C0OPS") == "[]") is not bool(listed)


async def test_without_im_write_a_lost_answer_is_a_dead_letter_and_no_second_card(tmp_path: Path) -> None:
    granted = (SCOPES | CHANNEL_SCOPES.keys()) - {"im:write"}
    async with World(tmp_path / "world", scopes=granted).serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.arm("slack", "reset_after", method="chat.postMessage", times=1)
        await deal.slash(SECRET, channel=SHARED)
        await eventually_failed(deal)
        (failed,) = await dead(deal)
        assert "im:write" in failed["last_error"]
        cards = [each for each in (await deal.get("state"))["messages"] if each["channel"] == "D0REP" and each["metadata"]]
        assert len([each for each in cards if each["blocks"]]) == 1


async def eventually_failed(deal: Deal) -> None:
    async def given_up() -> bool:
        return bool(await dead(deal))

    await eventually(given_up, "the card to be given up")
