"""Checks of the ledger, beside a running bot: on a read-only connection, in one snapshot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from adapters.pdf.renderer import PdfRenderer
from ledger.audit.anchors import require_newest
from ledger.audit.keyring import load_keyring, require_keys, require_shared_keys
from ledger.audit.verification import verify_within
from ledger.database import DatabaseError
from ledger.measures import read_measures
from ledger.migrations import OlderBuildError
from ledger.operator.backup import backups_in
from ledger.operator.replay import HISTORY_INLINE
from quotebot.app.backups import backups_of, folder_of
from quotebot.app.document_folder import load_seller
from quotebot.app.document_lint import lint
from quotebot.app.installation import LedgerLostError, load_rules, require_ledger, socket_excess
from quotebot.cli.doctor.checks import NAMED_MAX, Seen, Site, bad, fine, nothing
from quotebot.domain.quotes.quote import utc_text
from quotebot.observability.clock_guard import read_suspension
from quotebot.settings import ConfigurationError
from quotebot.store import crm_mirror, history, quotes, rulesets
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from ledger.database import Tx
    from quotebot.domain.rules import Rules

T = TypeVar("T")
WAL_BYTES_MAX: Final = 256 << 20  # four times its checkpoint limit
EVENTS_MAX: Final = 50_000  # verifying more would take too long for this command
NAMED: Final = 3  # rows listed by name; the others are counted
RATE_DAYS: Final = 45  # age of a rate that is reported where the setting has no limit
BACKUP_LATE: Final = 2  # one missed backup is tolerated
DAY_HOURS: Final = 24
WEEK_MS: Final = 7 * 24 * 3_600_000
DEAD_A_WEEK_MAX: Final = 10
HISTORIES_KIB_MAX: Final = 10 * 1024
NO_LEDGER: Final = "there is no ledger yet; the bot makes it"


async def schema(site: Site) -> Seen:
    """Check that the file is a ledger of this build, and that it was not lost."""
    try:
        require_ledger(site.settings)
    except LedgerLostError as error:
        return bad(str(error))
    if not site.storage.exists():
        return nothing(NO_LEDGER)
    try:
        return fine(await asyncio.to_thread(site.storage.check_schema))
    except DatabaseError as error:
        return bad(str(error))


async def durable(site: Site) -> Seen:
    """Check that the engine keeps what it acknowledges, and that the bot's login cannot switch the guards of the audit off."""
    try:
        return fine(await asyncio.to_thread(site.storage.check_durability))
    except DatabaseError as error:
        return bad(str(error))


async def connections(site: Site) -> Seen:
    """Check that the database's server has room for the connections of every replica."""
    if site.storage.path is not None:
        return nothing("the ledger is a file")
    count = len({*await asyncio.to_thread(site.storage.lock_holders), site.settings.replica_name})
    found = await asyncio.to_thread(site.storage.connection_shortage, count)
    return fine(f"there is room for {count} replicas and one more") if found is None else bad(found)


async def sockets(site: Site) -> Seen:
    """Check that all replicas together have few enough connections to Slack."""
    if site.storage.path is not None:
        return nothing("a file has one bot")
    found = await asyncio.to_thread(socket_excess, site.settings)
    return fine("all replicas together stay below Slack's limit") if found is None else bad(found)


async def role(site: Site) -> Seen:
    """Check that the bot's role in the database has no right beyond those it needs."""
    if site.storage.path is not None:
        return nothing("the ledger is a file")
    if not await asyncio.to_thread(site.storage.exists):
        return nothing(NO_LEDGER)
    found = await asyncio.to_thread(site.storage.needless_rights)
    return fine("it reads and writes rows, and cannot change the audit") if found is None else bad(found)


