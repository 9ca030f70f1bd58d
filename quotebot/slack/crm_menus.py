"""Menus of the new quote's form with entries from Salesforce: an account, then one of its open opportunities.

Slack waits 3 seconds for the entries, which are looked up while a person types. If a lookup takes longer or fails, the Salesforce
mirror answers, and the result states the mirror's time (`as_of`). Without a mirror there are no entries, and the person types the
name instead.

When Slack requests the entries of one menu, it does not send the choice made in another. So choosing an account redraws the form
with the menu of its opportunities, and stores the account's name in the form's metadata (slack/builder.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import structlog

from adapters.failures import AdapterError
from quotebot.domain.access import Sight, may_look_up, may_see
from quotebot.domain.language import _
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import utc_text
from quotebot.slack.gate import viewer_of
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import Found
from quotebot.views.blocks import Json, option, parse_button_value, plain
from quotebot.views.forms import (
    ACCOUNT_CHARACTERS_MAX,
    CONTACT,
    FOUND,
    OFFERED,
    OPTION_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    account_of,
    account_options,
    opportunity_options,
)

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

    from adapters.salesforce.records import OpenOpportunity
    from ledger.clock import Clock
    from quotebot.slack.surface import Surface

LOOKUP_SECONDS: Final = 1.5
FRESH_SECONDS: Final = 60.0
AWAY_SECONDS: Final = 30.0  # after a failure only the mirror, if there is one, answers for so long
REMEMBERED: Final = 256  # cached queries
CHARACTERS_MIN: Final = 2
ACCOUNT_LOOKUP_CHARACTERS_MAX: Final = 255  # Salesforce's limit for a name

log = structlog.get_logger(__name__)
T = TypeVar("T")


Find = Callable[[str, float], Awaitable[tuple[str, ...]]]
FindOpen = Callable[[str, str, float], Awaitable[tuple["OpenOpportunity", ...]]]
Body = dict[str, Any]


class _Recent(Generic[T]):
    """Cache of query results for FRESH_SECONDS. Failures are not cached: `instead` answers, or the next call asks again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, ...], tuple[float, tuple[T, ...]]] = OrderedDict()
        self._away_until = float("-inf")

    async def get(
        self,
        question: tuple[str, ...],
        ask: Callable[[], Awaitable[tuple[T, ...]]],
        instead: Callable[[], Awaitable[Found[T] | None]] | None,
    ) -> Found[T]:
        """Return the cached result or that of `ask`; if `ask` raises AdapterError, the result of `instead`, or nothing.

        After such an error `instead`, if given, answers without `ask` for AWAY_SECONDS.
        """
        now = self._clock.monotonic()
        known = self._known.get(question)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return Found(known[1])
        if instead is not None and now < self._away_until:
            return await instead() or Found()
        try:
            found = await ask()
        except AdapterError as error:
            log.info("crm.lookup_failed", code=error.code)
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            return Found() if instead is None else await instead() or Found()
        self._known[question] = (self._clock.monotonic(), found)
        self._known.move_to_end(question)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return Found(found)


class AccountLookup:
    """Account names. `find(beginning, seconds)` queries Salesforce, `instead(beginning)` its mirror."""

    def __init__(self, find: Find, clock: Clock, instead: Callable[[str], Awaitable[Found[str] | None]] | None = None) -> None:
        self._find = find
        self._instead = instead
        self._recent: _Recent[str] = _Recent(clock)

    async def __call__(self, typed: str) -> Found[str]:
        """Return at most 20 names that begin with `typed`; none if it is too short or no source answers in time."""
        beginning, instead = _typed(typed), self._instead
        if len(beginning) < CHARACTERS_MIN:
            return Found()
        return await self._recent.get(
            (beginning,),
            lambda: self._find(beginning, LOOKUP_SECONDS),
            None if instead is None else lambda: instead(beginning),
        )


