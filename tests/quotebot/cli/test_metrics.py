"""Tests of the metrics: names, kinds and labels as a table, values after a history, and no customer data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.failures import AdapterError, Failure
from ledger.database import Health
from ledger.measures import measure
from quotebot.app import workers
from quotebot.observability.health import Vitals
from quotebot.observability.metrics import Metrics, exposition, families, of_database, page_path, read_page, write_page
from quotebot.sandbox.world import World
from tests.quotebot.deeds import DONE, Round, lost, transient
from tests.rig import bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from tests.quotebot.cli.conftest import Run
    from tests.quotebot.parts import Bench

HEALTH = Health(
    broken=None,
    full_since=None,
    waiting=3,
    commits=4,
    writes=9,
    commit_seconds=0.5,
    last_commit_seconds=0.1,
    wal_bytes=4096,
    ballast=True,
)

# name -> (kind, labels)
FROM_THE_LEDGER = {
    "quotebot_idempotency": ("counter", {"outcome"}),
    "quotebot_duplicate_deliveries": ("counter", {"source"}),
    "quotebot_attempts": ("counter", {"adapter", "effect_class", "outcome"}),
    "quotebot_retry_attempts": ("counter", {"adapter", "effect_class"}),
    "quotebot_dead_letters": ("counter", {"category"}),
    "quotebot_dead_letters_open": ("gauge", {"category"}),
    "quotebot_dead_letters_oldest_seconds": ("gauge", {"category"}),
    "quotebot_uncertain_resolutions": ("counter", {"how"}),
    "quotebot_fence_rejections": ("counter", {"kind"}),
    "quotebot_unfinished": ("gauge", {"kind", "state"}),
    "quotebot_oldest_ready_seconds": ("gauge", {"kind", "state"}),
    "quotebot_class_state": ("gauge", {"effect_class", "state"}),
    "quotebot_class_held_seconds": ("gauge", {"effect_class", "cause"}),
    "quotebot_schedule_lag_seconds": ("gauge", set()),
    "quotebot_uncounted_events": ("gauge", set()),
    "quotebot_wal_bytes": ("gauge", set()),
    "quotebot_writer_queue": ("gauge", set()),
    "quotebot_ledger_broken": ("gauge", set()),
    "quotebot_disk_full": ("gauge", set()),
    "quotebot_writes": ("counter", set()),
    "quotebot_commit_seconds": ("summary", set()),
}
FROM_THE_PROCESS = {
    "quotebot_ack_seconds": ("histogram", {"source"}),
    "quotebot_reserve_seconds": ("histogram", set()),
    "quotebot_pdf_render_seconds": ("histogram", set()),
    "quotebot_socket_connections": ("counter", set()),
}


async def everything(bench: Bench, metrics: Metrics) -> list[Metric]:
    """Return all metrics of the ledger, its file and a running bot."""
    return [*families(await measure(bench.ledger)), *of_database(HEALTH), *metrics.registry.collect()]


async def scripted_history(bench: Bench) -> None:
    """Make a history: a retry, an uncertain effect that is found, a failed one, a held class with a pending effect."""
    deeds = Round(bench, highest=False)
    deeds.performer.sends.extend([transient(), DONE])
    await deeds.owe("crm.create", "retried")
    await deeds.step()
    await deeds.step()
    deeds.performer.sends.append(lost())
    deeds.performer.looks.append(DONE)
    await deeds.owe("slack.post", "lost")
    await deeds.step()
    await deeds.step()
    deeds.performer.sends.append(AdapterError(Failure.VALIDATION, "REQUIRED_FIELD_MISSING", "No name."))
    await deeds.owe("crm.create", "dead")
    await deeds.step()
    await bench.ledger.pause("pdf", "ops", "new printer")
    await deeds.owe("pdf.render", "waits")
    bench.clock.advance(60_000)


def read(text: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def labels(family: Metric) -> set[str]:
    return {name for sample in family.samples for name in sample.labels} - {"le"}


def value(families: dict[str, Metric], name: str, **wanted: str) -> float:
    for family in families.values():
        for sample in family.samples:
            if sample.name == name and sample.labels == wanted:
                return sample.value
    raise AssertionError(f"there is no {name} {wanted}")


async def test_names_kinds_help_and_labels_are_as_listed(bench: Bench) -> None:
    await scripted_history(bench)
    metrics = Metrics()
    metrics.observe_ack("slack_slash", 0.004)
    families = read(exposition(await everything(bench, metrics)))
    listed: dict[str, tuple[str, set[str]]] = {**FROM_THE_LEDGER, **FROM_THE_PROCESS}
    assert {name for name in families if not name.endswith("_created")} == set(listed)
    for name, (kind, known) in listed.items():
        assert families[name].type == kind, name
        assert families[name].documentation.endswith("."), name
        assert labels(families[name]) <= known, name
    filled = {name for name, (_, known) in listed.items() if known} - {"quotebot_duplicate_deliveries", "quotebot_fence_rejections"}
    assert {name for name in filled if not labels(families[name])} == set()


async def test_values_after_a_scripted_history(bench: Bench) -> None:
    await scripted_history(bench)
    metrics = Metrics()
    metrics.observe_ack("slack_slash", 0.004)
    metrics.observe_reserve(0.002)
    metrics.observe_pdf(1.5)
    metrics.count_connection()
    families = read(exposition(await everything(bench, metrics)))
    for name, wanted, expected in (
        ("quotebot_idempotency_total", {"outcome": "new"}, 4),
        ("quotebot_retry_attempts_total", {"adapter": "crm", "effect_class": "crm.create"}, 1),
        ("quotebot_retry_attempts_total", {"adapter": "slack", "effect_class": "slack.post"}, 1),
        ("quotebot_uncertain_resolutions_total", {"how": "found"}, 1),
        ("quotebot_dead_letters_total", {"category": "validation"}, 1),
        ("quotebot_dead_letters_open", {"category": "validation"}, 1),
        ("quotebot_dead_letters_oldest_seconds", {"category": "validation"}, 60),
        ("quotebot_unfinished", {"kind": "effect", "state": "pending"}, 1),
        ("quotebot_oldest_ready_seconds", {"kind": "effect", "state": "pending"}, 60),
        ("quotebot_class_state", {"effect_class": "pdf", "state": "held"}, 1),
        ("quotebot_class_state", {"effect_class": "pdf", "state": "flowing"}, 0),
        ("quotebot_class_held_seconds", {"effect_class": "pdf", "cause": "operator"}, 60),
        ("quotebot_wal_bytes", {}, 4096),
        ("quotebot_writer_queue", {}, 3),
        ("quotebot_commit_seconds_count", {}, 4),
        ("quotebot_commit_seconds_sum", {}, 0.5),
        ("quotebot_ack_seconds_count", {"source": "slack_slash"}, 1),
        ("quotebot_ack_seconds_bucket", {"source": "slack_slash", "le": "0.0025"}, 0),
        ("quotebot_ack_seconds_bucket", {"source": "slack_slash", "le": "0.005"}, 1),
        ("quotebot_reserve_seconds_sum", {}, 0.002),
        ("quotebot_pdf_render_seconds_sum", {}, 1.5),
        ("quotebot_socket_connections_total", {}, 1),
    ):
        assert value(families, name, **wanted) == pytest.approx(expected), (name, wanted)


async def test_no_number_names_a_quote_a_person_or_a_text(bench: Bench) -> None:
    await scripted_history(bench)
    text = exposition(await everything(bench, Metrics())).decode()
    assert not any(word in text for word in ("Q-", "U0REP", "T0HOME", "No name", "new printer", "Acme"))


def test_two_processes_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.count_connection()
    assert second.registry.get_sample_value("quotebot_socket_connections_total") == 0


async def test_what_a_replica_counts_names_it_and_what_the_ledger_counts_does_not(bench: Bench) -> None:
    metrics = Metrics("east")
    metrics.watch_replicas(lambda: 3, lambda: True)
    metrics.count_connection()
    vitals = Vitals(bench.ledger, metrics, ())
    families = read(await vitals.numbers())
    assert value(families, "quotebot_socket_connections_total", replica="east") == 1
    assert value(families, "quotebot_replicas", replica="east") == 3
    assert value(families, "quotebot_replica_lock_held", replica="east") == 1
    assert value(families, "quotebot_writer_queue", replica="east") == 0
    named = {name for name, family in families.items() if "replica" in labels(family)}
    assert {name for name in named if name in FROM_THE_LEDGER} == {each.name for each in of_database(HEALTH)}
    write_page(metrics, bench.path.parent)
    page = {each.name: each for each in read_page(bench.path.parent, page_path(bench.path.parent).stat().st_mtime)}
    assert [sample.labels for sample in page["quotebot_replicas"].samples] == [{"replica": "east"}]


def test_the_command_prints_what_prometheus_reads(command: Run, dead: Path) -> None:
    done = command("metrics")
    assert (done.returncode, done.stderr) == (0, "")
    families = read(done.stdout.encode())
    assert {name for name in families if not name.endswith("_created")} == set(FROM_THE_LEDGER)
    assert value(families, "quotebot_dead_letters_open", category="transient") == 2
    assert dead.exists()


def test_the_command_prints_json(command: Run, dead: Path) -> None:
    printed: dict[str, Any] = json.loads(command("metrics", "--json").stdout)
    assert printed["schema_version"] == 1
    by_name = {metric["name"]: metric for metric in printed["metrics"]}
    assert set(by_name) == set(FROM_THE_LEDGER)
    assert {"name": "quotebot_dead_letters_open", "labels": {"category": "transient"}, "value": 2} in by_name[
        "quotebot_dead_letters_open"
    ]["samples"]
    assert dead.exists()


def test_the_page_of_a_running_bot_is_read_and_an_old_one_is_not(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.observe_ack("slash_commands", 0.004)
    metrics.observe_reserve(0.002)
    write_page(metrics, tmp_path)
    written = (tmp_path / "metrics.prom").stat().st_mtime
    found = {metric.name: metric for metric in read_page(tmp_path, written + 59)}
    (count,) = [each for each in found["quotebot_ack_seconds"].samples if each.name.endswith("_count")]
    assert (count.labels, count.value) == ({"source": "slack_slash"}, 1.0)
    assert read_page(tmp_path, written + 61) == []
    assert read_page(tmp_path / "nowhere", written) == []


def test_the_command_prints_quantiles_of_the_running_bots_histograms(command: Run, dead: Path) -> None:
    metrics = Metrics()
    for seconds in [0.002] * 90 + [0.2] * 9 + [9.0]:
        metrics.observe_ack("slash_commands", seconds)
    metrics.observe_reserve(0.002)
    write_page(metrics, dead.parent)
    found = read(command("metrics").stdout.encode())
    acks = [value(found, "quotebot_ack_quantile_seconds", source="slack_slash", quantile=each) for each in ("0.5", "0.95", "0.99")]
    assert acks == [0.001833, 0.183333, 0.25]
    assert 0.001 < value(found, "quotebot_reserve_quantile_seconds", quantile="0.5") < 0.0025
    assert "quotebot_pdf_render_quantile_seconds" not in found
    printed = {each["name"]: each for each in json.loads(command("metrics", "--json").stdout)["metrics"]}
    assert printed["quotebot_ack_quantile_seconds"]["type"] == "gauge"
    assert printed["quotebot_ack_quantile_seconds"]["samples"][0]["labels"] == {"source": "slack_slash", "quantile": "0.5"}


def test_a_quantile_beyond_the_last_bound_is_that_bound(command: Run, dead: Path) -> None:
    metrics = Metrics()
    metrics.observe_ack("events_api", 9.0)
    write_page(metrics, dead.parent)
    found = read(command("metrics").stdout.encode())
    assert value(found, "quotebot_ack_quantile_seconds", source="slack_event", quantile="0.99") == 3.0


async def test_a_rendered_document_is_on_the_metrics_page_of_the_bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAGE_SECONDS", 0.1)
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.approved_deal()
        metrics = tmp_path / "bot" / "metrics.prom"
        await eventually(lambda: rendered(metrics), "the page to count the rendering", holds=lambda count: count == 1)


def rendered(page: Path) -> float | None:
    """Return the number of renderings on a bot's page."""
    text = page.read_text() if page.exists() else ""
    return next(
        (float(line.split()[1]) for line in text.splitlines() if line.startswith("quotebot_pdf_render_seconds_count")), None
    )
