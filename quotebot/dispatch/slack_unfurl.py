"""Effect class slack.unfurl: quotes below a message that links to their records in Salesforce.

A preview shows the quote as it is when the preview is sent. It is sent only where every reader of the channel may see the quote:
in the channel that has the quote's card, and in others whose readers are all full members with sight of it. Where that is not
known, in direct messages and in channels that another organization shares, nothing is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from adapters.failures import UNAVAILABLE, AdapterError, Failure
from ledger.records import Delivered, Drop, Retry, Trouble
from quotebot import effects
from quotebot.dispatch.services import EffectHandler
from quotebot.domain.access import INSIDER, Circle, Refusal, Sight, admit, may_see
from quotebot.domain.language import N_, _
from quotebot.store import quotes
from quotebot.views.list_card import link_preview

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, Settlement
    from quotebot.domain.quotes.quote import Quote
    from quotebot.execution.membership import Audience

READERS_MAX: Final = 50  # in a larger channel only quotes whose card is there are shown
NOT_KNOWN: Final = "not_known"
ASK_AGAIN_MS: Final = 30_000  # an outage delays a preview until it is too old, and makes no dead letter
NOT_SHOWN: Final = N_("Not everybody in <#{channel}> may see the quotes of these links, or it is not known. Nothing was shown.")
# Refusals of one preview: the message or its link is gone, or its domain is not the app's.
GONE_CODES: Final = frozenset({"cannot_find_channel", "cannot_find_message", "cannot_unfurl_message", "cannot_unfurl_url"})
log = structlog.get_logger(__name__)


class UnfurlHandler(EffectHandler):
    """Shows the previews of one message. Sent twice, they are replaced."""

    effect_class: ClassVar = effects.UNFURL

    async def perform(self, effect: Effect) -> Settlement:
        """Show the quotes that everybody in the channel may see. Raises AdapterError."""
        services, channel = self.services, effect.payload["channel"]
        linked = await services.ledger.database.read(lambda tx: _linked(tx, effect))
        try:
            shown = await self._for_everybody(channel, effect.payload["team_id"], linked)
        except AdapterError as error:
            if error.failure not in UNAVAILABLE:
                raise
            outage = error.code != NOT_KNOWN  # one unknown person must not hold the previews of other channels
            trouble = Trouble(error.failure.value, str(error), error.http_status, unavailable=outage, code=error.code)
            return Retry(trouble, ASK_AGAIN_MS, spent=False)
        if not shown:
            return Drop(Trouble(Failure.VALIDATION.value, _(NOT_SHOWN, channel=channel)))
        if (later := await services.pacer.put_off("chat.unfurl", effect.id)) is not None:
            return later
        now = services.ledger.clock.now_ms()
        previews = {url: link_preview(quote, now) for url, quote in shown.items()}
        async with services.pacer.place_in(channel) as busy:
            if busy is not None:
                return busy
            try:
                await services.adapters.slack.unfurl(
                    channel=channel, ts=effect.payload["ts"], previews=previews, correlation_id=effect.correlation_id
                )
            except AdapterError as error:
                if error.failure is Failure.AUTH:  # it would hold all of Slack, and other calls notice a refused login
                    log.warning("link.not_shown", code=error.code, do="quotebot doctor --only slack")
                elif error.code not in GONE_CODES:
                    raise
                return Drop(Trouble(error.failure.value, _("Slack shows no preview there ({code}).", code=error.code)))
        return Delivered(None, {"quotes": [quote.quote_id for quote in shown.values()]})

    async def _for_everybody(self, channel: str, team_id: str, linked: dict[str, Quote]) -> dict[str, Quote]:
        """Return those of the linked quotes that every reader of the channel may see. Raises AdapterError."""
        try:
            audience = await self.services.channels.audience(channel)
            if audience is None:
                return {}
            of_everybody = {
                quote.quote_id
                for quote in {quote.quote_id: quote for quote in linked.values()}.values()
                if quote.place == channel or await self._all_see(audience, quote, team_id)
            }
        except AdapterError as error:
            error.possibly_applied = False  # nothing was sent yet
            raise
        return {url: quote for url, quote in linked.items() if quote.quote_id in of_everybody and quote.team_id == team_id}

    async def _all_see(self, audience: Audience, quote: Quote, team_id: str) -> bool:
        """Return true if all readers of another channel see a quote in full. Raises AdapterError if that is not known."""
        services, rules = self.services, self.services.rules
        open_to_all = await services.channels.is_public(quote.channel)
        if (audience.public and not open_to_all) or len(audience.members) > READERS_MAX:
            return False
        for user in sorted(audience.members - {await services.directory.bot_user()}):
            found = await services.directory.learn(team_id, user)
            if found is None:
                why = _("Slack has not answered who <@{user}> is. Nothing was sent.", user=user)
                raise AdapterError(Failure.TRANSIENT, NOT_KNOWN, why)
            viewer = admit(user, team_id, found.kind, rules.guest_reps)
            if isinstance(viewer, Refusal):
                return False
            if not viewer.own_only:
                near = open_to_all or await services.channels.is_open_to(user, quote.channel)
                known = frozenset({quote.channel}) if near else frozenset[str]()
                viewer = replace(viewer, circle=INSIDER if user in rules.role_holders else Circle(channels=known))
            if may_see(viewer, quote) is not Sight.FULL:
                return False
        return True


def _linked(tx: Tx, effect: Effect) -> dict[str, Quote]:
    """Return the quote of each link that names one."""
    found = ((url, quotes.load(tx, quote_id)) for url, quote_id in effect.payload["links"].items())
    return {url: quote for url, quote in found if quote is not None}
