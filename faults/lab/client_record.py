"""A client's record of one delivery: the person, the command, the request id and the answer."""

from __future__ import annotations

import json
from typing import Any, Final

from faults.checks.evidence import ClientRecord
from quotebot.slack import payloads
from quotebot.views.seals import MARK

_TYPED: Final = {
    "new": "quote.create",
    "clone": "quote.clone",
    "submit": "quote.submit",
    "revise": "quote.revise",
    "cancel": "quote.cancel",
    "finalize": "quote.finalize",
    "sent": "quote.mark_sent",
    "accept": "quote.accept",
    "lost": "quote.lose",
    "delegate": "approval.delegate",
    "digest": "digest.set",
}
_ASKED: Final = {
    "quote.submit": "quote.submit",
    "approval.approve": "approval.decide",
    "approval.remind": "approval.remind",
    "quote.create_another": "quote.create_another",
    "quote.finalize": "quote.finalize",
    "quote.accept": "quote.accept",
    "quote.cancel": "quote.cancel",
    "letter.retry": "letter.retry",
    "letter.replay_all": "letter.replay_all",
    "owed.retry": "effect.steer",
    "owed.cancel": "effect.steer",
    "command.retry": "command.steer",
    "command.cancel": "command.steer",
}
_RAISED: Final = {"app_home_opened": "home.show", "app_mention": "quote.propose"}  # the scenarios mention it to ask for a quote
_SENT: Final = "conversations_history"  # the source of a link in a message that was sent
_FILLED: Final = {
    "approval.reject": "approval.decide",
    "approval.request_changes": "approval.decide",
    "quote.create": "quote.create_by_form",
    "quote.revise": "quote.revise",
    "quote.send": "quote.mark_sent",
    "quote.lose": "quote.lose",
    "quote.resubmit": "quote.submit",
    "letter.discard": "letter.discard",
    "letter.resubmit": "letter.resubmit",
    "crm.reconcile": "crm.reconcile",
}


def record_of(text: str, kind: str, payload: dict[str, Any] | None, at_ms: int) -> ClientRecord:
    """Return the record of one delivery as its client saw it."""
    body = json.loads(text)["payload"]
    if kind == "slash_commands":
        request_id, actor = f"{body['team_id']}:{body['trigger_id']}", body["user_id"]
        asked = "" if body["text"] == "new" else _TYPED.get(body["text"].partition(" ")[0], "")  # "new" alone opens a form
    elif kind == "events_api":
        asked = _RAISED.get(body["event"]["type"], "")
        if body["event"].get("source") == _SENT:  # the scenarios link to quotes only
            asked = "link.preview"
        return ClientRecord(
            f"{body['team_id']}:{body['event_id']}", asked, body["event"].get("user", ""), payload is not None, at_ms
        )
    elif body["type"] == "view_submission":
        return _form_record(body, payload, at_ms)
    else:
        gesture = payloads.gesture(body)
        request_id, actor = gesture.request_id, gesture.user
        asked = _clicked(body["actions"][0])
    said = None if payload is None else str(payload.get("text") or "")
    return ClientRecord(request_id=request_id, kind=asked, actor=actor, acked=payload is not None, at_ms=at_ms, text=said)


def _clicked(action: dict[str, Any]) -> str:
    chosen = action.get("selected_option")
    if chosen is not None:
        return "quote.refresh" if '"d":"refresh"' in chosen["value"] else ""
    return _ASKED.get(action["action_id"], "")


def _form_record(body: dict[str, Any], payload: dict[str, Any] | None, at_ms: int) -> ClientRecord:
    value, _, _ = body["view"]["private_metadata"].rpartition(MARK)  # the request is identified without its seal
    request_id, _ = payloads.submission({**body, "view": {**body["view"], "private_metadata": value}})
    wrong = payload is not None and payload.get("response_action") == "errors"
    kind = "" if wrong else _FILLED[body["view"]["callback_id"]]
    return ClientRecord(request_id, kind, body["user"]["id"], payload is not None, at_ms)
