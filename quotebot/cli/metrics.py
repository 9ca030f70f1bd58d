"""`quotebot metrics`: the metrics without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ledger.measures import measure
from quotebot.cli import exits, opened
from quotebot.observability.metrics import exposition, families, of_database, read_page
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric


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
    async with opened.existing_ledger() as ledger:
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
