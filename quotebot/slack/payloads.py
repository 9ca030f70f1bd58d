"""Conversion of Slack payloads to commands, without ledger or network. An unreadable value yields None, never a guess."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger import keys
from quotebot.commands.payloads import (
    ALL_OPEN,
    AcceptQuote,
    CancelQuote,
    CreateAnother,
    DecideApproval,
    FinalizeQuote,
    RemindApprover,
    ShowHome,
    SubmitQuote,
)
from quotebot.commands.registry import Command
from quotebot.views.blocks import ButtonValue, parse_button_value, parse_menu_value
from quotebot.views.card import ACCEPT, APPROVE, CANCEL_QUOTE, FINALIZE, REMIND, SUBMIT
from quotebot.views.confirmations import parse_token
from quotebot.views.forms import APPROVE_CALLBACK, CHANGES_CALLBACK, parse_rejection
from quotebot.views.home import REFUSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.commands.registry import Payload
    from quotebot.store.homes import HomeChoice


_AS_TEXT: Final = json.JSONEncoder(sort_keys=True)
HOME_AFTER_MS: Final = 1_000  # delay of the redraw of a Home tab, so that the click on it is executed first


@dataclass(frozen=True, slots=True)
class Gesture:
    """Common fields of interactive payloads: person, place and request id.

    The payload's workspace does not decide access: see domain/access.py. `response_url` is a secret, never logged.
    """

    user: str
    user_name: str
    channel: str | None
    request_id: str
    response_url: str | None


def slash_command(
    body: Mapping[str, Any],
    payload: Payload,
    received_at: int,
    aggregate_id: str = "new",
    version: int | None = 0,
) -> Command:
    """Build the command of a typed `/quote ...`, about a new quote or about the `version` named in the text, None for the head.

    A trigger_id identifies one gesture and is the same in every redelivery.
    """
    team_id = body["team_id"]
    return Command(
        source="slack_slash",
        source_request_id=f"{team_id}:{body['trigger_id']}",
        aggregate_id=aggregate_id,
        aggregate_version=version,
        payload=payload,
        actor=body["user_id"],
        actor_type="user",
        actor_name=body.get("user_name", ""),
        fingerprint=_fingerprint([body["command"], body["text"], body["user_id"], body["channel_id"]]),
        received_at=received_at,
        response_url=body.get("response_url"),
    )


def gesture(body: Mapping[str, Any]) -> Gesture:
    """Read the common part of a block_actions or view_submission payload."""
    user = body["user"]
    return Gesture(
        user=user["id"],
        user_name=user.get("username") or user.get("name") or "",
        channel=(body.get("channel") or {}).get("id"),
        request_id=f"{body['team']['id']}:{body.get('trigger_id') or _container_request_id(body)}",
        response_url=body.get("response_url"),
    )


def button(body: Mapping[str, Any]) -> tuple[str, ButtonValue | None]:
    """Return the action id of a click and the value of its button or entry, which is None if another build wrote it."""
    action = body["actions"][0]
    return action["action_id"], parse_button_value((action.get("selected_option") or action).get("value") or "")


def click_command(body: Mapping[str, Any], action_id: str, value: ButtonValue, received_at: int) -> Command:
    """Build the command of a click that needs no form, for the version that the button showed."""
    payload: Payload
    if action_id == APPROVE:
        payload = DecideApproval(approval_id=value.approval_id or "", decision="approve")
    elif action_id == REMIND:
        payload = RemindApprover(value.approval_id or "", ALL_OPEN)
    elif action_id in _CLICKED:
        payload = _CLICKED[action_id]
    else:
        raise ValueError(f"{action_id} is no command")
    return clicked(body, payload, value.quote_id, value.version, received_at)


def clicked(
    body: Mapping[str, Any],
    payload: Payload,
    aggregate_id: str,
    version: int | None,
    received_at: int,
    action_id: str | None = None,
) -> Command:
    """Build the command of a click on a button or in a menu, for the version that was shown; None for the head."""
    who, action = gesture(body), body["actions"][0]
    raw = [action_id or action["action_id"], (action.get("selected_option") or action).get("value"), who.user]
    return _interactive(who, who.request_id, aggregate_id, version, payload, raw, received_at)


def submitted(body: Mapping[str, Any], payload: Payload, aggregate_id: str, version: int | None, received_at: int) -> Command:
    """Build the command of a submitted form. The same form with the same values, sent twice, is one request."""
    request_id, raw = submission(body)
    return _interactive(gesture(body), request_id, aggregate_id, version, payload, raw, received_at)


def raised(body: Mapping[str, Any], payload: Payload, aggregate_id: str, fields: tuple[str, ...], received_at: int) -> Command:
    """Build the command of an event, which Slack may deliver again under the same id; `fields` of it are its raw input."""
    event = body["event"]
    return Command(
        source="slack_event",
        source_request_id=f"{body['team_id']}:{body['event_id']}",
        aggregate_id=aggregate_id,
        aggregate_version=0,
        payload=payload,
        actor=event["user"],
        actor_type="user",
        fingerprint=_fingerprint([event.get(name) for name in fields]),
        received_at=received_at,
    )


def said(body: Mapping[str, Any], payload: Payload, received_at: int) -> Command:
    """Build the command of a message that asks the bot for a quote."""
    return raised(body, payload, "new", ("type", "user", "channel", "ts", "text"), received_at)


def answer_token(body: Mapping[str, Any]) -> str:
    """Return the one-time token of the answer to a typed command or a message: the same in every redelivery."""
    return keys.digest([body["team_id"], body.get("trigger_id") or body["event_id"]])


def menu(body: Mapping[str, Any]) -> tuple[str, ButtonValue] | None:
    """Return the choice in a card's menu and its value; None if another build wrote it."""
    chosen = body["actions"][0].get("selected_option") or {}
    return parse_menu_value(chosen.get("value") or "")


