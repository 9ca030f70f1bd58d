"""`quotebot metrics`: the numbers, without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quotebot.cli import exits, opened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric


async def metrics(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print the numbers that the ledger holds, in Prometheus' text format.

    What only the running bot knows (how long acks take, say) is on its /metrics page alone.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    from ledger.measures import measure  # noqa: PLC0415 -- see root.py
    from quotebot.metrics import exposition, families, of_database  # noqa: PLC0415 -- see root.py

    async with opened.existing_ledger() as ledger:
        found = await measure(ledger)
        health = ledger.database.health
    if json_output:
        print(json.dumps({"schema_version": 1, "metrics": _public([*families(found), *of_database(health)])}, indent=2))
    else:
        print(exposition(found, health).decode(), end="")
    return exits.OK


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
