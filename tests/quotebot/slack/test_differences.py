"""Tests of differences with Salesforce in `/quote ops`: the two buttons, the form with the reason, and two operators at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.views import crm_messages, operator_messages
from quotebot.views.blocks import written
from tests.quotebot.slack.test_foreign_clicks import press, refused, value_of
from tests.quotebot.views.block_kit import message_problems, view_problems
from tests.quotebot.views.quote_examples import MORNING
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.sandbox.world import World

OPERATORS = ("U0OPERATOR", "U0DEALDESK")
KEEP, USE = crm_messages.TAKES
CHANGED = CrmDifference("Q-2026-0042", 2, "0Q0", "Quote.Status", "Presented", "In Review")
OPEN = Conflict(7, CHANGED, MORNING, "open", None, None, None)


def labels(blocks: list[dict[str, Any]]) -> list[str]:
    return [element["text"]["text"] for block in blocks if block["type"] == "actions" for element in block["elements"]]


def test_a_difference_names_both_values_and_has_a_button_for_each() -> None:
    text, blocks = crm_messages.waiting([OPEN], more=False)
    assert text.splitlines() == [
        "*1 difference with Salesforce*",
        '• *Q-2026-0042 v2*: someone changed *Quote.Status* in Salesforce to "In Review" (Quotebot has "Presented").',
    ]
    assert labels(blocks) == ["Keep Salesforce", "Use Quotebot"]
    assert message_problems(text, blocks) == []


def test_the_form_says_what_happens_and_carries_what_the_operator_saw() -> None:
    form = crm_messages.reconcile_form(OPEN, "ours")
    assert form is not None
    assert view_problems(form) == []
    assert form["blocks"][0]["text"]["text"].splitlines()[1] == (
        'Quote.Status of Q-2026-0042 v2 becomes "Presented", unless somebody changes it again before.'
    )
    assert crm_messages.parse_decided(form["private_metadata"]) == (7, "ours", "In Review")


def test_many_differences_with_hostile_values_stay_within_limits() -> None:
    hostile = replace(OPEN, difference=replace(CHANGED, ours="<!channel>" * 99, theirs="\N{SNOWMAN}" * 999, field="f" * 200))
    many = [replace(hostile, id=number) for number in range(1, crm_messages.DIFFERENCES_SHOWN_MAX + 1)]
    text, blocks = crm_messages.waiting(many, more=True)
    assert message_problems(text[:3000], blocks) == []  # the whole answer is cut
    assert "<!channel>" not in str(blocks)
    assert crm_messages.reconcile_form(hostile, "theirs") is None  # decided at a terminal


@pytest.mark.parametrize("text", ["", "{}", written({"x": 0}), written({"x": True}), written({"x": "7"}), written({"x": 2**63})])
def test_a_value_of_another_build_names_no_difference(text: str) -> None:
    assert crm_messages.parse_difference(text) is None
    assert crm_messages.parse_decided(text) is None
    assert crm_messages.parse_decided(written({"x": 7, "k": "mine", "s": "a"})) is None
    assert crm_messages.parse_difference(written({"x": 7})) == 7


def test_a_difference_is_put_in_german_within_limits(german: None) -> None:
    text, blocks = crm_messages.waiting([OPEN], more=True)
    form = crm_messages.reconcile_form(OPEN, "theirs")
    assert form is not None
    assert labels(blocks) == ["Salesforce behalten", "Quotebot verwenden"]
    assert [*message_problems(text, blocks), *view_problems(form)] == []
    assert crm_messages.too_late(replace(OPEN, state="ours", decided_by="U0OPS")) == (
        "Abweichung 7 wurde bereits von <@U0OPS> geklärt; es gilt der Wert von Quotebot. Es wurde nichts geändert."
    )


async def differing(world: World, deal: Deal) -> None:
    """Bring the first quote to a difference: somebody changed its status in Salesforce before it was sent."""
    await deal.approved_deal()
    org = world.salesforce._org
    (record,) = await deal.crm()
    org.update(SCHEMA["quote"], record["Id"], {"Status": "In Review"})
    await deal.complete(deal.slash(f"finalize {FIRST_QUOTE}"))
    await deal.complete(deal.slash(f"sent {FIRST_QUOTE} to buyer@acme.example"))
    await eventually(lambda: deal.rows("SELECT 1 FROM crm_conflicts"), "the difference")


async def form_of(deal: Deal, user: str, action_id: str) -> dict[str, Any]:
    """Open the form of a difference from the operator's own `/quote ops`."""
    await deal.complete(deal.slash("ops", user=user))
    await deal.click_ephemeral(action_id, user=user)
    view: dict[str, Any] = (await deal.get("state"))["views"][-1]["view"]
    return view


