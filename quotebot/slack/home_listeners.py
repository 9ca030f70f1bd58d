"""Bolt listeners for the Home tab: its opening, filter, pages and search, a new quote, an example, and cover in an absence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from quotebot.commands.payloads import DelegateApprovals, SetDigest
from quotebot.commands.queries import ListRequest
from quotebot.domain.language import _
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.slack import delegation, payloads, verbs
from quotebot.slack.form_fields import Form
from quotebot.slack.gate import viewer_of
from quotebot.views import approval_messages, builder, forms, help_messages, home, messages
from quotebot.views.confirmations import COVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slack_bolt.async_app import AsyncApp

    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.quotes.quote import Listed, Quote
    from quotebot.slack.surface import Surface

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HomeListeners:
    """Listeners for the Home tab of one person."""

    surface: Surface

    async def on_home(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the opening of the bot's Home tab."""
        if body["event"].get("tab") == "home":
            await self.surface.recorded(context, payloads.home_command(body, self.surface.ledger.clock.now_ms()))
        await ack()

    async def on_new_quote(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "New quote": open the form. On the Home tab it also asks for the channel."""
        channel = payloads.gesture(body).channel  # of a private answer; the Home tab has none
        await self.surface.offer_creation(ack, body, channel, builder.Draft(), await viewer_of(context))

    async def on_choice(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the choice of a section or a page: record it and redraw the tab."""
        action = body["actions"][0]
        choice = home.parse_choice((action.get("selected_option") or action).get("value") or "")
        if choice is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        command = payloads.home_choice_command(body, choice, self.surface.ledger.clock.now_ms())
        await self.surface.click(ack, body, context, command)

    async def on_find(self, ack: Any, body: Body, context: Any) -> None:
        """Acknowledge with the quotes of the typed number or customer that the person sees in full, the newest 20 at most."""
        typed = " ".join(str(body.get("value") or "")[: forms.ACCOUNT_CHARACTERS_MAX].split())
        number = parse_quote_id(typed)
        viewer = await viewer_of(context, number)
        found: Sequence[Quote | Listed] = ()
        if number is not None:
            quote = await self.surface.visible(number, viewer)
            found = () if quote is None else (quote,)
        elif typed:
            asked = ListRequest(mine=False, account=typed)
            found = (await self.surface.reads(self.surface.rules).found(asked, viewer)).quotes
        seals = self.surface.gate.seals
        options = forms.quote_options(found)
        await ack(options=[{**each, "value": seals.sealed(viewer.user, home.FIND, each["value"])} for each in options])

    async def on_example(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Try an example": show the price of one product. Records nothing."""
        viewer, rules = await viewer_of(context), await self.surface.rules_now()
        asked = verbs.parse(f"simulate {_example(rules.catalogue)}", "", rules.catalogue)
        if isinstance(asked, verbs.SimulateRequest):
            await self.surface.reply(ack, body, await self.surface.reads(rules).answer(asked, viewer))
        else:
            await self.surface.reply(ack, body, help_messages.help_text())

    async def on_cover(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "Set cover", on the Home tab or under a refused command: open the form. Records nothing."""
        viewer, rules = await viewer_of(context), self.surface.rules
        if viewer.own_only:
            await self.surface.reply(ack, body, messages.turned_away("not_a_member"))
        elif not rules.roles_of(viewer.user):
            await self.surface.reply(ack, body, approval_messages.delegation_refused("no_authority", None))
        else:
            zone = await self.surface.gate.zone_of(viewer.user) or rules.time_zone
            first = delegation.today(self.surface.ledger.clock.now_ms(), zone)
            last = first + timedelta(days=delegation.DEFAULT_DAYS - 1)
            if await self.surface.open_form(body, forms.cover_form(first, last, zone)):
                await ack()
            else:
                await self.surface.reply(ack, body, _(messages.FORM_NOT_OPENED))

    async def on_cover_form(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the submitted form: record the delegation, or show each error at its field."""
        viewer, now = await viewer_of(context), self.surface.ledger.clock.now_ms()
        form = Form(body["view"], await self.surface.rules_now(), now)
        wrong = messages.turned_away("not_a_member") if viewer.own_only else None
        found = delegation.read_cover(form, viewer.user) if wrong is None else {forms.REASON: wrong}
        if isinstance(found, DelegateApprovals):
            command = payloads.submitted(body, found, f"delegation:{viewer.user}", None, now)
            await self.surface.submitted(ack, context, command, forms.REASON)
        else:
            await ack(response_action="errors", errors=found)

    async def on_cover_end(self, ack: Any, body: Body, context: Any) -> None:
        """Handle "End now": record the end of the person's own absence."""
        user = body["user"]["id"]
        ending = delegation.delegation_command(delegation.DelegationRequest(None), user, 0, "UTC")
        now = self.surface.ledger.clock.now_ms()
        await self.surface.click(ack, body, context, payloads.clicked(body, ending, f"delegation:{user}", None, now))

    async def on_digest(self, ack: Any, body: Body, context: Any) -> None:
        """Handle the button that turns the daily digest on or off."""
        wanted = home.parse_digest(body["actions"][0].get("value") or "")
        if wanted is None:
            await self.surface.reply(ack, body, _(messages.UNREADABLE_BUTTON))
            return
        payload, now = SetDigest(wanted, at_home=True), self.surface.ledger.clock.now_ms()
        command = payloads.clicked(body, payload, f"digest:{body['user']['id']}", 0, now)
        await self.surface.click(ack, body, context, command)


def _example(catalogue: Catalogue) -> str:
    """Return a request for some units of the first product that needs no choice."""
    simple = (product.sku for product in catalogue.products.values() if product.active and product.kind == "simple")
    return f"for Example Inc: 25 {next(simple, '')}; term 12m; discount 5%"


def register_home(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners."""
    tab = HomeListeners(surface)
    app.event("app_home_opened")(tab.on_home)
    app.action(home.NEW_QUOTE)(tab.on_new_quote)
    app.options(home.FIND)(tab.on_find)
    app.action(home.EXAMPLE)(tab.on_example)
    app.action(home.DIGEST)(tab.on_digest)
    app.action(COVER)(tab.on_cover)
    app.action(home.COVER_END)(tab.on_cover_end)
    app.view(forms.COVER_FORM)(tab.on_cover_form)
    app.action(re.compile(r"^home\.(filter|previous|next|all)$"))(tab.on_choice)
