"""Ephemeral questions: confirm a second identical quote, create a proposed one, or complete a request in a form.

The value of "Create another" is the key of the refused operation, a one-time token; that of "Show it" is the existing quote.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from quotebot.views.blocks import VALUE_CHARACTERS_MAX, ButtonValue, button, read, section, value_text, written

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATE_ANOTHER, SHOW, FILL_IN = "quote.create_another", "quote.show", "quote.fill_in"  # action_ids

SECTION_CHARACTERS_MAX: Final = 3_000

_TOKEN: Final = re.compile(r"[0-9a-f]{64}")  # an operation key


def offer_blocks(text: str, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the question as Block Kit. `offer` is {"token": operation key, "quote_id", "version"}, with the existing quote.

    An offer without a quote asks for confirmation of the proposed quote.
    """
    token = written({"t": offer["token"]})
    if "quote_id" not in offer:
        elements = [button(CREATE_ANOTHER, "Create it", token, style="primary")]
        return [section(text), {"type": "actions", "block_id": "quote.offer", "elements": elements}]
    there = value_text(ButtonValue(offer["quote_id"], offer["version"], None))
    return [
        section(text),
        {
            "type": "actions",
            "block_id": "quote.offer",
            "elements": [button(CREATE_ANOTHER, "Create another", token), button(SHOW, "Show it", there)],
        },
    ]


def parse_token(text: str) -> str | None:
    """Return the token of a "Create another" button, or None if this build did not write its value."""
    fields = read(text, {"t"})
    token = None if fields is None else fields["t"]
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def problem_blocks(message: str, typed: str | None) -> list[dict[str, Any]] | None:
    """Return the reply to a creation that could not be parsed, with a button that opens the form.

    None if no text was typed, or if the text or the message is too long for Slack.
    """
    value = "" if typed is None else written({"w": typed})
    if typed is None or len(value) > VALUE_CHARACTERS_MAX or len(message) > SECTION_CHARACTERS_MAX:
        return None
    elements = [button(FILL_IN, "Complete in a form", value, style="primary")]
    return [section(message), {"type": "actions", "block_id": "quote.problem", "elements": elements}]


def parse_typed(text: str) -> str | None:
    """Return the typed text of a "Complete in a form" button, or None if this build did not write its value."""
    fields = read(text, {"w"})
    return fields["w"] if fields is not None and isinstance(fields["w"], str) else None
