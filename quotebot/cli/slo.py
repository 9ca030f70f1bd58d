"""`quotebot slo`: comparison of the bot's own metrics with its service level objectives."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from quotebot.cli import exits
from quotebot.cli.metrics import gathered
from quotebot.cli.tables import print_table
from quotebot.observability.slo import judge

if TYPE_CHECKING:
    from quotebot.observability.slo import Judged

MISSED: Final = 1  # exit status
STATES: Final = {True: "met", False: "MISSED", None: "unknown"}


async def slo(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Hold the numbers of the ledger and of the running bot against what is promised; status 1 when something is missed.

    How long acknowledgements take is known while a bot runs, since its start.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    judged = judge(await gathered())
    if json_output:
        print(json.dumps({"schema_version": 1, "objectives": [asdict(each) for each in judged]}, indent=2))
    else:
        print_table(("STATE", "FOUND", "BOUND", "PROMISE"), [_row(each) for each in judged])
    return MISSED if any(each.met is False for each in judged) else exits.OK


def _row(each: Judged) -> tuple[str, str, str, str]:
    found = "-" if each.found is None else f"{each.found:,.10g}{each.unit}"
    return STATES[each.met], found, f"{each.bound:,.10g}{each.unit}", each.promise
