"""`quotebot ledger prune`: forget what is done and old."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from quotebot.cli import exits, opened

if TYPE_CHECKING:
    from ledger.retention import Purged

app = App(name="ledger", help="Look after the ledger's file.")


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
    from rich.console import Console  # noqa: PLC0415 -- see root.py
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415 -- see root.py

    from ledger.retention import purge  # noqa: PLC0415 -- see root.py

    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    async with opened.existing_ledger() as ledger:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Pruning", total=None)

            def show(so_far: Purged) -> None:
                bar.update(task, description=f"Pruning: {_words(so_far)}")

            now = ledger.clock.now_ms()
            purged = await purge(ledger, now, dry_run=dry_run, progress=show, actor=opened.operator())
    if json_output:
        print(json.dumps({"schema_version": 1, "dry_run": dry_run, "purged": asdict(purged)}, indent=2))
    elif purged:
        print(f"{'Would be deleted' if dry_run else 'Deleted'}: {_words(purged)}.")
    else:
        print("Nothing is old enough to be deleted.")
    return exits.OK


def _words(purged: Purged) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in asdict(purged).items() if number) or "nothing yet"
