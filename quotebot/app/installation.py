"""Access to an installation: its ledger, audit keys and rules. Shared by the bot and the command line, without Slack or CRM.

The first start of an installation is distinguished from a lost ledger. A missing or empty ledger beside audit keys, anchors,
documents or backups is a lost one (a disk that is not mounted, a wrong `rm`): a new one would allocate every quote number again.
Only a folder without any of these, or `quotebot run --new`, begins a ledger. A marker file records the first start until the ledger
exists, so that an interrupted first start can continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.policies import Matrix, policies
from ledger.audit.anchors import LOG_NAME, set_aside
from ledger.audit.columns import statements as bound_statements
from ledger.audit.events import Audit
from ledger.audit.keyring import KeyMissing, key_files, load_keyring
from ledger.audit.proof import KEY_NAME
from ledger.database import DatabaseError, load_statements
from ledger.gates import Breaker
from ledger.ledger import Ledger
from ledger.migrations import Migration
from ledger.operator.backup import FOLDER
from ledger.operator.dead_letters import DeadLetters
from quotebot import __version__, effects
from quotebot.app.sqlite_storage import DOCUMENTS, MARKER, SqliteStorage
from quotebot.domain import language
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.catalogue.catalogue import fold
from quotebot.domain.catalogue.rulesets import parse_ruleset_toml
from quotebot.domain.rules import AccountSegments, Rules
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.settings import ConfigurationError
from quotebot.store import dead_letters as letter_store
from quotebot.store import quotes as store
from quotebot.store.columns import TABLES
from quotebot.store.crm_mirror import fingerprint
from quotebot.worker_loop import POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from adapters.salesforce.mapping import CrmMapping
    from ledger.clock import Clock
    from ledger.database import Database, Tx
    from ledger.ownership import HeldLock
    from ledger.records import EffectIntent, Operation
    from quotebot.app.postgres_storage import PostgresStorage
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.settings import Settings

    Storage = SqliteStorage | PostgresStorage

SOCKETS_MAX: Final = 9  # of Slack's ten
LOCK_POLLS: Final = 20
LOCK_POLL_SECONDS: Final = 0.05
log = structlog.get_logger(__name__)
CATALOGS: Final = Path(__file__).parents[1] / "locale"
NAMED: Final = 4  # traces listed in the error


class LedgerInUseError(Exception):
    """Another bot holds this ledger's lock."""


def socket_excess(settings: Settings) -> str | None:
    """Return why the bots that run, with the one of these settings, have too many connections to Slack, or None. Blocks."""
    count = len({*storage_of(settings).lock_holders(), settings.replica_name})
    total = count * settings.socket_connections
    if total <= SOCKETS_MAX:
        return None
    return (
        f"{count} replicas with {settings.socket_connections} connections to Slack each are {total}: Slack gives an app ten, and "
        "one is kept for the restart of a replica"
    )


class IngressEndedError(Exception):
    """The process that holds the connection to Slack (front.py) has ended by itself."""


def read_catalog(code: str) -> dict[str, str | tuple[str, ...]]:
    """Return every translation of a language by its English text: one text, or its singular and plural. English has none."""
    if code == "en":
        return {}
    from babel.messages.pofile import read_po  # noqa: PLC0415 -- 15 ms that a start in English need not wait

    found: dict[str, str | tuple[str, ...]] = {}
    for file in sorted((CATALOGS / code).glob("*.po")):
        with file.open("rb") as stream:
            for message in read_po(stream, locale=code):
                if message.id and message.string:
                    english = message.id if isinstance(message.id, str) else message.id[0]
                    found[english] = message.string if isinstance(message.string, str) else tuple(message.string)
    return found


def speak(code: str) -> None:
    """Make this process speak the language of its installation: "en" or "de"."""
    language.use(code, read_catalog(code))


def claim_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of claims and of the circuit breaker, as arguments of Ledger."""
    breaker = Breaker(settings.breaker_failures, settings.breaker_effects, settings.breaker_seconds)
    return {"lease_seconds": settings.lease_seconds, "poison_claims": settings.poison_claims, "breaker": breaker}


def load_rules(settings: Settings) -> Rules:
    """Return the policy and the approvers, with the ruleset that applies while the ledger has none (store/rulesets.py)."""
    ruleset, policy = _built_in()
    return Rules(
        ruleset=replace(ruleset, rate_days_max=settings.rate_days_max),
        builtin_policy=policy,
        approvers=settings.approvers,
        decide_in_channel=settings.approval_buttons_in_channel,
        valid_days=settings.quote_valid_days,
        operators=settings.operators,
        guest_reps=settings.guest_reps,
        reuse_tolerance_percent=settings.reuse_tolerance,
        terminal_users=settings.cli_users,
        time_zone=settings.time_zone,
        readings_per_day=0 if settings.llm_base_url is None else settings.llm_readings_per_day,
        summaries_per_day=0 if settings.llm_base_url is None else settings.llm_summaries_per_day,
        keep_closed_ms=settings.closed_keep_days * DAY_MS,
        keep_refused_ms=settings.refused_keep_days * DAY_MS,
        account_segments=_account_segments(settings) if "accounts" in settings.crm_mirror else None,
    )


def crm_mapping(settings: Settings) -> CrmMapping:
    """Return the mapping of our data to the org's fields: the installation's own, or the default of this build."""
    from adapters.salesforce.mapping import default_mapping, read_mapping  # noqa: PLC0415 -- loaded only where it is used

    own = settings.salesforce_mapping
    return default_mapping() if own is None else read_mapping(own.read_text("utf-8"))


def _account_segments(settings: Settings) -> AccountSegments | None:
    """Return where the CRM's accounts say their segments; None if the mapping names no such field."""
    accounts = crm_mapping(settings).mirrors.get("accounts")
    if accounts is None or "segment" not in accounts.facts:
        return None
    by_value = {fold(value): segment for value, segment in accounts.segments.items()}
    return AccountSegments(fingerprint(accounts), settings.crm_sync_minutes, by_value)


