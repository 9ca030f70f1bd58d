"""The bot's workers, without Slack's socket: recovery, then executor, dispatcher, housekeeping and scheduler.

All external dependencies come from `Ports`, so that fault tests run the same composition with their own clock, disk and network.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger import recovery
from ledger.audit.anchors import follow_ledger, keep_anchors
from ledger.audit.verification import require_tail
from ledger.clock import Clock, SystemClock
from ledger.leases import Leases
from ledger.ledger import Ledger
from ledger.measures import fold
from ledger.ownership import SoleOwner
from quotebot import __version__
from quotebot.app.backups import keep_backups
from quotebot.app.clients import Outside, build_handlers, connect_outside
from quotebot.app.document_folder import with_documents
from quotebot.app.installation import claim_settings, load_rules, matrix, open_audit, open_database, speak, storage_of
from quotebot.commands.registry import readable
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.documents import Documents
from quotebot.dispatch.registry import follow_ups
from quotebot.execution.executor import Executor, failure_answer
from quotebot.execution.membership import Directory, Visibility
from quotebot.jobs.announcements import announce
from quotebot.jobs.approver_messages import follow_role_changes
from quotebot.jobs.maintenance import (
    LEASES_PER_LIFE,
    ArtefactSweep,
    Housekeeper,
    Job,
    RetentionPeriods,
    check_holders,
    forget,
    let_go,
    name_unread_commands,
    show_pending_commands,
)
from quotebot.jobs.rulesets import RulesetChanges
from quotebot.jobs.scheduler import Scheduler
from quotebot.jobs.scheduler import jobs as scheduled_jobs
from quotebot.observability.alerts import log_dead_letter, log_pause
from quotebot.observability.clock_guard import CLOCK_CHECK_SECONDS, ClockGuard
from quotebot.observability.metrics import PAGE_SECONDS, Metrics, page_path, write_page
from quotebot.store import quotes as store
from quotebot.worker_loop import POLL_SECONDS, AckPriority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Database
    from ledger.ledger import FollowUpDecision
    from ledger.ownership import Ownership
    from quotebot.dispatch.services import EffectHandlers
    from quotebot.domain.rules import Rules
    from quotebot.settings import Settings

TEND_SECONDS: Final = 60.0
LETTERS_SECONDS: Final = 2.0
PENDING_SECONDS: Final = 1.0
UNREAD_SECONDS: Final = 30.0
MEASURES_SECONDS: Final = 60.0
RETENTION_SECONDS: Final = 3600.0
RETENTION_FIRST_SECONDS: Final = 60.0  # after the backlog of a start
RENEWAL_SECONDS_MAX: Final = 10.0  # of several replicas: one that was taken for dead learns it soon
REAP_SECONDS: Final = 1.0
LAPSED_SECONDS: Final = 2.0
APPROVERS_SECONDS: Final = 600.0
APPROVERS_FIRST_SECONDS: Final = 2.0  # after what was due at a start, such as reminders
ARTEFACTS_SECONDS: Final = 3600.0
BACKUP_SECONDS: Final = 600.0  # interval of the check whether one is due
INTEGRITY_SECONDS: Final = 86_400.0
INTEGRITY_FIRST_SECONDS: Final = 30.0  # delayed: the check reads the whole file, which would slow the start
HOLDERS_SECONDS: Final = 3600.0
HOLDERS_FIRST_SECONDS: Final = 300.0
YOUNG_SECONDS: Final = 10  # a process that repeatedly crashes before this age is in a boot loop
DEATHS_TO_REST: Final = 8
REST_SECONDS_MAX: Final = 60.0
CLOSING_SECONDS: Final = 0.5  # part of the drain for releasing claims and the last checkpoint

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """External dependencies of the bot: exactly those that fault tests replace."""

    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[float, float], float] = field(default_factory=lambda: random.SystemRandom().uniform)
    database: Callable[..., Awaitable[Database]] = open_database
    outside: Callable[[contextlib.AsyncExitStack, Settings], Awaitable[Outside]] = connect_outside
    poll_seconds: float = POLL_SECONDS


@dataclass(frozen=True, slots=True)
class Core:
    """Started workers and the objects that the listeners of a surface use."""

    ledger: Ledger
    outside: Outside
    rules: Rules
    handlers: EffectHandlers
    metrics: Metrics
    workers: Workers
    ack_priority: AckPriority
    guard: ClockGuard


async def start_core(
    stack: contextlib.AsyncExitStack, settings: Settings, ports: Ports, stop: asyncio.Event, owner: Ownership | None = None
) -> Core:
    """Recover the claims of a crashed process, then start the workers; `stack` stops and closes everything in reverse order.

    The caller holds the lock of `owner`; without one, the instance lock. Raises DatabaseError before any change, also if the newest
    part of the audit is not sound.
    """
    speak(settings.language)
    audit = open_audit(settings)
    database = await ports.database(settings, audit, ports.clock, bot=True)
    stack.push_async_callback(database.close)
    await require_tail(database, audit.keyring)
    await follow_ledger(database, settings.data_dir)
    owner = owner or SoleOwner()
    begin = partial(recovery.begin_epoch, database, role="bot", build=__version__, alone=owner.alone, replica=owner.name)
    begin_epoch = partial(begin, host=socket.gethostname())
    ledger = Ledger(
        database,
        ports.clock,
        audit,
        epoch=await begin_epoch(ports.clock.now_ms()),
        ownership=owner,
        pin=store.head_version,
        on_dead=log_dead_letter,
        on_paused=log_pause,
        **claim_settings(settings),
    )
    await _tell_of_a_restore(database)
    await _rest_after_deaths(database, ports.clock, stop, owner.name)
    answer, follow = _poison_answer(ports.clock), _follow(ports.clock)
    recovered = await recovery.take_back(ledger, answer=answer, follow=follow)
    log.info("bot.recovered", operations=recovered.operations, effects=recovered.effects, poisoned=recovered.poisoned)
    outside = await ports.outside(stack, settings)
    await asyncio.to_thread(outside.adapters.artefacts.sweep)
    rules = with_documents(load_rules(settings), settings)
    await RulesetChanges(ledger).begin(rules.ruleset)
    metrics = Metrics(None if settings.ledger_url is None else owner.name)
    handlers = build_handlers(settings, ledger, outside.adapters, metrics.observe_pdf)
    salesforce = outside.adapters.salesforce
    if salesforce is not None:
        metrics.watch_crm(lambda: salesforce.usage)
    stack.callback(page_path(settings.data_dir).unlink, missing_ok=True)  # a stopped bot leaves no outdated page
    directory = handlers.services.directory
    sweep = ArtefactSweep(database, outside.adapters.artefacts, Documents(handlers.services).restore)
    guard = ClockGuard(ledger, outside.adapters.slack.ask_time)
    await guard.begin()
    metrics.watch_clock(lambda: guard.suspension is not None)
    leases = Leases(ledger, lambda: begin_epoch(ports.clock.now_ms()), answer=answer, follow=follow)
    ack_priority = AckPriority(ports.clock)
    workers = Workers(ledger, handlers, directory, rules, settings, ports, metrics, ack_priority, sweep, guard, leases)
    if settings.ledger_url is not None:
        metrics.watch_replicas(lambda: workers.replicas, owner.is_held)
    stack.push_async_callback(ledger.noted)
    stack.push_async_callback(workers.stop)
    workers.start()
    return Core(ledger, outside, rules, handlers, metrics, workers, ack_priority, guard)


async def _tell_of_a_restore(database: Database) -> None:
    """Log an alert at the first start of a new generation, for operators who did not perform the restore."""
    generation, epochs = await database.read(lambda tx: (tx.one("last_generation"), tx.all("last_epochs", limit=2)))
    if generation is None or any(row["role"] == "bot" and row["started_at"] >= generation["started_at"] for row in epochs[1:]):
        return
    log.error(
        "ledger.restored",
        generation=generation["generation"],
        backup_made_at=generation["backup_made_at"],
        restored_at=generation["started_at"],
        by=generation["started_by"],
        do="what was recorded in between is lost here; what was owed is looked for before it is done again: docs/backup.md",
    )


async def _rest_after_deaths(database: Database, clock: Clock, stop: asyncio.Event, replica: str) -> None:
    """Pause in a boot loop: repeated crashes must not also flood the external services with repeated calls."""
    deaths = await recovery.deaths_in_a_row(database, clock.now_ms(), within_ms=YOUNG_SECONDS * 1000, replica=replica)
    if deaths < DEATHS_TO_REST:
        return
    seconds = min(REST_SECONDS_MAX, 2.0 ** (deaths - DEATHS_TO_REST))
    log.error("bot.boot_loop", deaths=deaths, rest_seconds=seconds, do="read the log above: each start died within seconds")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


class Workers:
    """Tasks of the executor, dispatcher, housekeepers and scheduler. If one fails, the bot stops: it never runs incompletely."""

    def __init__(
        self,
        ledger: Ledger,
        handlers: EffectHandlers,
        directory: Directory,
        rules: Rules,
        settings: Settings,
        ports: Ports,
        metrics: Metrics,
        ack_priority: AckPriority,
        sweep: ArtefactSweep,
        guard: ClockGuard,
        leases: Leases,
    ) -> None:
        self._ledger = ledger
        lines = matrix(settings)
        # Where several bots share the ledger, one of a newer build may read what this one cannot.
        known = None if ledger.ownership.alone else readable()
        self._executor = Executor(
            ledger,
            rules,
            ports.draw,
            lines,
            refresh_actor=directory.refresh_actor,
            circle_of=Visibility(ledger, handlers.services.channels, rules.role_holders).of_actor,
            poll_seconds=ports.poll_seconds,
            follow=_follow(ports.clock),
            ack_priority=ack_priority,
            judged_at=guard.judged_at,
            only=known,
        )
        self._dispatcher = Dispatcher(
            ledger,
            handlers,
            ports.draw,
            lines,
            settle_delay_seconds=settings.settle_delay_seconds,
            poll_seconds=ports.poll_seconds,
            ack_priority=ack_priority,
            trusted=guard.trusted,
        )
        shared = not ledger.ownership.alone
        claims = claim_jobs(leases, settings.lease_seconds, alone=ledger.ownership.alone)
        jobs = [
            [
                Job("clock", CLOCK_CHECK_SECONDS, guard.look),
                *([Job("share_limits", CLOCK_CHECK_SECONDS, self._dispatcher.share_limits)] if shared else []),
                Job(
                    "approvers", APPROVERS_SECONDS, lambda: follow_role_changes(ledger, rules), APPROVERS_FIRST_SECONDS, leader=True
                ),
                *_jobs(ledger, settings, metrics, lambda: directory.home),
                *(
                    []
                    if known is None
                    else [Job("unread", UNREAD_SECONDS, partial(name_unread_commands, ledger, known), leader=True)]
                ),
            ],
            [Job("holders", HOLDERS_SECONDS, lambda: check_holders(ledger, directory, rules), HOLDERS_FIRST_SECONDS, leader=True)],
            _long_jobs(ledger, settings, ports.clock, sweep, guard),
        ]
        if shared:
            jobs.append(claims)  # they wait for no other job
        else:
            jobs[0] += claims
        leads = ledger.ownership.leads if shared else None
        self._housekeepers = [Housekeeper(some, ports.clock, leads=leads, poll_seconds=ports.poll_seconds) for some in jobs]
        self._scheduler = Scheduler(
            ledger, scheduled_jobs(settings, rules), poll_seconds=ports.poll_seconds, trusted=guard.trusted, leads=leads
        )
        self._clock = ports.clock
        self._drain_seconds = settings.drain_seconds
        self._asked_to_stop_at: float | None = None
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def replicas(self) -> int:
        """The number of replicas alive, with this one, of a moment ago."""
        return self._dispatcher.replicas

    def start(self) -> None:
        """Start the tasks."""
        self.tasks = [
            asyncio.create_task(self._executor.run(), name="executor"),
            asyncio.create_task(self._dispatcher.run(), name="dispatcher"),
            *(asyncio.create_task(keeper.run(), name="housekeeper") for keeper in self._housekeepers),
            asyncio.create_task(self._scheduler.run(), name="scheduler"),  # last, so that the others run when it reserves
        ]

    async def until(self, stop: asyncio.Event, other: asyncio.Task[Any] | None = None) -> None:
        """Return when `stop` is set or `other` is done; raise the error of a failed worker."""
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *self.tasks, *([other] if other else [])], return_when=asyncio.FIRST_COMPLETED)
            for task in self.tasks:
                if task.done():
                    task.result()
        finally:
            stopping.cancel()

    def stopping(self) -> None:
        """Start the drain time: the last acknowledgements count towards it."""
        self._asked_to_stop_at = self._clock.monotonic()

    async def stop(self) -> None:
        """Cancel the tasks, wait for running attempts, and release the remaining claims."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        spent = 0.0 if self._asked_to_stop_at is None else self._clock.monotonic() - self._asked_to_stop_at + CLOSING_SECONDS
        await self._dispatcher.drain(max(0.0, self._drain_seconds - spent))
        await recovery.give_back(self._ledger)


