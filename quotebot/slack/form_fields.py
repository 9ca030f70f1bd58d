"""Fields of a submitted or open form as typed, and errors by field. Local rules only, no ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import REASON_CHARACTERS_MAX, RECIPIENT_CHARACTERS_MAX
from quotebot.domain.language import _, grouped
from quotebot.domain.pricing.commercial_terms import TEXTS_MAX
from quotebot.domain.texts import composed
from quotebot.views import builder_fields, forms, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.commands.payloads import CreateByForm, SubmitQuote
    from quotebot.commands.registry import LifecyclePayload
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

ERROR_CHARACTERS_MAX: Final = 500
PROBLEMS_SHOWN_MAX: Final = 4
OPTION_VALUE_CHARACTERS_MAX: Final = 150
_CHARACTERS_MAX: Final = {
    forms.ACCOUNT: forms.ACCOUNT_CHARACTERS_MAX,
    forms.TEXT: forms.TEXT_CHARACTERS_MAX,
    forms.TERM: forms.SHORT_CHARACTERS_MAX,
    forms.DISCOUNT: forms.SHORT_CHARACTERS_MAX,
    builder_fields.MONTHS: forms.SHORT_CHARACTERS_MAX,
    "quantity": forms.SHORT_CHARACTERS_MAX,
    "price": forms.SHORT_CHARACTERS_MAX,
    "discount": forms.SHORT_CHARACTERS_MAX,
    **TEXTS_MAX,
    forms.RECIPIENT: RECIPIENT_CHARACTERS_MAX,
    forms.REASON: forms.DETAILS_CHARACTERS_MAX,
    forms.APPROVER_NOTE: REASON_CHARACTERS_MAX,
}

Errors = dict[str, str]  # block_id -> error, as plain text


@dataclass(frozen=True, slots=True)
class Filled:
    """Content of a submitted form: a payload, its quote, and the version that the person saw ("new" and 0: a creation)."""

    payload: CreateByForm | SubmitQuote | LifecyclePayload
    quote_id: str = "new"
    version: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """A view with its fields as typed, and the rules that price them. `received_at` is Unix milliseconds.

    `quote` is the version that the view edits, as it was when the view was opened.
    """

    view: Mapping[str, Any]
    rules: Rules
    received_at: int
    quote: Quote | None = None

    @property
    def ruleset(self) -> Ruleset:
        """Return the ruleset in force."""
        return self.rules.ruleset

    def typed(self, block_id: str) -> str:
        """Return the input of a block on one line; empty if there is none."""
        return messages.one_line(composed(self.raw(block_id)))

    def lines(self, block_id: str) -> list[str]:
        """Return the non-empty lines of a large field."""
        typed = (messages.one_line(composed(line)) for line in self.raw(block_id).splitlines())
        return [line for line in typed if line]

    def raw(self, block_id: str) -> str:
        """Return the input of a block as Slack sent it; empty if there is none."""
        found = self._held(block_id)
        chosen = found.get("selected_option")
        value = chosen.get("value") if isinstance(chosen, dict) else None
        for key in ("value", "selected_conversation", "selected_date", "selected_user"):
            value = value or found.get(key)
        return value if isinstance(value, str) else ""

    def several(self, block_id: str) -> tuple[str, ...]:
        """Return the values chosen in a menu of several."""
        chosen = self._held(block_id).get("selected_options")
        values = [each.get("value") for each in chosen if isinstance(each, dict)] if isinstance(chosen, list) else []
        return tuple(value for value in values if isinstance(value, str))

    def has(self, block_id: str) -> bool:
        """Return whether the form shows this field."""
        return any(block.get("block_id") == block_id and block.get("type") == "input" for block in self.view["blocks"])

    def _held(self, block_id: str) -> dict[str, Any]:
        """Return the state of a field; of one that was just drawn, its initial state."""
        found: Any = self.view.get("state")
        for key in ("values", block_id, block_id):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return found
        elements = [block["element"] for block in self.view["blocks"] if block.get("block_id") == block_id and "element" in block]
        initial = elements[0] if elements else {}
        return {
            "value": initial.get("initial_value"),
            "selected_option": initial.get("initial_option"),
            "selected_options": initial.get("initial_options"),
            "selected_date": initial.get("initial_date"),
            "selected_user": initial.get("initial_user"),
        }


def last_block(view: Mapping[str, Any]) -> str:
    """Return the block that shows an error about the whole form: its last field."""
    return str(next(block["block_id"] for block in reversed(view["blocks"]) if block["type"] == "input"))


def too_long(form: Form) -> Errors:
    """Return an error for each field over its limit. Slack's clients enforce these limits, so such a form is not read further."""
    state = form.view.get("state")
    values = state.get("values") if isinstance(state, dict) else None
    over = {}
    for block_id in values if isinstance(values, dict) else ():
        kind = block_id.rpartition(".")[2]
        most = _CHARACTERS_MAX.get(kind, OPTION_VALUE_CHARACTERS_MAX)
        if len(form.raw(block_id)) > most:
            over[block_id] = _("At most {count} characters.", count=grouped(most))
    return over


def said(problems: list[str]) -> str:
    """Return one error with up to four problems."""
    shown = problems[:PROBLEMS_SHOWN_MAX]
    more = len(problems) - len(shown)
    text = "; ".join((*shown, *([_("and {count} more", count=more)] if more else [])))
    return f"{text[:1].upper()}{text[1:]}"[:ERROR_CHARACTERS_MAX]


def plain_text(text: str) -> str:
    """Return a message of the grammar, which is mrkdwn, as plain text."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("`", "")
