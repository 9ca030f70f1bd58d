"""`quotebot ledger ...`, `backup` and `restore`: the ledger, verified copies of it beside a running bot, moves, and retention."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 -- cyclopts reads it
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn

from ledger.audit.keyring import load_keyring, require_keys
from ledger.audit.verification import verify as verify_audit
from ledger.clock import SystemClock
from ledger.operator.backup import UNAUTHENTICATED, NotAuthenticError, NotWholeError
from quotebot import __version__
from quotebot.app import backups as restoring
from quotebot.app import moves
from quotebot.app.backups import authentic_backup, make_backup, prove_backup
from quotebot.app.installation import storage_of
from quotebot.cli import exits, terminal
from quotebot.jobs.maintenance import RetentionPeriods, forget, let_go, too_old
from quotebot.jobs.maintenance import rebuild as rebuild_derived
from quotebot.observability.clock_guard import read_suspension
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ledger.operator.backup import Backup, Progress
    from ledger.retention import Purged
    from quotebot.app.backups import Restored

app = App(name="ledger", help="Inspect, maintain and move the ledger")


@app.command
async def prune(
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Delete what is done and was kept long enough. What is unfinished, in doubt or dead stays, and so does the audit.

    The bot does this by itself; it may run meanwhile.

    Parameters
    ----------
    dry_run
        Only count.
    json_output
        Print JSON.
    """
    keeping = RetentionPeriods.of(load_settings())
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    async with terminal.existing_ledger() as ledger:
        with Bar(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Pruning", total=None)

            def show(so_far: Purged) -> None:
                bar.update(task, description=f"Pruning: {_words(asdict(so_far)) or 'nothing yet'}")

            if not dry_run and await ledger.database.read(read_suspension) is not None:
                return exits.complain(
                    "The clock is suspended, so nothing is old enough to be deleted. See: quotebot clock status", exits.REFUSED
                )
            now, actor = ledger.clock.now_ms(), terminal.user()
            rows = await forget(ledger, now, keep=keeping.ledger, dry_run=dry_run, progress=show, actor=actor)
            kept = await too_old(ledger, keeping) if dry_run else await let_go(ledger, keeping, actor=actor)
    purged = {**asdict(rows), **kept}
    if json_output:
        print(json.dumps({"schema_version": 1, "dry_run": dry_run, "purged": purged}, indent=2))
    elif any(purged.values()):
        print(f"{'Would be deleted' if dry_run else 'Deleted'}: {_words(purged)}.")
    else:
        print("Nothing is old enough to be deleted.")
    return exits.OK


@app.command
def verify(
    file: Path | None = None,
    *,
    unauthenticated: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check every page of the ledger's file, its schema, every reference and every event of its audit.

    It only reads; the bot may run.

    Parameters
    ----------
    file
        The .db file of a backup, to verify that instead, with its manifest.
    unauthenticated
        Take a backup of Quotebot 0.1.0, whose manifest nobody signed.
    json_output
        Print JSON.
    """
    if file is not None:
        return _verify_backup(file, unauthenticated=unauthenticated, json_output=json_output)

    settings = terminal.existing_site()
    require_keys(settings.data_dir)
    keyring, storage = load_keyring(settings.data_dir, may_create=False), storage_of(settings)
    found, tables = None, dict[str, int]()
    try:
        with following() as progress:
            tables = storage.prove(keyring, progress)
    except NotWholeError as error:
        found = error.why
    if json_output:
        print(json.dumps({"schema_version": 1, "whole": found is None, "found": found, "tables": tables}, indent=2))
    elif found is None:
        rows, events = sum(tables.values()), tables["audit_events"]
        print(f"The ledger is whole: {rows:,} rows in {len(tables)} tables, {events:,} of them audit events.")
    else:
        exits.complain(
            f"The ledger {storage.place} is not whole: {found}. Nothing was changed. Stop the bot, keep a copy "
            "of the whole data folder, check the disk, then: quotebot restore with the newest backup."
        )
    return exits.OK if found is None else exits.REFUSED


def _verify_backup(file: Path, *, unauthenticated: bool, json_output: bool) -> int:
    settings = load_settings()
    found, tables = None, dict[str, int]()
    try:
        chosen = authentic_backup(settings, file, unauthenticated=unauthenticated)
        warn_of_old(chosen)
        with following() as progress:
            tables = prove_backup(settings, chosen, unauthenticated=unauthenticated, progress=progress)
    except (NotWholeError, NotAuthenticError) as error:
        found = str(error)
    if json_output:
        print(json.dumps({"schema_version": 1, "whole": found is None, "found": found, "tables": tables}, indent=2))
    elif found is None:
        print(f"{file} ({words(chosen)}) is whole.")
    else:
        exits.complain(found)
    return exits.OK if found is None else exits.REFUSED


@app.command
async def migrate(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Bring the ledger up to this build's schema, as the bot's next start would.

    A file is backed up first, and no bot may be running on it. A database needs that only for a change which older builds refuse.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger():
        if json_output:
            print(json.dumps({"schema_version": 1, "build": __version__}, indent=2))
        else:
            print("The ledger is of this build.")
    return exits.OK


@app.command
async def rebuild(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Compute everything again that is stored and derived: the totals of the metrics, and the last quote numbers.

    The audit is verified first. A right ledger is left as it is; a correction is audited. The bot may run.
    Exit status: 0 all is right now, 3 the audit is not sound, so nothing can be derived from it.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        report = await verify_audit(ledger.database, ledger.audit.keyring)
        if report.finding is not None:
            found = report.finding
            return exits.complain(
                f"The audit is not sound: {found.table} {found.row}: {found.meaning}. Nothing was changed.",
                exits.REFUSED,
            )
        wrong = await rebuild_derived(ledger, terminal.user())
    if json_output:
        print(json.dumps({"schema_version": 1, "corrected": wrong}, indent=2))
        return exits.OK
    if wrong["totals"]:
        print("Corrected: the totals of the metrics.")
    for year, (was, last) in wrong["numbers"].items():
        print(f"Corrected: the last quote number of {year}, from {was} to {last}.")
    if not any(wrong.values()):
        print("Everything derived is right; nothing was changed.")
    return exits.OK


@app.command
async def move(
    *,
    to: str | None = None,
    undo: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Move the ledger from its file into a PostgreSQL database, or back into the file (stop the bot first).

    The ledger that is left is sealed first: it refuses every write and every start. Every row is copied and compared, and the audit
    of the copy is verified, before the copy can be opened. The same command finishes an interrupted move, or --undo takes it back.
    Afterwards change the settings as the command says.

    Parameters
    ----------
    to
        The address of an empty database, as QUOTEBOT_LEDGER_URL has it (the password in QUOTEBOT_LEDGER_PASSWORD), or `file`.
    undo
        Use the ledger here again, if the move was not completed.
    dry_run
        Only count.
    json_output
        Print JSON.
    """
    if (to is None) is not undo or (undo and dry_run):
        raise exits.UsageError("Give either --to with the new place, or --undo.")
    settings, name = terminal.existing_site(), terminal.user()
    if to is None:
        seal = await moves.undo(settings, actor=name)
        told = {"schema_version": 1, "undone": seal.place}
        print(json.dumps(told, indent=2) if json_output else f"The move to {seal.place} is undone. Start the bot: quotebot run")
        return exits.OK
    if dry_run:
        counts = await asyncio.to_thread(moves.count, settings, to)
        told = {"schema_version": 1, "dry_run": True, "tables": counts}
        rows = f"Would be moved: {sum(counts.values()):,} rows in {len(counts)} tables."
        print(json.dumps(told, indent=2) if json_output else rows)
        return exits.OK
    with following() as progress:
        done = await moves.move(settings, to, SystemClock(), actor=name, progress=progress)
    if json_output:
        told = {"schema_version": 1, "dry_run": False, "from": done.origin, "to": done.place, "tables": done.tables}
        told["lost_documents"] = done.lost_documents
        print(json.dumps(told, indent=2))
        return exits.OK
    if done.tables is not None:
        rows = f"{sum(done.tables.values()):,} rows in {len(done.tables)} tables"
        print(f"Moved and compared: {rows}, {done.tables['audit_events']:,} of them audit events.")
    if done.lost_documents:
        print(f"{done.lost_documents:,} documents could not be copied: each is rendered again when it is needed.")
    print(f"The ledger is at {done.place}. The one at {done.origin} is sealed; keep it until the next backup.")
    print(f"Now {done.setting}, then start the bot: quotebot run")
    return exits.OK


@app.command
async def begin_generation(
    *,
    backup_made_at: datetime,
    yes: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Go on with a ledger that was put back to an earlier time by the tools of the database or the disk (stop the bot first).

    As after `quotebot restore`: each pending effect is looked up in Slack and Salesforce before it is sent again, the cards of open
    quotes are redrawn, and no quote number that may have been assigned since is assigned again.

    Parameters
    ----------
    backup_made_at
        The time to which it was put back, e.g. 2026-11-21T21:50:00Z, or a minute before a failover that lost commits. An earlier
        time is safe, a later one is not.
    yes
        Do not ask.
    json_output
        Print JSON.
    """
    made_at = backup_made_at if backup_made_at.tzinfo is not None else backup_made_at.replace(tzinfo=UTC)
    settings = terminal.existing_site()
    at_ms = int(made_at.timestamp() * 1000)
    if at_ms > SystemClock().now_ms():
        raise exits.UsageError("--backup-made-at is in the future: give the time to which the ledger was put back, in UTC.")
    exits.complain(f"The ledger at {storage_of(settings).place}, put back to {made_at:%Y-%m-%d %H:%M:%S %Z}.")
    if not yes and not _agreed("Begin a new generation of this ledger? Everything recorded since then counts as lost."):
        return exits.complain("Nothing was changed.", exits.REFUSED)
    begun = await restoring.begin_generation(settings, at_ms, actor=terminal.user())
    if json_output:
        print(json.dumps({"schema_version": 1, **_generation(begun)}, indent=2))
        return exits.OK
    print(f"Generation {begun.generation} has begun. {_after(begun)}")
    return exits.OK


def _generation(begun: Restored) -> dict[str, object]:
    numbers = {str(year): last for year, last in begun.numbers.items()}
    return {"generation": begun.generation, "is_uncertain": begun.is_uncertain, "numbers_after": numbers}


def _after(begun: Restored) -> str:
    last = ", ".join(f"{number:,} ({year})" for year, number in begun.numbers.items())
    return (
        f"Quote numbers go on after {last}.\n{begun.is_uncertain:,} effects are in doubt: the bot looks for each before it does it "
        "again. Start it: quotebot run"
    )


def _words(purged: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in purged.items() if number)


@app.command
def backup(
    *,
    to: Path | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Back up the ledger and verify the copy (the bot may run).

    The audit's keys (audit-*.key) and the PDFs are not in it. Keep copies of the keys apart from the backups: without them nobody
    can tell whether a ledger is whole. A PDF that is lost is rendered again, byte for byte.

    Parameters
    ----------
    to
        The folder. Without it the configured one (QUOTEBOT_BACKUP_FOLDER), where all but the newest are removed.
    json_output
        Print JSON.
    """
    settings = terminal.existing_site()
    with following() as progress:
        made = make_backup(settings, SystemClock().now_ms(), folder=to, progress=progress)
    if json_output:
        print(json.dumps({"schema_version": 1, "path": str(made.path.absolute()), **asdict(made.manifest)}, indent=2))
    else:
        print(f"{made.path.absolute()} ({words(made)}) is whole.")
    return exits.OK


@app.command
async def restore(
    file: Path,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    unauthenticated: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Restore a backup (stop the bot first).

    Slack and Salesforce keep the changes made since the backup. Each effect that is pending in the backup is therefore looked up
    there before it is sent again, the cards of open quotes are redrawn from the ledger, and no quote number that may have been
    assigned since is assigned again. The present ledger is moved to a folder `replaced-...`. An interrupted restore leaves one of
    the two ledgers in place, complete.

    Parameters
    ----------
    file
        The .db file of a backup, with its .json beside it.
    yes
        Do not ask.
    unauthenticated
        Take a backup of Quotebot 0.1.0, whose manifest nobody signed; it is verified all the same.
    json_output
        Print JSON.
    """
    settings = load_settings()
    chosen = authentic_backup(settings, file, unauthenticated=unauthenticated)
    warn_of_old(chosen)
    lost = await asyncio.to_thread(restoring.present, settings)
    held = "is not there, or cannot be read" if lost.operations is None else f"has {lost.operations:,} commands"
    exits.complain(f"{file.name} ({words(chosen)}). The ledger at {storage_of(settings).place} {held}.")
    if not yes and not _agreed("Restore this backup? Everything recorded since is lost."):
        return exits.complain("Nothing was changed.", exits.REFUSED)
    with following() as progress:
        name = terminal.user()
        done = await restoring.restore(
            settings, file, SystemClock(), actor=name, terminal_user=name, progress=progress, unauthenticated=unauthenticated
        )
    replaced = None if done.replaced is None else str(done.replaced.absolute())
    if json_output:
        print(json.dumps({"schema_version": 1, **_generation(done), "replaced": replaced}, indent=2))
        return exits.OK
    print(f"The ledger is the one of {chosen.manifest.made}, generation {done.generation}. {_after(done)}")
    print(f"The ledger that was replaced: {replaced}")
    return exits.OK


def warn_of_old(made: Backup) -> None:
    """Print a warning about a backup of 0.1.0, whose manifest is not signed."""
    if made.manifest.schema == UNAUTHENTICATED:
        exits.complain(
            f"{made.path.name} is not authenticated: Quotebot 0.1.0 did not sign manifests. Its schema, audit and history are "
            "verified; whether anything else in it was changed since, nobody can tell."
        )


def _agreed(question: str) -> bool:
    """Ask for consent on a terminal; without one, refuse."""
    if not sys.stdin.isatty():
        exits.complain("Give --yes to go on without being asked.")
        return False
    return input(f"{question} [y/N] ").strip().casefold() in ("y", "yes")


def words(made: Backup) -> str:
    """Return a summary of a backup's content."""
    tables = made.manifest.tables
    size = made.manifest.bytes / 2**20
    return (
        f"{size:,.1f} MiB of {made.manifest.made}: {tables.get('operations', 0):,} commands, {tables.get('effects', 0):,} effects, "
        f"{tables.get('audit_events', 0):,} audit events"
    )


@contextlib.contextmanager
def following() -> Iterator[Progress]:
    """Show the progress on a terminal, and nothing elsewhere."""
    with Bar(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield show
