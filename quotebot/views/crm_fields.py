"""Form fields whose options come from Salesforce: accounts, contacts and open opportunities."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import RECORD_ID, ChosenOpportunity
from quotebot.views.blocks import Json, option, plain
from quotebot.views.button_values import read, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adapters.salesforce.records import OpenOpportunity

FOUND: Final = "quote.account_found"  # block_id and action_id of the menu of accounts
OPPORTUNITY: Final = "quote.opportunity"  # prefix; a hash of the account follows, so that another account's menu starts empty
CONTACT: Final = "quote.contact_found"  # block_id and action_id of the menu of contacts
OFFERED: Final = re.compile(r"^quote\.opportunity\.")
ACCOUNT_CHARACTERS_MAX: Final = 100
OPTION_CHARACTERS_MAX: Final = 75
VALUE_CHARACTERS_MAX: Final = 150
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_KEPT: Final = ("type", "callback_id", "private_metadata", "title", "submit", "close", "blocks")  # copied to a redrawn view


@dataclass(frozen=True, slots=True)
class Choice:
    """Opportunity chosen in a form. `currency` is empty if Salesforce returned none."""

    opportunity: ChosenOpportunity
    currency: str


def account_input(*, with_more: bool) -> Json:
    """Return the menu of accounts. `with_more`: Slack reports the choice at once, so that the opportunities can be offered."""
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
    """Return the options of the menu of accounts. It omits names longer than 100 characters."""
    return [option(clipped(name, OPTION_CHARACTERS_MAX), name) for name in names if len(name) <= ACCOUNT_CHARACTERS_MAX]


def opportunity_options(found: Sequence[OpenOpportunity]) -> list[Json]:
    """Return the options of the menu of opportunities: each name with its closing date and stage."""
    options = []
    for each in found:
        tail = "".join(f" · {part}" for part in (each.closes, clipped(each.stage, 20)) if part)
        options.append(
            option(
                f"{clipped(each.name, OPTION_CHARACTERS_MAX - len(tail))}{tail}",
                " ".join(filter(None, (each.record_id, each.account_id, each.currency))),
            )
        )
    return options


def with_opportunities(view: Mapping[str, Any], account: str | None) -> Json | None:
    """Return the form with the menu of the account's opportunities; without an account, remove the menu.

    None if another build drew the form.
    """
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
    """Return the stored fields of a creation form: c, the channel; t, a token; a, the account whose opportunities it offers.

    None if this build did not write them.
    """
    kinds = ({"c"}, {"c", "t"}, {"c", "a"}, {"c", "t", "a"})
    return next((found for found in (read(text, names) for names in kinds) if found is not None), None)


def account_of(view: Mapping[str, Any]) -> str | None:
    """Return the account whose opportunities a form offers, or None if it offers none."""
    carried = remembered(view.get("private_metadata") or "")
    account = None if carried is None else carried.get("a")
    return account if isinstance(account, str) else None


def block_of(account: str) -> str:
    """Return the block_id of the menu of an account's opportunities."""
    return f"{OPPORTUNITY}.{hashlib.sha256(account.encode()).hexdigest()[:12]}"


def read_choice(value: str) -> Choice | None:
    """Return the opportunity of an option's value, or None if this build does not write such a value."""
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
