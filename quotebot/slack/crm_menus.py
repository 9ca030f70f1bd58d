"""The menus of the new quote's form whose entries are Salesforce's: an account, then one of its open opportunities.

Slack does not say what is chosen in one menu when it asks for the entries of another. So choosing an account draws the form anew:
with the menu of its opportunities, and with the account's name in what the form remembers.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.access import Sight, may_see
from quotebot.domain.opportunities import RECORD_ID, ChosenOpportunity
from quotebot.domain.pricing import clipped
from quotebot.domain.quotes import utc_text
from quotebot.slack.admission import viewer_of
from quotebot.slack.parts import Json, option, plain
from quotebot.slack.values import parse_button_value, read, written
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slack_bolt.async_app import AsyncApp

    from adapters.salesforce_records import OpenOpportunity
    from quotebot.domain.access import Viewer
    from quotebot.slack.listeners import Surface

FOUND: Final = "quote.account_found"  # block_id and action_id of the menu of accounts
OPPORTUNITY: Final = "quote.opportunity"  # and a mark of the account it is about: another account's menu starts empty
CONTACT: Final = "quote.contact_found"  # block_id and action_id of the menu of contacts
OFFERED: Final = re.compile(r"^quote\.opportunity\.")
ACCOUNT_CHARACTERS_MAX: Final = 100
OPTION_CHARACTERS_MAX: Final = 75
VALUE_CHARACTERS_MAX: Final = 150
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_KEPT: Final = ("type", "callback_id", "private_metadata", "title", "submit", "close", "blocks")  # of a view, when it is drawn anew

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """An opportunity as it was chosen in a form. `currency` is empty where nobody said."""

    opportunity: ChosenOpportunity
    currency: str


@dataclass(frozen=True, slots=True)
class CrmMenus:
    """Bolt listeners for the menus. They record nothing."""

    surface: Surface

    async def on_accounts(self, ack: Any, body: Body, context: Any) -> None:
        """Answer which accounts begin with what was typed into the form; none when that is not known in time."""
        lookup = self.surface.lookup if may_look_up(await viewer_of(context)) else None
        found = None if lookup is None else await lookup(_sought(body))
        options = [] if found is None else account_options(found.rows)
        await ack(**_answer(options, None if found is None else found.as_of))

    async def on_opportunities(self, ack: Any, body: Body, context: Any) -> None:
        """Answer which open opportunities the chosen account has; none when that is not known in time."""
        lookup = self.surface.opportunities if may_look_up(await viewer_of(context)) else None
        account = account_of(body["view"])
        found = None if lookup is None or account is None else await lookup(account, _sought(body))
        options = [] if found is None else opportunity_options(found.rows)
        await ack(**_answer(options, None if found is None else found.as_of))

    async def on_account(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the choice of an account: the form is drawn anew with the menu of its opportunities."""
        if self.surface.opportunities is not None and may_look_up(await viewer_of(context)):
            chosen = (body["actions"][0].get("selected_option") or {}).get("value")
            fits = chosen is None or (isinstance(chosen, str) and len(chosen) <= ACCOUNT_CHARACTERS_MAX)
            view = with_opportunities(body["view"], chosen) if fits else None
            if view is not None:
                await self.surface.dialogs.redraw(body["view"], view)
        await ack()

    async def on_contacts(self, ack: Any, body: Body, context: Any) -> None:
        """Answer which contacts the customer of the form's quote has, as the copy says; none where there is no copy."""
        value = parse_button_value(body["view"].get("private_metadata") or "")
        viewer = await viewer_of(context, None if value is None else value.quote_id)
        lookup = self.surface.contacts if may_look_up(viewer) else None
        quote = None if value is None else await self.surface.ledger.database.read(lambda tx: store.load(tx, value.quote_id))
        if lookup is None or quote is None or may_see(viewer, quote) is not Sight.FULL:
            await ack(options=[])
            return
        found = await lookup(quote.account, _sought(body))
        options = [option(clipped(each, OPTION_CHARACTERS_MAX), each) for each in found.rows if len(each) <= VALUE_CHARACTERS_MAX]
        await ack(**_answer(options, found.as_of, why=""))


def _sought(body: Body) -> str:
    """Return what was typed into a menu, cut to the longest name."""
    return str(body.get("value") or "")[:ACCOUNT_CHARACTERS_MAX]


def register_crm_menus(app: AsyncApp, surface: Surface) -> None:
    """Route the menus; before the listener of all other buttons."""
    menus = CrmMenus(surface)
    app.options(FOUND)(menus.on_accounts)
    app.options(OFFERED)(menus.on_opportunities)
    app.options(CONTACT)(menus.on_contacts)
    app.action(FOUND)(menus.on_account)
    app.action(OFFERED)(_noted)


