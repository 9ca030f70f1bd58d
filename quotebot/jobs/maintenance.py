"""Maintenance of a running bot: heartbeat, disk reserve, sealing of the audit, retention, and the sweep of the document folder.

Every job may fail or be late without harm: each is repeated, and each starts by reading what there is to do. Retention deletes
completed, old rows of the ledger and of the bot; `ledger prune` uses it too. The sweep keeps the stored files and the ledger's list
of them consistent, and reports lost documents.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.failures import AdapterError
from ledger import measures
from ledger.database import DamagedError, NotRecorded, WritesRefused
from ledger.ledger import PENDING_ORDINAL
from ledger.records import QUOTEBOT, Operation
from ledger.retention import HOUR_MS, KEEP, Keep, Progress, Purged, Rest, purge, quiet, rest
from quotebot import effects
from quotebot.domain.language import _
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.execution.executor import PENDING_MS, quote_card_updated
from quotebot.store import dead_letters, history
from quotebot.store import quotes as store
from quotebot.views import messages
from quotebot.worker_loop import POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from adapters.artefacts import ArtefactStore
    from ledger.clock import Clock
    from ledger.database import Database, Tx
    from ledger.ledger import Ledger
    from ledger.records import EffectIntent
    from quotebot.domain.rules import Rules
    from quotebot.execution.membership import Directory
    from quotebot.settings import Settings
    from quotebot.store.quotes import Artefact


RESTORED_MAX: Final = 100  # per sweep: other work waits for the renderer too
log = structlog.get_logger(__name__)
ROLES: Final = "roles"  # aggregate of the audit events about the holders of roles
FORGOTTEN_AT_ONCE: Final = 100  # per transaction
LEASES_PER_LIFE: Final = 3  # a claim is renewed this often before it would lapse
UNREAD_MS: Final = 60_000
BATCH: Final = 100  # rows of each kind in one transaction


class ArtefactSweep:
    """Repeated sweep. A file without a row is removed only if the previous sweep saw it too: by then no running work owns it.

    Several processes may sweep the documents of one database: it keeps what one of them has just stored.
    """

    def __init__(self, database: Database, artefacts: ArtefactStore, restore: Callable[[Artefact], Awaitable[bool]]) -> None:
        self._database = database
        self._artefacts = artefacts
        self._restore = restore
        self._strays: frozenset[str] = frozenset()
        self._lost: set[str] = set()  # tried and reported once in this process

    async def sweep(self) -> tuple[int, int, int]:
        """Run one sweep; return the numbers of files without a document removed, files rendered again, and documents lost.

        Raises AdapterError if the disk refuses; the changes made until then remain.
        """
        stored = await asyncio.to_thread(self._artefacts.names)
        known, under_way = await self._database.read(lambda tx: (tuple(store.all_artefacts(tx)), store.renders_under_way(tx)))
        removed = await self._remove(stored - {each.sha256 for each in known}, under_way=under_way)
        missing = [each for each in known if each.sha256 not in stored and each.sha256 not in self._lost]
        restored = await self._bring_back(missing[:RESTORED_MAX])
        if removed or missing:
            log.info("artefacts.swept", removed=removed, restored=restored, lost=len(self._lost))
        return removed, restored, len(self._lost)

    async def _remove(self, strays: frozenset[str], *, under_way: bool) -> int:
        doomed = frozenset() if under_way else strays & self._strays  # a file is written before its row
        for sha256 in sorted(doomed):
            await asyncio.to_thread(self._artefacts.remove, sha256)
        self._strays = strays - doomed
        return len(doomed)

    async def _bring_back(self, missing: list[Artefact]) -> int:
        restored = 0
        for each in missing:
            try:
                again = await self._restore(each)
            except AdapterError as error:
                log.warning("artefacts.not_restored", quote=each.quote_id, version=each.version, error=str(error))
                break  # the same error would stop the next ones; the next sweep tries again
            restored += again
            if not again:
                self._lost.add(each.sha256)
                log.error(
                    "artefacts.lost",
                    quote=each.quote_id,
                    version=each.version,
                    sha256=each.sha256,
                    do="other fonts, branding or build make other bytes now: take it from a backup or from Slack",
                )
        return restored


@dataclass(frozen=True, slots=True)
class Forgotten(Purged):
    """Number of rows that were deleted, or would be.

    In a dry run, `letter_cards` counts cards whose dead letter is purged already.
    """

    letter_cards: int = 0


async def forget(
    ledger: Ledger, now: int, *, dry_run: bool, keep: Keep = KEEP, progress: Progress = quiet, actor: str = QUOTEBOT
) -> Forgotten:
    """Purge what ledger.retention.purge allows, then the cards of the purged dead letters; `dry_run` only counts."""
    purged = await purge(ledger, now, keep=keep, dry_run=dry_run, progress=progress, actor=actor)
    if dry_run:
        cards = await ledger.database.read(dead_letters.orphans)
    else:
        cards = await forget_cards(ledger, actor)
    return Forgotten(**asdict(purged), letter_cards=cards)


async def rebuild(ledger: Ledger, actor: str) -> dict[str, Any]:
    """Compute every stored derived row again, and correct what is wrong, audited; a right ledger is left as it is.

    Derived rows are the totals of the metrics, and the last quote number of each year. Everything else that is derived is computed
    when it is read. Returns what was wrong.
    """

    def work(tx: Tx) -> dict[str, Any] | None:
        if not (found.right or measures.replace_totals(tx, found)):
            return None
        numbers = history.mend_numbers(tx) if wrong else {}
        after = {"totals": not found.right, "numbers": {year: list(each) for year, each in numbers.items()}}
        ledger.audit.append(tx, ledger.clock.now_ms(), "ledger.rebuilt", actor=actor, actor_type="operator", after=after)
        return after

    done: dict[str, Any] | None = None
    while done is None:  # retention may delete rows between the recount and its result
        found, wrong = await ledger.database.read(lambda tx: (measures.recount(tx), history.wrong_numbers(tx)))
        right = {"totals": False, "numbers": {}}
        done = right if found.right and not wrong else await ledger.database.write("ledger.rebuild", work, alone=True)
    await measures.fold(ledger)
    return done


async def forget_cards(ledger: Ledger, actor: str = QUOTEBOT) -> int:
    """Delete the cards of purged dead letters, in batches, audited; returns their number."""
    actor_type = "system" if actor == QUOTEBOT else "operator"

    def work(tx: Tx) -> int:
        gone = dead_letters.forget(tx, FORGOTTEN_AT_ONCE)
        if gone:
            after = {"letter_cards": gone}
            ledger.audit.append(tx, ledger.clock.now_ms(), "retention.purged", actor=actor, actor_type=actor_type, after=after)
        return gone

    forgotten = 0
    while gone := await ledger.database.write("letters.forget", work):
        forgotten += gone
    return forgotten


_STATEMENTS: Final = {  # kind -> its statement, and its period
    "readings": ("forget_readings", "model_before"),
    "model_calls": ("forget_model_calls", "model_before"),
    "quote_summaries": ("forget_summaries", "model_before"),
    "crm_conflicts": ("forget_conflicts", "reconcile_before"),
}


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """Retention periods: days after the end of a row for LLM data and settled differences with Salesforce; those of the ledger."""

    model_days: int
    reconcile_days: int
    ledger: Keep = KEEP

    @classmethod
    def of(cls, settings: Settings) -> RetentionPeriods:
        """Return the periods of the installation's settings."""
        deliveries_ms, tombstones_ms = settings.delivery_keep_hours * HOUR_MS, settings.tombstone_keep_days * DAY_MS
        return cls(settings.model_keep_days, settings.reconcile_keep_days, Keep(deliveries_ms, tombstones_ms))


