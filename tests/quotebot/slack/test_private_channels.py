"""Tests of quotes made in a private channel: in full for members, approvers and operators, in outline for others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.execution import membership
from quotebot.sandbox.slack.directory import TEAM_ID, Person
from quotebot.store.quotes import PAGE_ROWS
from quotebot.views.card import APPROVE, SUBMIT
from quotebot.views.confirmations import SHOW
from quotebot.views.home import FIND
from quotebot.views.pending_buttons import RETRY_COMMAND
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.sandbox.world import World

SECRET = "new for Very Secret Corp: 150 pro; term 12m; discount 15%"
# The number must stand alone, because a correlation id may contain the same digits.
FACTS = re.compile(r"Secret|\b150\b|\$|15%")
READS = ("show {}", "status {}", "explain {}", "compare {}", "audit {}", "simulate {}: discount 20%")
COLLEAGUE, NEWCOMER = "U0COLLEAGUE", "U0NEWCOMER"


@pytest.fixture
async def quoted(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a quote in the private #deals: the rep and a colleague are members, a newcomer is only in #general."""
    people, places = world.slack.directory.people, world.slack.directory.channels
    for user in (COLLEAGUE, NEWCOMER):
        people[user] = Person(user, user[2:].lower(), user[2:].title(), "rep", team_id=TEAM_ID)
    general = places["C0GENERAL"]
    places["C0GENERAL"] = replace(general, members=(*general.members, COLLEAGUE, NEWCOMER))
    async with bot_in(world, tmp_path / "bot", operators=("U0OPERATOR",)) as deal:
        await deal.post("channel", channel="C0DEALS", private=True, members=["U0REP", COLLEAGUE, "U0MANAGER"])
        await deal.slash(SECRET)
        await deal.settled()
        yield deal


async def asked(deal: Deal, text: str, user: str) -> str:
    answer = (await deal.slash(text.format(FIRST_QUOTE), user=user, channel="C0GENERAL"))["ack"]
    return json.dumps(answer, ensure_ascii=False)


def is_outline(said: str, owner: str = "U0REP") -> bool:
    return FIRST_QUOTE in said and owner in said and not FACTS.search(said)


@pytest.mark.parametrize("text", READS)
async def test_read_of_a_private_quote_is_an_outline_for_people_outside(quoted: Deal, text: str) -> None:
    said = await asked(quoted, text, NEWCOMER)
    assert is_outline(said)
    assert "Not everyone can see more" in said
    for user in (COLLEAGUE, "U0REP", "U0LEGAL", "U0OPERATOR"):
        assert "Not everyone can see more" not in await asked(quoted, text, user), user


async def test_list_shows_number_status_and_owner_to_people_outside(quoted: Deal) -> None:
    assert is_outline(await asked(quoted, "list all", NEWCOMER))
    assert FIRST_QUOTE not in await asked(quoted, "list all for Secret", NEWCOMER)
    assert "Very Secret Corp" in await asked(quoted, "list all", COLLEAGUE)
    assert "Very Secret Corp" in await asked(quoted, "list all for Secret", "U0CFO")


async def test_search_by_customer_does_not_count_what_the_searcher_may_not_see(quoted: Deal) -> None:
    for number in range(PAGE_ROWS):
        await quoted.slash(f"new for Secret and me {number}: {number + 1} pro", user=NEWCOMER, channel="C0GENERAL")
    await quoted.settled()
    assert "add `page 2`" not in await asked(quoted, "list all for Secret", NEWCOMER)
    assert "add `page 2`" in await asked(quoted, "list all for Secret", "U0CFO")
    assert "add `page 2`" in await asked(quoted, "list all for Secret", COLLEAGUE)
    assert "add `page 2`" in await asked(quoted, "list all", NEWCOMER)  # whose rows are outlines


async def home_menu(deal: Deal, user: str, typed: str) -> tuple[str, list[dict[str, Any]]]:
    """Return a person's Home tab, and what its menu offers for the typed text."""
    await deal.post("home", user=user)
    await deal.settled()
    view_id = (await deal.get("state"))["homes"][user]["id"]
    return view_id, (await deal.post("suggest", user=user, view_id=view_id, action_id=FIND, value=typed))["options"]


async def test_home_tab_finds_what_a_person_sees_in_full_and_shows_it_to_them_alone(quoted: Deal) -> None:
    line = f"Very Secret Corp · {FIRST_QUOTE} · draft · $9,180.00"
    for typed in ("secret", f" {FIRST_QUOTE.lower()} "):
        assert (await home_menu(quoted, NEWCOMER, typed))[1] == []
        view_id, offered = await home_menu(quoted, COLLEAGUE, typed)
        assert [each["text"]["text"] for each in offered] == [line]
    assert (await home_menu(quoted, COLLEAGUE, "nobody"))[1] == (await home_menu(quoted, COLLEAGUE, "Q-2026-9999"))[1] == []
    before = await quoted.rows("SELECT id FROM operations")
    await quoted.post("action", user=COLLEAGUE, view_id=view_id, action_id=FIND, value={"selected_option": offered[0]})
    (shown,) = (await quoted.get("state"))["views"]
    assert (shown["user"], "Very Secret Corp" in str(shown)) == (COLLEAGUE, True)
    theirs, _ = await home_menu(quoted, NEWCOMER, "secret")
    await quoted.post("action", user=NEWCOMER, view_id=theirs, action_id=FIND, value={"selected_option": offered[0]})
    (refused,) = await quoted.rows("SELECT actor, after FROM audit_events WHERE event_type = 'access.refused'")
    assert (refused["actor"], json.loads(refused["after"])["code"]) == (NEWCOMER, "foreign_click")
    kinds = await quoted.rows(f"SELECT DISTINCT action_kind FROM operations WHERE id > {len(before)}")  # noqa: S608 -- a count
    assert kinds == [{"action_kind": "home.show"}]


