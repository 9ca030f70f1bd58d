from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.keyring import load_keyring
from quotebot.domain.quotes.quote import local_time
from quotebot.sandbox.world import World
from quotebot.slack.message_text import APPLY
from quotebot.views import help_messages, messages
from quotebot.views.card import APPROVE, REJECT, REMIND, REQUEST_CHANGES, SUBMIT
from quotebot.views.confirmations import CREATE_ANOTHER, SHOW
from quotebot.views.seals import Seals
from tests.quotebot.parts import gate_held
from tests.rig import FIRST_QUOTE, GOLDEN, Deal, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = (  # except for the ruleset that every new ledger contains
    "SELECT 1 FROM operations UNION ALL SELECT 1 FROM deliveries "
    "UNION ALL SELECT 1 FROM audit_events WHERE event_type NOT LIKE 'ruleset.%'"
)

COMMANDS = "SELECT 1 FROM operations UNION ALL SELECT 1 FROM effects"


async def form(deal: Deal, user: str = "U0MANAGER") -> dict[str, Any]:
    """Return the form that the person has open."""
    (view,) = [view for view in (await deal.get("state"))["views"] if view["user"] == user]
    found: dict[str, Any] = view
    return found


async def send_form(deal: Deal, reason: str, user: str = "U0MANAGER") -> dict[str, Any]:
    view = await form(deal, user)
    answer: dict[str, Any] = await deal.post("submit", user=user, view_id=view["view"]["id"], values={"reason": {"reason": reason}})
    return answer


async def stale_click(deal: Deal, action_id: str, user: str) -> dict[str, Any]:
    """Click a button that an update has removed since."""
    return await deal.click(action_id, user=user, stale=True)


