from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import CreateAnother, DecideApproval, SubmitQuote
from quotebot.slack import payloads
from quotebot.views.blocks import ButtonValue
from tests.quotebot.parts import create_command
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from quotebot.commands.registry import Command

VALUE = '{"v":1,"q":"Q-2026-0042","n":3,"a":"A-2026-0042-v3-1"}'
BUTTON = ButtonValue("Q-2026-0042", 3, "A-2026-0042-v3-1")

SLASH: dict[str, Any] = {
    "team_id": "T0HOME",
    "channel_id": "C0SALES",
    "user_id": "U0REP",
    "user_name": "rep",
    "command": "/quote",
    "text": "new for Acme: 150 pro",
    "response_url": "https://hooks.slack.com/commands/T0HOME/1/secret",
    "trigger_id": "13345224609.738474920.8088930838d88f008e0",
}
CLICK: dict[str, Any] = {
    "type": "block_actions",
    "user": {"id": "U0MANAGER", "username": "manager", "team_id": "T0HOME"},
    "team": {"id": "T0HOME", "domain": "home"},
    "trigger_id": "12466734323.1395872398",
    "channel": {"id": "C0SALES", "name": "sales"},
    "container": {"type": "message", "message_ts": "1548261231.000200", "channel_id": "C0SALES"},
    "response_url": "https://hooks.slack.com/actions/T0HOME/1/secret",
    "actions": [{"action_id": "approval.approve", "block_id": "b", "value": VALUE, "action_ts": "1548426417.840180"}],
}
FORM: dict[str, Any] = {
    "type": "view_submission",
    "user": {"id": "U0MANAGER", "username": "manager", "team_id": "T0HOME"},
    "team": {"id": "T0HOME", "domain": "home"},
    "trigger_id": "12466734323.1395872398",
    "view": {
        "id": "VNHU13V36",
        "hash": "1569362015.55b5e41b",
        "callback_id": "approval.reject",
        "private_metadata": VALUE,
        "state": {"values": {"reason": {"reason": {"type": "plain_text_input", "value": "too deep"}}}},
    },
    "response_urls": [],
}


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = deepcopy(body)
    *parents, name = path.split(".")
    place: Any = copy
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    place[name] = value
    return copy


def slash(body: dict[str, Any] = SLASH) -> Command:
    return payloads.slash_command(body, create_command(), MORNING)


def click(body: dict[str, Any] = CLICK) -> Command:
    return payloads.click_command(body, "approval.approve", BUTTON, MORNING)


def form(body: dict[str, Any] = FORM) -> Command:
    command = payloads.rejection_command(body, BUTTON, MORNING)
    assert command is not None
    return command


def test_a_slash_command_is_named_by_its_team_and_trigger() -> None:
    command = slash()
    assert (command.source, command.source_request_id) == ("slack_slash", f"T0HOME:{SLASH['trigger_id']}")
    assert (command.aggregate_id, command.aggregate_version) == ("new", 0)
    assert (command.actor, command.actor_name, command.actor_type) == ("U0REP", "rep", "user")
    assert (command.received_at, command.response_url) == (MORNING, SLASH["response_url"])


def test_equal_triggers_of_two_workspaces_never_meet() -> None:
    assert slash().source_request_id != slash(changed(SLASH, "team_id", "T0OTHER")).source_request_id


def test_half_a_character_stops_no_request() -> None:
    assert slash(changed(SLASH, "text", "new for Acme \ud83d")).fingerprint != slash().fingerprint
    broken = {"values": {"reason": {"reason": {"type": "plain_text_input", "value": "too \ud83d deep"}}}}
    assert form(changed(FORM, "view.state", broken)).payload == DecideApproval("A-2026-0042-v3-1", "reject", "too deep")


@pytest.mark.parametrize("name", ["text", "user_id", "channel_id", "command"])
def test_the_fingerprint_of_a_slash_command_covers(name: str) -> None:
    assert slash().fingerprint != slash(changed(SLASH, name, "other")).fingerprint


@pytest.mark.parametrize("name", ["response_url", "trigger_id", "user_name"])
def test_the_fingerprint_of_a_slash_command_leaves_out(name: str) -> None:
    assert slash().fingerprint == slash(changed(SLASH, name, "other")).fingerprint


def test_a_click_is_about_the_version_its_button_showed() -> None:
    command = click()
    assert (command.aggregate_id, command.aggregate_version) == ("Q-2026-0042", 3)
    assert command.payload == DecideApproval("A-2026-0042-v3-1", "approve")
    assert (command.source, command.source_request_id) == ("slack_interactive", f"T0HOME:{CLICK['trigger_id']}")
    assert (command.actor, command.response_url) == ("U0MANAGER", CLICK["response_url"])


def test_a_submit_click_carries_no_approval() -> None:
    assert payloads.click_command(CLICK, "quote.submit", ButtonValue("Q-2026-0042", 3, None), MORNING).payload == SubmitQuote()


TOKEN = "ab" * 32


def another(value: str | None, **changes: Any) -> Command | None:
    action = {"action_id": "quote.create_another", "block_id": "b", "value": value, "action_ts": "1548426417.840180"}
    return payloads.create_another_command({**CLICK, "actions": [action], **changes}, MORNING)


