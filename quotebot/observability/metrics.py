"""Metrics in Prometheus format: counts of the ledger and of the running process. Labels are our own names, never customer data.

`Metrics` belongs to one process and is passed to the code that measures; the bot writes it to a page beside its ledger.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ledger.gates import family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from adapters.salesforce.calls import ApiUsage
    from ledger.database import Health
    from ledger.measures import Measures

BUCKETS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0)
PDF_BUCKETS_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GATE_STATES: Final = ("flowing", "held", "half_open")
QUANTILES: Final = (0.5, 0.95, 0.99)

# measure of the ledger -> (metric without its prefix, help, labels)
COUNTERS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "idempotency": ("idempotency", "Commands that arrived, by what they turned out to be.", ("outcome",)),
    "duplicate_deliveries": ("duplicate_deliveries", "Deliveries of a command that was known already.", ("source",)),
    "attempts": ("attempts", "Attempts that ended, by how.", ("adapter", "effect_class", "outcome")),
    "retry_attempts": ("retry_attempts", "Attempts that were not the first of their effect.", ("adapter", "effect_class")),
    "dead_letters": ("dead_letters", "Rows that were given up, ever.", ("category",)),
    "uncertain_resolutions": ("uncertain_resolutions", "Doubts that ended, by how.", ("how",)),
    "fence_rejections": ("fence_rejections", "Results that came too late and changed nothing.", ("kind",)),
}
BY_CLASS: Final = frozenset({"attempts", "retry_attempts"})


_SOURCES: Final = {"slash_commands": "slack_slash", "interactive": "slack_interactive", "events_api": "slack_event"}
PAGE_SECONDS: Final = 15.0  # interval at which the bot writes its page
STALE_SECONDS: Final = 60.0  # an older page is from a bot that has stopped


class Metrics:
    """Metrics that only this process knows. Every instance counts for itself.

    `replica` is its name among several bots on one ledger: a label of all that it exports, and of nothing that the ledger counts.
    """

    def __init__(self, replica: str | None = None) -> None:
        self.registry = CollectorRegistry()
        self._replica = replica
        self._ack = Histogram(
            "quotebot_ack_seconds",
            "From a Slack envelope's arrival to its ack.",
            ("source",),
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._reserve = Histogram(
            "quotebot_reserve_seconds", "How long a reservation took.", buckets=BUCKETS_SECONDS, registry=self.registry
        )
        self._pdf = Histogram(
            "quotebot_pdf_render_seconds", "How long a rendering took.", buckets=PDF_BUCKETS_SECONDS, registry=self.registry
        )
        self._reconnects = Counter("quotebot_socket_connections", "Sockets opened to Slack.", registry=self.registry)

    def observe_ack(self, envelope: str, seconds: float) -> None:
        """Record the duration of one ack. `envelope` is Slack's envelope type: slash_commands, interactive, events_api."""
        self._ack.labels(_SOURCES.get(envelope, envelope)).observe(seconds)

    def observe_reserve(self, seconds: float) -> None:
        """Record the duration of one reservation."""
        self._reserve.observe(seconds)

    def observe_pdf(self, seconds: float) -> None:
        """Record the duration of one rendering."""
        self._pdf.observe(seconds)

    def watch_crm(self, usage: Callable[[], ApiUsage | None]) -> None:
        """Export the used part of Salesforce's allowance of calls by its last answer; 0 of 0 before the first."""
        words = {
            "used": "Calls of the last 24 hours, by every client of the org.",
            "allowed": "Calls the org may make in 24 hours.",
        }

        def shown(name: str) -> float:
            found = usage()
            return 0.0 if found is None else float(getattr(found, name))

        for name, said in words.items():
            Gauge(f"quotebot_crm_api_calls_{name}", said, registry=self.registry).set_function(partial(shown, name))

    def watch_replicas(self, alive: Callable[[], int], is_held: Callable[[], bool]) -> None:
        """Export how many replicas this one sees alive, and whether it holds its lock."""
        Gauge("quotebot_replicas", "Replicas alive, as this one sees it.", registry=self.registry).set_function(
            lambda: float(alive())
        )
        Gauge(
            "quotebot_replica_lock_held",
            "1 while this replica holds its lock; without it, it begins no work.",
            registry=self.registry,
        ).set_function(lambda: float(is_held()))

    def watch_clock(self, suspended: Callable[[], bool]) -> None:
        """Export whether the wall clock is suspended."""
        Gauge(
            "quotebot_clock_suspended",
            "1 while the clock is not trusted: nothing expires and nothing is purged.",
            registry=self.registry,
        ).set_function(lambda: float(suspended()))

    def count_connection(self) -> None:
        """Count an opened socket."""
        self._reconnects.inc()

    def collect(self, *others: Metric) -> Iterator[Metric]:
        """Return this process's metrics, after `others` of it, labeled with its replica if it has a name."""
        for metric in (*others, *self.registry.collect()):
            if self._replica is not None:
                metric.samples = [each._replace(labels={**each.labels, "replica": self._replica}) for each in metric.samples]
            yield metric


def page_path(data_dir: Path) -> Path:
    """Return the path of the bot's metrics page, which `quotebot metrics` and text file collectors read."""
    return data_dir / "metrics.prom"


def write_page(metrics: Metrics, data_dir: Path) -> None:
    """Write the page atomically."""
    path = page_path(data_dir)
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(exposition(list(metrics.collect())))
    fresh.replace(path)


