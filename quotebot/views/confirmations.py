"""Ephemeral questions: confirm a second identical quote, create a proposed one, or complete a request in a form.

The value of "Create another" is the key of the refused operation, a one-time token; that of "Open" is the existing quote.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from quotebot.views.blocks import VALUE_CHARACTERS_MAX, ButtonValue, button, read, section, value_text, written

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATE_ANOTHER, SHOW, FILL_IN = "quote.create_another", "quote.show", "quote.fill_in"  # action_ids
REPAIR, EDIT_FIRST = "quote.use_correction", "quote.edit_first"

SECTION_CHARACTERS_MAX: Final = 3_000

_TOKEN: Final = re.compile(r"[0-9a-f]{64}")  # an operation key


def offer_blocks(text: str, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the question as Block Kit. `offer` is {"token": operation key, "quote_id", "version"}, with the existing quote.

    An offer without a quote asks for confirmation of the proposed quote; one without a token shows the quote.
    """
    if "token" not in offer:
        return show_blocks(text, offer["quote_id"], offer["version"], f"Show v{offer['version']}")
    token = written({"t": offer["token"]})
    if "quote_id" not in offer:
        elements = [button(CREATE_ANOTHER, "Create quote", token, style="primary"), button(EDIT_FIRST, "Edit first", token)]
        return [section(text), {"type": "actions", "block_id": "quote.offer", "elements": elements}]
    there = value_text(ButtonValue(offer["quote_id"], offer["version"], None))
    return [
        section(text),
        {
            "type": "actions",
            "block_id": "quote.offer",
            "elements": [button(CREATE_ANOTHER, "Create another", token), button(SHOW, f"Open {offer['quote_id']}", there)],
        },
    ]


def parse_token(text: str) -> str | None:
    """Return the token of a "Create another" button, or None if this build did not write its value."""
    fields = read(text, {"t"})
    token = None if fields is None else fields["t"]
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def problem_blocks(
    message: str, typed: str | None, *, form: str = "Fix in form", repair: tuple[str, str] | None = None
) -> list[dict[str, Any]] | None:
    """Return the reply to a text that could not be read: a button that opens the form, and one that gives the corrected command.

    `typed` is the text after `new`, None if no form fits; `form` is the label of its button, `repair` the command with its label.
    None if there is no button, or if the message is too long for Slack.
    """
    made = [(REPAIR, repair[1], repair[0])] if repair is not None else []
    made += [(FILL_IN, form, typed)] if typed is not None else []
    values = [(action_id, label, written({"w": text})) for action_id, label, text in made]
    fitting = [each for each in values if len(each[2]) <= VALUE_CHARACTERS_MAX]
    if not fitting or len(message) > SECTION_CHARACTERS_MAX:
        return None
    first, *others = [button(*each) for each in fitting]
    return [
        section(message),
        {"type": "actions", "block_id": "quote.problem", "elements": [{**first, "style": "primary"}, *others]},
    ]


def show_blocks(text: str, quote_id: str, version: int, label: str) -> list[dict[str, Any]]:
    """Return a private answer with a button that shows the quote."""
    there = value_text(ButtonValue(quote_id, version, None))
    return [section(text), {"type": "actions", "block_id": "quote.there", "elements": [button(SHOW, label, there)]}]


def parse_typed(text: str) -> str | None:
    """Return the typed text of such a button, or None if this build did not write its value."""
    fields = read(text, {"w"})
    return fields["w"] if fields is not None and isinstance(fields["w"], str) else None