def _long_jobs(ledger: Ledger, settings: Settings, clock: Clock, sweep: ArtefactSweep, guard: ClockGuard) -> list[Job]:
    """Return the jobs that may take minutes; they run beside the short ones. Jobs that delete by age need a trusted clock."""
    keeping = RetentionPeriods.of(settings)

    def needs_clock(name: str, every_seconds: float, do: Callable[[], Awaitable[object]], first_seconds: float) -> Job:
        async def do_if_trusted() -> object:
            return await do() if guard.trusted() else None

        return Job(name, every_seconds, do_if_trusted, first_seconds, leader=True)

    def purge_rows() -> Awaitable[object]:
        return forget(ledger, clock.now_ms(), keep=keeping.ledger, dry_run=False)

    return [
        Job("measures", MEASURES_SECONDS, lambda: fold(ledger), leader=True),
        needs_clock("retention", RETENTION_SECONDS, purge_rows, RETENTION_FIRST_SECONDS),
        needs_clock("keeping", RETENTION_SECONDS, lambda: let_go(ledger, keeping), RETENTION_FIRST_SECONDS),
        Job("artefacts", ARTEFACTS_SECONDS, sweep.sweep, ARTEFACTS_SECONDS, leader=True),
        Job("integrity", INTEGRITY_SECONDS, storage_of(settings).check_integrity, INTEGRITY_FIRST_SECONDS),
        needs_clock("backup", BACKUP_SECONDS, lambda: keep_backups(settings, clock), INTEGRITY_FIRST_SECONDS),
    ]