def read_page(data_dir: Path, now_seconds: float) -> list[Metric]:
    """Read the page of the running bot; empty if it is missing or stale. `now_seconds` is Unix time."""
    path = page_path(data_dir)
    try:
        if now_seconds - path.stat().st_mtime > STALE_SECONDS:
            return []
        return list(text_string_to_metric_families(path.read_text("utf-8")))
    except FileNotFoundError:
        return []


def exposition(found: Sequence[Metric]) -> bytes:
    """Return metrics as Prometheus text."""
    return generate_latest(_Fixed(found))


def quantiles(found: Iterable[Metric]) -> Iterator[Metric]:
    """Return the quantiles of each histogram as gauges: `quotebot_ack_seconds` yields `quotebot_ack_quantile_seconds`.

    A quantile is estimated as Prometheus does it: by linear interpolation inside its bucket; beyond the last bound, that bound.
    """
    for metric in found:
        counts: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for sample in metric.samples:
            if metric.type == "histogram" and sample.name.endswith("_bucket"):
                labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
                counts.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        names = [name for name, _ in next(iter(counts), ())]
        shown = GaugeMetricFamily(
            f"{metric.name.removesuffix('_seconds')}_quantile_seconds",
            f"Estimated quantiles of {metric.name}.",
            labels=(*names, "quantile"),
        )
        for labels, buckets in counts.items():
            if buckets[-1][1]:
                for quantile in QUANTILES:
                    shown.add_metric([*(value for _, value in labels), str(quantile)], _quantile(sorted(buckets), quantile))
        if shown.samples:
            yield shown


def _quantile(buckets: Sequence[tuple[float, float]], quantile: float) -> float:
    """Return a quantile from the bounds and cumulative counts of the buckets, of which the last has the bound infinity."""
    rank = quantile * buckets[-1][1]
    lower = below = 0.0
    for bound, count in buckets[:-1]:
        if count >= rank:
            return round(lower + (bound - lower) * (rank - below) / (count - below), 6)
        lower, below = bound, count
    return lower


def families(measures: Measures) -> Iterator[Metric]:
    """Return the ledger's measures as metrics."""
    for name, (metric, words, labels) in COUNTERS.items():
        counter = CounterMetricFamily(f"quotebot_{metric}", words, labels=labels)
        for key, value in sorted(measures.counts.items()):
            if key[0] == name:
                counter.add_metric([family(key[1]), *key[1:]] if name in BY_CLASS else key[1:], value)
        yield counter
    yield from _dead(measures)
    yield from _unfinished(measures)
    yield from _gates(measures)
    lag = 0.0 if measures.schedule_due_at is None else _age(measures, measures.schedule_due_at)
    yield GaugeMetricFamily("quotebot_schedule_lag_seconds", "How late the latest scheduled command is.", value=lag)
    yield GaugeMetricFamily("quotebot_uncounted_events", "Audit events since the counts were stored last.", value=measures.unfolded)


def of_database(health: Health) -> Iterator[Metric]:
    """Return the state of the ledger's file as metrics. Commits count since this process opened it."""
    yield GaugeMetricFamily("quotebot_wal_bytes", "Size of the ledger's write-ahead log.", value=health.wal_bytes)
    yield GaugeMetricFamily("quotebot_writer_queue", "Writes that wait behind the running batch.", value=health.waiting)
    yield GaugeMetricFamily(
        "quotebot_ledger_broken", "1 when the ledger takes no writes until a restart.", value=bool(health.broken)
    )
    yield GaugeMetricFamily("quotebot_disk_full", "1 when the ledger's disk was full lately.", value=health.full_since is not None)
    yield CounterMetricFamily("quotebot_writes", "Writes that were committed.", value=health.writes)
    yield SummaryMetricFamily(
        "quotebot_commit_seconds", "Commits, and the time inside them.", count_value=health.commits, sum_value=health.commit_seconds
    )


class _Fixed(Collector):
    """Collector of metrics that were read before."""

    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Sequence[Metric]:
        return self._found


def _age(measures: Measures, at: int) -> float:
    return max(0, measures.now - at) / 1000


def _dead(measures: Measures) -> Iterator[Metric]:
    count = GaugeMetricFamily("quotebot_dead_letters_open", "Dead letters that wait for somebody.", labels=("category",))
    age = GaugeMetricFamily("quotebot_dead_letters_oldest_seconds", "Age of the oldest of them.", labels=("category",))
    for letters in measures.dead:
        count.add_metric([letters.category], letters.count)
        if letters.oldest_at is not None:
            age.add_metric([letters.category], _age(measures, letters.oldest_at))
    yield count
    yield age


def _unfinished(measures: Measures) -> Iterator[Metric]:
    count = GaugeMetricFamily("quotebot_unfinished", "Rows that are not done.", labels=("kind", "state"))
    age = GaugeMetricFamily(
        "quotebot_oldest_ready_seconds", "How long the first of them is due, or under way.", labels=("kind", "state")
    )
    for rows in measures.unfinished:
        count.add_metric([rows.kind, rows.state], rows.count)
        age.add_metric([rows.kind, rows.state], 0.0 if rows.oldest_at is None else _age(measures, rows.oldest_at))
    yield count
    yield age


def _gates(measures: Measures) -> Iterator[Metric]:
    state = GaugeMetricFamily("quotebot_class_state", "1 for the state a class is in.", labels=("effect_class", "state"))
    held = GaugeMetricFamily("quotebot_class_held_seconds", "How long a class is held.", labels=("effect_class", "cause"))
    for gate in measures.gates:
        for each in GATE_STATES:
            state.add_metric([gate.name, each], float(gate.state == each))
        if gate.state == "held" and gate.held_at is not None:
            held.add_metric([gate.name, gate.cause or "unknown"], _age(measures, gate.held_at))
    yield state
    yield held