async def let_go(
    ledger: Ledger, keeping: RetentionPeriods, *, batch: int = BATCH, between: Rest = rest, actor: str = QUOTEBOT
) -> dict[str, int]:
    """Delete rows past their retention period, in batches, audited; returns the number of rows per kind.

    Raises NotRecorded as Database.write does: the rows of earlier batches stay deleted, and the next run continues.
    """
    work = partial(_some, ledger=ledger, keeping=keeping, now=ledger.clock.now_ms(), limit=batch, actor=actor)
    forgotten = Counter(dict.fromkeys(_STATEMENTS, 0))
    while gone := await ledger.database.write("store.forget", work):
        forgotten.update(gone)
        await between()
    return dict(forgotten)


async def too_old(ledger: Ledger, keeping: RetentionPeriods) -> dict[str, int]:
    """Return the number of rows per kind that `let_go` would delete now."""
    before = _before(keeping, ledger.clock.now_ms())
    found = await ledger.database.read(lambda tx: tx.required("count_forgettable", **before))
    return {kind: found[kind] for kind in _STATEMENTS}


def _some(tx: Tx, *, ledger: Ledger, keeping: RetentionPeriods, now: int, limit: int, actor: str) -> dict[str, int]:
    """Delete at most `limit` rows of each kind past its period; returns the number per kind.

    A row that has not ended stays at any age: an unanswered message, a summary that approvers may read, an open difference.
    """
    before = _before(keeping, now)
    deleted = {kind: len(tx.all(name, before=before[period], limit=limit)) for kind, (name, period) in _STATEMENTS.items()}
    gone = {kind: count for kind, count in deleted.items() if count}
    if gone:
        actor_type = "system" if actor == QUOTEBOT else "operator"
        ledger.audit.append(tx, now, "retention.purged", actor=actor, actor_type=actor_type, after=gone)
    return gone


def _before(keeping: RetentionPeriods, now: int) -> dict[str, int]:
    return {"model_before": now - keeping.model_days * DAY_MS, "reconcile_before": now - keeping.reconcile_days * DAY_MS}


def _last_holders(tx: Tx) -> dict[str, list[str]]:
    return next((json.loads(row["after"]) for row in tx.all("audit_chain", aggregate_id=ROLES, limit=1)), {})


