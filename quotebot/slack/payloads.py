"""Conversion of Slack payloads to commands, without ledger or network. An unreadable value yields None, never a guess."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger import keys
from quotebot.commands.extraction import ReadMessage
from quotebot.commands.lifecycle import AcceptQuote, CancelQuote, FinalizeQuote, RefreshCard
from quotebot.commands.operations import ShowHome
from quotebot.commands.registry import Command, CreateAnother, DecideApproval, ProposeQuote, SubmitQuote
from quotebot.effects import dead_letter_target
from quotebot.execution.channels import is_direct as is_direct  # noqa: PLC0414 -- exported for the users of payloads
from quotebot.views.blocks import ButtonValue, parse_button_value, parse_menu_value
from quotebot.views.buttons import ACCEPT, APPROVE, CANCEL, FINALIZE, SUBMIT
from quotebot.views.confirmations import parse_token
from quotebot.views.forms import APPROVE_CALLBACK, CHANGES_CALLBACK, parse_rejection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.commands.operations import ActOnEffect, DiscardDeadLetter, RetryDeadLetter
    from quotebot.commands.registry import CreateQuote, Payload
    from quotebot.domain.extraction.remarks import Remark
    from quotebot.slack.thread_text import Applied
    from quotebot.views.card import PendingEffectValue


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


@dataclass(frozen=True, slots=True)
class About:
    """Target of a typed command: a quote and the version named in the text, None for the head. Default: a new quote."""

    quote_id: str = "new"
    version: int | None = 0


def slash_command(
    body: Mapping[str, Any],
    payload: Payload,
    received_at: int,
    about: About = About(),
) -> Command:
    """Build the command of a typed `/quote ...`. A trigger_id identifies one gesture and is the same in every redelivery."""
    team_id = body["team_id"]
    return Command(
        source="slack_slash",
        source_request_id=f"{team_id}:{body['trigger_id']}",
        aggregate_id=about.quote_id,
        aggregate_version=about.version,
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
    channel = (body.get("channel") or {}).get("id")
    trigger = body.get("trigger_id")
    return Gesture(
        user=user["id"],
        user_name=user.get("username") or user.get("name") or "",
        channel=channel,
        request_id=f"{body['team']['id']}:{trigger or _container_request_id(body)}",
        response_url=body.get("response_url"),
    )


def button(body: Mapping[str, Any]) -> tuple[str, ButtonValue | None]:
    """Return the action id of a click and its button's value, which is None if another build wrote it."""
    action = body["actions"][0]
    return action["action_id"], parse_button_value(action.get("value") or "")


def click_command(body: Mapping[str, Any], action_id: str, value: ButtonValue, received_at: int) -> Command:
    """Build the command of a click that needs no form, for the version that the button showed."""
    payload: Payload
    if action_id == APPROVE:
        payload = DecideApproval(approval_id=value.approval_id or "", decision="approve")
    elif action_id in _CLICKED:
        payload = _CLICKED[action_id]
    else:
        raise ValueError(f"{action_id} is no command")
    who = gesture(body)
    return _interactive(who, who.request_id, value.quote_id, value.version, payload, _clicked(body, action_id, who), received_at)


def apply_command(body: Mapping[str, Any], change: Applied, received_at: int) -> Command:
    """Build the command of the button that applies a change proposed in a thread, for the version that was shown."""
    who = gesture(body)
    raw = _clicked(body, body["actions"][0]["action_id"], who)
    return _interactive(who, who.request_id, change.quote_id, change.version, change.payload, raw, received_at)


def refresh_command(body: Mapping[str, Any], value: ButtonValue, received_at: int) -> Command:
    """Build the command of "Refresh this card"."""
    who = gesture(body)
    raw = [body["actions"][0]["action_id"], body["actions"][0]["selected_option"]["value"], who.user]
    return _interactive(who, who.request_id, value.quote_id, value.version, RefreshCard(), raw, received_at)


def menu(body: Mapping[str, Any]) -> tuple[str, ButtonValue] | None:
    """Return the choice in a card's menu and its value; None if another build wrote it."""
    chosen = body["actions"][0].get("selected_option") or {}
    return parse_menu_value(chosen.get("value") or "")


def home_command(body: Mapping[str, Any], received_at: int) -> Command:
    """Build the command for the opening of a Home tab: an event, which Slack may deliver again under the same id."""
    event = body["event"]
    payload = ShowHome(event["user"])
    return Command(
        source="slack_event",
        source_request_id=f"{body['team_id']}:{body['event_id']}",
        aggregate_id=payload.aggregate_id,
        aggregate_version=0,
        payload=payload,
        actor=event["user"],
        actor_type="user",
        fingerprint=_fingerprint([event["type"], event["user"], event.get("tab")]),
        received_at=received_at,
    )


