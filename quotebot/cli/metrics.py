"""`quotebot metrics` and `slo`: the metrics without a server, and their comparison with the service level objectives."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from ledger.measures import measure
from quotebot.cli import exits, terminal
from quotebot.cli.tables import print_table
from quotebot.observability.metrics import exposition, families, of_database, read_page
from quotebot.observability.slo import judge
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from quotebot.observability.slo import Judged

MISSED: Final = 1  # exit status
STATES: Final = {True: "met", False: "MISSED", None: "unknown"}


async def metrics(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print the numbers that the ledger holds, and those of the running bot, in Prometheus' text format.

    The bot writes what only it knows (how long acks take, say) to metrics.prom in the data folder every 15 seconds.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    found = await gathered()
    if json_output:
        print(json.dumps({"schema_version": 1, "metrics": _public(found)}, indent=2))
    else:
        print(exposition(found).decode(), end="")
    return exits.OK


async def gathered() -> list[Metric]:
    """Return the metrics of the ledger, of its file and of the running bot."""
    async with terminal.existing_ledger() as ledger:
        of_bot = read_page(load_settings().data_dir, ledger.clock.now_ms() / 1000)
        return [*families(await measure(ledger)), *of_database(ledger.database.health), *of_bot]


def _public(found: Iterable[Metric]) -> list[dict[str, Any]]:
    return [
        {
            "name": metric.name,
            "type": metric.type,
            "help": metric.documentation,
            "samples": [{"name": each.name, "labels": each.labels, "value": each.value} for each in metric.samples],
        }
        for metric in found
    ]


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