async def whole(site: Site) -> Seen:
    """Let SQLite check every page of the file."""
    if not site.storage.exists():
        return nothing(NO_LEDGER)
    found = await asyncio.to_thread(site.storage.damage)
    if found is None:
        return nothing("the database's own tools check its pages")
    return bad("; ".join(found[:NAMED])) if found else fine("every page of the file is whole")


async def wal(site: Site) -> Seen:
    """Check the size of the write-ahead log."""
    size = site.storage.wal_bytes()
    if size is None:
        return nothing("the database keeps its own log")
    words = f"the write-ahead log has {size / 2**20:,.0f} MiB"
    return bad(f"{words}; it is kept below {WAL_BYTES_MAX >> 20}") if size > WAL_BYTES_MAX else fine(words)


async def stuck(site: Site) -> Seen:
    """Find unfinished rows that nothing will ever wake up."""

    def look(tx: Tx) -> Seen:
        rows = tx.all("stuck_rows")
        if not rows:
            return fine("every unfinished row has something that wakes it")
        named = ", ".join(f"{row['reference']} ({row['state']})" for row in rows[:NAMED])
        return bad(f"{len(rows)} rows wait for nothing: {named}")

    return await _read(site, look)


async def unread(site: Site) -> Seen:
    """Find commands that no bot which runs can read."""

    def look(tx: Tx) -> Seen:
        rows = tx.all("unread_operations")
        if not rows:
            return fine("no command waits for a newer build")
        named = ", ".join(f"op{row['id']} ({row['action_kind']})" for row in rows[:NAMED])
        return bad(f"{len(rows)} commands wait for a newer build: {named}")

    return await _read(site, look)


async def dead(site: Site) -> Seen:
    """Count the dead letters that wait for an operator."""

    def look(tx: Tx) -> Seen:
        letters = read_measures(tx, int(site.now_seconds() * 1000)).dead
        words = ", ".join(f"{each.count} {each.category}" for each in letters)
        return bad(f"dead letters: {words}") if letters else fine("no dead letter waits for anybody")

    return await _read(site, look)


async def dead_this_week(site: Site) -> Seen:
    """Count the dead letters of the last seven days, decided ones included: more than a few have one cause."""

    def look(tx: Tx) -> Seen:
        found = tx.required("dead_since", since=int(site.now_seconds() * 1000) - WEEK_MS)["found"]
        words = f"{found} dead letters in the last seven days"
        return bad(f"{words}; up to {DEAD_A_WEEK_MAX} are usual") if found > DEAD_A_WEEK_MAX else fine(words)

    return await _read(site, look)


async def histories(site: Site) -> Seen:
    """Find dead letters that are replayed again and again; their failure histories grow until the oldest cycles are cut off."""

    def look(tx: Tx) -> Seen:
        rows = tx.all("replayed_dead_letters")
        kibibytes = sum(row["bytes"] for row in rows) / 1024
        words = f"{len(rows)} dead letters were replayed, their histories have {kibibytes:,.0f} KiB"
        full = [row for row in rows if row["replays"] >= HISTORY_INLINE]
        if not full and kibibytes <= HISTORIES_KIB_MAX:
            return fine(words)
        named = ", ".join(
            f"{'op' if row['kind'] == 'operation' else ''}{row['id']} ({row['replays']} replays)" for row in rows[:NAMED]
        )
        return bad(f"{words}; replayed most: {named}")

    return await _read(site, look)


async def gates(site: Site) -> Seen:
    """Find classes of effects that are held."""

    def look(tx: Tx) -> Seen:
        held = [gate for gate in read_measures(tx, int(site.now_seconds() * 1000)).gates if gate.state == "held"]
        words = ", ".join(f"{gate.name} ({gate.cause})" for gate in held)
        return bad(f"held: {words}") if held else fine("no class is held")

    return await _read(site, look)


async def clock(site: Site) -> Seen:
    """Check that the bot trusts the machine's clock."""

    def look(tx: Tx) -> Seen:
        found = read_suspension(tx)
        return fine("the bot trusts it") if found is None else bad(f"it is suspended ({found.cause}): nothing expires")

    return await _read(site, look)


