"""Tests of `/quote delegate`: its syntax, its dates, and its messages."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.app.installation import speak
from quotebot.commands.payloads import DelegateApprovals
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.quotes.quote import QuoteState, plain_times
from quotebot.slack.delegation import (
    DelegationRequest,
    DelegationsRequest,
    UnknownPerson,
    delegation_command,
    read_cover,
    today,
)
from quotebot.slack.form_fields import Form
from quotebot.slack.grammar import GrammarProblem
from quotebot.slack.verbs import parse
from quotebot.views.approval_messages import covered_by, covering, delegated, standing
from quotebot.views.card import status_card
from quotebot.views.forms import cover_form
from tests.quotebot.parts import RULES
from tests.quotebot.slack.test_dialogs import send
from tests.quotebot.views.block_kit import view_problems
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
    command = delegation_command(asked, "U0VP", MORNING, "UTC")
    assert (command.absent, command.delegate) == ("U0VP", "U0CFO")
    days = [None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (command.since, command.until)]
    assert days == [None if since is None else f"{since}T00:00:00+00:00", f"{until}T00:00:00+00:00"]


def test_an_absence_that_begins_today_begins_now() -> None:
    assert delegation_command(DelegationRequest("U0CFO", date(2026, 11, 21)), "U0VP", MORNING, "UTC").since == MORNING


@pytest.mark.parametrize(
    ("zone", "until"),
    [
        ("America/Los_Angeles", "2026-12-25T08:00:00+00:00"),
        ("Asia/Tokyo", "2026-12-24T15:00:00+00:00"),
        ("Nowhere/Unknown", "2026-12-25T00:00:00+00:00"),
    ],
)
def test_a_day_ends_at_midnight_where_the_person_is(zone: str, until: str) -> None:
    command = delegation_command(DelegationRequest("U0CFO", None, DECEMBER[24]), "U0VP", MORNING, zone)
    assert datetime.fromtimestamp(command.until / 1000, UTC).isoformat() == until


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "UTC", "Pacific/Auckland"])
def test_texts_without_slacks_dates_name_the_days_that_were_typed(zone: str) -> None:
    command = delegation_command(DelegationRequest("U0CFO", DECEMBER[21], DECEMBER[24]), "U0VP", MORNING, zone)
    assert command.since is not None
    known = Delegation("U0VP", "U0CFO", command.since, command.until)
    texts = (
        delegated("U0CFO", command.until, zone, since=command.since),
        covered_by(known, MORNING, zone),
        covering(known, MORNING, zone),
        *(standing((known,), user, zone).partition("\n")[0] for user in ("U0VP", "U0CFO")),
    )
    days = [re.findall(r"[0-9]+ Dec 2026", plain_times(text)) for text in texts]
    assert days == [["21 Dec 2026", "24 Dec 2026"]] * len(texts)
    begun = delegated("U0CFO", command.until, zone), covered_by(known, known.since, zone), covering(known, known.since, zone)
    assert ["through 24 Dec 2026" in plain_times(text) for text in begun] == [True] * len(begun)


def test_a_day_outside_the_calendar_is_refused_as_too_far() -> None:
    asked = DelegationRequest("U0CFO", date.min, date.max)
    command = delegation_command(asked, "U0VP", MORNING, "Asia/Tokyo")
    assert (command.since, today(command.until, "Asia/Tokyo")) == (MORNING, date(2100, 1, 1))


def filled(**values: str) -> Form:
    """Return the form "Set cover" of 21 November in Los Angeles, as submitted."""
    view = cover_form(date(2026, 11, 21), date(2026, 12, 4), "America/Los_Angeles")
    assert view_problems(view) == []
    kinds = {"person": "selected_user", "first": "selected_date", "last": "selected_date"}
    state = {f"cover.{name}": {f"cover.{name}": {kinds[name]: value}} for name, value in values.items() if name in kinds}
    if "reason" in values:
        state["reason"] = {"reason": {"value": values["reason"]}}
    return Form({**view, "state": {"values": state}}, RULES, MORNING)


def test_the_form_becomes_the_command_of_the_typed_one() -> None:
    until = {day: int(datetime(2026, 12, day, 8, tzinfo=UTC).timestamp()) * 1000 for day in (5, 21, 25)}
    assert read_cover(filled(person="U0CFO"), "U0VP") == DelegateApprovals("U0VP", "U0CFO", until[5])
    later = filled(person="U0CFO", first="2026-12-21", last="2026-12-24", reason=" holidays ")
    assert read_cover(later, "U0VP") == DelegateApprovals("U0VP", "U0CFO", until[25], until[21], "holidays")


@pytest.mark.parametrize(
    ("values", "block_id", "said"),
    [
        ({}, "cover.person", "Pick a person."),
        ({"person": "U0VP"}, "cover.person", "Pick someone other than yourself."),
        ({"person": "U0MANAGER"}, "cover.person", "This person can't approve at your level. Pick someone who can."),
        ({"person": "U0CFO", "first": "2026-12-24", "last": "2026-12-21"}, "cover.last", "The end date is before the start date."),
        ({"person": "U0CFO", "last": "2028-01-01"}, "cover.last", "Choose an end date within the next year."),
        ({"person": "U0CFO", "first": "soon"}, "cover.first", "Choose a day."),
        ({"person": "U0CFO", "reason": "x" * 501}, "reason", "That reason is too long (500 characters max)."),
    ],
)
def test_what_is_wrong_in_the_form_is_said_at_its_field(values: dict[str, str], block_id: str, said: str) -> None:
    assert read_cover(filled(**values), "U0VP") == {block_id: said}


def test_cover_reads_like_this_in_german() -> None:
    speak("de")
    try:
        view = filled(person="U0CFO").view
        known = Delegation("U0VP", "U0CFO", MORNING, MORNING + 1, "Urlaub")
        texts = covered_by(known, MORNING, "UTC"), covering(known, MORNING - 1, "UTC").splitlines()[-1]
    finally:
        speak("en")
    assert (view["title"]["text"], view["submit"]["text"]) == ("Vertretung", "Vertretung speichern")
    assert texts[0].startswith("<@U0CFO> vertritt Sie bis einschließlich <!date^1795257060^")
    assert texts[1] == "> Urlaub"


def test_an_unknown_person_is_answered_with_the_form() -> None:
    assert read("delegate @colleague") == UnknownPerson('I can\'t find "@colleague". Pick a person from the list Slack suggests.')


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


async def test_cover_is_set_in_a_form_and_ended_on_the_home_tab(deal: Deal) -> None:
    manager, told = "U0MANAGER", "You cover for <@U0MANAGER> through"
    await deal.post("home", user=manager)
    await deal.slash("delegate @dealdesk", user=manager)
    await deal.click_ephemeral("cover.set", user=manager)
    refused = await send(deal, manager, **{"cover.person": "U0REP"})
    assert set(refused["ack"]["errors"]) == {"cover.person"}
    await send(deal, manager, **{"cover.person": "U0DEALDESK", "reason": "holidays"})
    await deal.settled()
    assert [told in text for text in [m["text"] for m in await deal.messages("D0DEALDESK")]] == [True]
    home = (await deal.get("state"))["homes"][manager]
    assert ("<@U0DEALDESK> covers for you through" in str(home), "End now" in str(home)) == (True, True)
    await deal.post("action", user=manager, channel="C0DEALS", view_id=home["id"], action_id="cover.end")
    await deal.settled()
    assert "covers for you" not in str((await deal.get("state"))["homes"][manager])
    assert "Welcome back" in (await deal.messages("D0MANAGER"))[-1]["text"]
    assert (await deal.messages("D0DEALDESK"))[-1]["text"].startswith("You no longer cover for <@U0MANAGER>.")
    await deal.post("action", user=manager, channel="C0DEALS", view_id=home["id"], action_id="cover.set")
    assert [view["user"] for view in (await deal.get("state"))["views"]] == [manager]
    await deal.slash("delegate @dealdesk", user="U0REP")
    await deal.click_ephemeral("cover.set", user="U0REP")
    assert (await deal.whispers("U0REP"))[-1] == "You aren't an approver, so you don't need cover."