def home_command(body: Mapping[str, Any], received_at: int) -> Command:
    """Build the command for the opening of a Home tab."""
    event = body["event"]
    shown = event.get("view") or {}
    lost = not shown or shown.get("private_metadata") == REFUSED
    payload = ShowHome(event["user"], always=lost)
    return raised(body, payload, payload.aggregate_id, ("type", "user", "tab"), received_at)


def home_again_command(body: Mapping[str, Any], received_at: int) -> Command:
    """Build the command that redraws a Home tab after a click on it."""
    payload = ShowHome(body["user"]["id"], HOME_AFTER_MS)
    return clicked(body, payload, payload.aggregate_id, 0, received_at, "home")


def home_choice_command(body: Mapping[str, Any], choice: HomeChoice, received_at: int) -> Command:
    """Build the command that shows another section or page of a Home tab."""
    payload = ShowHome(body["user"]["id"], section=choice.section.value, page=choice.page)
    return clicked(body, payload, payload.aggregate_id, 0, received_at)


def is_home(body: Mapping[str, Any]) -> bool:
    """Return whether a click was made on a Home tab."""
    return (body.get("view") or {}).get("type") == "home"


def create_another_command(body: Mapping[str, Any], received_at: int) -> Command | None:
    """Build the command of a "Create another" click, or None if another build wrote the button.

    Two clicks are two requests; the one-time token ensures that they create one quote.
    """
    token = parse_token(body["actions"][0].get("value") or "")
    if token is None:
        return None
    return clicked(body, CreateAnother(token=token), "new", 0, received_at)


def rejection_command(body: Mapping[str, Any], value: ButtonValue, received_at: int) -> Command | None:
    """Build the command of a submitted decision form (reject, request changes or approve); None if the reason is missing.

    The view's id and hash stay the same if a person presses Submit twice; other values make another request.
    """
    view = body["view"]
    reason = parse_rejection(view["state"]["values"])
    if reason is None:
        return None
    decision = _FORMS.get(view["callback_id"], "reject")
    payload = DecideApproval(approval_id=value.approval_id or "", decision=decision, reason=reason)
    return submitted(body, payload, value.quote_id, value.version, received_at)


_FORMS: Final[Mapping[str, Literal["approve", "reject", "request_changes"]]] = {
    APPROVE_CALLBACK: "approve",
    CHANGES_CALLBACK: "request_changes",
}


def submission(body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the request id of a submitted form, and its raw input for the fingerprint."""
    view = body["view"]
    fingerprint = [view["callback_id"], view["private_metadata"], view["state"]["values"], body["user"]["id"]]
    return f"{body['team']['id']}:{view['id']}:{view['hash']}:{_fingerprint(fingerprint)[:16]}", fingerprint


def _interactive(
    who: Gesture,
    request_id: str,
    aggregate_id: str,
    aggregate_version: int | None,
    payload: Payload,
    fingerprint: Any,
    received_at: int,
) -> Command:
    return Command(
        source="slack_interactive",
        source_request_id=request_id,
        aggregate_id=aggregate_id,
        aggregate_version=aggregate_version,
        payload=payload,
        actor=who.user,
        actor_type="user",
        actor_name=who.user_name,
        fingerprint=_fingerprint(fingerprint),
        received_at=received_at,
        response_url=who.response_url,
    )


def _fingerprint(raw: Any) -> str:
    """Hash raw input as Slack sent it. The JSON is ASCII, so a lone surrogate cannot prevent its recording."""
    return keys.digest(_AS_TEXT.encode(raw))


def _container_request_id(body: Mapping[str, Any]) -> str:
    container, action = body["container"], body["actions"][0]
    where = container.get("message_ts") or container.get("view_id")
    return f"{where}:{action['action_id']}:{body['user']['id']}:{action['action_ts']}"


_CLICKED: Final[Mapping[str, Payload]] = {
    SUBMIT: SubmitQuote(),
    FINALIZE: FinalizeQuote(),
    ACCEPT: AcceptQuote(),
    CANCEL_QUOTE: CancelQuote(),
}
