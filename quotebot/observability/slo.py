"""Service level objectives: bounds on the bot's own metrics; the alert rules use the same bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

ACKS: Final = "quotebot_ack_seconds"
ACK_SECONDS: Final = 1.0
ACK_SHARE: Final = 0.99


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