def mention_command(body: Mapping[str, Any], quote: CreateQuote, received_at: int, remarks: tuple[Remark, ...] = ()) -> Command:
    """Build the command of a message that asks the bot for a quote."""
    return _said(body, ProposeQuote(quote, body["event"].get("thread_ts"), remarks), received_at)


def reading_command(body: Mapping[str, Any], text: str, received_at: int) -> Command:
    """Build the command to extract a message with the model; `text` is the message on one line, without the mention."""
    event = body["event"]
    return _said(body, ReadMessage(text, event["channel"], event.get("thread_ts")), received_at)


def _said(body: Mapping[str, Any], payload: Payload, received_at: int) -> Command:
    """Build the command of a message: an event, which Slack may deliver again under the same id."""
    event = body["event"]
    return Command(
        source="slack_event",
        source_request_id=f"{body['team_id']}:{body['event_id']}",
        aggregate_id="new",
        aggregate_version=0,
        payload=payload,
        actor=event["user"],
        actor_type="user",
        fingerprint=_fingerprint([event["type"], event["user"], event["channel"], event["ts"], event["text"]]),
        received_at=received_at,
    )


def home_again_command(body: Mapping[str, Any], received_at: int) -> Command:
    """Build the command that redraws a Home tab after a click on it."""
    who = gesture(body)
    payload = ShowHome(who.user, HOME_AFTER_MS)
    return _interactive(who, who.request_id, payload.aggregate_id, 0, payload, _clicked(body, "home", who), received_at)


def is_home(body: Mapping[str, Any]) -> bool:
    """Return whether a click was made on a Home tab."""
    return (body.get("view") or {}).get("type") == "home"


def dead_letter_command(body: Mapping[str, Any], payload: RetryDeadLetter, received_at: int) -> Command:
    """Build the command of Retry on a dead letter's card, for the cycle that the operator saw."""
    who = gesture(body)
    raw = _clicked(body, body["actions"][0]["action_id"], who)
    return _interactive(who, who.request_id, dead_letter_target(payload.reference), payload.cycle, payload, raw, received_at)


def effect_action_command(body: Mapping[str, Any], payload: ActOnEffect, value: PendingEffectValue, received_at: int) -> Command:
    """Build the command of Retry or Cancel of a pending effect, for the version that the card showed."""
    who = gesture(body)
    raw = _clicked(body, body["actions"][0]["action_id"], who)
    return _interactive(who, who.request_id, value.quote_id, value.version, payload, raw, received_at)


def dead_letter_form_command(body: Mapping[str, Any], payload: DiscardDeadLetter, received_at: int) -> Command:
    """Build the command of a submitted discard form."""
    request_id, raw = submission(body)
    return _interactive(gesture(body), request_id, dead_letter_target(payload.reference), payload.cycle, payload, raw, received_at)


def create_another_command(body: Mapping[str, Any], received_at: int) -> Command | None:
    """Build the command of a "Create another" click, or None if another build wrote the button.

    Two clicks are two requests; the one-time token ensures that they create one quote.
    """
    action = body["actions"][0]
    token = parse_token(action.get("value") or "")
    if token is None:
        return None
    who = gesture(body)
    payload = CreateAnother(token=token)
    return _interactive(who, who.request_id, "new", 0, payload, _clicked(body, action["action_id"], who), received_at)


def rejection_command(body: Mapping[str, Any], value: ButtonValue, received_at: int) -> Command | None:
    """Build the command of a submitted decision form (reject, request changes or approve); None if the reason is missing.

    The view's id and hash stay the same if a person presses Submit twice; other values make another request.
    """
    view = body["view"]
    reason = parse_rejection(view["state"]["values"])
    if reason is None:
        return None
    who = gesture(body)
    request_id, fingerprint = submission(body)
    decision = _FORMS.get(body["view"]["callback_id"], "reject")
    payload = DecideApproval(approval_id=value.approval_id or "", decision=decision, reason=reason)
    return _interactive(who, request_id, value.quote_id, value.version, payload, fingerprint, received_at)


_FORMS: Final[Mapping[str, Literal["approve", "reject", "request_changes"]]] = {
    APPROVE_CALLBACK: "approve",
    CHANGES_CALLBACK: "request_changes",
}


def submission(body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the request id of a submitted form, and its raw input for the fingerprint."""
    view = body["view"]
    fingerprint = [view["callback_id"], view["private_metadata"], view["state"]["values"], body["user"]["id"]]
    return f"{body['team']['id']}:{view['id']}:{view['hash']}:{_fingerprint(fingerprint)[:16]}", fingerprint


def _clicked(body: Mapping[str, Any], action_id: str, who: Gesture) -> list[Any]:
    """Return the raw input of a click for the fingerprint: action id, button value and user."""
    return [action_id, body["actions"][0].get("value"), who.user]


def _interactive(
    who: Gesture,
    request_id: str,
    aggregate_id: str,
    aggregate_version: int,
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
    CANCEL: CancelQuote(),
}
