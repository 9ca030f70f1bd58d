"""Help and first contact: what the bot does, in groups with buttons, and the list of all commands. Text is Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import ListRequest
from quotebot.domain.language import N_, _
from quotebot.domain.quotes.quote import QuoteState
from quotebot.views.blocks import Json, button, mrkdwn, plain, section
from quotebot.views.home import NEW_QUOTE
from quotebot.views.list_card import question_text

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP, COMMANDS, MINE, WAITING = "help.show", "help.commands", "list.mine", "list.waiting"  # action_ids
ABOUT: Final = N_("Quotebot prices quotes, gets them approved and keeps Salesforce up to date.")
HELLO: Final = N_("Hi! I price and track quotes.")
WELCOME: Final = N_(
    "Thanks for having me. Quotebot prices quotes, gets them approved and keeps Salesforce up to date.\n"
    "Start with `/quote new`, or write `/quote new for Acme: 150 pro; discount 15%`. "
    "Mention me in a quote's thread to ask about it."
)
NOT_UNDERSTOOD: Final = N_("I didn't get that. I can price a quote, show one, or list yours.")
FIELDS_MAX: Final = 10  # of a section
_GROUPS: Final = (
    (N_("Create"), N_("`/quote new for Acme: 150 pro; term 12m; discount 15%`, or `/quote new` for a form")),
    (N_("Find"), N_("`/quote list acme` or `/quote Q-2026-0042`")),
    (N_("Approve"), N_("Approvers decide with the buttons of the quote's card")),
    (N_("Away?"), N_("`/quote delegate @colleague until 2026-12-24` lets someone approve for you")),
)
# A command and what it does, in the order of a quote's life.
_COMMANDS: Final = (
    ("/quote new", N_("Create a quote in a form")),
    (
        "/quote new for Acme: 150 pro, 150 sso; term 12m",
        N_("Create a quote by typing. More parts: currency, tax, segment, billing, terms"),
    ),
    (
        "/quote new for Acme: 150 pro; start 2027-02-01; payment net 45",
        N_("Set commercial terms. More parts: valid, po, bill-to, email, address, vat, note, customer-note, language, template"),
    ),
    ("/quote products [name]", N_("See what is sold, with list prices")),
    ("/quote price 150 pro; discount 10%", N_("Price a request without a quote")),
    ("/quote list [mine | all] [open | sent | ...] [customer]", N_("List quotes")),
    ("/quote Q-2026-0042", N_("Show a quote")),
    ("/quote submit Q-...", N_("Submit a quote for approval")),
    ("/quote submit Q-...: they need SSO", N_("Submit a quote again without changes, after they were requested")),
    ("/quote revise Q-...: 200 pro, add 10 sso, remove support", N_("Make a new version")),
    ("/quote add-line Q-...: 10 sso", N_("Add products")),
    ("/quote discount Q-...: 12%", N_("Change the discount")),
    ("/quote simulate Q-...: discount 20%", N_("See what a change would cost, without making it")),
    ("/quote compare Q-... v1 v2", N_("Compare two versions")),
    ("/quote explain Q-... [line 2]", N_("See how a price comes about")),
    ("/quote finalize Q-...", N_("Lock an approved quote for sending")),
    ("/quote sent Q-... to buyer@acme.example", N_("Mark a quote as sent")),
    ("/quote accept Q-...", N_("Mark a quote as won")),
    ("/quote lost Q-...: too expensive", N_("Mark a quote as lost")),
    ("/quote cancel Q-...: duplicate", N_("Cancel a quote")),
    ("/quote clone Q-... for Beta", N_("Copy a quote, for another customer if you name one")),
    ("/quote audit Q-...", N_("See who did what, and when")),
    ("/quote delegate @colleague until 2026-12-24", N_("Let someone approve for you while you're away")),
    ("/quote digest on", N_("Get your work queue as a message each working morning")),
    ("/quote status c-7f91ab12", N_("Look up a request by its reference")),
    ("/quote report discounts by product", N_("Reports for the deal desk: also pipeline, win-loss, cycle-time, approvals")),
    ("/quote ops", N_("Failed jobs and paused work, for operators")),
)


def help_text() -> str:
    """Return the help as plain mrkdwn."""
    return "\n".join((f"*{_(ABOUT)}*", *(f"*{_(name)}* {_(example)}" for name, example in _GROUPS)))


def help_blocks() -> list[Json]:
    """Return the help as Block Kit: four groups, and buttons."""
    return [
        section(f"*{_(ABOUT)}*"),
        *(section(f"*{_(name)}*\n{_(example)}") for name, example in _GROUPS),
        _row("help.actions", _new_quote(), _mine(), _waiting(), button(COMMANDS, _("All commands"), "all")),
    ]


def start_blocks(text: str) -> list[Json]:
    """Return a short answer with three buttons to begin with."""
    return [section(text), _row("help.start", _new_quote(), _mine(), button(HELP, _("Help"), "help"))]


def all_commands() -> list[Json]:
    """Return every command with what it does, in two columns."""
    return list(_columns())


def _columns() -> Iterator[Json]:
    each = FIELDS_MAX // 2
    for first in range(0, len(_COMMANDS), each):
        fields = [mrkdwn(text) for typed, does in _COMMANDS[first : first + each] for text in (f"`{typed}`", _(does))]
        yield {"type": "section", "fields": fields}


def _row(block_id: str, *buttons: Json) -> Json:
    return {"type": "actions", "block_id": block_id, "elements": list(buttons)}


def _new_quote() -> Json:
    return button(NEW_QUOTE, _("New quote"), "new", style="primary")


def _mine() -> Json:
    return button(MINE, _("My quotes"), question_text(ListRequest()))


def _waiting() -> Json:
    asked = ListRequest(mine=False, states=frozenset({QuoteState.PENDING_APPROVAL}))
    return {**button(WAITING, _("Waiting for approval"), question_text(asked)), "accessibility_label": plain(_("Waiting"))["text"]}
