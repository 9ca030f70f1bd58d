"""`quotebot ledger ...`: verification, migration and retention of the ledger's file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- cyclopts reads it
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from ledger.audit.keyring import load_keyring, require_keys
from ledger.operator.backup import NotWholeError, prove
from ledger.operator.manifests import NotAuthenticError
from quotebot.app.backups import authentic_backup, prove_backup
from quotebot.app.installation import proof_by
from quotebot.cli import backup, exits, opened, terminal
from quotebot.jobs.retention import RetentionPeriods, forget, let_go, too_old
from quotebot.observability.clock_guard import read_suspension
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.retention import Purged

app = App(name="ledger", help="Look after the ledger's file.")
app.command(backup.backup)
app.command(backup.restore)


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
    async with opened.existing_ledger() as ledger:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Pruning", total=None)

            def show(so_far: Purged) -> None:
                bar.update(task, description=f"Pruning: {_words(asdict(so_far)) or 'nothing yet'}")

            if not dry_run and await ledger.database.read(read_suspension) is not None:
                exits.complain("The clock is suspended, so nothing is old enough to be deleted. See: quotebot clock status")
                return exits.REFUSED
            now, actor = ledger.clock.now_ms(), terminal.user()
            rows = await forget(ledger, now, dry_run=dry_run, progress=show, actor=actor)
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

    settings = backup.existing_site()
    require_keys(settings.data_dir)
    proof = proof_by(load_keyring(settings.data_dir, may_create=False))
    found, tables = None, dict[str, int]()
    try:
        with backup.following() as progress:
            tables = prove(settings.ledger_path, proof, progress)
    except NotWholeError as error:
        found = error.why
    if json_output:
        print(json.dumps({"schema_version": 1, "whole": found is None, "found": found, "tables": tables}, indent=2))
    elif found is None:
        rows, events = sum(tables.values()), tables["audit_events"]
        print(f"The ledger is whole: {rows:,} rows in {len(tables)} tables, {events:,} of them audit events.")
    else:
        exits.complain(
            f"The ledger {settings.ledger_path.absolute()} is not whole: {found}. Nothing was changed. Stop the bot, keep a copy "
            "of the whole data folder, check the disk, then: quotebot restore with the newest backup."
        )
    return exits.OK if found is None else exits.REFUSED


def _verify_backup(file: Path, *, unauthenticated: bool, json_output: bool) -> int:

    settings = load_settings()
    found, tables = None, dict[str, int]()
    try:
        chosen = authentic_backup(settings, file, unauthenticated=unauthenticated)
        backup.warn_of_old(chosen)
        with backup.following() as progress:
            tables = prove_backup(settings, chosen, unauthenticated=unauthenticated, progress=progress)
    except (NotWholeError, NotAuthenticError) as error:
        found = str(error)
    if json_output:
        print(json.dumps({"schema_version": 1, "whole": found is None, "found": found, "tables": tables}, indent=2))
    elif found is None:
        print(f"{file} ({backup.words(chosen)}) is whole.")
    else:
        exits.complain(found)
    return exits.OK if found is None else exits.REFUSED


@app.command
async def migrate() -> int:
    """Bring the ledger up to this build's schema, with a backup first, as the bot's next start would. No bot may be running."""
    async with opened.existing_ledger():
        print("The ledger is of this build.")
    return exits.OK


def _words(purged: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in purged.items() if number)