def _without_given_id(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as it was sent: Slack adds ids to blocks without one."""
    return {key: value for key, value in block.items() if key != "block_id" or value == "quote.actions"}


# ------------------------------------------------------------------------------------------------------------------ typed


async def test_help_is_answered_inside_the_ack_and_recorded_nowhere(deal: Deal) -> None:
    for text in ("", "help", "HELP me"):
        answer = await deal.slash(text)
        assert answer["ack"]["text"] == help_messages.help_text()
    assert await deal.rows(EMPTY) == []


async def test_status_shows_the_card_to_the_one_who_asks(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    before = await deal.rows(EMPTY)
    answer = await deal.slash("status q-2026-0001", user="U0CFO")
    assert "Q-2026-0001" in answer["ack"]["text"]
    sealed = Seals(load_keyring(deal.data_dir)).blocks("U0CFO", (await deal.card())["blocks"])
    assert answer["ack"]["blocks"] == [_without_given_id(block) for block in sealed]
    assert answer["ack"].get("response_type", "ephemeral") == "ephemeral"
    assert await deal.rows(EMPTY) == before


TYPED = {
    "unknown quote": ("status Q-2026-0099", "No quote Q-2026-0099."),
    "no quote number": ("status 42", "isn't a quote number"),
    "unknown verb": ("stauts Q-2026-0001", "Did you mean `/quote status`?"),
    "no verb at all": ("bogus", 'I don\'t know "bogus".'),
    "unknown product": ("new for Acme: 10 prro", "Did you mean pro?"),
    "no whole quantity": ("new for Acme: 1.5 pro", "needs a whole quantity"),
    "negative quantity": ("new for Acme: -3 pro", "needs a whole quantity"),
    "malformed discount": ("new for Acme: 10 pro; discount 1O%", "isn't a"),
    "discount over 100": ("new for Acme: 10 pro; discount 101%", "A discount is 0 to 100"),
    "malformed term": ("new for Acme: 10 pro; term soon", "isn't a"),
    "no customer": ("new 10 pro", "Start with the customer"),
    "too long": (f"new for Acme: {'10 pro, ' * 375}", "2,048 characters max"),
}


@pytest.mark.parametrize("case", TYPED)
async def test_what_cannot_be_read_is_answered_and_changes_nothing(deal: Deal, case: str) -> None:
    text, expected = TYPED[case]
    answer = await deal.slash(text)
    assert expected in answer["ack"]["text"]
    assert await deal.rows(EMPTY) == []
    assert await deal.cards() == []


# ---------------------------------------------------------------------------------------------------------------- buttons


async def test_a_redelivered_click_is_acknowledged_bare_and_decides_once(deal: Deal) -> None:
    await deal.submitted_deal()
    first = await deal.click(APPROVE, user="U0MANAGER")
    await deal.settled()
    acks = await deal.redeliver(first["request_id"], "retry", 3)
    assert [first["ack"], *(ack["ack"] for ack in acks)] == [{}, {}, {}, {}]
    await deal.settled()
    assert len(await deal.crm()) == 1


async def test_a_click_on_a_card_that_moved_on_is_answered_in_private_and_changes_nothing(deal: Deal) -> None:
    await deal.submitted_deal()
    await stale_click(deal, SUBMIT, "U0REP")
    await deal.settled()
    assert any("Q-2026-0001 is already waiting for approval: " in text for text in await deal.whispers("U0REP"))
    assert len(await deal.rows("SELECT 1 FROM approvals")) == 1


async def test_remind_asks_the_approvers_again_and_a_second_click_says_from_when(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.complete(deal.click(REMIND, user="U0REP"))
    assert "<@U0MANAGER>" in (await deal.replies())[-1]["text"]
    direct = [m["text"] for m in (await deal.get("state"))["messages"] if m["channel"] == "D0MANAGER"]
    assert any("Decide in the message above." in text for text in direct)
    await deal.complete(deal.click(REMIND, user="U0REP"))
    assert (await deal.whispers("U0REP"))[-1].startswith("The last reminder to Sales Manager was sent ")
    assert len(await deal.rows("SELECT 1 FROM audit_events WHERE event_type = 'approval.reminded' AND actor = 'U0REP'")) == 1


async def test_second_submit_is_told_who_asked_and_when_and_audited(deal: Deal) -> None:
    await deal.submitted_deal()
    (approval,) = await deal.rows("SELECT approval_id, requested_at FROM approvals")
    await deal.complete(deal.slash(f"submit {FIRST_QUOTE}"))
    told = (await deal.whispers("U0REP"))[-1]
    since = local_time(approval["requested_at"])
    assert f"Q-2026-0001 is already waiting for approval: <@U0REP> submitted it, {since}." in told
    (event,) = await deal.rows("SELECT actor, after FROM audit_events WHERE event_type = 'approval.duplicate_suppressed'")
    assert event["actor"] == "U0REP"
    known = {"approval_id": approval["approval_id"], "since": approval["requested_at"], "requested_by": "U0REP"}
    assert known.items() <= json.loads(event["after"]).items()
    assert await deal.rows("SELECT approval_id, requested_at FROM approvals") == [approval]


@pytest.mark.parametrize(
    "value", ["", "{}", '{"v":2,"q":"Q-2026-0001","n":1,"a":null}', '{"v":1,"q":"Q-2026-0001","n":1,"a":null,"x":1}']
)
async def test_a_button_of_another_build_is_explained_and_does_nothing(world: World, deal: Deal, value: str) -> None:
    await deal.slash()
    await deal.settled()
    card = next(message for message in world.slack.messages.all() if message.blocks and message.thread_ts is None)
    (actions,) = [block for block in card.blocks if block["type"] == "actions"]
    actions["elements"][0]["value"] = value
    before = await deal.rows(EMPTY)
    answer = await deal.click(SUBMIT, user="U0REP")
    assert answer["ack"] == {}
    assert await deal.whispers("U0REP") == [messages.OUTDATED_BUTTON]
    assert await deal.rows(EMPTY) == before
    await deal.click_ephemeral(SHOW)
    assert (await deal.whispers("U0REP"))[-1].startswith(f"Quote {FIRST_QUOTE} for Acme")


async def test_a_simulated_change_of_a_quote_is_made_with_one_click(deal: Deal) -> None:
    await deal.complete(deal.slash(GOLDEN))
    answer = (await deal.slash(f"simulate {FIRST_QUOTE}: discount 10%"))["ack"]
    assert answer["text"].startswith("*What if* · ")
    assert [each["text"]["text"] for each in answer["blocks"][-1]["elements"]] == [f"Apply to {FIRST_QUOTE}"]
    await deal.click_ephemeral(APPLY)
    await deal.settled()
    assert [row["version"] for row in await deal.rows("SELECT version FROM quotes")] == [2]
    unchanged = (await deal.slash(f"simulate {FIRST_QUOTE}: discount 10%"))["ack"]
    assert "blocks" not in unchanged


# ---------------------------------------------------------------------------------------------------- typed a second time


async def asked_back(deal: Deal) -> dict[str, Any]:
    """Type the golden deal twice; return the question that the person sees."""
    for _ in range(2):
        await deal.slash(GOLDEN)
        await deal.settled()
    question: dict[str, Any] = [m for m in await deal.messages() if m["ephemeral_for"] == "U0REP" and m["blocks"]][-1]
    return question


async def test_who_types_the_same_again_is_asked_in_private_with_two_buttons(deal: Deal) -> None:
    question = await asked_back(deal)
    assert question["text"].startswith(f"You just created the same quote, {FIRST_QUOTE}.")
    assert question["text"].endswith("Create another?")
    (actions,) = [block for block in question["blocks"] if block["type"] == "actions"]
    assert [button["text"]["text"] for button in actions["elements"]] == ["Create another", f"Open {FIRST_QUOTE}"]
    assert len(await deal.cards()) == 1


async def test_create_another_makes_one_more_however_often_it_is_clicked(deal: Deal) -> None:
    await asked_back(deal)
    clicks = await asyncio.gather(*(deal.click_ephemeral(CREATE_ANOTHER) for _ in range(3)))
    await deal.settled()
    acks = await deal.redeliver(clicks[0]["request_id"], "retry", 2)
    await deal.settled()
    assert [answer["ack"] for answer in (*clicks, *acks)] == [{}] * 5
    assert len(await deal.cards()) == len(await deal.rows("SELECT 1 FROM quotes")) == 2
    second = (await deal.rows("SELECT quote_id FROM one_time_tokens"))[0]["quote_id"]
    assert (await deal.whispers("U0REP"))[-2:] == [messages.already_created(second)] * 2


async def test_show_it_shows_the_card_to_the_one_who_clicked_and_records_nothing(deal: Deal) -> None:
    await asked_back(deal)
    before = await deal.rows(EMPTY)
    answer = await deal.click_ephemeral(SHOW)
    shown = [m for m in await deal.messages() if m["ephemeral_for"] == "U0REP"][-1]
    assert answer["ack"] == {}
    assert shown["text"].startswith(f"Quote {FIRST_QUOTE} for Acme")
    assert await deal.rows(EMPTY) == before


@pytest.mark.parametrize("action_id", [CREATE_ANOTHER, SHOW])
async def test_a_question_of_another_build_is_explained_and_does_nothing(world: World, deal: Deal, action_id: str) -> None:
    question = await asked_back(deal)
    asked = next(message for message in world.slack.messages.all() if message.ts == question["ts"])
    (actions,) = [block for block in asked.blocks if block["type"] == "actions"]
    for button in actions["elements"]:
        button["value"] = button["value"].replace('"v":1', '"v":2')
    before = await deal.rows(COMMANDS)
    answer = await deal.click_ephemeral(action_id)
    assert answer["ack"] == {}
    assert (await deal.whispers("U0REP"))[-1] == messages.turned_away("foreign_click")
    assert await deal.rows(COMMANDS) == before


async def test_a_redelivered_command_that_was_asked_back_is_asked_again_with_its_buttons(deal: Deal) -> None:
    await deal.slash(GOLDEN)
    await deal.settled()
    again = await deal.slash(GOLDEN)
    await deal.settled()
    (ack,) = await deal.redeliver(again["request_id"], "retry", 1)
    assert ack["ack"]["text"].endswith("Create another?")
    assert [block["type"] for block in ack["ack"]["blocks"]] == ["section", "actions"]


# ------------------------------------------------------------------------------------------------------------ reject form


async def test_reject_opens_a_form_and_records_nothing_yet(deal: Deal) -> None:
    await deal.submitted_deal()
    before = await deal.rows(EMPTY)
    answer = await deal.click(REJECT, user="U0MANAGER")
    assert answer["ack"] == {}
    assert (await form(deal))["view"]["callback_id"] == "approval.reject"
    assert await deal.rows(EMPTY) == before


async def test_an_empty_reason_is_an_error_inside_the_form(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(REJECT, user="U0MANAGER")
    before = await deal.rows(EMPTY)
    answer = await send_form(deal, " \u200f ")  # passes the client's check, but has no visible text
    assert answer["ack"] == {"response_action": "errors", "errors": {"reason": messages.REASON_NEEDED}}
    assert (await form(deal))["errors"] == {"reason": messages.REASON_NEEDED}
    assert await deal.rows(EMPTY) == before


async def test_a_reason_rejects_the_quote_and_closes_the_form(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(REJECT, user="U0MANAGER")
    sent = await send_form(deal, "Too deep for this size.")
    assert sent["ack"] == {}
    assert (await deal.get("state"))["views"] == []
    await deal.settled()
    card = await deal.card_text()
    assert "Rejected by <@U0MANAGER> (Sales Manager)" in card
    assert "> Too deep for this size." in card
    assert '"approval.' not in card
    assert (await deal.replies())[-1]["text"].endswith("> Too deep for this size.")
    assert (await deal.crm(), await deal.files()) == ([], [])


async def test_a_wish_for_changes_sends_the_quote_back_with_its_reason(deal: Deal) -> None:
    await deal.submitted_deal()
    before = await deal.rows(EMPTY)
    await deal.click(REQUEST_CHANGES, user="U0MANAGER")
    assert (await form(deal))["view"]["callback_id"] == "approval.request_changes"
    assert await deal.rows(EMPTY) == before
    sent = await send_form(deal, "Leave SSO out.")
    assert sent["ack"] == {}
    await deal.settled()
    card = await deal.card_text()
    assert "Changes requested by <@U0MANAGER> (Sales Manager)" in card
    assert "Changes requested" in card
    assert (await deal.replies())[-1]["text"].endswith("requested changes to Q-2026-0001:\n> Leave SSO out.")
    assert (await deal.crm(), await deal.files()) == ([], [])


async def test_a_form_sent_twice_rejects_once(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(REJECT, user="U0MANAGER")
    sent = await send_form(deal, "no")
    acks = await deal.redeliver(sent["request_id"], "retry", 2)
    await deal.settled()
    assert [ack["ack"] for ack in acks] == [{}, {}]
    assert len(await deal.rows("SELECT 1 FROM operations WHERE action_kind = 'approval.decide'")) == 1


async def test_the_requester_gets_a_refusal_and_no_form(deal: Deal) -> None:
    await deal.submitted_deal()
    before = await deal.rows(EMPTY)
    await deal.click(REJECT, user="U0REP")
    assert (await deal.get("state"))["views"] == []
    assert "You can't approve your own quote" in (await deal.whispers("U0REP"))[-1]
    assert await deal.rows(EMPTY) == before


async def test_who_holds_no_role_gets_a_refusal_and_no_form(deal: Deal) -> None:
    await deal.submitted_deal()
    await deal.click(REJECT, user="U0LEGAL")
    assert (await deal.get("state"))["views"] == []
    assert " can decide about " in (await deal.whispers("U0LEGAL"))[-1]


async def test_a_decided_quote_opens_no_form(deal: Deal) -> None:
    await deal.approved_deal()
    await stale_click(deal, REJECT, "U0CFO")
    assert (await deal.get("state"))["views"] == []
    assert "was already approved by <@U0MANAGER>" in (await deal.whispers("U0CFO"))[-1]


@pytest.mark.parametrize("effect", ["5xx", "slow", "reset_before"])
async def test_a_form_that_slack_does_not_open_is_said_so_within_slacks_patience(deal: Deal, effect: str) -> None:
    await deal.submitted_deal()
    await deal.arm("slack", effect, method="views.open")
    answer = await deal.click(REJECT, user="U0MANAGER")
    assert answer["ack"] == {}
    assert answer["ack_ms"] < 3_000
    assert (await deal.whispers("U0MANAGER"))[-1] == messages.FORM_NOT_OPENED


# ------------------------------------------------------------------------------------- a ledger that cannot be written in time


async def test_when_nothing_can_be_recorded_each_kind_of_gesture_is_told_so_in_its_own_way(tmp_path: Path) -> None:
    async with (
        World(tmp_path / "world", ack_seconds=1.5).serve() as world,
        bot_in(world, tmp_path / "bot", ack_budget_seconds=0.2) as deal,
    ):
        await deal.submitted_deal()
        await deal.click(REJECT, user="U0MANAGER")
        await deal.slash("new", user="U0VP")
        creation = (await form(deal, "U0VP"))["view"]["id"]
        values = {"account": {"account": "Acme"}, "terms": {"terms": "1 pro"}}
        before = await deal.rows("SELECT id, source_request_id FROM deliveries")
        with gate_held(deal.data_dir / "ledger.db"):
            typed = await deal.slash()
            clicked = await deal.click(APPROVE, user="U0MANAGER")
            sent = await send_form(deal, "no")
            filled = await deal.post("submit", user="U0VP", view_id=creation, values=values)
        assert typed["ack"]["text"] == messages.NOTHING_RECORDED
        assert (clicked["ack"], clicked["error"]) == (None, "operation_timeout")
        assert sent["ack"] == {"response_action": "errors", "errors": {"reason": messages.NOTHING_RECORDED}}
        assert filled["ack"] == {"response_action": "errors", "errors": {"terms": messages.NOTHING_RECORDED}}  # its last field
        await deal.slash("new for Later: 1 pro")
        await eventually(lambda: _two_cards(deal), "the next command to work")
        await deal.settled()
        after = await deal.rows("SELECT id, source_request_id FROM deliveries")
        assert len(after) == len(before) + 1  # only the one typed afterwards
        assert (
            json.loads((await deal.rows("SELECT payload FROM operations ORDER BY id DESC LIMIT 1"))[0]["payload"])["account"]
            == "Later"
        )


async def _two_cards(deal: Deal) -> bool:
    return len(await deal.cards()) == 2
