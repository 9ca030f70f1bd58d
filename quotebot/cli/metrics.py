"""`quotebot metrics` and `slo`: the metrics without a server, and their comparison with the service level objectives.

The objectives are bounds on the bot's own metrics; the alert rules use the same bounds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from ledger.measures import measure
from quotebot.cli import exits, terminal
from quotebot.cli.tables import print_table
from quotebot.observability.metrics import exposition, families, of_database, quantiles, read_page
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample


ACKS: Final = "quotebot_ack_seconds"
ACK_SECONDS: Final = 1.0
ACK_SHARE: Final = 0.99
MISSED: Final = 1  # exit status
STATES: Final = {True: "met", False: "MISSED", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Objective:
    """The largest value of a metric that meets the objective, over all its labels or those that match `where`."""

    name: str
    promise: str
    metric: str
    most: float
    unit: str = ""
    where: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """An objective and its value; `found` is None if the value is unknown, and then the objective is neither met nor missed."""

    name: str
    promise: str
    found: float | None
    bound: float
    unit: str
    met: bool | None


OBJECTIVES: Final = (
    Objective("ledger", "The ledger takes writes", "quotebot_ledger_broken", 0),
    Objective("disk", "There is room for commands", "quotebot_disk_full", 0),
    Objective("login", "No login is refused", "quotebot_class_held_seconds", 0, " s", ("cause", "auth")),
    Objective("overdue", "What is due is begun within ten minutes", "quotebot_oldest_ready_seconds", 600, " s"),
    Objective(
        "dead-letters", "A dead letter is looked at within fifteen minutes", "quotebot_dead_letters_oldest_seconds", 900, " s"
    ),
    Objective("schedule", "Reminders and expiries are at most five minutes late", "quotebot_schedule_lag_seconds", 300, " s"),
    Objective("wal", "The write-ahead log is bounded", "quotebot_wal_bytes", 256 << 20, " bytes"),
)


def judge(found: Iterable[Metric]) -> list[Judged]:
    """Compare the metrics with the objectives."""
    samples = [sample for metric in found for sample in metric.samples]
    return [_acks(samples), *(_judged(objective, samples) for objective in OBJECTIVES)]


def _judged(objective: Objective, samples: Sequence[Sample]) -> Judged:
    values = [
        sample.value
        for sample in samples
        if sample.name == objective.metric and (objective.where is None or objective.where in sample.labels.items())
    ]
    found = max(values, default=0.0)
    return Judged(objective.name, objective.promise, found, objective.most, objective.unit, found <= objective.most)


def _acks(samples: Sequence[Sample]) -> Judged:
    """Judge the share of the running bot's acks that were in time; unknown without a bot or before its first ack."""
    total = sum(sample.value for sample in samples if sample.name == f"{ACKS}_count")
    in_time = sum(
        sample.value for sample in samples if sample.name == f"{ACKS}_bucket" and float(sample.labels["le"]) == ACK_SECONDS
    )
    share = in_time / total if total else None
    return Judged(
        "acks",
        f"{ACK_SHARE:.0%} of acknowledgements take {ACK_SECONDS:g} s at most",
        share,
        ACK_SHARE,
        "",
        None if share is None else share >= ACK_SHARE,
    )


async def metrics(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print metrics in Prometheus' text format.

    The bot writes what only it knows (how long acks take, say) to metrics.prom in the data folder every 15 seconds. Of each
    histogram the quantiles 0.5, 0.95 and 0.99 are printed too, estimated from its buckets.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    found = await gathered()
    found += quantiles(found)
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
    """Check service levels; exits 1 on a miss.

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
