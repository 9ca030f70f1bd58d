"""The composition root of the running bot: the core, then the surface on Slack's socket."""

from __future__ import annotations

import asyncio
import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from adapters.failures import AdapterError, Failure
from quotebot.core import Core, Ports, start_core
from quotebot.crm_lookup import AccountLookup
from quotebot.health import Vitals, serve_health
from quotebot.opening import instance_lock
from quotebot.settings import ConfigurationError, Settings, slack_tokens
from quotebot.slack.desk import FrontDesk
from quotebot.slack.envelopes import Ack, Envelopes, bolt_app, send_ack
from quotebot.slack.links import LinkDisabledError, Links, TokenRefusedError
from quotebot.slack.listeners import Surface
from quotebot.slack.socket import SocketReceiver
from quotebot.store.rulesets import ActiveRuleset
from quotebot.supervision import Supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.slack import Identity, SlackApi
    from quotebot.slack.links import Inbox

__all__ = ["Ports", "run_bot"]

IDENTIFY_PAUSE_SECONDS: Final = 1.0
ACK_DRAIN_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)


async def run_bot(
    settings: Settings,
    stop: asyncio.Event,
    ports: Ports | None = None,
    *,
    standby: bool = False,
    ack: Ack = send_ack,
    supervisor: Supervisor | None = None,
) -> None:
    """Run until `stop` is set: recover, start the workers, open the socket last; drain in the opposite order.

    `standby`: while another bot is active, wait for its end. `ack` is the door every acknowledgement leaves by. `supervisor` is
    told when the bot works: once it delivers, whether or not Slack can be reached.
    Raises ConfigurationError, LedgerInUseError or DatabaseError before anything was done.
    """
    ports = ports or Ports()
    supervisor = supervisor or Supervisor()
    _, app_token = slack_tokens(settings)
    async with supervisor.told_of(stop), contextlib.AsyncExitStack() as stack:
        if standby:  # to wait is what was asked for
            supervisor.tell(READY=1, STATUS="Waiting for the active bot to end")
        if not await stack.enter_async_context(instance_lock(settings, stop if standby else None)):
            return
        core = await start_core(stack, settings, ports, stop)
        supervisor.tell(READY=1, STATUS="Recovered and delivering")
        vitals = Vitals(core.ledger, core.metrics, core.workers.tasks)
        if settings.health_port is not None:
            port = await serve_health(stack, settings.health_port, vitals)
            log.info("bot.health", port=port)
        identifying = asyncio.create_task(identify(core.outside.adapters.slack))
        stack.callback(identifying.cancel)
        await core.workers.until(stop, identifying)
        if not identifying.done():
            return
        identity = identifying.result()
        receiver = _receiver(core, settings, ports, identity, app_token, ack)
        stack.push_async_callback(receiver.close, min(ACK_DRAIN_SECONDS, settings.drain_seconds))
        vitals.socket = receiver.is_alive
        receiving = asyncio.create_task(receiver.run())
        stack.callback(receiving.cancel)
        log.info("bot.started", team_id=identity.team_id, epoch=core.ledger.epoch)
        await core.workers.until(stop, receiving)
        if receiving.done():
            _say_why(receiving)
        log.info("bot.stopping")
        core.workers.stopping()


def _receiver(core: Core, settings: Settings, ports: Ports, identity: Identity, app_token: str, ack: Ack) -> SocketReceiver:
    client, arrivals = core.outside.client, dict[str, float]()
    surface = surface_of(core, settings, arrivals)

    def links(inbox: Inbox) -> Links:
        return Links(
            client,
            app_token,
            inbox,
            clock=ports.clock,
            draw=ports.draw,
            count=settings.socket_connections,
            opened=core.metrics.count_connection,
        )

    return SocketReceiver(
        Envelopes(bolt_app(client, identity, surface), ack),
        links,
        surface.desk.drop,
        clock=ports.clock,
        ack_budget_seconds=settings.ack_budget_seconds,
        arrivals=arrivals,
        precedence=core.precedence,
        acked=core.metrics.observe_ack,
    )


def surface_of(core: Core, settings: Settings, arrivals: Mapping[str, float] = MappingProxyType({})) -> Surface:
    """Return what people meet in Slack, on a started core. `arrivals`: when the envelopes at work arrived (SocketReceiver)."""
    return Surface(
        desk=FrontDesk(
            core.ledger,
            ack_budget_seconds=settings.ack_budget_seconds,
            observe=core.metrics.observe_reserve,
            arrivals=arrivals,
        ),
        ledger=core.ledger,
        slack=core.outside.adapters.slack,
        rules=core.rules,
        active=ActiveRuleset(core.rules.ruleset),
        status=core.performer.status,
        lookup=account_lookup(core, settings),
    )


def account_lookup(core: Core, settings: Settings) -> AccountLookup | None:
    """Return what looks accounts up for forms, where that is wanted and there is a Salesforce."""
    salesforce = core.outside.adapters.salesforce
    if salesforce is None or not settings.crm_account_lookup:
        return None
    return AccountLookup(salesforce.find_accounts, core.ledger.clock)


async def identify(slack: SlackApi) -> Identity:
    """Ask Slack who we are, until it answers. Effects are delivered meanwhile; a refused token ends the process."""
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


def _say_why(receiving: asyncio.Task[None]) -> None:
    """Raise, in words for people, what ended the connection for good."""
    try:
        receiving.result()
    except TokenRefusedError as error:
        raise ConfigurationError(
            f"Slack refused the app-level token ({error}). Nothing was received. Check SLACK_APP_TOKEN: it needs connections:write."
        ) from error
    except LinkDisabledError as error:
        raise ConfigurationError(
            "Slack has switched Socket Mode off for this app (link_disabled): no more commands arrive. What was acknowledged is "
            "recorded and goes on at the next start. Switch it on: api.slack.com/apps, your app, Socket Mode. Then start the bot."
        ) from error
