"""The composition root of the running bot: everything else is handed what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import structlog

from adapters.failures import AdapterError, Failure
from ledger import recovery
from ledger.anchors import keep_anchors
from ledger.clock import Clock, SystemClock
from ledger.ledger import Ledger
from ledger.measures import fold
from ledger.retention import purge
from quotebot import __version__
from quotebot.alerts import log_dead_letter
from quotebot.dispatch import Dispatcher
from quotebot.execution import Executor, burial_answer
from quotebot.housekeeping import LEASES_PER_LIFE, Housekeeper, Job
from quotebot.metrics import PAGE_SECONDS, Metrics, page_path, write_page
from quotebot.opening import instance_lock, load_rules, matrix, open_audit, open_database
from quotebot.outside import build_adapters, build_performer, web_client
from quotebot.performer import QuotePerformer, follow_ups
from quotebot.settings import ConfigurationError, Settings, slack_tokens
from quotebot.slack.desk import FrontDesk
from quotebot.slack.listeners import Surface, register
from quotebot.slack.socket import Ack, SocketReceiver, TokenRefusedError, send_ack
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Callable

    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.slack import Identity, SlackApi
    from ledger.database import Database
    from ledger.ledger import FollowUpDecision
    from quotebot.handlers.quotes import Rules

IDENTIFY_PAUSE_SECONDS: Final = 1.0
TEND_SECONDS: Final = 60.0
MEASURES_SECONDS: Final = 60.0
RETENTION_SECONDS: Final = 3600.0
YOUNG_SECONDS: Final = 10  # a process that dies before this age, again and again, is in a boot loop
DEATHS_TO_REST: Final = 8
REST_SECONDS_MAX: Final = 60.0
ACK_DRAIN_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)


def _as_is(database: Database) -> Database:
    return database


@dataclass(frozen=True, slots=True)
class Ports:
    """The choke points: everything that fault tests replace, and nothing else."""

    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[float, float], float] = field(default_factory=lambda: random.SystemRandom().uniform)
    ack: Ack = send_ack
    database: Callable[[Database], Database] = _as_is


async def run_bot(settings: Settings, stop: asyncio.Event, ports: Ports | None = None, *, standby: bool = False) -> None:
    """Run until `stop` is set: recover, start the workers, open the socket last; drain in the opposite order.

    `standby`: while another bot is active, wait for its end.
    Raises ConfigurationError, LedgerInUseError or DatabaseError before anything was done.
    """
    ports = ports or Ports()
    bot_token, app_token = slack_tokens(settings)
    async with contextlib.AsyncExitStack() as stack:
        if not await stack.enter_async_context(instance_lock(settings, stop if standby else None)):
            return
        audit = open_audit(settings)
        database = ports.database(await open_database(settings.ledger_path, audit, ports.clock, bot=True))
        stack.push_async_callback(database.close)
        epoch = await recovery.begin_epoch(database, ports.clock.now_ms(), role="bot", build=__version__)
        ledger = Ledger(
            database,
            ports.clock,
            audit,
            epoch=epoch,
            lease_seconds=settings.lease_seconds,
            pin=store.head_version,
            on_dead=log_dead_letter,
        )
        await _rest_after_deaths(database, ports.clock, stop)
        recovered = await recovery.take_back(ledger, answer=_poison_answer(ports.clock), follow=_follow(ports.clock))
        log.info("bot.recovered", operations=recovered.operations, effects=recovered.effects, poisoned=recovered.poisoned)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = web_client(bot_token, settings, session)
        adapters = build_adapters(stack, client, session, settings)
        await asyncio.to_thread(adapters.artefacts.sweep)
        rules = load_rules(settings)
        performer = build_performer(settings, ledger, adapters)
        metrics = Metrics()
        stack.callback(page_path(settings.data_dir).unlink, missing_ok=True)  # of a bot that is gone
        workers = _Workers(ledger, performer, rules, settings, ports, metrics)
        stack.push_async_callback(ledger.noted)
        stack.push_async_callback(workers.stop)
        workers.start()
        identifying = asyncio.create_task(_identify(adapters.slack))
        stack.callback(identifying.cancel)
        await workers.until(stop, identifying)
        if not identifying.done():
            return
        identity = identifying.result()
        surface = Surface(
            desk=FrontDesk(ledger, ack_budget_seconds=settings.ack_budget_seconds, observe=metrics.observe_reserve),
            ledger=ledger,
            slack=adapters.slack,
            rules=rules,
            status=performer.status,
        )
        receiver = SocketReceiver(
            _bolt(client, bot_token, identity, surface),
            app_token,
            client,
            ports.ack,
            surface.desk.drop,
            clock=ports.clock,
            acked=metrics.observe_ack,
        )
        stack.push_async_callback(receiver.close, ACK_DRAIN_SECONDS)
        connecting = asyncio.create_task(receiver.connect())
        stack.callback(connecting.cancel)
        log.info("bot.started", team_id=identity.team_id, epoch=epoch)
        await workers.until(stop, connecting)
        if connecting.done():
            _connected(connecting)
            await workers.until(stop)
        log.info("bot.stopping")


async def _rest_after_deaths(database: Database, clock: Clock, stop: asyncio.Event) -> None:
    """Slow a boot loop down: what kills this process again and again must not also hammer the outside again and again."""
    deaths = await recovery.deaths_in_a_row(database, clock.now_ms(), within_ms=YOUNG_SECONDS * 1000)
    if deaths < DEATHS_TO_REST:
        return
    seconds = min(REST_SECONDS_MAX, 2.0 ** (deaths - DEATHS_TO_REST))
    log.error("bot.boot_loop", deaths=deaths, rest_seconds=seconds, do="read the log above: each start died within seconds")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


class _Workers:
    """The executor, the dispatcher and the housekeeper as tasks. If one dies the bot stops: half a bot is worse than none."""

    def __init__(
        self, ledger: Ledger, performer: QuotePerformer, rules: Rules, settings: Settings, ports: Ports, metrics: Metrics
    ) -> None:
        self._ledger = ledger
        lines = matrix(settings)
        self._executor = Executor(ledger, rules, ports.draw, lines)
        self._dispatcher = Dispatcher(ledger, performer, ports.draw, lines, settle_delay_seconds=settings.settle_delay_seconds)
        jobs = (_jobs(ledger, settings, ports, metrics), _long_jobs(ledger, ports.clock))
        self._housekeepers = [Housekeeper(some, ports.clock) for some in jobs]
        self._drain_seconds = settings.drain_seconds
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._executor.run(), name="executor"),
            asyncio.create_task(self._dispatcher.run(), name="dispatcher"),
            *(asyncio.create_task(keeper.run(), name="housekeeper") for keeper in self._housekeepers),
        ]

    async def until(self, stop: asyncio.Event, other: asyncio.Task[Any] | None = None) -> None:
        """Return when asked to stop, or when `other` is done; raise what killed a worker."""
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *self._tasks, *([other] if other else [])], return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
        finally:
            stopping.cancel()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dispatcher.drain(self._drain_seconds)
        await recovery.give_back(self._ledger)


def _long_jobs(ledger: Ledger, clock: Clock) -> list[Job]:
    """Return what may take minutes; it runs beside the short jobs, which it must not hold up."""
    return [
        Job("measures", MEASURES_SECONDS, lambda: fold(ledger)),
        Job("retention", RETENTION_SECONDS, lambda: purge(ledger, clock.now_ms(), dry_run=False), at_once=False),
    ]


def _jobs(ledger: Ledger, settings: Settings, ports: Ports, metrics: Metrics) -> list[Job]:
    """Return what the housekeeper does, and how often."""
    renewal_seconds = settings.lease_seconds / LEASES_PER_LIFE
    answer, follow = _poison_answer(ports.clock), _follow(ports.clock)
    return [
        Job("tend", TEND_SECONDS, ledger.database.tend),
        Job("metrics", PAGE_SECONDS, lambda: asyncio.to_thread(write_page, metrics, settings.data_dir)),
        Job("anchors", TEND_SECONDS, lambda: keep_anchors(ledger, settings.data_dir)),
        Job("renew_leases", renewal_seconds, lambda: recovery.renew_leases(ledger)),
        Job("take_back_lapsed", renewal_seconds, lambda: recovery.take_back_lapsed(ledger, answer=answer, follow=follow)),
    ]


async def _identify(slack: SlackApi) -> Identity:
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


def _connected(connecting: asyncio.Task[None]) -> None:
    try:
        connecting.result()
    except TokenRefusedError as error:
        raise ConfigurationError(
            f"Slack refused the app-level token ({error}). Nothing was received. Check SLACK_APP_TOKEN: it needs connections:write."
        ) from error


def _poison_answer(clock: Clock) -> recovery.AnswerDecision:
    return lambda tx, operation: burial_answer(tx, operation, "the bot stopped while working on it, several times", clock.now_ms())


def _follow(clock: Clock) -> FollowUpDecision:
    return lambda tx, effect: follow_ups(tx, effect, clock.now_ms())


def _bolt(client: AsyncWebClient, bot_token: str, identity: Identity, surface: Surface) -> Any:
    from slack_bolt.async_app import AsyncApp  # noqa: PLC0415 -- as above
    from slack_bolt.authorization import AuthorizeResult  # noqa: PLC0415 -- as above

    async def authorize(**_: Any) -> AuthorizeResult:
        """Answer from what Slack said at start: no network call on the way to an acknowledgement."""
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team_id,
            bot_token=bot_token,
            bot_id=identity.bot_id,
            bot_user_id=identity.bot_user_id,
        )

    bolt_log = logging.getLogger("slack_bolt")  # its children take this one's level only when it is handed over
    app = AsyncApp(client=client, authorize=authorize, process_before_response=True, logger=bolt_log)
    register(app, surface)
    return app