async def test_mention_shows_an_outline_to_people_outside(quoted: Deal) -> None:
    await quoted.post("message", user=NEWCOMER, channel="C0GENERAL", text=f"@quotebot status {FIRST_QUOTE}")
    messages = (await quoted.get("state"))["messages"]
    (said,) = [each for each in messages if each["ephemeral_for"] == NEWCOMER]
    assert is_outline(json.dumps([said["text"], said["blocks"]]))


async def test_show_button_of_a_list_shows_an_outline_to_people_outside(quoted: Deal) -> None:
    await asked(quoted, "list all", NEWCOMER)
    messages = (await quoted.get("state"))["messages"]
    listed = [each for each in messages if each["ephemeral_for"] == NEWCOMER][-1]
    await quoted.post("action", user=NEWCOMER, channel="C0GENERAL", message_ts=listed["ts"], action_id=SHOW)
    said = [each for each in (await quoted.get("state"))["messages"] if each["ephemeral_for"] == NEWCOMER][-1]
    assert is_outline(json.dumps([said["text"], said["blocks"]]))


@pytest.mark.parametrize("text", ["revise {}: discount 1%", "cancel {}", "submit {}", "clone {}"])
async def test_people_outside_change_nothing_by_typing(quoted: Deal, text: str) -> None:
    await asked(quoted, text, NEWCOMER)
    await quoted.settled()
    (row,) = await quoted.rows("SELECT version, state FROM quotes")
    assert row == {"version": 1, "state": "priced"}
    (refused,) = await quoted.rows("SELECT after FROM audit_events WHERE event_type = 'access.refused'")
    assert json.loads(refused["after"])["code"] == "out_of_sight"
    seen = [each for each in (await quoted.get("state"))["messages"] if each["ephemeral_for"] == NEWCOMER]
    assert not FACTS.search(json.dumps([[each["text"], each["blocks"]] for each in seen], ensure_ascii=False))


async def test_member_of_the_channel_changes_the_quote_by_typing(quoted: Deal) -> None:
    await asked(quoted, "revise {}: discount 12%", COLLEAGUE)
    await quoted.settled()
    assert await quoted.rows("SELECT version FROM quotes") == [{"version": 2}]


async def test_approval_goes_on_though_the_approver_is_not_in_the_channel(quoted: Deal) -> None:
    await quoted.post("channel", channel="C0DEALS", members=["U0REP"])
    await quoted.click(SUBMIT, user="U0REP")
    await quoted.settled()
    await quoted.post("home", user="U0MANAGER")
    await quoted.settled()
    home = (await quoted.get("state"))["homes"]["U0MANAGER"]
    await quoted.post("action", user="U0MANAGER", view_id=home["id"], action_id=APPROVE)
    await quoted.settled()
    assert await quoted.rows("SELECT state FROM quotes") == [{"state": "approved"}]


@pytest.mark.parametrize("code", ["missing_scope", "fetch_members_failed"])
async def test_without_the_list_of_members_nobody_reads_along_by_membership(quoted: Deal, code: str) -> None:
    await quoted.arm("slack", "refused", method="conversations.members", code=code, times=50)
    assert is_outline(await asked(quoted, "show {}", COLLEAGUE))
    assert "Very Secret Corp" in await asked(quoted, "show {}", "U0REP")
    assert "Very Secret Corp" in await asked(quoted, "show {}", "U0CFO")


async def test_bot_that_was_removed_lets_nobody_read_along(quoted: Deal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MEMBERS_FRESH_MS", 0)
    await quoted.post("channel", channel="C0DEALS", with_bot=False)
    assert is_outline(await asked(quoted, "show {}", COLLEAGUE))
    assert "Very Secret Corp" in await asked(quoted, "show {}", "U0MANAGER")


async def test_write_waits_while_slack_does_not_say_who_is_in_the_channel(quoted: Deal) -> None:
    await quoted.arm("slack", "5xx", method="conversations.members", times=2)
    await asked(quoted, "revise {}: discount 12%", COLLEAGUE)
    await quoted.settled()
    assert await quoted.rows("SELECT version FROM quotes") == [{"version": 2}]


async def test_write_that_waits_for_slack_is_on_the_card_and_goes_on_by_a_click(quoted: Deal) -> None:
    await quoted.arm("slack", "5xx", method="conversations.members", times=50)
    await asked(quoted, "revise {}: discount 12%", COLLEAGUE)

    async def waits() -> bool:
        return "revise: Saved. Retrying" in await quoted.card_text()

    await eventually(waits, "the card to show the command")
    await quoted.clear_faults()
    await quoted.click(RETRY_COMMAND, user="U0REP", stale=True)
    await quoted.settled()
    assert await quoted.rows("SELECT version FROM quotes") == [{"version": 2}]
    assert "Operation pending" not in await quoted.card_text()


async def test_members_are_asked_for_once_in_ten_minutes_and_never_for_the_requester(quoted: Deal) -> None:
    await asked(quoted, "show {}", "U0REP")
    await quoted.click(SUBMIT, user="U0REP")
    await quoted.settled()
    assert await quoted.witness("conversations.members") == []
    for _ in range(3):
        await asked(quoted, "show {}", COLLEAGUE)
        await asked(quoted, "show {}", NEWCOMER)
    assert len(await quoted.witness("conversations.members")) == 1


async def test_quotes_of_public_channels_are_open_to_every_member(deal: Deal) -> None:
    await deal.slash(SECRET)
    await deal.settled()
    said: Any = await asked(deal, "show {}", "U0LEGAL")
    assert "Very Secret Corp" in said
