"""Listener for links to records in Salesforce: a message that links to a quote's record gets a preview of the quote.

Slack sends `link_shared` for links to the domains that the app has registered. A link that is still being written, one of another
host, and a record that is no quote of ours cause nothing, and nothing is recorded about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from quotebot.commands.payloads import LinkedQuote, PreviewLinks
from quotebot.domain.access import Viewer
from quotebot.execution.membership import is_direct
from quotebot.slack import payloads
from quotebot.store.crm import quote_of_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slack_bolt.async_app import AsyncApp

    from ledger.database import Tx
    from quotebot.slack.surface import Surface

LINKS_READ_MAX: Final = 20  # of one message
PREVIEWS_MAX: Final = 5  # below one message
URL_CHARACTERS_MAX: Final = 1_000
COMPOSER: Final = "composer"  # the source of a link in a message that was not sent yet
# The page of a record in Lightning, in Classic, and at the address of the org.
_RECORD: Final = re.compile(r"/(?:lightning/r/(?:\w{1,80}/)?)?([A-Za-z0-9]{15})(?:[A-Za-z0-9]{3})?(?:/view)?/?")
_CLASSIC, _LIGHTNING = ".my.salesforce.com", ".lightning.force.com"
Body = dict[str, Any]


def hosts_of(instance_url: str | None) -> frozenset[str]:
    """Return the hosts, with a port that is not the usual one, on which an org shows its records; empty without an org."""
    host = "" if instance_url is None else urlsplit(instance_url).netloc.lower()
    if host.endswith(_CLASSIC):
        return frozenset({host, host.removesuffix(_CLASSIC) + _LIGHTNING})
    return frozenset({host} if host else ())


def record_of(url: object, hosts: frozenset[str]) -> str | None:
    """Return the 15 characters of the record that a link on these hosts shows; None for every other link."""
    if not isinstance(url, str) or len(url) > URL_CHARACTERS_MAX:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("https", "http") or parts.netloc.lower() not in hosts:
        return None
    found = _RECORD.fullmatch(parts.path)
    return None if found is None else found[1]


def records_in(event: Mapping[str, Any], hosts: frozenset[str]) -> dict[str, str]:
    """Return the record of each link of a sent message in a channel with the bot; empty if no link counts."""
    channel, links = event.get("channel"), event.get("links")
    sent = event.get("source") != COMPOSER and isinstance(event.get("message_ts"), str) and isinstance(event.get("user"), str)
    if not sent or not isinstance(channel, str) or is_direct(channel) or event.get("is_bot_user_member") is not True:
        return {}
    urls = [link.get("url") for link in links[:LINKS_READ_MAX] if isinstance(link, dict)] if isinstance(links, list) else []
    return {str(url): record for url in urls if (record := record_of(url, hosts)) is not None}


@dataclass(frozen=True, slots=True)
class SharedLinks:
    """Listener for links that people share."""

    surface: Surface

    async def on_shared(self, ack: Any, body: Body, context: Any) -> None:
        """Record the preview of the quotes to which a member's message links. To anybody else nothing is shown or said."""
        event, ledger = body["event"], self.surface.ledger
        records = records_in(event, self.surface.record_hosts)
        links = await ledger.database.read(lambda tx: _linked(tx, records)) if records else ()
        if links:
            sharer = await self.surface.gate.learned(event["user"])
            if isinstance(sharer, Viewer) and not sharer.own_only:
                shown = PreviewLinks(event["channel"], event["message_ts"], links)
                fields = ("type", "user", "channel", "message_ts", "links")
                command = payloads.raised(body, shown, shown.aggregate_id, fields, ledger.clock.now_ms())
                await self.surface.recorded(context, command)  # over the person's budget nothing is shown
        await ack()


def _linked(tx: Tx, records: Mapping[str, str]) -> tuple[LinkedQuote, ...]:
    """Return the links whose record is one of a quote, the first PREVIEWS_MAX."""
    found = ((url, quote_of_record(tx, record)) for url, record in records.items())
    return tuple(LinkedQuote(url, quote_id) for url, quote_id in found if quote_id is not None)[:PREVIEWS_MAX]


def register_links(app: AsyncApp, surface: Surface) -> None:
    """Register the listener."""
    app.event("link_shared")(SharedLinks(surface).on_shared)
