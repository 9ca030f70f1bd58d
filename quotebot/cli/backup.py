"""`quotebot backup` and `restore`: a verified copy of the ledger, also beside a running bot, and the restore from one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- cyclopts reads it
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress as Bar

from ledger.clock import SystemClock
from ledger.operator.manifests import UNAUTHENTICATED
from quotebot.app import restore as restoring
from quotebot.app.backups import authentic_backup, make_backup
from quotebot.app.first_start import require_ledger
from quotebot.cli import exits, terminal
from quotebot.settings import ConfigurationError, load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.operator.backup import Backup, Progress
    from quotebot.settings import Settings


def backup(
    *,
    to: Path | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Copy the ledger as it is at this moment, prove the copy, and write its manifest. The bot may run and is not held up.

    The audit's keys (audit-*.key) and the PDFs are not in it. Keep copies of the keys apart from the backups: without them nobody
    can tell whether a ledger is whole. A PDF that is lost is rendered again, byte for byte.

    Parameters
    ----------
    to
        The folder. Without it the configured one (QUOTEBOT_BACKUP_FOLDER), where all but the newest are removed.
    json_output
        Print JSON.
    """
    settings = existing_site()
    with following() as progress:
        made = make_backup(settings, SystemClock().now_ms(), folder=to, progress=progress)
    if json_output:
        print(json.dumps({"schema_version": 1, "path": str(made.path.absolute()), **asdict(made.manifest)}, indent=2))
    else:
        print(f"{made.path.absolute()} ({words(made)}) is whole.")
    return exits.OK


async def restore(
    file: Path,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    unauthenticated: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Put the ledger back to a backup. No bot may run on it; what was recorded since the backup is lost here.

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
    exits.complain(f"{file.name} ({words(chosen)}). The ledger at {settings.ledger_path.absolute()} {held}.")
    if not yes and not _agreed():
        exits.complain("Nothing was changed.")
        return exits.REFUSED
    with following() as progress:
        name = terminal.user()
        done = await restoring.restore(
            settings, file, SystemClock(), actor=name, terminal_user=name, progress=progress, unauthenticated=unauthenticated
        )
    replaced = None if done.replaced is None else str(done.replaced.absolute())
    if json_output:
        numbers = {str(year): last for year, last in done.numbers.items()}
        told = {"generation": done.generation, "in_doubt": done.in_doubt, "numbers_after": numbers, "replaced": replaced}
        print(json.dumps({"schema_version": 1, **told}, indent=2))
        return exits.OK
    after = ", ".join(f"{last:,} ({year})" for year, last in done.numbers.items())
    print(f"The ledger is the one of {chosen.manifest.made}, generation {done.generation}. Quote numbers go on after {after}.")
    print(f"{done.in_doubt:,} effects are in doubt: the bot looks for each before it does it again. Start it: quotebot run")
    print(f"The ledger that was replaced: {replaced}")
    return exits.OK


def warn_of_old(made: Backup) -> None:
    """Print a warning about a backup of 0.1.0, whose manifest is not signed."""
    if made.manifest.schema == UNAUTHENTICATED:
        exits.complain(
            f"{made.path.name} is not authenticated: Quotebot 0.1.0 did not sign manifests. Its schema, audit and history are "
            "verified; whether anything else in it was changed since, nobody can tell."
        )


def _agreed() -> bool:
    """Ask for consent on a terminal; without one, refuse."""
    if not sys.stdin.isatty():
        exits.complain("Give --yes to go on without being asked.")
        return False
    return input("Put it back to that? What was recorded since is lost here. [y/N] ").strip().casefold() in ("y", "yes")


def existing_site() -> Settings:
    """Return the settings of an installation that has a ledger. Raises ConfigurationError."""
    settings = load_settings()
    require_ledger(settings)
    if not settings.ledger_path.exists():
        raise ConfigurationError(
            f"There is no ledger at {settings.ledger_path.absolute()}. Nothing was done. "
            "Set QUOTEBOT_DATA_DIR to the bot's data folder."
        )
    return settings


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