async def database_clock(site: Site) -> Seen:
    """Compare the machine's clock with the database server's."""
    skew_ms = await asyncio.to_thread(site.storage.clock_skew_ms, lambda: round(site.now_seconds() * 1000))
    if skew_ms is None:
        return nothing("the ledger is a file")
    if skew_ms == 0:
        return fine("it agrees with the clock of the database's server")
    return bad(f"it is {abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'} the clock of the database's server")


async def documents(site: Site) -> Seen:
    """Find documents whose files are missing."""

    def look(tx: Tx) -> Seen:
        stored = site.storage.documents().names()
        known = list(quotes.all_artefacts(tx))
        lost = [each for each in known if each.sha256 not in stored]
        named = ", ".join(f"{each.quote_id} v{each.version} ({each.sha256[:12]})" for each in lost[:NAMED])
        return bad(f"{len(lost)} of {len(known)} files are gone: {named}") if lost else fine(f"{len(known)} documents, all there")

    return await _read(site, look)


async def mirror(site: Site) -> Seen:
    """Find mirrored kinds of Salesforce records whose sync is overdue."""
    wanted, minutes = site.settings.crm_mirror, site.settings.crm_sync_minutes
    if not wanted:
        return nothing("no copy of Salesforce's records is wanted")
    if minutes is None:
        return bad(f"crm_mirror wants {', '.join(wanted)}, and without crm_sync_minutes nobody reads them")

    def look(tx: Tx) -> Seen:
        now = round(site.now_seconds() * 1000)
        found = {each.kind: each.cursor for each in crm_mirror.standings(tx)}
        since = {kind: found[kind].whole_at if kind in found else None for kind in wanted}
        late = [
            f"{kind} are as of {utc_text(at)}" if at is not None else f"{kind} were never read whole"
            for kind, at in since.items()
            if crm_mirror.is_stale(at, minutes, now)
        ]
        return bad("; ".join(late)) if late else fine(f"{', '.join(wanted)} were read of late")

    return await _read(site, look)


async def audit(site: Site) -> Seen:
    """Verify the audit as `quotebot audit verify` does, unless it is too long for this command."""
    folder = site.settings.data_dir

    def look(tx: Tx) -> Seen:
        try:
            require_keys(folder)
            keyring = load_keyring(folder, may_create=False)
            require_shared_keys(tx, keyring)
            require_newest(tx, folder)
        except DatabaseError as error:
            return bad(str(error))
        report = verify_within(tx, keyring, events_max=EVENTS_MAX, replay=history.replay)
        if report is None:
            return nothing(f"it has over {EVENTS_MAX:,} events: `quotebot audit verify`")
        if report.finding is not None:
            return bad(f"{report.finding.table} {report.finding.row}: {report.finding.meaning}")
        return fine(f"{report.events:,} events are whole")

    return await _read(site, look)


async def rates(site: Site) -> Seen:
    """Check the age of the exchange rates with which quotes in other currencies are priced."""
    today = datetime.fromtimestamp(site.now_seconds(), UTC).date()
    allowed, shipped = site.settings.rate_days_max or RATE_DAYS, load_rules(site.settings).ruleset.hash

    def look(tx: Tx) -> Seen:
        version = rulesets.active(tx)
        if version is None:
            return nothing("there is no ruleset yet")
        if site.settings.rate_days_max is None and version.hash == shipped:
            return nothing("the sample ruleset is active, and its rates are examples")
        newest: dict[str, date] = {}
        for rate in rulesets.document(tx, version.version).rates:
            pair = f"{rate.base} to {rate.currency}"
            newest[pair] = max(rate.on, newest.get(pair, rate.on)) if rate.on <= today else newest.get(pair, rate.on)
        old = sorted(f"{pair} is of {on.isoformat()}" for pair, on in newest.items() if (today - on).days > allowed)
        if not old:
            return fine(f"{len(newest)} rates, none older than {allowed} days")
        more = f" and {len(old) - NAMED} more" if len(old) > NAMED else ""
        effect = (
            "such quotes are refused" if site.settings.rate_days_max else "quotes are priced with them (rate_days_max is not set)"
        )
        return bad(f"{', '.join(old[:NAMED])}{more}; {effect}")

    return await _read(site, look)


