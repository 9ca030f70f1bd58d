"""Tests of the opportunity in the new quote's form: offered for the chosen account, read on submit, refused for another."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.failures import AdapterError, Failure
from adapters.salesforce.records import OpenOpportunity
from adapters.slack.api import Identity
from adapters.slack.block_kit import view_problems
from quotebot.commands.payloads import CreateByForm
from quotebot.domain.quotes.quote import ChosenOpportunity
from quotebot.slack.builder_input import previewed
from quotebot.slack.crm_menus import AWAY_SECONDS, AccountLookup, OpportunityLookup
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.slack.receiver import Envelopes, bolt_app
from quotebot.slack.surface import RulesetRead, Surface
from quotebot.store.crm_mirror import Found
from quotebot.views import builder, forms
from tests.quotebot.access_parts import OpenGate
from tests.quotebot.parts import RULES, ManualClock
from tests.quotebot.views.quote_examples import MORNING, RULESET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slack_sdk.socket_mode.response import SocketModeResponse

NOBODY: Any = cast("Any", None)
DEAL, ACME = "006000000000001AAA", "001000000000001AAA"
RENEWAL = OpenOpportunity(DEAL, ACME, "Renewal 2027", "Negotiation/Review", "2027-01-31", "USD")


@dataclass
class Org:
    """Salesforce as the lookup uses it."""

    found: tuple[OpenOpportunity, ...] = (RENEWAL,)
    away: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def accounts(self, typed: str, seconds: float) -> tuple[str, ...]:
        del seconds
        if self.away:
            raise AdapterError(Failure.TIMEOUT, "timeout", "no answer")
        return tuple(name for name in ("Acme Corp", "Globex") if name.casefold().startswith(typed.casefold()))

    async def find(self, account: str, typed: str, seconds: float) -> tuple[OpenOpportunity, ...]:
        del seconds
        self.asked.append((account, typed))
        if self.away:
            raise AdapterError(Failure.TIMEOUT, "timeout", "no answer")
        return self.found


@dataclass
class Redrawn:
    """A Slack that records the redrawn views."""

    views: list[dict[str, Any]] = field(default_factory=list)

    async def update_view(self, *, view_id: str, view_hash: str, view: dict[str, Any]) -> None:
        assert (view_id, view_hash) == ("V1", "h1")
        self.views.append(view)


def surface(org: Org, slack: Redrawn | None = None) -> Surface:
    clock = ManualClock()
    lookups = {"lookup": AccountLookup(org.accounts, clock), "opportunities": OpportunityLookup(org.find, clock)}
    ledger, active = cast("Any", SimpleNamespace(clock=clock)), cast("Any", SimpleNamespace(known=RULESET))
    last_read = RulesetRead(clock.monotonic())
    return Surface(
        *(NOBODY, ledger, cast("Any", slack), RULES, active, NOBODY, cast("Any", OpenGate()), last_read), **cast("Any", lookups)
    )


async def answer(surface: Surface, payload: Mapping[str, Any]) -> Any:
    """Send a payload as Slack does; return the acknowledgement."""
    answered: list[SocketModeResponse] = []

    class Client:
        async def send_socket_mode_response(self, response: SocketModeResponse) -> None:
            answered.append(response)

    envelopes = Envelopes(bolt_app(AsyncWebClient(token="xoxb-1"), Identity("T0HOME", "U0BOT", "B0BOT"), surface))
    body = {"team": {"id": "T0HOME"}, "user": {"id": "U0REP"}, **payload}
    assert await envelopes.answer(Client(), SocketModeRequest("interactive", "e1", body))
    return answered[0].payload


def opened() -> dict[str, Any]:
    form = builder.create_form("C0SALES", RULESET, lookup=True, opportunities=True)
    return {**form, "id": "V1", "hash": "h1", "root_view_id": "V1", "state": {"values": {}}}


def chosen(account: str | None) -> dict[str, Any]:
    option = None if account is None else {"text": {"type": "plain_text", "text": account}, "value": account}
    action = {"action_id": forms.FOUND, "block_id": forms.FOUND, "type": "external_select", "selected_option": option}
    return {"type": "block_actions", "trigger_id": "1.1", "view": opened(), "actions": [action]}


def test_slack_takes_the_forms_with_the_menus() -> None:
    offered = forms.with_opportunities(opened(), "Acme Corp")
    assert offered is not None
    assert view_problems(builder.create_form("C0SALES", RULESET, lookup=True)) == []
    assert view_problems(builder.create_form(None, RULESET, lookup=True, opportunities=True)) == view_problems(offered) == []


async def test_choosing_an_account_draws_the_form_anew_with_the_menu_of_its_opportunities() -> None:
    slack = Redrawn()
    await answer(surface(Org(), slack), chosen("Acme Corp"))
    (view,) = slack.views
    names = [block["block_id"] for block in view["blocks"]]
    assert names[:3] == [forms.FOUND, forms.block_of("Acme Corp"), forms.ACCOUNT]
    assert forms.account_of(view) == "Acme Corp"
    other = forms.with_opportunities(view, "Bolt")
    assert other is not None
    assert [block["block_id"] for block in other["blocks"]][1:3] == [forms.block_of("Bolt"), forms.ACCOUNT]
    assert forms.with_opportunities(other, None) == previewed(opened(), RULES, MORNING, None)


async def test_the_menu_offers_what_is_open_with_its_day_and_stage() -> None:
    org = Org((RENEWAL, OpenOpportunity(DEAL, ACME, "x" * 120, "", "", "")))
    asked = {
        "type": "block_suggestion",
        "action_id": forms.block_of("Acme Corp"),
        "block_id": forms.block_of("Acme Corp"),
        "value": " Ren ",
        "view": forms.with_opportunities(opened(), "Acme Corp"),
    }
    first, second = (await answer(surface(org), asked))["options"]
    assert (first["text"]["text"], first["value"]) == ("Renewal 2027 · 2027-01-31 · Negotiation/Review", f"{DEAL} {ACME} USD")
    assert (len(second["text"]["text"]), second["value"]) == (75, f"{DEAL} {ACME}")
    assert org.asked == [("Acme Corp", "ren")]


def sent(account: str, opportunity: str, *, typed: str = "", currency: str = "USD") -> Filled | dict[str, str]:
    """Return the result of a sent form whose menu was offered for Acme Corp."""
    view = forms.with_opportunities(opened(), "Acme Corp")
    assert view is not None
    block = forms.block_of("Acme Corp")
    values: dict[str, Any] = {
        forms.FOUND: {forms.FOUND: {"selected_option": {"value": account} if account else None}},
        block: {block: {"selected_option": {"value": opportunity} if opportunity else None}},
        forms.ACCOUNT: {forms.ACCOUNT: {"value": typed}},
        forms.TEXT: {forms.TEXT: {"value": "5 pro"}},
        forms.TERM: {forms.TERM: {"value": "12m"}},
        forms.DISCOUNT: {forms.DISCOUNT: {"value": "0"}},
        forms.CURRENCY: {forms.CURRENCY: {"selected_option": {"value": currency}}},
    }
    return read_form(Form({**view, "root_view_id": "V1", "state": {"values": values}}, RULES, MORNING))


@pytest.mark.parametrize(
    ("opportunity", "expected"),
    [(f"{DEAL} {ACME} USD", ChosenOpportunity(DEAL, ACME)), (f"{DEAL} {ACME}", ChosenOpportunity(DEAL, ACME)), ("", None)],
)
def test_the_chosen_opportunity_is_part_of_what_is_asked(opportunity: str, expected: ChosenOpportunity | None) -> None:
    filled = sent("Acme Corp", opportunity)
    assert isinstance(filled, Filled)
    assert isinstance(filled.payload, CreateByForm)
    assert filled.payload.quote.opportunity == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"account": "Bolt"},
            "This opportunity belongs to Acme Corp, not Bolt. Pick another or clear it.",
        ),
        (
            {"typed": "Bolt"},
            "This opportunity belongs to Acme Corp, not Bolt. Pick another or clear it.",
        ),
        ({"opportunity": f"{DEAL} {ACME} EUR"}, "This opportunity is in EUR, and the quote in USD. Choose one currency."),
        (
            {"opportunity": "x' OR Id != '"},
            "This opportunity was offered by another version of the bot. Choose it again, or leave it empty.",
        ),
    ],
)
def test_an_opportunity_that_does_not_go_with_the_form_is_refused_at_its_menu(changes: dict[str, Any], words: str) -> None:
    refused = sent(**{"account": "Acme Corp", "opportunity": f"{DEAL} {ACME} USD", **changes})
    assert refused == {forms.block_of("Acme Corp"): words}


async def test_unavailable_org_is_replaced_by_earlier_data_and_asked_again_after_a_pause() -> None:
    org, clock = Org(away=True), ManualClock()

    async def before(account: str, typed: str) -> Found[OpenOpportunity]:
        del account, typed
        return Found((RENEWAL,), MORNING)

    lookup = OpportunityLookup(org.find, clock, before)
    assert await lookup("Acme Corp", "a") == await lookup("Acme Corp", "ab") == Found((RENEWAL,), MORNING)
    assert org.asked == [("Acme Corp", "a")]
    org.away = False
    clock.advance(round(AWAY_SECONDS * 1000))
    assert await lookup("Acme Corp", "ab") == Found((RENEWAL,))


async def test_what_was_read_before_says_so_in_the_menus_heading() -> None:
    org, clock = Org(away=True), ManualClock()

    async def before(account: str, typed: str) -> Found[OpenOpportunity]:
        del account, typed
        return Found((RENEWAL,), MORNING)

    block = forms.block_of("Acme Corp")
    asked = {"type": "block_suggestion", "action_id": block, "block_id": block, "value": ""}
    met = Surface(
        NOBODY,
        NOBODY,
        NOBODY,
        NOBODY,
        NOBODY,
        NOBODY,
        cast("Any", OpenGate()),
        opportunities=OpportunityLookup(org.find, clock, before),
    )
    (group,) = (await answer(met, {**asked, "view": forms.with_opportunities(opened(), "Acme Corp")}))["option_groups"]
    assert group["label"]["text"] == "As of 21 Nov 2026, 10:31 UTC; Salesforce does not answer"
    assert len(group["options"]) == 1
