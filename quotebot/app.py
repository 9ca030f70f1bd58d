"""The composition root: the only module that chooses concrete adapters. Everything else is handed what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import structlog

from adapters.artefacts import Artefacts
from adapters.failures import AdapterError, Failure
from adapters.pdf import PdfRenderer
from ledger import recovery
from ledger.audit import Audit
from ledger.clock import Clock, SystemClock
from ledger.dead_letters import DeadLetters
from ledger.ledger import Ledger
from ledger.migrations import Migration
from ledger.sqlite import SqliteDatabase, hold_instance_lock
from ledger.statements import load_statements
from quotebot import __version__
from quotebot.dispatch import Dispatcher
from quotebot.documents import Seller
from quotebot.domain.catalogue import parse_catalogue
from quotebot.domain.policy import parse_policy
from quotebot.execution import Executor, burial_answer
from quotebot.handlers.quotes import DOMAIN_EVENTS, Rules
from quotebot.performer import Adapters, QuotePerformer, follow_ups
from quotebot.settings import ConfigurationError, Settings, slack_tokens
from quotebot.slack.desk import FrontDesk
from quotebot.slack.listeners import Surface, register
from quotebot.slack.socket import Ack, SocketReceiver, TokenRefusedError, send_ack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.salesforce import Salesforce
    from adapters.slack import Identity, SlackApi
    from ledger.database import Database
    from ledger.ledger import FollowUpDecision

IDENTIFY_PAUSE_SECONDS: Final = 1.0
ACK_DRAIN_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)


class LedgerInUseError(Exception):
    """Another bot holds this ledger's lock."""


def _as_is(database: Database) -> Database:
    return database


@dataclass(frozen=True, slots=True)
class Ports:
    """The choke points: everything that fault tests replace, and nothing else."""

    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[float, float], float] = field(default_factory=lambda: random.SystemRandom().uniform)
    ack: Ack = send_ack
    database: Callable[[Database], Database] = _as_is


def load_rules(settings: Settings) -> Rules:
    """Return the active catalogue and policy with the configured approvers."""
    data = files("quotebot").joinpath("data")
    return Rules(
        catalogue=parse_catalogue(data.joinpath("catalogue.toml").read_text("utf-8")),
        policy=parse_policy(data.joinpath("policy.toml").read_text("utf-8")),
        approvers=settings.approvers,
        valid_days=settings.quote_valid_days,
    )


@contextlib.asynccontextmanager
async def open_ledger(settings: Settings, ports: Ports, *, checkpoints: bool = False) -> AsyncIterator[Ledger]:
    """Open the ledger for reserving and reading; only the bot's own process may claim (see `Bot`)."""
    database = await open_database(settings.ledger_path, ports, checkpoints=checkpoints)
    try:
        yield Ledger(database, ports.clock, Audit(DOMAIN_EVENTS), lease_seconds=settings.lease_seconds)
    finally:
        await database.close()


async def open_database(path: Path, ports: Ports, *, checkpoints: bool) -> Database:
    """Open the ledger file with the ledger's and the domain's schema and statements."""
    database = await SqliteDatabase.open(
        path,
        statements=load_statements(
            files(package).joinpath("queries.sql").read_text("utf-8") for package in ("ledger", "quotebot.store")
        ),
        migrations=[*_migrations("ledger"), *_migrations("quotebot.store")],
        clock=ports.clock,
        checkpoints=checkpoints,
    )
    return ports.database(database)


def dead_letters(ledger: Ledger) -> DeadLetters:
    """Return the dead letters of an open ledger."""
    return DeadLetters(ledger, build=__version__)


@contextlib.asynccontextmanager
async def instance_lock(settings: Settings) -> AsyncIterator[None]:
    """Hold the lock of the one active bot. Raises LedgerInUseError."""
    lock = hold_instance_lock(settings.ledger_path)
    if lock is None:
        raise LedgerInUseError(
            f"Another bot is running on {settings.ledger_path}. This one did nothing. Stop the other or choose another data folder."
        )
    try:
        yield
    finally:
        import os  # noqa: PLC0415 -- the one use

        os.close(lock)


