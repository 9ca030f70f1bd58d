"""`quotebot quote reprice --verify`: check that every stored price is reproduced by its own ruleset, to the byte."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from quotebot.app.installation import load_rules
from quotebot.cli import dead_letter_tables, exits, opened
from quotebot.jobs.repricing import Repricing
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from quotebot.jobs.repricing import Repriced

SHOWN: Final = 100  # limit of differing snapshots
DIFFERENCES_SHOWN: Final = 20  # limit per snapshot


async def reprice(
    *,
    verify: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Price every stored version of every quote again by the ruleset that priced it, and compare byte for byte. Changes nothing.

    Exit status: 0 all come out the same, 3 some differ (they are named), 64 usage.

    Parameters
    ----------
    verify
        Needed: there is nothing else to do. A quote gets other prices by being revised or cloned.
    json_output
        Print JSON.
    """
    if not verify:
        exits.complain(
            "Stored prices never change: say --verify to check them. A quote gets other prices by `quotebot quote revise`."
        )
        return exits.USAGE
    checked, differing = 0, 0
    shown: list[Repriced] = []
    async with opened.existing_ledger() as ledger:
        repricing = Repricing(ledger, load_rules(load_settings()).ruleset)
        total = await repricing.count()
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Pricing again", total=total)
            async for repriced in repricing.all():
                checked += 1
                bar.update(task, completed=checked)
                if repriced.differences:
                    differing += 1
                    shown += [repriced] if differing <= SHOWN else []
    if json_output:
        told = [{**asdict(each), "differences": each.differences[:DIFFERENCES_SHOWN]} for each in shown]
        dead_letter_tables.print_json({"schema_version": 1, "snapshots": checked, "differing": differing, "shown": told})
    else:
        _tell(checked, differing, shown)
    return exits.REFUSED if differing else exits.OK


def _tell(checked: int, differing: int, shown: list[Repriced]) -> None:
    for each in shown:
        number = "" if each.ruleset_version is None else f", version {each.ruleset_version}"
        print(f"{each.quote_id} v{each.version} (priced by {each.ruleset}{number}):")
        for difference in each.differences[:DIFFERENCES_SHOWN]:
            print(f"  {difference}")
        if len(each.differences) > DIFFERENCES_SHOWN:
            print(f"  and {len(each.differences) - DIFFERENCES_SHOWN} more")
    if differing > len(shown):
        print(f"{differing - len(shown):,} more differ.")
    name = "snapshot" if checked == 1 else "snapshots"
    print(
        f"{checked:,} {name} priced again: {differing:,} differ."
        if differing
        else f"{checked:,} {name} priced again: all the same."
    )