def _jobs(ledger: Ledger, settings: Settings, metrics: Metrics, home: Callable[[], str | None]) -> list[Job]:
    """Return the short housekeeping jobs with their intervals."""
    holders = {user for users in settings.approvers.values() for user in users}
    ops_channel = settings.ops_channel
    letters = (
        []
        if ops_channel is None
        else [Job("letters", LETTERS_SECONDS, lambda: announce(ledger, ops_channel, holders, home()), leader=True)]
    )
    return [
        *letters,
        Job("pending", PENDING_SECONDS, lambda: show_pending_commands(ledger), leader=True),
        Job("tend", TEND_SECONDS, ledger.database.tend),
        Job("metrics", PAGE_SECONDS, lambda: asyncio.to_thread(write_page, metrics, settings.data_dir)),
        Job("anchors", TEND_SECONDS, lambda: keep_anchors(ledger, settings.data_dir)),
    ]


def claim_jobs(leases: Leases, lease_seconds: float, *, alone: bool) -> list[Job]:
    """Return the upkeep of claims."""
    renewal_seconds = lease_seconds / LEASES_PER_LIFE
    if alone:
        return [Job("renew_leases", renewal_seconds, leases.renew), Job("take_back_lapsed", renewal_seconds, leases.take_lapsed)]
    return [
        Job("renew_leases", min(renewal_seconds, RENEWAL_SECONDS_MAX), leases.renew),
        Job("reap", REAP_SECONDS, leases.reap),
        Job("take_back_lapsed", LAPSED_SECONDS, leases.take_lapsed),
    ]


def _poison_answer(clock: Clock) -> recovery.AnswerDecision:
    return lambda tx, operation: failure_answer(tx, operation, "the bot stopped while working on it, several times", clock.now_ms())


def _follow(clock: Clock) -> FollowUpDecision:
    return lambda tx, effect: follow_ups(tx, effect, clock.now_ms())
