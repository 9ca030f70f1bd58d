"""Tests of the contact menu when a quote is marked as sent: offered to its own workspace, chosen or typed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from adapters.slack.block_kit import view_problems
from quotebot.commands.payloads import MarkSent
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.slack.surface import Surface
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import Found
from quotebot.views import forms
from tests.quotebot.access_parts import OpenGate
from tests.quotebot.parts import RULES
from tests.quotebot.slack.test_opportunity_menu import NOBODY, answer
from tests.quotebot.views.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

JO = "Jo Lee <jo@acme.example>"


async def contacts(account: str, typed: str) -> Found[str]:
    return Found((JO, f"{account} {typed}", "x" * 151), MORNING)


@pytest.mark.parametrize(("team", "offered"), [("T0HOME", [JO, "Acme j"]), ("T0OTHER", [])])
async def test_they_are_offered_as_of_when_they_were_read_and_to_the_quotes_own_workspace(
    bench: Bench, team: str, offered: list[str]
) -> None:
    quote = replace(example_quote(), account="Acme", team_id="T0HOME", approval=None)
    keys: dict[str, Any] = {"operation_key": "1" * 64, "root_effect_key": "2" * 64, "asked_hash": "3" * 64}
    await bench.ledger.database.write("insert", lambda tx: store.insert(tx, quote, **keys, recorded_at=MORNING))
    surface = Surface(NOBODY, bench.ledger, NOBODY, NOBODY, NOBODY, NOBODY, cast("Any", OpenGate(team)), contacts=contacts)
    asked = {"type": "block_suggestion", "action_id": forms.CONTACT, "block_id": forms.CONTACT, "value": "j"}
    view = forms.send_form(quote, contacts=True)
    answered = await answer(surface, {**asked, "view": view, "user": {"id": "U0REP", "team_id": "T0HOME"}})
    groups = answered.get("option_groups", [])
    assert [option["value"] for group in groups for option in group["options"]] == offered
    assert [group["label"]["text"] for group in groups] == (["As of 21 Nov 2026, 10:31 UTC"] if offered else [])


@pytest.mark.parametrize(
    ("typed", "chosen", "recipient"), [("", JO, JO), ("Kim", JO, "Kim"), ("Kim", None, "Kim"), ("", None, None)]
)
def test_a_contact_is_chosen_or_typed_and_what_is_typed_counts(typed: str, chosen: str | None, recipient: str | None) -> None:
    view = forms.send_form(example_quote(), contacts=True)
    assert view_problems(view) == view_problems(forms.send_form(example_quote())) == []
    values: dict[str, Any] = {
        forms.CONTACT: {forms.CONTACT: {"selected_option": None if chosen is None else {"value": chosen}}},
        forms.RECIPIENT: {forms.RECIPIENT: {"value": typed}},
    }
    filled = read_form(Form({**view, "state": {"values": values}}, RULES, MORNING))
    if recipient is None:
        assert filled == {forms.RECIPIENT: "Enter a name or an address."}
    else:
        assert cast("Filled", filled).payload == MarkSent(recipient)
