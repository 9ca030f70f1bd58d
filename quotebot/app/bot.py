"""Composition root of the running bot: the workers, then the surface on Slack's socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from quotebot.app.installation import instance_lock, socket_excess, storage_of
from quotebot.app.slack_surface import Front, identify, receiver_of
from quotebot.app.workers import Core, Ports, start_core
from quotebot.observability.health import Vitals, serve_health
from quotebot.observability.systemd import Supervisor
from quotebot.settings import ConfigurationError, Settings, slack_tokens
from quotebot.slack.connections import LinkDisabledError, TokenRefusedError
from quotebot.slack.receiver import Ack, send_ack

if TYPE_CHECKING:
    from quotebot.app.front import Ingress
    from quotebot.slack.receiver import SocketReceiver

__all__ = ["Ports", "front_of", "run_bot"]

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
    ingress: Ingress | None = None,
) -> None:
    """Run until `stop` is set: recover, start the workers, open the socket last; drain in reverse order.

    `standby`: while another bot is active, wait for its end. `ack` sends every acknowledgement. `supervisor` is notified that the
    bot is ready once the workers deliver, even if Slack cannot be reached. `ingress` is the process that holds the socket; without
    it this process does.
    Raises ConfigurationError, LedgerInUseError or DatabaseError before any change, IngressEndedError if `ingress` has ended.
    """
    ports = ports or Ports(clock=storage_of(settings).clock(bot=True))
    supervisor = supervisor or Supervisor()
    slack_tokens(settings)
    async with supervisor.notifying(stop), contextlib.AsyncExitStack() as stack:
        if standby:  # a waiting standby is ready for its service manager
            supervisor.tell(READY=1, STATUS="Waiting for the active bot to end")
        owner = await stack.enter_async_context(instance_lock(settings, stop if standby else None, bot=True))
        if owner is None:
            return
        await asyncio.to_thread(storage_of(settings).require_durability)
        excess = await asyncio.to_thread(socket_excess, settings)
        if excess is not None:
            raise ConfigurationError(f"{excess}. Nothing was started. Set socket_connections lower, or run fewer replicas.")
        core = await start_core(stack, settings, ports, stop, owner)
        supervisor.tell(READY=1, STATUS="Recovered and delivering")
        vitals = Vitals(core.ledger, core.metrics, core.workers.tasks, core.guard)
        if settings.health_port is not None:
            port = await serve_health(stack, settings.health_port, vitals)
            log.info("bot.health", port=port)
        identifying = asyncio.create_task(identify(core.outside.adapters.slack))
        stack.callback(identifying.cancel)
        await core.workers.until(stop, identifying)
        if not identifying.done():
            return
        identity = identifying.result()
        core.guard.compare(core.outside.adapters.slack.time_ms)
        receiver: SocketReceiver | Ingress
        if ingress is None:
            receiver = receiver_of(front_of(core), settings, identity, clock=ports.clock, draw=ports.draw, ack=ack)
        else:
            core.ack_priority.follow(ingress.board)
            await ingress.open(identity, reserved=core.ledger.operations_changed.set, observer=core.metrics)
            receiver = ingress
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


def front_of(core: Core) -> Front:
    """Return the dependencies of the surface, for the process of the workers."""
    return Front(core.ledger, core.outside, core.rules, core.handlers, core.metrics, core.ack_priority)


def _say_why(receiving: asyncio.Task[None]) -> None:
    """Raise the error that ended the connection for good, with a message for operators."""
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
