"""Listeners of an open quote builder: the product menu, and the redrawing of the form after each change. They record nothing.

The form shows its total and its approvals before it is sent: a pure computation within Slack's three seconds. Slack redraws a view
only if it has the hash that the change was made in. Fast typing and quick clicks send several changes with one hash, so a change
made in a form that the bot has redrawn since is applied to the form as last redrawn, with the input that came with the newest
change. A redraw that Slack refuses all the same is left out: the next change follows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.access import Sight, may_look_up, may_see
from quotebot.domain.language import _
from quotebot.slack.builder_input import customer_of, previewed
from quotebot.slack.gate import viewer_of
from quotebot.store import quotes as store
from quotebot.views import builder, builder_fields, forms
from quotebot.views.builder_details import PARTIES, TERMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slack_bolt.async_app import AsyncApp

    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.slack.surface import Surface
    from quotebot.views.blocks import Json
    from quotebot.views.builder import Carried

Body = dict[str, Any]
FORMS_REMEMBERED: Final = 100  # a form that nobody changes quickly needs no memory
HASHES_REMEMBERED: Final = 50  # of one form; older changes no longer arrive


async def edited_version(surface: Surface, view: Mapping[str, Any], context: Any) -> Quote | None:
    """Return the version that a form edits, as it was when the form was opened; None if the person may not see it.

    Other forms edit none. Raises TurnedAwayError.
    """
    carried = builder.carried_by(view.get("private_metadata") or "")
    if carried is None or "q" not in carried.stored:
        return None
    quote_id, version = str(carried.stored["q"]), int(carried.stored["n"])
    viewer = await viewer_of(context, quote_id)
    quote = await surface.ledger.database.read(lambda tx: store.load_version(tx, quote_id, version))
    return quote if quote is not None and may_see(viewer, quote) is Sight.FULL else None


@dataclass(slots=True)
class Drawn:
    """An open form as this process has last redrawn it, and the time and the input of the newest change.

    `replaced` are the hashes before the redraws.
    """

    newest: str = ""
    state: Any = None
    view: Mapping[str, Any] = field(default_factory=dict)
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=HASHES_REMEMBERED))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one redraw at a time


@dataclass(frozen=True, slots=True)
class QuoteBuilder:
    """Bolt listeners of an open builder."""

    surface: Surface
    drawn: OrderedDict[str, Drawn] = field(default_factory=OrderedDict)  # by view id

    async def on_products(self, ack: Any, body: Body, context: Any) -> None:
        """Acknowledge with the products that match the typed text, in groups by family."""
        await viewer_of(context)
        day = datetime.fromtimestamp(self.surface.ledger.clock.now_ms() // 1000, UTC).date()
        typed = str(body.get("value") or "")[: forms.ACCOUNT_CHARACTERS_MAX]
        groups = builder_fields.product_groups((await self.surface.rules_now()).ruleset, typed, day)
        await ack(**({"option_groups": groups} if groups else {"options": []}))

    async def on_change(self, ack: Any, body: Body, context: Any) -> None:
        """Handle a change of a field or a button in the form: redraw it with the total as it is now."""
        view, action = body["view"], body["actions"][0]
        carried = builder.carried_by(view.get("private_metadata") or "")
        viewer = await viewer_of(context)
        if carried is not None and (action["action_id"] != forms.FOUND or (may_look_up(viewer) and _fits(action))):
            quote = await edited_version(self.surface, view, context)
            if "q" not in carried.stored or quote is not None:
                await self._redraw(viewer.user, view, action, quote)
        await ack()

    async def _redraw(self, person: str, view: Mapping[str, Any], action: Body, quote: Quote | None) -> None:
        """Redraw the form. A change that adds and removes no block is dropped if a newer one waits, which redraws it too."""
        drawn = self.drawn.setdefault(view["id"], Drawn())
        self.drawn.move_to_end(view["id"])
        while len(self.drawn) > FORMS_REMEMBERED:
            self.drawn.popitem(last=False)
        made_at = str(action.get("action_ts") or "")
        if made_at >= drawn.newest:
            drawn.newest, drawn.state = made_at, view.get("state")
        rules = await self.surface.rules_now()
        async with drawn.lock:
            before = drawn.view if view["hash"] in drawn.replaced else view
            carried = builder.carried_by(before["private_metadata"])
            assert carried is not None  # noqa: S101 -- the caller has checked the form, and the bot drew the other
            anew = self._changed(before, carried, action, rules)
            if made_at < drawn.newest and _ids(anew) == _ids(before):
                return
            filled = {**anew, "state": drawn.state}
            rules = await self.surface.rules_for(rules, *customer_of(filled, rules, quote))
            anew = previewed(filled, rules, self.surface.ledger.clock.now_ms(), quote, _notice(carried, anew, action))
            view_hash = await self.surface.redraw(person, before, anew)
            if view_hash:
                drawn.replaced.append(before["hash"])
                drawn.view = {**anew, "id": view["id"], "hash": view_hash}

    def _changed(self, view: Mapping[str, Any], carried: Carried, action: Body, rules: Rules) -> Json:
        """Return the form with the blocks that an action adds or removes."""
        if action["action_id"] == forms.FOUND and self.surface.opportunities is not None:
            return forms.with_opportunities(view, _chosen(action)) or forms.drawn_again(view, carried.stored, view["blocks"])
        return _changed(view, carried, action, rules)


def _chosen(action: Body) -> Any:
    return (action.get("selected_option") or {}).get("value")


def _fits(action: Body) -> bool:
    """Return whether the form can hold the name of a chosen account."""
    chosen = _chosen(action)
    return chosen is None or (isinstance(chosen, str) and len(chosen) <= forms.ACCOUNT_CHARACTERS_MAX)


def _notice(before: Carried, drawn: Json, action: Body) -> str:
    """Return why a chosen product got no line, or a line not the fields that were asked for; empty if they are there."""
    chosen = _chosen(action)
    row = builder_fields.row_of(str(action["action_id"]))
    if row is not None:
        asked = {builder_fields.PRICED: builder_fields.price_block, builder_fields.OPTIONAL: builder_fields.optional_block}
        named = asked.get(str(chosen)) if str(action["action_id"]).endswith(".more") else None
        return "" if named is None or named(row) in _ids(drawn) else _(builder.NO_ROOM)
    after = builder.carried_by(drawn["private_metadata"])
    if not builder_fields.PRODUCTS.match(str(action["action_id"])) or after is None or chosen in dict(after.rows).values():
        return ""
    return builder.full() if chosen and before.rows == after.rows else ""


def _ids(view: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(block.get("block_id") for block in view["blocks"])


def _changed(view: Mapping[str, Any], carried: Carried, action: Body, rules: Rules) -> Json:
    """Return the form with the blocks that an action adds or removes."""
    action_id = str(action["action_id"])
    chosen = str(_chosen(action) or "")
    row = builder_fields.row_of(action_id)
    if action_id in (TERMS, PARTIES):
        return builder.with_details(view, carried, action_id, rules.ruleset, rules.policy)
    if action_id == forms.TERM:
        return builder.with_months(view, carried, other=chosen == builder_fields.OTHER)
    if builder_fields.PRODUCTS.match(action_id) and chosen:
        return builder.with_line(view, carried, chosen, rules.ruleset)
    if row is not None and action_id.endswith(".more"):
        return _with_choice(view, carried, row, chosen, rules)
    return forms.drawn_again(view, carried.stored, view["blocks"])


def _with_choice(view: Mapping[str, Any], carried: Carried, row: int, chosen: str, rules: Rules) -> Json:
    """Return the form with the choice in a line's menu."""
    sku = dict(carried.rows).get(row, "")
    product = rules.catalogue.products.get(sku)
    name = sku if product is None else product.name
    match chosen:
        case builder_fields.REMOVE:
            return builder.without_line(view, carried, row)
        case builder_fields.OPTIONAL:
            return builder.with_option(view, carried, row, name)
        case _:
            return builder.with_price(view, carried, row, name, priced=chosen == builder_fields.PRICED)


def register_builder(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners of the builder; call it before the listener of all other buttons is registered."""
    listeners = QuoteBuilder(surface)
    app.options(builder_fields.PRODUCTS)(listeners.on_products)
    app.action(builder_fields.LIVE)(listeners.on_change)
    app.action(forms.FOUND)(listeners.on_change)
