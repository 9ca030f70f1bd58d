"""Tests of `/quote delegate`: its syntax, its dates, and its messages."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.domain.approvals.people import Delegation
from quotebot.domain.quotes.quote import QuoteState
from quotebot.slack.delegation import DelegationRequest, DelegationsRequest, delegation_command
from quotebot.slack.grammar import GrammarProblem
from quotebot.slack.verbs import parse
from quotebot.views.card import status_card
from tests.quotebot.views.quote_examples import CATALOGUE, MORNING, example_approval, example_quote

if TYPE_CHECKING:
    from tests.rig import Deal

DECEMBER = {day: date(2026, 12, day) for day in (21, 24)}
MEANINGS: dict[str, Any] = {
    "delegate": DelegationsRequest(),
    "delegate OFF": DelegationRequest(None),
    "delegate <@U0CFO>": DelegationRequest("U0CFO"),
    "ooo &lt;@U0CFO|cfo&gt; until 2026-12-24": DelegationRequest("U0CFO", None, DECEMBER[24]),
    "delegate U0CFO until 2026-12-24 from 2026-12-21": DelegationRequest("U0CFO", DECEMBER[21], DECEMBER[24]),
    "delegate <@U0CFO> Reason: until I am back": DelegationRequest("U0CFO", reason="until I am back"),
}
PROBLEMS = {
    "delegate to nobody": 'I can\'t find "to"',
    "delegate @cfo": 'I can\'t find "@cfo"',
    "delegate <@U0CFO>until 2026-12-24": "I can't find",
    "delegate <@U0CFO> until Friday": '"Friday" isn\'t a date like 2026-12-24.',
    "delegate <@U0CFO> from 2026-02-30": '"2026-02-30" isn\'t a date',
    "delegate <@U0CFO> tomorrow": 'I didn\'t understand "tomorrow".',
    f"delegate <@U0CFO> reason {'x' * 501}": "That reason is too long (500 characters max).",
}


def read(text: str) -> Any:
    return parse(text, "C0SALES", CATALOGUE)


@pytest.mark.parametrize("text", MEANINGS)
def test_what_is_typed_means(text: str) -> None:
    assert read(text) == MEANINGS[text]


@pytest.mark.parametrize("text", PROBLEMS)
def test_what_is_unclear_is_answered_and_records_nothing(text: str) -> None:
    found = read(text)
    assert isinstance(found, GrammarProblem)
    assert PROBLEMS[text] in found.message


@pytest.mark.parametrize(
    ("asked", "since", "until"),
    [
        (DelegationRequest("U0CFO"), None, "2026-12-05"),  # two weeks from today, 21 November
        (DelegationRequest("U0CFO", None, DECEMBER[24]), None, "2026-12-25"),
        (DelegationRequest("U0CFO", DECEMBER[21], DECEMBER[24]), "2026-12-21", "2026-12-25"),
        (DelegationRequest("U0CFO", DECEMBER[21]), "2026-12-21", "2027-01-04"),
    ],
)
def test_an_absence_includes_its_last_day(asked: DelegationRequest, since: str | None, until: str) -> None:
    command = delegation_command(asked, "U0VP", MORNING)
    assert (command.absent, command.delegate) == ("U0VP", "U0CFO")
    days = [None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (command.since, command.until)]
    assert days == [None if since is None else f"{since}T00:00:00+00:00", f"{until}T00:00:00+00:00"]


def test_an_absence_that_begins_today_begins_now() -> None:
    assert delegation_command(DelegationRequest("U0CFO", date(2026, 11, 21)), "U0VP", MORNING).since == MORNING


def test_the_card_names_for_whom_a_stand_in_is_asked() -> None:
    pending = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())
    away = (Delegation("U0MANAGER", "U0VP", 0, MORNING),)
    blocks = str(status_card(pending, (), approvers=("U0VP", "U0CFO"), away=away).blocks)
    assert "Waiting for <@U0VP> (covering for <@U0MANAGER>), <@U0CFO>" in blocks


async def test_in_slack_an_absence_is_set_shown_used_and_ended(deal: Deal) -> None:
    await deal.submitted_deal()
    answer = await deal.slash("delegate <@U0DEALDESK> until 2099-01-01", user="U0MANAGER")
    assert answer["ack"] == {}
    await deal.settled()
    assert "within the next year" in (await deal.whispers("U0MANAGER"))[-1]
    await deal.slash("delegate <@U0DEALDESK> reason holidays", user="U0MANAGER")
    await deal.settled()
    for user, said in (("U0MANAGER", "<@U0DEALDESK> is covering for you"), ("U0DEALDESK", "You're covering for <@U0MANAGER>")):
        shown = (await deal.slash("delegate", user=user))["ack"]["text"]
        assert (said in shown, "holidays" in shown) == (True, True)
    await deal.click("approval.approve", user="U0DEALDESK")
    await deal.settled()
    assert "Approved by <@U0DEALDESK> (Deal Desk, for <@U0MANAGER>)" in await deal.card_text()
    await deal.slash("delegate off", user="U0MANAGER")
    await deal.settled()
    assert "No one is covering for you" in (await deal.slash("delegate", user="U0MANAGER"))["ack"]["text"]