@functools.cache
def _built_in() -> tuple[Ruleset, ApprovalPolicy]:
    """Return the ruleset and the policy of this build."""
    data = files("quotebot").joinpath("data")
    ruleset, policy = (data.joinpath(name).read_text("utf-8") for name in ("catalogue.toml", "policy.toml"))
    return parse_ruleset_toml(ruleset), parse_policy(policy)


def storage_of(settings: Settings) -> Storage:
    """Return the storage of the ledger. This is the one place that chooses the engine."""
    if settings.ledger_url is None:
        return SqliteStorage(settings.ledger_path, *schema_and_statements())
    try:
        from quotebot.app.postgres_storage import PostgresStorage  # noqa: PLC0415 -- its driver is an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"QUOTEBOT_LEDGER_URL names a database, and its driver is missing ({error.name}). Nothing was done. Install the wheel "
            "with its extra postgres: docs/postgresql.md."
        ) from error

    password = settings.ledger_password
    return PostgresStorage(
        settings.ledger_url,
        None if password is None else password.get_secret_value(),
        settings.data_dir / MARKER,
        needs_standby=settings.ledger_durability == "quorum",
        lease_seconds=settings.lease_seconds,
        replica=settings.replica_name,
    )


async def open_database(settings: Settings, audit: Audit, clock: Clock, **options: Any) -> Database:
    """Open the ledger's database; `options` are those of the storage's `open`."""
    return await storage_of(settings).open(audit, clock, **options)


@contextlib.asynccontextmanager
async def open_ledger(
    settings: Settings,
    clock: Clock | None = None,
    database: Callable[..., Awaitable[Database]] = open_database,
    *,
    terminal_user: str | None = None,
) -> AsyncIterator[Ledger]:
    """Open the ledger for reserving and reading; only the bot's own process may claim. `terminal_user` is that of Audit.

    `database` opens it in place of `open_database` (fault tests).
    """
    clock = clock or storage_of(settings).clock()
    audit = open_audit(settings, terminal_user=terminal_user)
    migrating: list[str] = []
    lock = storage_of(settings).hold()  # while no bot runs, the schema may be migrated
    try:
        opened = await database(
            settings, audit, clock, bot=False, may_migrate=lock is not None, on_migrating=lambda: migrating.append(__version__)
        )
    finally:
        if lock is not None:
            lock.close()
    try:
        ledger = Ledger(opened, clock, audit, pin=store.head_version, **claim_settings(settings))
        if migrating and terminal_user is not None:
            now, after = clock.now_ms(), {"build": __version__}
            await ledger.database.write(
                "ledger.migrated",
                lambda tx: audit.append(tx, now, "ledger.migrated", actor=terminal_user, actor_type="operator", after=after),
            )
        yield ledger
        await ledger.noted()
    finally:
        await opened.close()


def open_audit(settings: Settings, *, terminal_user: str | None = None) -> Audit:
    """Return the audit with the installation's signing keys; a new ledger gets its first key. Raises LedgerLostError."""
    require_ledger(settings)
    storage = storage_of(settings)
    if storage.is_missing():
        _mark(settings.data_dir / MARKER)
    try:
        keyring = load_keyring(settings.data_dir, may_create=not storage.exists())
    except KeyMissing as error:
        raise KeyMissing(f"{error} {storage.where_keys_are()}".rstrip()) from error
    return Audit(DOMAIN_EVENTS, keyring, terminal_user=terminal_user)


def schema_and_statements() -> tuple[Sequence[Migration], Mapping[str, str]]:
    """Return this build's migrations and its statements by name, for read-only access to a ledger."""
    return [*_migrations("ledger"), *_migrations("quotebot.store")], _statements()


def matrix(settings: Settings) -> Matrix:
    """Return the retry matrix with the configured overrides."""
    return Matrix(policies(settings.retry))


def dead_letters(ledger: Ledger) -> DeadLetters:
    """Return the dead letters of an open ledger."""
    return DeadLetters(ledger, build=__version__, redrawn=_card_redrawn)