async def audit_holders(ledger: Ledger, approvers: Mapping[str, tuple[str, ...]]) -> bool:
    """Audit the holders of each role, if they differ from the last such event; returns whether it did."""
    held = {role: sorted(users) for role, users in sorted(approvers.items()) if users}

    def work(tx: Tx) -> bool:
        last = _last_holders(tx)
        if last != held:
            ledger.audit.append(
                tx,
                ledger.clock.now_ms(),
                "roles.changed",
                actor=QUOTEBOT,
                actor_type="system",
                aggregate_id=ROLES,
                before=last,
                after=held,
            )
        return last != held

    changed = await ledger.database.read(lambda tx: _last_holders(tx) != held)
    return changed and await ledger.database.write("roles", work, alone=True)


async def check_holders(ledger: Ledger, directory: Directory, rules: Rules) -> list[str]:
    """Audit the holders of each role, and ask Slack whether they are still full members, and in which time zone.

    Returns those who are not, and logs them.
    """
    await audit_holders(ledger, rules.approvers)
    gone = await directory.check(user for users in rules.approvers.values() for user in users)
    for user in gone:
        held = sorted(role for role, users in rules.approvers.items() if user in users)
        log.warning("approver.gone", slack_user=user, roles=held, do="name somebody else in QUOTEBOT_APPROVERS")
    return gone


@dataclass(frozen=True, slots=True)
class Job:
    """Repeated maintenance job with its interval; `first_seconds` delays the first run.

    A `leader` job is for the whole ledger: one of its replicas does it. It is correct with two leaders, which may be for a while.
    """

    name: str
    every_seconds: float
    do: Callable[[], Awaitable[object]]
    first_seconds: float = 0.0
    leader: bool = False


class Housekeeper:
    """Runner of the maintenance jobs: one after the other, each when it is due."""

    def __init__(
        self,
        jobs: Sequence[Job],
        clock: Clock,
        *,
        leads: Callable[[], Awaitable[bool]] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`leads` returns whether this replica does the jobs of the whole ledger; without it, there is no other.

        A new leader begins with those that are due.
        """
        self._jobs = jobs
        self._leads = leads
        self._poll_seconds = poll_seconds
        self._clock = clock
        now = clock.monotonic()
        self._due = {job.name: now + job.first_seconds for job in jobs}

    async def run(self) -> None:
        """Work until cancelled. Raises WritesRefused when no writes are taken until a restart, DamagedError for a damaged file."""
        while True:
            await self.step()
            await asyncio.sleep(self._poll_seconds)

    async def step(self) -> list[str]:
        """Run the due jobs; returns the names of the jobs that succeeded."""
        done = []
        for job in self._jobs:
            if self._clock.monotonic() < self._due[job.name]:
                continue
            try:
                if job.leader and self._leads is not None and not await self._leads():
                    continue
                self._due[job.name] = self._clock.monotonic() + job.every_seconds
                await job.do()
            except (WritesRefused, DamagedError):
                raise
            except NotRecorded as error:
                log.warning("housekeeping.put_off", job=job.name, error=str(error))
            except Exception:  # one broken job must not stop the bot or the other jobs
                log.exception("housekeeping.failed", job=job.name)
            else:
                done.append(job.name)
        return done


PENDING_AT_ONCE: Final = 64  # commands per transaction


async def show_pending_commands(ledger: Ledger) -> int:
    """Show each command of a person that is unfinished for PENDING_MS; returns the number of commands.

    The quote's card shows it; one that creates a quote is answered, because its acknowledgement had no text. Each command enqueues
    its card or reply once, so a repeated run finds nothing left to do.
    """
    now = ledger.clock.now_ms()

    def due(tx: Tx) -> list[Operation]:
        limits = {"before": now - PENDING_MS, "limit": PENDING_AT_ONCE}
        rows = tx.all("commands_not_shown", card=effects.CARD, reply=effects.REPLY, **limits)
        return [Operation.of(row) for row in rows]

    def work(tx: Tx) -> int:
        found = due(tx)
        for operation in found:
            shown = quote_card_updated(tx, operation) if operation.aggregate_id != "new" else (_still_creating(operation),)
            ledger.enqueue_for(tx, now, operation, shown, first=PENDING_ORDINAL)
        return len(found)

    if not await ledger.database.read(due):
        return 0
    shown = await ledger.database.write("pending_commands", work)
    ledger.effects_changed.set()
    return shown


async def name_unread_commands(ledger: Ledger, known: str) -> None:
    """Mark and log each command that no bot has claimed for UNREAD_MS and that this build cannot read (`known`: what it can)."""
    for row in await ledger.name_unread(known, UNREAD_MS, PENDING_AT_ONCE):
        log.error(
            "operation.needs_newer_build",
            operation=f"op{row['id']}",
            operation_key=row["operation_key"],
            action_kind=row["action_kind"],
            correlation_id=row["correlation_id"],
            do="no bot that runs reads it: start one of the newer build",
        )


def _still_creating(operation: Operation) -> EffectIntent:
    return effects.reply("new", operation.actor, operation.payload.get("channel"), _(messages.CREATING), operation.received_at)
