"""Health and metrics of a running bot, over HTTP on this machine only: /healthz, /readyz, /metrics.

Off unless QUOTEBOT_HEALTH_PORT names a port. The answers contain our own names and numbers, never customer data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ledger.measures import measure
from quotebot.observability.loopback import only_local
from quotebot.observability.metrics import Metrics, exposition, families, of_database
from quotebot.settings import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    import contextlib
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.database import Health
    from ledger.gates import Gate
    from ledger.ledger import Ledger
    from quotebot.observability.clock_guard import ClockGuard, Suspension

HOST: Final = "127.0.0.1"
METRICS_TYPE: Final = "text/plain; version=0.0.4"
AUTH: Final = "auth"  # gate cause after a refused login
STOP_SECONDS: Final = 1.0


@dataclass(slots=True)
class Vitals:
    """Sources of the readiness check. `socket` returns whether the connection to Slack is alive; None before there is one."""

    ledger: Ledger
    metrics: Metrics
    workers: Sequence[asyncio.Task[None]]
    clock: ClockGuard | None = None
    socket: Callable[[], Awaitable[bool]] | None = None

    async def reasons(self) -> list[str]:
        """Return the reasons why the bot is not ready; empty if it is ready."""
        try:
            gates = (await measure(self.ledger)).gates
        except Exception as error:  # noqa: BLE001 -- whatever prevents a read is the reason
            return [f"the ledger cannot be read: {error}"]
        return reasons(
            self.ledger.database.health,
            gates,
            ended=[task.get_name() for task in self.workers if task.done()],
            connected=self.socket is not None and await self.socket(),
            clock=None if self.clock is None else self.clock.suspension,
            held=self.ledger.ownership.is_held(),
        )

    async def numbers(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        of_ledger = families(await measure(self.ledger))
        return exposition([*of_ledger, *self.metrics.collect(*of_database(self.ledger.database.health))])


def reasons(
    health: Health,
    gates: Sequence[Gate],
    *,
    ended: Sequence[str],
    connected: bool,
    clock: Suspension | None = None,
    held: bool = True,
) -> list[str]:
    """Return the reasons why a bot is not ready. Pure. A class paused by hand or by its breaker does not count: the rest works."""
    found = [f"the {name} has ended" for name in ended]
    if health.broken is not None:
        found.append(f"the ledger takes no writes until a restart: {health.broken}")
    if health.full_since is not None:
        found.append("the ledger's disk is full")
    if not connected:
        found.append("there is no living connection to Slack")
    if not held:
        found.append("it does not hold its lock in the database, and begins no work")
    if clock is not None:
        found.append(f"the clock is not trusted ({clock.cause}): nothing expires and nothing is purged")
    found += [f"the login of {gate.name} is refused" for gate in gates if gate.state == "held" and gate.cause == AUTH]
    return found


async def serve_health(stack: contextlib.AsyncExitStack, port: int, vitals: Vitals) -> int:
    """Serve on 127.0.0.1 until `stack` closes; return the port (0 takes a free one).

    Raises ConfigurationError for a port in use.
    """
    runner = web.AppRunner(health_app(vitals), access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        raise ConfigurationError(
            f"Port {port} of this machine cannot be opened for health and metrics ({error.strerror}). Nothing was received from "
            "Slack. Set QUOTEBOT_HEALTH_PORT to a free port, or leave it out."
        ) from error
    return int(runner.addresses[0][1])


def health_app(vitals: Vitals) -> web.Application:
    """Return the application with the health, readiness and metrics pages."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def readyz(_: web.Request) -> web.Response:
        found = await vitals.reasons()
        return web.json_response({"ready": not found, "reasons": found}, status=503 if found else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await vitals.numbers(), headers={"Content-Type": METRICS_TYPE})

    app = web.Application(middlewares=[only_local])
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/livez", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return app