async def document_folder(site: Site) -> Seen:
    """Render every template of the document folder with sample quotes, and look for the clauses of the active special terms."""
    if site.settings.document_folder is None:
        return nothing("there is no document_folder: documents look as shipped")
    try:
        seller = load_seller(site.settings)
    except ConfigurationError as error:
        return bad(str(error))
    policy, renderer = (await _active_rules(site)).policy, PdfRenderer()
    try:
        problems = await lint(site.settings, seller, policy.known_terms, renderer)
    finally:
        await asyncio.shield(renderer.close())
    more = f"; and {len(problems) - NAMED_MAX} more" if len(problems) > NAMED_MAX else ""
    return bad(f"{'; '.join(problems[:NAMED_MAX])}{more}") if problems else fine("every template and clause is in order")


async def approvers(site: Site) -> Seen:
    """Check that every role of the active policy has an approver, and that the settings name no other role."""
    rules = await _active_rules(site)
    roles, held = rules.policy.roles, {role for role, people in rules.approvers.items() if people}
    strange = sorted(set(rules.approvers) - set(roles.every))
    alone = [role for role in roles.every if not held & set(roles.sufficient(role))]
    if strange:
        return bad(f"the active policy does not know {', '.join(strange)}; its roles are {', '.join(roles.every)}")
    return bad(f"nobody may approve what needs {', '.join(alone)}") if alone else fine("every role has somebody who may approve")


async def _active_rules(site: Site) -> Rules:
    """Return the rules with the active ruleset; with the packaged one if there is no ledger to read."""
    rules = load_rules(site.settings)
    active = await _read(site, ActiveRuleset(rules.ruleset).read)
    return rules if isinstance(active, Seen) else replace(rules, ruleset=active)


async def backups(site: Site) -> Seen:
    """Check the age of the newest backup."""
    settings = site.settings
    if site.storage.path is None:
        return nothing("the database's own tools back the ledger up")
    if not site.storage.exists():
        return nothing(NO_LEDGER)
    folder = folder_of(settings)
    try:
        own = await asyncio.to_thread(backups_of, settings)
    except DatabaseError as error:
        return bad(str(error))
    newest = next(iter(own), None)
    if newest is None:
        others = len(backups_in(folder))
        age = site.now_seconds() - await asyncio.to_thread(site.storage.begun_at_ms) / 1000
        if not others and settings.backup_hours and age < settings.backup_hours * 3600:
            return nothing("the ledger is young: the bot makes the first backup")
        words = f"there is no backup of this ledger in {folder.absolute()}"
        return bad(f"{words}; {others} there are of other ledgers, or their manifests are not authentic" if others else words)
    hours = (site.now_seconds() - newest.manifest.made_at / 1000) / 3600
    words = f"the newest backup is {hours:,.1f} hours old ({newest.path.name})"
    allowed = BACKUP_LATE * (settings.backup_hours or DAY_HOURS)
    return bad(f"{words}; one every {allowed // BACKUP_LATE} hours is wanted") if hours > allowed else fine(words)


async def _read(site: Site, look: Callable[[Tx], T]) -> T | Seen:
    """Read the ledger in its own thread. One of an older build is skipped with a finding; the schema check reports it."""
    if not site.storage.exists():
        return nothing(NO_LEDGER)
    try:
        return await asyncio.to_thread(site.storage.read, look)
    except OlderBuildError as error:
        return nothing(str(error))
