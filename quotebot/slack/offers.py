"""The private question whether the same quote is wanted once more, and its two buttons.

"Create another" carries the key of the refused operation as a one-time token; "Show it" carries the quote it is about.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from quotebot.slack.cards import BUTTON_CHARACTERS_MAX, BUTTON_SCHEMA, ButtonValue, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATE_ANOTHER, SHOW = "quote.create_another", "quote.show"  # action_ids

_TOKEN: Final = re.compile(r"[0-9a-f]{64}")  # an operation key


def offer_blocks(text: str, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the question as Block Kit. `offer`: {"token": operation key, "quote_id", "version"} of the quote that is there."""
    token = json.dumps({"v": BUTTON_SCHEMA, "t": offer["token"]}, separators=(",", ":"))
    there = value_text(ButtonValue(offer["quote_id"], offer["version"], None))
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}},
        {
            "type": "actions",
            "block_id": "quote.offer",
            "elements": [_button(CREATE_ANOTHER, "Create another", token), _button(SHOW, "Show it", there)],
        },
    ]


def parse_token(text: str) -> str | None:
    """Return the token a "Create another" button carried, or None when it is not a value this build wrote."""
    if len(text) > BUTTON_CHARACTERS_MAX:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"v", "t"}:
        return None
    schema, token = value["v"], value["t"]
    known = type(schema) is int and schema == BUTTON_SCHEMA
    return token if known and isinstance(token, str) and _TOKEN.fullmatch(token) else None


def _button(action_id: str, label: str, value: str) -> dict[str, Any]:
    return {"type": "button", "action_id": action_id, "text": {"type": "plain_text", "text": label, "emoji": True}, "value": value}