def may_look_up(viewer: Viewer) -> bool:
    """Tell whether a viewer is shown names out of the CRM: a listed guest types them."""
    return not viewer.own_only


async def _noted(ack: Any) -> None:
    """A choice among the opportunities is read when the form is sent."""
    await ack()


def account_input(*, with_more: bool) -> Json:
    """Return the menu of accounts; `with_more`: choosing one is told at once, because more is offered then."""
    element = {"type": "external_select", "action_id": FOUND, "min_query_length": 2, "placeholder": plain("Type the beginning")}
    block = {"type": "input", "block_id": FOUND, "label": plain("Account in Salesforce"), "optional": True, "element": element}
    return {**block, "dispatch_action": True} if with_more else block


def contact_input() -> Json:
    """Return the menu of the customer's contacts."""
    element = {
        "type": "external_select",
        "action_id": CONTACT,
        "min_query_length": 0,
        "placeholder": plain("Its contacts in Salesforce"),
    }
    return {"type": "input", "block_id": CONTACT, "label": plain("To which contact?"), "optional": True, "element": element}


def account_options(names: Sequence[str]) -> list[Json]:
    """Return what the menu of accounts offers; a name that no option can carry is left to be typed."""
    return [option(clipped(name, OPTION_CHARACTERS_MAX), name) for name in names if len(name) <= ACCOUNT_CHARACTERS_MAX]


def opportunity_options(found: Sequence[OpenOpportunity]) -> list[Json]:
    """Return what the menu of opportunities offers: the name, then when and where it is."""
    options = []
    for each in found:
        tail = "".join(f" · {part}" for part in (each.closes, clipped(each.stage, 20)) if part)
        label = f"{clipped(each.name, OPTION_CHARACTERS_MAX - len(tail))}{tail}"
        options.append(option(label, " ".join(filter(None, (each.record_id, each.account_id, each.currency)))))
    return options


def with_opportunities(view: Mapping[str, Any], account: str | None) -> Json | None:
    """Return the form with the menu of that account's opportunities, or without one; None when another build drew it."""
    carried = remembered(view.get("private_metadata") or "")
    if carried is None:
        return None
    kept = {name: value for name, value in carried.items() if name not in ("v", "a")}
    blocks = [block for block in view["blocks"] if not OFFERED.match(str(block.get("block_id")))]
    if account is not None:
        after = next((index for index, block in enumerate(blocks) if block.get("block_id") == FOUND), -1)
        blocks.insert(after + 1, _opportunity_input(account))
        kept["a"] = account
    drawn = {name: view[name] for name in _KEPT if view.get(name) is not None}
    return {**drawn, "private_metadata": written(kept), "blocks": blocks}


def remembered(text: str) -> dict[str, Any] | None:
    """Return what a form for a new quote carries: c, the channel; t, a token; a, the account whose opportunities it offers."""
    kinds = ({"c"}, {"c", "t"}, {"c", "a"}, {"c", "t", "a"})
    return next((found for found in (read(text, names) for names in kinds) if found is not None), None)


def account_of(view: Mapping[str, Any]) -> str | None:
    """Return the account whose opportunities a form offers; None: it offers none."""
    carried = remembered(view.get("private_metadata") or "")
    account = None if carried is None else carried.get("a")
    return account if isinstance(account, str) else None


def block_of(account: str) -> str:
    """Return the block_id of the menu of an account's opportunities."""
    return f"{OPPORTUNITY}.{hashlib.sha256(account.encode()).hexdigest()[:12]}"


def read_choice(value: str) -> Choice | None:
    """Return the opportunity that an option stood for; None when it is not one that this build offers."""
    record_id, _, rest = value.partition(" ")
    account_id, _, currency = rest.partition(" ")
    if (
        not RECORD_ID.fullmatch(record_id)
        or not RECORD_ID.fullmatch(account_id)
        or (currency and not _CURRENCY.fullmatch(currency))
    ):
        return None
    return Choice(ChosenOpportunity(record_id, account_id), currency)


def _opportunity_input(account: str) -> Json:
    name = block_of(account)
    element = {
        "type": "external_select",
        "action_id": name,
        "min_query_length": 0,
        "placeholder": plain(clipped(f"Open ones of {account}", 150)),
    }
    hint = plain("The quote's record in Salesforce is put under it, and its amount follows the quote.")
    block = {"type": "input", "block_id": name, "label": plain("Opportunity"), "optional": True, "element": element}
    return {**block, "hint": hint}


def _answer(options: list[Json], as_of: int | None, why: str = "; Salesforce does not answer") -> Json:
    """Return the arguments of an acknowledgement; options that were not read just now say so in their heading."""
    if as_of is None or not options:
        return {"options": options}
    label = clipped(f"As of {utc_text(as_of)}{why}", OPTION_CHARACTERS_MAX)
    return {"option_groups": [{"label": plain(label), "options": options}]}