async def run_bot(settings: Settings, stop: asyncio.Event, ports: Ports | None = None) -> None:
    """Run until `stop` is set: recover, start the workers, open the socket last; drain in the opposite order.

    Raises ConfigurationError, LedgerInUseError or DatabaseError before anything was done.
    """
    ports = ports or Ports()
    bot_token, app_token = slack_tokens(settings)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(instance_lock(settings))
        database = await open_database(settings.ledger_path, ports, checkpoints=True)
        stack.push_async_callback(database.close)
        epoch = await recovery.begin_epoch(database, ports.clock.now_ms(), role="bot", build=__version__)
        ledger = Ledger(database, ports.clock, Audit(DOMAIN_EVENTS), epoch=epoch, lease_seconds=settings.lease_seconds)
        recovered = await recovery.take_back(ledger, answer=_poison_answer(ports.clock), follow=_follow(ports.clock))
        log.info("bot.recovered", operations=recovered.operations, effects=recovered.effects, poisoned=recovered.poisoned)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = _web_client(bot_token, settings, session)
        adapters = await _adapters(stack, client, session, settings)
        rules = load_rules(settings)
        performer = QuotePerformer(
            ledger,
            adapters,
            rules,
            Seller(settings.seller_name, settings.seller_lines),
            settle_delay_seconds=settings.settle_delay_seconds,
        )
        workers = _Workers(ledger, performer, rules, settings, ports)
        stack.push_async_callback(workers.stop)
        workers.start()
        identifying = asyncio.create_task(_identify(adapters.slack))
        stack.callback(identifying.cancel)
        await workers.until(stop, identifying)
        if not identifying.done():
            return
        identity = identifying.result()
        surface = Surface(
            desk=FrontDesk(ledger, ack_budget_seconds=settings.ack_budget_seconds),
            ledger=ledger,
            slack=adapters.slack,
            rules=rules,
            status=performer.status,
        )
        receiver = SocketReceiver(_bolt(client, bot_token, identity, surface), app_token, client, ports.ack)
        stack.push_async_callback(receiver.close, ACK_DRAIN_SECONDS)
        connecting = asyncio.create_task(receiver.connect())
        stack.callback(connecting.cancel)
        log.info("bot.started", team_id=identity.team_id, epoch=epoch)
        await workers.until(stop, connecting)
        if connecting.done():
            _connected(connecting)
            await workers.until(stop)
        log.info("bot.stopping")


class _Workers:
    """The executor and the dispatcher as tasks. If one dies the bot stops: half a bot is worse than none."""

    def __init__(self, ledger: Ledger, performer: QuotePerformer, rules: Rules, settings: Settings, ports: Ports) -> None:
        self._ledger = ledger
        self._executor = Executor(ledger, rules, ports.draw)
        self._dispatcher = Dispatcher(ledger, performer, ports.draw, settle_delay_seconds=settings.settle_delay_seconds)
        self._drain_seconds = settings.drain_seconds
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._executor.run(), name="executor"),
            asyncio.create_task(self._dispatcher.run(), name="dispatcher"),
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


def _web_client(bot_token: str, settings: Settings, session: aiohttp.ClientSession) -> AsyncWebClient:
    from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415 -- `quotebot dead list` needs no Slack

    return AsyncWebClient(
        token=bot_token,
        base_url=str(settings.slack_api_url),
        session=session,
        retry_handlers=[],  # the ledger is the only retrier: the SDK's own would post twice
    )


async def _adapters(
    stack: contextlib.AsyncExitStack, client: AsyncWebClient, session: aiohttp.ClientSession, settings: Settings
) -> Adapters:
    from adapters.slack import SlackApi  # noqa: PLC0415 -- as above

    slack = SlackApi(client, session, response_url_hosts=settings.response_url_hosts)
    pdf = PdfRenderer()
    stack.push_async_callback(pdf.close)
    artefacts = Artefacts(settings.data_dir / "artefacts")
    await asyncio.to_thread(artefacts.sweep)
    salesforce = _salesforce(settings)
    if salesforce is not None:
        stack.push_async_callback(salesforce.close)
    return Adapters(slack=slack, pdf=pdf, artefacts=artefacts, salesforce=salesforce)


def _salesforce(settings: Settings) -> Salesforce | None:
    url, client_id, secret = (
        settings.salesforce_instance_url,
        settings.salesforce_client_id,
        settings.salesforce_client_secret,
    )
    if url is None or client_id is None or secret is None:
        return None
    from adapters.salesforce import Salesforce  # noqa: PLC0415 -- as above

    return Salesforce(url, client_id, secret.get_secret_value(), ca_file=settings.salesforce_ca_file)


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


def _migrations(package: str) -> list[Migration]:
    folder = files(package).joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(package, name, folder.joinpath(name).read_text("utf-8")) for name in names]
