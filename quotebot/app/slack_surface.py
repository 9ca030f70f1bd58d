"""Composition of the Slack surface and its socket, for the process that holds the socket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from adapters.failures import AdapterError, Failure
from quotebot.dispatch.crm_mirror import MirrorLookup
from quotebot.dispatch.slack_card import QuoteCards
from quotebot.execution.membership import Directory, Visibility
from quotebot.settings import ConfigurationError, slack_tokens
from quotebot.slack.connections import Links
from quotebot.slack.crm_menus import AccountLookup, OpportunityLookup
from quotebot.slack.gate import AccessGate
from quotebot.slack.receiver import Ack, Envelopes, SocketReceiver, bolt_app, send_ack
from quotebot.slack.shared_links import hosts_of
from quotebot.slack.surface import Reserver, Surface
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.slack.api import Identity, SlackApi
    from ledger.clock import Clock
    from ledger.ledger import Ledger
    from quotebot.app.clients import Outside
    from quotebot.dispatch.services import EffectHandlers
    from quotebot.domain.rules import Rules
    from quotebot.settings import Settings
    from quotebot.worker_loop import AckPriority

IDENTIFY_PAUSE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class SurfaceObserver(Protocol):
    """Observer of acknowledgements, reservations and connections at the socket."""

    def observe_ack(self, envelope: str, seconds: float) -> None:
        """Record the duration of one acknowledgement."""

    def observe_reserve(self, seconds: float) -> None:
        """Record the duration of one reservation."""

    def count_connection(self) -> None:
        """Count an opened connection."""


@dataclass(frozen=True, slots=True)
class Front:
    """Dependencies of the surface, in the process that holds the socket."""

    ledger: Ledger
    outside: Outside
    rules: Rules
    handlers: EffectHandlers
    observer: SurfaceObserver
    ack_priority: AckPriority


def receiver_of(
    front: Front,
    settings: Settings,
    identity: Identity,
    *,
    clock: Clock,
    draw: Callable[[float, float], float],
    ack: Ack = send_ack,
) -> SocketReceiver:
    """Return the receiver, which maintains Slack's connections and acknowledges envelopes. `draw` is the injected jitter source."""
    client, arrivals = front.outside.client, dict[str, float]()
    _, app_token = slack_tokens(settings)
    surface = surface_of(front, settings, identity, arrivals)

    return SocketReceiver(
        Envelopes(bolt_app(client, identity, surface), ack),
        partial(
            Links,
            client,
            app_token,
            clock=clock,
            draw=draw,
            count=settings.socket_connections,
            opened=front.observer.count_connection,
            contended=lambda: front.ack_priority.busy,
        ),
        surface.desk.drop,
        clock=clock,
        ack_budget_seconds=settings.ack_budget_seconds,
        arrivals=arrivals,
        ack_priority=front.ack_priority,
        acked=front.observer.observe_ack,
    )


def surface_of(
    front: Front, settings: Settings, identity: Identity, arrivals: Mapping[str, float] = MappingProxyType({})
) -> Surface:
    """Return the Slack surface. `arrivals` are the arrival times of the envelopes in progress (SocketReceiver)."""
    slack, salesforce = front.outside.adapters.slack, front.outside.adapters.salesforce
    mirror, kept = MirrorLookup(front.ledger.database), set(settings.crm_mirror)
    accounts, opportunities = None, None
    if salesforce is not None and settings.crm_account_lookup:
        instead = mirror.accounts if "accounts" in kept else None
        accounts = AccountLookup(salesforce.find_accounts, front.ledger.clock, instead)
    if salesforce is not None and settings.crm_opportunity_lookup and salesforce.mapping.choice is not None:
        other = mirror.opportunities if {"accounts", "opportunities"} <= kept else None
        opportunities = OpportunityLookup(salesforce.opportunities.find_open, front.ledger.clock, other)
    directory = Directory(front.ledger, slack, identity=identity, enterprise_id=settings.enterprise_id)
    visibility = Visibility(front.ledger, front.handlers.services.channels, front.rules.role_holders)
    return Surface(
        gate=AccessGate(front.ledger, slack, directory, identity.team_id, settings.guest_reps, visibility),
        desk=Reserver(
            front.ledger,
            team_id=identity.team_id,
            ack_budget_seconds=settings.ack_budget_seconds,
            observe=front.observer.observe_reserve,
            arrivals=arrivals,
            commands_per_minute=settings.commands_per_minute,
            reserving=front.ack_priority.reserving,
        ),
        ledger=front.ledger,
        slack=slack,
        rules=front.rules,
        active=ActiveRuleset(front.rules.ruleset),
        status=QuoteCards(front.handlers.services).show,
        lookup=accounts,
        opportunities=opportunities,
        contacts=mirror.contacts if {"accounts", "contacts"} <= kept else None,
        record_hosts=hosts_of(settings.salesforce_instance_url),
    )


async def identify(slack: SlackApi) -> Identity:
    """Query the bot's own identity until Slack answers; the workers deliver effects meanwhile.

    Raises ConfigurationError for a refused token, which ends the process.
    """
    while True:
        try:
            return await slack.identify()
        except AdapterError as error:
            if error.failure is Failure.AUTH:
                raise ConfigurationError(
                    f"Slack refused the bot token ({error.code}). Nothing was sent. Check SLACK_BOT_TOKEN and its scopes."
                ) from error
            log.warning("slack.unreachable", code=error.code)
            await asyncio.sleep(error.retry_after_seconds or IDENTIFY_PAUSE_SECONDS)