def test_create_another_is_a_creation_with_its_own_request_and_the_buttons_token() -> None:
    command = another(f'{{"v":1,"t":"{TOKEN}"}}')
    assert command is not None
    assert command.payload == CreateAnother(TOKEN)
    assert (command.aggregate_id, command.aggregate_version) == ("new", 0)
    assert (command.source, command.source_request_id) == ("slack_interactive", f"T0HOME:{CLICK['trigger_id']}")
    again = another(f'{{"v":1,"t":"{TOKEN}"}}', trigger_id="another gesture")
    assert again is not None
    assert (again.source_request_id, again.fingerprint) == ("T0HOME:another gesture", command.fingerprint)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "[]",
        "no json",
        "[" * 1_999,
        f'{{"v":2,"t":"{TOKEN}"}}',
        f'{{"v":true,"t":"{TOKEN}"}}',
        f'{{"v":1,"t":"{TOKEN}","x":1}}',
        '{"v":1,"t":"ab"}',
        '{"v":1,"t":7}',
        f'{{"v":1,"t":"{TOKEN}"}}' + " " * 2_000,
        VALUE,
    ],
)
def test_a_create_another_button_of_another_build_is_no_command(value: str | None) -> None:
    assert another(value) is None


def test_a_button_without_a_command_is_none() -> None:
    with pytest.raises(ValueError, match=r"approval\.reject is no command"):
        payloads.click_command(CLICK, "approval.reject", BUTTON, MORNING)


def test_a_click_without_a_trigger_is_named_by_place_button_person_and_time() -> None:
    body = {name: value for name, value in CLICK.items() if name != "trigger_id"}
    assert click(body).source_request_id == "T0HOME:1548261231.000200:approval.approve:U0MANAGER:1548426417.840180"
    in_a_view = {**body, "container": {"type": "view", "view_id": "V1"}}
    assert click(in_a_view).source_request_id.startswith("T0HOME:V1:")


@pytest.mark.parametrize("path", ["actions.0.value", "user.id"])
def test_the_fingerprint_of_a_click_covers(path: str) -> None:
    assert click().fingerprint != click(changed_action(path)).fingerprint


def changed_action(path: str) -> dict[str, Any]:
    if path == "user.id":
        return changed(CLICK, path, "U0CFO")
    return {**CLICK, "actions": [{**CLICK["actions"][0], "value": VALUE.replace("3", "4", 1)}]}


def test_a_redelivered_click_has_the_same_request_and_fingerprint() -> None:
    again = click({**deepcopy(CLICK), "response_url": "https://hooks.slack.com/actions/T0HOME/2/other"})
    assert (again.source_request_id, again.fingerprint) == (click().source_request_id, click().fingerprint)


@pytest.mark.parametrize("value", [None, "", "{}", "no json", '{"v":2,"q":"Q-2026-0042","n":3,"a":null}'])
def test_a_button_of_another_build_is_recognised_and_not_read(value: str | None) -> None:
    body = {**CLICK, "actions": [{**CLICK["actions"][0], "value": value}]}
    assert payloads.button(body) == ("approval.approve", None)


def test_a_readable_button_is_read() -> None:
    assert payloads.button(CLICK) == ("approval.approve", BUTTON)


def test_a_form_sent_twice_is_one_request() -> None:
    again = form({**deepcopy(FORM), "trigger_id": "another gesture"})
    assert (again.source_request_id, again.fingerprint) == (form().source_request_id, form().fingerprint)
    assert form().source_request_id.startswith("T0HOME:VNHU13V36:1569362015.55b5e41b:")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("view.state", {"values": {"reason": {"reason": {"type": "plain_text_input", "value": "too little"}}}}),
        ("view.hash", "1569362015.other"),
        ("view.id", "V2"),
        ("view.private_metadata", VALUE.replace("3", "4", 1)),
        ("user.id", "U0CFO"),
        ("team.id", "T0OTHER"),
    ],
)
def test_another_form_is_another_request(path: str, value: Any) -> None:
    assert form(changed(FORM, path, value)).source_request_id != form().source_request_id


def test_a_form_carries_the_reason_and_the_version_of_its_button() -> None:
    command = form()
    assert command.payload == DecideApproval("A-2026-0042-v3-1", "reject", "too deep")
    assert (command.aggregate_id, command.aggregate_version, command.response_url) == ("Q-2026-0042", 3, None)


@pytest.mark.parametrize(
    ("callback", "decision"),
    [("approval.reject", "reject"), ("approval.request_changes", "request_changes"), ("approval.approve", "approve")],
)
def test_each_form_gives_its_decision_with_the_reason(callback: str, decision: str) -> None:
    payload = form(changed(FORM, "view.callback_id", callback)).payload
    assert isinstance(payload, DecideApproval)
    assert (payload.decision, bool(payload.reason)) == (decision, True)


@pytest.mark.parametrize("typed", [None, "", "  \n "])
def test_a_form_without_a_reason_is_no_command(typed: str | None) -> None:
    values = {"reason": {"reason": {"type": "plain_text_input", "value": typed}}}
    assert payloads.rejection_command(changed(FORM, "view.state", {"values": values}), BUTTON, MORNING) is None