def _card_redrawn(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Return the effect that redraws the card of a dead command, if it has one."""
    card = letter_store.find(tx, f"op{operation.id}")
    return () if card is None else (effects.update_dead_letter(card.reference, card.awaited),)


@contextlib.asynccontextmanager
async def instance_lock(
    settings: Settings, stop: asyncio.Event | None = None, *, bot: bool = False
) -> AsyncIterator[HeldLock | None]:
    """Hold the lock of the active bot, or of a process that excludes every bot. With `stop`, wait for it until `stop` is set.

    Yields None if it was not acquired. Raises LedgerInUseError if another process holds the lock and `stop` is not given.
    """
    storage = storage_of(settings)
    lock: HeldLock | None = storage.hold(bot=bot)
    for _ in range(LOCK_POLLS):  # a command line that opens the ledger releases the lock within milliseconds
        if lock is not None:
            break
        await asyncio.sleep(LOCK_POLL_SECONDS)
        lock = storage.hold(bot=bot)
    while lock is None and stop is None and storage.is_uncertain:  # seconds, after which the bot has its lock again or is dead
        await asyncio.sleep(POLL_SECONDS)
        lock = storage.hold(bot=bot)
    if lock is None and stop is None:
        last = storage.holder()
        holder = "its lock file was removed" if last is None else f"process {last.pid}"
        place = f"{storage.place} ({holder})"
        if not bot:  # a command of the terminal
            raise LedgerInUseError(
                f"The ledger is in use: {place}. Nothing was done. Stop the bot or the command that uses it first."
            )
        raise LedgerInUseError(
            f"Another bot is running on {place}. "
            "This one did nothing. "
            "Stop the other, choose another data folder, or start this one with --standby: it then waits for its turn."
        )
    if lock is None and stop is not None:
        lock = await _standing_by(storage, stop, bot=bot)
    if lock is None:
        yield None
        return
    try:
        yield lock
    finally:
        lock.close()


async def _standing_by(storage: Storage, stop: asyncio.Event, *, bot: bool) -> HeldLock | None:
    """Wait for the lock until `stop` is set, also while no server answers: after a failover this process may be needed."""
    log.info("bot.standing_by", ledger=storage.place)
    lock, away = None, False
    while lock is None and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_SECONDS)
        try:
            lock, away = storage.hold(bot=bot), False
        except DatabaseError as error:
            if not away:
                log.warning("bot.standing_by_without_server", ledger=storage.place, cause=str(error))
            away = True
    return lock


@functools.cache
def _statements() -> Mapping[str, str]:
    named = load_statements(files(package).joinpath("queries.sql").read_text("utf-8") for package in ("ledger", "quotebot.store"))
    return {**named, **bound_statements(TABLES)}


@functools.cache
def _migrations(package: str) -> tuple[Migration, ...]:
    folder = files(package).joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(package, name, folder.joinpath(name).read_text("utf-8")) for name in names)


class LedgerLostError(ConfigurationError):
    """The ledger existed and is lost."""


def require_ledger(settings: Settings) -> None:
    """Raise LedgerLostError if the ledger is missing or empty and the folder has traces of an earlier one. Changes nothing."""
    storage = storage_of(settings)
    if not storage.is_missing() or (settings.data_dir / MARKER).exists():
        return
    found = traces_of_ledger(settings)
    if not found:
        return
    state = "is empty" if storage.exists() else "is missing"
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    raise LedgerLostError(
        f"The ledger {storage.place} {state}, but there was one: its folder has "
        f"{', '.join(found[:NAMED])}{more}. Nothing was done. Is the disk mounted? Otherwise put a backup back: quotebot restore "
        "FILE.db. To begin an empty ledger on purpose: quotebot run --new; its quote numbers begin anew, so numbers that were "
        "given out appear twice."
    )


def begin_anew(settings: Settings) -> list[str]:
    """Allow the next start to begin an empty ledger; return the traces of an older one. Raises ConfigurationError if one exists."""
    storage = storage_of(settings)
    if not storage.is_missing():
        raise ConfigurationError(
            f"There is a ledger at {storage.place}. Nothing was started. --new is for a folder whose ledger is lost."
        )
    found = traces_of_ledger(settings)
    set_aside(settings.data_dir)
    _mark(settings.data_dir / MARKER)
    return found


def traces_of_ledger(settings: Settings) -> list[str]:
    """Return the names of files and folders that exist only if the installation had a ledger."""
    folder = settings.data_dir
    if not folder.is_dir():
        return []
    files = [*key_files(folder), *(folder / name for name in (LOG_NAME, KEY_NAME))]
    put_aside = sorted(folder.glob("replaced-*"))
    folders = [folder / name for name in (DOCUMENTS, FOLDER)]
    filled = [each for each in folders if each.is_dir() and any(file.is_file() for file in each.rglob("*"))]
    return [path.name for path in (*files, *filled, *put_aside) if path.exists()]


def _mark(marker: Path) -> None:
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker.touch(mode=0o600)
