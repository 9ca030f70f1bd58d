"""Tests of account suggestions: one request per minute and text, within a bound, without a delay of typing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.failures import AdapterError, Failure
from adapters.slack.api import Identity
from quotebot.slack.crm_menus import LOOKUP_SECONDS, AccountLookup
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.slack.receiver import Envelopes, bolt_app
from quotebot.slack.surface import Surface
from quotebot.store.crm_mirror import Found
from quotebot.views import builder, forms
from tests.adapters.test_salesforce_errors import Scripted, http, talking_to
from tests.quotebot.access_parts import OpenGate
from tests.quotebot.parts import RULES, ManualClock
from tests.quotebot.views.quote_examples import MORNING, RULESET

if TYPE_CHECKING:
    from pathlib import Path

    from slack_sdk.socket_mode.response import SocketModeResponse

NOBODY: Any = cast("Any", None)


class Org:
    """Salesforce as the lookup uses it; `asked` are the requests that reached it."""

    def __init__(self, *names: str) -> None:
        self.names, self.away = names, False
        self.asked: list[tuple[str, float]] = []

    async def find(self, beginning: str, seconds: float) -> tuple[str, ...]:
        self.asked.append((beginning, seconds))
        if self.away:
            raise AdapterError(Failure.TIMEOUT, "timeout", "no answer")
        return self.names


async def test_what_was_found_is_remembered_for_a_minute_and_a_failure_is_not() -> None:
    org, clock = Org("Acme", "Acme Corp"), ManualClock()
    lookup = AccountLookup(org.find, clock)
    assert [(await lookup(typed)).rows for typed in ("ac", " AC  ", "a", "")] == [
        ("Acme", "Acme Corp"),
        ("Acme", "Acme Corp"),
        (),
        (),
    ]
    assert org.asked == [("ac", LOOKUP_SECONDS)]
    clock.advance(60_000)
    org.away = True
    assert await lookup("ac") == Found()
    org.away = False
    assert await lookup("ac") == Found(("Acme", "Acme Corp"))
    assert len(org.asked) == 3


async def options_of(surface: Surface, typed: str) -> Any:
    """Send the request that Slack sends while a person types; return the acknowledgement."""
    answered: list[SocketModeResponse] = []

    class Client:
        async def send_socket_mode_response(self, response: SocketModeResponse) -> None:
            answered.append(response)

    envelopes = Envelopes(bolt_app(AsyncWebClient(token="xoxb-1"), Identity("T0HOME", "U0BOT", "B0BOT"), surface))
    payload = {
        "type": "block_suggestion",
        "team": {"id": "T0HOME"},
        "user": {"id": "U0REP"},
        "action_id": forms.FOUND,
        "block_id": forms.FOUND,
        "value": typed,
        "view": {"id": "V1", "callback_id": forms.CREATE_FORM},
    }
    assert await envelopes.answer(Client(), SocketModeRequest("interactive", "e1", payload))
    return answered[0].payload


async def test_the_menu_is_answered_in_the_ack_and_a_name_too_long_for_a_quote_is_left_out() -> None:
    async def find(typed: str, seconds: float) -> tuple[str, ...]:
        del seconds
        return (f"{typed} <Corp>", "b" * 90, "c" * 101)

    lookup = AccountLookup(find, ManualClock())
    surface = Surface(NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, cast("Any", OpenGate()), lookup=lookup)
    answer = await options_of(surface, "Acme")
    assert [option["value"] for option in answer["options"]] == ["acme <Corp>", "b" * 90]
    assert all(len(option["text"]["text"]) <= 75 for option in answer["options"])
    assert await options_of(replace(surface, lookup=None), "Acme") == {"options": []}


@pytest.mark.parametrize(
    ("typed", "chosen", "account"), [("", "Acme Corp", "Acme Corp"), ("Bolt", "Acme Corp", "Bolt"), ("Bolt", None, "Bolt")]
)
def test_a_customer_is_chosen_or_typed_and_what_is_typed_counts(typed: str, chosen: str | None, account: str) -> None:
    view = {**builder.create_form("C0SALES", RULESET, lookup=True), "root_view_id": "V1"}
    values: dict[str, Any] = {
        forms.FOUND: {forms.FOUND: {"selected_option": None if chosen is None else {"value": chosen}}},
        forms.ACCOUNT: {forms.ACCOUNT: {"value": typed}},
        forms.TEXT: {forms.TEXT: {"value": "5 pro"}},
        forms.TERM: {forms.TERM: {"value": "12m"}},
        forms.DISCOUNT: {forms.DISCOUNT: {"value": "0"}},
        forms.CURRENCY: {forms.CURRENCY: {"selected_option": {"value": "USD"}}},
    }
    filled = read_form(Form({**view, "state": {"values": values}}, RULES, MORNING))
    assert isinstance(filled, Filled)
    assert json.dumps(filled.payload.canonical()).count(f'"account": "{account}"') == 1


def test_without_the_lookup_the_form_is_as_it_was() -> None:
    assert forms.FOUND not in json.dumps(builder.create_form("C0SALES", RULESET))


async def test_what_is_typed_cannot_change_the_query(tmp_path: Path) -> None:
    script = Scripted(http(200, b'{"records": [{"Name": "O\'Brien"}, {"Name": "O\'Brien"}, {"Name": null}]}'))
    async with talking_to(script, tmp_path) as client:
        found = await client.find_accounts("o'b%_\\ OR Name != '", 5.0)
    query = parse_qs(urlsplit(script.requests[0].split()[1].decode()).query)["q"][0]
    assert found == ("O'Brien",)
    assert query == "SELECT Name FROM Account WHERE Name LIKE 'o\\'b\\%\\_\\\\ OR Name != \\'%' ORDER BY Name ASC LIMIT 20"


async def test_a_look_that_drips_is_cut_at_its_own_deadline(tmp_path: Path) -> None:
    script = Scripted(http(200, b"{}").replace(b"Length: 2", b"Length: 999"), drip=True)
    async with talking_to(script, tmp_path) as client:
        with pytest.raises(AdapterError) as error:
            await client.find_accounts("ac", 1.0)  # enough to reach the call on a busy machine
        await script.gone.wait()
    assert (error.value.code, error.value.possibly_applied) == ("timeout", False)