class OpportunityLookup:
    """Open opportunities of one account. `find(account, typed, seconds)` queries Salesforce, `instead` its mirror."""

    def __init__(
        self,
        find: FindOpen,
        clock: Clock,
        instead: Callable[[str, str], Awaitable[Found[OpenOpportunity] | None]] | None = None,
    ) -> None:
        self._find = find
        self._instead = instead
        self._recent: _Recent[OpenOpportunity] = _Recent(clock)

    async def __call__(self, account: str, typed: str) -> Found[OpenOpportunity]:
        """Return at most 20 opportunities whose name contains `typed`; none if no source answers in time."""
        piece, instead = _typed(typed), self._instead
        if not 0 < len(account) <= ACCOUNT_LOOKUP_CHARACTERS_MAX:
            return Found()
        return await self._recent.get(
            (account, piece),
            lambda: self._find(account, piece, LOOKUP_SECONDS),
            None if instead is None else lambda: instead(account, piece),
        )


def _typed(typed: str) -> str:
    return " ".join(typed.split()).casefold()


@dataclass(frozen=True, slots=True)
class CrmMenus:
    """Bolt listeners for the menus. They record nothing."""

    surface: Surface

    async def on_accounts(self, ack: Any, body: Body, context: Any) -> None:
        """Acknowledge with the accounts whose names begin with the typed text; with none if no source answers in time."""
        lookup = self.surface.lookup if may_look_up(await viewer_of(context)) else None
        found = None if lookup is None else await lookup(_sought(body))
        options = [] if found is None else account_options(found.rows)
        await ack(**_answer(options, None if found is None else found.as_of))

    async def on_opportunities(self, ack: Any, body: Body, context: Any) -> None:
        """Acknowledge with the open opportunities of the chosen account; with none if no source answers in time."""
        lookup = self.surface.opportunities if may_look_up(await viewer_of(context)) else None
        account = account_of(body["view"])
        found = None if lookup is None or account is None else await lookup(account, _sought(body))
        options = [] if found is None else opportunity_options(found.rows)
        await ack(**_answer(options, None if found is None else found.as_of))

    async def on_contacts(self, ack: Any, body: Body, context: Any) -> None:
        """Acknowledge with the contacts of the quote's customer from the mirror; with none without a mirror or full sight."""
        value = parse_button_value(body["view"].get("private_metadata") or "")
        viewer = await viewer_of(context, None if value is None else value.quote_id)
        lookup = self.surface.contacts if may_look_up(viewer) else None
        quote = None if value is None else await self.surface.ledger.database.read(lambda tx: store.load(tx, value.quote_id))
        if lookup is None or quote is None or may_see(viewer, quote) is not Sight.FULL:
            await ack(options=[])
            return
        found = await lookup(quote.account, _sought(body))
        options = [option(clipped(each, OPTION_CHARACTERS_MAX), each) for each in found.rows if len(each) <= VALUE_CHARACTERS_MAX]
        await ack(**_answer(options, found.as_of, is_late=False))


def _sought(body: Body) -> str:
    """Return the text typed into a menu, cut to the longest name."""
    return str(body.get("value") or "")[:ACCOUNT_CHARACTERS_MAX]


def register_crm_menus(app: AsyncApp, surface: Surface) -> None:
    """Register the listeners of the menus; call it before the listener of all other buttons is registered."""
    menus = CrmMenus(surface)
    app.options(FOUND)(menus.on_accounts)
    app.options(OFFERED)(menus.on_opportunities)
    app.options(CONTACT)(menus.on_contacts)
    app.action(OFFERED)(_noted)


async def _noted(ack: Any) -> None:
    """Acknowledge the choice of an opportunity; it is read when the form is submitted."""
    await ack()


def _answer(options: list[Json], as_of: int | None, *, is_late: bool = True) -> Json:
    """Return the arguments of an acknowledgement; options from the mirror state its time in their heading.

    `is_late`: the mirror answers in place of Salesforce.
    """
    if as_of is None or not options:
        return {"options": options}
    at = utc_text(as_of)
    label = _("As of {time}; Salesforce does not answer", time=at) if is_late else _("As of {time}", time=at)
    return {"option_groups": [{"label": plain(clipped(label, OPTION_CHARACTERS_MAX)), "options": options}]}