async def decide(deal: Deal, user: str, view: dict[str, Any], reason: str) -> Any:
    values = {crm_messages.REASON: {crm_messages.REASON: reason}}
    return (await deal.post("submit", user=user, view_id=view["id"], values=values))["ack"]


async def said_directly(deal: Deal, user: str) -> list[str]:
    return [m["text"] for m in (await deal.get("state"))["messages"] if m["channel"] == f"D{user[1:]}"]


async def test_first_of_two_operators_settles_a_difference_and_the_second_is_told(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", operators=OPERATORS) as deal:
        await differing(world, deal)
        assert "in `/quote ops`" in (await deal.replies())[-1]["text"]
        first, second = await form_of(deal, OPERATORS[0], USE), await form_of(deal, OPERATORS[1], KEEP)
        empty = await decide(deal, OPERATORS[0], first, " \u200f")
        assert empty["errors"] == {crm_messages.REASON: operator_messages.REASON_NEEDED}
        await decide(deal, OPERATORS[0], first, "ours is newer")
        await deal.settled()
        await decide(deal, OPERATORS[1], second, "theirs is right")
        await deal.settled()
        assert [record["Status"] for record in await deal.crm()] == ["Presented"]
        (row,) = await deal.rows("SELECT state, decided_by, reason FROM crm_conflicts")
        assert row == {"state": "ours", "decided_by": OPERATORS[0], "reason": "ours is newer"}
        assert (await said_directly(deal, OPERATORS[0]))[-1].startswith(f'Quote.Status of {FIRST_QUOTE} v1 becomes "Presented"')
        assert f"was settled by <@{OPERATORS[0]}>, who took Quotebot's value" in (await said_directly(deal, OPERATORS[1]))[-1]
        assert "difference" not in str((await deal.slash("ops", user=OPERATORS[1]))["ack"])


async def test_difference_is_settled_only_by_the_operator_to_whom_it_was_shown(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", operators=OPERATORS) as deal:
        await deal.complete(deal.slash())
        with closing(sqlite3.connect(deal.data_dir / "ledger.db")) as connection, connection:
            connection.execute(
                "INSERT INTO crm_conflicts (quote_id, version, record_id, field, ours, theirs, found_at) "
                "VALUES (?, 1, '0Q0', 'Quote.Status', 'Presented', 'In Review', 1)",
                (FIRST_QUOTE,),
            )
        view = await form_of(deal, OPERATORS[0], KEEP)
        (answer,) = [m for m in await deal.messages() if KEEP in str(m["blocks"])]
        value = value_of(answer, KEEP)
        await press(world, OPERATORS[1], answer, KEEP, value, to=OPERATORS[1])  # made for another operator
        await press(world, OPERATORS[0], answer, USE, value, to=OPERATORS[0])  # another button
        assert [found["code"] for found in await refused(deal)] == ["foreign_click", "foreign_click"]
    async with bot_in(world, tmp_path / "bot", operators=OPERATORS[1:]) as deal:
        answered = await decide(deal, OPERATORS[0], view, "theirs is right")
        assert answered["errors"] == {crm_messages.REASON: operator_messages.NOT_OPERATOR}
        await deal.click_ephemeral(KEEP, user=OPERATORS[0])
        assert operator_messages.NOT_OPERATOR in await deal.whispers(OPERATORS[0])
        assert await deal.rows("SELECT state FROM crm_conflicts") == [{"state": "open"}]
